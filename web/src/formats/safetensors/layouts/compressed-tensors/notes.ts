/** Notes about the readers of a result in the layout of compressed-tensors. */

import { type Note, noteOf } from '../../../../core/note.js';
import type { CompressedForm } from '../../../codecs/compressed-tensors.js';
import type { PlannedTensor } from '../../../format.js';
import { cutUnitsNotes } from '../../fused.js';
import { linearOnly } from '../../keep.js';
import { hasByteCodes, type SafetensorsOptions } from '../../options.js';

const nameOf = ({ source }: PlannedTensor) => source.name;

/** The note about codes in layers that only this package decodes. */
function specialLayersNote(special: readonly PlannedTensor[]): Note {
  const become = special.length === 1 ? 'becomes' : 'become';
  const readers = 'Scalepoint reads them, vLLM, transformers and llama.cpp do not';
  const text = `${special.length} ${special.length === 1 ? 'weight' : 'weights'} of layers that are not linear ${become} codes: ${readers}`;
  return noteOf('codesOfOtherLayers', { tensors: special.map(nameOf) }, text);
}

/** The note about the readers of codes that are not packed. */
function plainNote({ scheme }: SafetensorsOptions): Note {
  // The converter ignores zero points of codes that are not packed.
  const readers = scheme === 'asymmetric' ? 'transformers' : "transformers and llama.cpp's converter";
  return noteOf('plainCodes', {}, `plain int8 codes are read by ${readers}; vLLM needs packed codes (the default)`);
}

/** Notes about the readers of the codes, where they differ from the usual ones. */
export function notesOnReaders(tensors: readonly PlannedTensor[], choices: SafetensorsOptions): Note[] {
  const converted = tensors.filter(({ form }) => form.codec === 'compressed-tensors');
  const notes: Note[] = [];
  const notLinear = linearOnly(tensors.map(({ source }) => source));
  const special = converted.filter(({ source: { name, shape } }) => notLinear(name, shape) !== undefined);
  if (special.length > 0) notes.push(specialLayersNote(special));
  const forms = new Set(converted.map(({ form }) => form as CompressedForm));
  if ([...forms].some(({ type }) => type === 'int') && hasByteCodes(choices) && choices.activations === undefined) {
    notes.push(plainNote(choices));
  }
  const rows = converted.filter(({ source, form }) => {
    const { packed, groupSize } = form as CompressedForm;
    return packed && groupSize === undefined && source.shape.length === 2;
  });
  if (rows.length > 0) {
    const text =
      "packed codes with one scale a row are read by vLLM and transformers; llama.cpp's converter needs groups";
    notes.push(noteOf('packedRows', { tensors: rows.map(nameOf) }, text));
  }
  return [...notes, ...cutUnitsNotes(tensors)];
}

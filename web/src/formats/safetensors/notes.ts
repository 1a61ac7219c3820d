/** Notes about a safetensors result: its readers, and options that would convert kept weights. */
import type { CompressedForm } from '../../codecs/compressed-tensors.js';
import { type Note, noteOf } from '../../core/note.js';
import { mention, type OptionMention } from '../../core/option-problem.js';
import type { LogicalTensor, PlannedTensor } from '../format.js';
import type { Reason } from '../reason.js';
import { linearOnly } from './keep.js';
import { isPlain, type SafetensorsOptions } from './options.js';
import { usualGroupSizes } from './targets.js';

/** A kept weight that an option or a rule would convert. */
export interface Left {
  readonly source: LogicalTensor;
  /** Size as floats. */
  readonly bytes: number;
  /** Groups do not divide its rows; it is float64; or its layer is not linear. */
  readonly reason: Reason;
}

/** A weight whose rows groups do not divide. */
interface LeftRows extends Left {
  readonly reason: Reason & { readonly kind: 'notDivisible'; readonly dimension: number; readonly by: number };
}

const weights = (n: number) => `${n} ${n === 1 ? 'weight' : 'weights'}`;

const stay = (n: number) => `${weights(n)} ${n === 1 ? 'stays' : 'stay'}`;

const them = (n: number) => (n === 1 ? 'it' : 'them');

const namesOf = (list: readonly { readonly source: LogicalTensor }[]) => list.map(({ source }) => source.name);

const bytesOf = (list: readonly { readonly bytes: number }[]) => list.reduce((sum, { bytes }) => sum + bytes, 0);

/** Option that converts rows that groups do not divide. */
function otherGroups(columns: readonly number[], groupSizes: readonly number[]): OptionMention {
  const most = Math.max(...groupSizes);
  const size = usualGroupSizes.find((known) => known < most && columns.every((n) => n % known === 0));
  return size === undefined ? mention('granularity.kind', 'per-channel') : mention('granularity.groupSize', size);
}

/** The first few numbers of a list, as text. */
function firstFew(numbers: readonly number[]): string {
  return numbers.length > 3 ? `${numbers.slice(0, 3).join(', ')} and others` : numbers.join(', ');
}

/** The note about rows that groups do not divide. */
function rowsNote(left: readonly LeftRows[]): Note {
  const columns = [...new Set(left.map(({ reason }) => reason.dimension))];
  const groupSizes = [...new Set(left.map(({ reason }) => reason.by))];
  const why = `rows of ${firstFew(columns)} cannot be cut in groups of ${groupSizes.join(' or ')}; `;
  return noteOf(
    'leftRows',
    { tensors: namesOf(left), columns, groupSizes },
    `${stay(left.length)}: ${why}`,
    otherGroups(columns, groupSizes),
    ` takes ${them(left.length)} along`,
  );
}

/** The note about float64. */
function doublesNote(left: readonly Left[]): Note {
  const n = left.length;
  return noteOf('leftDoubles', { tensors: namesOf(left) }, `${stay(n)}, as float64; a rule takes ${them(n)} along`);
}

/** The note about weights of layers that are not linear. */
function otherLayersNote(left: readonly Left[]): Note {
  return noteOf(
    'leftLayers',
    { tensors: namesOf(left) },
    `${stay(left.length)}: loaders decode linear layers only; `,
    mention('include', 'all'),
    ` takes ${them(left.length)} along, for programs that read the file with Scalepoint`,
  );
}

/** Notes about options that would convert kept weights. */
function notesOnLeft(converted: readonly PlannedTensor[], left: readonly Left[]): Note[] {
  const isRows = (one: Left): one is LeftRows => one.reason.kind === 'notDivisible';
  const rows = left.filter(isRows);
  const isDouble = ({ reason }: Left) => reason.kind === 'dtype';
  const doubles = left.filter(isDouble);
  const others = left.filter((one) => !isRows(one) && !isDouble(one));
  // Ignore a few small ones among many, such as the first layer of a vision transformer.
  const convertedBytes = () =>
    bytesOf(converted.map(({ source: { parts } }) => ({ bytes: bytesOf(parts.map(({ tensor }) => tensor)) })));
  return [
    ...(rows.length > 0 ? [rowsNote(rows)] : []),
    ...(doubles.length > 0 ? [doublesNote(doubles)] : []),
    ...(others.length > 0 && bytesOf(others) > convertedBytes() ? [otherLayersNote(others)] : []),
  ];
}

/** The note about codes in layers that only this package decodes. */
function specialLayersNote(special: readonly PlannedTensor[]): Note {
  const become = special.length === 1 ? 'becomes' : 'become';
  const readers = 'Scalepoint reads them, vLLM, transformers and llama.cpp do not';
  const text = `${weights(special.length)} of layers that are not linear ${become} codes: ${readers}`;
  return noteOf('codesOfOtherLayers', { tensors: namesOf(special) }, text);
}

/** The note about the readers of codes that are not packed. */
function plainNote({ scheme }: SafetensorsOptions): Note {
  // The converter ignores zero points of codes that are not packed.
  const readers = scheme === 'asymmetric' ? 'transformers' : "transformers and llama.cpp's converter";
  return noteOf('plainCodes', {}, `plain int8 codes are read by ${readers}; vLLM wants them packed, as by default`);
}

/** Notes about the readers of the codes, where they differ from the usual ones. */
function notesOnReaders(
  tensors: readonly PlannedTensor[],
  converted: readonly PlannedTensor[],
  choices: SafetensorsOptions,
): Note[] {
  const notes: Note[] = [];
  const notLinear = linearOnly(tensors.map(({ source }) => source));
  const special = converted.filter(({ source: { name, shape } }) => notLinear(name, shape) !== undefined);
  if (special.length > 0) notes.push(specialLayersNote(special));
  const forms = new Set(converted.map(({ form }) => form as CompressedForm));
  if ([...forms].some(({ type }) => type === 'int') && isPlain(choices) && choices.activations === undefined) {
    notes.push(plainNote(choices));
  }
  const rows = converted.filter(({ source, form }) => {
    const { packed, groupSize } = form as CompressedForm;
    return packed && groupSize === undefined && source.shape.length === 2;
  });
  if (rows.length > 0) {
    const text =
      "packed codes with one scale a row are read by vLLM and transformers; llama.cpp's converter wants groups";
    notes.push(noteOf('packedRows', { tensors: namesOf(rows) }, text));
  }
  return notes;
}

/** Notes about a result. */
export function notesOf(
  tensors: readonly PlannedTensor[],
  left: readonly Left[],
  choices: SafetensorsOptions,
): readonly Note[] {
  const converted = tensors.filter(({ form }) => form.codec === 'compressed-tensors');
  return [...notesOnReaders(tensors, converted, choices), ...notesOnLeft(converted, left)];
}

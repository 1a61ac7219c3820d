/** Plans the GGUF file of a vision tower, whose types and order are those of llama.cpp's converter. */
import type { FilePlan, LogicalTensor, PartsOf } from '../../../formats/format.js';
import { edited } from '../../../formats/gguf/edits.js';
import type { GgufChoices } from '../../../formats/gguf/options.js';
import { planResult, type ResultTensor } from '../../../formats/gguf/result.js';
import { reasons } from '../../../formats/reason.js';
import type { Carried } from '../../carry-out.js';

/**
 * Plans the file.
 * @param types type of each tensor in the file, by its name
 * @throws RangeError if the metadata cannot be edited
 */
export function planTower(
  { view, sources }: Carried,
  types: ReadonlyMap<string, string>,
  { metadata, fixAlignment }: Pick<GgufChoices, 'metadata' | 'fixAlignment'>,
  partsOf: PartsOf,
): FilePlan {
  const results = view.tensors.map(({ name, shape, dtype }, index): ResultTensor => {
    const type = types.get(name) as string;
    const from = { source: sources[index] as LogicalTensor, index };
    return { name, shape, type, from, ...(type === dtype ? { kept: reasons.sameType } : {}) };
  });
  return planResult(edited(view.pairs, view, metadata), results, partsOf, { choices: { fixAlignment } });
}

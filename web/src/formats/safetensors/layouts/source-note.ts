/** Notes about sources that were quantized before. */
import type { Note } from '../../../core/note.js';
import type { LogicalTensor } from '../../format.js';
import { quantizedBefore } from '../../source-note.js';
import { quantizedLayoutOf } from './registry.js';

/** The note that says what was lost before; none for floats. */
export function sourceNotes(tensors: readonly LogicalTensor[]): Note[] {
  const weights = tensors.flatMap(({ name, form, type }) => {
    const layout = quantizedLayoutOf(form);
    return layout === undefined ? [] : [{ name, words: `${layout.labelOf?.(form) ?? layout.label}, ${type}` }];
  });
  return quantizedBefore(weights);
}

/** Notes about sources that were quantized before. */
import { type Note, noteOf } from '../../../core/note.js';
import type { LogicalTensor } from '../../format.js';
import { quantizedLayoutOf } from './registry.js';

/** The note that says what was lost before; none for floats. */
export function sourceNotes(tensors: readonly LogicalTensor[]): Note[] {
  const names: string[] = [];
  const forms = new Map<string, number>();
  for (const { name, form, type } of tensors) {
    const layout = quantizedLayoutOf(form);
    if (layout === undefined) continue;
    names.push(name);
    const words = `${layout.labelOf?.(form) ?? layout.label}, ${type}`;
    forms.set(words, (forms.get(words) ?? 0) + 1);
  }
  if (names.length === 0) return [];
  const kinds = [...forms].map(([words, count]) => (forms.size === 1 ? words : `${count} in ${words}`));
  const were = names.length === 1 ? 'a weight was' : `${names.length} weights were`;
  const text =
    `${were} quantized before (${kinds.join('; ')}): what that lost stays lost, and the errors in the report are those against the ` +
    'restored values';
  return [noteOf('sourceQuantized', { tensors: names }, text)];
}

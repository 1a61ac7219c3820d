/** The note about sources that were quantized before. */
import { type Note, noteOf } from '../core/note.js';

/** The note that says what was lost before; none without weights. @param weights with words for the method and the type of each */
export function quantizedBefore(weights: readonly { readonly name: string; readonly words: string }[]): Note[] {
  if (weights.length === 0) return [];
  const forms = new Map<string, number>();
  for (const { words } of weights) forms.set(words, (forms.get(words) ?? 0) + 1);
  const kinds = [...forms].map(([words, count]) => (forms.size === 1 ? words : `${count} in ${words}`));
  const were = weights.length === 1 ? 'a weight was' : `${weights.length} weights were`;
  const text =
    `${were} quantized before (${kinds.join('; ')}): what that lost stays lost, and the errors in the report are those against the ` +
    'restored values';
  return [noteOf('sourceQuantized', { tensors: weights.map(({ name }) => name) }, text)];
}

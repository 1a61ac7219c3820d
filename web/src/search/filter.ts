// Filters of a search: bits of the vectors that it may find.
import { rangeError, typeError } from '../core/errors.js';
import { ofType } from '../core/option-problem.js';
import { isBytes } from '../core/realms.js';
import type { IdTable } from './ids.js';
import type { SearchOptions } from './search-types.js';
import type { VectorStore } from './vector-store.js';

/** A bit for each vector that a filter lets through and that was not removed; undefined without a filter. */
export function allowedWords(
  filter: SearchOptions['filter'],
  store: VectorStore,
  ids: IdTable,
): Uint32Array<ArrayBuffer> | undefined {
  if (filter === undefined) return undefined;
  const words = store.aliveWords();
  if (typeof filter === 'function') {
    for (let i = 0; i < words.length; i++) {
      let kept = words[i] as number;
      for (let rest = kept; rest !== 0; rest &= rest - 1) {
        const bit = 31 - Math.clz32(rest & -rest);
        if (!filter(ids.at(i * 32 + bit))) kept &= ~(1 << bit);
      }
      words[i] = kept;
    }
    // The function may have changed the index.
    return store.aliveWords().map((alive, i) => alive & (words[i] ?? 0));
  }
  if (!isBytes(filter)) throw typeError('filter', ofType('function', 'Uint8Array'), filter);
  const needed = Math.ceil(ids.length / 8);
  if (filter.length < needed) throw rangeError('filter', { kind: 'number', min: needed, unit: 'bytes' }, filter.length);
  for (let i = 0; i < words.length; i++) {
    const at = i * 4;
    const bits =
      (filter[at] ?? 0) | ((filter[at + 1] ?? 0) << 8) | ((filter[at + 2] ?? 0) << 16) | ((filter[at + 3] ?? 0) << 24);
    words[i] = (words[i] as number) & bits;
  }
  return words;
}

/**
 * Keys of models in several GGUF files, as made by gguf-split: the number of the file, the number of files, and the number of tensors in all
 * files.
 * Reference: github.com/ggml-org/llama.cpp v0.5.0, tools/gguf-split.
 */
import { defaultAlignment, type GgufPair, padded } from './contents.js';
import type { GgufHeader } from './header.js';
import { pairOf } from './pairs.js';

export const numberKey = 'split.no';
export const countKey = 'split.count';
export const tensorsKey = 'split.tensors.count';

/** Keys of split models only. */
export const splitKeys: readonly string[] = [numberKey, countKey, tensorsKey];

/** Pairs of one of several files, in the order of gguf-split, or with `keepSplit` of llama-quantize. @param index from 0 */
export function splitPairs(
  index: number,
  count: number,
  tensors: number,
  { keepSplit = false }: { readonly keepSplit?: boolean | undefined } = {},
): GgufPair[] {
  const pairs = [
    pairOf({ name: tensorsKey, type: 'i32', value: tensors }),
    pairOf({ name: countKey, type: 'u16', value: count }),
  ];
  return [pairOf({ name: numberKey, type: 'u16', value: index }), ...(keepSplit ? pairs.reverse() : pairs)];
}

/** Largest number of files, stored in 16 bits. */
export const mostSplits = 65_535;

/** Number of files of a model, by the keys of one. */
export function splitCount({ metadata }: GgufHeader): number {
  const count = metadata[countKey];
  return typeof count === 'number' ? count : 1;
}

/** The pairs of a model, without those of splits. */
export function withoutSplits(pairs: readonly GgufPair[]): GgufPair[] {
  return pairs.filter(({ key }) => !splitKeys.includes(key));
}

/** Bytes that a tensor takes in a file, with its padding. */
export const storedSize = (bytes: number) => padded(bytes, defaultAlignment);

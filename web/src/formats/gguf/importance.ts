/**
 * Importance matrices in GGUF results: the keys that llama-quantize adds, and the names of weights.
 * Reference: github.com/ggml-org/llama.cpp, tools/quantize/quantize.cpp at 03161a4.
 */
import type { ImportanceMatrix } from '../statistics.js';
import type { MeasuredWeight } from '../weight-statistics.js';
import type { GgufPair, GgufTensor } from './contents.js';
import { pairOf, u32Pair } from './pairs.js';

/** Longest text: llama-quantize keeps 128 bytes with a final 0. */
const mostTextBytes = 127;

/** A key with a text, cut to the longest. */
function cutPair(name: string, value: string): GgufPair {
  const { key, bytes } = pairOf({ name, type: 'string', value });
  const excess = new TextEncoder().encode(value).length - mostTextBytes;
  if (excess <= 0) return { key, bytes };
  const cut = bytes.slice(0, bytes.length - excess);
  new DataView(cut.buffer).setBigUint64(cut.length - mostTextBytes - 8, BigInt(mostTextBytes), true);
  return { key, bytes: cut };
}

const imatrixKeys = ['file', 'dataset', 'entries_count', 'chunks_count'].map((end) => `quantize.imatrix.${end}`);

/** The pairs, with those that llama-quantize adds for an importance matrix. */
export function withImportance(pairs: readonly GgufPair[], matrix: ImportanceMatrix | undefined): readonly GgufPair[] {
  if (matrix === undefined) return pairs;
  const { file, dataset, entries, chunks } = matrix;
  const [fileKey, datasetKey, entriesKey, chunksKey] = imatrixKeys as [string, string, string, string];
  const own = [
    ...(file === undefined ? [] : [cutPair(fileKey, file)]),
    ...(dataset === undefined ? [] : [cutPair(datasetKey, dataset)]),
    u32Pair(entriesKey, entries.size),
    ...(chunks > 0 ? [u32Pair(chunksKey, chunks)] : []),
  ];
  const set = own.map(({ key }) => key);
  return [...pairs.filter(({ key }) => !set.includes(key)), ...own];
}

/** A tensor, as statistics describe it. Experts are consecutive matrices. */
export function measuredWeight({ name, shape }: GgufTensor): MeasuredWeight {
  return {
    name,
    columns: shape.at(-1) ?? 1,
    matrices: shape.at(-3) ?? 1,
    isTable: name === 'token_embd.weight' || name === 'per_layer_token_embd.weight',
  };
}

/**
 * Writes importance matrices in the GGUF form of llama-imatrix.
 * Reference: github.com/ggml-org/llama.cpp, tools/imatrix/imatrix.cpp at 006e7ef.
 */
import { checkKeys } from '../../core/check.js';
import { rangeError, typeError } from '../../core/errors.js';
import { ofType, whole } from '../../core/option-problem.js';
import { compareNames } from '../tensors.js';
import { layoutGguf } from './layout.js';
import { type GgufKey, pairOf } from './pairs.js';

/** Statistics of a weight: for each column of each matrix, in order, the sum of squares of the activations multiplied with it. */
interface Sums {
  readonly name: string;
  readonly sums: Float64Array;
  /** Number of rows that each matrix was multiplied with. */
  readonly counts: Float64Array;
}

/** Metadata of the file. */
interface About {
  readonly datasets?: readonly string[] | undefined;
  readonly chunks?: number | undefined;
  readonly chunkSize?: number | undefined;
}

const aboutNames = ['datasets', 'chunks', 'chunkSize'];

/** Checks a number against the range of the file. @throws RangeError naming the option */
function checkCount(value: number, name: string): number {
  if (Number.isInteger(value) && value >= 1 && value < 2 ** 32) return value;
  throw rangeError(name, whole(1, 2 ** 32 - 1), value);
}

/** Bytes of the file. llama-quantize requires all three keys. */
export function importanceFile(weights: readonly Sums[], about: About): Uint8Array<ArrayBuffer> {
  checkKeys(about, aboutNames);
  const { datasets = ['unnamed'] } = about;
  if (!Array.isArray(datasets) || !datasets.every((name) => typeof name === 'string')) {
    throw typeError('datasets', ofType('array of names'), datasets);
  }
  const rows = weights.reduce((most, { counts }) => counts.reduce((a, b) => Math.max(a, b), most), 1);
  const chunks = checkCount(about.chunks ?? 1, 'chunks');
  const chunkSize = checkCount(about.chunkSize ?? Math.ceil(rows / chunks), 'chunkSize');
  const keys: GgufKey[] = [
    { name: 'general.type', type: 'string', value: 'imatrix' },
    { name: 'imatrix.datasets', type: 'string[]', value: datasets },
    { name: 'imatrix.chunk_count', type: 'u32', value: chunks },
    { name: 'imatrix.chunk_size', type: 'u32', value: chunkSize },
  ];
  const parts = weights
    .toSorted((a, b) => compareNames(a.name, b.name))
    .flatMap(({ name, sums, counts }) => [
      { name: `${name}.in_sum2`, values: sums, shape: [counts.length, sums.length / counts.length] },
      { name: `${name}.counts`, values: counts, shape: [counts.length, 1] },
    ]);
  const { header, tensors, size } = layoutGguf(
    keys.map(pairOf),
    parts.map(({ name, shape }) => ({ name, shape, dtype: 'F32' })),
  );
  const file = new Uint8Array(size);
  const view = new DataView(file.buffer);
  file.set(header);
  for (const [i, { values }] of parts.entries()) {
    const at = (tensors[i] as (typeof tensors)[number]).byteOffset;
    for (const [k, value] of values.entries()) view.setFloat32(at + 4 * k, value, true);
  }
  return file;
}

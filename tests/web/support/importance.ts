// Files with importance matrices, as llama-imatrix writes them: GGUF, and the older form.
import { Random } from './support.js';
import { ggufFile, type Pair, type Stored } from './tiny-llama.js';

/** Statistics of a weight: sums of squares for each column, of one matrix after the other, and how often each matrix was used. */
export interface Activations {
  readonly name: string;
  readonly sums: Float32Array;
  readonly counts: readonly number[];
}

/** Sums for all weights of a model that are no embeddings, with a matrix for each expert. */
export function activationsOf(
  tensors: readonly { readonly name: string; readonly shape: readonly number[] }[],
  seed = 1,
): Activations[] {
  return tensors
    .filter(({ name, shape }) => shape.length > 1 && name !== 'token_embd.weight')
    .map(({ name, shape }, i) => {
      const matrices = shape.at(-3) ?? 1;
      const random = new Random(seed + i);
      const sums = random.bell(shape.at(-1)! * matrices).map((v) => 700 * v * v);
      return { name, sums, counts: Array.from({ length: matrices }, () => 1 + random.below(300)) };
    });
}

/** The importance of columns that llama-quantize makes of them. */
export function meansOf(activations: readonly Activations[]): Map<string, Float32Array> {
  return new Map(
    activations.map(({ name, sums, counts }) => {
      const columns = sums.length / counts.length;
      return [
        name,
        sums.map((sum, i) => (counts[Math.floor(i / columns)] === 0 ? 1 : sum / counts[Math.floor(i / columns)]!)),
      ];
    }),
  );
}

const floats = (values: Iterable<number>) => new Uint8Array(Float32Array.from(values).buffer);

export const matrixPairs: readonly Pair[] = [
  ['general.type', 'string', 'imatrix'],
  ['imatrix.datasets', 'array', 'string', ['calibration.txt', 'more.txt']],
  ['imatrix.chunk_count', 'u32', 123],
  ['imatrix.chunk_size', 'u32', 512],
];

export function matrixTensors(activations: readonly Activations[]): Stored[] {
  return activations.flatMap(({ name, sums, counts }) => [
    { name: `${name}.in_sum2`, dtype: 'F32', ne: [sums.length / counts.length, counts.length], data: floats(sums) },
    { name: `${name}.counts`, dtype: 'F32', ne: [1, counts.length], data: floats(counts) },
  ]);
}

/** The GGUF form. */
export function matrixFile(activations: readonly Activations[], pairs = matrixPairs): Uint8Array<ArrayBuffer> {
  return ggufFile({ pairs, tensors: matrixTensors(activations) });
}

/** The older form, which has one count for all matrices of a weight: the first one. */
export function oldMatrixFile(
  activations: readonly Activations[],
  tail: Uint8Array = oldTail(),
): Uint8Array<ArrayBuffer> {
  const int = (value: number) => new Uint8Array(Int32Array.of(value).buffer);
  const parts = activations.flatMap(({ name, sums, counts }) => {
    const text = new TextEncoder().encode(name);
    return [int(text.length), text, int(counts[0]!), int(sums.length), floats(sums)];
  });
  return new Uint8Array(Buffer.concat([int(activations.length), ...parts, tail]));
}

/** Its end: chunks, and the name of the data set. */
export function oldTail(chunks = 77, dataset = 'old.txt'): Uint8Array<ArrayBuffer> {
  const text = new TextEncoder().encode(dataset);
  return new Uint8Array(Buffer.concat([new Uint8Array(Int32Array.of(chunks, text.length).buffer), text]));
}

// Carries out recipes in the plainest way, and writes F32 GGUF files of them. It shares no code with what carries them out in the package.
import type { Conversion, Folder, Recipe } from '../../../web/src/architectures/recipe.js';
import type { GgufKey } from '../../../web/src/formats/gguf/pairs.js';
import { ggufFile, type Pair, type Scalar, type ValueType } from './tiny-llama.js';

/** A tensor in memory, as a folder holds it. */
export interface Weight {
  readonly shape: readonly number[];
  readonly values: Float32Array;
}
export type Weights = ReadonlyMap<string, Weight>;

/** Pairs of names and values in the order of their names, to compare them in any order. A name that occurs twice stays twice. */
export function byName<T extends readonly unknown[]>(pairs: readonly T[]): T[] {
  return [...pairs].sort(([a], [b]) => (String(a) < String(b) ? -1 : 1));
}

/** A folder in memory. `files` are JSON values, or text or bytes as they stand. */
export function folderOf(
  weights: Weights,
  files: Readonly<Record<string, unknown>>,
  { name = 'tiny', metadata = {} }: { name?: string; metadata?: Record<string, string> } = {},
): Folder {
  return {
    name,
    metadata,
    tensors: [...weights].map(([key, { shape }]) => ({ name: key, shape, dtype: 'F32' })),
    areEqual: async (a, b) => {
      const [x, y] = [weights.get(a)?.values, weights.get(b)?.values];
      return x !== undefined && x.length === y?.length && x.every((value, i) => Object.is(value, y[i]));
    },
    floats: async (name) => weights.get(name)?.values,
    file: async (path) => {
      const value = Object.hasOwn(files, path) ? files[path] : undefined;
      if (value === undefined) return undefined;
      if (value instanceof Uint8Array) return new Uint8Array(value);
      return new TextEncoder().encode(typeof value === 'string' ? value : JSON.stringify(value));
    },
  };
}

/** The elements of a strided view, one by one. */
function viewed(values: Float32Array, { offset, dims }: NonNullable<Recipe['view']>): Float32Array<ArrayBuffer> {
  let places = [offset];
  for (const [count, stride] of dims)
    places = places.flatMap((at) => Array.from({ length: count }, (_, i) => at + i * stride));
  return Float32Array.from(places, (at) => {
    if (at >= values.length) throw new Error(`element ${at} of ${values.length}`);
    return values[at] as number;
  });
}

/** The nearest of -1, 0 and 1 times the mean magnitude, as PyTorch computes them in float32 (weight_quant of llama.cpp's converter). */
export function ternary(values: Float32Array): Float32Array<ArrayBuffer> {
  const mean = Math.fround(values.reduce((sum, v) => sum + Math.abs(v), 0) / values.length);
  const inverse = Math.fround(1 / Math.max(mean, Math.fround(1e-5)));
  const size = Math.fround(1 / inverse);
  return Float32Array.from(values, (v) => {
    const code = Math.fround(v * inverse);
    // Ties go to 0.
    return code > 0.5 ? size : code < -0.5 ? -size : 0 * code;
  });
}

/** The elements of a tensor of the result. */
export function elements(recipe: Recipe, weights: Weights): Float32Array {
  if (recipe.values !== undefined) return recipe.values;
  const parts = recipe.sources.map((source, i) => {
    const { shape, values } = weights.get(source) as Weight;
    const window = recipe.windows?.[i];
    if (recipe.view !== undefined) return viewed(values, recipe.view);
    if (window === undefined) return values;
    const width = shape.length < 2 ? 1 : (shape.at(-1) as number);
    return values.subarray(window[0] * width, (window[0] + window[1]) * width);
  });
  let all = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  const row = recipe.shape.length === 1 ? 1 : (recipe.shape.at(-1) as number);
  if (recipe.permuteHeads !== undefined) all = permuted(all, row, recipe.permuteHeads);
  if (recipe.negativeExp === true) all = all.map((value) => -Math.exp(value));
  if (recipe.ternary === true) all = ternary(all);
  const { factor, rowFactors, zeroRows = 0 } = recipe;
  // Each product is rounded to float32.
  if (factor !== undefined) all = all.map((value) => value * Math.fround(factor));
  if (rowFactors !== undefined) all = all.map((value, i) => value * (rowFactors[Math.floor(i / row)] as number));
  if (zeroRows > 0) {
    const filled = new Float32Array(all.length + zeroRows * row);
    filled.set(all);
    all = filled;
  }
  return recipe.add === undefined ? all : all.map((value) => value + (recipe.add as number));
}

/** Row h*d + half*d/2 + i becomes row h*d + 2i + half. */
function permuted(values: Float32Array, row: number, heads: number): Float32Array<ArrayBuffer> {
  const result = new Float32Array(values.length);
  const d = values.length / row / heads;
  for (let h = 0; h < heads; h++)
    for (let half = 0; half < 2; half++)
      for (let i = 0; i < d / 2; i++) {
        const from = (h * d + (half * d) / 2 + i) * row;
        result.set(values.subarray(from, from + row), (h * d + 2 * i + half) * row);
      }
  return result;
}

/** A key as the test's writer takes it. */
function pairOf({ name, type, value }: GgufKey): Pair {
  if (!type.endsWith('[]')) return [name, type as Exclude<ValueType, 'array'>, value as Scalar];
  return [name, 'array', type.slice(0, -2) as ValueType, Array.from(value as ArrayLike<Scalar>)];
}

/** The F32 file of a conversion. `extra` are more keys. */
export function fileOf({ keys, tensors }: Conversion, weights: Weights, extra: readonly Pair[] = []): Uint8Array {
  return ggufFile({
    pairs: [...keys.map(pairOf), ...extra],
    tensors: tensors.map((recipe) => {
      const values = elements(recipe, weights);
      const data = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
      return { name: recipe.name, dtype: 'F32', ne: [...recipe.shape].reverse(), data };
    }),
  });
}

/** A file of the tokenizer alone, which the library loads with `vocabularyOnly`. */
export function vocabularyFile({ architecture, keys }: Conversion): Uint8Array {
  const kept = keys.filter(({ name }) => name.startsWith('tokenizer.') || name === 'general.architecture');
  return ggufFile({ pairs: [...kept.map(pairOf), [`${architecture}.vocab_size`, 'u32', 1]], tensors: [] });
}

import { formatMany } from '../shared/format.js';
import { distributions, generate, generatedRows } from '../shared/generate.js';
import type { ParsedNumbers } from './numbers.js';
import type { Settings } from './settings.js';

/** Numbers to quantize, with their shape and origin. */
export interface DataSet {
  /** Text for headings, such as `Normal, seed 1` or `fc1.weight in digits.safetensors`. */
  readonly title: string;
  readonly values: Float32Array;
  readonly shape: readonly number[];
  /** The type that the numbers were stored in, and their size in it ("bytes before"). */
  readonly stored: { readonly name: string; readonly bytes: number };
  /** Source of the numbers. The code snippet reads them from the same place. */
  readonly origin:
    | { readonly kind: 'generated' | 'text' | 'raw' }
    | { readonly kind: 'file'; readonly tensor: string; readonly from?: 'float16' | 'bfloat16' };
  /** Name of a download, without extension. */
  readonly stem: string;
  /** A remark for the visitor on how the numbers were read. */
  readonly note?: string;
}

/** All that is known about a data set without its numbers. */
export type DataFacts = Omit<DataSet, 'values'>;

/** Count of the numbers. */
export const countOf = ({ shape }: Pick<DataFacts, 'shape'>) => shape.reduce((a, b) => a * b, 1);

/** Extremes and mean of the finite numbers (0 if there are none), and the count of the others. */
export interface Statistics {
  readonly min: number;
  readonly max: number;
  readonly mean: number;
  readonly notFinite: number;
  /** Index of the first number that is not finite, or -1. */
  readonly firstNotFinite: number;
}

/** Generates the data that the settings describe. */
export function generatedData(settings: Settings): DataSet {
  const { distribution, size, seed } = settings;
  const label = distributions.find(({ name }) => name === distribution)?.label ?? distribution;
  return {
    title: `${label}${settings.rowsDiffer ? ', rows of different size' : ''}, seed ${seed}`,
    values: generate(settings),
    shape: [generatedRows, size / generatedRows],
    stored: { name: 'float32', bytes: size * 4 },
    origin: { kind: 'generated' },
    stem: distribution,
  };
}

/** Data from a text that was pasted or read from a file. */
export function textData(parsed: ParsedNumbers, title: string, stem: string): DataSet {
  const { values, shape, ignored, ignoredCount } = parsed;
  const words = ignored.map((word) => `\u201c${word}\u201d`).join(', ');
  return {
    title,
    values,
    shape,
    stored: { name: 'float32', bytes: values.length * 4 },
    origin: { kind: 'text' },
    stem,
    ...(ignoredCount > 0 && {
      note: `Skipped ${formatMany(ignoredCount, 'word')} that ${ignoredCount === 1 ? 'isn’t a number' : 'aren’t numbers'}: ${words}${ignoredCount > ignored.length ? ', …' : ''}.`,
    }),
  };
}

/** Computes the statistics in one pass. */
export function statisticsOf(values: Float32Array): Statistics {
  let min = Number.POSITIVE_INFINITY;
  let max = Number.NEGATIVE_INFINITY;
  let sum = 0;
  let notFinite = 0;
  let firstNotFinite = -1;
  for (let i = 0; i < values.length; i++) {
    const x = values[i]!;
    if (!Number.isFinite(x)) {
      if (notFinite++ === 0) firstNotFinite = i;
      continue;
    }
    if (x < min) min = x;
    if (x > max) max = x;
    sum += x;
  }
  const finite = values.length - notFinite;
  if (finite === 0) return { min: 0, max: 0, mean: 0, notFinite, firstNotFinite };
  return { min, max, mean: sum / finite, notFinite, firstNotFinite };
}

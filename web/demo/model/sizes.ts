// Sizes of results, as data: stops of the slider, and their words.
import type { SizePoint } from '../../src/tooling.js';

/** Loss of a preset, by the same measure as the curve. */
export interface SizeMark extends SizePoint {
  readonly label: string;
}

/** State of the curve of sizes. */
export type SizeCurve =
  /** Without a model, or for tensors that leave no choice, the page offers nothing. */
  | { readonly kind: 'none' }
  /** Measuring takes long, so the page asks the visitor first. */
  | { readonly kind: 'open' }
  | { readonly kind: 'measuring'; readonly share: number; readonly secondsLeft: number | undefined }
  | { readonly kind: 'failed'; readonly message: string }
  | {
      readonly kind: 'measured';
      /** From the smallest size to the largest one that gains something. */
      readonly curve: readonly SizePoint[];
      readonly marks: readonly SizeMark[];
      /** Number of tensors whose type can be chosen; 1 for divergences, which are sums of no parts. */
      readonly tensors: number;
      /** True if errors are expected divergences of the next token in nats: with moments of a language model. */
      readonly isDivergence?: boolean | undefined;
    };

/** The count of the numbers of a tensor. */
export const countNumbers = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

/** The bytes of files together. */
export const totalBytes = (files: readonly { readonly size: number }[]): number =>
  files.reduce((sum, { size }) => sum + size, 0);

/** Models of up to this many numbers are measured without asking. */
const freeNumbers = 2 ** 22;

/** True if measuring a model takes a moment only, and downloads nothing. */
export function isQuick({
  tensors,
  hub,
}: {
  readonly tensors: readonly { readonly shape: readonly number[] }[];
  readonly hub?: object;
}): boolean {
  if (hub !== undefined) return false;
  return tensors.reduce((sum, { shape }) => sum + countNumbers(shape), 0) <= freeNumbers;
}

/** Units of sizes in settings, which are words of the command line. */
const units: Readonly<Record<string, number>> = { b: 1, kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12 };

/** Bytes of a size in a link, such as `60kB`; undefined for other texts. */
export function bytesIn(size: string): number | undefined {
  const [, digits, unit = 'b'] = /^(\d+(?:\.\d+)?)([kmgt]?b)?$/i.exec(size) ?? [];
  const bytes = Math.floor(Number((Number(digits) * (units[unit.toLowerCase()] ?? Number.NaN)).toFixed(3)));
  return Number.isSafeInteger(bytes) && bytes > 0 ? bytes : undefined;
}

/** A size in few digits, as on the command line: `60kB`. */
export function sizeText(bytes: number): string {
  const names = ['B', 'kB', 'MB', 'GB', 'TB'];
  const power = Math.min(names.length - 1, Math.max(0, Math.floor(Math.log10(bytes) / 3)));
  return `${Number((bytes / 1000 ** power).toPrecision(4))}${names[power]}`;
}

/** Positions of the slider. They are round numbers of bytes. */
export interface Stops {
  readonly low: number;
  readonly high: number;
  readonly step: number;
}

/** About how many positions a slider has. */
const stops = 100;

/** The positions between the ends of a curve. Each is at least as large as the smallest result. */
export function stopsOf(curve: readonly SizePoint[]): Stops {
  const [first, last] = [curve[0]?.bytes ?? 1, curve.at(-1)?.bytes ?? 1];
  const rough = Math.max(1, (last - first) / stops);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power);
  const low = Math.ceil(first / step) * step;
  return { low, high: Math.max(low, Math.ceil(last / step) * step), step };
}

/** SQNR in dB from which a loss is negligible. */
const enoughDecibels = 60;
/** The first point with a negligible loss ends the curve, unless its SQNR is above this: it would squeeze the others together. */
const mostDecibels = 70;

/** Mean SQNR of the tensors in dB: 0 if the error is as large as the weights. */
export function decibelsOf(error: number, tensors: number): number {
  return error > 0 ? -10 * Math.log10(error / tensors) : Number.POSITIVE_INFINITY;
}

/** The part of a curve that is worth choosing from: up to the first point that loses next to nothing. */
export function worthChoosing(curve: readonly SizePoint[], tensors: number): readonly SizePoint[] {
  const at = curve.map(({ error }) => decibelsOf(error, tensors));
  const enough = at.findIndex((decibels) => decibels >= enoughDecibels);
  if (enough < 0) return curve;
  return curve.slice(0, (at[enough] as number) <= mostDecibels ? enough + 1 : enough);
}

/** The least loss in a size, as the curve has it. */
export function lossAt(curve: readonly SizePoint[], bytes: number): number | undefined {
  return curve.findLast((point) => point.bytes <= bytes)?.error;
}

/** The unit of the horizontal axis. */
export function unitOf(bytes: number): { readonly unit: string; readonly factor: number } {
  const units = [
    { unit: 'GB', factor: 1e9 },
    { unit: 'MB', factor: 1e6 },
  ];
  return units.find(({ factor }) => bytes >= factor) ?? { unit: 'kB', factor: 1e3 };
}

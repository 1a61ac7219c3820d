// The rows, the data and the clock that all parts of the benchmark share.
import type { Scalepoint } from '../instance/scalepoint.js';
import type { Limits } from './limits.js';
import type { Contestant } from './race.js';

/** Parts of the benchmark. */
export type BenchPart = 'arrays' | 'blocks' | 'layers';
/** The parts of the benchmark, in the order in which they run. */
export const benchParts: readonly BenchPart[] = Object.freeze(['arrays', 'blocks', 'layers'] as const);

/** One operation, measured. */
export interface BenchRow {
  /** The part that it belongs to. */
  readonly part: BenchPart;
  /** The name of the operation. */
  readonly operation: string;
  /** Its input, in words: '16 Mi floats', '4096 x 4096'. */
  readonly size: string;
  /** Milliseconds of one call, in the fastest of many turns. */
  readonly milliseconds: number;
  /** The speed, in `unit`. */
  readonly rate: number;
  /** The unit of the rate. */
  readonly unit: 'G floats/s' | 'M weights/s' | 'GMAC/s';
  /** time / time of the memory limit, which is a loop that moves the same bytes without arithmetic. 1 is the best possible value. */
  readonly limit?: number | undefined;
  /** time of plain JavaScript / time. */
  readonly plain?: number | undefined;
}

/** A running benchmark. */
export interface BenchRun {
  readonly sp: Scalepoint;
  readonly limits: Limits;
  readonly size: number;
  readonly width: number;
  readonly batch: number;
  /** Milliseconds of each contestant, in its fastest turn. */
  time<Name extends string>(contestants: Record<Name, Contestant>): Promise<Record<Name, number>>;
  add(row: BenchRow): void;
}

/** Makes the same weights every time: roughly Gaussian, standard deviation 0.02. */
export function benchWeights(n: number): Float32Array<ArrayBuffer> {
  const x = new Float32Array(n);
  let state = 12345;
  const uniform = () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return (state >>> 8) / 16777216;
  };
  for (let i = 0; i < n; i++) x[i] = 0.02 * (uniform() + uniform() + uniform() + uniform() - 2) * 1.7320508;
  return x;
}

/** Formats a count for display: 16 Mi, 1024. */
export function inWords(n: number): string {
  if (n >= 1 << 20 && n % (1 << 20) === 0) return `${n >> 20} Mi`;
  return n >= 1 << 14 && n % 1024 === 0 ? `${n >> 10} Ki` : String(n);
}

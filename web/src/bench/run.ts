// Runs the benchmark.
import { checkBoolean, checkChoice, checkKeys, checkNumber } from '../core/check.js';
import { checkLoadOptions, type LoadOptions } from '../core/load-options.js';
import type { Expected } from '../core/option-problem.js';
import { load } from '../instance/scalepoint.js';
import { makeLimits } from './limits.js';
import { arrays, blocks, layers } from './parts.js';
import { race } from './race.js';
import { type BenchPart, type BenchRow, type BenchRun, benchParts } from './row.js';

/** Options of `runBench`. */
export interface BenchOptions {
  /** Uses less data and fewer samples: some seconds instead of a minute. @defaultValue false */
  quick?: boolean | undefined;
  /** Runs one part alone. @defaultValue all */
  only?: BenchPart | undefined;
  /** Floats of arrays and blocks, a multiple of 256. @defaultValue 2^24, quick 2^20 */
  size?: number | undefined;
  /** Inputs and outputs of the layers. @defaultValue 4096, quick 1024 */
  width?: number | undefined;
  /** Options for loading the core. */
  load?: LoadOptions | undefined;
  /** Stops between two samples. */
  signal?: AbortSignal | undefined;
  /** Called with each row once it is measured. */
  onRow?: ((row: BenchRow) => void) | undefined;
}

/** The result of `runBench`. */
export interface BenchResult {
  /** Version of the package. */
  readonly version: string;
  /** The build of the core that was measured. */
  readonly tier: 'simd' | 'scalar';
  /** One row for each operation, in the order of the parts. */
  readonly rows: readonly BenchRow[];
}

const names = ['quick', 'only', 'size', 'width', 'load', 'signal', 'onRow'];

/** Checks a size among the options: a multiple of `step`. @throws TypeError or RangeError naming it */
function sizeOf(value: unknown, name: string, step: number, fallback: number, most: number): number {
  if (value === undefined) return fallback;
  const expected: Expected = { kind: 'number', multipleOf: step, min: step, max: most };
  return checkNumber(value, name, expected);
}

/**
 * Measures the library's operations in this engine, on one thread, with arrays in wasm memory. They run in turns, and the fastest
 * turn of each counts. Ratios hold within some percent, even if the machine does other work now and then.
 * @example const { rows } = await runBench({ quick: true, onRow: (row) => console.log(row.operation, row.milliseconds) });
 * @throws TypeError or RangeError naming the option; what `load` throws; the signal's reason
 */
export async function runBench(options: BenchOptions = {}): Promise<BenchResult> {
  checkKeys(options, names);
  const { only, signal, onRow } = options;
  if (options.load !== undefined) checkLoadOptions(options.load, 'load');
  const quick = options.quick !== undefined && checkBoolean(options.quick, 'quick');
  if (only !== undefined) checkChoice(only, 'only', benchParts);
  const size = sizeOf(options.size, 'size', 256, quick ? 1 << 20 : 1 << 24, 1 << 26);
  const width = sizeOf(options.width, 'width', 32, quick ? 1024 : 4096, 1 << 14);
  signal?.throwIfAborted();
  // The part of blocks measures all types.
  const sp = await load(only === undefined || only === 'blocks' ? { ...options.load, blocks: true } : options.load);
  const rows: BenchRow[] = [];
  const run: BenchRun = {
    sp,
    limits: await makeLimits(),
    size,
    width,
    batch: quick ? 32 : 128,
    time: (contestants) => race(contestants, { rounds: quick ? 9 : 15, warmupMs: quick ? 100 : 400, signal }),
    add(row) {
      rows.push(row);
      onRow?.(row);
    },
  };
  try {
    if (only === undefined || only === 'arrays') await arrays(run);
    if (only === undefined || only === 'blocks') await blocks(run);
    if (only === undefined || only === 'layers') await layers(run);
  } finally {
    sp.dispose();
  }
  return { version: sp.version, tier: sp.simd ? 'simd' : 'scalar', rows };
}

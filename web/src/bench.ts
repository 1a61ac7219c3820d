// The benchmark that needs nothing but the library: its operations against the memory limit and plain JavaScript, in turns.

import { checkKeys, choice } from './arrays/options.js';
import { type Limits, makeLimits } from './bench/limits.js';
import * as plain from './bench/plain.js';
import { type Contestant, race } from './bench/race.js';
import { blockTypeInfo, blockTypes } from './core/blocks.js';
import type { LoadOptions } from './core/memory.js';
import { show } from './core/show.js';
import { load, type Scalepoint } from './scalepoint.js';

export { type Limits, makeLimits } from './bench/limits.js';
export { type Contestant, type RaceOptions, race } from './bench/race.js';
export { plain };

/** Parts of the benchmark. */
export type BenchPart = 'arrays' | 'blocks' | 'layers';
export const benchParts: readonly BenchPart[] = Object.freeze(['arrays', 'blocks', 'layers'] as const);

/** One operation, measured. */
export interface BenchRow {
  readonly part: BenchPart;
  readonly operation: string;
  /** What it ran on, in words: '16 Mi floats', '4096 x 4096'. */
  readonly size: string;
  /** Median milliseconds of one call. */
  readonly milliseconds: number;
  /** How much of `unit` that is. */
  readonly rate: number;
  readonly unit: 'G floats/s' | 'M weights/s' | 'GMAC/s';
  /** The time as a multiple of the memory limit's: a loop with the same traffic and no arithmetic. 1 is the best there is. */
  readonly limit?: number;
  /** The time of plain JavaScript as a multiple of ours. */
  readonly plain?: number;
}

/** Options of `runBench`. */
export interface BenchOptions {
  /** Less data and fewer samples: some seconds instead of a minute. @defaultValue false */
  quick?: boolean;
  /** A part alone. @defaultValue all */
  only?: BenchPart;
  /** Floats of arrays and blocks, a multiple of 256. @defaultValue 2^24, quick 2^20 */
  size?: number;
  /** Inputs and outputs of the layers. @defaultValue 4096, quick 1024 */
  width?: number;
  /** How the core is loaded. */
  load?: LoadOptions;
  /** Stops between two samples. */
  signal?: AbortSignal;
  /** Called with each row once it is measured. */
  onRow?: (row: BenchRow) => void;
}

/** What `runBench` measured. */
export interface BenchResult {
  readonly version: string;
  readonly tier: 'simd' | 'scalar';
  readonly rows: readonly BenchRow[];
}

const keys = new Set(['quick', 'only', 'size', 'width', 'load', 'signal', 'onRow']);

/** Deterministic weights: roughly Gaussian, standard deviation 0.02. */
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

/** A count in words: 16 Mi, 1024. */
function inWords(n: number): string {
  if (n >= 1 << 20 && n % (1 << 20) === 0) return `${n >> 20} Mi`;
  return n >= 1 << 14 && n % 1024 === 0 ? `${n >> 10} Ki` : String(n);
}

/** A number of the options. @throws TypeError or RangeError naming it */
function sizeOf(value: unknown, name: string, step: number, fallback: number, most: number): number {
  if (value === undefined) return fallback;
  if (typeof value !== 'number') throw new TypeError(`${name}: expected a whole number, got ${show(value)}`);
  if (!Number.isInteger(value) || value < step || value > most || value % step !== 0) {
    throw new RangeError(`${name}: expected a multiple of ${step} from ${step} to ${most}, got ${value}`);
  }
  return value;
}

/** A benchmark under way. */
interface Run {
  readonly sp: Scalepoint;
  readonly limits: Limits;
  readonly size: number;
  readonly width: number;
  readonly batch: number;
  time<Name extends string>(contestants: Record<Name, Contestant>): Promise<Record<Name, number>>;
  add(row: BenchRow): void;
}

/**
 * Measures the library's operations in this engine, on one thread, with arrays in wasm memory. Contestants run in turns, and medians
 * are compared: ratios hold within some per cent on a quiet machine, times vary with the machine's mood.
 * @example const { rows } = await runBench({ quick: true, onRow: (row) => console.log(row.operation, row.milliseconds) });
 * @throws TypeError or RangeError naming the option; what `load` throws; the signal's reason
 */
export async function runBench(options: BenchOptions = {}): Promise<BenchResult> {
  checkKeys(options, keys);
  const { quick = false, only, signal, onRow } = options;
  if (typeof quick !== 'boolean') throw new TypeError(`quick: expected a boolean, got ${show(quick)}`);
  choice(options, 'only', benchParts);
  const size = sizeOf(options.size, 'size', 256, quick ? 1 << 20 : 1 << 24, 1 << 26);
  const width = sizeOf(options.width, 'width', 32, quick ? 1024 : 4096, 1 << 14);
  signal?.throwIfAborted();
  const sp = await load(options.load);
  const rows: BenchRow[] = [];
  const run: Run = {
    sp,
    limits: await makeLimits(),
    size,
    width,
    batch: quick ? 32 : 128,
    time: (contestants) => race(contestants, { rounds: quick ? 5 : 9, warmupMs: quick ? 100 : 400, signal }),
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

async function arrays({ sp, limits, size: n, time, add }: Run): Promise<void> {
  const js = benchWeights(n);
  const codes = new Int8Array(n);
  const restored = new Float32Array(n);
  const x = sp.allocate('float32', n);
  const out = sp.allocate('int8', n);
  const y = sp.allocate('float32', n);
  x.view.set(js);
  limits.prepare(n);
  const scale = 0.00054;
  const zeroPoint = -3;
  const given = { range: { scale, zeroPoint } };
  const row = (operation: string, ours: number, limit: number | undefined, straight: number) =>
    add({
      part: 'arrays',
      operation,
      size: `${inWords(n)} floats`,
      milliseconds: ours,
      rate: n / ours / 1e6,
      unit: 'G floats/s',
      ...(limit !== undefined && { limit: ours / limit }),
      plain: straight / ours,
    });

  let ms = await time({
    ours: () => sp.chooseQuantizationParameters(x),
    limit: () => limits.read(n),
    plain: plain.minmax.bind(undefined, js),
  });
  row('range', ms.ours, ms.limit, ms.plain);
  ms = await time({
    ours: () => sp.quantize(x, { ...given, out }),
    limit: () => limits.fourToOne(n),
    plain: plain.quantize.bind(undefined, js, scale, zeroPoint, codes),
  });
  row('quantize', ms.ours, ms.limit, ms.plain);
  const both = await time({
    ours: () => sp.quantize(x, { scheme: 'asymmetric', out }),
    read: () => limits.read(n),
    limit: () => limits.fourToOne(n),
    plain: plain.rangeAndQuantize.bind(undefined, js, codes),
  });
  row('range and quantize', both.ours, both.read + both.limit, both.plain);
  const copied = await time({
    ours: () => sp.quantize(js, { scheme: 'asymmetric', out: codes }),
    plain: plain.rangeAndQuantize.bind(undefined, js, codes),
  });
  row('the same, JavaScript arrays', copied.ours, undefined, copied.plain);
  const q = sp.quantize(x, { ...given, out });
  ms = await time({
    ours: () => sp.dequantize(q, { out: y }),
    limit: () => limits.oneToFour(n),
    plain: plain.dequantize.bind(undefined, codes, scale, zeroPoint, restored),
  });
  row('dequantize', ms.ours, ms.limit, ms.plain);
  const places = { data: out, scale: new Float32Array(n / 32), zeroPoint: new Int32Array(n / 32) };
  const scales = new Float32Array(n / 32);
  for (const [dtype, levels] of [
    ['int8', 127],
    ['int4', 7],
  ] as const) {
    ms = await time({
      ours: () => sp.quantize(x, { dtype, granularity: { kind: 'per-group', groupSize: 32 }, out: places }),
      limit: () => limits.fourToOne(n),
      plain: plain.groups.bind(undefined, js, 32, levels, codes, scales),
    });
    row(`${dtype}, groups of 32`, ms.ours, ms.limit, ms.plain);
  }
  const sum = sp.errorSum();
  const measured = await time({
    ours: () => sp.quantize(x, { ...given, out, errors: sum }),
    plain: () => {
      plain.quantize(js, scale, zeroPoint, codes);
      plain.error(js, codes, scale, zeroPoint);
    },
  });
  row('quantize and measure', measured.ours, undefined, measured.plain);
  for (const array of [x, out, y]) array.dispose();
}

async function blocks({ sp, size, time, add }: Run): Promise<void> {
  // Some of the types are a hundred times slower than others.
  const n = Math.min(size, 1 << 20);
  const x = sp.allocate('float32', n);
  x.view.set(benchWeights(n));
  for (const type of blockTypes) {
    const { elements, bytes } = blockTypeInfo(type);
    const out = sp.allocate('uint8', (n / elements) * bytes);
    const { ours } = await time({ ours: () => sp.quantizeBlocks(x, type, { out }) });
    out.dispose();
    add({
      part: 'blocks',
      operation: `to ${type}`,
      size: `${inWords(n)} floats`,
      milliseconds: ours,
      rate: n / ours / 1000,
      unit: 'M weights/s',
    });
  }
  x.dispose();
}

async function layers({ sp, limits, width, batch, time, add }: Run): Promise<void> {
  const n = width * width;
  const w = benchWeights(n);
  const shape = [width, width];
  const q8 = sp.quantize(w, { shape, granularity: { kind: 'per-channel', axis: 0 } });
  const q4 = sp.quantize(w, { dtype: 'int4', shape, granularity: { kind: 'per-group', groupSize: 32 } });
  const all = {
    W8A8: { layer: sp.linear(q8, { activations: 'int8' }), floats: n / 4 },
    W8A32: { layer: sp.linear(q8), floats: n / 4 },
    'W4A8, groups of 32': { layer: sp.linear(q4, { activations: 'int8' }), floats: n / 8 },
    'W4A32, groups of 32': { layer: sp.linear(q4), floats: n / 8 },
    float32: { layer: sp.matmulFloat(w, { shape }), floats: n },
  };
  limits.prepare(n);
  for (const rows of [1, batch]) {
    const x = benchWeights(rows * width);
    const y = new Float32Array(rows * width);
    for (const [name, { layer, floats }] of Object.entries(all)) {
      const ms = await time({
        ours: () => layer.forward(x, { out: y }),
        // Many rows are bound by arithmetic, and plain JavaScript would take seconds.
        ...(rows === 1 && { limit: () => limits.read(floats), plain: plain.matvec.bind(undefined, w, x, y) }),
      } as Record<'ours' | 'limit' | 'plain', Contestant>);
      add({
        part: 'layers',
        operation: name,
        size: rows === 1 ? `${width} x ${width}` : `${width} x ${width}, ${rows} rows`,
        milliseconds: ms.ours,
        rate: (rows * n) / ms.ours / 1e6,
        unit: 'GMAC/s',
        ...(rows === 1 && { limit: ms.ours / ms.limit, plain: ms.plain / ms.ours }),
      });
    }
  }
  for (const { layer } of Object.values(all)) layer.dispose();
}

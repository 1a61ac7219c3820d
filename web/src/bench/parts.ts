// The parts of the benchmark. Each compares operations of the library with the memory limit and with plain JavaScript.
import { blockTypeInfo, blockTypes } from '../core/blocks.js';
import * as plain from './plain.js';
import type { Contestant } from './race.js';
import { type BenchRun, benchWeights, inWords } from './row.js';

/** Allocates the arrays for the part about arrays, in JavaScript and in wasm memory. */
function arrayBench({ sp, limits, size: n, add }: BenchRun) {
  const js = benchWeights(n);
  const x = sp.allocate('float32', n);
  const out = sp.allocate('int8', n);
  const y = sp.allocate('float32', n);
  x.view.set(js);
  limits.prepare(n);
  return {
    js,
    codes: new Int8Array(n),
    restored: new Float32Array(n),
    x,
    out,
    y,
    // Parameters that need all of the arithmetic: no power of two, and not 0.
    scale: 0.00054,
    zeroPoint: -3,
    row: (operation: string, ours: number, limit: number | undefined, straight: number) =>
      add({
        part: 'arrays',
        operation,
        size: `${inWords(n)} floats`,
        milliseconds: ours,
        rate: n / ours / 1e6,
        unit: 'G floats/s',
        ...(limit !== undefined && { limit: ours / limit }),
        plain: straight / ours,
      }),
  };
}

type ArrayBench = ReturnType<typeof arrayBench>;

export async function arrays(run: BenchRun): Promise<void> {
  const bench = arrayBench(run);
  await ranges(run, bench);
  await restoring(run, bench);
  await groups(run, bench);
  await measured(run, bench);
  for (const array of [bench.x, bench.out, bench.y]) array.dispose();
}

/** Measures finding ranges, making codes with a given scale, and both in one call. */
async function ranges({ sp, limits, size: n, time }: BenchRun, bench: ArrayBench): Promise<void> {
  const { js, codes, x, out, scale, zeroPoint, row } = bench;
  const range = { scale, zeroPoint };
  let ms = await time({
    ours: () => sp.chooseQuantizationParameters(x),
    limit: () => limits.read(n),
    plain: plain.minmax.bind(undefined, js),
  });
  row('range', ms.ours, ms.limit, ms.plain);
  ms = await time({
    ours: () => sp.quantize(x, { range, out }),
    limit: () => limits.fourToOne(n),
    plain: plain.plainQuantize.bind(undefined, js, scale, zeroPoint, codes),
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
}

/** Measures restoring floats from codes. */
async function restoring({ sp, limits, size: n, time }: BenchRun, bench: ArrayBench): Promise<void> {
  const { restored, x, y, out, scale, zeroPoint, row } = bench;
  const q = sp.quantize(x, { range: { scale, zeroPoint }, out });
  const ms = await time({
    ours: () => sp.dequantize(q, { out: y }),
    limit: () => limits.oneToFour(n),
    plain: plain.plainDequantize.bind(undefined, bench.codes, scale, zeroPoint, restored),
  });
  row('dequantize', ms.ours, ms.limit, ms.plain);
}

/** Measures codes with a scale for each 32 elements. */
async function groups({ sp, limits, size: n, time }: BenchRun, { js, codes, x, out, row }: ArrayBench): Promise<void> {
  const places = { data: out, scale: new Float32Array(n / 32), zeroPoint: new Int32Array(n / 32) };
  const scales = new Float32Array(n / 32);
  for (const [dtype, levels] of [
    ['int8', 127],
    ['int4', 7],
  ] as const) {
    const ms = await time({
      ours: () => sp.quantize(x, { dtype, granularity: { kind: 'per-group', groupSize: 32 }, out: places }),
      limit: () => limits.fourToOne(n),
      plain: plain.groups.bind(undefined, js, 32, levels, codes, scales),
    });
    row(`${dtype}, groups of 32`, ms.ours, ms.limit, ms.plain);
  }
}

/** Measures codes and their errors in one pass. */
async function measured({ sp, time }: BenchRun, bench: ArrayBench): Promise<void> {
  const { js, codes, x, out, scale, zeroPoint, row } = bench;
  const sum = sp.errorSum();
  const ms = await time({
    ours: () => sp.quantize(x, { range: { scale, zeroPoint }, out, errors: sum }),
    plain: () => {
      plain.plainQuantize(js, scale, zeroPoint, codes);
      plain.error(js, codes, scale, zeroPoint);
    },
  });
  row('quantize and measure', ms.ours, undefined, ms.plain);
}

export async function blocks({ sp, size, time, add }: BenchRun): Promise<void> {
  const weights = new Float32Array(256).fill(1);
  for (const type of blockTypes) {
    // Some of the types are a hundred times slower than others.
    const n = Math.min(size, /^IQ[123]_/.test(type) ? 1 << 16 : 1 << 20);
    const { elements, bytes, needsWeights } = blockTypeInfo(type);
    const x = sp.allocate('float32', n);
    x.view.set(benchWeights(n));
    const out = sp.allocate('uint8', (n / elements) * bytes);
    const options = needsWeights ? { out, shape: [n / elements, elements], weights } : { out };
    const { ours } = await time({ ours: () => sp.quantizeBlocks(x, type, options) });
    for (const array of [x, out]) array.dispose();
    add({
      part: 'blocks',
      operation: `to ${type}`,
      size: `${inWords(n)} floats`,
      milliseconds: ours,
      rate: n / ours / 1000,
      unit: 'M weights/s',
    });
  }
}

export async function layers({ sp, limits, width, batch, time, add }: BenchRun): Promise<void> {
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

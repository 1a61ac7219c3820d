/// <reference types="vite/client" />
// Layers on quantized weights: against a sum in double, PyTorch's answers, and each other's bits.
import type { Granularity, LinearOptions, LinearQuantizedTensor, Scalepoint } from 'scalepoint';
import { blockTypeInfo, load } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import pytorchText from '../../golden/pytorch.json?raw';
import {
  cores,
  describeBuilds,
  describeLarge,
  epsilon,
  expectCode,
  expected,
  expectGood,
  expectRefusal,
  expectSame,
  memorySize,
  Random,
} from '../support/support.js';

const perChannel: Granularity = { kind: 'per-channel', axis: 0 };
const groupsOf = (groupSize: number): Granularity => ({ kind: 'per-group', groupSize });

/** y in double, and what a float32 result may be off by: see `Layer.forward`, with blocks of 128 inputs or the rest of a group. */
function inDouble(w: Float32Array, x: Float32Array, outputs: number, bias?: Float32Array, group?: number) {
  const inputs = w.length / outputs;
  const batch = x.length / inputs;
  const y = new Float64Array(batch * outputs);
  const bound = new Float64Array(batch * outputs);
  const groupSize = group ?? inputs;
  for (let b = 0; b < batch; b++) {
    for (let o = 0; o < outputs; o++) {
      let sum = bias?.[o] ?? 0;
      let size = Math.abs(sum);
      let off = 0;
      for (let start = 0; start < inputs; start += groupSize) {
        const end = Math.min(start + groupSize, inputs);
        for (let block = start; block < end; block += 128) {
          let weights = 0;
          let largest = 0;
          for (let i = block; i < Math.min(block + 128, end); i++) {
            const product = w[o * inputs + i]! * x[b * inputs + i]!;
            sum += product;
            size += Math.abs(product);
            weights += Math.abs(w[o * inputs + i]!);
            largest = Math.max(largest, Math.abs(x[b * inputs + i]!));
          }
          off += weights * largest * 2 ** -29;
        }
      }
      y[b * outputs + o] = sum;
      // The weights here are rounded to float32, those of the layer are not; sums in double are within 2^-40 of their terms.
      bound[b * outputs + o] = epsilon * Math.abs(sum) + off + epsilon * size + 2 ** -40 * size;
    }
  }
  return { y, bound };
}

function expectWithin(got: Float32Array, { y, bound }: { y: Float64Array; bound: Float64Array }): void {
  expect(got.length).toBe(y.length);
  for (const [i, want] of y.entries()) {
    if (!(Math.abs(got[i]! - want) <= bound[i]!)) expect.fail(`y[${i}]: expected ${want} ± ${bound[i]}, got ${got[i]}`);
  }
}

/** y of int8 activations: rows of x by the oracle, sums of a group as whole numbers, the rest in double, rounded once. */
function withInt8(q: LinearQuantizedTensor, x: Float32Array, scheme: 'symmetric' | 'asymmetric', bias?: Float32Array) {
  const [outputs = 0, inputs = 0] = q.shape;
  const data = q.data as Int8Array;
  const group = q.granularity.kind === 'per-group' ? q.granularity.groupSize : inputs;
  const groups = Math.ceil(inputs / group);
  const y = new Float32Array((x.length / inputs) * outputs);
  for (let b = 0; b * inputs < x.length; b++) {
    const row = expected(x.subarray(b * inputs, (b + 1) * inputs), { scheme });
    for (let o = 0; o < outputs; o++) {
      let sum = 0;
      for (let g = 0; g < groups; g++) {
        const parameter = q.scale.length === 1 ? 0 : o * groups + g;
        let dot = 0;
        for (let i = g * group; i < Math.min((g + 1) * group, inputs); i++) {
          dot += (data[o * inputs + i]! - q.zeroPoint[parameter]!) * (row.data[i]! - row.zeroPoint[0]!);
        }
        sum += q.scale[parameter]! * dot;
      }
      y[b * outputs + o] = row.scale[0]! * sum + (bias?.[o] ?? 0);
    }
  }
  return y;
}

const forms: [what: string, dtype: LinearQuantizedTensor['dtype'], granularity: Granularity][] = [
  ['W8 per tensor', 'int8', { kind: 'per-tensor' }],
  ['W8 per channel', 'int8', perChannel],
  ['W8 per group', 'int8', groupsOf(32)],
  ['W4 in groups of 32', 'int4', groupsOf(32)],
  ['W4 in groups of 64', 'int4', groupsOf(64)],
  ['W4 in groups of 128', 'int4', groupsOf(128)],
  ['W4 in groups of 20', 'int4', groupsOf(20)],
  ['W4 per channel', 'int4', perChannel],
  ['unsigned W8 per channel', 'uint8', perChannel],
  ['unsigned W4 per group', 'uint4', groupsOf(48)],
  ['W2 per group', 'int2', groupsOf(32)],
  ['W6 per channel', 'int6', perChannel],
];

describeBuilds('linear', (sp) => {
  const random = new Random(1);

  it.each(forms)('computes %s with float32 activations', (_, dtype, granularity) => {
    for (const scheme of ['symmetric', 'asymmetric'] as const) {
      for (const [outputs, inputs, batch] of [
        [1, 1, 1],
        [17, 333, 3],
        [64, 256, 1],
        [9, 515, 8],
      ] as const) {
        const q = sp.quantize(random.bell(outputs * inputs), { dtype, scheme, granularity, shape: [outputs, inputs] });
        const bias = random.bell(outputs);
        const x = random.bell(batch * inputs);
        const layer = sp.linear(q, { bias });
        expect([layer.outputs, layer.inputs]).toEqual([outputs, inputs]);
        const group = q.granularity.kind === 'per-group' ? q.granularity.groupSize : undefined;
        expectWithin(layer.forward(x, { batch }), inDouble(sp.dequantize(q), x, outputs, bias, group));
        layer.dispose();
      }
    }
  });

  it.each(forms)('computes %s with int8 activations, exactly', (_, dtype, granularity) => {
    for (const scheme of ['symmetric', 'asymmetric'] as const) {
      for (const [outputs, inputs, batch] of [
        [1, 1, 1],
        [17, 333, 3],
        [9, 515, 8],
      ] as const) {
        const q = sp.quantize(random.bell(outputs * inputs), { dtype, scheme, granularity, shape: [outputs, inputs] });
        const bias = random.bell(outputs);
        const x = random.uniform(batch * inputs, -1, 2);
        for (const activationScheme of ['symmetric', 'asymmetric'] as const) {
          const layer = sp.linear(q, { bias, activations: 'int8', activationScheme });
          expectSame(layer.forward(x), withInt8(q, x, activationScheme, bias));
          layer.dispose();
        }
      }
    }
  });

  it('subtracts the zero point before it scales', () => {
    const q = sp.quantize(new Float32Array([1, 2, 3, 4]), { scheme: 'asymmetric', shape: [2, 2] });
    expect(q.zeroPoint[0]).toBe(-128);
    const layer = sp.linear(q);
    expectWithin(layer.forward([1, 1]), inDouble(sp.dequantize(q), new Float32Array([1, 1]), 2));
    layer.dispose();
  });

  it('takes blocks of Q8_0 and Q4_0', () => {
    for (const type of ['Q8_0', 'Q4_0'] as const) {
      const q = sp.quantizeBlocks(random.bell(13 * 96), type, { shape: [13, 96] });
      const x = random.bell(5 * 96);
      const layer = sp.linear(q);
      expectWithin(layer.forward(x), inDouble(sp.dequantize(q), x, 13, undefined, 32));
      layer.dispose();
      // The same weights as codes give the same bits, with int8 activations too.
      const scale = new Float32Array(39);
      const data = new Int8Array(13 * 96);
      const restored = sp.dequantize(q);
      const bits = new DataView(q.data.buffer);
      const block = type === 'Q8_0' ? 34 : 18;
      for (let i = 0; i < 39; i++) {
        scale[i] = Math.abs(sp.castToFloat32(Uint16Array.of(bits.getUint16(i * block, true)), 'float16')[0]!);
        for (let j = i * 32; j < (i + 1) * 32; j++) data[j] = Math.round(restored[j]! / scale[i]!);
      }
      const codes: LinearQuantizedTensor = {
        kind: 'linear',
        dtype: 'int8',
        shape: [13, 96],
        granularity: groupsOf(32),
        data,
        scale,
        zeroPoint: new Int32Array(39),
      };
      for (const activations of ['float32', 'int8'] as const) {
        const [a, b] = [sp.linear(q, { activations }), sp.linear(codes, { activations })];
        expectSame(a.forward(x), b.forward(x));
        a.dispose();
        b.dispose();
      }
    }
  });

  it('takes large matrices, rows longer than a tile, and batches of more rows than fit', () => {
    for (const [outputs, inputs, batch] of [
      [3, 300_000, 2],
      [300_000, 3, 2],
      [40, 2000, 150],
    ] as const) {
      const w = random.uniform(outputs * inputs);
      const x = random.uniform(batch * inputs);
      const q = sp.quantize(w, { shape: [outputs, inputs], granularity: perChannel });
      const bias = random.uniform(outputs);
      const layer = sp.linear(q, { activations: 'int8', bias });
      expectSame(layer.forward(x), withInt8(q, x, 'symmetric', bias));
      const floats = sp.matmulFloat(w, { shape: [outputs, inputs], bias });
      const { y } = inDouble(w, x, outputs, bias);
      const got = floats.forward(x);
      // Blocks of 256 products of at most 1, each rounded once and added at most 256 times; then the blocks.
      const bound = (inputs + 1) * (258 + inputs / 256) * epsilon;
      for (const [i, want] of y.entries()) {
        if (!(Math.abs(got[i]! - want) <= bound)) expect.fail(`y[${i}]: expected ${want}, got ${got[i]}`);
      }
      layer.dispose();
      floats.dispose();
    }
  });

  it('reads x and writes y where they are: arrays, parts of them, other kinds, wasm memory', () => {
    const q = sp.quantize(random.bell(24 * 40), { shape: [24, 40], granularity: perChannel });
    const layer = sp.linear(q);
    const x = random.bell(3 * 40);
    const want = layer.forward(x);
    const inside = new Float32Array(130);
    inside.set(x, 7);
    const out = new Float32Array(72);
    expect(layer.forward(inside.subarray(7, 127), { batch: 3, out })).toBe(out);
    expectSame(out, want);
    expectSame(layer.forward([...x]), want);
    expectSame(layer.forward(Float64Array.from(x)), want);
    const wasmX = sp.allocate('float32', 120);
    const wasmY = sp.allocate('float32', 72);
    wasmX.view.set(x);
    expect(layer.forward(wasmX, { out: wasmY })).toBe(wasmY);
    expectSame(wasmY.view, want);
    expectSame(layer.forward(new Float32Array(0)), new Float32Array(0));
    expectSame(layer.forward(new Float32Array(0), { batch: 0 }), new Float32Array(0));
    expectRefusal(() => layer.forward(wasmX.view, { out: wasmX.view.subarray(0, 72) }), RangeError, 'out');
    wasmX.dispose();
    wasmY.dispose();
    layer.dispose();
  });

  it('gives a row the same bits in any batch, with values that dwarf the others and such as are not finite', () => {
    const q = sp.quantize(random.bell(20 * 300), { shape: [20, 300], dtype: 'int4', granularity: groupsOf(64) });
    for (const activations of ['float32', 'int8'] as const) {
      const layer = sp.linear(q, { activations });
      for (const batch of [1, 2, 3, 5, 8, 70]) {
        const x = random.bell(batch * 300);
        for (let b = 0; b < batch; b++) {
          if (random.below(4) === 0) x[b * 300 + random.below(300)] = random.pick([1e9, -1e20, NaN, Infinity]);
        }
        const y = layer.forward(x);
        for (let b = 0; b < batch; b++) {
          expectSame(layer.forward(x.subarray(b * 300, (b + 1) * 300)), y.subarray(b * 20, (b + 1) * 20));
        }
      }
      layer.dispose();
    }
  });

  it('propagates NaN and infinities as the float layer', () => {
    const q = sp.quantize(random.bell(12 * 50), { shape: [12, 50], granularity: groupsOf(32) });
    const w = sp.dequantize(q);
    const floats = sp.matmulFloat(w, { shape: [12, 50] });
    for (const activations of ['float32', 'int8'] as const) {
      const layer = sp.linear(q, { activations });
      for (const values of [[NaN], [Infinity], [-Infinity], [Infinity, -Infinity], [Infinity, Infinity]]) {
        const x = random.bell(50);
        for (const value of values) x[random.below(50)] = value;
        expectSame(layer.forward(x), floats.forward(x));
      }
      layer.dispose();
    }
    floats.dispose();
  });
});

describe('the builds', () => {
  it('give the same bits', () => {
    const random = new Random(2);
    const [simd, scalar] = cores;
    for (const [, dtype, granularity] of forms) {
      const w = random.bell(19 * 270);
      const x = random.bell(6 * 270);
      x[400] = 1e7;
      const results = [simd!.sp, scalar!.sp].map((sp) => {
        const q = sp.quantize(w, { dtype, granularity, scheme: 'asymmetric', shape: [19, 270] });
        return (['float32', 'int8'] as const).map((activations) => {
          const layer = sp.linear(q, { activations });
          const y = layer.forward(x);
          layer.dispose();
          return y;
        });
      });
      expectSame(results[0]![0]!, results[1]![0]!);
      expectSame(results[0]![1]!, results[1]![1]!);
    }
    const floats = [simd!.sp, scalar!.sp].map((sp) => {
      const layer = sp.matmulFloat(new Random(3).bell(19 * 270), { shape: [19, 270] });
      const y = layer.forward(new Random(4).bell(6 * 270));
      layer.dispose();
      return y;
    });
    expectSame(floats[0]!, floats[1]!);
  });

  it('give the bits of every engine', async () => {
    const random = new Random(5);
    const sp = cores[0]!.sp;
    const all: Uint8Array[] = [];
    for (const [, dtype, granularity] of forms) {
      const q = sp.quantize(random.bell(19 * 270), { dtype, granularity, scheme: 'asymmetric', shape: [19, 270] });
      for (const activations of ['float32', 'int8'] as const) {
        const layer = sp.linear(q, { activations });
        all.push(new Uint8Array(layer.forward(random.bell(5 * 270)).buffer));
        layer.dispose();
      }
    }
    const bytes = new Uint8Array(await new Blob(all as Uint8Array<ArrayBuffer>[]).arrayBuffer());
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
    expect([...digest.subarray(0, 4)].map((byte) => byte.toString(16).padStart(2, '0')).join('')).toBe('737b15fe');
  });
});

// ------------------------------------------------------------------------------------------------------------ other programs

interface Golden {
  kind: string;
  per_channel: boolean;
  batch: number;
  in_features: number;
  out_features: number;
  x: number[];
  w: number[];
  bias: number[];
  scales: number[];
  q: number[];
  y_exact: number[];
}
const goldens = (JSON.parse(pytorchText) as { cases: Golden[] }).cases.filter((c) => c.kind === 'linear_w8a32');

describeBuilds('the W8A32 layers of PyTorch', (sp) => {
  it.each(goldens.map((c, i) => [i, c] as const))('give case %i', (_, c) => {
    const shape = [c.out_features, c.in_features];
    const q = sp.quantize(new Float32Array(c.w), {
      shape,
      granularity: c.per_channel ? perChannel : { kind: 'per-tensor' },
    });
    expectSame(q.data, new Int8Array(c.q));
    expectSame(q.scale, new Float32Array(c.scales.slice(0, q.scale.length)));
    const bias = new Float32Array(c.bias);
    const layer = sp.linear(q, { bias });
    const x = new Float32Array(c.x);
    const { bound } = inDouble(sp.dequantize(q), x, c.out_features, bias);
    expectWithin(layer.forward(x, { batch: c.batch }), { y: Float64Array.from(c.y_exact), bound });
    layer.dispose();
  });

  it('give what the notebook printed, four digits of it', () => {
    const w = new Float32Array([-2.0, -1.13, 0.42, -1.51, 0.25, 1.62, 0.23, 1.35, 2.15]);
    const q = sp.quantize(w, { shape: [3, 3] });
    const layer = sp.linear(q);
    expect([...layer.forward([1, 2, 3])].map((v) => v.toFixed(4))).toEqual(['-2.9965', '3.8768', '9.3957']);
    layer.dispose();
  });
});

// -------------------------------------------------------------------------------------------------------------------- errors

describeLarge('layers', (sp) => {
  const q = sp.quantize(new Float32Array(12).fill(1), { shape: [3, 4] });

  it('refuse wrong weights and options by name', () => {
    const bad = (q: unknown, options?: unknown) => () => sp.linear(q as never, options as never);
    expectRefusal(bad(new Float32Array(4)), TypeError, 'q');
    expectRefusal(bad(sp.quantize(new Float32Array(12))), RangeError, 'q.shape');
    expectRefusal(bad(sp.quantize(new Float32Array(12), { shape: [3, 2, 2] })), RangeError, 'q.shape');
    expectRefusal(bad(sp.quantize(new Float32Array(0), { shape: [0, 4] })), RangeError, 'q.shape');
    expectRefusal(bad({ ...q, scale: new Float32Array([0]) }), RangeError, 'q.scale');
    expectRefusal(bad(q, { bias: new Float32Array(4) }), RangeError, 'bias');
    expectRefusal(bad(q, { bias: 'no' }), TypeError, 'bias');
    expectRefusal(bad(q, { activations: 'int4' }), RangeError, 'activations');
    expectRefusal(bad(q, { activationScheme: 'asymmetric' }), RangeError, 'activationScheme');
    expectRefusal(bad(q, { activations: 'int8', activationScheme: 'both' }), RangeError, 'activationScheme');
    expectRefusal(bad(q, { speed: 1 }), TypeError, 'speed');
    const floats = (options?: unknown) => () => sp.matmulFloat(new Float32Array(12), options as never);
    expectRefusal(floats(null), TypeError, 'options');
    for (const options of [undefined, {}]) expectRefusal(floats(options), TypeError, 'shape');
    expectRefusal(floats({ shape: [3, 5] }), RangeError, 'shape');
    expectRefusal(floats({ shape: [2.5, 4.8] }), RangeError, 'shape');
    expectRefusal(floats({ shape: [12] }), RangeError, 'shape');
    expectRefusal(() => sp.matmulFloat('w' as never, { shape: [3, 4] }), TypeError, 'w');
    expectGood(sp);
  });

  it('refuse codes outside of the dtype, and blocks whose scale is not finite', () => {
    const before = memorySize(sp);
    for (const bits of [2, 3, 4, 5, 6, 7]) {
      for (const signed of [true, false]) {
        const dtype = `${signed ? 'int' : 'uint'}${bits}` as LinearQuantizedTensor['dtype'];
        const wide = sp.quantize(new Random(bits).bell(64 * 48), { shape: [64, 48], dtype });
        sp.linear(wide).dispose();
        const [lowest, highest] = signed ? [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1] : [0, 2 ** bits - 1];
        for (const code of signed ? [lowest - 1, highest + 1, -128, 127] : [highest + 1, 255]) {
          for (const at of [0, 63 * 48 + 47]) {
            const data = wide.data.slice() as Int8Array;
            data[at] = code;
            expectRefusal(() => sp.linear({ ...wide, data }), RangeError, 'q.data');
          }
        }
      }
    }
    for (const type of ['Q8_0', 'Q4_0'] as const) {
      const blocks = sp.quantizeBlocks(new Random(2).bell(3 * 64), type, { shape: [3, 64] });
      sp.linear(blocks).dispose();
      const bytes = blocks.data.length / 6;
      for (const high of [0x7c, 0xfc, 0x7e, 0xff]) {
        for (const block of [0, 5]) {
          const data = Uint8Array.from(blocks.data as Uint8Array);
          data[block * bytes + 1] = high;
          const layer = () => sp.linear({ ...blocks, data });
          expectRefusal(layer, RangeError, `q.data[${block * bytes}]`);
        }
      }
    }
    // Those that layers restore. All ones are no scale in any of them.
    for (const type of ['Q4_1', 'Q5_0', 'Q5_1', 'Q2_K', 'Q3_K', 'Q4_K', 'Q6_K', 'IQ4_NL', 'IQ4_XS', 'TQ1_0'] as const) {
      const blocks = sp.quantizeBlocks(new Random(3).bell(3 * 512), type, { shape: [3, 512] });
      sp.linear(blocks).dispose();
      const size = blockTypeInfo(type);
      for (const row of [0, 2]) {
        const data = Uint8Array.from(blocks.data as Uint8Array);
        const at = (row * data.length) / 3;
        data.fill(0xff, at, at + size.bytes);
        const layer = () => sp.linear({ ...blocks, data });
        expectRefusal(layer, RangeError, `q.data[${row * 512}]`);
      }
    }
    // A scale that is finite, of codes that it takes out of float32.
    const wide = sp.quantize(new Random(4).bell(12), { shape: [3, 4], dtype: 'int16' });
    expectRefusal(() => sp.linear({ ...wide, scale: Float32Array.of(1e38) }), RangeError, 'q.data');
    expect(memorySize(sp)).toBe(before);
    expectGood(sp);
  });

  it('refuse wrong x and out by name', () => {
    const layer = sp.linear(q);
    const bad = (x: unknown, options?: unknown) => () => layer.forward(x as never, options as never);
    expectRefusal(bad(new Float32Array(5)), RangeError, 'x');
    expectRefusal(bad(new Float32Array(8), { batch: 1 }), RangeError, 'x');
    expectRefusal(bad(new Float32Array(4), { batch: 1.5 }), RangeError, 'batch');
    expectRefusal(bad(new Float32Array(4), { batch: '1' }), TypeError, 'batch');
    expectRefusal(bad(new Int8Array(4)), TypeError, 'x');
    expectRefusal(bad(new Float32Array(4), { out: new Float32Array(4) }), RangeError, 'out');
    expectRefusal(bad(new Float32Array(4), { out: new Float64Array(3) }), TypeError, 'out');
    expectRefusal(bad(new Float32Array(4), { into: 1 }), TypeError, 'into');
    expectWithin(layer.forward([1, 1, 1, 1]), inDouble(sp.dequantize(q), new Float32Array(4).fill(1), 3));
    layer.dispose();
    layer.dispose();
    expectCode(() => layer.forward([1, 1, 1, 1]), 'DISPOSED');
  });

  it('give their memory back', () => {
    const large = sp.quantize(new Float32Array(1 << 20).fill(1), { shape: [1024, 1024] });
    sp.linear(large).dispose();
    const before = memorySize(sp);
    for (let i = 0; i < 20; i++) {
      const layer = sp.linear(large);
      expect(layer.bytes).toBeGreaterThanOrEqual(1 << 20);
      layer.forward(new Float32Array(1024));
      layer.dispose();
    }
    expect(memorySize(sp)).toBe(before);
  });

  it('are disposed with their instance', async () => {
    const own: Scalepoint = await load();
    const layer = own.linear(q);
    own.dispose();
    expectCode(() => layer.forward([1, 1, 1, 1]), 'DISPOSED');
    layer.dispose();
  });
});

describe('a hundred thousand calls', () => {
  it('take no memory, half of them refused', () => {
    const { sp } = cores[0]!;
    const random = new Random(6);
    const options: LinearOptions[] = [{}, { activations: 'int8' }];
    const q = sp.quantize(random.bell(48 * 64), { shape: [48, 64], dtype: 'int4', granularity: groupsOf(32) });
    const layers = options.map((o) => sp.linear(q, o));
    const x = random.bell(64);
    const out = new Float32Array(48);
    const want = layers.map((layer) => layer.forward(x));
    const bad = [
      () => layers[0]!.forward(x.subarray(1)),
      () => layers[1]!.forward(x, { out: x.subarray(0, 47) }),
      () => layers[0]!.forward(x, { batch: 2 }),
      () => layers[1]!.forward('x' as never),
    ];
    const before = memorySize(sp);
    for (let i = 0; i < 50_000; i++) {
      layers[i % 2]!.forward(x, { out });
      try {
        bad[i % 4]!();
        expect.fail('nothing was thrown');
      } catch (error) {
        if (!(error instanceof RangeError || error instanceof TypeError)) throw error;
      }
    }
    expect(memorySize(sp)).toBe(before);
    for (const [i, layer] of layers.entries()) {
      expectSame(layer.forward(x), want[i]!);
      layer.dispose();
    }
  });
});

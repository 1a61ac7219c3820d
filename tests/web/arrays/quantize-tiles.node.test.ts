// Arrays longer than the tiles in which the core works (131072 elements) and the steps in which arrays are copied (16384), of every layout,
// from JavaScript and from wasm memory.
import type { Granularity, WasmArray } from 'scalepoint';
import { expect, it } from 'vitest';
import {
  type Codes,
  cores,
  describeBuilds,
  expected,
  expectGood,
  expectSame,
  memorySize,
  Random,
  type Rule,
} from '../support/support.js';

// Each of these is some hundred milliseconds of work, and machines may be busy.
const tile = 131_072;
const step = 16_384;

/** Shape, granularity, and what is special about them. */
const layouts: [string, number[], Granularity][] = [
  ['one element less than a tile', [tile - 1], { kind: 'per-tensor' }],
  ['just a tile', [tile], { kind: 'per-tensor' }],
  ['one element more than a tile', [tile + 1], { kind: 'per-tensor' }],
  ['one element less than a step', [step - 1], { kind: 'per-tensor' }],
  ['just a step', [step], { kind: 'per-tensor' }],
  ['one element more than a step', [step + 1], { kind: 'per-tensor' }],
  ['rows of a step', [3, step], { kind: 'per-channel', axis: 0 }],
  ['rows of a step and an element', [3, step + 1], { kind: 'per-channel', axis: 0 }],
  ['rows of a step but for an element', [3, step - 1], { kind: 'per-channel', axis: 0 }],
  ['groups that a step ends in', [2, 2 * step + 7], { kind: 'per-group', groupSize: 24 }],
  ['groups as long as a step', [3 * step + 1], { kind: 'per-group', groupSize: step }],
  ['groups longer than a step', [3 * step + 1], { kind: 'per-group', groupSize: step + 1 }],
  ['more channels along the last axis than a step has elements', [3, step + 3], { kind: 'per-channel', axis: 1 }],
  ['two tiles and more', [300_000], { kind: 'per-tensor' }],
  ['rows that do not divide a tile', [30, 10_000], { kind: 'per-channel', axis: 0 }],
  ['rows of a tile and an element', [2, tile + 1], { kind: 'per-channel', axis: 0 }],
  ['rows of a tile', [3, tile], { kind: 'per-channel', axis: 0 }],
  ['rows longer than a tile', [2, 150_000], { kind: 'per-channel', axis: 0 }],
  ['short rows, more than there is room for at a time', [42_000, 7], { kind: 'per-channel', axis: 0 }],
  ['a channel for every element', [140_000], { kind: 'per-channel', axis: 0 }],
  ['few channels along the last axis', [30_000, 10], { kind: 'per-channel', axis: 1 }],
  ['many channels along the last axis', [10, 30_000], { kind: 'per-channel', axis: 1 }],
  ['more channels along the last axis than a tile has elements', [2, tile + 3], { kind: 'per-channel', axis: 1 }],
  ['channels along a middle axis', [30, 100, 100], { kind: 'per-channel', axis: 1 }],
  ['many channels along a middle axis', [2, 75_000, 2], { kind: 'per-channel', axis: 1 }],
  ['groups with a short one at the end of each row', [100, 3000], { kind: 'per-group', groupSize: 128 }],
  ['groups of 32 in a row longer than a tile', [2, 150_000], { kind: 'per-group', groupSize: 32 }],
  ['groups of 48, which no tile is a multiple of', [1, 300_000], { kind: 'per-group', groupSize: 48 }],
  ['groups of a prime number', [7, 40_000], { kind: 'per-group', groupSize: 97 }],
  ['groups of one element', [8, 17_000], { kind: 'per-group', groupSize: 1 }],
  ['groups of three elements in a row longer than a tile', [1, 140_000], { kind: 'per-group', groupSize: 3 }],
  ['groups almost as long as a tile', [1, 300_000], { kind: 'per-group', groupSize: tile - 1 }],
  ['groups as long as a tile', [300_000], { kind: 'per-group', groupSize: tile }],
  ['groups longer than a tile', [300_000], { kind: 'per-group', groupSize: tile + 5 }],
  ['groups longer than a row', [40, 7000], { kind: 'per-group', groupSize: 2 ** 40 }],
  [
    'rows of a group and a short one, more than there is room for at a time',
    [45_000, 3],
    { kind: 'per-group', groupSize: 2 },
  ],
  ['groups along a middle axis with a short one', [5, 600, 100], { kind: 'per-group', groupSize: 128, axis: 1 }],
  ['groups along the first axis', [301, 1000], { kind: 'per-group', groupSize: 2, axis: 0 }],
];

const cases = layouts.map(([name, shape, granularity], i) => [name, shape, granularity, i] as const);

it.each(cases)(
  'quantizes, restores and measures alike in JavaScript and wasm memory: %s',
  (_, shape, granularity, i) => {
    const n = shape.reduce((a, b) => a * b, 1);
    const random = new Random(100 + i);
    const x = random.bell(n);
    // Every stretch of the array gets a size of its own, so that a wrong scale shows.
    for (let j = 0; j < n; j++) x[j]! *= 1 + ((j >> 7) % 61);
    const dtype = random.pick(['int8', 'int4', 'uint8', 'int16'] as const);
    const scheme = random.pick(['symmetric', 'asymmetric'] as const);
    const rounding = random.pick(['onnx', 'fused', 'reciprocal'] as const);
    const rule: Rule = { dtype, scheme, rounding, shape, granularity };
    const want = expected(x, rule);
    const storage = want.data.constructor.name.replace('Array', '').toLowerCase() as
      | 'int8'
      | 'uint8'
      | 'int16'
      | 'uint16';

    for (const { build, sp } of cores) {
      const same = (got: unknown, wanted: ArrayLike<number>, what: string) =>
        expectSame(got, wanted, `${what}, ${build}`);
      const fromJs = sp.quantize(x, rule);
      same(fromJs.scale, want.scale, 'scale');
      same(fromJs.zeroPoint, want.zeroPoint, 'zero point');
      same(fromJs.data, want.data, 'codes');
      same(sp.dequantize(fromJs), want.restored, 'restored');

      const input = sp.allocate('float32', n);
      const codes = sp.allocate(storage, n);
      const output = sp.allocate('float32', n);
      try {
        input.view.set(x);
        const inPlace = sp.quantize(input, { ...rule, out: codes });
        same(inPlace.scale, want.scale, 'scale in wasm memory');
        same(inPlace.zeroPoint, want.zeroPoint, 'zero point in wasm memory');
        same(codes.view, want.data, 'codes in wasm memory');
        sp.dequantize(inPlace, { out: output });
        same(output.view, want.restored, 'restored in wasm memory');

        // One side in wasm memory, the other in JavaScript.
        same(sp.quantize(input, rule).data, want.data, 'codes out of wasm memory');
        codes.view.fill(0);
        sp.quantize(x, { ...rule, out: codes });
        same(codes.view, want.data, 'codes into wasm memory');
        same(sp.dequantize(inPlace), want.restored, 'restored out of wasm memory');
        output.view.fill(0);
        sp.dequantize(fromJs, { out: output });
        same(output.view, want.restored, 'restored into wasm memory');

        const parameters = sp.chooseQuantizationParameters(input, rule);
        same(parameters.scale, want.scale, 'scale alone');
        same(parameters.zeroPoint, want.zeroPoint, 'zero point alone');

        const given = { scale: want.scale, zeroPoint: want.zeroPoint };
        same(sp.quantize(x, { ...rule, range: given }).data, want.data, 'codes with given scales');
        sp.quantize(input, { ...rule, range: given, out: codes });
        same(codes.view, want.data, 'codes with given scales, in wasm memory');

        const measures = sp.compare(x, want.restored);
        for (const a of [x, input]) {
          for (const b of [fromJs, inPlace, output]) expect(sp.compare(a, b)).toEqual(measures);
        }
      } finally {
        for (const array of [input, codes, output] as WasmArray[]) array.dispose();
      }
      same(sp.unpack(sp.pack(fromJs), fromJs), want.data, 'packed and unpacked');
    }
  },
);

describeBuilds('wasm memory', (sp) => {
  it('holds tiles and parameters, not the input: 16 Mi elements need a few megabytes', () => {
    const before = memorySize(sp);
    const n = 16 * 2 ** 20;
    const x = new Float32Array(n);
    const out = new Int8Array(n);
    // Numbers at both ends and on both sides of each tile's border.
    const places = [0, 1, tile - 1, tile, 5 * tile - 1, 5 * tile, n - tile - 1, n - 1];
    for (const [k, at] of places.entries()) x[at] = (k + 1) * (k % 2 ? -1 : 1);
    const q = sp.quantize(x, { out });
    expect(q.scale).toEqual(new Float32Array([8 / 127]));
    const want = expected(
      places.map((at) => x[at]!),
      {},
      { scale: q.scale, zeroPoint: q.zeroPoint },
    );
    expectSame(
      Int8Array.from(places, (at) => out[at]!),
      want.data,
    );
    // 256 Ki elements are the most that are kept in wasm memory between two passes: a call for more goes through the array twice.
    expect(memorySize(sp) - before).toBeLessThan(8 * 2 ** 20);
    expectGood(sp);
  });

  it('goes back after every call', () => {
    const x = new Random(40).bell(200_000);
    const call = () => {
      const q = sp.quantize(x, { shape: [200, 1000], granularity: { kind: 'per-channel', axis: 1 } });
      sp.dequantize(q);
      sp.compare(x, q);
      sp.histogram(x, { bins: 100_000 });
      sp.pack(sp.quantize(x, { granularity: { kind: 'per-group', groupSize: 1 } }));
      expect(() =>
        sp.quantize(new Float32Array(140_000).fill(Infinity), { granularity: { kind: 'per-channel', axis: 0 } }),
      ).toThrow();
    };
    call();
    const before = memorySize(sp);
    for (let i = 0; i < 4; i++) call();
    expect(memorySize(sp)).toBe(before);
  });

  it('grows while a caller holds arrays in it, and their codes stay', () => {
    const x = new Random(41).bell(1000);
    const input = sp.allocate('float32', 1000);
    input.view.set(x);
    const q = sp.quantize(input, { out: sp.allocate('int8', 1000) });
    const old = input.view;
    const large = sp.allocate('float32', memorySize(sp) / 4);
    expect(old.length).toBe(0);
    expect(input.view).toEqual(x);
    const want = expected(x, {});
    expectSame((q.data as WasmArray).view as Codes, want.data);
    expectSame(sp.dequantize(q), want.restored);
    large.dispose();
    input.dispose();
    (q.data as WasmArray).dispose();
  });
});

// Sources of values, and destinations of results.
import type { FloatInput, QuantizeOptions, WasmArray } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import {
  bfloat16Value,
  type Codes,
  codesOf,
  describeBuilds,
  expected,
  expectGood,
  expectSame,
  float16Value,
  Random,
  resizableBuffer,
  sharedBuffer,
} from '../support/support.js';

/** Lengths around a vector, a step of the loops, a step of copying, and a tile. */
const lengths = [0, 1, 5, 16, 33, 1000, 16_383, 16_384, 16_385, 131_071, 131_072, 131_073, 300_000];
const options: QuantizeOptions = { dtype: 'int8', scheme: 'asymmetric' };

/** Random finite 16-bit floats: their bits, and as float32. */
function halves(
  n: number,
  toNumber: (bits: number) => number,
  exponentMask: number,
): { bits: Uint16Array; x: Float32Array } {
  const random = new Random(n + exponentMask);
  const bits = new Uint16Array(n);
  const x = new Float32Array(n);
  for (let i = 0; i < n; i++) {
    const word = random.bits() & 0xffff;
    bits[i] = (word & exponentMask) === exponentMask ? word & ~(exponentMask & -exponentMask) : word;
    x[i] = toNumber(bits[i]!);
  }
  return { bits, x };
}

interface Float16ArrayConstructor {
  new (values: ArrayLike<number>): Extract<FloatInput, { readonly [Symbol.toStringTag]: 'Float16Array' }>;
}
const Float16 = (globalThis as { Float16Array?: Float16ArrayConstructor }).Float16Array;

describeBuilds('inputs of quantize', (sp) => {
  it.each(lengths)('give the same codes from every kind of array of %i elements', (n) => {
    const x = new Random(n + 20).bell(n);
    const want = expected(x, options as object);
    const padded = new Float32Array(n + 7);
    padded.set(x, 3);
    const shared = new Float32Array(sharedBuffer(n * 4), 0, n);
    shared.set(x);
    const resizable = new Float32Array(resizableBuffer(n * 4));
    resizable.set(x);
    const list = Array.from(x);
    const frozen = Object.freeze(Array.from(x));
    const measures = sp.compare(x, sp.quantize(x, options));
    const histogram = sp.histogram(x);
    const inWasm = sp.allocate('float32', n + 2);
    try {
      inWasm.view.set(x, 1);
      // Memory that grows takes the view of before along, so that each call gets one of its own.
      const kinds: Record<string, () => FloatInput> = {
        Float32Array: () => x,
        'a part of a Float32Array': () => padded.subarray(3, 3 + n),
        Float64Array: () => new Float64Array(x),
        'a part of a Float64Array': () => new Float64Array(padded).subarray(3, 3 + n),
        'number[]': () => list,
        'a frozen number[]': () => frozen,
        'a shared Float32Array': () => shared,
        'a resizable Float32Array': () => resizable,
        'a part of wasm memory': () => inWasm.view.subarray(1, 1 + n),
      };
      for (const [kind, input] of Object.entries(kinds)) {
        const q = sp.quantize(input(), options);
        expectSame(q.data, want.data, kind);
        expectSame(q.scale, want.scale, kind);
        expectSame(q.zeroPoint, want.zeroPoint, kind);
        const given = { scale: want.scale, zeroPoint: want.zeroPoint };
        expectSame(sp.quantize(input(), { ...options, range: given }).data, want.data, `${kind}, given scale`);
        expect(sp.chooseQuantizationParameters(input(), options), kind).toEqual(given);
        expect(sp.compare(input(), q), kind).toEqual(measures);
        expect(sp.histogram(input()), kind).toEqual(histogram);
      }
    } finally {
      inWasm.dispose();
    }
  });

  it.each(lengths)('give the same codes from the bits of %i 16-bit floats', (n) => {
    for (const [from, toNumber, mask] of [
      ['float16', float16Value, 0x7c00],
      ['bfloat16', bfloat16Value, 0x7f80],
    ] as const) {
      const { bits, x } = halves(n, toNumber, mask);
      const want = expected(x, options as object);
      const forms = ([{ kind: 'per-tensor' }, { kind: 'per-group', groupSize: 64 }] as const).map((granularity) => ({
        granularity,
        expectedHere: granularity.kind === 'per-tensor' ? want : expected(x, { ...options, granularity } as object),
        measures: sp.compare(x, sp.quantize(x, { ...options, granularity })),
      }));
      const histogram = sp.histogram(x);
      const inWasm = sp.allocate('uint16', n);
      try {
        inWasm.view.set(bits);
        const odd = new Uint16Array(new ArrayBuffer(n * 2 + 2), 2);
        odd.set(bits);
        const shared = new Uint16Array(sharedBuffer(n * 2), 0, n);
        shared.set(bits);
        const kinds: Record<string, FloatInput> = {
          Uint16Array: bits,
          'a Uint16Array at an odd place': odd,
          'a shared Uint16Array': shared,
          'a WasmArray': inWasm,
          'its view': inWasm.view,
        };
        for (const [kind, input] of Object.entries(kinds)) {
          for (const { granularity, expectedHere, measures } of forms) {
            const q = sp.quantize(input, { ...options, from, granularity });
            expectSame(q.data, expectedHere.data, `${from}, ${kind}`);
            expectSame(q.scale, expectedHere.scale, `${from}, ${kind}`);
            expect(sp.compare(input, q, { from }), `${from}, ${kind}`).toEqual(measures);
          }
          expect(sp.histogram(input, { from }), `${from}, ${kind}`).toEqual(histogram);
        }
        expect(sp.compare(bits, bits, { from }).sqnrDb).toBe(Infinity);
        if (from === 'float16' && Float16 !== undefined) {
          const array = new Float16(x);
          expectSame(sp.quantize(array, options).data, want.data, 'Float16Array');
          expect(sp.compare(array, x).maxAbsoluteError, 'Float16Array').toBe(0);
          expect(sp.compare(x, array).maxAbsoluteError, 'Float16Array').toBe(0);
        }
      } finally {
        inWasm.dispose();
      }
    }
  });

  it('widens each of the 65536 float16 and bfloat16 numbers exactly', () => {
    const bits = Uint16Array.from({ length: 65536 }, (_, i) => i);
    for (const [from, toNumber, nonFinite] of [
      ['float16', float16Value, 2 * 1024],
      ['bfloat16', bfloat16Value, 2 * 128],
    ] as const) {
      const x = Float32Array.from(bits, toNumber);
      const measures = sp.compare(x, bits, { from });
      expect(measures.nonFinite).toBe(nonFinite);
      expect(measures.maxAbsoluteError).toBe(0);
      // One at a time, to see infinities and NaN apart: the sign of a NaN is not kept track of.
      const q = sp.quantize(bits, { from, nonFinite: 'saturate', range: { scale: 1, zeroPoint: 100 } });
      expectSame(q.data, expected(x, {}, { scale: [1], zeroPoint: [100] }).data, from);
    }
  });

  it('are rounded from double to float32 first', () => {
    const x = [1 + 2 ** -24, 1 + 2 ** -24 + 2 ** -50, 1 + 3 * 2 ** -24, 0.1, -1e-50, 2 ** -150, 3.4e38];
    const range = { scale: 2 ** -20, zeroPoint: 0 };
    for (const input of [x, new Float64Array(x)]) {
      const q = sp.quantize(input, { dtype: 'int16', range });
      expectSame(q.data, sp.quantize(new Float32Array(x), { dtype: 'int16', range }).data as Codes);
      expect(sp.compare(input, new Float32Array(x)).maxAbsoluteError).toBe(0);
    }
  });

  it('may be subclasses of typed arrays', () => {
    class Weights extends Float32Array {}
    expectSame(sp.quantize(new Weights([1, 2, -4])).data, new Int8Array([32, 64, -127]));
  });

  it('follow an array whose buffer grew', () => {
    const buffer = resizableBuffer(8);
    const x = new Float32Array(buffer);
    x.set([1, 2]);
    expect(sp.quantize(x).shape).toEqual([2]);
    buffer.resize(16);
    x.set([3, 4], 2);
    expectSame(sp.quantize(x).data, expected([1, 2, 3, 4], {}).data);
  });
});

describeBuilds('outputs of quantize', (sp) => {
  it.each([0, 1, 17, 1000, 131_073])('go where they are told, for %i elements', (n) => {
    const x = new Random(n + 30).bell(n);
    for (const [dtype, storage] of [
      ['int8', 'int8'],
      ['uint3', 'uint8'],
      ['int16', 'int16'],
      ['uint16', 'uint16'],
    ] as const) {
      for (const granularity of [
        { kind: 'per-tensor' },
        { kind: 'per-group', groupSize: 100 },
        { kind: 'per-channel', axis: 0 },
      ] as const) {
        const rule = { dtype, granularity };
        const want = expected(x, rule);
        const bytes = want.data.BYTES_PER_ELEMENT;
        const make = want.data.constructor as Uint8ArrayConstructor;
        const around = new Uint8Array((n + 10) * bytes).fill(0xa5);
        const inWasm = sp.allocate(storage, n + 10);
        try {
          const places: Record<string, Codes> = {
            'an array': codesOf(dtype, n),
            'a part of an array': new make(around.buffer, 3 * bytes, n),
            'a shared array': new make(sharedBuffer(n * bytes), 0, n),
            'a resizable array': new make(resizableBuffer(n * bytes)),
          };
          for (const [place, out] of Object.entries(places)) {
            const q = sp.quantize(x, { ...rule, out });
            expect(q.data).toBe(out);
            expectSame(out, want.data, place);
            expectSame(sp.dequantize(q), want.restored, place);
          }
          expect(around.subarray(0, 3 * bytes).every((b) => b === 0xa5)).toBe(true);
          expect(around.subarray((n + 3) * bytes).every((b) => b === 0xa5)).toBe(true);

          inWasm.view.fill(77);
          const part = inWasm.view.subarray(5, 5 + n) as Codes;
          expect(sp.quantize(x, { ...rule, out: part }).data).toBe(part);
          expectSame(inWasm.view.subarray(5, 5 + n), want.data, 'a part of wasm memory');
          expect([...inWasm.view.subarray(0, 5), ...inWasm.view.subarray(5 + n)]).toEqual(new Array(10).fill(77));

          const scale = new Float32Array(want.scale.length);
          const zeroPoint = new Int32Array(want.scale.length);
          const data = codesOf(dtype, n);
          const all = sp.quantize(x, { ...rule, out: { data, scale, zeroPoint } });
          expect([all.data === data, all.scale === scale, all.zeroPoint === zeroPoint]).toEqual([true, true, true]);
          expectSame(data, want.data);
          expectSame(scale, want.scale);
          expectSame(zeroPoint, want.zeroPoint);
          const some = sp.quantize(x, { ...rule, out: { data } });
          expect(some.data).toBe(data);
          expectSame(some.scale, want.scale);
        } finally {
          inWasm.dispose();
        }
      }
    }
  });

  it('may be a WasmArray, which later calls read in place', () => {
    const x = new Random(31).bell(500);
    const want = expected(x, { dtype: 'uint8' });
    const out = sp.allocate('uint8', 500);
    const restored = sp.allocate('float32', 500);
    const q = sp.quantize(x, { dtype: 'uint8', out });
    expect(q.data).toBe(out);
    expectSame(out.view, want.data);
    expect(sp.dequantize(q, { out: restored })).toBe(restored);
    expectSame(restored.view, want.restored);
    expect(sp.compare(x, q)).toEqual(sp.compare(x, want.restored));
    expectSame(sp.unpack(sp.pack(q), q), want.data);
    for (const array of [out, restored] as WasmArray[]) array.dispose();
  });

  it('of dequantize go to the given memory', () => {
    const x = new Random(32).bell(300);
    const q = sp.quantize(x);
    const { restored } = expected(x, {});
    const around = new Float32Array(310).fill(9);
    const out = around.subarray(4, 304);
    expect(sp.dequantize(q, { out })).toBe(out);
    expectSame(around.slice(4, 304), restored);
    expect([...around.subarray(0, 4), ...around.subarray(304)]).toEqual(new Array(10).fill(9));
    const inWasm = sp.allocate('float32', 310);
    inWasm.view.fill(9);
    sp.dequantize(q, { out: inWasm.view.subarray(4, 304) });
    expectSame(inWasm.view.slice(), around);
    inWasm.dispose();
  });

  it('survive structuredClone, JSON of their numbers, and a trip through a message', async () => {
    const x = new Random(33).bell(700);
    const rule = {
      dtype: 'uint4',
      scheme: 'asymmetric',
      shape: [7, 100],
      granularity: { kind: 'per-group', groupSize: 32 },
    } as const;
    const want = expected(x, rule);
    const q = sp.quantize(x, rule);
    const clone = structuredClone(q);
    expect(clone).toEqual(q);
    expectSame(sp.dequantize(clone), want.restored);
    const { port1, port2 } = new MessageChannel();
    const sent = new Promise<typeof q>((resolve) => {
      port2.onmessage = ({ data }) => resolve(data as typeof q);
    });
    port1.postMessage(q);
    expectSame(sp.dequantize(await sent), want.restored);
    port1.close();
    port2.close();
    // A transferred one leaves an empty one behind, which is refused rather than taken for zeros.
    structuredClone(q, { transfer: [(q.data as Uint8Array).buffer] });
    expect(() => sp.dequantize(q)).toThrow(TypeError);
    expectGood(sp);
  });
});

describe('a Float16Array', () => {
  it('is known to the engines that run in browsers, so that the tests above use one there', () => {
    // Node 20 has none.
    expect(Float16 !== undefined || typeof process !== 'undefined').toBe(true);
  });
});

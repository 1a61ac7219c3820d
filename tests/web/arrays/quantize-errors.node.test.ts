// Wrong and hostile arguments: a typed error that names what is wrong, nothing written, and a next call that works.
import type { FloatInput, LinearQuantizedTensor, QuantizeOptions, Scalepoint } from 'scalepoint';
import { load } from 'scalepoint';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import {
  describeBuilds,
  expectCode,
  expected,
  expectGood,
  expectRefusal,
  expectSame,
  memorySize,
  resizableBuffer,
  sharedBuffer,
  thrownBy,
} from '../support/support.js';

type Case = [what: string, value: unknown, type: typeof TypeError | typeof RangeError, name: string];

const x = new Float32Array([1, -2, 3, -4, 5, -6]);

/** A typed array whose memory is gone. */
function detached<T extends ArrayBufferView>(array: T): T {
  structuredClone(array.buffer, { transfer: [array.buffer as ArrayBuffer] });
  return array;
}

/** A typed array whose buffer shrank below it. */
function cutOff<T>(make: new (buffer: ArrayBuffer, offset: number, length: number) => T, bytes: number): T {
  const buffer = resizableBuffer(6 * bytes);
  const array = new make(buffer, 0, 6);
  buffer.resize(5 * bytes);
  return array;
}

class Impostor {
  readonly length = 6;
  readonly 0 = 1;
  readonly [Symbol.toStringTag] = 'Float32Array';
}

const wrongInputs: Case[] = [
  ['undefined', undefined, TypeError, 'x'],
  ['null', null, TypeError, 'x'],
  ['a number', 5, TypeError, 'x'],
  ['a string', '123456', TypeError, 'x'],
  ['a symbol', Symbol('x'), TypeError, 'x'],
  ['a function', () => x, TypeError, 'x'],
  ['an object with a length', { length: 6, 0: 1 }, TypeError, 'x'],
  ['an object that calls itself Float32Array', new Impostor(), TypeError, 'x'],
  ['a proxy of a Float32Array', new Proxy(x, {}), TypeError, 'x'],
  ['an ArrayBuffer', x.buffer, TypeError, 'x'],
  ['a DataView', new DataView(x.buffer), TypeError, 'x'],
  ['an Int8Array', new Int8Array(6), TypeError, 'x'],
  ['an Int32Array', new Int32Array(6), TypeError, 'x'],
  ['a BigInt64Array', new BigInt64Array(6), TypeError, 'x'],
  ['a Uint16Array without saying what its bits mean', new Uint16Array(6), TypeError, 'x'],
  ['an array with a string', [1, 2, '3', 4, 5, 6], TypeError, 'x[2]'],
  ['an array with a bigint', [1n, 2, 3, 4, 5, 6], TypeError, 'x[0]'],
  ['an array with a hole', new Array(6), TypeError, 'x[0]'],
  ['an array of arrays', [[1], 2, 3, 4, 5, 6], TypeError, 'x[0]'],
  ['a detached array', detached(new Float32Array(6)), TypeError, 'x'],
  ['a detached Float64Array', detached(new Float64Array(6)), TypeError, 'x'],
  ['an array whose buffer shrank', cutOff(Float32Array, 4), TypeError, 'x'],
];

const wrongOptions: Case[] = [
  ['options null', null, TypeError, 'options'],
  ['options that are a string', 'int8', TypeError, 'options'],
  ['options that are a number', 8, TypeError, 'options'],
  ['an unknown option', { dtyp: 'int8' }, TypeError, 'dtyp'],
  ['an unknown option that is undefined', { bits: undefined }, TypeError, 'bits'],
  ['an unknown dtype', { dtype: 'int9' }, RangeError, 'dtype'],
  ['a float dtype', { dtype: 'float32' }, RangeError, 'dtype'],
  ['a dtype of a prototype', { dtype: 'toString' }, RangeError, 'dtype'],
  ['a dtype that is a number', { dtype: 8 }, RangeError, 'dtype'],
  ['a dtype null', { dtype: null }, RangeError, 'dtype'],
  ['an unknown scheme', { scheme: 'affine' }, RangeError, 'scheme'],
  ['a scheme null', { scheme: null }, RangeError, 'scheme'],
  ['an unknown rounding', { rounding: 'up' }, RangeError, 'rounding'],
  ['a rounding with a wrong case', { rounding: 'ONNX' }, RangeError, 'rounding'],
  ['an unknown symmetricRange', { symmetricRange: true }, RangeError, 'symmetricRange'],
  ['an unknown nonFinite', { nonFinite: 'ignore' }, RangeError, 'nonFinite'],
  ['includeZero as a number', { includeZero: 1 }, TypeError, 'includeZero'],
  ['includeZero null', { includeZero: null }, TypeError, 'includeZero'],
  ['an unknown from', { from: 'float8' }, RangeError, 'from'],
  ['from with a Float32Array', { from: 'float16' }, TypeError, 'x'],

  ['a shape that is a number', { shape: 6 }, TypeError, 'shape'],
  ['a shape that is a typed array', { shape: new Int32Array([6]) }, TypeError, 'shape'],
  ['a shape with a string', { shape: ['6'] }, TypeError, 'shape'],
  ['a shape with a bigint', { shape: [6n] }, TypeError, 'shape'],
  ['a shape with a hole', { shape: new Array(1) }, TypeError, 'shape'],
  ['a shape with a fraction', { shape: [1.5, 4] }, RangeError, 'shape'],
  ['a shape with negative numbers', { shape: [-2, -3] }, RangeError, 'shape'],
  ['a shape with NaN', { shape: [Number.NaN] }, RangeError, 'shape'],
  ['a shape with Infinity', { shape: [Infinity] }, RangeError, 'shape'],
  ['a shape of another size', { shape: [2, 4] }, RangeError, 'shape'],
  ['a shape of no element', { shape: [6, 0] }, RangeError, 'shape'],
  ['a shape without dimensions', { shape: [] }, RangeError, 'shape'],
  ['a shape whose product is 2^64', { shape: [2 ** 32, 2 ** 32] }, RangeError, 'shape'],
  ['a shape whose product wraps to 6 in 32 bits', { shape: [2, 2 ** 31 + 3] }, RangeError, 'shape'],
  ['a shape whose product wraps to 0 in 64 bits', { shape: [2 ** 52, 2 ** 12] }, RangeError, 'shape'],
  ['a shape whose product is infinite', { shape: new Array(40).fill(2 ** 50) }, RangeError, 'shape'],
  ['a shape whose product overflows before a 0', { shape: [2 ** 40, 2 ** 40, 0] }, RangeError, 'shape'],

  ['a granularity null', { granularity: null }, TypeError, 'granularity'],
  ['a granularity that is a string', { granularity: 'per-tensor' }, TypeError, 'granularity'],
  ['an unknown kind', { granularity: { kind: 'per-row' } }, RangeError, 'granularity.kind'],
  ['no kind', { granularity: { axis: 0 } }, RangeError, 'granularity.kind'],
  ['no axis for channels', { granularity: { kind: 'per-channel' } }, TypeError, 'granularity.axis'],
  ['an axis that is a string', { granularity: { kind: 'per-channel', axis: '0' } }, TypeError, 'granularity.axis'],
  ['an axis null', { granularity: { kind: 'per-group', groupSize: 2, axis: null } }, TypeError, 'granularity.axis'],
  ['an axis beyond the last', { granularity: { kind: 'per-channel', axis: 1 } }, RangeError, 'granularity.axis'],
  ['an axis before the first', { granularity: { kind: 'per-channel', axis: -2 } }, RangeError, 'granularity.axis'],
  ['an axis that is a fraction', { granularity: { kind: 'per-channel', axis: 0.5 } }, RangeError, 'granularity.axis'],
  [
    'an axis that is a negative fraction',
    { granularity: { kind: 'per-channel', axis: -0.5 } },
    RangeError,
    'granularity.axis',
  ],
  ['an axis NaN', { granularity: { kind: 'per-channel', axis: Number.NaN } }, RangeError, 'granularity.axis'],
  ['an axis -Infinity', { granularity: { kind: 'per-channel', axis: -Infinity } }, RangeError, 'granularity.axis'],
  ['an axis of 2^53', { granularity: { kind: 'per-channel', axis: 2 ** 53 } }, RangeError, 'granularity.axis'],
  ['no group size', { granularity: { kind: 'per-group' } }, TypeError, 'granularity.groupSize'],
  [
    'a group size that is a string',
    { granularity: { kind: 'per-group', groupSize: '2' } },
    TypeError,
    'granularity.groupSize',
  ],
  ['a group size 0', { granularity: { kind: 'per-group', groupSize: 0 } }, RangeError, 'granularity.groupSize'],
  ['a group size below 0', { granularity: { kind: 'per-group', groupSize: -1 } }, RangeError, 'granularity.groupSize'],
  [
    'a group size that is a fraction',
    { granularity: { kind: 'per-group', groupSize: 1.5 } },
    RangeError,
    'granularity.groupSize',
  ],
  [
    'a group size NaN',
    { granularity: { kind: 'per-group', groupSize: Number.NaN } },
    RangeError,
    'granularity.groupSize',
  ],
  [
    'a group size of 2^53',
    { granularity: { kind: 'per-group', groupSize: 2 ** 53 } },
    RangeError,
    'granularity.groupSize',
  ],
  [
    'a group size Infinity',
    { granularity: { kind: 'per-group', groupSize: Infinity } },
    RangeError,
    'granularity.groupSize',
  ],

  ['an unknown range', { range: 'max-min' }, RangeError, 'range'],
  ['a range null', { range: null }, RangeError, 'range'],
  ['a range that is an array', { range: [0, 1] }, RangeError, 'range'],
  ['an empty range object', { range: {} }, RangeError, 'range'],
  ['a range without max', { range: { min: 0 } }, TypeError, 'range.max'],
  ['a range without min', { range: { max: 0 } }, TypeError, 'range.min'],
  ['a range with min above max', { range: { min: 1, max: 0 } }, RangeError, 'range'],
  ['a range with NaN', { range: { min: Number.NaN, max: 0 } }, RangeError, 'range.min'],
  ['a range with Infinity', { range: { min: 0, max: Infinity } }, RangeError, 'range.max'],
  ['a range beyond float32', { range: { min: -1e39, max: 0 } }, RangeError, 'range.min'],
  ['a range with a string', { range: { min: '0', max: 1 } }, TypeError, 'range.min'],
  ['too many bounds', { range: { min: [0, 0], max: 1 } }, RangeError, 'range.min'],
  ['a bound that is a string in an array', { range: { min: ['0'], max: 1 } }, TypeError, 'range.min[0]'],
  ['a bound that is NaN in an array', { range: { min: 0, max: [Number.NaN] } }, RangeError, 'range.max[0]'],
  ['a scale without zero point', { range: { scale: 1 } }, TypeError, 'range.zeroPoint'],
  ['a zero point without scale', { range: { zeroPoint: 1 } }, TypeError, 'range.scale'],
  ['a scale 0', { range: { scale: 0, zeroPoint: 0 } }, RangeError, 'range.scale'],
  ['a scale below 0', { range: { scale: -1, zeroPoint: 0 } }, RangeError, 'range.scale'],
  ['a scale NaN', { range: { scale: Number.NaN, zeroPoint: 0 } }, RangeError, 'range.scale'],
  ['a scale Infinity', { range: { scale: Infinity, zeroPoint: 0 } }, RangeError, 'range.scale'],
  ['a scale that vanishes in float32', { range: { scale: 1e-46, zeroPoint: 0 } }, RangeError, 'range.scale'],
  ['a scale that is infinite in float32', { range: { scale: 1e39, zeroPoint: 0 } }, RangeError, 'range.scale'],
  ['a zero point that is a fraction', { range: { scale: 1, zeroPoint: 0.5 } }, RangeError, 'range.zeroPoint'],
  ['a zero point NaN', { range: { scale: 1, zeroPoint: Number.NaN } }, RangeError, 'range.zeroPoint'],
  ['a zero point above 2^22', { range: { scale: 1, zeroPoint: 2 ** 22 + 1 } }, RangeError, 'range.zeroPoint'],
  ['a zero point below -2^22', { range: { scale: 1, zeroPoint: -(2 ** 22) - 1 } }, RangeError, 'range.zeroPoint'],
  ['no scales', { range: { scale: [], zeroPoint: 0 } }, RangeError, 'range.scale'],
  ['too many zero points', { range: { scale: 1, zeroPoint: new Int32Array(2) } }, RangeError, 'range.zeroPoint'],
  ['a scale in an array that is bad', { range: { scale: [0], zeroPoint: 0 } }, RangeError, 'range.scale[0]'],
  [
    'scales that call themselves long',
    { range: { scale: { length: 2 ** 32 }, zeroPoint: 0 } },
    RangeError,
    'range.scale',
  ],
];

const wrongOutputs: Case[] = [
  ['null', null, TypeError, 'out'],
  ['a number', 6, TypeError, 'out'],
  ['a string', 'out', TypeError, 'out'],
  ['a number[]', [0, 0, 0, 0, 0, 0], TypeError, 'out'],
  ['an ArrayBuffer', new ArrayBuffer(6), TypeError, 'out'],
  ['a DataView', new DataView(new ArrayBuffer(6)), TypeError, 'out'],
  ['an object with an unknown key', { codes: new Int8Array(6) }, TypeError, 'out'],
  ['a Uint8Array for int8', new Uint8Array(6), TypeError, 'out'],
  ['an Int16Array for int8', new Int16Array(6), TypeError, 'out'],
  ['a Float32Array', new Float32Array(6), TypeError, 'out'],
  ['a short array', new Int8Array(5), RangeError, 'out'],
  ['a long array', new Int8Array(7), RangeError, 'out'],
  ['a detached array', detached(new Int8Array(6)), TypeError, 'out'],
  ['an array whose buffer shrank', cutOff(Int8Array, 1), TypeError, 'out'],
  ['data of a wrong kind', { data: new Uint8Array(6) }, TypeError, 'out.data'],
  ['data that is too short', { data: new Int8Array(5) }, RangeError, 'out.data'],
  ['data null', { data: null }, TypeError, 'out.data'],
  ['a scale of a wrong kind', { data: new Int8Array(6), scale: new Float64Array(1) }, TypeError, 'out.scale'],
  ['a scale that is an array', { data: new Int8Array(6), scale: [0] }, TypeError, 'out.scale'],
  ['a scale null', { data: new Int8Array(6), scale: null }, TypeError, 'out.scale'],
  [
    'a scale that is an impostor',
    { data: new Int8Array(6), scale: { length: 1, [Symbol.toStringTag]: 'Float32Array' } },
    TypeError,
    'out.scale',
  ],
  ['a scale that is too long', { data: new Int8Array(6), scale: new Float32Array(2) }, RangeError, 'out.scale'],
  ['a detached scale', { data: new Int8Array(6), scale: detached(new Float32Array(1)) }, TypeError, 'out.scale'],
  ['a zero point of a wrong kind', { data: new Int8Array(6), zeroPoint: new Int8Array(1) }, TypeError, 'out.zeroPoint'],
  [
    'a zero point that is too short',
    { data: new Int8Array(6), zeroPoint: new Int32Array(0) },
    RangeError,
    'out.zeroPoint',
  ],
];

describeBuilds('wrong arguments of quantize', (sp) => {
  afterEach(() => expectGood(sp));

  it.each(wrongInputs)('are refused: x is %s', (_, value, type, name) => {
    const out = new Int8Array(6).fill(99);
    expectRefusal(() => sp.quantize(value as FloatInput, { out }), type, name);
    expect(out).toEqual(new Int8Array(6).fill(99));
    expectRefusal(() => sp.chooseQuantizationParameters(value as FloatInput), type, name);
    expectRefusal(() => sp.histogram(value as FloatInput), type, name);
    expectRefusal(() => sp.compare(value as FloatInput, x), type, name.replace('x', 'a'));
    expectRefusal(() => sp.compare(x, value as FloatInput), type, name.replace('x', 'b'));
  });

  it.each(wrongOptions)('are refused: %s', (_, value, type, name) => {
    const out = new Int8Array(6).fill(99);
    const options = typeof value === 'object' && value !== null ? { ...value, out } : value;
    expectRefusal(() => sp.quantize(x, options as QuantizeOptions), type, name);
    expect(out).toEqual(new Int8Array(6).fill(99));
    expectRefusal(() => sp.chooseQuantizationParameters(x, value as QuantizeOptions), type, name);
  });

  it.each(wrongOutputs)('are refused: out is %s', (_, value, type, name) => {
    const parts = (typeof value === 'object' && value !== null ? Object.values(value) : [])
      .concat(value)
      .filter((part) => ArrayBuffer.isView(part) && !(part instanceof DataView) && part.byteLength > 0) as Int8Array[];
    for (const part of parts) part.fill(99);
    expectRefusal(() => sp.quantize(x, { out: value as never }), type, name);
    for (const part of parts) expect(new Set(part)).toEqual(new Set([99]));
  });

  it('are refused: an element that is not a number, in a later tile of an array', () => {
    const long: unknown[] = new Array(140_000).fill(1);
    long[139_999] = '1';
    expectRefusal(() => sp.quantize(long as number[]), TypeError, 'x[139999]');
    expectRefusal(() => sp.compare(long as number[], long as number[]), TypeError, 'a[139999]');
  });

  it('are refused: bits that are not a Uint16Array', () => {
    for (const value of [new Int16Array(6), new Uint8Array(12), [1, 2], new Float32Array(6), 'bits']) {
      expectRefusal(() => sp.quantize(value as FloatInput, { from: 'float16' }), TypeError, 'x');
      expectRefusal(() => sp.quantize(value as FloatInput, { from: 'bfloat16' }), TypeError, 'x');
    }
  });

  it('are refused: bounds, one of which is above the other, among many', () => {
    const granularity = { kind: 'per-channel', axis: 0 } as const;
    const bounds = () => sp.quantize(x, { granularity, range: { min: [0, 0, 0, 2, 0, 0], max: 1 } });
    expectRefusal(bounds, RangeError, 'range.min[3]');
    expect(thrownBy(bounds)).toMatchObject({ problem: { expected: { kind: 'number', max: 1 }, got: 2 } });
  });

  it('are refused: an output that shares memory with the input', () => {
    const buffer = new ArrayBuffer(64);
    const input = new Float32Array(buffer, 0, 6);
    input.set(x);
    for (const offset of [0, 5, 23]) {
      expectRefusal(() => sp.quantize(input, { out: new Int8Array(buffer, offset, 6) }), RangeError, 'out');
    }
    expect(input).toEqual(x);
    expect(sp.quantize(input, { out: new Int8Array(buffer, 24, 6) }).data).toEqual(sp.quantize(x).data);

    const inWasm = sp.allocate('float32', 20);
    inWasm.view.set(x);
    const part = new Int8Array(inWasm.view.buffer, inWasm.view.byteOffset + 3, 20);
    expectRefusal(() => sp.quantize(inWasm, { shape: [20], out: part }), RangeError, 'out');
    expectRefusal(() => sp.quantize(inWasm.view, { out: part }), RangeError, 'out');
    inWasm.dispose();

    const q = sp.quantize(x);
    const bytes = new ArrayBuffer(24);
    const overlapping = { ...q, data: new Int8Array(bytes, 18, 6) };
    expectRefusal(() => sp.dequantize(overlapping, { out: new Float32Array(bytes) }), RangeError, 'out');
  });

  it('are refused: a scale or a zero point to write that shares memory with the input', () => {
    // Inputs are never changed; and a range that was half read would be a wrong one.
    const buffer = new ArrayBuffer(24);
    const input = new Float32Array(buffer);
    input.set(x);
    const data = new Int8Array(6);
    expectRefusal(
      () => sp.quantize(input, { out: { data, scale: new Float32Array(buffer, 4, 1) } }),
      RangeError,
      'out.scale',
    );
    expectRefusal(
      () => sp.quantize(input, { out: { data, zeroPoint: new Int32Array(buffer, 4, 1) } }),
      RangeError,
      'out.zeroPoint',
    );
    expect(input).toEqual(x);
  });

  it('name long and odd values shortly', () => {
    const message = (shape: unknown) => (thrownBy(() => sp.quantize(x, { shape: shape as number[] })) as Error).message;
    expect(message('a'.repeat(1000)).length).toBeLessThan(200);
    expect(message(new Array(1000).fill('a')).length).toBeLessThan(200);
    const circular: unknown[] = [];
    circular.push(circular);
    expectRefusal(() => sp.quantize(x, { shape: circular as number[] }), TypeError, 'shape');
  });

  it('do not stop an output from being used for a good call', () => {
    const out = new Int8Array(6);
    expectCode(() => sp.quantize([1, 2, 3, 4, 5, Number.NaN], { out }), 'NON_FINITE');
    expectSame(sp.quantize(x, { out }).data, new Int8Array([21, -42, 64, -85, 106, -127]));
  });

  it('cannot harm: an array of getters that use the instance in between is refused, or its codes are right', () => {
    const other = new Float32Array(70_000).fill(3);
    const nosy = Array.from(x);
    Object.defineProperty(nosy, 3, {
      get() {
        sp.quantize(other, { granularity: { kind: 'per-channel', axis: 0 } });
        sp.allocate('float32', 3_000_000).dispose();
        return -4;
      },
    });
    let got: unknown;
    try {
      got = sp.quantize(nosy).data;
    } catch {
      return;
    }
    expectSame(got, sp.quantize(x).data as Int8Array);
  });

  it('take huge groups for whole rows', () => {
    const options = { shape: [2, 3], granularity: { kind: 'per-group', groupSize: Number.MAX_SAFE_INTEGER } } as const;
    expect(sp.quantize(x, options).scale).toEqual(new Float32Array([3 / 127, 6 / 127]));
  });

  it('cannot ask for more scales than there is memory, with an empty array', () => {
    const empty = new Float32Array(0);
    for (const channels of [2 ** 40, Number.MAX_SAFE_INTEGER]) {
      const error = thrownBy(() =>
        sp.quantize(empty, { shape: [channels, 0], granularity: { kind: 'per-channel', axis: 0 } }),
      );
      expect((error as Error).message).toMatch(/shape|wasm memory/);
      expectGood(sp);
    }
  });

  it('may be shared: memory that changes meanwhile gives codes of the type all the same', () => {
    const shared = new Float32Array(sharedBuffer(24), 0, 6);
    shared.set(x);
    expectSame(sp.quantize(shared).data, sp.quantize(x).data as Int8Array);
  });
});

describeBuilds('wrong arguments of dequantize, compare and pack', (sp) => {
  afterEach(() => expectGood(sp));

  const good = (): LinearQuantizedTensor =>
    sp.quantize(x, { shape: [2, 3], granularity: { kind: 'per-channel', axis: 0 } });
  const cases: Case[] = [
    ['undefined', undefined, TypeError, 'q'],
    ['null', null, TypeError, 'q'],
    ['an array', x, TypeError, 'q'],
    ['an empty object', {}, TypeError, 'q'],
    ['of another kind', { ...good(), kind: 'codebook' }, TypeError, 'q'],
    ['without a kind', { ...good(), kind: undefined }, TypeError, 'q'],
    ['of an unknown dtype', { ...good(), dtype: 'int12' }, RangeError, 'q.dtype'],
    ['without a dtype', { ...good(), dtype: undefined }, RangeError, 'q.dtype'],
    ['of another dtype than its data', { ...good(), dtype: 'uint8' }, TypeError, 'q.data'],
    ['without data', { ...good(), data: undefined }, TypeError, 'q.data'],
    ['with an array for data', { ...good(), data: [1, 2, 3, 4, 5, 6] }, TypeError, 'q.data'],
    ['with Uint8ClampedArray data', { ...good(), dtype: 'uint8', data: new Uint8ClampedArray(6) }, TypeError, 'q.data'],
    ['with detached data', { ...good(), data: detached(new Int8Array(6)) }, TypeError, 'q.data'],
    ['with data whose buffer shrank', { ...good(), data: cutOff(Int8Array, 1) }, TypeError, 'q.data'],
    ['with too little data', { ...good(), data: new Int8Array(5) }, RangeError, 'q.shape'],
    ['without a shape', { ...good(), shape: undefined }, TypeError, 'q.shape'],
    ['with another shape', { ...good(), shape: [2, 2] }, RangeError, 'q.shape'],
    ['with a shape that is a string', { ...good(), shape: '23' }, TypeError, 'q.shape'],
    ['without a granularity, but with two scales', { ...good(), granularity: undefined }, RangeError, 'q.scale'],
    [
      'with an axis that is not there',
      { ...good(), granularity: { kind: 'per-channel', axis: 2 } },
      RangeError,
      'q.granularity.axis',
    ],
    [
      'with scales for another axis',
      { ...good(), granularity: { kind: 'per-channel', axis: 1 } },
      RangeError,
      'q.scale',
    ],
    ['without scales', { ...good(), scale: undefined }, TypeError, 'q.scale'],
    ['with a number for its scale', { ...good(), scale: 1 }, TypeError, 'q.scale'],
    ['with an array for its scales', { ...good(), scale: [1, 1] }, TypeError, 'q.scale'],
    ['with Float64Array scales', { ...good(), scale: new Float64Array(2).fill(1) }, TypeError, 'q.scale'],
    [
      'with an impostor for its scales',
      { ...good(), scale: { length: 2, 0: 1, 1: 1, [Symbol.toStringTag]: 'Float32Array' } },
      TypeError,
      'q.scale',
    ],
    ['with detached scales', { ...good(), scale: detached(new Float32Array(2)) }, TypeError, 'q.scale'],
    ['with a scale 0', { ...good(), scale: new Float32Array([1, 0]) }, RangeError, 'q.scale[1]'],
    ['with a scale NaN', { ...good(), scale: new Float32Array([Number.NaN, 1]) }, RangeError, 'q.scale[0]'],
    ['with a scale Infinity', { ...good(), scale: new Float32Array([1, Infinity]) }, RangeError, 'q.scale[1]'],
    ['with a scale below 0', { ...good(), scale: new Float32Array([1, -1]) }, RangeError, 'q.scale[1]'],
    ['without zero points', { ...good(), zeroPoint: undefined }, TypeError, 'q.zeroPoint'],
    ['with Int8Array zero points', { ...good(), zeroPoint: new Int8Array(2) }, TypeError, 'q.zeroPoint'],
    ['with one zero point for two scales', { ...good(), zeroPoint: new Int32Array(1) }, RangeError, 'q.zeroPoint'],
    [
      'with a zero point above 2^22',
      { ...good(), zeroPoint: new Int32Array([0, 2 ** 22 + 1]) },
      RangeError,
      'q.zeroPoint[1]',
    ],
    [
      'with the smallest int32 for a zero point',
      { ...good(), zeroPoint: new Int32Array([-(2 ** 31), 0]) },
      RangeError,
      'q.zeroPoint[0]',
    ],
  ];

  it.each(cases)('are refused: a tensor %s', (_, value, type, name) => {
    const q = value as LinearQuantizedTensor;
    const out = new Float32Array(6).fill(99);
    expectRefusal(() => sp.dequantize(q, { out }), type, name);
    expect(out).toEqual(new Float32Array(6).fill(99));
    expectRefusal(() => sp.pack(q), type, name);
    // Without its kind, a value is an array to compare with, and a wrong one.
    const isTensor = typeof value === 'object' && value !== null && (value as { kind?: unknown }).kind === 'linear';
    if (value !== x) expectRefusal(() => sp.compare(x, q), type, isTensor ? name.replace(/^q/, 'b') : 'b');
  });

  it('are refused: an output of another kind or length', () => {
    const q = good();
    const cases: Case[] = [
      ['a Float64Array', new Float64Array(6), TypeError, 'out'],
      ['a number[]', [0, 0, 0, 0, 0, 0], TypeError, 'out'],
      ['an object', { data: new Float32Array(6) }, TypeError, 'out'],
      ['null', null, TypeError, 'out'],
      ['too short', new Float32Array(5), RangeError, 'out'],
      ['detached', detached(new Float32Array(6)), TypeError, 'out'],
      ['cut off', cutOff(Float32Array, 4), TypeError, 'out'],
    ];
    for (const [, out, type, name] of cases)
      expectRefusal(() => sp.dequantize(q, { out: out as Float32Array }), type, name);
    expectRefusal(() => sp.dequantize(q, { to: new Float32Array(6) } as object), TypeError, 'to');
    expectRefusal(() => sp.dequantize(q, null as never), TypeError, 'options');
  });

  it('are refused: arrays of different lengths', () => {
    expectRefusal(() => sp.compare(x, new Float32Array(5)), RangeError, 'b');
    expectRefusal(() => sp.compare(x.subarray(1), good()), RangeError, 'b');
  });

  it('are refused: options of compare that are wrong', () => {
    expectRefusal(() => sp.compare(x, x, { form: 'float16' } as object), TypeError, 'form');
    expectRefusal(() => sp.compare(x, x, null as never), TypeError, 'options');
    expectRefusal(() => sp.compare(new Uint16Array(6), x, { from: 'float8' as never }), RangeError, 'from');
    expectRefusal(() => sp.compare(x, x, { from: 'float8' as never }), RangeError, 'from');
    expectRefusal(() => sp.compare(new Uint16Array(6), x), TypeError, 'a');
    expectRefusal(() => sp.compare(x, new Uint16Array(6)), TypeError, 'b');
  });
});

describe('views of wasm memory', () => {
  let sp: Scalepoint;
  beforeAll(async () => {
    sp = await load();
  });

  /** Takes the room that is left at the end of the memory, runs a call that needs more, and makes sure that it grew. */
  function whileGrowing<T>(call: () => T): T {
    const last = sp.allocate('uint8', 2 ** 16);
    const { buffer, byteOffset } = last.view;
    const room = buffer.byteLength - byteOffset - 2 ** 16;
    const taken = sp.allocate('uint8', Math.max(0, room - 2 ** 14));
    const before = memorySize(sp);
    const result = call();
    expect(memorySize(sp)).toBeGreaterThan(before);
    taken.dispose();
    last.dispose();
    return result;
  }

  const n = 200_000;
  const many = Float32Array.from({ length: n }, (_, i) => (i % 100) - 50);

  it('may hold scales that a call reads while the memory grows', () => {
    const granularity = { kind: 'per-channel', axis: 0 } as const;
    const scale = sp.allocate('float32', n);
    const zeroPoint = sp.allocate('int32', n);
    scale.view.fill(0.5);
    zeroPoint.view.fill(3);
    const want = expected(many, { granularity }, { scale: [0.5], zeroPoint: [3] });
    const range = { scale: scale.view, zeroPoint: zeroPoint.view };
    const q = whileGrowing(() => sp.quantize(many, { granularity, range }));
    expectSame(q.data, want.data);
    expectSame(q.scale, want.scale);
    const tensor = { ...q, scale: scale.view, zeroPoint: zeroPoint.view };
    expectSame(
      whileGrowing(() => sp.dequantize(tensor)),
      want.restored,
    );
  });

  it('may be where a call writes while the memory grows', () => {
    const rule = { shape: [n / 2, 2], granularity: { kind: 'per-channel', axis: 1 } } as const;
    const want = expected(many, rule);
    const data = sp.allocate('int8', n);
    const scale = sp.allocate('float32', 2);
    const zeroPoint = sp.allocate('int32', 2);
    const out = { data: data.view, scale: scale.view, zeroPoint: zeroPoint.view };
    const q = whileGrowing(() => sp.quantize(many, { ...rule, out }));
    expectSame(data.view, want.data);
    expectSame(scale.view, want.scale);
    expectSame(zeroPoint.view, want.zeroPoint);
    expectSame(sp.dequantize(q), want.restored);
  });

  it('may be read while the memory grows', () => {
    const rule = { shape: [n / 2, 2], granularity: { kind: 'per-channel', axis: 1 } } as const;
    const want = expected(many, rule);
    const input = sp.allocate('float32', n);
    input.view.set(many);
    expectSame(sp.quantize(input.view, rule).data, want.data);
    const channels = { granularity: { kind: 'per-channel', axis: 0 } } as const;
    expectSame(whileGrowing(() => sp.quantize(input.view, channels)).data, expected(many, channels).data);
    const ones = sp.allocate('uint16', n);
    ones.view.fill(0x3f80);
    const q = whileGrowing(() => sp.quantize(ones.view, { ...channels, from: 'bfloat16' }));
    expectSame(q.data, new Int8Array(n).fill(127));
  });
});

// Code of the caller's that runs while the arguments of a call are read, and takes the memory of an array away: nothing that was in memory
// before may come out, nor be written to.
import type { LinearQuantizedTensor, Scalepoint, WasmArray } from 'scalepoint';
import { expect, it } from 'vitest';
import { describeBuilds, expectCode, expectGood, resizableBuffer, thrownBy } from '../support/support.js';

const n = 64;
const values = Float32Array.from({ length: n }, (_, i) => i + 1);

/** Fills the memory between calls, so that a call that reads what is left there finds something. */
function leave(sp: Scalepoint): void {
  sp.dequantize(sp.quantize(new Float32Array(4096).fill(1234), { granularity: { kind: 'per-group', groupSize: 4 } }));
}

/** Options whose member `name` runs code when it is read. */
const options = (name: string, act: () => void, rest: object = {}) =>
  Object.defineProperty({ ...rest }, name, {
    enumerable: true,
    get() {
      act();
      return undefined;
    },
  });

/** Calls that read x after it was taken, when an option is read. */
const calls: readonly [string, (sp: Scalepoint, x: never, act: () => void) => unknown][] = [
  ['quantize', (sp, x, act) => sp.quantize(x, options('out', act))],
  ['quantize with a search', (sp, x, act) => sp.quantize(x, options('scheme', act, { range: 'mse' }))],
  ['quantize in two passes', (sp, x, act) => sp.quantize(x, options('shape', act, { errors: sp.errorSum() }))],
  ['quantizeBlocks', (sp, x, act) => sp.quantizeBlocks(x, 'Q8_0', options('shape', act))],
  ['quantizeCodebook', (sp, x, act) => sp.quantizeCodebook(x, options('out', act, { codebook: 'nf4' }) as never)],
  ['chooseQuantizationParameters', (sp, x, act) => sp.chooseQuantizationParameters(x, options('scheme', act))],
  ['matmulFloat', (sp, x, act) => sp.matmulFloat(x, options('bias', act, { shape: [8, 8] }) as never)],
  ['index', (sp, x, act) => sp.index(x, options('from', act, { shape: [8, 8] }))],
];

/** Ways to take an array away. */
const ways: readonly [string, () => { x: Float32Array; take(): void }][] = [
  [
    'detaches',
    () => {
      const x = values.slice();
      return { x, take: () => void structuredClone(x.buffer, { transfer: [x.buffer] }) };
    },
  ],
  [
    'shrinks below',
    () => {
      const buffer = resizableBuffer(n * 4);
      const x = new Float32Array(buffer, 0, n);
      x.set(values);
      return { x, take: () => buffer.resize(n * 4 - 4) };
    },
  ],
  [
    'shrinks',
    () => {
      const buffer = resizableBuffer(n * 4);
      const x = new Float32Array(buffer);
      x.set(values);
      return { x, take: () => buffer.resize(n * 2) };
    },
  ],
];

describeBuilds('an array that changes while a call is prepared', (sp) => {
  it.each(calls)('is refused by %s', (_, call) => {
    for (const [, make] of ways) {
      leave(sp);
      const { x, take } = make();
      let read = false;
      const act = () => {
        if (!read) take();
        read = true;
      };
      // A call that has read its options before x sees that the array is empty, or too short.
      const error = thrownBy(() => call(sp, x as never, act));
      expect([TypeError, RangeError]).toContain((error as Error).constructor);
      expect(error).toHaveProperty('option');
      expect(read).toBe(true);
      expectGood(sp);
    }
  });

  it.each(calls)('is refused by %s if it is a WasmArray that was disposed', (_, call) => {
    leave(sp);
    const x = sp.allocate('float32', n);
    x.view.set(values);
    expectCode(() => call(sp, x as never, () => x.dispose()), 'DISPOSED');
    expectGood(sp);
  });

  it('is refused as 16-bit floats, codes, scales and absmax as well', () => {
    const q = sp.quantize(values, {
      granularity: { kind: 'per-group', groupSize: 8 },
    }) as LinearQuantizedTensor<Int8Array>;
    const c = sp.quantizeCodebook(values, { codebook: 'nf4', blockSize: 8 });
    const detached = <T extends ArrayBufferView>(view: T) =>
      structuredClone(view.buffer, { transfer: [view.buffer as ArrayBuffer] });
    const taking = (tensor: object, name: string, taken: ArrayBufferView) => {
      const value = (tensor as Record<string, unknown>)[name];
      return Object.defineProperty({ ...tensor }, name, {
        get() {
          detached(taken);
          return value;
        },
      }) as never;
    };
    const copyOf = <T extends { data: unknown; scale?: Float32Array; absmax?: Float32Array }>(tensor: T): T =>
      ({
        ...tensor,
        data: (tensor.data as Int8Array).slice(),
        scale: tensor.scale?.slice(),
        absmax: tensor.absmax?.slice(),
      }) as T;
    for (const act of [
      () => {
        const bits = new Uint16Array(n).fill(0x3c00);
        return sp.quantize(
          bits,
          options('out', () => detached(bits), { from: 'float16' }),
        );
      },
      () => {
        const mine = copyOf(q);
        return sp.dequantize(taking(mine, 'zeroPoint', mine.data));
      },
      () => {
        const mine = copyOf(q);
        return sp.dequantize(taking(mine, 'zeroPoint', mine.scale));
      },
      () => {
        const mine = copyOf(q);
        return sp.linear(
          { ...mine, shape: [8, 8], granularity: { kind: 'per-group', axis: 1, groupSize: 8 } } as never,
          options('bias', () => detached(mine.scale)),
        );
      },
      () => {
        const mine = copyOf(q);
        return sp.compare(values, taking(mine, 'zeroPoint', mine.data));
      },
      () => {
        const mine = copyOf(c);
        return sp.dequantize(taking(mine, 'absmax', mine.data as Uint8Array));
      },
      () => {
        const bytes = new Uint8Array(n).fill(7);
        return sp.unpack(bytes, taking({ dtype: 'int8', shape: [n] }, 'shape', bytes));
      },
    ]) {
      leave(sp);
      expect(thrownBy(act)).toHaveProperty('option');
      expectGood(sp);
    }
  });

  it('is refused as a place for results', () => {
    const taken = (out: WasmArray | Int8Array, take: () => void) => () =>
      sp.quantize(values, options('errors', take, { out }));
    const owned = sp.allocate('int8', n);
    expectCode(
      taken(owned, () => owned.dispose()),
      'DISPOSED',
    );
    const out = new Int8Array(n);
    expect(thrownBy(taken(out, () => structuredClone(out.buffer, { transfer: [out.buffer] })))).toMatchObject({
      option: 'out',
    });
    expectGood(sp);
  });

  it('is refused by a layer and an index that were disposed meanwhile', () => {
    const layer = sp.matmulFloat(values, { shape: [8, 8] });
    const index = sp.index(values, { shape: [8, 8] });
    const x = values.slice(0, 8);
    expectCode(
      () =>
        layer.forward(
          x,
          options('out', () => layer.dispose()),
        ),
      'DISPOSED',
    );
    const query = new Proxy([...x], {
      get(target, key) {
        if (key === '0') index.dispose();
        return Reflect.get(target, key);
      },
    });
    expectCode(() => index.search(query, 1), 'DISPOSED');
    expectGood(sp);
  });
});

describeBuilds('places for results that share memory', (sp) => {
  it('are refused', () => {
    const granularity = { kind: 'per-group', groupSize: 4 } as const;
    const buffer = new ArrayBuffer(1024);
    const parts = (scale: number, zeroPoint: number) => ({
      data: new Int8Array(buffer, 0, n),
      scale: new Float32Array(buffer, scale, n / 4),
      zeroPoint: new Int32Array(buffer, zeroPoint, n / 4),
    });
    for (const [scale, zeroPoint, option] of [
      [n - 4, 512, 'out.scale'],
      [512, 0, 'out.zeroPoint'],
      [512, 512 + n - 4, 'out.zeroPoint'],
    ] as const) {
      const error = thrownBy(() => sp.quantize(values, { granularity, out: parts(scale, zeroPoint) }));
      expect(error).toBeInstanceOf(RangeError);
      expect(error).toMatchObject({ option });
    }
    // Neighbors are no neighbors' business.
    sp.quantize(values, { granularity, out: parts(n, 2 * n) });
    const memory = sp.allocate('int8', n);
    const scale = new Float32Array(memory.view.buffer, memory.view.byteOffset, n / 4);
    expect(thrownBy(() => sp.quantize(values, { granularity, out: { data: memory, scale } as never }))).toMatchObject({
      option: 'out.scale',
    });
    memory.dispose();
  });
});

describeBuilds('a number beyond float32', (sp) => {
  it('is named as it is', () => {
    const wide = (at: number, value: number, length = n) =>
      Float64Array.from({ length }, (_, i) => (i === at ? value : i));
    for (const [value, text] of [
      [1e300, 'x[5] is 1e+300, beyond float32;'],
      [-3.5e38, 'x[5] is -3.5e+38, beyond float32;'],
      [Infinity, 'x[5] is Infinity;'],
      [Number.NaN, 'x[5] is NaN;'],
    ] as const) {
      for (const x of [wide(5, value), [...wide(5, value)], wide(5, value, 200_000)]) {
        for (const call of [
          () => sp.quantize(x),
          () => sp.quantize(x, { range: 'mse' }),
          () => sp.quantize(x, { granularity: { kind: 'per-group', groupSize: 32 } }),
          () => sp.chooseQuantizationParameters(x),
          () => sp.observer().observe(x),
          () => sp.quantizeCodebook(x, { codebook: 'nf4' }),
          ...(x.length % 32 === 0 ? [() => sp.quantizeBlocks(x, 'Q8_0')] : []),
        ]) {
          expect(expectCode(call, 'NON_FINITE').message).toContain(text);
        }
      }
    }
  });
});

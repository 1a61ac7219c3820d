// Tensors of other libraries as inputs: as they are, or refused by name.
import { Tensor } from 'onnxruntime-web';
import type { FloatInput, VectorInput } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import { describeBuilds, expectRefusal, float16Value, Random } from '../support/support.js';

/** A tensor like those of TensorFlow.js: `data` is a function that returns a promise. */
class LazyTensor {
  readonly isDisposed = false;
  /** Without that of the last dimension. */
  readonly strides = [6];
  constructor(
    readonly shape: number[],
    readonly dtype: string,
    private readonly values: Float32Array | Int32Array,
  ) {}
  async data() {
    return this.values;
  }
  dataSync() {
    return this.values;
  }
}

/**
 * A tensor like those of transformers.js (https://github.com/huggingface/transformers.js, 4.3.1): it holds one of onnxruntime, `stride` is a
 * method, and an index gives a part of it.
 */
class WrappedTensor {
  constructor(private readonly inner: Tensor) {
    // biome-ignore lint/correctness/noConstructorReturn: that of transformers.js returns one, too.
    return new Proxy(this, {
      get(target, key) {
        if (typeof key === 'string' && Number.isInteger(Number(key))) throw new Error(`a part of the tensor: ${key}`);
        return target[key as 'data'];
      },
    });
  }
  get dims() {
    return this.inner.dims;
  }
  get type() {
    return this.inner.type;
  }
  get data() {
    return this.inner.data;
  }
  get size() {
    return this.inner.size;
  }
  get location() {
    return this.inner.location;
  }
  stride() {
    return this.dims.map((_, i) => this.dims.slice(i + 1).reduce((a, b) => a * b, 1));
  }
}

/** A tensor like those of scijs' ndarray: elements at offset + sum of index * stride. */
const strided = (data: unknown, shape: number[], stride: number[], offset = 0) => ({ data, shape, stride, offset });

describeBuilds('tensors', (sp) => {
  const x = new Random(3).bell(24);
  const shape = [4, 6];
  const bits = sp.castFloat(x, 'float16');
  const widened = sp.castToFloat32(bits, 'float16');
  const granularity = { kind: 'per-channel', axis: 0 } as const;
  const want = sp.quantize(x, { shape, granularity });
  const wantHalf = sp.quantize(widened, { shape, granularity });
  /** Column by column. */
  const columns = Float32Array.from({ length: 24 }, (_, i) => x[(i % 4) * 6 + Math.floor(i / 4)] as number);
  const padded = new Float32Array(40);
  padded.set(x, 5);
  const reversed = Float32Array.from(x).reverse();
  const apart = Float64Array.from({ length: 48 }, (_, i) => (i % 2 === 0 ? (x[i / 2] as number) : 99));
  const inWasm = sp.allocate('float32', 24);

  const tensors: Readonly<Record<string, () => unknown>> = {
    onnxruntime: () => new Tensor('float32', x, shape),
    'onnxruntime, float64': () => new Tensor('float64', Float64Array.from(x), shape),
    'data and shape': () => ({ data: x, shape }),
    'data and dims': () => ({ data: x, dims: shape, type: 'float32', size: 24 }),
    'numbers and shape': () => ({ data: [...x], shape }),
    'a WasmArray and dims': () => {
      inWasm.view.set(x);
      return { data: inWasm, dims: shape };
    },
    'TensorFlow.js': () => new LazyTensor(shape, 'float32', x),
    'transformers.js': () => new WrappedTensor(new Tensor('float32', x, shape)),
    'strides as a method': () => ({ data: columns, shape, strides: () => [1, 4] }),
    'ndarray, row-major': () => strided(x, shape, [6, 1]),
    'ndarray, a part of its data': () => strided(padded, shape, [6, 1], 5),
    'ndarray, transposed': () => strided(columns, shape, [1, 4]),
    'ndarray, reversed': () => strided(reversed, shape, [-6, -1], 23),
    'ndarray, every second': () => strided(apart, shape, [12, 2]),
    'ndarray, numbers': () => strided([...columns], shape, [1, 4]),
    'strides in place of stride': () => ({ data: columns, shape, strides: [1, 4], offset: 0, order: 'column-major' }),
    'strides of null': () => ({ data: x, shape, strides: null }),
    'npyjs, Fortran': () => ({ dtype: '<f4', data: columns, shape, fortranOrder: true }),
    'npyjs, C': () => ({ dtype: '<f4', data: x, shape, fortranOrder: false }),
  };

  it.each(Object.keys(tensors))('%s', (name) => {
    const tensor = () => tensors[name]?.() as FloatInput;
    expect(sp.quantize(tensor(), { granularity })).toEqual(want);
    expect(sp.compare(tensor(), want)).toEqual(sp.compare(x, want));
    expect(sp.compare(tensor(), want, { per: 'channel', axis: 0 })).toHaveLength(4);
    expect(sp.chooseQuantizationParameters(tensor(), { granularity })).toEqual({
      scale: want.scale,
      zeroPoint: want.zeroPoint,
    });
    expect(sp.castFloat(tensor(), 'bfloat16')).toEqual(sp.castFloat(x, 'bfloat16'));
    expect(sp.histogram(tensor())).toEqual(sp.histogram(x));
    const [layer, other] = [sp.matmulFloat(tensor()), sp.matmulFloat(x, { shape })];
    expect(layer.forward({ data: x, shape: [1, 24] })).toEqual(other.forward(x));
    const index = sp.index(tensor());
    expect([index.count, index.dimension]).toEqual(shape);
    expect(index.recall(tensor(), { data: x, dims: [4, 6] }, { k: 2 })).toBeGreaterThan(0);
    const importance = sp.importance();
    importance.add('a.weight', tensor());
    expect(importance.names).toEqual(['a.weight']);
    for (const one of [layer, other, index]) one.dispose();
  });

  it('reads the bits of 16-bit floats by the name of their type', () => {
    for (const tensor of [
      { data: bits, dims: shape, type: 'float16' },
      { data: bits, shape, dtype: 'float16' },
      { data: bits, shape, dtype: 'F16' },
      strided(bits, shape, [6, 1]),
    ]) {
      const from = 'stride' in tensor ? 'float16' : undefined;
      expect(sp.quantize(tensor as FloatInput, { granularity, ...(from && { from }) })).toEqual(wantHalf);
    }
    const brain = sp.castFloat(x, 'bfloat16');
    expect(sp.quantize({ data: brain, shape, type: 'bfloat16' } as FloatInput)).toEqual(
      sp.quantize(sp.castToFloat32(brain, 'bfloat16'), { shape }),
    );
    expect(widened[1]).toBe(float16Value(bits[1] as number));
    // A tensor of onnxruntime holds a Float16Array where there is one.
    const type = (globalThis as { Float16Array?: new (x: Float32Array) => Float32Array }).Float16Array;
    if (type === undefined) return;
    expect(sp.quantize({ data: new type(x), dims: shape, type: 'float16' }, { granularity })).toEqual(wantHalf);
  });

  it('has no elements in any order', () => {
    for (const tensor of [strided(x, [0, 3], [3, 1], 7), { data: [], shape: [2, 0] }]) {
      expect(sp.quantize(tensor as FloatInput).data).toHaveLength(0);
    }
    expect(sp.quantize({ data: [3], shape: [] }).shape).toEqual([]);
  });

  it('takes the shape of the option first', () => {
    expect(sp.quantize({ data: x, shape: [24] }, { shape, granularity })).toEqual(want);
  });

  /** A row as a tensor. */
  const vector = (row: number, dims = [1, 6]) => new Tensor('float32', x.slice(row * 6, row * 6 + 6), dims);

  it('are vectors of an index, one by one', () => {
    const wanted = sp.index(x, { shape }).search(x.slice(6, 12), 4);
    const lists: unknown[][] = [
      [0, 1, 2, 3].map((row) => new WrappedTensor(vector(row))),
      [0, 1, 2, 3].map((row) => new LazyTensor([6], 'float32', x.slice(row * 6, row * 6 + 6))),
      [vector(0), x.slice(6, 12), vector(2, [6]), [...x.slice(18)]],
    ];
    for (const list of lists) {
      const index = sp.index(list as VectorInput);
      expect(index.search(x.slice(6, 12), 4)).toEqual(wanted);
      expect(index.recall(list as VectorInput, list as VectorInput, { k: 2 })).toBeGreaterThan(0);
      index.add(list as VectorInput);
      expect(index.count).toBe(8);
      index.dispose();
    }
    const halves = [0, 1, 2, 3].map((row) => ({ data: bits.slice(row * 6, row * 6 + 6), dims: [6], type: 'float16' }));
    expect(sp.index(halves).search(widened.slice(0, 6), 4)).toEqual(
      sp.index(widened, { shape }).search(widened.slice(0, 6), 4),
    );
  });

  it('fails if the result shares memory with it', () => {
    const buffer = new ArrayBuffer(96);
    const out = new Int8Array(buffer, 0, 24);
    expectRefusal(() => sp.quantize({ data: new Float32Array(buffer), shape }, { out }), RangeError, 'out');
  });

  describe('are refused by name:', () => {
    const integers = Int32Array.of(1, 2, 3, 4);
    const cyclic: Record<string, unknown> = { shape: [1] };
    cyclic.data = cyclic;
    const cases: readonly (readonly [string, unknown, typeof TypeError | typeof RangeError, string])[] = [
      ['integers of onnxruntime', new Tensor('int32', integers, [4]), TypeError, 'x.data'],
      ['texts', new Tensor('string', ['a'], [1]), TypeError, 'x.data[0]'],
      ['integers of TensorFlow.js', new LazyTensor([4], 'int32', integers), TypeError, 'x.data'],
      ['bits without a type', { data: bits, shape }, TypeError, 'x.data'],
      ['a shape for other data', { data: x, shape: [5, 5] }, RangeError, 'x.shape'],
      ['a shape with fractions', { data: x, shape: [1.5, 16] }, RangeError, 'x.shape'],
      ['a shape of texts', { data: x, dims: ['4', 6] }, TypeError, 'x.shape'],
      ['data without a shape', { data: x }, TypeError, 'x'],
      ['no data', { shape }, TypeError, 'x'],
      ['a promise of data', { data: Promise.resolve(x), shape }, TypeError, 'x.data'],
      ['a tensor in a tensor', { data: { data: x, shape }, shape }, TypeError, 'x.data'],
      ['itself', cyclic, TypeError, 'x.data'],
      ['strides beyond the data', strided(x, shape, [6, 2]), RangeError, 'x.data'],
      ['strides before the data', strided(x, shape, [-6, 1]), RangeError, 'x.strides'],
      ['strides of fractions', strided(x, shape, [6, 0.5]), RangeError, 'x.strides'],
      ['too few strides', strided(x, shape, [6]), RangeError, 'x.strides'],
      ['strides, a number', strided(x, shape, 6 as never), RangeError, 'x.strides'],
      ['an offset beyond the data', strided(x, shape, [6, 1], 1), RangeError, 'x.data'],
      ['an offset of text', strided(x, shape, [6, 1], '1' as never), RangeError, 'x.strides'],
      ['a store with functions', strided({ get: () => 1, length: 24 }, shape, [6, 1]), TypeError, 'x.data'],
      ['codes', want, TypeError, 'x'],
      ['an object', {}, TypeError, 'x'],
      ['null', null, TypeError, 'x'],
      ['rows', [[1, 2]], TypeError, 'x[0]'],
      ['a Map', new Map(), TypeError, 'x'],
    ];
    it.each(cases)('%s', (_, input, type, name) => {
      expectRefusal(() => sp.quantize(input as FloatInput), type, name);
    });

    it('elements on a GPU, with the reason', () => {
      const onGpu = {
        dims: [2],
        get data(): never {
          throw new Error('The data is not on CPU.');
        },
      };
      const error = (() => {
        try {
          return sp.quantize(onGpu);
        } catch (caught) {
          return caught;
        }
      })();
      expect(error).toMatchObject({ option: 'x.data', cause: { message: 'The data is not on CPU.' } });
      expect(String(error)).toMatch(/: The data is not on CPU\.$/);
    });

    it.each<[string, unknown[], typeof TypeError | typeof RangeError, string]>([
      ['several vectors in a tensor', [{ data: x, shape: [2, 12] }], RangeError, 'vectors[0].shape'],
      ['vectors of other lengths', [vector(0), { data: x, shape: [24] }], RangeError, 'vectors[1]'],
      ['integers', [vector(0), new Tensor('int32', new Int32Array(6), [6])], TypeError, 'vectors[1].data'],
      ['objects', [{ data: x }], TypeError, 'vectors[0]'],
    ])('in a list of vectors, %s', (_, list, type, name) => {
      expectRefusal(() => sp.index(list as never), type, name);
    });

    it('never as [object Object]', () => {
      for (const input of [{}, { a: 1 }, { data: x }, { data: { a: [{}] }, shape }, want]) {
        expect(() => sp.quantize(input as never)).toThrow(/^(?!.*object Object)/);
      }
      expect(() => sp.quantize({ data: x } as never)).toThrow('got { data: Float32Array }');
    });
  });
});

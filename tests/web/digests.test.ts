// Compares the results of the array calls with the digests in tests/golden/digests-arrays.json: codes, scales, floats, measures and errors.
// Both builds and all engines must give the same digests. These tests show when a result changes. Other tests check which result is right.
import {
  type BlockType,
  blockTypes,
  type CodebookOptions,
  type FloatFormat,
  type FloatInput,
  type Granularity,
  type LinearQuantizedTensor,
  type QuantizeOptions,
  type Range,
  type Scalepoint,
  type SweepVariant,
  type VectorIndex,
} from 'scalepoint';
import { afterAll, describe, expect, it } from 'vitest';
import recorded from '../golden/digests-arrays.json' with { type: 'json' };
import { needsOf } from './support/blockdata.js';
import { type Digests, digestOf, factsOf, Golden, outcomeOf } from './support/digests.js';
import {
  cores,
  describeBuilds,
  describeLarge,
  dtypes,
  largestFloat,
  Random,
  roundings,
  schemes,
  smallestFloat,
} from './support/support.js';

const golden = new Golden('digests-arrays.json', recorded);
afterAll(() => golden.save());

// -------------------------------------------------------------------------------------------------------------------------- data

const shape = [6, 10, 16];
const size = 960;
const specials = [0, -0, smallestFloat, -smallestFloat, 2 ** -126, 1e-20, 1e30, -1e30, largestFloat, -largestFloat];

/** Finite arrays: weights, values of one sign away from zero, ties, special values, zeros and a constant. */
function finiteArrays(): Record<string, Float32Array> {
  const random = new Random(11);
  const mixed = random.bell(size);
  for (const [i, v] of specials.entries()) mixed[90 * i + 7] = v;
  const outliers = random.bell(size);
  for (let i = 5; i < size; i += 97) outliers[i]! *= 40;
  return {
    bell: random.bell(size),
    outliers,
    'one sign': random.uniform(size, 3, 4),
    ties: Float32Array.from({ length: size }, (_, i) => ((i % 41) - 20.5) * 0.125),
    mixed,
    zeros: new Float32Array(size),
    constant: new Float32Array(size).fill(-7.3),
  };
}

/** An array of random bits, including NaN and infinities. */
function wildArray(): Float32Array {
  const random = new Random(12);
  const wild = new Float32Array(Uint32Array.from({ length: size }, () => random.bits()).buffer);
  for (let i = 0; i < size; i += 37) wild[i] = [Number.NaN, Infinity, -Infinity][i % 3]!;
  return wild;
}

const granularities: Granularity[] = [
  { kind: 'per-tensor' },
  { kind: 'per-channel', axis: 0 },
  { kind: 'per-channel', axis: 1 },
  { kind: 'per-channel', axis: -1 },
  { kind: 'per-group', groupSize: 16 },
  { kind: 'per-group', groupSize: 5 },
  { kind: 'per-group', groupSize: 4, axis: 1 },
];

function nameOf(granularity: Granularity | undefined): string {
  if (granularity === undefined || granularity.kind === 'per-tensor') return 'per-tensor';
  const axis = granularity.axis === undefined ? '' : ` axis ${granularity.axis}`;
  return granularity.kind === 'per-channel' ? `per-channel${axis}` : `groups of ${granularity.groupSize}${axis}`;
}

/** The results of `quantize`, and of the calls that take a quantized tensor. */
function linearResults(sp: Scalepoint, x: FloatInput, options: QuantizeOptions): unknown[] {
  const q = sp.quantize(x, options);
  const { from } = options;
  return [q, sp.dequantize(q), sp.compare(x, q, from === undefined ? {} : { from })];
}

const outcomes = async (f: () => unknown): Promise<string> => {
  const outcome = await outcomeOf(f);
  return 'error' in outcome ? outcome.error : digestOf(outcome.value);
};

// ----------------------------------------------------------------------------------------------------------------------- linear

describeBuilds('linear quantization', (sp) => {
  it('keeps its codes for every range', async () => {
    const ranges: Record<string, Range> = {
      mse: 'mse',
      entropy: 'entropy',
      'percentile 99': { percentile: 99 },
      'percentile 75': { percentile: 75 },
      'a range': { min: -0.5, max: 1.25 },
    };
    const { outliers, 'one sign': oneSign } = finiteArrays();
    const digests: Digests = {};
    for (const [name, range] of Object.entries(ranges)) {
      const slow = name === 'entropy';
      for (const [d, dtype] of (slow ? (['int4', 'int8', 'uint8', 'uint3', 'int16'] as const) : dtypes).entries()) {
        for (const scheme of schemes) {
          // Searches take time, so each dtype has half of the granularities, alternating.
          const some = granularities.filter((_, g) => (slow ? g < 2 : (g + d) % 2 === 0));
          for (const granularity of some) {
            const results: unknown[] = [];
            for (const x of [outliers, oneSign]) {
              const options = { dtype, scheme, shape, granularity, range } as QuantizeOptions;
              results.push(linearResults(sp, x as Float32Array, options));
            }
            const key = `${name} ${dtype} ${scheme}`;
            digests[key] = await digestOf(digests[key], results);
          }
        }
      }
    }
    golden.check('ranges', digests);
  });

  it('keeps its codes for every option that decides about a scale', async () => {
    const digests: Digests = {};
    for (const [name, x] of Object.entries({ ...finiteArrays(), wild: wildArray() })) {
      for (const dtype of ['int2', 'int4', 'uint4', 'int8', 'uint8', 'int16'] as const) {
        for (const scheme of schemes) {
          const results: unknown[] = [];
          const given = { dtype, scheme, shape, nonFinite: 'saturate' } as const;
          // symmetricRange applies to the symmetric scheme only, includeZero to the asymmetric one only.
          for (const rest of scheme === 'symmetric'
            ? [{}, { symmetricRange: 'full' as const }]
            : [{}, { includeZero: false }]) {
            for (const range of ['min-max', 'mse', { percentile: 95 }] as const) {
              const granularity: Granularity = { kind: 'per-channel', axis: 0 };
              results.push(linearResults(sp, x, { ...given, granularity, range, ...rest }));
            }
          }
          digests[`${name} ${dtype} ${scheme}`] = await digestOf(results);
        }
      }
    }
    golden.check('options', digests);
  });

  it('keeps its codes for given scales and bounds', async () => {
    const digests: Digests = {};
    const x = wildArray();
    for (const dtype of dtypes) {
      for (const rounding of roundings) {
        const results: unknown[] = [];
        for (const granularity of [granularities[0], granularities[1], granularities[4]] as Granularity[]) {
          const { scale: one } = sp.chooseQuantizationParameters(new Float32Array(size), { shape, granularity });
          const scale = Float32Array.from(one, (_, i) => 0.01 * (i + 1));
          const zeroPoint = Int32Array.from(one, (_, i) => (i * 7) % 100);
          const max = [...scale];
          for (const range of [
            { scale, zeroPoint },
            { scale: 0.037, zeroPoint: -3 },
            { min: scale.map((v) => -2 * v), max },
            { min: -3, max: 0.5 },
          ]) {
            results.push(
              linearResults(sp, x, {
                dtype,
                rounding,
                shape,
                granularity,
                range,
                scheme: 'asymmetric',
                nonFinite: 'saturate',
              }),
            );
          }
        }
        digests[`${dtype} ${rounding}`] = await digestOf(results);
      }
    }
    golden.check('given', digests);
  });

  it('keeps its codes for every kind of input and output', async () => {
    const digests: Digests = {};
    const { bell } = finiteArrays() as { bell: Float32Array };
    const wasm = sp.allocate('float32', size);
    wasm.view.set(bell);
    const bytes = new Uint8Array(size * 4 + 4);
    const shifted = new Float32Array(bytes.buffer, 4, size);
    shifted.set(bell);
    const half = sp.castFloat(bell, 'float16');
    const brain = sp.castFloat(bell, 'bfloat16');
    const inputs: [string, FloatInput, QuantizeOptions][] = [
      ['Float32Array', bell, {}],
      ['a part of a buffer', shifted, {}],
      ['Float64Array', Float64Array.from(bell, (v) => v / 3), {}],
      ['numbers', Array.from(bell, (v) => v / 3), {}],
      ['float16', half, { from: 'float16' }],
      ['bfloat16', brain, { from: 'bfloat16' }],
      ['WasmArray', wasm, {}],
    ];
    for (const [name, x, extra] of inputs) {
      for (const range of ['min-max', 'mse', 'entropy', { percentile: 98 }] as const) {
        const options: QuantizeOptions = { shape, granularity: { kind: 'per-channel', axis: 0 }, range, ...extra };
        digests[`${name} ${JSON.stringify(range)}`] = await digestOf(
          linearResults(sp, x, options),
          sp.chooseQuantizationParameters(x, options),
        );
      }
    }
    const data = sp.allocate('int8', size);
    const restored = sp.allocate('float32', size);
    const scale = new Float32Array(6);
    const zeroPoint = new Int32Array(6);
    const errors = sp.errorSum();
    for (const x of [bell, wasm]) {
      for (const range of ['min-max', 'mse'] as const) {
        const options = { shape, granularity: { kind: 'per-channel', axis: 0 } as const, range };
        const q = sp.quantize(x, { ...options, out: { data, scale, zeroPoint }, errors });
        sp.dequantize(q, { out: restored });
        const key = `out ${x === bell ? 'array' : 'WasmArray'} ${range}`;
        digests[key] = await digestOf(
          data.view,
          scale,
          zeroPoint,
          restored.view,
          errors.measures(),
          sp.compare(x, restored),
        );
      }
    }
    for (const array of [wasm, data, restored]) array.dispose();
    for (const n of [0, 1, 3, 4, 5, 31]) {
      const x = new Random(n).bell(n);
      for (const scheme of schemes) {
        const results = (['min-max', 'mse', 'entropy', { percentile: 99 }] as const).map((range) =>
          linearResults(sp, x, { scheme, range }),
        );
        digests[`${n} elements ${scheme}`] = await digestOf(results);
      }
    }
    golden.check('inputs', digests);
  });

  it('keeps its codes where tiles are cut', async () => {
    const digests: Digests = {};
    const n = 2 ** 17 + 96;
    const x = new Random(13).bell(n);
    const cases: [readonly number[], Granularity][] = [
      [[n], { kind: 'per-tensor' }],
      [[2, n / 2], { kind: 'per-channel', axis: 0 }],
      [[n / 32, 32], { kind: 'per-channel', axis: 1 }],
      [[n / 32, 32], { kind: 'per-channel', axis: 0 }],
      [[n / 32, 32], { kind: 'per-group', groupSize: 24 }],
      [[n / 32, 32], { kind: 'per-group', groupSize: 1000, axis: 0 }],
    ];
    for (const [dimensions, granularity] of cases) {
      for (const range of ['min-max', 'mse', { percentile: 99.9 }, 'entropy'] as const) {
        if (range === 'entropy' && granularity.kind === 'per-group') continue;
        if (range === 'entropy' && nameOf(granularity) === 'per-channel axis 0' && dimensions[1] === 32) continue;
        const options = { dtype: 'int4', scheme: 'asymmetric', shape: dimensions, granularity, range } as const;
        const q = sp.quantize(x, options);
        const key = `[${dimensions}] ${nameOf(granularity)} ${JSON.stringify(range)}`;
        digests[key] = await digestOf(q, sp.dequantize(q), sp.compare(x, q), sp.pack(q));
      }
    }
    golden.check('tiles', digests);
  });
});

// --------------------------------------------------------------------------------------------------------- measures, packing

describeBuilds('measures and packing', (sp) => {
  it('keep their numbers', async () => {
    const digests: Digests = {};
    const { bell, mixed, zeros } = finiteArrays() as Record<string, Float32Array>;
    const x = bell as Float32Array;
    const wild = wildArray();
    const quantized = {
      int8: sp.quantize(x, { shape, granularity: { kind: 'per-channel', axis: 0 } }),
      uint4: sp.quantize(x, {
        shape,
        dtype: 'uint4',
        scheme: 'asymmetric',
        granularity: { kind: 'per-group', groupSize: 16 },
      }),
      Q4_0: sp.quantizeBlocks(x, 'Q4_0', { shape: [30, 32] }),
      nf4: sp.quantizeCodebook(x, { codebook: 'nf4', shape }),
      floats: mixed as Float32Array,
      wild,
      zeros: zeros as Float32Array,
    };
    const sum = sp.errorSum();
    for (const [name, q] of Object.entries(quantized)) {
      const dimensions = name === 'Q4_0' ? [30, 32] : shape;
      digests[`${name} whole`] = await digestOf(
        sp.compare(x, q),
        sp.compare(wild, q),
        sp.compare(zeros as Float32Array, q),
      );
      const each = [
        sp.compare(x, q, { per: 'channel', axis: 0, shape: dimensions }),
        sp.compare(wild, q, { per: 'channel', axis: -1, shape: dimensions }),
        sp.compare(x, q, { per: 'group', groupSize: 7, shape: dimensions }),
        sp.compare(x, q, { per: 'group', groupSize: 4, axis: 0, shape: dimensions }),
      ];
      digests[`${name} in parts`] = await digestOf(each);
      sum.add(x, q);
      digests[`${name} added up`] = await digestOf(sum.measures());
    }
    const half = sp.castFloat(x, 'float16');
    digests.float16 = await digestOf(
      sp.compare(x, half, { from: 'float16' }),
      sp.compare(half, quantized.int8, { from: 'float16' }),
      sp.compare(half, half, { from: 'float16', per: 'group', groupSize: 10 }),
    );
    golden.check('measures', digests);
  });

  it('keep their histograms', async () => {
    const digests: Digests = {};
    for (const [name, x] of Object.entries({ ...finiteArrays(), wild: wildArray() })) {
      digests[name] = await digestOf(
        [{}, { bins: 1 }, { bins: 2048 }, { bins: 10, min: -1, max: 1 }, { min: -(2 ** 140) }, { max: 0, min: 0 }].map(
          (options) => {
            try {
              return sp.histogram(x, options);
            } catch (error) {
              return factsOf(error);
            }
          },
        ),
      );
    }
    const half = sp.castFloat(finiteArrays().bell as Float32Array, 'float16');
    digests.float16 = await digestOf(sp.histogram(half, { from: 'float16', bins: 33 }));
    golden.check('histogram', digests);
  });

  it('keep packed bytes', async () => {
    const digests: Digests = {};
    const x = new Random(14).bell(2 ** 17 + 77);
    for (const dtype of dtypes) {
      const results = [0, 1, 7, 8, 77, x.length].map((n) => {
        const q = sp.quantize(x.subarray(0, n), { dtype, scheme: 'asymmetric' });
        const packed = sp.pack(q);
        return [packed, sp.unpack(packed, q)];
      });
      digests[dtype] = await digestOf(results);
    }
    for (const count of [2, 3, 16, 17, 256]) {
      const q = sp.quantizeCodebook(x.subarray(0, 777), { codebook: new Random(count).bell(count) });
      const packed = sp.pack(q);
      digests[`codebook of ${count}`] = await digestOf(packed, sp.unpack(packed, q));
    }
    golden.check('packed', digests);
  });

  it('keep a sweep', async () => {
    const digests: Digests = {};
    const variants: SweepVariant[] = dtypes.flatMap((dtype) =>
      (['min-max', 'mse', { percentile: 97 }] as const).flatMap((range) =>
        granularities
          .slice(0, 5)
          .filter((_, i) => range === 'min-max' || i % 2 === 1)
          .map((granularity) => ({ dtype, range, granularity, nonFinite: 'saturate' as const })),
      ),
    );
    variants.push({ range: 'entropy' }, { rounding: 'fused' }, { rounding: 'reciprocal', scheme: 'asymmetric' });
    for (const [name, x] of Object.entries({ ...finiteArrays(), wild: wildArray() })) {
      const measured = sp.sweep(x, name === 'wild' ? variants.slice(0, -3) : variants, { shape });
      digests[name] = await digestOf(measured.map(({ bitsPerNumber: _, ...measures }) => measures));
    }
    golden.check('sweep', digests);
  });

  it('keep what observers choose', async () => {
    const digests: Digests = {};
    const { bell, outliers, 'one sign': oneSign, mixed } = finiteArrays() as Record<string, Float32Array>;
    const wild = wildArray();
    for (const range of ['min-max', 'mse', 'entropy', { percentile: 99 }] as const) {
      for (const dtype of ['int4', 'int8', 'uint8'] as const) {
        for (const scheme of schemes) {
          for (const averaging of range === 'min-max' ? [undefined, 0.01, 1] : [undefined]) {
            const options = {
              range,
              dtype,
              scheme,
              nonFinite: 'saturate',
              includeZero: dtype !== 'uint8',
              symmetricRange: dtype === 'int4' ? 'full' : 'restricted',
            } as const;
            const observer = sp.observer({ ...options, ...(averaging === undefined ? {} : { averaging }) });
            const seen: unknown[] = [sp.chooseQuantizationParameters([], options)];
            for (const x of [bell, outliers, oneSign, mixed, wild]) {
              observer.observe(x as Float32Array);
              if (x !== bell && x !== wild) continue;
              seen.push(observer.parameters(), observer.count);
            }
            observer.reset();
            observer.observe(sp.castFloat(bell as Float32Array, 'bfloat16'), { from: 'bfloat16' });
            seen.push(observer.parameters(), observer.count);
            digests[`${JSON.stringify(range)} ${dtype} ${scheme} ${averaging ?? ''}`] = await digestOf(seen);
          }
        }
      }
    }
    golden.check('observer', digests);
  });
});

// ---------------------------------------------------------------------------------------------------- blocks, codebooks, floats

describeLarge('other codes', (sp) => {
  it('keep blocks', async () => {
    const digests: Digests = {};
    const random = new Random(15);
    const n = 2048;
    const outliers = random.bell(n);
    for (let i = 9; i < n; i += 61) outliers[i]! *= 30;
    const tiny = Float32Array.from(random.bell(n), (v, i) => v * 2 ** -((i >> 5) % 140));
    const arrays: Record<string, Float32Array> = {
      bell: random.bell(n),
      'one sign': random.uniform(n, 3, 4),
      outliers,
      tiny,
      ties: Float32Array.from({ length: n }, (_, i) => ((i * 7) % 33) - 16.5),
      constant: new Float32Array(n).fill(0.3),
      zeros: new Float32Array(n),
    };
    for (const type of blockTypes) {
      for (const [name, x] of Object.entries(arrays)) {
        const q = sp.quantizeBlocks(x, type, { ...needsOf(type, n), shape: [n / 256, 256] });
        digests[`${type} ${name}`] = await digestOf(q, sp.dequantize(q), sp.compare(x, q));
      }
      const half = sp.castFloat(arrays.bell as Float32Array, 'float16');
      const options = { ...needsOf(type, n), from: 'float16' } as const;
      const q = sp.quantizeBlocks(half, type, options);
      const out = sp.allocate('uint8', q.data.length);
      digests[`${type} float16`] = await digestOf(q);
      sp.quantizeBlocks(half, type, { ...options, out });
      expect(await digestOf({ kind: 'blocks', type, shape: q.shape, data: out.view })).toBe(digests[`${type} float16`]);
      out.dispose();
    }
    golden.check('blocks', digests);
  });

  it('keep blocks with lower errors', async () => {
    const digests: Digests = {};
    const columns = 512;
    const random = new Random(19);
    const rows = [random.bell(columns).map((v) => 0.02 * v), random.bell(columns), random.uniform(columns, -0.2, 1)];
    for (let i = 3; i < columns; i += 61) rows[1]![i]! *= 20;
    const x = Float32Array.from(rows.flatMap((row) => [...row]));
    const weights = random.bell(columns).map((v) => v * v);
    for (const type of blockTypes) {
      const options = { shape: [rows.length, columns], search: 'best' } as const;
      const found = await outcomeOf(() => [
        sp.quantizeBlocks(x, type, options).data,
        sp.quantizeBlocks(x, type, { ...options, weights }).data,
      ]);
      digests[type] = 'error' in found ? found.error : await digestOf(found.value);
    }
    golden.check('best blocks', digests);
  });

  it('keep codebooks', async () => {
    const digests: Digests = {};
    const arrays = finiteArrays();
    const own = Float32Array.of(-1, -0.3, 0, 0.1, 0.1, 0.9, 1);
    const sources: Record<string, CodebookOptions['codebook']> = {
      nf4: 'nf4',
      fp4: 'fp4',
      given: own,
      'learned 16': { learn: 16 },
      'learned 5': { learn: 5 },
      'learned 256': { learn: 256 },
    };
    for (const [name, codebook] of Object.entries(sources)) {
      for (const range of ['min-max', 'mse'] as const) {
        for (const absmaxType of ['float32', 'int8'] as const) {
          for (const blockSize of name.startsWith('learned') ? [16, 100] : [16, 64, 100]) {
            if (name === 'learned 256' && (range === 'mse' || blockSize === 16)) continue;
            const results = ['bell', 'outliers', 'one sign', 'zeros', 'constant', 'ties'].map((kind) => {
              const x = arrays[kind] as Float32Array;
              const q = sp.quantizeCodebook(x, { codebook, range, absmaxType, blockSize, shape });
              return [q, sp.dequantize(q), sp.compare(x, q), sp.pack(q)];
            });
            digests[`${name} ${range} ${absmaxType} ${blockSize}`] = await digestOf(results);
          }
        }
      }
    }
    const mixed = arrays.mixed as Float32Array;
    digests['nf4 special values'] = await digestOf(sp.quantizeCodebook(mixed, { codebook: 'nf4' }));
    const half = sp.castFloat(arrays.bell as Float32Array, 'float16');
    digests['nf4 float16'] = await digestOf(sp.quantizeCodebook(half, { codebook: 'nf4', from: 'float16' }));
    const long = new Random(16).bell(2 ** 18 + 50);
    digests['nf4 long'] = await digestOf(sp.quantizeCodebook(long, { codebook: 'nf4' }));
    digests['learned long'] = await digestOf(sp.quantizeCodebook(long, { codebook: { learn: 8 }, blockSize: 256 }));
    golden.check('codebooks', digests);
  });

  it('keep casts', async () => {
    const digests: Digests = {};
    const random = new Random(17);
    const any = new Float32Array(Uint32Array.from({ length: 40_000 }, () => random.bits()).buffer);
    const near = random.bell(20_000);
    const bits16 = Uint16Array.from({ length: 65_536 }, (_, i) => i);
    const bits8 = Uint8Array.from({ length: 256 }, (_, i) => i);
    for (const format of ['float16', 'bfloat16', 'float8e4m3fn', 'float8e5m2', 'float4e2m1'] as FloatFormat[]) {
      const wide = format === 'float16' || format === 'bfloat16';
      digests[format] = await digestOf(
        [true, false].flatMap((saturate) => [
          sp.castFloat(any, format, { saturate }),
          sp.castFloat(near, format, { saturate }),
          sp.castFloat(bits16, format, { saturate, from: 'float16' }),
          sp.castFloat(bits16, format, { saturate, from: 'bfloat16' }),
        ]),
        sp.castToFloat32(wide ? bits16 : bits8, format),
      );
    }
    golden.check('casts', digests);
  });
});

// ------------------------------------------------------------------------------------------------------------------------ layers

describeLarge('layers and searches', (sp) => {
  it('keep their outputs', async () => {
    const digests: Digests = {};
    const [outputs, inputs, rows] = [37, 288, 5];
    const dimensions = [outputs, inputs];
    const random = new Random(18);
    const w = random.bell(outputs * inputs);
    const x = random.bell(rows * inputs);
    const bias = random.bell(outputs);
    x[3 * inputs + 17]! *= 500;
    const positive = x.map((v) => Math.abs(v));
    const weights: Record<string, () => Parameters<Scalepoint['linear']>[0]> = {};
    for (const dtype of ['int2', 'int3', 'int4', 'int8', 'uint4', 'uint8'] as const) {
      for (const scheme of schemes) {
        for (const granularity of [
          { kind: 'per-tensor' },
          { kind: 'per-channel', axis: 0 },
          { kind: 'per-group', groupSize: 32 },
          { kind: 'per-group', groupSize: 100 },
        ] as Granularity[]) {
          weights[`${dtype} ${scheme} ${nameOf(granularity)}`] = () =>
            sp.quantize(w, { dtype, scheme, granularity, shape: dimensions });
        }
      }
    }
    for (const type of ['Q8_0', 'Q4_0'] as BlockType[])
      weights[type] = () => sp.quantizeBlocks(w, type, { shape: dimensions });
    for (const [name, make] of Object.entries(weights)) {
      const results: unknown[] = [];
      for (const options of [
        { activations: 'float32' },
        { activations: 'int8' },
        { activations: 'int8', activationScheme: 'asymmetric' },
      ] as const) {
        const layer = sp.linear(make(), { bias, ...options });
        results.push(
          layer.bytes,
          layer.forward(x),
          layer.forward(positive, { batch: rows }),
          layer.forward(x.subarray(0, inputs)),
        );
        layer.dispose();
      }
      const plain = sp.linear(make());
      results.push(plain.forward(x));
      plain.dispose();
      digests[name] = await digestOf(results);
    }
    for (const from of [undefined, 'float16', 'bfloat16'] as const) {
      const given = from === undefined ? w : sp.castFloat(w, from);
      const layer = sp.matmulFloat(given, { shape: dimensions, bias, ...(from === undefined ? {} : { from }) });
      const out = sp.allocate('float32', rows * outputs);
      layer.forward(x, { out });
      digests[`floats ${from ?? 'float32'}`] = await digestOf(layer.forward(x), out.view, layer.bytes);
      out.dispose();
      layer.dispose();
    }
    golden.check('layers', digests);
  });

  it('keep what they find', async () => {
    const digests: Digests = {};
    const [count, dimension] = [700, 48];
    const random = new Random(19);
    const vectors = random.bell(count * dimension);
    vectors.copyWithin(dimension * 9, 0, dimension);
    vectors.fill(0, dimension * 20, dimension * 21);
    const asked = random.bell(4 * dimension);
    const list = Array.from({ length: 4 }, (_, i) => asked.slice(i * dimension, (i + 1) * dimension));
    const given = { shape: [count, dimension] };
    // Ids are the indices here.
    const search = (index: VectorIndex, query: Float32Array, k: number) => {
      const { ids, indices, scores } = index.search(query, k);
      expect(ids).toEqual([...indices]);
      return { indices, scores };
    };
    for (const metric of ['dot', 'cosine'] as const) {
      for (const queries of ['int8', 'float32'] as const) {
        const index = sp.index(vectors, { ...given, metric, queries });
        const found = list.flatMap((query) => [1, 10, 1000].map((k) => search(index, query, k)));
        digests[`${metric} ${queries}`] = await digestOf(found, index.bytes, index.recall(vectors, list, { k: 20 }));
        index.dispose();
      }
    }
    const half = sp.index(sp.castFloat(vectors, 'float16'), { ...given, from: 'float16' });
    digests.float16 = await digestOf(search(half, list[0] as Float32Array, 12));
    half.dispose();
    const listed = sp.index(list, { metric: 'cosine' });
    digests['a list'] = await digestOf(search(listed, list[2] as Float32Array, 4));
    listed.dispose();
    golden.check('searches', digests);
  });
});

// ------------------------------------------------------------------------------------------------------------------------- errors

describeLarge('a wrong argument', (sp) => {
  const x = new Random(20).bell(64);
  const wild = Float32Array.of(1, 2, Number.NaN, 4, Infinity);
  const q = () => sp.quantize(x, { shape: [4, 16], granularity: { kind: 'per-channel', axis: 0 } });
  const check = async (group: string, calls: Record<string, () => unknown>) => {
    const said: Digests = {};
    for (const [name, call] of Object.entries(calls)) said[name] = await outcomes(call);
    golden.check(group, said);
  };
  const quantizing =
    (options: object, input: unknown = x) =>
    () =>
      sp.quantize(input as FloatInput, options);

  it('of quantize is named', async () => {
    await check('wrong arguments of quantize', {
      'x undefined': () => sp.quantize(undefined as never),
      'x a string': quantizing({}, 'abc'),
      'x Uint16Array': quantizing({}, new Uint16Array(4)),
      'x Int32Array': quantizing({}, new Int32Array(4)),
      'x a list of texts': quantizing({}, [1, 'a']),
      'x float16 of Float32Array': quantizing({ from: 'float16' }),
      'options null': () => sp.quantize(x, null as never),
      'options a number': () => sp.quantize(x, 8 as never),
      unknown: quantizing({ bits: 4 }),
      dtype: quantizing({ dtype: 'int9' }),
      'dtype a number': quantizing({ dtype: 8 }),
      scheme: quantizing({ scheme: 'affine' }),
      'shape, product': quantizing({ shape: [4, 4] }),
      'shape, no array': quantizing({ shape: 64 }),
      'shape, a text': quantizing({ shape: ['64'] }),
      'shape, negative': quantizing({ shape: [-8, -8] }),
      'shape, too large': quantizing({ shape: [2 ** 40, 2 ** 40] }),
      granularity: quantizing({ granularity: 'per-channel' }),
      'granularity.kind': quantizing({ granularity: { kind: 'per-row' } }),
      'granularity.axis': quantizing({ granularity: { kind: 'per-channel', axis: 1 } }),
      'granularity.axis, none': quantizing({ granularity: { kind: 'per-channel' } }),
      'granularity.axis, 0.5': quantizing({ granularity: { kind: 'per-channel', axis: 0.5 } }),
      'granularity.groupSize': quantizing({ granularity: { kind: 'per-group', groupSize: 0 } }),
      'granularity.groupSize, none': quantizing({ granularity: { kind: 'per-group' } }),
      range: quantizing({ range: 'max' }),
      'range null': quantizing({ range: null }),
      'range, keys': quantizing({ range: { low: 1 } }),
      'range.percentile': quantizing({ range: { percentile: 50 } }),
      'range.percentile, a text': quantizing({ range: { percentile: '99' } }),
      'range.min': quantizing({ range: { min: Number.NaN, max: 1 } }),
      'range.max, none': quantizing({ range: { min: 1 } }),
      'range, crossed': quantizing({ range: { min: 2, max: 1 } }),
      'range.scale': quantizing({ range: { scale: 0, zeroPoint: 0 } }),
      'range.scale, two': quantizing({ range: { scale: [1, 2], zeroPoint: 0 } }),
      'range.scale, underflow': quantizing({ range: { scale: 1e-60, zeroPoint: 0 } }),
      'range.zeroPoint': quantizing({ range: { scale: 1, zeroPoint: 0.5 } }),
      'range.zeroPoint, large': quantizing({ range: { scale: 1, zeroPoint: 2 ** 22 + 1 } }),
      'range.zeroPoint[0]': quantizing({ range: { scale: [1], zeroPoint: ['0'] } }),
      includeZero: quantizing({ includeZero: 1 }),
      symmetricRange: quantizing({ symmetricRange: 'half' }),
      rounding: quantizing({ rounding: 'up' }),
      nonFinite: quantizing({ nonFinite: 'ignore' }),
      from: quantizing({ from: 'float8' }, new Uint16Array(4)),
      'out, kind': quantizing({ out: new Uint8Array(64) }),
      'out, length': quantizing({ out: new Int8Array(63) }),
      'out.scale': quantizing({ out: { data: new Int8Array(64), scale: new Float32Array(2) } }),
      'out.zeroPoint': quantizing({ out: { data: new Int8Array(64), zeroPoint: new Float32Array(1) } }),
      'out is x': quantizing({ out: new Int8Array(x.buffer, 0, 64) }),
      errors: quantizing({ errors: {} }),
      NaN: quantizing({}, wild),
      'NaN, mse': quantizing({ range: 'mse' }, wild),
      'NaN, given': quantizing({ range: { scale: 1, zeroPoint: 0 } }, wild),
      'NaN, parameters': () => sp.chooseQuantizationParameters(wild),
    });
  });

  it('of other array calls is named', async () => {
    const good = q();
    await check('wrong arguments', {
      'dequantize undefined': () => sp.dequantize(undefined as never),
      'dequantize kind': () => sp.dequantize({ ...good, kind: 'cubic' } as never),
      'dequantize data': () => sp.dequantize({ ...good, data: new Uint8Array(64) } as never),
      'dequantize data, length': () => sp.dequantize({ ...good, data: new Int8Array(3) } as never),
      'dequantize scale': () => sp.dequantize({ ...good, scale: new Float32Array(1) }),
      'dequantize scale, 0': () => sp.dequantize({ ...good, scale: new Float32Array(4) }),
      'dequantize zeroPoint': () => sp.dequantize({ ...good, zeroPoint: new Float32Array(4) } as never),
      'dequantize shape': () => sp.dequantize({ ...good, shape: [3] }),
      'dequantize out': () => sp.dequantize(good, { out: new Float32Array(3) }),
      'dequantize unknown': () => sp.dequantize(good, { to: 1 } as never),
      'dequantize blocks': () => sp.dequantize({ kind: 'blocks', type: 'Q4_0', shape: [32], data: new Uint8Array(17) }),
      'dequantize blocks, type': () =>
        sp.dequantize({ kind: 'blocks', type: 'Q9_0' as BlockType, shape: [32], data: new Uint8Array(18) }),
      'dequantize blocks, shape': () =>
        sp.dequantize({ kind: 'blocks', type: 'Q4_0', shape: [2, 16], data: new Uint8Array(18) }),
      'compare lengths': () => sp.compare(x, x.subarray(1)),
      'compare nothing': () => sp.compare(x, undefined as never),
      'compare per': () => sp.compare(x, x, { per: 'row' } as never),
      'compare axis': () => sp.compare(x, x, { per: 'channel', axis: 2 }),
      'compare groupSize': () => sp.compare(x, x, { per: 'group', groupSize: 0 }),
      'compare from': () => sp.compare(x, x, { from: 'float64' } as never),
      'compare Uint16Array': () => sp.compare(x, new Uint16Array(64)),
      'histogram bins': () => sp.histogram(x, { bins: 0 }),
      'histogram bins, a text': () => sp.histogram(x, { bins: '4' } as never),
      'histogram min': () => sp.histogram(x, { min: Infinity }),
      'histogram crossed': () => sp.histogram(x, { min: 2, max: 1 }),
      'histogram unknown': () => sp.histogram(x, { count: 1 } as never),
      'pack nothing': () => sp.pack(undefined as never),
      'pack blocks': () => sp.pack(sp.quantizeBlocks(x, 'Q4_0') as never),
      'pack codes beyond': () =>
        sp.pack({ ...sp.quantize(x, { dtype: 'int4' }), data: new Int8Array(64).fill(9) } as LinearQuantizedTensor),
      'unpack bytes': () => sp.unpack(new Uint8Array(3), { dtype: 'int4', shape: [64] }),
      'unpack dtype': () => sp.unpack(new Uint8Array(3), { dtype: 'int1' as never, shape: [64] }),
      'unpack nothing': () => sp.unpack(new Uint8Array(3), undefined as never),
      'blocks type': () => sp.quantizeBlocks(x, 'NVFP4' as BlockType),
      'blocks rows': () => sp.quantizeBlocks(x, 'Q4_K'),
      'blocks NaN': () => sp.quantizeBlocks(new Float32Array(32).fill(Number.NaN), 'Q8_0'),
      'blocks overflow': () => sp.quantizeBlocks(new Float32Array(32).fill(1e30), 'Q8_0'),
      'blocks out': () => sp.quantizeBlocks(x, 'Q4_0', { out: new Uint8Array(1) }),
      'blocks unknown': () => sp.quantizeBlocks(x, 'Q4_0', { dtype: 1 } as never),
      'sweep variants': () => sp.sweep(x, {} as never),
      'sweep variant': () => sp.sweep(x, [{ shape: [1] } as never]),
      'sweep option': () => sp.sweep(x, [], { granularity: 1 } as never),
      'sweep NaN': () => sp.sweep(wild, [{}]),
      'observer range': () => sp.observer({ range: { min: 0, max: 1 } } as never),
      'observer averaging': () => sp.observer({ averaging: 0 }),
      'observer averaging, mse': () => sp.observer({ averaging: 0.5, range: 'mse' }),
      'observer dtype': () => sp.observer({ dtype: 'int1' as never }),
      'observer NaN': () => sp.observer().observe(wild),
      'allocate dtype': () => sp.allocate('int4' as never, 4),
      'allocate length': () => sp.allocate('int8', -1),
      'allocate a text': () => sp.allocate('int8', '4' as never),
      'disposed array': () => {
        const array = sp.allocate('float32', 4);
        array.dispose();
        return sp.quantize(array);
      },
    });
  });

  it('of codebooks and casts is named', async () => {
    const coding =
      (options: object, input: FloatInput = x) =>
      () =>
        sp.quantizeCodebook(input, options as CodebookOptions);
    const good = sp.quantizeCodebook(x, { codebook: 'nf4' });
    await check('wrong arguments of codebooks and casts', {
      none: coding({}),
      name: coding({ codebook: 'nf8' }),
      'a list': coding({ codebook: [1, 2] }),
      'one value': coding({ codebook: Float32Array.of(1) }),
      'too many': coding({ codebook: new Float32Array(257) }),
      NaN: coding({ codebook: Float32Array.of(1, Number.NaN) }),
      learn: coding({ codebook: { learn: 1 } }),
      'learn, a text': coding({ codebook: { learn: '4' } }),
      blockSize: coding({ codebook: 'nf4', blockSize: 0 }),
      range: coding({ codebook: 'nf4', range: 'entropy' }),
      absmaxType: coding({ codebook: 'nf4', absmaxType: 'int4' }),
      'x NaN': coding({ codebook: 'nf4' }, wild),
      'x NaN, mse': coding({ codebook: 'nf4', range: 'mse' }, wild),
      unknown: coding({ codebook: 'nf4', bits: 4 }),
      absmax: () => sp.dequantize({ ...good, absmax: new Float32Array(9) }),
      code: () => sp.dequantize({ ...good, data: new Uint8Array(64).fill(99) }),
      'pack, code': () => sp.pack({ ...good, data: new Uint8Array(64).fill(99) }),
      'blockSize of q': () => sp.dequantize({ ...good, blockSize: 0 }),
      'unpack bytes': () => sp.unpack(new Uint8Array(1), good),
      to: () => sp.castFloat(x, 'float32' as never),
      saturate: () => sp.castFloat(x, 'float16', { saturate: 1 } as never),
      'cast out': () => sp.castFloat(x, 'float16', { out: new Uint8Array(64) }),
      'cast unknown': () => sp.castFloat(x, 'float16', { to: 1 } as never),
      from: () => sp.castToFloat32(new Uint8Array(2), 'int8' as never),
      bits: () => sp.castToFloat32(new Uint8Array(2), 'float16'),
    });
  });

  it('of layers and searches is named', async () => {
    const good = q();
    const layer = sp.linear(good);
    const vectors = new Random(21).bell(30);
    const index = sp.index(vectors, { shape: [10, 3] });
    const gone = sp.linear(good);
    gone.dispose();
    await check('wrong arguments of layers and searches', {
      'q nothing': () => sp.linear(undefined as never),
      'q codebook': () => sp.linear(sp.quantizeCodebook(x, { codebook: 'nf4' })),
      'q shape': () => sp.linear(sp.quantize(x)),
      'q axis': () => sp.linear(sp.quantize(x, { shape: [4, 16], granularity: { kind: 'per-channel', axis: 1 } })),
      'q int16': () => sp.linear(sp.quantize(x, { shape: [4, 16], dtype: 'int16' })),
      'q Q6_K': () => sp.linear(sp.quantizeBlocks(new Float32Array(256), 'Q6_K', { shape: [1, 256] })),
      bias: () => sp.linear(good, { bias: new Float32Array(3) }),
      activations: () => sp.linear(good, { activations: 'int4' as never }),
      activationScheme: () => sp.linear(good, { activations: 'int8', activationScheme: 'odd' as never }),
      'activationScheme of floats': () => sp.linear(good, { activationScheme: 'symmetric' }),
      unknown: () => sp.linear(good, { shape: [4, 16] } as never),
      'float shape': () => sp.matmulFloat(x, { shape: [64] }),
      'float no shape': () => sp.matmulFloat(x, {} as never),
      'x length': () => layer.forward(x.subarray(1)),
      batch: () => layer.forward(x, { batch: 3 }),
      'batch, 0.5': () => layer.forward(x, { batch: 0.5 }),
      out: () => layer.forward(x, { out: new Float32Array(1) }),
      disposed: () => gone.forward(x),
      'index shape': () => sp.index(vectors),
      'index shape, product': () => sp.index(vectors, { shape: [7, 3] }),
      'index metric': () => sp.index(vectors, { shape: [10, 3], metric: 'l2' as never }),
      'index NaN': () => sp.index(Float32Array.of(1, Number.NaN), { shape: [1, 2] }),
      'index list': () => sp.index([[1, 2], [3]]),
      query: () => index.search(x, 1),
      'query NaN': () => index.search([1, 2, Number.NaN], 1),
      k: () => index.search([1, 2, 3], 0),
      'k, a text': () => index.search([1, 2, 3], '1' as never),
      'recall vectors': () => index.recall(vectors.subarray(3), [[1, 2, 3]]),
      'recall k': () => index.recall(vectors, [[1, 2, 3]], { k: 0 }),
    });
    layer.dispose();
    index.dispose();
  });
});

describe('the builds', () => {
  it('are both there', () => {
    expect(cores.map(({ sp }) => sp.simd)).toEqual([true, false]);
  });
});

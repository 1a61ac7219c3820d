// q8-blocks gives 8 bits to weights that blocks do not suit, too. They become floats when the model is loaded. Experts have operators of
// their own.
import { compareModels, type ModelTarget, quantizeModel, readFloats } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';
import { cosine, expectLike, run } from './ort.js';

const gates = (op: 'LSTM' | 'GRU', rows: number) =>
  onnx.model({
    nodes: [{ op, in: ['x', 'w', 'r'], out: ['y'], attributes: { hidden_size: 32 } }],
    initializers: [onnx.floatTensor('w', [1, rows, 40], 1), onnx.floatTensor('r', [1, rows, 32], 2)],
    inputs: [['x', [5, 1, 40]]],
    outputs: [['y', [5, 1, 1, 32]]],
  });

it.each<[string, Uint8Array<ArrayBuffer>]>([
  ['a convolution', onnx.product('Conv', [16, 8, 3, 3], [1, 8, 9, 9], [1, 16, 9, 9])({ pads: [1, 1, 1, 1] })],
  ['a convolution transposed', onnx.product('ConvTranspose', [16, 8, 3, 3], [1, 16, 9, 9], [1, 8, 'h', 'w'])()],
  ['an LSTM', gates('LSTM', 128)],
  ['a GRU', gates('GRU', 96)],
  ['several matrices', onnx.product('MatMul', [3, 40, 24], [3, 5, 40], [3, 5, 24])()],
  ['a table whose rows blocks do not divide', onnx.gather([50, 40], [2, 3, 40])()],
])('%s', async (_name, file) => {
  const { report, bytes } = await quantizeModel(file, { to: 'q8-blocks', workers: 0 });
  const made = await bytes();
  expect(report.tensors.every(({ kept, to }) => kept === undefined && to === 'U8')).toBe(true);
  expect(made.length).toBeLessThan(0.6 * file.length);
  // Nothing is dequantized at each run.
  expect(new TextDecoder('latin1').decode(made)).not.toContain('DequantizeLinear');
  await expectLike(file, made, 0.9999);
  const name = report.tensors[0]?.name ?? '';
  const [was, is] = [await readFloats(file, name), await readFloats(made, name)];
  expect(cosine(was.data as Float32Array, is.data as Float32Array)).toBeGreaterThan(0.9999);
});

it('not with targets of other blocks', async () => {
  const file = gates('LSTM', 128);
  const { report } = await quantizeModel(file, { to: 'q4', workers: 0 });
  expect(report.tensors.map(({ kept }) => kept?.kind)).toEqual(['readBy', 'readBy']);
});

describe('a mixture of experts', () => {
  const [experts, hidden, inner, tokens, chosen] = [4, 64, 96, 6, 2];
  const [alpha, beta, limit] = [1.75, 1, 7];

  interface Mixture {
    readonly activation?: string;
    readonly more?: onnx.TestNode['attributes'];
    readonly inputs?: readonly string[];
    readonly sizes?: readonly [hidden: number, inner: number];
  }

  function mixture({
    activation = 'relu',
    more = { normalize_routing_weights: 1 },
    inputs = ['b1', 'f2', 'b2'],
    sizes: [wide, narrow] = [hidden, inner],
  }: Mixture) {
    const gated = { swiglu_fusion: 1, activation_alpha: { float: alpha }, activation_beta: { float: beta } };
    const own = activation === 'swiglu' ? { ...gated, swiglu_limit: { float: limit } } : {};
    const rows = activation === 'swiglu' ? 2 * narrow : narrow;
    const attributes = { k: chosen, activation_type: activation, ...own, ...more };
    const weights = [
      ['f1', [experts, rows, wide]],
      ['b1', [experts, rows]],
      ['f2', [experts, wide, narrow]],
      ['b2', [experts, wide]],
      ['f3', [experts, narrow, wide]],
    ] as const;
    return onnx.model(
      {
        nodes: [{ op: 'MoE', domain: 'com.microsoft', in: ['x', 'r', 'f1', ...inputs], out: ['y'], attributes }],
        initializers: weights
          .map(([name, dims], i) => ({ name, tensor: onnx.floatTensor(name, dims, i + 1, 0.5) }))
          .flatMap(({ name, tensor }) => (['f1', ...inputs].includes(name) ? [tensor] : [])),
        inputs: [
          ['x', [tokens, wide]],
          ['r', [tokens, experts]],
        ],
        outputs: [['y', [tokens, wide]]],
      },
      { imports: { 'com.microsoft': 1 } },
    );
  }

  async function make(file: Uint8Array<ArrayBuffer>, to: ModelTarget, options: object = {}) {
    const { bytes, report } = await quantizeModel(file, { to, workers: 0, ...options });
    return { made: await bytes(), report };
  }

  /** A sum, and how far rounding to float32 may be off. */
  type Rounded = readonly [value: number, bound: number];
  const u = 2 ** -24;

  /** The product of rows with a matrix, and a bias: n products and additions round n + 2 times. */
  function layer(x: readonly Rounded[], w: Float32Array, b: Float32Array, row: number): Rounded {
    let [sum, size, bound] = [b[row] as number, Math.abs(b[row] as number), 0];
    for (const [i, [value, off]] of x.entries()) {
      const factor = w[row * x.length + i] as number;
      sum += factor * value;
      size += Math.abs(factor * value);
      bound += Math.abs(factor) * off;
    }
    return [sum, bound + (x.length + 2) * u * size];
  }

  /** SwiGLU of values side by side. Its slope is below 1.1 for the gate; exp of onnxruntime is right to 16 roundings. */
  function swiglu(values: readonly Rounded[]): Rounded[] {
    return Array.from({ length: values.length / 2 }, (_, i): Rounded => {
      const [[gate, off], [linear, more]] = [values[2 * i], values[2 * i + 1]] as [Rounded, Rounded];
      const held = Math.min(gate, limit);
      const line = Math.max(-limit, Math.min(linear, limit)) + beta;
      const swish = held / (1 + Math.exp(-alpha * held));
      return [swish * line, 1.1 * off * Math.abs(line) + Math.abs(swish) * more + 32 * u * Math.abs(swish * line)];
    });
  }

  /** What a mixture gives: the sum of the chosen experts, weighted by the softmax of their logits or of all. */
  function sums(
    activation: string,
    normalizes: boolean,
    x: Float32Array,
    r: Float32Array,
    parts: readonly Float32Array[],
  ): Rounded[] {
    const [f1, b1, f2, b2] = parts as [Float32Array, Float32Array, Float32Array, Float32Array];
    const rows = b1.length / experts;
    return Array.from({ length: tokens }, (_, token) => {
      const logits = [...r.slice(token * experts, (token + 1) * experts)];
      const best = [...logits.keys()].sort((a, b) => (logits[b] as number) - (logits[a] as number)).slice(0, chosen);
      const most = Math.max(...logits);
      const shares = best.map((i) => Math.exp((logits[i] as number) - most));
      const counted = normalizes ? shares : logits.map((logit) => Math.exp(logit - most));
      const all = counted.reduce((a, b) => a + b);
      const row = [...x.slice(token * hidden, (token + 1) * hidden)].map((value): Rounded => [value, 0]);
      const outputs = best.map((expert) => {
        const inside = Array.from({ length: rows }, (_, i) => layer(row, f1, b1, expert * rows + i));
        const acted =
          activation === 'swiglu' ? swiglu(inside) : inside.map(([v, off]): Rounded => [Math.max(0, v), off]);
        return Array.from({ length: hidden }, (_, i) => layer(acted, f2, b2, expert * hidden + i));
      });
      return Array.from({ length: hidden }, (_, i): Rounded => {
        let [value, bound] = [0, 0];
        for (const [j, output] of outputs.entries()) {
          const [one, off] = output[i] as Rounded;
          const share = (shares[j] as number) / all;
          value += share * one;
          bound += share * (off + 32 * u * Math.abs(one));
        }
        return [value, bound];
      });
    }).flat();
  }

  it.each([
    ['relu', 'q4', 4, 32, 1],
    ['relu', 'q8-blocks', 8, 16, 0],
    ['swiglu', 'q4', 4, 16, 0],
    ['swiglu', 'q8-blocks', 8, 32, 1],
  ] as const)('with %s computes with the codes of %s', async (activation, to, bits, blockSize, normalizes) => {
    const file = mixture({ activation, more: { normalize_routing_weights: normalizes } });
    const { made, report } = await make(file, to, { blockSize });
    const text = new TextDecoder('latin1').decode(made);
    expect(text).toContain('QMoE');
    expect(text).not.toContain('DequantizeLinear');
    expect(report.notes.at(-1)).toMatchObject({ kind: 'runsOn', webgpu: 'refused' });
    // The codes are those of a MatMulNBits with all rows of all experts.
    const all = activation === 'swiglu' ? 2 * inner : inner;
    const alone = onnx.model({
      nodes: [{ op: 'Gemm', in: ['x', 'w'], out: ['y'], attributes: { transB: 1 } }],
      initializers: [onnx.floatTensor('w', [experts * all, hidden], 1, 0.5)],
      inputs: [['x', [tokens, hidden]]],
      outputs: [['y', [tokens, experts * all]]],
    });
    const expected = await readFloats((await make(alone, to, { blockSize })).made, 'w');
    const parts = await Promise.all(['f1', 'b1', 'f2', 'b2'].map((name) => readFloats(made, name)));
    expect(parts[0]?.shape).toEqual([experts, all, hidden]);
    // A file names the matrix [inputs, outputs] that a product multiplies by.
    expect(expected.shape).toEqual([hidden, experts * all]);
    const at = (i: number) => expected.data[(i % hidden) * experts * all + Math.floor(i / hidden)];
    expect([...(parts[0]?.data ?? [])].findIndex((value, i) => value !== at(i))).toBe(-1);
    // The sums are own ones.
    const [x, r] = [onnx.weights(tokens * hidden, 100, 1), onnx.weights(tokens * experts, 101, 1)];
    const wanted = sums(
      activation,
      normalizes === 1,
      x,
      r,
      parts.map(({ data }) => data as Float32Array),
    );
    for (const level of ['disabled', 'all'] as const) {
      const { y } = (await run(made, level)) as { y: Float32Array };
      for (const [i, [value, bound]] of wanted.entries()) {
        const off = Math.abs((y[i] as number) - value);
        if (!(off <= bound)) expect(off, `output ${i}`).toBeLessThanOrEqual(bound);
      }
    }
    await expectLike(file, made, bits === 4 ? 0.98 : 0.9999);
    const compared = await compareModels(file, made);
    expect(compared.tensors.map(({ name }) => name)).toEqual(expect.arrayContaining(['f1', 'f2']));
  });

  it('computes in float16 with q4f16', async () => {
    for (const activation of ['gelu', 'swiglu']) {
      const file = mixture({ activation });
      const { made } = await make(file, 'q4f16');
      expect(new TextDecoder('latin1').decode(made)).toContain('QMoE');
      expect(made.length).toBeLessThan(0.36 * file.length);
      await expectLike(file, made, 0.98);
    }
  });

  it.each([
    ['int8-weights', 0.9999, 0.27],
    ['uint8-weights', 0.9999, 0.27],
    ['int4-weights', 0.98, 0.18],
    ['q8', 0.9999, 0.27],
  ] as const)('restores the floats of each expert with %s', async (to, least, share) => {
    for (const activation of ['relu', 'swiglu']) {
      const file = mixture({ activation });
      const { made, report } = await make(file, to);
      expect(made.length).toBeLessThan(share * file.length);
      expect(report.notes.map(({ kind }) => kind)).not.toContain('littleConverted');
      const parts = await Promise.all(['f1', 'b1', 'f2', 'b2'].map((name) => readFloats(made, name)));
      const [x, r] = [onnx.weights(tokens * hidden, 100, 1), onnx.weights(tokens * experts, 101, 1)];
      const floats = parts.map(({ data }) => data as Float32Array);
      const wanted = sums(activation, true, x, r, floats);
      for (const level of ['disabled', 'all'] as const) {
        const { y } = (await run(made, level)) as { y: Float32Array };
        for (const [i, [value, bound]] of wanted.entries())
          expect(Math.abs((y[i] as number) - value), `output ${i}`).toBeLessThanOrEqual(bound);
      }
      const { y } = (await run(file)) as { y: Float32Array };
      expect(
        cosine(
          y,
          Float32Array.from(wanted, ([value]) => value),
        ),
      ).toBeGreaterThan(least);
    }
  });

  it.each<[string, Mixture, object]>([
    ['it mixes sparsely', { more: { normalize_routing_weights: 1, use_sparse_mixer: 1 } }, {}],
    ['it has a third layer', { inputs: ['b1', 'f2', 'b2', 'f3'] }, {}],
    ['its gates lie apart', { activation: 'swiglu', more: { normalize_routing_weights: 1, swiglu_fusion: 2 } }, {}],
    ['no block divides its columns', { sizes: [64, 72] }, {}],
    ['a rule excepts one of its weights', {}, { rules: [{ match: 'f2', keep: true }] }],
  ])('stays a MoE with restored floats if %s', async (_name, parts, options) => {
    const file = mixture(parts);
    for (const [to, least] of [
      ['q4', 0.98],
      ['q8-blocks', 0.9999],
    ] as const) {
      const { made, report } = await make(file, to, options);
      expect(new TextDecoder('latin1').decode(made)).not.toContain('QMoE');
      const stay = report.tensors.filter(({ kept, shape }) => kept !== undefined && shape.length > 2);
      expect(stay.map(({ name }) => name)).toEqual('rules' in options ? ['f2'] : []);
      // onnxruntime loads neither a third layer nor gates apart.
      if (parts.inputs !== undefined || parts.activation !== undefined) continue;
      const [before, after] = [await run(file), await run(made)];
      expect(cosine(before.y as Float32Array, after.y as Float32Array)).toBeGreaterThan(least);
    }
  });
});

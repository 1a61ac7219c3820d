// Gemma 3n: its keys and tensors beside a table that was written by hand from llama.cpp's converter (conversion/gemma.py of
// Tippach/Franken-Llama at 1774451), and its logits in llama.cpp beside a forward pass in float64 that knows Hugging Face's definitions only
// (transformers, models/gemma3n/modular_gemma3n.py at 004edfe).
import { estimateModel, inspectModel, planModel, quantizeModel, readFloats } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import {
  convertedDecoder,
  type DecoderCase,
  expectKeysAndTensors,
  type FolderJson,
} from '../../support/decoder-cases.js';
import { attention, furthest, gated, headNorms, largest, prefix } from '../../support/decoder-tables.js';
import {
  add,
  bareNorm,
  dot,
  mixed,
  multiply,
  Reader,
  rotaryFrequencies,
  rotate,
  scaled,
  slices,
  tableGelu,
  type Vector,
} from '../../support/forward.js';
import { NativeModel } from '../../support/llama-run.js';
import { bytesOf, safetensors } from '../../support/models.js';
import { needNative } from '../../support/native.js';
import { fileOf, type Weights } from '../../support/recipes.js';
import { weightsOfTable } from '../../support/tensor-table.js';
import { decoderConfig, plainTokenizer } from '../../support/tiny-huggingface.js';

// llama.cpp has keys in the first 20 layers, and 256 inputs of each layer, whatever the file says. Layers 20 to 23 have a window, 24 has none.
const [layers, ownLayers, width, rank] = [25, 20, 256, 64];
/** Tokens that have a row in both embeddings. */
const text = [1, 17, 20, 33, 4, 9, 25, 8, 17, 12];
const isFull = (layer: number) => (layer + 1) % 5 === 0;
const epsilon = 1e-6;
const sparse = Array.from({ length: layers }, (_, i) => (i < 10 ? 0.95 : 0));

const model: DecoderCase = {
  name: 'Gemma 3n',
  hugging: 'Gemma3nForConditionalGeneration',
  architecture: 'gemma3n',
  layers,
  config: {
    head_dim: 16,
    rms_norm_eps: epsilon,
    rope_theta: 1e6,
    rope_local_base_freq: 10000,
    sliding_window: 4,
    intermediate_size: new Array(layers).fill(96),
    vocab_size_per_layer_input: 40,
    hidden_size_per_layer_input: width,
    num_kv_shared_layers: layers - ownLayers,
    activation_sparsity_pattern: sparse,
    altup_num_inputs: 4,
    altup_active_idx: 0,
    altup_correct_scale: true,
    laurel_rank: rank,
    final_logit_softcapping: 30,
    layer_types: sparse.map((_, i) => (isFull(i) ? 'full_attention' : 'sliding_attention')),
  },
  keys: [
    ['block_count', layers],
    ['context_length', 128],
    ['embedding_length', 64],
    ['feed_forward_length', new Array(layers).fill(96)],
    ['attention.head_count', 4],
    ['attention.head_count_kv', 2],
    ['rope.freq_base', 1e6],
    ['rope.freq_base_swa', 10000],
    ['attention.layer_norm_rms_epsilon', epsilon],
    ['attention.key_length', 16],
    ['attention.value_length', 16],
    ['final_logit_softcapping', 30],
    ['attention.sliding_window', 4],
    ['altup.active_idx', 0],
    ['altup.num_inputs', 4],
    ['embedding_length_per_layer_input', width],
    ['attention.shared_kv_layers', layers - ownLayers],
    // The quantile of .95 of the normal distribution, as PyTorch has it in float32.
    ['activation_sparsity_scale', sparse.map((share) => (share === 0 ? -Infinity : Math.fround(1.6448533535)))],
    ['attention.sliding_window_pattern', sparse.map((_, i) => !isFull(i))],
  ],
  // Both embeddings lack rows at their ends.
  table: {
    prefix,
    outside: `
      model.embed_tokens.weight                 token_embd.weight            260x64  fill=264
      model.norm.weight                         output_norm.weight           64
      model.embed_tokens_per_layer.weight       per_layer_token_embd.weight  40x6400  fill=264
      model.per_layer_model_projection.weight   per_layer_model_proj.weight  6400x64
      model.per_layer_projection_norm.weight    per_layer_proj_norm.weight   256
      model.altup_projections.#.weight          altup_proj.weight            64x64  stack=3
      model.altup_unembed_projections.#.weight  altup_unembd_proj.weight     64x64  stack=3`,
    layer: `
      input_layernorm.weight             attn_norm.weight            64
      post_attention_layernorm.weight    post_attention_norm.weight  64
      pre_feedforward_layernorm.weight   ffn_norm.weight             64
      post_feedforward_layernorm.weight  post_ffw_norm.weight        64
      ${attention}
      ${headNorms}
      ${gated}
      per_layer_input_gate.weight        inp_gate.weight             256x64
      per_layer_projection.weight        proj.weight                 64x256
      post_per_layer_input_norm.weight   post_norm.weight            64
      altup.correction_coefs.weight      altup_correct_coef.weight   4x4
      altup.correct_output_scale         altup_correct_scale.weight  64
      altup.prediction_coefs.weight      altup_predict_coef.weight   16x4
      altup.modality_router.weight       altup_router.weight         4x64
      altup.router_norm.weight           altup_router_norm.weight    64
      laurel.linear_left.weight          laurel_l.weight             64x64
      laurel.linear_right.weight         laurel_r.weight             64x64
      laurel.post_laurel_norm.weight     laurel_post_norm.weight     64`,
  },
};

const length = (x: Vector) => Math.sqrt(dot(x, x));
const norm = (read: Reader, name: string, x: Vector) => read.rms(name, x, epsilon, 0);

/** What stays of gates: those more than some standard deviations above the mean, less this bound. */
function highest(x: Vector): Vector {
  const mean = x.reduce((a, b) => a + b, 0) / x.length;
  // Hugging Face divides by the number of gates, and llama.cpp by one less. For 8,192 gates this changes the deviation by 6e-5.
  const deviation = Math.sqrt(x.reduce((sum, v) => sum + (v - mean) ** 2, 0) / (x.length - 1));
  return x.map((v) => Math.max(0, v - mean - 1.6448533535 * deviation));
}

/** Attention of a layer. `held` keeps keys and values for layers without their own. */
function attended(
  read: Reader,
  layer: number,
  x: readonly Vector[],
  held: Map<boolean, { keys: Vector[][]; values: Vector[][] }>,
): Vector[] {
  const p = `model.layers.${layer}.self_attn.`;
  const frequencies = rotaryFrequencies(isFull(layer) ? 1e6 : 1e4, 16);
  const heads = (name: string, one: Vector) => slices(read.linear(`${p}${name}_proj`, one), 16);
  const turned = (name: string, one: Vector, t: number) =>
    heads(name, one).map((head) => rotate(norm(read, `${p}${name}_norm`, head), t, frequencies, 1));
  if (layer < ownLayers)
    held.set(isFull(layer), {
      keys: x.map((one, t) => turned('k', one, t)),
      values: x.map((one) => heads('v', one).map((head) => bareNorm(head, epsilon))),
    });
  const { keys, values } = held.get(isFull(layer))!;
  const queries = x.map((one, t) => turned('q', one, t));
  const sees = (t: number, s: number) => s <= t && (isFull(layer) || t - s < 4);
  const all = mixed(queries, keys, values, (product, t, s) => (sees(t, s) ? product : -Infinity));
  return all.map((one) => read.linear(`${p}o_proj`, one));
}

/** States of a token that a layer predicts for its four states, or corrects by what it made of the first. */
function shares(read: Reader, p: string, x: Vector): Vector {
  return read
    .linear(`${p}altup.modality_router`, scaled(norm(read, `${p}altup.router_norm`, x), 1 / 64))
    .map(Math.tanh);
}

function predicted(read: Reader, p: string, states: readonly Vector[]): Vector[] {
  const coefficients = read.linear(`${p}altup.prediction_coefs`, shares(read, p, states[0]!));
  return states.map((state, j) => states.map((other, i) => scaled(other, coefficients[j * 4 + i]!)).reduce(add, state));
}

function corrected(read: Reader, p: string, predictions: readonly Vector[], made: Vector): Vector[] {
  const coefficients = read.linear(`${p}altup.correction_coefs`, shares(read, p, made));
  const news = made.map((v, i) => v - predictions[0]![i]!);
  return predictions.map((one, j) => add(one, scaled(news, coefficients[j]! + 1)));
}

/** Other states of a token, of its first one or back from them, as long as the first one. */
const asLong = (x: Vector, like: Vector) => scaled(x, length(like) / length(x));

/** A layer for one token behind its attention. */
function grown(
  read: Reader,
  layer: number,
  predictions: readonly Vector[],
  attention: Vector,
  input: Vector,
): Vector[] {
  const p = `model.layers.${layer}.`;
  const active = predictions[0]!;
  const x = norm(read, `${p}input_layernorm`, active);
  const narrow = read.linear(`${p}laurel.linear_right`, read.linear(`${p}laurel.linear_left`, x));
  const laurel = add(x, norm(read, `${p}laurel.post_laurel_norm`, narrow));
  const gatedAttention = add(active, norm(read, `${p}post_attention_layernorm`, attention));
  const both = scaled(add(gatedAttention, laurel), Math.SQRT1_2);
  const into = norm(read, `${p}pre_feedforward_layernorm`, both);
  const gates = read.linear(`${p}mlp.gate_proj`, into);
  const inner = multiply(tableGelu(layer < 10 ? highest(gates) : gates), read.linear(`${p}mlp.up_proj`, into));
  const made = add(both, norm(read, `${p}post_feedforward_layernorm`, read.linear(`${p}mlp.down_proj`, inner)));
  const states = corrected(read, p, predictions, made);
  const first = multiply(states[0]!, Float64Array.from(read.get(`${p}altup.correct_output_scale`).values));
  const own = multiply(tableGelu(read.linear(`${p}per_layer_input_gate`, first)), input);
  const more = norm(read, `${p}post_per_layer_input_norm`, read.linear(`${p}per_layer_projection`, own));
  return states.map((state, j) => (j === 0 ? state : add(state, more)));
}

function logitsOf(weights: Weights): Vector[] {
  const read = new Reader(weights);
  const embedded = text.map((token) => scaled(read.row('model.embed_tokens.weight', token), 8));
  const inputs = embedded.map((state, t) => {
    const token = slices(read.row('model.embed_tokens_per_layer.weight', text[t]!), width);
    const projected = slices(scaled(read.linear('model.per_layer_model_projection', state), 1 / 8), width);
    return projected.map((one, i) =>
      scaled(add(norm(read, 'model.per_layer_projection_norm', one), scaled(token[i]!, 16)), Math.SQRT1_2),
    );
  });
  const others = [0, 1, 2];
  let states: Vector[][] = embedded.map((state) => [
    state,
    ...others.map((j) => asLong(read.linear(`model.altup_projections.${j}`, state), state)),
  ]);
  const held = new Map<boolean, { keys: Vector[][]; values: Vector[][] }>();
  for (let layer = 0; layer < layers; layer++) {
    const p = `model.layers.${layer}.`;
    const predictions = states.map((own) => predicted(read, p, own));
    const x = predictions.map(([active]) => norm(read, `${p}input_layernorm`, active!));
    const mixed = attended(read, layer, x, held);
    states = predictions.map((own, t) => grown(read, layer, own, mixed[t]!, inputs[t]![layer]!));
  }
  return states.map(([first, ...rest]) => {
    const back = rest.map((state, j) => asLong(read.linear(`model.altup_unembed_projections.${j}`, state), first!));
    const last = norm(read, 'model.norm', scaled(back.reduce(add, first!), 1 / 4));
    // Tokens without a row have zeros.
    return Float64Array.from({ length: 264 }, (_, i) =>
      i < 260 ? 30 * Math.tanh(dot(read.row('model.embed_tokens.weight', i), last) / 30) : 0,
    );
  });
}

const weights = weightsOfTable(model.table, layers);

describe('Gemma 3n', () => {
  it('has the keys and tensors of the converter', () => expectKeysAndTensors(model));

  it('takes whole embeddings as they are, and one width for all layers', async () => {
    const whole = new Map(weights);
    for (const [name, columns] of [
      ['model.embed_tokens.weight', 64],
      ['model.embed_tokens_per_layer.weight', 6400],
    ] as const)
      whole.set(name, { shape: [264, columns], values: new Float32Array(0) });
    const config = { ...model.config, vocab_size_per_layer_input: 264, intermediate_size: 96 };
    const { tensors, keys } = await convertedDecoder({ ...model, config }, whole);
    const embeddings = tensors.filter(({ name }) => name.endsWith('token_embd.weight'));
    expect(embeddings.map(({ shape, zeroRows }) => [shape[0], zeroRows])).toEqual([
      [264, undefined],
      [264, undefined],
    ]);
    expect(keys.find(({ name }) => name === 'gemma3n.feed_forward_length')?.value).toEqual(new Array(layers).fill(96));
  });

  it.each<[config: FolderJson, words: RegExp, code?: string]>([
    [{ num_kv_shared_layers: 4 }, /num_kv_shared_layers is 4 of 25 layers/],
    [{ laurel_rank: 32 }, /laurel_rank is 32/],
    [{ hidden_size_per_layer_input: 128 }, /hidden_size_per_layer_input is 128/],
    [{ altup_num_inputs: 2 }, /altup_num_inputs is 2/],
    [{ activation_sparsity_pattern: new Array(layers).fill(0) }, /activation_sparsity_pattern\[0\] is 0/],
    [{ activation_sparsity_pattern: [0.95] }, /array of 25 numbers/, 'BAD_FILE'],
    [{ intermediate_size: [96, ...new Array(24).fill(128)] }, /intermediate_size\[1\] is 128/],
    [{ intermediate_size: [96] }, /has to be 25 whole numbers/, 'BAD_FILE'],
    [{ final_logit_softcapping: 20 }, /final_logit_softcapping is 20/],
    [{ vocab_size_per_layer_input: 300 }, /vocab_size_per_layer_input 300 is more/, 'BAD_FILE'],
  ])('is refused with %j', async (config, words, code = 'UNKNOWN_FORMAT') => {
    const changed = convertedDecoder({ ...model, config: { ...model.config, ...config } }, weights);
    await expect(changed).rejects.toMatchObject({ code, message: expect.stringMatching(words) });
  });
});

describe('rows of zeros', () => {
  const folder = [
    new File(
      [
        safetensors(
          Object.fromEntries(
            [...weights].map(([name, { shape, values }]) => [name, { dtype: 'F32', shape, data: values }]),
          ),
        ),
      ],
      'model.safetensors',
    ),
    new File(
      [JSON.stringify(decoderConfig(model.hugging, { ...model.config, num_hidden_layers: layers }))],
      'config.json',
    ),
    new File([JSON.stringify(plainTokenizer())], 'tokenizer.json'),
  ];

  const embeddings = [
    ['token_embd.weight', 'model.embed_tokens.weight'],
    ['per_layer_token_embd.weight', 'model.embed_tokens_per_layer.weight'],
  ] as const;

  // The embedding of the inputs of layers is larger than a tile, and its second tile holds zeros alone.
  it('are behind those of the folder, in a result of the planned size', async () => {
    const plan = await planModel(folder, { to: 'F32' });
    const file = await (await quantizeModel(folder, { to: 'F32', workers: 1 })).bytes();
    expect(file.length).toBe(plan.totals.bytesAfter);
    const { tensors } = await inspectModel(file);
    for (const [to, from] of embeddings) {
      const { shape, byteOffset, bytes } = tensors.find(({ name }) => name === to)!;
      const { values } = weights.get(from)!;
      const got = file.subarray(byteOffset, byteOffset! + bytes);
      expect(shape[0]).toBe(264);
      expect(Buffer.compare(got.subarray(0, values.byteLength), bytesOf(values))).toBe(0);
      expect(Buffer.compare(got.subarray(values.byteLength), new Uint8Array(bytes - values.byteLength))).toBe(0);
    }
  });

  it('are quantized as the rows before them, and left out of an estimate by samples', async () => {
    const choices = { to: 'Q8_0', workers: 0 } as const;
    const result = await quantizeModel(folder, choices);
    const sampled = await estimateModel(folder, { ...choices, sample: 4096 });
    for (const [to] of embeddings) {
      const [whole, some] = [result.report, sampled].map(
        ({ tensors }) => tensors.find(({ name }) => name === to)!.error!.sqnrDb,
      ) as [number, number];
      expect(Math.abs(whole - some)).toBeLessThan(1);
    }
    const { data } = await readFloats(await result.bytes(), 'per_layer_token_embd.weight', { workers: 0 });
    expect(data.subarray(40 * 6400).every((v) => v === 0)).toBe(true);
  });
});

describe('logits', () => {
  needNative();

  // llama.cpp looks up the GELU in a table of float16, as here, where sums in float32 may round to the other neighbor. Measured: 9.5e-4.
  it('equal a forward pass in float64', async () => {
    const file = fileOf(await convertedDecoder(model, weights), weights);
    const expected = logitsOf(weights);
    using native = new NativeModel(file);
    expect(furthest(native.logits(text), expected) / Math.max(1, largest(expected))).toBeLessThan(3e-3);
  });
});

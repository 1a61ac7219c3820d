// Gemma 4: its keys and tensors beside tables that were written by hand from llama.cpp's converter (conversion/gemma.py at 061b8c5), and its
// logits in llama.cpp beside a forward pass in float64 that knows Hugging Face's definitions only.
import { describe, expect, it } from 'vitest';
import type { Conversion } from '../../../../web/src/architectures/recipe.js';
import {
  convertedDecoder,
  type DecoderCase,
  decoderTokens,
  expectKeysAndTensors,
  type FolderJson,
} from '../../support/decoder-cases.js';
import { furthest, gated, largest, prefix, tiedOutside } from '../../support/decoder-tables.js';
import {
  add,
  bareNorm,
  tableGelu as gelu,
  mixed,
  multiply,
  Reader,
  rotate,
  scaled,
  slices,
  softmax,
  type Vector,
} from '../../support/forward.js';
import { NativeModel } from '../../support/llama-run.js';
import { needNative } from '../../support/native.js';
import { fileOf, type Weights } from '../../support/recipes.js';
import { weightsOfTable } from '../../support/tensor-table.js';
import { plainTokenizer } from '../../support/tiny-huggingface.js';

/** Layers without a window. */
const full = [1, 3, 5];
const local = [0, 2, 4];

/** The attention of some layers. */
const attention = (layers: readonly number[], head: number, keyHeads: number, hasValues: boolean) => ({
  layers,
  lines: `
    self_attn.q_proj.weight  attn_q.weight       ${4 * head}x64
    self_attn.k_proj.weight  attn_k.weight       ${keyHeads * head}x64
    ${hasValues ? `self_attn.v_proj.weight  attn_v.weight  ${keyHeads * head}x64` : ''}
    self_attn.o_proj.weight  attn_output.weight  64x${4 * head}
    self_attn.q_norm.weight  attn_q_norm.weight  ${head}
    self_attn.k_norm.weight  attn_k_norm.weight  ${head}`,
});

const norms = `
  input_layernorm.weight             attn_norm.weight           64
  post_attention_layernorm.weight    post_attention_norm.weight 64
  pre_feedforward_layernorm.weight   ffn_norm.weight            64
  post_feedforward_layernorm.weight  post_ffw_norm.weight       64
  layer_scalar                       layer_output_scale.weight  1`;

const rope: FolderJson = {
  full_attention: { rope_type: 'proportional', partial_rotary_factor: 0.25, rope_theta: 1e6 },
  sliding_attention: { rope_type: 'default', rope_theta: 10000 },
};

const config: FolderJson = {
  head_dim: 16,
  global_head_dim: 32,
  sliding_window: 4,
  final_logit_softcapping: 30,
  layer_types: Array.from({ length: 6 }, (_, i) => (full.includes(i) ? 'full_attention' : 'sliding_attention')),
  rope_parameters: rope,
  rope_theta: undefined,
  rms_norm_eps: 1e-6,
};

const keysOf = (...own: DecoderCase['keys']): DecoderCase['keys'] => own;

/** Small models: inputs for each layer, layers without keys of their own, and wider ones at the end. */
const small: DecoderCase = {
  name: 'Gemma 4 with inputs for each layer',
  hugging: 'Gemma4ForConditionalGeneration',
  architecture: 'gemma4',
  layers: 6,
  config: {
    ...config,
    num_kv_shared_layers: 2,
    use_double_wide_mlp: true,
    hidden_size_per_layer_input: 8,
    vocab_size_per_layer_input: 264,
  },
  keys: keysOf(
    ['block_count', 6],
    ['context_length', 128],
    ['embedding_length', 64],
    ['feed_forward_length', [96, 96, 96, 96, 192, 192]],
    ['attention.head_count', 4],
    ['attention.head_count_kv', 2],
    ['rope.freq_base', 1e6],
    ['rope.freq_base_swa', 10000],
    ['attention.layer_norm_rms_epsilon', 1e-6],
    ['attention.key_length', 32],
    ['attention.value_length', 32],
    ['final_logit_softcapping', 30],
    ['attention.sliding_window', 4],
    ['attention.shared_kv_layers', 2],
    ['embedding_length_per_layer_input', 8],
    ['attention.sliding_window_pattern', [true, false, true, false, true, false]],
    ['attention.key_length_swa', 16],
    ['attention.value_length_swa', 16],
    ['rope.dimension_count', 32],
    ['rope.dimension_count_swa', 16],
  ),
  table: {
    prefix,
    outside: `${tiedOutside}
      model.embed_tokens_per_layer.weight      per_layer_token_embd.weight  264x48
      model.per_layer_model_projection.weight  per_layer_model_proj.weight  48x64
      model.per_layer_projection_norm.weight   per_layer_proj_norm.weight   8`,
    layer: `${norms}
      per_layer_input_gate.weight       inp_gate.weight   8x64
      per_layer_projection.weight       proj.weight       64x8
      post_per_layer_input_norm.weight  post_norm.weight  64`,
    some: [
      attention(local, 16, 2, true),
      attention(full, 32, 2, true),
      { layers: [0, 1, 2, 3], lines: gated },
      { layers: [4, 5], lines: gated.replaceAll('96', '192') },
    ],
  },
};

/** Large models: experts beside the dense part, and keys that are values, too, without a window. */
const mixture: DecoderCase = {
  name: 'Gemma 4 with experts',
  hugging: 'Gemma4ForCausalLM',
  architecture: 'gemma4',
  layers: 6,
  config: {
    ...config,
    hidden_size_per_layer_input: 0,
    attention_k_eq_v: true,
    num_global_key_value_heads: 1,
    enable_moe_block: true,
    num_experts: 5,
    top_k_experts: 2,
    moe_intermediate_size: 48,
  },
  keys: keysOf(
    ['block_count', 6],
    ['context_length', 128],
    ['embedding_length', 64],
    ['feed_forward_length', 96],
    ['attention.head_count', 4],
    ['attention.head_count_kv', [2, 1, 2, 1, 2, 1]],
    ['rope.freq_base', 1e6],
    ['rope.freq_base_swa', 10000],
    ['attention.layer_norm_rms_epsilon', 1e-6],
    ['expert_count', 5],
    ['expert_used_count', 2],
    ['attention.key_length', 32],
    ['attention.value_length', 32],
    ['final_logit_softcapping', 30],
    ['attention.sliding_window', 4],
    ['attention.shared_kv_layers', 0],
    ['embedding_length_per_layer_input', 0],
    ['attention.sliding_window_pattern', [true, false, true, false, true, false]],
    ['attention.key_length_swa', 16],
    ['attention.value_length_swa', 16],
    ['expert_feed_forward_length', 48],
    ['rope.dimension_count', 32],
    ['rope.dimension_count_swa', 16],
  ),
  table: {
    prefix,
    outside: tiedOutside,
    layer: `${norms}
      ${gated}
      router.proj.weight                   ffn_gate_inp.weight       5x64
      router.scale                         ffn_gate_inp.scale        64
      router.per_expert_scale              ffn_down_exps.scale       5
      experts.gate_up_proj                 ffn_gate_up_exps.weight   5x96x64
      experts.down_proj                    ffn_down_exps.weight      5x64x48
      pre_feedforward_layernorm_2.weight   pre_ffw_norm_2.weight     64
      post_feedforward_layernorm_1.weight  post_ffw_norm_1.weight    64
      post_feedforward_layernorm_2.weight  post_ffw_norm_2.weight    64`,
    some: [attention(local, 16, 2, true), attention(full, 32, 1, false)],
  },
};

const epsilon = 1e-6;

const bare = (x: Vector) => bareNorm(x, epsilon);

/** A matrix of one of several experts, times a vector. */
function ofExpert(read: Reader, name: string, e: number, x: Vector): Vector {
  const { shape, values } = read.get(name);
  const [, rows, columns] = shape as [number, number, number];
  return Float64Array.from({ length: rows }, (_, r) =>
    x.reduce((sum, v, c) => sum + v * values[(e * rows + r) * columns + c]!, 0),
  );
}

/** Logits by Hugging Face's definitions. */
function logitsOf(weights: Weights, { layers = 0, config: own = {} }: DecoderCase): Vector[] {
  const read = new Reader(weights);
  const norm = (name: string, x: Vector) => read.rms(name, x, epsilon, 0);
  const width = own.hidden_size_per_layer_input as number;
  const firstShared = layers - ((own.num_kv_shared_layers as number | undefined) ?? 0);
  let states = decoderTokens.map((token) => scaled(read.row('model.embed_tokens.weight', token), Math.sqrt(64)));
  // Inputs of each layer, of the token and of its embedding.
  const inputs = states.map((state, t) => {
    if (width === 0) return [];
    const token = slices(read.row('model.embed_tokens_per_layer.weight', decoderTokens[t]!), width);
    const projected = slices(scaled(read.linear('model.per_layer_model_projection', state), 1 / 8), width);
    return projected.map((one, i) =>
      scaled(add(norm('model.per_layer_projection_norm', one), scaled(token[i]!, Math.sqrt(width))), Math.SQRT1_2),
    );
  });
  const held = new Map<boolean, { keys: Vector[][]; values: Vector[][] }>();
  for (let layer = 0; layer < layers; layer++) {
    const p = `model.layers.${layer}.`;
    const isFull = full.includes(layer);
    const head = isFull ? 32 : 16;
    // A quarter of a head turns in full attention: pairs (i, i + 16) for i < 4.
    const frequencies = Array.from({ length: head / 2 }, (_, i) =>
      isFull ? (i < 4 ? 1e6 ** ((-2 * i) / 32) : 0) : 1e4 ** ((-2 * i) / 16),
    );
    const project = (name: string, x: Vector) => slices(read.linear(`${p}self_attn.${name}_proj`, x), head);
    const turned = (name: string, heads: readonly Vector[], t: number) =>
      heads.map((one) => rotate(norm(`${p}self_attn.${name}_norm`, one), t, frequencies, 1));
    const x = states.map((state) => norm(`${p}input_layernorm`, state));
    const queries = x.map((one, t) => turned('q', project('q', one), t));
    if (layer < firstShared) {
      const hasValues = read.has(`${p}self_attn.v_proj.weight`);
      held.set(isFull, {
        keys: x.map((one, t) => turned('k', project('k', one), t)),
        values: x.map((one) => project(hasValues ? 'v' : 'k', one).map(bare)),
      });
    }
    const { keys, values } = held.get(isFull)!;
    const sees = (t: number, s: number) => s <= t && (isFull || t - s < 4);
    const all = mixed(queries, keys, values, (product, t, s) => (sees(t, s) ? product : -Infinity));
    states = states.map((state, t) => {
      const output = read.linear(`${p}self_attn.o_proj`, all[t]!);
      const attended = add(state, norm(`${p}post_attention_layernorm`, output));
      const dense = (one: Vector) =>
        read.linear(
          `${p}mlp.down_proj`,
          multiply(gelu(read.linear(`${p}mlp.gate_proj`, one)), read.linear(`${p}mlp.up_proj`, one)),
        );
      let grown = dense(norm(`${p}pre_feedforward_layernorm`, attended));
      if (read.has(`${p}router.proj.weight`)) {
        const routed = multiply(scaled(bare(attended), 1 / 8), Float64Array.from(read.get(`${p}router.scale`).values));
        const shares = softmax([...read.linear(`${p}router.proj`, routed)]);
        const chosen = shares
          .map((_, e) => e)
          .sort((a, b) => shares[b]! - shares[a]!)
          .slice(0, 2);
        const sum = chosen.reduce((all, e) => all + shares[e]!, 0);
        const into = norm(`${p}pre_feedforward_layernorm_2`, attended);
        const outputs = chosen.map((e) => {
          const both = ofExpert(read, `${p}experts.gate_up_proj`, e, into);
          const inner = multiply(gelu(both.slice(0, 48)), both.slice(48));
          const factor = (shares[e]! / sum) * read.get(`${p}router.per_expert_scale`).values[e]!;
          return scaled(ofExpert(read, `${p}experts.down_proj`, e, inner), factor);
        });
        grown = add(
          norm(`${p}post_feedforward_layernorm_1`, grown),
          norm(`${p}post_feedforward_layernorm_2`, outputs.reduce(add)),
        );
      }
      let next = add(attended, norm(`${p}post_feedforward_layernorm`, grown));
      if (width > 0) {
        const gate = gelu(read.linear(`${p}per_layer_input_gate`, next));
        const own = read.linear(`${p}per_layer_projection`, multiply(gate, inputs[t]![layer]!));
        next = add(next, norm(`${p}post_per_layer_input_norm`, own));
      }
      return scaled(next, read.get(`${p}layer_scalar`).values[0]!);
    });
  }
  return states.map((state) => {
    const last = norm('model.norm', state);
    const logits = Float64Array.from({ length: 264 }, (_, i) =>
      multiply(read.row('model.embed_tokens.weight', i), last).reduce((a, b) => a + b, 0),
    );
    return logits.map((v) => 30 * Math.tanh(v / 30));
  });
}

/** Pictures and sound become vectors by small projections, which the language model runs without. */
const unified: DecoderCase = {
  ...mixture,
  name: 'Gemma 4 Unified',
  hugging: 'Gemma4UnifiedForConditionalGeneration',
};

/** A model that drafts tokens: no layer has keys of its own. It runs beside the other model alone. */
const assistant: DecoderCase = {
  name: 'Gemma 4 Assistant',
  hugging: 'Gemma4AssistantForCausalLM',
  architecture: 'gemma4-assistant',
  layers: 6,
  config: { ...config, hidden_size_per_layer_input: 0, num_kv_shared_layers: 6, backbone_hidden_size: 96 },
  keys: [
    ...small.keys.filter(([name]) => !/feed_forward_length|shared_kv_layers|per_layer_input/.test(name)),
    ...keysOf(
      ['feed_forward_length', 96],
      ['attention.shared_kv_layers', 6],
      ['embedding_length_per_layer_input', 0],
      ['embedding_length_out', 96],
      ['nextn_predict_layers', 6],
    ),
  ],
  table: {
    prefix,
    outside: `${tiedOutside}
      pre_projection.weight   nextn.pre_projection.weight   64x192
      post_projection.weight  nextn.post_projection.weight  96x64`,
    layer: `${norms}
      ${gated}`,
    some: [attention(local, 16, 2, true), attention(full, 32, 2, true)].map(({ layers, lines }) => ({
      layers,
      lines: lines.replace(/^.*self_attn\.(k|v)_.*$/gm, ''),
    })),
  },
};

const cases = [small, mixture, unified];

describe('keys and tensors', () => {
  it.each([...cases, assistant])('$name', (one) => expectKeysAndTensors(one));

  it('names the centroids of a model that drafts, which the converter leaves out', async () => {
    const weights = weightsOfTable(assistant.table, 6);
    const whole = new Map(weights).set('masked_embedding.centroids.weight', {
      shape: [2, 64],
      values: new Float32Array(128),
    });
    const [own, other] = [await convertedDecoder(assistant, weights), await convertedDecoder(assistant, whole)];
    expect(other.tensors).toEqual(own.tensors);
    expect(other.notes).toEqual([...own.notes, expect.objectContaining({ kind: 'computedOtherwise' })]);
    for (const [more, words] of [
      [{ num_kv_shared_layers: 4 }, /num_kv_shared_layers is 4/],
      [{ backbone_hidden_size: 64 }, /backbone_hidden_size is hidden_size/],
      [{ enable_moe_block: true, num_experts: 5, top_k_experts: 2, moe_intermediate_size: 48 }, /has experts/],
    ] as const)
      await expect(
        convertedDecoder({ ...assistant, config: { ...assistant.config, ...more } }, weights),
      ).rejects.toThrow(words);
  });

  it('takes a tensor for each expert in place of stacks', async () => {
    const weights = weightsOfTable(mixture.table, 6);
    const stacked = await convertedDecoder(mixture, weights);
    const apart = new Map(
      [...weights].flatMap(([name, weight]) => {
        const [, module, part] = /^(.*\.experts)\.(gate_up|down)_proj$/.exec(name) ?? [];
        if (part === undefined) return [[name, weight] as const];
        const [experts = 0, rows = 0, columns = 0] = weight.shape;
        const names = part === 'down' ? ['down'] : ['gate', 'up'];
        const shape = [rows / names.length, columns];
        const size = shape[0]! * columns;
        return Array.from({ length: experts * names.length }, (_, i) => {
          const own = `${module}.${Math.floor(i / names.length)}.${names[i % names.length]}_proj.weight`;
          return [own, { shape, values: weight.values.slice(i * size, (i + 1) * size) }] as const;
        });
      }),
    );
    const made = await convertedDecoder(mixture, apart);
    const inOrder = ({ tensors, ...rest }: Conversion) => {
      return { ...rest, tensors: [...tensors].sort((a, b) => (a.name < b.name ? -1 : 1)) };
    };
    expect(Buffer.compare(fileOf(inOrder(made), apart), fileOf(inOrder(stacked), weights))).toBe(0);
  });

  it('names the divisors of the frequencies, and what a tokenizer of its own kind holds', async () => {
    const { tensors, keys } = await convertedDecoder(small, weightsOfTable(small.table, 6));
    const { values } = tensors.find(({ name }) => name === 'rope_freqs.weight')!;
    expect([...values!]).toEqual([...Array(4).fill(1), ...Array(12).fill(Math.fround(1e30))]);
    const tokenizer = keys.filter(({ name }) => name.startsWith('tokenizer.ggml.'));
    expect(tokenizer.map(({ name }) => name.slice('tokenizer.ggml.'.length))).toEqual([
      ...['model', 'tokens', 'scores', 'token_type', 'merges', 'add_bos_token', 'add_space_prefix'],
    ]);
    const of = (name: string) => tokenizer.find((key) => key.name.endsWith(name))!.value as readonly unknown[];
    expect(of('ggml.model')).toBe('gemma4');
    // "<unk>" is special in Gemma's class. Nothing names "<s>" and "</s>", so that they are normal, whatever tokenizer.json says.
    expect(of('.token_type').slice(0, 4)).toEqual([3, 1, 1, 6]);
    expect(new Set(of('.scores'))).toEqual(new Set([-1000]));
  });

  it('names tokens that Gemma 4 Unified never writes, and leaves its projections out', async () => {
    const weights = weightsOfTable(unified.table, 6);
    const projection = { shape: [2], values: new Float32Array(2) };
    const beside = ['model.vision_embedder.patch.weight', 'model.embed_vision.a.weight', 'model.embed_audio.a.weight'];
    const whole = new Map([...weights, ...beside.map((name) => [name, projection] as const)]);
    const generation = { 'generation_config.json': { suppress_tokens: [7, 9] } };
    const [own, other] = await Promise.all([unified, mixture].map((one) => convertedDecoder(one, whole, generation)));
    const key = (conversion: typeof own) => conversion?.keys.find(({ name }) => name.endsWith('suppress_tokens'));
    expect(key(own)).toEqual({ name: 'tokenizer.ggml.suppress_tokens', type: 'i32[]', value: [7, 9] });
    expect(key(other)).toBeUndefined();
    expect(own?.tensors).toEqual((await convertedDecoder(mixture, weights)).tensors);
  });

  it.each<[string, FolderJson, RegExp]>([
    ['another rotary embedding', { rope_parameters: { ...rope, full_attention: { rope_theta: 1e6 } } }, /proportional/],
    ['heads without the flag', { num_global_key_value_heads: 1 }, /attention_k_eq_v/],
    ['no layer with keys', { num_kv_shared_layers: 6 }, /num_kv_shared_layers 6/],
  ])('refuses %s', async (_name, more, message) => {
    const one = { ...small, config: { ...small.config, ...more } };
    await expect(convertedDecoder(one, weightsOfTable(small.table, 6))).rejects.toThrow(message);
  });
});

describe('logits', () => {
  needNative();

  it('need the other model for drafts, which llama.cpp loads', async () => {
    const weights = weightsOfTable(assistant.table, 6);
    const file = fileOf(await convertedDecoder(assistant, weights), weights);
    expect(() => new NativeModel(file)[Symbol.dispose]()).not.toThrow();
  });

  // llama.cpp looks up the GELU in a table of float16, as here, where sums in float32 may round to the other neighbor. Twice the bound of Gemma 3
  // in logits.node.test.ts, because scores of attention are not divided, and inputs of layers pass a GELU of their own. Measured: 0.0044 and
  // 0.0024; tokens without such a neighbor differ by 1e-6.
  it.each(cases)('$name equals a forward pass in float64', async (one) => {
    const weights = weightsOfTable(one.table, 6);
    const file = fileOf(await convertedDecoder(one, weights, { 'tokenizer.json': plainTokenizer() }), weights);
    const expected = logitsOf(weights, one);
    using native = new NativeModel(file);
    expect(furthest(native.logits(decoderTokens), expected) / Math.max(1, largest(expected))).toBeLessThan(6e-3);
  });
});

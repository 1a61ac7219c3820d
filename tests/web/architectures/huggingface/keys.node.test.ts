// Keys and tensors of each architecture, as a table that was written from llama.cpp's converter and not from the code under test.
import { describe, expect, it } from 'vitest';
import { convertHuggingface } from '../../../../web/src/architectures/huggingface/convert.js';
import type { Conversion } from '../../../../web/src/architectures/recipe.js';
import { byName, folderOf, type Weights } from '../../support/recipes.js';
import {
  bertWeights,
  decoderConfig,
  decoderWeights,
  nomicWeights,
  plainTokenizer,
  wordSettings,
  wordTokenizer,
} from '../../support/tiny-huggingface.js';

type Json = Record<string, unknown>;

function converted(weights: Weights, config: Json, files: Json = {}, metadata: Record<string, string> = {}) {
  const tokenizer = files['tokenizer.json'] ?? plainTokenizer();
  return convertHuggingface(
    folderOf(weights, { ...files, 'config.json': config, 'tokenizer.json': tokenizer }, { metadata }),
  );
}

/** Names and values of the keys before the tokenizer's. */
const modelKeys = ({ keys }: Conversion) =>
  keys.filter(({ name }) => !name.startsWith('tokenizer.')).map(({ name, value }) => [name, value]);

const typeOf = ({ keys }: Conversion, name: string) => keys.find((key) => key.name === name)?.type;

const find = ({ tensors }: Conversion, name: string) => tensors.find((tensor) => tensor.name === name);

const general = (architecture: string) => [
  ['general.architecture', architecture],
  ['general.type', 'model'],
  ['general.name', 'tiny'],
];

/** The keys that most decoders begin with. */
const common = (a: string, theta = 10000) => [
  [`${a}.block_count`, 3],
  [`${a}.context_length`, 128],
  [`${a}.embedding_length`, 64],
  [`${a}.feed_forward_length`, 96],
  [`${a}.attention.head_count`, 4],
  [`${a}.attention.head_count_kv`, 2],
  [`${a}.rope.freq_base`, theta],
  [`${a}.attention.layer_norm_rms_epsilon`, 1e-5],
];

const headLengths = (a: string, length: number) => [
  [`${a}.attention.key_length`, length],
  [`${a}.attention.value_length`, length],
];

describe('keys of the converter', () => {
  it('llama', async () => {
    const result = await converted(decoderWeights(), decoderConfig('LlamaForCausalLM'));
    expect(byName(modelKeys(result))).toEqual(
      byName([...general('llama'), ...common('llama'), ['llama.vocab_size', 264], ['llama.rope.dimension_count', 16]]),
    );
    // All architectures have one order.
    expect(modelKeys(result).map(([name]) => String(name).replace('llama.', ''))).toEqual([
      ...['general.architecture', 'general.type', 'general.name', 'block_count', 'context_length', 'embedding_length'],
      ...['feed_forward_length', 'vocab_size', 'attention.head_count', 'attention.head_count_kv'],
      ...['attention.layer_norm_rms_epsilon', 'rope.dimension_count', 'rope.freq_base'],
    ]);
    expect(typeOf(result, 'llama.rope.freq_base')).toBe('f32');
    expect(typeOf(result, 'llama.attention.layer_norm_rms_epsilon')).toBe('f32');
    expect(typeOf(result, 'llama.block_count')).toBe('u32');
  });

  it('llama with heads of its own length, and as many key heads as heads', async () => {
    const config = decoderConfig('MistralForCausalLM', { head_dim: 24, num_key_value_heads: null });
    const result = await converted(decoderWeights({ head: 24, keyHeads: 4 }), config);
    expect(byName(modelKeys(result).slice(3))).toEqual(
      byName([
        ...common('llama').map(([name, value]) => [name, String(name).endsWith('_kv') ? 4 : value]),
        ...headLengths('llama', 24),
        ['llama.vocab_size', 264],
        ['llama.rope.dimension_count', 24],
      ]),
    );
  });

  it('rotary scaling: linear and yarn have keys, Llama 3 has a tensor', async () => {
    const scaled = (rope_scaling: Json) =>
      converted(decoderWeights(), decoderConfig('LlamaForCausalLM', { rope_scaling }));
    const ropeKeys = (result: Conversion) =>
      modelKeys(result).filter(([name]) => String(name).includes('.rope.scaling'));
    expect(byName(ropeKeys(await scaled({ type: 'linear', factor: 2 })))).toEqual(
      byName([
        ['llama.rope.scaling.type', 'linear'],
        ['llama.rope.scaling.factor', 2],
      ]),
    );
    expect(
      byName(
        ropeKeys(
          await scaled({
            rope_type: 'yarn',
            factor: 4,
            original_max_position_embeddings: 32,
            attention_factor: 0.5,
            beta_fast: 16,
            beta_slow: 2,
          }),
        ),
      ),
    ).toEqual(
      byName([
        ['llama.rope.scaling.type', 'yarn'],
        ['llama.rope.scaling.factor', 4],
        ['llama.rope.scaling.original_context_length', 32],
        ['llama.rope.scaling.yarn_attn_factor', 0.5],
        ['llama.rope.scaling.yarn_beta_fast', 16],
        ['llama.rope.scaling.yarn_beta_slow', 2],
      ]),
    );
    const llama3 = await scaled({ rope_type: 'llama3' });
    expect(ropeKeys(llama3)).toEqual([]);
    expect(llama3.tensors[0]).toMatchObject({ name: 'rope_freqs.weight', shape: [8], sources: [], float32: true });
  });

  it('the factors of Llama 3', async () => {
    const config = decoderConfig('LlamaForCausalLM', {
      head_dim: 128,
      rope_theta: undefined,
      rope_parameters: { rope_type: 'llama3', rope_theta: 500000, factor: 8, low_freq_factor: 1, high_freq_factor: 4 },
    });
    const { tensors } = await converted(decoderWeights({ head: 128 }), config);
    const values = tensors[0]!.values!;
    const wave = (i: number) => 2 * Math.PI * 500000 ** (i / 64);
    // By hand: waves up to 2 pi 500000^(28/64) are shorter than 2048, and those from 2 pi 500000^(35/64) on are longer than 8192.
    expect([...values].filter((value) => value === 1)).toHaveLength(29);
    expect([...values].filter((value) => value === 8)).toHaveLength(29);
    expect(values).toHaveLength(64);
    values.forEach((value, i) => {
      const mixed = 1 / ((1 - (8192 / wave(i) - 1) / 3) / 8 + (8192 / wave(i) - 1) / 3);
      const expected = wave(i) < 2048 ? 1 : wave(i) > 8192 ? 8 : mixed;
      // Each of the steps is rounded to float32. A difference of numbers near 1 loses up to 4 bits.
      expect(Math.abs(value / expected - 1)).toBeLessThan(16 * 2 ** -23);
    });
  });

  it('Mixtral', async () => {
    const names = (e: number) => ['w1', 'w3', 'w2'].map((n) => `block_sparse_moe.experts.${e}.${n}`);
    const weights = decoderWeights({ experts: { count: 4, router: 'block_sparse_moe.gate', names } });
    const config = decoderConfig('MixtralForCausalLM', { num_local_experts: 4, num_experts_per_tok: 2 });
    const result = await converted(weights, config);
    expect(byName(modelKeys(result))).toEqual(
      byName([
        ...general('llama'),
        ...common('llama'),
        ['llama.expert_count', 4],
        ['llama.expert_used_count', 2],
        ['llama.vocab_size', 264],
        ['llama.rope.dimension_count', 16],
      ]),
    );
    expect(find(result, 'blk.1.ffn_gate_inp.weight')).toMatchObject({ shape: [4, 64], float32: true });
    const source = (n: string) => [0, 1, 2, 3].map((e) => `model.layers.1.block_sparse_moe.experts.${e}.${n}.weight`);
    expect(find(result, 'blk.1.ffn_gate_exps.weight')).toEqual({
      name: 'blk.1.ffn_gate_exps.weight',
      shape: [4, 96, 64],
      sources: source('w1'),
    });
    expect(find(result, 'blk.1.ffn_down_exps.weight')).toMatchObject({ shape: [4, 64, 96], sources: source('w2') });
    expect(find(result, 'blk.1.ffn_up_exps.weight')).toMatchObject({ shape: [4, 96, 64], sources: source('w3') });
  });

  it('SmolLM3', async () => {
    const result = await converted(decoderWeights(), decoderConfig('SmolLM3ForCausalLM', { rope_theta: 5e6 }));
    expect(byName(modelKeys(result))).toEqual(
      byName([
        ...general('smollm3'),
        ...common('smollm3', 5e6),
        ['smollm3.vocab_size', 264],
        ['smollm3.rope.dimension_count', 16],
      ]),
    );
    expect(find(result, 'blk.0.attn_k.weight')?.permuteHeads).toBe(2);
  });

  it('Qwen2, Qwen3 and Qwen3 with experts', async () => {
    const biases = ['q_proj', 'k_proj', 'v_proj'];
    const qwen2 = await converted(decoderWeights({ biases }), decoderConfig('Qwen2ForCausalLM'));
    expect(byName(modelKeys(qwen2))).toEqual(byName([...general('qwen2'), ...common('qwen2')]));
    const qwen3 = await converted(
      decoderWeights({ head: 128, headNorms: true }),
      decoderConfig('Qwen3ForCausalLM', { vocab_size: undefined }),
      { 'modules.json': [{ type: 'a.Pooling', path: '1' }], '1/config.json': { pooling_mode_lasttoken: true } },
    );
    expect(byName(modelKeys(qwen3))).toEqual(
      byName([...general('qwen3'), ...common('qwen3'), ...headLengths('qwen3', 128), ['qwen3.pooling_type', 3]]),
    );
    const names = (e: number) => ['gate', 'up', 'down'].map((n) => `mlp.experts.${e}.${n}_proj`);
    const moe = await converted(
      decoderWeights({ headNorms: true, experts: { count: 3, router: 'mlp.gate', names } }),
      decoderConfig('Qwen3MoeForCausalLM', {
        head_dim: 16,
        num_experts: 3,
        num_experts_per_tok: 2,
        moe_intermediate_size: 96,
        intermediate_size: 200,
        norm_topk_prob: true,
      }),
    );
    expect(byName(modelKeys(moe))).toEqual(
      byName([
        ...general('qwen3moe'),
        ...common('qwen3moe').map(([name, value]) => [name, String(name).includes('feed') ? 200 : value]),
        ['qwen3moe.expert_count', 3],
        ['qwen3moe.expert_used_count', 2],
        ...headLengths('qwen3moe', 16),
        ['qwen3moe.expert_feed_forward_length', 96],
      ]),
    );
  });

  it('Gemma 2', async () => {
    const config = decoderConfig('Gemma2ForCausalLM', { head_dim: 16, query_pre_attn_scalar: 16 });
    const result = await converted(decoderWeights({ gemma: true }), config);
    expect(byName(modelKeys(result))).toEqual(
      byName([
        ...general('gemma2'),
        ['gemma2.context_length', 128],
        ['gemma2.embedding_length', 64],
        ['gemma2.block_count', 3],
        ['gemma2.feed_forward_length', 96],
        ['gemma2.attention.head_count', 4],
        ['gemma2.attention.head_count_kv', 2],
        ['gemma2.attention.layer_norm_rms_epsilon', 1e-5],
        ...headLengths('gemma2', 16),
        ['gemma2.attn_logit_softcapping', 50],
        ['gemma2.final_logit_softcapping', 30],
        ['gemma2.attention.sliding_window', 4096],
      ]),
    );
  });

  it('Gemma 3, whose config may leave much out', async () => {
    const text = {
      hidden_size: 64,
      intermediate_size: 96,
      num_hidden_layers: 3,
      sliding_window: 1024,
      rope_local_base_freq: 10000,
      rope_scaling: { factor: 8, rope_type: 'linear' },
    };
    const weights = decoderWeights({ heads: 8, keyHeads: 4, head: 256, gemma: true, headNorms: true, tied: true });
    const named = new Map([...weights].map(([name, weight]) => [`language_model.${name}`, weight]));
    named.set('vision_tower.vision_model.embeddings.patch_embedding.weight', weights.get('model.norm.weight')!);
    named.set('multi_modal_projector.mm_input_projection_weight', weights.get('model.norm.weight')!);
    const result = await converted(named, { architectures: ['Gemma3ForConditionalGeneration'], text_config: text });
    expect(byName(modelKeys(result))).toEqual(
      byName([
        ...general('gemma3'),
        ['gemma3.block_count', 3],
        ['gemma3.context_length', 131072],
        ['gemma3.embedding_length', 64],
        ['gemma3.feed_forward_length', 96],
        ['gemma3.attention.head_count', 8],
        ['gemma3.attention.head_count_kv', 4],
        ['gemma3.rope.scaling.type', 'linear'],
        ['gemma3.rope.scaling.factor', 8],
        ['gemma3.rope.freq_base', 1e6],
        ['gemma3.rope.freq_base_swa', 10000],
        ['gemma3.attention.layer_norm_rms_epsilon', 1e-6],
        ...headLengths('gemma3', 256),
        ['gemma3.attention.sliding_window', 1024],
      ]),
    );
    expect(result.tensors).toHaveLength(named.size - 2);
    expect(find(result, 'blk.2.attn_q_norm.weight')).toEqual({
      name: 'blk.2.attn_q_norm.weight',
      shape: [256],
      sources: ['language_model.model.layers.2.self_attn.q_norm.weight'],
      add: 1,
      float32: true,
    });
  });

  it('Phi-3, with the factor of attention behind the architecture', async () => {
    const factors = (n: number) => Array.from({ length: 6 }, (_, i) => n + i);
    const config = decoderConfig('Phi3ForCausalLM', {
      max_position_embeddings: 131072,
      original_max_position_embeddings: 4096,
      partial_rotary_factor: 0.75,
      rope_scaling: { type: 'longrope', long_factor: factors(2), short_factor: factors(1) },
    });
    const result = await converted(decoderWeights({ fused: true }), config);
    expect(byName(modelKeys(result))).toEqual(
      byName([
        ['general.architecture', 'phi3'],
        // sqrt(1 + ln 32 / ln 4096) = sqrt(1 + 5/12)
        ['phi3.rope.scaling.attn_factor', expect.closeTo(Math.sqrt(17 / 12), 12)],
        ['general.type', 'model'],
        ['general.name', 'tiny'],
        ['phi3.context_length', 131072],
        ['phi3.rope.scaling.original_context_length', 4096],
        ['phi3.embedding_length', 64],
        ['phi3.feed_forward_length', 96],
        ['phi3.block_count', 3],
        ['phi3.attention.head_count', 4],
        ['phi3.attention.head_count_kv', 2],
        ['phi3.attention.layer_norm_rms_epsilon', 1e-5],
        ['phi3.rope.dimension_count', 12],
        ['phi3.rope.freq_base', 10000],
        ['phi3.attention.sliding_window', 0],
      ]),
    );
    const made = result.tensors.filter(({ values }) => values !== undefined);
    expect(made.map(({ name, values }) => [name, [...values!]])).toEqual([
      ['rope_factors_long.weight', factors(2)],
      ['rope_factors_short.weight', factors(1)],
    ]);
    expect(find(result, 'blk.0.ffn_up.weight')?.shape).toEqual([192, 64]);
    expect(find(result, 'blk.0.attn_qkv.weight')?.shape).toEqual([128, 64]);
  });

  it('BERT and Nomic', async () => {
    const bertConfig = {
      architectures: ['BertForMaskedLM'],
      hidden_size: 64,
      intermediate_size: 96,
      num_hidden_layers: 3,
      num_attention_heads: 4,
      max_position_embeddings: 128,
      layer_norm_eps: 1e-12,
      type_vocab_size: 2,
    };
    const old = (name: string) =>
      `bert.${name.replace(/(LayerNorm|_norm)\.weight$/, '$1.gamma').replace(/(LayerNorm|_norm)\.bias$/, '$1.beta')}`;
    const weights = new Map([...bertWeights(12)].map(([name, weight]) => [old(name), weight]));
    const some = weights.get('bert.embeddings.LayerNorm.gamma')!;
    for (const name of ['cls.predictions.bias', 'bert.pooler.dense.bias', 'bert.embeddings.position_ids'])
      weights.set(name, some);
    const files = { 'tokenizer.json': wordTokenizer(), 'tokenizer_config.json': wordSettings };
    const bert = await converted(weights, bertConfig, files);
    expect(byName(modelKeys(bert))).toEqual(
      byName([
        ...general('bert'),
        ['bert.block_count', 3],
        ['bert.context_length', 128],
        ['bert.embedding_length', 64],
        ['bert.feed_forward_length', 96],
        ['bert.attention.head_count', 4],
        ['bert.attention.layer_norm_epsilon', 1e-12],
        ['bert.attention.causal', false],
      ]),
    );
    expect(find(bert, 'token_embd_norm.bias')).toEqual({
      name: 'token_embd_norm.bias',
      shape: [64],
      sources: ['bert.embeddings.LayerNorm.beta'],
      float32: true,
    });
    expect(find(bert, 'position_embd.weight')).toMatchObject({ shape: [128, 64], float32: true });
    expect(find(bert, 'token_types.weight')).toMatchObject({ shape: [2, 64], float32: true });
    const nomic = await converted(
      nomicWeights(12),
      {
        architectures: ['NomicBertModel'],
        n_embd: 64,
        n_inner: 96,
        n_layer: 3,
        n_head: 4,
        n_positions: 8192,
        layer_norm_epsilon: 1e-12,
        rotary_emb_base: 1000,
        type_vocab_size: 2,
      },
      { ...files, 'modules.json': [{ type: 'b.Pooling', path: '1' }], '1/config.json': { pooling_mode: 'mean' } },
    );
    expect(byName(modelKeys(nomic))).toEqual(
      byName([
        ...general('nomic-bert'),
        ['nomic-bert.block_count', 3],
        ['nomic-bert.context_length', 2048],
        ['nomic-bert.embedding_length', 64],
        ['nomic-bert.feed_forward_length', 96],
        ['nomic-bert.attention.head_count', 4],
        ['nomic-bert.rope.freq_base', 1000],
        ['nomic-bert.attention.layer_norm_epsilon', 1e-12],
        ['nomic-bert.attention.causal', false],
        ['nomic-bert.pooling_type', 1],
      ]),
    );
  });
});

describe('tensors', () => {
  const names = (result: Conversion) => result.tensors.map(({ name, sources }) => [sources[0], name]);

  it('of a layer of Llama', async () => {
    const weights = decoderWeights({ layers: 1, biases: ['q_proj', 'gate_proj'] });
    const result = await converted(weights, decoderConfig('LlamaForCausalLM', { num_hidden_layers: 1 }));
    const layer = (name: string) => `model.layers.0.${name}`;
    expect(names(result)).toEqual([
      ['model.embed_tokens.weight', 'token_embd.weight'],
      [layer('input_layernorm.weight'), 'blk.0.attn_norm.weight'],
      [layer('post_attention_layernorm.weight'), 'blk.0.ffn_norm.weight'],
      [layer('self_attn.q_proj.weight'), 'blk.0.attn_q.weight'],
      [layer('self_attn.q_proj.bias'), 'blk.0.attn_q.bias'],
      [layer('self_attn.k_proj.weight'), 'blk.0.attn_k.weight'],
      [layer('self_attn.v_proj.weight'), 'blk.0.attn_v.weight'],
      [layer('self_attn.o_proj.weight'), 'blk.0.attn_output.weight'],
      [layer('mlp.gate_proj.weight'), 'blk.0.ffn_gate.weight'],
      [layer('mlp.gate_proj.bias'), 'blk.0.ffn_gate.bias'],
      [layer('mlp.up_proj.weight'), 'blk.0.ffn_up.weight'],
      [layer('mlp.down_proj.weight'), 'blk.0.ffn_down.weight'],
      ['model.norm.weight', 'output_norm.weight'],
      ['lm_head.weight', 'output.weight'],
    ]);
    const permuted = result.tensors.filter(({ permuteHeads }) => permuteHeads !== undefined);
    expect(permuted.map(({ name, permuteHeads }) => [name, permuteHeads])).toEqual([
      ['blk.0.attn_q.weight', 4],
      ['blk.0.attn_q.bias', 4],
      ['blk.0.attn_k.weight', 2],
    ]);
    const floats = result.tensors.filter(({ float32 }) => float32);
    expect(floats.map(({ name }) => name)).toEqual([
      'blk.0.attn_norm.weight',
      'blk.0.ffn_norm.weight',
      'blk.0.attn_q.bias',
      'blk.0.ffn_gate.bias',
      'output_norm.weight',
    ]);
  });

  it('buffers of old files are left out', async () => {
    const weights = decoderWeights();
    weights.set('model.layers.0.self_attn.rotary_emb.inv_freq', { shape: [8], values: new Float32Array(8) });
    const result = await converted(weights, decoderConfig('LlamaForCausalLM'));
    expect(result.tensors).toHaveLength(weights.size - 1);
  });

  it('a head is written though config.json says that it is the embedding', async () => {
    const config = decoderConfig('LlamaForCausalLM', { tie_word_embeddings: true });
    expect(find(await converted(decoderWeights(), config), 'output.weight')).toBeDefined();
    expect(find(await converted(decoderWeights({ tied: true }), config), 'output.weight')).toBeUndefined();
  });

  it('a head that is the only embedding is the embedding', async () => {
    const weights = decoderWeights();
    weights.delete('model.embed_tokens.weight');
    const tied = await converted(weights, decoderConfig('LlamaForCausalLM', { tie_word_embeddings: true }));
    expect(find(tied, 'token_embd.weight')?.sources).toEqual(['lm_head.weight']);
    expect(find(tied, 'output.weight')).toBeUndefined();
    const noted = await converted(
      weights,
      decoderConfig('LlamaForCausalLM'),
      {},
      {
        'model.embed_tokens.weight': 'lm_head.weight',
      },
    );
    expect(find(noted, 'token_embd.weight')?.sources).toEqual(['lm_head.weight']);
    await expect(converted(weights, decoderConfig('LlamaForCausalLM'))).rejects.toThrow('model.embed_tokens.weight');
  });

  it('the norms of Gemma get one more, and its head is left out', async () => {
    const config = decoderConfig('Gemma2ForCausalLM', { head_dim: 16, query_pre_attn_scalar: 16 });
    const result = await converted(decoderWeights({ gemma: true }), config);
    const added = result.tensors.filter(({ add }) => add === 1).map(({ name }) => name);
    const of = (i: number) =>
      ['attn_norm', 'post_attention_norm', 'ffn_norm', 'post_ffw_norm'].map((name) => `blk.${i}.${name}.weight`);
    expect(added).toEqual([...of(0), ...of(1), ...of(2), 'output_norm.weight']);
    expect(find(result, 'output.weight')).toBeUndefined();
  });

  it('the embedding of Gemma 3 is cut to the vocabulary', async () => {
    const config = decoderConfig('Gemma3ForCausalLM', { head_dim: 16, query_pre_attn_scalar: 16, sliding_window: 4 });
    const weights = decoderWeights({ gemma: true, headNorms: true, tied: true, rows: 270 });
    expect(find(await converted(weights, config), 'token_embd.weight')).toEqual({
      name: 'token_embd.weight',
      shape: [264, 64],
      sources: ['model.embed_tokens.weight'],
      windows: [[0, 264]],
    });
  });
});

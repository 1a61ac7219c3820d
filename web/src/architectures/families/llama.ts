/**
 * Llama, Mistral, Mixtral, SmolLM3 and Llama 4, and the text models of Llama's kind beside towers for pictures.
 * Reference: github.com/ggml-org/llama.cpp, conversion/llama.py at 0274f0f; llama4.py of Tippach/Franken-Llama 1774451. Tests compare with llama.cpp v0.5.0.
 */
import { show } from '../../core/show.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import {
  checkWindow,
  type Draft,
  decoderDefaults,
  type ModelClass,
  readExperts,
  siluSettings,
} from '../huggingface/reading.js';
import type { TensorTable } from '../huggingface/tensors.js';
import {
  attention,
  feedForward,
  llamaAttention,
  mixtralExperts,
  norms,
  onlyIn,
  sharedExperts,
  turnedExperts,
  withBias,
  withoutBias,
  withPrefix,
} from './rows.js';

/** Keys of Llama besides the usual ones. */
export const llamaKeys = ({ sizes }: Draft) => ({
  vocab_size: sizes.vocabulary,
  'rope.dimension_count': sizes.head,
});

/** Values of keys of Llama's first generation. */
export const llamaDefaults = decoderDefaults([4096, 11008, 32], [32], 2048);
const mistralDefaults = decoderDefaults([4096, 14336, 32], [32, 8], 131072);

/** Fails unless each fourth layer lacks a rotary embedding, as llama.cpp has it whatever the file says. */
function checkRotaries({ config, sizes: { layers } }: Draft): void {
  const list = config.get('no_rope_layers');
  if (!Array.isArray(list) || list.length === 0) return;
  if (list.length !== layers) badConfig(`no_rope_layers has ${list.length} entries for ${layers} layers`);
  const other = list.findIndex((rotates, i) => rotates !== ((i + 1) % 4 === 0 ? 0 : 1));
  if (other >= 0)
    unsupportedConfig(`no_rope_layers[${other}] is ${show(list[other])}; llama.cpp computes it otherwise`);
}

/** The table of Llama, whose feed-forward part may have biases. */
export const llamaTable: TensorTable = {
  layer: [...norms, ...llamaAttention, ...withBias(feedForward, 'optional')],
  rename: withPrefix,
};

/** Numbers of WebLLM's libraries. */
const tiedHead = { tie_word_embeddings: true };
const llama32 = { rope_scaling: 'llama3 32', ...tiedHead };

export const llama: ModelClass = {
  architecture: 'llama',
  traits: { pairs: 'neighbors' },
  classes: {
    LlamaForCausalLM: llamaDefaults,
    LLaMAForCausalLM: llamaDefaults,
    LlamaModel: llamaDefaults,
    MistralForCausalLM: { ...mistralDefaults, sliding_window: 4096 },
  },
  usesLlamaConverter: true,
  only: siluSettings,
  scaling: ['linear', 'yarn', 'llama3'],
  table: llamaTable,
  details(draft) {
    checkWindow(draft);
    return { keys: llamaKeys(draft) };
  },
  webllm: {
    LlamaForCausalLM: {
      modelType: 'llama',
      attention: 'qkv_proj',
      anyVocabulary: true,
      fixed: { hidden_act: ['silu'], attention_bias: [false], mlp_bias: [false] },
      settings: ({ based, numbers, scaling, work }) => ({
        ...based,
        tie_word_embeddings: numbers.tie_word_embeddings,
        rope_scaling: scaling,
        ...work,
        pipeline_parallel_stages: 1,
        disaggregation: false,
      }),
      libraries: [
        ['Llama-3.2-1B-Instruct', 'llama-3_1', [2048, 8192, 16], [32, 8, 64], 128256, 500000, llama32],
        ['Llama-3.2-3B-Instruct', 'llama-3_1', [3072, 8192, 28], [24, 8, 128], 128256, 500000, llama32],
        [
          'Llama-3.1-8B-Instruct',
          'llama-3_1',
          [4096, 14336, 32],
          [32, 8, 128],
          128256,
          500000,
          { rope_scaling: 'llama3 8' },
        ],
        ['Llama-3-8B-Instruct', 'llama-3', [4096, 14336, 32], [32, 8, 128], 128256, 500000],
        ['Llama-2-7b-chat-hf', 'llama-2', [4096, 11008, 32], [32, 32, 128], 32000, 10000],
        ['Llama-2-13b-chat-hf', 'llama-2', [5120, 13824, 40], [40, 40, 128], 32000, 10000, { lacks: ['mlc-q4f32_1'] }],
        ['TinyLlama-1.1B-Chat-v1.0', 'tinyllama_v1_0', [2048, 5632, 22], [32, 4, 64], 32000, 10000, { context: 2048 }],
        ['SmolLM2-1.7B-Instruct', 'chatml', [2048, 8192, 24], [32, 32, 64], 49152, 130000, tiedHead],
        ['SmolLM2-360M-Instruct', 'chatml', [960, 2560, 32], [15, 5, 64], 49152, 100000, tiedHead],
      ],
    },
    MistralForCausalLM: {
      modelType: 'mistral',
      attention: 'qkv_proj',
      anyVocabulary: true,
      sink: 4,
      fixed: { hidden_act: ['silu'], sliding_window: [null] },
      settings: ({ based, work }) => ({ ...based, sliding_window_size: -1, attention_sink_size: 4, ...work }),
      libraries: [['Mistral-7B-Instruct-v0.3', 'mistral_default', [4096, 14336, 32], [32, 8, 128], 32768, 1000000]],
    },
  },
  mlx: { llama: {}, mistral: {} },
  onnx: {
    LlamaForCausalLM: { kind: 'decoder', modelType: 'llama' },
    LlamaModel: { kind: 'decoder', modelType: 'llama' },
    MistralForCausalLM: { kind: 'decoder', modelType: 'mistral' },
  },
};

/** Llama whose tokens see those behind them, too, as embeddings of texts. */
const llamaEmbed: ModelClass = {
  ...llama,
  architecture: 'llama-embed',
  traits: undefined,
  classes: { LlamaBidirectionalModel: llamaDefaults },
  only: { ...siluSettings, use_bidirectional_attention: [true], is_causal: [false] },
  details: (draft) => ({ keys: { ...llamaKeys(draft), 'attention.causal': false } }),
  webllm: {},
  mlx: {},
  onnx: {},
};

/** The text models of SmolVLM, Idefics 3 and VideoLLaMA 3. */
const textModel: ModelClass = {
  ...llama,
  classes: {
    VLlama3ForCausalLM: llamaDefaults,
    Idefics3ForConditionalGeneration: llamaDefaults,
    SmolVLMForConditionalGeneration: llamaDefaults,
  },
  table: { ...llamaTable, rename: (name) => name.replace('text_model.', '') },
};

/** The text model of LLaVA, which may be of any family. */
const llava: ModelClass = {
  ...llama,
  classes: { LlavaForConditionalGeneration: llamaDefaults },
  details(draft) {
    const type = draft.config.get('model_type');
    if (type !== undefined && !['llama', 'mistral', 'llava'].includes(type as string))
      unsupportedConfig(`the text model of LLaVA is ${show(type)}; llama or mistral are supported`);
    return llama.details?.(draft) ?? {};
  },
};

const mixtral: ModelClass = {
  ...llama,
  classes: {
    MixtralForCausalLM: {
      ...mistralDefaults,
      rms_norm_eps: 1e-5,
      rope_theta: 1e6,
      num_local_experts: 8,
      num_experts_per_tok: 2,
    },
  },
  table: { layer: [...norms, ...llamaAttention, ...mixtralExperts] },
  details(draft) {
    checkWindow(draft);
    const { keys, sizes } = readExperts(draft.config, 'num_local_experts');
    return { keys: { ...llamaKeys(draft), ...keys }, sizes };
  },
  mlx: {
    mixtral: {
      experts: { block: 'block_sparse_moe', projections: { w1: 'gate_proj', w2: 'down_proj', w3: 'up_proj' } },
    },
  },
};

const smollm3: ModelClass = {
  ...llama,
  architecture: 'smollm3',
  traits: { pairs: 'neighbors', withoutRotary: (layer) => (layer + 1) % 4 === 0 },
  classes: {
    SmolLM3ForCausalLM: decoderDefaults([2048, 11008, 36], [16, 4], 32768, {
      rope_theta: 2e6,
      tie_word_embeddings: true,
    }),
  },
  usesLlamaConverter: undefined,
  only: { no_rope_layer_interval: [4], attention_bias: [false], mlp_bias: [false], ...siluSettings },
  table: { layer: [...norms, ...llamaAttention.map(withoutBias), ...feedForward] },
  details(draft) {
    checkRotaries(draft);
    checkWindow(draft);
    return { keys: llamaKeys(draft) };
  },
  mlx: { smollm3: {} },
  onnx: {
    SmolLM3ForCausalLM: { kind: 'decoder', modelType: 'smollm3', skipsRotary: true, switchesWindow: true },
  },
};

const llama4Defaults = decoderDefaults([5120, 8192, 48], [40, 8, 128], 131072, {
  intermediate_size_mlp: 16384,
  rms_norm_eps: 1e-5,
  rope_theta: 5e5,
  num_local_experts: 16,
  num_experts_per_tok: 1,
  interleave_moe_layer_step: 1,
});

const llama4: ModelClass = {
  mlx: {
    llama4: {
      head: 'own',
      embedding: 'language_model.model.embed_tokens',
      output: 'language_model.lm_head',
      experts: { block: 'feed_forward', stack: 'experts' },
      unused: /vision_model|multi_modal_projector/,
    },
  },
  architecture: 'llama4',
  classes: { Llama4ForCausalLM: llama4Defaults, Llama4ForConditionalGeneration: llama4Defaults },
  preTokenizers: { 'gpt-4o': 'llama4' },
  only: {
    ...siluSettings,
    attention_bias: [false],
    attention_chunk_size: [8192],
    floor_scale: [8192],
    attn_scale: [0.1],
    attn_temperature_tuning: [true, 4, 1],
    no_rope_layer_interval: [4],
  },
  decoder: ({ config }) => ({ feedForward: config.whole('intermediate_size_mlp') }),
  outward: ({ key }) => ({
    intermediate_size: key('expert_feed_forward_length'),
    use_qk_norm: key('expert_count') !== 128,
  }),
  scaling: ['llama3'],
  details(draft) {
    const { config, sizes } = draft;
    const { keys, sizes: counts } = readExperts(config, 'num_local_experts', { rows: 'intermediate_size' });
    // llama.cpp decides by the number of experts, whatever the file says.
    const normsHeads = counts.experts !== 128;
    if ((config.maybeFlag('use_qk_norm') ?? true) !== normsHeads)
      unsupportedConfig(
        `use_qk_norm is ${!normsHeads}; llama.cpp computes ${counts.experts} experts with ${normsHeads} only`,
      );
    checkRotaries(draft);
    const types = config.get('layer_types');
    const isWhole = (i: number) => (i + 1) % 4 === 0;
    if (Array.isArray(types) && types.some((type, i) => type !== (isWhole(i) ? 'full_attention' : 'chunked_attention')))
      unsupportedConfig(
        'layer_types differ from chunked_attention in three of four layers, as llama.cpp computes them',
      );
    // Each n-th layer has experts in the place of a dense part.
    const step = config.whole('interleave_moe_layer_step');
    const hasExperts = (layer: number) => (layer + 1) % step === 0;
    const list = config.get('moe_layers');
    if (Array.isArray(list) && list.length > 0) {
      const stated = new Set<unknown>(list);
      for (let i = 0; i < sizes.layers; i++)
        if (stated.has(i) !== hasExperts(i))
          unsupportedConfig(`moe_layers is ${show(list)}; llama.cpp computes experts in each layer of ${step} only`);
    }
    const dense = feedForward.map((row) => ({ ...row, from: row.from.replace('mlp', 'feed_forward') }));
    return {
      keys: { ...llamaKeys(draft), ...keys, interleave_moe_layer_step: step },
      sizes: { ...counts, sharedFeedForward: counts.expertFeedForward },
      table: {
        layer: [
          ...norms,
          ...attention,
          ...onlyIn(dense, (layer) => !hasExperts(layer)),
          ...onlyIn(
            [
              { from: 'feed_forward.router', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
              ...turnedExperts('feed_forward.experts'),
              ...sharedExperts('feed_forward.shared_expert'),
            ],
            hasExperts,
          ),
        ],
      },
    };
  },
};

export const llamaFamily: readonly ModelClass[] = [...[llama, llamaEmbed, mixtral, smollm3, llama4, textModel, llava]];

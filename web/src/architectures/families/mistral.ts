/**
 * Mistral Small 3 and 4, Ministral and Mistral Large 3, and models in Mistral's own layout: params.json in the place of config.json, other names
 * of tensors, and queries and keys in the order of llama.cpp.
 * Reference: github.com/ggml-org/llama.cpp, conversion/mistral3.py at 32e9e04; mistral.py of Tippach/Franken-Llama 1774451. Tests compare with
 * llama.cpp v0.5.0.
 */
import { show } from '../../core/show.js';
import { unsupportedConfig } from '../huggingface/errors.js';
import { isObject, type Json, member, objectMember } from '../huggingface/json.js';
import {
  checkWindow,
  type Details,
  type Draft,
  decoderDefaults,
  type ModelClass,
  readExperts,
  siluSettings,
} from '../huggingface/reading.js';
import { neededSetting, setting, wholeSetting } from '../huggingface/rope.js';
import { deepseek2, readLatent } from './deepseek.js';
import { llama, llamaKeys } from './llama.js';
import { attention, feedForward, mixtralExperts, norms } from './rows.js';

const mistral3Defaults = decoderDefaults([4096, 14336, 34], [32, 8], 262144, { rms_norm_eps: 1e-5, rope_theta: 1e6 });

/** Sizes of latent attention and of experts. */
const mistral4Defaults = {
  kv_lora_rank: 256,
  q_lora_rank: 1024,
  qk_rope_head_dim: 64,
  qk_nope_head_dim: 64,
  v_head_dim: 128,
  n_routed_experts: 128,
  n_shared_experts: 1,
  num_experts_per_tok: 4,
  moe_intermediate_size: 2048,
  routed_scaling_factor: 1,
  first_k_dense_replace: 0,
  n_group: 1,
  topk_group: 1,
  norm_topk_prob: true,
};

/** Fails for settings of latent attention that llama.cpp computes otherwise. */
function checkLatent({ config }: Draft): void {
  for (const [name, values] of Object.entries(deepseek2.only ?? {})) config.only(name, ...values);
}

/**
 * Keys by which queries grow with their position, and by which llama.cpp does not multiply all scores of attention as in DeepSeek's models: it
 * takes the square of 1 + 0.1 ln(factor) of YaRN unless a factor of attention divides by that.
 */
function scoreKeys({ rope }: Draft, hasPlainScores: boolean) {
  const beta = member(rope.settings, 'llama_4_scaling_beta');
  const factor = rope.type === 'yarn' && hasPlainScores ? neededSetting(rope, 'factor') : 1;
  return {
    'rope.scaling.attn_factor': factor > 1 ? 1 / (1 + 0.1 * Math.log(factor)) : undefined,
    ...(typeof beta === 'number' && {
      'attention.temperature_scale': beta,
      'attention.temperature_length': wholeSetting(rope, 'original_max_position_embeddings'),
    }),
  };
}

/**
 * Mistral Small 4. The converter makes files of it whose scores grow by the factor of YaRN, and whose queries do not grow with their position;
 * here both are as in transformers.
 */
function readMistral4(draft: Draft): Details {
  checkLatent(draft);
  const latent = readLatent(draft, { isMistral: true });
  return { ...latent, architecture: 'mistral4', keys: { ...latent.keys, ...scoreKeys(draft, true) } };
}

/** Mistral Small 3 and Ministral, and Mistral Small 4 beside its tower. */
const mistral3: ModelClass = {
  ...llama,
  architecture: 'mistral3',
  decoder: ({ config }) => (config.get('model_type') === 'mistral4' ? { plainHeads: true } : {}),
  classes: {
    Mistral3ForConditionalGeneration: { ...mistral4Defaults, ...mistral3Defaults },
    Ministral3ForCausalLM: mistral3Defaults,
  },
  details(draft) {
    const { config, rope } = draft;
    const type = config.get('model_type');
    if (type === 'mistral4') return readMistral4(draft);
    checkWindow(draft);
    if (type !== 'ministral3') return { keys: llamaKeys(draft) };
    if (rope.type !== 'yarn') unsupportedConfig(`${rope.where}.rope_type is ${show(rope.type)}; it has to be yarn`);
    const [multiplier, scale] = [neededSetting(rope, 'mscale_all_dim'), neededSetting(rope, 'llama_4_scaling_beta')];
    // llama.cpp derives the factor of attention from one number, and Hugging Face from two.
    if ((setting(rope, 'mscale') ?? 1) !== 1 || multiplier !== 1)
      unsupportedConfig(`${rope.where}.mscale or mscale_all_dim is not 1; llama.cpp computes Ministral with 1 only`);
    const more = { 'rope.scaling.yarn_log_multiplier': multiplier, 'attention.temperature_scale': scale };
    return { keys: { ...llamaKeys(draft), ...more } };
  },
  mlx: { ministral3: {} },
};

const mistral4: ModelClass = {
  architecture: 'mistral4',
  classes: {
    Mistral4ForCausalLM: decoderDefaults([4096, 12288, 36], [32], 1048576, mistral4Defaults),
  },
  decoder: { plainHeads: true },
  scaling: ['yarn'],
  details: readMistral4,
};

// ----------------------------------------------------------------------------------------------------------------- its own layout

/** The class of a params.json, which names none. */
const className = 'MistralParams';

/** Names of keys by those of params.json. */
const names: Readonly<Record<string, string>> = {
  dim: 'hidden_size',
  n_layers: 'num_hidden_layers',
  n_heads: 'num_attention_heads',
  n_kv_heads: 'num_key_value_heads',
  hidden_dim: 'intermediate_size',
  norm_eps: 'rms_norm_eps',
  max_seq_len: 'max_position_embeddings',
  tied_embeddings: 'tie_word_embeddings',
};

/** Names of keys of experts. */
const expertNames: Readonly<Record<string, string>> = {
  route_every_n: 'moe_layer_freq',
  expert_hidden_dim: 'moe_intermediate_size',
  num_experts: 'n_routed_experts',
  routed_scale: 'routed_scaling_factor',
  num_shared_experts: 'n_shared_experts',
  num_expert_groups: 'n_group',
  num_expert_groups_per_tok: 'topk_group',
};

const renamed = (names: Readonly<Record<string, string>>, keys: Json = {}): Json =>
  Object.fromEntries(Object.entries(keys).map(([name, value]) => [names[name] ?? name, value]));

/** A params.json as a config.json. */
export function configOfParams(params: Json): Json {
  const own = renamed(names, params);
  const experts = objectMember(params, 'moe');
  const yarn = objectMember(params, 'yarn');
  const scales = yarn?.apply_scale === true;
  const { max_position_embeddings = own.max_position_embeddings } = params;
  const beta = member(objectMember(params, 'llama_4_scaling'), 'beta');
  const scaling = yarn && {
    rope_type: 'yarn',
    factor: yarn.factor,
    beta_fast: yarn.beta,
    beta_slow: yarn.alpha,
    original_max_position_embeddings: yarn.original_max_position_embeddings,
    // Positions scale attention unless this says that the frequencies alone do. Latent attention scales its scores.
    mscale_all_dim: params.kv_lora_rank === undefined ? Number(!scales) : scales ? 1 : undefined,
    llama_4_scaling_beta: beta,
  };
  const more = experts && { ...renamed(expertNames, experts), norm_topk_prob: true, scoring_func: 'softmax' };
  return { ...own, ...more, max_position_embeddings, rope_scaling: scaling, architectures: [className] };
}

/** Names of matrices by those of the layout. */
const parts: readonly (readonly [RegExp, string])[] = [
  [/^tok_embeddings\./, 'model.embed_tokens.'],
  [/^norm\./, 'model.norm.'],
  [/^output\./, 'lm_head.'],
  [/^layers\./, 'model.layers.'],
  [/\.attention\.w([qkvo])\./, '.self_attn.$1_proj.'],
  [/\.attention_norm\./, '.input_layernorm.'],
  [/\.ffn_norm\./, '.post_attention_layernorm.'],
  [/\.attention\.wq_([ab])\./, '.self_attn.q_$1_proj.'],
  [/\.attention\.wkv_a_with_mqa\./, '.self_attn.kv_a_proj_with_mqa.'],
  [/\.attention\.wkv_b\./, '.self_attn.kv_b_proj.'],
  [/\.attention\.(q|kv)_a_norm\./, '.self_attn.$1_a_layernorm.'],
  [/\.feed_forward\.(?=gate|experts)/, '.block_sparse_moe.'],
  [/(\.\d+)\.(gate|experts|shared_experts)\./, '$1.mlp.$2.'],
  [/(\.mlp\.(?:experts\.\d+|shared_experts))\.w1\./, '$1.gate_proj.'],
  [/(\.mlp\.(?:experts\.\d+|shared_experts))\.w2\./, '$1.down_proj.'],
  [/(\.mlp\.(?:experts\.\d+|shared_experts))\.w3\./, '$1.up_proj.'],
  [/\.feed_forward\.w1\./, '.mlp.gate_proj.'],
  [/\.feed_forward\.w2\./, '.mlp.down_proj.'],
  [/\.feed_forward\.w3\./, '.mlp.up_proj.'],
];

/** Tensors of towers beside the language model. */
const towers = /^(patch_merger|pre_mm_projector_norm|mm_(streams|whisper)_embeddings)\b/;

const rename = (name: string) =>
  towers.test(name) ? undefined : parts.reduce((own, [from, to]) => own.replace(from, to), name);

const mistralParams: ModelClass = {
  architecture: 'llama',
  traits: { pairs: 'neighbors' },
  classes: {
    [className]: decoderDefaults([4096, 14336, 32], [32], 32768, { rms_norm_eps: 1e-5, rope_theta: 10000 }),
  },
  only: siluSettings,
  scaling: ['yarn'],
  table: {
    layer: [...norms, ...attention, ...feedForward],
    rename,
  },
  decoder: ({ config }) => (config.get('kv_lora_rank') === undefined ? {} : { plainHeads: true, ownKeys: true }),
  details(draft) {
    const { config, rope, sizes, isCoded } = draft;
    if (isObject(config.get('quantization')) && !isCoded)
      unsupportedConfig('params.json says that the weights are quantized; convert the model that they were made from');
    if (config.get('kv_lora_rank') !== undefined) {
      checkLatent(draft);
      const latent = readLatent(draft);
      const scaled = member(rope.settings, 'mscale_all_dim') !== undefined;
      const keys = { ...latent.keys, ...scoreKeys(draft, !scaled) };
      return { ...latent, architecture: 'deepseek2', keys, table: { layer: latent.table?.layer ?? [], rename } };
    }
    const beta = member(rope.settings, 'llama_4_scaling_beta');
    const hasExperts = isObject(config.get('moe'));
    if (hasExperts && beta !== undefined)
      unsupportedConfig(
        'params.json has experts (moe) and llama_4_scaling, but no kv_lora_rank; llama.cpp has no such model',
      );
    const experts = hasExperts ? readExperts(config, 'n_routed_experts') : undefined;
    return {
      ...(typeof beta === 'number' ? { architecture: 'mistral3' } : {}),
      ...(experts && { sizes: experts.sizes, table: { layer: [...norms, ...attention, ...mixtralExperts], rename } }),
      keys: {
        ...experts?.keys,
        'rope.dimension_count': sizes.head,
        'rope.scaling.yarn_log_multiplier':
          rope.type === 'yarn' ? (member(rope.settings, 'mscale_all_dim') as number) : undefined,
        'attention.temperature_scale': typeof beta === 'number' ? beta : undefined,
      },
    };
  },
};

export const mistralFamily: readonly ModelClass[] = [mistral3, mistral4, mistralParams];

/**
 * Decoders without experts that differ from Llama and Qwen: the keys that each reads, and the settings that llama.cpp supports for each.
 * Reference: github.com/ggml-org/llama.cpp, conversion/ gemma.py at 061b8c5, olmo.py, glm.py, phi.py, exaone.py, hunyuan.py, ernie.py 051139f,
 * granite.py 010f22d, command_r.py 00487aa, nemotron.py 003ebfc, mistral3.py 32e9e04, gptneox.py 2eb57bc, starcoder.py and falcon.py 5535795,
 * chatglm.py 32e9e04; stablelm.py of Tippach/Franken-Llama 1774451. Tests compare with llama.cpp v0.5.0.
 */
import { noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { badFolderFile, unsupported } from './errors.js';
import type { Hyper } from './hyper.js';
import { member } from './json.js';
import {
  biased,
  checkDecoder,
  checkLayers,
  decoder,
  type Model,
  never,
  type Read,
  rotatedOf,
  tiedIn,
  windowLayers,
} from './reading.js';
import { llama3Factors, ropeKeys, setting } from './rope.js';
import * as tables from './tables.js';
import * as dense from './tables-dense.js';

const file = 'config.json';

/** The parts of a model that follow from its folder alone: no tensors of its own making, tied embeddings as config.json says. */
function whole({ config, notes }: Read): Pick<Model, 'made' | 'tied' | 'notes'> {
  return { made: () => [], tied: tiedIn(config), notes };
}

/** Notes a window that llama.cpp does not apply. */
function noWindow({ config, notes }: Read, context: number): void {
  const window = config.maybeWhole('sliding_window');
  if (window === undefined || window >= context) return;
  const text = `sliding_window ${window} is not written, because llama.cpp computes this architecture without one`;
  notes.push(noteOf('noSlidingWindow', { window }, text));
}

/** Fails unless the base of the rotary embedding is the one that llama.cpp uses without a key. */
function usualBase(theta: number | undefined): void {
  if (theta !== 10000)
    unsupported(file, `rope_theta is ${show(theta)}; llama.cpp computes this architecture with 10000 only`);
}

/** Layers with a window but each fourth one. */
const threeOfFour = (layer: number) => (layer + 1) % 4 !== 0;

/** Fails for windows that are not in three of four layers, as llama.cpp has them whatever the file says. */
function checkFourth(layers: readonly boolean[]): void {
  const other = layers.findIndex((slides, i) => slides !== threeOfFour(i));
  if (other >= 0)
    unsupported(file, `layer ${other} has ${layers[other] ? 'a' : 'no'} window; llama.cpp computes it otherwise`);
}

function gemma(read: Read): Model {
  const { config, rope } = read;
  checkDecoder(read);
  // The classes of Hugging Face compute both names with the approximation by tanh.
  const act = config.get('hidden_activation') ?? config.get('hidden_act');
  if (act !== undefined && act !== 'gelu_pytorch_tanh' && act !== 'gelu')
    unsupported(file, `hidden_act is ${show(act)}; llama.cpp computes Gemma with "gelu_pytorch_tanh" only`);
  config.only('attention_bias', false);
  const { hyper, sizes } = decoder(read);
  checkLayers(read, sizes.layers, never);
  ropeKeys(rope, []);
  const { theta, ...others } = hyper;
  usualBase(theta);
  return {
    architecture: 'gemma',
    hyper: { ...others, head: sizes.head },
    sizes,
    table: dense.gemma,
    ...whole(read),
  };
}

/** Mistral Small 3 and Ministral. */
function mistral3(read: Read): Model {
  const { config, rope } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  const type = config.get('model_type');
  if (type === 'mistral4')
    unsupported(file, 'model_type is "mistral4", whose experts and latent attention are not supported');
  const { hyper, sizes } = decoder(read);
  noWindow(read, hyper.context);
  let own: Partial<Hyper> = {};
  if (type === 'ministral3') {
    if (rope.type !== 'yarn') unsupported(file, `${rope.where}.rope_type is ${show(rope.type)}; it has to be yarn`);
    own = {
      yarnLogMultiplier:
        setting(rope, 'mscale_all_dim') ?? badFolderFile(file, `${rope.where}.mscale_all_dim is missing`),
      temperatureScale:
        setting(rope, 'llama_4_scaling_beta') ?? badFolderFile(file, `${rope.where}.llama_4_scaling_beta is missing`),
    };
    // llama.cpp derives the factor of attention from one number, and Hugging Face from two.
    if ((setting(rope, 'mscale') ?? 1) !== 1 || own.yarnLogMultiplier !== 1)
      unsupported(file, `${rope.where}.mscale or mscale_all_dim is not 1; llama.cpp computes Ministral with 1 only`);
  }
  return {
    architecture: 'mistral3',
    hyper: {
      ...hyper,
      ...ropeKeys(rope, ['linear', 'yarn', 'llama3']),
      vocabulary: sizes.vocabulary,
      ropeDimensions: sizes.head,
      ...own,
    },
    sizes,
    table: biased(config, tables.llama),
    ...whole(read),
    made: () => llama3Factors(rope, config, sizes.head, hyper.theta as number),
  };
}

export function granite(read: Read): Model {
  const { config, rope } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  const { hyper, sizes } = decoder(read, { plainHeads: true });
  const head = config.maybeWhole('head_dim');
  if (head !== undefined && head !== sizes.head)
    unsupported(file, `head_dim is ${head}; llama.cpp computes Granite with hidden_size / num_attention_heads only`);
  return {
    architecture: 'granite',
    hyper: {
      ...hyper,
      ...ropeKeys(rope, ['linear', 'yarn', 'llama3']),
      vocabulary: sizes.vocabulary,
      ropeDimensions: sizes.head,
      attentionScale: config.positive('attention_multiplier', 1),
      embeddingScale: config.positive('embedding_multiplier', 1),
      residualScale: config.positive('residual_multiplier', 1),
      logitScale: config.positive('logits_scaling', 1),
    },
    sizes,
    table: biased(config, dense.graniteDense),
    ...whole(read),
    made: () => llama3Factors(rope, config, sizes.head, hyper.theta as number),
  };
}

function olmo(read: Read): Model {
  const { config, rope } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  config.only('attention_bias', false);
  const { hyper, sizes } = decoder(read, { normEpsilon: 1e-5 });
  const { normEpsilon, ...others } = hyper;
  const clamp = config.maybePositive('clip_qkv');
  return {
    architecture: 'olmo',
    hyper: {
      ...others,
      ...ropeKeys(rope, ['linear', 'yarn']),
      lateNormEpsilon: normEpsilon as number,
      ...(clamp === undefined ? {} : { clamp }),
    },
    sizes,
    table: dense.olmo,
    ...whole(read),
  };
}

/** OLMo 2 and 3. The latter has windows, whose layers have no scaling of the rotary embedding. */
function olmo2(read: Read): Model {
  const { config, rope } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  config.only('attention_bias', false);
  const { hyper, sizes } = decoder(read, { plainHeads: true });
  const window = config.maybeWhole('sliding_window');
  const layers = window === undefined ? undefined : windowLayers(read, sizes.layers, threeOfFour);
  if (layers === undefined) checkLayers(read, sizes.layers, never);
  else checkFourth(layers);
  return {
    architecture: 'olmo2',
    hyper: {
      ...hyper,
      ...ropeKeys(rope, ['linear', 'yarn']),
      ...(window === undefined || layers === undefined ? {} : { window, windowLayers: layers }),
    },
    sizes,
    table: dense.olmo2,
    ...whole(read),
  };
}

function glm4(read: Read): Model {
  const { config, rope } = read;
  config.only('hidden_act', 'silu');
  config.only('use_sliding_window', false);
  if (member(rope.settings, 'mrope_section') !== undefined)
    unsupported(file, `${rope.where}.mrope_section is set; the language models of GLM-4V are not supported`);
  const { hyper, sizes } = decoder(read);
  checkLayers(read, sizes.layers, never);
  return {
    architecture: 'glm4',
    hyper: { ...hyper, ...ropeKeys(rope, ['linear', 'yarn']), ropeDimensions: rotatedOf(read, sizes.head, 1, 0.5) },
    sizes,
    table: biased(config, dense.glm4),
    ...whole(read),
  };
}

/** ChatGLM 3 and GLM-4-9B, whose class comes with each model. */
function chatglm(read: Read): Model {
  const { config, rope } = read;
  if (config.get('position_encoding_2d') !== undefined || config.get('inner_hidden_size') !== undefined)
    unsupported(
      file,
      'the model is ChatGLM 1, whose positions have two dimensions; llama.cpp computes ChatGLM 3 and later ones',
    );
  for (const key of ['rmsnorm', 'multi_query_attention', 'post_layer_norm']) config.only(key, true);
  for (const key of ['add_bias_linear', 'apply_residual_connection_post_layernorm']) config.only(key, false);
  if (config.get('pre_seq_len') !== undefined)
    unsupported(
      file,
      `pre_seq_len is ${show(config.get('pre_seq_len'))}; llama.cpp computes no prefixes that were learned`,
    );
  ropeKeys(rope, []);
  const layers = config.maybeWhole('num_hidden_layers') ?? config.whole('num_layers');
  if (config.whole('num_layers', layers) !== layers)
    badFolderFile(file, `num_hidden_layers is ${layers} and num_layers ${show(config.get('num_layers'))}`);
  const hidden = config.whole('hidden_size');
  const heads = config.whole('num_attention_heads');
  const { hyper, sizes } = decoder(read, {
    layers,
    keyHeads: config.maybeWhole('multi_query_group_num') ?? config.whole('num_key_value_heads', heads),
    feedForward: config.maybeWhole('ffn_hidden_size') ?? config.whole('intermediate_size', 4 * hidden),
    context: config.whole('seq_length', hidden),
    rmsEpsilon: config.positive('layernorm_epsilon', 1e-5),
    theta: 10000 * config.positive('rope_ratio', 1),
    plainHeads: true,
  });
  config.only('kv_channels', sizes.head);
  const vocabulary = config.maybeWhole('padded_vocab_size') ?? sizes.vocabulary;
  const share = config.positive('partial_rotary_factor', 0.5);
  const ropeDimensions = Math.floor(config.whole('attention_dim', sizes.head) * share);
  if (ropeDimensions < 2 || ropeDimensions > sizes.head || ropeDimensions % 2 !== 0)
    badFolderFile(file, `${ropeDimensions} of ${sizes.head} elements of a head turn; they have to be pairs`);
  return {
    architecture: 'chatglm',
    hyper: { ...hyper, ropeDimensions },
    sizes: { ...sizes, vocabulary },
    table: dense.chatglm(config.maybeFlag('add_qkv_bias')),
    ...whole(read),
    tied: undefined,
  };
}

/**
 * GLM-4-9B and GLM-Edge in the names of transformers. The converter takes defaults for the context, the base and the addend of norms, which it looks
 * for under ChatGLM's names; here they are those of the folder.
 */
function glm(read: Read): Model {
  const { config, rope } = read;
  config.only('hidden_act', 'silu');
  const { hyper, sizes } = decoder(read, { plainHeads: true });
  config.only('head_dim', sizes.head);
  ropeKeys(rope, []);
  return {
    architecture: 'chatglm',
    hyper: { ...hyper, ropeDimensions: rotatedOf(read, sizes.head, 1, 0.5) },
    sizes,
    table: biased(config, dense.glm),
    ...whole(read),
  };
}

function bitnet(read: Read): Model {
  const { config, rope, notes } = read;
  checkDecoder(read);
  // The converter states no activation, and llama.cpp takes this one then.
  config.only('hidden_act', 'silu');
  config.only('attention_bias', false);
  config.only('tie_word_embeddings', true);
  const { hyper, sizes } = decoder(read, { plainHeads: true });
  ropeKeys(rope, []);
  const text =
    'BitNet rounds the inputs of its products to 8 bits, which llama.cpp does for blocks of some types only, so that logits differ from those ' +
    'of transformers';
  notes.push(noteOf('computedOtherwise', { architecture: 'bitnet' }, text));
  return {
    architecture: 'bitnet',
    hyper: { ...hyper, lateRopeType: 'linear', lateRopeFactor: 1 },
    sizes,
    table: dense.bitnet,
    ...whole(read),
  };
}

function starcoder2(read: Read): Model {
  const { config, rope } = read;
  checkDecoder(read);
  config.only('hidden_act', 'gelu_pytorch_tanh');
  config.only('use_bias', true);
  const { hyper, sizes } = decoder(read, { normEpsilon: 'norm_epsilon', plainHeads: true });
  noWindow(read, hyper.context);
  return {
    architecture: 'starcoder2',
    hyper: { ...hyper, ...ropeKeys(rope, ['linear', 'yarn']) },
    sizes,
    table: dense.starcoder2,
    ...whole(read),
  };
}

function stablelm(read: Read): Model {
  const { config, rope } = read;
  config.only('hidden_act', 'silu');
  const { hyper, sizes } = decoder(read, { normEpsilon: 'layer_norm_eps', plainHeads: true });
  ropeKeys(rope, []);
  usualBase(hyper.theta);
  const parallel = config.maybeFlag('use_parallel_residual') ?? false;
  const biases = config.maybeFlag('use_qkv_bias') ?? false;
  return {
    architecture: 'stablelm',
    hyper: { ...hyper, ropeDimensions: rotatedOf(read, sizes.head, 1, 0.25), parallel },
    sizes,
    table: dense.stablelm(parallel, biases, config.maybeFlag('qk_layernorm') ?? false),
    ...whole(read),
  };
}

/** GPT-NeoX and Pythia. */
function gptneox(read: Read): Model {
  const { config, rope } = read;
  config.only('hidden_act', 'gelu', 'gelu_new', 'gelu_fast', 'gelu_pytorch_tanh');
  config.only('attention_bias', true);
  const { hyper, sizes } = decoder(read, { normEpsilon: 'layer_norm_eps', plainHeads: true, ownKeys: true });
  ropeKeys(rope, []);
  config.only('rotary_emb_base', 10000);
  usualBase(hyper.theta);
  const share = setting(rope, 'partial_rotary_factor') ?? config.positive('rotary_pct');
  const ropeDimensions = Math.floor(share * sizes.head);
  if (share > 1 || ropeDimensions < 2 || ropeDimensions % 2 !== 0)
    badFolderFile(file, `rotary_pct ${share} turns ${ropeDimensions} elements of a head; they have to be pairs`);
  const { tied: _, ...rest } = whole(read);
  return {
    architecture: 'gptneox',
    hyper: { ...hyper, ropeDimensions, parallel: config.maybeFlag('use_parallel_residual') ?? true },
    sizes,
    table: dense.gptneox,
    ...rest,
    tied: undefined,
  };
}

/**
 * Falcon in the names of transformers, and those of the first checkpoints (RefinedWeb). The converter takes a context of 2048 and a base of 10000;
 * here they are those of the folder.
 */
function falcon(read: Read): Model {
  const { config, rope, names } = read;
  if (config.maybeFlag('alibi') === true)
    unsupported(file, 'alibi is true; llama.cpp computes Falcon with a rotary embedding only');
  config.only('parallel_attn', true);
  config.only('bias', false);
  config.only('activation', 'gelu');
  config.only('apply_residual_connection_post_layernorm', false);
  ropeKeys(rope, []);
  const heads = config.maybeWhole('num_attention_heads') ?? config.whole('n_head');
  const stated = config.maybeWhole('num_kv_heads') ?? config.maybeWhole('n_head_kv');
  // The first checkpoints say so by their type.
  const isNew = config.maybeFlag('new_decoder_architecture') ?? config.get('model_type') === 'RefinedWeb';
  const hidden = config.maybeWhole('hidden_size') ?? config.whole('n_embed');
  const { hyper, sizes } = decoder(read, {
    layers: config.maybeWhole('num_hidden_layers') ?? config.whole('n_layer'),
    hidden,
    heads,
    keyHeads: isNew ? (stated ?? heads) : config.maybeFlag('multi_query') === false ? heads : 1,
    feedForward: 4 * hidden,
    normEpsilon: 'layer_norm_epsilon',
    plainHeads: true,
  });
  config.only('ffn_hidden_size', sizes.feedForward);
  const { theta, ...others } = hyper;
  return {
    architecture: 'falcon',
    hyper: { ...others, ...(theta === 10000 ? {} : { theta: theta as number }), layout: 'jploski' },
    sizes,
    table: dense.falcon(
      names.some((name) => name.endsWith('.ln_attn.weight')),
      sizes.keyHeads,
    ),
    ...whole(read),
  };
}

function phi2(read: Read): Model {
  const { config, rope } = read;
  config.only('hidden_act', 'gelu_new', 'gelu_pytorch_tanh');
  config.only('qk_layernorm', false);
  const { hyper, sizes } = decoder(read, { normEpsilon: 'layer_norm_eps', plainHeads: true });
  ropeKeys(rope, []);
  usualBase(hyper.theta);
  if (sizes.keyHeads !== sizes.heads || sizes.feedForward !== 4 * sizes.hidden)
    unsupported(
      file,
      `num_key_value_heads is ${sizes.keyHeads} and intermediate_size ${sizes.feedForward}; llama.cpp computes Phi-2 with ` +
        `${sizes.heads} and ${4 * sizes.hidden} only`,
    );
  return {
    architecture: 'phi2',
    hyper: { ...hyper, ropeDimensions: rotatedOf(read, sizes.hidden, sizes.heads) },
    sizes,
    table: dense.phi2,
    ...whole(read),
    // llama.cpp needs the bias of the head, which checkpoints without it do not add.
    made: () => {
      if (read.names.some((name) => name.endsWith('lm_head.bias'))) return [];
      return [
        { name: 'output.bias', shape: [sizes.vocabulary], sources: [], values: new Float32Array(sizes.vocabulary) },
      ];
    },
  };
}

/** Command R and Aya. */
function commandR(read: Read): Model {
  const { config, rope } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  config.only('attention_bias', false);
  const { hyper, sizes } = decoder(read, { normEpsilon: 'layer_norm_eps', plainHeads: true });
  ropeKeys(rope, []);
  // llama.cpp expects norms of queries and keys in the largest model, Command R+, whatever the file says.
  const headNorms = config.maybeFlag('use_qk_norm') ?? false;
  if (headNorms !== sizes.layers >= 64)
    unsupported(file, `use_qk_norm is ${headNorms}; llama.cpp computes ${sizes.layers} layers with ${!headNorms} only`);
  return {
    architecture: 'command-r',
    hyper: {
      ...hyper,
      context: config.maybeWhole('model_max_length') ?? hyper.context,
      logitScale: config.positive('logit_scale'),
      lateRopeType: 'none',
    },
    sizes,
    table: dense.commandR(headNorms),
    ...whole(read),
  };
}

function cohere2(read: Read): Model {
  const { config, rope } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  config.only('attention_bias', false);
  config.only('sliding_window_pattern', 4);
  const { hyper, sizes } = decoder(read, { normEpsilon: 'layer_norm_eps' });
  checkFourth(windowLayers(read, sizes.layers, threeOfFour));
  ropeKeys(rope, []);
  const ropeDimensions = Math.floor(config.positive('rotary_pct', 1) * Math.floor(sizes.hidden / sizes.heads));
  if (ropeDimensions !== sizes.head)
    unsupported(file, `${ropeDimensions} of ${sizes.head} elements of a head turn; llama.cpp turns all of them`);
  return {
    architecture: 'cohere2',
    hyper: {
      ...hyper,
      logitScale: config.positive('logit_scale'),
      window: config.whole('sliding_window'),
      vocabulary: sizes.vocabulary,
      ropeDimensions,
      lateRopeType: 'none',
    },
    sizes,
    table: dense.cohere2,
    ...whole(read),
  };
}

/** Layers of EXAONE 4 with a window: by name, by letters such as LLLG, or all but each n-th. */
function exaoneLayers(read: Read, layers: number): boolean[] {
  const pattern = read.config.get('sliding_window_pattern');
  if (typeof pattern === 'string' && pattern.length > 0)
    return windowLayers(read, layers, (i) => pattern[i % pattern.length] === 'L');
  if (pattern === undefined || (typeof pattern === 'number' && Number.isInteger(pattern) && pattern > 0))
    return windowLayers(read, layers, (i) => (i + 1) % ((pattern as number | undefined) ?? 4) !== 0);
  return badFolderFile(file, `sliding_window_pattern has to be letters or a whole number, got ${show(pattern)}`);
}

function exaone4(read: Read): Model {
  const { config, rope } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  const { hyper, sizes } = decoder(read);
  const window = config.maybeWhole('sliding_window');
  const layers = window === undefined ? undefined : exaoneLayers(read, sizes.layers);
  if (layers === undefined) checkLayers(read, sizes.layers, never);
  else checkFourth(layers);
  // llama.cpp decides by the number of layers, whatever the file says.
  const slides = sizes.layers === 64;
  if ((window !== undefined) !== slides)
    unsupported(
      file,
      `sliding_window is ${show(window)}; llama.cpp computes ${sizes.layers} layers ${slides ? 'with' : 'without'} one`,
    );
  return {
    architecture: 'exaone4',
    hyper: {
      ...hyper,
      ...ropeKeys(rope, ['linear', 'yarn', 'llama3']),
      vocabulary: sizes.vocabulary,
      ...(window === undefined || layers === undefined ? {} : { window, windowLayers: layers }),
    },
    sizes,
    table: dense.exaone4,
    ...whole(read),
    made: () => llama3Factors(rope, config, sizes.head, hyper.theta as number, 16),
  };
}

/** Context of models whose rotary base is scaled by alpha. Their config.json has another. */
const hunyuanContext = 256 * 1024;

function hunyuanDense(read: Read): Model {
  const { config, rope } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  config.only('use_qk_norm', true);
  config.only('use_cla', false);
  if ((config.maybeWhole('num_experts') ?? 1) > 1)
    unsupported(file, 'num_experts is more than 1; Hunyuan models with experts are not supported');
  const { hyper, sizes } = decoder(read);
  let own: Partial<Hyper>;
  if (rope.type === 'dynamic' || rope.type === 'xdrope') {
    const [alpha, base] = [setting(rope, 'alpha') ?? 50, hyper.theta as number];
    own = {
      theta: base * alpha ** (sizes.head / (sizes.head - 2)),
      lateRopeType: 'none',
      lateRopeFactor: 1,
    };
    if (rope.type === 'dynamic') {
      if (base !== 10000 || (hyper.context !== hunyuanContext && hyper.context !== hunyuanContext / 8))
        unsupported(
          file,
          `rope_theta is ${base} and max_position_embeddings ${hyper.context}; known are 10000 with ${hunyuanContext / 8} or ${hunyuanContext}`,
        );
      own = { ...own, lateRopeContext: hunyuanContext, context: hunyuanContext };
    }
  } else own = ropeKeys(rope, ['linear', 'yarn']);
  return {
    architecture: 'hunyuan-dense',
    hyper: { ...hyper, ...own },
    sizes,
    table: biased(config, dense.hunyuan(tiedIn(config) === true)),
    ...whole(read),
  };
}

function ernie(read: Read): Model {
  const { config, rope } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  const { hyper, sizes } = decoder(read);
  return {
    architecture: 'ernie4_5',
    hyper: { ...hyper, ...ropeKeys(rope, ['linear', 'yarn']) },
    sizes,
    table: dense.ernie(read.names.some((name) => name.endsWith('.qkv_proj.weight'))),
    ...whole(read),
  };
}

function nemotron(read: Read): Model {
  const { config, rope } = read;
  config.only('hidden_act', 'relu2');
  const { hyper, sizes } = decoder(read, { normEpsilon: 'norm_eps' });
  const { normEpsilon, ...others } = hyper;
  ropeKeys(rope, ['linear']);
  const factor = config.maybePositive('factor') ?? setting(rope, 'factor');
  return {
    architecture: 'nemotron',
    hyper: {
      ...others,
      // The converter takes the same number for norms of two kinds.
      rmsEpsilon: normEpsilon as number,
      lateNormEpsilon: normEpsilon as number,
      vocabulary: sizes.vocabulary,
      ropeDimensions: rotatedOf(read, sizes.hidden, sizes.heads, 0.5),
      ...(factor === undefined ? { lateRopeType: 'none' } : { lateRopeType: 'linear', lateRopeFactor: factor }),
    },
    sizes,
    table: biased(config, dense.nemotron),
    ...whole(read),
  };
}

function seedOss(read: Read): Model {
  const { config, rope } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  config.only('mlp_bias', false);
  const { hyper, sizes } = decoder(read);
  return {
    architecture: 'seed_oss',
    hyper: { ...hyper, ...ropeKeys(rope, ['linear', 'yarn']) },
    sizes,
    table: dense.seedOss,
    ...whole(read),
  };
}

/** Rows of LFM2's feed-forward part: two thirds of what the file states, rounded up to a multiple. */
function lfmFeedForward({ config }: Read): number {
  const stated = config.maybeWhole('block_ff_dim') ?? config.whole('intermediate_size');
  if (config.maybeFlag('block_auto_adjust_ff_dim') === false) return stated;
  const unit = config.whole('block_multiple_of', 256);
  const rows = Math.floor(Math.floor((2 * stated) / 3) * config.positive('block_ffn_dim_multiplier', 1));
  return unit * Math.ceil(rows / unit);
}

/** LFM2, whose layers have attention or a short convolution. */
function lfm2(read: Read): Model {
  const { config, rope } = read;
  checkDecoder(read);
  config.only('conv_bias', false);
  const { hyper, sizes } = decoder(read, { rmsEpsilon: 'norm_eps', feedForward: lfmFeedForward(read) });
  const { keyHeads: _, ...others } = hyper;
  const types = config.get('layer_types');
  if (!Array.isArray(types) || types.length !== sizes.layers)
    return badFolderFile(file, `layer_types has to be an array of ${sizes.layers} names, got ${show(types)}`);
  const other = (types as unknown[]).find((type) => type !== 'conv' && type !== 'full_attention');
  if (other !== undefined)
    unsupported(file, `layer_types has ${show(other)}; llama.cpp computes "conv" and "full_attention" only`);
  const convolves = (layer: number) => types[layer] === 'conv';
  const convolved = config.whole('conv_L_cache');
  return {
    architecture: 'lfm2',
    hyper: {
      ...others,
      ...ropeKeys(rope, ['linear', 'yarn']),
      layerKeyHeads: types.map((_type, layer) => (convolves(layer) ? 0 : sizes.keyHeads)),
      vocabulary: sizes.vocabulary,
      convolved,
    },
    sizes: { ...sizes, convolved, threeHidden: 3 * sizes.hidden },
    table: dense.lfm2(convolves),
    ...whole(read),
  };
}

/** Readers by the name that config.json has under `architectures`. */
export const denseReaders: Readonly<Record<string, (read: Read) => Model>> = {
  GemmaForCausalLM: gemma,
  Mistral3ForConditionalGeneration: mistral3,
  Ministral3ForCausalLM: mistral3,
  GraniteForCausalLM: granite,
  OlmoForCausalLM: olmo,
  Olmo2ForCausalLM: olmo2,
  Olmo3ForCausalLM: olmo2,
  Glm4ForCausalLM: glm4,
  GlmForCausalLM: glm,
  ChatGLMModel: chatglm,
  ChatGLMForConditionalGeneration: chatglm,
  BitnetForCausalLM: bitnet,
  BitNetForCausalLM: bitnet,
  Starcoder2ForCausalLM: starcoder2,
  StableLmForCausalLM: stablelm,
  GPTNeoXForCausalLM: gptneox,
  FalconForCausalLM: falcon,
  RWForCausalLM: falcon,
  PhiForCausalLM: phi2,
  CohereForCausalLM: commandR,
  Cohere2ForCausalLM: cohere2,
  Exaone4ForCausalLM: exaone4,
  HunYuanDenseV1ForCausalLM: hunyuanDense,
  Ernie4_5ForCausalLM: ernie,
  Ernie4_5_ForCausalLM: ernie,
  NemotronForCausalLM: nemotron,
  SeedOssForCausalLM: seedOss,
  Lfm2ForCausalLM: lfm2,
};

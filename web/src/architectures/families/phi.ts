/**
 * Phi-2, Phi-3 and Phi with experts.
 * Reference: github.com/ggml-org/llama.cpp, conversion/phi.py at 051139f. Tests compare with llama.cpp v0.5.0.
 */
import { show } from '../../core/show.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import {
  type Draft,
  decoderDefaults,
  type ModelClass,
  never,
  noteOtherwise,
  readExperts,
  rotatedOf,
} from '../huggingface/reading.js';
import { longFactors, setting, wholeSetting } from '../huggingface/rope.js';
import type { Row } from '../huggingface/tensors.js';
import { attention, embedding, finalNorm, head, joinedFeedForward, mixtralExperts, norms, withBias } from './rows.js';

const phi2: ModelClass = {
  architecture: 'phi2',
  traits: { pairs: 'halves', isCentered: true, isParallel: true, gate: 'geluTanh' },
  classes: {
    PhiForCausalLM: decoderDefaults([2048, 8192, 24], [32], 2048, { layer_norm_eps: 1e-5, partial_rotary_factor: 0.5 }),
  },
  preTokenizers: { 'gpt-2': 'phi-2' },
  adds: { bos: false },
  only: { hidden_act: ['gelu_new', 'gelu_pytorch_tanh'], qk_layernorm: [false] },
  decoder: { normEpsilon: 'layer_norm_eps', plainHeads: true },
  scaling: [],
  theta: 'usual',
  table: {
    outside: [
      embedding,
      { from: 'model.final_layernorm', to: 'output_norm', shape: ['hidden'], bias: 'always' },
      { from: 'lm_head', to: 'output', shape: ['vocabulary', 'hidden'], bias: 'optional' },
    ],
    layer: withBias([
      ...norms.slice(0, 1),
      ...attention.slice(0, 3),
      { from: 'self_attn.dense', to: 'attn_output', shape: ['hidden', 'queries'] },
      { from: 'mlp.fc1', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
      { from: 'mlp.fc2', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
    ]),
  },
  details(draft) {
    const { heads, keyHeads, hidden, feedForward, vocabulary } = draft.sizes;
    if (keyHeads !== heads || feedForward !== 4 * hidden)
      unsupportedConfig(
        `num_key_value_heads is ${keyHeads} and intermediate_size ${feedForward}; llama.cpp computes Phi-2 with ` +
          `${heads} and ${4 * hidden} only`,
      );
    // llama.cpp needs the bias of the head, which checkpoints without it do not add.
    const hasBias = draft.names.some((name) => name.endsWith('lm_head.bias'));
    const bias = { name: 'output.bias', shape: [vocabulary], sources: [] };
    return {
      keys: { 'rope.dimension_count': rotatedOf(draft, undefined, [hidden, heads]) },
      made: () => (hasBias ? [] : [{ ...bias, values: new Float32Array(vocabulary) }]),
    };
  },
  mlx: { phi: { head: 'own' } },
};

/** Keys of Phi-3, and the factors of long contexts. */
function readPhi3({ config, rope, sizes }: Draft) {
  if (rope.type !== undefined && !['su', 'longrope', 'yarn'].includes(rope.type))
    unsupportedConfig(`${rope.where}.type is ${show(rope.type)}; Phi-3 has su, longrope or yarn`);
  const original =
    wholeSetting(rope, 'original_max_position_embeddings') ?? config.whole('original_max_position_embeddings');
  const rotated = setting(rope, 'partial_rotary_factor') ?? config.positive('partial_rotary_factor', 1);
  if (original < 2 || rotated > 1)
    badConfig(`original_max_position_embeddings is ${original} and partial_rotary_factor ${rotated}`);
  const dimensions = Math.floor(Math.floor(rotated * sizes.hidden) / sizes.heads);
  const { tensors, attentionFactor } = longFactors(rope, dimensions, sizes.positions ?? 0, original);
  return {
    keys: {
      'rope.scaling.attn_factor': attentionFactor,
      'rope.scaling.original_context_length': original,
      'rope.dimension_count': dimensions,
      'attention.sliding_window': config.maybeWhole('sliding_window') ?? 0,
    },
    made: () => tensors,
  };
}

const phi3Defaults = decoderDefaults([3072, 8192, 32], [32], 4096, {
  original_max_position_embeddings: 4096,
  rms_norm_eps: 1e-5,
});

const phi3: ModelClass = {
  architecture: 'phi3',
  traits: { pairs: 'halves', slides: () => true },
  classes: {
    Phi3ForCausalLM: phi3Defaults,
    // The language model of Phi-4 with vision.
    Phi4ForCausalLMV: phi3Defaults,
  },
  only: { hidden_act: ['silu'], attention_bias: [false] },
  slides: never,
  lacks: ['attention.key_length', 'attention.value_length'],
  table: {
    layer: [
      ...norms,
      { from: 'self_attn.qkv_proj', to: 'attn_qkv', shape: ['together', 'hidden'] },
      { from: 'self_attn.o_proj', to: 'attn_output', shape: ['hidden', 'queries'] },
      ...joinedFeedForward,
    ],
  },
  details: readPhi3,
  // Numbers of the libraries are those of the config.json of microsoft/Phi-3-mini-4k-instruct, with the defaults of Phi3Config in MLC-LLM.
  webllm: {
    Phi3ForCausalLM: {
      modelType: 'phi3',
      attention: 'qkv_proj',
      isJoined: true,
      renamed: [
        [/^model\.embed_tokens$/, 'transformer.embd'],
        [/^model\.norm$/, 'transformer.norm'],
        [/^model\.layers\./, 'transformer.h.'],
        [/\.input_layernorm$/, '.ln'],
        [/\.self_attn\.o_proj$/, '.mixer.out_proj'],
        [/\.self_attn\./, '.mixer.'],
      ],
      fixed: { hidden_act: ['silu'], attention_bias: [false], partial_rotary_factor: [1] },
      settings: ({ based, numbers, scaling, stated, work }) => ({
        model_type: 'phi3',
        ...based,
        tie_word_embeddings: numbers.tie_word_embeddings,
        rope_scaling: scaling,
        ...stated('max_position_embeddings', 'original_max_position_embeddings'),
        partial_rotary_factor: 1,
        ...work,
      }),
      libraries: [
        ['Phi-3-mini-4k-instruct', 'phi-3', [3072, 8192, 32], [32, 32, 96], 32064, 10000],
        ['Phi-3.5-mini-instruct', 'phi-3', [3072, 8192, 32], [32, 32, 96], 32064, 10000, { rope_scaling: 'longrope' }],
      ],
    },
  },
  mlx: { phi3: {} },
  onnx: { Phi3ForCausalLM: { kind: 'decoder', modelType: 'phi3', isFused: true, scaling: ['longrope'] } },
};

/** A head that must not be missing. */
const { optional: _optional, ...neededHead }: Row = head;

/** Phi with experts, all of whose norms and products of attention have biases, and the head, too. */
const phimoe: ModelClass = {
  ...phi3,
  architecture: 'phimoe',
  traits: { pairs: 'halves' },
  classes: {
    PhiMoEForCausalLM: decoderDefaults([4096, 6400, 32], [32, 8], 131072, {
      rms_norm_eps: 1e-5,
      rope_theta: 1e6,
      num_local_experts: 16,
      num_experts_per_tok: 2,
      attention_bias: false,
      lm_head_bias: false,
    }),
  },
  only: { lm_head_bias: [true], hidden_act: ['silu'], attention_bias: [true] },
  table: {
    outside: [embedding, { ...finalNorm, bias: 'always' }, { ...neededHead, bias: 'always' }],
    layer: [...withBias([...norms, ...attention]), ...mixtralExperts],
  },
  details(draft) {
    const { keys, made } = readPhi3(draft);
    const { keys: counts, sizes } = readExperts(draft.config, 'num_local_experts');
    const text =
      'llama.cpp does not subtract the mean in the norms of this architecture, makes the shares of its experts by one softmax, and derives ' +
      'the factor of long contexts, so that its logits differ from those of transformers';
    noteOtherwise(draft, 'phimoe', text);
    return { keys: { ...keys, ...counts }, sizes, made };
  },
};

export const phiFamily: readonly ModelClass[] = [phi2, phi3, phimoe];

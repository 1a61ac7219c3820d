// The language models beside vision towers: keys and tensors beside tables that were written by hand from llama.cpp's converter
// (conversion/qwenvl.py of Tippach/Franken-Llama 1774451, qwen3vl.py at 06e514f and llama.py at 0274f0f of ggml-org/llama.cpp), and logits in
// llama.cpp. The positions of texts are those of a plain rotary embedding.
import { describe, expect, it } from 'vitest';
import { convertHuggingface } from '../../../../web/src/architectures/huggingface/convert.js';
import { convertedDecoder, type DecoderCase, testDecoders, testRefusals } from '../../support/decoder-cases.js';
import {
  attention,
  biases,
  common,
  gated,
  headNorms,
  type Keys,
  norms,
  outside,
  permuted,
  prefix,
} from '../../support/decoder-tables.js';
import { add, multiply, silu, softmax, turnedOf } from '../../support/forward.js';
import { folderOf, type Weights } from '../../support/recipes.js';
import { weightsOfTable } from '../../support/tensor-table.js';
import { decoderConfig, plainTokenizer } from '../../support/tiny-huggingface.js';

const sections = { rope_scaling: { type: 'mrope', mrope_section: [2, 3, 3] } };
/** Keys of decoders whose positions have three coordinates. @param pairs those of a head that turn by each */
const rotated = (pairs: readonly number[], more: Keys = []): Keys => [
  ...common([]).slice(0, -1),
  ['rope.dimension_sections', pairs],
  ['rope.freq_base', 10000],
  ['attention.layer_norm_rms_epsilon', 1e-5],
  ...more,
];
const heads: Keys = [
  ['attention.key_length', 16],
  ['attention.value_length', 16],
];

const qwen2vl: DecoderCase = {
  name: 'Qwen2-VL',
  hugging: 'Qwen2VLForConditionalGeneration',
  architecture: 'qwen2vl',
  config: sections,
  keys: rotated([2, 3, 3, 0]),
  table: { prefix, outside, layer: norms + attention + biases + gated },
  // llama.cpp v0.5.0 does not read the addend of the norms for this architecture (src/models/qwen2vl.cpp ends in a lost fall-through).
  model: { headName: 'lm_head.weight', epsilon: 0 },
};

/** llama.cpp turns pairs that lie beyond three times these by nothing, so that a text is exact only with sections that reach over all. */
const interleaved = [3, 3, 2, 0];

const qwen3vl: DecoderCase = {
  name: 'Qwen3-VL',
  hugging: 'Qwen3VLForConditionalGeneration',
  architecture: 'qwen3vl',
  config: {
    head_dim: 16,
    rope_scaling: { rope_type: 'default', mrope_section: [3, 3, 2], mrope_interleaved: true },
    vision_config: { deepstack_visual_indexes: [0, 2] },
  },
  keys: [...rotated(interleaved, heads), ['n_deepstack_layers', 2]],
  table: { prefix, outside, layer: norms + attention + headNorms + gated },
  model: { headName: 'lm_head.weight' },
};

const qwen3vlmoe: DecoderCase = {
  ...qwen3vl,
  name: 'Qwen3-VL with experts',
  hugging: 'Qwen3VLMoeForConditionalGeneration',
  architecture: 'qwen3vlmoe',
  config: {
    ...qwen3vl.config,
    num_experts: 5,
    num_experts_per_tok: 2,
    moe_intermediate_size: 48,
    norm_topk_prob: true,
  },
  keys: [
    ...rotated(interleaved, [['expert_count', 5], ['expert_used_count', 2], ...heads]),
    ['expert_feed_forward_length', 48],
    ['n_deepstack_layers', 2],
  ],
  table: {
    prefix,
    outside,
    layer: `${norms}${attention}${headNorms}
      mlp.gate.weight           ffn_gate_inp.weight   5x64
      mlp.experts.gate_up_proj  ffn_gate_exps.weight  5x64x96  np=5x64x96[:,:,0:48]T   as=5x48x64
      mlp.experts.gate_up_proj  ffn_up_exps.weight    5x64x96  np=5x64x96[:,:,48:96]T  as=5x48x64
      mlp.experts.down_proj     ffn_down_exps.weight  5x48x64  np=5x48x64T             as=5x64x48`,
  },
  model: {
    headName: 'lm_head.weight',
    grow(read, p, x) {
      const scores = [...read.linear(`${p}mlp.gate`, x)];
      const best = [...scores.keys()].sort((a, b) => scores[b]! - scores[a]!).slice(0, 2);
      const shares = softmax(best.map((e) => scores[e]!));
      const experts = best.map((e, i) => {
        const name = `${p}mlp.experts.gate_up_proj`;
        const inner = multiply(silu(turnedOf(read, name, e, x, 0, 1, 48)), turnedOf(read, name, e, x, 48, 1, 48));
        return turnedOf(read, `${p}mlp.experts.down_proj`, e, inner).map((v) => v * shares[i]!);
      });
      return experts.reduce(add);
    },
  },
};

/** SmolVLM and LLaVA have the layers of Llama. */
const llama: DecoderCase = {
  name: 'LLaVA',
  hugging: 'LlavaForConditionalGeneration',
  architecture: 'llama',
  keys: [...common(), ['vocab_size', 264], ['rope.dimension_count', 16]],
  table: { prefix, outside, layer: norms + permuted + gated },
  model: { headName: 'lm_head.weight' },
};

const cases: readonly DecoderCase[] = [
  qwen2vl,
  { ...qwen2vl, name: 'Qwen2.5-VL', hugging: 'Qwen2_5_VLForConditionalGeneration' },
  qwen3vl,
  qwen3vlmoe,
  { ...llama, name: 'SmolVLM', hugging: 'SmolVLMForConditionalGeneration' },
  llama,
];

testDecoders(cases);

testRefusals(cases, [
  ['Qwen2-VL', { rope_scaling: { type: 'mrope' } }, /mrope_section has to be up to 4 whole numbers/, 'BAD_FILE'],
  ['Qwen2-VL', { rope_scaling: { type: 'mrope', mrope_section: [4, 4, 4] } }, /turns more than 16/, 'BAD_FILE'],
  ['Qwen2-VL', { rope_scaling: { type: 'dynamic', mrope_section: [2, 3, 3] } }, /"dynamic"/],
  ['Qwen2-VL', { hidden_act: 'gelu' }, /hidden_act is "gelu"/],
  ['Qwen3-VL', { attention_bias: true }, /attention_bias is true/],
  ['Qwen3-VL with experts', { mlp_only_layers: [1] }, /mlp_only_layers/],
  ['Qwen3-VL with experts', { num_experts: 2 ** 30 }, /has the shape|too few/, 'BAD_FILE'],
  ['LLaVA', { text_config: { model_type: 'qwen2' } }, /the text model of LLaVA is "qwen2"/],
]);

describe('names and notes', () => {
  const tower = { shape: [4], values: Float32Array.of(1, 2, 3, 4) };
  const named = (weights: Weights, change: (name: string) => string, ...towers: string[]): Weights =>
    new Map([
      ...[...weights].map(([name, weight]) => [change(name), weight] as const),
      ...towers.map((n) => [n, tower] as const),
    ]);

  it.each([
    ['LLaVA', (name: string) => `language_model.${name}`, 'vision_tower.vision_model.x', 'clip_vision_model'],
    [
      'LLaVA',
      (name: string) => name.replace('model.', 'model.language_model.'),
      'model.vision_tower.x',
      'clip_vision_model',
    ],
    ['SmolVLM', (name: string) => name.replace('model.', 'model.text_model.'), 'model.connector.x', 'smolvlm_vision'],
    ['Qwen3-VL', (name: string) => name.replace('model.', 'model.language_model.'), 'model.visual.x', 'qwen3_vl'],
  ])('of %s under the names of its folders', async (name, change, towerName, type) => {
    const one = cases.find((known) => known.name === name) as DecoderCase;
    const weights = weightsOfTable(one.table, 3);
    const plain = await convertedDecoder(one, weights);
    const vision = { ...(one.config?.vision_config as object | undefined), model_type: type };
    const { vision_config: _, ...config } = { ...one.config };
    const text = decoderConfig('', { ...config, architectures: undefined, num_hidden_layers: 3 });
    const files = {
      'config.json': { architectures: [one.hugging], text_config: text, vision_config: vision },
      'tokenizer.json': plainTokenizer(),
    };
    const whole = await convertHuggingface(folderOf(named(weights, change, towerName), files));
    expect(whole.keys).toEqual(plain.keys);
    expect(whole.tensors).toEqual(plain.tensors.map((tensor) => ({ ...tensor, sources: tensor.sources.map(change) })));
    expect(whole.notes).toEqual([
      expect.objectContaining({
        kind: 'towersLeftOut',
        count: 1,
        isKnown: true,
        text: "the vision tower is left out (1 tensor); mmproj: true with to: 'F16' makes a second file of it",
      }),
    ]);
  });

  it('names towers that are not converted', async () => {
    const weights = weightsOfTable(llama.table, 3);
    const files = (more: object) => ({
      'config.json': { ...decoderConfig('LlamaForCausalLM'), ...more },
      'tokenizer.json': plainTokenizer(),
    });
    const folder = named(weights, (name) => name, 'audio_tower.x', 'vision_tower.y');
    const { notes } = await convertHuggingface(folderOf(folder, files({ audio_config: {} })));
    expect(notes).toMatchObject([{ kind: 'towersLeftOut', count: 2, isKnown: false }]);
    expect(notes[0]?.text).toMatch(/^towers for pictures or sound are left out \(2 tensors\)/);
    // Without towers there is nothing to say.
    expect((await convertHuggingface(folderOf(weights, files({ vision_config: {} })))).notes).toEqual([]);
  });
});

// Vision towers: tiny folders, and tables of the files that llama.cpp's converter makes of them, written by hand from its source:
// conversion/ base.py at 720d7fa (MmprojModel), smolvlm.py 32e9e04, gemma.py 061b8c5, qwen3vl.py 06e514f and gguf-py/gguf/tensor_mapping.py
// at 0024aa7 of ggml-org/llama.cpp; conversion/qwenvl.py of Tippach/Franken-Llama 1774451. The converter does not take LLaVA with CLIP, whose
// keys are those of tools/mtmd/legacy-models/convert_image_encoder_to_gguf.py at 51eff66, under the names of tensor_mapping.py.
import { safetensors, type TestTensor } from './models.js';
import { decoderConfig, decoderWeights, plainTokenizer } from './tiny-huggingface.js';
import type { Pair } from './tiny-llama.js';
import { xorshift } from './xorshift.js';

type Json = Readonly<Record<string, unknown>>;

/**
 * A tower. Lines of its table: name in the folder, name in GGUF or `-`, shape in the folder, type, and a change. `N` counts layers.
 * Types: `out` is the target, `conv` F16 for that target and F32 otherwise, others stand as they are. Changes: `+1` adds 1, `rows=32+32`
 * takes rows, `frame=1` takes [:, :, 1] of five dimensions.
 */
export interface TowerCase {
  readonly name: string;
  readonly config: Json;
  readonly preprocessor: Json | undefined;
  readonly processor?: Json;
  readonly layers: number;
  readonly table: string;
  /** Keys behind general.file_type, without `clip.`, up to the version of the quantization. */
  readonly keys: readonly Pair[];
}

const colors = { image_mean: [0.5, 0.25, 0.125], image_std: [0.5, 0.5, 0.25] };

/** Keys of all towers. `image` and so on are those of the tiny ones. */
const usual = (more: { image?: number; ff?: number; layers?: number; patch?: number } = {}): Pair[] => [
  ['has_vision_encoder', 'bool', true],
  ['vision.projection_dim', 'u32', 64],
  ['vision.image_size', 'u32', more.image ?? 28],
  ['vision.patch_size', 'u32', more.patch ?? 7],
  ['vision.embedding_length', 'u32', 32],
  ['vision.feed_forward_length', 'u32', more.ff ?? 48],
  ['vision.block_count', 'u32', more.layers ?? 2],
  ['vision.attention.head_count', 'u32', 2],
  ['vision.image_mean', 'array', 'f32', colors.image_mean],
  ['vision.image_std', 'array', 'f32', colors.image_std],
];

const epsilon = (value: number): Pair => ['vision.attention.layer_norm_epsilon', 'f32', value];
const projector = (name: string): Pair => ['projector_type', 'string', name];
const gelu: Pair = ['use_gelu', 'bool', true];

const square = {
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  image_size: 28,
  patch_size: 7,
};

/** Layers of CLIP and SigLIP. */
const encoder = (prefix: string) => `
  ${prefix}encoder.layers.N.layer_norm1.weight         v.blk.N.ln1.weight       32     f32
  ${prefix}encoder.layers.N.layer_norm1.bias           v.blk.N.ln1.bias         32     f32
  ${prefix}encoder.layers.N.layer_norm2.weight         v.blk.N.ln2.weight       32     f32
  ${prefix}encoder.layers.N.layer_norm2.bias           v.blk.N.ln2.bias         32     f32
  ${prefix}encoder.layers.N.mlp.fc1.weight             v.blk.N.ffn_up.weight    48x32  out
  ${prefix}encoder.layers.N.mlp.fc1.bias               v.blk.N.ffn_up.bias      48     f32
  ${prefix}encoder.layers.N.mlp.fc2.weight             v.blk.N.ffn_down.weight  32x48  out
  ${prefix}encoder.layers.N.mlp.fc2.bias               v.blk.N.ffn_down.bias    32     f32
  ${prefix}encoder.layers.N.self_attn.q_proj.weight    v.blk.N.attn_q.weight    32x32  out
  ${prefix}encoder.layers.N.self_attn.q_proj.bias      v.blk.N.attn_q.bias      32     f32
  ${prefix}encoder.layers.N.self_attn.k_proj.weight    v.blk.N.attn_k.weight    32x32  out
  ${prefix}encoder.layers.N.self_attn.k_proj.bias      v.blk.N.attn_k.bias      32     f32
  ${prefix}encoder.layers.N.self_attn.v_proj.weight    v.blk.N.attn_v.weight    32x32  out
  ${prefix}encoder.layers.N.self_attn.v_proj.bias      v.blk.N.attn_v.bias      32     f32
  ${prefix}encoder.layers.N.self_attn.out_proj.weight  v.blk.N.attn_out.weight  32x32  out
  ${prefix}encoder.layers.N.self_attn.out_proj.bias    v.blk.N.attn_out.bias    32     f32`;

const gemma3: TowerCase = {
  name: 'Gemma 3',
  config: {
    architectures: ['Gemma3ForConditionalGeneration'],
    model_type: 'gemma3',
    text_config: { hidden_size: 64 },
    vision_config: { ...square, model_type: 'siglip_vision_model', vision_use_head: false },
  },
  preprocessor: colors,
  processor: { image_seq_length: 4 },
  layers: 2,
  table: `
    multi_modal_projector.mm_input_projection_weight                  mm.input_projection.weight  32x64     f16
    multi_modal_projector.mm_soft_emb_norm.weight                     mm.soft_emb_norm.weight     32        f32  +1
    vision_tower.vision_model.embeddings.patch_embedding.weight       v.patch_embd.weight         32x3x7x7  f32
    vision_tower.vision_model.embeddings.patch_embedding.bias         v.patch_embd.bias           32        f32
    vision_tower.vision_model.embeddings.position_embedding.weight    v.position_embd.weight      16x32     f32
    ${encoder('vision_tower.vision_model.')}
    vision_tower.vision_model.head.probe                              -                           1x1x32    f32
    vision_tower.vision_model.post_layernorm.weight                   v.post_ln.weight            32        f32
    vision_tower.vision_model.post_layernorm.bias                     v.post_ln.bias              32        f32
    language_model.model.norm.weight                                  -                           64        f32`,
  keys: [...usual(), projector('gemma3'), epsilon(1e-6), gelu, ['vision.projector.scale_factor', 'u32', 2]],
};

const smolvlm: TowerCase = {
  name: 'SmolVLM',
  config: {
    architectures: ['Idefics3ForConditionalGeneration'],
    model_type: 'idefics3',
    scale_factor: 4,
    text_config: { architectures: ['VLlama3ForCausalLM'], model_type: 'llama', hidden_size: 64, scale_factor: 3 },
    vision_config: { ...square, model_type: 'idefics3', layer_norm_eps: 1e-5 },
  },
  preprocessor: { ...colors, size: { longest_edge: 112 } },
  layers: 2,
  table: `
    model.connector.modality_projection.proj.weight          mm.model.fc.weight      64x512    out
    model.text_model.norm.weight                             -                       64        f32
    model.vision_model.embeddings.patch_embedding.weight     v.patch_embd.weight     32x3x7x7  f32
    model.vision_model.embeddings.patch_embedding.bias       v.patch_embd.bias       32        f32
    model.vision_model.embeddings.position_embedding.weight  v.position_embd.weight  16x32     f32
    ${encoder('model.vision_model.')}
    model.vision_model.post_layernorm.weight                 v.post_ln.weight        32        f32
    model.vision_model.post_layernorm.bias                   v.post_ln.bias          32        f32`,
  keys: [
    ...usual(),
    projector('idefics3'),
    epsilon(1e-5),
    ['vision.projector.scale_factor', 'u32', 4],
    gelu,
    ['vision.preproc_image_size', 'u32', 112],
  ],
};

const smolvlm2: TowerCase = {
  ...smolvlm,
  name: 'SmolVLM 2, without the keys that have defaults',
  config: {
    architectures: ['SmolVLMForConditionalGeneration'],
    model_type: 'smolvlm',
    text_config: { architectures: ['VLlama3ForCausalLM'], model_type: 'llama', hidden_size: 64 },
    vision_config: { ...square, model_type: 'smolvlm_vision' },
  },
  preprocessor: colors,
  table: smolvlm.table.replace('64x512', '64x128'),
  keys: [
    ...usual(),
    projector('idefics3'),
    epsilon(1e-6),
    ['vision.projector.scale_factor', 'u32', 2],
    gelu,
    ['vision.preproc_image_size', 'u32', 28],
  ],
};

const clip = 'vision_tower.vision_model.';
const llava: TowerCase = {
  name: 'LLaVA',
  config: {
    architectures: ['LlavaForConditionalGeneration'],
    model_type: 'llava',
    vision_feature_layer: -2,
    vision_feature_select_strategy: 'default',
    projector_hidden_act: 'gelu',
    text_config: { architectures: ['LlamaForCausalLM'], model_type: 'llama', hidden_size: 64 },
    vision_config: { ...square, num_hidden_layers: 3, model_type: 'clip_vision_model', projection_dim: 24 },
  },
  preprocessor: colors,
  layers: 2,
  table: `
    language_model.model.norm.weight                -                       64        f32
    multi_modal_projector.linear_1.weight           mm.0.weight             64x32     out
    multi_modal_projector.linear_1.bias             mm.0.bias               64        f32
    multi_modal_projector.linear_2.weight           mm.2.weight             64x64     out
    multi_modal_projector.linear_2.bias             mm.2.bias               64        f32
    ${clip}embeddings.class_embedding               v.class_embd            32        f32
    ${clip}embeddings.patch_embedding.weight        v.patch_embd.weight     32x3x7x7  conv
    ${clip}embeddings.position_embedding.weight     v.position_embd.weight  17x32     f32
    ${encoder(clip)}
    ${clip}encoder.layers.2.layer_norm1.weight      -                       32        f32
    ${clip}encoder.layers.2.mlp.fc1.weight          -                       48x32     f32
    ${clip}post_layernorm.weight                    -                       32        f32
    ${clip}post_layernorm.bias                      -                       32        f32
    ${clip}pre_layrnorm.weight                      v.pre_ln.weight         32        f32
    ${clip}pre_layrnorm.bias                        v.pre_ln.bias           32        f32`,
  keys: [
    ...usual(),
    projector('mlp'),
    epsilon(1e-5),
    ['use_gelu', 'bool', false],
    ['vision.feature_layer', 'array', 'i32', [2]],
  ],
};

const patchFrames = `
  visual.patch_embed.proj.weight  v.patch_embd.weight    32x3x2x7x7  conv  frame=0
  visual.patch_embed.proj.weight  v.patch_embd.weight.1  32x3x2x7x7  conv  frame=1`;

const merger = `
  visual.merger.ln_q.weight       v.post_ln.weight       32       f32
  visual.merger.mlp.0.weight      mm.0.weight            128x128  out
  visual.merger.mlp.0.bias        mm.0.bias              128      f32
  visual.merger.mlp.2.weight      mm.2.weight            64x128   out
  visual.merger.mlp.2.bias        mm.2.bias              64       f32`;

const splitAttention = `
  visual.blocks.N.attn.qkv.weight   v.blk.N.attn_q.weight    96x32  out  rows=0+32
  visual.blocks.N.attn.qkv.weight   v.blk.N.attn_k.weight    96x32  out  rows=32+32
  visual.blocks.N.attn.qkv.weight   v.blk.N.attn_v.weight    96x32  out  rows=64+32
  visual.blocks.N.attn.qkv.bias     v.blk.N.attn_q.bias      96     f32  rows=0+32
  visual.blocks.N.attn.qkv.bias     v.blk.N.attn_k.bias      96     f32  rows=32+32
  visual.blocks.N.attn.qkv.bias     v.blk.N.attn_v.bias      96     f32  rows=64+32
  visual.blocks.N.attn.proj.weight  v.blk.N.attn_out.weight  32x32  out
  visual.blocks.N.attn.proj.bias    v.blk.N.attn_out.bias    32     f32`;

const qwen2vl: TowerCase = {
  name: 'Qwen2-VL',
  config: {
    architectures: ['Qwen2VLForConditionalGeneration'],
    model_type: 'qwen2_vl',
    hidden_size: 64,
    rms_norm_eps: 1e-6,
    vision_config: { depth: 2, embed_dim: 32, mlp_ratio: 4, num_heads: 2, in_chans: 3, hidden_size: 64, patch_size: 7 },
  },
  preprocessor: colors,
  layers: 2,
  table: `
    model.norm.weight                 -                        64      f32
    ${splitAttention}
    visual.blocks.N.mlp.fc1.weight    v.blk.N.ffn_up.weight    128x32  out
    visual.blocks.N.mlp.fc1.bias      v.blk.N.ffn_up.bias      128     f32
    visual.blocks.N.mlp.fc2.weight    v.blk.N.ffn_down.weight  32x128  out
    visual.blocks.N.mlp.fc2.bias      v.blk.N.ffn_down.bias    32      f32
    visual.blocks.N.norm1.weight      v.blk.N.ln1.weight       32      f32
    visual.blocks.N.norm1.bias        v.blk.N.ln1.bias         32      f32
    visual.blocks.N.norm2.weight      v.blk.N.ln2.weight       32      f32
    visual.blocks.N.norm2.bias        v.blk.N.ln2.bias         32      f32
    ${merger}
    visual.merger.ln_q.bias           v.post_ln.bias           32      f32
    ${patchFrames}`,
  // The converter writes the length of the outputs as that of the feed-forward part.
  keys: [...usual({ image: 560, ff: 64 }), projector('qwen2vl_merger'), epsilon(1e-6)],
};

const qwen25vl: TowerCase = {
  name: 'Qwen2.5-VL',
  config: {
    architectures: ['Qwen2_5_VLForConditionalGeneration'],
    model_type: 'qwen2_5_vl',
    hidden_size: 64,
    vision_config: {
      depth: 4,
      hidden_size: 32,
      intermediate_size: 40,
      num_heads: 2,
      out_hidden_size: 64,
      patch_size: 7,
      window_size: 112,
      fullatt_block_indexes: [1, 3],
    },
  },
  preprocessor: colors,
  layers: 4,
  table: `
    ${splitAttention}
    visual.blocks.N.mlp.gate_proj.weight  v.blk.N.ffn_gate.weight  40x32  out
    visual.blocks.N.mlp.gate_proj.bias    v.blk.N.ffn_gate.bias    40     f32
    visual.blocks.N.mlp.up_proj.weight    v.blk.N.ffn_up.weight    40x32  out
    visual.blocks.N.mlp.up_proj.bias      v.blk.N.ffn_up.bias      40     f32
    visual.blocks.N.mlp.down_proj.weight  v.blk.N.ffn_down.weight  32x40  out
    visual.blocks.N.mlp.down_proj.bias    v.blk.N.ffn_down.bias    32     f32
    visual.blocks.N.norm1.weight          v.blk.N.ln1.weight       32     f32
    visual.blocks.N.norm2.weight          v.blk.N.ln2.weight       32     f32
    ${merger}
    ${patchFrames}`,
  keys: [
    ...usual({ image: 560, ff: 40, layers: 4 }),
    projector('qwen2.5vl_merger'),
    ['use_silu', 'bool', true],
    ['vision.n_wa_pattern', 'u32', 2],
    epsilon(1e-6),
  ],
};

/** Layers and projectors of Qwen3-VL. */
const qwen3Table = (deepstack: readonly number[]) => `
  model.visual.blocks.N.attn.qkv.weight        v.blk.N.attn_qkv.weight  96x32       out
  model.visual.blocks.N.attn.qkv.bias          v.blk.N.attn_qkv.bias    96          f32
  model.visual.blocks.N.attn.proj.weight       v.blk.N.attn_out.weight  32x32       out
  model.visual.blocks.N.attn.proj.bias         v.blk.N.attn_out.bias    32          f32
  model.visual.blocks.N.mlp.linear_fc1.weight  v.blk.N.ffn_up.weight    48x32       out
  model.visual.blocks.N.mlp.linear_fc1.bias    v.blk.N.ffn_up.bias      48          f32
  model.visual.blocks.N.mlp.linear_fc2.weight  v.blk.N.ffn_down.weight  32x48       out
  model.visual.blocks.N.mlp.linear_fc2.bias    v.blk.N.ffn_down.bias    32          f32
  model.visual.blocks.N.norm1.weight           v.blk.N.ln1.weight       32          f32
  model.visual.blocks.N.norm1.bias             v.blk.N.ln1.bias         32          f32
  model.visual.blocks.N.norm2.weight           v.blk.N.ln2.weight       32          f32
  model.visual.blocks.N.norm2.bias             v.blk.N.ln2.bias         32          f32
  ${deepstack
    .map((layer, i) => {
      const from = `model.visual.deepstack_merger_list.${i}`;
      return `
        ${from}.norm.weight        v.deepstack.${layer}.norm.weight  128      f32
        ${from}.norm.bias          v.deepstack.${layer}.norm.bias    128      f32
        ${from}.linear_fc1.weight  v.deepstack.${layer}.fc1.weight   128x128  out
        ${from}.linear_fc1.bias    v.deepstack.${layer}.fc1.bias     128      f32
        ${from}.linear_fc2.weight  v.deepstack.${layer}.fc2.weight   64x128   out
        ${from}.linear_fc2.bias    v.deepstack.${layer}.fc2.bias     64       f32`;
    })
    .join('')}
  model.visual.merger.norm.weight              v.post_ln.weight         32          f32
  model.visual.merger.norm.bias                v.post_ln.bias           32          f32
  model.visual.merger.linear_fc1.weight        mm.0.weight              128x128     out
  model.visual.merger.linear_fc1.bias          mm.0.bias                128         f32
  model.visual.merger.linear_fc2.weight        mm.2.weight              64x128      out
  model.visual.merger.linear_fc2.bias          mm.2.bias                64          f32
  ${patchFrames.replaceAll('visual.', 'model.visual.')}
  model.visual.patch_embed.proj.bias           v.patch_embd.bias        32          f32
  model.visual.pos_embed.weight                v.position_embd.weight   36x32       f32
  model.language_model.norm.weight             -                        64          f32
  lm_head.weight                               -                        264x64      f32`;

const qwen3Config = {
  depth: 3,
  hidden_act: 'gelu_pytorch_tanh',
  hidden_size: 32,
  intermediate_size: 48,
  num_heads: 2,
  in_channels: 3,
  out_hidden_size: 64,
  patch_size: 7,
  num_position_embeddings: 36,
  spatial_merge_size: 2,
  temporal_patch_size: 2,
};

const qwen3Keys = (deepstack: readonly boolean[]): Pair[] => [
  ...usual({ image: 42, layers: 3 }),
  projector('qwen3vl_merger'),
  gelu,
  ['vision.spatial_merge_size', 'u32', 2],
  epsilon(1e-5),
  ['vision.is_deepstack_layers', 'array', 'bool', [...deepstack]],
];

const qwen3vl: TowerCase = {
  name: 'Qwen3-VL',
  config: {
    architectures: ['Qwen3VLForConditionalGeneration'],
    model_type: 'qwen3_vl',
    text_config: { hidden_size: 64, rms_norm_eps: 1e-5 },
    vision_config: { ...qwen3Config, model_type: 'qwen3_vl', deepstack_visual_indexes: [2, 0] },
  },
  preprocessor: colors,
  layers: 3,
  table: qwen3Table([2, 0]),
  keys: qwen3Keys([true, false, true]),
};

const openai = { mean: [0.48145466, 0.4578275, 0.40821073], std: [0.26862954, 0.26130258, 0.27577711] };
const qwen35: TowerCase = {
  ...qwen3vl,
  name: 'Qwen3.5, without a file about pictures',
  config: {
    ...qwen3vl.config,
    architectures: ['Qwen3_5ForConditionalGeneration'],
    vision_config: { ...qwen3Config, model_type: 'qwen3_5_vision' },
  },
  preprocessor: undefined,
  table: qwen3Table([]),
  keys: qwen3Keys([false, false, false]).map((pair): Pair => {
    if (pair[0] === 'vision.image_mean') return [pair[0], 'array', 'f32', openai.mean];
    return pair[0] === 'vision.image_std' ? [pair[0], 'array', 'f32', openai.std] : pair;
  }),
};

/** The six kinds, and variants. */
export const towerCases: readonly TowerCase[] = [gemma3, smolvlm, smolvlm2, llava, qwen2vl, qwen25vl, qwen3vl, qwen35];

/** A line of a table. */
export interface TowerLine {
  readonly from: string;
  readonly to: string;
  readonly shape: readonly number[];
  readonly type: string;
  readonly change: string;
}

/** The lines of a table, with those of each layer. */
export function linesOf({ table, layers }: TowerCase): TowerLine[] {
  return table.split('\n').flatMap((text) => {
    const [from = '', to = '', shape = '', type = '', change = ''] = text.trim().split(/\s+/);
    if (from === '') return [];
    const count = from.includes('.N.') ? layers : 1;
    return Array.from({ length: count }, (_, i) => {
      const named = (name: string) => name.replace('.N.', `.${i}.`);
      return { from: named(from), to: named(to), shape: shape.split('x').map(Number), type, change };
    });
  });
}

/** Multiples of 1/64 with at most 7 bits, which every float type holds exactly. */
export function weightsOf(lines: readonly TowerLine[]): Map<string, Float32Array> {
  const next = xorshift(7);
  const weights = new Map<string, Float32Array>();
  for (const { from, shape } of lines) {
    const length = shape.reduce((a, b) => a * b, 1);
    if (!weights.has(from))
      weights.set(
        from,
        Float32Array.from({ length }, () => ((next() % 127) - 63) / 64),
      );
  }
  return weights;
}

/** Floats as bfloat16, which holds them exactly. */
export const top = (values: Float32Array) =>
  Uint16Array.from(new Uint32Array(values.slice().buffer), (bits) => bits >>> 16);

/** The tensors of a folder, in bfloat16. */
export function towerTensors(one: TowerCase): Record<string, TestTensor> {
  const lines = linesOf(one);
  const shapes = new Map(lines.map(({ from, shape }) => [from, shape]));
  return Object.fromEntries(
    [...weightsOf(lines)].map(([name, values]) => [
      name,
      { dtype: 'BF16', shape: shapes.get(name) ?? [], data: top(values) },
    ]),
  );
}

/** The files of a folder of LLaVA with a language model of the Llama architecture, by name. */
export function visionFolder(): Record<string, string | Uint8Array<ArrayBuffer>> {
  const language = [...decoderWeights()].map(
    ([name, { shape, values }]) => [`language_model.${name}`, { dtype: 'F32', shape, data: values }] as const,
  );
  const text = { ...decoderConfig('LlamaForCausalLM'), model_type: 'llama' };
  return {
    'model.safetensors': safetensors({ ...towerTensors(llava), ...Object.fromEntries(language) }),
    'config.json': JSON.stringify({ ...llava.config, text_config: text }),
    'tokenizer.json': JSON.stringify(plainTokenizer()),
    'preprocessor_config.json': JSON.stringify(llava.preprocessor),
  };
}

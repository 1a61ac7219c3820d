/**
 * Known vision towers: the keys of config.json that each reads, the settings that llama.cpp supports for each, and its metadata.
 * Reference: github.com/ggml-org/llama.cpp, conversion/ smolvlm.py at 32e9e04, gemma.py 061b8c5, qwen3vl.py 06e514f, and
 * tools/mtmd/clip.cpp at 0024aa7; conversion/qwenvl.py of Tippach/Franken-Llama 1774451. llama.cpp's converter does not take LLaVA with CLIP:
 * its keys are those of tools/mtmd/legacy-models/convert_image_encoder_to_gguf.py at 51eff66. Defaults are those of
 * github.com/huggingface/transformers: idefics3 at 0025a6f, smolvlm 0be0e2a, clip 01841b3, llava 053f59e, qwen2_vl and qwen2_5_vl 018c8e0,
 * qwen3_vl 000c33f, siglip 008e574.
 */
import { show } from '../../../core/show.js';
import type { GgufKey } from '../../../formats/gguf/pairs.js';
import type { Config } from '../config.js';
import { badFolderFile, unsupported } from '../errors.js';
import type { Json } from '../json.js';
import type { TensorTable } from '../tensors.js';
import type { Pictures } from './pictures.js';
import * as tables from './tables.js';

const file = 'config.json';

/** Inputs of each reader. */
interface TowerRead {
  /** `vision_config`. Missing keys have the defaults of the tower. */
  readonly vision: Config;
  /** Keys of config.json outside of `vision_config` and `text_config`. */
  readonly top: Config;
  /** The language model: `text_config` over the keys around it. */
  readonly text: Config;
  readonly pictures: Pictures;
}

/** Type of a tensor that does not follow the target. @param from its name in the folder */
type ForcedType = (from: string) => 'F16' | 'F32' | undefined;

/** A tower as config.json describes it. */
export interface Tower {
  readonly sizes: tables.TowerSizes;
  readonly heads: number;
  /** Pixels of a picture on each side. */
  readonly image: number;
  /** Length of the feed-forward part in the metadata, where llama.cpp's converter writes another number there. */
  readonly statedFeedForward?: number;
  readonly table: TensorTable;
  /** Keys behind those of all towers, in writing order. */
  readonly keys: readonly GgufKey[];
  readonly forced?: ForcedType;
}

/** A kind of tower. */
export interface TowerKind {
  /** Values of keys that `vision_config` lacks. */
  readonly defaults: Json;
  /** Names that `vision_config.model_type` may have. A missing one is the first. */
  readonly types: readonly string[];
  /** Mean and deviation of colors, for folders that do not state them. */
  readonly colors?: { readonly mean: readonly number[]; readonly deviation: readonly number[] };
  read(read: TowerRead): Tower;
}

// --------------------------------------------------------------------------------------------------------------------------- keys

const projectorType = (value: string): GgufKey => ({ name: 'clip.projector_type', type: 'string', value });
const gelu = (value = true): GgufKey => ({ name: 'clip.use_gelu', type: 'bool', value });
const silu: GgufKey = { name: 'clip.use_silu', type: 'bool', value: true };
const u32 = (name: string, value: number): GgufKey => ({ name: `clip.vision.${name}`, type: 'u32', value });

function epsilon(value: number): GgufKey {
  return { name: 'clip.vision.attention.layer_norm_epsilon', type: 'f32', value };
}

// -------------------------------------------------------------------------------------------------------------------------- sizes

/** Sizes of CLIP and SigLIP. @param extra rows of the table of positions that stand for no patch */
function squareTower({ vision, text }: TowerRead, extra = 0) {
  const [image, patch] = [vision.whole('image_size'), vision.whole('patch_size')];
  if (image % patch !== 0)
    badFolderFile(file, `vision_config.image_size ${image} is not a multiple of patch_size ${patch}`);
  const side = image / patch;
  vision.only('num_channels', 3);
  const sizes: tables.TowerSizes = {
    layers: vision.whole('num_hidden_layers'),
    hidden: vision.whole('hidden_size'),
    feedForward: vision.whole('intermediate_size'),
    patch,
    positions: side ** 2 + extra,
    text: text.whole('hidden_size'),
  };
  return { image, side, heads: vision.whole('num_attention_heads'), sizes };
}

/** Sizes of the towers of Qwen, whose heads and layers have names of their own. */
function qwenTower({ vision, text }: TowerRead, hidden: number, feedForward: number, positions = 0) {
  vision.only('spatial_merge_size', tables.qwenMerge);
  vision.only('temporal_patch_size', tables.qwenFrames);
  vision.only('in_channels', 3);
  const [layers, patch] = [vision.whole('depth'), vision.whole('patch_size')];
  const sizes: tables.TowerSizes = { layers, hidden, feedForward, patch, positions, text: text.whole('hidden_size') };
  return { heads: vision.whole('num_heads'), sizes };
}

/** Embeddings of patches and positions are not rounded. */
const keepsEmbeddings: ForcedType = (from) => (from.includes('.embeddings.') ? 'F32' : undefined);

// ------------------------------------------------------------------------------------------------------------------------- towers

function gemma3(read: TowerRead): Tower {
  const { vision, pictures } = read;
  const { side, ...tower } = squareTower(read);
  vision.only('hidden_act', 'gelu_pytorch_tanh');
  // Patches on each side that become one token. llama.cpp takes 4 unless the file says otherwise.
  const scale = Math.floor(side / Math.floor(Math.sqrt(pictures.tokens ?? 256)));
  return {
    ...tower,
    table: tables.gemma3Tower(tower.sizes),
    keys: [
      projectorType('gemma3'),
      epsilon(vision.positive('layer_norm_eps')),
      gelu(),
      ...(scale === 0 || scale === 4 ? [] : [u32('projector.scale_factor', scale)]),
    ],
    forced: (from) => (from.includes('input_projection') ? 'F16' : keepsEmbeddings(from)),
  };
}

function idefics3(read: TowerRead): Tower {
  const { vision, top, pictures } = read;
  const { side, ...tower } = squareTower(read);
  vision.only('hidden_act', 'gelu_pytorch_tanh');
  const scale = top.whole('scale_factor', 2);
  if (side % scale !== 0)
    badFolderFile(file, `${side} patches on each side are not a multiple of scale_factor ${scale}`);
  return {
    ...tower,
    table: tables.idefics3Tower(tower.sizes, scale),
    keys: [
      projectorType('idefics3'),
      epsilon(vision.positive('layer_norm_eps')),
      u32('projector.scale_factor', scale),
      gelu(),
      u32('preproc_image_size', pictures.longestEdge ?? tower.image),
    ],
    forced: keepsEmbeddings,
  };
}

/** Number of layers up to the one whose outputs LLaVA takes. */
function featureLayer(top: Config, layers: number): number {
  const stated = top.get('vision_feature_layer') ?? -2;
  const layer: unknown = Array.isArray(stated) && stated.length === 1 ? stated[0] : stated;
  if (!Number.isInteger(layer))
    return unsupported(file, `vision_feature_layer is ${show(stated)}; the outputs of one layer are supported`);
  const number = (layer as number) < 0 ? layers + 1 + (layer as number) : (layer as number);
  if (number < 1 || number > layers)
    badFolderFile(file, `vision_feature_layer is ${show(stated)}, and the tower has ${layers} layers`);
  return number;
}

function llava(read: TowerRead): Tower {
  const { vision, top } = read;
  // The first position is that of the class, which has no part in the picture's tokens.
  const { side: _, ...whole } = squareTower(read, 1);
  vision.only('hidden_act', 'quick_gelu', 'gelu');
  top.only('projector_hidden_act', 'gelu');
  top.only('vision_feature_select_strategy', 'default');
  top.only('multimodal_projector_bias', true);
  const all = whole.sizes.layers;
  const sizes = { ...whole.sizes, layers: featureLayer(top, all) };
  return {
    ...whole,
    sizes,
    table: tables.llavaTower(sizes, all),
    keys: [
      projectorType('mlp'),
      epsilon(vision.positive('layer_norm_eps')),
      gelu(vision.get('hidden_act') === 'gelu'),
      // Without this key llama.cpp leaves out one more layer.
      { name: 'clip.vision.feature_layer', type: 'i32[]', value: [sizes.layers] },
    ],
  };
}

/** llama.cpp scales pictures by their own sizes. The converter states this one. */
const qwenImage = 560;

function qwen2vl(read: TowerRead): Tower {
  const { vision, top } = read;
  vision.only('hidden_act', 'quick_gelu');
  const [hidden, ratio] = [vision.whole('embed_dim'), vision.whole('mlp_ratio')];
  const tower = qwenTower(read, hidden, hidden * ratio);
  return {
    ...tower,
    image: vision.whole('image_size', qwenImage),
    statedFeedForward: vision.whole('hidden_size'),
    table: tables.qwen2vlTower(tower.sizes),
    keys: [projectorType('qwen2vl_merger'), epsilon(top.positive('rms_norm_eps', 1e-6))],
  };
}

/** Layers from one with full attention to the next. The others see windows. */
function windowPattern(vision: Config): number {
  const list = vision.get('fullatt_block_indexes');
  if (!Array.isArray(list) || list.length === 0 || !list.every((n) => Number.isInteger(n) && n >= 0))
    return badFolderFile(file, `vision_config.fullatt_block_indexes has to be whole numbers, got ${show(list)}`);
  const [first] = list as [number];
  if (list.some((n, i) => n !== (i + 1) * (first + 1) - 1))
    unsupported(file, `vision_config.fullatt_block_indexes is ${show(list)}; llama.cpp takes every n-th layer`);
  return first + 1;
}

function qwen25vl(read: TowerRead): Tower {
  const { vision, top } = read;
  vision.only('hidden_act', 'silu');
  vision.only('window_size', 112);
  const tower = qwenTower(read, vision.whole('hidden_size'), vision.whole('intermediate_size'));
  return {
    ...tower,
    image: vision.whole('image_size', qwenImage),
    table: tables.qwen25vlTower(tower.sizes),
    keys: [
      projectorType('qwen2.5vl_merger'),
      silu,
      u32('n_wa_pattern', windowPattern(vision)),
      epsilon(top.positive('rms_norm_eps', 1e-6)),
    ],
  };
}

/** Layers whose outputs reach the language model by projectors of their own. */
function deepstackOf(vision: Config, layers: number): readonly number[] {
  const list = vision.get('deepstack_visual_indexes') ?? [];
  const isGood = (n: unknown) => Number.isInteger(n) && (n as number) >= 0 && (n as number) < layers;
  if (Array.isArray(list) && list.every(isGood) && new Set(list).size === list.length) return list as number[];
  return badFolderFile(
    file,
    `vision_config.deepstack_visual_indexes has to be different layers below ${layers}, got ${show(list)}`,
  );
}

function qwen3vl(read: TowerRead): Tower {
  const { vision, text } = read;
  vision.only('hidden_act', 'gelu_pytorch_tanh');
  const positions = vision.whole('num_position_embeddings');
  const side = Math.sqrt(positions);
  if (!Number.isInteger(side))
    badFolderFile(file, `vision_config.num_position_embeddings is ${positions}, which is not the square of a number`);
  const tower = qwenTower(read, vision.whole('hidden_size'), vision.whole('intermediate_size'), positions);
  const { layers, patch } = tower.sizes;
  const deepstack = deepstackOf(vision, layers);
  const deep = new Set(deepstack);
  return {
    ...tower,
    image: vision.whole('image_size', side * patch),
    table: tables.qwen3vlTower(tower.sizes, deepstack),
    keys: [
      projectorType('qwen3vl_merger'),
      gelu(),
      u32('spatial_merge_size', tables.qwenMerge),
      // The converter takes the number of the language model's norms.
      epsilon(text.positive('rms_norm_eps', 1e-6)),
      {
        name: 'clip.vision.is_deepstack_layers',
        type: 'bool[]',
        value: Array.from({ length: layers }, (_, i) => deep.has(i)),
      },
    ],
  };
}

// -------------------------------------------------------------------------------------------------------------------------- kinds

const siglip: Json = {
  hidden_size: 768,
  intermediate_size: 3072,
  num_hidden_layers: 12,
  num_attention_heads: 12,
  num_channels: 3,
  image_size: 224,
  patch_size: 16,
  hidden_act: 'gelu_pytorch_tanh',
  layer_norm_eps: 1e-6,
};
const smolvlm: Json = { ...siglip, hidden_size: 1152, num_attention_heads: 16, patch_size: 32 };
const clip: Json = { ...siglip, patch_size: 32, hidden_act: 'quick_gelu', layer_norm_eps: 1e-5 };

const qwen: Json = { depth: 32, num_heads: 16, in_channels: 3, patch_size: 14, spatial_merge_size: 2 };

const qwen3vlKind = (types: readonly string[], deepstack: readonly number[]): TowerKind => ({
  defaults: {
    ...qwen,
    depth: 27,
    hidden_size: 1152,
    intermediate_size: 4304,
    patch_size: 16,
    num_position_embeddings: 2304,
    deepstack_visual_indexes: deepstack,
  },
  types,
  colors: { mean: [0.48145466, 0.4578275, 0.40821073], deviation: [0.26862954, 0.26130258, 0.27577711] },
  read: qwen3vl,
});

const smolvlmKind: TowerKind = {
  defaults: smolvlm,
  types: ['idefics3_vision', 'idefics3', 'smolvlm_vision', 'smolvlm'],
  read: idefics3,
};

/** Kinds by the name that config.json has under `architectures`. */
export const towerKinds: Readonly<Record<string, TowerKind>> = {
  Gemma3ForConditionalGeneration: { defaults: siglip, types: ['siglip_vision_model'], read: gemma3 },
  Idefics3ForConditionalGeneration: smolvlmKind,
  SmolVLMForConditionalGeneration: smolvlmKind,
  LlavaForConditionalGeneration: { defaults: clip, types: ['clip_vision_model'], read: llava },
  Qwen2VLForConditionalGeneration: {
    defaults: { ...qwen, embed_dim: 1280, hidden_size: 3584, mlp_ratio: 4 },
    types: ['qwen2_vl', 'qwen2_vl_vision'],
    read: qwen2vl,
  },
  Qwen2_5_VLForConditionalGeneration: {
    defaults: {
      ...qwen,
      hidden_size: 3584,
      intermediate_size: 3420,
      window_size: 112,
      fullatt_block_indexes: [7, 15, 23, 31],
    },
    types: ['qwen2_5_vl', 'qwen2_5_vl_vision'],
    read: qwen25vl,
  },
  Qwen3VLForConditionalGeneration: qwen3vlKind(['qwen3_vl', 'qwen3_vl_vision'], [8, 16, 24]),
  Qwen3VLMoeForConditionalGeneration: qwen3vlKind(['qwen3_vl_moe', 'qwen3_vl_moe_vision'], [8, 16, 24]),
  Qwen3_5ForConditionalGeneration: qwen3vlKind(['qwen3_5', 'qwen3_5_vision'], []),
  Qwen3_5MoeForConditionalGeneration: qwen3vlKind(['qwen3_5_moe', 'qwen3_5_moe_vision'], []),
};

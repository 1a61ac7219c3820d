/**
 * Known vision towers and the projectors behind them: the keys of config.json that each reads, the settings that llama.cpp supports for each,
 * its metadata, and its tensors.
 * Reference: github.com/ggml-org/llama.cpp, conversion/ smolvlm.py at 32e9e04, gemma.py 061b8c5, qwen3vl.py 06e514f, gguf-py/gguf/tensor_mapping.py
 * 0024aa7, and tools/mtmd/ clip.cpp and clip-impl.h at 0024aa7; conversion/qwenvl.py of Tippach/Franken-Llama 1774451. llama.cpp's converter does not
 * take LLaVA with CLIP: its keys are those of tools/mtmd/legacy-models/convert_image_encoder_to_gguf.py at 51eff66. Defaults are those of
 * github.com/huggingface/transformers: idefics3 at 0025a6f, smolvlm 0be0e2a, clip 01841b3, llava 053f59e, qwen2_vl and qwen2_5_vl 018c8e0,
 * qwen3_vl 000c33f, siglip 008e574.
 */
import { show } from '../../../core/show.js';
import { isCount } from '../../../formats/files/json.js';
import type { GgufKey } from '../../../formats/gguf/pairs.js';
import { viewFrom, withBias } from '../../families/rows.js';
import type { Config } from '../config.js';
import { badConfig, unsupportedConfig } from '../errors.js';
import type { Json } from '../json.js';
import type { Row, TensorTable } from '../tensors.js';

/** Preparation of pictures for a tower. */
export interface Pictures {
  /** Mean and standard deviation of red, green and blue; undefined if no file states them. */
  readonly mean: readonly number[] | undefined;
  readonly deviation: readonly number[] | undefined;
  /** Tokens that a picture becomes. */
  readonly tokens: number | undefined;
  /** Pixels of a large picture's longer side. */
  readonly longestEdge: number | undefined;
}

/** Sizes of a tower. */
interface TowerSizes {
  readonly layers: number;
  /** Elements of a patch's vector. */
  readonly hidden: number;
  readonly feedForward: number;
  /** Pixels of a patch on each side. */
  readonly patch: number;
  /** Rows of the table of positions. */
  readonly positions: number;
  /** Elements of a token's vector in the language model. */
  readonly text: number;
}

/** Colors of a pixel. */
const colors = 3;

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
interface Tower {
  readonly sizes: TowerSizes;
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

// ---------------------------------------------------------------------------------------------------------------------- keys

const projectorType = (value: string): GgufKey => ({ name: 'clip.projector_type', type: 'string', value });
const gelu = (value = true): GgufKey => ({ name: 'clip.use_gelu', type: 'bool', value });
const silu: GgufKey = { name: 'clip.use_silu', type: 'bool', value: true };
const u32 = (name: string, value: number): GgufKey => ({ name: `clip.vision.${name}`, type: 'u32', value });

const epsilon = (value: number): GgufKey => ({
  name: 'clip.vision.attention.layer_norm_epsilon',
  type: 'f32',
  value,
});

// ------------------------------------------------------------------------------------------------------------ CLIP and SigLIP

/** Sizes of CLIP and SigLIP. @param extra rows of the table of positions that stand for no patch */
function squareTower({ vision, text }: TowerRead, extra = 0) {
  const [image, patch] = [vision.whole('image_size'), vision.whole('patch_size')];
  if (image % patch !== 0) badConfig(`vision_config.image_size ${image} is not a multiple of patch_size ${patch}`);
  const side = image / patch;
  vision.only('num_channels', 3);
  const sizes: TowerSizes = {
    layers: vision.whole('num_hidden_layers'),
    hidden: vision.whole('hidden_size'),
    feedForward: vision.whole('intermediate_size'),
    patch,
    positions: side ** 2 + extra,
    text: text.whole('hidden_size'),
  };
  return { image, side, heads: vision.whole('num_attention_heads'), sizes };
}

/** Embeddings of patches and positions are not rounded. */
const keepsEmbeddings: ForcedType = (from) => (from.includes('.embeddings.') ? 'F32' : undefined);

const layerPrefix = 'vision_model.encoder.layers.';
const layerTarget = 'v.blk.';
const layersKey = 'vision_config.num_hidden_layers';

/** Names of parts that stand behind one or both of these prefixes. */
const parts = /^(model\.)?(vision_tower\.)?((vision_model|multi_modal_projector|connector)\..*)$/;

/** Name of a tensor of such a tower in the tables. @param isLeftOut true for names of parts that llama.cpp does not use */
const towerPartName =
  (isLeftOut: (name: string) => boolean): NonNullable<TensorTable['towerName']> =>
  (name) => {
    const own = parts.exec(name)?.[3];
    return own === undefined || isLeftOut(own) ? undefined : own;
  };

const embeddings = 'vision_model.embeddings.';

function patches({ hidden, patch }: TowerSizes): Row {
  return { from: `${embeddings}patch_embedding`, to: 'v.patch_embd', shape: [hidden, colors, patch, patch] };
}

function encoder({ hidden, feedForward }: TowerSizes): Row[] {
  const square = [hidden, hidden];
  return withBias([
    { from: 'layer_norm1', to: 'ln1', shape: [hidden] },
    { from: 'layer_norm2', to: 'ln2', shape: [hidden] },
    { from: 'self_attn.q_proj', to: 'attn_q', shape: square },
    { from: 'self_attn.k_proj', to: 'attn_k', shape: square },
    { from: 'self_attn.v_proj', to: 'attn_v', shape: square },
    { from: 'self_attn.out_proj', to: 'attn_out', shape: square },
    { from: 'mlp.fc1', to: 'ffn_up', shape: [feedForward, hidden] },
    { from: 'mlp.fc2', to: 'ffn_down', shape: [hidden, feedForward] },
  ]);
}

/** SigLIP and a projector behind it. */
const siglipTable = (sizes: TowerSizes, projector: readonly Row[]): TensorTable => ({
  layersKey,
  layerPrefix,
  layerTarget,
  outside: [
    ...withBias([patches(sizes), { from: 'vision_model.post_layernorm', to: 'v.post_ln', shape: [sizes.hidden] }]),
    { from: `${embeddings}position_embedding`, to: 'v.position_embd', shape: [sizes.positions, sizes.hidden] },
    ...projector,
  ],
  layer: encoder(sizes),
  towerName: towerPartName((name) => name.startsWith('vision_model.head.')),
});

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

const gemma3: TowerKind = {
  defaults: siglip,
  types: ['siglip_vision_model'],
  read(read) {
    const { vision, pictures } = read;
    const { side, ...tower } = squareTower(read);
    const { hidden, text } = tower.sizes;
    vision.only('hidden_act', 'gelu_pytorch_tanh');
    // Patches on each side that become one token. llama.cpp takes 4 unless the file says otherwise.
    const scale = Math.floor(side / Math.floor(Math.sqrt(pictures.tokens ?? 256)));
    const projection = 'multi_modal_projector.mm_input_projection_weight';
    return {
      ...tower,
      table: siglipTable(tower.sizes, [
        // Stored with its inputs as rows. llama.cpp transposes it when it runs.
        { from: projection, to: 'mm.input_projection', whole: '.weight', shape: [hidden, text] },
        { from: 'multi_modal_projector.mm_soft_emb_norm', to: 'mm.soft_emb_norm', shape: [hidden], add: 1 },
      ]),
      keys: [
        projectorType('gemma3'),
        epsilon(vision.positive('layer_norm_eps')),
        gelu(),
        ...(scale === 0 || scale === 4 ? [] : [u32('projector.scale_factor', scale)]),
      ],
      forced: (from) => (from.includes('input_projection') ? 'F16' : keepsEmbeddings(from)),
    };
  },
};

const idefics3: TowerKind = {
  defaults: { ...siglip, hidden_size: 1152, num_attention_heads: 16, patch_size: 32 },
  types: ['idefics3_vision', 'idefics3', 'smolvlm_vision', 'smolvlm'],
  read(read) {
    const { vision, top, pictures } = read;
    const { side, ...tower } = squareTower(read);
    const { hidden, text } = tower.sizes;
    vision.only('hidden_act', 'gelu_pytorch_tanh');
    // Patches on each side that become one token.
    const scale = top.whole('scale_factor', 2);
    if (side % scale !== 0) badConfig(`${side} patches on each side are not a multiple of scale_factor ${scale}`);
    return {
      ...tower,
      table: siglipTable(tower.sizes, [
        { from: 'connector.modality_projection.proj', to: 'mm.model.fc', shape: [text, hidden * scale ** 2] },
      ]),
      keys: [
        projectorType('idefics3'),
        epsilon(vision.positive('layer_norm_eps')),
        u32('projector.scale_factor', scale),
        gelu(),
        u32('preproc_image_size', pictures.longestEdge ?? tower.image),
      ],
      forced: keepsEmbeddings,
    };
  },
};

/** CLIP up to the layer whose outputs LLaVA takes. */
const llava: TowerKind = {
  defaults: { ...siglip, patch_size: 32, hidden_act: 'quick_gelu', layer_norm_eps: 1e-5 },
  types: ['clip_vision_model'],
  read(read) {
    const { vision, top } = read;
    // The first position is that of the class, which has no part in the picture's tokens.
    const { side: _, ...tower } = squareTower(read, 1);
    const { hidden, text, layers: all, positions } = tower.sizes;
    vision.only('hidden_act', 'quick_gelu', 'gelu');
    top.only('projector_hidden_act', 'gelu');
    top.only('vision_feature_select_strategy', 'default');
    top.only('multimodal_projector_bias', true);
    // Find the layer whose outputs are taken. Negative numbers count from the end.
    const stated = top.get('vision_feature_layer') ?? -2;
    const layer: unknown = Array.isArray(stated) && stated.length === 1 ? stated[0] : stated;
    if (typeof layer !== 'number' || !Number.isInteger(layer))
      return unsupportedConfig(`vision_feature_layer is ${show(stated)}; the outputs of one layer are supported`);
    const layers = layer < 0 ? all + 1 + layer : layer;
    if (layers < 1 || layers > all)
      badConfig(`vision_feature_layer is ${show(stated)}, and the tower has ${all} layers`);
    const later = Array.from({ length: all - layers }, (_, i) => `${layerPrefix}${layers + i}.`);
    return {
      ...tower,
      sizes: { ...tower.sizes, layers },
      table: {
        layersKey,
        layerPrefix,
        layerTarget,
        outside: [
          patches(tower.sizes),
          { from: `${embeddings}class_embedding`, to: 'v.class_embd', whole: '', shape: [hidden] },
          { from: `${embeddings}position_embedding`, to: 'v.position_embd', shape: [positions, hidden] },
          ...withBias([
            { from: 'vision_model.pre_layrnorm', to: 'v.pre_ln', shape: [hidden] },
            { from: 'multi_modal_projector.linear_1', to: 'mm.0', shape: [text, hidden] },
            { from: 'multi_modal_projector.linear_2', to: 'mm.2', shape: [text, text] },
          ]),
        ],
        layer: encoder(tower.sizes),
        towerName: towerPartName(
          (name) =>
            name === `${embeddings}position_ids` ||
            name.startsWith('vision_model.post_layernorm.') ||
            later.some((prefix) => name.startsWith(prefix)),
        ),
      },
      keys: [
        projectorType('mlp'),
        epsilon(vision.positive('layer_norm_eps')),
        gelu(vision.get('hidden_act') === 'gelu'),
        // Without this key llama.cpp leaves out one more layer.
        { name: 'clip.vision.feature_layer', type: 'i32[]', value: [layers] },
      ],
    };
  },
};

// ---------------------------------------------------------------------------------------------------------------------- Qwen

/** Patches of each side of a square that the towers of Qwen merge to one. */
const qwenMerge = 2;
/** Frames that a patch of Qwen reaches over. */
const qwenFrames = 2;

/** The weights of a convolution over two frames, each as one of its own. */
function framesOf({ hidden, patch }: TowerSizes): Row {
  const frame = patch ** 2;
  const view = (offset: number) => viewFrom(offset, [hidden * colors, qwenFrames * frame], [frame, 1]);
  const shape = [hidden, colors, patch, patch];
  return {
    from: 'visual.patch_embed.proj.weight',
    to: '',
    whole: '',
    shape: [hidden, colors, qwenFrames, patch, patch],
    shares: [
      { to: 'v.patch_embd.weight', shape, view: () => view(0) },
      { to: 'v.patch_embd.weight.1', shape, view: () => view(frame) },
    ],
  };
}

/** Sizes of the towers of Qwen, whose heads and layers have names of their own. */
function qwenTower({ vision, text }: TowerRead, hidden: number, feedForward: number, positions = 0) {
  vision.only('spatial_merge_size', qwenMerge);
  vision.only('temporal_patch_size', qwenFrames);
  vision.only('in_channels', 3);
  const [layers, patch] = [vision.whole('depth'), vision.whole('patch_size')];
  const sizes: TowerSizes = { layers, hidden, feedForward, patch, positions, text: text.whole('hidden_size') };
  return { heads: vision.whole('num_heads'), sizes };
}

const qwenTable = (outside: readonly Row[], layer: readonly Row[]): TensorTable => ({
  layersKey: 'vision_config.depth',
  layerPrefix: 'visual.blocks.',
  layerTarget,
  outside,
  layer,
  towerName: (name) => /^(?:model\.)?(visual\..*)$/.exec(name)?.[1],
});

/** The projector of Qwen2-VL: a norm of each patch, then two layers over merged patches. */
function merger({ hidden, text }: TowerSizes, bias: NonNullable<Row['bias']>): Row[] {
  const merged = hidden * qwenMerge ** 2;
  return [
    { from: 'visual.merger.ln_q', to: 'v.post_ln', shape: [hidden], bias },
    ...withBias([
      { from: 'visual.merger.mlp.0', to: 'mm.0', shape: [merged, merged] },
      { from: 'visual.merger.mlp.2', to: 'mm.2', shape: [text, merged] },
    ]),
  ];
}

/** llama.cpp scales pictures by their own sizes. The converter states this one. */
const qwenImage = 560;

const qwenDefaults: Json = { depth: 32, num_heads: 16, in_channels: 3, patch_size: 14, spatial_merge_size: 2 };

/** Norms and attention of a layer of Qwen2-VL. */
const qwenAttention = ({ hidden }: TowerSizes): Row[] => [
  {
    from: 'attn.qkv',
    to: '',
    shape: [3 * hidden, hidden],
    shares: ['attn_q', 'attn_k', 'attn_v'].map((to, i) => {
      return { to, shape: [hidden, hidden], windows: () => [[i * hidden, hidden]] };
    }),
  },
  { from: 'attn.proj', to: 'attn_out', shape: [hidden, hidden] },
];
const qwenNorms = ({ hidden }: TowerSizes): Row[] => [
  { from: 'norm1', to: 'ln1', shape: [hidden] },
  { from: 'norm2', to: 'ln2', shape: [hidden] },
];

const qwen2vl: TowerKind = {
  defaults: { ...qwenDefaults, embed_dim: 1280, hidden_size: 3584, mlp_ratio: 4 },
  types: ['qwen2_vl', 'qwen2_vl_vision'],
  read(read) {
    const { vision, top } = read;
    vision.only('hidden_act', 'quick_gelu');
    const [hidden, ratio] = [vision.whole('embed_dim'), vision.whole('mlp_ratio')];
    const tower = qwenTower(read, hidden, hidden * ratio);
    const { sizes } = tower;
    return {
      ...tower,
      image: vision.whole('image_size', qwenImage),
      statedFeedForward: vision.whole('hidden_size'),
      table: qwenTable(
        [framesOf(sizes), ...merger(sizes, 'always')],
        withBias([
          ...qwenNorms(sizes),
          ...qwenAttention(sizes),
          { from: 'mlp.fc1', to: 'ffn_up', shape: [hidden * ratio, hidden] },
          { from: 'mlp.fc2', to: 'ffn_down', shape: [hidden, hidden * ratio] },
        ]),
      ),
      keys: [projectorType('qwen2vl_merger'), epsilon(top.positive('rms_norm_eps', 1e-6))],
    };
  },
};

const qwen25vl: TowerKind = {
  defaults: {
    ...qwenDefaults,
    hidden_size: 3584,
    intermediate_size: 3420,
    window_size: 112,
    fullatt_block_indexes: [7, 15, 23, 31],
  },
  types: ['qwen2_5_vl', 'qwen2_5_vl_vision'],
  read(read) {
    const { vision, top } = read;
    vision.only('hidden_act', 'silu');
    vision.only('window_size', 112);
    const tower = qwenTower(read, vision.whole('hidden_size'), vision.whole('intermediate_size'));
    const { sizes } = tower;
    const { hidden, feedForward } = sizes;
    // Each n-th layer has full attention. The others see windows.
    const list = vision.get('fullatt_block_indexes');
    if (!Array.isArray(list) || list.length === 0 || !list.every((n) => isCount(n)))
      return badConfig(`vision_config.fullatt_block_indexes has to be whole numbers, got ${show(list)}`);
    const [first] = list as [number];
    if (list.some((n, i) => n !== (i + 1) * (first + 1) - 1))
      unsupportedConfig(`vision_config.fullatt_block_indexes is ${show(list)}; llama.cpp takes every n-th layer`);
    return {
      ...tower,
      image: vision.whole('image_size', qwenImage),
      table: qwenTable(
        [framesOf(sizes), ...merger(sizes, 'never')],
        [
          ...qwenNorms(sizes),
          ...withBias([
            ...qwenAttention(sizes),
            { from: 'mlp.gate_proj', to: 'ffn_gate', shape: [feedForward, hidden] },
            { from: 'mlp.up_proj', to: 'ffn_up', shape: [feedForward, hidden] },
            { from: 'mlp.down_proj', to: 'ffn_down', shape: [hidden, feedForward] },
          ]),
        ],
      ),
      keys: [
        projectorType('qwen2.5vl_merger'),
        silu,
        u32('n_wa_pattern', first + 1),
        epsilon(top.positive('rms_norm_eps', 1e-6)),
      ],
    };
  },
};

/** Qwen3-VL and Qwen3.5. @param usualDeepstack layers whose outputs reach the language model by projectors of their own, if the file does not say */
const qwen3vl = (types: readonly string[], usualDeepstack: readonly number[]): TowerKind => ({
  defaults: {
    ...qwenDefaults,
    depth: 27,
    hidden_size: 1152,
    intermediate_size: 4304,
    patch_size: 16,
    num_position_embeddings: 2304,
    deepstack_visual_indexes: usualDeepstack,
  },
  types,
  colors: { mean: [0.48145466, 0.4578275, 0.40821073], deviation: [0.26862954, 0.26130258, 0.27577711] },
  read(read) {
    const { vision, text } = read;
    vision.only('hidden_act', 'gelu_pytorch_tanh');
    const positions = vision.whole('num_position_embeddings');
    const side = Math.sqrt(positions);
    if (!Number.isInteger(side))
      badConfig(`vision_config.num_position_embeddings is ${positions}, which is not the square of a number`);
    const tower = qwenTower(read, vision.whole('hidden_size'), vision.whole('intermediate_size'), positions);
    const { layers, patch, hidden, feedForward, text: width } = tower.sizes;
    const list = vision.get('deepstack_visual_indexes') ?? [];
    const isLayer = (n: unknown) => isCount(n) && n < layers;
    if (!Array.isArray(list) || !list.every(isLayer) || new Set(list).size !== list.length)
      return badConfig(
        `vision_config.deepstack_visual_indexes has to be different layers below ${layers}, got ${show(list)}`,
      );
    const merged = hidden * qwenMerge ** 2;
    const projector = (from: string, norm: string, elements: number, [first, second]: readonly [string, string]) =>
      withBias([
        { from: `${from}.norm`, to: norm, shape: [elements] },
        { from: `${from}.linear_fc1`, to: first, shape: [merged, merged] },
        { from: `${from}.linear_fc2`, to: second, shape: [width, merged] },
      ]);
    return {
      ...tower,
      image: vision.whole('image_size', side * patch),
      table: qwenTable(
        [
          framesOf(tower.sizes),
          { from: 'visual.patch_embed.proj.bias', to: 'v.patch_embd', whole: '.bias', shape: [hidden] },
          { from: 'visual.pos_embed', to: 'v.position_embd', shape: [positions, hidden] },
          ...projector('visual.merger', 'v.post_ln', hidden, ['mm.0', 'mm.2']),
          ...list.flatMap((layer, i) => {
            const to = `v.deepstack.${layer}`;
            return projector(`visual.deepstack_merger_list.${i}`, `${to}.norm`, merged, [`${to}.fc1`, `${to}.fc2`]);
          }),
        ],
        withBias([
          ...qwenNorms(tower.sizes),
          { from: 'attn.qkv', to: 'attn_qkv', shape: [3 * hidden, hidden] },
          { from: 'attn.proj', to: 'attn_out', shape: [hidden, hidden] },
          { from: 'mlp.linear_fc1', to: 'ffn_up', shape: [feedForward, hidden] },
          { from: 'mlp.linear_fc2', to: 'ffn_down', shape: [hidden, feedForward] },
        ]),
      ),
      keys: [
        projectorType('qwen3vl_merger'),
        gelu(),
        u32('spatial_merge_size', qwenMerge),
        // The converter takes the number of the language model's norms.
        epsilon(text.positive('rms_norm_eps', 1e-6)),
        {
          name: 'clip.vision.is_deepstack_layers',
          type: 'bool[]',
          value: Array.from({ length: layers }, (_, i) => list.includes(i)),
        },
      ],
    };
  },
});

/** Kinds by the name that config.json has under `architectures`. */
export const towerKinds: Readonly<Record<string, TowerKind>> = {
  Gemma3ForConditionalGeneration: gemma3,
  Idefics3ForConditionalGeneration: idefics3,
  SmolVLMForConditionalGeneration: idefics3,
  LlavaForConditionalGeneration: llava,
  Qwen2VLForConditionalGeneration: qwen2vl,
  Qwen2_5_VLForConditionalGeneration: qwen25vl,
  Qwen3VLForConditionalGeneration: qwen3vl(['qwen3_vl', 'qwen3_vl_vision'], [8, 16, 24]),
  Qwen3VLMoeForConditionalGeneration: qwen3vl(['qwen3_vl_moe', 'qwen3_vl_moe_vision'], [8, 16, 24]),
  Qwen3_5ForConditionalGeneration: qwen3vl(['qwen3_5', 'qwen3_5_vision'], []),
  Qwen3_5MoeForConditionalGeneration: qwen3vl(['qwen3_5_moe', 'qwen3_5_moe_vision'], []),
};

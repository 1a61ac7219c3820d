/**
 * Tensors of vision towers and of the projectors behind them: their names at Hugging Face and in llama.cpp, and their shapes.
 * Reference: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py and tools/mtmd/clip-impl.h at 0024aa7, conversion/qwen3vl.py at
 * 06e514f; conversion/qwenvl.py of Tippach/Franken-Llama 1774451.
 */
import type { ElementView } from '../../../formats/format.js';
import type { RowWindow } from '../../recipe.js';
import type { Row, TensorTable } from '../tensors.js';

/** Sizes of a tower. */
export interface TowerSizes {
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

function withBias(rows: readonly Row[]): Row[] {
  return rows.map((row) => ({ ...row, bias: 'always' }));
}

// ------------------------------------------------------------------------------------------------------------------- CLIP and SigLIP

const layerPrefix = 'vision_model.encoder.layers.';
const layerTarget = 'v.blk.';
const layersKey = 'vision_config.num_hidden_layers';

/** Names of parts that stand behind one or both of these prefixes. */
const parts = /^(model\.)?(vision_tower\.)?((vision_model|multi_modal_projector|connector)\..*)$/;

/** Name of a tensor of such a tower in the tables. @param isLeftOut true for names of parts that llama.cpp does not use */
const partName =
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
const siglip = (sizes: TowerSizes, projector: readonly Row[]): TensorTable => ({
  layersKey,
  layerPrefix,
  layerTarget,
  outside: [
    ...withBias([patches(sizes), { from: 'vision_model.post_layernorm', to: 'v.post_ln', shape: [sizes.hidden] }]),
    { from: `${embeddings}position_embedding`, to: 'v.position_embd', shape: [sizes.positions, sizes.hidden] },
    ...projector,
  ],
  layer: encoder(sizes),
  towerName: partName((name) => name.startsWith('vision_model.head.')),
});

export const gemma3Tower = (sizes: TowerSizes): TensorTable => {
  const projection = 'multi_modal_projector.mm_input_projection_weight';
  return siglip(sizes, [
    // Stored with its inputs as rows. llama.cpp transposes it when it runs.
    { from: projection, to: 'mm.input_projection', whole: '.weight', shape: [sizes.hidden, sizes.text] },
    { from: 'multi_modal_projector.mm_soft_emb_norm', to: 'mm.soft_emb_norm', shape: [sizes.hidden], plusOne: true },
  ]);
};

/** @param scale patches on each side that become one token */
export const idefics3Tower = (sizes: TowerSizes, scale: number): TensorTable =>
  siglip(sizes, [
    { from: 'connector.modality_projection.proj', to: 'mm.model.fc', shape: [sizes.text, sizes.hidden * scale ** 2] },
  ]);

/** CLIP up to the layer whose outputs LLaVA takes. @param all layers in the folder */
export const llavaTower = (sizes: TowerSizes, all: number): TensorTable => {
  const { hidden, text, layers } = sizes;
  const later = Array.from({ length: all - layers }, (_, i) => `${layerPrefix}${layers + i}.`);
  const isLeftOut = (name: string) =>
    name === `${embeddings}position_ids` ||
    name.startsWith('vision_model.post_layernorm.') ||
    later.some((prefix) => name.startsWith(prefix));
  return {
    layersKey,
    layerPrefix,
    layerTarget,
    outside: [
      patches(sizes),
      { from: `${embeddings}class_embedding`, to: 'v.class_embd', whole: '', shape: [hidden] },
      { from: `${embeddings}position_embedding`, to: 'v.position_embd', shape: [sizes.positions, hidden] },
      ...withBias([
        { from: 'vision_model.pre_layrnorm', to: 'v.pre_ln', shape: [hidden] },
        { from: 'multi_modal_projector.linear_1', to: 'mm.0', shape: [text, hidden] },
        { from: 'multi_modal_projector.linear_2', to: 'mm.2', shape: [text, text] },
      ]),
    ],
    layer: encoder(sizes),
    towerName: partName(isLeftOut),
  };
};

// ------------------------------------------------------------------------------------------------------------------------------ Qwen

const qwenName = (name: string) => /^(?:model\.)?(visual\..*)$/.exec(name)?.[1];

/** Patches of each side of a square that the towers of Qwen merge to one. */
export const qwenMerge = 2;
/** Frames that a patch of Qwen reaches over. */
export const qwenFrames = 2;

/** The weights of a convolution over two frames, each as one of its own. */
function framesOf({ hidden, patch }: TowerSizes): Row {
  const frame = patch ** 2;
  const view = (offset: number): ElementView => {
    const dims = [
      [hidden * colors, qwenFrames * frame],
      [frame, 1],
    ] as const;
    return { offset, dims };
  };
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

/** Queries, keys and values, each a matrix of its own. */
function sharesOf({ hidden }: TowerSizes): NonNullable<Row['shares']> {
  const third = (index: number) => (): readonly RowWindow[] => [[index * hidden, hidden]];
  return ['attn_q', 'attn_k', 'attn_v'].map((to, i) => ({ to, shape: [hidden, hidden], windows: third(i) }));
}

const qwenTable = (outside: readonly Row[], layer: readonly Row[]): TensorTable => ({
  layersKey: 'vision_config.depth',
  layerPrefix: 'visual.blocks.',
  layerTarget,
  outside,
  layer,
  towerName: qwenName,
});

/** The projector of Qwen2-VL: a norm of each patch, then two layers over merged patches. */
function merger({ hidden, text }: TowerSizes, norm: Row['bias']): Row[] {
  const merged = hidden * qwenMerge ** 2;
  return [
    { from: 'visual.merger.ln_q', to: 'v.post_ln', shape: [hidden], bias: norm ?? 'never' },
    ...withBias([
      { from: 'visual.merger.mlp.0', to: 'mm.0', shape: [merged, merged] },
      { from: 'visual.merger.mlp.2', to: 'mm.2', shape: [text, merged] },
    ]),
  ];
}

export const qwen2vlTower = (sizes: TowerSizes): TensorTable => {
  const { hidden, feedForward } = sizes;
  return qwenTable(
    [framesOf(sizes), ...merger(sizes, 'always')],
    withBias([
      { from: 'norm1', to: 'ln1', shape: [hidden] },
      { from: 'norm2', to: 'ln2', shape: [hidden] },
      { from: 'attn.qkv', to: '', shape: [3 * hidden, hidden], shares: sharesOf(sizes) },
      { from: 'attn.proj', to: 'attn_out', shape: [hidden, hidden] },
      { from: 'mlp.fc1', to: 'ffn_up', shape: [feedForward, hidden] },
      { from: 'mlp.fc2', to: 'ffn_down', shape: [hidden, feedForward] },
    ]),
  );
};

export const qwen25vlTower = (sizes: TowerSizes): TensorTable => {
  const { hidden, feedForward } = sizes;
  return qwenTable(
    [framesOf(sizes), ...merger(sizes, 'never')],
    [
      { from: 'norm1', to: 'ln1', shape: [hidden] },
      { from: 'norm2', to: 'ln2', shape: [hidden] },
      ...withBias([
        { from: 'attn.qkv', to: '', shape: [3 * hidden, hidden], shares: sharesOf(sizes) },
        { from: 'attn.proj', to: 'attn_out', shape: [hidden, hidden] },
        { from: 'mlp.gate_proj', to: 'ffn_gate', shape: [feedForward, hidden] },
        { from: 'mlp.up_proj', to: 'ffn_up', shape: [feedForward, hidden] },
        { from: 'mlp.down_proj', to: 'ffn_down', shape: [hidden, feedForward] },
      ]),
    ],
  );
};

/** @param deepstack layers whose outputs have projectors of their own */
export const qwen3vlTower = (sizes: TowerSizes, deepstack: readonly number[]): TensorTable => {
  const { hidden, feedForward, text } = sizes;
  const merged = hidden * qwenMerge ** 2;
  const projector = (from: string, norm: string, width: number, first: string, second: string): Row[] =>
    withBias([
      { from: `${from}.norm`, to: norm, shape: [width] },
      { from: `${from}.linear_fc1`, to: first, shape: [merged, merged] },
      { from: `${from}.linear_fc2`, to: second, shape: [text, merged] },
    ]);
  return qwenTable(
    [
      framesOf(sizes),
      { from: 'visual.patch_embed.proj.bias', to: 'v.patch_embd', whole: '.bias', shape: [hidden] },
      { from: 'visual.pos_embed', to: 'v.position_embd', shape: [sizes.positions, hidden] },
      ...projector('visual.merger', 'v.post_ln', hidden, 'mm.0', 'mm.2'),
      ...deepstack.flatMap((layer, i) => {
        const to = `v.deepstack.${layer}`;
        return projector(`visual.deepstack_merger_list.${i}`, `${to}.norm`, merged, `${to}.fc1`, `${to}.fc2`);
      }),
    ],
    withBias([
      { from: 'norm1', to: 'ln1', shape: [hidden] },
      { from: 'norm2', to: 'ln2', shape: [hidden] },
      { from: 'attn.qkv', to: 'attn_qkv', shape: [3 * hidden, hidden] },
      { from: 'attn.proj', to: 'attn_out', shape: [hidden, hidden] },
      { from: 'mlp.linear_fc1', to: 'ffn_up', shape: [feedForward, hidden] },
      { from: 'mlp.linear_fc2', to: 'ffn_down', shape: [hidden, feedForward] },
    ]),
  );
};

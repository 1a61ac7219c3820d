/**
 * Diffusion models in the layout of diffusers, read under the names of the original checkpoints, which ComfyUI and the readers of GGUF know.
 * Reference: github.com/Comfy-Org/ComfyUI at 09708eae, comfy/utils.py (flux_to_diffusers, mmdit_to_diffusers, auraflow_to_diffusers,
 * z_image_to_diffusers, unet_to_diffusers) and comfy/model_detection.py (convert_diffusers_mmdit). ComfyUI rearranges floats in this way when
 * it loads them, and drops the scales and markers of codes. Wan and Hunyuan Video: huggingface/diffusers at 019c4962,
 * src/diffusers/loaders/lora_conversion_utils.py, and the tables of its scripts convert_wan_to_diffusers.py and
 * convert_hunyuan_video_to_diffusers.py. Norms of Flux are named `scale`, as in the checkpoints; ComfyUI takes both names.
 */

import { ScalepointError } from '../../core/errors.js';
import { noteOf } from '../../core/note.js';
import { adaptedRows } from '../adapted-rows.js';
import { elementsOf, greatestCommonDivisor } from '../codecs/elements.js';
import { quoted } from '../files/bytes.js';
import { badTensor } from '../files/errors.js';
import type { LogicalTensor, SourceTensor } from '../format.js';
import { architectureWith, diffusersArchitecture } from './diffusion.js';

/** Modules by their names: of diffusers, and of the original. */
type Modules = Readonly<Record<string, string>>;

/** Modules of a block, whose names follow the number of the block. */
interface Block {
  /** Original name of the list of blocks. */
  readonly to: string;
  readonly modules: Modules;
  /** Norms whose weight is named `scale`. */
  readonly norms?: Modules;
  /** Original modules that hold the rows of several, in this order. */
  readonly joined?: Readonly<Record<string, readonly string[]>>;
  /** A module that is swapped in the last block. */
  readonly swappedInLast?: string;
}

/** The names of an architecture. */
interface Names {
  readonly architecture: string;
  /** A tensor that no other model has. */
  readonly key: string;
  readonly blocks: Readonly<Record<string, Block>>;
  readonly modules: Modules;
  /** Modules whose two halves of rows change places: shift and scale in the original, scale and shift in diffusers. */
  readonly swapped?: Modules;
}

const threeOf = (prefix: string, [q, k, v]: readonly [string, string, string]) =>
  [q, k, v].map((name) => `${prefix}.${name}`);
const plainNames = ['to_q', 'to_k', 'to_v'] as const;
const addedNames = ['add_q_proj', 'add_k_proj', 'add_v_proj'] as const;

/** The two linear layers of an embedder. */
const embedder = (from: string, to: string, first = 'mlp.0', second = 'mlp.2'): Modules => ({
  [`${from}.linear_1`]: `${to}.${first}`,
  [`${from}.linear_2`]: `${to}.${second}`,
});

/** The two linear layers of a feed-forward network. */
const feedForward = (from: string, first: string, second: string): Modules => ({
  [`${from}.net.0.proj`]: first,
  [`${from}.net.2`]: second,
});

/** Layers or norms of queries and of keys. */
const queryAndKey = (from: string, query: string, key: string): Modules => ({
  [`${from}_q`]: query,
  [`${from}_k`]: key,
});

const flux: Names = {
  architecture: 'flux',
  key: 'single_transformer_blocks.0.attn.norm_k.weight',
  blocks: {
    transformer_blocks: {
      to: 'double_blocks',
      modules: {
        'attn.to_out.0': 'img_attn.proj',
        'attn.to_add_out': 'txt_attn.proj',
        'norm1.linear': 'img_mod.lin',
        'norm1_context.linear': 'txt_mod.lin',
        ...feedForward('ff', 'img_mlp.0', 'img_mlp.2'),
        ...feedForward('ff_context', 'txt_mlp.0', 'txt_mlp.2'),
      },
      norms: {
        ...queryAndKey('attn.norm', 'img_attn.norm.query_norm', 'img_attn.norm.key_norm'),
        ...queryAndKey('attn.norm_added', 'txt_attn.norm.query_norm', 'txt_attn.norm.key_norm'),
      },
      joined: { 'img_attn.qkv': threeOf('attn', plainNames), 'txt_attn.qkv': threeOf('attn', addedNames) },
    },
    single_transformer_blocks: {
      to: 'single_blocks',
      modules: { 'norm.linear': 'modulation.lin', proj_out: 'linear2' },
      norms: { 'attn.norm_q': 'norm.query_norm', 'attn.norm_k': 'norm.key_norm' },
      joined: { linear1: [...threeOf('attn', plainNames), 'proj_mlp'] },
    },
  },
  modules: {
    x_embedder: 'img_in',
    context_embedder: 'txt_in',
    proj_out: 'final_layer.linear',
    ...embedder('time_text_embed.timestep_embedder', 'time_in', 'in_layer', 'out_layer'),
    ...embedder('time_text_embed.text_embedder', 'vector_in', 'in_layer', 'out_layer'),
    ...embedder('time_text_embed.guidance_embedder', 'guidance_in', 'in_layer', 'out_layer'),
  },
  swapped: { 'norm_out.linear': 'final_layer.adaLN_modulation.1' },
};

const sd3: Names = {
  architecture: 'sd3',
  key: 'transformer_blocks.0.ff_context.net.0.proj.weight',
  blocks: {
    transformer_blocks: {
      to: 'joint_blocks',
      modules: {
        'norm1_context.linear': 'context_block.adaLN_modulation.1',
        'attn.to_add_out': 'context_block.attn.proj',
        ...feedForward('ff_context', 'context_block.mlp.fc1', 'context_block.mlp.fc2'),
        ...queryAndKey('attn.norm_added', 'context_block.attn.ln_q', 'context_block.attn.ln_k'),
        'norm1.linear': 'x_block.adaLN_modulation.1',
        'attn.to_out.0': 'x_block.attn.proj',
        ...queryAndKey('attn.norm', 'x_block.attn.ln_q', 'x_block.attn.ln_k'),
        'attn2.to_out.0': 'x_block.attn2.proj',
        ...queryAndKey('attn2.norm', 'x_block.attn2.ln_q', 'x_block.attn2.ln_k'),
        ...feedForward('ff', 'x_block.mlp.fc1', 'x_block.mlp.fc2'),
      },
      joined: {
        'x_block.attn.qkv': threeOf('attn', plainNames),
        'context_block.attn.qkv': threeOf('attn', addedNames),
        'x_block.attn2.qkv': threeOf('attn2', plainNames),
      },
      swappedInLast: 'norm1_context.linear',
    },
  },
  modules: {
    context_embedder: 'context_embedder',
    ...embedder('time_text_embed.timestep_embedder', 't_embedder'),
    ...embedder('time_text_embed.text_embedder', 'y_embedder'),
    'pos_embed.proj': 'x_embedder.proj',
    'pos_embed.pos_embed': 'pos_embed',
    proj_out: 'final_layer.linear',
  },
  swapped: { 'norm_out.linear': 'final_layer.adaLN_modulation.1' },
};

const aura: Names = {
  architecture: 'aura',
  key: 'joint_transformer_blocks.0.attn.add_k_proj.weight',
  blocks: {
    joint_transformer_blocks: {
      to: 'double_layers',
      modules: {
        ...queryAndKey('attn.to', 'attn.w2q', 'attn.w2k'),
        'attn.to_v': 'attn.w2v',
        'attn.to_out.0': 'attn.w2o',
        'attn.add_q_proj': 'attn.w1q',
        'attn.add_k_proj': 'attn.w1k',
        'attn.add_v_proj': 'attn.w1v',
        'attn.to_add_out': 'attn.w1o',
        ...embedder('ff', 'mlpX', 'c_fc1', 'c_fc2'),
        'ff.out_projection': 'mlpX.c_proj',
        ...embedder('ff_context', 'mlpC', 'c_fc1', 'c_fc2'),
        'ff_context.out_projection': 'mlpC.c_proj',
        'norm1.linear': 'modX.1',
        'norm1_context.linear': 'modC.1',
      },
    },
    single_transformer_blocks: {
      to: 'single_layers',
      modules: {
        ...queryAndKey('attn.to', 'attn.w1q', 'attn.w1k'),
        'attn.to_v': 'attn.w1v',
        'attn.to_out.0': 'attn.w1o',
        'norm1.linear': 'modCX.1',
        ...embedder('ff', 'mlp', 'c_fc1', 'c_fc2'),
        'ff.out_projection': 'mlp.c_proj',
      },
    },
  },
  modules: {
    'pos_embed.pos_embed': 'positional_encoding',
    register_tokens: 'register_tokens',
    ...embedder('time_step_proj', 't_embedder'),
    context_embedder: 'cond_seq_linear',
    'pos_embed.proj': 'init_x_linear',
    proj_out: 'final_linear',
  },
  swapped: { 'norm_out.linear': 'modF.1' },
};

const same = (...names: readonly string[]): Modules => Object.fromEntries(names.map((name) => [name, name]));

/** Blocks of Z-Image, which ComfyUI runs as a Lumina 2. */
const zImageBlock: Omit<Block, 'to'> = {
  modules: {
    ...queryAndKey('attention.norm', 'attention.q_norm', 'attention.k_norm'),
    'attention.to_out.0': 'attention.out',
    ...same('attention_norm1', 'attention_norm2', 'ffn_norm1', 'ffn_norm2', 'adaLN_modulation.0'),
    ...same('feed_forward.w1', 'feed_forward.w2', 'feed_forward.w3'),
  },
  joined: { 'attention.qkv': threeOf('attention', plainNames) },
};

const zImage: Names = {
  architecture: 'lumina2',
  key: 'noise_refiner.0.attention.norm_k.weight',
  blocks: Object.fromEntries(['layers', 'context_refiner', 'noise_refiner'].map((to) => [to, { to, ...zImageBlock }])),
  modules: {
    'all_final_layer.2-1.linear': 'final_layer.linear',
    'all_final_layer.2-1.adaLN_modulation.1': 'final_layer.adaLN_modulation.1',
    'all_x_embedder.2-1': 'x_embedder',
    ...same('x_pad_token', 'cap_pad_token', 'cap_embedder.0', 'cap_embedder.1', 't_embedder.mlp.0', 't_embedder.mlp.2'),
  },
};

const wanAttention = (from: string, to: string): Modules => ({
  [`${from}.to_q`]: `${to}.q`,
  [`${from}.to_k`]: `${to}.k`,
  [`${from}.to_v`]: `${to}.v`,
  [`${from}.to_out.0`]: `${to}.o`,
  [`${from}.norm_q`]: `${to}.norm_q`,
  [`${from}.norm_k`]: `${to}.norm_k`,
});
const wanBlock: Modules = {
  ...wanAttention('attn1', 'self_attn'),
  ...wanAttention('attn2', 'cross_attn'),
  'attn2.add_k_proj': 'cross_attn.k_img',
  'attn2.add_v_proj': 'cross_attn.v_img',
  'attn2.norm_added_k': 'cross_attn.norm_k_img',
  ...feedForward('ffn', 'ffn.0', 'ffn.2'),
  // The norm in front of the second attention is the third of the original.
  norm2: 'norm3',
  norm3: 'norm2',
  scale_shift_table: 'modulation',
};

const wan: Names = {
  architecture: 'wan',
  key: 'condition_embedder.time_proj.weight',
  blocks: {
    blocks: { to: 'blocks', modules: wanBlock },
    vace_blocks: { to: 'vace_blocks', modules: { ...wanBlock, proj_in: 'before_proj', proj_out: 'after_proj' } },
  },
  modules: {
    ...same('patch_embedding', 'vace_patch_embedding'),
    ...embedder('condition_embedder.time_embedder', 'time_embedding', '0', '2'),
    ...embedder('condition_embedder.text_embedder', 'text_embedding', '0', '2'),
    'condition_embedder.time_proj': 'time_projection.1',
    'condition_embedder.image_embedder.norm1': 'img_emb.proj.0',
    ...feedForward('condition_embedder.image_embedder.ff', 'img_emb.proj.1', 'img_emb.proj.3'),
    'condition_embedder.image_embedder.norm2': 'img_emb.proj.4',
    'condition_embedder.image_embedder.pos_embed': 'img_emb.emb_pos',
    scale_shift_table: 'head.modulation',
    proj_out: 'head.head',
  },
};

const hunyuanVideo: Names = {
  architecture: 'hyvid',
  key: 'context_embedder.token_refiner.refiner_blocks.0.attn.to_q.weight',
  blocks: {
    transformer_blocks: {
      to: 'double_blocks',
      modules: {
        ...queryAndKey('attn.norm', 'img_attn_q_norm', 'img_attn_k_norm'),
        ...queryAndKey('attn.norm_added', 'txt_attn_q_norm', 'txt_attn_k_norm'),
        'attn.to_out.0': 'img_attn_proj',
        'attn.to_add_out': 'txt_attn_proj',
        'norm1.linear': 'img_mod.linear',
        'norm1_context.linear': 'txt_mod.linear',
        ...feedForward('ff', 'img_mlp.fc1', 'img_mlp.fc2'),
        ...feedForward('ff_context', 'txt_mlp.fc1', 'txt_mlp.fc2'),
      },
      joined: { img_attn_qkv: threeOf('attn', plainNames), txt_attn_qkv: threeOf('attn', addedNames) },
    },
    single_transformer_blocks: {
      to: 'single_blocks',
      modules: {
        ...queryAndKey('attn.norm', 'q_norm', 'k_norm'),
        'norm.linear': 'modulation.linear',
        proj_out: 'linear2',
      },
      joined: { linear1: [...threeOf('attn', plainNames), 'proj_mlp'] },
    },
    'context_embedder.token_refiner.refiner_blocks': {
      to: 'txt_in.individual_token_refiner.blocks',
      modules: {
        ...same('norm1', 'norm2'),
        'attn.to_out.0': 'self_attn_proj',
        ...feedForward('ff', 'mlp.fc1', 'mlp.fc2'),
        'norm_out.linear': 'adaLN_modulation.1',
      },
      joined: { self_attn_qkv: threeOf('attn', plainNames) },
    },
  },
  modules: {
    'x_embedder.proj': 'img_in.proj',
    'context_embedder.proj_in': 'txt_in.input_embedder',
    ...embedder('context_embedder.time_text_embed.timestep_embedder', 'txt_in.t_embedder'),
    ...embedder('context_embedder.time_text_embed.text_embedder', 'txt_in.c_embedder', 'linear_1', 'linear_2'),
    ...embedder('time_text_embed.timestep_embedder', 'time_in'),
    ...embedder('time_text_embed.text_embedder', 'vector_in', 'in_layer', 'out_layer'),
    ...embedder('time_text_embed.guidance_embedder', 'guidance_in'),
    proj_out: 'final_layer.linear',
  },
  swapped: { 'norm_out.linear': 'final_layer.adaLN_modulation.1' },
};

/** Transformers, in the order of detection: Flux has the key of SD3 as well, and Hunyuan Video that of Flux. */
const transformers: readonly Names[] = [aura, zImage, wan, hunyuanVideo, flux, sd3];

// ------------------------------------------------------------------------------------------------------------------------- names

/** The original place of a tensor of diffusers. */
interface Place {
  readonly name: string;
  /** Its place among the tensors that are joined, and their names. */
  readonly joined?: { readonly index: number; readonly all: readonly string[] };
  readonly isSwapped?: boolean;
}

/** Gives the original place of a tensor of diffusers; undefined for others. */
type FindPlace = (name: string) => Place | undefined;

/** A name without its last part, which is `weight` or `bias`, and that part with its dot. Whole parameters have the name of a module. */
function splitEnd(name: string): readonly [module: string, end: string] {
  const [, module, end] = /^(.*)(\.(?:weight|bias))$/s.exec(name) ?? [];
  return module === undefined || end === undefined ? [name, ''] : [module, end];
}

const moduleEntry = <T>(table: Readonly<Record<string, T>> | undefined, key: string): T | undefined =>
  table !== undefined && Object.hasOwn(table, key) ? table[key] : undefined;

function transformerPlaces({ blocks, modules, swapped }: Names, names: Iterable<string>): FindPlace {
  const counts = new Map<string, number>();
  const inBlock = (name: string) => /^([a-z_]+(?:\.[a-z_]+)*)\.(\d{1,6})\.(.+)$/s.exec(name) ?? [];
  for (const name of names) {
    const [, list = '', number = -1] = inBlock(name);
    counts.set(list, Math.max(counts.get(list) ?? 0, Number(number) + 1));
  }
  return (name) => {
    const [module, end] = splitEnd(name);
    const swap = moduleEntry(swapped, module);
    if (swap !== undefined) return { name: swap + end, isSwapped: true };
    const alone = moduleEntry(modules, module);
    if (alone !== undefined) return { name: alone + end };
    const [, list = '', number, within = ''] = inBlock(module);
    const block = moduleEntry(blocks, list);
    if (block === undefined) return undefined;
    const at = `${block.to}.${number}`;
    const renamed = moduleEntry(block.modules, within);
    const isSwapped = within === block.swappedInLast && Number(number) === (counts.get(list) ?? 0) - 1;
    if (renamed !== undefined) return { name: `${at}.${renamed}${end}`, isSwapped };
    const norm = moduleEntry(block.norms, within);
    if (norm !== undefined && end === '.weight') return { name: `${at}.${norm}.scale` };
    const [joined, all] = Object.entries(block.joined ?? {}).find(([, some]) => some.includes(within)) ?? [];
    if (all === undefined) return undefined;
    const allNames = all.map((one) => `${list}.${number}.${one}${end}`);
    return { name: `${at}.${joined}${end}`, joined: { index: all.indexOf(within), all: allNames } };
  };
}

/** Modules of a residual block. */
const resnet: Modules = {
  norm1: 'in_layers.0',
  conv1: 'in_layers.2',
  time_emb_proj: 'emb_layers.1',
  norm2: 'out_layers.0',
  conv2: 'out_layers.3',
  conv_shortcut: 'skip_connection',
};

const attention =
  /^(proj_in|proj_out|norm|transformer_blocks\.\d{1,4}\.(norm[123]|attn[12]\.(to_[qkv]|to_out\.0)|ff\.net\.(0\.proj|2)))$/;

const unetModules: Modules = {
  conv_in: 'input_blocks.0.0',
  conv_norm_out: 'out.0',
  conv_out: 'out.2',
  ...embedder('time_embedding', 'time_embed', '0', '2'),
  ...embedder('add_embedding', 'label_emb.0', '0', '2'),
  ...embedder('class_embedding', 'label_emb.0', '0', '2'),
};

/** Tensors that all UNets of Stable Diffusion have, and neither the networks that control them nor VAEs. */
const unetKeys = [
  'conv_in.weight',
  'down_blocks.0.resnets.0.conv1.weight',
  'up_blocks.0.resnets.0.conv1.weight',
] as const;

/** @param each number of residual blocks in each block on the way down @param hasAttention of the last part of a block on the way up */
function unetPlaces(each: number, hasAttention: (block: number) => boolean): FindPlace {
  const bodyOf = (part: string, module: string) =>
    part === 'resnets' ? moduleEntry(resnet, module) : attention.test(module) ? module : undefined;
  return (name) => {
    const [module, end] = splitEnd(name);
    const alone = moduleEntry(unetModules, module);
    if (alone !== undefined) return { name: alone + end };
    const [, middle, middleNumber, middleModule = ''] =
      /^mid_block\.(resnets|attentions)\.(\d)\.(.+)$/s.exec(module) ?? [];
    if (middle !== undefined) {
      const at = middle === 'attentions' ? 1 : 2 * Number(middleNumber);
      const body = bodyOf(middle, middleModule);
      const isKnown = body !== undefined && (middle === 'resnets' ? at <= 2 : middleNumber === '0');
      return isKnown ? { name: `middle_block.${at}.${body}${end}` } : undefined;
    }
    const [, side, blockText, rest = ''] = /^(down|up)_blocks\.(\d{1,2})\.(.+)$/s.exec(module) ?? [];
    if (side === undefined) return undefined;
    const [block, perBlock] = [Number(blockText), each + 1];
    if (rest === 'downsamplers.0.conv' && side === 'down')
      return { name: `input_blocks.${perBlock * (block + 1)}.0.op${end}` };
    if (rest === 'upsamplers.0.conv' && side === 'up')
      return { name: `output_blocks.${perBlock * block + each}.${hasAttention(block) ? 2 : 1}.conv${end}` };
    const [, part = '', number, within = ''] = /^(resnets|attentions)\.(\d{1,2})\.(.+)$/s.exec(rest) ?? [];
    const body = bodyOf(part, within);
    if (body === undefined) return undefined;
    const at = perBlock * block + Number(number) + (side === 'down' ? 1 : 0);
    return { name: `${side === 'down' ? 'input' : 'output'}_blocks.${at}.${part === 'resnets' ? 0 : 1}.${body}${end}` };
  };
}

// ----------------------------------------------------------------------------------------------------------------------- tensors

/** Most pieces of equal size into which the rows of a tensor are taken apart. */
const mostPieces = 64;

/** Rows of a stored tensor, as a tensor of their own. */
export function storedRows(tensor: SourceTensor, first: number, rows: number): SourceTensor {
  const { shape, bytes, byteOffset } = tensor;
  const each = bytes / (shape[0] ?? 1);
  return { ...tensor, shape: [rows, ...shape.slice(1)], bytes: each * rows, byteOffset: byteOffset + each * first };
}

/** Rows of a weight of floats, with adapters or without, as one of its own; undefined if they cannot be read alone. */
function someRows(source: LogicalTensor, first: number, rows: number): LogicalTensor | undefined {
  const { form, parts, gathered, ...others } = source;
  const [part] = parts;
  const shape = [rows, ...source.shape.slice(1)];
  if (gathered?.members !== undefined) {
    // These were joined from pieces of one size.
    const each = (source.shape[0] ?? 1) / gathered.members.length;
    const member = gathered.members[first / each];
    return rows === each && member ? { ...others, ...member, shape } : undefined;
  }
  if (form.codec !== 'cast' || part === undefined || parts.length !== 1 || gathered !== undefined)
    return adaptedRows(source, first, rows);
  return { ...source, shape, parts: [{ role: 'data', tensor: storedRows(part.tensor, first, rows) }] };
}

/** The rows of several tensors after each other, in pieces of one size; or those of one with its halves in each other's place. */
export function rearranged(name: string, sources: readonly LogicalTensor[], isSwapped = false): LogicalTensor {
  const [first] = sources as [LogicalTensor];
  const text = ({ type, shape }: LogicalTensor) => `${type} [${shape.join(', ')}]`;
  for (const source of sources) {
    const fits = source.type === first.type && source.shape.slice(1).join() === first.shape.slice(1).join();
    if (!fits || source.shape.length === 0)
      badTensor(source.name, `it is ${text(source)}, and ${first.name} is ${text(first)}`);
  }
  const rows = sources.map(({ shape }) => shape[0] as number);
  const total = rows.reduce((sum, n) => sum + n, 0);
  const unit = isSwapped ? total / 2 : rows.reduce(greatestCommonDivisor, 0);
  if (total === 0 || !Number.isInteger(unit) || total / unit > mostPieces)
    badTensor(first.name, `its ${rows.join(', ')} rows are not those of ${name}`);
  const pieces = sources.flatMap((source, i) =>
    Array.from({ length: (rows[i] as number) / unit }, (_, at) => {
      // Codes with scales are read as a whole.
      const lacks = `diffusers stores it apart from others, and ${source.type} with scales is not joined; make floats of it first`;
      return someRows(source, at * unit, unit) ?? badTensor(source.name, lacks);
    }),
  );
  if (isSwapped) pieces.reverse();
  const adapted = pieces.find(({ form }) => form.codec !== 'cast');
  const members = adapted && pieces.map(({ form, parts }) => ({ form, parts }));
  return {
    name,
    shape: [total, ...first.shape.slice(1)],
    type: first.type,
    form: (adapted ?? first).form,
    parts: pieces.flatMap(({ parts }) => parts),
    isRenamed: true,
    gathered: { width: elementsOf(first.shape.slice(1)), ...(members && { members }) },
  };
}

/**
 * The weights that are rows of one, in their order.
 * @param count their number
 * @returns undefined for a weight that is not a matrix of floats, or whose rows do not suffice for that count
 */
export function takenApart(weight: LogicalTensor, count: number): LogicalTensor[] | undefined {
  const { shape, form } = weight;
  const [rows = 0, columns = 0, ...others] = shape;
  if (form.codec !== 'cast' || others.length > 0) return undefined;
  // Halves, and queries, keys and values, are alike. What follows these has the other rows.
  const each = count <= 3 ? rows / count : columns;
  const last = rows - (count - 1) * each;
  if (!Number.isInteger(each) || each === 0 || last <= 0) return undefined;
  const pieces = Array.from({ length: count }, (_, i) => someRows(weight, i * each, i < count - 1 ? each : last));
  return pieces.every((piece) => piece !== undefined) ? pieces : undefined;
}

/**
 * The places of a model's tensors, and its architecture; undefined for models that are not in the layout of diffusers. The places are
 * undefined for a UNet with other numbers of blocks than those of Stable Diffusion.
 */
function diffusersPlaces(names: ReadonlySet<string>) {
  // The names of some originals are those of diffusers.
  if (!names.has(unetKeys[1]) && architectureWith(names) !== undefined) return undefined;
  const known = transformers.find(({ key }) => names.has(key));
  if (known !== undefined) return { architecture: known.architecture, placeOf: transformerPlaces(known, names) };
  if (!unetKeys.every((key) => names.has(key))) return undefined;
  // Count the residual blocks of each block.
  const has = (side: string, block: number, i: number) =>
    names.has(`${side}_blocks.${block}.resnets.${i}.conv1.weight`);
  const count = (side: string, block: number) => {
    let n = 0;
    while (has(side, block, n)) n++;
    return n;
  };
  const each = count('down', 0);
  let isRegular = true;
  for (const [side, expected] of [['down', each] as const, ['up', each + 1] as const])
    for (let block = 0; has(side, block, 0); block++) isRegular &&= count(side, block) === expected;
  const hasAttention = (block: number) => names.has(`up_blocks.${block}.attentions.${each}.proj_in.weight`);
  const architecture = names.has('add_embedding.linear_1.weight') ? 'sdxl' : 'sd1';
  return { architecture, placeOf: isRegular ? unetPlaces(each, hasAttention) : undefined };
}

/**
 * Reads a diffusion model of diffusers as its original.
 * @returns undefined for models that are not in the layout of diffusers, or of architectures that are not known
 * @throws ScalepointError `UNKNOWN_FORMAT` or `BAD_FILE`, which names a tensor that has no place or does not fit
 */
export function originalModel(tensors: readonly LogicalTensor[]) {
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const names = new Set(byName.keys());
  const found = diffusersPlaces(names);
  const refuse = (message: string, tensor?: string): never => {
    throw new ScalepointError('UNKNOWN_FORMAT', message, { tensor });
  };
  const refuseParts = (architecture: string) =>
    refuse(
      `the file holds ${architecture} in the layout of diffusers without all of the tensors by which readers know the original; give the ` +
        'index of all files of the model, such as transformer/diffusion_pytorch_model.safetensors.index.json',
    );
  if (found === undefined) {
    const partial = architectureWith(names) === undefined ? diffusersArchitecture(names) : undefined;
    return partial === undefined ? undefined : refuseParts(partial);
  }
  const { architecture, placeOf } = found;
  if (placeOf === undefined)
    return refuse(
      'the file holds a UNet in the layout of diffusers, with other numbers of blocks than those of Stable Diffusion',
    );
  const taken = new Map<string, string>();
  const results = tensors.flatMap((tensor): LogicalTensor[] => {
    const place = placeOf(tensor.name);
    if (place === undefined) {
      const message = `tensor ${quoted(tensor.name)}: the original ${architecture} has no place for it, so that no reader would load it`;
      return refuse(message, tensor.name);
    }
    const { name, joined, isSwapped = false } = place;
    const named = (one: string) =>
      byName.get(one) ?? badTensor(one, `it is missing, and ${tensor.name} is joined with it`);
    if (joined !== undefined && joined.index > 0) {
      named(joined.all[0] as string);
      return [];
    }
    const other = taken.get(name);
    if (other !== undefined) badTensor(tensor.name, `${other} has the same place, ${name}`);
    taken.set(name, tensor.name);
    if (isSwapped) return [rearranged(name, [tensor], true)];
    return [joined === undefined ? { ...tensor, name, isRenamed: true } : rearranged(name, joined.all.map(named))];
  });
  if (architectureWith(new Set(taken.keys()))?.name !== architecture) refuseParts(architecture);
  const text =
    `the file is in the layout of diffusers; its tensors get the names of the original ${architecture}, and those that it has as one are ` +
    'joined, as ComfyUI does when it loads floats';
  return { architecture, tensors: results, note: noteOf('diffusersLayout', { architecture }, text) };
}

// ----------------------------------------------------------------------------------------- layers of one layout in a model of the other

/** A place of some rows of a layer in a model of the other layout. */
export interface LayerPlace {
  /** Name of the weight. */
  readonly weight: string;
  /** The rows among parts of the weight, and the number of these parts; undefined for all rows. */
  readonly part?: { readonly index: number; readonly count: number } | undefined;
}

/** Places of the rows of layers, in their order, by the names of the layers. */
type LayerPlaces = Map<string, readonly LayerPlace[]>;

/** Places of the halves of a layer that change places. */
const swappedPlaces = (weight: string): readonly LayerPlace[] =>
  [1, 0].map((index) => ({ weight, part: { index, count: 2 } }));

/** Names of all layers that a UNet of Stable Diffusion may have. */
function unetLayers(): string[] {
  const inner = ['attn1', 'attn2'].flatMap((at) => ['to_q', 'to_k', 'to_v', 'to_out.0'].map((to) => `${at}.${to}`));
  const inBlocks = Array.from({ length: 10 }, (_, i) =>
    [...inner, 'ff.net.0.proj', 'ff.net.2'].map((name) => `attentions.?.transformer_blocks.${i}.${name}`),
  );
  const resnets = Object.keys(resnet).map((name) => `resnets.?.${name}`);
  const each = [...resnets, 'attentions.?.proj_in', 'attentions.?.proj_out', ...inBlocks.flat()];
  // Stable Diffusion has two residual blocks in each block on the way down, and three on the way up.
  const bodies = (at: string, count: number) =>
    each.flatMap((name) => Array.from({ length: count }, (_, i) => `${at}.${name.replace('?', String(i))}`));
  const blocks = [0, 1, 2, 3].flatMap((i) => [
    ...bodies(`down_blocks.${i}`, 2),
    ...bodies(`up_blocks.${i}`, 3),
    `down_blocks.${i}.downsamplers.0.conv`,
    `up_blocks.${i}.upsamplers.0.conv`,
  ]);
  return [...Object.keys(unetModules), ...blocks, ...bodies('mid_block', 2)];
}

/** Places of layers of diffusers in an original checkpoint; undefined for models that are not known. @param prefix of the model's tensors */
function placesInOriginal(names: ReadonlySet<string>, prefix: string): LayerPlaces | undefined {
  const architecture = architectureWith(names)?.name;
  const isUnet = (architecture === 'sd1' || architecture === 'sdxl') && names.has('input_blocks.0.0.weight');
  const known = transformers.find((one) => one.architecture === architecture);
  if (known === undefined && !isUnet) return undefined;
  // List the layers that diffusers has.
  const layers: string[] = known === undefined ? unetLayers() : Object.keys({ ...known.modules, ...known.swapped });
  for (const [list, { to, modules, joined = {} }] of Object.entries(known?.blocks ?? {})) {
    const all = [...Object.keys(modules), ...Object.values(joined).flat()];
    const inList = [...names].filter((name) => name.startsWith(`${to}.`));
    for (const number of new Set(inList.map((name) => name.slice(to.length + 1).split('.')[0])))
      for (const module of all) layers.push(`${list}.${number}.${module}`);
  }
  const hasAttention = (block: number) => names.has(`output_blocks.${3 * block + 2}.1.proj_in.weight`);
  const placeOf = known === undefined ? unetPlaces(2, hasAttention) : transformerPlaces(known, layers);
  const places: LayerPlaces = new Map();
  for (const layer of layers) {
    const { name = '', joined, isSwapped } = placeOf(`${layer}.weight`) ?? {};
    const part = joined && { index: joined.index, count: joined.all.length };
    const weight = prefix + name;
    if (names.has(name)) places.set(layer, isSwapped ? swappedPlaces(weight) : [{ weight, part }]);
  }
  return places;
}

/**
 * Makes a function from the layers of adapters to their places in a diffusion model, by the tables that read models of diffusers: from layers
 * of diffusers to those of an original checkpoint, and from these to those of diffusers. Layers may have underscores for dots. It returns
 * undefined for other layers, and for models that are not known.
 * @param names of the tensors of the model
 */
export function layerPlaces(names: readonly string[]): (layer: string) => readonly LayerPlace[] | undefined {
  const all = new Set(names);
  const found = diffusersPlaces(all);
  let places: LayerPlaces | undefined;
  if (found?.placeOf !== undefined) {
    places = new Map();
    for (const weight of all) {
      const { name, joined, isSwapped } = found.placeOf(weight) ?? {};
      const sources = joined?.all ?? [weight];
      if (name?.endsWith('.weight') !== true || !sources.every((one) => all.has(one))) continue;
      places.set(splitEnd(name)[0], isSwapped ? swappedPlaces(weight) : sources.map((one) => ({ weight: one })));
    }
  }
  // A checkpoint may bundle the model with others, under one of these prefixes.
  for (const prefix of found === undefined ? ['', 'model.diffusion_model.', 'diffusion_model.', 'model.'] : []) {
    const inside = names.flatMap((name) => (name.startsWith(prefix) ? [name.slice(prefix.length)] : []));
    places ??= placesInOriginal(new Set(inside), prefix);
  }
  const underscored = new Map([...(places ?? [])].map(([layer, place]) => [layer.replaceAll('.', '_'), place]));
  return (layer) => underscored.get(layer.replaceAll('.', '_'));
}

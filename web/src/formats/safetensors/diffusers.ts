/**
 * Diffusion models in the layout of diffusers, read under the names of the original checkpoints, which ComfyUI and the readers of GGUF know.
 * Reference: github.com/Comfy-Org/ComfyUI at 09708eae, comfy/utils.py (flux_to_diffusers, mmdit_to_diffusers, auraflow_to_diffusers,
 * z_image_to_diffusers, unet_to_diffusers) and comfy/model_detection.py (convert_diffusers_mmdit). ComfyUI rearranges floats in this way when
 * it loads them, and drops the scales and markers of codes. Wan and Hunyuan Video: huggingface/diffusers at 019c4962,
 * src/diffusers/loaders/lora_conversion_utils.py, and the tables of its scripts convert_wan_to_diffusers.py and
 * convert_hunyuan_video_to_diffusers.py. Norms of Flux are named `scale`, as in the checkpoints; ComfyUI takes both names.
 */

import { ScalepointError } from '../../core/errors.js';
import { type Note, noteOf } from '../../core/note.js';
import { adaptedRows } from '../adapted-rows.js';
import { elementsOf } from '../codecs/elements.js';
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
        'ff.net.0.proj': 'img_mlp.0',
        'ff.net.2': 'img_mlp.2',
        'ff_context.net.0.proj': 'txt_mlp.0',
        'ff_context.net.2': 'txt_mlp.2',
      },
      norms: {
        'attn.norm_q': 'img_attn.norm.query_norm',
        'attn.norm_k': 'img_attn.norm.key_norm',
        'attn.norm_added_q': 'txt_attn.norm.query_norm',
        'attn.norm_added_k': 'txt_attn.norm.key_norm',
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
    'time_text_embed.timestep_embedder.linear_1': 'time_in.in_layer',
    'time_text_embed.timestep_embedder.linear_2': 'time_in.out_layer',
    'time_text_embed.text_embedder.linear_1': 'vector_in.in_layer',
    'time_text_embed.text_embedder.linear_2': 'vector_in.out_layer',
    'time_text_embed.guidance_embedder.linear_1': 'guidance_in.in_layer',
    'time_text_embed.guidance_embedder.linear_2': 'guidance_in.out_layer',
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
        'ff_context.net.0.proj': 'context_block.mlp.fc1',
        'ff_context.net.2': 'context_block.mlp.fc2',
        'attn.norm_added_q': 'context_block.attn.ln_q',
        'attn.norm_added_k': 'context_block.attn.ln_k',
        'norm1.linear': 'x_block.adaLN_modulation.1',
        'attn.to_out.0': 'x_block.attn.proj',
        'attn.norm_q': 'x_block.attn.ln_q',
        'attn.norm_k': 'x_block.attn.ln_k',
        'attn2.to_out.0': 'x_block.attn2.proj',
        'attn2.norm_q': 'x_block.attn2.ln_q',
        'attn2.norm_k': 'x_block.attn2.ln_k',
        'ff.net.0.proj': 'x_block.mlp.fc1',
        'ff.net.2': 'x_block.mlp.fc2',
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
    'time_text_embed.timestep_embedder.linear_1': 't_embedder.mlp.0',
    'time_text_embed.timestep_embedder.linear_2': 't_embedder.mlp.2',
    'time_text_embed.text_embedder.linear_1': 'y_embedder.mlp.0',
    'time_text_embed.text_embedder.linear_2': 'y_embedder.mlp.2',
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
        'attn.to_q': 'attn.w2q',
        'attn.to_k': 'attn.w2k',
        'attn.to_v': 'attn.w2v',
        'attn.to_out.0': 'attn.w2o',
        'attn.add_q_proj': 'attn.w1q',
        'attn.add_k_proj': 'attn.w1k',
        'attn.add_v_proj': 'attn.w1v',
        'attn.to_add_out': 'attn.w1o',
        'ff.linear_1': 'mlpX.c_fc1',
        'ff.linear_2': 'mlpX.c_fc2',
        'ff.out_projection': 'mlpX.c_proj',
        'ff_context.linear_1': 'mlpC.c_fc1',
        'ff_context.linear_2': 'mlpC.c_fc2',
        'ff_context.out_projection': 'mlpC.c_proj',
        'norm1.linear': 'modX.1',
        'norm1_context.linear': 'modC.1',
      },
    },
    single_transformer_blocks: {
      to: 'single_layers',
      modules: {
        'attn.to_q': 'attn.w1q',
        'attn.to_k': 'attn.w1k',
        'attn.to_v': 'attn.w1v',
        'attn.to_out.0': 'attn.w1o',
        'norm1.linear': 'modCX.1',
        'ff.linear_1': 'mlp.c_fc1',
        'ff.linear_2': 'mlp.c_fc2',
        'ff.out_projection': 'mlp.c_proj',
      },
    },
  },
  modules: {
    'pos_embed.pos_embed': 'positional_encoding',
    register_tokens: 'register_tokens',
    'time_step_proj.linear_1': 't_embedder.mlp.0',
    'time_step_proj.linear_2': 't_embedder.mlp.2',
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
    'attention.norm_q': 'attention.q_norm',
    'attention.norm_k': 'attention.k_norm',
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
  'ffn.net.0.proj': 'ffn.0',
  'ffn.net.2': 'ffn.2',
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
    'condition_embedder.time_embedder.linear_1': 'time_embedding.0',
    'condition_embedder.time_embedder.linear_2': 'time_embedding.2',
    'condition_embedder.text_embedder.linear_1': 'text_embedding.0',
    'condition_embedder.text_embedder.linear_2': 'text_embedding.2',
    'condition_embedder.time_proj': 'time_projection.1',
    'condition_embedder.image_embedder.norm1': 'img_emb.proj.0',
    'condition_embedder.image_embedder.ff.net.0.proj': 'img_emb.proj.1',
    'condition_embedder.image_embedder.ff.net.2': 'img_emb.proj.3',
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
        'attn.norm_q': 'img_attn_q_norm',
        'attn.norm_k': 'img_attn_k_norm',
        'attn.norm_added_q': 'txt_attn_q_norm',
        'attn.norm_added_k': 'txt_attn_k_norm',
        'attn.to_out.0': 'img_attn_proj',
        'attn.to_add_out': 'txt_attn_proj',
        'norm1.linear': 'img_mod.linear',
        'norm1_context.linear': 'txt_mod.linear',
        'ff.net.0.proj': 'img_mlp.fc1',
        'ff.net.2': 'img_mlp.fc2',
        'ff_context.net.0.proj': 'txt_mlp.fc1',
        'ff_context.net.2': 'txt_mlp.fc2',
      },
      joined: { img_attn_qkv: threeOf('attn', plainNames), txt_attn_qkv: threeOf('attn', addedNames) },
    },
    single_transformer_blocks: {
      to: 'single_blocks',
      modules: {
        'attn.norm_q': 'q_norm',
        'attn.norm_k': 'k_norm',
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
        'ff.net.0.proj': 'mlp.fc1',
        'ff.net.2': 'mlp.fc2',
        'norm_out.linear': 'adaLN_modulation.1',
      },
      joined: { self_attn_qkv: threeOf('attn', plainNames) },
    },
  },
  modules: {
    'x_embedder.proj': 'img_in.proj',
    'context_embedder.proj_in': 'txt_in.input_embedder',
    'context_embedder.time_text_embed.timestep_embedder.linear_1': 'txt_in.t_embedder.mlp.0',
    'context_embedder.time_text_embed.timestep_embedder.linear_2': 'txt_in.t_embedder.mlp.2',
    'context_embedder.time_text_embed.text_embedder.linear_1': 'txt_in.c_embedder.linear_1',
    'context_embedder.time_text_embed.text_embedder.linear_2': 'txt_in.c_embedder.linear_2',
    'time_text_embed.timestep_embedder.linear_1': 'time_in.mlp.0',
    'time_text_embed.timestep_embedder.linear_2': 'time_in.mlp.2',
    'time_text_embed.text_embedder.linear_1': 'vector_in.in_layer',
    'time_text_embed.text_embedder.linear_2': 'vector_in.out_layer',
    'time_text_embed.guidance_embedder.linear_1': 'guidance_in.mlp.0',
    'time_text_embed.guidance_embedder.linear_2': 'guidance_in.mlp.2',
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

/** A name without its last part, which is `weight` or `bias`, and that part with its dot. Whole parameters have the name of a module. */
function splitEnd(name: string): readonly [module: string, end: string] {
  const [, module, end] = /^(.*)(\.(?:weight|bias))$/s.exec(name) ?? [];
  return module === undefined || end === undefined ? [name, ''] : [module, end];
}

const ownOf = (modules: Modules | undefined, name: string) =>
  modules !== undefined && Object.hasOwn(modules, name) ? modules[name] : undefined;

/** Place of a module in a block. @param at the original name of the block @param from its name in diffusers */
function placeInBlock(block: Block, module: string, end: string, at: string, from: string, isLast: boolean) {
  const renamed = ownOf(block.modules, module);
  if (renamed !== undefined) {
    return { name: `${at}.${renamed}${end}`, ...(isLast && module === block.swappedInLast && { isSwapped: true }) };
  }
  const norm = ownOf(block.norms, module);
  if (norm !== undefined && end === '.weight') return { name: `${at}.${norm}.scale` };
  for (const [joined, all] of Object.entries(block.joined ?? {})) {
    const index = all.indexOf(module);
    if (index >= 0)
      return { name: `${at}.${joined}${end}`, joined: { index, all: all.map((one) => `${from}.${one}${end}`) } };
  }
  return undefined;
}

/** Makes a function that gives the places of a transformer's tensors. */
function transformerPlaces({ blocks, modules, swapped }: Names, names: Iterable<string>) {
  const counts = new Map<string, number>();
  const inBlock = (name: string) => /^([a-z_]+(?:\.[a-z_]+)*)\.(\d{1,6})\.(.+)$/s.exec(name);
  for (const name of names) {
    const [, list = '', number] = inBlock(name) ?? [];
    if (number !== undefined) counts.set(list, Math.max(counts.get(list) ?? 0, Number(number) + 1));
  }
  return (name: string): Place | undefined => {
    const [module, end] = splitEnd(name);
    const swap = ownOf(swapped, module);
    if (swap !== undefined) return { name: swap + end, isSwapped: true };
    const alone = ownOf(modules, module);
    if (alone !== undefined) return { name: alone + end };
    const [, list = '', number, within] = inBlock(module) ?? [];
    const block = Object.hasOwn(blocks, list) ? blocks[list] : undefined;
    if (block === undefined || within === undefined) return undefined;
    const isLast = Number(number) === (counts.get(list) ?? 0) - 1;
    return placeInBlock(block, within, end, `${block.to}.${number}`, `${list}.${number}`, isLast);
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
  'time_embedding.linear_1': 'time_embed.0',
  'time_embedding.linear_2': 'time_embed.2',
  'add_embedding.linear_1': 'label_emb.0.0',
  'add_embedding.linear_2': 'label_emb.0.2',
  'class_embedding.linear_1': 'label_emb.0.0',
  'class_embedding.linear_2': 'label_emb.0.2',
};

/** Tensors that all UNets of Stable Diffusion have, and neither the networks that control them nor VAEs. */
const unetKeys = [
  'conv_in.weight',
  'down_blocks.0.resnets.0.conv1.weight',
  'up_blocks.0.resnets.0.conv1.weight',
] as const;

/** Makes a function that gives the places of a UNet's tensors; undefined unless its blocks have the same number of residual blocks. */
function unetPlaces(names: ReadonlySet<string>): ((name: string) => Place | undefined) | undefined {
  const countOf = (prefix: string) => {
    let count = 0;
    while (names.has(`${prefix}.${count}.conv1.weight`)) count++;
    return count;
  };
  const each = countOf('down_blocks.0.resnets');
  for (const [side, want] of [
    ['down', each],
    ['up', each + 1],
  ] as const) {
    for (let block = 0; names.has(`${side}_blocks.${block}.resnets.0.conv1.weight`); block++) {
      if (countOf(`${side}_blocks.${block}.resnets`) !== want) return undefined;
    }
  }
  const bodyOf = (part: string, module: string) =>
    part === 'resnets' ? ownOf(resnet, module) : attention.test(module) ? module : undefined;
  return (name) => {
    const [module, end] = splitEnd(name);
    const alone = ownOf(unetModules, module);
    if (alone !== undefined) return { name: alone + end };
    const [, middle, middleNumber = '', middleModule = ''] =
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
    if (rest === 'upsamplers.0.conv' && side === 'up') {
      const hasAttention = names.has(`up_blocks.${block}.attentions.${each}.proj_in.weight`);
      return { name: `output_blocks.${perBlock * block + each}.${hasAttention ? 2 : 1}.conv${end}` };
    }
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

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));

const storedOf = ({ parts: [part] }: LogicalTensor) => (part as LogicalTensor['parts'][number]).tensor;

/** Rows of a stored tensor, as a tensor of their own. */
export function storedRows(tensor: SourceTensor, first: number, rows: number): SourceTensor {
  const { shape, bytes, byteOffset } = tensor;
  const each = bytes / (shape[0] as number);
  return { ...tensor, shape: [rows, ...shape.slice(1)], bytes: each * rows, byteOffset: byteOffset + each * first };
}

/** The rows of several tensors after each other, in pieces of one size; or those of one with its halves in each other's place. */
function rearranged(name: string, sources: readonly LogicalTensor[], isSwapped: boolean): LogicalTensor {
  const [first] = sources as [LogicalTensor];
  for (const source of sources) {
    const { name: its, shape, type } = source;
    if (type !== first.type || shape.length === 0 || shape.slice(1).join() !== first.shape.slice(1).join())
      badTensor(
        its,
        `it is ${type} [${shape.join(', ')}], and ${first.name} is ${first.type} [${first.shape.join(', ')}]`,
      );
  }
  const rows = sources.map(({ shape }) => shape[0] as number);
  const total = rows.reduce((sum, n) => sum + n, 0);
  const unit = isSwapped ? total / 2 : rows.reduce(gcd, 0);
  if (total === 0 || !Number.isInteger(unit) || total / unit > mostPieces)
    badTensor(first.name, `its ${rows.join(', ')} rows are not those of ${name}`);
  const inOrder = sources.flatMap((source, i) =>
    Array.from({ length: (rows[i] as number) / unit }, (_, at) => {
      // Codes with scales are read as a whole.
      const lacks = `diffusers stores it apart from others, and ${source.type} with scales is not joined; make floats of it first`;
      return someRows(source, at * unit, unit) ?? badTensor(source.name, lacks);
    }),
  );
  const pieces = isSwapped ? inOrder.toReversed() : inOrder;
  const { shape, type } = first;
  const adapted = pieces.find(({ form }) => form.codec !== 'cast');
  const width = elementsOf(shape.slice(1));
  return {
    name,
    shape: [total, ...shape.slice(1)],
    type,
    form: (adapted ?? first).form,
    parts: pieces.flatMap(({ parts }) => parts),
    isRenamed: true,
    gathered:
      adapted === undefined ? { width } : { width, members: pieces.map(({ form, parts }) => ({ form, parts })) },
  };
}

/** Rows of a weight of floats, with adapters or without, as one of its own; undefined if they cannot be read alone. */
function someRows(source: LogicalTensor, first: number, rows: number): LogicalTensor | undefined {
  const { form, parts, gathered, ...others } = source;
  const shape = [rows, ...source.shape.slice(1)];
  if (gathered?.members !== undefined) {
    // These were joined from pieces of one size.
    const each = (source.shape[0] as number) / gathered.members.length;
    const member = gathered.members[first / each];
    return rows === each && member ? { ...others, ...member, shape } : undefined;
  }
  if (form.codec !== 'cast' || parts.length !== 1 || gathered !== undefined) return adaptedRows(source, first, rows);
  return { ...source, shape, parts: [{ role: 'data', tensor: storedRows(storedOf(source), first, rows) }] };
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

/** Joins weights that were taken apart. */
export const joinedAgain = (name: string, sources: readonly LogicalTensor[]): LogicalTensor =>
  rearranged(name, sources, false);

/** A model of diffusers under the names of the original. */
export interface OriginalModel {
  readonly architecture: string;
  readonly tensors: readonly LogicalTensor[];
  readonly note: Note;
}

function noteOn(architecture: string): Note {
  const text =
    `the file is in the layout of diffusers; its tensors get the names of the original ${architecture}, and those that it has as one are ` +
    'joined, as ComfyUI does when it loads floats';
  return noteOf('diffusersLayout', { architecture }, text);
}

function unknown(message: string, tensor?: string): never {
  throw new ScalepointError('UNKNOWN_FORMAT', message, { tensor });
}

function incomplete(architecture: string): never {
  return unknown(
    `the file holds ${architecture} in the layout of diffusers without all of the tensors by which readers know the original; give the ` +
      'index of all files of the model, such as transformer/diffusion_pytorch_model.safetensors.index.json',
  );
}

/**
 * The places of a model's tensors, and its architecture; undefined for models that are not in the layout of diffusers. The places are
 * undefined for a UNet with other numbers of blocks than those of Stable Diffusion.
 */
function placesOf(names: ReadonlySet<string>) {
  // The names of some originals are those of diffusers.
  if (!names.has(unetKeys[1]) && architectureWith(names) !== undefined) return undefined;
  const known = transformers.find(({ key }) => names.has(key));
  if (known !== undefined) return { architecture: known.architecture, placeOf: transformerPlaces(known, names) };
  if (!unetKeys.every((key) => names.has(key))) return undefined;
  return { architecture: names.has('add_embedding.linear_1.weight') ? 'sdxl' : 'sd1', placeOf: unetPlaces(names) };
}

/**
 * Reads a diffusion model of diffusers as its original.
 * @returns undefined for models that are not in the layout of diffusers, or of architectures that are not known
 * @throws ScalepointError `UNKNOWN_FORMAT` or `BAD_FILE`, which names a tensor that has no place or does not fit
 */
export function originalModel(tensors: readonly LogicalTensor[]): OriginalModel | undefined {
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const names = new Set(byName.keys());
  const found = placesOf(names);
  if (found === undefined) {
    const partial = architectureWith(names) === undefined ? diffusersArchitecture(names) : undefined;
    return partial === undefined ? undefined : incomplete(partial);
  }
  const { architecture, placeOf } = found;
  if (placeOf === undefined) {
    return unknown(
      'the file holds a UNet in the layout of diffusers, with other numbers of blocks than those of Stable Diffusion',
    );
  }
  const taken = new Map<string, string>();
  const results = tensors.flatMap((tensor): LogicalTensor[] => {
    const place = placeOf(tensor.name);
    if (place === undefined) {
      const message = `tensor ${quoted(tensor.name)}: the original ${architecture} has no place for it, so that no reader would load it`;
      return unknown(message, tensor.name);
    }
    const { name, joined, isSwapped = false } = place;
    if (joined !== undefined && joined.index > 0) {
      const [first = ''] = joined.all;
      if (!byName.has(first)) badTensor(first, `it is missing, and ${tensor.name} is joined with it`);
      return [];
    }
    const other = taken.get(name);
    if (other !== undefined) badTensor(tensor.name, `${other} has the same place, ${name}`);
    taken.set(name, tensor.name);
    if (isSwapped) return [rearranged(name, [tensor], true)];
    if (joined === undefined) return [{ ...tensor, name, isRenamed: true }];
    const all = joined.all.map(
      (one) => byName.get(one) ?? badTensor(one, `it is missing, and ${tensor.name} is joined with it`),
    );
    return [rearranged(name, all, false)];
  });
  if (architectureWith(new Set(taken.keys()))?.name !== architecture) incomplete(architecture);
  return { architecture, tensors: results, note: noteOn(architecture) };
}

// ----------------------------------------------------------------------------------------- layers of one layout in a model of the other

/** A place of some rows of a layer in a model of the other layout. */
export interface LayerPlace {
  /** Name of the weight. */
  readonly weight: string;
  /** The rows among parts of the weight, and the number of these parts; undefined for all rows. */
  readonly part?: { readonly index: number; readonly count: number } | undefined;
}

/** Places of the rows of a layer, in their order. */
type LayerPlaces = readonly LayerPlace[];

/** Places of the halves of a layer that change places. */
const swappedPlaces = (weight: string): LayerPlaces => [
  { weight, part: { index: 1, count: 2 } },
  { weight, part: { index: 0, count: 2 } },
];

/** Layers of an original, by their names, in a model of diffusers. */
function placesInDiffusers(names: ReadonlySet<string>, placeOf: (name: string) => Place | undefined) {
  const places = new Map<string, LayerPlaces>();
  for (const weight of names) {
    const { name, joined, isSwapped } = placeOf(weight) ?? {};
    if (name?.endsWith('.weight') !== true) continue;
    const all = joined?.all ?? [weight];
    if (all.every((one) => names.has(one)))
      places.set(splitEnd(name)[0], isSwapped ? swappedPlaces(weight) : all.map((one) => ({ weight: one })));
  }
  return places;
}

/** Prefixes of a diffusion model in a checkpoint. */
const originalPrefixes = ['', 'model.diffusion_model.', 'diffusion_model.', 'model.'];

/** Names that a UNet has in diffusers, of those that its blocks are counted by. */
function unetNames(original: ReadonlySet<string>): Set<string> {
  const names = new Set<string>();
  const put = (side: string, block: number, count: number) => {
    for (let i = 0; i < count; i++) names.add(`${side}_blocks.${block}.resnets.${i}.conv1.weight`);
  };
  // Stable Diffusion has two residual blocks in each block on the way down, and three on the way up.
  for (let block = 0; block < 4; block++) {
    if (original.has(`input_blocks.${3 * block + 1}.0.in_layers.2.weight`)) put('down', block, 2);
    if (original.has(`output_blocks.${3 * block}.0.in_layers.2.weight`)) put('up', block, 3);
    if (original.has(`output_blocks.${3 * block + 2}.1.proj_in.weight`))
      names.add(`up_blocks.${block}.attentions.2.proj_in.weight`);
  }
  return names;
}

/** Names of all layers that a UNet of Stable Diffusion may have. */
function unetLayers(): string[] {
  const inner = ['attn1', 'attn2'].flatMap((at) => ['to_q', 'to_k', 'to_v', 'to_out.0'].map((to) => `${at}.${to}`));
  const perBlock = [...inner, 'ff.net.0.proj', 'ff.net.2'];
  const attentionLayers = [
    'proj_in',
    'proj_out',
    ...Array.from({ length: 10 }, (_, i) => perBlock.map((name) => `transformer_blocks.${i}.${name}`)).flat(),
  ];
  const bodies = (at: string, count: number) =>
    Array.from({ length: count }, (_, i) => [
      ...Object.keys(resnet).map((name) => `${at}.resnets.${i}.${name}`),
      ...attentionLayers.map((name) => `${at}.attentions.${i}.${name}`),
    ]).flat();
  const blocks = [0, 1, 2, 3].flatMap((i) => [
    ...bodies(`down_blocks.${i}`, 2),
    ...bodies(`up_blocks.${i}`, 3),
    `down_blocks.${i}.downsamplers.0.conv`,
    `up_blocks.${i}.upsamplers.0.conv`,
  ]);
  return [...Object.keys(unetModules), ...blocks, ...bodies('mid_block', 2)];
}

/** Layers of diffusers, by their names, in an original checkpoint; undefined for models that are not known. */
function placesInOriginal(own: ReadonlySet<string>, prefix: string): Map<string, LayerPlaces> | undefined {
  const architecture = architectureWith(own)?.name;
  const isUnet = (architecture === 'sd1' || architecture === 'sdxl') && own.has('input_blocks.0.0.weight');
  const known = transformers.find((one) => one.architecture === architecture);
  if (known === undefined && !isUnet) return undefined;
  // List the layers that diffusers has.
  const layers: string[] = known === undefined ? unetLayers() : Object.keys({ ...known.modules, ...known.swapped });
  for (const [list, { to, modules, joined = {} }] of Object.entries(known?.blocks ?? {})) {
    const numbers = new Set(
      [...own].flatMap((name) => (name.startsWith(`${to}.`) ? [name.slice(to.length + 1).split('.')[0]] : [])),
    );
    for (const number of numbers)
      for (const module of [...Object.keys(modules), ...Object.values(joined).flat()])
        layers.push(`${list}.${number}.${module}`);
  }
  const placeOf = known === undefined ? unetPlaces(unetNames(own)) : transformerPlaces(known, layers);
  const places = new Map<string, LayerPlaces>();
  for (const layer of layers) {
    const { name = '', joined, isSwapped } = placeOf?.(`${layer}.weight`) ?? {};
    if (!own.has(name)) continue;
    const weight = prefix + name;
    const part = joined && { index: joined.index, count: joined.all.length };
    places.set(layer, isSwapped ? swappedPlaces(weight) : [{ weight, part }]);
  }
  return places;
}

/**
 * Makes a function from the layers of adapters to their places in a diffusion model, by the tables that read models of diffusers: from layers
 * of diffusers to those of an original checkpoint, and from these to those of diffusers. Layers may have underscores for dots. It returns
 * undefined for other layers, and for models that are not known.
 * @param names of the tensors of the model
 */
export function layerPlaces(names: readonly string[]): (layer: string) => LayerPlaces | undefined {
  const all = new Set(names);
  const found = placesOf(all);
  let places = found?.placeOf && placesInDiffusers(all, found.placeOf);
  for (const prefix of found === undefined ? originalPrefixes : []) {
    const own = names.flatMap((name) => (name.startsWith(prefix) ? [name.slice(prefix.length)] : []));
    places ??= placesInOriginal(new Set(own), prefix);
  }
  const underscored = new Map([...(places ?? [])].map(([layer, place]) => [layer.replaceAll('.', '_'), place]));
  return (layer) => underscored.get(layer.replaceAll('.', '_'));
}

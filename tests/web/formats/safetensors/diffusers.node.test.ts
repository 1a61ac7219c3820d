// Models in the layout of diffusers beside the same models as original checkpoints. The tables below are those of ComfyUI at 09708eae,
// comfy/utils.py (flux_to_diffusers, mmdit_to_diffusers, auraflow_to_diffusers, z_image_to_diffusers, unet_to_diffusers), written line by line:
// the module of diffusers, that of the original, the first row in it, rows, columns. Rows and columns are multiples of 32.
import { describe, expect, it } from 'vitest';
import { inspectModel, planModel, quantizeModel } from '../../../../web/src/model.js';
import { parseSafetensors } from '../../support/compressed.js';
import { float32, merged, type Pair, pair, weight } from '../../support/lora.js';
import { expectBytes, rejectionOf, safetensors, storedOf, type TestTensor, weights } from '../../support/models.js';

const unit = 32;

interface Line {
  readonly from: string;
  readonly to: string;
  /** First row; undefined for a tensor of its own, and `swap` for one whose halves change places. */
  readonly at: number | 'swap' | undefined;
  readonly shape: readonly number[];
}

/** Lines of a table: both names with their ends, the place, and the shape. `#` is the number of a block. */
const parsed = (table: string, blocks = 1): Line[] =>
  table
    .trim()
    .split('\n')
    .flatMap((line) => {
      const [from = '', to = '', at = '', shape = ''] = line.trim().split(/\s+/);
      const sizes = shape.split('x').map((n) => unit * Number(n));
      const place = at === '-' ? undefined : at === 'swap' ? at : unit * Number(at);
      return Array.from({ length: from.includes('#') ? blocks : 1 }, (_, i) => {
        const name = (text: string) => text.replace('#', String(i));
        return { from: name(from), to: name(to), at: place, shape: sizes };
      });
    });

type Tensors = Record<string, TestTensor>;

/** A model in the names of diffusers, and as the original. */
function both(
  lines: readonly Line[],
  dtype: 'F32' | 'BF16' | 'F16',
  make = weights,
): { diffusers: Tensors; original: Tensors } {
  const diffusers: Tensors = {};
  const rows = new Map<string, { shape: number[]; pieces: { at: number; tensor: TestTensor }[] }>();
  const original: Tensors = {};
  for (const [i, { from, to, at, shape }] of lines.entries()) {
    const tensor = make(dtype, shape, i + 1);
    diffusers[from] = tensor;
    const data = tensor.data as Float32Array<ArrayBuffer>;
    if (at === undefined) original[to] = tensor;
    else if (at === 'swap') {
      const half = data.length / 2;
      const swapped = data.slice();
      swapped.set(data.subarray(half), 0);
      swapped.set(data.subarray(0, half), half);
      original[to] = { ...tensor, data: swapped };
    } else {
      const whole = rows.get(to) ?? { shape: [0, ...shape.slice(1)], pieces: [] };
      whole.shape[0]! += shape[0]!;
      whole.pieces.push({ at, tensor });
      rows.set(to, whole);
    }
  }
  for (const [to, { shape, pieces }] of rows) {
    const width = shape.slice(1).reduce((product, n) => product * n, 1);
    const first = pieces[0]!.tensor.data as Float32Array<ArrayBuffer>;
    const data = new (first.constructor as Float32ArrayConstructor)(shape[0]! * width);
    for (const { at, tensor } of pieces) data.set(tensor.data as Float32Array, at * width);
    original[to] = { dtype, shape, data };
  }
  return { diffusers, original };
}

const flux = `
  x_embedder.weight img_in.weight - 1x2
  x_embedder.bias img_in.bias - 1
  context_embedder.weight txt_in.weight - 1x2
  time_text_embed.timestep_embedder.linear_1.weight time_in.in_layer.weight - 1x1
  time_text_embed.timestep_embedder.linear_2.weight time_in.out_layer.weight - 1x1
  time_text_embed.text_embedder.linear_1.weight vector_in.in_layer.weight - 1x1
  time_text_embed.text_embedder.linear_2.bias vector_in.out_layer.bias - 1
  time_text_embed.guidance_embedder.linear_1.weight guidance_in.in_layer.weight - 1x1
  time_text_embed.guidance_embedder.linear_2.weight guidance_in.out_layer.weight - 1x1
  transformer_blocks.#.attn.to_q.weight double_blocks.#.img_attn.qkv.weight 0 1x1
  transformer_blocks.#.attn.to_k.weight double_blocks.#.img_attn.qkv.weight 1 1x1
  transformer_blocks.#.attn.to_v.weight double_blocks.#.img_attn.qkv.weight 2 1x1
  transformer_blocks.#.attn.to_v.bias double_blocks.#.img_attn.qkv.bias 2 1
  transformer_blocks.#.attn.to_q.bias double_blocks.#.img_attn.qkv.bias 0 1
  transformer_blocks.#.attn.to_k.bias double_blocks.#.img_attn.qkv.bias 1 1
  transformer_blocks.#.attn.add_k_proj.weight double_blocks.#.txt_attn.qkv.weight 1 1x1
  transformer_blocks.#.attn.add_q_proj.weight double_blocks.#.txt_attn.qkv.weight 0 1x1
  transformer_blocks.#.attn.add_v_proj.weight double_blocks.#.txt_attn.qkv.weight 2 1x1
  transformer_blocks.#.attn.to_out.0.weight double_blocks.#.img_attn.proj.weight - 1x1
  transformer_blocks.#.attn.to_out.0.bias double_blocks.#.img_attn.proj.bias - 1
  transformer_blocks.#.attn.to_add_out.weight double_blocks.#.txt_attn.proj.weight - 1x1
  transformer_blocks.#.norm1.linear.weight double_blocks.#.img_mod.lin.weight - 6x1
  transformer_blocks.#.norm1_context.linear.weight double_blocks.#.txt_mod.lin.weight - 6x1
  transformer_blocks.#.ff.net.0.proj.weight double_blocks.#.img_mlp.0.weight - 4x1
  transformer_blocks.#.ff.net.2.weight double_blocks.#.img_mlp.2.weight - 1x4
  transformer_blocks.#.ff_context.net.0.proj.weight double_blocks.#.txt_mlp.0.weight - 4x1
  transformer_blocks.#.ff_context.net.2.weight double_blocks.#.txt_mlp.2.weight - 1x4
  transformer_blocks.#.attn.norm_q.weight double_blocks.#.img_attn.norm.query_norm.scale - 1
  transformer_blocks.#.attn.norm_k.weight double_blocks.#.img_attn.norm.key_norm.scale - 1
  transformer_blocks.#.attn.norm_added_q.weight double_blocks.#.txt_attn.norm.query_norm.scale - 1
  transformer_blocks.#.attn.norm_added_k.weight double_blocks.#.txt_attn.norm.key_norm.scale - 1
  single_transformer_blocks.#.attn.to_q.weight single_blocks.#.linear1.weight 0 1x1
  single_transformer_blocks.#.attn.to_k.weight single_blocks.#.linear1.weight 1 1x1
  single_transformer_blocks.#.attn.to_v.weight single_blocks.#.linear1.weight 2 1x1
  single_transformer_blocks.#.proj_mlp.weight single_blocks.#.linear1.weight 3 4x1
  single_transformer_blocks.#.attn.to_q.bias single_blocks.#.linear1.bias 0 1
  single_transformer_blocks.#.attn.to_k.bias single_blocks.#.linear1.bias 1 1
  single_transformer_blocks.#.attn.to_v.bias single_blocks.#.linear1.bias 2 1
  single_transformer_blocks.#.proj_mlp.bias single_blocks.#.linear1.bias 3 4
  single_transformer_blocks.#.proj_out.weight single_blocks.#.linear2.weight - 1x5
  single_transformer_blocks.#.norm.linear.weight single_blocks.#.modulation.lin.weight - 3x1
  single_transformer_blocks.#.attn.norm_q.weight single_blocks.#.norm.query_norm.scale - 1
  single_transformer_blocks.#.attn.norm_k.weight single_blocks.#.norm.key_norm.scale - 1
  norm_out.linear.weight final_layer.adaLN_modulation.1.weight swap 2x1
  norm_out.linear.bias final_layer.adaLN_modulation.1.bias swap 2
  proj_out.weight final_layer.linear.weight - 2x1
  proj_out.bias final_layer.linear.bias - 2`;

const sd3 = `
  pos_embed.proj.weight x_embedder.proj.weight - 1x2
  pos_embed.pos_embed pos_embed - 1x1
  context_embedder.weight context_embedder.weight - 1x2
  time_text_embed.timestep_embedder.linear_1.weight t_embedder.mlp.0.weight - 1x1
  time_text_embed.timestep_embedder.linear_2.weight t_embedder.mlp.2.weight - 1x1
  time_text_embed.text_embedder.linear_1.weight y_embedder.mlp.0.weight - 1x1
  time_text_embed.text_embedder.linear_2.weight y_embedder.mlp.2.weight - 1x1
  transformer_blocks.#.attn.to_q.weight joint_blocks.#.x_block.attn.qkv.weight 0 1x1
  transformer_blocks.#.attn.to_k.weight joint_blocks.#.x_block.attn.qkv.weight 1 1x1
  transformer_blocks.#.attn.to_v.weight joint_blocks.#.x_block.attn.qkv.weight 2 1x1
  transformer_blocks.#.attn.add_q_proj.weight joint_blocks.#.context_block.attn.qkv.weight 0 1x1
  transformer_blocks.#.attn.add_k_proj.weight joint_blocks.#.context_block.attn.qkv.weight 1 1x1
  transformer_blocks.#.attn.add_v_proj.weight joint_blocks.#.context_block.attn.qkv.weight 2 1x1
  transformer_blocks.#.attn2.to_q.weight joint_blocks.#.x_block.attn2.qkv.weight 0 1x1
  transformer_blocks.#.attn2.to_k.weight joint_blocks.#.x_block.attn2.qkv.weight 1 1x1
  transformer_blocks.#.attn2.to_v.weight joint_blocks.#.x_block.attn2.qkv.weight 2 1x1
  transformer_blocks.#.attn2.to_out.0.weight joint_blocks.#.x_block.attn2.proj.weight - 1x1
  transformer_blocks.#.attn.to_out.0.weight joint_blocks.#.x_block.attn.proj.weight - 1x1
  transformer_blocks.#.attn.norm_q.weight joint_blocks.#.x_block.attn.ln_q.weight - 1
  transformer_blocks.#.attn.norm_added_k.weight joint_blocks.#.context_block.attn.ln_k.weight - 1
  transformer_blocks.#.norm1.linear.weight joint_blocks.#.x_block.adaLN_modulation.1.weight - 6x1
  transformer_blocks.#.ff.net.0.proj.weight joint_blocks.#.x_block.mlp.fc1.weight - 4x1
  transformer_blocks.#.ff.net.2.weight joint_blocks.#.x_block.mlp.fc2.weight - 1x4
  transformer_blocks.0.attn.to_add_out.weight joint_blocks.0.context_block.attn.proj.weight - 1x1
  transformer_blocks.0.ff_context.net.0.proj.weight joint_blocks.0.context_block.mlp.fc1.weight - 4x1
  transformer_blocks.0.ff_context.net.2.weight joint_blocks.0.context_block.mlp.fc2.weight - 1x4
  transformer_blocks.0.norm1_context.linear.weight joint_blocks.0.context_block.adaLN_modulation.1.weight - 6x1
  transformer_blocks.1.norm1_context.linear.weight joint_blocks.1.context_block.adaLN_modulation.1.weight swap 2x1
  transformer_blocks.1.norm1_context.linear.bias joint_blocks.1.context_block.adaLN_modulation.1.bias swap 2
  norm_out.linear.weight final_layer.adaLN_modulation.1.weight swap 2x1
  proj_out.weight final_layer.linear.weight - 2x1`;

const aura = `
  pos_embed.pos_embed positional_encoding - 1x1
  pos_embed.proj.weight init_x_linear.weight - 1x1
  register_tokens register_tokens - 1x1
  time_step_proj.linear_1.weight t_embedder.mlp.0.weight - 1x1
  time_step_proj.linear_2.bias t_embedder.mlp.2.bias - 1
  context_embedder.weight cond_seq_linear.weight - 1x2
  joint_transformer_blocks.#.attn.to_q.weight double_layers.#.attn.w2q.weight - 1x1
  joint_transformer_blocks.#.attn.to_out.0.weight double_layers.#.attn.w2o.weight - 1x1
  joint_transformer_blocks.#.attn.add_k_proj.weight double_layers.#.attn.w1k.weight - 1x1
  joint_transformer_blocks.#.attn.to_add_out.weight double_layers.#.attn.w1o.weight - 1x1
  joint_transformer_blocks.#.ff.out_projection.weight double_layers.#.mlpX.c_proj.weight - 1x4
  joint_transformer_blocks.#.ff_context.out_projection.weight double_layers.#.mlpC.c_proj.weight - 1x4
  joint_transformer_blocks.#.ff_context.linear_1.weight double_layers.#.mlpC.c_fc1.weight - 4x1
  joint_transformer_blocks.#.norm1.linear.weight double_layers.#.modX.1.weight - 6x1
  joint_transformer_blocks.#.norm1_context.linear.weight double_layers.#.modC.1.weight - 6x1
  single_transformer_blocks.#.attn.to_v.weight single_layers.#.attn.w1v.weight - 1x1
  single_transformer_blocks.#.norm1.linear.weight single_layers.#.modCX.1.weight - 6x1
  single_transformer_blocks.#.ff.linear_2.weight single_layers.#.mlp.c_fc2.weight - 4x1
  norm_out.linear.weight modF.1.weight swap 2x1
  proj_out.weight final_linear.weight - 2x1`;

const zImage = `
  all_x_embedder.2-1.weight x_embedder.weight - 1x2
  all_final_layer.2-1.linear.weight final_layer.linear.weight - 2x1
  all_final_layer.2-1.adaLN_modulation.1.weight final_layer.adaLN_modulation.1.weight - 1x1
  x_pad_token x_pad_token - 1x1
  cap_embedder.0.weight cap_embedder.0.weight - 1
  cap_embedder.1.weight cap_embedder.1.weight - 1x2
  t_embedder.mlp.0.weight t_embedder.mlp.0.weight - 1x1
  ${['layers', 'context_refiner', 'noise_refiner']
    .map(
      (list) => `${list}.#.attention.to_q.weight ${list}.#.attention.qkv.weight 0 1x1
  ${list}.#.attention.to_k.weight ${list}.#.attention.qkv.weight 1 1x1
  ${list}.#.attention.to_v.weight ${list}.#.attention.qkv.weight 2 1x1
  ${list}.#.attention.to_out.0.weight ${list}.#.attention.out.weight - 1x1
  ${list}.#.attention.norm_q.weight ${list}.#.attention.q_norm.weight - 1
  ${list}.#.attention.norm_k.weight ${list}.#.attention.k_norm.weight - 1
  ${list}.#.attention_norm1.weight ${list}.#.attention_norm1.weight - 1
  ${list}.#.adaLN_modulation.0.weight ${list}.#.adaLN_modulation.0.weight - 4x1
  ${list}.#.feed_forward.w2.weight ${list}.#.feed_forward.w2.weight - 1x4`,
    )
    .join('\n  ')}`;

// From the tables of huggingface/diffusers at 019c4962: lora_conversion_utils.py, and its scripts that convert the models.
const wan = `
  patch_embedding.weight patch_embedding.weight - 1x1
  condition_embedder.time_embedder.linear_1.weight time_embedding.0.weight - 1x1
  condition_embedder.time_embedder.linear_2.bias time_embedding.2.bias - 1
  condition_embedder.text_embedder.linear_1.weight text_embedding.0.weight - 1x2
  condition_embedder.text_embedder.linear_2.weight text_embedding.2.weight - 1x1
  condition_embedder.time_proj.weight time_projection.1.weight - 6x1
  condition_embedder.image_embedder.norm1.weight img_emb.proj.0.weight - 1
  condition_embedder.image_embedder.ff.net.0.proj.weight img_emb.proj.1.weight - 1x1
  condition_embedder.image_embedder.ff.net.2.weight img_emb.proj.3.weight - 1x1
  condition_embedder.image_embedder.norm2.bias img_emb.proj.4.bias - 1
  scale_shift_table head.modulation - 1x2x1
  proj_out.weight head.head.weight - 2x1
  ${['blocks', 'vace_blocks']
    .map(
      (list) => `${list}.#.attn1.to_q.weight ${list}.#.self_attn.q.weight - 1x1
  ${list}.#.attn1.to_k.weight ${list}.#.self_attn.k.weight - 1x1
  ${list}.#.attn1.to_v.bias ${list}.#.self_attn.v.bias - 1
  ${list}.#.attn1.to_out.0.weight ${list}.#.self_attn.o.weight - 1x1
  ${list}.#.attn1.norm_q.weight ${list}.#.self_attn.norm_q.weight - 1
  ${list}.#.attn1.norm_k.weight ${list}.#.self_attn.norm_k.weight - 1
  ${list}.#.attn2.to_q.weight ${list}.#.cross_attn.q.weight - 1x1
  ${list}.#.attn2.to_v.weight ${list}.#.cross_attn.v.weight - 1x1
  ${list}.#.attn2.to_out.0.weight ${list}.#.cross_attn.o.weight - 1x1
  ${list}.#.attn2.add_k_proj.weight ${list}.#.cross_attn.k_img.weight - 1x1
  ${list}.#.attn2.add_v_proj.weight ${list}.#.cross_attn.v_img.weight - 1x1
  ${list}.#.attn2.norm_added_k.weight ${list}.#.cross_attn.norm_k_img.weight - 1
  ${list}.#.norm2.weight ${list}.#.norm3.weight - 1
  ${list}.#.ffn.net.0.proj.weight ${list}.#.ffn.0.weight - 4x1
  ${list}.#.ffn.net.2.weight ${list}.#.ffn.2.weight - 1x4
  ${list}.#.scale_shift_table ${list}.#.modulation - 1x6x1`,
    )
    .join('\n  ')}
  vace_blocks.#.proj_out.weight vace_blocks.#.after_proj.weight - 1x1
  vace_blocks.0.proj_in.weight vace_blocks.0.before_proj.weight - 1x1`;

const hunyuanVideo = `
  x_embedder.proj.weight img_in.proj.weight - 1x2
  context_embedder.proj_in.weight txt_in.input_embedder.weight - 1x2
  context_embedder.time_text_embed.timestep_embedder.linear_1.weight txt_in.t_embedder.mlp.0.weight - 1x1
  context_embedder.time_text_embed.text_embedder.linear_2.weight txt_in.c_embedder.linear_2.weight - 1x1
  context_embedder.token_refiner.refiner_blocks.#.attn.to_q.weight txt_in.individual_token_refiner.blocks.#.self_attn_qkv.weight 0 1x1
  context_embedder.token_refiner.refiner_blocks.#.attn.to_k.weight txt_in.individual_token_refiner.blocks.#.self_attn_qkv.weight 1 1x1
  context_embedder.token_refiner.refiner_blocks.#.attn.to_v.weight txt_in.individual_token_refiner.blocks.#.self_attn_qkv.weight 2 1x1
  context_embedder.token_refiner.refiner_blocks.#.attn.to_out.0.weight txt_in.individual_token_refiner.blocks.#.self_attn_proj.weight - 1x1
  context_embedder.token_refiner.refiner_blocks.#.ff.net.0.proj.weight txt_in.individual_token_refiner.blocks.#.mlp.fc1.weight - 4x1
  context_embedder.token_refiner.refiner_blocks.#.ff.net.2.weight txt_in.individual_token_refiner.blocks.#.mlp.fc2.weight - 1x4
  context_embedder.token_refiner.refiner_blocks.#.norm1.weight txt_in.individual_token_refiner.blocks.#.norm1.weight - 1
  context_embedder.token_refiner.refiner_blocks.#.norm_out.linear.weight txt_in.individual_token_refiner.blocks.#.adaLN_modulation.1.weight - 2x1
  time_text_embed.timestep_embedder.linear_1.weight time_in.mlp.0.weight - 1x1
  time_text_embed.text_embedder.linear_2.weight vector_in.out_layer.weight - 1x1
  time_text_embed.guidance_embedder.linear_2.weight guidance_in.mlp.2.weight - 1x1
  transformer_blocks.#.attn.to_q.weight double_blocks.#.img_attn_qkv.weight 0 1x1
  transformer_blocks.#.attn.to_k.weight double_blocks.#.img_attn_qkv.weight 1 1x1
  transformer_blocks.#.attn.to_v.weight double_blocks.#.img_attn_qkv.weight 2 1x1
  transformer_blocks.#.attn.add_q_proj.weight double_blocks.#.txt_attn_qkv.weight 0 1x1
  transformer_blocks.#.attn.add_k_proj.weight double_blocks.#.txt_attn_qkv.weight 1 1x1
  transformer_blocks.#.attn.add_v_proj.weight double_blocks.#.txt_attn_qkv.weight 2 1x1
  transformer_blocks.#.attn.to_out.0.weight double_blocks.#.img_attn_proj.weight - 1x1
  transformer_blocks.#.attn.to_add_out.weight double_blocks.#.txt_attn_proj.weight - 1x1
  transformer_blocks.#.attn.norm_q.weight double_blocks.#.img_attn_q_norm.weight - 1
  transformer_blocks.#.attn.norm_added_k.weight double_blocks.#.txt_attn_k_norm.weight - 1
  transformer_blocks.#.norm1.linear.weight double_blocks.#.img_mod.linear.weight - 6x1
  transformer_blocks.#.norm1_context.linear.weight double_blocks.#.txt_mod.linear.weight - 6x1
  transformer_blocks.#.ff.net.0.proj.weight double_blocks.#.img_mlp.fc1.weight - 4x1
  transformer_blocks.#.ff_context.net.2.weight double_blocks.#.txt_mlp.fc2.weight - 1x4
  single_transformer_blocks.#.attn.to_q.weight single_blocks.#.linear1.weight 0 1x1
  single_transformer_blocks.#.attn.to_k.weight single_blocks.#.linear1.weight 1 1x1
  single_transformer_blocks.#.attn.to_v.weight single_blocks.#.linear1.weight 2 1x1
  single_transformer_blocks.#.proj_mlp.weight single_blocks.#.linear1.weight 3 4x1
  single_transformer_blocks.#.proj_out.weight single_blocks.#.linear2.weight - 1x5
  single_transformer_blocks.#.norm.linear.weight single_blocks.#.modulation.linear.weight - 3x1
  single_transformer_blocks.#.attn.norm_q.weight single_blocks.#.q_norm.weight - 1
  single_transformer_blocks.#.attn.norm_k.weight single_blocks.#.k_norm.weight - 1
  norm_out.linear.weight final_layer.adaLN_modulation.1.weight swap 2x1
  proj_out.weight final_layer.linear.weight - 2x1`;

/** A UNet with 3 or 4 levels of 2 residual blocks, as SDXL and Stable Diffusion 1 have them. `attends` says which levels have attention. */
function unet(levels: number, attends: (level: number) => boolean, hasLabels: boolean): Line[] {
  const lines: Line[] = [];
  const add = (from: string, to: string, ...shape: number[]) => lines.push({ from, to, at: undefined, shape });
  const resnet = (from: string, to: string) => {
    add(`${from}.norm1.weight`, `${to}.in_layers.0.weight`, 32);
    add(`${from}.conv1.weight`, `${to}.in_layers.2.weight`, 32, 32, 3, 3);
    add(`${from}.time_emb_proj.weight`, `${to}.emb_layers.1.weight`, 32, 64);
    add(`${from}.norm2.bias`, `${to}.out_layers.0.bias`, 32);
    add(`${from}.conv2.weight`, `${to}.out_layers.3.weight`, 32, 32, 3, 3);
    add(`${from}.conv_shortcut.weight`, `${to}.skip_connection.weight`, 32, 32, 1, 1);
  };
  const attention = (from: string, to: string) => {
    add(`${from}.norm.weight`, `${to}.norm.weight`, 32);
    add(`${from}.proj_in.weight`, `${to}.proj_in.weight`, 32, 32);
    for (const end of ['attn1.to_q', 'attn2.to_k', 'attn1.to_out.0', 'ff.net.0.proj', 'ff.net.2'])
      add(`${from}.transformer_blocks.0.${end}.weight`, `${to}.transformer_blocks.0.${end}.weight`, 32, 64);
    add(`${from}.transformer_blocks.0.norm3.weight`, `${to}.transformer_blocks.0.norm3.weight`, 32);
  };
  add('conv_in.weight', 'input_blocks.0.0.weight', 32, 4, 3, 3);
  add('time_embedding.linear_1.weight', 'time_embed.0.weight', 64, 32);
  add('time_embedding.linear_2.weight', 'time_embed.2.weight', 64, 64);
  if (hasLabels) add('add_embedding.linear_1.weight', 'label_emb.0.0.weight', 64, 64);
  if (hasLabels) add('add_embedding.linear_2.weight', 'label_emb.0.2.weight', 64, 64);
  for (let level = 0; level < levels; level++) {
    for (let i = 0; i < 2; i++) {
      const block = 1 + 3 * level + i;
      resnet(`down_blocks.${level}.resnets.${i}`, `input_blocks.${block}.0`);
      if (attends(level)) attention(`down_blocks.${level}.attentions.${i}`, `input_blocks.${block}.1`);
    }
    if (level < levels - 1)
      add(`down_blocks.${level}.downsamplers.0.conv.weight`, `input_blocks.${3 * level + 3}.0.op.weight`, 32, 32, 3, 3);
    const up = levels - 1 - level;
    for (let i = 0; i < 3; i++) {
      const block = 3 * level + i;
      resnet(`up_blocks.${level}.resnets.${i}`, `output_blocks.${block}.0`);
      if (attends(up)) attention(`up_blocks.${level}.attentions.${i}`, `output_blocks.${block}.1`);
    }
    const last = `output_blocks.${3 * level + 2}.${attends(up) ? 2 : 1}.conv.weight`;
    if (up > 0) add(`up_blocks.${level}.upsamplers.0.conv.weight`, last, 32, 32, 3, 3);
  }
  resnet('mid_block.resnets.0', 'middle_block.0');
  attention('mid_block.attentions.0', 'middle_block.1');
  resnet('mid_block.resnets.1', 'middle_block.2');
  add('conv_norm_out.weight', 'out.0.weight', 32);
  add('conv_out.weight', 'out.2.weight', 4, 32, 3, 3);
  return lines;
}

const models: Readonly<Record<string, readonly Line[]>> = {
  flux: parsed(flux, 2),
  sd3: parsed(sd3, 2),
  aura: parsed(aura, 4),
  lumina2: parsed(zImage, 2),
  wan: parsed(wan, 2),
  hyvid: parsed(hunyuanVideo, 2),
  sdxl: unet(3, (level) => level > 0, true),
  sd1: unet(4, (level) => level < 3, false),
};

type Stored = ReadonlyMap<
  string,
  { readonly dtype: string; readonly shape: readonly number[]; readonly bytes: Uint8Array }
>;

/** The stored tensors of a GGUF file, by their names. */
async function ggufTensors(file: Uint8Array<ArrayBuffer>): Promise<Stored> {
  const { tensors } = await inspectModel(file);
  return new Map(
    tensors.map(({ name, dtype, shape, byteOffset = 0, bytes }) => [
      name,
      { dtype, shape, bytes: file.subarray(byteOffset, byteOffset + bytes) },
    ]),
  );
}

/** Fails unless two files hold the same tensors, in any order. */
function expectSameTensors(got: Stored, want: Stored): void {
  expect([...got.keys()].sort()).toEqual([...want.keys()].sort());
  for (const [name, { dtype, shape, bytes }] of want) {
    expect([got.get(name)?.dtype, got.get(name)?.shape], name).toEqual([dtype, shape]);
    expectBytes(got.get(name)!.bytes, bytes, name);
  }
}

describe.each(Object.entries(models))('%s in the layout of diffusers', (architecture, lines) => {
  const isUnet = architecture === 'sdxl' || architecture === 'sd1';

  it('becomes a file for ComfyUI with the tensors of the original', async () => {
    for (const dtype of ['F32', 'BF16'] as const) {
      const { diffusers, original } = both(lines, dtype);
      const [from, to] = [safetensors(diffusers), safetensors(original)];
      const keep = { to: 'comfy-fp8', rules: [{ match: '.', keep: true }], workers: 0 } as const;
      const kept = parseSafetensors(await (await quantizeModel(from, keep)).bytes()).tensors;
      expectSameTensors(kept, new Map(Object.entries(original).map(([name, tensor]) => [name, storedOf(tensor)])));
      for (const target of isUnet ? (['comfy-fp8'] as const) : (['comfy-fp8', 'comfy-int8', 'comfy-nvfp4'] as const)) {
        const workers = dtype === 'BF16' && !isUnet ? 1 : 0;
        const result = await quantizeModel(from, { to: target, workers });
        const same = await quantizeModel(to, { to: target, workers: 0 });
        expectSameTensors(parseSafetensors(await result.bytes()).tensors, parseSafetensors(await same.bytes()).tensors);
        expect(result.report.totals.quantized).toBe(same.report.totals.quantized);
        expect(same.report.totals.quantized).toBeGreaterThan(3);
        expect(result.report.notes[0]).toMatchObject({ kind: 'diffusersLayout', architecture });
      }
    }
  });

  it('becomes GGUF', async () => {
    const { diffusers, original } = both(lines, 'BF16');
    const from = safetensors(diffusers);
    expect((await planModel(from, { to: 'Q8_0' })).architecture).toBe(architecture);
    // UNets keep their names, as with the tools of ComfyUI-GGUF.
    if (isUnet) return;
    for (const to of ['Q8_0', 'F16'] as const) {
      const result = await quantizeModel(from, { to, workers: 0 });
      const same = await quantizeModel(safetensors(original), { to, workers: 0 });
      expectSameTensors(await ggufTensors(await result.bytes()), await ggufTensors(await same.bytes()));
    }
  });
});

/** The rows of an original, as diffusers stores them. */
function takenApart(lines: readonly Line[], original: Tensors): Tensors {
  return Object.fromEntries(
    lines.map(({ from, to, at, shape }) => {
      const whole = original[to]!;
      if (at === undefined) return [from, whole];
      const data = whole.data as Float32Array<ArrayBuffer>;
      const n = shape.reduce((product, size) => product * size, 1);
      if (at === 'swap') return [from, float32(shape, Float32Array.of(...data.slice(n / 2), ...data.slice(0, n / 2)))];
      const width = n / shape[0]!;
      return [from, float32(shape, data.slice(at * width, at * width + n))];
    }),
  );
}

/** The tensors of an adapter for matrices, with the name that `nameOf` gives to a layer. */
function adapterFor(pairs: ReadonlyMap<string, Pair>, isPeft: boolean, nameOf: (layer: string) => string) {
  const tensors: Tensors = {};
  for (const [weightName, { rank, up, down }] of pairs) {
    const name = nameOf(weightName.replace(/\.weight$/, ''));
    tensors[`${name}.${isPeft ? 'lora_A' : 'lora_down'}.weight`] = float32([rank, down.length / rank], down);
    tensors[`${name}.${isPeft ? 'lora_B' : 'lora_up'}.weight`] = float32([up.length / rank, rank], up);
  }
  return safetensors(tensors);
}

const kohya = (layer: string) => `lora_unet_${layer.replaceAll('.', '_')}`;

describe.each(Object.entries(models))('an adapter of %s', (architecture, lines) => {
  const isUnet = architecture === 'sdxl' || architecture === 'sd1';
  // Small integers, so that all sums are exact.
  const plain = both(lines, 'F32', (_, shape, seed = 1) => weight(shape, seed, true));
  /** Pairs for all matrices, and the tensors with their products. */
  const summed = (tensors: Tensors) => {
    const pairs = new Map<string, Pair>();
    const sums = Object.entries(tensors).map(([name, tensor], i) => {
      const [rows = 0, columns = 0] = tensor.shape;
      if (tensor.shape.length !== 2 || !name.endsWith('.weight')) return [name, tensor] as const;
      const one = pair(rows, columns, 4, i + 1, true);
      pairs.set(name, one);
      return [
        name,
        float32(tensor.shape, Float32Array.from(merged(tensor, [{ pair: one, factor: 1 }]).values)),
      ] as const;
    });
    return { pairs, sums: Object.fromEntries(sums) };
  };
  const prefixed = (tensors: Tensors) =>
    safetensors(
      Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [`model.diffusion_model.${name}`, tensor])),
    );
  const cases = {
    'in the names of diffusers'() {
      const { pairs, sums } = summed(plain.diffusers);
      const { original } = both(lines, 'F32', (_, _shape, seed = 1) => sums[lines[seed - 1]!.from]!);
      const files = [adapterFor(pairs, true, (layer) => `transformer.${layer}`), adapterFor(pairs, false, kohya)];
      return { pairs, files, diffusers: sums, original };
    },
    'in the names of the original'() {
      const { pairs, sums } = summed(plain.original);
      const files = [adapterFor(pairs, true, (layer) => `diffusion_model.${layer}`), adapterFor(pairs, false, kohya)];
      return { pairs, files, diffusers: takenApart(lines, sums), original: sums };
    },
  };

  it.each(Object.keys(cases) as (keyof typeof cases)[])(
    '%s changes every base for every kind of result',
    async (which) => {
      const { pairs, files, diffusers, original } = cases[which]();
      expect(pairs.size).toBeGreaterThan(10);
      const results = async (model: Uint8Array<ArrayBuffer>, want: Uint8Array<ArrayBuffer>, file: number) => {
        const lora = [{ file: files[file]! }];
        for (const to of ['copy', 'comfy-fp8'] as const) {
          const [got, other] = [
            await quantizeModel(model, { to, lora, workers: 0 }),
            await quantizeModel(want, { to, workers: 0 }),
          ];
          expectSameTensors(parseSafetensors(await got.bytes()).tensors, parseSafetensors(await other.bytes()).tensors);
        }
        // UNets keep their names in GGUF.
        for (const to of isUnet ? (['F16'] as const) : (['Q8_0', 'F16'] as const)) {
          const [got, other] = [
            await quantizeModel(model, { to, lora, workers: 0 }),
            await quantizeModel(want, { to, workers: 0 }),
          ];
          expectSameTensors(await ggufTensors(await got.bytes()), await ggufTensors(await other.bytes()));
        }
      };
      await results(safetensors(plain.diffusers), safetensors(diffusers), 0);
      await results(safetensors(plain.diffusers), safetensors(diffusers), 1);
      await results(safetensors(plain.original), safetensors(original), 1);
      await results(prefixed(plain.original), prefixed(original), 0);
    },
  );
});

it('an adapter of XLabs changes the layers of FLUX behind its processors', async () => {
  const lines = models.flux!;
  const plain = both(lines, 'F32', (_, shape, seed = 1) => weight(shape, seed, true));
  const layers: readonly (readonly [layer: string, weight: string, rows: number])[] = [0, 1].flatMap((i) => [
    [`double_blocks.${i}.processor.qkv_lora1`, `double_blocks.${i}.img_attn.qkv.weight`, 96] as const,
    [`double_blocks.${i}.processor.qkv_lora2`, `double_blocks.${i}.txt_attn.qkv.weight`, 96] as const,
    [`double_blocks.${i}.processor.proj_lora1`, `double_blocks.${i}.img_attn.proj.weight`, 32] as const,
    [`double_blocks.${i}.processor.proj_lora2`, `double_blocks.${i}.txt_attn.proj.weight`, 32] as const,
    // Queries, keys and values are the first rows of a weight that has others, too.
    [`single_blocks.${i}.processor.qkv_lora`, `single_blocks.${i}.linear1.weight`, 96] as const,
    [`single_blocks.${i}.processor.proj_lora`, `single_blocks.${i}.linear2.weight`, 32] as const,
  ]);
  const adapter: Tensors = {};
  const sums = { ...plain.original };
  for (const [i, [layer, name, rows]] of layers.entries()) {
    const { shape, data } = sums[name]!;
    const columns = shape[1]!;
    const one = pair(rows, columns, 4, i + 1, true);
    adapter[`${layer}.down.weight`] = float32([4, columns], one.down);
    adapter[`${layer}.up.weight`] = float32([rows, 4], one.up);
    const all = (data as Float32Array<ArrayBuffer>).slice();
    const first = float32([rows, columns], all.slice(0, rows * columns));
    all.set(Float32Array.from(merged(first, [{ pair: one, factor: 1 }]).values));
    sums[name] = float32(shape, all);
  }
  const prefixed = Object.entries(adapter).map(([name, tensor]) => [`diffusion_model.${name}`, tensor]);
  for (const file of [safetensors(adapter), safetensors(Object.fromEntries(prefixed) as Tensors)])
    for (const [model, want] of [
      [plain.original, sums],
      [plain.diffusers, takenApart(lines, sums)],
    ] as const)
      for (const to of ['copy', 'comfy-fp8'] as const) {
        const got = await quantizeModel(safetensors(model), { to, lora: [{ file }], workers: 0 });
        const other = await quantizeModel(safetensors(want), { to, workers: 0 });
        expectSameTensors(parseSafetensors(await got.bytes()).tensors, parseSafetensors(await other.bytes()).tensors);
      }
});

describe('adapters of text encoders', () => {
  const clip = 'conditioner.embedders.0.transformer.text_model.encoder.layers.1.';
  const openClip = 'conditioner.embedders.1.model.transformer.resblocks.1.';
  const base: Tensors = {
    [`${clip}self_attn.q_proj.weight`]: weight([32, 32], 1, true),
    [`${clip}mlp.fc1.weight`]: weight([64, 32], 2, true),
    [`${openClip}attn.in_proj_weight`]: weight([96, 32], 3, true),
    [`${openClip}attn.out_proj.weight`]: weight([32, 32], 4, true),
    [`${openClip}mlp.c_fc.weight`]: weight([64, 32], 5, true),
    [`${openClip}mlp.c_proj.weight`]: weight([32, 64], 6, true),
    'model.diffusion_model.label_emb.0.0.weight': weight([32, 32], 7, true),
  };
  /** Layers with their weights and the first row in them. */
  const places = {
    lora_te1_text_model_encoder_layers_1_self_attn_q_proj: [`${clip}self_attn.q_proj.weight`, 0, 32],
    lora_te1_text_model_encoder_layers_1_mlp_fc1: [`${clip}mlp.fc1.weight`, 0, 64],
    lora_te2_text_model_encoder_layers_1_self_attn_q_proj: [`${openClip}attn.in_proj_weight`, 0, 32],
    'text_encoder_2.text_model.encoder.layers.1.self_attn.k_proj': [`${openClip}attn.in_proj_weight`, 32, 32],
    lora_te2_text_model_encoder_layers_1_self_attn_v_proj: [`${openClip}attn.in_proj_weight`, 64, 32],
    lora_te2_text_model_encoder_layers_1_self_attn_out_proj: [`${openClip}attn.out_proj.weight`, 0, 32],
    lora_te2_text_model_encoder_layers_1_mlp_fc1: [`${openClip}mlp.c_fc.weight`, 0, 64],
    lora_te2_text_model_encoder_layers_1_mlp_fc2: [`${openClip}mlp.c_proj.weight`, 0, 32],
  } as const;

  it.each(Object.entries(places))('%s', async (layer, [name, first, rows]) => {
    const columns = base[name]!.shape[1]!;
    const one = pair(rows, columns, 4, 9, true);
    const file = adapterFor(new Map([[layer, one]]), false, (text) => text);
    const result = await quantizeModel(safetensors(base), { to: 'copy', lora: [{ file }], workers: 0 });
    const whole = base[name]!.data as Float32Array<ArrayBuffer>;
    const part = float32([rows, columns], whole.slice(first * columns, (first + rows) * columns));
    const want = whole.slice();
    want.set(Float32Array.from(merged(part, [{ pair: one, factor: 1 }]).values), first * columns);
    const { tensors } = parseSafetensors(await result.bytes());
    expectSameTensors(
      tensors,
      new Map(
        Object.entries({ ...base, [name]: float32(base[name]!.shape, want) }).map(([key, tensor]) => [
          key,
          storedOf(tensor),
        ]),
      ),
    );
  });

  it('change no weight of another encoder', async () => {
    const { [`${clip}mlp.fc1.weight`]: fc1 } = base;
    const file = adapterFor(
      new Map([['lora_te2_text_model_encoder_layers_1_mlp_fc1', pair(64, 32, 4, 9, true)]]),
      false,
      (text) => text,
    );
    const alone = safetensors({ [`${clip}mlp.fc1.weight`]: fc1! });
    const error = await rejectionOf(quantizeModel(alone, { to: 'copy', lora: [{ file }], workers: 0 }));
    expect(error).toMatchObject({ code: 'BAD_FILE', message: expect.stringContaining('match no weight') });
  });
});

describe('a model of diffusers is refused by name', () => {
  const { diffusers } = both(models.flux!, 'BF16');
  const without = (name: string): Tensors =>
    Object.fromEntries(Object.entries(diffusers).filter(([key]) => key !== name));
  const one = (shape: number[], dtype: 'BF16' | 'F16' = 'BF16') => weights(dtype, shape);
  const q = 'transformer_blocks.0.attn.to_q.weight';
  const mlp = 'single_transformer_blocks.1.proj_mlp.bias';
  const cases: readonly (readonly [what: string, tensors: Tensors, message: RegExp])[] = [
    [
      'an unknown tensor',
      { ...diffusers, 'distilled_guidance_layer.in_proj.weight': one([32]) },
      /"distilled_guidance_layer\.in_proj\.weight": the original flux has no place/,
    ],
    [
      'an unknown module of a block',
      { ...diffusers, 'transformer_blocks.0.attn.to_x.weight': one([32, 32]) },
      /to_x\.weight": .*no place/,
    ],
    ['a block without a number', { ...diffusers, 'transformer_blocks.x.attn.to_q.weight': one([32, 32]) }, /no place/],
    [
      'a block with a long number',
      { ...diffusers, 'transformer_blocks.12345678.attn.to_q.weight': one([32, 32]) },
      /no place/,
    ],
    [
      'a name of Object',
      { ...diffusers, 'transformer_blocks.0.constructor.weight': one([32, 32]) },
      /constructor\.weight": .*no place/,
    ],
    ['another name of Object', { ...diffusers, toString: one([32, 32]) }, /"toString": .*no place/],
    [
      'a bias of a norm',
      { ...diffusers, 'transformer_blocks.0.attn.norm_q.bias': one([32]) },
      /norm_q\.bias": .*no place/,
    ],
    ['a lack of to_q', without(q), /to_q\.weight": it is missing, and .* is joined with it/],
    ['a lack of to_v', without(q.replace('to_q', 'to_v')), /to_v\.weight": it is missing/],
    ['a lack of proj_mlp', without(mlp), /proj_mlp\.bias": it is missing/],
    [
      'another width',
      { ...diffusers, [q]: one([32, 64]) },
      /to_k\.weight": it is BF16 \[32, 32\], and .*to_q\.weight is BF16 \[32, 64\]/,
    ],
    ['another type', { ...diffusers, [q]: one([32, 32], 'F16') }, /it is BF16 \[32, 32\], and .* is F16/],
    ['another rank', { ...diffusers, [q]: one([32]) }, /it is BF16/],
    [
      'rows of odd numbers',
      { ...diffusers, [q]: one([31, 32]) },
      /rows are not those of double_blocks\.0\.img_attn\.qkv\.weight/,
    ],
    ['too many rows', { ...diffusers, [mlp]: one([32 * 99]) }, /rows are not those of single_blocks\.1\.linear1\.bias/],
    [
      'no rows',
      {
        ...diffusers,
        ...Object.fromEntries(['q', 'k', 'v'].map((x) => [`transformer_blocks.0.attn.to_${x}.weight`, one([0, 32])])),
      },
      /rows are not those/,
    ],
    ['a scalar', { ...diffusers, [q]: one([]) }, /it is BF16 \[\]/],
    [
      'an odd number of rows to swap',
      { ...diffusers, 'norm_out.linear.weight': one([63, 32]) },
      /rows are not those of final_layer/,
    ],
    [
      'the same place twice',
      { ...both(models.sdxl!, 'BF16').diffusers, 'class_embedding.linear_1.weight': one([64, 64]) },
      /has the same place, label_emb\.0\.0\.weight/,
    ],
    [
      'uneven blocks of a UNet',
      Object.fromEntries(
        Object.entries(both(models.sd1!, 'BF16').diffusers).filter(
          ([key]) => !key.startsWith('down_blocks.1.resnets.1.'),
        ),
      ),
      /UNet in the layout of diffusers, with other numbers/,
    ],
    [
      'missing parts',
      {
        [q]: one([32, 32]),
        [q.replace('to_q', 'to_k')]: one([32, 32]),
        [q.replace('to_q', 'to_v')]: one([32, 32]),
        'single_transformer_blocks.0.attn.norm_k.weight': one([32]),
      },
      /flux in the layout of diffusers without all/,
    ],
  ];
  it.each(cases)('%s', async (_what, tensors, message) => {
    for (const to of ['comfy-fp8', 'Q8_0'] as const) {
      const isUnet = 'conv_in.weight' in tensors;
      if (isUnet && to === 'Q8_0') continue;
      const error = await rejectionOf(planModel(safetensors(tensors), { to }));
      expect(error).toMatchObject({ name: 'ScalepointError', message: expect.stringMatching(message) });
    }
  });
});

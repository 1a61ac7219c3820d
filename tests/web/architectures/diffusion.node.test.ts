// Checkpoints of diffusion models to GGUF. What becomes of each tensor is written out from the rules of ComfyUI-GGUF's tools, not computed.
// ComfyUI itself is not run.
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { GGMLQuantizationType, gguf } from '@huggingface/gguf';
import { type BlockType, load, type Scalepoint } from 'scalepoint';
import {
  compareModels,
  inspectModel,
  type ModelTarget,
  type PlanOptions,
  planModel,
  quantizeModel,
  readFloats,
  ScalepointError,
} from 'scalepoint/model';
import { beforeAll, describe, expect, it } from 'vitest';
import { rejectionOf, safetensors, type TestTensor, weights } from '../support/models.js';

/** A tensor: its type in the checkpoint, its shape, and its type in the result. */
type Line = readonly [name: string, from: string, shape: readonly number[], to: string];

/** Weights of a type, float8 too: every byte but those of NaN. */
function tensor(dtype: string, shape: readonly number[], seed: number): TestTensor {
  if (!dtype.startsWith('F8')) return weights(dtype as 'F32', shape, seed);
  const n = shape.reduce((a, b) => a * b, 1);
  return { dtype, shape, data: Uint8Array.from({ length: n }, (_, i) => (i * 7 + seed) % 120) };
}

function checkpoint(lines: readonly (readonly [string, string, readonly number[], ...unknown[]])[], prefix = '') {
  return safetensors(
    Object.fromEntries(lines.map(([name, from, shape], i) => [prefix + name, tensor(from, shape, i + 1)])),
  );
}

const wide = [8, 256] as const;

/** For each architecture its tensors, and what they become as Q4_K_M. */
const models: Readonly<Record<string, readonly Line[]>> = {
  flux: [
    ['img_in.weight', 'BF16', [16, 256], 'BF16'],
    ['img_in.bias', 'BF16', [256], 'F32'],
    ['time_in.in_layer.weight', 'BF16', [16, 256], 'BF16'],
    ['guidance_in.in_layer.weight', 'F16', wide, 'F16'],
    ['double_blocks.0.img_attn.proj.weight', 'BF16', wide, 'Q4_K'],
    ['double_blocks.0.img_attn.qkv.weight', 'BF16', wide, 'Q5_K'],
    ['double_blocks.0.img_attn.norm.query_norm.scale', 'BF16', [128], 'F32'],
    ['double_blocks.0.img_mod.lin.bias', 'F16', [768], 'F16'],
    ['double_blocks.0.img_mlp.0.weight', 'F16', wide, 'Q4_K'],
    ['single_blocks.0.linear1.weight', 'F32', wide, 'Q4_K'],
    ['single_blocks.0.linear2.weight', 'F8_E4M3', wide, 'Q4_K'],
    ['double_stream_modulation_img.lin.weight', 'BF16', wide, 'BF16'],
    ['single_blocks.0.odd.weight', 'BF16', [8, 160], 'F16'],
    ['final_layer.linear.weight', 'F8_E5M2', wide, 'F16'],
  ],
  sd3: [
    ['joint_blocks.0.x_block.attn.qkv.weight', 'F16', wide, 'Q5_K'],
    ['joint_blocks.0.x_block.mlp.fc1.weight', 'F16', wide, 'Q4_K'],
    ['joint_blocks.0.x_block.adaLN_modulation.1.weight', 'F16', wide, 'Q4_K'],
    ['x_embedder.proj.weight', 'F16', [16, 16, 2, 2], 'F16'],
    ['context_embedder.weight', 'F16', wide, 'F16'],
    ['pos_embed', 'F16', [1, 36, 256], 'F16'],
    ['final_layer.linear.weight', 'F16', wide, 'F16'],
  ],
  aura: [
    ['double_layers.3.modX.1.weight', 'F16', wide, 'Q4_K'],
    ['double_layers.3.attn.w1v.weight', 'F16', wide, 'Q6_K'],
    ['double_layers.3.attn.w2v.weight', 'F16', wide, 'Q6_K'],
    ['double_layers.3.attn.w1q.weight', 'F16', wide, 'Q4_K'],
    ['modF.1.weight', 'F16', wide, 'F16'],
    ['positional_encoding', 'BF16', [1, 16, 256], 'F32'],
    ['register_tokens', 'BF16', [1, 8, 256], 'F32'],
    ['init_x_linear.weight', 'F16', wide, 'F16'],
  ],
  hidream: [
    ['caption_projection.0.linear.weight', 'BF16', wide, 'BF16'],
    ['double_stream_blocks.0.block.ff_i.shared_experts.w3.weight', 'BF16', wide, 'Q4_K'],
    ['double_stream_blocks.0.block.ff_i.experts.0.w2.weight', 'BF16', wide, 'Q6_K'],
    ['double_stream_blocks.0.block.ff_i.gate.weight', 'BF16', wide, 'F32'],
    ['double_stream_blocks.0.block.attn1.to_v.weight', 'BF16', wide, 'Q6_K'],
    ['x_embedder.proj.weight', 'BF16', wide, 'BF16'],
  ],
  cosmos: [
    ['blocks.0.mlp.layer1.weight', 'BF16', wide, 'Q4_K'],
    ['blocks.0.mlp.layer2.weight', 'BF16', wide, 'Q6_K'],
    ['blocks.0.adaln_modulation_cross_attn.1.weight', 'BF16', wide, 'Q4_K'],
    ['blocks.0.adaln_modulation_mlp.2.weight', 'BF16', wide, 'Q6_K'],
    ['blocks.0.self_attn.v_proj.weight', 'BF16', wide, 'Q6_K'],
    ['blocks.0.self_attn.q_norm.weight', 'BF16', [128], 'F32'],
    ['pos_embedder.dim_spatial_range', 'BF16', [2000], 'F32'],
    ['x_embedder.proj.1.weight', 'BF16', wide, 'BF16'],
  ],
  qwen_image: [
    ['time_text_embed.timestep_embedder.linear_2.weight', 'BF16', wide, 'BF16'],
    ['transformer_blocks.0.attn.norm_added_q.weight', 'BF16', [128], 'F32'],
    // The names that tell the layout of diffusers of other architectures.
    ['transformer_blocks.0.attn.norm_added_k.weight', 'BF16', [128], 'F32'],
    ['transformer_blocks.0.attn.add_q_proj.weight', 'BF16', wide, 'Q5_K'],
    ['transformer_blocks.0.attn.to_v.weight', 'BF16', wide, 'Q5_K'],
    ['transformer_blocks.0.img_mlp.net.0.proj.weight', 'BF16', wide, 'Q5_K'],
    ['transformer_blocks.1.attn.add_v_proj.weight', 'BF16', wide, 'Q6_K'],
    ['transformer_blocks.1.img_mlp.net.2.weight', 'BF16', wide, 'Q6_K'],
    ['transformer_blocks.1.attn.to_q.weight', 'BF16', wide, 'Q4_K'],
    ['transformer_blocks.59.txt_mlp.net.2.weight', 'BF16', wide, 'Q5_K'],
    ['norm_out.linear.weight', 'BF16', wide, 'BF16'],
  ],
  ltxv: [
    ['adaln_single.emb.timestep_embedder.linear_2.weight', 'BF16', wide, 'BF16'],
    ['transformer_blocks.27.scale_shift_table', 'BF16', [6, 512], 'F32'],
    ['transformer_blocks.27.ff.net.2.weight', 'BF16', wide, 'Q6_K'],
    ['transformer_blocks.27.attn1.to_v.weight', 'BF16', wide, 'Q6_K'],
    ['transformer_blocks.27.attn1.to_k.weight', 'BF16', wide, 'Q4_K'],
    ['caption_projection.linear_2.weight', 'BF16', wide, 'BF16'],
    ['patchify_proj.weight', 'BF16', wide, 'BF16'],
  ],
  hyvid: [
    ['double_blocks.0.img_attn_proj.weight', 'BF16', wide, 'Q4_K'],
    ['double_blocks.0.img_attn_qkv.weight', 'BF16', wide, 'Q5_K'],
    ['txt_in.individual_token_refiner.blocks.1.self_attn_qkv.weight', 'BF16', wide, 'BF16'],
    ['img_in.proj.weight', 'BF16', [32, 16, 1, 2, 2], 'F32'],
    ['img_in.proj.bias', 'BF16', [32], 'F32'],
    ['vector_in.in_layer.weight', 'BF16', wide, 'BF16'],
  ],
  wan: [
    ['blocks.0.self_attn.norm_q.weight', 'BF16', [256], 'F32'],
    ['blocks.0.self_attn.v.weight', 'BF16', wide, 'Q6_K'],
    ['blocks.0.self_attn.o.weight', 'BF16', wide, 'Q4_K'],
    ['blocks.0.ffn.2.weight', 'BF16', wide, 'Q6_K'],
    ['blocks.0.modulation', 'BF16', [1, 6, 256], 'F32'],
    ['text_embedding.2.weight', 'BF16', wide, 'BF16'],
    ['head.modulation', 'BF16', [1, 2, 768], 'F32'],
    ['patch_embedding.weight', 'F16', [32, 16, 1, 2, 2], 'F32'],
    ['vace_patch_embedding.weight', 'F16', [32, 16, 1, 2, 2], 'F32'],
    ['patch_embedding.bias', 'F16', [32], 'F16'],
  ],
  sdxl: [
    ['label_emb.0.0.weight', 'F16', wide, 'F16'],
    ['input_blocks.0.0.weight', 'F16', [320, 4, 3, 3], 'F16'],
    ['input_blocks.3.0.op.weight', 'F16', [64, 64, 3, 3], 'Q4_K'],
    ['input_blocks.4.1.transformer_blocks.0.attn1.to_v.weight', 'F16', wide, 'Q6_K'],
    ['input_blocks.4.1.transformer_blocks.0.ff.net.2.weight', 'F16', [16, 80], 'Q6_K'],
    ['input_blocks.4.1.proj_in.bias', 'F16', [320], 'F16'],
    ['input_blocks.4.1.odd.weight', 'F16', [3, 100], 'F16'],
    ['out.2.weight', 'F16', [4, 320, 3, 3], 'F16'],
  ],
  sd1: [
    ['input_blocks.3.0.op.weight', 'F32', [32, 32, 3, 3], 'Q4_K'],
    ['input_blocks.6.0.op.weight', 'F32', [32, 32, 3, 3], 'Q4_K'],
    ['input_blocks.9.0.op.weight', 'F32', [32, 32, 3, 3], 'Q4_K'],
    ['output_blocks.2.1.conv.weight', 'F32', [32, 32, 3, 3], 'Q4_K'],
    ['output_blocks.5.2.conv.weight', 'F32', [32, 32, 3, 3], 'Q4_K'],
    ['output_blocks.8.2.conv.weight', 'F32', [32, 32, 3, 3], 'Q4_K'],
    ['time_embed.0.weight', 'F32', wide, 'F16'],
    ['out.0.weight', 'F32', [320], 'F32'],
  ],
  lumina2: [
    ['cap_embedder.1.weight', 'BF16', wide, 'BF16'],
    ['context_refiner.0.attention.qkv.weight', 'BF16', wide, 'BF16'],
    ['layers.0.attention.qkv.weight', 'BF16', wide, 'Q5_K'],
    ['layers.0.feed_forward.w2.weight', 'BF16', wide, 'Q6_K'],
    ['layers.0.feed_forward.w1.weight', 'BF16', wide, 'Q4_K'],
    ['layers.0.ffn_norm1.weight', 'BF16', [256], 'F32'],
    ['x_pad_token', 'BF16', [1, 2048], 'F32'],
  ],
};

/** Tensors that are stored in rows of 256, with the shapes that are noted. */
const reshaped: Readonly<Record<string, Readonly<Record<string, readonly number[]>>>> = {
  sdxl: {
    'input_blocks.0.0.weight': [320, 4, 3, 3],
    'input_blocks.3.0.op.weight': [64, 64, 3, 3],
    'input_blocks.4.1.transformer_blocks.0.ff.net.2.weight': [16, 80],
    'out.2.weight': [4, 320, 3, 3],
  },
  sd1: Object.fromEntries(models.sd1!.slice(0, 6).map(([name, , shape]) => [name, shape])),
};

/** The order of the result, where it is not that of the checkpoint. */
const moved: Readonly<Record<string, readonly string[]>> = {
  hyvid: [
    'double_blocks.0.img_attn_proj.weight',
    'double_blocks.0.img_attn_qkv.weight',
    'txt_in.individual_token_refiner.blocks.1.self_attn_qkv.weight',
    'img_in.proj.bias',
    'img_in.proj.weight',
    'vector_in.in_layer.weight',
  ],
  wan: [
    ...models.wan!.slice(0, 7).map(([name]) => name),
    'patch_embedding.bias',
    'patch_embedding.weight',
    'vace_patch_embedding.weight',
  ],
};

let folder: string;
let sp: Scalepoint;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'diffusion-'));
  sp = await load({ blocks: true });
  return () => rm(folder, { recursive: true });
});

/** Contents of a result, by another reader. */
async function parsed(bytes: Uint8Array) {
  const path = join(folder, 'result.gguf');
  await writeFile(path, bytes);
  const { metadata, tensorInfos } = await gguf(path, { allowLocalFile: true });
  return {
    metadata,
    tensors: tensorInfos.map(({ name, shape, dtype }) => ({
      name,
      shape: shape.map(Number).reverse(),
      type: GGMLQuantizationType[dtype],
    })),
  };
}

async function convert(file: Uint8Array<ArrayBuffer>, to: ModelTarget, options: Omit<PlanOptions, 'to'> = {}) {
  return (await quantizeModel(file, { to, workers: 0, ...options })).bytes();
}

describe.each(Object.entries(models))('%s', (architecture, lines) => {
  const shapes = reshaped[architecture] ?? {};
  const [order] = [moved[architecture] ?? lines.map(([name]) => name)];

  it('becomes what the tools of ComfyUI-GGUF make of it', async () => {
    const file = checkpoint(lines);
    const bytes = await convert(file, 'Q4_K_M');
    const { metadata, tensors } = await parsed(bytes);
    const expected = order.map((name) => {
      const [, , shape, type] = lines.find(([known]) => known === name)!;
      const n = shape.reduce((a, b) => a * b, 1);
      return { name, shape: name in shapes ? [n / 256, 256] : shape, type };
    });
    expect(tensors).toEqual(expected);
    expect(metadata).toMatchObject({
      'general.architecture': architecture,
      'general.quantization_version': 2,
      'general.file_type': 15,
      ...Object.fromEntries(Object.entries(shapes).map(([name, shape]) => [`comfy.gguf.orig_shape.${name}`, shape])),
    });
    const { metadata: own, tensors: again } = await inspectModel(bytes);
    expect(Object.keys(own)).toEqual([
      'general.architecture',
      'general.quantization_version',
      'general.file_type',
      ...Object.keys(shapes).map((name) => `comfy.gguf.orig_shape.${name}`),
    ]);
    expect(again.map(({ name }) => name)).toEqual(order);
  });

  it('has the blocks of its weights', async () => {
    const file = checkpoint(lines);
    const bytes = await convert(file, 'Q4_K_M');
    const { tensors } = await inspectModel(bytes);
    for (const { name, dtype, byteOffset, bytes: size } of tensors) {
      if (!/^Q/.test(dtype)) continue;
      const before = await storedFloats(lines, name);
      const { data } = sp.quantizeBlocks(before, dtype as BlockType, { shape: [before.length / 256, 256] });
      expect(Buffer.compare(data, bytes.subarray(byteOffset, byteOffset + size)), name).toBe(0);
    }
  });

  it('is found behind the prefix of a checkpoint, without what else is there', async () => {
    const prefix = 'model.diffusion_model.';
    const others = { 'first_stage_model.decoder.conv.weight': weights('F16', [4, 4], 1) };
    const named = Object.fromEntries(
      lines.map(([name, from, shape], i) => [prefix + name, tensor(from, shape, i + 1)]),
    );
    const bytes = await convert(safetensors({ ...others, ...named }), 'Q4_K_M');
    expect(Buffer.compare(bytes, await convert(checkpoint(lines), 'Q4_K_M'))).toBe(0);
    expect(Buffer.compare(bytes, await convert(checkpoint(lines, 'net.'), 'Q4_K_M'))).toBe(0);
  });
});

/** The floats of a tensor of a checkpoint. */
async function storedFloats(lines: readonly Line[], name: string): Promise<Float32Array<ArrayBuffer>> {
  const i = lines.findIndex(([known]) => known === name);
  const [, from, shape] = lines[i]!;
  if (!from.startsWith('F8')) return (await readFloats(checkpoint(lines), name)).data;
  const bits = tensor(from, shape, i + 1).data as Uint8Array;
  const [fraction, bias] = from === 'F8_E4M3' ? [3, 7] : [2, 15];
  return Float32Array.from(bits, (byte) => {
    const [exponent, rest] = [(byte & 0x7f) >> fraction, byte & ((1 << fraction) - 1)];
    const part = rest / (1 << fraction);
    return (byte < 128 ? 1 : -1) * (exponent === 0 ? part * 2 ** (1 - bias) : (1 + part) * 2 ** (exponent - bias));
  });
}

describe('the types of other targets', () => {
  /** Types of some tensors of a model as another target. */
  async function typesOf(lines: readonly Line[], to: ModelTarget, options: Omit<PlanOptions, 'to'> = {}) {
    const { tensors } = await planModel(checkpoint(lines), { to, ...options });
    return Object.fromEntries(tensors.map(({ name, to: type }) => [name, type]));
  }
  const values = (count: number): Line[] =>
    Array.from({ length: count }, (_, i) => [`double_layers.${i}.attn.w1v.weight`, 'F16', wide, '']);
  const aura = [...models.aura!.slice(0, 1), ...values(6)];

  it.each([
    ['Q3_K_M', ['Q5_K', 'Q5_K', 'Q4_K', 'Q4_K', 'Q4_K', 'Q4_K']],
    ['Q4_K_S', ['Q5_K', 'Q5_K', 'Q5_K', 'Q5_K', 'Q4_K', 'Q4_K']],
    ['Q3_K_L', Array.from({ length: 6 }, () => 'Q5_K')],
    ['Q2_K', Array.from({ length: 6 }, () => 'Q3_K')],
    ['Q5_K_M', Array.from({ length: 6 }, () => 'Q6_K')],
    ['Q5_K_S', Array.from({ length: 6 }, () => 'Q5_K')],
    ['Q8_0', Array.from({ length: 6 }, () => 'Q8_0')],
    ['IQ4_NL', Array.from({ length: 6 }, () => 'IQ4_NL')],
  ] as const)('%s counts values in the order of the file', async (to, expected) => {
    const types = await typesOf(aura, to);
    expect(values(6).map(([name]) => types[name])).toEqual(expected);
  });

  it.each([
    ['Q4_0', 'Q4_1', 'Q4_0'],
    ['Q5_0', 'Q5_1', 'Q5_0'],
    ['Q4_1', 'Q4_1', 'Q4_1'],
    ['Q4_K_S', 'Q5_K', 'Q4_K'],
    ['Q3_K_M', 'Q4_K', 'Q3_K'],
    ['Q6_K', 'Q6_K', 'Q6_K'],
  ] as const)('%s has %s for the second layer of a feed-forward block', async (to, down, others) => {
    const types = await typesOf(models.wan!, to);
    expect(types['blocks.0.ffn.2.weight']).toBe(down);
    expect(types['blocks.0.self_attn.o.weight']).toBe(others);
  });

  it('F16, BF16 and F32 are of what would be quantized; F32 keeps the others too', async () => {
    const lines = [...models.flux!, ['txt_in.weight', 'F32', wide, '']] as Line[];
    const [f16, bf16, f32] = await Promise.all((['F16', 'BF16', 'F32'] as const).map((to) => typesOf(lines, to)));
    const names = ['double_blocks.0.img_attn.proj.weight', 'img_in.weight', 'txt_in.weight', 'img_in.bias'];
    expect(names.map((name) => f16![name])).toEqual(['F16', 'BF16', 'F16', 'F32']);
    expect(names.map((name) => bf16![name])).toEqual(['BF16', 'BF16', 'F16', 'F32']);
    expect(names.map((name) => f32![name])).toEqual(['F32', 'BF16', 'F32', 'F32']);
  });

  it('follows rules and pure, but not for what has to be floats', async () => {
    const rules = [
      { match: /attn\.proj/, to: 'Q8_0' },
      { match: /linear1/, keep: true },
      { match: /img_in/, to: 'Q4_0' },
    ] as const;
    const types = await typesOf(models.flux!, 'Q4_K_M', { rules, pure: true });
    expect(types['double_blocks.0.img_attn.proj.weight']).toBe('Q8_0');
    expect(types['single_blocks.0.linear1.weight']).toBe('F16');
    expect(types['img_in.weight']).toBe('BF16');
    expect(types['double_blocks.0.img_attn.qkv.weight']).toBe('Q4_K');
  });
});

describe('a converted checkpoint', () => {
  it('is compared with the original by name', async () => {
    const file = checkpoint(models.wan!);
    const { tensors, onlyInA, onlyInB } = await compareModels(file, await convert(file, 'Q8_0'), { workers: 0 });
    expect([onlyInA, onlyInB]).toEqual([[], []]);
    expect(tensors).toHaveLength(models.wan!.length);
    for (const { error } of tensors) expect(error.sqnrDb).toBeGreaterThan(35);
  });

  it('in several files is the same when it is joined, and takes edits of its metadata', async () => {
    const place = await mkdtemp(join(folder, 'split-'));
    const options = { to: 'Q4_K_M', workers: 0, metadata: { 'general.name': 'A name' } } as const;
    const file = checkpoint(models.sdxl!);
    await quantizeModel(file, { ...options, splitTensors: 3, output: join(place, 'x.gguf') });
    const names = await readdir(place);
    expect(names.sort()).toEqual(['x-00001-of-00003.gguf', 'x-00002-of-00003.gguf', 'x-00003-of-00003.gguf']);
    const joined = await quantizeModel(join(place, names[0]!), { to: 'copy', workers: 0 });
    const whole = await quantizeModel(file, options);
    expect(Buffer.compare(await joined.bytes(), await whole.bytes())).toBe(0);
    expect((await inspectModel(await whole.bytes())).metadata['general.name']).toBe('A name');
  });

  it('is named after the architecture in a note, with what is left out', async () => {
    const lines = [...models.cosmos!, ['net._extra_state', 'F32', [4], '']] as Line[];
    const { notes, format } = await planModel(checkpoint(lines), { to: 'Q8_0' });
    expect(format).toBe('gguf');
    expect(notes[0]).toMatchObject({
      kind: 'diffusionReaders',
      text: expect.stringContaining('ComfyUI-GGUF for cosmos'),
    });
    expect(notes[1]).toMatchObject({ kind: 'leftOut', text: expect.stringMatching(/^1 tensor is left out/) });
  });
});

describe('a file that cannot be converted', () => {
  const flux = models.flux!;

  it('to NVFP4, whose scales no reader of these files applies', async () => {
    const wanted = planModel(checkpoint(flux), { to: 'NVFP4' });
    await expect(wanted).rejects.toMatchObject({
      code: 'UNSUPPORTED_DTYPE',
      message: expect.stringContaining('"flux"'),
    });
  });

  it.each<[what: string, lines: readonly (readonly [string, string, readonly number[]])[], code: string, RegExp]>([
    [
      'float8 with scales',
      [...flux.map(([a, b, c]) => [a, b, c] as const), ['single_blocks.0.linear2.scale_weight', 'F32', [1]]],
      'UNSUPPORTED_DTYPE',
      /linear2\.weight": .*float8 with scales\), in a layout that cannot be decoded here; start from the model in floats/,
    ],
    [
      'a scaled_fp8 marker',
      [...flux.map(([a, b, c]) => [a, b, c] as const), ['scaled_fp8', 'F8_E4M3', [2]]],
      'UNSUPPORTED_DTYPE',
      /scaled_fp8": .* float8 with scales/,
    ],
    [
      'FLUX in the layout of diffusers',
      [['single_transformer_blocks.0.attn.norm_k.weight', 'BF16', [128]]],
      'UNKNOWN_FORMAT',
      /flux in the layout of diffusers without all/,
    ],
    [
      'SD3 in the layout of diffusers',
      [['transformer_blocks.0.ff_context.net.0.proj.weight', 'BF16', wide]],
      'UNKNOWN_FORMAT',
      /sd3 in the layout of diffusers/,
    ],
    [
      'AuraFlow in the layout of diffusers',
      [['joint_transformer_blocks.3.ff_context.out_projection.weight', 'BF16', wide]],
      'UNKNOWN_FORMAT',
      /aura in the layout of diffusers/,
    ],
    [
      'a LoRA',
      [['lora_unet_double_blocks_0_img_attn_proj.lora_down.weight', 'BF16', wide]],
      'UNKNOWN_FORMAT',
      /adapter \(LoRA\)/,
    ],
    [
      'integers among the weights',
      [...flux.map(([a, b, c]) => [a, b, c] as const), ['single_blocks.0.table', 'F8_E8M0', [8]]],
      'UNSUPPORTED_DTYPE',
      /single_blocks\.0\.table": F8_E8M0 cannot be converted/,
    ],
    [
      'a name of 128 bytes',
      [...flux.map(([a, b, c]) => [a, b, c] as const), [`${'x'.repeat(121)}.weight`, 'F16', wide]],
      'BAD_FILE',
      /the name has 128 bytes, more than the 127/,
    ],
  ])('because of %s is refused, and nothing is written', async (_what, lines, code, message) => {
    const place = await mkdtemp(join(folder, 'refused-'));
    const options = { to: 'Q4_K_M', output: join(place, 'out.gguf'), workers: 0 } as const;
    const error = await rejectionOf(quantizeModel(checkpoint(lines), options));
    expect(error).toBeInstanceOf(ScalepointError);
    expect(error).toMatchObject({ code, message: expect.stringMatching(message) });
    expect(await readdir(place)).toEqual([]);
  });

  it('names the possible targets if it is not a diffusion model', async () => {
    const file = checkpoint([['a.weight', 'F32', wide]]);
    const error = await rejectionOf(planModel(file, { to: 'Q4_K_M' }));
    expect(error).toBeInstanceOf(RangeError);
    expect(error).toMatchObject({ option: 'to', message: expect.stringMatching(/GGUF if it is a diffusion model/) });
  });

  it('stops at a weight that is NaN or too large for F16', async () => {
    for (const [value, code] of [
      [Number.NaN, 'NON_FINITE'],
      [1e6, 'OVERFLOW'],
    ] as const) {
      const data = new Float32Array(2048).fill(1);
      data[300] = value;
      const name = code === 'OVERFLOW' ? 'img_in.weight' : 'single_blocks.0.linear1.weight';
      const file = safetensors({
        'double_blocks.0.img_attn.proj.weight': weights('F32', wide, 1),
        [name]: { dtype: 'F32', shape: wide, data },
      });
      const place = await mkdtemp(join(folder, 'values-'));
      const options = { to: 'Q4_K_M', output: join(place, 'out.gguf'), workers: 0 } as const;
      expect(await rejectionOf(quantizeModel(file, options))).toMatchObject({ code, tensor: name });
      expect(await readdir(place)).toEqual([]);
    }
  });
});

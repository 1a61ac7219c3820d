// Vision towers as GGUF files for llama.cpp's --mmproj: bytes beside files that the tests write by tables of the converter's source, and what
// the loader of llama.cpp asks for. The library of the tests holds no code for towers, so that none is run.
import {
  compareModels,
  type FileInput,
  inspectModel,
  planModel,
  type QuantizeModelOptions,
  quantizeModel,
  resultName,
} from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { toGguf } from '../../../../web/src/architectures/to-gguf.js';
import { chosen, rejectionOf, safetensors, type TestTensor } from '../../support/models.js';
import { ggufFile, type Pair } from '../../support/tiny-llama.js';
import {
  linesOf,
  type TowerCase,
  type TowerLine,
  top,
  towerCases,
  towerTensors,
  weightsOf,
} from '../../support/towers.js';

type To = 'F32' | 'F16' | 'BF16' | 'Q8_0';
const targets: readonly To[] = ['F32', 'F16', 'BF16', 'Q8_0'];

// ----------------------------------------------------------------------------------------------------------------------- the folder

interface FolderChange {
  readonly config?: object;
  readonly vision?: object;
  readonly files?: Readonly<Record<string, object | undefined>>;
  readonly tensors?: (tensors: Record<string, TestTensor>) => void;
}

/** The folder of a case, in bfloat16. */
function folderOf(one: TowerCase, { config, vision, files = {}, tensors }: FolderChange = {}): FileInput[] {
  const all = towerTensors(one);
  tensors?.(all);
  const own = one.config.vision_config as object;
  const beside: Readonly<Record<string, object | undefined>> = {
    'config.json': { ...one.config, vision_config: { ...own, ...vision }, ...config },
    'preprocessor_config.json': one.preprocessor,
    'processor_config.json': one.processor,
    ...files,
  };
  const texts = Object.entries(beside).flatMap(([path, content]) =>
    content === undefined ? [] : [chosen(path, content)],
  );
  return [chosen('model.safetensors', safetensors(all)), ...texts];
}

const convert = async (input: FileInput[], options: Omit<QuantizeModelOptions, 'to'> & { to?: To } = {}) =>
  quantizeModel(input, { workers: 0, mmproj: true, to: 'F16', ...options });

// ------------------------------------------------------------------------------------------------------- the file by the converter

/** Bits of a float16. The numbers of the tests are exact in it, and so are scales after rounding. */
function half(value: number): number {
  const bits = new Uint32Array(Float32Array.of(value).buffer)[0]!;
  const [sign, size] = [(bits >>> 16) & 0x8000, bits & 0x7fffffff];
  if (size === 0) return sign;
  // Ties to even: numbers of the tests are normal in float16.
  const rounded = size + 0xfff + ((size >>> 13) & 1);
  return sign | ((rounded - 0x38000000) >>> 13);
}

/** Blocks of 32 codes behind their scale, by ggml's definition of Q8_0. */
function q8(values: Float32Array): Uint8Array {
  const bytes = new Uint8Array((values.length / 32) * 34);
  const view = new DataView(bytes.buffer);
  for (let block = 0; block < values.length / 32; block++) {
    const own = values.subarray(32 * block, 32 * block + 32);
    const scale = Math.fround(own.reduce((most, v) => Math.max(most, Math.abs(v)), 0) / 127);
    const inverse = scale === 0 ? 0 : Math.fround(1 / scale);
    view.setUint16(34 * block, half(scale), true);
    own.forEach((value, i) => {
      const product = Math.fround(value * inverse);
      view.setInt8(34 * block + 2 + i, Math.sign(product) * Math.floor(Math.abs(product) + 0.5));
    });
  }
  return bytes;
}

function stored(values: Float32Array, type: string): Uint8Array {
  const bytes = ({ buffer, byteOffset, byteLength }: Float32Array | Uint16Array) =>
    new Uint8Array(buffer, byteOffset, byteLength);
  if (type === 'F16') return bytes(Uint16Array.from(values, half));
  if (type === 'BF16') return bytes(top(values));
  return type === 'Q8_0' ? q8(values) : bytes(values);
}

/** The type of a tensor. Rows that blocks do not divide are float16. */
function typeOf(type: string, shape: readonly number[], to: To): string {
  if (type === 'conv') return to === 'F16' ? 'F16' : 'F32';
  if (type !== 'out') return type.toUpperCase();
  return to === 'Q8_0' && shape.at(-1)! % 32 !== 0 ? 'F16' : to;
}

/** A tensor of the result. */
function changed(
  { shape, change }: TowerLine,
  values: Float32Array,
): { shape: readonly number[]; values: Float32Array } {
  if (change === '+1') return { shape, values: values.map((value) => value + 1) };
  const [what, arguments_ = ''] = change.split('=');
  if (what === 'rows') {
    const [first, count] = arguments_.split('+').map(Number) as [number, number];
    const width = shape.slice(1).reduce((a, b) => a * b, 1);
    return { shape: [count, ...shape.slice(1)], values: values.slice(first * width, (first + count) * width) };
  }
  if (what === 'frame') {
    const [outputs, colors, frames, ...patch] = shape as [number, number, number, number, number];
    const size = patch[0] * patch[1];
    const parts = Array.from({ length: outputs * colors }, (_, i) => {
      const at = (i * frames + Number(arguments_)) * size;
      return [...values.subarray(at, at + size)];
    });
    return { shape: [outputs, colors, ...patch], values: Float32Array.from(parts.flat()) };
  }
  return { shape, values };
}

const fileTypes: Readonly<Record<To, number>> = { F32: 0, F16: 1, BF16: 32, Q8_0: 7 };

function expectedFile(one: TowerCase, to: To, name = 'tiny'): Uint8Array {
  const all = linesOf(one);
  const weights = weightsOf(all);
  // All that is made of a tensor of the folder stands together.
  const lines = [...weights.keys()].flatMap((name) => all.filter(({ from }) => from === name));
  return ggufFile({
    pairs: [
      ['general.architecture', 'string', 'clip'],
      ['general.type', 'string', 'mmproj'],
      ['general.name', 'string', name],
      ['general.file_type', 'u32', fileTypes[to]],
      ...one.keys.map(([key, ...rest]) => [`clip.${key}`, ...rest] as unknown as Pair),
      ['general.quantization_version', 'u32', 2],
    ],
    tensors: lines
      .filter((line) => line.to !== '-')
      .map((line) => {
        const { shape, values } = changed(line, weights.get(line.from)!);
        const dtype = typeOf(line.type, shape, to);
        return { name: line.to, dtype, ne: [...shape].reverse(), data: stored(values, dtype) };
      }),
  });
}

describe('the file is that of the converter', () => {
  it.each(towerCases)('of $name', async (one) => {
    const input = folderOf(one);
    for (const to of targets) {
      const result = await convert(input, { to });
      const [got, want] = [await result.bytes(), expectedFile(one, to)];
      expect(Buffer.compare(got, want), `${to}: ${got.length} and ${want.length} bytes`).toBe(0);
      const plan = await planModel(input, { to, mmproj: true });
      expect([plan.totals.bytesAfter, plan.architecture]).toEqual([want.length, 'clip']);
    }
  });

  it('in workers, with another name, of float16 and under the names of later folders', async () => {
    const one = towerCases.find(({ name }) => name === 'Qwen2-VL') as TowerCase;
    const want = expectedFile(one, 'F16');
    const workers = await convert(folderOf(one), { workers: 2 });
    expect(Buffer.compare(await workers.bytes(), want)).toBe(0);
    const named = await convert(folderOf(one), { metadata: { 'general.name': 'Other' } });
    expect(Buffer.compare(await named.bytes(), expectedFile(one, 'F16', 'Other'))).toBe(0);
    const later = folderOf(one, {
      tensors: (all) => {
        for (const [name, tensor] of Object.entries(all)) {
          delete all[name];
          all[name.replace('visual.', 'model.visual.')] = tensor;
        }
      },
    });
    expect(Buffer.compare(await (await convert(later)).bytes(), want)).toBe(0);
  });

  it('has no scale of the projector for the usual one of Gemma 3', async () => {
    const one = towerCases.find(({ name }) => name === 'Gemma 3') as TowerCase;
    const bytes = await (
      await convert(folderOf(one, { files: { 'processor_config.json': { image_seq_length: 1 } } }))
    ).bytes();
    const { metadata } = await inspectModel(bytes);
    expect(Object.keys(metadata)).not.toContain('clip.vision.projector.scale_factor');
    const usual = await inspectModel(await (await convert(folderOf(one))).bytes());
    expect(usual.metadata['clip.vision.projector.scale_factor']).toBe(2);
  });

  it('takes the settings of an image processor from within its file', async () => {
    const one = towerCases.find(({ name }) => name === 'SmolVLM') as TowerCase;
    const processor = { image_processor: { ...one.preprocessor }, processor_class: 'Idefics3Processor' };
    const files = { 'preprocessor_config.json': undefined, 'processor_config.json': processor };
    expect(Buffer.compare(await (await convert(folderOf(one, { files }))).bytes(), expectedFile(one, 'F16'))).toBe(0);
  });
});

// ------------------------------------------------------------------------------------------------------------- what llama.cpp loads

/** Keys that the loader needs for every tower (tools/mtmd/clip.cpp at 0024aa7 of ggml-org/llama.cpp, `load_hparams`), with their JavaScript types. */
const neededKeys: Readonly<Record<string, string>> = {
  'clip.has_vision_encoder': 'boolean',
  'clip.projector_type': 'string',
  'clip.vision.embedding_length': 'number',
  'clip.vision.attention.head_count': 'number',
  'clip.vision.feed_forward_length': 'number',
  'clip.vision.block_count': 'number',
  'clip.vision.projection_dim': 'number',
  'clip.vision.attention.layer_norm_epsilon': 'number',
  'clip.vision.image_size': 'number',
  'clip.vision.patch_size': 'number',
};

const attentionOf = (...names: string[]) => names.flatMap((name) => [`attn_${name}.weight`, `attn_${name}.bias`]);
const merger = ['mm.0.weight', 'mm.0.bias', 'mm.2.weight', 'mm.2.bias'];
const norms = ['ln1.weight', 'ln1.bias', 'ln2.weight', 'ln2.bias'];

/** What each projector needs besides: keys, tensors, and tensors of each layer (`load_tensors`, and graphs in tools/mtmd/models). */
const neededBy: Readonly<Record<string, { keys?: string[]; tensors: string[]; layer: string[] }>> = {
  gemma3: {
    tensors: ['mm.input_projection.weight', 'mm.soft_emb_norm.weight', 'v.position_embd.weight', 'v.patch_embd.bias'],
    layer: [...norms, ...attentionOf('q', 'k', 'v')],
  },
  idefics3: {
    keys: ['clip.vision.projector.scale_factor', 'clip.vision.preproc_image_size'],
    tensors: ['mm.model.fc.weight', 'v.position_embd.weight', 'v.patch_embd.bias'],
    layer: [...norms, ...attentionOf('q', 'k', 'v')],
  },
  mlp: {
    keys: ['clip.vision.feature_layer'],
    tensors: [...merger, 'v.class_embd', 'v.position_embd.weight', 'v.pre_ln.weight', 'v.pre_ln.bias'],
    layer: [...norms, ...attentionOf('q', 'k', 'v')],
  },
  qwen2vl_merger: {
    tensors: [...merger, 'v.patch_embd.weight.1', 'v.post_ln.weight', 'v.post_ln.bias'],
    layer: [...norms, ...attentionOf('q', 'k', 'v')],
  },
  'qwen2.5vl_merger': {
    keys: ['clip.vision.n_wa_pattern'],
    tensors: [...merger, 'v.patch_embd.weight.1', 'v.post_ln.weight'],
    layer: ['ln1.weight', 'ln2.weight', 'ffn_gate.weight', ...attentionOf('q', 'k', 'v')],
  },
  qwen3vl_merger: {
    tensors: [...merger, 'v.patch_embd.weight.1', 'v.patch_embd.bias', 'v.position_embd.weight'],
    layer: [...norms, ...attentionOf('qkv')],
  },
};

type Metadata = Readonly<Record<string, unknown>>;

/** What the loader would miss in a file. */
function missingIn(metadata: Metadata, names: readonly string[]): string[] {
  const missing = Object.entries(neededKeys).flatMap(([key, type]) => (typeof metadata[key] === type ? [] : [key]));
  for (const key of ['clip.vision.image_mean', 'clip.vision.image_std'])
    if ((metadata[key] as readonly number[] | undefined)?.length !== 3) missing.push(key);
  const wish = neededBy[metadata['clip.projector_type'] as string];
  if (wish === undefined) return [...missing, 'a known projector'];
  const layers = Array.from({ length: metadata['clip.vision.block_count'] as number }, (_, i) =>
    [...wish.layer, 'attn_out.weight', 'ffn_up.weight', 'ffn_down.weight'].map((name) => `v.blk.${i}.${name}`),
  );
  const tensors = ['v.patch_embd.weight', ...wish.tensors, ...layers.flat()];
  return [
    ...missing,
    ...(wish.keys ?? []).filter((key) => metadata[key] === undefined),
    ...tensors.filter((name) => !names.includes(name)),
  ];
}

describe("llama.cpp's loader finds all that it needs", () => {
  it.each(towerCases)('in $name', async (one) => {
    const { metadata, tensors } = await inspectModel(await (await convert(folderOf(one))).bytes());
    const names = tensors.map(({ name }) => name);
    expect(missingIn(metadata, names)).toEqual([]);
    expect(metadata['clip.use_gelu'] === true && metadata['clip.use_silu'] === true).toBe(false);
    // Each of the rows counts.
    const last = names.at(-1) as string;
    expect(missingIn({ ...metadata, 'clip.vision.image_std': [1] }, names)).toEqual(['clip.vision.image_std']);
    for (const name of names.filter((name) => name.startsWith('mm.') && name.endsWith('.weight')))
      expect(
        missingIn(
          metadata,
          names.filter((other) => other !== name),
        ),
        last,
      ).toEqual([name]);
    // Ends of the feed-forward part that are the other way round would be swapped.
    const down = tensors.find(({ name }) => name === 'v.blk.0.ffn_down.weight');
    expect(down?.shape[0]).toBe(metadata['clip.vision.embedding_length']);
    expect(down?.shape[1]).not.toBe(metadata['clip.vision.embedding_length']);
  });
});

// ------------------------------------------------------------------------------------------------------------------------- refusals

const caseOf = (name: string) => towerCases.find((one) => one.name === name) as TowerCase;

type Refusal = readonly [name: string, change: FolderChange, code: string, words: RegExp];

const refusals: readonly Refusal[] = [
  [
    'Gemma 3',
    { files: { 'preprocessor_config.json': undefined } },
    'BAD_FILE',
    /^preprocessor_config.json: image_mean is missing; copy/,
  ],
  ['Gemma 3', { files: { 'preprocessor_config.json': { image_mean: [0, 0, 0] } } }, 'BAD_FILE', /image_std is missing/],
  [
    'Gemma 3',
    { files: { 'preprocessor_config.json': { image_mean: [0, 0] } } },
    'BAD_FILE',
    /image_mean has to be an array of 3 numbers/,
  ],
  ['Gemma 3', { files: { 'processor_config.json': { image_seq_length: -4 } } }, 'BAD_FILE', /image_seq_length/],
  ['Gemma 3', { config: { vision_config: undefined } }, 'BAD_FILE', /^config.json: vision_config is missing/],
  [
    'Gemma 3',
    { vision: { model_type: 'pixtral' } },
    'UNKNOWN_FORMAT',
    /vision_config.model_type is "pixtral"; .* it can be siglip_vision_model/,
  ],
  ['Gemma 3', { vision: { hidden_act: 'relu' } }, 'UNKNOWN_FORMAT', /vision_config.hidden_act is "relu"/],
  ['Gemma 3', { vision: { hidden_size: 0 } }, 'BAD_FILE', /vision_config.hidden_size has to be a whole number/],
  ['Gemma 3', { vision: { num_attention_heads: 5 } }, 'BAD_FILE', /32 elements are not a multiple of 5 heads/],
  [
    'Gemma 3',
    { vision: { num_hidden_layers: 1 } },
    'BAD_FILE',
    /vision_config.num_hidden_layers is 1, but there is a tensor/,
  ],
  ['Gemma 3', { vision: { num_hidden_layers: 2 ** 30 } }, 'BAD_FILE', /too few for vision_config.num_hidden_layers/],
  ['Gemma 3', { vision: { image_size: 27 } }, 'BAD_FILE', /image_size 27 is not a multiple of patch_size 7/],
  [
    'Gemma 3',
    { vision: { image_size: 35 } },
    'BAD_FILE',
    /position_embedding.weight" has the shape \[16, 32\]; by config.json it is \[25, 32\]/,
  ],
  [
    'Gemma 3',
    { vision: { intermediate_size: undefined } },
    'BAD_FILE',
    /missing keys have defaults: .*vision_config.intermediate_size 3072/,
  ],
  [
    'Gemma 3',
    { config: { architectures: ['Qwen2AudioForConditionalGeneration'], vision_config: undefined, audio_config: {} } },
    'UNKNOWN_FORMAT',
    /towers for sound are not converted; known are those of Gemma3/,
  ],
  [
    'Gemma 3',
    { config: { architectures: ['InternVLChatModel'] } },
    'UNKNOWN_FORMAT',
    /the vision tower of "InternVLChatModel" is not known; .* convert_hf_to_gguf.py/,
  ],
  ['Gemma 3', { config: { architectures: ['constructor'] } }, 'UNKNOWN_FORMAT', /"constructor" is not known/],
  ['Gemma 3', { config: { quantization_config: { quant_method: 'gguf' } } }, 'UNKNOWN_FORMAT', /quantization_config/],
  [
    'SmolVLM',
    { config: { scale_factor: 3 } },
    'BAD_FILE',
    /4 patches on each side are not a multiple of scale_factor 3/,
  ],
  [
    'SmolVLM',
    { tensors: (all) => delete all['model.connector.modality_projection.proj.weight'] },
    'BAD_FILE',
    /modality_projection.proj.weight" is missing/,
  ],
  [
    'LLaVA',
    { vision: { model_type: 'siglip_vision_model' } },
    'UNKNOWN_FORMAT',
    /model_type is "siglip_vision_model"; .* clip_vision_model/,
  ],
  ['LLaVA', { config: { vision_feature_layer: [-2, -5] } }, 'UNKNOWN_FORMAT', /vision_feature_layer is/],
  [
    'LLaVA',
    { config: { vision_feature_layer: -4 } },
    'BAD_FILE',
    /vision_feature_layer is -4, and the tower has 3 layers/,
  ],
  [
    'LLaVA',
    { config: { vision_feature_select_strategy: 'full' } },
    'UNKNOWN_FORMAT',
    /vision_feature_select_strategy is "full"/,
  ],
  ['LLaVA', { config: { multimodal_projector_bias: false } }, 'UNKNOWN_FORMAT', /multimodal_projector_bias is false/],
  ['Qwen2-VL', { vision: { spatial_merge_size: 3 } }, 'UNKNOWN_FORMAT', /spatial_merge_size is 3/],
  ['Qwen2-VL', { vision: { temporal_patch_size: 1 } }, 'UNKNOWN_FORMAT', /temporal_patch_size is 1/],
  ['Qwen2-VL', { vision: { depth: 1 } }, 'BAD_FILE', /vision_config.depth is 1, but there is a tensor/],
  [
    'Qwen2.5-VL',
    { vision: { fullatt_block_indexes: [1, 2] } },
    'UNKNOWN_FORMAT',
    /fullatt_block_indexes is .* takes every n-th layer/,
  ],
  [
    'Qwen2.5-VL',
    { vision: { fullatt_block_indexes: [] } },
    'BAD_FILE',
    /fullatt_block_indexes has to be whole numbers/,
  ],
  ['Qwen2.5-VL', { vision: { window_size: 56 } }, 'UNKNOWN_FORMAT', /window_size is 56/],
  [
    'Qwen3-VL',
    { vision: { num_position_embeddings: 35 } },
    'BAD_FILE',
    /num_position_embeddings is 35, which is not the square/,
  ],
  [
    'Qwen3-VL',
    { vision: { deepstack_visual_indexes: [0, 3] } },
    'BAD_FILE',
    /deepstack_visual_indexes has to be different layers below 3/,
  ],
  ['Qwen3-VL', { vision: { deepstack_visual_indexes: [0, 1, 2] } }, 'BAD_FILE', /deepstack_merger_list.2.* is missing/],
  [
    'Qwen3-VL',
    { tensors: (all) => Object.assign(all, { 'visual.pos_embed.weight': all['model.visual.pos_embed.weight'] }) },
    'BAD_FILE',
    /have the same place/,
  ],
];

describe('refused by name', () => {
  it('the folders that all changes are made to are good', async () => {
    for (const one of towerCases)
      await expect(planModel(folderOf(one), { to: 'F16', mmproj: true })).resolves.toBeDefined();
  });

  it.each(refusals)('%s with %j', async (name, change, code, words) => {
    const planned = planModel(folderOf(caseOf(name), change), { to: 'F16', mmproj: true });
    expect(await rejectionOf(planned)).toMatchObject({
      name: 'ScalepointError',
      code,
      message: expect.stringMatching(words),
    });
  });

  it('with other types and options than those of the converter', async () => {
    const input = folderOf(caseOf('LLaVA'));
    const wrong: readonly (readonly [object, string])[] = [
      [{ to: 'Q4_K_M' }, 'to'],
      [{ to: 'copy' }, 'mmproj'],
      [{ to: 'auto', targetSize: 100_000 }, 'mmproj'],
      [{ to: 'F16', mmproj: 'yes' }, 'mmproj'],
      [{ to: 'F16', rules: [{ match: /x/, keep: true }] }, 'rules[0]'],
      [{ to: 'F16', splitTensors: 4 }, 'splitTensors'],
      [{ to: 'Q8_0', pruneLayers: [1] }, 'pruneLayers'],
    ];
    for (const [options, option] of wrong)
      expect(await rejectionOf(planModel(input, { mmproj: true, ...options } as never))).toMatchObject({ option });
    const gguf = await (await convert(input)).bytes();
    expect(await rejectionOf(planModel(gguf, { to: 'Q8_0', mmproj: true }))).toMatchObject({
      option: 'mmproj',
      message: expect.stringMatching(/only for folders with a vision tower/),
    });
    // A file without its folder says what is missing.
    const alone = await rejectionOf(planModel(input[0] as File, { to: 'F16', mmproj: true }));
    expect(alone).toMatchObject({ message: expect.stringMatching(/config.json/) });
  });
});

describe('elsewhere', () => {
  it('the folder is compared with the file by the names of the tower', async () => {
    const input = folderOf(caseOf('Qwen3-VL'));
    const bytes = await (await convert(input)).bytes();
    const { tensors, skipped, onlyInA, onlyInB } = await compareModels(input, bytes);
    expect([tensors.length, skipped, onlyInA, onlyInB]).toEqual([
      linesOf(caseOf('Qwen3-VL')).filter(({ to }) => to !== '-').length,
      [],
      [],
      [],
    ]);
    for (const { name, error } of tensors) expect([name, error.maxAbsoluteError]).toEqual([name, 0]);
  });

  it('the result has the name that the converter gives it', async () => {
    const plan = await planModel(folderOf(caseOf('Gemma 3')), { to: 'Q8_0', mmproj: true });
    expect(resultName('model.safetensors', plan)).toBe('mmproj-model-Q8_0.gguf');
    const several = { to: ['F16', 'BF16'], mmproj: true, workers: 0 } as const;
    const results = await quantizeModel(folderOf(caseOf('Gemma 3')), several);
    expect(results.flatMap(({ files }) => files.map(({ name }) => name))).toEqual([
      'mmproj-model-F16.gguf',
      'mmproj-model-BF16.gguf',
    ]);
  });

  it('the programs that read the result take it beside the language model', () => {
    const [reader] = toGguf.readers?.('clip', 'mmproj.gguf') ?? [];
    expect(reader?.code).toMatch(/^llama-mtmd-cli -m model.gguf --mmproj mmproj.gguf --image .*\nllama-server /);
  });

  it('each tensor of the report is named, and those of the same type are kept', async () => {
    const { report } = await convert(folderOf(caseOf('LLaVA')), { to: 'BF16' });
    const fc1 = report.tensors.find(({ name }) => name.endsWith('v.blk.0.ffn_up.weight'));
    expect(fc1).toMatchObject({ from: 'BF16', to: 'BF16' });
    expect(report.notes).toEqual([]);
  });
});

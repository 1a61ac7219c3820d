// The table of inputs and targets in the guide, held to the registries, and each of its cells tried on a tiny model.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { type FileInput, type ModelTarget, quantizeModel } from '../../../web/src/model.js';
import { product } from '../formats/onnx/encoder.js';
import { awqWeight, bitsAndBytesWeight, mlxWeight, tensorsOf } from '../support/foreign-layouts.js';
import {
  cellOf,
  type InputKind,
  inputKinds,
  insAndOutsTable,
  type TargetGroup,
  targetGroups,
} from '../support/ins-and-outs.js';
import { chosen, rejectionOf, safetensors, type TestTensor, weights } from '../support/models.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../support/tiny-huggingface.js';
import { tinyLlama } from '../support/tiny-llama.js';
import { archive, dict, type Storage, tensor } from '../support/torch-file.js';

type Tensors = Record<string, TestTensor>;

const guide = readFileSync(new URL('../../../web/demo/guide/05-models.md', import.meta.url), 'utf8');

it('is in the guide', () => {
  expect(guide).toContain(`<!-- in x out: start -->\n\n${insAndOutsTable()}\n\n<!-- in x out: end -->`);
});

// ------------------------------------------------------------------------------------------------------------------------- inputs

/** Tensors of a language model, and of a diffusion model, for targets of which these are needed. */
const language = (): Tensors =>
  Object.fromEntries(
    [...decoderWeights({ layers: 1 })].map(([name, { shape, values }]) => [
      name,
      { dtype: 'F32', shape, data: values },
    ]),
  );
const diffusion = (): Tensors => ({
  'double_blocks.0.img_attn.proj.weight': weights('F32', [96, 64], 1),
  'double_blocks.0.img_attn.norm.query_norm.scale': weights('F32', [64], 2),
});

/** A layer in the codes of each layout, by its label: 96 rows of 64. */
const coded: Readonly<Record<string, (layer: string) => Tensors>> = {
  'GPTQ or AWQ': (layer) => tensorsOf({ [layer]: awqWeight(96, 64, 32, 1) }),
  bitsandbytes: (layer) =>
    tensorsOf({
      [layer]: bitsAndBytesWeight({
        rows: 96,
        columns: 64,
        type: 'nf4',
        blockSize: 64,
        nested: false,
        dtype: 'float32',
        seed: 2,
      }),
    }),
  MLX: (layer) => tensorsOf({ [layer]: mlxWeight(96, 64, 4, 32, 3) }),
  ComfyUI: (layer) => {
    const marker = new TextEncoder().encode('{"format":"int8_tensorwise"}');
    return {
      [`${layer}.weight`]: { dtype: 'I8', shape: [96, 64], data: new Int8Array(96 * 64).fill(5) },
      [`${layer}.weight_scale`]: { dtype: 'F32', shape: [96, 1], data: new Float32Array(96).fill(0.01) },
      [`${layer}.comfy_quant`]: { dtype: 'U8', shape: [marker.length], data: marker },
    };
  },
  'compressed-tensors': (layer) => ({
    [`${layer}.weight`]: { dtype: 'I8', shape: [96, 64], data: new Int8Array(96 * 64).fill(7) },
    [`${layer}.weight_scale`]: { dtype: 'F32', shape: [96, 1], data: new Float32Array(96).fill(0.01) },
  }),
  'small floats with scales': (layer) => ({
    [`${layer}.weight_packed`]: { dtype: 'U8', shape: [96, 32], data: new Uint8Array(96 * 32).fill(0x21) },
    [`${layer}.weight_scale`]: { dtype: 'U8', shape: [96, 2], data: new Uint8Array(192).fill(120) },
  }),
};

/** The tensors with one layer in codes. */
function withCodes(tensors: Tensors, layer: string, layout: string | undefined): Tensors {
  if (layout === undefined) return tensors;
  const { [`${layer}.weight`]: _, ...others } = tensors;
  const make = coded[layout];
  if (make === undefined) throw new Error(`add a weight of the layout ${layout} to this test`);
  return { ...others, ...make(layer) };
}

function torchFile(tensors: Tensors): Uint8Array<ArrayBuffer> {
  const storages = Object.values(tensors).map(({ data }, i): Storage => {
    const bytes = new Uint8Array(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength);
    return { type: 'FloatStorage', key: String(i), count: bytes.length / 4, bytes };
  });
  const entries = Object.entries(tensors).map(
    ([name, { shape }], i) => [name, tensor(storages[i]!, [...shape])] as const,
  );
  return archive(dict(Object.fromEntries(entries)), storages);
}

function npyFile(): Uint8Array<ArrayBuffer> {
  const text = "{'descr': '<f4', 'fortran_order': False, 'shape': (96, 64), }\n";
  const file = new Uint8Array(10 + text.length + 4 * 96 * 64);
  file.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, text.length]);
  file.set(new TextEncoder().encode(text), 10);
  file.set(new Uint8Array(Float32Array.from({ length: 96 * 64 }, (_, i) => Math.sin(i)).buffer), 10 + text.length);
  return file;
}

const onnxFile = product('MatMul', [64, 64], [1, 64], [1, 64]);

const layers = { language: 'model.layers.0.mlp.up_proj', diffusion: 'double_blocks.0.img_attn.proj' } as const;

/** A model for an input and a target. ComfyUI's targets are for diffusion models, all others take language models. */
async function modelFor(
  { format, layout }: InputKind,
  { label, owner }: TargetGroup,
): Promise<FileInput | FileInput[]> {
  if (format === 'gguf' && owner !== 'safetensors') return tinyLlama();
  if (format === 'gguf') {
    const folder = await modelFor({ format: 'safetensors', label: '', layout: undefined }, targetGroups()[0]!);
    return (await quantizeModel(folder, { to: 'F32', workers: 0 })).bytes();
  }
  if (format === 'onnx') return onnxFile();
  if (format === 'npy') return npyFile();
  const kind = label === 'ComfyUI' ? 'diffusion' : 'language';
  const tensors = withCodes(kind === 'diffusion' ? diffusion() : language(), layers[kind], layout);
  const main =
    format === 'pytorch'
      ? chosen('pytorch_model.bin', torchFile(tensors))
      : chosen('model.safetensors', safetensors(tensors));
  const config = { ...decoderConfig('LlamaForCausalLM'), model_type: 'llama', num_hidden_layers: 1 };
  const quantization = layout === 'MLX' ? { quantization: { bits: 4, group_size: 32 } } : {};
  return [main, chosen('config.json', { ...config, ...quantization }), chosen('tokenizer.json', plainTokenizer())];
}

// -------------------------------------------------------------------------------------------------------------------------- cells

const pairs = inputKinds().flatMap((input) => targetGroups().map((group) => [input, group] as const));

describe('each input goes to the targets that the table says', () => {
  it.each(pairs.map(([input, group]) => [`${input.label} to ${group.label}`, input, group] as const))(
    '%s',
    async (_, input, group) => {
      const cell = cellOf(input, group);
      // A target of the group that no other format has, and that takes the small rows of these models.
      const wanted = ['Q8_0', 'float8e4m3fn', 'q8', 'float16'];
      const to = (wanted.find((one) => group.targets.includes(one)) ?? group.targets[0]) as ModelTarget;
      const file = await modelFor(input, group);
      const made = (options: { requantize?: true } = {}) => quantizeModel(file, { to, workers: 0, ...options });
      if (cell.kind === 'never') {
        const error = await rejectionOf(made());
        const isOwn = group.owner === 'safetensors' && ['npy', 'gguf'].includes(input.format);
        expect(error).toMatchObject(isOwn ? { code: 'UNKNOWN_FORMAT' } : { name: 'RangeError', option: 'to' });
        return;
      }
      if (group.label === 'MLC') {
        // The smallest model that has a library takes 540 MB, so this one gets as far as the table of libraries.
        const message = expect.stringContaining('no prebuilt library for these sizes');
        expect(await rejectionOf(made({ requantize: true }))).toMatchObject({ code: 'UNKNOWN_FORMAT', message });
        return;
      }
      const needs = cell.kind === 'requantize' || (cell.kind === 'known' && cell.requantize);
      if (needs) {
        const error = await rejectionOf(made());
        expect(error).toMatchObject({ code: 'UNSUPPORTED_DTYPE', message: expect.stringContaining('requantize') });
      }
      const { report, bytes } = await made(needs ? { requantize: true } : {});
      expect((await bytes()).length).toBeGreaterThan(0);
      expect(report.totals.quantized + report.totals.cast).toBeGreaterThan(0);
    },
  );
});

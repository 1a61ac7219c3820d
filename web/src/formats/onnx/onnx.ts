/** ONNX models. */
import type { Format, OpenFile, OpenModel } from '../format.js';
import { type OnnxModel, openOnnx } from './file/model.js';
import { logicalTensors } from './graph/logical.js';
import { type OnnxOptions, options } from './options.js';
import { planOnnx } from './plan.js';
import { reasonText } from './reasons.js';
import { type OnnxTarget, onnxTargets, targets } from './targets.js';

/** Fields of a model that can come first, by their tags: with a number, and with bytes. */
const numberTags: readonly number[] = [0x08, 0x28];
const bytesTags: readonly number[] = [0x12, 0x1a, 0x22, 0x32, 0x3a, 0x42, 0x72];

/** Whether bytes look like the first two fields of a model. */
function isModel(head: Uint8Array): boolean {
  const [tag, value = 0x80, next] = head;
  if (tag === 0x08) return value > 0 && isField(head[2 + head.subarray(1).findIndex((byte) => byte < 0x80)]);
  if (tag === undefined || value >= 0x80) return tag === 0x3a && hasGraph(head);
  // What is inside of opset_import and of a graph begins with a tag as well.
  if (tag === 0x42) return next === 0x0a || next === 0x10;
  if (tag === 0x3a) return hasGraph(head);
  // Another text, and behind it the next field.
  const behind = head[2 + value];
  return bytesTags.includes(tag) && behind !== undefined && isTag(behind);
}

/** Whether the field that begins here holds what a graph begins with: a node, its name, or a tensor. */
function hasGraph(head: Uint8Array): boolean {
  const inner = head[2 + head.subarray(1).findIndex((byte) => byte < 0x80)];
  return inner === 0x0a || inner === 0x12 || inner === 0x2a;
}

/** Whether a byte behind the version is the tag of a field, of the right wire type or not; or there is none. */
function isField(byte: number | undefined): boolean {
  return byte === undefined || (byte >> 3 > 0 && byte >> 3 <= 8) || byte >> 3 === 14;
}

function isTag(byte: number): boolean {
  return numberTags.includes(byte) || bytesTags.includes(byte);
}

/** Versions, and how many tensors there are of each type. */
function facts({ tensors, metadata }: Pick<OpenModel, 'tensors' | 'metadata'>): string[] {
  const types = new Map<string, number>();
  for (const { dtype } of tensors) types.set(dtype, (types.get(dtype) ?? 0) + 1);
  const { opsets } = metadata;
  return [
    ...(typeof opsets === 'string' ? [`opset ${opsets.slice(0, 60)}`] : []),
    ...[...types].map(([type, n]) => `${n} × ${type}`),
  ];
}

export const onnx: Format<'onnx', OnnxTarget, 'onnx', OnnxOptions, object, OnnxModel> = {
  name: 'onnx',
  label: 'ONNX',
  files: 'ONNX',
  extensions: ['.onnx'],
  result: 'onnx',
  about:
    'ONNX models keep their graph, inputs and outputs; weights of MatMul, Gemm, Conv, Gather, LSTM and the like become codes, and nodes ' +
    'that read codes are added.',
  examples: ['model.onnx --to q4', "model.onnx --to int8-weights --rule 'lm_head=keep'"],
  targets,
  aliases: {},
  ruleTargets: onnxTargets,
  mixtures: {
    to: 'q4',
    types: (to) => targets.find(({ name }) => name === to)?.mixed,
    stored: (bytes) => bytes,
  },
  options,
  unit: 'parameter',
  facts,

  readers: (to, file) => [
    { program: 'Python', code: `import onnxruntime as ort\nsession = ort.InferenceSession("${file}")` },
    {
      program: 'transformers.js',
      code: `const model = await AutoModel.from_pretrained('./FOLDER', { dtype: '${to}' });`,
      needs: "Put the file into the folder onnx/ beside the model's config.json.",
    },
  ],

  resultEnd: (to) => `_${targets.find(({ name }) => name === to)?.ending ?? to}.onnx`,

  sniff: isModel,
  takesData: true,

  open: ([file, ...others], open) => openOnnx(file as OpenFile, others, open),

  tensors: async (model) => logicalTensors(model),

  plan: planOnnx,

  reasonText,

  async compareRuns(a, b, options, signal) {
    const { compareRuns } = await import('./run/compare.js');
    return compareRuns(a, b, options, signal);
  },
};

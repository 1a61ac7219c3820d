/** ONNX models. */
import type { Format, OpenFile, OpenModel } from '../format.js';
import { readStatistics } from '../read-statistics.js';
import type { OnnxModel } from './file/model.js';
import { isPast } from './graph/caches.js';
import { type OnnxOptions, type OnnxSidecars, options } from './options.js';
import { reasonText } from './reasons.js';
import { onnxSignature } from './signature.js';
import { type OnnxTarget, onnxTargets, targets } from './targets.js';
import { verifyOnnx } from './verify.js';

/** Apps load the code of a format with its first model. */
const code = () => import('./on-demand.js');

/** Versions, and number of tensors of each type. */
function facts({ tensors, metadata }: Pick<OpenModel, 'tensors' | 'metadata'>): string[] {
  const types = new Map<string, number>();
  for (const { dtype } of tensors) types.set(dtype, (types.get(dtype) ?? 0) + 1);
  const { opsets } = metadata;
  return [
    ...(typeof opsets === 'string' ? [`opset ${opsets.slice(0, 60)}`] : []),
    ...[...types].map(([type, n]) => `${n} × ${type}`),
  ];
}

export const onnx: Format<'onnx', OnnxTarget, 'onnx', OnnxOptions, OnnxSidecars, OnnxModel> = {
  ...onnxSignature,
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

  async open([file, ...others], open) {
    const { openOnnx } = await code();
    return openOnnx(file as OpenFile, others, open);
  },

  async tensors(model) {
    const { onnxLogicalTensors } = await code();
    return onnxLogicalTensors(model);
  },

  async plan(model, choices, partsOf, output, readOptionFile) {
    const { jsonBeside, planOnnx, readConstants } = await code();
    // float16 and the biases of static quantization depend on magnitudes.
    const wanted = [choices.to, ...(choices.rules ?? []).map(({ to }) => to)];
    const asked = targets.filter(({ name }) => wanted.includes(name));
    const isHalf = asked.some(({ half }) => half === true);
    const looks = isHalf || asked.some(({ kind }) => kind === 'static');
    const constants = looks ? await readConstants(model, isHalf) : undefined;
    // transformers.js 3 reads the type of caches from config.json.
    const hasCaches = isHalf && model.proto.graph.inputs.some(isPast);
    const config = choices.config ?? (hasCaches ? await jsonBeside(model, 'config.json') : undefined);
    const statistics = await readStatistics(choices, readOptionFile);
    return planOnnx(model, { ...choices, config }, partsOf, output, statistics, constants);
  },

  reasonText,
  verify: verifyOnnx,

  async compareRuns(a, b, options, readOptionFile, signal) {
    // Not destructured, because Vite 5 and 6 mistake what the bundler makes of that.
    const compare = await import('./run/compare.js');
    return compare.compareRuns(a, b, options, readOptionFile, signal);
  },

  async judge(original, options, context) {
    const judging = await import('./run/judge.js');
    return judging.judgeOf(original, options, context);
  },

  async runs(model) {
    const { modelRunsOf } = await import('./run/runs.js');
    return modelRunsOf(model);
  },
};

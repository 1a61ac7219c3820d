/** ONNX models. */
import { grouped } from '../files/bytes.js';
import type { Format, OpenFile } from '../format.js';
import { cacheTypeIn } from './config.js';
import type { OnnxModel } from './file/model.js';
import { isPast } from './graph/caches.js';
import { type OnnxOptions, type OnnxSidecars, options } from './options.js';
import { reasonText } from './reasons.js';
import { dtypeOfName, onnxSignature } from './signature.js';
import { folderFacts, type OnnxTarget, onnxTargets, targets } from './targets.js';

/** Types of caches by their numbers in ONNX. */
const cacheTypes: Readonly<Record<number, string>> = { 1: 'float32', 10: 'float16' };

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

  // Versions, and the number of tensors of each type.
  facts({ tensors, metadata: { opsets } }) {
    const types = grouped(tensors, ({ dtype }) => dtype);
    const versions = typeof opsets === 'string' ? [`opset ${opsets.slice(0, 60)}`] : [];
    return [...versions, ...[...types].map(([type, some]) => `${some.length} × ${type}`)];
  },

  readers(to, file) {
    const python = { program: 'Python', code: `import onnxruntime as ort\nsession = ort.InferenceSession("${file}")` };
    const web = {
      program: 'onnxruntime-web',
      code: `import * as ort from 'onnxruntime-web';\nconst session = await ort.InferenceSession.create('${file}');`,
    };
    // transformers.js finds a model by the ending of its dtype, behind the name model or one that it is told.
    const facts = folderFacts(`onnx:${to}`);
    if (facts === undefined) return [python, web];
    const whole = file.replace(/\.onnx$/, '');
    const ending = facts.stem.slice('model'.length);
    const stem = facts.dtype === to && whole.endsWith(ending) ? whole.slice(0, whole.length - ending.length) : whole;
    const name = stem === 'model' ? '' : `, model_file_name: '${stem}'`;
    const transformers = {
      program: 'transformers.js',
      code: `const model = await AutoModel.from_pretrained('./FOLDER', { dtype: '${facts.dtype}'${name} });`,
      needs: "Put the file into the folder onnx/ beside the model's config.json.",
    };
    return [python, web, transformers];
  },

  // Apps load the code of a format with its first model.
  async open([file, ...others], open) {
    return (await import('./file/model.js')).openOnnx(file as OpenFile, others, open);
  },

  async tensors(model) {
    return (await import('./graph/logical.js')).onnxLogicalTensors(model);
  },

  async plan(model, choices, { partsOf, output, readOptionFile }) {
    return (await import('./plan.js')).planWithFiles(model, choices, partsOf, output, readOptionFile);
  },

  reasonText,

  // transformers.js 3 takes the type of caches from config.json, version 4 from the model.
  verify({ proto: { graph }, files: [file] }, _tensors, { config }) {
    const type = cacheTypes[graph.inputs.find(isPast)?.type ?? 0];
    const dtype = dtypeOfName(file?.name ?? '');
    if (config === undefined || type === undefined || dtype === undefined) return [];
    const stated = cacheTypeIn(config, dtype);
    if ((stated ?? 'float32') === type) return [];
    const text = `caches are ${type}, and config.json says ${stated ?? 'nothing'} of ${dtype} to transformers.js 3`;
    const severity = stated === undefined ? 'note' : 'problem';
    return [{ severity, kind: 'cacheType', text, dtype, type, stated }];
  },

  async compareRuns(a, b, options, readOptionFile, signal) {
    return (await import('./run/compare.js')).compareOnnxRuns(a, b, { ...options, signal }, readOptionFile);
  },

  async judge(original, options, context) {
    return (await import('./run/judge.js')).judgeOf(original, options, context);
  },

  async runs(model) {
    return (await import('./run/runs.js')).modelRunsOf(model);
  },
};

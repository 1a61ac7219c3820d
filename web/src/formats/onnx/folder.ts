/** Folders that transformers.js loads as they are: ONNX models under `onnx/` with config.json and tokenizer. Results are made by a conversion. */
import { ScalepointError } from '../../core/errors.js';
import type { Format } from '../format.js';
import { type OnnxOptions, options } from './options.js';
import { onnxFolderSignature } from './signature.js';
import { folderFacts, folderTargets, type OnnxFolderTarget, onnxTargets, targets } from './targets.js';

export const transformersFolder: Format<'onnx-folder', OnnxFolderTarget, 'onnx-folder', OnnxOptions> = {
  ...onnxFolderSignature,
  result: 'onnx-folder',
  about: '',
  examples: [],
  targets: folderTargets,
  aliases: {},
  ruleTargets: onnxTargets,
  mixtures: {
    to: 'onnx:q4',
    types: (to) => targets.find(({ name }) => name === folderFacts(to)?.target)?.mixed,
    stored: (bytes) => bytes,
  },
  options,
  unit: 'parameter',

  readers(to, name) {
    const { stem = '', dtype = '' } = folderFacts(to) ?? {};
    const other = dtype === 'fp32' && stem !== 'model' ? `, model_file_name: '${stem}'` : '';
    const code =
      `import { env, pipeline } from '@huggingface/transformers';\n` +
      `env.localModelPath = './';\n` +
      `const run = await pipeline('TASK', '${name}', { dtype: '${dtype}'${other} });`;
    const needs = 'TASK is text-generation for a decoder, feature-extraction for an encoder.';
    return [{ program: 'transformers.js', code, needs }];
  },

  // No file is one of these: the models in a folder are ONNX files.
  async open() {
    throw new ScalepointError('UNKNOWN_FORMAT', 'a folder for transformers.js is read by the ONNX files in it');
  },
  tensors: async () => [],
};

/** Folders that transformers.js loads as they are: ONNX models under `onnx/` with config.json and tokenizer. Results are made by a conversion. */
import { ScalepointError } from '../../core/errors.js';
import type { Format } from '../format.js';
import { onnxTargets } from '../onnx/targets.js';
import { type OnnxFolderOptions, options } from './options.js';
import { onnxFolderSignature } from './signature.js';
import { dtypeFacts, type OnnxFolderTarget, onnxFolderTargets } from './targets.js';

export const onnxFolder: Format<'onnx-folder', OnnxFolderTarget, 'onnx-folder', OnnxFolderOptions> = {
  ...onnxFolderSignature,
  result: 'onnx-folder',
  about: 'A folder that transformers.js loads as it is.',
  examples: [],
  targets: onnxFolderTargets,
  aliases: {},
  ruleTargets: onnxTargets,
  options,
  unit: 'parameter',

  readers(to, name) {
    const { stem, dtype } = dtypeFacts(to);
    const other = dtype === 'fp32' && stem !== 'model' ? `, model_file_name: '${stem}'` : '';
    const code =
      `import { env, pipeline } from '@huggingface/transformers';\n` +
      `env.localModelPath = './';\n` +
      `const run = await pipeline('TASK', '${name}', { dtype: '${dtype}'${other} });`;
    return [
      {
        program: 'transformers.js',
        code,
        needs: 'TASK is text-generation for a decoder, feature-extraction for an encoder.',
      },
    ];
  },

  // No file is one of these: a folder holds ONNX files.
  async open() {
    throw new ScalepointError('UNKNOWN_FORMAT', 'a folder for transformers.js is read by the ONNX files in it');
  },
  tensors: async () => [],
};

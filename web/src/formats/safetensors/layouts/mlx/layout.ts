/** The layout of MLX, as mlx-lm stores models. */
import type { MlxForm } from '../../../../codecs/mlx.js';
import { keeperByName } from '../../keep.js';
import { hereReader } from '../../options.js';
import { mlxCodesOf } from '../../targets.js';
import type { CodedLayout } from '../layout.js';
import { findMlx } from './find.js';
import { verifyMlx } from './verify.js';

export const mlxLayout: CodedLayout = {
  label: 'MLX',
  codecs: ['mlx'],
  quantMethods: ['mlx'],
  find: findMlx,
  verify: verifyMlx,
  floats: (form) => (form as MlxForm).scale,
  writer: {
    stores: ['mlx'],
    reads: ['config.json'],
    load: async () => (await import('./plan.js')).mlxPlanner({ codesOf: mlxCodesOf, keeperOf: keeperByName }),
    readers(_to, file) {
      const code = 'mlx_lm.generate --model FOLDER --prompt "Once upon a time"';
      const needs =
        'FOLDER holds the result as model.safetensors, or its files, with config.json and the files of the tokenizer. It needs a Mac, ' +
        'or MLX for Linux.';
      return [{ program: 'mlx-lm', code, needs }, hereReader(file)];
    },
  },
};

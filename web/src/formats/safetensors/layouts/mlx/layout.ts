/** The layout of MLX, as mlx-lm stores models. */
import { type MicroscaledForm, microscaledBlock } from '../../../codecs/microscaled.js';
import { type MlxForm, mlxGroupSizes, mlxWidths } from '../../../codecs/mlx.js';
import { keeperByName } from '../../keep.js';
import { hereReader } from '../../options.js';
import { isFields } from '../../stored-model.js';
import { mlxCodesOf } from '../../targets.js';
import type { CodedLayout } from '../layout.js';
import { verifyMlx } from './verify.js';

export const mlxLayout: CodedLayout = {
  label: 'MLX',
  codecs: ['mlx', 'mlx-floats'],
  quantMethods: ['mlx'],
  async find(model) {
    if (!model.tensors.some(({ dtype, name }) => dtype === 'U32' && name.endsWith('.weight'))) return { weights: [] };
    const { findMlx } = await import('../../../on-demand.js');
    return findMlx(model, {
      blockOf: microscaledBlock,
      widths: mlxWidths,
      groupSizes: mlxGroupSizes,
      isObject: isFields,
    });
  },
  verify: verifyMlx,
  floats: (form) => (form.codec === 'mlx' ? (form as MlxForm).scale : (form as MicroscaledForm).floats),
  writer: {
    stores: ['mlx'],
    forKnownModels: true,
    reads: ['config.json'],
    load: async () =>
      (await import('../../../on-demand.js')).mlxPlanner({
        codesOf: mlxCodesOf,
        keeperOf: keeperByName,
        blockOf: microscaledBlock,
      }),
    readers(_to, file) {
      const code = 'mlx_lm.generate --model FOLDER --prompt "Once upon a time"';
      const needs =
        'FOLDER holds the result as model.safetensors, or its files, with config.json and the files of the tokenizer. It needs a Mac, ' +
        'or MLX for Linux.';
      return [{ program: 'mlx-lm', code, needs }, hereReader(file)];
    },
  },
};

/** The layout of MLX, as mlx-lm stores models. */
import type { MlxForm } from '../../../../codecs/mlx.js';
import type { CodedLayout } from '../layout.js';
import { findMlx } from './find.js';

export const mlxLayout: CodedLayout = {
  label: 'MLX',
  codecs: ['mlx'],
  quantMethods: ['mlx'],
  find: findMlx,
  floats: (form) => (form as MlxForm).scale,
};

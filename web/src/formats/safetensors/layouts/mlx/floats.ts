/** The type of a model's floats. Reference: github.com/ml-explore/mlx-lm at d78bf58e, mlx_lm/convert.py. */
import type { CastType } from '../../../codecs/cast.js';
import type { Fields } from '../layout.js';

const types: Readonly<Record<string, CastType>> = { float16: 'F16', bfloat16: 'BF16', float32: 'F32' };

/** The type of a model's floats by its config.json; undefined if it does not say. */
export function mlxFloatsOf({ torch_dtype: torch, dtype, text_config: text }: Fields): CastType | undefined {
  const name = torch ?? dtype ?? (text as Fields | null | undefined)?.dtype;
  return typeof name === 'string' && Object.hasOwn(types, name) ? types[name] : undefined;
}

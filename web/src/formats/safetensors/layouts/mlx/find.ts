/**
 * Finds weights of MLX: `X.weight` of words with `X.scales` and `X.biases`. config.json says how many bits a code has, because shapes leave
 * that open. Reference: github.com/ml-explore/mlx-lm at d78bf58e, mlx_lm/utils.py.
 */
import type { CastType } from '../../../../codecs/cast.js';
import { type MlxForm, type MlxWidth, mlxGroupSizes, mlxWidths } from '../../../../codecs/mlx.js';
import { show } from '../../../../core/show.js';
import type { SourceTensor } from '../../../format.js';
import { isFields } from '../../stored-model.js';
import type { Fields, FoundWeight, FoundWeights, StoredModel } from '../layout.js';

/** `quantization` of config.json; undefined without one. */
async function quantizationOf(model: StoredModel): Promise<Fields | undefined> {
  const config = (await model.json('config.json')) ?? {};
  return [config.quantization, config.quantization_config].find(isFields);
}

/** The form of a module, or what is wrong with its parts. */
function formOf(
  module: string,
  quantization: Fields | undefined,
  [data, scale, bias]: readonly [data: SourceTensor, scale: SourceTensor, bias: SourceTensor | undefined],
): { shape: readonly number[]; form: MlxForm } | string {
  if (quantization === undefined)
    return 'and the number of its bits stands in a config.json with a "quantization", which is not beside it';
  // The settings of a module replace those of the model.
  const given = quantization[module];
  const own = isFields(given);
  const {
    bits = own ? 4 : undefined,
    group_size: groupSize = own ? 64 : undefined,
    mode = 'affine',
  } = own ? given : quantization;
  if (mode !== 'affine') return `in the mode ${show(mode)}, which is not read here`;
  if (!mlxWidths.includes(bits as MlxWidth) || !mlxGroupSizes.includes(groupSize as number)) {
    return `with ${show(bits)} bits in groups of ${show(groupSize)}, which MLX does not have`;
  }
  if (bias === undefined) return 'without biases';
  const rows = scale.shape.slice(0, -1);
  const columns = (scale.shape.at(-1) ?? 0) * (groupSize as number);
  const words = (columns * (bits as number)) / 32;
  const fits =
    data.shape.length >= 2 &&
    columns > 0 &&
    rows.every((dimension) => dimension > 0) &&
    data.shape.join() === [...rows, words].join() &&
    bias.shape.join() === scale.shape.join();
  if (!fits || !['F16', 'BF16', 'F32'].includes(scale.dtype) || bias.dtype !== scale.dtype) {
    return `with parts that do not match: ${[data, scale, bias].map(({ dtype, shape }) => `${dtype} [${shape.join(', ')}]`).join(', ')}`;
  }
  const form: MlxForm = {
    codec: 'mlx',
    bits: bits as MlxWidth,
    groupSize: groupSize as number,
    scale: scale.dtype as CastType,
  };
  return { shape: [...rows, columns], form };
}

/** Finds weights of MLX. */
export async function findMlx(model: StoredModel): Promise<FoundWeights> {
  const weights: FoundWeight[] = [];
  const refused = new Map<string, string>();
  const forms = new Map<string, MlxForm>();
  let quantization: { readonly fields: Fields | undefined } | undefined;
  for (const data of model.tensors) {
    if (data.dtype !== 'U32' || !data.name.endsWith('.weight')) continue;
    const module = data.name.slice(0, -'.weight'.length);
    const scale = model.tensor(`${module}.scales`);
    if (scale === undefined) continue;
    quantization ??= { fields: await quantizationOf(model) };
    const bias = model.tensor(`${module}.biases`);
    const found = formOf(module, quantization.fields, [data, scale, bias]);
    if (typeof found === 'string') {
      refused.set(data.name, found);
      continue;
    }
    const key = JSON.stringify(found.form);
    const form = forms.get(key) ?? found.form;
    forms.set(key, form);
    weights.push({
      tensor: {
        name: data.name,
        shape: found.shape,
        type: `I${form.bits}`,
        form,
        parts: [
          { role: 'data', tensor: data },
          { role: 'scale', tensor: scale },
          { role: 'zeroPoint', tensor: bias as SourceTensor },
        ],
      },
    });
  }
  return { weights, refused };
}

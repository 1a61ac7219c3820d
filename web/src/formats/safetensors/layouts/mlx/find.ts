/**
 * Finds weights of MLX: `X.weight` of words with `X.scales` and, for integers, `X.biases`. config.json says which codes they hold, because
 * shapes leave that open. Reference: github.com/ml-explore/mlx-lm at d78bf58e, mlx_lm/utils.py; ml-explore/mlx at 846d1762,
 * python/mlx/nn/layers/quantized.py.
 */

import { show } from '../../../../core/show.js';
import type { CastType } from '../../../codecs/cast.js';
import type { Form } from '../../../codecs/codec.js';
import type { MicroscaledForm, MicroscaledKind, microscaledBlock } from '../../../codecs/microscaled.js';
import type { MlxForm, MlxWidth, mlxGroupSizes, mlxWidths } from '../../../codecs/mlx.js';
import type { SourceTensor } from '../../../format.js';
import type { isFields } from '../../stored-model.js';
import type { Fields, FoundWeight, FoundWeights, StoredModel } from '../layout.js';
import { mlxFloatsOf } from './floats.js';

/** Functions and tables that are passed in, because bundlers would make further files if this module, which is loaded on demand, imported them. */
export interface MlxReading {
  readonly blockOf: typeof microscaledBlock;
  readonly widths: typeof mlxWidths;
  readonly groupSizes: typeof mlxGroupSizes;
  readonly isObject: typeof isFields;
}

/** Settings of config.json for the codes of a model. */
interface Settings {
  /** `quantization`; undefined without one. */
  readonly quantization: Fields | undefined;
  /** The type of the model's floats. */
  readonly floats: CastType;
}

async function settingsOf(model: StoredModel, { isObject }: MlxReading): Promise<Settings> {
  const config = (await model.json('config.json')) ?? {};
  return {
    quantization: [config.quantization, config.quantization_config].find(isObject),
    floats: mlxFloatsOf(config) ?? 'BF16',
  };
}

/** The stored tensors of a module. */
interface Parts {
  readonly data: SourceTensor;
  readonly scale: SourceTensor;
  readonly bias: SourceTensor | undefined;
}

/** The shape of a weight and its form. */
interface Found {
  readonly shape: readonly number[];
  readonly form: MlxForm | MicroscaledForm;
}

const bitsOf: Readonly<Record<MicroscaledKind, number>> = { mxfp4: 4, nvfp4: 4, mxfp8: 8 };

/** The shape of a weight with groups of a size and codes of a width; undefined if the words do not match. */
function shapeOf({ data, scale }: Parts, groupSize: number, bits: number): readonly number[] | undefined {
  const rows = scale.shape.slice(0, -1);
  const columns = (scale.shape.at(-1) ?? 0) * groupSize;
  const words = [...rows, (columns * bits) / 32];
  const isWhole = columns > 0 && rows.length > 0 && rows.every((dimension) => dimension > 0);
  return isWhole && data.shape.join() === words.join() ? [...rows, columns] : undefined;
}

/** The form of a module, or what is wrong with its parts. */
function formOf(
  module: string,
  { quantization, floats }: Settings,
  parts: Parts,
  { blockOf, widths, groupSizes, isObject }: MlxReading,
): Found | string {
  if (quantization === undefined)
    return 'and the number of its bits stands in a config.json with a "quantization", which is not beside it';
  // The settings of a module replace those of the model.
  const given = quantization[module];
  const { bits, group_size: groupSize, mode = 'affine' } = isObject(given) ? given : quantization;
  const { data, scale, bias } = parts;
  const misfit = () => {
    const all = [data, scale, ...(bias === undefined ? [] : [bias])];
    return `with parts that do not match: ${all.map(({ dtype, shape }) => `${dtype} [${shape.join(', ')}]`).join(', ')}`;
  };
  if (typeof mode === 'string' && Object.hasOwn(bitsOf, mode)) {
    const kind = mode as MicroscaledKind;
    const block = blockOf(kind);
    if ((bits ?? bitsOf[kind]) !== bitsOf[kind] || (groupSize ?? block) !== block) {
      return `as ${kind} with ${show(bits)} bits in groups of ${show(groupSize)}, which MLX does not have`;
    }
    const shape = shapeOf(parts, block, bitsOf[kind]);
    if (shape === undefined || scale.dtype !== 'U8' || bias !== undefined) return misfit();
    return { shape, form: { codec: 'mlx-floats', kind, tool: 'mlx', floats } };
  }
  if (mode !== 'affine') return `in the mode ${show(mode)}, which is not read here`;
  const [width, size] = isObject(given) ? [bits ?? 4, groupSize ?? 64] : [bits, groupSize];
  if (!widths.includes(width as MlxWidth) || !groupSizes.includes(size as number)) {
    return `with ${show(width)} bits in groups of ${show(size)}, which MLX does not have`;
  }
  if (bias === undefined) return 'without biases';
  const shape = shapeOf(parts, size as number, width as number);
  const fits = shape !== undefined && bias.shape.join() === scale.shape.join() && bias.dtype === scale.dtype;
  if (!fits || !['F16', 'BF16', 'F32'].includes(scale.dtype)) return misfit();
  const form: MlxForm = {
    codec: 'mlx',
    bits: width as MlxWidth,
    groupSize: size as number,
    scale: scale.dtype as CastType,
  };
  return { shape, form };
}

/** Type in reports. */
const typeOf = (form: MlxForm | MicroscaledForm) => (form.codec === 'mlx' ? `I${form.bits}` : form.kind.toUpperCase());

/** Finds weights of MLX. */
export async function findMlx(model: StoredModel, reading: MlxReading): Promise<FoundWeights> {
  const weights: FoundWeight[] = [];
  const refused = new Map<string, string>();
  const forms = new Map<string, Form>();
  let settings: Settings | undefined;
  for (const data of model.tensors) {
    if (data.dtype !== 'U32' || !data.name.endsWith('.weight')) continue;
    const module = data.name.slice(0, -'.weight'.length);
    const scale = model.tensor(`${module}.scales`);
    if (scale === undefined) continue;
    settings ??= await settingsOf(model, reading);
    const bias = model.tensor(`${module}.biases`);
    const found = formOf(module, settings, { data, scale, bias }, reading);
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
        type: typeOf(found.form),
        form,
        parts: [
          { role: 'data', tensor: data },
          { role: 'scale', tensor: scale },
          ...(bias === undefined ? [] : [{ role: 'zeroPoint' as const, tensor: bias }]),
        ],
      },
    });
  }
  return { weights, refused };
}

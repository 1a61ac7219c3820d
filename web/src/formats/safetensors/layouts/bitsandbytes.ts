/**
 * The layouts of bitsandbytes, which are only read. 4 bits: `X.weight` with `X.weight.absmax`, `X.weight.quant_state.bitsandbytes__nf4`, and, if
 * scales have codes, `X.weight.nested_absmax` and `X.weight.nested_quant_map`. int8: `X.weight` with `X.SCB`.
 * Reference: github.com/bitsandbytes-foundation/bitsandbytes at 95f9af30, bitsandbytes/functional.py.
 */

import { show } from '../../../core/show.js';
import { type BitsAndBytesForm, bitsAndBytes } from '../../codecs/bitsandbytes.js';
import { tileElements } from '../../codecs/codec.js';
import { elementsOf } from '../../codecs/elements.js';
import { isCount } from '../../files/json.js';
import type { LogicalTensor, SourceTensor } from '../../format.js';
import { elementCount } from '../../tensors.js';
import {
  type CodedLayout,
  castTypes,
  type Fields,
  type FoundWeight,
  fieldsInJson,
  moduleOfWeight,
  type StoredModel,
} from './layout.js';

/** Most bytes of a quantization state. */
const mostStateBytes = 1 << 16;

const isPositive = (value: unknown): value is number => isCount(value, 1);

/** Largest number of scales that share one. bitsandbytes has 256. */
const mostOuterBlock = 2 ** 16;

/** Sizes of blocks that bitsandbytes has. */
const blockSizes: readonly unknown[] = [32, 64, 128, 256, 512, 1024, 2048, 4096];

/** The form and the shape that a quantization state describes, or what is wrong with it. */
function fourBitForm(
  type: 'nf4' | 'fp4',
  state: Fields,
  isNested: boolean,
): { readonly shape: number[]; readonly form: BitsAndBytesForm } | string {
  const { quant_type, blocksize, dtype, shape, nested_blocksize, nested_dtype, nested_offset } = state;
  if (quant_type !== type) return `whose quantization state is of the type ${show(quant_type)}`;
  const to = castTypes.get(dtype);
  if (to === undefined) return 'whose quantization state has no known dtype';
  const isMatrix = Array.isArray(shape) && shape.length >= 2 && shape.length <= 8 && shape.every(isPositive);
  if (!isMatrix || elementCount(shape) === undefined) return 'whose quantization state has no shape of a matrix';
  if (!blockSizes.includes(blocksize)) return 'whose blocks have an unknown size';
  const isOffset = typeof nested_offset === 'number' && Number.isFinite(nested_offset);
  const isNestable =
    isPositive(nested_blocksize) && nested_blocksize <= mostOuterBlock && nested_dtype === 'float32' && isOffset;
  if (isNested && !isNestable) return 'whose scales have an unknown form';
  const [outerSize, offset] = isNestable && isNested ? [nested_blocksize, nested_offset] : [0, 0];
  const blockSize = blocksize as number;
  return { shape, form: { codec: 'bitsandbytes', type, blockSize, outerSize, offset, to } };
}

/** A weight of the parts, or what is wrong with them. @param stored parts by role, each with its type */
function weightOfParts(
  name: string,
  shape: readonly number[],
  form: BitsAndBytesForm,
  stored: Readonly<Record<string, readonly [tensor: SourceTensor | undefined, dtype: string]>>,
): LogicalTensor | string {
  const parts: LogicalTensor['parts'][number][] = [];
  for (const { role, bytes } of bitsAndBytes.parts(shape, form)) {
    const [tensor, dtype = ''] = stored[role] ?? [];
    const size = elementsOf(tensor?.shape ?? []) * (dtype === 'F32' ? 4 : 1);
    if (tensor?.dtype !== dtype || tensor.bytes !== bytes || size !== bytes)
      return `whose ${role} does not have the ${bytes} bytes of ${dtype} that its shape needs`;
    parts.push({ role, tensor });
  }
  return { name, shape, type: form.type === 'int8' ? 'I8' : form.type.toUpperCase(), form, parts };
}

/** A weight of 4 bits; undefined for tensors without a quantization state. */
async function fourBits(model: StoredModel, data: SourceTensor): Promise<FoundWeight | string | undefined> {
  const { name } = data;
  const named = (end: string) => model.tensor(`${name}.${end}`);
  for (const type of ['nf4', 'fp4'] as const) {
    const state = named(`quant_state.bitsandbytes__${type}`);
    if (state === undefined) continue;
    const isReadable = state.dtype === 'U8' && state.bytes <= mostStateBytes;
    const fields = isReadable ? fieldsInJson(await model.read(state)) : undefined;
    if (fields === undefined) return 'whose quantization state is not a JSON object';
    const isNested = named('nested_absmax') !== undefined;
    const found = fourBitForm(type, fields, isNested);
    if (typeof found === 'string') return found;
    const tensor = weightOfParts(name, found.shape, found.form, {
      data: [data, 'U8'],
      scale: [named('absmax'), isNested ? 'U8' : 'F32'],
      outerScale: [named('nested_absmax'), 'F32'],
      table: [named('nested_quant_map'), 'F32'],
    });
    return typeof tensor === 'string' ? tensor : { tensor, beside: [state.name, `${name}.quant_map`] };
  }
  return undefined;
}

/** A weight of int8 codes; undefined without scales beside it. */
async function eightBits(model: StoredModel, data: SourceTensor): Promise<FoundWeight | string | undefined> {
  const { name, shape } = data;
  const module = moduleOfWeight(name);
  const scale = model.tensor(`${module}.SCB`);
  if (scale === undefined || !name.endsWith('.weight')) return undefined;
  const format = model.tensor(`${module}.weight_format`);
  // 0 stands for rows; others are orders of kernels of the past.
  if (format !== undefined && (await model.read(format, 1))[0] !== 0)
    return 'in an order of columns that is not read here';
  const [, columns = 1] = shape;
  if (shape.length !== 2) return 'and it is not a matrix';
  const form = { codec: 'bitsandbytes', type: 'int8', blockSize: columns, outerSize: 0, offset: 0, to: 'F16' } as const;
  const tensor = weightOfParts(name, shape, form, { data: [data, 'I8'], scale: [scale, 'F32'] });
  return typeof tensor === 'string' ? tensor : { tensor, beside: [`${module}.weight_format`] };
}

export const bitsAndBytesLayout = {
  label: 'bitsandbytes',
  codecs: ['bitsandbytes'],
  quantMethods: ['bitsandbytes'],
  async find(model) {
    const weights: FoundWeight[] = [];
    const refused = new Map<string, string>();
    for (const data of model.tensors) {
      if (data.dtype !== 'U8' && data.dtype !== 'I8') continue;
      const found = await (data.dtype === 'U8' ? fourBits : eightBits)(model, data);
      if (typeof found === 'string') refused.set(data.name, found);
      else if (found !== undefined) weights.push(found);
    }
    return { weights, refused };
  },
  floats: (form) => (form as BitsAndBytesForm).to,
  /** Rows up to one that begins with a block of scales have to fit into a tile. */
  canBeCut: ({ shape, form }) =>
    bitsAndBytes.grid(shape, form as BitsAndBytesForm).rowUnit * elementsOf(shape.slice(1)) <= tileElements,
} satisfies CodedLayout;

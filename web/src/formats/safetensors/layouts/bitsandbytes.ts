/**
 * The layouts of bitsandbytes, which are only read. 4 bits: `X.weight` with `X.weight.absmax`, `X.weight.quant_state.bitsandbytes__nf4`, and, if
 * scales have codes, `X.weight.nested_absmax` and `X.weight.nested_quant_map`. int8: `X.weight` with `X.SCB`.
 * Reference: github.com/bitsandbytes-foundation/bitsandbytes at 95f9af30, bitsandbytes/functional.py.
 */

import { show } from '../../../core/show.js';
import { type BitsAndBytesForm, bitsAndBytes } from '../../codecs/bitsandbytes.js';
import type { CastType } from '../../codecs/cast.js';
import { tileElements } from '../../codecs/codec.js';
import { elementsOf } from '../../codecs/elements.js';
import type { LogicalTensor, SourceTensor } from '../../format.js';
import { elementCount } from '../../tensors.js';
import { isFields } from '../stored-model.js';
import type { CodedLayout, Fields, FoundWeight, FoundWeights, StoredModel } from './layout.js';

/** Names of float types in a quantization state. */
const types: Readonly<Record<string, CastType>> = { float32: 'F32', float16: 'F16', bfloat16: 'BF16' };

/** Most bytes of a quantization state. */
const mostStateBytes = 1 << 16;

async function stateIn(model: StoredModel, tensor: SourceTensor): Promise<Fields | undefined> {
  if (tensor.dtype !== 'U8' || tensor.bytes > mostStateBytes) return undefined;
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(await model.read(tensor)));
    return isFields(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;

/** Largest number of scales that share one. bitsandbytes has 256. */
const mostOuterBlock = 2 ** 16;

/** Sizes of blocks that bitsandbytes has. */
const blockSizes: readonly unknown[] = [32, 64, 128, 256, 512, 1024, 2048, 4096];

/** The form and the shape that a quantization state describes, or what is wrong with it. */
function formOf(
  type: 'nf4' | 'fp4',
  state: Fields,
  isNested: boolean,
): { shape: number[]; form: BitsAndBytesForm } | string {
  const { quant_type, blocksize, dtype, shape, nested_blocksize, nested_dtype, nested_offset } = state;
  if (quant_type !== type) return `whose quantization state is of the type ${show(quant_type)}`;
  const to = typeof dtype === 'string' && Object.hasOwn(types, dtype) ? types[dtype] : undefined;
  if (to === undefined) return 'whose quantization state has no known dtype';
  if (
    !Array.isArray(shape) ||
    shape.length < 2 ||
    shape.length > 8 ||
    !shape.every(isCount) ||
    elementCount(shape) === undefined
  ) {
    return 'whose quantization state has no shape of a matrix';
  }
  if (!blockSizes.includes(blocksize)) return 'whose blocks have an unknown size';
  if (isNested) {
    const isOffset = typeof nested_offset === 'number' && Number.isFinite(nested_offset);
    if (!isCount(nested_blocksize) || nested_blocksize > mostOuterBlock || nested_dtype !== 'float32' || !isOffset)
      return 'whose scales have an unknown form';
  }
  const form: BitsAndBytesForm = {
    codec: 'bitsandbytes',
    type,
    blockSize: blocksize as number,
    outerSize: isNested ? (nested_blocksize as number) : 0,
    offset: isNested ? (nested_offset as number) : 0,
    to,
  };
  return { shape, form };
}

const sizes: Readonly<Record<string, number>> = { U8: 1, I8: 1, F32: 4 };

/** A weight of the parts, or what is wrong with them. */
function weightOf(
  name: string,
  shape: readonly number[],
  form: BitsAndBytesForm,
  stored: Readonly<Record<string, readonly [tensor: SourceTensor | undefined, dtype: string]>>,
): LogicalTensor | string {
  const parts: LogicalTensor['parts'][number][] = [];
  for (const { role, bytes } of bitsAndBytes.parts(shape, form)) {
    const [tensor, dtype = ''] = stored[role] ?? [];
    if (
      tensor?.dtype !== dtype ||
      tensor.bytes !== bytes ||
      elementsOf(tensor.shape) * (sizes[dtype] as number) !== bytes
    ) {
      return `whose ${role} does not have the ${bytes} bytes of ${dtype} that its shape needs`;
    }
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
    const fields = await stateIn(model, state);
    if (fields === undefined) return 'whose quantization state is not a JSON object';
    const isNested = named('nested_absmax') !== undefined;
    const found = formOf(type, fields, isNested);
    if (typeof found === 'string') return found;
    const tensor = weightOf(name, found.shape, found.form, {
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
  const module = name.slice(0, -'.weight'.length);
  const scale = model.tensor(`${module}.SCB`);
  if (scale === undefined || !name.endsWith('.weight')) return undefined;
  const format = model.tensor(`${module}.weight_format`);
  // 0 stands for rows; others are orders of kernels of the past.
  if (format !== undefined && (await model.read(format, 1))[0] !== 0)
    return 'in an order of columns that is not read here';
  if (shape.length !== 2) return 'and it is not a matrix';
  const form: BitsAndBytesForm = {
    codec: 'bitsandbytes',
    type: 'int8',
    blockSize: shape[1] ?? 1,
    outerSize: 0,
    offset: 0,
    to: 'F16',
  };
  const tensor = weightOf(name, shape, form, { data: [data, 'I8'], scale: [scale, 'F32'] });
  return typeof tensor === 'string' ? tensor : { tensor, beside: [`${module}.weight_format`] };
}

async function findBitsAndBytes(model: StoredModel): Promise<FoundWeights> {
  const weights: FoundWeight[] = [];
  const refused = new Map<string, string>();
  for (const data of model.tensors) {
    if (data.dtype !== 'U8' && data.dtype !== 'I8') continue;
    const found = data.dtype === 'U8' ? await fourBits(model, data) : await eightBits(model, data);
    if (typeof found === 'string') refused.set(data.name, found);
    else if (found !== undefined) weights.push(found);
  }
  return { weights, refused };
}

/** True if a tile holds rows up to one that begins with a block of scales. */
function canBeCut({ shape, form }: LogicalTensor): boolean {
  return bitsAndBytes.grid(shape, form as BitsAndBytesForm).rowUnit * elementsOf(shape.slice(1)) <= tileElements;
}

export const bitsAndBytesLayout: CodedLayout = {
  label: 'bitsandbytes',
  codecs: ['bitsandbytes'],
  quantMethods: ['bitsandbytes'],
  find: findBitsAndBytes,
  floats: (form) => (form as BitsAndBytesForm).to,
  canBeCut,
};

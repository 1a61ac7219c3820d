/**
 * Finds codes among the tensors of a file, and their scales, by name.
 * Reference: github.com/vllm-project/compressed-tensors, src/compressed_tensors/compressors at ac8e2ba8.
 */
import type { CastType } from '../../../codecs/cast.js';
import {
  type CompressedForm,
  codesPerUnit,
  type Packing,
  spareBits,
  wordsOf,
} from '../../../codecs/compressed-tensors.js';
import type { LogicalTensor, SourceTensor } from '../../../format.js';
import { elementCount } from '../../../tensors.js';
import { type FoundWeight, type FoundWeights, isFields, type StoredModel } from '../layout.js';
import { configGroups } from './config.js';

/** Codes, with the tensors that belong to them by name. */
interface Candidate {
  readonly name: string;
  readonly data: SourceTensor;
  readonly scale: SourceTensor;
  readonly zeroPoint: SourceTensor | undefined;
}

/** The shape of codes, and the facts of their form that names do not tell. */
interface FoundCodes {
  readonly shape: readonly number[];
  readonly type: string;
  readonly form: Omit<CompressedForm, 'codec' | 'symmetric' | 'scale'>;
}

/** Finds weights in the layout of compressed-tensors. */
export async function findCompressed(model: StoredModel): Promise<FoundWeights> {
  const weights: FoundWeight[] = [];
  const refused = new Map<string, string>();
  let groupOf: ReturnType<typeof configGroups> | undefined;
  for (const data of model.tensors) {
    const isPlain = data.dtype === 'I8' || data.dtype === 'F8_E4M3';
    const name = isPlain ? data.name : /^(.*)_packed$/s.exec(data.name)?.[1];
    const scale = model.tensor(`${name}_scale`);
    if (name === undefined || !/^(F32|F16|BF16)$/.test(scale?.dtype ?? '') || scale === undefined) continue;
    const group = model.tensor(`${name}_g_idx`);
    if (isPlain && group !== undefined) continue;
    const zeroPoint = model.tensor(`${name}_zero_point`);
    const candidate = { name, data, scale, zeroPoint };
    if (groupOf === undefined) {
      const quantization = (await model.json('config.json'))?.quantization_config;
      groupOf = isFields(quantization) ? configGroups(quantization) : () => undefined;
    }
    const stated = groupOf(name.replace(/\.weight$/, ''))?.weights;
    const bits = isFields(stated) ? stated.num_bits : undefined;
    const found = isPlain ? plainCodes(candidate) : await packedCodes(model, candidate, bits);
    if (found === undefined) continue;
    const { shape, type } = found;
    const form: CompressedForm = {
      ...found.form,
      codec: 'compressed-tensors',
      symmetric: zeroPoint === undefined,
      scale: scale.dtype as CastType,
    };
    const isGrouped = group !== undefined && (await hasGroups(model, group, shape, form));
    if (isGrouped === undefined) {
      refused.set(data.name, 'with a g_idx that does not give each group as many columns');
      continue;
    }
    const parts = [
      { role: 'data', tensor: data },
      { role: 'scale', tensor: scale },
      ...(zeroPoint === undefined ? [] : [{ role: 'zeroPoint', tensor: zeroPoint }]),
      ...(isGrouped && group !== undefined ? [{ role: 'group', tensor: group }] : []),
    ];
    // Scales of the layer's inputs describe how it runs, not the weight.
    const inputs = ['scale', 'global_scale', 'zero_point'].map((part) => `${name.replace(/weight$/, '')}input_${part}`);
    weights.push({
      tensor: { name, shape, type, form: isGrouped ? { ...form, grouped: true } : form, parts } satisfies LogicalTensor,
      beside: [`${name}_zero_point`, `${name}_shape`, `${name}_g_idx`, ...inputs],
    });
  }
  return { weights, refused };
}

/**
 * True if columns belong to the groups that `X_g_idx` states, false if these are in order; undefined for groups that have different sizes, or
 * do not exist. Loaders sort the columns by them, and cut the sorted ones into groups of the same size; a -1 stands for columns in order.
 * Reference: quantization/lifecycle/forward.py, _process_group.
 */
async function hasGroups(
  model: StoredModel,
  group: SourceTensor,
  shape: readonly number[],
  form: CompressedForm,
): Promise<boolean | undefined> {
  const columns = elementCount(shape.slice(1)) ?? 0;
  if (group.dtype !== 'I32' || group.shape.join() !== String(columns)) return undefined;
  const { groupSize = columns } = form;
  const bytes = await model.read(group);
  const view = new DataView(bytes.buffer, bytes.byteOffset, group.bytes);
  const counts = new Array<number>(columns / groupSize).fill(0);
  let inOrder = true;
  for (let i = 0; i < columns; i++) {
    const index = view.getInt32(4 * i, true);
    if (index === -1) return false;
    if (counts[index] === undefined) return undefined;
    counts[index]++;
    inOrder &&= index === Math.floor(i / groupSize);
  }
  return counts.some((count) => count !== groupSize) ? undefined : !inOrder;
}

/** int8 or float8 codes with a scale for each index of axis 0; undefined if the shapes of the parts do not match. */
function plainCodes({ data, scale, zeroPoint }: Candidate): FoundCodes | undefined {
  const { shape, dtype } = data;
  const [rows] = shape;
  // Scales of blocks may be as many as the rows by chance.
  if (scale.shape[0] !== rows || elementCount(scale.shape) !== rows) return undefined;
  const hasWrongZeros = dtype === 'F8_E4M3' || zeroPoint?.dtype !== 'I8' || elementCount(zeroPoint.shape) !== rows;
  if (zeroPoint !== undefined && hasWrongZeros) return undefined;
  const form = { type: dtype === 'I8' ? 'int' : 'float', bits: 8, groupSize: undefined, packed: false } as const;
  return { shape, type: dtype, form };
}

/** True if any of the first words has a bit of a mask. @param last true: looks at the last word of each row */
async function hasBits(model: StoredModel, data: SourceTensor, mask: number, last = false): Promise<boolean> {
  if (mask === 0) return false;
  const size = Math.min(data.bytes, 1 << 16);
  const words = await model.read(data, size);
  const view = new DataView(words.buffer, words.byteOffset, size);
  const stride = last ? 4 * (data.shape[1] as number) : 4;
  for (let at = stride - 4; at < size; at += stride) if ((view.getUint32(at, true) & mask) !== 0) return true;
  return false;
}

/** All packings, the most common widths first. Codes that cross words hardly ever leave the gaps that whole codes do, which come before. */
const packings: readonly Packing[] = [
  ...([4, 8, 2] as const).map((bits) => ({ bits, wholeWords: false })),
  ...[true, false].flatMap((wholeWords) => ([3, 5, 6, 7] as const).map((bits) => ({ bits, wholeWords }))),
];

/** Largest rank of a shape. */
const maxRank = 64;

/** Packed codes; undefined if the shapes of the parts do not match. @param stated bits of the weight by config.json */
async function packedCodes(
  model: StoredModel,
  { name, data, scale, zeroPoint }: Candidate,
  stated: unknown,
): Promise<FoundCodes | undefined> {
  // Read the two or more dimensions in `X_shape`.
  const stores = model.tensor(`${name}_shape`);
  if (data.dtype !== 'I32' || data.shape.length !== 2) return undefined;
  if (stores?.dtype !== 'I64' || stores.bytes < 16 || stores.bytes > 8 * maxRank) return undefined;
  const bytes = await model.read(stores);
  const view = new DataView(bytes.buffer, bytes.byteOffset, stores.bytes);
  const shape = Array.from({ length: stores.bytes / 8 }, (_, i) => Number(view.getBigInt64(8 * i, true)));
  const [rows = 0, ...inner] = shape;
  const columns = elementCount(inner);
  if (shape.some((dimension) => dimension <= 0) || columns === undefined || data.shape[0] !== rows) return undefined;
  // Find the packing of rows with as many words. Short rows suit several widths: config.json decides, then 4 and 8 bits come first, and bits
  // where there are no codes rule a packing out. Whole codes leave gaps in all words.
  const suiting = packings.filter((packing) => wordsOf(columns, packing) === data.shape[1]);
  suiting.sort((a, b) => Number(b.bits === stated) - Number(a.bits === stated));
  let packing = suiting.length === 1 ? suiting[0] : undefined;
  for (const one of packing === undefined ? suiting : []) {
    const gaps = spareBits(codesPerUnit(one), one);
    const isWrong =
      (await hasBits(model, data, spareBits(columns, one), true)) ||
      (await hasBits(model, data, gaps)) ||
      (zeroPoint !== undefined && (await hasBits(model, zeroPoint, gaps)));
    if (isWrong) continue;
    packing = one;
    break;
  }
  // Compare the other parts with it.
  const [, groups = 0, ...others] = scale.shape;
  const scaleRank = others.every((dimension) => dimension === 1) ? scale.shape.length : 0;
  if (packing === undefined || scaleRank !== shape.length || scale.shape[0] !== rows) return undefined;
  if (!(groups > 0) || columns % groups !== 0 || (groups > 1 && inner.length > 1)) return undefined;
  const zeroWords = [wordsOf(rows, packing), groups, ...others];
  const hasWrongZeros = zeroPoint?.dtype !== 'I32' || zeroPoint.shape.join() !== zeroWords.join();
  if (zeroPoint !== undefined && hasWrongZeros) return undefined;
  const groupSize = groups === 1 ? undefined : columns / groups;
  return { shape, type: `I${packing.bits}`, form: { type: 'int', ...packing, groupSize, packed: true } };
}

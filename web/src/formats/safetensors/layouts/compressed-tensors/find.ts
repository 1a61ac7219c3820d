/**
 * Finds codes among the tensors of a file, and their scales, by name.
 * Reference: github.com/vllm-project/compressed-tensors, src/compressed_tensors/compressors at ac8e2ba8.
 */
import type { CastType } from '../../../codecs/cast.js';
import type { CompressedForm, codesPerUnit, Packing, spareBits, wordsOf } from '../../../codecs/compressed-tensors.js';
import type { LogicalTensor, SourceTensor } from '../../../format.js';
import type { elementCount } from '../../../tensors.js';
import type { FoundWeight, FoundWeights, StoredModel } from '../layout.js';
import type { StatedBits, statedBits } from './groups.js';

/** Functions that are loaded already. Bundlers would cut the code that imports them from here into more files. */
export interface CompressedTools {
  readonly codesPerUnit: typeof codesPerUnit;
  readonly spareBits: typeof spareBits;
  readonly wordsOf: typeof wordsOf;
  readonly elementsIn: typeof elementCount;
  readonly bitsIn: typeof statedBits;
}

/** Codes, with the tensors that belong to them by name. */
interface Candidate {
  readonly name: string;
  readonly data: SourceTensor;
  readonly scale: SourceTensor;
  readonly zeroPoint: SourceTensor | undefined;
  readonly shape: SourceTensor | undefined;
}

const scaleTypes: readonly string[] = ['F32', 'F16', 'BF16'];

/** Finds weights in the layout of compressed-tensors. */
export async function findCompressed(model: StoredModel, tools: CompressedTools): Promise<FoundWeights> {
  const weights: FoundWeight[] = [];
  const refused = new Map<string, string>();
  let stated: StatedBits | undefined;
  for (const data of model.tensors) {
    const isPlain = data.dtype === 'I8' || data.dtype === 'F8_E4M3';
    const name = isPlain ? data.name : /^(.*)_packed$/s.exec(data.name)?.[1];
    const scale = model.tensor(`${name}_scale`);
    if (name === undefined || scale === undefined || !scaleTypes.includes(scale.dtype)) continue;
    const group = model.tensor(`${name}_g_idx`);
    if (isPlain && group !== undefined) continue;
    const zeroPoint = model.tensor(`${name}_zero_point`);
    const candidate = { name, data, scale, zeroPoint, shape: model.tensor(`${name}_shape`) };
    stated ??= tools.bitsIn(await model.json('config.json'));
    let tensor = isPlain ? plainCodes(candidate, tools) : await packedCodes(model, candidate, stated, tools);
    if (tensor === undefined) continue;
    if (group !== undefined) {
      tensor = await inGroups(model, group, tensor, tools);
      if (tensor === undefined) {
        refused.set(data.name, `with a g_idx that does not give each group as many columns`);
        continue;
      }
    }
    // Scales of the layer's inputs describe how it runs, not the weight.
    const inputs = ['scale', 'global_scale', 'zero_point'].map((part) => `${name.replace(/weight$/, '')}input_${part}`);
    weights.push({ tensor, beside: [`${name}_zero_point`, `${name}_shape`, `${name}_g_idx`, ...inputs] });
  }
  return { weights, refused };
}

/**
 * A weight with the groups of columns that `X_g_idx` states; undefined for groups that have different sizes, or do not exist. Loaders sort the
 * columns by them, and cut the sorted ones into groups of the same size; a -1 stands for columns in order.
 * Reference: quantization/lifecycle/forward.py, _process_group.
 */
async function inGroups(
  model: StoredModel,
  group: SourceTensor,
  tensor: LogicalTensor,
  { elementsIn }: CompressedTools,
): Promise<LogicalTensor | undefined> {
  const form = tensor.form as CompressedForm;
  const columns = elementsIn(tensor.shape.slice(1)) ?? 0;
  if (group.dtype !== 'I32' || group.shape.join() !== String(columns)) return undefined;
  const { groupSize = columns } = form;
  const bytes = await model.read(group);
  const view = new DataView(bytes.buffer, bytes.byteOffset, group.bytes);
  const counts = new Array<number>(columns / groupSize).fill(0);
  let inOrder = true;
  for (let i = 0; i < columns; i++) {
    const its = view.getInt32(4 * i, true);
    if (its === -1) return tensor;
    if (counts[its] === undefined) return undefined;
    counts[its]++;
    inOrder &&= its === Math.floor(i / groupSize);
  }
  if (counts.some((count) => count !== groupSize)) return undefined;
  if (inOrder) return tensor;
  const grouped: CompressedForm = { ...form, grouped: true };
  return { ...tensor, form: grouped, parts: [...tensor.parts, { role: 'group', tensor: group }] };
}

function logicalTensor(
  { name, data, scale, zeroPoint }: Candidate,
  shape: readonly number[],
  type: string,
  form: Omit<CompressedForm, 'codec' | 'symmetric' | 'scale'>,
): LogicalTensor {
  const whole: CompressedForm = {
    ...form,
    codec: 'compressed-tensors',
    symmetric: zeroPoint === undefined,
    scale: scale.dtype as CastType,
  };
  return {
    name,
    shape,
    type,
    form: whole,
    parts: [
      { role: 'data', tensor: data },
      { role: 'scale', tensor: scale },
      ...(zeroPoint === undefined ? [] : [{ role: 'zeroPoint', tensor: zeroPoint }]),
    ],
  };
}

/** int8 or float8 codes with a scale for each index of axis 0; undefined if the shapes of the parts do not match. */
function plainCodes(candidate: Candidate, { elementsIn }: CompressedTools): LogicalTensor | undefined {
  const { data, scale, zeroPoint } = candidate;
  const { shape, dtype } = data;
  // Scales of blocks may be as many as the rows by chance.
  if (scale.shape[0] !== shape[0] || elementsIn(scale.shape) !== shape[0]) return undefined;
  if (zeroPoint !== undefined) {
    if (dtype === 'F8_E4M3' || zeroPoint.dtype !== 'I8' || elementsIn(zeroPoint.shape) !== shape[0]) return undefined;
  }
  const type = dtype === 'I8' ? 'int' : 'float';
  return logicalTensor(candidate, shape, dtype, { type, bits: 8, groupSize: undefined, packed: false });
}

/** True if any of the first words has a bit of a mask. @param last true: looks at the last word of each row */
async function sets(model: StoredModel, data: SourceTensor, mask: number, last: boolean): Promise<boolean> {
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

/**
 * The packing of rows with as many words. Short rows suit several widths: config.json decides, then 4 and 8 bits come first, and bits where
 * there are no codes rule a packing out.
 */
async function packingOf(
  model: StoredModel,
  { data, zeroPoint }: Candidate,
  columns: number,
  stated: number | undefined,
  tools: CompressedTools,
): Promise<Packing | undefined> {
  const suiting = packings.filter((packing) => tools.wordsOf(columns, packing) === data.shape[1]);
  if (suiting.length === 1) return suiting[0];
  suiting.sort((a, b) => Number(b.bits === stated) - Number(a.bits === stated));
  for (const packing of suiting) {
    // Whole codes leave gaps in all words.
    const gaps = tools.spareBits(tools.codesPerUnit(packing), packing);
    const hasBits =
      (await sets(model, data, tools.spareBits(columns, packing), true)) ||
      (await sets(model, data, gaps, false)) ||
      (zeroPoint !== undefined && (await sets(model, zeroPoint, gaps, false)));
    if (!hasBits) return packing;
  }
  return undefined;
}

/** Largest rank of a shape. */
const maxRank = 64;

/** Reads the two or more dimensions in `X_shape`; undefined for other contents. */
async function storedShape(model: StoredModel, tensor: SourceTensor | undefined): Promise<number[] | undefined> {
  if (tensor?.dtype !== 'I64' || tensor.bytes < 16 || tensor.bytes > 8 * maxRank) return undefined;
  const { bytes: size } = tensor;
  const bytes = await model.read(tensor);
  const view = new DataView(bytes.buffer, bytes.byteOffset, size);
  const shape = Array.from({ length: size / 8 }, (_, i) => Number(view.getBigInt64(8 * i, true)));
  return shape.every((dimension) => dimension > 0) ? shape : undefined;
}

/** Packed codes; undefined if the shapes of the parts do not match. */
async function packedCodes(
  model: StoredModel,
  candidate: Candidate,
  stated: StatedBits,
  tools: CompressedTools,
): Promise<LogicalTensor | undefined> {
  const { data, scale, zeroPoint } = candidate;
  if (data.dtype !== 'I32' || data.shape.length !== 2) return undefined;
  const shape = await storedShape(model, candidate.shape);
  if (shape === undefined) return undefined;
  const [rows = 0, ...inner] = shape;
  const columns = tools.elementsIn(inner);
  if (columns === undefined) return undefined;
  if (data.shape[0] !== rows) return undefined;
  const packing = await packingOf(model, candidate, columns, stated(candidate.name), tools);
  const [, groups = 0, ...others] = scale.shape;
  const scaleRank = others.every((dimension) => dimension === 1) ? scale.shape.length : 0;
  if (packing === undefined || scaleRank !== shape.length || scale.shape[0] !== rows) return undefined;
  if (!(groups > 0) || columns % groups !== 0 || (groups > 1 && inner.length > 1)) return undefined;
  if (zeroPoint !== undefined) {
    const expected = [tools.wordsOf(rows, packing), groups, ...others];
    if (zeroPoint.dtype !== 'I32' || zeroPoint.shape.join() !== expected.join()) return undefined;
  }
  const groupSize = groups === 1 ? undefined : columns / groups;
  return logicalTensor(candidate, shape, `I${packing.bits}`, { type: 'int', ...packing, groupSize, packed: true });
}

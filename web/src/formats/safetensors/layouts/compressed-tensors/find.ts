/**
 * Finds codes among the tensors of a file, and their scales, by name.
 * Reference: github.com/vllm-project/compressed-tensors, src/compressed_tensors/compressors at ac8e2ba8.
 */
import type { CastType } from '../../../../codecs/cast.js';
import type { CompressedForm } from '../../../../codecs/compressed-tensors.js';
import { type CodeWidth, codeWidths, wordsOf } from '../../../../codecs/compressed-tensors-codes.js';
import type { LogicalTensor, SourceTensor } from '../../../format.js';
import { elementCount } from '../../../tensors.js';
import type { FoundWeight, FoundWeights, StoredModel } from '../layout.js';

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
export async function findCompressed(model: StoredModel): Promise<FoundWeights> {
  const weights: FoundWeight[] = [];
  for (const data of model.tensors) {
    const isPlain = data.dtype === 'I8' || data.dtype === 'F8_E4M3';
    const name = isPlain ? data.name : /^(.*)_packed$/s.exec(data.name)?.[1];
    const scale = model.tensor(`${name}_scale`);
    if (name === undefined || scale === undefined || !scaleTypes.includes(scale.dtype)) continue;
    // Skip groups in another order than the columns.
    if (model.tensor(`${name}_g_idx`) !== undefined) continue;
    const zeroPoint = model.tensor(`${name}_zero_point`);
    const candidate = { name, data, scale, zeroPoint, shape: model.tensor(`${name}_shape`) };
    const tensor = isPlain ? plainCodes(candidate) : await packedCodes(model, candidate);
    if (tensor !== undefined) weights.push({ tensor, beside: [`${name}_zero_point`, `${name}_shape`] });
  }
  return { weights };
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
function plainCodes(candidate: Candidate): LogicalTensor | undefined {
  const { data, scale, zeroPoint } = candidate;
  const { shape, dtype } = data;
  // Scales of blocks may be as many as the rows by chance.
  if (scale.shape[0] !== shape[0] || elementCount(scale.shape) !== shape[0]) return undefined;
  if (zeroPoint !== undefined) {
    if (dtype === 'F8_E4M3' || zeroPoint.dtype !== 'I8' || elementCount(zeroPoint.shape) !== shape[0]) return undefined;
  }
  const type = dtype === 'I8' ? 'int' : 'float';
  return logicalTensor(candidate, shape, dtype, { type, bits: 8, groupSize: undefined, packed: false });
}

/** True if any of the first words has a bit from `bit` on. */
async function reaches(model: StoredModel, data: SourceTensor, bit: number): Promise<boolean> {
  const size = Math.min(data.bytes, 1 << 16);
  const words = await model.read(data, size);
  const view = new DataView(words.buffer, words.byteOffset, size);
  for (let at = 0; at < size; at += 4) if (view.getUint32(at, true) >= 2 ** bit) return true;
  return false;
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
async function packedCodes(model: StoredModel, candidate: Candidate): Promise<LogicalTensor | undefined> {
  const { data, scale, zeroPoint } = candidate;
  if (data.dtype !== 'I32' || data.shape.length !== 2) return undefined;
  const shape = await storedShape(model, candidate.shape);
  if (shape === undefined) return undefined;
  const [rows = 0, ...inner] = shape;
  const columns = elementCount(inner);
  if (columns === undefined) return undefined;
  let bits: CodeWidth | undefined = codeWidths.find((b) => wordsOf(columns, b) === data.shape[1]);
  // Up to four codes of either width take one word. With 4 bits, the rest of the word is 0.
  if (columns <= 4 && bits !== undefined && (await reaches(model, data, columns * 4))) bits = 8;
  const [, groups = 0, ...others] = scale.shape;
  const scaleRank = others.every((dimension) => dimension === 1) ? scale.shape.length : 0;
  if (bits === undefined || data.shape[0] !== rows || scaleRank !== shape.length || scale.shape[0] !== rows) {
    return undefined;
  }
  if (!(groups > 0) || columns % groups !== 0 || (groups > 1 && inner.length > 1)) return undefined;
  if (zeroPoint !== undefined) {
    const expected = [wordsOf(rows, bits), groups, ...others];
    if (zeroPoint.dtype !== 'I32' || zeroPoint.shape.join() !== expected.join()) return undefined;
  }
  const groupSize = groups === 1 ? undefined : columns / groups;
  return logicalTensor(candidate, shape, `I${bits}`, { type: 'int', bits, groupSize, packed: true });
}

/** Types of tensors in GGUF files: ggml's numbers and sizes. Reference: github.com/ggml-org/ggml, include/ggml.h at d99724f. */
import { type BlockType, blockTypeInfo, blockTypes } from '../../core/blocks.js';
import { rangeError } from '../../core/errors.js';
import { type GgmlType, listedTypes } from '../../core/listed-types.js';
import { oneOf } from '../../core/option-problem.js';
import { elementCount } from '../tensors.js';

function plain(type: BlockType): GgmlType {
  const { name, id, elements, bytes } = blockTypeInfo(type);
  return { name, id, elements, bytes };
}

/** Every type of tensors, in the order of ggml's numbers. */
export const ggmlTypes: readonly GgmlType[] = Object.freeze(
  [...listedTypes, ...blockTypes.map(plain)].sort((a, b) => a.id - b.id),
);

/** Types by ggml's numbers. */
export const typesById: ReadonlyMap<number, GgmlType> = new Map(ggmlTypes.map((type) => [type.id, type]));
const typesByName = new Map(ggmlTypes.map((type) => [type.name, type]));

/** The type of that name. @throws RangeError for other names */
export function ggmlType(name: string): GgmlType {
  const type = typesByName.get(name);
  if (type === undefined) throw rangeError('type', oneOf([...typesByName.keys()]), name);
  return type;
}

/** Size of a tensor in bytes. Undefined if its rows are not whole blocks or it is too large. */
export function ggmlBytes({ elements, bytes }: GgmlType, shape: readonly number[]): number | undefined {
  const size = ((elementCount(shape) ?? Number.NaN) / elements) * bytes;
  return Number.isSafeInteger(size) && (shape.at(-1) ?? 1) % elements === 0 ? size : undefined;
}

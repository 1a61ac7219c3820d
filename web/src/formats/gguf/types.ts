/** Types of tensors in GGUF files: ggml's numbers and sizes. */
import { type BlockType, blockTypeInfo, blockTypes } from '../../core/blocks.js';
import { show } from '../../core/show.js';
import { elementCount } from '../tensors.js';

/** A type of tensors. */
export interface GgmlType {
  /** In ggml's spelling, in capitals. */
  readonly name: string;
  /** ggml's number of it (ggml_type). */
  readonly id: number;
  /** Elements of a block: the last dimension of a tensor is a multiple of it. */
  readonly elements: number;
  /** Bytes of a block. */
  readonly bytes: number;
}

/** Types that are not a BlockType: plain numbers, and blocks that can only be listed and copied. */
const otherTypes: readonly GgmlType[] = [
  { name: 'F32', id: 0, elements: 1, bytes: 4 },
  { name: 'F16', id: 1, elements: 1, bytes: 2 },
  { name: 'Q8_1', id: 9, elements: 32, bytes: 36 },
  { name: 'Q8_K', id: 15, elements: 256, bytes: 292 },
  { name: 'I8', id: 24, elements: 1, bytes: 1 },
  { name: 'I16', id: 25, elements: 1, bytes: 2 },
  { name: 'I32', id: 26, elements: 1, bytes: 4 },
  { name: 'I64', id: 27, elements: 1, bytes: 8 },
  { name: 'F64', id: 28, elements: 1, bytes: 8 },
  { name: 'BF16', id: 30, elements: 1, bytes: 2 },
  { name: 'NVFP4', id: 40, elements: 64, bytes: 36 },
];

function plain(type: BlockType): GgmlType {
  const { name, id, elements, bytes } = blockTypeInfo(type);
  return { name, id, elements, bytes };
}

/** Every type of tensors, in the order of ggml's numbers. */
export const ggmlTypes: readonly GgmlType[] = Object.freeze(
  [...otherTypes, ...blockTypes.map(plain)].sort((a, b) => a.id - b.id),
);

/** The same by ggml's numbers. */
export const typesById: ReadonlyMap<number, GgmlType> = new Map(ggmlTypes.map((type) => [type.id, type]));
const typesByName = new Map(ggmlTypes.map((type) => [type.name, type]));

/** The type of that name. @throws RangeError if there is none */
export function ggmlType(name: string): GgmlType {
  const type = typesByName.get(name);
  if (type === undefined) {
    throw new RangeError(`type: expected one of ${[...typesByName.keys()].join(', ')}, got ${show(name)}`);
  }
  return type;
}

/** Size of a tensor in bytes. Undefined if its rows are not whole blocks or it is too large. */
export function ggmlBytes({ elements, bytes }: GgmlType, shape: readonly number[]): number | undefined {
  const size = ((elementCount(shape) ?? Number.NaN) / elements) * bytes;
  return Number.isSafeInteger(size) && (shape.at(-1) ?? 1) % elements === 0 ? size : undefined;
}

/**
 * ggml's block types: their names, numbers and sizes.
 * Source: github.com/ggml-org/ggml, include/ggml.h and src/ggml-common.h.
 */
import { show } from './show.js';

const table = {
  Q4_0: { id: 2, elements: 32, bytes: 18 },
  Q4_1: { id: 3, elements: 32, bytes: 20 },
  Q5_0: { id: 6, elements: 32, bytes: 22 },
  Q5_1: { id: 7, elements: 32, bytes: 24 },
  Q8_0: { id: 8, elements: 32, bytes: 34 },
  Q2_K: { id: 10, elements: 256, bytes: 84 },
  Q3_K: { id: 11, elements: 256, bytes: 110 },
  Q4_K: { id: 12, elements: 256, bytes: 144 },
  Q5_K: { id: 13, elements: 256, bytes: 176 },
  Q6_K: { id: 14, elements: 256, bytes: 210 },
  IQ4_NL: { id: 20, elements: 32, bytes: 18 },
  MXFP4: { id: 39, elements: 32, bytes: 17 },
} as const;

/** A block type, in ggml's spelling. */
export type BlockType = keyof typeof table;

/** Number and sizes of a block type. */
export interface BlockTypeInfo {
  readonly name: BlockType;
  /** ggml's number of it (ggml_type). */
  readonly id: number;
  /** Elements of a block: the last dimension of a tensor is a multiple of it. */
  readonly elements: number;
  /** Bytes of a block. */
  readonly bytes: number;
}

const infos = new Map<string, BlockTypeInfo>(
  Object.entries(table).map(([name, info]) => [name, Object.freeze({ name: name as BlockType, ...info })]),
);

/** How many blocks a row-major array of that shape makes. @throws RangeError naming `shape` if a row holds no whole number of them. */
export function blocksOfShape(info: BlockTypeInfo, shape: readonly number[], size: number): number {
  const row = shape.at(-1) ?? 1;
  if (row % info.elements !== 0) {
    throw new RangeError(
      `shape: the last dimension of ${show(shape)} is no multiple of ${info.elements}, the elements of a ${info.name} block`,
    );
  }
  return size / info.elements;
}

/** Every block type, in the order of ggml's numbers. */
export const blockTypes: readonly BlockType[] = Object.freeze(Object.keys(table) as BlockType[]);

/** Whether a name is one of a block type. */
export function isBlockType(name: unknown): name is BlockType {
  return typeof name === 'string' && infos.has(name);
}

/**
 * Number and sizes of a block type.
 * @throws RangeError if there is no such type
 */
export function blockTypeInfo(type: BlockType): BlockTypeInfo {
  const info = infos.get(type);
  if (info === undefined) throw new RangeError(`type: expected one of ${blockTypes.join(', ')}, got ${show(type)}`);
  return info;
}

// ggml's block types: their names, numbers and sizes.
import { BlockType as ids, blockTypes as sizes } from './door.js';
import { rangeError } from './errors.js';
import { mention, oneOf, onlyWith } from './option-problem.js';

/** A block type, in ggml's spelling. */
export type BlockType = keyof typeof ids;

/** Number and sizes of a block type. */
export interface BlockTypeInfo {
  /** ggml's name of the type. */
  readonly name: BlockType;
  /** ggml's number of it (ggml_type). */
  readonly id: (typeof ids)[BlockType];
  /** Elements of a block: the last dimension of a tensor is a multiple of it. */
  readonly elements: number;
  /** Bytes of a block. */
  readonly bytes: number;
  /** Whether it is made with the importance of columns alone, `weights` of `quantizeBlocks`. */
  readonly needsWeights: boolean;
}

/** As in ggml. */
const withWeights: readonly string[] = ['IQ2_XXS', 'IQ2_XS', 'IQ1_S'];

const infos = new Map<string, BlockTypeInfo>(
  Object.entries(ids).map(([name, id]) => {
    const [, elements, bytes] = sizes.find(([type]) => type === id) as (typeof sizes)[number];
    const needsWeights = withWeights.includes(name);
    return [name, Object.freeze({ name: name as BlockType, id, elements, bytes, needsWeights })];
  }),
);

/** How many blocks a row-major array of that shape makes. @throws RangeError naming the option if a row holds no whole number of them. */
export function blocksOfShape(info: BlockTypeInfo, shape: readonly number[], size: number, option: string): number {
  const row = shape.at(-1) ?? 1;
  if (row % info.elements !== 0) {
    throw rangeError(option, { kind: 'shape', lastMultipleOf: info.elements }, shape, {
      kind: 'with',
      options: [mention('type', info.name)],
    });
  }
  return size / info.elements;
}

/** Every block type, in the order of ggml's numbers. */
export const blockTypes: readonly BlockType[] = Object.freeze(Object.keys(ids) as BlockType[]);

/** How the scales of blocks are chosen. */
export type BlockSearch = 'usual' | 'best';

/** Types with a better search than ggml's (cpp/ggml/best_search_loops.cpp). */
export const searchedTypes: readonly BlockType[] = Object.freeze([
  'Q4_0',
  'Q4_1',
  'Q5_0',
  'Q5_1',
  'Q8_0',
  'Q2_K',
  'Q3_K',
  'Q4_K',
  'Q5_K',
  'Q6_K',
  'IQ4_NL',
  'IQ4_XS',
  'MXFP4',
]);

/** Fails if a type has no better search. @param option says the type */
export function checkSearched(type: string, option: string): void {
  if ((searchedTypes as readonly string[]).includes(type)) return;
  throw rangeError('search', onlyWith(option, ...searchedTypes), type);
}

/** Whether a name is one of a block type. */
export function isBlockType(name: unknown): name is BlockType {
  return typeof name === 'string' && infos.has(name);
}

/**
 * Number and sizes of a block type.
 * @throws RangeError if there is no such type
 */
export function blockTypeInfo(type: BlockType): BlockTypeInfo {
  return blockTypeInfoAt(type, 'type');
}

/** The same, where errors name the path of an option. */
export function blockTypeInfoAt(type: BlockType, option: string): BlockTypeInfo {
  const info = infos.get(type);
  if (info === undefined) throw rangeError(option, oneOf(blockTypes), type);
  return info;
}

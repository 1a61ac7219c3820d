// ggml's block types: their names, numbers and sizes.
import { type BlockFactsRecord, BlockTypeId, blockTypesTable, ImportanceId } from './door.js';
import { rangeError } from './errors.js';
import { mention, oneOf, onlyWith } from './option-problem.js';

/** A block type, in ggml's spelling. */
export type BlockType = keyof typeof BlockTypeId;

/** Name, number and sizes of a block type. */
export interface BlockTypeInfo {
  /** ggml's name of the type. */
  readonly name: BlockType;
  /** ggml's number of it (ggml_type). */
  readonly id: (typeof BlockTypeId)[BlockType];
  /** Elements of a block: the last dimension of a tensor is a multiple of it. */
  readonly elements: number;
  /** Bytes of a block. */
  readonly bytes: number;
  /** True if `quantizeBlocks` requires `weights`, the importance of columns. */
  readonly needsWeights: boolean;
}

const allFacts = new Map<string, BlockFactsRecord>(
  Object.entries(BlockTypeId).map(([name, id]) => [
    name,
    blockTypesTable.find(({ type }) => type === id) as BlockFactsRecord,
  ]),
);

const infos = new Map<string, BlockTypeInfo>(
  [...allFacts].map(([name, { type: id, size, importance }]) => {
    const needsWeights = importance === ImportanceId.needed;
    return [name, Object.freeze({ name: name as BlockType, id, ...size, needsWeights })];
  }),
);

/** Facts of a block type, from the table of the core (cpp/ggml/ggml_types.h). */
export function blockFacts(type: BlockType): BlockFactsRecord {
  return allFacts.get(type) as BlockFactsRecord;
}

/** Number of blocks in a row-major array of that shape. @throws RangeError naming the option unless each row holds whole blocks */
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
export const blockTypes: readonly BlockType[] = Object.freeze(Object.keys(BlockTypeId) as BlockType[]);

/** The search for the scales of blocks: ggml's own, or a longer one with lower errors. */
export type BlockSearch = 'usual' | 'best';

/** Types with a better search than ggml's. */
export const searchedTypes: readonly BlockType[] = Object.freeze(
  blockTypes.filter((type) => blockFacts(type).searched),
);

/** True for types that GPTQ can round. */
export function hasFeedback(type: string): boolean {
  return isBlockType(type) && blockFacts(type).feedback;
}

/** Fails if a type has no better search. @param option path of the type in errors */
export function checkSearched(type: string, option: string): void {
  if ((searchedTypes as readonly string[]).includes(type)) return;
  throw rangeError('search', onlyWith(option, ...searchedTypes), type);
}

/** True for the name of a block type. */
export function isBlockType(name: unknown): name is BlockType {
  return typeof name === 'string' && infos.has(name);
}

/**
 * Name, number and sizes of a block type. @throws RangeError for other names
 */
export function blockTypeInfo(type: BlockType): BlockTypeInfo {
  return blockTypeInfoAt(type, 'type');
}

/** Finds a block type by its name. Errors name the path of the option. */
export function blockTypeInfoAt(type: BlockType, option: string): BlockTypeInfo {
  const info = infos.get(type);
  if (info === undefined) throw rangeError(option, oneOf(blockTypes), type);
  return info;
}

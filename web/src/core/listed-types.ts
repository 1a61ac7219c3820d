// ggml's types without loops in the core: plain numbers, and blocks that can only be listed and copied.
import { type ListedFactsRecord, ListedTypeId, listedTypesTable } from './door.js';

/** Name, number and size of a type of ggml. */
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

/** Every type that is not a BlockType, in the order of ggml's numbers. */
export const listedTypes: readonly GgmlType[] = Object.entries(ListedTypeId).map(([name, id]) => {
  const { size } = listedTypesTable.find(({ type }) => type === id) as ListedFactsRecord;
  return { name, id, ...size };
});

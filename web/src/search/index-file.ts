// The file of an index: a safetensors file with these tensors, and its facts as JSON in the metadata.
import type { NamedTensor } from '../formats/safetensors/write-header.js';
import type { VectorMetric } from './search-types.js';

/** The facts of an index that do not change. */
export interface IndexFacts {
  /** Length of a vector. */
  readonly dimension: number;
  /** Elements that have codes. */
  readonly dims: number;
  readonly bits: 1 | 2 | 4 | 8;
  readonly metric: VectorMetric;
  readonly seed: number;
}

/** Key of the metadata. */
export const indexKey = 'scalepoint.index';
export const indexVersion = 1;

/** Sizes of the arrays of an index. */
export interface IndexSizes {
  /** Blocks of 32 vectors. */
  readonly blocks: number;
  readonly vectorBytes: number;
  /** Bytes of a row that is kept; 0 without. */
  readonly rowBytes: number;
  /** Bytes of the ids as JSON; undefined without. */
  readonly idBytes: number | undefined;
}

/** The tensors of the file of an index. */
export function partsOfIndex({ bits, dims, metric }: IndexFacts, sizes: IndexSizes): NamedTensor[] {
  const { blocks, vectorBytes, rowBytes, idBytes } = sizes;
  const vectors = blocks * 32;
  const parts: NamedTensor[] = [
    {
      name: 'codes',
      dtype: bits === 8 ? 'I8' : 'U8',
      shape: bits === 8 ? [vectors, vectorBytes] : [blocks, vectorBytes, 32],
    },
    { name: 'factors', dtype: 'F32', shape: [vectors] },
    { name: 'extras', dtype: 'F32', shape: [vectors] },
    { name: 'alive', dtype: 'U32', shape: [blocks] },
  ];
  if (bits !== 8 && metric !== 'hamming') parts.push({ name: 'center', dtype: 'F32', shape: [dims] });
  if (rowBytes > 0) parts.push({ name: 'rows', dtype: 'U8', shape: [vectors, rowBytes] });
  if (idBytes !== undefined) parts.push({ name: 'ids', dtype: 'U8', shape: [idBytes] });
  return parts;
}

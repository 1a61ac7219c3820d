// Jobs of a worker that holds a share of the vectors of an index, as messages carry them.
import type { Found, StoreForm } from './vector-store.js';

/** Work on a share. */
export type ScanJob =
  /** Begins an empty share. */
  | { readonly kind: 'share'; readonly form: StoreForm }
  /** Replaces the blocks from `first` on, of `total` that the share has. */
  | {
      readonly kind: 'blocks';
      readonly first: number;
      readonly count: number;
      readonly total: number;
      readonly bytes: Uint8Array<ArrayBuffer>;
    }
  /** Finds the best k vectors of each prepared query. `allowed` has a bit for each vector to search. */
  | {
      readonly kind: 'scan';
      readonly queries: Uint8Array<ArrayBuffer>;
      readonly k: number;
      readonly allowed: Uint32Array<ArrayBuffer> | undefined;
    };

/** The result of a job: for each query, vectors by their indices in the share, with scores of `VectorStore.scan`. */
export interface ScanAnswer {
  readonly found: readonly Found[];
}

/** True if a worker that the caller made answers as the file `scalepoint/worker` does. */
export function isScanAnswer(answer: unknown): answer is ScanAnswer {
  const { found } = (answer ?? {}) as Partial<ScanAnswer>;
  return (
    Array.isArray(found) &&
    found.every(({ indices, scores }) => ArrayBuffer.isView(indices) && ArrayBuffer.isView(scores))
  );
}

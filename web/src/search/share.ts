// A share of the vectors of an index in the memory of one core, and its jobs as messages carry them.
import { blockVectors } from '../core/door.js';
import type { Core } from '../core/memory.js';
import type { JobHandler } from '../workers/serve.js';
import { type Found, type StoreForm, VectorStore } from './vector-store.js';

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

const nothing: ScanAnswer = { found: [] };

/** Carries out the jobs of one share. */
export class Share implements JobHandler {
  readonly #core: Core;
  #store: VectorStore | undefined;

  constructor(core: Core) {
    this.#core = core;
  }

  /** @throws ScalepointError `OUT_OF_MEMORY` */
  carryOut(job: ScanJob): ScanAnswer {
    if (job.kind === 'share') {
      this.#store?.dispose();
      this.#store = new VectorStore(this.#core, job.form);
      return nothing;
    }
    const store = this.#store;
    if (store === undefined) throw new Error('a job came before its share');
    if (job.kind === 'blocks') {
      // Take no spare room at first.
      store.grow(job.total * blockVectors, store.capacity === 0 ? 0 : undefined);
      store.writeBlocks(job.first, job.count, job.bytes);
      return nothing;
    }
    let { allowed } = job;
    if (allowed !== undefined) {
      const words = new Uint32Array(store.capacity / blockVectors);
      words.set(allowed);
      allowed = words;
    }
    return { found: store.scan(job.queries, job.k, allowed) };
  }

  /** Memory that moves with an answer. */
  movable({ found }: ScanAnswer): ArrayBuffer[] {
    return found.flatMap(({ indices, scores }) => [indices.buffer, scores.buffer]);
  }
}

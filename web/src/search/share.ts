// A share of the vectors of an index in the memory of one core.
import { blockVectors } from '../core/door.js';
import type { Core } from '../core/memory.js';
import type { JobHandler } from '../workers/serve.js';
import type { ScanAnswer, ScanJob } from './scan-jobs.js';
import { VectorStore } from './vector-store.js';

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

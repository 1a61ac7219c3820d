// Shares of the vectors of an index, each in the memory of a worker.
import { blockVectors, type CoreModule } from '../core/door.js';
import { compileCore } from '../core/load.js';
import { isModelsModule } from '../core/memory.js';
import { WorkerPool } from '../workers/worker-pool.js';
import type { SearchManyOptions } from './search-types.js';
import { isScanAnswer, type ScanAnswer, type ScanJob } from './share.js';
import type { Found, VectorStore } from './vector-store.js';

/** Bytes of a stripe: neighboring blocks that go to one worker. */
const stripeBytes = 1 << 19;
/** Most bytes of blocks that are sent to workers at a time. */
const bytesAtOnce = 1 << 24;

/** The workers of an index. Stripes of its blocks go to the workers in turns, so that shares stay even while the index grows. */
export class Shares {
  readonly count: number;
  readonly #store: VectorStore;
  readonly #pool: WorkerPool;
  /** Blocks of a stripe. */
  readonly #stripe: number;
  /** Blocks that changed since they were sent. */
  readonly #changed = new Set<number>();
  /** Number of blocks. */
  #total = 0;
  #users = 0;
  /** Continue searches that wait for others to end. */
  #waiting: (() => void)[] = [];

  private constructor(store: VectorStore, pool: WorkerPool) {
    this.#store = store;
    this.#pool = pool;
    this.count = pool.count;
    this.#stripe = Math.max(1, Math.floor(stripeBytes / store.blockBytes));
  }

  /** Starts workers for the vectors of a store. @throws ScalepointError `WORKER`, or what loading the core throws */
  static async start(
    store: VectorStore,
    core: CoreModule,
    count: number,
    { worker, signal }: Pick<SearchManyOptions, 'worker' | 'signal'>,
  ): Promise<Shares> {
    const calls = isModelsModule(core) ? 'core' : 'arrays';
    const module = await compileCore(calls, { simd: core.isSimd() ? 'on' : 'off' });
    const pool = await WorkerPool.start({ count, module, calls, worker, signal });
    const shares = new Shares(store, pool);
    const { kept: _, ...form } = store.form;
    const begun = Array.from({ length: count }, (_one, i) => shares.#ask(i, { kind: 'share', form }, []));
    await shares.#orEnd(Promise.all(begun));
    // Until here the process has to wait for them.
    pool.keepRunning(false);
    return shares;
  }

  #ask(worker: number, job: ScanJob, transfer: ArrayBuffer[]): Promise<ScanAnswer> {
    return this.#pool.ask(worker, { handler: 'vectors', job, transfer, isAnswer: isScanAnswer });
  }

  /** True once the workers ended, all of them with the first one. */
  get ended(): boolean {
    return this.#pool.ended;
  }

  /** Begins to use the workers, for which a process of Node waits until `leave`. */
  enter(): void {
    if (this.#users++ === 0) this.#pool.keepRunning(true);
  }

  leave(): void {
    if (--this.#users > 0) return;
    this.#pool.keepRunning(false);
    for (const resolve of this.#waiting) resolve();
    this.#waiting = [];
  }

  /** True while a search uses the workers. */
  get used(): boolean {
    return this.#users > 0;
  }

  /** Waits until nothing uses the workers. Another search may begin before the caller goes on. */
  async idle(): Promise<void> {
    if (this.#users > 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  /** Notes that the vectors [first, first + count) change. */
  change(first: number, count: number): void {
    const end = Math.ceil((first + count) / blockVectors);
    for (let block = Math.floor(first / blockVectors); block < end; block++) this.#changed.add(block);
    this.#total = Math.max(this.#total, end);
  }

  /** The worker of a block. */
  #ownerOf(block: number): number {
    return Math.floor(block / this.#stripe) % this.count;
  }

  /** Number of blocks in [0, total) that a worker has. With a block of its own as `total`, the place of this block in its share. */
  #blocksOf(worker: number, total: number): number {
    const round = this.#stripe * this.count;
    const whole = Math.floor(total / round);
    const rest = total - whole * round - worker * this.#stripe;
    return whole * this.#stripe + Math.max(0, Math.min(this.#stripe, rest));
  }

  /** Index of a vector of a share in the whole index. */
  #indexOf(worker: number, index: number): number {
    const block = Math.floor(index / blockVectors);
    const stripe = Math.floor(block / this.#stripe) * this.count + worker;
    return (stripe * this.#stripe + (block % this.#stripe)) * blockVectors + (index % blockVectors);
  }

  /** Sends blocks that changed, the first ones first. */
  #send(most: number): Promise<unknown>[] {
    const blocks = [...this.#changed].sort((a, b) => a - b).slice(0, most);
    const sent: Promise<unknown>[] = [];
    for (let i = 0; i < blocks.length; ) {
      const first = blocks[i] as number;
      const end = (Math.floor(first / this.#stripe) + 1) * this.#stripe;
      let count = 1;
      while (blocks[i + count] === first + count && first + count < end) count++;
      const worker = this.#ownerOf(first);
      const bytes = this.#store.readBlocks(first, count);
      const job = { first: this.#blocksOf(worker, first), count, total: this.#blocksOf(worker, this.#total), bytes };
      sent.push(this.#ask(worker, { kind: 'blocks', ...job }, [bytes.buffer]));
      for (let n = 0; n < count; n++) this.#changed.delete(first + n);
      i += count;
    }
    return sent;
  }

  /** Ends the workers if a promise is rejected, because a share may then be incomplete. */
  async #orEnd<T>(promise: Promise<T>): Promise<T> {
    try {
      return await promise;
    } catch (error) {
      this.dispose(error);
      throw error;
    }
  }

  /** Sends changed blocks until few are left, which `scan` sends. */
  async update(): Promise<void> {
    const most = Math.max(1, Math.floor(bytesAtOnce / this.#store.blockBytes));
    while (this.#changed.size > most) await this.#orEnd(Promise.all(this.#send(most)));
  }

  /**
   * The best k vectors of prepared queries, as the index is now.
   * @param queries copies of them, one after the other
   * @param allowed a bit for each vector to search, as `VectorStore.search`
   */
  async scan(
    queries: Uint8Array<ArrayBuffer>,
    k: number,
    allowed: Uint32Array<ArrayBuffer> | undefined,
  ): Promise<Found[]> {
    const sent = this.#send(this.#changed.size);
    const asked = Array.from({ length: this.count }, (_, worker) =>
      this.#ask(worker, { kind: 'scan', queries, k, allowed: allowed && this.#part(worker, allowed) }, []),
    );
    const [answers] = await this.#orEnd(Promise.all([Promise.all(asked), Promise.all(sent)]));
    const size = this.#store.queryBytes;
    return Array.from({ length: queries.length / size }, (_, i) => {
      const found = answers.map((answer, worker) => {
        const { indices, scores } = answer.found[i] as Found;
        return { indices: indices.map((index) => this.#indexOf(worker, index)), scores };
      });
      return this.#store.merge(queries.subarray(i * size, (i + 1) * size), found, k);
    });
  }

  /** The bits of the vectors of a worker. */
  #part(worker: number, words: Uint32Array): Uint32Array<ArrayBuffer> {
    const part = new Uint32Array(this.#blocksOf(worker, this.#total));
    for (let at = 0; at < part.length; at += this.#stripe) {
      const from = this.#indexOf(worker, at * blockVectors) / blockVectors;
      part.set(words.subarray(from, from + Math.min(this.#stripe, part.length - at)), at);
    }
    return part;
  }

  /** Ends the workers. Searches under way are rejected with the reason. */
  dispose(reason: unknown): void {
    this.#pool.dispose(reason);
  }
}

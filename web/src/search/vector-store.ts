// Codes of vectors in wasm memory, in parts that grow without copies, and the search over them.
import {
  BestListRecord,
  blockVectors,
  boundFloats,
  type MetricId,
  SearchFrameRecord,
  SearchPartRecord,
  SearchSpecRecord,
  StatusId,
  type StoredRowId,
} from '../core/door.js';
import { outOfMemory } from '../core/errors.js';
import { align, type Core, checkStatus } from '../core/memory.js';

/** The form of the codes. */
export interface StoreForm {
  /** Coordinates that have codes. */
  readonly dimension: number;
  readonly bits: 1 | 2 | 4 | 8;
  readonly metric: MetricId;
  readonly seed: number;
  /** Rows that are kept to score vectors again; undefined without. */
  readonly kept?: { readonly kind: StoredRowId; readonly dimension: number } | undefined;
}

/** Vectors that a search found, best first. */
export interface Found {
  readonly indices: Uint32Array<ArrayBuffer>;
  readonly scores: Float32Array<ArrayBuffer>;
}

/** Some vectors: a whole number of blocks. */
interface Part {
  readonly memory: number;
  readonly bytes: number;
  /** Address of its SearchPart. */
  readonly record: number;
  readonly codes: number;
  readonly factors: number;
  readonly extras: number;
  /** A bit for each vector that is there. */
  readonly alive: number;
  /** Kept rows. */
  readonly rows: number;
  readonly first: number;
  readonly capacity: number;
}

/** Bytes of the bounds of a block. */
const boundBytes = boundFloats * 4;

/** The codes of vectors, by their indices. */
export class VectorStore {
  readonly form: StoreForm;
  /** Bytes of the codes of a vector. */
  readonly vectorBytes: number;
  /** Bytes of a prepared query. */
  readonly queryBytes: number;
  /** Bytes of a kept row; 0 without. */
  readonly rowBytes: number;
  readonly #core: Core;
  readonly #fixed: number;
  readonly #spec: number;
  readonly #frame: number;
  readonly #center: number;
  readonly #scratch: number;
  readonly #parts: Part[] = [];
  #capacity = 0;
  /** Called with the vectors [first, first + count) before their codes change, or whether they are searched. */
  onChange: ((first: number, count: number) => void) | undefined;

  /** @throws ScalepointError `OUT_OF_MEMORY` */
  constructor(core: Core, form: StoreForm) {
    this.#core = core;
    this.form = form;
    const { module } = core;
    const { dimension, kept } = form;
    const words = module.rotationWords(dimension);
    this.#fixed = core.allocate(64 + (words + 3 * dimension) * 4 + 16);
    this.#spec = align(this.#fixed);
    this.#frame = this.#spec + 16;
    const signs = this.#spec + 32;
    this.#center = signs + words * 4;
    this.#scratch = this.#center + dimension * 4;
    SearchSpecRecord.write(module, this.#spec, form);
    SearchFrameRecord.write(module, this.#frame, { signs, center: this.#center });
    module.makeRotation(form.seed, dimension, signs);
    module.HEAPF32.fill(0, this.#center >>> 2, (this.#center >>> 2) + dimension);
    this.vectorBytes = module.searchVectorBytes(this.#spec);
    this.queryBytes = module.searchQueryBytes(this.#spec);
    this.rowBytes = kept === undefined ? 0 : module.storedRowBytes(kept.kind, kept.dimension);
  }

  /** Vectors that have room. */
  get capacity(): number {
    return this.#capacity;
  }

  /** Bytes of all codes. */
  get bytes(): number {
    return this.#parts.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** The center of the vectors, a copy. */
  get center(): Float32Array<ArrayBuffer> {
    const at = this.#center >>> 2;
    return this.#core.module.HEAPF32.slice(at, at + this.form.dimension);
  }

  set center(values: Float32Array) {
    this.#core.module.HEAPF32.set(values, this.#center >>> 2);
  }

  /** Adds vectors to the sums that the center is made of. @param sums address of a double for each coordinate */
  addToCenter(x: number, rows: number, sums: number): StatusId {
    return this.#core.module.addToCenter(this.#spec, x, rows, sums);
  }

  finishCenter(sums: number, rows: number): void {
    this.#core.module.finishCenter(sums, rows, this.form.dimension, this.#center);
  }

  /** Makes room for the vectors up to `count`: for half as many as there are, at least. @throws ScalepointError `OUT_OF_MEMORY` */
  grow(count: number, least = Math.ceil(this.#capacity / 2)): void {
    if (count <= this.#capacity) return;
    const core = this.#core;
    const blocks = Math.ceil(Math.max(count - this.#capacity, least) / blockVectors);
    const capacity = blocks * blockVectors;
    const codes = capacity * this.vectorBytes;
    const rest = capacity * (8 + this.rowBytes) + blocks * (4 + boundBytes) + align(SearchPartRecord.bytes);
    const bytes = codes + rest + 64;
    if (!(bytes < 2 ** 32)) throw outOfMemory(`${bytes} more bytes`);
    const memory = core.allocate(bytes);
    // Codes of missing vectors are zeros, so that equal indexes have equal files.
    core.module.HEAPU8.fill(0, memory, memory + bytes);
    const record = align(memory);
    const at = record + align(SearchPartRecord.bytes);
    const factors = at + codes;
    const extras = factors + capacity * 4;
    const alive = extras + capacity * 4;
    const bounds = alive + blocks * 4;
    const rows = align(bounds + blocks * boundBytes);
    SearchPartRecord.write(core.module, record, { codes: at, factors, extras, bounds, capacity });
    const first = this.#capacity;
    this.#parts.push({ memory, bytes, record, codes: at, factors, extras, alive, rows, first, capacity });
    this.#capacity += capacity;
  }

  /** Calls f for the runs of vectors [first, first + count) that lie in one part. */
  #eachRun(first: number, count: number, f: (part: Part, local: number, n: number, done: number) => void): void {
    for (const part of this.#parts) {
      const from = Math.max(first, part.first);
      const to = Math.min(first + count, part.first + part.capacity);
      if (from < to) f(part, from - part.first, to - from, from - first);
    }
  }

  /** Calls f for runs, as `#eachRun`, until a status is not ok, and returns it. */
  #tryRuns(
    first: number,
    count: number,
    f: (part: Part, local: number, n: number, done: number) => StatusId,
  ): StatusId {
    let status: StatusId = StatusId.ok;
    this.#eachRun(first, count, (...run) => {
      if (status === StatusId.ok) status = f(...run);
    });
    return status;
  }

  /** Makes the codes of rows of floats, as the vectors from `first` on. Returns the first status that is not ok. */
  encode(x: number, rows: number, first: number): StatusId {
    this.onChange?.(first, rows);
    return this.#tryRuns(first, rows, (part, local, n, done) => {
      const from = x + done * this.form.dimension * 4;
      return this.#core.module.encodeVectors(this.#spec, this.#frame, from, n, local, part.record, this.#scratch);
    });
  }

  /** Takes rows with a bit for each element, as the vectors from `first` on. @param flip bits to turn in each byte */
  takeBits(bits: number, rowBytes: number, rows: number, flip: number, first: number): void {
    this.onChange?.(first, rows);
    this.#eachRun(first, rows, (part, local, n, done) => {
      const from = bits + done * rowBytes;
      checkStatus(this.#core.module.takeBits(this.#spec, from, rowBytes, n, flip, local, part.record));
    });
  }

  /** Takes codes of 8 bits, as the vectors from `first` on. Returns the first status that is not ok. */
  takeCodes(codes: number, scales: number, rows: number, first: number): StatusId {
    this.onChange?.(first, rows);
    return this.#tryRuns(first, rows, (part, local, n, done) => {
      const from = codes + done * this.form.dimension;
      return this.#core.module.takeCodes(this.#spec, from, scales + done * 4, n, local, part.record);
    });
  }

  /** Writes codes of 8 bits and their scales to arrays. */
  readCodes(first: number, rows: number, codes: Int8Array, scales: Float32Array): void {
    const core = this.#core;
    const { dimension } = this.form;
    this.#eachRun(first, rows, (part, local, n, done) => {
      if (this.vectorBytes === dimension) {
        const from = part.codes + local * dimension;
        codes.set(core.module.HEAP8.subarray(from, from + n * dimension), done * dimension);
      }
      const step = Math.max(1, Math.floor(2 ** 18 / dimension));
      core.withMemory(step * (dimension + 4), (room) => {
        for (let row = 0; row < n; row += step) {
          const count = Math.min(step, n - row);
          const at = room + step * 4;
          checkStatus(core.module.readCodes(this.#spec, part.record, local + row, count, at, room));
          const to = done + row;
          scales.set(core.module.HEAPF32.subarray(room >>> 2, (room >>> 2) + count), to);
          if (this.vectorBytes !== dimension) {
            codes.set(core.module.HEAP8.subarray(at, at + count * dimension), to * dimension);
          }
        }
      });
    });
  }

  /** Copies the scale and the codes of 8 bits of a vector to memory, as a row of int8. */
  copyCodes(index: number, row: number): void {
    this.#eachRun(index, 1, ({ record }, local) => {
      checkStatus(this.#core.module.readCodes(this.#spec, record, local, 1, row + 4, row));
    });
  }

  /** Keeps rows of floats, as those of the vectors from `first` on. Returns the first status that is not ok. */
  keepRows(x: number, rows: number, first: number): StatusId {
    const { kept } = this.form;
    if (kept === undefined) return StatusId.ok;
    return this.#tryRuns(first, rows, (part, local, n, done) => {
      const from = x + done * kept.dimension * 4;
      const to = part.rows + local * this.rowBytes;
      return this.#core.module.storeRows(kept.kind, from, n, kept.dimension, to);
    });
  }

  /** Address of the kept row of a vector. */
  rowAddress(index: number): number {
    let address = 0;
    this.#eachRun(index, 1, (part, local) => {
      address = part.rows + local * this.rowBytes;
    });
    return address;
  }

  /** Includes a vector in searches, or excludes it. */
  setAlive(index: number, alive: boolean): void {
    this.onChange?.(index, 1);
    const { HEAPU32 } = this.#core.module;
    this.#eachRun(index, 1, (part, local) => {
      const at = (part.alive >>> 2) + (local >>> 5);
      const bit = 1 << (local & 31);
      if (alive) HEAPU32[at]! |= bit;
      else HEAPU32[at]! &= ~bit;
    });
  }

  /** True if a vector is searched. */
  isAlive(index: number): boolean {
    const { HEAPU32 } = this.#core.module;
    let alive = false;
    this.#eachRun(index, 1, (part, local) => {
      alive = ((HEAPU32[(part.alive >>> 2) + (local >>> 5)]! >>> (local & 31)) & 1) === 1;
    });
    return alive;
  }

  /** A bit for each vector that is searched, 32 in a word; as many words as `capacity` has blocks. */
  aliveWords(): Uint32Array<ArrayBuffer> {
    const words = new Uint32Array(this.#capacity / blockVectors);
    for (const { alive, first, capacity } of this.#parts) {
      const at = alive >>> 2;
      words.set(this.#core.module.HEAPU32.subarray(at, at + capacity / blockVectors), first / blockVectors);
    }
    return words;
  }

  /** Address at which a query of floats was prepared. Returns the status. */
  prepare(x: number, query: number): StatusId {
    return this.#core.module.prepareQuery(this.#spec, this.#frame, x, query, this.#scratch);
  }

  /**
   * The best k vectors of prepared queries.
   * @param queries address of them, one after the other
   * @param allowed a bit for each vector to search, as `aliveWords`; all that are alive if undefined
   */
  search(queries: number, count: number, k: number, allowed: Uint32Array | undefined): Found[] {
    return this.#scan(queries, count, k, allowed, (list, i) => {
      this.#core.module.finishBest(this.#spec, queries + i * this.queryBytes, list);
      return this.#listed(list);
    });
  }

  /** Finds the best k vectors for copies of prepared queries, with scores for `merge` and in any order. */
  scan(queries: Uint8Array, k: number, allowed: Uint32Array | undefined): Found[] {
    const core = this.#core;
    return core.withMemory(queries.length, (at) => {
      core.module.HEAPU8.set(queries, at);
      return this.#scan(at, queries.length / this.queryBytes, k, allowed, (list) => this.#listed(list));
    });
  }

  /** The best k vectors of several results of `scan`, as `search` gives them. @param query a copy of the prepared query */
  merge(query: Uint8Array, lists: readonly Found[], k: number): Found {
    const core = this.#core;
    const { module } = core;
    const most = Math.max(0, ...lists.map(({ indices }) => indices.length));
    return core.withMemory(query.length + BestListRecord.bytes + (k + most) * 8 + 32, (at) => {
      const list = align(at + query.length);
      const best = align(list + BestListRecord.bytes);
      const room = best + k * 8;
      core.module.HEAPU8.set(query, at);
      module.startBest(list, best, best + k * 4, k);
      for (const { indices, scores } of lists) {
        core.module.HEAPF32.set(scores, room >>> 2);
        core.module.HEAPU32.set(indices, (room >>> 2) + scores.length);
        module.mergeBest(room, room + scores.length * 4, scores.length, list);
      }
      module.finishBest(this.#spec, at, list);
      return this.#listed(list);
    });
  }

  /** Scans all parts, and calls `end` with the address of the list of each query. */
  #scan(
    queries: number,
    count: number,
    k: number,
    allowed: Uint32Array | undefined,
    end: (list: number, i: number) => Found,
  ): Found[] {
    const core = this.#core;
    const { module } = core;
    const words =
      allowed === undefined ? 0 : Math.max(0, ...this.#parts.map(({ capacity }) => capacity / blockVectors));
    const lists = align(count * BestListRecord.bytes);
    const own = module.scanScratchBytes(this.#spec, count);
    return core.withMemory(own + lists + count * k * 8 + words * 4, (scratch) => {
      const best = scratch + own;
      const scores = best + lists;
      const indices = scores + count * k * 4;
      const room = indices + count * k * 4;
      for (let i = 0; i < count; i++) {
        module.startBest(best + i * BestListRecord.bytes, scores + i * k * 4, indices + i * k * 4, k);
      }
      for (const { record, alive, first, capacity } of this.#parts) {
        let bits = alive;
        if (allowed !== undefined) {
          const begin = first / blockVectors;
          core.module.HEAPU32.set(allowed.subarray(begin, begin + capacity / blockVectors), room >>> 2);
          bits = room;
        }
        checkStatus(module.scanPart(this.#spec, record, bits, first, queries, best, count, scratch));
      }
      return Array.from({ length: count }, (_, i) => end(best + i * BestListRecord.bytes, i));
    });
  }

  /** A copy of a list. */
  #listed(list: number): Found {
    const { size, scores, indices } = BestListRecord.read(this.#core.module, list);
    const { HEAPF32, HEAPU32 } = this.#core.module;
    return {
      indices: HEAPU32.slice(indices >>> 2, (indices >>> 2) + size),
      scores: HEAPF32.slice(scores >>> 2, (scores >>> 2) + size),
    };
  }

  /** Bytes of a block for `readBlocks`: codes, factors, extras and the bits of vectors that are alive. */
  get blockBytes(): number {
    return blockVectors * (this.vectorBytes + 8) + 4;
  }

  /** A copy of blocks without their kept rows. */
  readBlocks(first: number, count: number): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(count * this.blockBytes);
    this.#eachBlockRun(first, count, (address, length, at) => {
      bytes.set(this.#core.module.HEAPU8.subarray(address, address + length), at);
    });
    return bytes;
  }

  /** Replaces blocks by those of `readBlocks`. */
  writeBlocks(first: number, count: number, bytes: Uint8Array): void {
    this.onChange?.(first * blockVectors, count * blockVectors);
    this.#eachBlockRun(first, count, (address, length, at) => {
      this.#core.module.HEAPU8.set(bytes.subarray(at, at + length), address);
    });
    this.findBounds(first * blockVectors, count * blockVectors);
  }

  /** Zeroes codes, numbers and kept rows of vectors that are not there, as they were before. */
  clear(first: number, count: number): void {
    this.onChange?.(first, count);
    const { HEAPU8 } = this.#core.module;
    const { vectorBytes, rowBytes } = this;
    this.#eachRun(first, count, ({ codes, factors, extras, rows }, local, n) => {
      const zero = (array: number, each: number) => HEAPU8.fill(0, array + local * each, array + (local + n) * each);
      if (this.form.bits === 8) zero(codes, vectorBytes);
      else {
        // The bytes of the vectors of a block lie between each other.
        for (let vector = local; vector < local + n; vector++) {
          const place = vector % blockVectors;
          const block = codes + (vector - place) * vectorBytes;
          for (let byte = 0; byte < vectorBytes; byte++) HEAPU8[block + byte * blockVectors + place] = 0;
        }
      }
      zero(factors, 4);
      zero(extras, 4);
      zero(rows, rowBytes);
    });
    this.findBounds(first, count);
  }

  /** Finds the bounds of scores, after factors or extras of the vectors [first, first + count) were written from outside. */
  findBounds(first: number, count: number): void {
    this.#eachRun(first, count, ({ record }, local, n) => {
      checkStatus(this.#core.module.boundBlocks(record, local, n));
    });
  }

  /** Calls f with the address and the length of each array of blocks, and its place in the bytes of `readBlocks`. */
  #eachBlockRun(first: number, count: number, f: (address: number, length: number, at: number) => void): void {
    const vectors = count * blockVectors;
    this.#eachRun(first * blockVectors, vectors, ({ codes, factors, extras, alive }, local, n, done) => {
      // Arrays are those of all blocks, because the parts of the store that receives them have other sizes.
      let array = 0;
      for (const [address, each] of [
        [codes, this.vectorBytes],
        [factors, 4],
        [extras, 4],
        [alive, 1 / 8],
      ] as const) {
        f(address + local * each, n * each, array + done * each);
        array += vectors * each;
      }
    });
  }

  /**
   * Calls f with the address of each part of an array of the store, part by part, for the vectors [0, count), rounded up to whole blocks.
   * @param what the array: codes, factors, extras, alive bits or kept rows
   */
  eachPart(what: StoredArray, count: number, f: (address: number, bytes: number) => void): void {
    const vectors = Math.ceil(count / blockVectors) * blockVectors;
    const each = { codes: this.vectorBytes, factors: 4, extras: 4, alive: 1 / 8, rows: this.rowBytes }[what];
    for (const part of this.#parts) {
      const n = Math.min(vectors - part.first, part.capacity);
      if (n > 0) f(part[what], n * each);
    }
  }

  /** Frees the memory. */
  dispose(): void {
    for (const { memory } of this.#parts) this.#core.release(memory);
    this.#parts.length = 0;
    this.#capacity = 0;
    this.#core.release(this.#fixed);
  }
}

/** An array of a store. */
export type StoredArray = 'codes' | 'factors' | 'extras' | 'alive' | 'rows';

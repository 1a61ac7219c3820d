/**
 * Inputs that stay in memory between two tasks. If a scale is shared by more than a tile, each tile of a tensor is observed before it is
 * encoded. The encoding task takes the bytes from the cache of the worker that observed them, as far as there is room.
 */
import type { Core } from '../core/memory.js';
import type { RangeCut, Rectangle, SetsCut, TileCut } from '../formats/codecs/codec.js';
import type { LogicalTensor } from '../formats/format.js';
import { rectangleInput } from './rectangle-input.js';
import {
  type Batch,
  type BatchResult,
  type CachedRows,
  type CacheRequest,
  type EncodeTask,
  mostCached,
} from './task.js';

/** A rectangle of a tensor that is observed and then encoded. */
export interface CachedRectangle {
  readonly rectangle: Rectangle;
  readonly id: number;
  readonly bytes: number;
}

/** The last id that was given. Ids are unique in this thread, since several measurements may share workers. */
let lastId = 0;

/** The rectangles to cache, in the order of a cut; empty unless each is one contiguous run of whole rows. */
export function cachedRectangles(source: LogicalTensor, cut: RangeCut | SetsCut): CachedRectangle[] {
  const rectangles = cut.kind === 'range' ? cut.rectangles : cut.observed.map(({ rectangle }) => rectangle);
  if (source.gathered !== undefined) return [];
  const found: CachedRectangle[] = [];
  for (const rectangle of rectangles) {
    const [first, ...others] = rectangleInput(source, rectangle).parts;
    if (first === undefined || others.length > 0 || first.count !== 1 || first.bytes % rectangle.rows !== 0) return [];
    found.push({ rectangle, id: ++lastId, bytes: first.bytes });
  }
  return found;
}

/** The cached rows of a tile; undefined if its tensor is not cached. Tiles come in the order of the rectangles, which are taken off the list. */
export function takeCached(cached: CachedRectangle[], { rectangle: tile }: TileCut): CachedRows | undefined {
  const [first] = cached;
  if (first === undefined) return undefined;
  const { rectangle: whole, id } = first;
  const [row, end] = [tile.row - whole.row, tile.row - whole.row + tile.rows];
  if (tile.column !== whole.column || tile.columns !== whole.columns || row < 0 || end > whole.rows)
    throw new Error('a tile is not the next part of what was observed');
  const isLast = end === whole.rows;
  if (isLast) cached.shift();
  return { id, row, isLast };
}

/** A tensor that exceeds the caches of all workers by more than this factor is not cached: most of it would be read again anyway. */
const mostTimes = 4;

/** Knows which worker has cached which inputs, and sends it the tasks with these inputs. */
export class CacheOwners<Owner> {
  readonly #most: number;
  readonly #owners = new Map<number, Owner>();

  /** @param count number of caches */
  constructor(count: number) {
    this.#most = mostTimes * count * mostCached;
  }

  /** Remembers the inputs that an owner has cached. */
  add({ answers }: Pick<BatchResult, 'answers'>, owner: Owner): void {
    for (const { cached } of answers) if (cached !== undefined) this.#owners.set(cached, owner);
  }

  /** The owner that has to carry out a batch; undefined if any worker can. Inputs that are in no cache are read again. */
  assign(batch: Batch): { readonly batch: Batch; readonly owner: Owner | undefined } {
    // A task that requests or takes a cached input is the only one of its batch.
    const [task] = batch.tasks;
    if (task !== undefined && 'cache' in task && (task.cache?.total ?? 0) > this.#most)
      return { batch: { ...batch, tasks: [{ ...task, cache: undefined }] }, owner: undefined };
    const cached = (task as Partial<EncodeTask> | undefined)?.cached;
    if (cached === undefined) return { batch, owner: undefined };
    const owner = this.#owners.get(cached.id);
    if (cached.isLast) this.#owners.delete(cached.id);
    if (owner !== undefined) return { batch, owner };
    return { batch: { ...batch, tasks: [{ ...(task as EncodeTask), cached: undefined }] }, owner };
  }
}

/** A stretch of wasm memory with cached inputs. */
export class InputCache {
  readonly #core: Core;
  /** The stretch; undefined before the first input. */
  #room: { readonly base: number; readonly size: number } | undefined;
  #used = 0;
  /** Addresses of the inputs, by the ids of their requests. */
  readonly #addresses = new Map<number, number>();

  constructor(core: Core) {
    this.#core = core;
  }

  /**
   * Bytes that the stretch takes, or would take for a request: twice its total, since the last tiles of one tensor still wait when the next
   * tensor is observed.
   */
  sizeFor({ total }: CacheRequest): number {
    return Math.max(this.#room?.size ?? 0, Math.min(2 * total, mostCached));
  }

  /** Reserves memory for the bytes of an input. Returns its address; undefined if there is no room. */
  add(request: CacheRequest, bytes: number): number | undefined {
    const size = this.sizeFor(request);
    if (this.#addresses.size === 0 && (this.#room?.size ?? 0) < size) {
      this.releaseIdle();
      // The cache is optional: tasks work without it.
      const base = this.#core.tryAllocate(size + 16);
      if (base === 0) return undefined;
      this.#room = { base, size };
    }
    const room = this.#room;
    if (room === undefined || this.#used + bytes > room.size) return undefined;
    const address = Math.ceil((room.base + this.#used) / 16) * 16;
    this.#used = address + bytes - room.base;
    this.#addresses.set(request.id, address);
    return address;
  }

  /** The address of a cached input. */
  find(id: number): number {
    const address = this.#addresses.get(id);
    if (address === undefined) throw new Error(`no input was cached as ${id}`);
    return address;
  }

  /** Removes an input. */
  drop(id: number): void {
    this.#addresses.delete(id);
    if (this.#addresses.size === 0) this.#used = 0;
  }

  /** Releases the memory if it holds no inputs. */
  releaseIdle(): void {
    if (this.#room === undefined || this.#addresses.size > 0) return;
    this.#core.release(this.#room.base);
    this.#room = undefined;
    this.#used = 0;
  }
}

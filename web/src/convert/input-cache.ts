/**
 * Inputs that stay in memory between two tasks. If a scale is shared by more than a tile, each tile of a tensor is observed before it is
 * encoded. The encoding task takes the bytes from the cache, as far as there is room.
 */
import type { Core } from '../core/memory.js';
import { type CacheRequest, mostCached } from './task.js';

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
      this.release();
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

  /** True if it has memory, but no inputs. */
  get isIdle(): boolean {
    return this.#room !== undefined && this.#addresses.size === 0;
  }

  /** Releases the memory of an idle cache. */
  release(): void {
    if (this.#room !== undefined) this.#core.release(this.#room.base);
    this.#room = undefined;
    this.#used = 0;
  }
}

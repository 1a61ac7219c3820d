/**
 * Inputs that stay in memory between two tasks. Where a scale is shared by more than a tile, a tensor is looked at before it is encoded. What
 * the first task has read, the second one takes from where it is, as far as there is room.
 */
import type { Core } from '../core/memory.js';
import { type Keep, mostKept } from './task.js';

/** The stretch of wasm memory that inputs are kept in. */
export class KeptInputs {
  readonly #core: Core;
  /** Where it lies; undefined if there is none. */
  #room: { readonly base: number; readonly size: number } | undefined;
  #used = 0;
  /** Addresses of what is in it, by number. */
  readonly #places = new Map<number, number>();

  constructor(core: Core) {
    this.#core = core;
  }

  /**
   * Bytes that the stretch takes, or would take if it was made for something: twice as many, since the last tiles of one tensor still wait
   * when the next one is looked at.
   */
  sizeFor({ total }: Keep): number {
    return Math.max(this.#room?.size ?? 0, Math.min(2 * total, mostKept));
  }

  /** The address for so many bytes of inputs, which are kept from now on. Undefined if there is no room. */
  add(keep: Keep, bytes: number): number | undefined {
    const size = this.sizeFor(keep);
    if (this.#places.size === 0 && (this.#room?.size ?? 0) < size) {
      this.#release();
      // Tasks get along without it.
      const base = this.#core.tryAllocate(size + 16);
      if (base === 0) return undefined;
      this.#room = { base, size };
    }
    const room = this.#room;
    if (room === undefined || this.#used + bytes > room.size) return undefined;
    const address = Math.ceil((room.base + this.#used) / 16) * 16;
    this.#used = address + bytes - room.base;
    this.#places.set(keep.number, address);
    return address;
  }

  /** Where inputs are that were kept. */
  find(number: number): number {
    const address = this.#places.get(number);
    if (address === undefined) throw new Error(`no inputs were kept as ${number}`);
    return address;
  }

  /** Ends the use of inputs. */
  drop(number: number): void {
    this.#places.delete(number);
    if (this.#places.size === 0) this.#used = 0;
  }

  /** Gives the memory back if nothing is in it. */
  shrink(): void {
    if (this.#places.size === 0) this.#release();
  }

  #release(): void {
    if (this.#room !== undefined) this.#core.release(this.#room.base);
    this.#room = undefined;
    this.#used = 0;
  }
}

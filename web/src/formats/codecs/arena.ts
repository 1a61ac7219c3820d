import { outOfMemory } from '../../core/errors.js';
import type { Core } from '../../core/memory.js';

/**
 * Wasm memory for the inputs, the results and the temporary values of one task after the other. It grows as they need and is used again. The
 * core takes from it, too. Addresses stay the same until the next `start`, but wasm memory may grow with each piece, and then has new views.
 */
export class Arena {
  readonly #core: Core;
  /** The address that calls of the core take. */
  readonly address: number;

  /** @throws ScalepointError `OUT_OF_MEMORY` */
  constructor(core: Core) {
    this.#core = core;
    this.address = core.models.makeArena();
    if (this.address === 0) throw outOfMemory('an arena');
  }

  /** Bytes that it occupies. */
  get capacity(): number {
    return this.#core.models.arenaCapacity(this.address);
  }

  /**
   * Frees all pieces for a new task, then takes its first piece, which `rewind` keeps. Returns its address as `take` does.
   * @throws ScalepointError `OUT_OF_MEMORY`
   */
  start(bytes: number): number {
    return this.#checked(this.#core.models.startInArena(this.address, bytes), bytes);
  }

  /** The address of the next piece, a multiple of 16; 0 for a piece of 0 bytes. @throws ScalepointError `OUT_OF_MEMORY` */
  take(bytes: number): number {
    return this.#checked(this.#core.models.takeFromArena(this.address, bytes), bytes);
  }

  /** Copies floats into the next piece. Returns its address. @throws ScalepointError `OUT_OF_MEMORY` */
  place(values: Float32Array): number {
    const at = this.take(4 * values.length);
    this.#core.module.HEAPF32.set(values, at / 4);
    return at;
  }

  /**
   * Frees all pieces but that of `start`. If then pieces of the same sizes are taken in the same order, they have the same addresses and
   * contents as before.
   */
  rewind(): void {
    this.#core.models.rewindArena(this.address);
  }

  #checked(address: number, bytes: number): number {
    if (address === 0 && bytes > 0) throw outOfMemory(`${bytes} more bytes`);
    return address;
  }

  /** Returns the memory. The arena can be used further. */
  release(): void {
    this.#core.models.releaseArena(this.address);
  }
}

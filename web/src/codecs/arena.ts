/** Hands out pieces of one stretch of wasm memory. An arena without an address only counts. */
export class Arena {
  readonly #base: number | undefined;
  #used = 0;

  /** @param base a multiple of 16 */
  constructor(base?: number) {
    this.#base = base;
  }

  get onlyCounts(): boolean {
    return this.#base === undefined;
  }

  /** Bytes that all pieces take together. */
  get size(): number {
    return this.#used;
  }

  /** The address of the next piece, a multiple of 16. */
  take(bytes: number): number {
    const begin = Math.ceil(this.#used / 16) * 16;
    this.#used = begin + bytes;
    return (this.#base ?? 0) + begin;
  }
}

/** Allocates consecutive pieces of one block of wasm memory. An arena without an address only counts their sizes. */
export class Arena {
  readonly #base: number | undefined;
  #asked: readonly number[];
  #used = 0;
  #calls = 0;

  /**
   * @param base a multiple of 16
   * @param asked sizes that the calls of the core requested while the same pieces were counted
   */
  constructor(base?: number, asked?: readonly number[]) {
    this.#base = base;
    this.#asked = asked ?? [];
  }

  /** Sizes that calls of the core requested so far, in the order of the calls. */
  get asked(): readonly number[] {
    return this.#asked;
  }

  get onlyCounts(): boolean {
    return this.#base === undefined;
  }

  /** Bytes that all pieces take together. */
  get size(): number {
    return this.#used;
  }

  /** Size that the next call of the core requests: the size from counting if known, else that of `count`. */
  ask(count: () => number): number {
    const index = this.#calls++;
    const known = this.#asked[index];
    if (known !== undefined) return known;
    const bytes = count();
    this.#asked = [...this.#asked, bytes];
    return bytes;
  }

  /** The address of the next piece, a multiple of 16. */
  take(bytes: number): number {
    const begin = Math.ceil(this.#used / 16) * 16;
    this.#used = begin + bytes;
    return (this.#base ?? 0) + begin;
  }
}

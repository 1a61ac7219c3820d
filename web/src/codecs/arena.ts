/** Hands out pieces of one stretch of wasm memory. An arena without an address only counts. */
export class Arena {
  readonly #base: number | undefined;
  #asked: readonly number[];
  #used = 0;
  #calls = 0;

  /**
   * @param base a multiple of 16
   * @param asked what calls of the core asked for when the same was counted
   */
  constructor(base?: number, asked?: readonly number[]) {
    this.#base = base;
    this.#asked = asked ?? [];
  }

  /** What calls of the core asked for so far, in their order. */
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

  /** What the next call of the core asks for: as when it was counted, or else what `count` says. */
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

// The ids of vectors by their indices, and the reverse.
import { rangeError, typeError } from '../core/errors.js';
import { exactly, ofType } from '../core/option-problem.js';
import type { VectorId } from './search-types.js';

/** @throws TypeError or RangeError naming the id */
export function checkId(id: unknown, what: string): VectorId {
  if (typeof id !== 'string' && typeof id !== 'number') throw typeError(what, ofType('string', 'number'), id);
  if (typeof id === 'number' && !Number.isSafeInteger(id)) throw rangeError(what, { kind: 'number', whole: true }, id);
  return id;
}

/** A copy of ids of a caller. @throws TypeError or RangeError naming the id, also if two are equal */
export function checkIds(ids: unknown, what = 'ids', count?: number): VectorId[] {
  if (!Array.isArray(ids)) throw typeError(what, ofType('array of strings or numbers'), ids);
  if (count !== undefined && ids.length !== count) throw rangeError(what, exactly(count, 'ids'), ids.length);
  const copy = ids.map((id, i) => checkId(id, `${what}[${i}]`));
  const seen = new Set<VectorId>();
  for (const [i, id] of copy.entries()) {
    if (seen.size === seen.add(id).size) throw rangeError(`${what}[${i}]`, { kind: 'distinct' }, id);
  }
  return copy;
}

/** The ids of vectors. Without ids of the caller's, the id of a vector is its index, which no later vector gets. */
export class IdTable {
  /** By index; undefined where a vector was removed. Undefined altogether without ids of the caller's. */
  #ids: (VectorId | undefined)[] | undefined;
  /** Made when it is first needed. */
  #indices: Map<VectorId, number> | undefined;
  readonly #isAlive: (index: number) => boolean;
  #length = 0;

  /** @param isAlive true for the index of a vector that was not removed */
  constructor(given: boolean, isAlive: (index: number) => boolean) {
    this.#ids = given ? [] : undefined;
    this.#isAlive = isAlive;
  }

  /** True if the caller gives the ids. */
  get given(): boolean {
    return this.#ids !== undefined;
  }

  /** The index above all that were given so far. */
  get length(): number {
    return this.#length;
  }

  /** Ids by index; undefined without ids of the caller's. */
  get all(): readonly (VectorId | undefined)[] | undefined {
    return this.#ids;
  }

  #map(): Map<VectorId, number> {
    if (this.#indices === undefined) {
      this.#indices = new Map();
      for (const [index, id] of (this.#ids ?? []).entries()) if (id !== undefined) this.#indices.set(id, index);
    }
    return this.#indices;
  }

  /** The id of a vector. */
  at(index: number): VectorId {
    return this.#ids === undefined ? index : (this.#ids[index] as VectorId);
  }

  /** The index of a vector; undefined for an unknown id. */
  indexOf(id: VectorId): number | undefined {
    if (this.#ids !== undefined) return this.#map().get(id);
    const known = typeof id === 'number' && Number.isSafeInteger(id) && id >= 0 && id < this.#length;
    return known && this.#isAlive(id) ? id : undefined;
  }

  /** @throws RangeError naming an id that the index has */
  checkNew(ids: readonly VectorId[]): void {
    for (const [i, id] of ids.entries()) {
      if (this.#map().has(id)) throw rangeError(`ids[${i}]`, { kind: 'distinct' }, id);
    }
  }

  /** Gives a vector its id. */
  set(index: number, id: VectorId | undefined): void {
    this.#length = Math.max(this.#length, index + 1);
    if (this.#ids === undefined || id === undefined) return;
    this.#ids[index] = id;
    this.#indices?.set(id, index);
  }

  /** Counts vectors up to `length`, of which the ids are their indices. */
  extend(length: number): void {
    this.#length = Math.max(this.#length, length);
  }

  /** Takes ids of a file. */
  fill(ids: (VectorId | undefined)[] | undefined, length: number): void {
    if (this.#ids !== undefined) this.#ids = ids ?? [];
    this.#indices = undefined;
    this.#length = length;
  }

  delete(index: number): void {
    if (this.#ids === undefined) return;
    const id = this.#ids[index];
    if (id !== undefined) this.#map().delete(id);
    this.#ids[index] = undefined;
  }
}

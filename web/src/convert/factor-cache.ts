/**
 * Factors of second moments for the error feedback of GPTQ. Tiles of one matrix, and matrices with the same inputs, share a factor, so some
 * stay in memory.
 */
import { type Factor, factorBytes, factorOf } from '../core/factor.js';
import type { Core } from '../core/memory.js';
import { wrongMoments } from '../formats/codecs/calls.js';
import type { StoredTile, TileMoments } from '../formats/codecs/codec.js';
import { codecOf } from '../formats/codecs/registry.js';
import type { EncodeTask } from './task.js';

/** Memory of factors that stay besides the last one. Enough for the queries and keys of 2,048 columns, with another matrix between them. */
const mostBytes = 48 * 2 ** 20;

/** Keeps the last factors. For K columns each takes 4 K² bytes, and 8 K² more while it is made. */
export class FactorCache {
  readonly #core: Core;
  /** By their inputs and settings. The last one that was used comes last. */
  readonly #kept = new Map<string, Factor>();

  constructor(core: Core) {
    this.#core = core;
  }

  /**
   * The moments of a task with their factor. @param parts addresses of the second input of the task, by role
   * @throws ScalepointError `BAD_FILE` for numbers that cannot be moments, `OUT_OF_MEMORY`
   */
  momentsOf({ inputs: [, input], damping = 0, order, to }: EncodeTask, parts: StoredTile['parts']): TileMoments {
    const { data: moments = 0, heldBack = 0 } = parts;
    // They are the square of the number of inputs, in float32.
    const columns = Math.sqrt((input?.parts[0]?.bytes ?? 0) / 4);
    const groups = order === 'falling' ? codecOf(to).feedbackGroups?.(this.#core, to) : undefined;
    const [part, held] = input?.parts ?? [];
    const key = [part?.file, part?.begin, held?.begin, damping, groups?.group, groups?.outer].join();
    let factor = this.#kept.get(key);
    if (factor === undefined) {
      const n = columns * columns;
      if (heldBack !== 0 && this.#core.module.firstNonFinite(heldBack, n) < n) throw wrongMoments();
      // Free old factors until this one has room.
      let sum = factorBytes(columns);
      for (const { bytes } of this.#kept.values()) sum += bytes;
      for (const [old, { feedback, bytes }] of this.#kept) {
        if (sum <= mostBytes) break;
        this.#kept.delete(old);
        this.#core.release(feedback);
        sum -= bytes;
      }
      factor = factorOf(this.#core, moments, columns, damping, groups);
      if (factor === undefined) throw wrongMoments();
    }
    this.#kept.delete(key);
    this.#kept.set(key, factor);
    const { feedback, weights, damping: used, order: columnsOrder } = factor;
    return { moments, feedback, weights, damping: used, order: columnsOrder, heldBack };
  }
}

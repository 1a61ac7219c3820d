/**
 * Factors of second moments, by which rounding passes errors on. Tiles of one matrix, and matrices with the same inputs, share a factor, so the
 * last one stays in memory.
 */
import type { TileMoments } from '../codecs/codec.js';
import { FactorDamping, Status } from '../core/door.js';
import { ScalepointError } from '../core/errors.js';
import { type Core, checkStatus } from '../core/memory.js';
import type { EncodeTask } from './task.js';

/** Keeps the last factor. For K columns it takes 4 K² bytes, and 8 K² more while it is made. */
export class FactorCache {
  readonly #core: Core;
  #last: (Omit<TileMoments, 'moments'> & { readonly key: string }) | undefined;

  constructor(core: Core) {
    this.#core = core;
  }

  /**
   * The moments of a task with their factor. @param moments address of the second input of the task
   * @throws ScalepointError `BAD_FILE` for numbers that cannot be moments, `OUT_OF_MEMORY`
   */
  momentsOf({ inputs: [, input], damping = 0 }: EncodeTask, moments: number): TileMoments {
    // They are the square of the number of inputs, in float32.
    const columns = Math.sqrt((input?.parts[0]?.bytes ?? 0) / 4);
    const key = input?.parts.map(({ file, begin }) => `${file} ${begin} ${damping}`).join() ?? '';
    if (this.#last?.key !== key) {
      this.#release();
      this.#last = { key, ...this.#factor(moments, columns, damping) };
    }
    const { feedback, weights, damping: used } = this.#last;
    return { moments, feedback, weights, damping: used };
  }

  #release(): void {
    if (this.#last !== undefined) this.#core.release(this.#last.feedback);
    this.#last = undefined;
  }

  #factor(moments: number, columns: number, damping: number) {
    const core = this.#core;
    const { models } = core;
    const feedback = core.allocate(4 * columns * (columns + 1));
    const weights = feedback + 4 * columns * columns;
    const result = core.pushRoom(FactorDamping.bytes);
    try {
      const status = core.withMemory(Number(models.factorScratchBytes(columns)), (scratch) =>
        models.factorMoments(moments, columns, damping, scratch, feedback, weights, result),
      );
      if (status === Status.nonFinite) {
        throw new ScalepointError('BAD_FILE', 'the second moments of its inputs are not those of numbers');
      }
      checkStatus(status);
      return { feedback, weights, damping: FactorDamping.read(core.module, result).used };
    } catch (error) {
      core.release(feedback);
      throw error;
    } finally {
      core.popRecord(result);
    }
  }
}

// Factors of second moments for the error feedback of GPTQ, in memory of the large module.
import { FactorDampingRecord, FeedbackGroupsRecord, StatusId } from './door.js';
import { type Core, checkStatus } from './memory.js';

/** A factor, as codecs take it. Addresses are in bytes; the memory begins at `feedback`. */
export interface Factor {
  /** columns * columns floats. */
  readonly feedback: number;
  /** A float for each column. */
  readonly weights: number;
  /** Order of columns that feedback and weights are in; 0: as they are. */
  readonly order: number;
  /** The damping that was used. */
  readonly damping: number;
  /** Bytes of its memory. */
  readonly bytes: number;
}

/** Bytes of a factor. Making one takes twice as much besides. */
export const factorBytes = (columns: number) => 4 * columns * (columns + 2);

/**
 * Factors moments, into memory that the caller releases. Undefined for moments that cannot be factored.
 * @param moments address of columns * columns floats
 * @param groups that share a grid, to round the columns with the largest inputs first; undefined: as they are
 * @throws ScalepointError `OUT_OF_MEMORY`
 */
export function factorOf(
  core: Core,
  moments: number,
  columns: number,
  damping: number,
  groups: FeedbackGroupsRecord | undefined,
): Factor | undefined {
  const { models } = core;
  const bytes = factorBytes(columns);
  const feedback = core.allocate(bytes);
  const weights = feedback + 4 * columns * columns;
  const order = groups === undefined ? 0 : weights + 4 * columns;
  const result = core.pushRecord(FactorDampingRecord);
  let isDone = false;
  try {
    const status = core.withMemory(Number(models.factorScratchBytes(columns)), (scratch) => {
      if (groups !== undefined) {
        core.withRecord(FeedbackGroupsRecord, groups, (sizes) =>
          models.fallingOrder(moments, columns, sizes, scratch, order),
        );
      }
      return models.factorMoments(moments, columns, damping, order, scratch, feedback, weights, result);
    });
    if (status === StatusId.nonFinite) return undefined;
    checkStatus(status);
    isDone = true;
    return { bytes, feedback, weights, order, damping: FactorDampingRecord.read(core.module, result).used };
  } finally {
    if (!isDone) core.release(feedback);
    core.popRecord(result);
  }
}

/** Writes a result: carries out the decisions about its weights, in order. */
import type { FilePlan, PartsOf } from '../../format.js';
import type { Decisions } from '../decide/decide.js';
import type { WeightDecision } from '../decide/decision.js';
import type { OnnxModel, Weight } from '../file/model.js';
import { writeBlocks } from './blocks.js';
import { Builder } from './builder.js';
import { writeHalf, writeHalfGraph, writeKept } from './half.js';
import { IntegerWriter } from './integers.js';
import { writeRestored } from './restored.js';
import { rewriteRaised } from './rewrite.js';
import { type WrittenCodes, writeStatic } from './static.js';
import { writeExperts, writeTogether } from './together.js';

/** Writer of each kind of decision. */
type Writers = {
  readonly [Kind in WeightDecision['kind']]: (decision: Extract<WeightDecision, { kind: Kind }>) => void;
};

/**
 * Lays out a result.
 * @param dataFile name of the file beside the model for its weights; undefined if the model itself holds them
 */
export function writeResult(
  model: OnnxModel,
  decisions: Decisions,
  partsOf: PartsOf,
  dataFile: string | undefined,
): FilePlan {
  const { halves } = decisions;
  const builder = new Builder(model, decisions, partsOf, dataFile);
  const [symmetric, others] = [new IntegerWriter(builder), new IntegerWriter(builder)];
  const written = new Map<Weight, WrittenCodes>();
  const writers: Writers = {
    keep: (decision) => writeKept(builder, decision),
    half: (decision) => writeHalf(builder, decision),
    blocks: (decision) => writeBlocks(builder, decision),
    restored: (decision) => {
      const names = writeRestored(builder, decision);
      if (names !== undefined) written.set(decision.weight, { form: decision.form, names });
    },
    integers: (decision) => (decision.isSymmetric ? symmetric : others).write(decision),
    together: (decision) => writeTogether(builder, decision),
    experts: (decision) => writeExperts(builder, decision),
  };
  const unneeded = decisions.decisions.flatMap((one) => ('unneeded' in one ? one.unneeded : []));
  if (halves !== undefined) writeHalfGraph(builder, halves, new Set(unneeded));
  for (const decision of decisions.decisions) (writers[decision.kind] as (decision: WeightDecision) => void)(decision);
  writeStatic(builder, decisions.statics, written);
  rewriteRaised(builder, halves);
  return builder.finish();
}

/** Gives the weights of products their statistics: which dimension the inputs lie along, and which forms take them. */

import { ScalepointError } from '../../../core/errors.js';
import type { Note } from '../../../core/note.js';
import { canWeighDequantizeLinear, type DequantizeLinearForm } from '../../codecs/dequantize-linear.js';
import type { MatMulBnb4Form } from '../../codecs/matmul-bnb4.js';
import type { MatMulNBitsForm } from '../../codecs/matmul-nbits.js';
import type { Feedback } from '../../format.js';
import type { Statistics } from '../../statistics.js';
import type { WeightNames } from '../../weight-names.js';
import { WeightStatistics } from '../../weight-statistics.js';
import type { Weight } from '../file/model.js';
import type { Graphs } from '../graph/graph.js';
import { transposes } from '../graph/products.js';
import type { OnnxChoices } from '../options.js';
import type { NoInputsReason, WithoutInputs } from '../reasons.js';
import { type WeightDecision, weightsOfDecision } from './decision.js';

/** Forms whose codes depend on statistics. */
type WeighedForm = MatMulNBitsForm | MatMulBnb4Form | DequantizeLinearForm;

/** Decisions with statistics where their codes depend on them. */
export interface Weighed {
  readonly decisions: readonly WeightDecision[];
  /** Moments of the weights that are rounded with GPTQ. */
  readonly feedback: ReadonlyMap<Weight, Feedback>;
  /** Weights whose codes do not depend on statistics, if there are any statistics. */
  readonly withoutInputs: readonly WithoutInputs[];
  /** Notes about entries of statistics. */
  readonly notes: readonly Note[];
}

/**
 * Adds statistics to decisions about weights.
 * @param names further names that statistics may have for weights
 * @throws ScalepointError `BAD_FILE` if the statistics fit no weight
 */
export function weighDecisions(
  graphs: Graphs,
  decisions: readonly WeightDecision[],
  statistics: Statistics,
  choices: OnnxChoices,
  names: WeightNames = new Map(),
): Weighed {
  const feedback = new Map<Weight, Feedback>();
  const withoutInputs: WithoutInputs[] = [];
  if (statistics.importance === undefined) return { decisions, feedback, withoutInputs, notes: [] };
  const known = new WeightStatistics(statistics, choices);
  let [asked, found] = [0, 0];
  /** The number of inputs of a weight, or the reason why statistics do not count. */
  const inputCount = (weight: Weight, form: WeighedForm): number | NoInputsReason => {
    const { shape } = weight.source;
    const readers = graphs.readers(weight);
    const products = readers.filter((reader) => transposes(reader) !== undefined);
    const [first] = products;
    if (first === undefined) return { kind: 'readBy', operator: readers[0]?.node.opType ?? '' };
    if (shape.length !== 2) return { kind: 'rank', rank: shape.length };
    const isTransposed = transposes(first) === true;
    const inputs = shape[isTransposed ? 1 : 0] as number;
    if (form.codec !== 'dequantize-linear') return form.transposed === isTransposed ? inputs : { kind: 'alongInputs' };
    if (form.sharing === 'tile') return { kind: 'oneScale' };
    const hasInputsInRows = form.sharing === 'rows' || form.sharing === 'rowBlocks';
    if (products.some((reader) => transposes(reader) !== hasInputsInRows)) return { kind: 'alongInputs' };
    return canWeighDequantizeLinear(shape, form) ? inputs : { kind: 'tooLong', inputs };
  };
  /** The form with the importance of the inputs of a weight; the same form without. */
  const weigh = <F extends WeighedForm>(weight: Weight, form: F): F => {
    const { name } = weight.source;
    const columns = inputCount(weight, form);
    if (typeof columns !== 'number') {
      withoutInputs.push({ name, reason: columns });
      return form;
    }
    asked++;
    const measured = { name, names: names.get(name), columns };
    const importance = known.importanceOf(measured);
    const moments = known.feedbackOf(measured, importance !== undefined);
    if (importance === undefined) return form;
    found++;
    if (moments !== undefined) feedback.set(weight, moments);
    return { ...form, importance };
  };
  const weighed = decisions.map((decision): WeightDecision => {
    if (decision.kind === 'together' || decision.kind === 'experts') {
      const reason = { kind: 'readBy', operator: decision.operator } as const;
      for (const { source } of weightsOfDecision(decision)) withoutInputs.push({ name: source.name, reason });
    } else if (decision.kind === 'restored' || decision.kind === 'integers') {
      return { ...decision, form: weigh(decision.weight, decision.form) };
    } else if (decision.kind === 'blocks') {
      return { ...decision, form: weigh(decision.weight, decision.form) };
    }
    return decision;
  });
  if (asked > 0 && found === 0) {
    const text = 'the statistics have no entry for any weight of it: they are those of another model';
    throw new ScalepointError('BAD_FILE', text);
  }
  return { decisions: weighed, feedback, withoutInputs, notes: known.notes() };
}

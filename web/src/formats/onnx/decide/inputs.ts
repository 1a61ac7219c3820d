/** Gives the weights of products their statistics: which dimension the inputs lie along, and which forms take them. */

import { ScalepointError } from '../../../core/errors.js';
import type { Note } from '../../../core/note.js';
import { canWeighDequantizeLinear, type DequantizeLinearForm } from '../../codecs/dequantize-linear.js';
import type { MatMulNBitsForm } from '../../codecs/matmul-nbits.js';
import type { Feedback } from '../../format.js';
import type { Statistics } from '../../statistics.js';
import { WeightStatistics } from '../../weight-statistics.js';
import type { Weight } from '../file/model.js';
import type { Graphs } from '../graph/graph.js';
import { transposes } from '../graph/products.js';
import type { OnnxChoices } from '../options.js';
import type { NoInputsReason, WithoutInputs } from '../reasons.js';
import { type WeightDecision, weightsOfDecision } from './decision.js';

/** A form that takes statistics. */
type WeighedForm = MatMulNBitsForm | DequantizeLinearForm;

/** The number of inputs of a weight, or the reason why statistics do not count. */
function inputsOf(graphs: Graphs, weight: Weight, form: WeighedForm): number | NoInputsReason {
  const { shape } = weight.source;
  const readers = graphs.readers(weight);
  const products = readers.filter((reader) => transposes(reader) !== undefined);
  const [first] = products;
  if (first === undefined) return { kind: 'readBy', operator: readers[0]?.node.opType ?? '' };
  if (shape.length !== 2) return { kind: 'rank', rank: shape.length };
  const isTransposed = transposes(first) === true;
  const inputs = shape[isTransposed ? 1 : 0] as number;
  if (form.codec === 'matmul-nbits') {
    return form.transposed === isTransposed ? inputs : { kind: 'alongInputs' };
  }
  if (form.sharing === 'tile') return { kind: 'oneScale' };
  const hasInputsInRows = form.sharing === 'rows' || form.sharing === 'rowBlocks';
  const agree = products.every((reader) => transposes(reader) === hasInputsInRows);
  if (!agree) return { kind: 'alongInputs' };
  return canWeighDequantizeLinear(shape, form) ? inputs : { kind: 'tooLong', inputs };
}

/** Adds statistics to decisions about weights. */
export class OnnxInputStatistics {
  readonly #graphs: Graphs;
  readonly #known: WeightStatistics;
  readonly #has: boolean;
  readonly #feedback = new Map<Weight, Feedback>();
  /** Weights whose codes do not depend on statistics. */
  readonly without: WithoutInputs[] = [];
  #asked = 0;
  #found = 0;

  constructor(graphs: Graphs, statistics: Statistics, choices: OnnxChoices) {
    this.#graphs = graphs;
    this.#known = new WeightStatistics(statistics, choices);
    this.#has = statistics.importance !== undefined;
  }

  /** The form with the importance of the inputs of a weight; the same form without. */
  #weighed<F extends WeighedForm>(weight: Weight, form: F): F {
    const { name } = weight.source;
    const columns = inputsOf(this.#graphs, weight, form);
    if (typeof columns !== 'number') {
      this.without.push({ name, reason: columns });
      return form;
    }
    const measured = { name, columns };
    this.#asked++;
    const importance = this.#known.importanceOf(measured);
    const feedback = this.#known.feedbackOf(measured, importance !== undefined);
    if (importance === undefined) return form;
    this.#found++;
    if (feedback !== undefined) this.#feedback.set(weight, feedback);
    return { ...form, importance };
  }

  /** A decision, with statistics where its codes depend on them. */
  add(decision: WeightDecision): WeightDecision {
    if (!this.#has) return decision;
    switch (decision.kind) {
      case 'blocks':
        return decision.form.codec === 'matmul-nbits'
          ? { ...decision, form: this.#weighed(decision.weight, decision.form) }
          : decision;
      case 'restored':
      case 'integers':
        return { ...decision, form: this.#weighed(decision.weight, decision.form) };
      case 'together':
      case 'experts': {
        const reason = { kind: 'readBy', operator: decision.operator } as const;
        for (const { source } of weightsOfDecision(decision)) this.without.push({ name: source.name, reason });
        return decision;
      }
      default:
        return decision;
    }
  }

  /** Moments of the weights that are rounded with GPTQ. */
  get feedback(): ReadonlyMap<Weight, Feedback> {
    return this.#feedback;
  }

  /** Notes about weights without an entry. @throws ScalepointError `BAD_FILE` if the statistics fit no weight */
  notes(): Note[] {
    if (!this.#has) return [];
    if (this.#asked > 0 && this.#found === 0) {
      throw new ScalepointError(
        'BAD_FILE',
        'the statistics have no entry for any weight of it: they are those of another model',
      );
    }
    return this.#known.notes();
  }
}

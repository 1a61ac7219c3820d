/** Gives weights with codes the statistics of their inputs. */
import { ScalepointError } from '../../core/errors.js';
import { type Note, noteOf } from '../../core/note.js';
import { quotedNames } from '../files/bytes.js';
import type { PlannedTensor } from '../format.js';
import type { Statistics } from '../statistics.js';
import type { StatisticsOptions } from '../statistics-options.js';
import type { WeightNames } from '../weight-names.js';
import { WeightStatistics } from '../weight-statistics.js';
import type { Weighing } from './layouts/layout.js';

/** Adds statistics to planned weights. */
export class SafetensorsInputStatistics {
  readonly #known: WeightStatistics;
  readonly #names: WeightNames | undefined;
  readonly #notMatrices: string[] = [];
  #asked = 0;
  #found = 0;

  /** @param names that statistics may have for tensors, besides their own */
  constructor(statistics: Statistics, choices: StatisticsOptions, names: WeightNames | undefined) {
    this.#known = new WeightStatistics(statistics, choices);
    this.#names = names;
  }

  /** The weight with the importance and the moments of its inputs; unchanged without them. */
  weighed(planned: PlannedTensor, weighing: Weighing | undefined): PlannedTensor {
    const { name, shape } = planned.source;
    if (weighing === undefined) return planned;
    if (!weighing.takes(shape, planned.form)) {
      this.#notMatrices.push(name);
      return planned;
    }
    const weight = { name, columns: shape[1] as number, names: this.#names?.get(name) };
    this.#asked++;
    const importance = this.#known.importanceOf(weight);
    const feedback = this.#known.feedbackOf(weight, importance !== undefined);
    if (importance === undefined) return planned;
    this.#found++;
    return {
      ...planned,
      form: weighing.add(planned.form, importance),
      feedback,
      moments: this.#known.momentsOf(weight),
    };
  }

  /** Notes about mismatches. @throws ScalepointError `BAD_FILE` if the statistics have no entry for any weight */
  notes(): Note[] {
    if (this.#asked > 0 && this.#found === 0) {
      throw new ScalepointError(
        'BAD_FILE',
        'the statistics have no entry for any weight of it: they are those of another model',
      );
    }
    const tensors = this.#notMatrices;
    const text = `quantized without statistics, which count for matrices with rows of moderate length: ${quotedNames(tensors)}`;
    return [...this.#known.notes(), ...(tensors.length === 0 ? [] : [noteOf('notWeighed', { tensors }, text)])];
  }
}

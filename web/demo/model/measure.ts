// Measures the errors of tensors in the background.
import { estimateModel, type ModelPlan, type PlanOptions, planModel, type Rule } from 'scalepoint/model';
import type { Preset } from '../../src/tooling.js';
import type { ModelFile } from '../shared/files.js';
import { inputOf } from '../shared/page-files.js';
import { recall, remember } from '../shared/remember.js';
import { escaped, formatFor, type ModelChoice, optionsOf, presetFormat, settingsKey, withPreset } from './choice.js';
import { isAboutCodes, obstacleOf } from './explain.js';
import type { Sizer } from './sizer.js';
import { countNumbers, totalBytes } from './sizes.js';
import type { Errors, MeasuredError, Offer } from './state.js';
import { savingWorkers, withWorkers } from './workers.js';

/** A model up to this size is measured as a whole, after the sample. */
const wholeBytes = 2 ** 28;
/** Numbers whose conversion takes long enough to be timed. */
const timedNumbers = 2 ** 22;
/** A model of fewer bytes is measured before a worker would have started. */
const fewBytes = 2 ** 22;

/** Key of choices with the same errors. Keeping a tensor leaves the errors of others, unless these share a size with it. */
export const errorsKey = (choice: ModelChoice) =>
  JSON.stringify([settingsKey(choice), choice.size, choice.size && [...choice.kept].sort()]);

/** Numbers that a plan converts. */
const convertedNumbers = ({ tensors }: ModelPlan) =>
  tensors.reduce((sum, { shape, kept }) => sum + (kept === undefined ? countNumbers(shape) : 0), 0);

/** The name of the rates that the browser remembers. */
const ratesName = 'save-rates';

/** Elements that saves in this browser quantized in a second, by the target. */
function savedRates(): Readonly<Record<string, number>> {
  try {
    return JSON.parse(recall(ratesName)) as Record<string, number>;
  } catch {
    return {};
  }
}

interface KnownErrors {
  readonly errors: Errors;
  readonly exact: boolean;
}

/** Measures choices for one model, and remembers the errors. */
export class Measurer {
  readonly #model: ModelFile;
  readonly #known = new Map<string, KnownErrors>();
  /** Elements that one worker quantizes in a second, by the target. */
  readonly #rates = new Map<ModelChoice['to'], number>();

  readonly #sizer: Sizer;

  constructor(model: ModelFile, sizer: Sizer) {
    this.#model = model;
    this.#sizer = sizer;
  }

  /** Options for the package, with types in place of a size. */
  async options(choice: ModelChoice): Promise<PlanOptions> {
    const fit = choice.size === undefined ? undefined : await this.#sizer.fit(choice);
    return optionsOf(formatFor(this.#model, choice.to), choice, fit) as PlanOptions;
  }

  async plan(choice: ModelChoice): Promise<ModelPlan> {
    return planModel(inputOf(this.#model.files), await this.options(choice));
  }

  known(choice: ModelChoice): KnownErrors | undefined {
    return this.#known.get(errorsKey(choice));
  }

  /** Adds errors of a result. */
  learn(choice: ModelChoice, errors: Errors, exact: boolean): KnownErrors {
    const all = new Map([...(this.known(choice)?.errors ?? []), ...errors]);
    const known = { errors: all, exact: exact && [...all.values()].every((one) => one.exact) };
    this.#known.set(errorsKey(choice), known);
    return known;
  }

  /** True if all tensors that a plan converts were measured. */
  isMeasured(choice: ModelChoice, { tensors }: ModelPlan): boolean {
    const errors = this.known(choice)?.errors;
    return tensors.every(({ name, kept, shape }) => kept !== undefined || shape.includes(0) || errors?.has(name));
  }

  /** Workers that measure. Others are left to the page. */
  get #workers(): number {
    return totalBytes(this.#model.files) < fewBytes ? 0 : 1;
  }

  get #isSmall(): boolean {
    return totalBytes(this.#model.files) <= wholeBytes;
  }

  /** True if a choice can still be measured more exactly. */
  canBeExact(choice: ModelChoice): boolean {
    return this.#isSmall && this.known(choice)?.exact !== true;
  }

  /** Measures a choice. */
  async measure(choice: ModelChoice, sample: number | undefined, signal: AbortSignal): Promise<KnownErrors> {
    const { files } = this.#model;
    const options = await this.options(choice);
    let begin: number | undefined;
    let measured = 0;
    const work = (workers: number) =>
      estimateModel(inputOf(files), {
        ...options,
        ...(sample === undefined ? {} : { sample }),
        workers,
        signal,
        // The first tensor waits for the worker to start, so it does not count.
        onProgress: () => {
          begin ??= performance.now();
        },
      });
    const result = await withWorkers(this.#workers, work);
    const errors = new Map<string, MeasuredError>();
    const exact = result.sampled === 0;
    for (const { name, error, shape } of result.tensors) {
      if (error === undefined) continue;
      const elements = countNumbers(shape);
      measured += Math.min(elements, sample ?? 65536);
      errors.set(name, { error, exact: exact || elements <= (sample ?? 65536) });
    }
    // A sample is too small to predict the speed of the rest.
    if (exact && begin !== undefined) this.#timed(choice, measured, begin);
    return this.learn(choice, errors, exact);
  }

  #timed({ to }: ModelChoice, elements: number, begin: number): void {
    const seconds = (performance.now() - begin) / 1000;
    // Other work can only make it slower.
    if (seconds > 0.05) this.#rates.set(to, Math.max(this.#rates.get(to) ?? 0, elements / seconds));
  }

  /** Estimated seconds of saving: as the last save to this target in this browser, or as the worker that measured. */
  seconds({ to }: ModelChoice, plan: ModelPlan): number | undefined {
    const measured = this.#rates.get(to);
    const rate = savedRates()[to] ?? (measured && measured * savingWorkers);
    return rate === undefined ? undefined : convertedNumbers(plan) / rate;
  }

  /** Learns from a save how long the next one takes. */
  saved({ to }: ModelChoice, plan: ModelPlan, seconds: number): void {
    const rate = convertedNumbers(plan) / Math.max(seconds, 1e-3);
    // Starting workers outweighs a short save.
    if (seconds > 1) remember(ratesName, JSON.stringify({ ...savedRates(), [to]: Math.round(rate) }));
  }

  /** Estimates the time of saving from a piece of the two largest tensors. */
  async time(choice: ModelChoice, { tensors }: ModelPlan, signal: AbortSignal): Promise<void> {
    const sizeOf = ({ shape }: { shape: readonly number[] }) => countNumbers(shape);
    const converted = tensors.filter(({ kept }) => kept === undefined).sort((a, b) => sizeOf(b) - sizeOf(a));
    const [first, second] = converted;
    if (this.#rates.has(choice.to) || first === undefined || second === undefined || sizeOf(second) < 2 ** 18) return;
    const { rules = [], ...options } = await this.options(choice);
    const others = {
      match: `^(?!(${[first, second].map(({ name }) => escaped(name)).join('|')})$)`,
      keep: true,
    };
    let begin: number | undefined;
    await estimateModel(inputOf(this.#model.files), {
      ...options,
      rules: [others as Rule, ...rules],
      sample: timedNumbers,
      workers: this.#workers,
      signal,
      // The first one waits for the worker to start, so the other one counts.
      onProgress: () => {
        begin ??= performance.now();
      },
    });
    if (begin !== undefined) this.#timed(choice, Math.min(timedNumbers, sizeOf(second)), begin);
  }

  /** Result of a preset with the other choices: sizes at once, errors as far as they are known. */
  async offer(preset: Preset, current: ModelChoice): Promise<{ offer: Offer; choice: ModelChoice; plan?: ModelPlan }> {
    const format = presetFormat(this.#model, current.to);
    const choice = withPreset(format, current, preset);
    try {
      const plan = await this.plan(choice);
      return { offer: this.#offerOf(choice, plan), choice, plan };
    } catch (error) {
      if (isAboutCodes(error)) return { offer: { to: choice.to, isQuantized: true }, choice };
      return { offer: { to: choice.to, obstacle: obstacleOf(error) }, choice };
    }
  }

  #offerOf(choice: ModelChoice, plan: ModelPlan): Offer {
    const { bytesAfter, bytesBefore, quantized, cast } = plan.totals;
    const known = this.isMeasured(choice, plan) ? this.known(choice) : undefined;
    const errors = known === undefined ? {} : { errors: known.errors, exact: known.exact };
    return { to: choice.to, bytesAfter, bytesBefore, converted: quantized + cast, ...errors };
  }
}

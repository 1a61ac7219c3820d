// Fits the types of tensors to a size, in a worker.
import { type PlanOptions, presetTarget } from 'scalepoint/model';
import { presets } from '../../src/tooling.js';
import { callWorker, isEnded } from '../shared/calls.js';
import type { ModelFile } from '../shared/files.js';
import { type Fit, formatFor, type ModelChoice, optionsOf, settingsKey, withSize, withTarget } from './choice.js';
import { inPageWords } from './explain.js';
import type { SizeCalls, SizeView } from './size-worker.js';
import { bytesIn, isQuick, type SizeCurve } from './sizes.js';
import { presetTitles, secondsLeft } from './wording.js';
import { packageError } from './workers.js';

/** Finds the types of one model for sizes. A worker measures the model once for each set of options, and keeps the tables. */
export class Sizer {
  readonly #model: ModelFile;
  readonly #draw: (sizes: SizeCurve) => void;
  readonly #worker = callWorker<SizeCalls>(
    () => new Worker(new URL('./size-worker.ts', import.meta.url), { type: 'module' }),
    { work: 'measures sizes', errorOf: packageError, onLost: (error) => this.#fail(error) },
  );
  #sizes: SizeCurve = { kind: 'open' };
  /** Key of the table that the worker has or measures. */
  #key = '';
  /** Tensors that were not measured because they were kept. */
  #kept: ReadonlySet<string> = new Set();
  /** The tensors that are kept in the curve on the page. */
  #shown = '';
  #measuring: Promise<void> = Promise.resolve();
  readonly #fits = new Map<string, Promise<Fit>>();

  /** @param draw gets the curve whenever it changes */
  constructor(model: ModelFile, draw: (sizes: SizeCurve) => void) {
    this.#model = model;
    this.#draw = draw;
  }

  get sizes(): SizeCurve {
    return this.#sizes;
  }

  #set(sizes: SizeCurve): void {
    this.#sizes = sizes;
    this.#draw(sizes);
  }

  /** True if measuring takes a moment only, and downloads nothing. */
  get isQuick(): boolean {
    return isQuick(this.#model);
  }

  /** The choice with a size, minus the size: the options of the table. */
  #base(choice: ModelChoice): ModelChoice {
    const { size: _, ...base } = choice.size === undefined ? withSize(this.#model, choice, '1B') : choice;
    return base;
  }

  #isKnown(choice: ModelChoice): boolean {
    const { kept } = choice;
    return this.#key === keyOf(this.#base(choice)) && [...this.#kept].every((name) => kept.has(name));
  }

  /** Takes note of a choice. Drops measurements for other options. */
  follow(choice: ModelChoice): void {
    if (this.#sizes.kind === 'open') return;
    if (!this.#isKnown(choice)) this.cancel();
    else if ([...choice.kept].join() !== this.#shown) {
      const view = this.#view(this.#base(choice));
      this.#measuring
        .then(() => this.#worker.call('view', view))
        .then(
          (sizes) => this.#set(sizes),
          (error: unknown) => this.#fail(error),
        );
    }
  }

  /** The request for the curve of a choice, without its size. */
  #view(base: ModelChoice): SizeView {
    const format = formatFor(this.#model, base.to);
    this.#shown = [...base.kept].join();
    return {
      kept: [...base.kept],
      presets: presets.map((preset) => {
        const options = optionsOf(format, withTarget(format, base, presetTarget(format, preset)));
        return { label: presetTitles[preset], options: options as PlanOptions };
      }),
    };
  }

  /** Measures all types, unless that is done or under way. */
  measure(choice: ModelChoice): Promise<void> {
    if (this.#isKnown(choice)) return this.#measuring;
    this.cancel();
    const base = this.#base(choice);
    this.#key = keyOf(base);
    this.#kept = base.kept;
    const format = formatFor(this.#model, base.to);
    const question = { files: this.#model.files, options: optionsOf(format, base), view: this.#view(base) };
    this.#set({ kind: 'measuring', share: 0, secondsLeft: undefined });
    const begin = performance.now();
    this.#measuring = this.#worker
      .call('measure', question, ({ bytesDone, bytesTotal }) => {
        const share = bytesDone / Math.max(1, bytesTotal);
        this.#set({ kind: 'measuring', share, secondsLeft: secondsLeft(share, begin) });
      })
      .then((sizes) => this.#set(sizes));
    // Requests for a fit reject on failure. The page draws it in any case.
    this.#measuring.catch((error: unknown) => this.#fail(error));
    return this.#measuring;
  }

  #fail(error: unknown): void {
    if (isEnded(error)) return;
    this.#key = '';
    this.#set({ kind: 'failed', message: inPageWords(error) });
  }

  /** Drops all measurements, and stops measuring. */
  cancel(): void {
    this.#worker.end();
    this.#key = '';
    this.#fits.clear();
    if (this.#sizes.kind !== 'open') this.#set({ kind: 'open' });
  }

  /** The types for the size of a choice. Measures them first if needed. */
  fit(choice: ModelChoice): Promise<Fit> {
    const key = JSON.stringify([keyOf(choice), choice.size, [...choice.kept].sort()]);
    const known = this.#isKnown(choice) ? this.#fits.get(key) : undefined;
    if (known !== undefined) return known;
    const found = this.#find(choice);
    this.#fits.set(key, found);
    found.catch(() => this.#fits.delete(key));
    return found;
  }

  async #find(choice: ModelChoice): Promise<Fit> {
    await this.measure(choice);
    const base = this.#base(choice);
    return this.#worker.call('fit', {
      options: optionsOf(formatFor(this.#model, base.to), base),
      bytes: bytesIn(choice.size ?? '') ?? 0,
      kept: [...choice.kept],
    });
  }
}

/** Key of choices with the same table. Keeping a tensor does not change it. */
const keyOf = (choice: ModelChoice) => JSON.stringify(settingsKey(choice));

// Fits the types of tensors to a size, in a worker.
import { type PlanOptions, presetTarget } from 'scalepoint/model';
import { presets } from '../../src/tooling.js';
import type { ModelFile } from '../shared/files.js';
import { lostWorker } from '../shared/problems.js';
import { type Fit, formatFor, type ModelChoice, optionsOf, statisticsKey, withSize, withTarget } from './choice.js';
import { inPageWords } from './explain.js';
import { errorOf } from './failure.js';
import { presetTitles } from './offers-panel.js';
import type { SizeAnswer, SizeQuestion, SizeView } from './size-worker.js';
import { bytesIn, isQuick, type SizeCurve } from './sizes.js';

/** The share that is done before the time left is shown. */
const leastShare = 0.02;

/** Callbacks of a request to the worker. */
interface WaitingRequest {
  readonly done: (fit: Fit) => void;
  readonly fail: (error: unknown) => void;
}

/** Finds the types of one model for sizes. A worker measures the model once for each set of options, and keeps the tables. */
export class Sizer {
  readonly #model: ModelFile;
  readonly #draw: (sizes: SizeCurve) => void;
  #worker: Worker | undefined;
  #sizes: SizeCurve = { kind: 'open' };
  /** Key of the table that the worker has or measures. */
  #key = '';
  /** Tensors that were not measured because they were kept. */
  #kept: ReadonlySet<string> = new Set();
  /** The tensors that are kept in the curve on the page. */
  #shown = '';
  #measuring: Promise<void> = Promise.resolve();
  #stop: ((reason: unknown) => void) | undefined;
  #id = 0;
  readonly #waiting = new Map<number, WaitingRequest>();
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

  /** True if measuring takes a moment only. */
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
    else if ([...choice.kept].join() !== this.#shown) this.#ask({ kind: 'view', view: this.#view(this.#base(choice)) });
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
    this.#measuring = new Promise((done, fail) => {
      this.#stop = fail;
      this.#start(done, fail);
    });
    // Requests for a fit reject on failure. The page draws it in any case.
    this.#measuring.catch(() => {});
    const format = formatFor(this.#model, base.to);
    this.#ask({
      kind: 'measure',
      files: this.#model.files,
      options: optionsOf(format, base),
      view: this.#view(base),
    });
    return this.#measuring;
  }

  #ask(question: SizeQuestion): void {
    this.#worker?.postMessage(question);
  }

  #start(done: () => void, fail: (error: unknown) => void): void {
    const failed = (error: unknown) => {
      this.#key = '';
      this.#set({ kind: 'failed', message: inPageWords(error) });
      fail(error);
      for (const one of this.#waiting.values()) one.fail(error);
      this.#waiting.clear();
    };
    this.#set({ kind: 'measuring', share: 0, secondsLeft: undefined });
    const begin = performance.now();
    const worker = new Worker(new URL('./size-worker.ts', import.meta.url), { type: 'module' });
    this.#worker = worker;
    worker.onerror = () => failed(new Error(lostWorker('measures sizes')));
    worker.onmessage = ({ data }: MessageEvent<SizeAnswer>) => {
      if (data.kind === 'progress') {
        const share = data.bytesDone / Math.max(1, data.bytesTotal);
        const seconds = (performance.now() - begin) / 1000;
        const secondsLeft = share > leastShare ? (seconds / share) * (1 - share) : undefined;
        this.#set({ kind: 'measuring', share, secondsLeft });
      } else if (data.kind === 'measured') {
        this.#set(data.sizes);
        done();
      } else if (data.kind === 'fit') {
        this.#waiting.get(data.id)?.done(data.fit);
        this.#waiting.delete(data.id);
      } else {
        const { id } = data;
        const error = errorOf(data);
        if (id === undefined) return failed(error);
        this.#waiting.get(id)?.fail(error);
        this.#waiting.delete(id);
      }
    };
  }

  /** Drops all measurements, and stops measuring. */
  cancel(): void {
    const reason = new DOMException('cancelled', 'AbortError');
    this.#worker?.terminate();
    this.#worker = undefined;
    this.#key = '';
    this.#stop?.(reason);
    this.#stop = undefined;
    for (const { fail } of this.#waiting.values()) fail(reason);
    this.#waiting.clear();
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
    const id = ++this.#id;
    const found = new Promise<Fit>((done, fail) => this.#waiting.set(id, { done, fail }));
    this.#ask({
      kind: 'fit',
      id,
      options: optionsOf(formatFor(this.#model, base.to), base),
      bytes: bytesIn(choice.size ?? '') ?? 0,
      kept: [...choice.kept],
    });
    return found;
  }
}

/** Key of choices with the same table. Keeping a tensor does not change it. */
const keyOf = (choice: ModelChoice) => JSON.stringify([choice.to, choice.words, choice.rules, statisticsKey(choice)]);

// The queue of comparisons of outputs, and the worker that makes them.
import { type ModelFormat, type PlanOptions, presetTarget, ScalepointError } from 'scalepoint/model';
import type { OutputsKind } from '../../src/tooling.js';
import { callWorker } from '../shared/calls.js';
import type { ModelFile } from '../shared/files.js';
import { recall, remember } from '../shared/remember.js';
import { formatFor, infoOf, type ModelChoice, presetFormat, settingsKey, withTarget } from './choice.js';
import { inPageWords } from './explain.js';
import {
  type JudgedType,
  type OutputsData,
  type OutputsProgress,
  rateOf,
  secondsFor,
  tokenChoices,
  usualRate,
} from './outputs.js';
import type { OutputsCalls } from './outputs-worker.js';
import { countNumbers, totalBytes } from './sizes.js';
import { packageError } from './workers.js';

/** A type to compare. */
export interface WantedType extends Pick<JudgedType, 'key' | 'label' | 'settings'> {
  readonly choice: ModelChoice;
}

/** The end of the last request, if it did not give a result. */
type Ending =
  | { readonly kind: 'cancelled' }
  | { readonly kind: 'failed'; readonly label: string; readonly message: string };

/** Everything about comparing outputs of one model. */
export interface JudgeState {
  readonly data: OutputsData;
  /** Every type that was compared, by key. */
  readonly judged: ReadonlyMap<string, JudgedType>;
  /** Keys of the types in the picture. */
  readonly shown: ReadonlySet<string>;
  /** The types to compare. The first one is being compared. */
  readonly queue: readonly WantedType[];
  readonly progress: OutputsProgress | undefined;
  /** Time when the current step began, by `performance.now()`. */
  readonly stepBegin: number;
  readonly ending: Ending | undefined;
}

const initial: JudgeState = {
  data: { kind: 'texts', text: undefined, tokenizer: [], tokens: tokenChoices[0] ?? 256, inputs: undefined, sizes: {} },
  judged: new Map(),
  shown: new Set(),
  queue: [],
  progress: undefined,
  stepBegin: 0,
  ending: undefined,
};

const fileKey = (file: File | undefined) => file && [file.name, file.size, file.lastModified];

/** Key of the result of a choice. */
export const resultKey = (choice: ModelChoice): readonly unknown[] => [
  ...[settingsKey(choice), choice.size],
  [...choice.kept].sort(),
];

/** Key of a choice with some data. */
function keyOf(choice: ModelChoice, { kind, text, tokens, inputs, sizes }: OutputsData): string {
  return JSON.stringify([
    ...resultKey(choice),
    kind,
    fileKey(text),
    tokens,
    fileKey(inputs),
    Object.entries(sizes).sort(),
  ]);
}

/** The target that restores the codes of a format to floats. */
export const floatsFor = (format: ModelFormat): string => presetTarget(format, 'safe');

/** The settings of a choice beside its type: `group-size 32, with rules`. */
function settingsOf({ words, rules, kept, statistics }: ModelChoice): string {
  const flags = Object.entries(words).map(([name, value]) => (value === true ? name : `${name} ${value}`));
  const methods = { gptq: 'GPTQ', importance: 'importance', fold: 'norms folded' } as const;
  const data = statistics === undefined ? [] : [methods[statistics.method]];
  return [...flags, ...data, ...(rules.length + kept.size > 0 ? ['with rules'] : [])].join(', ');
}

/** Compares outputs of one model, a type after the other. */
export class Judge {
  readonly #model: ModelFile;
  /** The ways to compare its outputs. */
  readonly kind: OutputsKind;
  readonly #optionsOf: (model: ModelFile, choice: ModelChoice) => Promise<PlanOptions>;
  readonly #draw: () => void;
  #state = initial;
  readonly #worker = callWorker<OutputsCalls>(
    () => new Worker(new URL('./outputs-worker.ts', import.meta.url), { type: 'module' }),
    { work: 'compares outputs', errorOf: packageError },
  );

  /**
   * @param optionsOf options of `quantizeModel` for a choice
   * @param draw called whenever the state has changed
   */
  constructor(
    model: ModelFile,
    kind: OutputsKind,
    optionsOf: (model: ModelFile, choice: ModelChoice) => Promise<PlanOptions>,
    draw: () => void,
  ) {
    this.#model = model;
    this.kind = kind;
    this.#optionsOf = optionsOf;
    this.#draw = draw;
    // Without a tokenizer a text means nothing, so arrays are the usual data if the model takes both.
    const usual = kind.takesTexts && (!kind.takesArrays || this.hasTokenizer) ? 'texts' : 'arrays';
    this.#state = { ...initial, data: { ...initial.data, kind: usual } };
  }

  get state(): JudgeState {
    return this.#state;
  }

  #set(change: Partial<JudgeState>): void {
    this.#state = { ...this.#state, ...change };
    this.#draw();
  }

  /** True if there is a tokenizer: in the file of the model, beside it, or one that was chosen. */
  get hasTokenizer(): boolean {
    if (this.kind.hasVocabulary === true) return true;
    return [...this.#model.files, ...this.#state.data.tokenizer].some(({ name }) => name === 'tokenizer.json');
  }

  /** Name under which the speed of this device is remembered. */
  get #rateName(): string {
    return this.kind.takesArrays ? 'runtime-rate' : 'outputs-rate';
  }

  /** Number of weights in matrices, which a text passes. */
  get #weights(): number {
    const matrices = this.#model.tensors.filter(({ shape }) => shape.length > 1);
    return matrices.reduce((sum, { shape }) => sum + countNumbers(shape), 0);
  }

  /** Estimated seconds of running both models; undefined if it cannot be predicted. */
  get expectedSeconds(): number | undefined {
    if (this.#state.data.kind === 'arrays') return [...this.#state.judged.values()].at(-1)?.seconds;
    const rate = Number(recall(this.#rateName)) || usualRate;
    return secondsFor(this.#weights, this.#state.data.tokens, rate);
  }

  wanted(choice: ModelChoice): WantedType {
    return {
      key: keyOf(choice, this.#state.data),
      label: choice.size ?? choice.to,
      settings: settingsOf(choice),
      choice,
    };
  }

  /** The result for a choice, if it is known. */
  resultOf(choice: ModelChoice): JudgedType | undefined {
    return this.#state.judged.get(this.wanted(choice).key);
  }

  /** The usual types of the format, with the other settings of a choice. */
  offered(choice: ModelChoice): readonly WantedType[] {
    const format = presetFormat(this.#model, choice.to);
    const all = infoOf(format).targets.filter(({ copies }) => copies !== true);
    const usual = all.filter(({ preset, isUsual }) => preset !== undefined || isUsual === true);
    // A format with few targets does not say which ones are usual.
    const offered = all.some(({ isUsual }) => isUsual) ? usual : all;
    return offered.map(({ name }) => this.wanted(withTarget(format, choice, name as ModelChoice['to'])));
  }

  /** Sizes of dimensions that the model leaves open, as they were chosen or guessed. Known once it has been run. */
  get sizes(): Readonly<Record<string, number>> {
    const last = [...this.#state.judged.values()].at(-1)?.judgment;
    return last?.kind === 'arrays' ? { ...last.figures.guessedSizes, ...this.#state.data.sizes } : {};
  }

  /** Runs with other data. Results for the former data are kept for the case that they come back. */
  use(data: Partial<OutputsData>): void {
    this.cancel(false);
    this.#set({ data: { ...this.#state.data, ...data }, shown: new Set(), ending: undefined });
  }

  /** Puts a type into the picture: at once if it was compared before. */
  add(wanted: WantedType): void {
    const { judged, shown, queue } = this.#state;
    if (queue.some(({ key }) => key === wanted.key)) return;
    if (judged.has(wanted.key)) {
      this.#set({ shown: new Set([...shown, wanted.key]) });
      return;
    }
    this.#set({ queue: [...queue, wanted], ending: undefined });
    if (queue.length === 0) void this.#next();
  }

  /** Takes a type out of the picture, or out of the queue. */
  remove({ key }: WantedType): void {
    const { shown, queue } = this.#state;
    const left = new Set(shown);
    left.delete(key);
    this.#set({ shown: left, queue: queue.filter((one) => one.key !== key) });
    if (queue[0]?.key !== key) return;
    this.#worker.end();
    this.#set({ progress: undefined });
    void this.#next();
  }

  /** Stops, and forgets the types that wait. */
  cancel(isAsked = true): void {
    const worked = this.#state.queue.length > 0;
    this.#worker.end();
    if (worked) this.#set({ queue: [], progress: undefined, ...(isAsked && { ending: { kind: 'cancelled' } }) });
  }

  #messageOf(error: unknown): string {
    if (!(error instanceof ScalepointError && error.code === 'RUNTIME')) return inPageWords(error);
    const text = `${error.statement} (A is the original, B the result)`;
    // Its hint is about sizes of inputs that were guessed. The page has no option for them.
    return error.hint === undefined ? text : `${text}. A .npz file with inputs of other shapes may work`;
  }

  async #next(): Promise<void> {
    const [wanted] = this.#state.queue;
    if (wanted === undefined) {
      this.#worker.end();
      return;
    }
    const { data } = this.#state;
    // Make and run the result.
    this.#set({ progress: { step: 'quantize', share: 0 }, stepBegin: performance.now() });
    try {
      const options = await this.#optionsOf(this.#model, wanted.choice);
      if (this.#state.queue[0] !== wanted) return;
      const floats = floatsFor(formatFor(this.#model, wanted.choice.to));
      const question = {
        ...data,
        needsRuntime: this.kind.takesArrays,
        files: this.#model.files,
        options,
        floats,
      };
      const { judgment, bytes, seconds } = await this.#worker.call(data.kind, question, (progress) => {
        const isNew = progress.step !== this.#state.progress?.step;
        this.#set({ progress, ...(isNew && { stepBegin: performance.now() }) });
      });
      if (this.#state.queue[0] !== wanted) return;
      // Keep the rate for later estimates, and the result.
      if (judgment.kind === 'texts') {
        const rate = rateOf(this.#weights, judgment.figures.tokens, seconds);
        if (rate !== undefined) remember(this.#rateName, rate.toExponential(2));
      }
      const { judged, shown, queue } = this.#state;
      const { key, label, settings } = wanted;
      const bytesBefore = totalBytes(this.#model.files);
      const one = { key, label, settings, bytes, bytesBefore, seconds, judgment };
      this.#set({
        judged: new Map([...judged, [key, one]]),
        shown: new Set([...shown, key]),
        queue: queue.slice(1),
        progress: undefined,
      });
    } catch (error) {
      // Show the failure, and go on.
      if (this.#state.queue[0] !== wanted) return;
      this.#set({
        queue: this.#state.queue.slice(1),
        progress: undefined,
        ending: { kind: 'failed', label: wanted.label, message: this.#messageOf(error) },
      });
    }
    void this.#next();
  }
}

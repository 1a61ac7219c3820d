// The open model: reads it, plans it anew after each choice, and keeps its state.
import type { ModelPlan, PlanOptions } from 'scalepoint/model';
import { type OutputsKind, outputsKind, type Preset, presets } from '../../src/tooling.js';
import {
  FileError,
  headOf,
  looksLikeText,
  type ModelFile,
  mainFile,
  modelExtensions,
  openModelFiles,
  strangerOf,
} from '../shared/files.js';
import { announce } from '../shared/live.js';
import type { PageProblem } from '../shared/problems.js';
import { recall, remember } from '../shared/remember.js';
import type { Store } from '../shared/store.js';
import { visit } from '../shared/visit.js';
import {
  choiceOf,
  formatIn,
  hashOf,
  type ModelChoice,
  presetFormat,
  usualFormat,
  withPreset,
  withSize,
} from './choice.js';
import { explain, isAboutCodes } from './explain.js';
import { withFolder } from './folders.js';
import { firstLook, type Look, startLooking } from './look.js';
import { Measurer } from './measure.js';
import { openEach } from './several.js';
import { Sizer } from './sizer.js';
import { initialState, type State, tensorsOf } from './state.js';
import { savingWorkers } from './workers.js';

/** A model that was opened, with its facts and measurements. */
interface OpenedModel {
  readonly model: ModelFile;
  readonly outputs: OutputsKind | undefined;
  readonly measurer: Measurer;
  readonly sizer: Sizer;
  choice: ModelChoice;
}

/** Changes of the choice within this time make one step of the history. */
const stepMilliseconds = 1500;

/** The visitor's actions on models, apart from saving. They change the state, which is then drawn. */
export class ModelSession {
  readonly #store: Store<State>;
  /** Every model of this visit, for going back and forward. */
  readonly #opened: OpenedModel[] = [];
  #current = -1;
  #measuring = new AbortController();
  #lastStep = Number.NEGATIVE_INFINITY;
  /** Number of the newest request to open files. */
  #request = 0;
  readonly #ask: ReturnType<typeof startLooking>;

  constructor(store: Store<State>) {
    this.#store = store;
    this.#ask = startLooking(
      (answer) => this.#changeLook({ answer }),
      (problem) => this.#changeLook({ problem }),
    );
    addEventListener('popstate', () => this.#return());
  }

  // ------------------------------------------------------------------------------------------------------- opening and closing

  /** Opens files. After a failure the previous model stays open. */
  async open(files: readonly File[]): Promise<void> {
    const request = ++this.#request;
    const { name } = mainFile(files);
    this.#store.set({ opening: name, problem: undefined });
    try {
      const found = await openModelFiles(files);
      if (request !== this.#request) return;
      if (found === undefined) {
        this.#store.set({ opening: undefined, problem: await whyNot(files) });
        return;
      }
      const model = await withFolder(found);
      const outputs = await outputsKind([...model.files]).catch(() => undefined);
      if (request !== this.#request) return;
      const wanted = this.#wantedFor(model);
      const choice = choiceOf(formatIn(model, wanted), wanted);
      const sizer: Sizer = new Sizer(model, (sizes) => {
        if (this.#opened[this.#current]?.sizer === sizer) this.#store.set({ sizes });
      });
      const at = this.#opened.push({ model, outputs, measurer: new Measurer(model, sizer), sizer, choice }) - 1;
      const hash = hashOf(usualFormat(model), choice);
      history.pushState({ model: at }, '', `${location.pathname}${hash && `#${hash}`}`);
      this.#show(at);
    } catch (error) {
      const several = error instanceof FileError ? await openEach(files) : undefined;
      if (request !== this.#request) return;
      if (several !== undefined) this.#showSeveral(several);
      else this.#store.set({ opening: undefined, problem: explain(error) });
    }
  }

  /** The settings for a model that is opened, as in a link: those of the model before it, of the address, or of the last visit. */
  #wantedFor(model: ModelFile): string {
    const before = this.#opened[this.#current];
    if (before === undefined) return location.hash || (sizedFor(model) ?? recall('model'));
    return sizedFor(model) ?? hashOf(usualFormat(before.model), forAny(before.choice));
  }

  /** Lists several models in place of one. */
  #showSeveral(several: readonly ModelFile[]): void {
    if (this.#store.get().run.kind === 'running') return;
    if (this.#current >= 0) history.pushState({ model: -1 }, '', location.pathname);
    this.#show(-1);
    this.#store.set({ several });
    announce(`${several.length} models are open`, 0);
  }

  /** Closes the list of several models. */
  closeSeveral(): void {
    this.#store.set({ several: undefined });
  }

  /** Closes the model. Going back opens it again. */
  close(): void {
    if (this.#store.get().model === undefined) return;
    history.pushState({ model: -1 }, '', location.pathname);
    this.#show(-1);
    announce('Model closed', 0);
  }

  #return(): void {
    const at = (history.state as { model?: number } | null)?.model ?? -1;
    const opened = this.#opened[at];
    if (opened !== undefined) opened.choice = choiceOf(formatIn(opened.model, location.hash), location.hash);
    this.#show(at);
  }

  #show(at: number): void {
    this.#measuring.abort();
    if (at !== this.#current) this.#opened[this.#current]?.sizer.cancel();
    this.#current = at;
    const opened = this.#opened[at];
    const { sort, columns, run } = this.#store.get();
    if (run.kind === 'running') return;
    const { model: shown, outputs, choice } = opened ?? {};
    this.#store.set({ ...initialState, sort, columns, model: shown, outputs, choice });
    if (opened === undefined) return;
    const { model, sizer } = opened;
    this.#store.set({ sizes: sizer.sizes });
    announce(`${model.name} is open, ${model.tensors.length} tensors`, 0);
    void this.#update(true);
  }

  // --------------------------------------------------------------------------------------------------------------- the choice

  /** Applies a choice. */
  choose(choice: ModelChoice): void {
    const opened = this.#opened[this.#current];
    if (opened === undefined || this.#store.get().run.kind === 'running') return;
    opened.choice = choice;
    const hash = hashOf(usualFormat(opened.model), choice);
    const address = `${location.pathname}${hash && `#${hash}`}`;
    rememberChoice(opened.model, choice);
    const now = performance.now();
    if (now - this.#lastStep < stepMilliseconds) history.replaceState({ model: this.#current }, '', address);
    else history.pushState({ model: this.#current }, '', address);
    this.#lastStep = now;
    this.#store.set({ choice, run: { kind: 'none' }, problem: undefined, fit: undefined });
    opened.sizer.follow(choice);
    void this.#update(false);
  }

  /** Chooses a size. */
  chooseSize(size: string): void {
    const opened = this.#opened[this.#current];
    if (opened !== undefined) this.choose(withSize(opened.model, opened.choice, size));
  }

  /** Measures the loss at each size. */
  measureSizes(): void {
    const opened = this.#opened[this.#current];
    if (opened !== undefined) void opened.sizer.measure(opened.choice).catch(() => {});
  }

  /** Stops measuring sizes. A chosen size depends on it, so the usual choice replaces it. */
  cancelSizes(): void {
    const opened = this.#opened[this.#current];
    if (opened === undefined) return;
    const { model, choice, sizer } = opened;
    const format = presetFormat(model, choice.to);
    if (choice.size !== undefined) this.choose(withPreset(format, choice, 'balanced'));
    sizer.cancel();
  }

  /** Options for the package, for a choice of the open model. */
  async options(choice: ModelChoice): Promise<PlanOptions> {
    const opened = this.#opened[this.#current];
    if (opened === undefined) throw new TypeError('there is no model');
    return opened.measurer.options(choice);
  }

  /** Keeps a tensor as it is, or no longer. */
  keep(name: string): void {
    const { choice } = this.#store.get();
    if (choice === undefined) return;
    const kept = new Set(choice.kept);
    const isKept = !kept.delete(name);
    if (isKept) kept.add(name);
    this.choose({ ...choice, kept });
    announce(isKept ? `${name} stays as it is` : `${name} is converted`, 0);
  }

  /** Takes back the last tensor that was kept by hand. */
  undoKeep(): void {
    const last = [...(this.#store.get().choice?.kept ?? [])].at(-1);
    if (last !== undefined) this.keep(last);
  }

  /** Starts from the values of the codes of a file that is quantized already. */
  quantizeAgain(): void {
    const { choice } = this.#store.get();
    if (choice !== undefined) this.choose({ ...choice, words: { ...choice.words, requantize: true } });
  }

  /** Plans the choice and the presets, and measures them: first samples, then the choice as a whole. */
  async #update(isNew: boolean): Promise<void> {
    const opened = this.#opened[this.#current];
    if (opened === undefined) return;
    this.#measuring.abort();
    this.#measuring = new AbortController();
    const { signal } = this.#measuring;
    const { choice, measurer, sizer } = opened;
    const known = measurer.known(choice)?.errors ?? new Map();
    try {
      // Plan, and show the plan.
      const plan = await measurer.plan(choice);
      const fit = choice.size === undefined ? undefined : await sizer.fit(choice);
      if (signal.aborted) return;
      this.#store.set({ plan, errors: known, fit, isQuantized: false });
      if (isNew) this.#lookAtFirst();
      else this.#followPlan();
      await this.#offers(opened, signal);
      // Measure samples, then the presets and the time.
      if (!measurer.isMeasured(choice, plan)) {
        this.#store.set({ measuring: 'sample' });
        const { errors } = await measurer.measure(choice, undefined, signal);
        this.#store.set({ errors });
      }
      await this.#offers(opened, signal, true);
      await measurer.time(choice, plan, signal).catch(() => {});
      if (signal.aborted) return;
      this.#store.set({ expectedSeconds: expectedSeconds(measurer, plan) });
      // Measure everything where that is quick.
      if (plan.totals.quantized + plan.totals.cast > 0 && measurer.canBeExact(choice)) {
        this.#store.set({ measuring: 'all' });
        const { errors } = await measurer.measure(choice, Number.POSITIVE_INFINITY, signal);
        this.#store.set({ errors, expectedSeconds: expectedSeconds(measurer, plan) });
        await this.#offers(opened, signal);
      }
      if (sizer.isQuick && !signal.aborted) await sizer.measure(choice).catch(() => {});
    } catch (error) {
      // Explain the error, and drop a plan that does not belong to the choice.
      if (signal.aborted) return;
      const keep = (name: string) => this.keep(name);
      if (isAboutCodes(error)) this.#store.set({ isQuantized: true, plan: undefined });
      else this.#store.set({ problem: explain(error, keep) });
      const { plan } = this.#store.get();
      if (plan !== undefined && plan.to !== choice.to) this.#store.set({ plan: undefined });
      await this.#offers(opened, signal, true).catch(() => {});
    } finally {
      if (!signal.aborted) this.#store.set({ measuring: 'no' });
    }
  }

  /** Fills in the results of the presets. Measures them too if `measures`. */
  async #offers({ measurer, choice: current }: OpenedModel, signal: AbortSignal, measures = false): Promise<void> {
    const set = (preset: Preset, offer: State['offers'][Preset]) => {
      if (!signal.aborted) this.#store.set({ offers: { ...this.#store.get().offers, [preset]: offer } });
    };
    for (const preset of presets) {
      const { offer, choice, plan } = await measurer.offer(preset, current);
      set(preset, offer);
      if (!measures || plan === undefined || measurer.isMeasured(choice, plan)) continue;
      this.#store.set({ measuring: 'sample' });
      await measurer.measure(choice, undefined, signal).catch(() => {});
      if (signal.aborted) return;
      set(preset, (await measurer.offer(preset, current)).offer);
    }
  }

  /** Stops measuring, to leave the processors to saving. */
  rest(): void {
    this.#measuring.abort();
    const opened = this.#opened[this.#current];
    // A chosen size needs its measurements.
    if (opened?.sizer.sizes.kind === 'measuring' && opened.choice.size === undefined) opened.sizer.cancel();
    this.#store.set({ measuring: 'no' });
  }

  /** Stores the errors of a result. */
  learn(errors: State['errors']): void {
    const opened = this.#opened[this.#current];
    if (opened === undefined) return;
    this.#store.set({ errors: opened.measurer.learn(opened.choice, errors, true).errors });
    this.#measuring = new AbortController();
    // Saving has ended: measure the rest.
    const { signal } = this.#measuring;
    void this.#offers(opened, signal, true).finally(() => {
      if (signal.aborted) return;
      this.#store.set({ measuring: 'no' });
      if (opened.sizer.isQuick) void opened.sizer.measure(opened.choice).catch(() => {});
    });
  }

  // -------------------------------------------------------------------------------------------------------------- one tensor

  /** Looks at a tensor. */
  look(name: string): void {
    const tensor = tensorsOf(this.#store.get()).find((one) => one.name === name);
    if (tensor === undefined) return;
    this.#store.set({ look: firstLook(tensor) });
    this.#askAgain();
  }

  /** Looks at the same tensor in another way. */
  compare(change: Partial<Pick<Look, 'kinds' | 'stretch'>>): void {
    this.#changeLook(change.kinds === undefined ? change : { ...change, isChosen: true });
    this.#askAgain();
  }

  /** Shows the tensor as it is planned now, unless the visitor chose other types to compare. */
  #followPlan(): void {
    const { look } = this.#store.get();
    const tensor = tensorsOf(this.#store.get()).find(({ name }) => name === look?.name);
    if (look === undefined || look.isChosen || tensor === undefined) return;
    const { kinds } = firstLook(tensor);
    if (kinds.join() === look.kinds.join()) return;
    this.#changeLook({ kinds });
    this.#askAgain();
  }

  #lookAtFirst(): void {
    // On a narrow window the panel would come between the visitor and the table.
    if (!matchMedia('(min-width: 64rem)').matches) return;
    // A matrix that is converted is more interesting than a bias. A large one takes long to read.
    const sizeOf = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);
    const tensors = tensorsOf(this.#store.get());
    const first =
      tensors.find(({ shape, kept }) => kept === undefined && shape.length > 1 && sizeOf(shape) <= 2 ** 24) ??
      tensors.find(({ shape, from }) => /^B?F/.test(from) && sizeOf(shape) > 1 && sizeOf(shape) <= 2 ** 24);
    if (first !== undefined) this.look(first.name);
  }

  #changeLook(change: Partial<Look>): void {
    const { look } = this.#store.get();
    if (look === undefined) return;
    const { problem: _, ...rest } = look;
    this.#store.set({ look: { ...rest, ...change } });
  }

  #askAgain(): void {
    const { look, model } = this.#store.get();
    if (look === undefined || model === undefined) return;
    // A conversion may rename the tensor.
    const planned = tensorsOf(this.#store.get()).find(({ name }) => name === look.name);
    const name = planned?.sources?.[0] ?? look.name;
    this.#ask(model, `${this.#current} ${name}`, { ...look, name });
  }
}

/** A model that a size was chosen for, and the size. */
const sizeKey = ({ name, files }: ModelFile) => `${name} ${files.reduce((sum, { size }) => sum + size, 0)} `;

/** The part of a choice that applies to any model. Rules, kept tensors and sizes belong to one model. */
function forAny({ size: _, statistics: __, ...choice }: ModelChoice): ModelChoice {
  return { ...choice, kept: new Set(), rules: [] };
}

/** Remembers a choice for the next visit: its size for the same model, the rest for any. */
function rememberChoice(model: ModelFile, choice: ModelChoice): void {
  const format = usualFormat(model);
  const { size } = choice;
  if (size === undefined) remember('model', hashOf(format, forAny(choice)));
  remember('model-size', size === undefined ? '' : sizeKey(model) + hashOf(format, { ...forAny(choice), size }));
}

/** The remembered settings with a size, for one model. */
function sizedFor(model: ModelFile): string | undefined {
  const [key, sized] = [sizeKey(model), recall('model-size')];
  return sized.startsWith(key) ? sized.slice(key.length) : undefined;
}

/** Estimated seconds of saving, if workers are as fast as the one that measured. */
function expectedSeconds({ rate }: Measurer, { tensors }: ModelPlan): number | undefined {
  const sizes = tensors.map(({ shape, kept }) => (kept === undefined ? shape.reduce((a, b) => a * b, 1) : 0));
  return rate === undefined ? undefined : sizes.reduce((a, b) => a + b, 0) / rate / savingWorkers;
}

/** Explains why files are not a model, and what else can be done with them. */
async function whyNot(files: readonly File[]): Promise<PageProblem> {
  const title = 'That cannot be opened here';
  const file = mainFile(files);
  const supported = `This page reads ${modelExtensions()}.`;
  if (file.size === 0) return { title, text: `${file.name} is empty. ${supported}` };
  const head = await headOf(file);
  const stranger = strangerOf(head);
  if (stranger !== undefined) return { title, text: `${file.name} is ${stranger}. ${supported}` };
  if (!looksLikeText(head)) return { title, text: `${file.name} is not a model that this page knows. ${supported}` };
  return {
    title,
    text: `${file.name} is not a model. ${supported} If it holds numbers, “Your numbers” reads them.`,
    action: { label: 'Open in Your numbers', run: () => void visit('numbers/', files) },
  };
}

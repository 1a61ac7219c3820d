// The open model: reads it, plans it anew after each choice, and keeps its state.
import { type ModelFormat, type ModelPlan, type PlanOptions, presetTarget } from 'scalepoint/model';
import { outputsKind, type Preset, presets } from '../../src/tooling.js';
import { callWorker } from '../shared/calls.js';
import { type ModelFile, mainFile, titleOf } from '../shared/files.js';
import { formatMany } from '../shared/format.js';
import { askToRead, filesOf, type KeptModel, keepModel, keptModels, mayRead } from '../shared/kept.js';
import { announce } from '../shared/live.js';
import { inputOf } from '../shared/page-files.js';
import { failureText, type PageProblem, type ProblemAction, sentence } from '../shared/problems.js';
import { showCore } from '../shared/site.js';
import type { Store } from '../shared/store.js';
import { pageAddress } from './address.js';
import {
  choiceOf,
  formatFor,
  formatIn,
  infoOf,
  type ModelChoice,
  presetFormat,
  withPreset,
  withSize,
  withTarget,
} from './choice.js';
import { explain, explainHub, isAboutCodes } from './explain.js';
import { withFolders } from './folders.js';
import { openHubModel } from './hub.js';
import { planKind } from './kinds.js';
import { firstLook, kindLabel, type Look } from './look.js';
import { errorsKey, Measurer } from './measure.js';
import { showRecent } from './recent.js';
import { rememberChoice, rememberedFor } from './remembered.js';
import { isModel, openAll, type Thing } from './several.js';
import { type OpenedModel, Shown, type View } from './shown.js';
import { Sizer } from './sizer.js';
import { countNumbers } from './sizes.js';
import { type State, tensorsOf } from './state.js';
import type { LookCalls } from './worker.js';

/** A model that was opened, with its facts and measurements. */
interface MeasuredModel extends OpenedModel {
  readonly measurer: Measurer;
  readonly sizer: Sizer;
  /** False for a model on the hub, until the visitor wants its numbers to be downloaded. */
  mayMeasure: boolean;
}

/** The visitor's actions on models, apart from saving. They change the state, which is then drawn. */
export class ModelSession {
  readonly #store: Store<State>;
  readonly shown: Shown<MeasuredModel>;
  /** Number of the newest request to open files. */
  #request = 0;
  /** Number of the newest question about a tensor. */
  #lookRequest = 0;
  readonly #reader = callWorker<LookCalls>(
    () => new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' }),
    { work: 'reads tensors', onLost: (error) => this.#changeLook({ problem: sentence(error.message) }) },
  );

  constructor(store: Store<State>) {
    this.#store = store;
    this.shown = new Shown(
      store,
      pageAddress(),
      (view, isNew) => {
        const { model } = view.opened;
        if (isNew) announce(`${titleOf(model)} is open, ${model.tensors.length} tensors`, 0);
        void this.#update(view, isNew);
      },
      (id) => void this.#return(id),
    );
  }

  // ------------------------------------------------------------------------------------------------------- opening and closing

  /** Opens files. After a failure the previous model stays open. @param kept the step of an earlier visit that they are for */
  async open(files: readonly File[], kept?: { readonly id: string; readonly hash: string }): Promise<void> {
    const { name } = mainFile(files);
    const wish = files.length === 1 ? `open ${name}` : 'open the other files';
    const again = () => void this.open(files, kept);
    if (!this.shown.isFree(wish, again)) return;
    const request = ++this.#request;
    this.#store.set({ opening: name, problem: undefined });
    const found = await this.#read(files, kept?.hash).catch((error: unknown) => explain(error));
    if (request !== this.#request) return;
    this.#store.set({ opening: undefined });
    if ('title' in found) {
      if (this.shown.isFree(wish, again)) this.#store.set({ problem: found });
      return;
    }
    if (!this.shown.open(found, wish, again, kept?.id)) return;
    const models = 'length' in found ? found.filter(isModel) : [found.model];
    const title = 'length' in found ? formatMany(models.length, 'model') : titleOf(found.model);
    if ('length' in found) announce(`${title} are open`, 0);
    // Keep the handles, so that a later visit can open it again.
    const at = this.shown.key;
    const id = await keepModel(
      title,
      models.flatMap(({ files }) => files as readonly File[]),
    );
    if (id === undefined) return;
    this.shown.keep(at, id);
    void this.showRecent();
  }

  /** Opens something that was open before. Call it on a click, since the browser may ask. */
  async reopen(kept: KeptModel): Promise<void> {
    if (await askToRead(kept)) await this.#openAgain(kept);
  }

  /** Fetches or reads what was open before, and opens it. @param hash its settings @param request the one that it is part of */
  async #openAgain(kept: KeptModel, hash?: string, request = ++this.#request): Promise<void> {
    const files = await filesOf(kept).catch((error: unknown) => explain(error));
    if (request !== this.#request) return;
    if ('title' in files) this.#store.set({ problem: files });
    else await this.open(files, hash === undefined ? undefined : { id: kept.id, hash });
  }

  /** Lists what can be opened again, below the place for files. */
  showRecent(): Promise<void> {
    return showRecent((kept) => void this.reopen(kept));
  }

  /** Opens the place of a step of an earlier visit again, with the settings in its address. Asks where the browser demands it. */
  async #return(id: string): Promise<void> {
    const { hash } = location;
    const request = ++this.#request;
    const kept = (await keptModels()).find((one) => one.id === id);
    if (kept === undefined) return;
    const open = () => this.#openAgain(kept, hash, request);
    const isFree = await mayRead(kept);
    if (request !== this.#request || this.shown.key >= 0) return;
    if (isFree) return open();
    const run = () => void askToRead(kept).then((isGranted) => (isGranted ? open() : undefined));
    const text = 'The browser asks for your permission before this page may read it again.';
    const action = { label: `Open ${kept.name} again`, run };
    this.#store.set({ problem: { title: `${kept.name} was open here`, text, action, isExpected: true } });
  }

  /** Opens a model of the hub. After a failure the previous model stays open. */
  async openHub(text: string, endpoint: string): Promise<void> {
    const wish = `open ${text}`;
    const again = () => void this.openHub(text, endpoint);
    if (!this.shown.isFree(wish, again)) return;
    const request = ++this.#request;
    const { host } = new URL(endpoint);
    this.#store.set({ opening: `${text}, asking ${host}`, problem: undefined });
    const found = await openHubModel(text, endpoint)
      .then(async (model) => this.#opened(await withFolders(model)))
      .catch((error: unknown) => explainHub(error, (name) => void this.openHub(name, endpoint)));
    if (request !== this.#request) return;
    this.#store.set({ opening: undefined });
    if ('title' in found) {
      if (this.shown.isFree(wish, again)) this.#store.set({ problem: found });
    } else this.shown.open(found, wish, again);
  }

  /** Measures a model whose numbers are on the hub, now that the visitor asks for it. */
  measureErrors(): void {
    const view = this.shown.renew();
    if (view === undefined) return;
    view.opened.mayMeasure = true;
    void this.#update(view, false);
  }

  /** Reads the headers of files: one model, several things, or the reason why nothing can be opened. */
  async #read(files: readonly File[], hash?: string): Promise<MeasuredModel | readonly Thing[] | PageProblem> {
    const things = await openAll(files);
    const [only] = things;
    if (only === undefined || things.length > 1) return things;
    return isModel(only) ? this.#opened(await withFolders(only), hash) : only.problem;
  }

  /** @param hash its settings, if they are known */
  async #opened(model: ModelFile, hash?: string): Promise<MeasuredModel> {
    const outputs = await outputsKind(inputOf(model.files)).catch(() => undefined);
    const wanted = hash ?? this.#wantedFor(model);
    const choice = choiceOf(formatIn(model, wanted), wanted);
    const sizer: Sizer = new Sizer(model, (sizes) => this.shown.set(opened, { sizes }));
    const mayMeasure = model.hub === undefined;
    const opened: MeasuredModel = { model, outputs, measurer: new Measurer(model, sizer), sizer, choice, mayMeasure };
    return opened;
  }

  /** The settings for a model that is opened, as in a link: those of the model before it, of the address, or of the last visit. */
  #wantedFor(model: ModelFile): string {
    const { opened } = this.shown;
    return (opened === undefined && location.hash) || rememberedFor(model, opened);
  }

  /** Closes the model, or the list of several. Going back opens it again. */
  close(): void {
    const { several } = this.#store.get();
    if (this.shown.close()) announce(several === undefined ? 'Model closed' : 'Models closed', 0);
  }

  // --------------------------------------------------------------------------------------------------------------- the choice

  /** Applies a choice. Returns false if a save is in the way. */
  choose(choice: ModelChoice): boolean {
    const { opened } = this.shown;
    const isApplied = opened !== undefined && this.shown.choose(choice);
    if (isApplied) rememberChoice(opened.model, choice);
    return isApplied;
  }

  /** Chooses a preset. */
  choosePreset(preset: Preset): void {
    const { opened } = this.shown;
    if (opened === undefined) return;
    this.choose(withPreset(presetFormat(opened.model, opened.choice.to), opened.choice, preset));
  }

  /** Chooses a size. */
  chooseSize(size: string): void {
    const { opened } = this.shown;
    if (opened !== undefined) this.choose(withSize(opened.model, opened.choice, size));
  }

  /** Measures the loss at each size. */
  measureSizes(): void {
    const { opened } = this.shown;
    if (opened !== undefined) void opened.sizer.measure(opened.choice).catch(() => {});
  }

  /** Stops measuring sizes. A chosen size depends on it, so the usual choice replaces it. */
  cancelSizes(): void {
    const { opened } = this.shown;
    if (opened === undefined) return;
    const { model, choice, sizer } = opened;
    const format = presetFormat(model, choice.to);
    if (choice.size !== undefined) this.choose(withPreset(format, choice, 'balanced'));
    sizer.cancel();
  }

  /** Options for the package, for a choice of a model that was opened. */
  async options(model: ModelFile, choice: ModelChoice): Promise<PlanOptions> {
    const opened = this.shown.find(model);
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
    if (this.choose({ ...choice, kept })) announce(isKept ? `${name} stays as it is` : `${name} is converted`, 0);
  }

  /** Takes back the last tensor that was kept by hand. */
  undoKeep(): void {
    const last = [...(this.#store.get().choice?.kept ?? [])].at(-1);
    if (last !== undefined) this.keep(last);
  }

  /** Starts from the values of the codes of a file that is quantized already. */
  quantizeAgain(): void {
    this.setWords({ requantize: true });
  }

  /** Sets options of the command line. */
  setWords(words: ModelChoice['words']): void {
    const { choice } = this.#store.get();
    if (choice !== undefined) this.choose({ ...choice, words: { ...choice.words, ...words } });
  }

  /** The button for the usual type of the model's own format, if the choice is a conversion. */
  instead(): ProblemAction | undefined {
    const { opened } = this.shown;
    if (opened === undefined) return undefined;
    const { model, choice } = opened;
    const { format } = model;
    if (formatFor(model, choice.to) === format) return undefined;
    const to = presetTarget(format, 'balanced');
    const run = () => void this.choose(withTarget(format, choice, to));
    return { label: `Make ${to} ${infoOf(infoOf(format).result as ModelFormat).label} instead`, run };
  }

  /** Plans a choice, and shows the plan. */
  async #plan({ opened: { measurer, sizer }, choice, set }: View<MeasuredModel>): Promise<ModelPlan> {
    const plan = await measurer.plan(choice);
    const fit = choice.size === undefined ? undefined : await sizer.fit(choice);
    set({ plan, fit, errors: measurer.known(choice)?.errors ?? new Map(), isQuantized: false });
    return plan;
  }

  /** Plans the choice and the presets, and measures them: first samples, then the choice as a whole. */
  async #update(view: View<MeasuredModel>, isNew: boolean): Promise<void> {
    const { opened, choice, signal, set } = view;
    const { measurer, sizer } = opened;
    let plan: ModelPlan | undefined;
    if (!opened.mayMeasure) set({ measuring: 'asks' });
    try {
      plan = await this.#plan(view);
      if (signal.aborted) return;
      if (isNew && opened.mayMeasure) this.#lookAtFirst();
      else this.#followPlan();
      await this.#offers(view);
      if (!opened.mayMeasure) return;
      // Measure samples, then the presets and the time.
      if (!measurer.isMeasured(choice, plan)) {
        set({ measuring: 'sample' });
        const { errors } = await measurer.measure(choice, undefined, signal);
        set({ errors });
      }
      await this.#offers(view, true);
      await measurer.time(choice, plan, signal).catch(() => {});
      set({ expectedSeconds: measurer.seconds(choice, plan) });
      if (signal.aborted) return;
      // Measure everything where that is quick.
      if (plan.totals.quantized + plan.totals.cast > 0 && measurer.canBeExact(choice)) {
        set({ measuring: 'all' });
        const { errors } = await measurer.measure(choice, Number.POSITIVE_INFINITY, signal);
        set({ errors, expectedSeconds: measurer.seconds(choice, plan) });
        await this.#offers(view);
      }
      if (sizer.isQuick && !signal.aborted) await sizer.measure(choice).catch(() => {});
    } catch (error) {
      if (signal.aborted) return;
      // Explain the error. Without a plan for the choice, none is on show.
      if (plan === undefined) set({ plan: undefined, errors: new Map(), expectedSeconds: undefined });
      if (isAboutCodes(error)) set({ isQuantized: true, plan: undefined });
      else set({ problem: explain(error, this) });
      this.#followPlan();
      await this.#offers(view, true).catch(() => {});
    } finally {
      set({ measuring: opened.mayMeasure ? 'no' : 'asks' });
    }
  }

  /** Fills in the results of the presets. Measures them too if `measures`. */
  async #offers({ opened, choice: current, signal, set }: View<MeasuredModel>, measures = false): Promise<void> {
    const { measurer } = opened;
    const show = (preset: Preset, offer: State['offers'][Preset]) => {
      set({ offers: { ...this.#store.get().offers, [preset]: offer } });
    };
    for (const preset of presets) {
      const { offer, choice, plan } = await measurer.offer(preset, current);
      show(preset, offer);
      if (!measures || !opened.mayMeasure || plan === undefined || measurer.isMeasured(choice, plan)) continue;
      set({ measuring: 'sample' });
      await measurer.measure(choice, undefined, signal).catch(() => {});
      if (signal.aborted) return;
      show(preset, (await measurer.offer(preset, current)).offer);
    }
  }

  /** Stops measuring, to leave the processors to saving, and shows the plan that is saved. */
  async rest(): Promise<void> {
    const view = this.shown.renew();
    if (view === undefined) return;
    const { sizer } = view.opened;
    // A chosen size needs its measurements.
    if (sizer.sizes.kind === 'measuring' && view.choice.size === undefined) sizer.cancel();
    view.set({ measuring: view.opened.mayMeasure ? 'no' : 'asks' });
    await this.#plan(view);
  }

  /** Stores the errors of a result of the model and the choice on show, and how long saving it took. */
  learn(errors: State['errors'], seconds: number): void {
    const view = this.shown.renew();
    if (view === undefined) return;
    const { opened, choice, set, signal } = view;
    const { plan } = this.#store.get();
    if (plan !== undefined) {
      opened.measurer.saved(choice, plan, seconds);
      set({ expectedSeconds: opened.measurer.seconds(choice, plan) });
    }
    set({ errors: opened.measurer.learn(choice, errors, true).errors });
    // Saving has ended: measure the rest.
    void this.#offers(view, true).finally(() => {
      set({ measuring: opened.mayMeasure ? 'no' : 'asks' });
      if (opened.sizer.isQuick && !signal.aborted) void opened.sizer.measure(choice).catch(() => {});
    });
  }

  // -------------------------------------------------------------------------------------------------------------- one tensor

  /** Looks at a tensor. */
  look(name: string): void {
    const tensor = tensorsOf(this.#store.get()).find((one) => one.name === name);
    if (tensor === undefined) return;
    this.#store.set({ look: firstLook(tensor, this.#store.get().plan !== undefined) });
    void this.#askAgain();
  }

  /** Stores one side of the same tensor in another way. The other side stays as it is now, which may not be drawn yet. */
  compareAs(index: 0 | 1, kind: string): void {
    const [a, b] = this.#store.get().look?.kinds ?? [kind, kind];
    this.#changeLook({ kinds: index === 0 ? [kind, b] : [a, kind], isChosen: true });
    void this.#askAgain();
  }

  /** Shows the numbers of the same tensor from nearer or farther. The window begins where it began. */
  zoom(zoom: number): void {
    const { window } = this.#store.get().look ?? {};
    if (window !== undefined) this.moveTo({ zoom, place: Math.floor(window.place * 2 ** (zoom - window.zoom)) });
  }

  /** Shows other numbers of the same tensor. */
  moveTo(window: Look['window']): void {
    this.#changeLook({ window });
    void this.#askAgain();
  }

  /** Shows the tensor as it is planned now. Types that the visitor chose to compare stay, as long as the plan has one for it. */
  #followPlan(): void {
    const { look, plan } = this.#store.get();
    const tensor = tensorsOf(this.#store.get()).find(({ name }) => name === look?.name);
    if (look === undefined) return;
    if (tensor === undefined) {
      // Another format has other names.
      this.#store.set({ look: undefined });
      this.#lookAtFirst();
      return;
    }
    const { kinds: usual, type } = firstLook(tensor, plan !== undefined);
    const isGone = type === undefined && look.kinds.includes(planKind);
    const kinds = look.isChosen && !isGone ? look.kinds : usual;
    if (kinds.join() === look.kinds.join() && type === look.type && !kinds.includes(planKind)) return;
    this.#changeLook({ kinds, type });
    void this.#askAgain();
  }

  #lookAtFirst(): void {
    // On a narrow window the panel would come between the visitor and the table.
    if (!matchMedia('(min-width: 64rem)').matches) return;
    // A matrix that is converted is more interesting than a bias. A large one takes long to read.
    const tensors = tensorsOf(this.#store.get());
    const first =
      tensors.find(({ shape, kept }) => kept === undefined && shape.length > 1 && countNumbers(shape) <= 2 ** 24) ??
      tensors.find(({ shape, from }) => /^B?F/.test(from) && countNumbers(shape) > 1 && countNumbers(shape) <= 2 ** 24);
    if (first !== undefined) this.look(first.name);
  }

  #changeLook(change: Partial<Look>): void {
    const { look } = this.#store.get();
    if (look === undefined) return;
    const { problem: _, ...rest } = look;
    this.#store.set({ look: { ...rest, ...change } });
  }

  async #askAgain(): Promise<void> {
    const request = ++this.#lookRequest;
    const { look, model, choice } = this.#store.get();
    if (look === undefined || model === undefined || choice === undefined) return;
    // A conversion may rename the tensor.
    const tensor = tensorsOf(this.#store.get()).find(({ name }) => name === look.name);
    const name = tensor?.sources?.[0] ?? look.name;
    const isPlanned = look.kinds.includes(planKind);
    const planned = isPlanned ? { name: look.name, options: await this.options(model, choice) } : undefined;
    if (request !== this.#lookRequest) return;
    const { kinds, window } = look;
    const question = {
      key: `${this.shown.key} ${name} ${isPlanned ? errorsKey(choice) : ''}`,
      files: model.files,
      name,
      numbers: countNumbers(tensor?.shape ?? []),
      planned,
      kinds,
      labels: [kindLabel(kinds[0], look), kindLabel(kinds[1], look)],
      window,
    } as const;
    try {
      await this.#reader.call('look', question, (answer) => {
        if (request !== this.#lookRequest) return;
        showCore(answer.core);
        this.#changeLook({ answer });
      });
    } catch (error) {
      if (request === this.#lookRequest) this.#changeLook({ problem: failureText(error) });
    }
  }
}

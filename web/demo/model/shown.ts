// The model on show, and the ways to another one. The page and the model change together, and a save holds both in their place.
import type { OutputsKind } from '../../src/tooling.js';
import { type ModelFile, titleOf } from '../shared/files.js';
import { formatMany } from '../shared/format.js';
import type { Store } from '../shared/store.js';
import type { Address, Step } from './address.js';
import { choiceOf, formatIn, hashOf, type ModelChoice, settingsIn, usualFormat } from './choice.js';
import { linkOf } from './hub-link.js';
import { isModel, type Thing } from './several.js';
import type { SizeCurve } from './sizes.js';
import { initialState, isSaving, type State } from './state.js';

/** A model that was opened, with the choice for it. */
export interface OpenedModel {
  readonly model: ModelFile;
  readonly outputs: OutputsKind | undefined;
  readonly sizer: { readonly sizes: SizeCurve; cancel(): void; follow(choice: ModelChoice): void };
  choice: ModelChoice;
}

/** The figures of a model with a choice. */
type Figures = Partial<
  Pick<
    State,
    | 'plan'
    | 'errors'
    | 'measuring'
    | 'expectedSeconds'
    | 'offers'
    | 'isQuantized'
    | 'problem'
    | 'look'
    | 'sizes'
    | 'fit'
  >
>;

/** A model with a choice, as long as they are on show. */
export interface View<Opened> {
  readonly opened: Opened;
  readonly choice: ModelChoice;
  /** Aborted once another model or choice is on show, or the figures are no longer wanted. */
  readonly signal: AbortSignal;
  /** Shows figures. Does nothing once `signal` is aborted. */
  set(figures: Figures): void;
}

/** Something to show: a model, or a list of several. */
type Place<Opened> = Opened | readonly Thing[];

const isList = <Opened extends OpenedModel>(place: Place<Opened> | undefined): place is readonly Thing[] =>
  Array.isArray(place);

/** Changes of the choice within this time make one step of the history. */
const stepMilliseconds = 1500;

/** The places of a visit, of which one is on show. */
export class Shown<Opened extends OpenedModel> {
  readonly #store: Pick<Store<State>, 'get' | 'set' | 'draw'>;
  readonly #address: Address;
  readonly #onView: (view: View<Opened>, isNew: boolean) => void;
  /** Every place of this visit, for going back and forward. Number -1 shows nothing. */
  readonly #places: Place<Opened>[] = [];
  /** Identities of places that the browser can open again. */
  readonly #kept = new Map<number, string>();
  #at = -1;
  #measuring = new AbortController();
  #lastStep = Number.NEGATIVE_INFINITY;
  /** Stops the save or the push that is under way. */
  #cancel = () => {};
  /** The visitor's wish for which it is cancelled. */
  #next = () => {};

  readonly #onKept: (id: string) => void;

  /**
   * @param onView is called whenever another model or choice is on show; its second argument is true for another model, or the same one again
   * @param onKept is called for a step of an earlier visit whose place the browser can open again
   */
  constructor(
    store: Pick<Store<State>, 'get' | 'set' | 'draw'>,
    address: Address,
    onView: (view: View<Opened>, isNew: boolean) => void,
    onKept: (id: string) => void = () => {},
  ) {
    this.#store = store;
    this.#address = address;
    this.#onView = onView;
    this.#onKept = onKept;
    const { step } = address;
    if (step?.kept !== undefined) queueMicrotask(() => onKept(step.kept as string));
    else address.replace(this.#step, address.hash.slice(1));
    address.listen((step) => this.#return(step));
  }

  get #step(): Step {
    const kept = this.#kept.get(this.#at);
    return { visit: performance.timeOrigin, at: this.#at, ...(kept && { kept }) };
  }

  /** The settings of the model on show, as in the address. */
  get #hash(): string {
    const { opened } = this;
    if (opened === undefined) return '';
    const { model, choice } = opened;
    const settings = hashOf(usualFormat(model), choice);
    return model.hub === undefined ? settings : [linkOf(model.hub.name), ...(settings ? [settings] : [])].join('&');
  }

  /** Tells the place on show from all others of this visit. */
  get key(): number {
    return this.#at;
  }

  /** The model on show. */
  get opened(): Opened | undefined {
    const place = this.#places[this.#at];
    return isList(place) ? undefined : place;
  }

  /** A model of this visit, as it was opened. */
  find(model: ModelFile): Opened | undefined {
    return this.#places.find((place): place is Opened => !isList(place) && place.model === model);
  }

  // ------------------------------------------------------------------------------------------------------------- ways to others

  /**
   * Opens a place. Returns false if a save is in the way, and says so.
   * @param again opens it after the save
   * @param kept its identity, if a step of an earlier visit has it: as long as that step is on show, the place takes it
   */
  open(place: Place<Opened>, wish: string, again: () => void, kept?: string): boolean {
    if (!this.isFree(wish, again)) return false;
    const isReturn = kept !== undefined && this.#address.step?.kept === kept;
    const at = this.#places.push(place) - 1;
    if (kept !== undefined) this.#kept.set(at, kept);
    this.#show(at);
    if (isReturn) this.#address.replace(this.#step, this.#hash);
    else this.#address.push(this.#step, this.#hash);
    return true;
  }

  /** Notes that the browser can open a place again, on a later visit. */
  keep(at: number, kept: string): void {
    this.#kept.set(at, kept);
    if (at === this.#at) this.#address.replace(this.#step, this.#hash);
  }

  /** Shows nothing, unless a save is in the way. Going back shows the place again. */
  close(): boolean {
    if (this.#at < 0 || !this.isFree('close', () => this.close())) return false;
    this.#show(-1);
    this.#address.push(this.#step, '');
    return true;
  }

  /** Follows the visitor through the history. During a save the address comes back to the model. */
  #return(step: Step | undefined): void {
    const { hash } = this.#address;
    if (step === undefined) {
      this.#typed(hash);
      return;
    }
    if (!this.isFree('go back', () => this.#address.back())) {
      this.#address.push(this.#step, this.#hash);
      return;
    }
    const place = step.visit === this.#step.visit ? this.#places[step.at] : undefined;
    if (place !== undefined && !isList(place)) place.choice = choiceOf(formatIn(place.model, hash), hash);
    this.#show(place === undefined ? -1 : step.at);
    if (place === undefined && step.kept !== undefined) this.#onKept(step.kept);
  }

  /** Applies settings that were typed into the address. A link to a part of the page has none. */
  #typed(hash: string): void {
    const { opened } = this;
    // Without a model they are for the next one.
    this.#address.replace(this.#step, this.#at < 0 ? hash.slice(1) : this.#hash);
    if (opened !== undefined && settingsIn(hash).length > 0) {
      this.choose(choiceOf(formatIn(opened.model, hash), hash));
    }
  }

  #show(at: number): void {
    const before = this.opened;
    this.#at = at;
    const { opened } = this;
    if (before !== opened) before?.sizer.cancel();
    if (opened !== undefined) opened.sizer.follow(opened.choice);
    const { sort, columns, opening } = this.#store.get();
    const place = this.#places[at];
    this.#store.set({
      ...initialState,
      ...{ sort, columns, opening },
      several: isList(place) ? place : undefined,
      model: opened?.model,
      outputs: opened?.outputs,
      choice: opened?.choice,
      ...(opened && { sizes: opened.sizer.sizes }),
    });
    this.#begin(true);
  }

  /** Applies a choice. Returns false if there is no model, or a save is in the way. */
  choose(choice: ModelChoice): boolean {
    const { opened } = this;
    if (opened === undefined || !this.isFree('change the settings', () => this.choose(choice))) return false;
    opened.choice = choice;
    const now = performance.now();
    if (now - this.#lastStep < stepMilliseconds) this.#address.replace(this.#step, this.#hash);
    else this.#address.push(this.#step, this.#hash);
    this.#lastStep = now;
    this.#store.set({ choice, run: { kind: 'none' }, problem: undefined, fit: undefined });
    opened.sizer.follow(choice);
    this.#begin(false);
    // A second change before the next frame starts from this one.
    this.#store.draw();
    return true;
  }

  // --------------------------------------------------------------------------------------------------------------------- figures

  #begin(isNew: boolean): void {
    const view = this.renew();
    if (view !== undefined) this.#onView(view, isNew);
  }

  /** A new view of the model on show. The one before it ends. */
  renew(): View<Opened> | undefined {
    this.rest();
    this.#measuring = new AbortController();
    const { signal } = this.#measuring;
    const { opened } = this;
    if (opened === undefined) return undefined;
    const set = (figures: Figures) => {
      if (!signal.aborted) this.#store.set(figures);
    };
    return { opened, choice: opened.choice, signal, set };
  }

  /** Ends the view, and with it all measuring. */
  rest(): void {
    this.#measuring.abort();
  }

  /** Shows figures of a model that do not depend on its choice, if it is on show. */
  set(opened: Opened, figures: Pick<Figures, 'sizes'>): void {
    if (opened === this.opened) this.#store.set(figures);
  }

  // ---------------------------------------------------------------------------------------------------------------------- saving

  /**
   * True if no save and no push is under way. Otherwise offers the visitor to cancel it.
   * @param wish as in “cancel it and close” @param again carries the wish out
   */
  isFree(wish: string, again: () => void): boolean {
    const { run, isPushing, model, several } = this.#store.get();
    if (!isSaving(run) && !isPushing) return true;
    const saved =
      several === undefined
        ? `${model && titleOf(model)} is`
        : `${formatMany(several.filter(isModel).length, 'model')} are`;
    const action = {
      label: `Cancel it and ${wish}`,
      run: () => {
        this.#next = again;
        this.#cancel();
      },
    };
    const text = `${saved} being ${isPushing ? 'pushed to the hub' : 'saved'}. Wait until that is done, or cancel it.`;
    const title = `A ${isPushing ? 'push' : 'save'} is running`;
    this.#store.set({ problem: { title, text, action, isExpected: true } });
    return false;
  }

  /** Begins a save. The place on show stays until `end`. Returns false if a save is under way already. @param cancel stops it */
  begin(cancel: () => void): boolean {
    const { run, isPushing } = this.#store.get();
    if (this.#at < 0 || isSaving(run) || isPushing) return false;
    this.#cancel = cancel;
    this.#next = () => {};
    this.#store.set({ run: { kind: 'asking' }, problem: undefined });
    return true;
  }

  /** Ends the save, and carries out the wish for which it was cancelled. */
  end(run: State['run'], problem?: State['problem']): void {
    this.#end({ run, problem });
  }

  /** Begins a push of the saved result. The place on show stays until `endPush`. @param cancel stops it */
  beginPush(cancel: () => void): void {
    this.#cancel = cancel;
    this.#next = () => {};
    this.#store.set({ isPushing: true, problem: undefined });
  }

  /** Ends the push, and carries out the wish for which it was cancelled. */
  endPush(): void {
    this.#end({ isPushing: false, problem: undefined });
  }

  #end(change: Partial<State>): void {
    this.#store.set(change);
    const next = this.#next;
    this.#next = () => {};
    next();
  }
}

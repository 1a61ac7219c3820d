// Panel *What does it do to the outputs?*
import type { PlanOptions } from 'scalepoint/model';
import { languageArchitectures } from '../../src/tooling.js';
import { byId, html, onResize, setText } from '../shared/dom.js';
import type { ModelFile } from '../shared/files.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { asSentence } from '../shared/problems.js';
import { watchScrollBoxes } from '../shared/scroll.js';
import { formatFor, infoOf, isTower, type ModelChoice } from './choice.js';
import { Judge, type WantedType } from './judge.js';
import { type JudgedType, type Judgment, verdictOf } from './outputs.js';
import { basisOf, captionOf, drawChart, drawPlaces, drawTable } from './outputs-figures.js';
import { markup } from './outputs-markup.js';
import { isSaving, type State } from './state.js';
import { formatSeconds } from './wording.js';
import './outputs.css';

/** Results above this size are left to the command line: the page holds them in memory. */
const mostBytes = 2e9;
/** The share that is done before the time left is shown. */
const leastShare = 0.02;
/** Share of the bar that quantizing takes. */
const quantizeShare = 0.2;

/** Reason not to offer it; undefined if it is offered, an empty text if nobody expects it. */
function whyNot({ model, plan, choice, outputs: kind }: State): string | undefined {
  if (model === undefined || plan === undefined || choice === undefined || kind === undefined) return '';
  const { takesTexts, takesArrays, architecture } = kind;
  if (!takesTexts && !takesArrays) {
    if (architecture !== undefined) {
      return `The outputs of this ${architecture} model cannot be compared here. Those of ${languageArchitectures.join(', ')} can, if they are dense.`;
    }
    const isLanguage = model.tensors.some(({ name }) => /layers\.\d+\.self_attn\./.test(name));
    return isLanguage
      ? 'To see what a type does to the outputs, drop the whole folder of the model, with config.json and tokenizer.json.'
      : '';
  }
  const format = formatFor(model, choice.to);
  if (isTower(format, choice)) return 'The outputs of a vision tower are not compared here.';
  const { isFolder, label } = infoOf(format);
  if (isFolder) return `The outputs of ${label} folders are not compared here. Those of the other types are.`;
  if (plan.totals.bytesAfter <= mostBytes) return undefined;
  const [size, name] = [formatBytes(plan.totals.bytesAfter), model.name];
  const command = takesTexts ? `evaluate RESULT ${name} --text FILE` : `compare ${name} RESULT --run`;
  return `The outputs of a result of ${size} are compared on the command line: npx scalepoint ${command}`;
}

// ------------------------------------------------------------------------------------------------------------------------ section

/** Events of the page that the section causes. */
interface OutputsEvents {
  /** Options of `quantizeModel` for a choice. */
  options(model: ModelFile, choice: ModelChoice): Promise<PlanOptions>;
}

class OutputsPanel {
  readonly #section = byId('outputs', HTMLElement);
  readonly #events: OutputsEvents;
  readonly #current: () => State;
  readonly #judges = new WeakMap<ModelFile, Judge>();
  /** The judge of the model on the page, if its outputs can be compared. */
  #active: Judge | undefined;
  #frame = 0;
  #drawn: JudgedType | undefined;

  constructor(events: OutputsEvents, current: () => State) {
    this.#events = events;
    this.#current = current;
    this.#section.replaceChildren(...markup());
    watchScrollBoxes(this.#section);
    this.#listenToButtons();
    this.#listenToFiles();
    this.#listenToChoices();
    onResize(byId('outputs-picture', HTMLElement), () => this.redraw());
  }

  /** Draws the section in the next frame. */
  redraw(): void {
    if (this.#frame !== 0) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.#section.isConnected) this.#draw();
    });
  }

  /** Uses files that were dropped, if they are data for this section. Returns whether they are. */
  take(files: readonly File[]): boolean {
    const judge = this.#active;
    if (judge === undefined || files.length === 0) return false;
    const isText = judge.state.data.kind === 'texts';
    const all = (pattern: RegExp) => files.every(({ name }) => pattern.test(name));
    const tokenizers = isText && all(/tokenizer.*\.json$/i);
    const texts = isText && files.length === 1 && (all(/\.(txt|md)$/i) || files[0]?.type === 'text/plain');
    const arrays = !isText && files.length === 1 && all(/\.npz$/i);
    if (!tokenizers && !texts && !arrays) return false;
    give(judge, files, tokenizers);
    this.#section.scrollIntoView({ block: 'nearest' });
    return true;
  }

  /** Calls `act` on a click, if outputs can be compared. */
  #onClick(id: string, act: (judge: Judge, choice: ModelChoice) => void): void {
    byId(id, HTMLButtonElement).addEventListener('click', () => {
      const { choice } = this.#current();
      if (this.#active !== undefined && choice !== undefined) act(this.#active, choice);
    });
  }

  #listenToButtons(): void {
    this.#onClick('outputs-run', (judge, choice) => {
      if (judge.state.data.kind === 'texts' && !judge.hasTokenizer) {
        return byId('outputs-tokenizer', HTMLInputElement).click();
      }
      if (judge.resultOf(choice) === undefined) judge.add(judge.wanted(choice));
      else for (const one of judge.offered(choice)) judge.add(one);
    });
    this.#onClick('outputs-cancel', (judge) => {
      judge.cancel();
      announce('Stopped', 0);
    });
    this.#onClick('outputs-choose', (judge) => {
      const picker = byId('outputs-file', HTMLInputElement);
      picker.accept = judge.state.data.kind === 'texts' ? '.txt,.md,text/plain' : '.npz,.npy';
      picker.click();
    });
    this.#onClick('outputs-usual', (judge) => judge.use({ text: undefined, inputs: undefined }));
  }

  #listenToFiles(): void {
    for (const id of ['outputs-file', 'outputs-tokenizer']) {
      const input = byId(id, HTMLInputElement);
      input.addEventListener('change', () => {
        const files = [...(input.files ?? [])];
        input.value = '';
        if (this.#active !== undefined && files.length > 0) give(this.#active, files, id === 'outputs-tokenizer');
      });
    }
  }

  #listenToChoices(): void {
    for (const radio of this.#section.querySelectorAll<HTMLInputElement>('input[type="radio"]')) {
      radio.addEventListener('change', () =>
        this.#active?.use(
          radio.name === 'outputs-kind' ? { kind: radio.value as Judgment['kind'] } : { tokens: Number(radio.value) },
        ),
      );
    }
    byId('outputs-types', HTMLElement).addEventListener('click', ({ target }) => {
      const { choice } = this.#current();
      const judge = this.#active;
      const key = target instanceof Element ? target.closest('button')?.dataset.key : undefined;
      const wanted = choice && judge?.offered(choice).find((one) => one.key === key);
      if (judge === undefined || wanted === undefined) return;
      const { shown, queue } = judge.state;
      const isIn = shown.has(wanted.key) || queue.some((one) => one.key === wanted.key);
      if (isIn) judge.remove(wanted);
      else judge.add(wanted);
    });
  }

  /** Makes the judge of the model on the page the active one. Returns it if outputs can be compared. */
  #activate({ model, outputs: kind }: State, why: string | undefined): Judge | undefined {
    const before = this.#active;
    this.#active = undefined;
    if (why === undefined && model !== undefined && kind !== undefined) {
      this.#active = this.#judges.get(model) ?? new Judge(model, kind, this.#events.options, () => this.redraw());
      this.#judges.set(model, this.#active);
    }
    if (before !== this.#active) before?.cancel(false);
    return this.#active;
  }

  #draw(): void {
    const state = this.#current();
    const { plan, choice, run } = state;
    const why = whyNot(state);
    const judge = this.#activate(state, why);
    this.#section.hidden = why === '';
    const reason = byId('outputs-why', HTMLElement);
    reason.hidden = why === undefined;
    setText(reason, why ?? '');
    byId('outputs-box', HTMLElement).hidden = judge === undefined;
    if (judge === undefined || choice === undefined || plan === undefined) return;

    const { data, queue, judged, shown } = judge.state;
    const wanted = judge.wanted(choice);
    const found = judged.get(wanted.key);
    const works = queue.length > 0;
    const saves = isSaving(run);
    const isText = data.kind === 'texts';
    this.#drawVerdict(judge, found);
    drawData(judge, works);
    const focused = document.activeElement;
    const [start, stop] = [byId('outputs-run', HTMLButtonElement), byId('outputs-cancel', HTMLButtonElement)];
    const changesNothing = plan.totals.quantized + plan.totals.cast === 0;
    drawWork(judge, choice, { changesNothing, saves, quantizing: state.expectedSeconds });

    // Draw the picture.
    const picture = byId('outputs-picture', HTMLElement);
    picture.hidden = !works && shown.size === 0;
    byId('outputs-box', HTMLElement).classList.toggle('drawn', !picture.hidden);
    if (!picture.hidden) {
      setText(byId('outputs-caption', HTMLElement), captionOf(isText, judge.state));
      drawTypes(judge, wanted, saves);
      drawChart(judge, wanted.key);
    }
    // A button that is gone hands its focus on.
    if (focused === start && start.hidden) (works ? stop : this.#firstType()).focus({ preventScroll: true });
    if (focused === stop && stop.hidden) (start.disabled ? this.#firstType() : start).focus({ preventScroll: true });
  }

  #drawVerdict({ state: { data, queue }, hasTokenizer }: Judge, found: JudgedType | undefined): void {
    const isText = data.kind === 'texts';
    const running = queue.length > 0 ? `Comparing ${queue[0]?.label} with the original…` : '';
    setText(byId('outputs-verdict', HTMLElement), found === undefined ? running : verdictOf(found.judgment));
    setText(
      byId('outputs-basis', HTMLElement),
      found === undefined ? introduction(isText, isText && !hasTokenizer) : basisOf(found, data),
    );
    drawPlaces(found);
    const figures = byId('outputs-figures', HTMLDetailsElement);
    figures.hidden = found === undefined;
    if (found !== undefined && found !== this.#drawn) {
      drawTable(found);
      if (!isText && this.#drawn === undefined) figures.open = true;
    }
    this.#drawn = found;
  }

  #firstType(): HTMLElement {
    return (
      this.#section.querySelector<HTMLButtonElement>('.outputs-types button') ??
      byId('outputs-choose', HTMLButtonElement)
    );
  }
}

/** Uses files that were chosen or dropped. */
function give(judge: Judge, files: readonly File[], isTokenizer: boolean): void {
  const [file] = files;
  if (file === undefined) return;
  if (isTokenizer) {
    // A single file under another name is still meant as the tokenizer.
    const named = files.length === 1 ? [new File([file], 'tokenizer.json')] : files;
    judge.use({ tokenizer: named });
  } else judge.use(judge.state.data.kind === 'texts' ? { text: file } : { inputs: file });
  announce(`${file.name} is used`, 0);
}

/** Sets up the section. It is loaded with the first plan. */
export function startOutputs(events: OutputsEvents, current: () => State) {
  const panel = new OutputsPanel(events, current);
  return { draw: () => panel.redraw(), take: (files: readonly File[]) => panel.take(files) };
}

/** State of the page that decides about the buttons. */
interface WorkState {
  readonly changesNothing: boolean;
  /** True while a result is being saved. */
  readonly saves: boolean;
  /** Expected seconds of quantizing. */
  readonly quantizing: number | undefined;
}

/** Draws the buttons that start and stop, the progress and the problem. */
function drawWork(judge: Judge, choice: ModelChoice, { changesNothing, saves, quantizing }: WorkState): void {
  const { data, queue, ending, judged } = judge.state;
  const works = queue.length > 0;
  const isDone = judged.has(judge.wanted(choice).key);
  const lacksTokenizer = data.kind === 'texts' && !judge.hasTokenizer;
  const others = isDone ? judge.offered(choice).filter(({ key }) => !judged.has(key)) : [];
  const isWhole = isDone && others.length === 0;
  const start = byId('outputs-run', HTMLButtonElement);
  start.hidden = works;
  start.disabled = saves || changesNothing || isWhole;
  const more = isWhole
    ? 'Every type is compared'
    : others.length === 1
      ? 'Compare the other type'
      : `Compare the other ${others.length} types`;
  setText(start, lacksTokenizer ? 'Choose tokenizer.json…' : isDone ? more : 'Compare the outputs');
  byId('outputs-cancel', HTMLButtonElement).hidden = !works;
  drawProgress(judge);
  const count = lacksTokenizer ? 0 : isDone ? others.length : 1;
  setText(
    byId('outputs-status', HTMLElement),
    changesNothing && !works ? 'These settings change nothing.' : statusOf(judge, count, quantizing),
  );
  const problem =
    ending?.kind === 'failed' ? asSentence(`${ending.label} could not be compared: ${ending.message}`) : '';
  setText(byId('outputs-problem', HTMLElement), problem);
}

/** The sentence before anything was compared. */
function introduction(isText: boolean, lacksTokenizer: boolean): string {
  if (lacksTokenizer) {
    return 'This model comes without its tokenizer. Drop the tokenizer.json of the folder that it was made from, too.';
  }
  return isText
    ? 'Both models read the same text, and their predictions of each next word are compared. Nothing leaves this device.'
    : 'Both models are run on the same inputs, and their outputs are compared. Nothing leaves this device.';
}

function drawData({ state: { data }, kind: { takesTexts, takesArrays }, hasTokenizer }: Judge, works: boolean): void {
  const { kind, text, inputs, tokens } = data;
  const isText = kind === 'texts';
  const lacksTokenizer = isText && !hasTokenizer;
  const [kinds, counts] = [byId('outputs-kind', HTMLFieldSetElement), byId('outputs-tokens', HTMLFieldSetElement)];
  kinds.hidden = !takesTexts || !takesArrays;
  byId('outputs-data', HTMLElement).hidden = lacksTokenizer && kinds.hidden;
  byId('outputs-source-row', HTMLElement).hidden = lacksTokenizer;
  const file = isText ? text : inputs;
  const usual = isText ? 'A built-in story' : 'Random inputs';
  setText(byId('outputs-source', HTMLElement), file?.name ?? usual);
  const [choose, back] = [byId('outputs-choose', HTMLButtonElement), byId('outputs-usual', HTMLButtonElement)];
  setText(choose, isText ? 'Choose a text…' : 'Choose a .npz…');
  setText(back, isText ? 'Use the built-in story' : 'Use random inputs');
  if (document.activeElement === back && file === undefined) choose.focus();
  back.hidden = file === undefined;
  choose.disabled = works;
  back.disabled = works;
  counts.hidden = !isText || lacksTokenizer;
  for (const [choice, value] of [
    [kinds, kind],
    [counts, String(tokens)],
  ] as const) {
    choice.disabled = works;
    for (const radio of choice.querySelectorAll('input')) radio.checked = radio.value === value;
  }
}

function drawProgress({ state: { queue, progress } }: Judge): void {
  const bar = byId('outputs-progress', HTMLProgressElement);
  bar.classList.toggle('resting', queue.length === 0);
  bar.setAttribute('aria-hidden', String(queue.length === 0));
  if (queue.length === 0 || progress === undefined) bar.value = 0;
  else if (progress.step === 'run') bar.removeAttribute('value');
  else
    bar.value =
      progress.step === 'quantize'
        ? progress.share * quantizeShare
        : quantizeShare + progress.share * (1 - quantizeShare);
}

/** The line below the button. @param count of the types that the button adds @param quantizing seconds of making one of them */
function statusOf(judge: Judge, count: number, quantizing = 0): string {
  const { queue, progress, stepBegin, ending } = judge.state;
  const [first, ...others] = queue;
  if (first !== undefined && progress !== undefined) {
    const waiting = others.length === 0 ? '' : ` · then ${others.map(({ label }) => label).join(', ')}`;
    return stepText(first, progress, (performance.now() - stepBegin) / 1000) + waiting;
  }
  const seconds = judge.expectedSeconds;
  const time =
    seconds === undefined || count === 0 ? '' : `Takes about ${formatSeconds(count * (seconds + quantizing))}.`;
  return ending?.kind === 'cancelled' ? `Stopped. ${time}` : time;
}

function stepText({ label }: WantedType, progress: NonNullable<Judge['state']['progress']>, seconds: number): string {
  if (progress.step === 'run') {
    return `${label}: running both models on the processor${progress.wantsGpu ? ' and the GPU' : ''}…`;
  }
  const { share } = progress;
  const done = `${Math.floor(share * 100)}\u00a0%`;
  const left = share > leastShare && share < 1 ? `, about ${formatSeconds((seconds / share) * (1 - share))} left` : '';
  if (progress.step === 'quantize') return `${label}: quantizing, ${done}${left}`;
  return `${label}: ${formatMany(progress.tokens, 'token')} in all layers, ${done}${left}`;
}

/** The buttons of the types. A pressed one is in the picture, or waits for its turn. */
function drawTypes(judge: Judge, current: WantedType, isDisabled: boolean): void {
  const box = byId('outputs-types', HTMLElement);
  const { queue, shown, judged } = judge.state;
  const offered = judge.offered(current.choice);
  const old = [...box.querySelectorAll('button')];
  const isSame = old.length === offered.length && offered.every(({ key }, i) => old[i]?.dataset.key === key);
  const buttons = isSame
    ? old
    : offered.map(({ key, label }) => html('button', { type: 'button', class: 'small', 'data-key': key }, label));
  if (!isSame) box.replaceChildren(html('span', { class: 'hint' }, 'Compare with'), ...buttons);
  for (const [i, node] of buttons.entries()) {
    const { key } = offered[i] as WantedType;
    const at = queue.findIndex((one) => one.key === key);
    node.setAttribute('aria-pressed', String(at >= 0 || shown.has(key)));
    node.classList.toggle('waiting', at >= 0);
    node.classList.toggle('current', key === current.key);
    node.title =
      at === 0 ? 'being compared' : at > 0 ? 'waits for its turn' : key === current.key ? 'the chosen type' : '';
    node.disabled = isDisabled && !judged.has(key);
  }
}

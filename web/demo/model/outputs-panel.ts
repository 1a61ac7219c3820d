// Panel *What does it do to the outputs?*
import type { PlanOptions } from 'scalepoint/model';
import { languageArchitectures, type OutputsKind } from '../../src/tooling.js';
import { byId, html, onResize, setText } from '../shared/dom.js';
import type { ModelFile } from '../shared/files.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { asSentence } from '../shared/problems.js';
import { watchScrollBoxes } from '../shared/scroll.js';
import { formatFor, infoOf, type ModelChoice } from './choice.js';
import { Judge, type WantedType } from './judge.js';
import { type JudgedType, type Judgment, verdictOf } from './outputs.js';
import { basisOf, captionOf, drawChart, drawPlaces, drawTable } from './outputs-figures.js';
import { markup } from './outputs-markup.js';
import type { State } from './state.js';
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
  const { isFolder, label } = infoOf(formatFor(model, choice.to));
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
  options(choice: ModelChoice): Promise<PlanOptions>;
}

/** Sets up the section. It is loaded with the first plan. */
export function startOutputs(events: OutputsEvents, current: () => State) {
  const section = byId('outputs', HTMLElement);
  section.replaceChildren(...markup());
  watchScrollBoxes(section);
  const judges = new WeakMap<ModelFile, Judge>();
  let active: Judge | undefined;
  let frame = 0;
  const redraw = () => {
    if (frame !== 0) return;
    frame = requestAnimationFrame(() => {
      frame = 0;
      if (section.isConnected) draw();
    });
  };

  /** The judge of a model. */
  const judgeOf = (model: ModelFile, kind: OutputsKind): Judge => {
    const judge = judges.get(model) ?? new Judge(model, kind, events.options, redraw);
    judges.set(model, judge);
    return judge;
  };

  const now = () => {
    const { choice } = current();
    return active === undefined || choice === undefined ? undefined : { judge: active, choice };
  };
  const onClick = (id: string, act: (here: NonNullable<ReturnType<typeof now>>) => void) =>
    byId(id, HTMLButtonElement).addEventListener('click', () => {
      const here = now();
      if (here !== undefined) act(here);
    });
  const picker = byId('outputs-file', HTMLInputElement);
  const tokenizer = byId('outputs-tokenizer', HTMLInputElement);
  onClick('outputs-run', ({ judge, choice }) => {
    if (judge.state.data.kind === 'texts' && !judge.hasTokenizer) return tokenizer.click();
    if (judge.resultOf(choice) === undefined) judge.add(judge.wanted(choice));
    else for (const one of judge.offered(choice)) judge.add(one);
  });
  onClick('outputs-cancel', ({ judge }) => {
    judge.cancel();
    announce('Stopped', 0);
  });
  onClick('outputs-choose', ({ judge }) => {
    picker.accept = judge.state.data.kind === 'texts' ? '.txt,.md,text/plain' : '.npz,.npy';
    picker.click();
  });
  onClick('outputs-usual', ({ judge }) => judge.use({ text: undefined, inputs: undefined }));
  for (const input of [picker, tokenizer]) {
    input.addEventListener('change', () => {
      const files = [...(input.files ?? [])];
      input.value = '';
      if (active !== undefined && files.length > 0) give(active, files, input === tokenizer);
    });
  }
  for (const radio of section.querySelectorAll<HTMLInputElement>('input[type="radio"]')) {
    radio.addEventListener('change', () =>
      active?.use(
        radio.name === 'outputs-kind' ? { kind: radio.value as Judgment['kind'] } : { tokens: Number(radio.value) },
      ),
    );
  }
  byId('outputs-types', HTMLElement).addEventListener('click', ({ target }) => {
    const here = now();
    const key = target instanceof Element ? target.closest('button')?.dataset.key : undefined;
    const wanted = here?.judge.offered(here.choice).find((one) => one.key === key);
    if (here === undefined || wanted === undefined) return;
    const { shown, queue } = here.judge.state;
    const isIn = shown.has(wanted.key) || queue.some((one) => one.key === wanted.key);
    if (isIn) here.judge.remove(wanted);
    else here.judge.add(wanted);
  });
  onResize(byId('outputs-picture', HTMLElement), () => redraw());

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

  let drawnVerdict: JudgedType | undefined;

  /** Draws the section. */
  function draw(): void {
    const state = current();
    const { model, plan, choice, run, outputs: kind } = state;
    const why = whyNot(state);
    const before = active;
    active = why === undefined && model !== undefined && kind !== undefined ? judgeOf(model, kind) : undefined;
    if (before !== active) before?.cancel(false);
    section.hidden = why === '';
    const reason = byId('outputs-why', HTMLElement);
    reason.hidden = why === undefined;
    setText(reason, why ?? '');
    byId('outputs-box', HTMLElement).hidden = active === undefined;
    if (active === undefined || choice === undefined || plan === undefined) return;

    const judge = active;
    const { data, queue, ending, judged, shown } = judge.state;
    const wanted = judge.wanted(choice);
    const found = judged.get(wanted.key);
    const works = queue.length > 0;
    const saves = run.kind === 'running' || run.kind === 'asking';
    const isText = data.kind === 'texts';
    const lacksTokenizer = isText && !judge.hasTokenizer;
    const nothing = plan.totals.quantized + plan.totals.cast === 0;

    // The sentence.
    const running = works ? `Comparing ${queue[0]?.label} with the original…` : '';
    setText(byId('outputs-verdict', HTMLElement), found === undefined ? running : verdictOf(found.judgment));
    setText(
      byId('outputs-basis', HTMLElement),
      found === undefined ? introduction(isText, lacksTokenizer) : basisOf(found, data),
    );
    drawPlaces(found);
    const figures = byId('outputs-figures', HTMLDetailsElement);
    figures.hidden = found === undefined;
    if (found !== undefined && found !== drawnVerdict) {
      drawTable(found);
      if (!isText && drawnVerdict === undefined) figures.open = true;
    }
    drawnVerdict = found;

    // The data.
    drawData(judge, works);

    // The work.
    const [start, stop] = [byId('outputs-run', HTMLButtonElement), byId('outputs-cancel', HTMLButtonElement)];
    const focused = document.activeElement;
    const others = found === undefined ? [] : judge.offered(choice).filter(({ key }) => !judged.has(key));
    start.hidden = works;
    const isWhole = found !== undefined && others.length === 0;
    start.disabled = saves || nothing || isWhole;
    const more = isWhole
      ? 'Every type is compared'
      : others.length === 1
        ? 'Compare the other type'
        : `Compare the other ${others.length} types`;
    setText(start, lacksTokenizer ? 'Choose tokenizer.json…' : found === undefined ? 'Compare the outputs' : more);
    stop.hidden = !works;
    drawProgress(judge);
    setText(
      byId('outputs-status', HTMLElement),
      nothing && !works
        ? 'These settings change nothing.'
        : statusOf(judge, lacksTokenizer ? 0 : found === undefined ? 1 : others.length, state.expectedSeconds),
    );
    const problem =
      ending?.kind === 'failed' ? asSentence(`${ending.label} could not be compared: ${ending.message}`) : '';
    setText(byId('outputs-problem', HTMLElement), problem);

    // The picture.
    const picture = byId('outputs-picture', HTMLElement);
    picture.hidden = !works && shown.size === 0;
    byId('outputs-box', HTMLElement).classList.toggle('drawn', !picture.hidden);
    if (!picture.hidden) {
      setText(byId('outputs-caption', HTMLElement), captionOf(isText, judge.state));
      drawTypes(judge, wanted, saves);
      drawChart(judge, wanted.key);
    }
    // A button that is gone hands its focus on.
    if (focused === start && start.hidden) (works ? stop : firstType()).focus({ preventScroll: true });
    if (focused === stop && stop.hidden) (start.disabled ? firstType() : start).focus({ preventScroll: true });
  }

  const firstType = () =>
    section.querySelector<HTMLButtonElement>('.outputs-types button') ?? byId('outputs-choose', HTMLButtonElement);

  return {
    draw: redraw,
    /** Uses files that were dropped, if they are data for this section. Returns whether they are. */
    take(files: readonly File[]): boolean {
      if (active === undefined || files.length === 0) return false;
      const isText = active.state.data.kind === 'texts';
      const all = (pattern: RegExp) => files.every(({ name }) => pattern.test(name));
      const tokenizers = isText && all(/tokenizer.*\.json$/i);
      const texts = isText && files.length === 1 && (all(/\.(txt|md)$/i) || files[0]?.type === 'text/plain');
      const arrays = !isText && files.length === 1 && all(/\.npz$/i);
      if (!tokenizers && !texts && !arrays) return false;
      give(active, files, tokenizers);
      section.scrollIntoView({ block: 'nearest' });
      return true;
    },
  };
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

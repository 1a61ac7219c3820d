// Panel *What does it do to the outputs?*
import { languageArchitectures } from '../../src/tooling.js';
import type { ModelFile } from '../shared/files.js';
import { formatBytes, formatCount, formatMany } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { asSentence } from '../shared/problems.js';
import { html, live, nothing, picture, scrollBox, type TemplateResult } from '../shared/template.js';
import { formatFor, infoOf, isTower, makesFolder } from './choice.js';
import { Judge, type WantedType } from './judge.js';
import { tokenChoices, verdictOf } from './outputs.js';
import { basisOf, captionOf, drawChart, figuresView, placesView } from './outputs-figures.js';
import { isPicture } from './picture-input.js';
import type { ModelSession } from './session.js';
import { isSaving, type OpenState } from './state.js';
import { formatSeconds, leftText, secondsLeft } from './wording.js';
import './outputs.css';

/** Results above this size are left to the command line: the page holds them in memory. */
const mostBytes = 2e9;
/** Share of the bar that quantizing takes. */
const quantizeShare = 0.2;

/** Reason not to run the result; undefined if it is offered, an empty text if nobody expects it. */
export function whyNoOutputs({ model, plan, choice, outputs: kind }: OpenState): string | undefined {
  if (plan === undefined || kind === undefined) return '';
  const { takesTexts, takesArrays, architecture } = kind;
  if (!takesTexts && !takesArrays) {
    if (architecture !== undefined) {
      return `The outputs of this ${architecture} model cannot be compared here: that takes an ONNX model, or a dense language model of a known kind such as ${languageArchitectures.slice(0, 3).join(', ')}.`;
    }
    const isLanguage = model.tensors.some(({ name }) => /layers\.\d+\.self_attn\./.test(name));
    return isLanguage
      ? 'To see what a type does to the outputs, drop the whole folder of the model, with config.json and tokenizer.json.'
      : '';
  }
  const format = formatFor(model, choice.to);
  if (isTower(format, choice)) return 'The outputs of a vision tower are not compared here.';
  if (makesFolder(model, format))
    return `The outputs of ${infoOf(format).label} folders are not compared here. Those of the other types are.`;
  if (plan.totals.bytesAfter <= mostBytes) return undefined;
  const [size, name] = [formatBytes(plan.totals.bytesAfter), model.name];
  const command = takesTexts ? `evaluate RESULT ${name} --text FILE` : `compare ${name} RESULT --run`;
  return `The outputs of a result of ${size} are compared on the command line: npx scalepoint ${command}`;
}

/** The section *What does it do to the outputs?* */
export class OutputsPanel {
  readonly #session: ModelSession;
  readonly #redraw: () => void;
  readonly #judges = new WeakMap<ModelFile, Judge>();
  /** The judge of the model on the page, if its outputs can be compared. */
  #active: Judge | undefined;
  /** True once the figures of arrays have opened. The visitor may close them. */
  #opensFigures = false;

  constructor(session: ModelSession, redraw: () => void) {
    this.#session = session;
    this.#redraw = redraw;
  }

  /** Uses files that were dropped, if they are data for this section. Returns whether they are. */
  take(files: readonly File[]): boolean {
    const judge = this.#active;
    if (judge === undefined || files.length === 0) return false;
    const isText = judge.state.data.kind === 'texts';
    const all = (pattern: RegExp) => files.every(({ name }) => pattern.test(name));
    const tokenizers = isText && all(/tokenizer.*\.json$/i);
    const texts = isText && files.length === 1 && (all(/\.(txt|md)$/i) || files[0]?.type === 'text/plain');
    const arrays = !isText && files.length === 1 && (all(/\.np[yz]$/i) || files.some(isPicture));
    if (!tokenizers && !texts && !arrays) return false;
    give(judge, files, tokenizers);
    document.getElementById('outputs')?.scrollIntoView({ block: 'nearest' });
    return true;
  }

  /** Share of places with the same next token of a choice; undefined if it was not compared on a text. */
  sameTopOf(choice: OpenState['choice']): number | undefined {
    const judgment = this.#active?.resultOf(choice)?.judgment;
    return judgment?.kind === 'texts' ? judgment.figures.sameTop.value : undefined;
  }

  /** The files of a tokenizer that were chosen apart from the model. */
  get tokenizer(): readonly File[] {
    return this.#active?.state.data.tokenizer ?? [];
  }

  /** True if there is a tokenizer for texts. */
  get hasTokenizer(): boolean {
    return this.#active?.hasTokenizer === true;
  }

  /** Stops comparing. */
  rest(): void {
    this.#active?.cancel(false);
    this.#active = undefined;
  }

  view(state: OpenState): TemplateResult {
    const { model, outputs: kind } = state;
    const why = whyNoOutputs(state);
    const before = this.#active;
    this.#active = undefined;
    if (why === undefined && kind !== undefined) {
      const options: ModelSession['options'] = (...given) => this.#session.options(...given);
      this.#active = this.#judges.get(model) ?? new Judge(model, kind, options, this.#redraw);
      this.#judges.set(model, this.#active);
    }
    if (before !== this.#active) before?.cancel(false);
    return html`
      <section class="outputs" id="outputs" aria-label="Outputs" ?hidden=${why === ''}>
        <p class="hint" id="outputs-why" ?hidden=${why === undefined}>${why ?? ''}</p>
        ${this.#active === undefined ? nothing : this.#boxView(this.#active, state)}
      </section>`;
  }

  #boxView(judge: Judge, state: OpenState): TemplateResult {
    const { choice } = state;
    const { data, queue, judged, shown, ending } = judge.state;
    const wanted = judge.wanted(choice);
    const found = judged.get(wanted.key);
    const works = queue.length > 0;
    const isText = data.kind === 'texts';
    const lacksTokenizer = isText && !judge.hasTokenizer;
    const isDrawn = works || shown.size > 0;
    if (found === undefined) this.#opensFigures = false;
    else if (!isText) this.#opensFigures = true;
    const running = works ? `Comparing ${queue[0]?.label} with the original…` : '';
    const problem =
      ending?.kind === 'failed' ? asSentence(`${ending.label} could not be compared: ${ending.message}`) : '';
    return html`
      <div class="outputs-box ${isDrawn ? 'drawn' : ''}" id="outputs-box">
        <div class="outputs-words">
          <h2 id="outputs-title">What does it do to the outputs?</h2>
          <p class="outputs-verdict" id="outputs-verdict" role="status">${found === undefined ? running : verdictOf(found.judgment)}</p>
          ${placesView(found)}
          <p class="hint" id="outputs-basis">${found === undefined ? introduction(isText, lacksTokenizer) : basisOf(found, data)}</p>
          <details class="more outputs-figures" id="outputs-figures" ?hidden=${found === undefined} ?open=${this.#opensFigures}>
            <summary>All figures</summary>
            <div class="scroll" data-name="Figures of the outputs" ${scrollBox()}>${figuresView(found)}</div>
          </details>
          ${this.#dataView(judge, works, lacksTokenizer)}
          ${this.#workView(judge, state, lacksTokenizer)}
          <p class="outputs-problem" id="outputs-problem" role="alert">${problem}</p>
        </div>
        <div class="outputs-picture" id="outputs-picture" ?hidden=${!isDrawn}>
          <svg class="chart" id="outputs-chart" role="img" ${picture(
            (node: SVGSVGElement) => drawChart(node, judge.state, wanted.key),
            [judged, shown, data, wanted.key, isDrawn],
          )}><title></title><desc></desc></svg>
          <p class="hint" id="outputs-caption">${captionOf(isText, judge.state)}</p>
          <div class="outputs-types" id="outputs-types" role="group" aria-label="Types in the picture">${this.#typesView(judge, wanted, isSaving(state.run))}</div>
        </div>
      </div>`;
  }

  /** The data that both models are run on. */
  #dataView(judge: Judge, works: boolean, lacksTokenizer: boolean): TemplateResult {
    const { kind, text, inputs, tokens } = judge.state.data;
    const { takesTexts, takesArrays } = judge.kind;
    const isText = kind === 'texts';
    const hasKinds = takesTexts && takesArrays;
    const file = isText ? text : inputs;
    const pick = ({ target }: Event, isTokenizer: boolean) => {
      const input = target as HTMLInputElement;
      const files = [...(input.files ?? [])];
      input.value = '';
      give(judge, files, isTokenizer);
    };
    return html`
      <div class="outputs-data" id="outputs-data" ?hidden=${lacksTokenizer && !hasKinds}>
        <fieldset class="segments" id="outputs-kind" ?hidden=${!hasKinds} ?disabled=${works}><legend>Compared on</legend>${(
          ['texts', 'arrays'] as const
        ).map(
          (one) =>
            html`<label><input type="radio" name="outputs-kind" value=${one} .checked=${live(one === kind)} @change=${() => judge.use({ kind: one })}><span>${one === 'texts' ? 'A text' : 'Arrays'}</span></label>`,
        )}</fieldset>
        <div class="outputs-source" id="outputs-source-row" ?hidden=${lacksTokenizer}>
          <span class="outputs-name" id="outputs-source">${file?.name ?? (isText ? 'A built-in story' : 'Random inputs')}</span>
          <button type="button" class="small" id="outputs-choose" ?disabled=${works}
            @click=${() => document.getElementById('outputs-file')?.click()}>${isText ? 'Choose a text…' : 'Choose inputs…'}</button>
          <button type="button" class="small" id="outputs-usual" data-next="#outputs-choose" ?hidden=${file === undefined} ?disabled=${works}
            @click=${() => judge.use({ text: undefined, inputs: undefined })}>${isText ? 'Use the built-in story' : 'Use random inputs'}</button>
        </div>
        <fieldset class="segments" id="outputs-tokens" ?hidden=${!isText || lacksTokenizer} ?disabled=${works}><legend>Tokens of the text</legend>${tokenChoices.map(
          (count) =>
            html`<label><input type="radio" name="outputs-tokens" value=${count} .checked=${live(count === tokens)} @change=${() => judge.use({ tokens: count })}><span>${formatCount(count)}</span></label>`,
        )}</fieldset>
        ${isText ? nothing : Object.entries(judge.sizes).map(([name, size]) => this.#sizeView(judge, name, size, works))}
        <input type="file" id="outputs-file" accept=${isText ? '.txt,.md,text/plain' : '.npz,.npy,image/*'} class="hidden" tabindex="-1" aria-label="Text or inputs" @change=${(event: Event) => pick(event, false)}>
        <input type="file" id="outputs-tokenizer" accept=".json" class="hidden" tabindex="-1" aria-label="tokenizer.json" multiple @change=${(event: Event) => pick(event, true)}>
      </div>`;
  }

  /** A field for the size of a dimension that the model leaves open. */
  #sizeView(judge: Judge, name: string, size: number, works: boolean): TemplateResult {
    const change = ({ target }: Event) => {
      const { valueAsNumber } = target as HTMLInputElement;
      if (!Number.isInteger(valueAsNumber) || valueAsNumber < 0) this.#redraw();
      else judge.use({ sizes: { ...judge.state.data.sizes, [name]: valueAsNumber } });
    };
    return html`<label class="field outputs-size">${name}
      <input type="number" min="0" step="1" name="outputs-size" data-name=${name} ?disabled=${works} .value=${live(String(size))} @change=${change}></label>`;
  }

  /** The buttons that start and stop, and the progress. */
  #workView(judge: Judge, state: OpenState, lacksTokenizer: boolean): TemplateResult {
    const { choice, plan, run, expectedSeconds } = state;
    const { queue, judged, progress } = judge.state;
    const works = queue.length > 0;
    const changesNothing = plan !== undefined && plan.totals.quantized + plan.totals.cast === 0;
    const isDone = judged.has(judge.wanted(choice).key);
    const others = isDone ? judge.offered(choice).filter(({ key }) => !judged.has(key)) : [];
    const isWhole = isDone && others.length === 0;
    let label = 'Compare the outputs';
    if (lacksTokenizer) label = 'Choose tokenizer.json…';
    else if (isWhole) label = 'Every type is compared';
    else if (isDone)
      label = others.length === 1 ? 'Compare the other type' : `Compare the other ${others.length} types`;
    const count = lacksTokenizer ? 0 : isDone ? others.length : 1;
    const start = () => {
      if (lacksTokenizer) document.getElementById('outputs-tokenizer')?.click();
      else if (judge.resultOf(choice) === undefined) judge.add(judge.wanted(choice));
      else for (const one of judge.offered(choice)) judge.add(one);
    };
    const stop = () => {
      judge.cancel();
      announce('Stopped', 0);
    };
    let share: number | undefined = 0;
    if (works && progress !== undefined) {
      if (progress.step === 'run') share = undefined;
      else if (progress.step === 'quantize') share = progress.share * quantizeShare;
      else share = quantizeShare + progress.share * (1 - quantizeShare);
    }
    const otherTypes = '#outputs-types button then #outputs-choose';
    return html`
      <div class="outputs-work">
        <div class="row">
          <button type="button" id="outputs-run" data-next="#outputs-cancel then ${otherTypes}" ?hidden=${works} ?disabled=${isSaving(run) || changesNothing || isWhole} @click=${start}>${label}</button>
          <button type="button" id="outputs-cancel" data-next="#outputs-run then ${otherTypes}" ?hidden=${!works} @click=${stop}>Stop</button>
        </div>
        <progress id="outputs-progress" class=${works ? '' : 'resting'} max="1" value=${share ?? nothing} aria-label="Progress of comparing outputs" aria-hidden=${String(!works)}></progress>
        <p class="hint" id="outputs-status">${changesNothing && !works ? 'These settings change nothing.' : statusOf(judge, count, expectedSeconds)}</p>
      </div>`;
  }

  /** The buttons of the types. A pressed one is in the picture, or waits for its turn. */
  #typesView(judge: Judge, current: WantedType, isBusy: boolean): TemplateResult {
    const { queue, shown, judged } = judge.state;
    const button = (wanted: WantedType) => {
      const { key, label } = wanted;
      const at = queue.findIndex((one) => one.key === key);
      const isIn = at >= 0 || shown.has(key);
      const isCurrent = key === current.key;
      const title = at === 0 ? 'being compared' : at > 0 ? 'waits for its turn' : isCurrent ? 'the chosen type' : '';
      const classes = ['small', at >= 0 && 'waiting', isCurrent && 'current'].filter(Boolean).join(' ');
      return html`<button type="button" class=${classes} data-key=${key} aria-pressed=${String(isIn)} title=${title} ?disabled=${isBusy && !judged.has(key)}
        @click=${() => (isIn ? judge.remove(wanted) : judge.add(wanted))}>${label}</button>`;
    };
    return html`<span class="hint">Compare with</span>${judge.offered(current.choice).map(button)}`;
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

/** The sentence before anything was compared. */
function introduction(isText: boolean, lacksTokenizer: boolean): string {
  if (lacksTokenizer) {
    return 'This model comes without its tokenizer. Drop the tokenizer.json of the folder that it was made from, too.';
  }
  return isText
    ? 'Both models read the same text, and their predictions of each next word are compared. Nothing leaves this device.'
    : 'Both models are run on the same inputs, and their outputs are compared. Nothing leaves this device.';
}

/** The line below the button. @param count of the types that the button adds @param quantizing seconds of making one of them */
function statusOf(judge: Judge, count: number, quantizing = 0): string {
  const { queue, progress, stepBegin, ending } = judge.state;
  const [first, ...others] = queue;
  if (first !== undefined && progress !== undefined) {
    const waiting = others.length === 0 ? '' : ` · then ${others.map(({ label }) => label).join(', ')}`;
    return stepText(first, progress, stepBegin) + waiting;
  }
  const seconds = judge.expectedSeconds;
  const time =
    seconds === undefined || count === 0 ? '' : `Takes about ${formatSeconds(count * (seconds + quantizing))}.`;
  return ending?.kind === 'cancelled' ? `Stopped. ${time}` : time;
}

function stepText({ label }: WantedType, progress: NonNullable<Judge['state']['progress']>, begin: number): string {
  if (progress.step === 'run') {
    return `${label}: running both models on the processor${progress.wantsGpu ? ' and the GPU' : ''}…`;
  }
  const { share } = progress;
  const done = `${Math.floor(share * 100)}\u00a0%`;
  const left = leftText(share < 1 ? secondsLeft(share, begin) : undefined);
  if (progress.step === 'quantize') return `${label}: quantizing, ${done}${left}`;
  return `${label}: ${formatMany(progress.tokens, 'token')} in all layers, ${done}${left}`;
}

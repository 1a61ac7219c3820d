// Panel *Write with both*: the model and its result continue the same text.
import { mostHeldBytes } from '../../src/tooling.js';
import { differing, wordsOf } from '../shared/continuations.js';
import { choiceView } from '../shared/controls.js';
import type { ModelFile } from '../shared/files.js';
import { formatBytes, formatCount } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { asSentence } from '../shared/problems.js';
import { html, live, nothing, type TemplateResult } from '../shared/template.js';
import { formatFor } from './choice.js';
import { floatsFor, resultKey } from './judge.js';
import { type OutputsPanel, whyNoOutputs } from './outputs-panel.js';
import type { ModelSession } from './session.js';
import { countNumbers, totalBytes } from './sizes.js';
import { isSaving, type OpenState } from './state.js';
import { lengthChoices, resultText, speedText, statusOf } from './write.js';
import { Writer } from './writer.js';
import './write.css';

/** Most characters of a beginning. */
const longestBeginning = 2000;

/** Bytes of the weights as floats, in which both models are computed with. The table of tokens counts once, as the head. */
function heldBytes({ tensors }: ModelFile): number {
  const names = new Set(tensors.map(({ name }) => name));
  const hasHead = names.has('output.weight') || names.has('lm_head.weight');
  const held = tensors.filter(
    ({ name }) => !hasHead || !/(^|\.)(token_embd|embed_tokens|embed_in|wte)\.weight$/.test(name),
  );
  return 4 * held.reduce((sum, { shape }) => sum + countNumbers(shape), 0);
}

/** The words of a text, of which those that differ are marked. */
const wordsView = (words: readonly string[], marks: readonly boolean[]) =>
  words.map((word, i) => {
    const text = word.trimStart();
    const blank = word.slice(0, word.length - text.length);
    return html`${blank}${marks[i] ? html`<mark>${text}</mark>` : text}`;
  });

/** The section *Write with both*. */
export class WritePanel {
  readonly #session: ModelSession;
  readonly #outputs: OutputsPanel;
  readonly #redraw: () => void;
  readonly #writers = new WeakMap<ModelFile, Writer>();
  #active: Writer | undefined;

  constructor(session: ModelSession, outputs: OutputsPanel, redraw: () => void) {
    this.#session = session;
    this.#outputs = outputs;
    this.#redraw = redraw;
  }

  /** Stops writing, and frees the memory of the models. */
  rest(): void {
    this.#active?.rest();
    this.#active = undefined;
  }

  view(state: OpenState): TemplateResult {
    const { model, outputs: kind } = state;
    const why = whyNoOutputs(state);
    const isOffered = why === undefined && kind?.takesTexts === true;
    const writer =
      isOffered && !kind.takesArrays ? (this.#writers.get(model) ?? new Writer(model, this.#redraw)) : undefined;
    if (writer !== undefined) this.#writers.set(model, writer);
    if (this.#active !== writer) this.#active?.rest();
    this.#active = writer;
    return html`
      <section class="write" id="write" aria-labelledby="write-title" ?hidden=${!isOffered}>
        ${writer === undefined ? nothing : this.#boxView(writer, state)}
        <p class="hint" id="write-why" ?hidden=${!isOffered || writer !== undefined}>ONNX models do not write here. Save the folder, and write with it in transformers.js.</p>
      </section>`;
  }

  #boxView(writer: Writer, state: OpenState): TemplateResult {
    const { model, choice, plan, run } = state;
    const { begin, length, sides, given, progress, label, problem, agreement } = writer.state;
    const works = progress !== undefined;
    const need = heldBytes(model);
    const tooLarge = need > mostHeldBytes;
    const lacksTokenizer = !this.#outputs.hasTokenizer;
    const changesNothing = plan !== undefined && plan.totals.quantized + plan.totals.cast === 0;
    const [original = [], result = []] = sides.map(({ text }) => wordsOf(text));
    // Words of the result that the original has not reached yet do not differ.
    const isWhole = sides.every(({ isDone }) => isDone);
    const marks = differing(result, original).map((mark, i) => mark && (isWhole || i < original.length - 1));
    const start = (event: Event) => {
      event.preventDefault();
      if (works || begin.trim() === '') return;
      const { tokenizer } = this.#outputs;
      const key = JSON.stringify([resultKey(choice), tokenizer.map(({ name, size }) => [name, size])]);
      const question = { key, tokenizer, floats: floatsFor(formatFor(model, choice.to)) };
      void writer.write(choice.size ?? choice.to, question, this.#session.options(model, choice));
    };
    const stop = () => {
      writer.stop();
      announce('Stopped', 0);
    };
    let hint = `Both take the most likely next word each time. That takes ${formatBytes(2 * need)} of memory, and nothing leaves this device.`;
    if (tooLarge) {
      hint = `To write, this model is unpacked to floats. They take ${formatBytes(need)}, and a page has memory for ${formatBytes(mostHeldBytes)}.`;
    } else if (lacksTokenizer)
      hint =
        'This model comes without its tokenizer. Drop the tokenizer.json of the folder that it was made from, too.';
    else if (changesNothing) hint = 'These settings change nothing.';
    const isDisabled = tooLarge || lacksTokenizer || changesNothing || isSaving(run) || begin.trim() === '';
    const sizes = [totalBytes(model.files), agreement?.bytes ?? plan?.totals.bytesAfter];
    const names = ['Original', label];
    const shown = [wordsView(original, []), wordsView(result, marks)];
    return html`
      <form class="write-box" id="write-form" @submit=${start}>
        <h2 id="write-title">Write with both</h2>
        <label class="field">The text begins
          <textarea id="write-begin" rows="2" maxlength=${longestBeginning} ?disabled=${works} .value=${live(begin)}
            @input=${({ target }: Event) => writer.set({ begin: (target as HTMLTextAreaElement).value })}></textarea>
        </label>
        <div class="write-row">
          ${choiceView({
            name: 'write-length',
            legend: 'Tokens to write',
            options: Object.fromEntries(lengthChoices.map((count) => [String(count), formatCount(count)])),
            chosen: String(length),
            isDisabled: works,
            choose: (value) => writer.set({ length: Number(value) }),
          })}
          <button type="submit" id="write-run" data-next="#write-stop" ?hidden=${works} ?disabled=${isDisabled}>Write with the original and ${choice.size ?? choice.to}</button>
          <button type="button" id="write-stop" data-next="#write-run" ?hidden=${!works} @click=${stop}>Stop</button>
          <progress id="write-progress" max="1" value=${progress !== undefined && 'share' in progress ? progress.share : nothing} ?hidden=${!works || sides.length > 0} aria-label="Progress"></progress>
        </div>
        <p class="hint" id="write-status">${works ? statusOf(writer.state) : hint}</p>
        <p class="outputs-problem" id="write-problem" role="alert" ?hidden=${problem === ''}>${problem === '' ? '' : asSentence(`The text could not be written: ${problem}`)}</p>
        <p class="outputs-verdict" id="write-verdict" role="status" ?hidden=${agreement === undefined}>${resultText(writer.state)}</p>
        <div class="write-texts" id="write-texts" ?hidden=${sides.length === 0}>${sides.map(
          (side, i) => html`<div class="write-text">
            <h3>${names[i]} <span class="hint">${sizes[i] === undefined ? '' : formatBytes(sizes[i])}</span></h3>
            <p><span class="given">${given}</span>${shown[i]}${side.isStuck ? ' …' : ''}</p>
            <p class="hint">${speedText(side)}${side.isStuck ? '. It repeats itself without end.' : ''}</p>
          </div>`,
        )}</div>
      </form>`;
  }
}

// Control *Let data decide*: an importance matrix, or moments for GPTQ, from a file or made here.
import { callWorker, isEnded } from '../shared/calls.js';
import type { ModelFile } from '../shared/files.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { sentence } from '../shared/problems.js';
import { headOf } from '../shared/strangers.js';
import { html, type TemplateResult } from '../shared/template.js';
import { type ChosenStatistics, formatFor, takesFolds, takesStatistics } from './choice.js';
import { inPageWords } from './explain.js';
import type { ModelSession } from './session.js';
import { isSaving, type OpenState, type State } from './state.js';
import type { StatisticsCalls } from './statistics-worker.js';
import { packageError } from './workers.js';

/** Most tokens of the built-in text. */
const tokens = 4096;
/** The byte after the length of its header, with which a safetensors file of moments begins. */
const brace = 0x7b;

/** Names of files of samples. */
const samplesPattern = /\.(np[yz]|jsonl)$/i;

/** Purpose of a file of statistics, by its content. */
async function methodOf(file: File): Promise<'gptq' | 'importance'> {
  return (await headOf(file))[8] === brace ? 'gptq' : 'importance';
}

const hasTokenizer = ({ files }: ModelFile) => files.some(({ name }) => name === 'tokenizer.json');

/** The line about the statistics in use. */
function wordsOf(statistics: ChosenStatistics | undefined, canMake: boolean, canFold: boolean): string {
  if (statistics === undefined) {
    if (canFold)
      return 'Samples of the inputs (.npz) move large channels from norms into the weights, if that brings the outputs closer. An importance matrix, or moments of “scalepoint calibrate”, make errors smaller where inputs are large.';
    return canMake
      ? 'The columns of the weights that a text uses most get smaller errors (importance matrix), or make up for errors of those before them (moments, GPTQ). Choose a file, or make one here: the model reads a built-in text. Outputs are compared on another one.'
      : 'The columns of the weights that a text uses most get smaller errors. Choose an importance matrix of llama.cpp, or moments of “scalepoint calibrate”.';
  }
  const { file, method } = statistics;
  if (method === 'fold')
    return `${formatMany(statistics.norms.length, 'norm')} folded by the samples in ${file.name}, which brings the outputs closer.`;
  const what = method === 'gptq' ? 'GPTQ with the moments in' : 'Columns are weighted by';
  return `${what} ${file.name} (${formatBytes(file.size)}).`;
}

/** The control. */
export class StatisticsPanel {
  readonly #session: ModelSession;
  readonly #current: () => State;
  readonly #redraw: () => void;
  readonly #worker = callWorker<StatisticsCalls>(
    () => new Worker(new URL('./statistics-worker.ts', import.meta.url), { type: 'module' }),
    { work: 'runs the model', errorOf: packageError },
  );
  /** The model that the members below belong to. */
  #model: ModelFile | undefined;
  /** Share of the work that is done; undefined without any. */
  #share: number | undefined;
  #problem = '';
  /** Statistics that were made during a save. */
  #waiting: ChosenStatistics | undefined;

  constructor(session: ModelSession, current: () => State, redraw: () => void) {
    this.#session = session;
    this.#current = current;
    this.#redraw = redraw;
  }

  /** Stops the work for another model than this one, and forgets what it made. */
  follow(model: ModelFile | undefined): void {
    if (model === this.#model) return;
    this.#model = model;
    if (this.#share !== undefined) this.#stop();
    this.#waiting = undefined;
    this.#problem = '';
  }

  #stop(): void {
    this.#worker.end();
    this.#share = undefined;
    this.#redraw();
  }

  /** Uses statistics of a model, or those in use no longer. During a save they wait for its end. */
  #use(statistics: ChosenStatistics | undefined, wanted: ModelFile): void {
    const { choice, model, run } = this.#current();
    if (choice === undefined || model !== wanted) return;
    this.#waiting = isSaving(run) ? statistics : undefined;
    if (isSaving(run)) return;
    const { statistics: _, ...rest } = choice;
    this.#session.choose(statistics === undefined ? rest : { ...rest, statistics });
  }

  async #make(model: ModelFile, wantsMoments: boolean): Promise<void> {
    this.#problem = '';
    this.#share = 0;
    this.#redraw();
    const question = { files: model.files, tokenizer: [], text: undefined, tokens, wantsMoments };
    try {
      const blob = await this.#worker.call('make', question, (share) => {
        this.#share = share;
        this.#redraw();
      });
      const name = wantsMoments ? 'story.moments.safetensors' : 'story.imatrix.gguf';
      this.#use({ file: new File([blob], name), method: wantsMoments ? 'gptq' : 'importance' }, model);
      announce(`${name} is used`, 0);
    } catch (error) {
      if (isEnded(error)) return;
      this.#problem = sentence(inPageWords(error));
    }
    this.#stop();
  }

  /** Finds norms to fold by samples, and folds them. */
  async #fold(file: File, { model, choice }: OpenState): Promise<void> {
    this.#problem = '';
    this.#share = 0;
    this.#redraw();
    try {
      const { statistics: _, ...rest } = choice;
      const options = await this.#session.options(model, rest);
      const { norms } = await this.#worker.call('fold', { files: model.files, options, samples: file }, () => {});
      if (norms.length > 0) this.#use({ file, method: 'fold', norms }, model);
      else this.#problem = 'Nothing is folded: no norm of this model can be, or its outputs would get no closer.';
    } catch (error) {
      if (isEnded(error)) return;
      this.#problem = sentence(inPageWords(error));
    }
    this.#stop();
  }

  async #choose({ target }: Event, state: OpenState): Promise<void> {
    const input = target as HTMLInputElement;
    const [file] = input.files ?? [];
    input.value = '';
    if (file === undefined) return;
    const { model, choice } = state;
    if (samplesPattern.test(file.name) && takesFolds(formatFor(model, choice.to), choice.to))
      await this.#fold(file, state);
    else this.#use({ file, method: await methodOf(file) }, model);
  }

  view(state: OpenState): TemplateResult {
    const { model, choice, outputs, run } = state;
    const format = formatFor(model, choice.to);
    const canFold = takesFolds(format, choice.to);
    this.follow(model);
    const waiting = this.#waiting;
    if (waiting !== undefined && !isSaving(run)) this.#use(waiting, model);
    // A model of ONNX would take the runtime as well.
    const canRead = hasTokenizer(model) || outputs?.hasVocabulary === true;
    const isMakeable = outputs?.takesTexts === true && !outputs.takesArrays && canRead;
    const works = this.#share !== undefined;
    const isUsed = choice.statistics !== undefined;
    const done = `The model reads a story: ${Math.floor((this.#share ?? 0) * 100)}\u00a0%`;
    const running = canFold ? 'The model runs on the samples…' : done;
    const words = works ? running : wordsOf(choice.statistics, isMakeable, canFold);
    return html`
      <div class="data-field" id="data-field" ?hidden=${!canFold && !takesStatistics(format, choice.to)}>
        <p class="field">Let data decide</p>
        <p class="hint" id="data-words" role="status">${words}</p>
        <div class="row">
          <button type="button" id="data-choose" ?hidden=${works} @click=${() => document.getElementById('data-file')?.click()}>Choose a file…</button>
          <button type="button" id="data-make" ?hidden=${!works && (isUsed || !isMakeable)}
            @click=${() => (works ? this.#stop() : void this.#make(model, false))}>${works ? 'Stop' : 'Make an importance matrix'}</button>
          <button type="button" id="data-gptq" data-next="#data-make" ?hidden=${works || isUsed || !isMakeable} @click=${() => void this.#make(model, true)}>Make moments for GPTQ</button>
          <button type="button" id="data-remove" data-next="#data-choose" ?hidden=${works || !isUsed} @click=${() => this.#use(undefined, model)}>Without data</button>
        </div>
        <p class="rules-problem" id="data-problem" role="alert">${this.#problem}</p>
        <input type="file" id="data-file" class="hidden" tabindex="-1" aria-label="Statistics of the model" @change=${(event: Event) => void this.#choose(event, state)}>
      </div>`;
  }
}

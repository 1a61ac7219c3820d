// Control *Let data decide*: an importance matrix, or moments for GPTQ, from a file or made here.
import { callWorker, isEnded } from '../shared/calls.js';
import { byId, setText } from '../shared/dom.js';
import type { ModelFile } from '../shared/files.js';
import { headOf } from '../shared/files.js';
import { formatBytes } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { sentence } from '../shared/problems.js';
import { type ChosenStatistics, formatFor, type ModelChoice, takesStatistics } from './choice.js';
import { inPageWords } from './explain.js';
import { packageError } from './failure.js';
import { isSaving, type State } from './state.js';
import type { StatisticsCalls } from './statistics-worker.js';

/** Most tokens of the built-in text. */
const tokens = 4096;
/** The byte after the length of its header, with which a safetensors file of moments begins. */
const brace = 0x7b;

/** Purpose of a file of statistics, by its content. */
async function methodOf(file: File): Promise<ChosenStatistics['method']> {
  return (await headOf(file))[8] === brace ? 'gptq' : 'importance';
}

const hasTokenizer = ({ files }: ModelFile) => files.some(({ name }) => name === 'tokenizer.json');

/** The line about the statistics in use. */
function wordsOf(statistics: ChosenStatistics | undefined, canMake: boolean): string {
  if (statistics === undefined) {
    return canMake
      ? 'Columns that the model uses more get smaller errors. Choose an importance matrix or moments, or make them here: the model reads a built-in story.'
      : 'Columns that the model uses more get smaller errors. Choose an importance matrix of llama.cpp, or moments of scalepoint calibrate.';
  }
  const { file, method } = statistics;
  const what = method === 'gptq' ? 'GPTQ with the moments in' : 'Columns are weighted by';
  return `${what} ${file.name} (${formatBytes(file.size)}).`;
}

class StatisticsPanel {
  readonly #picker = byId('data-file', HTMLInputElement);
  readonly #pick = byId('data-choose', HTMLButtonElement);
  readonly #make = byId('data-make', HTMLButtonElement);
  readonly #gptq = byId('data-gptq', HTMLButtonElement);
  readonly #remove = byId('data-remove', HTMLButtonElement);
  readonly #problem = byId('data-problem', HTMLElement);
  readonly #choose: (choice: ModelChoice) => void;
  readonly #current: () => State;
  readonly #worker = callWorker<StatisticsCalls>(
    () => new Worker(new URL('./statistics-worker.ts', import.meta.url), { type: 'module' }),
    { work: 'runs the model', errorOf: packageError },
  );
  #works = false;
  #share = 0;
  /** Statistics that were made during a save. */
  #waiting: ChosenStatistics | undefined;

  constructor(choose: (choice: ModelChoice) => void, current: () => State) {
    this.#choose = choose;
    this.#current = current;
    this.#pick.addEventListener('click', () => this.#picker.click());
    this.#make.addEventListener('click', () => this.#toggle(false));
    this.#gptq.addEventListener('click', () => this.#toggle(true));
    this.#remove.addEventListener('click', () => {
      const { model } = this.#current();
      if (model !== undefined) this.#take(undefined, model);
      this.#pick.focus();
    });
    this.#picker.addEventListener('change', () => {
      const [file] = this.#picker.files ?? [];
      this.#picker.value = '';
      const { model } = this.#current();
      if (file === undefined || model === undefined) return;
      void methodOf(file).then((method) => this.#take({ file, method }, model));
    });
  }

  /** Stops the work, and clears the message. */
  reset(): void {
    this.#stop();
    this.#waiting = undefined;
    setText(this.#problem, '');
  }

  draw({ model, choice, outputs, run }: State): void {
    if (model === undefined || choice === undefined) return;
    const waiting = this.#waiting;
    if (waiting !== undefined && !isSaving(run)) this.#take(waiting, model);
    byId('data-field', HTMLElement).hidden = !takesStatistics(formatFor(model, choice.to), choice.to);
    // A model of ONNX would take the runtime as well.
    const isMakeable = outputs?.takesTexts === true && !outputs.takesArrays && hasTokenizer(model);
    const works = this.#works;
    const words = works
      ? `The model reads a story: ${Math.floor(this.#share * 100)}\u00a0%`
      : wordsOf(choice.statistics, isMakeable);
    setText(byId('data-words', HTMLElement), words);
    const isUsed = choice.statistics !== undefined;
    this.#pick.hidden = works;
    this.#make.hidden = !works && (isUsed || !isMakeable);
    this.#gptq.hidden = works || isUsed || !isMakeable;
    this.#remove.hidden = works || !isUsed;
    setText(this.#make, works ? 'Stop' : 'Make an importance matrix');
  }

  /** Uses statistics of a model, or those in use no longer. During a save they wait for its end. */
  #take(statistics: ChosenStatistics | undefined, wanted: ModelFile): void {
    const { choice, model, run } = this.#current();
    if (choice === undefined || model !== wanted) return;
    this.#waiting = isSaving(run) ? statistics : undefined;
    if (isSaving(run)) return;
    const { statistics: _, ...rest } = choice;
    this.#choose(statistics === undefined ? rest : { ...rest, statistics });
  }

  #stop(): void {
    this.#worker.end();
    this.#works = false;
  }

  /** Starts the work, or stops it. */
  #toggle(wantsMoments: boolean): void {
    const { model } = this.#current();
    if (model === undefined) return;
    if (!this.#works) void this.#start(model, wantsMoments);
    else this.#stop();
    this.draw(this.#current());
  }

  async #start(model: ModelFile, wantsMoments: boolean): Promise<void> {
    setText(this.#problem, '');
    this.#share = 0;
    this.#works = true;
    const question = { files: model.files, tokenizer: [], text: undefined, tokens, wantsMoments };
    try {
      const blob = await this.#worker.call('make', question, (share) => {
        this.#share = share;
        this.draw(this.#current());
      });
      this.#stop();
      const name = wantsMoments ? 'story.moments.safetensors' : 'story.imatrix.gguf';
      this.#take({ file: new File([blob], name), method: wantsMoments ? 'gptq' : 'importance' }, model);
      announce(`${name} is used`, 0);
    } catch (error) {
      if (isEnded(error)) return;
      this.#stop();
      setText(this.#problem, sentence(inPageWords(error)));
    }
    this.draw(this.#current());
  }
}

/** Sets up the control. */
export function startStatistics(choose: (choice: ModelChoice) => void, current: () => State) {
  const panel = new StatisticsPanel(choose, current);
  return (state: State, before: State | undefined) => {
    if (state.model !== before?.model) panel.reset();
    const isSame = state.choice === before?.choice && state.model === before?.model;
    if (!isSame || state.run.kind !== before?.run.kind) panel.draw(state);
  };
}

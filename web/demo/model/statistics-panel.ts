// Control *Let data decide*: an importance matrix, or moments for GPTQ, from a file or made here.
import { byId, setText } from '../shared/dom.js';
import type { ModelFile } from '../shared/files.js';
import { headOf } from '../shared/files.js';
import { formatBytes } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { lostWorker, sentence } from '../shared/problems.js';
import { type ChosenStatistics, formatFor, type ModelChoice, takesStatistics } from './choice.js';
import { inPageWords } from './explain.js';
import { errorOf } from './failure.js';
import type { State } from './state.js';
import type { StatisticsAnswer, StatisticsQuestion } from './statistics-worker.js';

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

/** Sets up the control. */
export function startStatistics(choose: (choice: ModelChoice) => void, current: () => State) {
  const picker = byId('data-file', HTMLInputElement);
  const [pick, make, gptq, remove] = ['data-choose', 'data-make', 'data-gptq', 'data-remove'].map((id) =>
    byId(id, HTMLButtonElement),
  ) as [HTMLButtonElement, HTMLButtonElement, HTMLButtonElement, HTMLButtonElement];
  const problem = byId('data-problem', HTMLElement);
  let worker: Worker | undefined;
  let share = 0;

  const take = (statistics: ChosenStatistics | undefined) => {
    const { choice } = current();
    if (choice === undefined) return;
    const { statistics: _, ...rest } = choice;
    choose(statistics === undefined ? rest : { ...rest, statistics });
  };
  const stop = () => {
    worker?.terminate();
    worker = undefined;
  };
  const start = (wantsMoments: boolean) => {
    const { model } = current();
    if (model === undefined) return;
    if (worker !== undefined) {
      stop();
      return draw(current());
    }
    setText(problem, '');
    share = 0;
    const made = new Worker(new URL('./statistics-worker.ts', import.meta.url), { type: 'module' });
    worker = made;
    const fail = (message: string) => {
      stop();
      setText(problem, sentence(message));
      draw(current());
    };
    made.onerror = () => fail(lostWorker('runs the model'));
    made.onmessage = ({ data }: MessageEvent<StatisticsAnswer>) => {
      if (data.kind === 'failed') return fail(inPageWords(errorOf(data)));
      if (data.kind === 'progress') share = data.share;
      else {
        stop();
        const name = wantsMoments ? 'story.moments.safetensors' : 'story.imatrix.gguf';
        take({ file: new File([data.blob], name), method: wantsMoments ? 'gptq' : 'importance' });
        announce(`${name} is used`, 0);
      }
      draw(current());
    };
    const question: StatisticsQuestion = { files: model.files, tokenizer: [], text: undefined, tokens, wantsMoments };
    made.postMessage(question);
    draw(current());
  };
  pick.addEventListener('click', () => picker.click());
  make.addEventListener('click', () => start(false));
  gptq.addEventListener('click', () => start(true));
  remove.addEventListener('click', () => {
    take(undefined);
    pick.focus();
  });
  picker.addEventListener('change', () => {
    const [file] = picker.files ?? [];
    picker.value = '';
    if (file !== undefined) void methodOf(file).then((method) => take({ file, method }));
  });

  function draw({ model, choice, outputs }: State): void {
    if (model === undefined || choice === undefined) return;
    byId('data-field', HTMLElement).hidden = !takesStatistics(formatFor(model, choice.to), choice.to);
    // A model of ONNX would take the runtime as well.
    const isMakeable = outputs?.takesTexts === true && !outputs.takesArrays && hasTokenizer(model);
    const works = worker !== undefined;
    const words = works
      ? `The model reads a story: ${Math.floor(share * 100)}\u00a0%`
      : wordsOf(choice.statistics, isMakeable);
    setText(byId('data-words', HTMLElement), words);
    const isUsed = choice.statistics !== undefined;
    pick.hidden = works;
    make.hidden = !works && (isUsed || !isMakeable);
    gptq.hidden = works || isUsed || !isMakeable;
    remove.hidden = works || !isUsed;
    setText(make, works ? 'Stop' : 'Make an importance matrix');
  }

  return (state: State, before: State | undefined) => {
    if (state.model !== before?.model) {
      stop();
      setText(problem, '');
    }
    if (state.choice !== before?.choice || state.model !== before?.model) draw(state);
  };
}

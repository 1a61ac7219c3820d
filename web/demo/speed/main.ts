import { load } from 'scalepoint';
import { callWorker, isEnded } from '../shared/calls.js';
import { copy } from '../shared/copy.js';
import { byId } from '../shared/dom.js';
import { startDroppingElsewhere } from '../shared/drop-elsewhere.js';
import { announce } from '../shared/live.js';
import { failureText } from '../shared/problems.js';
import { showCore, startSite } from '../shared/site.js';
import { draw } from './draw.js';
import type { HeadlineTurn } from './headline.js';
import type { State } from './state.js';
import { csvOf, markdownOf, textOf } from './texts.js';
import type { BenchCalls } from './worker.js';

/** The page: its state, and the worker that measures. */
class Bench {
  #state: State = { run: 'none', rows: [], length: 'quick' };
  readonly #worker = callWorker<BenchCalls>(
    () => new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' }),
    { work: 'measures' },
  );
  readonly #main = byId('main', HTMLElement);

  get rows(): State['rows'] {
    return this.#state.rows;
  }

  /** Changes the state and draws it. */
  set(change: Partial<State>): void {
    this.#state = { ...this.#state, ...change };
    draw(this.#state);
  }

  /** Starts a run in a new worker, so that a run before it ends. */
  async start(run: 'first' | 'all'): Promise<void> {
    this.#worker.end();
    const { problem: _, ended: __, ...state } = this.#state;
    this.#state = { ...state, run, rows: run === 'all' ? [] : state.rows };
    draw(this.#state);
    // Another page may take the place of this one.
    const goOn = (act: () => void) => (this.#main.isConnected ? act() : this.#worker.end());
    try {
      if (run === 'first') {
        const turns: HeadlineTurn[] = [];
        await this.#worker.call('headline', undefined, (turn) => goOn(() => turns.push(turn)));
        this.#state = { ...this.#state, turns };
      } else {
        await this.#worker.call('all', { quick: state.length === 'quick' }, (row) =>
          goOn(() => this.set({ rows: [...this.#state.rows, row] })),
        );
      }
      this.stop('done');
      announce(run === 'all' ? 'The benchmark is done.' : (byId('race-title', HTMLElement).textContent ?? ''), 0);
    } catch (error) {
      if (isEnded(error)) return;
      this.#state = { ...this.#state, problem: failureText(error) };
      this.stop('failed');
    }
  }

  /** Ends the run. */
  stop(ended: NonNullable<State['ended']>): void {
    this.#worker.end();
    this.set({ run: 'none', ended });
  }
}

/** Sets up the buttons. */
function startButtons(bench: Bench, about: () => string): void {
  const form = byId('form', HTMLFormElement);
  form.addEventListener('input', () => {
    bench.set({ length: new FormData(form).get('length') === 'full' ? 'full' : 'quick' });
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    void bench.start('all');
  });
  byId('again', HTMLButtonElement).addEventListener('click', () => void bench.start('first'));
  byId('stop', HTMLButtonElement).addEventListener('click', () => bench.stop('stopped'));
  const onCopy = (id: string, text: () => string, what: string) =>
    byId(id, HTMLButtonElement).addEventListener('click', () => void copy(text(), what));
  onCopy('copy-text', () => textOf(bench.rows, about()), 'Table');
  onCopy('copy-markdown', () => markdownOf(bench.rows, about()), 'Table');
  onCopy('copy-csv', () => csvOf(bench.rows), 'Table');
  onCopy('copy-json', () => `${JSON.stringify({ about: about(), rows: bench.rows }, null, 2)}\n`, 'Figures');
}

async function start(): Promise<void> {
  startSite();
  let build = 'scalepoint';
  const bench = new Bench();
  startDroppingElsewhere();
  startButtons(bench, () => `${build}, one thread, ${navigator.userAgent}`);
  void bench.start('first');
  try {
    const core = await load({ blocks: true });
    const tier = core.simd ? 'SIMD' : 'scalar';
    build = `scalepoint ${core.version}, ${tier}`;
    showCore(core);
    core.dispose();
  } catch {
    // The version stays unknown. A run of the benchmark will report why the core does not load.
  }
}

void start();

import { load } from 'scalepoint';
import { copy } from '../shared/copy.js';
import { byId } from '../shared/dom.js';
import { startDroppingElsewhere } from '../shared/drop-elsewhere.js';
import { announce } from '../shared/live.js';
import { lostWorker } from '../shared/problems.js';
import { showCore, startSite } from '../shared/site.js';
import { draw } from './draw.js';
import type { HeadlineTurn } from './headline.js';
import type { State } from './state.js';
import { csvOf, markdownOf, textOf } from './texts.js';
import type { BenchReply, BenchRequest } from './worker.js';

/** The page: its state, and the worker that measures. */
class Bench {
  #state: State = { run: 'none', rows: [], length: 'quick' };
  #worker: Worker | undefined;
  readonly #main = byId('main', HTMLElement);
  /** Turns of the headline that is being measured. */
  #turns: HeadlineTurn[] = [];

  get rows(): State['rows'] {
    return this.#state.rows;
  }

  /** Changes the state and draws it. */
  set(change: Partial<State>): void {
    this.#state = { ...this.#state, ...change };
    draw(this.#state);
  }

  /** Starts a run in a new worker, so that a run before it ends. */
  start(run: 'first' | 'all'): void {
    this.#worker?.terminate();
    const { problem: _, ended: __, ...state } = this.#state;
    this.#state = { ...state, run, rows: run === 'all' ? [] : state.rows };
    draw(this.#state);
    this.#turns = [];
    const worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' });
    this.#worker = worker;
    worker.onerror = (error) => this.#fail(error.message || lostWorker('measures'));
    worker.onmessage = ({ data }: MessageEvent<BenchReply>) => this.#hear(data);
    worker.postMessage({
      quick: run === 'first' || state.length === 'quick',
      first: run === 'first',
    } satisfies BenchRequest);
  }

  /** Ends the run. */
  stop(ended: NonNullable<State['ended']>): void {
    this.#worker?.terminate();
    this.#worker = undefined;
    this.set({ run: 'none', ended });
  }

  #hear(reply: BenchReply): void {
    // Another page took the place of this one.
    if (!this.#main.isConnected) {
      this.#worker?.terminate();
      return;
    }
    if (reply.kind === 'failed') this.#fail(reply.message);
    else if (reply.kind === 'row') {
      this.set({ rows: [...this.#state.rows, reply.row] });
    } else if (reply.kind === 'turn') this.#turns.push(reply.turn);
    else {
      const isAll = this.#state.run === 'all';
      if (!isAll) this.#state = { ...this.#state, turns: this.#turns };
      this.stop('done');
      announce(isAll ? 'The benchmark is done.' : (byId('race-title', HTMLElement).textContent ?? ''), 0);
    }
  }

  #fail(problem: string): void {
    this.#state = { ...this.#state, problem };
    this.stop('failed');
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
    bench.start('all');
  });
  byId('again', HTMLButtonElement).addEventListener('click', () => bench.start('first'));
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
  bench.start('first');
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

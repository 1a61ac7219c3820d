import { load } from 'scalepoint';
import { callWorker, isEnded } from '../shared/calls.js';
import { copy } from '../shared/copy.js';
import { startDroppingElsewhere } from '../shared/drop-elsewhere.js';
import { announce } from '../shared/live.js';
import { failureText } from '../shared/problems.js';
import { showCore, startSite } from '../shared/site.js';
import { pageRenderer } from '../shared/template.js';
import type { HeadlineTurn } from './headline.js';
import type { State } from './state.js';
import { csvOf, markdownOf, textOf } from './texts.js';
import { type BenchEvents, pageView, ratioText } from './view.js';
import type { BenchCalls } from './worker.js';

let state: State = { run: 'none', rows: [], length: 'quick' };
let build = 'scalepoint';
const show = pageRenderer();

const worker = callWorker<BenchCalls>(() => new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' }), {
  work: 'measures',
});

/** Changes the state and draws it, unless another page has taken the place of this one. */
function set(change: Partial<State>): void {
  state = { ...state, ...change };
  if (!show(pageView(state, events))) worker.end();
}

/** Ends the run. */
function stop(ended: NonNullable<State['ended']>): void {
  worker.end();
  set({ run: 'none', ended });
}

/** Starts a run in a new worker, so that a run before it ends. */
async function measure(run: 'first' | 'all'): Promise<void> {
  worker.end();
  set({ run, problem: undefined, ended: undefined, ...(run === 'all' && { rows: [] }) });
  try {
    if (run === 'first') {
      const turns: HeadlineTurn[] = [];
      await worker.call('headline', undefined, (turn) => turns.push(turn));
      state = { ...state, turns };
    } else {
      const quick = state.length === 'quick';
      await worker.call('all', { quick }, (row) => set({ rows: [...state.rows, row] }));
    }
    stop('done');
    const headline = `In this browser, quantizing is ${ratioText(state)} as fast as plain JavaScript`;
    announce(run === 'all' ? 'The benchmark is done.' : headline, 0);
  } catch (error) {
    if (isEnded(error)) return;
    state = { ...state, problem: failureText(error) };
    stop('failed');
  }
}

const events: BenchEvents = {
  set,
  start: (run) => void measure(run),
  stop: () => stop('stopped'),
  copy(form) {
    const { rows } = state;
    const about = `${build}, one thread, ${navigator.userAgent}`;
    const texts = {
      text: () => textOf(rows, about),
      markdown: () => markdownOf(rows, about),
      csv: () => csvOf(rows),
      json: () => `${JSON.stringify({ about, rows }, null, 2)}\n`,
    };
    void copy(texts[form](), form === 'json' ? 'Figures' : 'Table');
  },
};

async function start(): Promise<void> {
  startSite();
  startDroppingElsewhere();
  void measure('first');
  try {
    const core = await load({ blocks: true });
    build = `scalepoint ${core.version}, ${core.simd ? 'SIMD' : 'scalar'}`;
    showCore(core);
    core.dispose();
  } catch {
    // The version stays unknown. A run of the benchmark will report why the core does not load.
  }
}

void start();

import { formatCount, formatLabel, formatMany, formatShape } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { explainLoading, showProblem } from '../shared/problems.js';
import { showCore, startSite } from '../shared/site.js';
import { html, pageRenderer } from '../shared/template.js';
import { closerPanel } from './closer.js';
import { controlsView, generatorView } from './controls.js';
import { countOf } from './data.js';
import { explainQuantizing } from './explain.js';
import { histogramPanel } from './histogram.js';
import { firstSettings, startAddress } from './history.js';
import { Loop, startClient } from './loop.js';
import { figuresPanel, sentence } from './result.js';
import { typeName } from './settings.js';
import { Sources } from './sources.js';
import type { PageEvents, State } from './state.js';
import type { NumbersView } from './view.js';

/** The heading. */
function headline({ settings, data }: NumbersView): string {
  const what = settings.codes === 'integers' ? `${settings.bits} bits do` : `${typeName(settings)} does`;
  return `What ${what} to ${formatMany(countOf(data), 'number')}`;
}

/** The line under the heading, which describes the data. */
function summary({ data, statistics }: NumbersView): string {
  const facts = [
    data.title,
    ...(data.shape.length > 1 ? [formatShape(data.shape)] : []),
    `from ${formatLabel(statistics.min)} to ${formatLabel(statistics.max)}`,
    ...(data.stored.name === 'float32' ? [] : [data.stored.name]),
    ...(statistics.notFinite > 0 ? [`${formatCount(statistics.notFinite)} not finite`] : []),
  ];
  return `${facts.join(' · ')}${data.note === undefined ? '' : `. ${data.note}`}`;
}

const client = startClient();
const render = pageRenderer();
const state: State = {
  settings: firstSettings(),
  held: undefined,
  view: undefined,
  slow: {},
  lineAt: undefined,
  row: { start: 0 },
  bar: undefined,
  open: new Set(),
  problem: undefined,
  isBusy: true,
};
/** Words for the time before the first view. */
let waits = 'Loading the core…';

const events: PageEvents = {
  change(settings, control, isMoving) {
    state.settings = { ...state.settings, ...settings };
    address.commit(state.settings, control);
    loop.schedule(isMoving);
  },
  set(change, needs) {
    Object.assign(state, change);
    if (needs === undefined) draw();
    else loop.schedule(needs !== 'view', needs === 'resized view');
  },
};

function draw(): void {
  const { view, isBusy } = state;
  const failed = view !== undefined && view.result === undefined;
  const isShown = render(html`
    <div class="lead">
      <h1 id="headline">${view === undefined ? 'What 4 bits do to numbers' : headline(view)}</h1>
      <p id="summary" class="summary">${view === undefined ? waits : summary(view)}</p>
      <div id="problems" role="alert"></div>
    </div>
    <div class="stage">
      ${histogramPanel(state, events)}
      ${controlsView(state, events, sources.view(generatorView(state.settings, events)))}
    </div>
    <div class=${failed ? 'result failed' : 'result'} id="result" tabindex="-1" aria-busy=${String(isBusy)}>
      ${figuresPanel(view)}
      ${closerPanel(state, events, client)}
    </div>`);
  if (!isShown) return;
  const ways = {
    saturate: () => events.change({ nonFinite: 'saturate' }, 'saturate'),
    useIntegers: () => events.change({ codes: 'integers' }, 'integers'),
  };
  const failure = view?.failure && explainQuantizing(view.failure, view.statistics, view.settings, ways);
  showProblem('settings', state.problem ?? failure);
}

const rested = () => announce(state.view === undefined ? '' : sentence(state.view));
const loop = new Loop(client, state, draw, rested);
const address = startAddress((wanted) => {
  state.settings = wanted;
  sources.show(wanted.data === 'own' && state.held !== undefined ? 'own' : 'generated');
  loop.schedule();
});
const sources = new Sources(client, {
  onGenerate: () => events.change({ data: 'generated' }, 'source'),
  onData(data) {
    if (state.held?.id !== data.id) state.row = { start: 0 };
    state.held = data;
    events.change({ data: 'own', part: 0 }, 'source');
  },
  onProblem: (problem) => showProblem('file', problem),
  onBusy: (isBusy) => loop.setReading(isBusy),
  redraw: draw,
});

/** Waits for the worker, or shows why the core did not load. */
async function start(): Promise<void> {
  draw();
  startSite();
  // What is dropped now waits for the worker.
  sources.start();
  try {
    showCore(await client.call('facts', undefined));
  } catch (error) {
    waits = '';
    return events.set({ problem: explainLoading(error) });
  }
  if (state.settings.data === 'own' && state.held === undefined) {
    // A link may ask for the visitor's own data before there are any.
    state.settings = { ...state.settings, data: 'generated' };
    showProblem('file', {
      title: 'This link was made for numbers that are not here',
      text: 'A link carries settings, never data. The settings are shown with generated numbers. Choose a file or paste numbers to use them on yours.',
    });
  }
  loop.schedule();
}

void start();

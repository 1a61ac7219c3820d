import { byId, setText } from '../shared/dom.js';
import { announce } from '../shared/live.js';
import { explainLoading, showProblem } from '../shared/problems.js';
import { showCore, startSite } from '../shared/site.js';
import { startActions } from './actions.js';
import { type Client, startClient } from './client.js';
import { startControls } from './controls.js';
import { draw, drawRest } from './draw.js';
import { firstSettings, startAddress } from './history.js';
import { Loop } from './loop.js';
import { barAt, showBar } from './pictures.js';
import { startProbe } from './probe.js';
import { sentence } from './results.js';
import type { Settings } from './settings.js';
import { startSources } from './sources.js';
import type { State } from './state.js';
import { startTable } from './table.js';
import { sections } from './view.js';

/** The `details` element of a section of the page. */
const detailsOf = (section: string) => byId(section === 'twin' ? 'twin' : `closer-${section}`, HTMLDetailsElement);

/** Sets up the views of the result: the number line, the bars, the table, and the sections that open. */
function startLooking(state: State, schedule: (moving?: boolean) => void): void {
  const slider = byId('window', HTMLInputElement);
  slider.addEventListener('input', () => {
    state.lineAt = slider.valueAsNumber / Math.max(1, Number(slider.max));
    schedule(true);
  });
  startTable(
    () => state.view?.rows,
    (row) => {
      state.row = row;
      schedule();
    },
  );
  startProbe((place) => {
    const { view } = state;
    if (view === undefined) return;
    state.bar = place === undefined ? undefined : 'bar' in place ? place.bar : barAt(view, place.share);
    showBar(view, state.bar);
  });
  // Skip the first call: it reports the size at which the page is drawn anyway.
  let first = true;
  new ResizeObserver(() => {
    if (!first) schedule(true);
    first = false;
  }).observe(byId('histogram', SVGSVGElement));
  for (const section of sections) detailsOf(section).addEventListener('toggle', () => schedule());
}

/** The sections that are open. */
const openSections = () => sections.filter((section) => detailsOf(section).open);

/** Sets up the page. Everything that it draws follows from `state`. */
function startPage(client: Client): void {
  const state: State = {
    settings: firstSettings(),
    own: undefined,
    view: undefined,
    lineAt: undefined,
    row: { start: 0 },
    bar: undefined,
  };
  // Follow changes of the settings.
  const change = (settings: Settings, control: string, moving = false) => {
    state.settings = settings;
    address.commit(settings, control);
    loop.schedule(moving);
  };
  const ways = {
    saturate: () => change({ ...state.settings, nonFinite: 'saturate' }, 'saturate'),
    useIntegers: () => change({ ...state.settings, codes: 'integers' }, 'integers'),
  };
  const controls = startControls(() => state.settings, change);
  // Draw when something changed.
  const loop = new Loop(client, state, {
    openSections,
    draw: () => draw(state, controls, ways),
    drawRest: () => drawRest(state, (settings) => change(settings, 'ladder')),
    rested: () => announce(state.view === undefined ? '' : sentence(state.view)),
  });
  const address = startAddress((wanted) => {
    state.settings = wanted;
    sources.show(wanted.data === 'own' && state.own !== undefined ? 'own' : 'generated');
    loop.schedule();
  });
  // Take data of the visitor.
  const sources = startSources(client, {
    onGenerate: () => change({ ...state.settings, data: 'generated' }, 'source'),
    onData(data) {
      if (state.own?.id !== data.id) state.row = { start: 0 };
      state.own = data;
      change({ ...state.settings, data: 'own', part: 0 }, 'source');
    },
    onProblem: (problem) => showProblem('file', problem),
    onBusy: loop.setReading,
  });
  startLooking(state, loop.schedule);
  startActions(client, state);
  explainLink(state);
  sources.show('generated');
  loop.schedule();
}

/** A link may ask for the visitor's own data before there are any. */
function explainLink(state: State): void {
  if (state.settings.data !== 'own') return;
  state.settings = { ...state.settings, data: 'generated' };
  showProblem('file', {
    title: 'This link was made for numbers that are not here',
    text: 'A link carries settings, never data. The settings are shown with generated numbers. Choose a file or paste numbers to use them on yours.',
  });
}

/** Starts the worker and sets up the page, or shows why the core did not load. */
async function start(): Promise<void> {
  startSite();
  try {
    const client = startClient();
    showCore(await client.call('facts', undefined));
    startPage(client);
  } catch (error) {
    setText(byId('summary', HTMLElement), '');
    showProblem('settings', explainLoading(error));
  }
}

void start();

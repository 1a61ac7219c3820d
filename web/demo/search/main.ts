import { callWorker, isEnded } from '../shared/calls.js';
import { copy } from '../shared/copy.js';
import { byId, html, onResize, setText } from '../shared/dom.js';
import { startDropping } from '../shared/drop.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { failureText, sentence } from '../shared/problems.js';
import { showCore, startSite } from '../shared/site.js';
import {
  type DataFacts,
  type Figures,
  type FiguresKey,
  figuresKey,
  type Picture,
  type PictureKey,
  pictureKey,
  type SearchStep,
} from './messages.js';
import { drawPicture } from './picture.js';
import { defaults, dimsOf, factors, linkOf, metrics, parts, readLink, type Settings, widths } from './settings.js';
import type { SearchCalls } from './worker.js';

/** Results of a query. */
const k = 10;

/** State of the page. The drawing is a function of it. */
interface State {
  settings: Settings;
  data?: DataFacts | undefined;
  /** Words and share of what the page waits for. */
  doing?: { readonly words: string; readonly share: number } | undefined;
  problem?: string | undefined;
  readonly figures: Map<FiguresKey, Figures>;
  readonly pictures: Map<PictureKey, Picture>;
  /** Results on show, until those of new settings arrive. */
  lastFigures?: Figures | undefined;
  lastPicture?: Picture | undefined;
}

const state: State = { settings: readLink(location.hash), figures: new Map(), pictures: new Map() };

const formatTime = (milliseconds: number) => {
  // A clock that steps by a millisecond shows none.
  if (milliseconds === 0) return 'less than 1 ms';
  return milliseconds < 10 ? `${milliseconds.toPrecision(2)} ms` : `${Math.round(milliseconds)} ms`;
};
const formatShare = (share: number) => (share === 1 ? '100 %' : `${(100 * share).toFixed(1)} %`);
const scoredAgain = (factor: number) => (factor === 0 ? 'none' : `of the best ${k * factor}`);

/** The settings, with the query as a number below that of the queries. */
function settled(): Settings {
  const { settings, data } = state;
  return data === undefined ? settings : { ...settings, query: settings.query % data.queries };
}

// ------------------------------------------------------------------------------------------------------------------------ drawing

function drawControls(): void {
  const { bits, factor, part, metric } = state.settings;
  const slide = (id: string, at: number, words: string) => {
    const slider = byId(id, HTMLInputElement);
    slider.value = String(at);
    slider.setAttribute('aria-valuetext', words);
    setText(byId(`${id}-value`, HTMLOutputElement), words);
    for (const [i, stop] of [...(slider.nextElementSibling?.children ?? [])].entries()) {
      stop.classList.toggle('current', i === at);
    }
  };
  slide('bits', widths.indexOf(bits), bits === 1 ? '1 bit' : `${bits} bits`);
  slide('factor', factors.indexOf(factor), scoredAgain(factor));
  const { dimension } = state.data ?? {};
  const all = part === 1 ? 'all' : `the first ${part === 2 ? 'half' : 'quarter'}`;
  slide('part', parts.indexOf(part), dimension === undefined ? all : `${all}: ${dimsOf(state.settings, dimension)}`);
  for (const radio of document.querySelectorAll<HTMLInputElement>('[name="metric"]'))
    radio.checked = radio.value === metric;
}

function drawFigures(): void {
  const { data } = state;
  const own = state.figures.get(figuresKey(settled()));
  state.lastFigures = own ?? state.lastFigures;
  const figures = state.lastFigures;
  byId('figures', HTMLElement).classList.toggle('waiting', own === undefined);
  setText(byId('recall', HTMLElement), figures === undefined ? '–' : formatShare(figures.recall));
  setText(byId('time', HTMLElement), figures === undefined ? '–' : formatTime(figures.milliseconds));
  setText(byId('memory', HTMLElement), figures === undefined ? '–' : formatBytes(figures.bytes));
  if (data === undefined) return;
  setText(byId('time-note', HTMLElement), `exact, in plain JavaScript: ${formatTime(data.exactMilliseconds)}`);
  setText(byId('memory-note', HTMLElement), `as float32: ${formatBytes(data.count * data.dimension * 4)}`);
}

/** The cells of the table of recalls, by their settings. */
const cells: { readonly bits: Settings['bits']; readonly factor: Settings['factor']; readonly cell: HTMLElement }[] =
  [];

/** Makes the table; `drawTable` fills its cells. */
function startTable(): void {
  const headOf = (factor: number) => (factor === 0 ? 'once' : `best ${k * factor}`);
  const row = (bits: Settings['bits']) => {
    const own = factors.map((factor) => ({ bits, factor, cell: html('td', {}) }));
    cells.push(...own);
    const head = html('th', { scope: 'row' }, bits === 1 ? '1 bit' : `${bits} bits`);
    return html('tr', {}, head, ...own.map(({ cell }) => cell));
  };
  const heads = ['Bits', ...factors.map(headOf)].map((text) => html('th', { scope: 'col' }, text));
  byId('recalls', HTMLTableElement).replaceChildren(
    html('thead', {}, html('tr', {}, ...heads)),
    html('tbody', {}, ...widths.map(row)),
  );
}

function drawTable(): void {
  const { settings } = state;
  for (const { bits, factor, cell } of cells) {
    const found = state.figures.get(figuresKey({ ...settled(), bits, factor }));
    setText(cell, found === undefined ? '·' : formatShare(found.recall));
    if (settings.bits === bits && settings.factor === factor) cell.setAttribute('aria-current', 'true');
    else cell.removeAttribute('aria-current');
  }
}

function drawStatus(): void {
  const { data, doing, problem } = state;
  const failed = problem !== undefined;
  byId('problem', HTMLElement).hidden = !failed;
  setText(byId('problem-text', HTMLElement), problem === undefined ? '' : sentence(problem));
  const waits = !failed && (data === undefined || !state.figures.has(figuresKey(settled())));
  const progress = byId('progress', HTMLProgressElement);
  progress.classList.toggle('idle', !waits);
  progress.value = doing?.share ?? 0;
  byId('result', HTMLElement).ariaBusy = String(waits);
  byId('next', HTMLButtonElement).disabled = data === undefined;
  const words = failed ? '' : waits ? `${doing?.words ?? 'Loading'}…` : data === undefined ? '' : dataWords(data);
  setText(byId('status', HTMLElement), words);
  if (data === undefined) return;
  setText(byId('headline', HTMLElement), `Search ${formatMany(data.count, 'vector')} in this tab`);
  const rest = data.left > 0 ? ` ${formatMany(data.left, 'vector')} more were left out.` : '';
  const about = data.made ? '' : `${data.name}: ${dataWords(data)}${rest} `;
  setText(byId('data-words', HTMLElement), `${about}Files never leave this device.`);
}

const dataWords = ({ count, dimension, queries }: DataFacts) =>
  `${formatMany(count, 'vector')} of ${dimension} elements, ${formatMany(queries, 'query', 'queries')}.`;

/** Size of the chart. */
let size = { width: 0, height: 0 };
/** The settings of the last picture. */
let pictured = state.settings;

function drawOnePicture(): void {
  const own = state.pictures.get(pictureKey(settled()));
  state.lastPicture = own ?? state.lastPicture;
  byId('picture', HTMLElement).classList.toggle('waiting', own === undefined);
  if (own !== undefined) pictured = settled();
  drawPicture(state.lastPicture, { ...pictured, factor: state.settings.factor }, state.data?.queries ?? 0, size);
}

let isDue = false;
/** Draws with the next frame. */
function redraw(): void {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    drawControls();
    drawFigures();
    drawStatus();
    drawTable();
    drawOnePicture();
  });
}

// ------------------------------------------------------------------------------------------------------------------------- worker

const worker = callWorker<SearchCalls>(() => new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' }), {
  work: 'searches',
  onLost: fail,
});

function hear(step: SearchStep): void {
  if (step.kind === 'core') showCore(step.facts);
  else if (step.kind === 'doing') state.doing = step;
  else if (step.kind === 'data') state.data = step.facts;
  else if (step.kind === 'figures') {
    state.figures.set(step.key, step.figures);
    if (step.key === figuresKey(settled())) say(step.figures);
  } else state.pictures.set(step.key, step.picture);
  redraw();
}

function fail(error: unknown): void {
  if (isEnded(error)) return;
  state.problem = failureText(error);
  worker.end();
  redraw();
}

/** Says the result to screen readers. */
function say({ recall, milliseconds, bytes }: Figures): void {
  announce(`Recall ${formatShare(recall)}, ${formatTime(milliseconds)} a query, ${formatBytes(bytes)}.`);
}

/** Opens a file, or makes vectors. */
function open(file?: File): void {
  Object.assign(state, { data: undefined, doing: undefined, problem: undefined });
  Object.assign(state, { lastFigures: undefined, lastPicture: undefined });
  state.figures.clear();
  state.pictures.clear();
  // Ending the worker stops its work and frees its memory.
  worker.end();
  worker.call('open', { file, settings: state.settings }, hear).catch(fail);
  redraw();
}

// ----------------------------------------------------------------------------------------------------------------------- controls

/** Puts the settings into the address: once a slider rests, because browsers limit how often pages do so. */
function link(): void {
  history.replaceState(history.state, '', linkOf(state.settings));
}

function change(part: Partial<Settings>): void {
  state.settings = { ...state.settings, ...part };
  if (state.problem === undefined) worker.call('want', state.settings, hear).catch(fail);
  const known = state.figures.get(figuresKey(settled()));
  if (known !== undefined) say(known);
  redraw();
}

function startControls(): void {
  const onSlide = (id: string, act: (at: number) => void) =>
    byId(id, HTMLInputElement).addEventListener('input', ({ target }) =>
      act(Number((target as HTMLInputElement).value)),
    );
  onSlide('bits', (at) => change({ bits: widths[at] ?? defaults.bits }));
  onSlide('factor', (at) => change({ factor: factors[at] ?? defaults.factor }));
  onSlide('part', (at) => change({ part: parts[at] ?? defaults.part }));
  byId('settings', HTMLFormElement).addEventListener('change', ({ target }) => {
    const { name, value } = target as HTMLInputElement;
    const metric = metrics.find((one) => one === value);
    if (name === 'metric' && metric !== undefined) change({ metric });
    link();
  });
  byId('settings', HTMLFormElement).addEventListener('submit', (event) => event.preventDefault());
  const onClick = (id: string, act: () => void) => byId(id, HTMLButtonElement).addEventListener('click', act);
  onClick('reset', () => {
    change(defaults);
    link();
  });
  onClick('copy-link', () => void copy(location.href, 'Link'));
  onClick('next', () => {
    change({ query: (settled().query + 1) % (state.data?.queries ?? 1) });
    link();
  });
  onClick('again', () => open());
  onClick('made', () => open());
  const file = byId('file', HTMLInputElement);
  onClick('choose', () => file.click());
  file.addEventListener('change', () => {
    const [chosen] = file.files ?? [];
    file.value = '';
    if (chosen !== undefined) open(chosen);
  });
  startDropping(([first]) => first !== undefined && open(first));
  addEventListener('hashchange', () => change(readLink(location.hash)));
  onResize(byId('picture', HTMLElement), () => {
    size = byId('chart', SVGSVGElement).getBoundingClientRect();
    redraw();
  });
}

startSite();
startTable();
startControls();
redraw();
open();

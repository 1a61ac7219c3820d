import { callWorker, isEnded } from '../shared/calls.js';
import { copy } from '../shared/copy.js';
import { byId, type ElementFacts, markStop, onResize, showFacts } from '../shared/dom.js';
import { startDropping } from '../shared/drop.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { failureText, sentence } from '../shared/problems.js';
import { showCore, startSite } from '../shared/site.js';
import { html, nothing, render, type TemplateResult } from '../shared/template.js';
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

const dataWords = ({ count, dimension, queries }: DataFacts) =>
  `${formatMany(count, 'vector')} of ${dimension} elements, ${formatMany(queries, 'query', 'queries')}.`;

/** Everything that the page says, by the ids of its elements. */
function factsOf({ settings, data, doing, problem, figures, lastFigures }: State): Record<string, ElementFacts> {
  const { bits, factor, part } = settings;
  const isMeasured = figures.has(figuresKey(settled()));
  const failed = problem !== undefined;
  const waits = !failed && (data === undefined || !isMeasured);
  const slider = (id: string, at: number, words: string) => ({
    [id]: { value: String(at), ariaValueText: words },
    [`${id}-value`]: words,
  });
  const all = part === 1 ? 'all' : `the first ${part === 2 ? 'half' : 'quarter'}`;
  const elements = data === undefined ? all : `${all}: ${dimsOf(settings, data.dimension)}`;
  const rest = data === undefined ? '' : data.left > 0 ? ` ${formatMany(data.left, 'vector')} more were left out.` : '';
  const about = data === undefined || data.made ? '' : `${data.name}: ${dataWords(data)}${rest} `;
  return {
    ...slider('bits', widths.indexOf(bits), bits === 1 ? '1 bit' : `${bits} bits`),
    ...slider('factor', factors.indexOf(factor), scoredAgain(factor)),
    ...slider('part', parts.indexOf(part), elements),
    figures: { '.waiting': !isMeasured },
    recall: lastFigures === undefined ? '–' : formatShare(lastFigures.recall),
    time: lastFigures === undefined ? '–' : formatTime(lastFigures.milliseconds),
    memory: lastFigures === undefined ? '–' : formatBytes(lastFigures.bytes),
    problem: { hidden: !failed },
    'problem-text': failed ? sentence(problem) : '',
    progress: { '.idle': !waits, value: doing?.share ?? 0 },
    result: { ariaBusy: String(waits) },
    next: { disabled: data === undefined },
    status: waits ? `${doing?.words ?? 'Loading'}…` : failed || data === undefined ? '' : dataWords(data),
    ...(data !== undefined && {
      'time-note': `exact, in plain JavaScript: ${formatTime(data.exactMilliseconds)}`,
      'memory-note': `as float32: ${formatBytes(data.count * data.dimension * 4)}`,
      headline: `Search ${formatMany(data.count, 'vector')} in this tab`,
      'data-words': `${about}Files never leave this device.`,
    }),
  };
}

/** The table of recalls: a row for each width, a column for each factor. */
function recallsView({ settings, figures }: State): TemplateResult {
  const cell = (bits: Settings['bits'], factor: Settings['factor']) => {
    const found = figures.get(figuresKey({ ...settled(), bits, factor }));
    const isChosen = settings.bits === bits && settings.factor === factor;
    return html`<td aria-current=${isChosen ? 'true' : nothing}>${found === undefined ? '·' : formatShare(found.recall)}</td>`;
  };
  const heads = ['Bits', ...factors.map((factor) => (factor === 0 ? 'once' : `best ${k * factor}`))];
  return html`
    <thead><tr>${heads.map((text) => html`<th scope="col">${text}</th>`)}</tr></thead>
    <tbody>${widths.map(
      (bits) =>
        html`<tr><th scope="row">${bits === 1 ? '1 bit' : `${bits} bits`}</th>${factors.map((factor) => cell(bits, factor))}</tr>`,
    )}</tbody>`;
}

/** Size of the chart. */
let size = { width: 0, height: 0 };
/** The settings of the last picture. */
let pictured = state.settings;

function drawOnePicture(): void {
  const own = state.pictures.get(pictureKey(settled()));
  state.lastPicture = own ?? state.lastPicture;
  showFacts({ picture: { '.waiting': own === undefined } });
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
    // Results of the settings before stay until new ones arrive.
    state.lastFigures = state.figures.get(figuresKey(settled())) ?? state.lastFigures;
    showFacts(factsOf(state));
    for (const id of ['bits', 'factor', 'part']) {
      const slider = byId(id, HTMLInputElement);
      markStop(slider.nextElementSibling, slider.valueAsNumber);
    }
    for (const radio of document.querySelectorAll<HTMLInputElement>('[name="metric"]'))
      radio.checked = radio.value === state.settings.metric;
    render(recallsView(state), byId('recalls', HTMLTableElement));
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
startControls();
redraw();
open();

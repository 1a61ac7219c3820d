import { choiceView, filesView, sliderView } from '../shared/controls.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { sentence } from '../shared/problems.js';
import { html, nothing, picture, scrollBox, type TemplateResult } from '../shared/template.js';
import {
  type DataFacts,
  type Figures,
  type FiguresKey,
  figuresKey,
  type Picture,
  type PictureKey,
  pictureKey,
} from './messages.js';
import { drawPicture, pictureWords } from './picture.js';
import { dimsOf, factors, parts, type Settings, widths } from './settings.js';

/** Results of a query. */
const k = 10;

/** State of the page. The drawing is a function of it. */
export interface State {
  settings: Settings;
  data?: DataFacts | undefined;
  /** Words and share of what the page waits for. */
  doing?: { readonly words: string; readonly share: number } | undefined;
  problem?: string | undefined;
  /** Count of other files that were dropped with the one that is searched. */
  left?: number;
  readonly figures: Map<FiguresKey, Figures>;
  readonly pictures: Map<PictureKey, Picture>;
  /** Results on show, until those of new settings arrive. */
  lastFigures?: Figures | undefined;
  lastPicture?: { readonly picture: Picture; readonly settings: Settings } | undefined;
}

/** Actions of the visitor. */
export interface SearchEvents {
  /** Changes settings while a slider moves. */
  change(settings: Partial<Settings>): void;
  /** Puts the settings into the address. */
  link(): void;
  /** Changes settings, and puts them into the address. */
  set(settings: Partial<Settings>): void;
  reset(): void;
  copy(): void;
  /** Opens a file, or makes vectors without one. */
  open(file?: File): void;
}

/** The settings, with the query as a number below that of the queries. */
export const settled = ({ settings, data }: State): Settings =>
  data === undefined ? settings : { ...settings, query: settings.query % data.queries };

const formatTime = (milliseconds: number) => {
  // A clock that steps by a millisecond shows none.
  if (milliseconds === 0) return 'less than 1 ms';
  return milliseconds < 10 ? `${milliseconds.toPrecision(2)} ms` : `${Math.round(milliseconds)} ms`;
};
const formatShare = (share: number) => (share === 1 ? '100 %' : `${(100 * share).toFixed(1)} %`);
const formatBits = (bits: number) => (bits === 1 ? '1 bit' : `${bits} bits`);

/** A result for screen readers. */
export const figuresText = ({ recall, milliseconds, bytes }: Figures): string =>
  `Recall ${formatShare(recall)}, ${formatTime(milliseconds)} a query, ${formatBytes(bytes)}.`;

const dataText = ({ count, dimension, queries }: DataFacts) =>
  `${formatMany(count, 'vector')} of ${dimension} elements, ${formatMany(queries, 'query', 'queries')}.`;

function formView({ settings, data }: State, events: SearchEvents): TemplateResult {
  const { bits, factor, rows, part, metric } = settings;
  const all = part === 1 ? 'all' : `the first ${part === 2 ? 'half' : 'quarter'}`;
  return html`<form class="panel fields" id="settings" @submit=${(event: Event) => event.preventDefault()} @change=${events.link}>
    ${sliderView({
      id: 'bits',
      label: 'Bits of each element',
      max: widths.length - 1,
      at: widths.indexOf(bits),
      words: formatBits(bits),
      stops: widths,
      slide: (at) => events.change({ bits: widths[at] ?? bits }),
    })}
    ${sliderView({
      id: 'factor',
      label: 'Score again',
      max: factors.length - 1,
      at: factors.indexOf(factor),
      words: factor === 0 ? 'none' : `the best ${k * factor}`,
      stops: factors.map((one) => k * one),
      slide: (at) => events.change({ factor: factors[at] ?? factor }),
    })}
    ${choiceView({
      name: 'copies',
      legend: 'Copies for scoring again',
      options: { int8: '8 bits', float16: 'float16' },
      chosen: rows,
      isDisabled: factor === 0,
      choose: (chosen) => events.change({ rows: chosen }),
    })}
    ${sliderView({
      id: 'part',
      label: 'Elements searched',
      max: parts.length - 1,
      at: parts.indexOf(part),
      words: data === undefined ? all : `${all}: ${dimsOf(settings, data.dimension)}`,
      stops: ['¼', '½', 1],
      slide: (at) => events.change({ part: parts[at] ?? part }),
    })}
    ${choiceView({
      name: 'metric',
      legend: 'Score',
      options: { cosine: 'Cosine', dot: 'Product', euclidean: 'Distance' },
      chosen: metric,
      choose: (chosen) => events.change({ metric: chosen }),
    })}
    <div class="row"><button type="button" id="reset" @click=${events.reset}>Reset</button><button type="button" id="copy-link" @click=${events.copy}>Copy link</button></div>
  </form>`;
}

function pictureView(
  { settings, data, pictures, lastPicture }: State,
  events: SearchEvents,
  query: number,
): TemplateResult {
  const isWaiting = !pictures.has(pictureKey({ ...settings, query }));
  // The settings of the picture that is shown, and the factor of now.
  const shown = lastPicture && { ...lastPicture.settings, factor: settings.factor };
  const words =
    lastPicture === undefined || shown === undefined
      ? 'Where the true neighbors of a query land.'
      : pictureWords(lastPicture.picture, shown, data?.queries ?? 0);
  const draw = (chart: SVGSVGElement) => drawPicture(chart, lastPicture?.picture, shown);
  return html`<figure class=${isWaiting ? 'panel picture waiting' : 'panel picture'} id="picture">
    <svg class="chart" id="chart" role="img" aria-label="Exact scores and scores by codes" aria-describedby="picture-words"
      ${picture(draw, [lastPicture?.picture, settings.factor])}></svg>
    <ul class="series-legend picture-legend" aria-hidden="true">
      <li class="cloud-key">the 1,000 nearest vectors</li>
      <li class="found-key">true neighbor, found</li>
      <li class="lost-key">true neighbor, lost</li>
    </ul>
    <figcaption>
      <p id="picture-words">${words}</p>
      <button type="button" class="small" id="next" ?disabled=${data === undefined} @click=${() => events.set({ query: (query + 1) % (data?.queries ?? 1) })}>Another query</button>
    </figcaption>
  </figure>`;
}

function resultView(state: State, events: SearchEvents): TemplateResult {
  const { data, doing, problem, figures, lastFigures } = state;
  const settings = settled(state);
  const isMeasured = figures.has(figuresKey(settings));
  const waits = problem === undefined && (data === undefined || !isMeasured);
  const figure = (id: string, name: string, value: string | undefined, note: string | undefined) =>
    html`<div><dt>${name}</dt><dd><b id=${id}>${value ?? '–'}</b><span id="${id}-note">${note}</span></dd></div>`;
  return html`<div class="found" id="result" tabindex="-1" aria-busy=${String(waits)}>
    <dl class=${isMeasured ? 'figures' : 'figures waiting'} id="figures">
      ${figure('recall', 'Recall at 10', lastFigures && formatShare(lastFigures.recall), 'of the 10 nearest vectors are found')}
      ${figure('time', 'Time of a query', lastFigures && formatTime(lastFigures.milliseconds), data && `exact, in plain JavaScript: ${formatTime(data.exactMilliseconds)}`)}
      ${figure('memory', 'Memory', lastFigures && formatBytes(lastFigures.bytes), data && `as float32: ${formatBytes(data.count * data.dimension * 4)}`)}
    </dl>
    <p class="hint" id="status" role="status">${waits ? `${doing?.words ?? 'Loading'}…` : problem === undefined && data !== undefined ? dataText(data) : ''}</p>
    <progress id="progress" class=${waits ? '' : 'idle'} max="1" .value=${doing?.share ?? 0} aria-labelledby="status"></progress>
    <div class="problem" id="problem" role="alert" ?hidden=${problem === undefined}><p id="problem-text">${problem && sentence(problem)}</p><button type="button" @click=${() => events.open()}>Use the sample vectors</button></div>
  </div>
  ${pictureView(state, events, settings.query)}`;
}

/** The table of recalls: a row for each width, a column for each factor. */
function recallsView(state: State): TemplateResult {
  const { settings, figures } = state;
  const cell = (bits: Settings['bits'], factor: Settings['factor']) => {
    const found = figures.get(figuresKey({ ...settled(state), bits, factor }));
    const isChosen = settings.bits === bits && settings.factor === factor;
    return html`<td aria-current=${isChosen ? 'true' : nothing}>${found === undefined ? '·' : formatShare(found.recall)}</td>`;
  };
  const heads = ['Bits', ...factors.map((factor) => (factor === 0 ? 'once' : `best ${k * factor}`))];
  return html`<div class="scroll" data-name="Recall" ${scrollBox()}>
    <table class="recalls" id="recalls">
      <thead><tr>${heads.map((text) => html`<th scope="col">${text}</th>`)}</tr></thead>
      <tbody>${widths.map(
        (bits) => html`<tr><th scope="row">${formatBits(bits)}</th>${factors.map((factor) => cell(bits, factor))}</tr>`,
      )}</tbody>
    </table>
  </div>`;
}

/** The vectors that are searched, if they are the visitor's. */
function ownText({ data, left = 0 }: State): string {
  if (data === undefined || data.made) return '';
  const rest = data.left > 0 ? ` ${formatMany(data.left, 'vector')} more were left out.` : '';
  const others = left > 0 ? ` One file at a time is searched: ${formatMany(left, 'other')} was left out.` : '';
  return `${data.name}: ${dataText(data)}${rest}${others} `;
}

/** The page above its notes. */
export const pageView = (state: State, events: SearchEvents): TemplateResult => html`
  <section class="intro" aria-labelledby="headline">
    <h1 id="headline">${`Search ${formatMany(state.data?.count ?? 100_000, 'vector')} in this tab`}</h1>
    <p class="lede">Embeddings are vectors that stand for texts or pictures. In few bits they take little memory and are searched quickly. Scoring the best again, on finer copies, brings back what rounding loses. Move the sliders.</p>
  </section>
  <section class="lab" aria-labelledby="lab-title">
    <h2 class="hidden" id="lab-title">Settings and what they cost</h2>
    ${formView(state, events)}
    ${resultView(state, events)}
  </section>
  <section class="all" aria-labelledby="all-title">
    <h2 id="all-title">All settings</h2>
    <p class="hint">Recall at 10 by bits and second score, measured one after the other while the page rests.</p>
    ${recallsView(state)}
  </section>
  <section class="own" aria-labelledby="own-title">
    <h2 id="own-title">Your vectors</h2>
    <div class="drop">
      <p>Drop a file anywhere on the page: <code>.npy</code> or <code>.safetensors</code> with a matrix, or lines of JSON with a vector each.</p>
      <div class="row center">
        ${filesView('Choose a file', ([file]) => events.open(file))}
        <button type="button" id="made" @click=${() => events.open()}>Use the sample vectors</button>
      </div>
      <p class="hint" id="data-words">${ownText(state)}Files never leave this device.</p>
    </div>
  </section>`;

// Table and chart of the panel *What does it do to the outputs?*
import { formatBytes, formatDecibels, formatMany, formatReal } from '../shared/format.js';
import { type ChartMark, drawLines } from '../shared/lines.js';
import { html, nothing, scrollBox, type TemplateResult } from '../shared/template.js';
import type { JudgeState } from './judge.js';
import {
  divergenceAxis,
  heightOf,
  type JudgedType,
  type OutputsData,
  type PlaceReport,
  type PlaceRun,
  placeName,
  placesText,
  withError,
} from './outputs.js';
import { unitOf } from './sizes.js';

type Row = readonly [name: string, ...values: string[]];

const percent = ({ value, error }: { value: number; error: number }) => withError(value * 100, error * 100, ' %');

/** The table of one result: its head, and its rows. */
function figuresTable({ judgment }: JudgedType): { head: Row; rows: Row[] } {
  if (judgment.kind === 'texts') {
    const { sameTop, referencePerplexity, perplexity, logDifference, kl } = judgment.figures;
    return {
      head: ['Figure', 'Value ± standard error'],
      rows: [
        ['Same most likely word', percent(sameTop)],
        ['Perplexity of the original', withError(referencePerplexity.value, referencePerplexity.error)],
        ['Perplexity of the result', withError(perplexity.value, perplexity.error)],
        ['Difference of log perplexity', withError(logDifference.value, logDifference.error)],
        ['KL divergence, mean', withError(kl.value, kl.error)],
        ['KL divergence, median', formatReal(kl.median, 3)],
        ['KL divergence, 99 % are below', formatReal(kl.percentile99, 3)],
        ['KL divergence, largest', formatReal(kl.max, 3)],
      ],
    };
  }
  const { outputs, skippedOutputs, overflows = [] } = judgment.figures;
  return {
    head: ['Output', 'Shape', 'SQNR', 'Largest error', 'Cosine'],
    rows: [
      ...outputs.map(
        ({ name, shape, error }): Row => [
          name,
          shape.join(' × ') || 'scalar',
          formatDecibels(error.sqnrDb),
          formatReal(error.maxAbsoluteError, 3),
          formatReal(Number(error.cosine.toFixed(6)), 6),
        ],
      ),
      ...skippedOutputs.map(({ name, reason }): Row => [name, reason.text, '', '', '']),
      ...overflows.map(
        ({ value, largest }): Row => [value, `reaches ${formatReal(largest, 3)}, infinite in float16`, '', '', ''],
      ),
    ],
  };
}

/** A duration of a run in three digits. */
const duration = (seconds: number) =>
  seconds < 1 ? `${formatReal(seconds * 1000, 3)}\u00a0ms` : `${formatReal(seconds, 3)}\u00a0s`;

/** The table of the places where both models ran: size, times, and the output that changes most. */
function placesTable(
  { label, bytes, bytesBefore }: JudgedType,
  places: readonly PlaceReport[],
): { head: Row; rows: Row[] } {
  const rowOf = (place: PlaceReport, name: string, size: number, run: PlaceRun): Row => {
    const where = placeName(place);
    const title = `${name}, ${where}`;
    // The sentence above has the reason.
    if (run.kind !== 'ran') return [title, formatBytes(size), 'not run', '–', '–'];
    const worst = run.outputs.reduce((most, { error }) => Math.min(most, error.sqnrDb), Number.POSITIVE_INFINITY);
    const { firstSeconds, seconds } = run.times;
    return [title, formatBytes(size), duration(seconds), duration(firstSeconds), formatDecibels(worst)];
  };
  return {
    head: ['Model and place', 'Size', 'One run', 'First run', 'SQNR'],
    rows: places.flatMap((place) => [
      rowOf(place, 'Original', bytesBefore, place.a),
      rowOf(place, label, bytes, place.b),
    ]),
  };
}

const tableView = ({ head, rows }: { head: Row; rows: Row[] }): TemplateResult => html`
  <thead><tr>${head.map((name, i) => html`<th scope="col" class=${i === 0 ? '' : 'number'}>${name}</th>`)}</tr></thead>
  <tbody>${rows.map(
    ([name, ...values]) =>
      html`<tr><th scope="row">${name}</th>${values.map((value) => html`<td class="number">${value}</td>`)}</tr>`,
  )}</tbody>`;

/** Speed and errors in each place, for a comparison that has them. */
export function placesView(judged: JudgedType | undefined): TemplateResult {
  const places = judged?.judgment.kind === 'arrays' ? (judged.judgment.figures.backends ?? []) : [];
  const isShown = judged !== undefined && places.length > 0;
  return html`
    <p class="outputs-places" id="outputs-places-text">${isShown ? placesText(judged.label, places) : ''}</p>
    <div class="scroll outputs-places" id="outputs-places-box" data-name="Speed in each place" ?hidden=${!isShown} ${scrollBox()}>
      <table id="outputs-places">${isShown ? tableView(placesTable(judged, places)) : nothing}</table>
    </div>`;
}

/** All figures of a result. */
export const figuresView = (judged: JudgedType | undefined): TemplateResult =>
  html`<table id="outputs-table">${judged === undefined ? nothing : tableView(figuresTable(judged))}</table>`;

/** Facts about the data of a result. */
export function basisOf({ judgment }: JudgedType, { text, inputs: file }: OutputsData): string {
  if (judgment.kind === 'texts') {
    const { tokens, counted, sameTop } = judgment.figures;
    const name = text === undefined ? 'the built-in story' : text.name;
    const error = Math.ceil(sameTop.error * 100);
    return `Measured at ${formatMany(counted, 'place')} (± ${error} of 100) in ${formatMany(tokens, 'token')} of ${name}. A token is a word or a part of one; perplexity is the number of tokens that the model hesitates between.`;
  }
  const { inputs, guessedSizes } = judgment.figures;
  const names = inputs.map(
    ({ name, shape, isGiven }) => `${name} (${isGiven ? '' : 'random, '}${shape.join(' × ') || 'scalar'})`,
  );
  const guessed = Object.entries(guessedSizes).map(([name, size]) => `${name} = ${size}`);
  return [
    `Inputs${file === undefined ? '' : ` from ${file.name}`}: ${names.join(', ')}.`,
    ...(guessed.length === 0 ? [] : [`Guessed: ${guessed.join(', ')}.`]),
    ...(inputs.every(({ isGiven }) => isGiven) ? [] : ['Real inputs tell more.']),
  ].join(' ');
}

/** The name of a type. Settings tell types of one name apart. */
function nameIn(points: readonly JudgedType[], { label, settings }: JudgedType): string {
  const isAlone = points.filter((one) => one.label === label).length === 1;
  return isAlone || settings === '' ? label : `${label} (${settings})`;
}

/** Draws errors against sizes. @param current key of the type that is chosen */
export function drawChart(node: SVGSVGElement, { judged, shown, data }: JudgeState, current: string): void {
  const { width, height } = node.getBoundingClientRect();
  const isText = data.kind === 'texts';
  const points = [...shown].flatMap((key) => judged.get(key) ?? []).sort((a, b) => a.bytes - b.bytes);
  const { unit, factor } = unitOf(Math.max(1, ...points.map(({ bytes }) => bytes)));
  const place = ({ bytes, judgment }: JudgedType) => ({ x: bytes / factor, y: heightOf(judgment) });
  const marks: ChartMark[] = points.map((one) => ({
    ...place(one),
    label: nameIn(points, one),
    ...(one.key === current && { isChosen: true }),
  }));
  const said = points.map((one) => {
    const { judgment, bytes } = one;
    const figure =
      judgment.kind === 'texts' ? `KL ${formatReal(judgment.figures.kl.value, 2)}` : formatDecibels(heightOf(judgment));
    return `${nameIn(points, one)}: ${formatBytes(bytes)}, ${figure}`;
  });
  const empty = points.length === 0;
  node.classList.toggle('empty', empty);
  drawLines(
    node,
    {
      series: [{ name: 'Types', style: 1, points: points.map(place) }],
      marks,
      unit,
      width,
      height,
      nothing: empty ? 'Each type becomes a point.' : 'The outputs are exactly the same.',
      ...(isText && { vertical: divergenceAxis }),
    },
    isText ? 'Divergence against size' : 'SQNR of the outputs against size',
    empty ? 'No type is compared yet.' : `${said.join('. ')}.`,
  );
}

/** The line below the picture. Types without any loss have no place in it. */
export function captionOf(isText: boolean, { judged, shown }: JudgeState): string {
  const same = [...shown]
    .flatMap((key) => judged.get(key) ?? [])
    .filter(({ judgment }) => heightOf(judgment) === Number.POSITIVE_INFINITY);
  const words = isText
    ? "How far its predictions are from the original's at each size: the KL divergence, 0 for the same. Up is closer."
    : 'SQNR of the output that changes most, at each size. Up is closer to the original.';
  return same.length === 0 ? words : `${words} Exactly the same: ${same.map(({ label }) => label).join(', ')}.`;
}

// The sections below the figures, which the visitor opens.
import { drawErrors } from '../shared/charts.js';
import { chartView, valueAt } from '../shared/controls.js';
import { copy, download } from '../shared/copy.js';
import {
  formatBytes,
  formatCount,
  formatDecibels,
  formatLabel,
  formatMany,
  formatReal,
  formatShare,
} from '../shared/format.js';
import { type Levels, levelAt } from '../shared/levels.js';
import { drawLines } from '../shared/lines.js';
import { messageOf } from '../shared/problems.js';
import { html, live, nothing, scrollBox, type TemplateResult } from '../shared/template.js';
import type { Client } from './loop.js';
import { drawNumberLine } from './numberline.js';
import { bytesView, measuresView } from './result.js';
import { partWord, type Settings } from './settings.js';
import { snippet } from './snippet.js';
import type { PageEvents, State } from './state.js';
import type { ClippingView, NumberRow, Rung, Section } from './view.js';

const sizeOf = (node: Element) => {
  const { width, height } = node.getBoundingClientRect();
  return { width: Math.round(width), height: Math.round(height) };
};

/** A table in a box that scrolls. */
interface TableContent {
  readonly name: string;
  /** Headings. Those that begin with `>` are of numbers. */
  readonly head: readonly string[];
  readonly rows: unknown;
  readonly id: string;
  readonly style?: string;
  readonly isTall?: boolean;
}

const tableView = ({ name, head, rows, id, style = '', isTall }: TableContent) =>
  html`<div class=${isTall ? 'scroll tall' : 'scroll'} data-name=${name} ${scrollBox()}><table class=${style}>
    <thead><tr>${head.map((text) => html`<th scope="col" class=${text.startsWith('>') ? 'number' : ''}>${text.replace('>', '')}</th>`)}</tr></thead>
    <tbody id=${id}>${rows}</tbody>
  </table></div>`;

const numberCells = (cells: readonly string[]) => cells.map((cell) => html`<td class="number">${cell}</td>`);

// ---------------------------------------------------------------------------------------------------------------------- ladder

/** SQNR in dB at which a bar fills its cell. 16 bits reach about 90 dB. */
const fullBar = 96;

const isCurrent = ({ change }: Rung, { codes, bits, block }: Settings) =>
  change.codes === codes &&
  (codes !== 'integers' || change.bits === bits) &&
  (codes !== 'blocks' || change.block === block);

/** SQNR and bytes of every type, as a table with bars. */
function ladderView({ slow, settings }: State, { change }: PageEvents): TemplateResult {
  const row = (rung: Rung) => {
    const { name, sqnrDb, bytes } = rung;
    const { codes, bits, block } = rung.change;
    const isChosen = isCurrent(rung, settings);
    const share = sqnrDb === Number.POSITIVE_INFINITY ? 1 : Math.max(0, Math.min(1, sqnrDb / fullBar)) || 0;
    // Rows of other kinds than integers leave the width of integers alone.
    const choose = () =>
      change({ codes, ...(codes === 'integers' && { bits }), ...(codes === 'blocks' && { block }) }, 'ladder');
    return html`<tr class=${isChosen ? 'current' : ''}
      ><th scope="row"><button type="button" class="link" data-bits=${codes === 'integers' ? bits : name} aria-pressed=${String(isChosen)} @click=${choose}>${name}</button></th
      ><td class="grow"><span class="meter"><span class="bar-fill" .style=${`--share: ${share}`}></span><span>${formatDecibels(sqnrDb)}</span></span></td
      ><td class="number">${formatReal(bytes.bitsPerWeight, 3)}</td
      ><td class="number size">${formatBytes(bytes.after)}</td></tr>`;
  };
  return html`<div class="scroll" data-name="What each type buys" ${scrollBox()}>
      <table class="ladder">
        <thead><tr><th scope="col">Type</th><th scope="col" class="grow">SQNR</th><th scope="col" class="number">Bits per number</th><th scope="col" class="number size">Size</th></tr></thead>
        <tbody id="ladder">${slow.ladder?.rungs.map(row)}</tbody>
      </table>
    </div>
    <p class="caption">Each row keeps all other settings and is measured on ${slow.ladder?.basis ?? 'the same numbers'}. One more bit halves the step: about 6 dB, as long as nothing is clipped.</p>`;
}

// ----------------------------------------------------------------------------------------------------------------- number line

function lineView({ view }: State, { set }: PageEvents): TemplateResult {
  const { line, part } = view ?? {};
  const room = line === undefined || part === undefined ? 0 : part.levels.qmax - part.levels.qmin - line.steps;
  const start = line === undefined || part === undefined ? 0 : line.start - part.levels.qmin;
  const draw = (node: SVGSVGElement) => line && part && drawNumberLine(node, line, part.levels, sizeOf(node));
  return html`
    <div class="field inline" ?hidden=${line !== undefined && room === 0}><label for="window">Move along</label>
      <input type="range" id="window" min="0" max=${room} step="1" .value=${live(String(start))} aria-valuetext="codes from ${line?.start}"
        @input=${(event: Event) => set({ lineAt: valueAt(event) / Math.max(1, room) }, 'moving view')}></div>
    ${chartView('numberline', draw, [line, part])}`;
}

// -------------------------------------------------------------------------------------------------------------------- clipping

/** Numbers of a part below which entropy keeps all of them: as many as its histogram has bins. */
const fewForEntropy = 2048;

/** Caption of the curve: the gain of clipping, and a note about entropy, which gains nothing on few numbers. */
function clippingCaption({ marks, length }: ClippingView, clipped: number): string {
  const first = 'Smaller steps err less inside and clip more outside.';
  const note =
    length < fewForEntropy
      ? ` Entropy equals min-max here: it compares histograms of ${formatCount(fewForEntropy)} bins, and with ${formatMany(length, 'number')} most bins are empty.`
      : '';
  const best = marks.reduce((a, b) => (b.y > a.y ? b : a));
  const gain = best.y - marks[0]!.y;
  if (!(Number.isFinite(gain) && gain > 0.005)) return `${first} Clipping gains nothing here.${note}`;
  const name = `${best.label[0]?.toUpperCase()}${best.label.slice(1)}`;
  const now = clipped > 0 ? `, and ${formatShare(clipped / length)} is clipped now` : '';
  return `${first} ${name} gains ${formatReal(gain, 3)} dB over min-max here${now}.${note}`;
}

/** SQNR against the scale, and the table of range methods. */
function clippingView({ slow: { clipping }, settings, view }: State): TemplateResult {
  if (settings.codes !== 'integers') {
    return html`<p class="caption" id="clipping-caption">Only integers have a range to choose. Lists of values and blocks take their scale from the largest number.</p>`;
  }
  const draw = (node: SVGSVGElement) => {
    if (clipping === undefined) return;
    const { points, marks } = clipping;
    const text = marks.map(({ label, x, y }) => `${label}: ${formatReal(x, 3)} % of the range, ${formatDecibels(y)}`);
    const series = [{ name: 'clipping', style: 0, points }] as const;
    const lines = { series, marks, unit: '% of the min-max step', ...sizeOf(node) };
    drawLines(node, lines, 'SQNR against the size of the step', `${text.join('. ')}.`);
  };
  const rows = clipping?.marks.map(
    ({ method, label, x, y }) => html`<tr class=${method === settings.range ? 'current' : ''}
      ><th scope="row">${label}</th>${numberCells([`${formatReal(x, 4)}\u00a0%`, formatDecibels(y)])}</tr>`,
  );
  return html`<div class="beside">
    <div>
      ${chartView('clipping', draw, [clipping], 'chart curve')}
      <p class="caption" id="clipping-caption">${clipping && clippingCaption(clipping, view?.part?.clipped ?? 0)}</p>
    </div>
    ${tableView({ name: 'Ways to find the range', head: ['Range', '>Step', '>SQNR'], rows, id: 'methods', style: 'ladder' })}
  </div>`;
}

// ------------------------------------------------------------------------------------------------------- codes, errors, numbers

/** SQNR against bits for several kinds of codes. */
function codesView({ slow: { codes } }: State): TemplateResult {
  const draw = (node: SVGSVGElement) => {
    if (codes === undefined) return;
    const text = codes.map(
      ({ name, points }) =>
        `${name}: ${points.map(({ x, y }) => `${x} bits ${formatLabel(Number(y.toFixed(2)), 5)} dB`).join(', ')}`,
    );
    drawLines(
      node,
      { series: codes, marks: [], unit: 'bits', ...sizeOf(node) },
      'SQNR against bits',
      `${text.join('. ')}.`,
    );
  };
  return html`
    ${chartView('codes', draw, [codes], 'chart curve')}
    <ul class="series-legend" id="codes-legend">${codes?.map(({ name, style }) => html`<li class="style-${style}">${name}</li>`)}</ul>
    <p class="caption">Levels need not be evenly spaced. NF4 has its levels where bell-shaped numbers are dense. Learned codes go where these numbers are.</p>`;
}

function errorsView({ view }: State): TemplateResult {
  const { errors, part } = view ?? {};
  const draw = (node: SVGSVGElement) => {
    if (errors === undefined || part === undefined) return;
    drawErrors(node, errors, part.levels.values === undefined ? part.levels.scale / 2 : undefined, sizeOf(node));
  };
  return html`
    ${measuresView(view?.result)}
    ${chartView('errors', draw, [errors, part])}
    <p class="caption">Quantized minus original. Rounding alone stays within half a step. Larger errors come from clipping.</p>`;
}

const rowsOnPage = 16;
const rowHeads = ['>Index', '>Original', '>Code', '>Bits', '>Quantized', '>Error'] as const;

/** The bits of a code in two's complement, as `pack` stores them. */
export function bitsOf(code: number, bits: number): string {
  return (code < 0 ? code + 2 ** bits : code).toString(2).padStart(bits, '0');
}

/** A page of values, codes, restored values and errors; values alone if nothing was quantized. */
function rowsView({ view }: State, { set }: PageEvents): TemplateResult {
  const { start = 0, total = 0, rows = [] } = view?.rows ?? {};
  const { codes, bits } = view?.settings ?? {};
  const width = codes === 'integers' ? (bits ?? 8) : codes === 'nf4' ? 4 : 8;
  const parts = rows.some(({ part }) => part !== undefined);
  const hasScales = view?.result?.scales !== undefined;
  const word = view === undefined ? '' : partWord(view.settings);
  const heads = parts ? [`>${word[0]?.toUpperCase()}${word.slice(1)}`, ...(hasScales ? ['>Scale'] : [])] : [];
  const partCells = ({ part }: NumberRow) => {
    if (!parts) return [];
    const scale = part?.scale === undefined ? '' : formatReal(part.scale, 4);
    return [part === undefined ? '' : formatCount(part.index), ...(hasScales ? [scale] : [])];
  };
  // A line stands between numbers of different scales.
  const row = (line: NumberRow) => {
    const { index, original, code, restored, part } = line;
    return html`<tr class=${part === undefined ? '' : 'part'}><th scope="row" class="number">${formatCount(index)}</th>${numberCells(
      [
        formatReal(original, 6),
        code === undefined ? '–' : String(code),
        code === undefined ? '–' : bitsOf(code, width),
        restored === undefined ? '–' : formatReal(restored, 6),
        restored === undefined ? '–' : formatReal(restored - original, 3),
        ...partCells(line),
      ],
    )}</tr>`;
  };
  const count = view?.data.shape.reduce((a, b) => a * b, 1) ?? 1;
  const range =
    view?.result?.exact === false
      ? `${formatCount(start)}–${formatCount(start + rows.length - 1)} of the sample`
      : `${formatCount(rows[0]?.index ?? 0)}–${formatCount(rows.at(-1)?.index ?? 0)} of ${formatCount(count)}`;
  const move = (by: number) => () => set({ row: { start: Math.max(0, start + by) } }, 'view');
  const go = (event: Event) => {
    const field = event.target as HTMLInputElement;
    if (field.value !== '' && field.checkValidity()) set({ row: { index: field.valueAsNumber } }, 'view');
  };
  return html`
    <label class="inline">Go to index <input type="number" id="goto" min="0" max=${count - 1} step="1" value="0" inputmode="numeric" @input=${go}></label>
    ${tableView({ name: 'Number by number', head: [...rowHeads, ...heads], rows: rows.map(row), id: 'rows', style: 'numbers', isTall: true })}
    <div class="pager">
      <button type="button" id="previous" ?disabled=${start === 0} @click=${move(-rowsOnPage)}>Previous</button>
      <p id="range">${rows.length > 0 ? range : ''}</p>
      <button type="button" id="next" ?disabled=${start + rows.length >= total} @click=${move(rowsOnPage)}>Next</button>
    </div>`;
}

// -------------------------------------------------------------------------------------------------------------- code and tables

function codeView({ view, settings, held }: State, { set }: PageEvents, client: Client): TemplateResult {
  const code = view && snippet(view.data, view.settings);
  const save = async () => {
    try {
      const dataId = settings.data === 'own' ? held?.id : undefined;
      const { bytes, name } = await client.call('pack', { settings, dataId });
      download(new Blob([bytes]), name);
    } catch (error) {
      set({ problem: { title: 'There is nothing to save', text: `${messageOf(error)}.` } });
    }
  };
  return html`<div class="beside">
    <div>
      <pre class="scroll snippet" data-name="The same in code" ${scrollBox()}><code id="snippet">${code}</code></pre>
      <div class="row">
        <button type="button" id="copy" @click=${() => code && void copy(code, 'Code')}>Copy code</button>
        <button type="button" id="download" @click=${save}>Download packed codes</button>
      </div>
    </div>
    ${bytesView(view)}
  </div>`;
}

/** Most levels that are all listed. Of more, only those that some number uses are listed. */
const manyLevels = 256;
/** Most rows of the table of levels. */
const mostRows = 1024;

function levelLines(levels: Levels, counts: Uint32Array): string[][] {
  const lines: string[][] = [];
  for (let at = 0; at < counts.length && lines.length < mostRows; at++) {
    if (counts.length > manyLevels && counts[at] === 0) continue;
    const code = levels.qmin + at;
    lines.push([levels.areRanks ? '–' : String(code), formatReal(levelAt(levels, code)), formatCount(counts[at]!)]);
  }
  return lines;
}

/** The histogram as two tables, one of levels and one of bins. */
function twinView({ view, open }: State): TemplateResult | typeof nothing {
  if (!open.has('twin')) return nothing;
  const { bars, part, codeCounts } = view ?? {};
  const levels = part === undefined || codeCounts === undefined ? [] : levelLines(part.levels, codeCounts);
  const step = bars === undefined ? 0 : (bars.max - bars.min) / bars.counts.length;
  const bins = Array.from(bars?.counts ?? [], (count, i) => [
    formatReal(bars!.min + i * step),
    formatReal(bars!.min + (i + 1) * step),
    formatCount(count),
  ]);
  const rows = (lines: readonly (readonly string[])[]) => lines.map((cells) => html`<tr>${numberCells(cells)}</tr>`);
  const names = { levels: 'Levels and how many numbers they stand for', bins: 'Bins of the histogram' };
  return html`<div class="twins">
    ${tableView({ name: names.levels, head: ['>Code', '>Level', '>Numbers'], rows: rows(levels), id: 'twin-levels', isTall: true })}
    ${tableView({ name: names.bins, head: ['>From', '>To', '>Numbers'], rows: rows(bins), id: 'twin-bins', isTall: true })}
  </div>`;
}

/** All sections, closed at first. */
export function closerPanel(state: State, events: PageEvents, client: Client): TemplateResult {
  const section = (name: Section | 'code', title: string, hint: string, content: unknown) => {
    const toggle = ({ target }: Event) => {
      if (name === 'code') return;
      if ((target as HTMLDetailsElement).open) state.open.add(name);
      else state.open.delete(name);
      events.set({}, 'view');
    };
    return html`<details id="closer-${name}" @toggle=${toggle}><summary><h3>${title}</h3> <span class="hint">${hint}</span></summary>${content}</details>`;
  };
  return html`<section class="closer" aria-labelledby="closer-title">
    <h2 id="closer-title">More</h2>
    ${section('ladder', 'What each type buys', 'SQNR and size of every width, NF4, float8 and blocks', ladderView(state, events))}
    ${section('line', 'Every number goes to its nearest level', 'the number line, close up', lineView(state, events))}
    ${section('clipping', 'Where to clip', 'what the choice of the range gains', clippingView(state))}
    ${section('codes', 'Even steps or better codes', 'integers, NF4, FP4 and learned codes at every width', codesView(state))}
    ${section('errors', 'Errors', 'their histogram, and six more measures', errorsView(state))}
    ${section('rows', 'Number by number', 'original, code, bits, quantized, error', rowsView(state, events))}
    ${section('code', 'The same in code', 'for the npm package, and where the bytes go', codeView(state, events, client))}
    ${section('twin', 'The histogram as tables', 'every level and every bar in figures', twinView(state))}
  </section>`;
}

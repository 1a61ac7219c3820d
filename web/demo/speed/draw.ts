import { type BenchPart, type BenchRow, benchParts } from 'scalepoint/bench';
import { byId, html, setText } from '../shared/dom.js';
import { formatMany, formatReal } from '../shared/format.js';
import { sentence } from '../shared/problems.js';
import { figuresOf, type HeadlineFigures, type State } from './state.js';
import { cellsOf, formatTime, terms, titles } from './texts.js';

const hints: Readonly<Record<State['length'], string>> = {
  quick: '4 million numbers, layers of 1024: about half a minute.',
  full: '16 million numbers, layers of 4096: about a minute, and half a gigabyte of memory.',
};

/** A bar of the headline: a name, its time, and its length as a share of the longest. */
function bar(name: string, milliseconds: number, longest: number, ours = false): HTMLElement {
  const fill = html('span', { class: 'race-fill' });
  fill.style.setProperty('--share', String(milliseconds / longest));
  return html(
    'li',
    { class: ours ? 'ours' : false },
    html('span', { class: 'race-name' }, name),
    html('span', { class: 'race-bar' }, fill),
    html('span', { class: 'race-time' }, formatTime(milliseconds)),
  );
}

/** The words about the spread of the turns. */
function spreadText({ low, high, isBusy }: HeadlineFigures, turns: number): string {
  const [from, to] = [low, high].map((ratio) => formatReal(ratio, ratio < 10 ? 2 : 3));
  const range = `In the middle half of ${turns} turns it was ${from} to ${to} times as fast.`;
  return isBusy
    ? `${range} That is a wide spread: this machine is busy with something else. Close other programs and tabs, then measure again.`
    : range;
}

/** The headline: one ratio, its spread, and the times that it comes from. */
function drawHeadline({ turns, run, problem }: State): void {
  const failed = turns === undefined && problem !== undefined;
  for (const id of ['race-words', 'race-picture']) byId(id, HTMLElement).hidden = failed;
  byId('race-failed', HTMLElement).hidden = !failed;
  const ratio = byId('ratio', HTMLElement);
  const again = byId('again', HTMLButtonElement);
  again.disabled = run !== 'none';
  const figures = turns === undefined || turns.length === 0 ? undefined : figuresOf(turns);
  byId('race', HTMLElement).classList.toggle('waiting', figures === undefined || figures.isBusy);
  if (figures === undefined || turns === undefined) {
    setText(ratio, run === 'none' ? '–' : '…');
    setText(byId('race-spread', HTMLElement), run === 'first' ? 'Measuring: about three seconds.' : '');
    return;
  }
  const { ratio: times, ours, plain, isBusy } = figures;
  setText(ratio, `${isBusy ? '≈' : ''}${formatReal(times, times < 10 ? 2 : 3)}×`);
  setText(byId('race-spread', HTMLElement), run === 'first' ? 'Measuring again…' : spreadText(figures, turns.length));
  const slowest = Math.max(ours, plain);
  byId('race-bars', HTMLElement).replaceChildren(
    bar('Scalepoint', ours, slowest, true),
    bar('Plain JavaScript', plain, slowest),
  );
}

function rowOf(row: BenchRow): HTMLTableRowElement {
  const [operation = '', size = '', ...cells] = cellsOf(row);
  return html(
    'tr',
    {},
    html('th', { scope: 'row' }, operation, html('span', { class: 'on' }, size)),
    ...cells.map((cell, i) => html('td', { class: i === 2 ? 'number ratio-cell' : 'number' }, cell)),
  );
}

/** The rows of a part under its name. */
function bodyOf(part: BenchPart, rows: readonly BenchRow[]): HTMLTableSectionElement {
  const title = html(
    'tr',
    {},
    html(
      'th',
      { scope: 'rowgroup', colspan: 5, class: 'part' },
      titles[part],
      html('span', { class: 'on' }, terms[part]),
    ),
  );
  return html('tbody', { 'data-part': part }, title, ...rows.map(rowOf));
}

function drawTable({ rows }: State): void {
  byId('results', HTMLElement).hidden = rows.length === 0;
  const table = byId('table', HTMLTableElement);
  for (const body of [...table.tBodies]) body.remove();
  for (const part of benchParts) {
    const own = rows.filter((row) => row.part === part);
    if (own.length > 0) table.append(bodyOf(part, own));
  }
}

/** The progress in words. */
function statusOf({ run, ended, rows }: State): string {
  const last = rows.at(-1)?.operation;
  if (run === 'first') return 'Measuring the headline…';
  if (run === 'all')
    return last === undefined ? 'Loading and warming up…' : `${rows.length} measured, the last: ${last}`;
  if (ended === 'done' && rows.length > 0) return `Done: ${formatMany(rows.length, 'operation')}.`;
  if (ended === 'stopped') return `Stopped after ${formatMany(rows.length, 'operation')}.`;
  if (ended === 'failed') return 'Stopped by an error.';
  return 'Every operation, beside memory and plain JavaScript.';
}

/** Draws the page. */
export function draw(state: State): void {
  drawHeadline(state);
  drawTable(state);
  setText(byId('length-hint', HTMLElement), hints[state.length]);
  setText(byId('status', HTMLElement), statusOf(state));
  const problem = byId('problem', HTMLElement);
  problem.hidden = state.problem === undefined;
  setText(problem, state.problem === undefined ? '' : sentence(state.problem));
  const run = byId('run', HTMLButtonElement);
  const stop = byId('stop', HTMLButtonElement);
  const running = state.run === 'all';
  // A button that is disabled loses the focus, so the other one gets it.
  const focused = document.activeElement;
  run.disabled = running;
  stop.disabled = !running;
  if (focused === run && running) stop.focus();
  if (focused === stop && !running) run.focus();
}

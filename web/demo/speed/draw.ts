import { type BenchPart, type BenchRow, benchParts } from 'scalepoint/bench';
import { byId, type ElementFacts, showFacts } from '../shared/dom.js';
import { formatMany, formatReal } from '../shared/format.js';
import { sentence } from '../shared/problems.js';
import { html, nothing, render, type TemplateResult } from '../shared/template.js';
import { figuresOf, type HeadlineFigures, type State } from './state.js';
import { cellsOf, formatTime, terms, titles } from './texts.js';

const hints: Readonly<Record<State['length'], string>> = {
  quick: '4 million numbers, layers of 1024: about half a minute.',
  full: '16 million numbers, layers of 4096: about a minute, and half a gigabyte of memory.',
};

/** The words about the spread of the turns. */
function spreadText({ low, high, isBusy }: HeadlineFigures, turns: number): string {
  const [from, to] = [low, high].map((ratio) => formatReal(ratio, ratio < 10 ? 2 : 3));
  const range = `In the middle half of ${turns} turns it was ${from} to ${to} times as fast.`;
  return isBusy
    ? `${range} That is a wide spread: this machine is busy with something else. Close other programs and tabs, then measure again.`
    : range;
}

/** The progress in words. */
function statusText({ run, ended, rows }: State): string {
  const last = rows.at(-1)?.operation;
  if (run === 'first') return 'Measuring the headline…';
  if (run === 'all')
    return last === undefined ? 'Loading and warming up…' : `${rows.length} measured, the last: ${last}`;
  if (ended === 'done' && rows.length > 0) return `Done: ${formatMany(rows.length, 'operation')}.`;
  if (ended === 'stopped') return `Stopped after ${formatMany(rows.length, 'operation')}.`;
  if (ended === 'failed') return 'Stopped by an error.';
  return 'Every operation, beside memory and plain JavaScript.';
}

/** Everything that the page says, by the ids of its elements. */
function factsOf(state: State, figures: HeadlineFigures | undefined): Readonly<Record<string, ElementFacts>> {
  const { turns, run, problem, rows, length } = state;
  const failed = turns === undefined && problem !== undefined;
  let spread = run === 'first' ? 'Measuring: about three seconds.' : '';
  let ratio = run === 'none' ? '–' : '…';
  if (figures !== undefined) {
    ratio = `${figures.isBusy ? '≈' : ''}${formatReal(figures.ratio, figures.ratio < 10 ? 2 : 3)}×`;
    spread = run === 'first' ? 'Measuring again…' : spreadText(figures, turns?.length ?? 0);
  }
  return {
    'race-words': { hidden: failed },
    'race-picture': { hidden: failed },
    'race-failed': { hidden: !failed },
    race: { '.waiting': figures === undefined || figures.isBusy },
    ratio,
    'race-spread': spread,
    again: { disabled: run !== 'none' },
    results: { hidden: rows.length === 0 },
    'length-hint': hints[length],
    status: statusText(state),
    problem: { hidden: problem === undefined, textContent: problem === undefined ? '' : sentence(problem) },
    run: { disabled: run === 'all' },
    stop: { disabled: run !== 'all' },
  };
}

/** The bars of the headline: a name, its time, and its length as a share of the longest. */
function barsView({ ours, plain }: HeadlineFigures): readonly TemplateResult[] {
  const bar = (name: string, milliseconds: number, style: string) => html`<li class=${style}
    ><span class="race-name">${name}</span
    ><span class="race-bar"><span class="race-fill" .style=${`--share: ${milliseconds / Math.max(ours, plain)}`}></span></span
    ><span class="race-time">${formatTime(milliseconds)}</span></li>`;
  return [bar('Scalepoint', ours, 'ours'), bar('Plain JavaScript', plain, '')];
}

/** The rows of a part under its name. */
function partView(part: BenchPart, rows: readonly BenchRow[]): TemplateResult {
  const row = ([operation = '', size = '', ...cells]: readonly string[]) => html`<tr
    ><th scope="row">${operation}<span class="on">${size}</span></th
    >${cells.map((cell, i) => html`<td class=${i === 2 ? 'number ratio-cell' : 'number'}>${cell}</td>`)}</tr>`;
  return html`<tbody data-part=${part}
    ><tr><th scope="rowgroup" colspan="5" class="part">${titles[part]}<span class="on">${terms[part]}</span></th></tr
    >${rows.map((one) => row(cellsOf(one)))}</tbody>`;
}

/** Draws the page. */
export function draw(state: State): void {
  const { turns, rows, run } = state;
  const figures = turns === undefined || turns.length === 0 ? undefined : figuresOf(turns);
  const focused = document.activeElement;
  showFacts(factsOf(state, figures));
  if (figures !== undefined) {
    const bars = byId('race-bars', HTMLElement);
    // The page has empty bars until there are figures.
    if (bars.querySelector('.race-fill') === null) bars.replaceChildren();
    render(barsView(figures), bars);
  }
  const parts = benchParts.map((part) => [part, rows.filter((row) => row.part === part)] as const);
  render(
    parts.map(([part, own]) => (own.length === 0 ? nothing : partView(part, own))),
    byId('table', HTMLTableElement),
  );
  // A button that is disabled loses the focus, so the other one gets it.
  if (focused?.id === 'run' && run === 'all') byId('stop', HTMLElement).focus();
  if (focused?.id === 'stop' && run !== 'all') byId('run', HTMLElement).focus();
}

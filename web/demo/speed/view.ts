import { type BenchPart, type BenchRow, benchParts } from 'scalepoint/bench';
import { choiceView } from '../shared/controls.js';
import { formatMany, formatReal } from '../shared/format.js';
import { sentence } from '../shared/problems.js';
import { html, nothing, scrollBox, type TemplateResult } from '../shared/template.js';
import { figuresOf, type HeadlineFigures, type State } from './state.js';
import { cellsOf, formatTime, terms, titles } from './texts.js';

/** Events of the page. */
export interface BenchEvents {
  set(change: Partial<State>): void;
  /** Measures the headline, or everything. */
  start(run: 'first' | 'all'): void;
  stop(): void;
  copy(form: 'text' | 'markdown' | 'csv' | 'json'): void;
}

const hints: Readonly<Record<State['length'], string>> = {
  quick: '4 million numbers, layers of 1024: about half a minute.',
  full: '16 million numbers, layers of 4096: about a minute, and half a gigabyte of memory.',
};

const formatRatio = (ratio: number) => formatReal(ratio, ratio < 10 ? 2 : 3);

/** The ratio of the headline. */
export function ratioText({ turns, run }: State): string {
  if (turns === undefined) return run === 'none' ? '–' : '…';
  const { ratio, isBusy } = figuresOf(turns);
  return `${isBusy ? '≈' : ''}${formatRatio(ratio)}×`;
}

/** The words about the spread of the turns. */
function spreadText({ turns, run }: State, figures: HeadlineFigures | undefined): string {
  if (figures === undefined) return run === 'first' ? 'Measuring: about three seconds.' : '';
  if (run === 'first') return 'Measuring again…';
  const [from, to] = [figures.low, figures.high].map(formatRatio);
  const range = `In the middle half of ${turns?.length} turns it was ${from} to ${to} times as fast.`;
  return figures.isBusy
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

/** A bar of the headline: a name, its time, and its length as a share of the longest. */
function barView(name: 'ours' | 'plain', figures: HeadlineFigures | undefined): TemplateResult {
  const share = figures && figures[name] / Math.max(figures.ours, figures.plain);
  return html`<li class=${name === 'ours' ? name : ''}
    ><span class="race-name">${name === 'ours' ? 'Scalepoint' : 'Plain JavaScript'}</span
    ><span class="race-bar">${share && html`<span class="race-fill" .style=${`--share: ${share}`}></span>`}</span
    ><span class="race-time">${figures && formatTime(figures[name])}</span></li>`;
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

/** The page above its notes. */
export function pageView(state: State, events: BenchEvents): TemplateResult {
  const { turns, run, problem, rows, length } = state;
  const figures = turns && figuresOf(turns);
  const headline =
    figures === undefined && problem !== undefined
      ? html`<h1 id="race-title"><span id="race-failed">Nothing could be measured in this browser</span></h1>`
      : html`
        <h1 id="race-title"><span class="race-lead">In this browser, quantizing is</span> <strong class="ratio" id="ratio">${ratioText(state)}</strong> as fast as plain JavaScript</h1>
        <div class="race-picture">
          <p class="race-caption">From one array to another: 4 million float32 to int8, which is whole numbers from −128 to 127. One thread; the range of the numbers is found first.</p>
          <ul class="race-bars" id="race-bars">${barView('ours', figures)}${barView('plain', figures)}</ul>
          <div class="race-foot">
            <p class="hint" id="race-spread">${spreadText(state, figures)}</p>
            <button type="button" class="small" id="again" ?disabled=${run !== 'none'} @click=${() => events.start('first')}>Measure again</button>
          </div>
        </div>`;
  const parts = benchParts.map((part) => [part, rows.filter((row) => row.part === part)] as const);
  const copyView = (form: Parameters<BenchEvents['copy']>[0], label: string) =>
    html`<button type="button" id="copy-${form}" @click=${() => events.copy(form)}>${label}</button>`;
  const submit = (event: Event) => {
    event.preventDefault();
    events.start('all');
  };
  return html`
    <section class=${figures === undefined || figures.isBusy ? 'race waiting' : 'race'} id="race" aria-labelledby="race-title">${headline}</section>

    <section class="all" aria-labelledby="bench-title">
      <h2 id="bench-title">Everything else</h2>
      <form class="row bench-form" id="form" @submit=${submit}>
        ${choiceView({
          name: 'length',
          legend: 'How long to measure',
          isPlain: true,
          options: { quick: 'Quickly', full: 'Thoroughly' },
          chosen: length,
          choose: (chosen) => events.set({ length: chosen }),
        })}
        <button type="submit" class="primary" id="run" data-next="#stop" ?disabled=${run === 'all'}>Measure everything</button>
        <button type="button" id="stop" data-next="#run" ?disabled=${run !== 'all'} @click=${events.stop}>Stop</button>
        <p class="hint">${hints[length]}</p>
      </form>
      <p class="bench-status" id="status" role="status">${statusText(state)}</p>
      <p class="problem" id="problem" role="alert" ?hidden=${problem === undefined}>${problem && sentence(problem)}</p>
    </section>

    <section id="results" aria-labelledby="results-title" ?hidden=${rows.length === 0}>
      <div class="head">
        <h2 id="results-title">Results</h2>
        <div class="row">
          ${copyView('text', 'Copy as text')}${copyView('markdown', 'Markdown')}${copyView('csv', 'CSV')}${copyView('json', 'JSON')}
        </div>
      </div>
      <div class="scroll" data-name="Results" ${scrollBox()}>
        <table class="bench-table">
          <thead>
            <tr>
              <th scope="col">Operation</th>
              <th scope="col" class="number">Time</th>
              <th scope="col" class="number">Of the limit<span class="on">1 × is as fast as memory</span></th>
              <th scope="col" class="number">JavaScript takes<span class="on">times as long as ours</span></th>
              <th scope="col" class="number">Rate<span class="on">more is faster</span></th>
            </tr>
          </thead>
          ${parts.map(([part, measured]) => (measured.length === 0 ? nothing : partView(part, measured)))}
        </table>
      </div>
    </section>`;
}

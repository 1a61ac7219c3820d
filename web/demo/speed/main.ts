import { load } from 'scalepoint';
import type { BenchPart, BenchRow } from 'scalepoint/bench';
import { copy } from '../shared/copy.js';
import { byId, html, setText } from '../shared/dom.js';
import { formatReal } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { showCore, startSite } from '../shared/site.js';
import type { BenchReply, BenchRequest } from './worker.js';

const titles: Readonly<Record<BenchPart, string>> = {
  arrays: 'Arrays in wasm memory',
  blocks: 'To ggml\u2019s blocks',
  layers: 'Layers: y = x W',
};

const hints: Readonly<Record<string, string>> = {
  quick: 'A million numbers, layers of 1024: some seconds.',
  full: '16 million numbers, layers of 4096: a minute, and half a gigabyte of memory.',
};

const times = (ratio: number | undefined) => (ratio === undefined ? '' : `${formatReal(ratio, 3)}\u00a0×`);

/** The table cells of a measurement, formatted for people. */
function cellsOf({ operation, size, milliseconds, rate, unit, limit, plain }: BenchRow): string[] {
  const time =
    milliseconds < 0.1 ? `${formatReal(milliseconds * 1000, 3)}\u00a0µs` : `${formatReal(milliseconds, 3)}\u00a0ms`;
  return [
    operation,
    size.replace(' x ', ' × '),
    time,
    times(limit),
    times(plain),
    `${formatReal(rate, 3)}\u00a0${unit}`,
  ];
}

const headings = ['operation', 'on', 'time', 'of the limit', 'JavaScript takes', 'rate'];

function markdownOf(rows: readonly BenchRow[], about: string): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ').replaceAll('\u00a0', ' ')} |`;
  return `${[line(headings), line(headings.map(() => '---')), ...rows.map((row) => line(cellsOf(row)))].join('\n')}\n\n${about}\n`;
}

function csvOf(rows: readonly BenchRow[]): string {
  const names = ['part', 'operation', 'size', 'milliseconds', 'rate', 'unit', 'limit', 'plain'] as const;
  const field = (value: string | number | undefined) => (typeof value === 'string' ? `"${value}"` : (value ?? ''));
  return `${[names.join(','), ...rows.map((row) => names.map((name) => field(row[name])).join(','))].join('\n')}\n`;
}

/**
 * Sets up the page. A worker measures and sends rows; the page shows them and lets the visitor copy them.
 * @param about describes the build and the browser; part of the copied Markdown and JSON
 */
function startBench(about: () => string): void {
  const form = byId('form', HTMLFormElement);
  const run = byId('run', HTMLButtonElement);
  const stop = byId('stop', HTMLButtonElement);
  const status = byId('status', HTMLElement);
  const problem = byId('problem', HTMLElement);
  const results = byId('results', HTMLElement);
  const table = results.querySelector('table');
  let rows: BenchRow[] = [];
  let worker: Worker | undefined;

  const lengthOf = () => String(new FormData(form).get('length'));
  const showHint = () => setText(byId('length-hint', HTMLElement), hints[lengthOf()] ?? '');
  form.addEventListener('input', showHint);
  showHint();

  const end = (words: string) => {
    worker?.terminate();
    worker = undefined;
    run.disabled = false;
    // Disabling the focused button would lose the focus.
    if (document.activeElement === stop) run.focus();
    stop.disabled = true;
    setText(status, words);
  };

  const add = (row: BenchRow) => {
    let body = table?.querySelector<HTMLElement>(`tbody[data-part="${row.part}"]`);
    if (body === null || body === undefined) {
      body = html(
        'tbody',
        { 'data-part': row.part },
        html('tr', {}, html('th', { scope: 'rowgroup', colspan: 5, class: 'part' }, titles[row.part])),
      );
      table?.append(body);
    }
    const [operation = '', size = '', ...cells] = cellsOf(row);
    body.append(
      html(
        'tr',
        {},
        html('th', { scope: 'row' }, operation, html('span', { class: 'on' }, size)),
        ...cells.map((cell) => html('td', { class: 'number' }, cell)),
      ),
    );
    rows.push(row);
    results.hidden = false;
    setText(status, `${rows.length} measured, the last: ${row.operation}`);
  };

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (worker !== undefined) return;
    rows = [];
    for (const body of table?.querySelectorAll('tbody') ?? []) body.remove();
    results.hidden = true;
    problem.hidden = true;
    run.disabled = true;
    stop.disabled = false;
    setText(status, 'Loading and warming up…');
    worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' });
    const fail = (message: string) => {
      setText(problem, message);
      problem.hidden = false;
      end('Stopped by an error.');
    };
    worker.onerror = (error) => fail(error.message || 'The worker could not be started.');
    worker.onmessage = ({ data }: MessageEvent<BenchReply>) => {
      if (data.kind === 'row') add(data.row);
      else if (data.kind === 'failed') fail(data.message);
      else {
        end(`Done: ${rows.length} operations.`);
        announce('The benchmark is done.', 0);
      }
    };
    worker.postMessage({ quick: lengthOf() === 'quick' } satisfies BenchRequest);
    stop.focus();
  });
  stop.addEventListener('click', () => end(`Stopped after ${rows.length}.`));
  byId('copy-markdown', HTMLButtonElement).addEventListener(
    'click',
    () => void copy(markdownOf(rows, about()), 'Table'),
  );
  byId('copy-csv', HTMLButtonElement).addEventListener('click', () => void copy(csvOf(rows), 'Table'));
  byId('copy-json', HTMLButtonElement).addEventListener('click', () => {
    void copy(`${JSON.stringify({ about: about(), rows }, null, 2)}\n`, 'Figures');
  });
}

async function start(): Promise<void> {
  startSite();
  let build = 'scalepoint';
  startBench(() => `${build}, one thread, ${navigator.userAgent}`);
  try {
    const core = await load();
    const tier = core.simd ? 'SIMD' : 'scalar';
    build = `scalepoint ${core.version}, ${tier}`;
    showCore(core);
    core.dispose();
  } catch {
    // The version stays unknown. A run of the benchmark will report why the core does not load.
  }
}

void start();

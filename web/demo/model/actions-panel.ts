// Panel of the buttons that save or stop, and of their progress.
import type { QuantizeModelResult } from 'scalepoint/model';
import { converters, noteText } from '../../src/tooling.js';
import { copy, download } from '../shared/copy.js';
import { byId, html, setText } from '../shared/dom.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { formatFor, infoOf, outputName } from './choice.js';
import { pageWords } from './controls.js';
import type { SavingState, State } from './state.js';
import { csvOf, formatSeconds, sentence } from './wording.js';
import { savingWorkers } from './workers.js';

/** Memory that each worker takes at most, in bytes. */
const workerBytes = 64 * 2 ** 20;

/** Estimated time and memory of saving. */
function expectation({ model, plan, expectedSeconds }: State): string {
  if (model === undefined || plan === undefined) return '';
  const hasFiles = 'storage' in navigator && 'getDirectory' in navigator.storage;
  const sizes = model.files.reduce((sum, { size }) => sum + size, 0);
  // A small model never fills the memory of a worker.
  const memory = savingWorkers * Math.min(workerBytes, 2 ** 22 + 3 * sizes) + (hasFiles ? 0 : plan.totals.bytesAfter);
  const time = expectedSeconds === undefined ? '' : `, takes about ${formatSeconds(expectedSeconds)}`;
  return `Needs up to ${formatBytes(Math.ceil(memory / 1e6) * 1e6)} of memory${time}.`;
}

/** One line about the run. */
function statusOf({ run, plan, model, choice }: State): string {
  switch (run.kind) {
    case 'asking':
      return 'Where should it go?';
    case 'cancelled':
      return 'Cancelled. Nothing was saved.';
    case 'saved':
      return `Saved ${run.name}. See below how to use it.`;
    case 'running': {
      if (run.bytesTotal === 0) return 'Starting…';
      const left = run.secondsLeft === undefined ? '' : `, about ${formatSeconds(run.secondsLeft)} left`;
      return `${formatBytes(run.bytesDone)} of ${formatBytes(run.bytesTotal)}${left} · ${run.tensor}`;
    }
    default:
      if (plan === undefined || model === undefined || choice === undefined) return '';
      return outputName(model.name, formatFor(model, choice.to), choice);
  }
}

const json = (value: unknown) => new Blob([`${JSON.stringify(value, null, 2)}\n`], { type: 'application/json' });
const stemOf = (name: string) => name.replace(/\.[^.]*$/, '');

/** Next steps with the file: programs that read it, and how. */
function readersOf({ model, choice, plan }: State, name: string): Node[] {
  if (model === undefined || choice === undefined) return [];
  const format = formatFor(model, choice.to);
  const conversion = converters().find(({ from, result }) => from.includes(model.format) && result === format);
  const { architecture } = plan ?? {};
  const own = architecture === undefined ? undefined : conversion?.readers?.(architecture, name);
  return (own ?? infoOf(format).readers?.(choice.to, name) ?? []).map(({ program, code, needs }) => {
    const button = html('button', { type: 'button', 'aria-label': `Copy the code for ${program}` }, 'Copy');
    button.addEventListener('click', () => void copy(code, 'Code'));
    return html(
      'div',
      { class: 'reader' },
      html('h3', {}, program),
      ...(needs === undefined ? [] : [html('p', { class: 'hint' }, needs)]),
      html('div', { class: 'reader-code' }, html('pre', { class: 'snippet wrap' }, html('code', {}, code)), button),
    );
  });
}

/** Sets up saving: the button, the progress, and the next steps. */
export function startActions(events: { start(): void; cancel(): void }, current: () => State) {
  const run = byId('model-run', HTMLButtonElement);
  const cancel = byId('model-cancel', HTMLButtonElement);
  const bar = byId('model-progress', HTMLProgressElement);
  run.addEventListener('click', events.start);
  cancel.addEventListener('click', events.cancel);
  const onSaved = (id: string, use: (result: QuantizeModelResult, name: string) => void) =>
    byId(id, HTMLButtonElement).addEventListener('click', () => {
      const { run: state } = current();
      if (state.kind === 'saved') use(state.result, state.name);
    });
  onSaved('model-config', ({ config }) => download(json(config), 'config.json'));
  onSaved('model-json', ({ report }, name) => download(json(report), `${stemOf(name)}.report.json`));
  onSaved('model-csv', (result, name) =>
    download(new Blob([csvOf(result)], { type: 'text/csv' }), `${stemOf(name)}.report.csv`),
  );

  const drawSaved = (state: State, saved: SavingState & { kind: 'saved' }) => {
    const { totals } = saved.result.report;
    setText(
      byId('saved-title', HTMLElement),
      `Saved ${saved.name}: ${formatBytes(totals.bytesAfter)} in ${formatSeconds(saved.seconds)}`,
    );
    byId('model-config', HTMLButtonElement).hidden = saved.result.config === undefined;
    byId('readers', HTMLElement).replaceChildren(...readersOf(state, saved.name));
  };

  return (state: State, before: State | undefined) => {
    const { run: now, plan } = state;
    const works = now.kind === 'running' || now.kind === 'asking';
    const worked = before?.run.kind === 'running' || before?.run.kind === 'asking';
    // Read the focus before the buttons change places: a hidden button loses it.
    const hadFocus = [run, cancel, document.body].some((node) => node === document.activeElement);
    run.hidden = works;
    const nothing = plan !== undefined && plan.totals.quantized + plan.totals.cast === 0;
    run.disabled = plan === undefined || nothing;
    cancel.hidden = !works;
    bar.hidden = !works;
    if (now.kind === 'running') bar.value = now.bytesDone / Math.max(1, now.bytesTotal);
    if (works !== worked && hadFocus) (works ? cancel : run).focus({ preventScroll: true });
    setText(
      byId('model-status', HTMLElement),
      nothing && !works ? 'Nothing to convert with these settings.' : statusOf(state),
    );
    setText(byId('model-expectation', HTMLElement), works || nothing ? '' : expectation(state));
    const { totals } = plan ?? {};
    const size = byId('model-size', HTMLDataElement);
    size.value = String(totals?.bytesAfter ?? '');
    setText(size, totals === undefined ? '' : formatBytes(totals.bytesAfter));
    const facts =
      totals === undefined
        ? ''
        : `${formatBytes(totals.bytesBefore)} now · ${totals.ratio.toFixed(2)} × smaller · ${totals.bitsPerWeight.toFixed(2)} bits a weight · ${formatMany(totals.bytesAfter, 'byte')} exactly`;
    setText(byId('model-totals', HTMLElement), facts);
    setText(
      byId('model-notes', HTMLElement),
      plan?.notes.map((note) => sentence(noteText(note, pageWords))).join(' ') ?? '',
    );
    byId('saved', HTMLElement).hidden = now.kind !== 'saved';
    if (now.kind === 'saved' && now !== before?.run) drawSaved(state, now);
  };
}

// Panel of the buttons that save or stop, and of their progress.
import type { QuantizeModelResult } from 'scalepoint/model';
import { converters, noteText } from '../../src/tooling.js';
import { copy, download } from '../shared/copy.js';
import { byId, html, setText } from '../shared/dom.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { sentence } from '../shared/problems.js';
import { formatFor, infoOf, outputName } from './choice.js';
import { pageWords } from './controls.js';
import { isSaving, quantizedFile, reportOf, type State } from './state.js';
import { csvOf, formatSeconds } from './wording.js';
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

/** Name of the result, saved or planned. */
function resultNameOf({ run, model, choice }: State): string {
  if (run.kind === 'saved') return run.name;
  return model === undefined || choice === undefined
    ? 'model'
    : outputName(model.name, formatFor(model, choice.to), choice);
}

/** One line about the run. */
function statusOf(state: State): string {
  const { run, plan, model, choice } = state;
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
      return plan === undefined || model === undefined || choice === undefined ? '' : resultNameOf(state);
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

/** One sentence about a file that is quantized already. */
function quantizedText({ types, canAgain }: NonNullable<ReturnType<typeof quantizedFile>>): string {
  const listed = types.slice(0, 3).join(', ');
  const so = `This file is quantized already${listed === '' ? '' : ` (${listed})`}: `;
  return canAgain
    ? `${so}quantizing it again adds to its errors.`
    : `${so}start from the model in floats to make another size.`;
}

/** Tensors that the visitor kept, and the bytes that this adds. */
function drawKept({ choice, plan, run }: State): void {
  const names = [...(choice?.kept ?? [])];
  const line = byId('model-kept', HTMLElement);
  const hadFocus = line.contains(document.activeElement);
  line.hidden = names.length === 0;
  const others = names.length === 1 ? '' : ` and ${formatMany(names.length - 1, 'other')}`;
  setText(byId('model-kept-words', HTMLElement), names.length === 0 ? '' : `Kept by you: ${names.at(-1)}${others}`);
  const undo = byId('model-undo', HTMLButtonElement);
  undo.disabled = plan === undefined || isSaving(run);
  undo.setAttribute('aria-label', `Undo: convert ${names.at(-1) ?? ''}`);
  if (line.hidden && hadFocus) byId('model-run', HTMLElement).focus({ preventScroll: true });
}

/** The file with which older loaders of GPTQ and AWQ find the settings of codes. */
function settingsFile({ quantizeConfig, quantConfig }: QuantizeModelResult) {
  if (quantizeConfig !== undefined) return { name: 'quantize_config.json', content: quantizeConfig };
  return quantConfig && { name: 'quant_config.json', content: quantConfig };
}

/** Sets up saving: the button, the progress, and the next steps. */
export function startActions(
  events: { start(): void; cancel(): void; again(): void; undoKeep(): void },
  current: () => State,
) {
  const run = byId('model-run', HTMLButtonElement);
  const cancel = byId('model-cancel', HTMLButtonElement);
  const bar = byId('model-progress', HTMLProgressElement);
  run.addEventListener('click', events.start);
  cancel.addEventListener('click', events.cancel);
  const again = byId('model-again', HTMLButtonElement);
  again.addEventListener('click', () => {
    events.again();
    run.focus({ preventScroll: true });
  });
  byId('model-undo', HTMLButtonElement).addEventListener('click', events.undoKeep);
  byId('model-config', HTMLButtonElement).addEventListener('click', () => {
    const { run: state } = current();
    if (state.kind === 'saved') download(json(state.result.config), 'config.json');
  });
  byId('model-settings', HTMLButtonElement).addEventListener('click', () => {
    const { run: state } = current();
    const file = state.kind === 'saved' ? settingsFile(state.result) : undefined;
    if (file !== undefined) download(json(file.content), file.name);
  });
  const onReport = (
    id: string,
    extension: string,
    blobOf: (report: NonNullable<ReturnType<typeof reportOf>>) => Blob,
  ) =>
    byId(id, HTMLButtonElement).addEventListener('click', () => {
      const state = current();
      const report = reportOf(state);
      if (report !== undefined) download(blobOf(report), `${stemOf(resultNameOf(state))}.report.${extension}`);
    });
  onReport('model-json', 'json', json);
  onReport('model-csv', 'csv', ({ tensors }) => new Blob([csvOf(tensors)], { type: 'text/csv' }));

  /** Draws what to do with the file. It has its room while the file is written, so that nothing moves at the end. */
  const drawSaved = (state: State) => {
    const { run } = state;
    const isSaved = run.kind === 'saved';
    const title = isSaved
      ? `Saved ${run.name}: ${formatBytes(run.result.report.totals.bytesAfter)} in ${formatSeconds(run.seconds)}`
      : `How to use ${resultNameOf(state)}`;
    setText(byId('saved-title', HTMLElement), title);
    byId('model-config', HTMLElement).hidden = !isSaved || run.result.config === undefined;
    const settings = isSaved ? settingsFile(run.result) : undefined;
    const button = byId('model-settings', HTMLElement);
    button.hidden = settings === undefined;
    if (settings !== undefined) setText(button, `Save ${settings.name}`);
    byId('readers', HTMLElement).replaceChildren(...readersOf(state, resultNameOf(state)));
  };

  return (state: State, before: State | undefined) => {
    const { run: now, plan } = state;
    const works = isSaving(now);
    const worked = before !== undefined && isSaving(before.run);
    // Read the focus before the buttons change places: a hidden button loses it.
    const hadFocus = [run, cancel, document.body].some((node) => node === document.activeElement);
    run.hidden = works;
    const nothing = plan !== undefined && plan.totals.quantized + plan.totals.cast === 0;
    run.disabled = plan === undefined || nothing;
    cancel.hidden = !works;
    bar.hidden = !works;
    if (now.kind === 'running') bar.value = now.bytesDone / Math.max(1, now.bytesTotal);
    if (works !== worked && hadFocus) (works ? cancel : run).focus({ preventScroll: true });
    const quantized = works || now.kind === 'saved' ? undefined : quantizedFile(state);
    again.hidden = quantized === undefined || !quantized.canAgain;
    const idle = quantized === undefined ? 'Nothing to convert with these settings.' : quantizedText(quantized);
    const isIdle = quantized !== undefined || (nothing && !works);
    setText(byId('model-status', HTMLElement), isIdle ? idle : statusOf(state));
    drawKept(state);
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
    for (const id of ['model-json', 'model-csv']) byId(id, HTMLButtonElement).disabled = plan === undefined || works;
    const isAfter = works || now.kind === 'saved';
    byId('saved', HTMLElement).hidden = !isAfter;
    if (isAfter && now.kind !== before?.run.kind) drawSaved(state);
  };
}

// Panel of several models: a row each, the same settings for all, one button, one folder.
import { type ModelTarget, presetTarget, quantizeModel, ScalepointError } from 'scalepoint/model';
import { type Preset, presets } from '../../src/tooling.js';
import { download } from '../shared/copy.js';
import { byId, html, setName, setText } from '../shared/dom.js';
import type { ModelFile } from '../shared/files.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { asSentence } from '../shared/problems.js';
import { formatFor, infoOf, initialChoice, outputName, usualFormat, withTarget } from './choice.js';
import { inPageWords } from './explain.js';
import { chooseFolder, newFile, writesFolders } from './folders.js';
import { presetTitles } from './offers-panel.js';
import { choosePlace } from './save.js';
import { planOf, type SeveralRow, totalOf } from './several.js';
import type { State } from './state.js';
import { savingWorkers } from './workers.js';

const json = (value: unknown) => new Blob([`${JSON.stringify(value, null, 2)}\n`], { type: 'application/json' });

/** Converts one model into a folder, or as a download. Returns the name of the file. */
async function convert(
  { files, name }: ModelFile,
  options: { readonly to: ModelTarget; readonly signal: AbortSignal; onProgress(share: number): void },
  output: string,
  folder: FileSystemDirectoryHandle | undefined,
): Promise<string> {
  const handle = folder && (await newFile(folder, output));
  const place = handle === undefined ? await choosePlace(output) : undefined;
  if (handle === undefined && place === undefined) throw new DOMException('cancelled', 'AbortError');
  const target = handle ?? place?.output;
  const work = (workers: number) =>
    quantizeModel([...files], {
      to: options.to,
      ...(target === undefined ? {} : { output: target, overwrite: true }),
      workers,
      signal: options.signal,
      onProgress: ({ bytesDone, bytesTotal }) => options.onProgress(bytesDone / Math.max(1, bytesTotal)),
    });
  try {
    const result = await work(savingWorkers).catch((error: unknown) => {
      if (!(error instanceof ScalepointError && error.code === 'WORKER')) throw error;
      return work(0);
    });
    await place?.finish(result);
    const config = `${name.replace(/\.[^.]*$/, '')}.config.json`;
    if (result.config !== undefined) {
      if (folder === undefined) download(json(result.config), config);
      else {
        const stream = await (await newFile(folder, config)).createWritable();
        await stream.write(json(result.config));
        await stream.close();
      }
    }
    return handle?.name ?? output;
  } catch (error) {
    await place?.discard();
    // The file was made for this result, and is empty.
    if (handle !== undefined) await folder?.removeEntry(handle.name).catch(() => {});
    throw error;
  }
}

/** Sets up the panel. */
export function startSeveral(events: { open(files: readonly File[]): void; close(): void }, current: () => State) {
  const section = byId('several', HTMLElement);
  const body = byId('several-rows', HTMLElement);
  const target = byId('several-target', HTMLSelectElement);
  const run = byId('several-run', HTMLButtonElement);
  const cancel = byId('several-cancel', HTMLButtonElement);
  let models: readonly ModelFile[] = [];
  let rows: SeveralRow[] = [];
  let controller: AbortController | undefined;
  let request = 0;

  /** The target of a model: a preset means another type in each format. */
  const targetOf = (model: ModelFile): ModelTarget => {
    const { value } = target;
    const preset = presets.find((one) => one === value);
    return (preset === undefined ? value : presetTarget(usualFormat(model), preset as Preset)) as ModelTarget;
  };
  const nameOf = (model: ModelFile) => {
    const to = targetOf(model);
    const format = formatFor(model, to);
    return outputName(model.name, format, withTarget(format, initialChoice(format), to));
  };
  const set = (i: number, change: Partial<SeveralRow>) => {
    rows[i] = { ...(rows[i] as SeveralRow), ...change };
    drawRow(i);
  };
  const drawRow = (i: number) => {
    const { after, state } = rows[i] as SeveralRow;
    const cells = body.children[i]?.querySelectorAll('td');
    if (cells === undefined) return;
    setText(cells[1] as Element, after === undefined ? '' : formatBytes(after));
    setText(cells[2] as Element, state);
    const { before: all, after: sum } = totalOf(rows);
    setText(
      byId('several-total', HTMLElement),
      sum === undefined ? '' : `${formatBytes(all)} become ${formatBytes(sum)}.`,
    );
  };
  const plan = async () => {
    const own = ++request;
    for (const [i, model] of models.entries()) {
      const planned = await planOf(model, targetOf(model)).catch((error: unknown) => asSentence(inPageWords(error)));
      if (own !== request) return;
      if (typeof planned === 'string') set(i, { after: undefined, state: planned });
      else set(i, { after: planned, state: nameOf(model) });
    }
  };
  if (writesFolders()) setText(run, 'Quantize all and save in one folder');
  target.addEventListener('change', () => void plan());

  const start = async () => {
    // Without a dialog, files are downloaded.
    const folder = await chooseFolder();
    if (folder === null || controller !== undefined) return;
    controller = new AbortController();
    const { signal } = controller;
    drawButtons();
    let saved = 0;
    for (const [i, model] of models.entries()) {
      if (signal.aborted) break;
      set(i, { state: 'Starting…' });
      const onProgress = (share: number) => set(i, { state: `${Math.floor(share * 100)}\u00a0%` });
      try {
        const name = await convert(model, { to: targetOf(model), signal, onProgress }, nameOf(model), folder);
        saved++;
        set(i, { state: `Saved ${name}` });
      } catch (error) {
        // The others go on.
        set(i, { state: signal.aborted ? 'Cancelled' : asSentence(inPageWords(error)) });
      }
    }
    controller = undefined;
    const words = `${saved} of ${formatMany(models.length, 'model')} saved.`;
    setText(byId('several-status', HTMLElement), words);
    announce(words, 0);
    drawButtons();
  };
  const drawButtons = () => {
    const works = controller !== undefined;
    const focused = document.activeElement;
    run.hidden = works;
    cancel.hidden = !works;
    target.disabled = works;
    for (const button of body.querySelectorAll('button')) button.disabled = works;
    byId('several-close', HTMLButtonElement).disabled = works;
    if (works) setText(byId('several-status', HTMLElement), 'Quantizing one after the other…');
    if (focused === run && works) cancel.focus();
    if (focused === cancel && !works) run.focus();
  };
  run.addEventListener('click', () => void start());
  cancel.addEventListener('click', () => controller?.abort(new DOMException('cancelled', 'AbortError')));
  byId('several-close', HTMLButtonElement).addEventListener('click', events.close);

  const show = (given: readonly ModelFile[]) => {
    models = given;
    rows = models.map(({ files }) => {
      return { before: files.reduce((sum, { size }) => sum + size, 0), after: undefined, state: '' };
    });
    setText(byId('several-title', HTMLElement), formatMany(models.length, 'model'));
    setText(byId('several-status', HTMLElement), '');
    body.replaceChildren(
      ...models.map((model, i) => {
        const open = html('button', { type: 'button', class: 'link name' }, html('bdi'));
        setName(open.firstElementChild as Element, model.name);
        open.addEventListener('click', () => events.open(model.files));
        return html(
          'tr',
          {},
          html('th', { scope: 'row' }, open),
          html('td', { class: 'number' }, formatBytes(rows[i]?.before ?? 0)),
          html('td', { class: 'number' }),
          html('td'),
        );
      }),
    );
    // Types that all of them have can be chosen by name.
    const lists = models.map((model) => infoOf(usualFormat(model)).targets);
    const [first = []] = lists;
    const common = first.filter(
      ({ name, copies, needs }) =>
        !copies && needs === undefined && lists.every((list) => list.some((one) => one.name === name)),
    );
    target.replaceChildren(
      ...presets.map((preset) => html('option', { value: preset }, presetTitles[preset])),
      ...common.map(({ name, about }) =>
        html('option', { value: name }, about === undefined ? name : `${name}: ${about}`),
      ),
    );
    target.value = 'balanced';
    drawButtons();
    byId('several-title', HTMLElement).focus({ preventScroll: true });
    void plan();
  };

  return (state: State, before: State | undefined) => {
    const { several } = state;
    section.hidden = several === undefined;
    if (several === before?.several) return;
    if (several !== undefined) show(several);
    else {
      controller?.abort(new DOMException('cancelled', 'AbortError'));
      if (before?.several !== undefined && current().model === undefined) byId('choose', HTMLButtonElement).focus();
    }
  };
}

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
import { chooseFolder, newFile, newFilePlace, writesFolders } from './folders.js';
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
  const place = folder === undefined ? await choosePlace(output) : await newFilePlace(folder, output);
  if (place === undefined) throw new DOMException('cancelled', 'AbortError');
  const work = (workers: number) =>
    quantizeModel([...files], {
      to: options.to,
      ...(place.output === undefined ? {} : { output: place.output, overwrite: true }),
      workers,
      signal: options.signal,
      onProgress: ({ bytesDone, bytesTotal }) => options.onProgress(bytesDone / Math.max(1, bytesTotal)),
    });
  try {
    const result = await work(savingWorkers).catch((error: unknown) => {
      if (!(error instanceof ScalepointError && error.code === 'WORKER')) throw error;
      return work(0);
    });
    await place.finish(result);
    const config = `${name.replace(/\.[^.]*$/, '')}.config.json`;
    if (result.config !== undefined) {
      if (folder === undefined) download(json(result.config), config);
      else {
        const stream = await (await newFile(folder, config)).createWritable();
        await stream.write(json(result.config));
        await stream.close();
      }
    }
    return folder === undefined ? output : (place.output?.name ?? output);
  } catch (error) {
    await place.discard();
    throw error;
  }
}

/** The table: a row for each model, and the sum of all. */
class Table {
  readonly #body = byId('several-rows', HTMLElement);
  #rows: SeveralRow[] = [];

  /** Shows models without sizes of results. */
  show(models: readonly ModelFile[], open: (files: readonly File[]) => void): void {
    this.#rows = models.map(({ files }) => {
      return { before: files.reduce((sum, { size }) => sum + size, 0), after: undefined, state: '' };
    });
    this.#body.replaceChildren(
      ...models.map((model, i) => {
        const name = html('button', { type: 'button', class: 'link name' }, html('bdi'));
        setName(name.firstElementChild as Element, model.name);
        name.addEventListener('click', () => open(model.files));
        return html(
          'tr',
          {},
          html('th', { scope: 'row' }, name),
          html('td', { class: 'number' }, formatBytes(this.#rows[i]?.before ?? 0)),
          html('td', { class: 'number' }),
          html('td'),
        );
      }),
    );
  }

  /** Changes the row of model i. */
  set(i: number, change: Partial<SeveralRow>): void {
    const row = { ...(this.#rows[i] as SeveralRow), ...change };
    this.#rows[i] = row;
    const cells = this.#body.children[i]?.querySelectorAll('td');
    if (cells === undefined) return;
    setText(cells[1] as Element, row.after === undefined ? '' : formatBytes(row.after));
    setText(cells[2] as Element, row.state);
    const { before, after } = totalOf(this.#rows);
    setText(
      byId('several-total', HTMLElement),
      after === undefined ? '' : `${formatBytes(before)} become ${formatBytes(after)}.`,
    );
  }

  set disabled(value: boolean) {
    for (const button of this.#body.querySelectorAll('button')) button.disabled = value;
  }
}

/** The list of targets: presets, and the types that all of the models have. */
class Targets {
  readonly #list = byId('several-target', HTMLSelectElement);

  constructor(onChange: () => void) {
    this.#list.addEventListener('change', onChange);
  }

  offer(models: readonly ModelFile[]): void {
    const lists = models.map((model) => infoOf(usualFormat(model)).targets);
    const [first = []] = lists;
    const common = first.filter(
      ({ name, copies, needs }) =>
        !copies && needs === undefined && lists.every((list) => list.some((one) => one.name === name)),
    );
    this.#list.replaceChildren(
      ...presets.map((preset) => html('option', { value: preset }, presetTitles[preset])),
      ...common.map(({ name, about }) =>
        html('option', { value: name }, about === undefined ? name : `${name}: ${about}`),
      ),
    );
    this.#list.value = 'balanced';
  }

  /** The target of a model: a preset means another type in each format. */
  of(model: ModelFile): ModelTarget {
    const { value } = this.#list;
    const preset = presets.find((one) => one === value);
    return (preset === undefined ? value : presetTarget(usualFormat(model), preset as Preset)) as ModelTarget;
  }

  /** Name of the result of a model. */
  nameFor(model: ModelFile): string {
    const to = this.of(model);
    const format = formatFor(model, to);
    return outputName(model.name, format, withTarget(format, initialChoice(format), to));
  }

  set disabled(value: boolean) {
    this.#list.disabled = value;
  }
}

class SeveralPanel {
  readonly #table = new Table();
  readonly #targets = new Targets(() => void this.#plan());
  readonly #run = byId('several-run', HTMLButtonElement);
  readonly #cancel = byId('several-cancel', HTMLButtonElement);
  readonly #close = byId('several-close', HTMLButtonElement);
  readonly #events: SeveralEvents;
  #models: readonly ModelFile[] = [];
  /** Set while models are being converted. */
  #controller: AbortController | undefined;
  #request = 0;

  constructor(events: SeveralEvents) {
    this.#events = events;
    if (writesFolders()) setText(this.#run, 'Quantize all and save in one folder');
    this.#run.addEventListener('click', () => void this.#start());
    this.#cancel.addEventListener('click', () => this.#controller?.abort(new DOMException('cancelled', 'AbortError')));
    this.#close.addEventListener('click', events.close);
  }

  show(models: readonly ModelFile[]): void {
    this.#models = models;
    setText(byId('several-title', HTMLElement), formatMany(models.length, 'model'));
    setText(byId('several-status', HTMLElement), '');
    this.#table.show(models, this.#events.open);
    this.#targets.offer(models);
    this.#drawButtons();
    byId('several-title', HTMLElement).focus({ preventScroll: true });
    void this.#plan();
  }

  async #plan(): Promise<void> {
    const own = ++this.#request;
    for (const [i, model] of this.#models.entries()) {
      const planned = await planOf(model, this.#targets.of(model)).catch((error: unknown) =>
        asSentence(inPageWords(error)),
      );
      if (own !== this.#request) return;
      if (typeof planned === 'string') this.#table.set(i, { after: undefined, state: planned });
      else this.#table.set(i, { after: planned, state: this.#targets.nameFor(model) });
    }
  }

  async #start(): Promise<void> {
    // Without a dialog, files are downloaded.
    const controller = new AbortController();
    if (!this.#events.begin(() => controller.abort(new DOMException('cancelled', 'AbortError')))) return;
    const folder = await chooseFolder();
    if (folder === null) return this.#events.end();
    this.#controller = controller;
    const { signal } = controller;
    this.#drawButtons();
    let saved = 0;
    for (const [i, model] of this.#models.entries()) {
      if (signal.aborted) break;
      this.#table.set(i, { state: 'Starting…' });
      const onProgress = (share: number) => this.#table.set(i, { state: `${Math.floor(share * 100)}\u00a0%` });
      try {
        const options = { to: this.#targets.of(model), signal, onProgress };
        const name = await convert(model, options, this.#targets.nameFor(model), folder);
        saved++;
        this.#table.set(i, { state: `Saved ${name}` });
      } catch (error) {
        // The others go on.
        this.#table.set(i, { state: signal.aborted ? 'Cancelled' : asSentence(inPageWords(error)) });
      }
    }
    this.#controller = undefined;
    const words = `${saved} of ${formatMany(this.#models.length, 'model')} saved.`;
    setText(byId('several-status', HTMLElement), words);
    announce(words, 0);
    this.#drawButtons();
    this.#events.end();
  }

  #drawButtons(): void {
    const works = this.#controller !== undefined;
    const focused = document.activeElement;
    this.#run.hidden = works;
    this.#cancel.hidden = !works;
    this.#close.disabled = works;
    this.#targets.disabled = works;
    this.#table.disabled = works;
    if (works) setText(byId('several-status', HTMLElement), 'Quantizing one after the other…');
    if (focused === this.#run && works) this.#cancel.focus();
    if (focused === this.#cancel && !works) this.#run.focus();
  }
}

interface SeveralEvents {
  open(files: readonly File[]): void;
  close(): void;
  /** The page stays at the list until `end`. Returns false if a save is under way already. */
  begin(cancel: () => void): boolean;
  end(): void;
}

/** Sets up the panel. */
export function startSeveral(events: SeveralEvents, current: () => State) {
  const panel = new SeveralPanel(events);
  return ({ several }: State, before: State | undefined) => {
    byId('several', HTMLElement).hidden = several === undefined;
    if (several === before?.several) return;
    if (several !== undefined) return panel.show(several);
    if (before?.several !== undefined && current().model === undefined) byId('choose', HTMLButtonElement).focus();
  };
}

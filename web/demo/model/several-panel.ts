// Panel of several models: a row each, the same settings for all, one button, one folder.
import { type ModelTarget, type Progress, presetTarget, type QuantizeModelOptions } from 'scalepoint/model';
import { presets } from '../../src/tooling.js';
import { download, jsonBlob } from '../shared/copy.js';
import { type ModelFile, nameInFolder } from '../shared/files.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { announce } from '../shared/live.js';
import { asSentence } from '../shared/problems.js';
import { breakable, html, live, scrollBox, type TemplateResult } from '../shared/template.js';
import {
  formatFor,
  groupsOf,
  initialChoice,
  offeredTargets,
  outputName,
  targetLabel,
  usualFormat,
  withTarget,
} from './choice.js';
import { ComparePanel } from './compare-panel.js';
import { inPageWords } from './explain.js';
import { chooseFolder, newFile, newFilePlace, writesFolders } from './folders.js';
import { cancelled, saveTo } from './run.js';
import { choosePlace } from './save.js';
import type { ModelSession } from './session.js';
import { isModel, planOf, type SeveralRow, type Thing, totalOf } from './several.js';
import { totalBytes } from './sizes.js';
import { presetTitles } from './wording.js';

/** Converts one model into a folder, or as a download. Returns the name of the file. */
async function convert(
  { files, name }: ModelFile,
  options: QuantizeModelOptions,
  output: string,
  folder: FileSystemDirectoryHandle | undefined,
): Promise<string> {
  const place = folder === undefined ? await choosePlace(output) : await newFilePlace(folder, output);
  if (place === undefined) throw cancelled();
  const { result, saved } = await saveTo(place, files, async () => options);
  saved.drop();
  const config = `${name.replace(/\.[^.]*$/, '')}.config.json`;
  if (result.config !== undefined) {
    if (folder === undefined) download(jsonBlob(result.config), config);
    else {
      const stream = await (await newFile(folder, config)).createWritable();
      await stream.write(jsonBlob(result.config));
      await stream.close();
    }
  }
  return folder === undefined ? output : (place.output?.name ?? output);
}

/** The targets that all of some models have, in groups. */
function commonGroups([first, ...others]: readonly ModelFile[]) {
  if (first === undefined) return [];
  const lists = others.map((model) => offeredTargets(usualFormat(model)));
  const format = usualFormat(first);
  const common = offeredTargets(format).filter(({ name }) =>
    lists.every((list) => list.some((one) => one.name === name)),
  );
  return groupsOf(format, common);
}

/** The list of several models. */
export class SeveralPanel {
  readonly #session: ModelSession;
  readonly #redraw: () => void;
  readonly #comparison: ComparePanel;
  #things: readonly Thing[] = [];
  /** The models among them. */
  #models: readonly ModelFile[] = [];
  /** A row for each thing, in the same order. */
  #rows: readonly SeveralRow[] = [];
  /** A preset, or a type that all of the models have. */
  #target = 'balanced';
  #status = '';
  /** Set while models are being converted. */
  #controller: AbortController | undefined;
  #request = 0;

  constructor(session: ModelSession, redraw: () => void) {
    this.#session = session;
    this.#redraw = redraw;
    this.#comparison = new ComparePanel(redraw);
  }

  /** Changes the row of model i. */
  #set(i: number, change: Partial<SeveralRow>): void {
    this.#rows = this.#rows.map((row, at) => (at === i ? { ...row, ...change } : row));
    this.#redraw();
  }

  /** The target of a model: a preset means another type in each format. */
  #targetFor(model: ModelFile): ModelTarget {
    const preset = presets.find((one) => one === this.#target);
    return (preset === undefined ? this.#target : presetTarget(usualFormat(model), preset)) as ModelTarget;
  }

  /** Name of the result of a model. */
  #nameFor(model: ModelFile): string {
    const to = this.#targetFor(model);
    const format = formatFor(model, to);
    return outputName(nameInFolder(model), format, withTarget(format, initialChoice(format), to));
  }

  async #plan(): Promise<void> {
    const request = ++this.#request;
    for (const [i, model] of this.#things.entries()) {
      if (!isModel(model)) continue;
      const planned = await planOf(model, this.#targetFor(model)).catch((error: unknown) =>
        asSentence(inPageWords(error)),
      );
      if (request !== this.#request) return;
      if (planned === undefined)
        this.#set(i, { after: this.#rows[i]?.before, isSame: true, state: 'Nothing to convert: stays as it is.' });
      else if (typeof planned === 'string') this.#set(i, { after: undefined, isSame: false, state: planned });
      else this.#set(i, { after: planned, isSame: false, state: this.#nameFor(model) });
    }
  }

  #choose(target: string): void {
    this.#target = target;
    this.#redraw();
    void this.#plan();
  }

  async #start(): Promise<void> {
    const { shown } = this.#session;
    const controller = new AbortController();
    if (!shown.begin(() => controller.abort(cancelled()))) return;
    // Without a dialog, files are downloaded.
    const folder = await chooseFolder();
    if (folder === null) return shown.end({ kind: 'none' });
    this.#controller = controller;
    this.#status = 'Quantizing one after the other…';
    this.#redraw();
    const { signal } = controller;
    let saved = 0;
    const wanted = this.#things.filter((thing, i) => isModel(thing) && !this.#rows[i]?.isSame).length;
    for (const [i, model] of this.#things.entries()) {
      if (signal.aborted) break;
      // A file that would not change gets no name of another type.
      if (!isModel(model) || this.#rows[i]?.isSame) continue;
      this.#set(i, { state: 'Starting…' });
      const onProgress = ({ bytesDone, bytesTotal }: Progress) =>
        this.#set(i, { state: `${Math.floor((bytesDone / Math.max(1, bytesTotal)) * 100)}\u00a0%` });
      try {
        const options = { to: this.#targetFor(model), signal, onProgress };
        const name = await convert(model, options, this.#nameFor(model), folder);
        saved++;
        this.#set(i, { state: `Saved ${name}` });
      } catch (error) {
        // The others go on.
        this.#set(i, { state: signal.aborted ? 'Cancelled' : asSentence(inPageWords(error)) });
      }
    }
    this.#controller = undefined;
    this.#status = `${saved} of ${formatMany(wanted, 'model')} saved.`;
    announce(this.#status, 0);
    shown.end({ kind: 'none' });
  }

  view(things: readonly Thing[]): TemplateResult {
    if (things !== this.#things) {
      this.#things = things;
      this.#models = things.filter(isModel);
      this.#target = 'balanced';
      this.#status = '';
      this.#rows = things.map((thing) =>
        isModel(thing)
          ? { before: totalBytes(thing.files), after: undefined, isSame: false, state: '' }
          : { before: 0, after: 0, isSame: false, state: thing.problem.text },
      );
      void this.#plan();
    }
    const models = this.#models;
    const works = this.#controller !== undefined;
    const { before, after } = totalOf(this.#rows);
    const option = (value: string, label: string) =>
      html`<option value=${value} .selected=${live(value === this.#target)}>${label}</option>`;
    const cancel = () => this.#controller?.abort(cancelled());
    const row = (thing: Thing, i: number) => {
      const { before = 0, after, state = '' } = this.#rows[i] ?? {};
      if (!isModel(thing)) {
        return html`<tr class="several-lost"><th scope="row"><span class="name"><bdi>${breakable(thing.name)}</bdi></span></th><td colspan="3">${state}</td></tr>`;
      }
      const open = () => void this.#session.open(thing.files as readonly File[]);
      return html`<tr
        ><th scope="row"><button type="button" class="link name" ?disabled=${works} @click=${open}><bdi>${breakable(nameInFolder(thing))}</bdi></button></th
        ><td class="number">${formatBytes(before)}</td><td class="number">${after === undefined ? '' : formatBytes(after)}</td><td>${state}</td></tr>`;
    };
    const lost = things.length - models.length;
    const all = formatMany(models.length, 'model') + (lost === 0 ? '' : ` of ${things.length}`);
    const title = models.length === 0 ? `None of these ${things.length} can be opened` : all;
    return html`
      <div class="file-head">
        <div class="file-name">
          <h1 id="several-title" tabindex="-1">${title}</h1>
          <p class="hint" id="several-lost" ?hidden=${lost === 0}>${lost === 1 ? 'One was not opened. The reason stands beside it.' : `${lost} were not opened. The reason stands beside each.`}</p>
        </div>
        <div class="row"><button type="button" id="several-close" ?disabled=${works} @click=${() => this.#session.close()}>Close</button></div>
      </div>
      <div class="several-do" ?hidden=${models.length === 0}>
        <label class="field">${models.length === 1 ? 'It becomes' : 'All of them become'} <select id="several-target" ?disabled=${works} @change=${({ target }: Event) => this.#choose((target as HTMLSelectElement).value)}>${[
          ...presets.map((preset) => option(preset, presetTitles[preset])),
          ...commonGroups(models).map(
            ({ label, targets }) =>
              html`<optgroup label=${label}>${targets.map((target) => option(target.name, targetLabel(target)))}</optgroup>`,
          ),
        ]}</select></label>
        <button type="button" class="primary big" id="several-run" data-next="#several-cancel" ?hidden=${works}
          @click=${() => void this.#start()}>${writesFolders() ? 'Quantize all and save in one folder' : 'Quantize all and save'}</button>
        <button type="button" class="big" id="several-cancel" data-next="#several-run" ?hidden=${!works} @click=${cancel}>Cancel</button>
        <p id="several-total">${after === undefined ? '' : `${formatBytes(before)} become ${formatBytes(after)}.`}</p>
        <p class="hint" id="several-status" role="status">${this.#status}</p>
      </div>
      <div class="scroll" data-name="Models" ${scrollBox()}>
        <table class="several-table">
          <thead><tr><th scope="col">Model</th><th scope="col" class="number">Before</th><th scope="col" class="number">After</th><th scope="col">Result</th></tr></thead>
          <tbody id="several-rows">${things.map(row)}</tbody>
        </table>
      </div>
      ${this.#comparison.view(models)}`;
  }
}

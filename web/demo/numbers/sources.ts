import { WorkerError } from '../shared/calls.js';
import { choiceView, filesView } from '../shared/controls.js';
import { startDropping } from '../shared/drop.js';
import { FileError, isUnreadable, UnreadFile, unreadableText } from '../shared/file-error.js';
import { formatBytes, formatMany, formatShape } from '../shared/format.js';
import { takeFiles } from '../shared/handover.js';
import { asSentence, messageOf, type PageProblem } from '../shared/problems.js';
import { sampleFile } from '../shared/sample.js';
import { html, live, nothing, type TemplateResult } from '../shared/template.js';
import { countOf } from './data.js';
import type { FileAnswer, HeldData, TensorEntry, TextAnswer } from './engine.js';
import type { Client } from './loop.js';
import type { Comma } from './numbers.js';

type Source = 'generate' | 'text' | 'file';

/** Events of the panel. */
export interface SourceEvents {
  /** The visitor chose generated numbers. */
  onGenerate(): void;
  /** The visitor pasted numbers, or opened a file or tensor. */
  onData(data: HeldData): void;
  /** A file cannot be used. Undefined means that a file was used, so an earlier problem is over. */
  onProblem(problem: PageProblem | undefined): void;
  /** A read started or ended. */
  onBusy(busy: boolean): void;
  redraw(): void;
}

/** The first numbers in the field of "Paste". Two rows, so that per-channel can be tried. */
const exampleText = `0.12, -0.48, 0.91, 0.33, -0.07, 0.54, -1.02, 0.26
3.1,  -2.4,  0.8,  5.6,  -4.9, 1.7,  -0.3,  2.2`;

/** Longest text that is put into the text field. Browsers lay out longer ones for seconds. */
const longestText = 50_000;
/** Most tensors that are listed without a filter. */
const manyTensors = 12;
/** Most numbers of a tensor that is read without being chosen. */
const unasked = 2 ** 22;

const commaLabels: Readonly<Record<Comma, string>> = {
  separates: 'separates numbers',
  decimal: 'is a decimal point',
  thousands: 'groups thousands',
};

/** The page's line about a text. */
function textHint(answer: TextAnswer, comma: Comma | undefined): string {
  if (answer.kind === 'none') return 'No numbers found yet. Write some, or paste a column of a table.';
  if (answer.kind === 'refused') return answer.why;
  if (answer.kind === 'question') return 'Nothing was read yet: these numbers can be read in more than one way.';
  const { data } = answer;
  const shape = data.shape.length > 1 ? `, ${formatShape(data.shape)}` : '';
  const read = comma === undefined ? '' : ` A comma ${commaLabels[comma]}.`;
  return `${formatMany(countOf(data), 'number')}${shape}.${read} ${data.note ?? ''}`;
}

/** The reason that a tensor cannot be chosen; empty for one that can. */
const obstacleOf = ({ shape, readable }: TensorEntry) =>
  shape.includes(0) ? ' (empty)' : readable ? '' : ' (no floats)';

/** The panel where the visitor chooses the source of the numbers. It takes files and texts dropped or pasted anywhere on the page, too. */
export class Sources {
  readonly #client: Client;
  readonly #events: SourceEvents;
  #source: Source = 'generate';
  #lastOwn: Source = 'text';
  #data: { readonly [source in Source]?: HeldData } = {};
  /** Number of the newest request. Reading is asynchronous, and only the newest request may change the page. */
  #request = 0;
  #text = exampleText;
  /** The visitor's answer about commas, for the current text. */
  #comma: Comma | undefined;
  #answer: TextAnswer | undefined;
  #file: Extract<FileAnswer, { kind: 'tensors' }> | undefined;
  #filter = '';
  /** Index of the chosen tensor. */
  #tensor: number | undefined;

  constructor(client: Client, events: SourceEvents) {
    this.#client = client;
    this.#events = events;
  }

  /** Takes what is dropped or pasted, and what another page has handed over. */
  start(): void {
    const open = (files: readonly File[]) => void this.#open(files);
    const read = (text: string) => {
      this.#source = 'text';
      this.#read(text);
    };
    startDropping(open, read);
    const [file, ...more] = takeFiles() ?? [];
    // A text may raise questions, which are asked beside the field.
    if (file?.type === 'text/plain') void file.text().then(read);
    else if (file !== undefined) open([file, ...more]);
  }

  /** Shows the fields of the generator, or those of the source that the visitor's last own data came from. */
  show(data: 'generated' | 'own'): void {
    this.#source = data === 'generated' ? 'generate' : this.#lastOwn;
  }

  /** Runs one asynchronous read. A failed read is explained and changes nothing else. */
  async #attempt<Result>(what: string, work: () => Promise<Result>, finish: (result: Result) => void): Promise<void> {
    const mine = ++this.#request;
    this.#events.onBusy(true);
    try {
      const result = await work();
      if (mine === this.#request) finish(result);
    } catch (error) {
      if (mine === this.#request) this.#events.onProblem(explainFile(error, what));
    } finally {
      if (mine === this.#request) this.#events.onBusy(false);
    }
  }

  /** Shows data, and makes the worker drop those of the same source before them. */
  #use(source: 'text' | 'file', data: HeldData): void {
    const old = this.#data[source];
    this.#data = { ...this.#data, [source]: data };
    this.#lastOwn = source;
    this.#events.onProblem(undefined);
    this.#events.onData(data);
    if (old !== undefined) void this.#client.call('drop', old.id);
  }

  #choose(source: Source): void {
    this.#request++;
    this.#events.onBusy(false);
    this.#source = source;
    const { file } = this.#data;
    if (source === 'generate') this.#events.onGenerate();
    else if (source === 'text') this.#read(this.#text, this.#comma);
    else if (file !== undefined) {
      this.#lastOwn = 'file';
      this.#events.onData(file);
    }
    this.#events.redraw();
  }

  #read(text: string, comma?: Comma): void {
    this.#text = text;
    this.#comma = comma;
    const call = () => this.#client.call('text', { text, comma });
    void this.#attempt('the text', call, (answer) => {
      this.#answer = answer;
      if (answer.kind === 'data') this.#use('text', answer.data);
    });
    this.#events.redraw();
  }

  async #open(files: readonly File[]): Promise<void> {
    const names = files.map(({ name }) => name).join(', ');
    const call = async () => {
      const lost = files.find((file) => file instanceof UnreadFile);
      if (lost !== undefined) throw new FileError(`${lost.name}: ${lost.why}`);
      return this.#client.call('files', files);
    };
    await this.#attempt(names, call, (opened) => {
      this.#source = 'file';
      this.#filter = '';
      this.#tensor = undefined;
      this.#file = opened.kind === 'data' ? undefined : opened;
      if (opened.kind === 'data') this.#use('file', opened.data);
      else this.#list(opened);
    });
  }

  /** Chooses the first small matrix of a file, or else the first small tensor. */
  #list({ name, tensors }: Extract<FileAnswer, { kind: 'tensors' }>): void {
    const usable = tensors.flatMap((tensor, at) => (obstacleOf(tensor) === '' ? [{ ...tensor, at }] : []));
    const small = usable.filter(({ shape }) => shape.reduce((a, b) => a * b, 1) <= unasked);
    const first = small.find(({ shape }) => shape.length > 1) ?? small[0];
    this.#events.onProblem(
      usable.length > 0
        ? undefined
        : {
            title: 'There are no floats in this file',
            text: `${name} holds no float tensor with numbers in it. Drop another file.`,
          },
    );
    if (first !== undefined) this.#readTensor(first.at, first.name);
  }

  #readTensor(at: number, name: string): void {
    this.#tensor = at;
    const call = () => this.#client.call('tensor', at);
    void this.#attempt(name, call, (data) => this.#use('file', data));
    this.#events.redraw();
  }

  #textView(): TemplateResult {
    const isLong = this.#text.length > longestText;
    const question = this.#answer?.kind === 'question' ? this.#answer.question : undefined;
    const paste = (event: ClipboardEvent) => {
      const text = event.clipboardData?.getData('text/plain') ?? '';
      if (text.length <= longestText) return;
      event.preventDefault();
      this.#read(text);
    };
    return html`
      <label class="field" ?hidden=${isLong}>Numbers, separated by anything
        <textarea id="text" rows="6" spellcheck="false" autocomplete="off" aria-describedby="text-hint" .value=${live(isLong ? '' : this.#text)}
          @input=${({ target }: Event) => this.#read((target as HTMLTextAreaElement).value)} @paste=${paste}></textarea>
      </label>
      <div class="row" ?hidden=${!isLong}>
        <p><strong>A text of ${formatBytes(this.#text.length)}</strong> is read, but not shown.</p>
        <button type="button" id="other-text" data-next="#text" @click=${() => this.#read(exampleText)}>Write others</button>
      </div>
      <fieldset class="question" id="comma" ?hidden=${question === undefined}>
        <legend id="comma-legend">The comma in “${question?.word}” …</legend>
        <div class="row">${question?.readings.map(
          (reading) =>
            html`<button type="button" data-comma=${reading} data-next="#text" @click=${() => this.#read(this.#text, reading)}>${commaLabels[reading]}</button>`,
        )}</div>
      </fieldset>
      <p class="hint" id="text-hint" role="status">${this.#answer && textHint(this.#answer, this.#comma)}</p>`;
  }

  #fileView(): TemplateResult {
    const openSample = () => void this.#attempt('the sample model', sampleFile, (file) => void this.#open([file]));
    return html`
      <div class="drop">
        <p><strong>Drop a file anywhere on this page</strong></p>
        <p class="hint">A model, .npy, text, or raw float32</p>
        <div class="row center">${filesView('Choose a file…', (files) => void this.#open(files))}</div>
        <button type="button" class="link" id="sample" @click=${openSample}>or load the sample model</button>
      </div>
      ${this.#file === undefined ? nothing : this.#tensorsView(this.#file)}`;
  }

  #tensorsView({ name: file, tensors }: Extract<FileAnswer, { kind: 'tensors' }>): TemplateResult {
    const wanted = this.#filter.trim().toLowerCase();
    const filter = ({ target }: Event) => {
      this.#filter = (target as HTMLInputElement).value;
      this.#events.redraw();
    };
    const choose = ({ target }: Event) => {
      const at = Number((target as HTMLSelectElement).value);
      this.#readTensor(at, tensors[at]?.name ?? '');
    };
    const option = (tensor: TensorEntry, at: number) => {
      const { name, dtype, shape, bytes } = tensor;
      if (!name.toLowerCase().includes(wanted)) return nothing;
      const label = `${name} · ${dtype} ${formatShape(shape)}${obstacleOf(tensor)}`;
      return html`<option value=${at} title="${label}, ${formatBytes(bytes)}" ?disabled=${obstacleOf(tensor) !== ''} .selected=${live(at === this.#tensor)}>${label}</option>`;
    };
    return html`<div class="fields">
      <p class="pair"><strong id="tensors-file">${file}</strong> <span class="hint">${formatMany(tensors.length, 'tensor')}</span></p>
      <label class="field" ?hidden=${tensors.length <= manyTensors}>Find a tensor
        <input type="search" id="tensor-filter" autocomplete="off" spellcheck="false" .value=${live(this.#filter)} @input=${filter}>
      </label>
      <label class="field">Tensor
        <select id="tensor" size="6" @change=${choose}>${tensors.map(option)}</select>
      </label>
    </div>`;
  }

  /** @param generator the fields of made numbers */
  view(generator: TemplateResult): TemplateResult {
    const fields = { generate: () => generator, text: () => this.#textView(), file: () => this.#fileView() };
    return html`<section class="source" aria-label="Numbers">
      ${choiceView({
        name: 'source',
        legend: 'Numbers',
        options: { generate: 'Make', text: 'Paste', file: 'File' },
        chosen: this.#source,
        choose: (source) => this.#choose(source),
      })}
      <div class="fields source-fields">${fields[this.#source]()}</div>
      <p class="private">
        <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d="M4 7V5a4 4 0 0 1 8 0v2M3 7h10v7H3z" /></svg>
        Your numbers never leave this device.
      </p>
    </section>`;
  }
}

/** Explains why a file could not be used. */
function explainFile(error: unknown, what: string): PageProblem {
  // The worker has its own class of file errors, and sends their name.
  if (error instanceof Error && error.name === 'FileError')
    return { title: 'That cannot be read here', text: error.message };
  if (isUnreadable(error)) return { title: `Could not read ${what}`, text: unreadableText };
  if (error instanceof TypeError && /fetch/i.test(error.message)) {
    return { title: `Could not load ${what}`, text: 'The connection failed. Try again, or drop a file of your own.' };
  }
  const { tensor, byteOffset } = error instanceof WorkerError ? error : {};
  const where = [
    typeof tensor === 'string' ? `tensor ${tensor}` : '',
    typeof byteOffset === 'number' ? `byte ${byteOffset}` : '',
  ].filter((part) => part !== '');
  const place = where.length > 0 ? ` (${where.join(', ')})` : '';
  return {
    title: `Could not read ${what}`,
    text: `${asSentence(messageOf(error), place)} The numbers shown before are still here. Choose another tensor or file.`,
  };
}

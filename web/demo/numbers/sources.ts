import { WorkerError } from '../shared/calls.js';
import { byId, showFacts } from '../shared/dom.js';
import { startDropping } from '../shared/drop.js';
import { formatBytes, formatMany, formatShape } from '../shared/format.js';
import { takeFiles } from '../shared/handover.js';
import { asSentence, messageOf, type PageProblem } from '../shared/problems.js';
import { sampleFile } from '../shared/sample.js';
import { html, render } from '../shared/template.js';
import type { Client } from './client.js';
import { countOf } from './data.js';
import type { FileAnswer, HeldData, TextAnswer } from './engine.js';
import type { Comma, CommaQuestion } from './numbers.js';
import { startTensorList } from './tensorlist.js';

type Source = 'generate' | 'text' | 'file';
const sourceNames = ['generate', 'text', 'file'] as const;

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
}

/** The panel where the visitor chooses the source of the numbers. */
export interface Sources {
  /** Shows the fields of the generator, or those of the source that the visitor's last own data came from. */
  show(data: 'generated' | 'own'): void;
}

/** The first numbers in the field of "Paste". Two rows, so that per-channel can be tried. */
const exampleText = `0.12, -0.48, 0.91, 0.33, -0.07, 0.54, -1.02, 0.26
3.1,  -2.4,  0.8,  5.6,  -4.9, 1.7,  -0.3,  2.2`;

/** Longest text that is put into the text field. Browsers lay out longer ones for seconds. */
const longestText = 50_000;

/** State of the panel. */
interface Panel {
  readonly client: Client;
  readonly events: SourceEvents;
  lastOwn: Source;
  fileData: HeldData | undefined;
  textData: HeldData | undefined;
  /** A long text that was pasted. It is not in the text field. */
  longText: string | undefined;
  /** The visitor's answer about commas, for the current text. */
  comma: Comma | undefined;
  /** Number of the newest request. Reading is asynchronous, and only the newest request may change the page. */
  request: number;
}

function showPanel(source: Source): void {
  for (const name of sourceNames) byId(`source-${name}`, HTMLElement).hidden = name !== source;
  for (const radio of document.querySelectorAll<HTMLInputElement>('input[name="source"]'))
    radio.checked = radio.value === source;
}

/** Runs one asynchronous read. A failed read is explained and changes nothing else. */
async function attempt<T>(
  panel: Panel,
  what: string,
  work: () => Promise<T>,
  finish: (result: T) => void,
): Promise<void> {
  const mine = ++panel.request;
  panel.events.onBusy(true);
  try {
    const result = await work();
    if (mine === panel.request) finish(result);
  } catch (error) {
    if (mine === panel.request) panel.events.onProblem(explainFile(error, what));
  } finally {
    if (mine === panel.request) panel.events.onBusy(false);
  }
}

/** Makes the worker drop data that are no longer shown. */
function replace(panel: Panel, slot: 'fileData' | 'textData', data: HeldData): void {
  const old = panel[slot];
  panel[slot] = data;
  panel.lastOwn = slot === 'fileData' ? 'file' : 'text';
  panel.events.onProblem(undefined);
  panel.events.onData(data);
  if (old !== undefined) void panel.client.call('drop', old.id);
}

// ------------------------------------------------------------------------------------------------------------------------ text

const commaLabels: Readonly<Record<Comma, string>> = {
  separates: 'separates numbers',
  decimal: 'is a decimal point',
  thousands: 'groups thousands',
};

/** Asks for the meaning of the commas in the text. */
function ask(panel: Panel, question: CommaQuestion | undefined): void {
  showFacts({ comma: { hidden: question === undefined } });
  if (question === undefined) return;
  showFacts({ 'comma-legend': `The comma in “${question.word}” …` });
  const choose = (reading: Comma) => {
    panel.comma = reading;
    byId('text', HTMLTextAreaElement).focus();
    void readText(panel);
  };
  render(
    question.readings.map(
      (reading) =>
        html`<button type="button" data-comma=${reading} @click=${() => choose(reading)}>${commaLabels[reading]}</button>`,
    ),
    byId('comma-readings', HTMLElement),
  );
}

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

function readText(panel: Panel): Promise<void> {
  const text = panel.longText ?? byId('text', HTMLTextAreaElement).value;
  const { comma } = panel;
  return attempt(
    panel,
    'the text',
    () => panel.client.call('text', { text, comma }),
    (answer) => {
      ask(panel, answer.kind === 'question' ? answer.question : undefined);
      showFacts({ 'text-hint': textHint(answer, comma) });
      if (answer.kind === 'data') replace(panel, 'textData', answer.data);
    },
  );
}

/** Keeps a text that is too long for the field beside it. */
function holdText(panel: Panel, text: string | undefined): void {
  panel.longText = text;
  panel.comma = undefined;
  showFacts({
    'text-field': { hidden: text !== undefined },
    'long-text': { hidden: text === undefined },
    'long-text-words': `A text of ${formatBytes(text?.length ?? 0)}`,
  });
}

function startText(panel: Panel): void {
  const field = byId('text', HTMLTextAreaElement);
  field.value = exampleText;
  field.addEventListener('input', () => {
    panel.comma = undefined;
    void readText(panel);
  });
  byId('other-text', HTMLButtonElement).addEventListener('click', () => {
    holdText(panel, undefined);
    field.value = exampleText;
    field.focus();
    void readText(panel);
  });
  field.addEventListener('paste', (event) => {
    const text = event.clipboardData?.getData('text/plain') ?? '';
    if (text.length <= longestText) return;
    event.preventDefault();
    takeText(panel, text);
  });
}

/** Reads a text as if it had been written into the field. */
function takeText(panel: Panel, text: string): void {
  showPanel('text');
  holdText(panel, text.length > longestText ? text : undefined);
  if (text.length <= longestText) byId('text', HTMLTextAreaElement).value = text;
  void readText(panel);
}

// ----------------------------------------------------------------------------------------------------------------------- files

function useFiles(panel: Panel, list: ReturnType<typeof startTensorList>, opened: FileAnswer): void {
  showPanel('file');
  if (opened.kind === 'data') {
    list.show(undefined);
    replace(panel, 'fileData', opened.data);
    return;
  }
  const usable = list.show(opened);
  panel.events.onProblem(
    usable
      ? undefined
      : {
          title: 'There are no floats in this file',
          text: `${opened.name} holds no float tensor with numbers in it. Drop another file.`,
        },
  );
}

function startFiles(panel: Panel): void {
  const picker = byId('file', HTMLInputElement);
  const list = startTensorList((index, name) => {
    void attempt(
      panel,
      name,
      () => panel.client.call('tensor', index),
      (data) => replace(panel, 'fileData', data),
    );
  });
  const open = (files: readonly File[]) =>
    attempt(
      panel,
      files.map(({ name }) => name).join(', '),
      () => panel.client.call('files', files),
      (opened) => useFiles(panel, list, opened),
    );
  byId('choose', HTMLButtonElement).addEventListener('click', () => picker.click());
  picker.addEventListener('change', () => {
    const files = [...(picker.files ?? [])];
    // Cleared, so that choosing the same file again is a change.
    if (files.length > 0) void open(files).finally(() => (picker.value = ''));
  });
  byId('sample', HTMLButtonElement).addEventListener('click', () => {
    void attempt(panel, 'the sample model', sampleFile, (file) => void open([file]));
  });
  startDropping(
    (files) => void open(files),
    (text) => takeText(panel, text),
  );
  const [file, ...more] = takeFiles() ?? [];
  // A text may raise questions, which are asked beside the field.
  if (file?.type === 'text/plain') void file.text().then((text) => takeText(panel, text));
  else if (file !== undefined) void open([file, ...more]);
}

/** Sets up the panel, the file dialog, and dropping files and pasting anywhere on the page. */
export function startSources(client: Client, events: SourceEvents): Sources {
  const panel: Panel = {
    client,
    events,
    lastOwn: 'text',
    fileData: undefined,
    textData: undefined,
    longText: undefined,
    comma: undefined,
    request: 0,
  };
  const choose = (source: Source) => {
    panel.request++;
    events.onBusy(false);
    showPanel(source);
    if (source === 'generate') events.onGenerate();
    else if (source === 'text') void readText(panel);
    else if (panel.fileData !== undefined) {
      panel.lastOwn = 'file';
      events.onData(panel.fileData);
    }
  };
  for (const radio of document.querySelectorAll<HTMLInputElement>('input[name="source"]')) {
    radio.addEventListener('change', () => choose(radio.value as Source));
  }
  startText(panel);
  startFiles(panel);
  return { show: (data) => showPanel(data === 'generated' ? 'generate' : panel.lastOwn) };
}

/** Explains why a file could not be used. */
function explainFile(error: unknown, what: string): PageProblem {
  // The worker has its own class of file errors, and sends their name.
  if (error instanceof Error && error.name === 'FileError')
    return { title: 'That cannot be read here', text: error.message };
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

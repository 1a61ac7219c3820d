import type { Scalepoint } from 'scalepoint';
import { byId, setText } from '../shared/dom.js';
import { startDropping } from '../shared/drop.js';
import { FileError } from '../shared/files.js';
import { formatMany, formatShape } from '../shared/format.js';
import { messageOf, type Problem } from '../shared/problems.js';
import { sampleFile } from '../shared/sample.js';
import { type DataSet, textData } from './data.js';
import { openFile } from './files.js';
import { parseNumbers } from './numbers.js';
import { startTensorList } from './tensorlist.js';

type Source = 'generate' | 'text' | 'file';

/** Events of the panel. */
export interface SourceEvents {
  /** The visitor chose generated numbers. */
  onGenerate(): void;
  /** The visitor pasted numbers, or opened a file or tensor. */
  onData(data: DataSet): void;
  /** The visitor opened a model file. */
  /** A file cannot be used. Undefined means that a file was used, so an earlier problem is over. */
  onProblem(problem: Problem | undefined): void;
}

/** The panel where the visitor chooses the source of the numbers. */
export interface Sources {
  /** Shows the fields of the generator, or those of the source that the visitor's last own data came from. */
  show(data: 'generated' | 'own'): void;
}

/** The numbers that are there when "Paste" is chosen. Two rows, so that per-channel can be tried. */
const exampleText = `0.12, -0.48, 0.91, 0.33, -0.07, 0.54, -1.02, 0.26
3.1,  -2.4,  0.8,  5.6,  -4.9, 1.7,  -0.3,  2.2`;

/** Sets up the panel, the file dialog, and dropping files anywhere on the page. */
export function startSources(core: Scalepoint, events: SourceEvents): Sources {
  const text = byId('text', HTMLTextAreaElement);
  const picker = byId('file', HTMLInputElement);
  let lastOwn: Source = 'text';
  let fileData: DataSet | undefined;
  // Number of the newest request. Reading is asynchronous, and only the newest request may change the page.
  let request = 0;

  const showPanel = (source: Source) => {
    for (const name of ['generate', 'text', 'file'] as const)
      byId(`source-${name}`, HTMLElement).hidden = name !== source;
    for (const radio of document.querySelectorAll<HTMLInputElement>('input[name="source"]'))
      radio.checked = radio.value === source;
  };

  const readText = () => {
    lastOwn = 'text';
    const parsed = parseNumbers(text.value);
    const data = textData(parsed, 'Pasted numbers', 'pasted');
    setText(
      byId('text-hint', HTMLElement),
      parsed.values.length === 0
        ? 'No numbers found yet. Write some, or paste a column of a table.'
        : `${formatMany(parsed.values.length, 'number')}${data.shape.length > 1 ? `, ${formatShape(data.shape)}` : ''}. ${data.note ?? ''}`,
    );
    if (parsed.values.length > 0) events.onData(data);
  };

  const useFileData = (data: DataSet) => {
    lastOwn = 'file';
    fileData = data;
    events.onProblem(undefined);
    events.onData(data);
  };

  /** Runs one asynchronous read. `work` returns what to do with its result. A failed read is explained and changes nothing else. */
  const attempt = async (what: string, work: () => Promise<(() => void) | undefined>) => {
    const mine = ++request;
    try {
      const finish = await work();
      if (mine === request) finish?.();
    } catch (error) {
      if (mine === request) events.onProblem(explainFile(error, what));
    }
  };

  const tensors = startTensorList((file, entry) =>
    attempt(entry.name, async () => {
      const data = await file.read(entry);
      return () => useFileData(data);
    }),
  );

  const open = (files: readonly File[]) =>
    attempt(files.map(({ name }) => name).join(', '), async () => {
      const opened = await openFile(core, files);
      return () => {
        showPanel('file');
        if (opened.kind === 'data') {
          tensors.show(undefined);
          useFileData(opened.data);
        } else {
          const usable = tensors.show(opened);
          events.onProblem(
            usable
              ? undefined
              : {
                  title: 'No floats in there',
                  text: `${opened.name} holds no float tensor with numbers in it. Drop another file.`,
                },
          );
        }
      };
    });

  const choose = (source: Source) => {
    request++;
    showPanel(source);
    if (source === 'generate') events.onGenerate();
    else if (source === 'text') readText();
    else if (fileData !== undefined) useFileData(fileData);
  };

  for (const radio of document.querySelectorAll<HTMLInputElement>('input[name="source"]')) {
    radio.addEventListener('change', () => choose(radio.value as Source));
  }
  text.value = exampleText;
  text.addEventListener('input', readText);
  byId('choose', HTMLButtonElement).addEventListener('click', () => picker.click());
  picker.addEventListener('change', () => {
    const files = [...(picker.files ?? [])];
    // Cleared, so that choosing the same file again is a change.
    if (files.length > 0) void open(files).finally(() => (picker.value = ''));
  });
  byId('sample', HTMLButtonElement).addEventListener('click', () => {
    void attempt('the sample model', async () => {
      const file = await sampleFile();
      return () => void open([file]);
    });
  });
  startDropping((files) => void open(files));

  return { show: (data) => showPanel(data === 'generated' ? 'generate' : lastOwn) };
}

/** Explains why a file could not be used. */
function explainFile(error: unknown, what: string): Problem {
  if (error instanceof FileError) return { title: 'That cannot be read here', text: error.message };
  if (error instanceof TypeError && /fetch/i.test(error.message)) {
    return { title: `Could not load ${what}`, text: 'The connection failed. Try again, or drop a file of your own.' };
  }
  const { tensor, byteOffset } = error as { tensor?: unknown; byteOffset?: unknown };
  const where = [
    typeof tensor === 'string' ? `tensor ${tensor}` : '',
    typeof byteOffset === 'number' ? `byte ${byteOffset}` : '',
  ].filter((part) => part !== '');
  const place = where.length > 0 ? ` (${where.join(', ')})` : '';
  return {
    title: `Could not read ${what}`,
    text: `${messageOf(error).replace(/\.$/, '')}${place}. The numbers shown before are still here; choose another tensor or file.`,
  };
}

/** Opens models of every format. */
import type { Beside } from '../architectures/converter.js';
import { asOption } from '../core/errors.js';
import type { Waiting } from '../core/waiting.js';
import type { ByteSource, FileInput, InputFile, OptionFile } from '../formats/files/bytes.js';
import { fileOfHandle, openInput } from '../formats/files/open.js';
import type { Format, OpenFile, OpenModel, ReadOptionFile } from '../formats/format.js';
import { formatNamed } from '../formats/registry.js';
import { type LoraAdapter, withAdapters } from './adapters.js';
import { besideOf } from './beside.js';
import { type ModelInput, type OpenOptions, recognize, withFiles } from './recognize.js';

/** An open model, its format, and the files beside it. */
export interface Opened {
  readonly format: Format;
  readonly model: OpenModel;
  readonly beside: Beside;
  readonly readOptionFile: ReadOptionFile;
  /** The files that were opened so far, which the call must not write. */
  readonly inputs: InputFile[];
}

/** Caches the result for each input, so that planning a model with fifteen types reads an importance matrix once. */
function optionFileReader(waiting: Waiting, inputs: InputFile[]): ReadOptionFile {
  const results = new Map<OptionFile, Promise<unknown>>();
  const opened = async (option: string, input: OptionFile) => {
    try {
      const { file } = await waiting.soon(fileOfHandle(input));
      return { file, source: await openInput(waiting, file, { inputs, option }, { given: input }) };
    } catch (error) {
      throw asOption(option, error);
    }
  };
  const readOnce = async <T>(
    option: string,
    input: OptionFile,
    read: (source: ByteSource, file: FileInput) => Promise<T>,
  ): Promise<T> => {
    const { file, source } = await opened(option, input);
    return read(source, file).finally(() => source.close());
  };
  return <T>(
    option: string,
    input: OptionFile,
    read: (source: ByteSource, file: FileInput) => Promise<T>,
  ): Promise<T> => {
    const known = results.get(input) as Promise<T> | undefined;
    if (known !== undefined) return known;
    const result = readOnce(option, input, read);
    results.set(input, result);
    return result;
  };
}

/** Opens a model whose files are open. */
async function openModel(given: readonly OpenFile[], waiting: Waiting, inputs: InputFile[]): Promise<Opened> {
  const { format: signature, model: files, first, beside } = await recognize(given);
  const format = formatNamed(signature.name);
  const notes = { inputs, option: 'file' };
  const folder = besideOf(first, beside, waiting, notes);
  const model = await format.open(files, (input) => openInput(waiting, input, notes));
  Object.assign(model, { fileBeside: (name: string) => folder.file(name) });
  return { format, model, beside: folder, readOptionFile: optionFileReader(waiting, inputs), inputs };
}

/** Opens a model, hands it to `use`, and closes its files. All reading ends when the signal aborts. */
export function withModel<T>(
  input: ModelInput,
  options: OpenOptions & { readonly lora?: readonly LoraAdapter[] | undefined },
  use: (opened: Opened) => Promise<T>,
): Promise<T> {
  const { lora = [] } = options;
  const inputs: InputFile[] = [];
  return withFiles(input, { ...options, notes: { inputs, option: 'file' } }, async (files, waiting) => {
    const opened = await openModel(files, waiting, inputs);
    try {
      if (lora.length === 0) return await use(opened);
      return await withAdapters(opened, lora, options, () => use(opened));
    } finally {
      await opened.model.close?.();
    }
  });
}

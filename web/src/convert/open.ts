/** Opens models of every format, and merges adapters into them. */
import type { Beside } from '../architectures/converter.js';
import { checkKeys } from '../core/check.js';
import { asOption, rangeError, ScalepointError, typeError } from '../core/errors.js';
import { ofType } from '../core/option-problem.js';
import type { Waiting } from '../core/waiting.js';
import type { Adapter } from '../formats/adapters.js';
import { type ByteSource, type FileInput, type InputFile, type OptionFile, quoted } from '../formats/files/bytes.js';
import { fileOfHandle, type InputNotes, openInput } from '../formats/files/open.js';
import type { Format, OpenModel, ReadOptionFile, SourceTensor } from '../formats/format.js';
import { formatNamed, formats } from '../formats/registry.js';
import { withHub } from './named.js';
import { besideOf, type ModelInput, type OpenOptions, recognize, withFiles } from './recognize.js';

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
      const { file: given } = await waiting.soon(fileOfHandle(input));
      const { file } = await waiting.soon(withHub(given, waiting.signal));
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

/** Opens a model, hands it to `use`, and closes its files. All reading ends when the signal aborts. */
export function withModel<T>(
  input: ModelInput,
  options: OpenOptions & { readonly lora?: readonly LoraAdapter[] | undefined },
  use: (opened: Opened) => Promise<T>,
): Promise<T> {
  const { lora = [] } = options;
  const inputs: InputFile[] = [];
  const notes = { inputs, option: 'file' };
  return withFiles(input, { ...options, notes }, async (given, waiting) => {
    const { format: signature, model: files, first, beside: others } = await recognize(given);
    const format = formatNamed(signature.name);
    const beside = besideOf(first, others, waiting, notes);
    const model = await format.open(files, (file) => openInput(waiting, file, notes));
    Object.assign(model, { fileBeside: (name: string) => beside.file(name) });
    const opened: Opened = { format, model, beside, readOptionFile: optionFileReader(waiting, inputs), inputs };
    try {
      if (lora.length === 0) return await use(opened);
      return await withAdapters(opened, lora, options, () => use(opened));
    } finally {
      await model.close?.();
    }
  });
}

/** An adapter of low rank (LoRA) to merge. */
export interface LoraAdapter {
  /**
   * Its file, safetensors or PyTorch, in the spelling of PEFT, diffusers or kohya. PEFT's `adapter_config.json` is looked for beside a path or
   * URL, or given in a list with the file.
   */
  readonly file: ModelInput;
  /**
   * Factor by which it is multiplied before it is added.
   * @defaultValue 1
   */
  readonly strength?: number | undefined;
}

/** Checks the option `lora`. @throws TypeError or RangeError naming the option */
export function checkAdapters(lora: unknown): void {
  if (!Array.isArray(lora)) throw typeError('lora', ofType('array'), lora);
  for (const [i, adapter] of lora.entries()) {
    const path = `lora[${i}]`;
    checkKeys(adapter, ['file', 'strength'], path);
    const { file, strength } = adapter as Record<string, unknown>;
    if (file === undefined || file === null)
      throw typeError(`${path}.file`, ofType('path', 'File', 'Uint8Array'), file);
    if (strength === undefined) continue;
    if (typeof strength !== 'number') throw typeError(`${path}.strength`, { kind: 'number', finite: true }, strength);
    if (!Number.isFinite(strength)) throw rangeError(`${path}.strength`, { kind: 'number', finite: true }, strength);
  }
}

const loadAdapters = () => import('../formats/adapters.js');

/**
 * Opens adapters one after the other, adds them to the model, and calls `use` while all of them are open.
 * @throws RangeError for models of formats without adapters; ScalepointError `UNKNOWN_FORMAT`, `BAD_FILE`
 */
async function withAdapters<T>(
  { format, model, inputs }: Pick<InputNotes, 'inputs'> & { readonly format: Format; readonly model: OpenModel },
  lora: readonly LoraAdapter[],
  options: OpenOptions,
  use: () => Promise<T>,
): Promise<T> {
  if (format.takesAdapters !== true) {
    const takers = formats.flatMap(({ takesAdapters, label }) => (takesAdapters ? [label] : []));
    throw rangeError('lora', { kind: 'onlyFor', files: `models in ${takers.join(' or ')}` });
  }
  const adapters: Adapter[] = [];
  const openNext = async (index: number): Promise<T> => {
    const next = lora[index];
    if (next === undefined) {
      Object.assign(model, { adapters: (await loadAdapters()).modelAdapters(adapters) });
      return use();
    }
    const option = `lora[${index}]`;
    const notes = { inputs, option };
    let isOpen = false;
    const opening = withFiles(next.file, { ...options, notes }, async (given, waiting) => {
      const { format: signature, model: files, first, beside } = await recognize(given);
      const name = first.source.name?.split(/[\\/]/).pop() ?? option;
      const formatOfAdapter = formatNamed(signature.name);
      if (formatOfAdapter.takesAdapters !== true) {
        const { label } = formatOfAdapter;
        const message = `adapter ${quoted(name)}: it is ${label}; adapters are safetensors or files of PyTorch`;
        throw new ScalepointError('UNKNOWN_FORMAT', message);
      }
      const opened = await formatOfAdapter.open(files, (input) => openInput(waiting, input, notes));
      try {
        const folder = besideOf(first, beside, waiting, notes);
        const { readAdapter } = await loadAdapters();
        const adapter = await readAdapter(opened, name, next.strength ?? 1, (path) => folder.file(path));
        isOpen = true;
        // Its tensors lie in files behind those of the model.
        const { length } = model.files;
        const moved = (tensor: SourceTensor): SourceTensor => ({ ...tensor, file: tensor.file + length });
        const layers = adapter.layers.map((layer) => {
          const { down, up, middle, magnitude } = layer;
          const more = { middle: middle && moved(middle), magnitude: magnitude && moved(magnitude) };
          return { ...layer, down: moved(down), up: moved(up), ...more };
        });
        const whole = adapter.whole.map((one) => ({ ...one, tensor: moved(one.tensor) }));
        adapters.push({ ...adapter, layers, whole });
        Object.assign(model, { files: [...model.files, ...opened.files] });
        return await openNext(index + 1);
      } finally {
        await opened.close?.();
      }
    });
    return opening.catch((error) => {
      throw isOpen ? error : asOption(`${option}.file`, error);
    });
  };
  return openNext(0);
}

/** The option `lora`: adapters that are merged into a model. `open-adapters.ts` opens them. */
import { checkKeys } from '../core/check.js';
import { asOption, rangeError, ScalepointError, typeError } from '../core/errors.js';
import { ofType } from '../core/option-problem.js';
import { quoted } from '../formats/files/bytes.js';
import { type InputNotes, openInput } from '../formats/files/open.js';
import type { Format, ModelAdapters, OpenModel, SourceTensor } from '../formats/format.js';
import type { Adapter } from '../formats/on-demand.js';
import { formatNamed, formats } from '../formats/registry.js';
import { besideOf } from './beside.js';
import { type ModelInput, type OpenOptions, recognize, withFiles } from './recognize.js';

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
  if (lora === undefined) return;
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

const loadAdapters = () => import('../formats/on-demand.js');

/**
 * Opens adapters one after the other, adds them to the model, and calls `use` while all of them are open.
 * @throws RangeError for models of formats without adapters; ScalepointError `UNKNOWN_FORMAT`, `BAD_FILE`
 */
export async function withAdapters<T>(
  { format, model, inputs }: Pick<InputNotes, 'inputs'> & { readonly format: Format; readonly model: OpenModel },
  lora: readonly LoraAdapter[],
  options: OpenOptions,
  use: () => Promise<T>,
): Promise<T> {
  if (format.takesAdapters !== true) {
    const takers = formats().flatMap(({ takesAdapters, label }) => (takesAdapters ? [label] : []));
    throw rangeError('lora', { kind: 'onlyFor', files: `models in ${takers.join(' or ')}` });
  }
  const adapters: Adapter[] = [];
  const openNext = async (index: number): Promise<T> => {
    const next = lora[index];
    if (next === undefined) {
      const { adapterNote, mergeAdapters } = await loadAdapters();
      const merged: ModelAdapters = {
        note: adapterNote(adapters),
        merge: (tensors, codedFloats) => mergeAdapters(tensors, adapters, codedFloats),
      };
      Object.assign(model, { adapters: merged });
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
          const { down, up, middle } = layer;
          return { ...layer, down: moved(down), up: moved(up), middle: middle && moved(middle) };
        });
        adapters.push({ ...adapter, layers });
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

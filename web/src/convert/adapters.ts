/** The option `lora`: adapters that are merged into a model. `open-adapters.ts` opens them. */
import { checkKeys } from '../core/check.js';
import { rangeError, typeError } from '../core/errors.js';
import { ofType } from '../core/option-problem.js';
import type { ModelInput } from './recognize.js';

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

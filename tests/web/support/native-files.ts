// Whole files beside those of llama_model_quantize, byte by byte (Node only).
import { expect } from 'vitest';
import type { GgufTarget } from '../../../web/src/formats/gguf/targets.js';
import { type QuantizeModelOptions, quantizeModel } from '../../../web/src/model.js';
import { fileTypes, llamaQuantize, type NativeOptions } from './llama.js';

/** Fails unless a file has the bytes that the native library made. */
export function expectSameFile(bytes: Uint8Array, expected: Uint8Array, what: string): void {
  if (Buffer.compare(bytes, expected) === 0) return;
  const at = bytes.findIndex((byte, i) => byte !== expected[i]);
  expect.fail(`${what}: ${bytes.length} bytes instead of ${expected.length}, the first difference at ${at}`);
}

/** The result of llama-quantize; fails if it refuses. */
export function native(file: Uint8Array, to: GgufTarget, options?: NativeOptions): Uint8Array<ArrayBuffer> {
  const result = llamaQuantize(file, fileTypes[to]!, options);
  return typeof result === 'string' ? expect.fail(`llama-quantize refused ${to}: ${result}`) : result;
}

/** Fails unless quantizeModel makes of a file what llama-quantize makes of it. */
export async function expectNative(
  file: Uint8Array<ArrayBuffer>,
  to: GgufTarget,
  options: Omit<QuantizeModelOptions, 'to'>,
  nativeOptions: NativeOptions,
): Promise<void> {
  const expected = native(file, to, nativeOptions);
  expectSameFile(await (await quantizeModel(file, { workers: 0, ...options, to })).bytes(), expected, to);
}

// Folders with one safetensors model, and the results that tests make of them.
import { expect } from 'vitest';
import { type FileInput, planModel, type QuantizeModelOptions, quantizeModel } from '../../../web/src/model.js';
import { parseSafetensors } from './compressed.js';
import { chosen, expectBytes, safetensors, type TestTensor } from './models.js';

export type Json = Readonly<Record<string, unknown>>;

/** A folder with a model, and objects in files of JSON beside it. */
export function folder(
  tensors: Readonly<Record<string, TestTensor>>,
  files: Readonly<Record<string, Json>> = {},
): FileInput[] {
  const model = chosen('model.safetensors', safetensors(tensors));
  return [model, ...Object.entries(files).map(([path, content]) => chosen(path, content))];
}

/** A result that equals that of workers, and has the size of its plan. */
export async function made(input: FileInput[], options: QuantizeModelOptions) {
  const result = await quantizeModel(input, { ...options, workers: 0 });
  const bytes = await result.bytes();
  const plan = await planModel(input, options as Parameters<typeof planModel>[1]);
  expect(plan.totals.bytesAfter).toBe(bytes.length);
  expectBytes(await (await quantizeModel(input, { ...options, workers: 2 })).bytes(), bytes, 'by workers');
  return { result, bytes, ...parseSafetensors(bytes), config: result.config as Record<string, Json> };
}

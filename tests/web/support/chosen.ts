// Files of a folder as a browser's picker gives them, and the results that tests make of such folders.
import { expect } from 'vitest';
import { type FileInput, planModel, type QuantizeModelOptions, quantizeModel } from '../../../web/src/model.js';
import { parseSafetensors, type StoredTensor } from './compressed.js';
import { bytesOf, expectBytes, safetensors, type TestTensor } from './models.js';

export type Json = Readonly<Record<string, unknown>>;

/** A file of a folder; objects are written as JSON. */
export function chosen(path: string, content: Uint8Array<ArrayBuffer> | string | object): File {
  const isWritten = content instanceof Uint8Array || typeof content === 'string';
  const file = new File([isWritten ? content : JSON.stringify(content)], path.split('/').at(-1)!);
  return Object.defineProperty(file, 'webkitRelativePath', { value: `folder/${path}` });
}

/** A folder with a model, and objects in files of JSON beside it. */
export function folder(
  tensors: Readonly<Record<string, TestTensor>>,
  files: Readonly<Record<string, Json>> = {},
): FileInput[] {
  const model = chosen('model.safetensors', safetensors(tensors));
  return [model, ...Object.entries(files).map(([path, content]) => chosen(path, content))];
}

/** A tensor as a file has it. */
export const storedOf = ({ dtype, shape, data }: TestTensor): StoredTensor => ({
  dtype,
  shape: [...shape],
  bytes: bytesOf(data),
});

/** A result that equals that of workers, and has the size of its plan. */
export async function made(input: FileInput[], options: QuantizeModelOptions) {
  const result = await quantizeModel(input, { ...options, workers: 0 });
  const bytes = await result.bytes();
  const plan = await planModel(input, options as Parameters<typeof planModel>[1]);
  expect(plan.totals.bytesAfter).toBe(bytes.length);
  expectBytes(await (await quantizeModel(input, { ...options, workers: 2 })).bytes(), bytes, 'by workers');
  return { result, bytes, ...parseSafetensors(bytes), config: result.config as Record<string, Json> };
}

/** Programs that read safetensors results. */
import type { Reader } from '../format.js';
import { writerFor } from './layouts/registry.js';
import { hereReader } from './options.js';

/** Programs that read a result. Codes need a reader of their layout. */
export function readers(to: string, file: string): readonly Reader[] {
  const writer = writerFor(to);
  if (writer !== undefined) return writer.readers(to, file);
  const code = `from safetensors.torch import load_file\ntensors = load_file("${file}")`;
  return [{ program: 'Python', code, needs: 'Everything that reads safetensors reads this file.' }, hereReader(file)];
}

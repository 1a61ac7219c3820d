/** Programs that read a GGUF file of a vision tower. Reference: github.com/ggml-org/llama.cpp, tools/mtmd/README.md at 440e352. */
import type { Reader } from '../../../formats/format.js';

/** Programs that read such a file, beside the language model of its folder. */
export function towerReaders(file: string): readonly Reader[] {
  const files = `-m model.gguf --mmproj ${file}`;
  return [{ program: 'llama.cpp', code: `llama-mtmd-cli ${files} --image picture.jpg\nllama-server ${files}` }];
}

/** Programs that read a GGUF file of a vision tower. Reference: github.com/ggml-org/llama.cpp, tools/mtmd/README.md at 440e352. */
import type { Reader } from '../../../formats/format.js';

/** Name of the architecture of each vision tower in llama.cpp. */
export const towerArchitecture = 'clip';

/** Programs that read such a file. */
export function towerReaders(file: string): readonly Reader[] {
  const needs = 'model.gguf is the language model of the same folder, converted without mmproj.';
  return [
    {
      program: 'llama.cpp',
      code: `llama-mtmd-cli -m model.gguf --mmproj ${file} --image picture.jpg -p "Describe it."`,
      needs,
    },
    { program: 'its server', code: `llama-server -m model.gguf --mmproj ${file}`, needs },
  ];
}

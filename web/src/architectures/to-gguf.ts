/** safetensors to GGUF: checkpoints of diffusion models, and folders of language models. */
import { ScalepointError } from '../core/errors.js';
import { quoted } from '../formats/files/bytes.js';
import type { GgufChoices } from '../formats/gguf/options.js';
import { adapterArchitecture, towerArchitecture } from '../formats/gguf/signature.js';
import type { Beside, Converter } from './converter.js';
import { detectDiffusion, diffusersLayout, diffusionReaders, diffusionReasonText } from './diffusion/detect.js';

/** The code for folders, loaded with the first one. */
const loadFolders = () => import('./folder-to-gguf.js');

/** Names of tensors of adapters, such as LoRA, which are not models themselves. */
const adapter = /[._]lora[._](a|b|up|down)\b|\.hada_w|\.lokr_w/i;

/** True if a file beside the weights says what the model is. */
const describes = async (beside: Beside) =>
  (await beside.file('config.json')) !== undefined || (await beside.file('params.json')) !== undefined;

export const toGguf: Converter = {
  from: ['safetensors', 'pytorch'],
  result: 'gguf',
  about:
    'A folder with config.json and tokenizer also becomes GGUF, as llama.cpp converts and quantizes it; a checkpoint of a diffusion model ' +
    'does by the rules of the tools of ComfyUI-GGUF.',
  condition: 'a diffusion model, or has its config.json beside it',
  examples: ['FOLDER --to Q4_K_M', 'flux1-dev.safetensors --to Q4_K_S'],

  reasonText: diffusionReasonText,

  readers(architecture, file) {
    if (architecture === towerArchitecture) {
      // Reference: github.com/ggml-org/llama.cpp, tools/mtmd/README.md at 440e352.
      const files = `-m model.gguf --mmproj ${file}`;
      const code = `llama-mtmd-cli ${files} --image picture.jpg\nllama-server ${files}`;
      return [{ program: 'llama.cpp', code }];
    }
    if (architecture === adapterArchitecture) {
      const files = `-m model.gguf --lora ${file}`;
      return [{ program: 'llama.cpp', code: `llama-cli ${files}\nllama-server ${files}` }];
    }
    return diffusionReaders(architecture, file);
  },

  choicesLike: ({ metadata }) => ({ mmproj: metadata['general.type'] === 'mmproj' }),

  async weightNames(model, beside) {
    if (!(await describes(beside))) return undefined;
    return (await loadFolders()).folderNames(model, beside);
  },

  async detect({ tensors }, beside) {
    const diffusion = (detectDiffusion(tensors) ?? diffusersLayout(tensors))?.name;
    if (diffusion !== undefined || tensors.some(({ name }) => adapter.test(name))) return diffusion;
    const config = await beside.file('config.json');
    return config === undefined ? undefined : (await loadFolders()).architectureIn(config);
  },

  async convert(model, beside, choices) {
    const found = model.tensors.find(({ name }) => adapter.test(name));
    if (found !== undefined) {
      const message = `the file is an adapter (LoRA), as the tensor ${quoted(found.name)} shows; merge it into its model first`;
      throw new ScalepointError('UNKNOWN_FORMAT', message, { tensor: found.name });
    }
    const isTower = (choices as GgufChoices).mmproj === true;
    const original = isTower ? undefined : detectDiffusion(model.tensors);
    const diffusion = isTower ? undefined : (original ?? diffusersLayout(model.tensors));
    if (diffusion !== undefined) {
      const { convertDiffusion } = await import('./diffusion/convert.js');
      return convertDiffusion(model, diffusion, original === undefined);
    }
    if (!(await describes(beside))) return undefined;
    return (await loadFolders()).convertFolder(model, beside, choices);
  },
};

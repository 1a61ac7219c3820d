/** safetensors to GGUF: checkpoints of diffusion models, and folders of language models. */
import { ScalepointError } from '../core/errors.js';
import { quoted } from '../files/bytes.js';
import type { OpenModel } from '../formats/format.js';
import type { Converter } from './converter.js';
import { convertDiffusion, detectDiffusion, diffusersLayout } from './diffusion/convert.js';

/** How the tensors of adapters are called. They change a model and are none. */
const adapter = /[._]lora[._](a|b|up|down)\b|\.hada_w|\.lokr_w|\.alpha$/i;

function checkKind({ tensors }: OpenModel): void {
  const found = tensors.find(({ name }) => adapter.test(name));
  if (found === undefined) return;
  throw new ScalepointError(
    'UNKNOWN_FORMAT',
    `the file is an adapter (LoRA), as the tensor ${quoted(found.name)} shows; merge it into its model first`,
    { tensor: found.name },
  );
}

export const toGguf: Converter = {
  from: 'safetensors',
  result: 'gguf',
  about:
    'Checkpoints of diffusion models (FLUX, SD, Wan, Qwen-Image and others) also become GGUF by the rules of the tools of ComfyUI-GGUF.',
  condition: 'a diffusion model of a known architecture',
  examples: ['flux1-dev.safetensors --to Q4_K_S'],

  async convert(model) {
    checkKind(model);
    const diffusion = detectDiffusion(model.tensors);
    if (diffusion !== undefined) return convertDiffusion(model, diffusion);
    const diffusers = diffusersLayout(model.tensors);
    if (diffusers !== undefined) {
      throw new ScalepointError(
        'UNKNOWN_FORMAT',
        `the file holds ${diffusers} in the layout of diffusers, which no program reads from GGUF; ` +
          'load it in ComfyUI and save it with the node ModelSave first',
      );
    }
    return undefined;
  },
};

/**
 * The layout of ComfyUI: codes with a marker for each layer, in a file with the names that its loaders know.
 * Reference: github.com/Comfy-Org/ComfyUI at 0271a469, comfy/quant_ops.py and comfy/ops.py.
 */
import { tileElements } from '../../../codecs/codec.js';
import { type ComfyForm, comfyGroup } from '../../../codecs/comfy.js';
import type { Reader } from '../../../format.js';
import { hereReader } from '../../options.js';
import { comfyFormatOf } from '../../targets.js';
import type { CodedLayout } from '../layout.js';
import { findComfy } from './find.js';

function readers(_to: string, file: string): readonly Reader[] {
  const needs =
    'The node Load Diffusion Model loads the file. A text encoder belongs into models/text_encoders, for the node Load CLIP; a ' +
    'checkpoint with several models belongs into models/checkpoints, for the node Load Checkpoint.';
  return [{ program: 'ComfyUI', code: `mv ${file} ComfyUI/models/diffusion_models/`, needs }, hereReader(file)];
}

export const comfyLayout: CodedLayout = {
  label: 'ComfyUI',
  codecs: ['comfy'],
  find: findComfy,
  // The file does not tell the type that the weights had. Models of ComfyUI are bfloat16 more often than not.
  floats: () => 'BF16',
  // Tiles of 128 rows are cut into columns where they are long.
  canBeCut: ({ shape, form }) =>
    (form as ComfyForm).format !== 'int8_tensorwise' || (shape[1] as number) <= tileElements,
  writer: {
    stores: ['comfy'],
    forKnownModels: true,
    async load() {
      const { comfyPlanner } = await import('../../../on-demand.js');
      return comfyPlanner({ formatOf: comfyFormatOf, groupOf: comfyGroup });
    },
    readers,
  },
};

/**
 * Plans files for ComfyUI: the models whose quantized weights it loads, the names of their tensors, and which weights get codes.
 * Reference: github.com/Comfy-Org/ComfyUI at 0271a469, comfy/sd.py and comfy/text_encoders, where T5 gets the markers of its layers and CLIP
 * does not.
 */

import { ScalepointError } from '../../../core/errors.js';
import { noteOf } from '../../../core/note.js';
import { tileElements } from '../../codecs/codec.js';
import { type ComfyForm, type ComfyFormat, comfyGroup } from '../../codecs/comfy.js';
import { rankReason, reasons } from '../../reason.js';
import { originalModel } from '../diffusers.js';
import {
  architectureWith,
  type DiffusionArchitecture,
  diffusionArchitectures,
  diffusionPrefix,
  staysFloat,
} from '../diffusion.js';
import { formSharing, type LayoutPlan, type LayoutStart } from './layout.js';

type ComfyModel = Pick<DiffusionArchitecture, 'name' | 'kept' | 'keptNames' | 'measured'>;

/** The encoder of T5. ComfyUI tells XXL from XL by the row length of one weight. */
const t5: ComfyModel & { readonly key: string } = {
  name: 't5',
  key: 'encoder.block.0.layer.0.SelfAttention.q.weight',
  kept: ['shared.', 'embed_tokens.', 'relative_attention_bias.', 'layer_norm.'],
  measured: ['encoder.block.23.layer.1.DenseReluDense.wi_1.weight'],
};

const clip = /(^|\.)text_model\.encoder\.layers\.0\.self_attn\.q_proj\.weight$/;

/** Makes the decisions of a result. @throws ScalepointError `UNKNOWN_FORMAT` for models that are not known */
export function planComfy({ tensors, choices }: LayoutStart): LayoutPlan {
  const original = originalModel(tensors);
  const all = original?.tensors ?? tensors;
  // Find the model. Models of diffusers have the names of the original by now.
  const start = diffusionPrefix(all);
  const names = new Set(all.flatMap(({ name }) => (name.startsWith(start) ? [name.slice(start.length)] : [])));
  const diffusion = architectureWith(names);
  const model: ComfyModel | undefined = diffusion ?? (all.some(({ name }) => name === t5.key) ? t5 : undefined);
  if (model === undefined) {
    const list = diffusionArchitectures.map(({ name }) => name).join(', ');
    const message = all.some(({ name }) => clip.test(name))
      ? 'the file is a text encoder of CLIP, for which ComfyUI reads floats only; cast it with --to float16'
      : `the tensors are not those of a model that is known here: ${list}, or the text encoder t5; for other models, choose a target without comfy`;
    throw new ScalepointError('UNKNOWN_FORMAT', message);
  }
  const prefix = diffusion === undefined ? '' : start;
  const share = formSharing<ComfyForm>();
  return {
    ...(original && { tensors: original.tensors }),
    keptByName(name) {
      if (!name.startsWith(prefix)) return { kind: 'otherModel' };
      const inner = name.slice(prefix.length);
      if (inner.endsWith('.bias')) return reasons.bias;
      if (!inner.endsWith('.weight')) return reasons.notWeight;
      if (inner.includes('_norm.weight')) return reasons.norm;
      return staysFloat(model, inner) ? { kind: 'sensitive' } : undefined;
    },
    obstacle({ source: { name, shape }, codes }) {
      const format = codes as ComfyFormat;
      const [rows = 0, columns = 0] = shape;
      // Codes of NVFP4 have rows of other lengths, which loaders read of some weights.
      if (format === 'nvfp4' && model.measured?.some((end) => name.endsWith(end))) return { kind: 'measured' };
      if (shape.length !== 2) return rankReason(shape.length);
      if (!name.endsWith('.weight')) return reasons.notWeight;
      if (format === 'int8_tensorwise' && columns > tileElements) return { kind: 'longRows', elements: columns };
      // Loaders expect both sides padded to this multiple, which needs no padding here. ComfyUI: group sizes of quant_ops.py.
      const by = comfyGroup(format) ?? 1;
      const dimension = [columns, rows].find((side) => side % by !== 0);
      return dimension === undefined ? undefined : { kind: 'notDivisible', dimension, by };
    },
    formOf({ codes }) {
      const format = codes as ComfyFormat;
      const searches = choices.range === 'mse' && (format === 'int8_tensorwise' || format === 'nvfp4');
      return share({ codec: 'comfy', format, ...(searches && { search: true }) });
    },
    sidecars: () => [],
    notes(planned) {
      const text = `the weights are those of ${model.name}; ComfyUI reads the file with its own nodes, without an extension`;
      const hasCodes = planned.some(({ form }) => form.codec === 'comfy');
      return [
        ...(original ? [original.note] : []),
        ...(hasCodes ? [noteOf('comfyReaders', { architecture: model.name }, text)] : []),
      ];
    },
    // Layers in the metadata would replace the markers.
    metadata: ({ _quantization_metadata: _, ...others }) => others,
  };
}

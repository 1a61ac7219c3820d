/**
 * Models whose quantized weights ComfyUI loads, and their weights that stay floats: diffusion models, and text encoders of T5.
 * Reference: github.com/Comfy-Org/ComfyUI at 0271a469, comfy/sd.py and comfy/text_encoders, where T5 gets the markers of its layers and CLIP
 * does not.
 */

import { ScalepointError } from '../../../../core/errors.js';
import type { ComfyFormat } from '../../../codecs/comfy.js';
import { type Reason, reasons } from '../../../reason.js';
import {
  type Architecture,
  architectureWith,
  diffusionArchitectures,
  diffusionPrefix,
  staysFloat,
} from '../../diffusion.js';

type Known = Pick<Architecture, 'name' | 'kept' | 'keptNames' | 'measured'>;

/** The encoder of T5. ComfyUI tells XXL from XL by the row length of one weight. */
const t5: Known & { readonly key: string } = {
  name: 't5',
  key: 'encoder.block.0.layer.0.SelfAttention.q.weight',
  kept: ['shared.', 'embed_tokens.', 'relative_attention_bias.', 'layer_norm.'],
  measured: ['encoder.block.23.layer.1.DenseReluDense.wi_1.weight'],
};

const clip = /(^|\.)text_model\.encoder\.layers\.0\.self_attn\.q_proj\.weight$/;

function refuse(message: string): never {
  throw new ScalepointError('UNKNOWN_FORMAT', message);
}

/** Finds the model among the tensors of a checkpoint. @throws ScalepointError `UNKNOWN_FORMAT` for models that are not known */
function findModel(tensors: readonly { readonly name: string }[]): { readonly prefix: string; readonly known: Known } {
  const prefix = diffusionPrefix(tensors);
  const names = new Set(tensors.flatMap(({ name }) => (name.startsWith(prefix) ? [name.slice(prefix.length)] : [])));
  // Models of diffusers have the names of the original by now.
  const known = architectureWith(names);
  if (known !== undefined) return { prefix, known };
  if (tensors.some(({ name }) => name === t5.key)) return { prefix: '', known: t5 };
  if (tensors.some(({ name }) => clip.test(name))) {
    refuse('the file is a text encoder of CLIP, for which ComfyUI reads floats only; cast it with --to float16');
  }
  const list = diffusionArchitectures.map(({ name }) => name).join(', ');
  return refuse(
    `the tensors are not those of a model that is known here: ${list}, or the text encoder t5; for other models, choose ` +
      'a target without comfy',
  );
}

/** Reasons to keep the weights of a model. */
export interface ComfyModel {
  readonly name: string;
  /** Reason to keep a tensor by its name, unless a rule selects it. */
  keptByName(name: string): Reason | undefined;
  /** True if the loader reads the row length of a weight in this format, which stores fewer elements. */
  isMeasured(name: string, format: ComfyFormat): boolean;
}

const sensitive: Reason = { kind: 'sensitive' };
const otherModel: Reason = { kind: 'otherModel' };

/** The model in a checkpoint. @throws ScalepointError `UNKNOWN_FORMAT` for models that are not known */
export function comfyModel(tensors: readonly { readonly name: string }[]): ComfyModel {
  const { prefix, known } = findModel(tensors);
  return {
    name: known.name,
    keptByName(name) {
      if (!name.startsWith(prefix)) return otherModel;
      const own = name.slice(prefix.length);
      if (own.endsWith('.bias')) return reasons.bias;
      if (!own.endsWith('.weight')) return reasons.notWeight;
      if (own.includes('_norm.weight')) return reasons.norm;
      return staysFloat(known, own) ? sensitive : undefined;
    },
    isMeasured: (name, format) => format === 'nvfp4' && (known.measured ?? []).some((end) => name.endsWith(end)),
  };
}

/** All layouts of quantized safetensors. A new one is added to the list below, in which targets have the order of the help. */
import type { Note } from '../../../core/note.js';
import type { Form } from '../../codecs/codec.js';
import type { LowRankForm } from '../../codecs/low-rank.js';
import type { LogicalTensor } from '../../format.js';
import { quantizedBefore } from '../../source-note.js';
import { bitsAndBytesLayout } from './bitsandbytes.js';
import { comfyLayout } from './comfy.js';
import { compressedTensorsLayout } from './compressed-tensors/layout.js';
import { gptqLayout } from './gptq.js';
import type { CodedLayout } from './layout.js';
import { mlxLayout } from './mlx.js';
import { smallFloatsLayout } from './small-floats.js';

/** Weights with adapters, which are read like weights with codes: floats that are computed from several stored tensors. */
export const lowRankLayout: CodedLayout = {
  label: 'adapter',
  codecs: ['low-rank'],
  floats: (form) => (form as LowRankForm).floats,
};

const all = [
  compressedTensorsLayout,
  comfyLayout,
  smallFloatsLayout,
  mlxLayout,
  gptqLayout,
  bitsAndBytesLayout,
  lowRankLayout,
] as const;

export const layouts: readonly CodedLayout[] = all;

type TargetsOf<Layout> = Layout extends { readonly targets: infer Rows } ? keyof Rows : never;

/** A target of a layout. */
export type CodedTargetName = TargetsOf<(typeof all)[number]>;

const byCodec = new Map(layouts.flatMap((layout) => layout.codecs.map((codec) => [codec, layout] as const)));

/** The layout of a form; undefined for floats and other plain elements. */
export function codedLayoutOf({ codec }: Form): CodedLayout | undefined {
  return byCodec.get(codec);
}

/** The layout of the codes that a form, or the base of one with adapters, holds; undefined for floats. */
export function quantizedLayoutOf(form: Form): CodedLayout | undefined {
  return byCodec.get(form.codec === 'low-rank' ? (form as LowRankForm).base.codec : form.codec);
}

/** The note about what quantizing lost before; empty for floats. */
export function sourceNotes(tensors: readonly LogicalTensor[]): Note[] {
  const weights = tensors.flatMap(({ name, form, type }) => {
    const layout = quantizedLayoutOf(form);
    return layout === undefined ? [] : [{ name, words: `${layout.labelOf?.(form) ?? layout.label}, ${type}` }];
  });
  return quantizedBefore(weights);
}

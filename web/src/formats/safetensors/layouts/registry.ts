/** All layouts of quantized safetensors. A new one is added to the list below; those that look at fewer tensors come first. */
import type { Form } from '../../codecs/codec.js';
import type { LowRankForm } from '../../codecs/low-rank.js';
import type { LogicalTensor } from '../../format.js';
import { codesOf } from '../targets.js';
import { bitsAndBytesLayout } from './bitsandbytes.js';
import { comfyLayout } from './comfy/layout.js';
import { compressedTensorsLayout } from './compressed-tensors/layout.js';
import { gptqLayout } from './gptq.js';
import type { CodedLayout, PlanLayout, SafetensorsChoices } from './layout.js';
import { lowRankLayout } from './low-rank.js';
import { mlxLayout } from './mlx/layout.js';
import { smallFloatsLayout } from './small-floats/layout.js';

export const layouts: readonly CodedLayout[] = [
  gptqLayout,
  bitsAndBytesLayout,
  mlxLayout,
  comfyLayout,
  compressedTensorsLayout,
  smallFloatsLayout,
  lowRankLayout,
];

const byCodec = new Map(
  layouts.flatMap((layout) => layout.codecs.map((codec): [string, CodedLayout] => [codec, layout])),
);

/** The layout of a form; undefined for floats and other plain elements. */
export function codedLayoutOf({ codec }: Form): CodedLayout | undefined {
  return byCodec.get(codec);
}

/** The layout of the codes that a form, or the base of one with adapters, holds; undefined for floats. */
export function quantizedLayoutOf(form: Form): CodedLayout | undefined {
  const layout = codedLayoutOf(form);
  return layout === lowRankLayout ? codedLayoutOf((form as LowRankForm).base) : layout;
}

/** True for a weight that is stored in a layout. */
export const isCoded = ({ form }: Pick<LogicalTensor, 'form'>): boolean => byCodec.has(form.codec);

/** The writer of the codes of a target; undefined for other targets. */
export function writerFor(to: unknown): CodedLayout['writer'] {
  const kind = codesOf(to)?.kind;
  return kind && layouts.find(({ writer }) => writer?.stores.includes(kind))?.writer;
}

/** The writer of a result, whose codes all have one layout; undefined without codes. */
export function codeWriterOf({ to, rules = [] }: Pick<SafetensorsChoices, 'to' | 'rules'>): CodedLayout['writer'] {
  for (const target of [to, ...rules.map((rule) => rule.to)]) {
    const writer = writerFor(target);
    if (writer !== undefined) return writer;
  }
  return undefined;
}

/** Loads the decisions of a result's layout; undefined for layouts whose decisions are loaded already. */
export async function loadedPlan(choices: Pick<SafetensorsChoices, 'to' | 'rules'>): Promise<PlanLayout | undefined> {
  return codeWriterOf(choices)?.load?.();
}

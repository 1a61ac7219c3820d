/** All layouts of quantized safetensors. A new one is added to the list below, in which targets have the order of the help. */

import type { Note } from '../../../core/note.js';
import type { CastType } from '../../codecs/cast.js';
import type { Form } from '../../codecs/codec.js';
import type { LowRankForm } from '../../codecs/low-rank.js';
import type { LogicalTensor, Target } from '../../format.js';
import type { ModelGranularity, Rule } from '../../options.js';
import { copyTarget, shardOptions } from '../../shards.js';
import { quantizedBefore } from '../../tensors.js';
import { bitsAndBytesLayout } from './bitsandbytes.js';
import { comfyLayout } from './comfy.js';
import { compressedTensorsLayout, hasByteCodes } from './compressed-tensors.js';
import { gptqLayout } from './gptq.js';
import { type CodedLayout, type CodedTarget, floatOptions, type SafetensorsChoices } from './layout.js';
import { mlxLayout } from './mlx.js';
import { smallFloatsLayout } from './small-floats.js';

/** Weights with adapters, which are read like weights with codes: floats that are computed from several stored tensors. */
export const lowRankLayout: CodedLayout = {
  label: 'adapter',
  codecs: ['low-rank'],
  floats: (form) => (form as LowRankForm).floats,
};

/** Blocks of ggml, whose values GGUF files have for models of Hugging Face. */
const blocksLayout: CodedLayout = {
  label: 'GGUF',
  codecs: ['ggml', 'nvfp4-blocks'],
  // Blocks do not tell the floats of the original. bfloat16 has the range of all models, and its errors are small beside those of blocks.
  floats: () => 'BF16',
};

const all = [
  compressedTensorsLayout,
  comfyLayout,
  smallFloatsLayout,
  mlxLayout,
  gptqLayout,
  bitsAndBytesLayout,
  lowRankLayout,
  blocksLayout,
] as const;

export const layouts: readonly CodedLayout[] = all;

type TargetsOf<Layout> = Layout extends { readonly targets: infer Rows } ? keyof Rows : never;

/** A target of a layout. */
type CodedTargetName = TargetsOf<(typeof all)[number]>;

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

// ------------------------------------------------------------------------------------------------------------------------ targets

/** Floats of another type. */
interface CastTarget extends Omit<Target, 'name'> {
  readonly cast: CastType;
}

const casts = {
  float16: { about: 'half the bytes of float32, small range', cast: 'F16', options: floatOptions },
  bfloat16: {
    about: 'half the bytes of float32, all of its range',
    cast: 'BF16',
    options: floatOptions,
    preset: 'safe',
  },
} as const satisfies Readonly<Record<string, CastTarget>>;

/** A target that converts. */
type ConvertingTarget = CodedTargetName | keyof typeof casts;

/** A target of a safetensors result. */
export type SafetensorsTarget = ConvertingTarget | 'copy';

type Row = Partial<CodedTarget & CastTarget> & Omit<Target, 'name'> & { readonly layout?: CodedLayout };

/** The rows of targets, without copies. */
export const targetRows: ReadonlyMap<unknown, Row> = new Map<string, Row>([
  ...layouts.flatMap((layout) =>
    Object.entries(layout.targets ?? {}).map(([name, row]) => [name, { ...row, layout }] as const),
  ),
  ...Object.entries(casts),
]);

/** Targets of the weights of a safetensors file. */
export const safetensorsTargets = [...targetRows.keys()] as readonly ConvertingTarget[];

/** Descriptions of the targets. */
export const targets: readonly Target[] = [
  ...[...targetRows].map(([name, row]): Target => {
    const { kind, codes, bits, groupSizes, expertGroups, knownGroups, mixedWith, cast, layout, ...target } = row;
    return { name: name as string, ...target };
  }),
  copyTarget(shardOptions),
];

/** Targets that take an option. */
export const targetsWith = (option: string): readonly string[] =>
  safetensorsTargets.filter((to) => targetRows.get(to)?.options.includes(option));

/** The layout of a result, whose codes all have one; undefined without codes. */
export function layoutOfCodes({ to, rules = [] }: Pick<SafetensorsChoices, 'to' | 'rules'>): CodedLayout | undefined {
  return [to, ...rules.map((rule) => rule.to)].map((target) => targetRows.get(target)?.layout).find(Boolean);
}

/** True if the option applies to weights that become `to`: the target of the options; if that has no granularity, the integers of rules. */
export const hasSharedGranularity = (choices: SafetensorsChoices, to: string): boolean =>
  to === choices.to || targetRows.get(choices.to)?.kind !== 'integers';

/** Requested granularity of weights that become `to`. */
export function granularityFor(
  choices: SafetensorsChoices,
  to: string,
  rule: Rule | undefined,
): ModelGranularity | undefined {
  const shared = hasSharedGranularity(choices, to) ? choices.granularity : undefined;
  const isWhole = hasByteCodes(choices) && targetRows.get(to)?.kind === 'integers';
  return rule?.granularity ?? shared ?? (isWhole ? { kind: 'per-channel' } : undefined);
}

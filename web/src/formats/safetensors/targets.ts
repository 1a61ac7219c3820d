/** The targets of safetensors results: rows of the layouts, and floats of other types. */
import type { CastType } from '../codecs/cast.js';
import type { Target } from '../format.js';
import type { ModelGranularity, Rule } from '../options.js';
import { copyTarget, shardOptions } from '../shards.js';
import { type CodedLayout, type CodedTarget, floatOptions, type SafetensorsChoices } from './layouts/layout.js';
import { type CodedTargetName, layouts } from './layouts/registry.js';
import { hasByteCodes } from './options.js';

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

const table: ReadonlyMap<unknown, Row> = new Map<string, Row>([
  ...layouts.flatMap((layout) =>
    Object.entries(layout.targets ?? {}).map(([name, row]) => [name, { ...row, layout }] as const),
  ),
  ...Object.entries(casts),
]);

/** The row of a target; undefined for copies and for other values. */
export const targetRow = (to: unknown): Row | undefined => table.get(to);

/** Targets of the weights of a safetensors file. */
export const safetensorsTargets = [...table.keys()] as readonly ConvertingTarget[];

/** Descriptions of the targets. */
export const targets: readonly Target[] = [
  ...[...table].map(([name, row]): Target => {
    const { kind, codes, bits, groupSizes, knownGroups, mixedWith, cast, layout, ...target } = row;
    return { name: name as string, ...target };
  }),
  copyTarget(shardOptions),
];

/** Targets that take an option. */
export const targetsWith = (option: string): readonly string[] =>
  safetensorsTargets.filter((to) => targetRow(to)?.options.includes(option));

/** The layout of a result, whose codes all have one; undefined without codes. */
export function layoutOfCodes({ to, rules = [] }: Pick<SafetensorsChoices, 'to' | 'rules'>): CodedLayout | undefined {
  return [to, ...rules.map((rule) => rule.to)].map((target) => targetRow(target)?.layout).find(Boolean);
}

/** True if the option applies to weights that become `to`: the target of the options; if that has no granularity, the integers of rules. */
export const hasSharedGranularity = (choices: SafetensorsChoices, to: string): boolean =>
  to === choices.to || targetRow(choices.to)?.kind !== 'integers';

/** Requested granularity of weights that become `to`. */
export function granularityFor(
  choices: SafetensorsChoices,
  to: string,
  rule: Rule | undefined,
): ModelGranularity | undefined {
  const shared = hasSharedGranularity(choices, to) ? choices.granularity : undefined;
  const isWhole = hasByteCodes(choices) && targetRow(to)?.kind === 'integers';
  return rule?.granularity ?? shared ?? (isWhole ? { kind: 'per-channel' } : undefined);
}

/** Options of safetensors results. */

import { checkKindMembers } from '../../core/check.js';
import { rangeError } from '../../core/errors.js';
import { type Hint, mention, oneOf, onlyWith, without } from '../../core/option-problem.js';
import { modelGranularityNames } from '../../core/range.js';
import { amended, choice, type OptionsOf, option, readNumber, toggle, type Words } from '../../core/schema.js';
import type { CodeWidth } from '../codecs/compressed-tensors.js';
import type { Reader } from '../format.js';
import {
  checkRules,
  type FormatOption,
  type ModelGranularity,
  type NonFiniteOptions,
  nonFiniteEntry,
  optionTable,
  type PlanChoices,
  type RangeOptions,
  type RequantizeOptions,
  type Rule,
  rangeEntry,
  requantizeEntry,
  type ScaleSearchOptions,
  type Sidecar,
  searchEntry,
} from '../options.js';
import { partEntry, type ShardOptions, shardEntries } from '../shards.js';
import { checkStatistics, feedbackEntries, importanceEntry, type StatisticsOptions } from '../statistics-options.js';
import { checkConfig, configSidecar, settingsSidecar } from './config.js';
import { codesOf, integersOf, isTarget, knownGroupsOf, safetensorsTargets, takesOption } from './targets.js';

/** Targets that take an option. */
const takers = (option: string) => safetensorsTargets.filter((to) => takesOption(to, option));

/** Largest group size. A group is converted at once and must fit into a tile. */
const maxGroupSize = 2 ** 18;

/** Members of a granularity by its kind. */
const granularityKinds = { 'per-channel': ['kind'], 'per-group': modelGranularityNames };

function checkGranularity(value: unknown, name: string): void {
  if (checkKindMembers(value, modelGranularityNames, granularityKinds, name) === 'per-channel') return;
  // Require a multiple of 8, so that groups of 4- and 8-bit codes fill whole words.
  const expected = { kind: 'number', multipleOf: 8, min: 8, max: maxGroupSize } as const;
  const { groupSize } = value as { groupSize?: unknown };
  if (typeof groupSize === 'number' && groupSize % 8 === 0 && groupSize >= 8 && groupSize <= maxGroupSize) return;
  throw rangeError(`${name}.groupSize`, expected, groupSize);
}

/** The option for the config.json beside a result. */
export const configOption = (sidecar: Sidecar): FormatOption<Readonly<Record<string, unknown>>> => ({
  ...option<Readonly<Record<string, unknown>>>(checkConfig, {
    name: 'config',
    value: 'FILE',
    about: `the model's config.json, to be written with the ${sidecar.entry} in it`,
  }),
  sidecar,
});

/** Options of safetensors and .npy files, in the order of the help. */
const entries = {
  /**
   * safetensors, integers: symmetric, or with zero points. llama.cpp's converter ignores the zero points of codes that are not packed.
   * @defaultValue 'symmetric'
   */
  scheme: choice(['symmetric', 'asymmetric'], {
    name: 'scheme',
    value: 'S',
    about: 'symmetric (the default), or asymmetric: zero points',
  }),
  /**
   * safetensors, integers: elements that share a scale. Groups are always packed. Tensors of more than two dimensions always have a scale
   * for each index of axis 0. Rules with another integer type than `to` have their own granularity; with `to` a float, this one is for the
   * integers of rules.
   * @defaultValue groups of 128. For int8, if they do not divide all rows, groups of 64 or 32, or per channel if these do not either; and
   *   per channel where codes are not packed
   */
  granularity: amended(
    option<ModelGranularity>(
      checkGranularity,
      { name: 'granularity', value: 'G', about: 'per-channel, or per-group (the default)' },
      {
        name: 'group-size',
        value: 'N',
        member: 'groupSize',
        about:
          'elements that share a scale, a multiple of 8; 128 by default, for int8 also 64 or 32 where 128 does not divide the rows',
      },
    ),
    {
      read({ granularity: kind = 'per-group', 'group-size': size }: Words) {
        const kinds = Object.keys(granularityKinds);
        const groupSize =
          size === undefined ? 128 : readNumber(size, 'group-size', { kind: 'number', whole: true, min: 1 });
        if (!kinds.includes(String(kind))) throw rangeError('--granularity', oneOf(kinds), kind);
        if (kind === 'per-group') return { kind, groupSize };
        if (size === undefined) return { kind };
        throw rangeError('--group-size', onlyWith('--granularity', 'per-group'));
      },
    },
  ),
  ...rangeEntry,
  ...searchEntry(
    'MLX, integers: best finds lower errors than --range mse in the same bytes, in more time (default usual)',
  ),
  ...importanceEntry,
  ...feedbackEntries,
  /**
   * safetensors, integers: true packs codes into int32 words (`pack-quantized`), which most loaders of integers expect. false stores int8
   * codes (`naive-quantized`), which vLLM loads only with `activations`.
   * @defaultValue true, but not with `activations`
   */
  packed: toggle(
    { name: 'packed', about: 'codes in int32 words (the default)' },
    {
      name: 'plain',
      means: false,
      about: 'int8 codes as they are, a scale for each row; vLLM does not load them without --activations',
    },
  ),
  /**
   * safetensors, int8: configures activations to be quantized per token when the model runs (W8A8).
   * @defaultValue activations stay floats
   */
  activations: choice(['int8-dynamic'], {
    name: 'activations',
    value: 'int8-dynamic',
    about: 'a configuration that quantizes activations, too (W8A8)',
  }),
  /**
   * safetensors, codes: weights to convert. 'linear': two-dimensional tensors named `.weight`, which loaders of compressed-tensors decode.
   * 'all': also convolutions, recurrent layers and all other tensors of two or more dimensions, for programs that read the file with
   * Scalepoint. Both keep embeddings, norms, biases, routers and lm_head.
   * @defaultValue 'linear'
   */
  include: choice(['linear', 'all'], {
    name: 'all',
    means: 'all',
    about: 'codes also for convolutions, recurrent layers and the like, for programs that read OUT with Scalepoint',
  }),
  ...requantizeEntry,
  ...nonFiniteEntry,
  ...shardEntries,
  ...partEntry,
};

/** Options about files beside a safetensors result. */
const sidecarEntries = {
  /** safetensors, codes: the parsed config.json of the model. `result.config` is a copy with the `quantization_config`. */
  config: configOption(configSidecar),
};

/** Settings that a result brings and that cannot be given, for loaders of codes that do not read config.json. */
const settings = (name: string, file: string, about?: string): FormatOption => ({
  ...option(() => {}),
  sidecar: settingsSidecar(name, file, about),
});

/** Options of a safetensors result. */
export interface SafetensorsOptions
  extends ShardOptions,
    StatisticsOptions,
    RangeOptions,
    ScaleSearchOptions,
    RequantizeOptions,
    NonFiniteOptions,
    OptionsOf<typeof entries> {}

/** Contents of files beside a safetensors result. */
export interface SafetensorsSidecars extends OptionsOf<typeof sidecarEntries> {}

/** True if codes are stored one per byte; otherwise integers are packed. */
export function hasByteCodes({ packed, activations }: SafetensorsOptions): boolean {
  return packed === false || activations !== undefined;
}

/** The options of safetensors and .npy files. */
export const options = optionTable<SafetensorsOptions>(
  'safetensors, integers',
  {
    ...entries,
    ...sidecarEntries,
    quantizeConfig: settings(
      'quantizeConfig',
      'quantize_config.json',
      'GPTQ has a quantize_config.json there as well, and AWQ a quant_config.json, for older loaders.',
    ),
    quantConfig: settings('quantConfig', 'quant_config.json'),
  },
  (choices) => {
    checkRules(choices.rules, checkRule);
    checkStatistics(choices);
    checkOneForm(choices);
    checkUse(choices);
    for (const weights of weightsOf(choices)) checkForm(choices, weights);
    checkGroups(choices);
  },
);

/** This package as a reader of a result. */
export function hereReader(file: string): Reader {
  const code = `import { readFloats } from 'scalepoint/model';\nconst { data, shape } = await readFloats('${file}', 'NAME.weight');`;
  return { program: 'Scalepoint', code };
}

// ----------------------------------------------------------------------------------------------------------- what goes together

type Choices = PlanChoices<SafetensorsOptions>;

function checkRule({ to, granularity }: { readonly to?: unknown; readonly granularity?: unknown }, path: string): void {
  if (to !== undefined && !isTarget(to)) {
    throw rangeError(`${path}.to`, oneOf(safetensorsTargets), to);
  }
  if (granularity === undefined) return;
  if (!takesOption(to, 'granularity')) {
    throw rangeError(`${path}.granularity`, onlyWith(`${path}.to`, ...takers('granularity')), to);
  }
  checkGranularity(granularity, `${path}.granularity`);
}

/** Options of codes, in the order in which they are checked. */
const codeOptions = ['granularity', 'scheme', 'packed', 'range', 'importance', 'method', 'activations'] as const;

/** Refuses options that do not apply to any of the targets. */
function checkUse(choices: Choices): void {
  const { to, rules = [], scheme, granularity, packed, include, range } = choices;
  const all = [to, ...rules.flatMap((rule) => (rule.keep ? [] : [rule.to]))];
  const isTaken = (option: string) => all.some((target) => takesOption(target, option));
  if (choices.search === 'best' && !isTaken('search'))
    throw rangeError('search', onlyWith('to', ...takers('search')), to);
  // Rules select their weights themselves.
  if (include !== undefined && !takesOption(to, 'include')) {
    throw rangeError('include', onlyWith('to', ...takers('include')), to);
  }
  if (all.some((target) => integersOf(target) !== undefined)) return;
  const float8 = all.find((target) => codesOf(target)?.kind === 'floats');
  const has: string[] = [];
  if (float8 !== undefined) {
    // Allow the values that float8 has anyway.
    const beside: Hint = { kind: 'with', options: [mention('to', float8)] };
    if (granularity?.kind === 'per-group') {
      throw rangeError('granularity.kind', oneOf(['per-channel']), granularity.kind, beside);
    }
    if (scheme === 'asymmetric') throw rangeError('scheme', oneOf(['symmetric']), scheme, beside);
    if (packed === true) throw rangeError('packed', without('to', float8), packed);
    has.push('granularity', 'scheme', 'packed');
  }
  for (const option of codeOptions) {
    if (choices[option] === undefined || has.includes(option) || isTaken(option)) continue;
    throw rangeError(option, onlyWith('to', ...takers(option)), to);
  }
  // Scales of small floats and ComfyUI's have one search.
  const single = all.find((target) => ['comfy', 'microscaled', 'mlx', 'gptq'].includes(codesOf(target)?.kind ?? ''));
  if (single !== undefined && range !== undefined && range !== 'min-max' && range !== 'mse') {
    throw rangeError('range', oneOf(['min-max', 'mse']), range, { kind: 'with', options: [mention('to', single)] });
  }
}

/** True if the option applies to weights that become `to`: the target of the options; if that has no granularity, the integers of rules. */
export function hasSharedGranularity(choices: { readonly to: string }, to: string): boolean {
  return to === choices.to || integersOf(choices.to) === undefined;
}

/** Requested granularity of weights that become `to`. */
export function granularityOf(
  choices: SafetensorsOptions & { readonly to: string },
  to: string,
  rule: Rule | undefined,
): ModelGranularity | undefined {
  return rule?.granularity ?? (hasSharedGranularity(choices, to) ? choices.granularity : undefined);
}

/** Checks that all codes of a file have one form, as a configuration requires. */
function checkOneForm({ to, rules = [] }: Choices): void {
  let codes: string | undefined = codesOf(to) && to;
  for (const [i, rule] of rules.entries()) {
    if (rule.keep || codesOf(rule.to) === undefined) continue;
    codes ??= rule.to;
    if (codesOf(codes)?.kind !== codesOf(rule.to)?.kind) {
      throw rangeError(`rules[${i}].to`, without('to', codes), rule.to);
    }
  }
}

/** Checks groups of targets whose loaders know few sizes. */
function checkGroups(choices: Choices): void {
  const { to, rules = [] } = choices;
  const check = (target: string, rule: Rule | undefined, path: string) => {
    const sizes = knownGroupsOf(target);
    const asked = granularityOf(choices, target, rule);
    if (sizes === undefined || asked === undefined) return;
    const beside: Hint = { kind: 'with', options: [mention('to', target)] };
    const option = rule?.granularity === undefined ? 'granularity' : `${path}granularity`;
    if (asked.kind !== 'per-group') throw rangeError(`${option}.kind`, oneOf(['per-group']), asked.kind, beside);
    if (!sizes.includes(asked.groupSize))
      throw rangeError(`${option}.groupSize`, oneOf(sizes), asked.groupSize, beside);
  };
  check(to, undefined, '');
  for (const [i, rule] of rules.entries()) if (!rule.keep) check(rule.to, rule, `rules[${i}].`);
}

/** Weights that become integers, by default or by a rule. */
interface IntegerWeights {
  /** Prefix of option paths: empty, or `rules[2].`. */
  readonly path: string;
  readonly to: string;
  readonly bits: CodeWidth;
  readonly kind: ModelGranularity['kind'];
}

function weightsOf(choices: Choices): IntegerWeights[] {
  const { to, rules = [] } = choices;
  const all = [
    { path: '', to, granularity: granularityOf(choices, to, undefined) },
    ...rules.flatMap((rule, i) =>
      rule.keep ? [] : [{ path: `rules[${i}].`, to: rule.to, granularity: granularityOf(choices, rule.to, rule) }],
    ),
  ];
  return all.flatMap(({ granularity: asked, ...weights }) => {
    const bits = integersOf(weights.to)?.bits;
    return bits === undefined
      ? []
      : [
          {
            ...weights,
            bits,
            kind: asked?.kind ?? (bits === 8 && hasByteCodes(choices) ? 'per-channel' : 'per-group'),
          },
        ];
  });
}

function checkForm({ packed, activations, scheme }: Choices, { path, to, bits, kind }: IntegerWeights): void {
  if (packed === false && bits === 4) {
    throw rangeError('packed', without(`${path}to`, to), packed);
  }
  if (packed === false && kind === 'per-group') {
    throw rangeError('packed', without(`${path}granularity.kind`, kind), packed);
  }
  if (activations === undefined) return;
  // Kernels for 8-bit activations take int8 weights with one scale per row.
  if (bits !== 8) throw rangeError('activations', onlyWith(`${path}to`, 'int8'), to);
  if (kind !== 'per-channel') {
    throw rangeError('activations', onlyWith(`${path}granularity.kind`, 'per-channel'), kind);
  }
  if (scheme === 'asymmetric') throw rangeError('activations', onlyWith('scheme', 'symmetric'), scheme);
  if (packed === true) throw rangeError('activations', without('packed', true), activations);
}

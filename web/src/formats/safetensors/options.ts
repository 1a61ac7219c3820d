/** Options of safetensors results. */

import { checkKindMembers, checkNumber } from '../../core/check.js';
import { rangeError } from '../../core/errors.js';
import { oneOf, onlyWith } from '../../core/option-problem.js';
import { modelGranularityNames } from '../../core/range.js';
import { amended, choice, type OptionsOf, option, readNumber, toggle, type Words } from '../../core/schema.js';
import {
  type FormatOption,
  feedbackEntries,
  importanceEntry,
  type ModelGranularity,
  type NonFiniteOptions,
  nonFiniteEntry,
  type RangeOptions,
  type RequantizeOptions,
  rangeEntry,
  requantizeEntry,
  type ScaleSearchOptions,
  type Sidecar,
  type StatisticsOptions,
  searchEntry,
} from '../options.js';
import { partEntry, type ShardOptions, shardEntries } from '../shards.js';
import { checkConfig, configSidecar, settingsSidecar } from './config.js';

/** Largest group size. A group is converted at once and must fit into a tile. */
const maxGroupSize = 2 ** 18;

/** Members of a granularity by its kind. */
const granularityKinds = { 'per-channel': ['kind'], 'per-group': modelGranularityNames };

export function checkGranularity(value: unknown, name: string): void {
  if (checkKindMembers(value, modelGranularityNames, granularityKinds, name) === 'per-channel') return;
  // Require a multiple of 8, so that groups of 4- and 8-bit codes fill whole words.
  const expected = { kind: 'number', multipleOf: 8, min: 8, max: maxGroupSize } as const;
  const { groupSize } = value as { groupSize?: unknown };
  if (typeof groupSize !== 'number') throw rangeError(`${name}.groupSize`, expected, groupSize);
  checkNumber(groupSize, `${name}.groupSize`, expected);
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

/** Descriptions of all options, and of files beside the result that older loaders read. */
export const optionEntries = {
  ...entries,
  ...sidecarEntries,
  quantizeConfig: settings(
    'quantizeConfig',
    'quantize_config.json',
    'GPTQ has a quantize_config.json there as well, and AWQ a quant_config.json, for older loaders.',
  ),
  quantConfig: settings('quantConfig', 'quant_config.json'),
};

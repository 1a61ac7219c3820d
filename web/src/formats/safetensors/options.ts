/** What safetensors can become, and the options that decide about it. */
import { rangeError, typeError } from '../../core/errors.js';
import type { SearchedRange } from '../../core/range.js';
import { show } from '../../core/show.js';
import type { Target } from '../format.js';
import {
  checkRules,
  choice,
  didYouMean,
  type Flag,
  type ModelGranularity,
  type OptionInfo,
  optionTable,
  type PlanChoices,
  searchedRange,
  toggle,
} from '../options.js';
import { configSidecar } from './config.js';

// ------------------------------------------------------------------------------------------------------------------------ targets

/** What the weights of a safetensors file can become. */
export const safetensorsTargets = ['int8', 'int4', 'float8e4m3fn', 'float16', 'bfloat16'] as const;

/** A target of a safetensors result. */
export type SafetensorsTarget = (typeof safetensorsTargets)[number];

const integerOptions = ['scheme', 'granularity', 'range', 'packed', 'config'];

/** The same for people. */
export const targets: readonly Target[] = [
  {
    name: 'int8',
    about: '8 bits, a scale for each row',
    options: [...integerOptions, 'activations'],
    preset: 'balanced',
  },
  { name: 'int4', about: '4 bits, in groups', options: integerOptions, preset: 'small' },
  { name: 'float8e4m3fn', about: '8 bits, small floats and a scale for each row', options: ['config'] },
  { name: 'float16', about: 'half the bytes of float32, small range', options: [] },
  { name: 'bfloat16', about: 'half the bytes of float32, all of its range', options: [], preset: 'safe' },
] satisfies readonly (Target & { readonly name: SafetensorsTarget })[];

/** Whether this is a target of a safetensors result. */
function isTarget(value: unknown): value is SafetensorsTarget {
  return safetensorsTargets.includes(value as SafetensorsTarget);
}

/** Bits of integer codes; undefined for floats. */
export function bitsOf(to: string | undefined): 4 | 8 | undefined {
  return to === 'int8' ? 8 : to === 'int4' ? 4 : undefined;
}

export function isFloat8(to: unknown): to is 'float8e4m3fn' {
  return to === 'float8e4m3fn';
}

export function defaultGranularity(bits: 4 | 8): ModelGranularity {
  return bits === 8 ? { kind: 'per-channel' } : { kind: 'per-group', groupSize: 128 };
}

// ------------------------------------------------------------------------------------------------------------------------ options

/** What decides about a safetensors result. */
export interface SafetensorsOptions {
  /**
   * safetensors, integers: symmetric, or with zero points. llama.cpp's converter ignores the zero points of codes that are not packed.
   * @defaultValue 'symmetric'
   */
  readonly scheme?: 'symmetric' | 'asymmetric' | undefined;
  /**
   * safetensors, integers: what shares a scale. Groups are always packed.
   * @defaultValue per channel for int8, groups of 128 for int4
   */
  readonly granularity?: ModelGranularity | undefined;
  /**
   * safetensors and ONNX, integers: how the range of each channel or group is found, as for arrays. 'mse' counts with scales as they are stored,
   * and is never worse than 'min-max'. Channels of more than 2^20 elements (packed with zero points: 2^17) keep the range of all their
   * values.
   * @defaultValue 'min-max'
   */
  readonly range?: 'min-max' | SearchedRange | undefined;
  /**
   * safetensors, integers: codes in int32 words (`pack-quantized`). A file has one form, so one packed weight packs all.
   * @defaultValue true if any weight has 4 bits or groups
   */
  readonly packed?: boolean | undefined;
  /**
   * safetensors, int8: a configuration that has the activations quantized as well, token by token when the model runs (W8A8).
   * @defaultValue activations stay floats
   */
  readonly activations?: 'int8-dynamic' | undefined;
}

/** What belongs beside a safetensors result. */
export interface SafetensorsSidecars {
  /** safetensors, codes: the object of the model's config.json, to get `result.config` with the `quantization_config` in it. */
  readonly config?: Readonly<Record<string, unknown>>;
}

/** Elements of the largest group. A group is converted at once, so that it has to fit into a tile. */
const maxGroupSize = 2 ** 18;

function checkGranularity(value: unknown, name: string): void {
  if (typeof value !== 'object' || value === null) {
    throw typeError(name, `expected { kind: 'per-channel' } or { kind: 'per-group', groupSize }, got ${show(value)}`);
  }
  const { kind, groupSize } = value as { kind?: unknown; groupSize?: unknown };
  if (kind === 'per-channel') {
    if (groupSize === undefined) return;
    throw typeError(`${name}.groupSize`, `only for kind 'per-group', got ${show(groupSize)}`);
  }
  if (kind !== 'per-group') {
    throw rangeError(`${name}.kind`, `expected 'per-channel' or 'per-group', got ${show(kind)}`);
  }
  // A multiple of 8 fills whole words with 4 or 8 bits, so that no word of codes has two scales.
  const fits = Number.isSafeInteger(groupSize) && (groupSize as number) > 0 && (groupSize as number) <= maxGroupSize;
  if (!fits || (groupSize as number) % 8 !== 0) {
    throw rangeError(
      `${name}.groupSize`,
      `expected a multiple of 8 up to ${maxGroupSize}, such as 32, 64 or 128, got ${show(groupSize)}`,
    );
  }
}

/** --granularity and --group-size. */
const granularity: OptionInfo = {
  flags: [
    { name: 'granularity', value: 'G', about: 'per-channel (the default of int8), or per-group' },
    {
      name: 'group-size',
      value: 'N',
      member: 'groupSize',
      about: 'elements that share a scale, a multiple of 8; means per-group (int4: 128 by default)',
    },
  ],
  check: checkGranularity,
  read({ granularity: kind, 'group-size': size }): ModelGranularity | undefined {
    if (size !== undefined && !/^\d{1,9}$/.test(String(size))) {
      throw rangeError('--group-size', `expected a whole number, got ${JSON.stringify(size)}`);
    }
    if (kind === 'per-channel') {
      if (size === undefined) return { kind };
      throw rangeError('--group-size', 'only for --granularity per-group');
    }
    if (kind === undefined || kind === 'per-group') return { kind: 'per-group', groupSize: Number(size ?? 128) };
    throw rangeError('--granularity', `expected per-channel or per-group, got ${JSON.stringify(kind)}`);
  },
};

const configFlag: Flag = {
  name: 'config',
  value: 'FILE',
  about: "the model's config.json, to be written with the quantization_config in it",
};

/** The options of safetensors and .npy files. */
export const options = optionTable<SafetensorsOptions & SafetensorsSidecars>({
  title: 'safetensors, integers',
  entries: {
    scheme: choice(['symmetric', 'asymmetric'], {
      name: 'scheme',
      value: 'S',
      about: 'symmetric (the default), or asymmetric: zero points',
    }),
    granularity,
    range: searchedRange,
    packed: toggle({ name: 'packed', about: 'int8 codes in int32 words, as int4 and groups always are' }),
    activations: choice(['int8-dynamic'], {
      name: 'activations',
      value: 'int8-dynamic',
      about: 'a configuration that quantizes activations, too (W8A8)',
    }),
    config: {
      flags: [configFlag],
      check: (value) => void configSidecar.merge(value, {}),
      read: (words) => words.config,
      sidecar: configSidecar,
    },
  },
  check(choices) {
    checkRules(choices.rules, checkRule);
    checkFloats(choices);
    checkOneForm(choices);
    for (const weights of weightsOf(choices)) checkForm(choices, weights);
    checkActivations(choices);
  },
});

// ----------------------------------------------------------------------------------------------------------- what goes together

type Choices = PlanChoices<SafetensorsOptions>;

function checkRule({ to, granularity }: { readonly to?: unknown; readonly granularity?: unknown }, path: string): void {
  if (to !== undefined && !isTarget(to)) {
    const known = safetensorsTargets.map((target) => `'${target}'`).join(', ');
    throw rangeError(`${path}.to`, `expected one of ${known}, got ${show(to)}${didYouMean(to, safetensorsTargets)}`);
  }
  if (granularity === undefined) return;
  if (bitsOf(to) === undefined) {
    throw rangeError(`${path}.granularity`, `only for to: 'int8' or 'int4', got to: ${show(to)}`);
  }
  checkGranularity(granularity, `${path}.granularity`);
}

/** Options that mean nothing for floats. */
function checkFloats({ to, scheme, granularity, range, packed, activations }: Choices): void {
  if (isFloat8(to)) {
    if (granularity?.kind === 'per-group') {
      throw rangeError('granularity', `to: '${to}' has one scale a channel, got granularity 'per-group'`);
    }
    if (scheme === 'asymmetric') throw rangeError('scheme', `to: '${to}' is symmetric, got 'asymmetric'`);
    if (packed === true) throw rangeError('packed', `only for integers, got packed: true with to: '${to}'`);
  }
  if (bitsOf(to) !== undefined) return;
  if (granularity !== undefined && !isFloat8(to)) {
    throw rangeError('granularity', `only for to: 'int8' or 'int4', got to: '${to}'`);
  }
  if (range !== undefined) throw rangeError('range', `only for to: 'int8' or 'int4', got to: '${to}'`);
  if (activations !== undefined) throw rangeError('activations', `only for to: 'int8', got to: '${to}'`);
}

/** A configuration has one form for all codes of a file. */
function checkOneForm({ to, rules = [] }: Choices): void {
  const hasCodes = (target: string) => isFloat8(target) || bitsOf(target) !== undefined;
  let codes: string | undefined = hasCodes(to) ? to : undefined;
  for (const [i, rule] of rules.entries()) {
    if (rule.keep || !hasCodes(rule.to)) continue;
    codes ??= rule.to;
    if (isFloat8(codes) !== isFloat8(rule.to)) {
      throw rangeError(`rules[${i}].to`, `a file has one form of codes, got '${rule.to}' beside '${codes}'`);
    }
  }
}

/** Weights that become integers: by default, and by each rule. */
interface IntegerWeights {
  /** Where that is said: empty, or `rules[2].`. */
  readonly path: string;
  readonly to: string;
  readonly bits: 4 | 8;
  readonly kind: ModelGranularity['kind'];
}

function weightsOf({ to, granularity, rules = [] }: Choices): IntegerWeights[] {
  const all = [
    { path: '', to, granularity },
    ...rules.flatMap((rule, i) => {
      if (rule.keep) return [];
      const asked = rule.granularity ?? (rule.to === to ? granularity : undefined);
      return [{ path: `rules[${i}].`, to: rule.to, granularity: asked }];
    }),
  ];
  return all.flatMap(({ granularity: asked, ...weights }) => {
    const bits = bitsOf(weights.to);
    return bits === undefined ? [] : [{ ...weights, bits, kind: (asked ?? defaultGranularity(bits)).kind }];
  });
}

function checkForm({ packed, activations }: Choices, { path, to, bits, kind }: IntegerWeights): void {
  if (packed === false && bits === 4) {
    throw rangeError('packed', `4 bits are always packed, got packed: false with ${path}to: 'int4'`);
  }
  if (packed === false && kind === 'per-group') {
    throw rangeError('packed', `groups are always packed, got packed: false with ${path}granularity 'per-group'`);
  }
  if (activations === undefined) return;
  // The kernels for 8-bit activations take int8 weights with one scale a row.
  if (bits !== 8) throw rangeError('activations', `'int8-dynamic' needs int8 weights, got ${path}to: '${to}'`);
  if (kind !== 'per-channel') {
    const got = `got ${path}granularity '${kind}'`;
    throw rangeError('activations', `'int8-dynamic' needs granularity 'per-channel', ${got}`);
  }
}

function checkActivations({ activations, scheme, packed }: Choices): void {
  if (activations === undefined) return;
  if (scheme === 'asymmetric') {
    throw rangeError('activations', "'int8-dynamic' needs scheme 'symmetric', got 'asymmetric'");
  }
  if (packed === true) {
    throw rangeError('activations', "'int8-dynamic' needs codes that are not packed, got packed: true");
  }
}

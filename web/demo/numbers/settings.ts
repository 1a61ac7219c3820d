import type { BlockType, DType, Granularity } from 'scalepoint';
import { type Distribution, distributions } from '../shared/generate.js';

/** Bit widths in ascending order. They are the stops of the slider. */
export const bitWidths = [2, 3, 4, 5, 6, 7, 8, 16] as const;
/** Sizes of generated data. They are the stops of the slider. */
export const sizes = [256, 1024, 4096, 16384, 65536, 262144, 1048576] as const;
/** Group sizes. They are the stops of the slider. */
export const groupSizes = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] as const;

/** Least value of the setting `cover`, in percent. */
export const leastCover = 5;

const codeKinds = ['integers', 'nf4', 'float8', 'blocks'] as const;
/** Levels of the codes: evenly spaced, those of a list, or those of ggml's blocks. */
type CodeKind = (typeof codeKinds)[number];
/** The block types that can be chosen, from few bits to many. */
export const blockChoices = [
  'Q2_K',
  'Q3_K',
  'Q4_0',
  'Q4_K',
  'IQ4_NL',
  'MXFP4',
  'Q5_0',
  'Q5_K',
  'Q6_K',
  'Q8_0',
] as const satisfies readonly BlockType[];
const schemes = ['symmetric', 'asymmetric'] as const;
const granularities = ['per-tensor', 'per-channel', 'per-group'] as const;
const ranges = ['min-max', 'percentile', 'mse', 'entropy'] as const;
/** Method that chooses the range of the levels. */
export type RangeMethod = (typeof ranges)[number];
export const rangeMethods: readonly RangeMethod[] = ranges;
/** Names of the range methods on the page. */
export const rangeLabels: Readonly<Record<RangeMethod, string>> = {
  'min-max': 'min-max',
  percentile: 'percentile',
  mse: 'least error',
  entropy: 'entropy',
};
/** Percentage of the numbers that the percentile method does not clip. */
export const percentile = 99.9;
const roundings = ['onnx', 'fused', 'reciprocal'] as const;
const symmetricRanges = ['restricted', 'full'] as const;
const nonFinites = ['error', 'saturate'] as const;

/** The values of all controls. They are stored in the address, so they never include the visitor's data. */
export interface Settings {
  /** Source of the numbers: generated, or the visitor's own. */
  readonly data: 'generated' | 'own';
  readonly distribution: Distribution;
  readonly size: (typeof sizes)[number];
  readonly seed: number;
  readonly rowsDiffer: boolean;

  readonly codes: CodeKind;
  /** The block type. Used with blocks only. */
  readonly block: (typeof blockChoices)[number];
  /** Bits of a code. Used with integers only. */
  readonly bits: (typeof bitWidths)[number];
  readonly signed: boolean;
  readonly scheme: (typeof schemes)[number];
  readonly granularity: (typeof granularities)[number];
  /** Axis for per-channel. Negative axes count from the end. An axis beyond the shape is clamped (see `axisOf`). */
  readonly channelAxis: number;
  /** Axis for per-group, with the same rules. */
  readonly groupAxis: number;
  readonly groupSize: (typeof groupSizes)[number];
  readonly range: RangeMethod;
  /** Percentage of the min-max range that the levels cover. The rest is clipped. Used with min-max only. */
  readonly cover: number;
  readonly rounding: (typeof roundings)[number];
  readonly symmetricRange: (typeof symmetricRanges)[number];
  readonly includeZero: boolean;
  readonly nonFinite: (typeof nonFinites)[number];

  /** The channel or group that the pictures show. */
  readonly part: number;
  readonly logCounts: boolean;
}

export const defaultSettings: Settings = {
  data: 'generated',
  distribution: 'normal',
  size: 4096,
  seed: 1,
  rowsDiffer: false,
  codes: 'integers',
  block: 'Q4_0',
  bits: 4,
  signed: true,
  scheme: 'symmetric',
  granularity: 'per-tensor',
  channelAxis: 0,
  groupAxis: -1,
  groupSize: 32,
  range: 'min-max',
  cover: 100,
  rounding: 'onnx',
  symmetricRange: 'restricted',
  includeZero: true,
  nonFinite: 'error',
  part: 0,
  logCounts: false,
};

/** Parses the text of one setting; undefined if it is not valid. */
type SettingParser<T> = (text: string) => T | undefined;

const oneOf =
  <T extends string | number>(allowed: readonly T[]): SettingParser<T> =>
  (text) =>
    allowed.find((value) => String(value) === text);

const flag: SettingParser<boolean> = (text) => (text === 'yes' ? true : text === 'no' ? false : undefined);

const integer =
  (min: number, max: number): SettingParser<number> =>
  (text) => {
    const value = Number(text);
    return /^-?\d{1,10}$/.test(text) && value >= min && value <= max ? value : undefined;
  };

/** The parser of each setting. In the address a setting has the same name as here. */
const readers: { readonly [K in keyof Settings]: SettingParser<Settings[K]> } = {
  data: oneOf(['generated', 'own'] as const),
  distribution: oneOf(distributions.map(({ name }) => name)),
  size: oneOf(sizes),
  seed: integer(0, 999_999),
  rowsDiffer: flag,
  codes: oneOf(codeKinds),
  block: oneOf(blockChoices),
  bits: oneOf(bitWidths),
  signed: flag,
  scheme: oneOf(schemes),
  granularity: oneOf(granularities),
  channelAxis: integer(-8, 8),
  groupAxis: integer(-8, 8),
  groupSize: oneOf(groupSizes),
  range: oneOf(ranges),
  cover: integer(leastCover, 100),
  rounding: oneOf(roundings),
  symmetricRange: oneOf(symmetricRanges),
  includeZero: flag,
  nonFinite: oneOf(nonFinites),
  part: integer(0, 2 ** 31 - 1),
  logCounts: flag,
};

const names = Object.keys(readers) as (keyof Settings)[];

/** The settings as the hash of an address, without `#`. Only values that differ from the defaults are included, in a fixed order. */
export function formatHash(settings: Settings): string {
  const parameters = new URLSearchParams();
  for (const name of names) {
    const value = settings[name];
    if (value !== defaultSettings[name]) {
      parameters.set(name, typeof value === 'boolean' ? (value ? 'yes' : 'no') : String(value));
    }
  }
  return parameters.toString();
}

/** Settings from the hash of an address. Unknown names and invalid values are ignored, so that a damaged link still opens. */
export function parseHash(hash: string): Settings {
  const parameters = new URLSearchParams(hash.replace(/^#/, ''));
  const read = <K extends keyof Settings>(name: K): Partial<Pick<Settings, K>> => {
    const text = parameters.get(name);
    const value = text === null ? undefined : readers[name](text);
    return value === undefined ? {} : ({ [name]: value } as Pick<Settings, K>);
  };
  return Object.assign({}, defaultSettings, ...names.map((name) => read(name)));
}

/** The dtype of the settings, such as `int4` or `uint8`. */
export function dtypeOf({ bits, signed }: Pick<Settings, 'bits' | 'signed'>): DType {
  return `${signed ? '' : 'u'}int${bits}` as DType;
}

/** Name of the target type, such as `int4`, `NF4` or `Q4_0`. */
export function typeName(settings: Settings): string {
  const { codes, block } = settings;
  return { integers: dtypeOf(settings), nf4: 'NF4', float8: 'float8 (E4M3)', blocks: block }[codes];
}

/** The word for numbers that share a scale. */
export function partWord({ codes, granularity }: Settings): string {
  if (codes === 'blocks') return 'block';
  return granularity === 'per-group' ? 'group' : 'channel';
}

/** The smallest and largest code of a dtype. */
export function codeRange({ bits, signed }: Pick<Settings, 'bits' | 'signed'>): { qmin: number; qmax: number } {
  return signed ? { qmin: -(2 ** (bits - 1)), qmax: 2 ** (bits - 1) - 1 } : { qmin: 0, qmax: 2 ** bits - 1 };
}

/** The axis of the granularity for data with that many dimensions, clamped to 0 <= axis < dimensions. */
export function axisOf(settings: Settings, dimensions: number): number {
  const axis = settings.granularity === 'per-group' ? settings.groupAxis : settings.channelAxis;
  return Math.max(0, Math.min(axis < 0 ? axis + dimensions : axis, dimensions - 1));
}

/** The granularity for data with that many dimensions. A single number has no axes, so it is per-tensor. */
export function granularityOf(settings: Settings, dimensions: number): Granularity {
  const axis = axisOf(settings, dimensions);
  if (dimensions === 0 || settings.granularity === 'per-tensor') return { kind: 'per-tensor' };
  if (settings.granularity === 'per-channel') return { kind: 'per-channel', axis };
  return { kind: 'per-group', groupSize: settings.groupSize, axis };
}

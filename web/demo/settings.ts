import type { DType, Granularity } from 'scalepoint';
import { type Distribution, distributions } from './generate.js';

/** Bit widths, narrow to wide: the stops of the slider. */
export const bitWidths = [2, 3, 4, 5, 6, 7, 8, 16] as const;
/** Sizes of generated data: the stops of the slider. */
export const sizes = [256, 1024, 4096, 16384, 65536, 262144, 1048576] as const;
/** Group sizes: the stops of the slider. */
export const groupSizes = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] as const;

/** The least share of the range that the levels may cover, in percent. */
export const leastCover = 5;

const schemes = ['symmetric', 'asymmetric'] as const;
const granularities = ['per-tensor', 'per-channel', 'per-group'] as const;
const ranges = ['min-max', 'percentile', 'mse', 'entropy'] as const;
/** How the range that the levels cover is found. */
export type RangeMethod = (typeof ranges)[number];
export const rangeMethods: readonly RangeMethod[] = ranges;
/** Their names on the page. */
export const rangeLabels: Readonly<Record<RangeMethod, string>> = {
  'min-max': 'min-max',
  percentile: 'percentile',
  mse: 'least error',
  entropy: 'entropy',
};
/** The share of the numbers that the percentile method keeps, in percent. */
export const percentile = 99.9;
const roundings = ['onnx', 'fused', 'reciprocal'] as const;
const symmetricRanges = ['restricted', 'full'] as const;
const nonFinites = ['error', 'saturate'] as const;

/** Everything that the controls hold. Data are never part of it: settings go into the address, data stay here. */
export interface Settings {
  /** Where the numbers come from: made here, or brought by the visitor. */
  readonly data: 'generated' | 'own';
  readonly distribution: Distribution;
  readonly size: (typeof sizes)[number];
  readonly seed: number;
  readonly rowsDiffer: boolean;

  readonly bits: (typeof bitWidths)[number];
  readonly signed: boolean;
  readonly scheme: (typeof schemes)[number];
  readonly granularity: (typeof granularities)[number];
  /** Negative counts from the end. An axis that the data do not have is moved to the nearest one. */
  readonly channelAxis: number;
  readonly groupAxis: number;
  readonly groupSize: (typeof groupSizes)[number];
  readonly range: RangeMethod;
  /** For min-max: how much of the range the levels cover, in percent; the rest is clipped. */
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

/** Reads one setting from the address; undefined if it makes no sense. */
type Read<T> = (text: string) => T | undefined;

const oneOf =
  <T extends string | number>(allowed: readonly T[]): Read<T> =>
  (text) =>
    allowed.find((value) => String(value) === text);

const flag: Read<boolean> = (text) => (text === 'yes' ? true : text === 'no' ? false : undefined);

const integer =
  (min: number, max: number): Read<number> =>
  (text) => {
    const value = Number(text);
    return /^-?\d{1,10}$/.test(text) && value >= min && value <= max ? value : undefined;
  };

/** How each setting is read; its name in the address is its name here. */
const readers: { readonly [K in keyof Settings]: Read<Settings[K]> } = {
  data: oneOf(['generated', 'own'] as const),
  distribution: oneOf(distributions.map(({ name }) => name)),
  size: oneOf(sizes),
  seed: integer(0, 999_999),
  rowsDiffer: flag,
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

/** The settings as the part of an address after `#`: only what differs from the defaults, in a fixed order. */
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

/** Settings from an address. Unknown names and senseless values are passed over: a mangled link still opens. */
export function parseHash(hash: string): Settings {
  const parameters = new URLSearchParams(hash.replace(/^#/, ''));
  const read = <K extends keyof Settings>(name: K): Partial<Pick<Settings, K>> => {
    const text = parameters.get(name);
    const value = text === null ? undefined : readers[name](text);
    return value === undefined ? {} : ({ [name]: value } as Pick<Settings, K>);
  };
  return Object.assign({}, defaultSettings, ...names.map((name) => read(name)));
}

/** The dtype's name: `int4`, `uint8`. */
export function dtypeOf({ bits, signed }: Pick<Settings, 'bits' | 'signed'>): DType {
  return `${signed ? '' : 'u'}int${bits}` as DType;
}

/** The smallest and largest code of a dtype. */
export function codeRange({ bits, signed }: Pick<Settings, 'bits' | 'signed'>): { qmin: number; qmax: number } {
  return signed ? { qmin: -(2 ** (bits - 1)), qmax: 2 ** (bits - 1) - 1 } : { qmin: 0, qmax: 2 ** bits - 1 };
}

/** The axis that the granularity runs along, moved into the shape. */
export function axisOf(settings: Settings, dimensions: number): number {
  const axis = settings.granularity === 'per-group' ? settings.groupAxis : settings.channelAxis;
  return Math.max(0, Math.min(axis < 0 ? axis + dimensions : axis, dimensions - 1));
}

/** The granularity for data of that many dimensions. A single number has no axes: per-tensor. */
export function granularityOf(settings: Settings, dimensions: number): Granularity {
  const axis = axisOf(settings, dimensions);
  if (dimensions === 0 || settings.granularity === 'per-tensor') return { kind: 'per-tensor' };
  if (settings.granularity === 'per-channel') return { kind: 'per-channel', axis };
  return { kind: 'per-group', groupSize: settings.groupSize, axis };
}

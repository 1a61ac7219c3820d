/** Inputs of models: given ones, and for others random ones that depend only on a seed. */

import { rangeError } from '../../../core/errors.js';
import { exactly, ofType, oneOf } from '../../../core/option-problem.js';
import { uniform } from '../../../core/uniform.js';
import { fromHalf } from '../../codecs/floats-in.js';
import { type FileInput, quoted } from '../../files/bytes.js';
import type { ReadOptionFile } from '../../format.js';
import type { BackendJob, InputArray, InputOptions, ModelInputs } from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { onnxTypeNumber } from '../file/proto.js';
import { type NumpyArray, readArrays } from './npz.js';
import type { InputMetadata, RuntimeTensor, TypedRuntime } from './runtime.js';
import { runtimeNumbers } from './values.js';

// ------------------------------------------------------------------------------------------------------------------------- given

export const isPlainObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && [Object.prototype, null].includes(Object.getPrototypeOf(value));

export const isArray = (value: unknown): value is InputArray =>
  isPlainObject(value) && 'data' in value && 'shape' in value;

/** The numbers of an array in a file. @param path of the input, for errors */
export function numpyNumbers({ dtype, bytes }: NumpyArray, path: string): ArrayLike<number | bigint> {
  const { buffer } = bytes.byteOffset % 8 === 0 ? bytes : bytes.slice();
  const [at, length] = [bytes.byteOffset % 8 === 0 ? bytes.byteOffset : 0, bytes.byteLength];
  const make = {
    BOOL: () => bytes,
    U8: () => bytes,
    I8: () => new Int8Array(buffer, at, length),
    U16: () => new Uint16Array(buffer, at, length / 2),
    I16: () => new Int16Array(buffer, at, length / 2),
    U32: () => new Uint32Array(buffer, at, length / 4),
    I32: () => new Int32Array(buffer, at, length / 4),
    U64: () => new BigUint64Array(buffer, at, length / 8),
    I64: () => new BigInt64Array(buffer, at, length / 8),
    F16: () => Float32Array.from(new Uint16Array(buffer, at, length / 2), fromHalf),
    F32: () => new Float32Array(buffer, at, length / 4),
    F64: () => new Float64Array(buffer, at, length / 8),
  }[dtype as string];
  if (make === undefined) throw rangeError(path, ofType('array of numbers'), dtype);
  return make();
}

/** Path of an input in the options, for errors. */
const pathOf = (name: string) => `run.inputs[${quoted(name)}]`;

/** Given arrays by input. */
async function givenArrays(
  given: ModelInputs,
  names: readonly string[],
  readOptionFile: ReadOptionFile,
): Promise<Map<string, InputArray>> {
  const found = new Map<string, InputArray>();
  const checkedName = (name: string) => {
    if (!names.includes(name)) throw rangeError('run.inputs', oneOf(names), name);
    return name;
  };
  const add = async (file: FileInput, alone: string | undefined) => {
    const option = alone === undefined ? 'run.inputs' : pathOf(alone);
    const nameOf = (key: string) => {
      const name = alone ?? (key !== '' ? key : names.length === 1 ? names[0] : undefined);
      if (name === undefined) throw rangeError('run.inputs', { kind: 'object', keys: names }, file);
      return checkedName(name);
    };
    const check = (keys: readonly string[]) => {
      if (alone !== undefined && keys.length !== 1) throw rangeError(pathOf(alone), exactly(1, 'array'), keys.length);
      for (const key of keys) nameOf(key);
    };
    for (const [key, array] of await readOptionFile(option, file, (source) => readArrays(source, check))) {
      const name = nameOf(key);
      found.set(name, { data: numpyNumbers(array, pathOf(name)), shape: array.shape });
    }
  };
  if (!isPlainObject(given)) await add(given, undefined);
  else {
    for (const [name, value] of Object.entries(given)) {
      checkedName(name);
      if (isArray(value)) found.set(name, value);
      else await add(value as FileInput, name);
    }
  }
  return found;
}

// ------------------------------------------------------------------------------------------------------------------------ shapes

/** Position of a dimension. */
interface DimensionPosition {
  readonly input: string;
  readonly at: number;
  readonly rank: number;
}

/** Sizes of dimensions with ambiguous names, by name of the input, rank, and position. */
const byInput: readonly (readonly [input: RegExp, is: (place: DimensionPosition) => boolean, size: number])[] = [
  // Half a minute of features, as for Whisper, and a second of sound.
  [/input_features/i, ({ at, rank }) => rank === 3 && at === 2, 3000],
  [/input_values|audio|wave|speech|^wav$/i, ({ at, rank }) => rank > 1 && rank < 4 && at === rank - 1, 16_000],
  // Images of 256 by 256, at an eighth of the size, as in diffusion models.
  [/latent|^sample$/i, ({ at, rank }) => rank === 4 && at > 1, 32],
];

/** Size of a dimension, by its name and position. */
function sizeOf(name: string, place: DimensionPosition, sizes: ReadonlyMap<string, number>): number {
  const { input, at, rank } = place;
  const known = sizes.get(name);
  if (known !== undefined) return known;
  const sum = /^\s*(\w+)\s*\+\s*(\w+)\s*$/.exec(name);
  // Terms of a sum may be numbers.
  const term = (text = '') => (/^\d+$/.test(text) ? Number(text) : sizeOf(text, place, sizes));
  if (sum !== null) return term(sum[1]) + term(sum[2]);
  if (/past/i.test(name)) return 0;
  const listed = byInput.find(([names, is]) => names.test(input) && is(place));
  if (listed !== undefined) return listed[2];
  if (/channel|^c$/i.test(name)) return rank === 3 && at === 1 ? 1 : 3;
  if (/sample|audio/i.test(name)) return 16_000;
  if (/batch|^n$|^b$|^num/i.test(name)) return 1;
  if (/seq|len|time|token/i.test(name)) return 16;
  if (/height|width|^h$|^w$/i.test(name)) return 224;
  if (at === 0) return 1;
  return rank === 4 ? (at === 1 ? 3 : 224) : 16;
}

/**
 * The shape of an input. Dimensions of one name have one size.
 * @param channels second dimension, if a convolution determines it
 * @param guessed output: the sizes that neither the options nor the model state
 */
function shapeOf(
  { name: input, shape }: InputMetadata,
  sizes: Map<string, number>,
  channels: number | undefined,
  guessed: Map<string, number>,
): number[] {
  return shape.map((dimension, at) => {
    // Dimensions without size and name are -1, which onnxruntime-web reports as 2^32 - 1.
    if (typeof dimension === 'number' && dimension >= 0 && dimension < 2 ** 31) return dimension;
    const [name, place] = [typeof dimension === 'string' ? dimension : '', `${input}.${at}`];
    const isNamed = /\w/.test(name);
    const known = sizes.get(place) ?? (at === 1 && !sizes.has(name) ? channels : undefined) ?? sizes.get(name);
    const size = known ?? sizeOf(name, { input, at, rank: shape.length }, sizes);
    if (known === undefined) guessed.set(isNamed ? name : place, size);
    if (isNamed) sizes.set(name, size);
    return size;
  });
}

// ------------------------------------------------------------------------------------------------------------------------ values

/** Random values: normally distributed floats, indices within their table, masks of ones. */
function randomValues(
  { name, type }: InputMetadata,
  count: number,
  limit: number | undefined,
  random: () => number,
): ArrayLike<number> {
  if (type.startsWith('float') && !/attention_mask|padding_mask/i.test(name)) {
    return Float32Array.from({ length: count }, () => {
      return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    });
  }
  const make = (value: (i: number) => number) => Float64Array.from({ length: count }, (_, i) => value(i));
  if (type === 'bool') return make(() => (/cache/i.test(name) ? 0 : 1));
  if (/mask/i.test(name)) return make(() => 1);
  if (/type/i.test(name)) return make(() => 0);
  if (/position/i.test(name)) return make((i) => i % (limit ?? Math.max(1, count)));
  return make(() => Math.floor(random() * (limit ?? 10)));
}

const bits = new DataView(new ArrayBuffer(4));

/** A float as float16, rounded to even. */
function toHalf(value: number): number {
  bits.setFloat32(0, value);
  const word = bits.getUint32(0);
  const sign = (word >>> 16) & 0x8000;
  const magnitude = Math.abs(value);
  if (Number.isNaN(value)) return sign | 0x7e00;
  if (magnitude >= 65520) return sign | 0x7c00;
  // Steps are 2^-24 below 2^-14, and 2^-10 of the power of two above.
  const exponent = Math.max(-14, Math.floor(Math.log2(magnitude || 2 ** -24)));
  const steps = magnitude / 2 ** (exponent - 10);
  const down = Math.floor(steps);
  const rest = steps - down;
  const rounded = down + (rest > 0.5 || (rest === 0.5 && down % 2 === 1) ? 1 : 0);
  return sign | (rounded + (exponent + 14) * 1024);
}

/** Ranges of integer types: the least number, and the count of numbers. */
const integerRanges: Readonly<Record<string, readonly [least: bigint, count: bigint]>> = {
  ...Object.fromEntries(
    [8n, 16n, 32n, 64n].flatMap((width) => [
      [`int${width}`, [-(2n ** (width - 1n)), 2n ** width]],
      [`uint${width}`, [0n, 2n ** width]],
    ]),
  ),
  bool: [0n, 2n],
};

/** Fails unless an integer type holds all numbers. */
function checkIntegers(type: string, values: ArrayLike<number | bigint>, path: string): void {
  const range = Object.hasOwn(integerRanges, type) ? integerRanges[type] : undefined;
  if (range === undefined) return;
  const [least, count] = range;
  const [low, end] = [Number(least), Number(least + count)];
  for (let i = 0; i < values.length; i++) {
    const value = values[i] as number | bigint;
    // Accept true and false as numbers.
    const number = Number(value);
    const isHeld =
      typeof value === 'bigint'
        ? value >= least && value < least + count
        : Number.isInteger(number) && number >= low && number < end;
    if (!isHeld) throw rangeError(`${path}[${i}]`, ofType(type), value);
  }
}

/** Converts numbers to the runtime's array for a type. */
function typed(type: string, values: ArrayLike<number | bigint>, path: string): ArrayLike<number | bigint> {
  checkIntegers(type, values, path);
  const numbers = (): Iterable<number> & ArrayLike<number> => Array.from(values, Number);
  const bigs = (): bigint[] => Array.from(values, (value) => BigInt(value));
  switch (type) {
    case 'float32':
      return values instanceof Float32Array ? values : Float32Array.from(numbers());
    case 'float64':
      return Float64Array.from(numbers());
    case 'float16':
      return Uint16Array.from(numbers(), toHalf);
    case 'int64':
      return values instanceof BigInt64Array ? values : BigInt64Array.from(bigs());
    case 'uint64':
      return BigUint64Array.from(bigs());
    case 'int32':
      return Int32Array.from(numbers());
    case 'uint32':
      return Uint32Array.from(numbers());
    case 'int16':
      return Int16Array.from(numbers());
    case 'uint16':
      return Uint16Array.from(numbers());
    case 'int8':
      return Int8Array.from(numbers());
    case 'uint8':
    case 'bool':
      return Uint8Array.from(numbers());
    default:
      throw rangeError(path, oneOf(['float16', 'float32', 'float64', ...Object.keys(integerRanges)]), type);
  }
}

/** Names of float types in the runtime. */
const floatTypes: ReadonlyMap<number, string> = new Map([
  [onnxTypeNumber('F32'), 'float32'],
  [onnxTypeNumber('F16'), 'float16'],
]);

/** Facts about inputs from the graph, by name. */
export interface Known {
  /** Rows of the table, for inputs that are indices. */
  readonly limits: ReadonlyMap<string, number>;
  /** Number of channels, for inputs of convolutions. */
  readonly channels: ReadonlyMap<string, number>;
}

/** Inputs of a model. */
export interface Feeds {
  readonly values: Record<string, RuntimeTensor>;
  /** Sizes of dimensions that neither the options nor the model state, by name or as `input.axis`. */
  readonly guessed: ReadonlyMap<string, number>;
  /** Names of the inputs that the options give. */
  readonly given: ReadonlySet<string>;
}

/** Given inputs of a model. */
interface GivenInputs {
  readonly arrays: ReadonlyMap<string, InputArray>;
  /** Path of an input, for errors. */
  readonly pathOf: (name: string) => string;
  /** Sizes of dimensions by name or as `input.axis`. */
  readonly dimensions: Readonly<Record<string, number>>;
  readonly seed: number;
  /** True if inputs that would be random must be given. */
  readonly isStrict: boolean;
}

/** True for inputs that follow from their shape: masks, positions, types of tokens, flags, and empty ones. */
function isKnownWithout({ name, type }: InputMetadata, count: number): boolean {
  return count === 0 || type === 'bool' || /mask|type|position/i.test(name);
}

/** Most values of all inputs that are made up. */
const mostMade = 2 ** 26;

/** Makes the inputs of a model from arrays. @throws RangeError for invalid inputs */
export function feedsFrom(
  { Tensor }: TypedRuntime,
  metadata: readonly InputMetadata[],
  { limits, channels }: Known,
  { arrays, pathOf: path, dimensions, seed, isStrict }: GivenInputs,
): Feeds {
  const sizes = new Map(Object.entries(dimensions));
  // Read dimensions from the given inputs first.
  for (const input of metadata) {
    const array = arrays.get(input.name);
    for (const [i, dimension] of (array === undefined ? [] : input.shape).entries()) {
      if (typeof dimension === 'string' && /\w/.test(dimension)) sizes.set(dimension, array?.shape[i] ?? 1);
    }
  }
  const guessed = new Map<string, number>();
  let made = 0;
  const values: Record<string, RuntimeTensor> = {};
  for (const [i, input] of metadata.entries()) {
    const { name, type, isTensor } = input;
    if (!isTensor) throw rangeError(path(name), ofType('tensor'), type);
    const array = arrays.get(name);
    const shape = array?.shape ?? shapeOf(input, sizes, channels.get(name), guessed);
    const count = shape.reduce((product, size) => product * size, 1);
    if (array === undefined && isStrict && !isKnownWithout(input, count)) {
      throw rangeError(path(name), { kind: 'required' }, undefined);
    }
    // A file may state shapes of any size.
    if (array === undefined) made += count;
    if (!(made <= mostMade)) {
      const message = `its shape [${shape.join(', ')}] takes more than the ${mostMade} values that are made up`;
      throw rangeError(path(name), { kind: 'required' }, undefined, { kind: 'because', message });
    }
    const data = array?.data ?? randomValues(input, count, limits.get(name), uniform(seed * 1009 + i));
    if (data.length !== count) throw rangeError(path(name), exactly(count, 'values'), data.length);
    values[name] = new Tensor(type, typed(type, data, path(name)), shape);
  }
  return { values, guessed, given: new Set(arrays.keys()) };
}

/** Float inputs in the types of another model: a result may have its caches in float16. */
export function inTypesOf({ proto: { graph } }: OnnxModel, feeds: BackendJob['feeds']): BackendJob['feeds'] {
  const types = new Map(graph.inputs.map(({ name, type }) => [name, type]));
  const changed = Object.entries(feeds).flatMap(([name, value]) => {
    const type = floatTypes.get(types.get(name) ?? 0);
    if (type === undefined || type === value.type || ![...floatTypes.values()].includes(value.type)) return [];
    return [[name, { type, dims: value.dims, data: typed(type, runtimeNumbers(value), name) }] as const];
  });
  return changed.length === 0 ? feeds : { ...feeds, ...Object.fromEntries(changed) };
}

/** Makes the inputs of a model from options. @throws RangeError for invalid inputs; ScalepointError for files */
export async function feedsOf(
  runtime: TypedRuntime,
  metadata: readonly InputMetadata[],
  known: Known,
  { inputs, dimensions = {}, seed = 1 }: InputOptions,
  readOptionFile: ReadOptionFile,
): Promise<Feeds> {
  const names = metadata.map(({ name }) => name);
  const arrays =
    inputs === undefined ? new Map<string, InputArray>() : await givenArrays(inputs, names, readOptionFile);
  return feedsFrom(runtime, metadata, known, { arrays, pathOf, dimensions, seed, isStrict: false });
}

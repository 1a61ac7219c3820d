/** Inputs of models: given ones, and for others random ones that depend only on a seed. */

import { rangeError } from '../../../core/errors.js';
import { exactly, ofType, oneOf } from '../../../core/option-problem.js';
import { uniform } from '../../../core/uniform.js';
import { fromHalf } from '../../codecs/floats-in.js';
import { type FileInput, quoted } from '../../files/bytes.js';
import type { ReadOptionFile } from '../../format.js';
import type { BackendJob, InputArray, InputOptions, RunTensor } from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { onnxTypeNumber } from '../file/proto.js';
import { type NumpyArray, readNumpyArrays } from './npz.js';
import { type InputMetadata, runSession, type Session, type TypedRuntime } from './runtime.js';
import { isNumberType, numberTypes, runtimeNumbers } from './values.js';

// ------------------------------------------------------------------------------------------------------------------------- given

export const isPlainObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && [Object.prototype, null].includes(Object.getPrototypeOf(value));

export const isInputArray = (value: unknown): value is InputArray =>
  isPlainObject(value) && 'data' in value && 'shape' in value;

/** The numbers of an array in a file. @param path of the input, for errors */
export function numpyNumbers({ dtype, bytes }: NumpyArray, path: string): ArrayLike<number | bigint> {
  const { array: Numbers } = Object.values(numberTypes).find((one) => one.dtype === dtype) ?? {};
  if (Numbers === undefined) throw rangeError(path, ofType('array of numbers'), dtype);
  const { buffer, byteOffset, byteLength } = bytes.byteOffset % 8 === 0 ? bytes : bytes.slice();
  const numbers = new Numbers(buffer, byteOffset, byteLength / Numbers.BYTES_PER_ELEMENT);
  return dtype === 'F16' ? Float32Array.from(numbers as Uint16Array, fromHalf) : numbers;
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
function guessedSize(name: string, place: DimensionPosition, sizes: ReadonlyMap<string, number>): number {
  const { input, at, rank } = place;
  const known = sizes.get(name);
  if (known !== undefined) return known;
  const sum = /^\s*(\w+)\s*\+\s*(\w+)\s*$/.exec(name);
  // Terms of a sum may be numbers.
  const term = (text = '') => (/^\d+$/.test(text) ? Number(text) : guessedSize(text, place, sizes));
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

/** Converts numbers to the runtime's array for a type. @throws RangeError naming an integer that the type does not hold */
function typed(type: string, values: ArrayLike<number | bigint>, path: string): ArrayLike<number | bigint> {
  if (!isNumberType(type)) throw rangeError(path, oneOf(Object.keys(numberTypes)), type);
  const { array: Numbers } = numberTypes[type];
  if (!type.startsWith('float')) {
    const width = type === 'bool' ? 1n : 8n * BigInt(Numbers.BYTES_PER_ELEMENT);
    const least = type.startsWith('int') ? -(2n ** (width - 1n)) : 0n;
    const above = least + 2n ** width;
    const [low, end] = [Number(least), Number(above)];
    for (let i = 0; i < values.length; i++) {
      const value = values[i] as number | bigint;
      // Accept true and false as numbers.
      const number = Number(value);
      const isHeld =
        typeof value === 'bigint'
          ? value >= least && value < above
          : Number.isInteger(number) && number >= low && number < end;
      if (!isHeld) throw rangeError(`${path}[${i}]`, ofType(type), value);
    }
  }
  if ((type === 'float32' || type === 'int64') && values instanceof Numbers) return values;
  if (type === 'int64' || type === 'uint64') return numberTypes[type].array.from(Array.from(values, BigInt));
  const Plain: new (numbers: readonly number[]) => ArrayLike<number> = numberTypes[type].array;
  return new Plain(Array.from(values, type === 'float16' ? (value) => toHalf(Number(value)) : Number));
}

/** Names of float types in the runtime. */
const floatTypes: ReadonlyMap<number, string> = new Map(
  (['float32', 'float16'] as const).map((type) => [onnxTypeNumber(numberTypes[type].dtype), type]),
);

/** Facts about inputs from the graph, by name. */
export interface Known {
  /** Rows of the table, for inputs that are indices. */
  readonly limits: ReadonlyMap<string, number>;
  /** Number of channels, for inputs of convolutions. */
  readonly channels: ReadonlyMap<string, number>;
}

/** Inputs of a model. */
export interface Feeds {
  readonly values: Record<string, RunTensor>;
  /** Sizes of dimensions that neither the options nor the model state, by name or as `input.axis`. */
  readonly guessed: ReadonlyMap<string, number>;
  /** Names of the inputs that the options give. */
  readonly given: ReadonlySet<string>;
}

/** Most values of all inputs that are made up. */
const mostMade = 2 ** 26;

/**
 * Makes the inputs of a model from arrays.
 * @param dimensions sizes by name or as `input.axis`
 * @param pathOf path of an input, for errors
 * @param isStrict true if inputs that would be random must be given
 * @throws RangeError for invalid inputs
 */
export function feedsFrom(
  { Tensor }: TypedRuntime,
  metadata: readonly InputMetadata[],
  { limits, channels }: Known,
  {
    arrays,
    pathOf: path,
    dimensions,
    seed,
    isStrict,
  }: {
    readonly arrays: ReadonlyMap<string, InputArray>;
    readonly pathOf: (name: string) => string;
    readonly dimensions: Readonly<Record<string, number>>;
    readonly seed: number;
    readonly isStrict: boolean;
  },
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
  const values: Record<string, RunTensor> = {};
  for (const [i, input] of metadata.entries()) {
    const { name, type, isTensor } = input;
    if (!isTensor) throw rangeError(path(name), ofType('tensor'), type);
    const array = arrays.get(name);
    const makeShape = () =>
      input.shape.map((dimension, at) => {
        // Dimensions without size and name are -1, which onnxruntime-web reports as 2^32 - 1.
        if (typeof dimension === 'number' && dimension >= 0 && dimension < 2 ** 31) return dimension;
        const [label, place] = [typeof dimension === 'string' ? dimension : '', `${name}.${at}`];
        const isNamed = /\w/.test(label);
        // A convolution determines the second dimension. Dimensions of one name have one size.
        const channel = at === 1 && !sizes.has(label) ? channels.get(name) : undefined;
        const known = sizes.get(place) ?? channel ?? sizes.get(label);
        const size = known ?? guessedSize(label, { input: name, at, rank: input.shape.length }, sizes);
        if (known === undefined) guessed.set(isNamed ? label : place, size);
        if (isNamed) sizes.set(label, size);
        return size;
      });
    const shape = array?.shape ?? makeShape();
    const count = shape.reduce((product, size) => product * size, 1);
    // Masks, positions, types of tokens, flags and empty inputs follow from their shape.
    const isKnown = count === 0 || type === 'bool' || /mask|type|position/i.test(name);
    if (array === undefined && isStrict && !isKnown) {
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

/** Path of an input of a sample or of an option, for errors. */
export const inputPath = (sample: string, input: string) => `${sample}[${quoted(input)}]`;

/** Makes the inputs of a model from options. @throws RangeError for invalid inputs; ScalepointError for files */
export async function feedsOf(
  { runtime, session }: { readonly runtime: TypedRuntime; readonly session: Pick<Session, 'inputMetadata'> },
  known: Known,
  { inputs = {}, dimensions = {}, seed = 1 }: InputOptions,
  readOptionFile: ReadOptionFile,
): Promise<Feeds> {
  const names = session.inputMetadata.map(({ name }) => name);
  const pathOf = (name: string) => inputPath('run.inputs', name);
  const arrays = new Map<string, InputArray>();
  const checkName = (name: string) => {
    if (!names.includes(name)) throw rangeError('run.inputs', oneOf(names), name);
    return name;
  };
  /** Adds the arrays of a file. @param alone the input that it is for; undefined for all */
  const addFile = async (file: FileInput, alone: string | undefined) => {
    const nameFor = (key: string) => {
      const name = alone ?? (key !== '' ? key : names.length === 1 ? names[0] : undefined);
      if (name === undefined) throw rangeError('run.inputs', { kind: 'object', keys: names }, file);
      return checkName(name);
    };
    const check = (keys: readonly string[]) => {
      if (alone !== undefined && keys.length !== 1) throw rangeError(pathOf(alone), exactly(1, 'array'), keys.length);
      for (const key of keys) nameFor(key);
    };
    const option = alone === undefined ? 'run.inputs' : pathOf(alone);
    for (const [key, array] of await readOptionFile(option, file, (source) => readNumpyArrays(source, check))) {
      const name = nameFor(key);
      arrays.set(name, { data: numpyNumbers(array, pathOf(name)), shape: array.shape });
    }
  };
  if (isPlainObject(inputs)) {
    for (const [name, value] of Object.entries(inputs)) {
      checkName(name);
      if (isInputArray(value)) arrays.set(name, value);
      else await addFile(value as FileInput, name);
    }
  } else await addFile(inputs, undefined);
  return feedsFrom(runtime, session.inputMetadata, known, { arrays, pathOf, dimensions, seed, isStrict: false });
}

/** A model in a session. */
export interface OpenSession {
  readonly runtime: TypedRuntime;
  readonly session: Session;
  readonly known: Known;
  /** Sizes of dimensions that samples leave open, by name or as `input.axis`. */
  readonly dimensions: Readonly<Record<string, number>>;
}

/** A sample, and its path for errors. */
export interface NamedSample {
  readonly path: string;
  readonly inputs: ReadonlyMap<string, InputArray>;
}

/**
 * Runs a model on a sample.
 * @param label names the model in errors
 * @param names of the outputs to take. @defaultValue all
 * @throws RangeError for invalid inputs, or ones that lack; ScalepointError `RUNTIME`
 */
export async function runSample(
  { runtime, session, known, dimensions }: OpenSession,
  { path, inputs: arrays }: NamedSample,
  label: string,
  names?: readonly string[],
) {
  const given = { arrays, pathOf: (name: string) => inputPath(path, name), dimensions, seed: 1, isStrict: true };
  const feeds = feedsFrom(runtime, session.inputMetadata, known, given).values;
  return { feeds, outputs: await runSession(session, feeds, label, names && { names }) };
}

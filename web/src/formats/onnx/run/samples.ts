/** Reads samples: from files, a piece at a time, and from iterables. */
import { asOption, rangeError, ScalepointError, typeError } from '../../../core/errors.js';
import { exactly, ofType, oneOf } from '../../../core/option-problem.js';
import { aMoment, waitingFor } from '../../../core/waiting.js';
import { type ByteSource, type FileInput, quoted } from '../../files/bytes.js';
import type { CollectRunsOptions, InputArray, ModelSample, ModelSamples, SampleFiles } from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import type { OnnxValue } from '../file/proto.js';
import { inputPath, isInputArray, isPlainObject, type NamedSample, numpyNumbers } from './inputs.js';
import { mostBytes, type OpenArray, openArrays } from './npz.js';

/** Samples that are read from the start each time. */
export interface Samples {
  /** True if they can be read more than once. */
  readonly isRepeatable: boolean;
  read(): AsyncGenerator<NamedSample>;
}

/** Inputs of a model, as the graph declares them. */
type DeclaredInputs = readonly Pick<OnnxValue, 'name' | 'shape'>[];

// ------------------------------------------------------------------------------------------------------------------------- checks

/** Finds an input by its name. @throws RangeError naming the sample */
function declaredAs(name: string, inputs: DeclaredInputs, sample: string): DeclaredInputs[number] {
  const found = inputs.find((input) => input.name === name);
  if (found !== undefined) return found;
  throw rangeError(sample, oneOf(inputs.map((input) => input.name)), name);
}

/** Checks the inputs of a sample. @throws TypeError, RangeError naming the sample and the input */
function checkedSample(sample: unknown, inputs: DeclaredInputs, path: string): NamedSample {
  if (!isPlainObject(sample)) throw typeError(path, { kind: 'object', keys: inputs.map(({ name }) => name) }, sample);
  const found = new Map<string, InputArray>();
  for (const [name, array] of Object.entries(sample)) {
    const { shape: wanted } = declaredAs(name, inputs, path);
    const place = inputPath(path, name);
    if (!isInputArray(array)) throw typeError(place, { kind: 'object', keys: ['data', 'shape'] }, array);
    const { data, shape } = array;
    const isSize = (size: unknown) => Number.isSafeInteger(size) && (size as number) >= 0;
    if (!Array.isArray(shape) || !shape.every(isSize)) throw rangeError(`${place}.shape`, { kind: 'shape' }, shape);
    const fits = (size: number | undefined, i: number) => size === undefined || size === shape[i];
    if (wanted !== undefined && (wanted.length !== shape.length || !wanted.every(fits))) {
      const dimensions = wanted.map((size) => (size === undefined ? '?' : String(size)));
      throw rangeError(`${place}.shape`, { kind: 'shape', dimensions }, shape);
    }
    const count = shape.reduce((product: number, size: number) => product * size, 1);
    if (typeof data !== 'object' || data === null || data.length !== count) {
      throw rangeError(`${place}.data`, exactly(count, 'values'), data?.length);
    }
    found.set(name, array);
  }
  return { path, inputs: found };
}

// -------------------------------------------------------------------------------------------------------------- several in an array

/** Number of samples in an array of a file, and the shape of one; undefined for an array that is a sample itself. */
function samplesIn(
  shape: readonly number[],
  { shape: wanted }: DeclaredInputs[number],
): { readonly count: number; readonly shape: readonly number[] } | undefined {
  if (wanted === undefined) return undefined;
  const [first = 0, ...others] = shape;
  if (shape.length === wanted.length + 1) return { count: first, shape: others };
  const [fixed] = wanted;
  const isSplit = fixed !== undefined && fixed > 0 && first > fixed && first % fixed === 0;
  return shape.length === wanted.length && isSplit ? { count: first / fixed, shape: [fixed, ...others] } : undefined;
}

/** The samples of an archive, read one at a time. Arrays that hold one sample belong to all. */
async function* fromArchive(
  arrays: ReadonlyMap<string, OpenArray>,
  inputs: DeclaredInputs,
  path: string,
): AsyncGenerator<NamedSample> {
  // Find the arrays with several samples.
  const split = new Map<string, NonNullable<ReturnType<typeof samplesIn>>>();
  for (const [name, { shape }] of arrays) {
    const found = samplesIn(shape, declaredAs(name, inputs, path));
    if (found !== undefined) split.set(name, found);
  }
  const [first] = split;
  const count = first?.[1].count;
  for (const [name, other] of split) {
    if (other.count !== count) throw rangeError(inputPath(path, name), exactly(count ?? 0, 'samples'), other.count);
  }
  if (count === 0) return;
  const sizes = new Map([...arrays].map(([name, { bytes }]) => [name, bytes / (split.get(name)?.count ?? 1)]));
  const total = [...sizes.values()].reduce((sum, size) => sum + size, 0);
  if (total > mostBytes) throw rangeError(path, { kind: 'number', max: mostBytes, unit: 'bytes of a sample' }, total);
  // Read the arrays of all samples.
  const read = async (name: string, { dtype, read: readBytes }: OpenArray, shape: readonly number[], i: number) => {
    const size = sizes.get(name) as number;
    const bytes = await readBytes(i * size, (i + 1) * size);
    return { data: numpyNumbers({ dtype, shape, bytes }, inputPath(path, name)), shape };
  };
  const common: Record<string, InputArray> = Object.create(null);
  for (const [name, array] of arrays) if (!split.has(name)) common[name] = await read(name, array, array.shape, 0);
  if (count === undefined) {
    yield checkedSample(common, inputs, path);
    return;
  }
  // Read those of each sample.
  for (let i = 0; i < count; i++) {
    const sample: Record<string, InputArray> = { ...common };
    for (const [name, { shape }] of split) sample[name] = await read(name, arrays.get(name) as OpenArray, shape, i);
    yield checkedSample(sample, inputs, `${path}[${i}]`);
  }
}

// --------------------------------------------------------------------------------------------------------------------------- files

/** Longest line in bytes. */
const mostLine = 2 ** 28;
/** Bytes of each read. */
const lineWindow = 2 ** 20;

/** Lines of a file, with the offset of each. */
async function* linesWithOffsets(source: ByteSource): AsyncGenerator<{ readonly text: string; readonly at: number }> {
  const decoder = new TextDecoder();
  let [text, at] = ['', 0];
  for (let begin = 0; begin < source.size; begin += lineWindow) {
    const bytes = await source.read(begin, Math.min(source.size, begin + lineWindow));
    let from = 0;
    for (let to = bytes.indexOf(10); to >= 0; to = bytes.indexOf(10, from)) {
      yield { text: text + decoder.decode(bytes.subarray(from, to)), at };
      [text, from, at] = ['', to + 1, begin + to + 1];
    }
    text += decoder.decode(bytes.subarray(from), { stream: true });
    if (begin + bytes.length - at > mostLine) {
      throw new ScalepointError('BAD_FILE', `a line has more than ${mostLine} bytes`, { byteOffset: at });
    }
  }
  text += decoder.decode();
  if (text !== '') yield { text, at };
}

/** Most dimensions of an input. NumPy has at most 64. */
const mostDimensions = 64;

/** An input of a line: `{ data, shape }`, or nested lists row by row. @throws ScalepointError `BAD_FILE` */
function arrayInLine(value: unknown, fail: (text: string) => never): InputArray {
  const data: number[] = [];
  const addNumber = (one: unknown) => {
    if (typeof one !== 'number' && typeof one !== 'boolean') fail('an input has an element that is not a number');
    data.push(Number(one));
  };
  if (isPlainObject(value)) {
    const { data: all, shape } = value as Partial<Record<'data' | 'shape', unknown>>;
    if (!Array.isArray(all) || !Array.isArray(shape)) fail('an input is neither lists of numbers nor { data, shape }');
    for (const one of all) addNumber(one);
    return { data, shape };
  }
  const shape: number[] = [];
  for (let at = value; Array.isArray(at); at = at[0]) {
    if (shape.push(at.length) > mostDimensions) fail(`an input has more than ${mostDimensions} dimensions`);
  }
  const add = (one: unknown, depth: number) => {
    if (depth === shape.length) return addNumber(one);
    if (!Array.isArray(one) || one.length !== shape[depth]) fail('lists of an input have several lengths');
    for (const inner of one) add(inner, depth + 1);
  };
  add(value, 0);
  return { data, shape };
}

/** The samples of JSON lines. A first dimension of 1 may be left out. */
async function* fromLines(source: ByteSource, inputs: DeclaredInputs, path: string): AsyncGenerator<NamedSample> {
  let index = 0;
  for await (const { text, at } of linesWithOffsets(source)) {
    if (text.trim() === '') continue;
    const sample = `${path}[${index++}]`;
    const fail = (why: string, cause?: unknown): never => {
      const about = `sample ${index} of ${quoted(source.name ?? 'a file of samples')}: ${why}`;
      throw new ScalepointError('BAD_FILE', about, { byteOffset: at, cause });
    };
    let parsed: unknown;
    try {
      parsed = JSON.parse(text);
    } catch (cause) {
      fail('the line is not JSON', cause);
    }
    if (!isPlainObject(parsed)) return fail('the line is not an object');
    const arrays: Record<string, InputArray> = Object.create(null);
    for (const [name, value] of Object.entries(parsed)) {
      const array = arrayInLine(value, fail);
      const wanted = declaredAs(name, inputs, sample).shape;
      const isShort = wanted !== undefined && wanted.length === array.shape.length + 1 && (wanted[0] ?? 1) === 1;
      arrays[name] = isShort ? { data: array.data, shape: [1, ...array.shape] } : array;
    }
    yield checkedSample(arrays, inputs, sample);
  }
}

/** The samples of a file. */
async function* fromFile(source: ByteSource, inputs: DeclaredInputs, path: string): AsyncGenerator<NamedSample> {
  const head = await source.read(0, Math.min(64, source.size));
  if (new TextDecoder().decode(head).trimStart().startsWith('{')) return yield* fromLines(source, inputs, path);
  // The array of a .npy file has no name: it is the only input.
  const nameFor = (name: string): string => {
    const [only, ...others] = inputs;
    if (name !== '') return name;
    if (only !== undefined && others.length === 0) return only.name;
    throw rangeError(path, { kind: 'object', keys: inputs.map((one) => one.name) }, source.name ?? 'a .npy file');
  };
  const arrays = await openArrays(source, (names) => {
    for (const name of names) declaredAs(nameFor(name), inputs, path);
  });
  try {
    yield* fromArchive(new Map([...arrays].map(([name, array]) => [nameFor(name), array])), inputs, path);
  } finally {
    for (const array of arrays.values()) await array.close();
  }
}

// ------------------------------------------------------------------------------------------------------------------------- samples

/**
 * The samples of what a caller gives: at least one.
 * @param option name of the argument, for errors
 * @param model reads the samples
 * @throws TypeError, RangeError naming the argument
 */
export function samplesOf(
  option: string,
  data: ModelSamples,
  { proto, weights }: Pick<OnnxModel, 'proto' | 'weights'>,
  { open, signal }: Pick<CollectRunsOptions, 'open' | 'signal'>,
): Samples {
  // Files of old versions list weights among the inputs, too.
  const values = new Set(weights.map(({ value }) => value));
  const inputs = proto.graph.inputs.filter(({ name }) => !values.has(name));
  const counted = (isRepeatable: boolean, samples: () => AsyncGenerator<NamedSample>): Samples => ({
    isRepeatable,
    async *read() {
      let count = 0;
      for await (const sample of samples()) {
        count++;
        yield sample;
      }
      if (count === 0) throw rangeError(option, { kind: 'number', min: 1, unit: 'samples' }, 0);
    },
  });
  if (isPlainObject(data) && 'files' in data) {
    const { files } = data as SampleFiles;
    const all: readonly FileInput[] = Array.isArray(files) ? files : [files];
    return counted(true, async function* () {
      for (const [i, file] of all.entries()) {
        const path = Array.isArray(files) ? `${option}.files[${i}]` : `${option}.files`;
        const source = await open(file).catch((error) => Promise.reject(asOption(path, error)));
        try {
          yield* fromFile(source, inputs, path);
        } finally {
          await source.close();
        }
      }
    });
  }
  const given = data as Partial<Iterable<ModelSample> & AsyncIterable<ModelSample>> | null;
  const isIterable =
    typeof given === 'object' && given !== null && (Symbol.iterator in given || Symbol.asyncIterator in given);
  if (!isIterable) throw typeError(option, ofType('text', 'ids', 'iterable of samples', '{ files }'), data);
  // Generators give themselves.
  return counted(Array.isArray(given) || !('next' in given), async function* () {
    const iterator = (given[Symbol.asyncIterator]?.() ?? given[Symbol.iterator]?.()) as
      | AsyncIterator<ModelSample>
      | Iterator<ModelSample>;
    const waiting = waitingFor(signal);
    let isOpen = true;
    try {
      for (let i = 0; ; i++) {
        isOpen = false;
        const { done, value } = await waiting.soon(Promise.resolve(iterator.next()));
        if (done === true) return;
        isOpen = true;
        yield checkedSample(value, inputs, `${option}[${i}]`);
      }
    } finally {
      waiting.end();
      if (isOpen) await iterator.return?.();
      // A sample that is being made cannot be stopped.
      else if (signal?.aborted) await aMoment(Promise.resolve(iterator.return?.()));
    }
  });
}

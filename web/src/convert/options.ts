/** Options of plans, results and work, and their checks. Calls may come from JavaScript, so that types are checked as well. */
import type { Converter } from '../architectures/converter.js';
import { convertersFrom } from '../architectures/registry.js';
import { type CallOptions, checkKeys, maxWorkers } from '../core/check.js';
import { rangeError, typeError } from '../core/errors.js';
import { checkLoadOptions, type LoadOptions, loadNames } from '../core/load-options.js';
import { didYouMean } from '../core/nearest.js';
import { type Expected, type Hint, ofType, oneOf, orList, whole } from '../core/option-problem.js';
import { modelGranularityNames, searchedMembers } from '../core/range.js';
import {
  amended,
  callback,
  checkOptionValues,
  checkTogether,
  numberOption,
  type OptionsOf,
  option,
} from '../core/schema.js';
import type { WorkerLike } from '../core/worker-like.js';
import type { Format, Target } from '../formats/format.js';
import type { PlanChoices } from '../formats/options.js';
import { formatNamed, formats } from '../formats/registry.js';
import type { RunOptions } from '../formats/run.js';
import { checkFileSize } from '../formats/shards.js';
import { checkAdapters } from './open.js';

/** Options about workers, progress and canceling. */
export const workEntries = {
  /**
   * Number of workers. With 0, the calling thread does the work. Every number gives the same bytes.
   * Where workers cannot start, the calling thread does the work, and the report has a note.
   * @defaultValue one less than the number of processors, at most 8; 0 for small models
   */
  workers: numberOption({ whole: true, min: 0, max: maxWorkers }),
  /**
   * Makes a worker from the file `scalepoint/worker`, for bundlers that do not find it and for pages with Trusted Types.
   * @defaultValue the file beside this module
   */
  worker: callback<() => WorkerLike>(),
  /** Where the large module of the core comes from, and which build of it; as `load()`, but `blocks` is ignored. */
  core: option<LoadOptions>(checkLoadOptions),
  /** Called when a tensor is done, and in between at most every 50 ms. An error that it throws ends the work, as does a rejected promise. */
  onProgress: callback<(progress: Progress) => void>(),
  /** Stops the work; the promise is rejected with the signal's reason. */
  signal: option<AbortSignal>((value, name) => {
    if (!(value instanceof AbortSignal)) throw typeError(name, ofType('AbortSignal'), value);
  }),
};

/** Options about workers, progress and canceling. */
export interface WorkOptions extends OptionsOf<typeof workEntries> {}

/** The names of all options about how work is done. */
export const workNames: readonly string[] = Object.keys(workEntries);

/** Members of the option `run`. */
const runNames: readonly string[] = ['inputs', 'dimensions', 'seed', 'layers', 'backends', 'runtime'];

/** Members of the option `run` of `quantizeModel`. */
export const outputRunNames: readonly string[] = ['samples', ...runNames.filter((name) => name !== 'layers')];

/** Members of options that are objects, for hints. */
const members: CallOptions = {
  granularity: modelGranularityNames,
  range: searchedMembers,
  core: loadNames,
  run: runNames,
};

/**
 * Fails unless it is an object without other options than these. All calls on model files check their options here.
 * @param calls the other calls that an option may have been meant for
 * @throws TypeError naming the option
 */
export function checkOptions(options: unknown, names: readonly string[], calls?: CallOptions): void {
  const inside = names.flatMap((name) => members[name]?.map((member) => `${name}.${member}`) ?? []);
  checkKeys(options, [...names, ...inside], '', calls);
}

/** @throws TypeError or RangeError naming the option */
export const checkWorkOptions = (options: object): void => checkOptionValues(workEntries, options);

/**
 * Calls `use` with options whose `onProgress` may be an async function. If its promise is rejected, the work is aborted with the reason, as
 * if it had thrown.
 */
export async function withCallbacks<
  Options extends {
    readonly signal?: AbortSignal | undefined;
    readonly onProgress?: ((progress: never) => void) | undefined;
  },
  T,
>(options: Options, use: (options: Options) => Promise<T>): Promise<T> {
  const { signal, onProgress } = options;
  if (onProgress === undefined) return use(options);
  const controller = new AbortController();
  const abort = () => controller.abort(signal?.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort, { once: true });
  const report = (progress: never) => {
    const returned: unknown = onProgress(progress);
    const { then } = (returned ?? {}) as Partial<PromiseLike<unknown>>;
    if (typeof then === 'function') then.call(returned, undefined, (reason: unknown) => controller.abort(reason));
  };
  try {
    return await use({ ...options, signal: controller.signal, onProgress: report });
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

/** Checks options for running models. @throws TypeError, RangeError naming the option */
export function checkRunOptions(run: unknown, names = runNames): void {
  if (typeof run !== 'object' || run === null) throw typeError('run', ofType('object'), run);
  checkKeys(run, names, 'run');
  const { seed, dimensions, layers, backends } = run as RunOptions;
  if (seed !== undefined && !Number.isSafeInteger(seed)) throw rangeError('run.seed', whole(), seed);
  if (layers !== undefined && typeof layers !== 'boolean') throw typeError('run.layers', ofType('boolean'), layers);
  if (backends !== undefined && !Array.isArray(backends)) throw typeError('run.backends', ofType('array'), backends);
  for (const [i, backend] of (backends ?? []).entries()) {
    const isOwn = typeof backend === 'object' && backend !== null && typeof backend.run === 'function';
    if (!isOwn && backend !== 'wasm' && backend !== 'webgpu')
      throw rangeError(`run.backends[${i}]`, oneOf(['wasm', 'webgpu']), backend);
  }
  for (const [name, size] of Object.entries(dimensions ?? {})) {
    if (!Number.isSafeInteger(size) || size < 0) throw rangeError(`run.dimensions.${name}`, whole(0), size);
  }
}

/** Progress of a conversion. */
export interface Progress {
  /** The current work. */
  readonly phase: 'quantize' | 'copy' | 'verify';
  /** Name of the tensor. */
  readonly tensor: string;
  /** Index of the tensor in the order of the input. */
  readonly index: number;
  /** Number of tensors. */
  readonly count: number;
  /** With several targets: the target of the result that is being made. The numbers are about this result. */
  readonly to?: string | undefined;
  /** Bytes of tensors done so far. */
  readonly bytesDone: number;
  /** Bytes of all tensors. */
  readonly bytesTotal: number;
}

/**
 * Progress of data through a model, for `evaluateModel` and `calibrateModel`. All data pass one part of the model after the other, so that the
 * share of the work that is done is `(pass - 1 + done / total) / passes`.
 */
export interface DataProgress {
  /** The current work. */
  readonly phase: 'evaluate' | 'calibrate';
  /** The things that `done` and `total` count. */
  readonly unit: 'tokens' | 'samples';
  /** The current pass over the data, from 1. A language model has one for each layer, and one for the logits where they are judged. */
  readonly pass: number;
  /** Number of passes. With a reference, its passes follow those of the model. */
  readonly passes: number;
  /** Tokens or samples that are done in this pass. */
  readonly done: number;
  /** Tokens or samples of each pass. */
  readonly total: number;
}

/** Names of options of formats: about files beside the result, or those that decide about it. */
export function optionNames(sidecars: boolean, of: readonly Pick<Format, 'options'>[] = formats): string[] {
  const names = new Set<string>();
  for (const { options } of of) {
    for (const [name, { sidecar }] of Object.entries(options.entries)) {
      // Files that describe a result alone are made, not given.
      if ((sidecar !== undefined) === sidecars && !sidecar?.isWhole) names.add(name);
    }
  }
  return [...names];
}

/** Options that decide about a result. */
export function planNames(): string[] {
  return ['to', ...optionNames(false), 'rules', 'lora', ...sizeNames];
}

/** Options about texts and how they pass a model. */
const textNames = ['chunkSize', 'maxTokens', 'tokenizer', ...workNames];

/** The options of calls that make results or measure them, by the name of the call. */
export function modelCalls() {
  const [plan, sidecars] = [planNames(), optionNames(true)];
  const result = [...plan, 'output', ...workNames];
  return {
    quantizeModel: [...result, 'overwrite', 'minSqnrDb', 'minOutput', 'run', ...sidecars],
    planModel: result,
    estimateModel: [...plan, 'sample', ...workNames],
    measureTypes: [...plan, ...workNames],
    compareModels: ['run', ...workNames],
    verifyModel: [...sidecars, 'onProgress', 'signal'],
    evaluateModel: ['text', 'data', 'reference', 'resume', 'run', ...textNames],
    calibrateModel: ['output', 'overwrite', 'moments', 'heldBack', 'mix', 'ranges', 'resume', 'run', ...textNames],
  } satisfies CallOptions;
}

/** Most names of targets in an error about one format, and of each format in an error about all. */
const mostNames = 10;
const mostNamesOfEach = 3;

/** The targets of a format in an error, the likeliest first. */
function expectedTarget({ targets, label }: Format, most = mostNames): Expected {
  const rank = ({ preset, isUsual }: Target) => (preset !== undefined ? 0 : isUsual ? 1 : 2);
  const examples = [...targets].sort((a, b) => rank(a) - rank(b)).map(({ name }) => name);
  return { kind: 'text', form: `a target of ${label}`, examples: examples.slice(0, most) };
}

/** The nearest target of each format, with the formats where there are several. */
function nearTarget(to: unknown, owners: readonly Format[]): Hint | undefined {
  const found = owners.flatMap(({ targets, label }) => {
    const names = targets.map(({ name }) => name);
    // Without a similar name, take the integer with at least as many bits: int8 for int5.
    const bits = (name: unknown) => Number(/^u?int(\d+)$/.exec(typeof name === 'string' ? name : '')?.[1] ?? NaN);
    const wider = names.filter((name) => bits(name) >= bits(to)).sort((a, b) => bits(a) - bits(b));
    const near = didYouMean(to, names).names[0] ?? wider[0];
    return near === undefined ? [] : [{ near, label }];
  });
  const names = [...new Set(found.map(({ near }) => near))];
  if (names.length === 0) return undefined;
  if (owners.length === 1) return { kind: 'didYouMean', names };
  const formatsOf = (name: string) => found.filter(({ near }) => near === name).map(({ label }) => label);
  return { kind: 'didYouMean', names: names.map((name) => `${name} for ${orList(formatsOf(name))}`) };
}

/**
 * Checks options before the file is opened: their names, and that at least one format has the target. A missing target is an error of
 * `checkChoices`, which knows the format.
 */
export function checkPlanOptions(options: object, call: keyof ReturnType<typeof modelCalls>): void {
  const calls = modelCalls();
  checkOptions(options, calls[call], calls);
  const { to, lora } = options as { to?: unknown; lora?: unknown };
  if (lora !== undefined) checkAdapters(lora);
  checkSize(options as SizeOptions);
  if (to === 'auto' && hasSizeOption(options as SizeOptions)) return;
  if (to === undefined || formats.some((format) => accepts(format, to))) return;
  // Name the first of the formats that share a table.
  const owners = formats.filter((format, i, all) => all.findIndex(({ options }) => options === format.options) === i);
  const expected: Expected = { kind: 'anyOf', of: owners.map((format) => expectedTarget(format, mostNamesOfEach)) };
  throw rangeError('to', expected, to, nearTarget(to, owners));
}

/** The error for a target that is impossible for files of a format. */
export function targetError(from: Format, to: unknown): RangeError {
  const others = makersFor(from).filter(({ converter }) => converter !== undefined);
  const conditions = others.map(({ format, converter }) =>
    ofType(`target of ${format.label} if it is ${converter?.condition}`),
  );
  // For a target of another format, name the files that its conversion needs.
  const maker = others.find(
    ({ format }) =>
      accepts(format, to) || (typeof to === 'string' && format.targets.some(({ name }) => name.startsWith(`${to}_`))),
  );
  const files =
    'config.json and the tokenizer beside the weights: give the folder of the model, or a list of its files';
  const hint: Hint | undefined =
    maker === undefined ? nearTarget(to, [from]) : { kind: 'because', message: `${maker.format.label} needs ${files}` };
  return rangeError('to', { kind: 'anyOf', of: [expectedTarget(from), ...conditions] }, to, hint);
}

/** Checks everything that decides about a result of a file of this format. Returns its maker. */
export function checkChoices(from: Format, choices: PlanChoices): Maker {
  const maker = makerOf(from, choices.to);
  if (maker === undefined) throw targetError(from, choices.to);
  const { format } = maker;
  const { entries } = format.options;
  const given = Object.entries(choices).filter(([, value]) => value !== undefined);
  for (const owner of formats) {
    if (owner.options === format.options) continue;
    const foreign = given.find(([name]) => !Object.hasOwn(entries, name) && optionNames(false, [owner]).includes(name));
    // Reject options of other formats: they would have no effect.
    if (foreign !== undefined)
      throw rangeError(foreign[0], { kind: 'onlyFor', files: `${owner.label} files` }, foreign[1]);
  }
  for (const [name, value] of given) if (Object.hasOwn(entries, name)) entries[name]?.check(value, name);
  format.options.check(choices);
  return maker;
}

/** The format, and perhaps the conversion, that makes a result. */
export interface Maker {
  /** The format that knows the target, and whose options decide. */
  readonly format: Format;
  /** The conversion, if the model is of another format. */
  readonly converter?: Converter;
}

/** Checks that a format has a target of that name. */
function accepts({ targets, aliases }: Format, to: unknown): boolean {
  return targets.some(({ name }) => name === to) || (typeof to === 'string' && Object.hasOwn(aliases, to));
}

/** Lists the makers for models of a format. */
export function makersFor(format: Format): readonly Maker[] {
  const converters = convertersFrom(format.name);
  return [{ format }, ...converters.map((converter) => ({ format: formatNamed(converter.result), converter }))];
}

/** Finds the maker of a target for models of a format. Undefined if the target is impossible. */
export function makerOf(format: Format, to: unknown): Maker | undefined {
  return makersFor(format).find((maker) => accepts(maker.format, to));
}

/** Limits of the size of a result. */
const sizeEntries = {
  /**
   * GGUF, and int4, int8 and q4 of other formats: the largest size of all files of the result together, in bytes or as '3.5GB'. Measures
   * the error of each weight in each type, and chooses the types with the least error in this size. `rules` have priority.
   * @defaultValue the types follow from `to`
   */
  targetSize: option<number | string>(checkFileSize),
  /** Target size as bits for each element of the model's tensors, such as 4.5. @defaultValue the types follow from `to` */
  targetBitsPerWeight: amended(numberOption({ above: 0, max: 64 }), { excludedBy: [{ option: 'targetSize' }] }),
};

/** Limits of the size of a result. */
export interface SizeOptions extends OptionsOf<typeof sizeEntries> {}

export const sizeNames: readonly string[] = Object.keys(sizeEntries);

/** True if a size is given. */
export function hasSizeOption({ targetSize, targetBitsPerWeight }: SizeOptions): boolean {
  return targetSize !== undefined || targetBitsPerWeight !== undefined;
}

/** @throws TypeError or RangeError naming the option */
export function checkSize(options: SizeOptions): void {
  checkTogether(sizeEntries, options);
  checkOptionValues(sizeEntries, options);
}

/** The least quality of each output. */
export interface OutputBound {
  /** Its measure: the cosine to the output of the original, or the SQNR in dB. */
  readonly kind: 'cosine' | 'sqnrDb';
  /** The least number. */
  readonly least: number;
}

const expected: Expected = {
  kind: 'anyOf',
  of: [
    { kind: 'number', above: 0, max: 1 },
    { kind: 'text', form: 'a number of decibels', examples: ['40dB'] },
  ],
};

/** Reads the option. @throws TypeError, RangeError */
export function outputBoundOf(minOutput: unknown): OutputBound {
  if (typeof minOutput === 'number') {
    if (minOutput > 0 && minOutput <= 1) return { kind: 'cosine', least: minOutput };
    throw rangeError('minOutput', expected, minOutput);
  }
  if (typeof minOutput !== 'string') throw typeError('minOutput', expected, minOutput);
  const [, decibels] = /^\s*([-+]?(?:\d+\.?\d*|\.\d+))\s*dB\s*$/i.exec(minOutput) ?? [];
  if (decibels === undefined) throw rangeError('minOutput', expected, minOutput);
  return { kind: 'sqnrDb', least: Number(decibels) };
}

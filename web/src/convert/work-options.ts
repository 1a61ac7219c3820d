/** Options that most calls share, progress, and their checks. Calls may come from JavaScript, so that types are checked as well. */
import { type CallOptions, checkBoolean, checkKeys, maxWorkers } from '../core/check.js';
import { rangeError, typeError } from '../core/errors.js';
import { checkLoadOptions, type LoadOptions, loadNames } from '../core/load-options.js';
import { ofType, oneOf, whole } from '../core/option-problem.js';
import { modelGranularityNames, searchedMembers } from '../core/range.js';
import { callback, checkOptionValues, numberOption, type OptionsOf, option } from '../core/schema.js';
import type { WorkerLike } from '../core/worker-like.js';
import type { RunOptions } from '../formats/run.js';

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
  if (layers !== undefined) checkBoolean(layers, 'run.layers');
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

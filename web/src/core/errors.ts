/** Errors that the library throws. */
import { codeFor } from './advice.js';
import { nearestValue } from './nearest.js';
import { type Expected, type Hint, type OptionProblem, sayHint, sayProblem } from './option-problem.js';
import { tagOf } from './realms.js';
import { show } from './show.js';

/**
 * The kinds of errors, apart from wrong arguments (those throw `RangeError` or `TypeError`):
 *
 * | code | meaning |
 * |---|---|
 * | `WASM_LOAD` | the wasm file could not be fetched, or does not contain wasm |
 * | `CSP` | the page's Content-Security-Policy forbids WebAssembly (`'wasm-unsafe-eval'` is missing) |
 * | `VERSION_MISMATCH` | the wasm file belongs to another version of this package |
 * | `OUT_OF_MEMORY` | wasm memory cannot grow any further |
 * | `NON_FINITE` | the data hold NaN or an infinity, and `nonFinite` is `'error'` |
 * | `OVERFLOW` | a value, or the scale of its block, exceeds the range of its float format |
 * | `EMPTY` | an observer was asked for parameters before the first finite value |
 * | `DISPOSED` | the object was used after `dispose()` |
 * | `UNKNOWN_FORMAT` | a file is of no supported format |
 * | `BAD_FILE` | a file breaks the rules of its format; `byteOffset` gives the place |
 * | `INCOMPLETE` | the files are sound, but a conversion needs one more, or a part that one lacks: `missing` names it |
 * | `UNSUPPORTED_DTYPE` | a tensor's type cannot be read or converted |
 * | `NOT_FOUND` | a file has no tensor of that name |
 * | `CHANGED` | a file was changed while it was read, or between the runs of `--resume` |
 * | `IMPORT` | a part of the package could not be imported: the place forbids it, or the file is missing |
 * | `WORKER` | a worker could not be started, or ended before its time |
 * | `RUNTIME` | onnxruntime-web is not installed, or cannot load or run a model |
 * | `BROWSER` | the command line found no browser for WebGPU, or could not start it, or it ended before its time |
 * | `QUALITY` | a result misses the required SQNR |
 * | `NO_EFFECT` | the command line was to quantize a model, and would convert less than 1 % of its bytes |
 * | `IO` | reading or writing failed; `cause` is the system's error |
 * | `ACCESS` | the hub refuses a model: it is gated or private, or the token is wrong, or there is no such model |
 * | `EXISTS` | the output exists already, and overwriting was not asked for |
 */
export type ErrorCode =
  | 'WASM_LOAD'
  | 'CSP'
  | 'VERSION_MISMATCH'
  | 'OUT_OF_MEMORY'
  | 'NON_FINITE'
  | 'OVERFLOW'
  | 'EMPTY'
  | 'DISPOSED'
  | 'UNKNOWN_FORMAT'
  | 'BAD_FILE'
  | 'INCOMPLETE'
  | 'UNSUPPORTED_DTYPE'
  | 'NOT_FOUND'
  | 'CHANGED'
  | 'IMPORT'
  | 'WORKER'
  | 'RUNTIME'
  | 'BROWSER'
  | 'QUALITY'
  | 'NO_EFFECT'
  | 'IO'
  | 'ACCESS'
  | 'EXISTS';

/** The place of an error, as far as it is known. */
export interface ErrorPlace {
  /** Name of the tensor. */
  tensor?: string | undefined;
  /** Offset from the start of the file, in bytes. */
  byteOffset?: number | undefined;
  /** Path of the file. */
  path?: string | undefined;
  /** The file, or the part of one, that is missing. */
  missing?: string | undefined;
  /** Advice at the end of the message. */
  hint?: Hint | undefined;
  /** The error underneath. */
  cause?: unknown;
}

/** An error as plain data, for `postMessage`, `structuredClone` and JSON, which keep no fields of errors. `errorFrom` gives it back. */
export interface ErrorData {
  /** `ScalepointError`, `RangeError`, `TypeError` or that of another error. */
  readonly name: string;
  /** The whole message. */
  readonly message: string;
  /** Code of a ScalepointError. */
  readonly code?: ErrorCode | undefined;
  /** Name of the tensor, if known. */
  readonly tensor?: string | undefined;
  /** Offset from the start of the file in bytes, if known. */
  readonly byteOffset?: number | undefined;
  /** Path of the file, if known. */
  readonly path?: string | undefined;
  /** The file, or the part of one, that is missing. */
  readonly missing?: string | undefined;
  /** The message without the hint, of a ScalepointError. */
  readonly statement?: string | undefined;
  /** Advice, of a ScalepointError. */
  readonly hint?: Hint | undefined;
  /** Path of the option, of a wrong argument. */
  readonly option?: string | undefined;
  /** The mistake in an argument. The given value is text unless JSON holds it. */
  readonly problem?: OptionProblem | undefined;
  /** Number of an error of the system. */
  readonly errno?: number | undefined;
  /** The error underneath. */
  readonly cause?: ErrorData | undefined;
}

/** Causes that the data of an error hold, one in another. */
const mostCauses = 4;

/** A value as JSON and messages of workers hold it: text in place of others. */
function plainValue(value: unknown, depth = 0): unknown {
  if (value === null || value === undefined || typeof value === 'string' || typeof value === 'boolean') return value;
  if (typeof value === 'number') return Number.isFinite(value) ? value : String(value);
  if (typeof value === 'object' && depth < 8 && (Array.isArray(value) || tagOf(value) === 'Object')) {
    const isSmall = Object.keys(value).length <= 100;
    if (Array.isArray(value) && isSmall) return value.map((one) => plainValue(one, depth + 1));
    const isPlain = Object.getPrototypeOf(value) === Object.prototype;
    if (isPlain && isSmall) {
      return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plainValue(one, depth + 1)]));
    }
  }
  return show(value);
}

/** Fields of errors beside their names and messages. */
const errorFields: readonly (keyof ErrorData)[] = [
  'code',
  'tensor',
  'byteOffset',
  'path',
  'missing',
  'statement',
  'hint',
  'option',
  'problem',
  'errno',
];

/** An error as plain data. */
export function errorData(error: unknown, depth = 0): ErrorData {
  if (!(error instanceof Error)) return { name: 'Error', message: show(error) };
  const { name, message, cause } = error;
  const fields = error as unknown as Record<string, unknown>;
  const known: Record<string, unknown> = { name, message };
  for (const field of errorFields) {
    if (fields[field] !== undefined) known[field] = plainValue(fields[field]);
  }
  if (cause !== undefined && depth < mostCauses) known.cause = errorData(cause, depth + 1);
  return known as unknown as ErrorData;
}

/** The classes of errors about arguments. */
const argumentErrors = { RangeError, TypeError };

/**
 * The error that `toJSON` made plain, such as one that came from a worker: a ScalepointError with its code, or a RangeError or TypeError
 * with its option. An error is returned as it is.
 */
export function errorFrom(data: unknown): Error {
  if (data instanceof Error) return data;
  const isData = typeof data === 'object' && data !== null && typeof (data as ErrorData).message === 'string';
  if (!isData) return new Error(typeof data === 'string' ? data : show(data));
  const { cause, ...known } = data as ErrorData;
  const { name, message, code, option, problem, errno } = known;
  const causeError = cause === undefined ? undefined : errorFrom(cause);
  if (name === 'ScalepointError' && code !== undefined) {
    const error = new ScalepointError(code, known.statement ?? message, { ...known, cause: causeError });
    // The words of a hint may be another version's.
    if (error.message !== message) error.message = message;
    return error;
  }
  const options = causeError === undefined ? undefined : { cause: causeError };
  if ((name === 'RangeError' || name === 'TypeError') && option !== undefined && problem !== undefined) {
    return withData(new argumentErrors[name](message, options), option, problem);
  }
  const error = new Error(message, options);
  if (typeof name === 'string' && name !== 'Error') error.name = name;
  return Object.assign(error, code !== undefined && { code }, errno !== undefined && { errno });
}

/** An error about an argument with its data. */
function withData<E extends RangeError | TypeError>(error: E, option: string, problem: OptionProblem): OptionError<E> {
  const made = Object.assign(error, { option, problem });
  return Object.defineProperty(made, 'toJSON', { value: () => errorData(made) }) as E & typeof made & OptionError<E>;
}

/** Any error of this package except wrong arguments. */
export class ScalepointError extends Error {
  /** Distinguishes it from other errors, even where several copies of the class exist. */
  override readonly name = 'ScalepointError';
  /** The kind of the error. */
  readonly code: ErrorCode;
  /** Name of the tensor, if known. */
  declare readonly tensor?: string | undefined;
  /** Offset from the start of the file in bytes, if known. */
  declare readonly byteOffset?: number | undefined;
  /** Path of the file that exists already, or cannot be opened or written, if known. */
  declare readonly path?: string | undefined;
  /** The file that a conversion needs beside sound ones, or the part that a file lacks: `tokenizer.json`, `byte tokens`. */
  declare readonly missing?: string | undefined;
  /** Advice, if there is any. */
  declare readonly hint?: Hint | undefined;
  /** The message without the hint. */
  readonly statement: string;

  constructor(code: ErrorCode, message: string, place: ErrorPlace = {}) {
    super(message + sayHint(place.hint), place.cause === undefined ? undefined : { cause: place.cause });
    this.code = code;
    this.statement = message;
    if (place.tensor !== undefined) this.tensor = place.tensor;
    if (place.byteOffset !== undefined) this.byteOffset = place.byteOffset;
    if (place.path !== undefined) this.path = place.path;
    if (place.missing !== undefined) this.missing = place.missing;
    if (place.hint !== undefined) this.hint = place.hint;
  }

  /** The error as plain data, for `postMessage` and JSON; `errorFrom` gives it back. */
  toJSON(): ErrorData {
    return errorData(this);
  }
}

/** @throws ScalepointError `DISPOSED` */
export function disposedError(what: string): ScalepointError {
  return new ScalepointError('DISPOSED', `${what} was used after dispose()`);
}

/** @throws ScalepointError `OUT_OF_MEMORY` */
export function outOfMemory(what: string): ScalepointError {
  return new ScalepointError('OUT_OF_MEMORY', `wasm memory has no room for ${what}`);
}

/** An error about an argument. */
export type OptionError<E extends RangeError | TypeError> = E & {
  /** Path of the option or argument: `dtype`, `rules[2].to`. */
  readonly option: string;
  /** The mistake as data; the message says the same. */
  readonly problem: OptionProblem;
  /** The error as plain data, for `postMessage` and JSON; `errorFrom` gives it back. */
  toJSON(): ErrorData;
};

function withProblem<E extends RangeError | TypeError>(
  kind: new (message: string, options?: ErrorOptions) => E,
  problem: OptionProblem,
  cause: unknown,
): OptionError<E> {
  const message = `${problem.option}: ${sayProblem(problem)}`;
  return withData(new kind(message, cause === undefined ? undefined : { cause }), problem.option, problem);
}

/** The mistake as data. A text that is near to an accepted one, and a value from which code makes an accepted one, get a hint. */
function problemWith(option: string, expected: Expected, got: unknown, given: Hint | undefined): OptionProblem {
  let hint = given ?? nearestValue(expected, got);
  try {
    const code = hint === undefined ? codeFor(option, expected, got) : undefined;
    if (code !== undefined) hint = { kind: 'write', code };
  } catch {
    // Reading the argument fails, as with proxies.
  }
  return { option, expected, got, ...(hint !== undefined && { hint }) };
}

/** The error for an argument of the right type with a wrong value. @param hint by default the nearest of the accepted values */
export function rangeError(option: string, expected: Expected, got?: unknown, hint?: Hint): OptionError<RangeError> {
  return withProblem(RangeError, problemWith(option, expected, got, hint), undefined);
}

/** The error for an argument of a wrong type, or for an option that does not exist. */
export function typeError(
  option: string,
  expected: Expected,
  got?: unknown,
  hint?: Hint,
  cause?: unknown,
): OptionError<TypeError> {
  return withProblem(TypeError, problemWith(option, expected, got, hint), cause);
}

/** Calls f. Errors about options get the path of the object whose members they are: `dtype` of `variants[1]` is `variants[1].dtype`. */
export function within<T>(path: string, f: () => T): T {
  try {
    return f();
  } catch (error) {
    const problem = problemOf(error);
    if (problem === undefined) throw error;
    const inside = { ...problem, option: `${path}.${problem.option}` };
    const { cause } = error as Error;
    throw error instanceof RangeError ? withProblem(RangeError, inside, cause) : withProblem(TypeError, inside, cause);
  }
}

/** The error of a file that an option names: errors about the argument `file` get the name of the option. Other errors stay. */
export function asOption(option: string, error: unknown): unknown {
  const problem = problemOf(error);
  if (problem?.option !== 'file') return error;
  const named = { ...problem, option };
  const { cause } = error as Error;
  return error instanceof RangeError ? withProblem(RangeError, named, cause) : withProblem(TypeError, named, cause);
}

/** The mistake in an argument; undefined for other errors. */
export function problemOf(error: unknown): OptionProblem | undefined {
  return error instanceof RangeError || error instanceof TypeError
    ? (error as Partial<OptionError<RangeError>>).problem
    : undefined;
}

/** Errors that the library throws. */
import { codeFor } from './advice.js';
import { nearestValue } from './nearest.js';
import { type Expected, type Hint, type OptionProblem, sayHint, sayProblem } from './option-problem.js';

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
 * | `UNSUPPORTED_DTYPE` | a tensor's type cannot be read or converted |
 * | `NOT_FOUND` | a file has no tensor of that name |
 * | `CHANGED` | a file was changed while it was read, or between the runs of `--resume` |
 * | `WORKER` | a worker could not be started, or ended before its time |
 * | `RUNTIME` | onnxruntime-web is not installed, or cannot load or run a model |
 * | `BROWSER` | the command line found no browser for WebGPU, or could not start it, or it ended before its time |
 * | `QUALITY` | a result misses the required SQNR |
 * | `NO_EFFECT` | the command line was to quantize a model without any tensor that can be quantized |
 * | `IO` | reading or writing failed; `cause` is the system's error |
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
  | 'UNSUPPORTED_DTYPE'
  | 'NOT_FOUND'
  | 'CHANGED'
  | 'WORKER'
  | 'RUNTIME'
  | 'BROWSER'
  | 'QUALITY'
  | 'NO_EFFECT'
  | 'IO'
  | 'EXISTS';

/** The place of an error, as far as it is known. */
export interface ErrorPlace {
  /** Name of the tensor. */
  tensor?: string | undefined;
  /** Offset from the start of the file, in bytes. */
  byteOffset?: number | undefined;
  /** Path of the file. */
  path?: string | undefined;
  /** Advice at the end of the message. */
  hint?: Hint | undefined;
  /** The error underneath. */
  cause?: unknown;
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
    if (place.hint !== undefined) this.hint = place.hint;
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
};

function withProblem<E extends RangeError | TypeError>(
  kind: new (message: string, options?: ErrorOptions) => E,
  problem: OptionProblem,
  cause: unknown,
): OptionError<E> {
  const message = `${problem.option}: ${sayProblem(problem)}`;
  const error = new kind(message, cause === undefined ? undefined : { cause });
  return Object.assign(error, { option: problem.option, problem });
}

/** The code to write for a wrong argument. Undefined also if reading the argument fails, as with proxies. */
function writing(option: string, expected: Expected, got: unknown): Hint | undefined {
  try {
    const code = codeFor(option, expected, got);
    return code === undefined ? undefined : { kind: 'write', code };
  } catch {
    return undefined;
  }
}

/** The mistake as data. A text that is near to an accepted one, and a value from which code makes an accepted one, get a hint. */
function problemWith(option: string, expected: Expected, got: unknown, given: Hint | undefined): OptionProblem {
  const hint = given ?? nearestValue(expected, got) ?? writing(option, expected, got);
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

import { type Expected, type Hint, type OptionProblem, sayHint, sayProblem } from './option-problem.js';

/**
 * What can go wrong, apart from wrong arguments (those throw `RangeError` or `TypeError`):
 *
 * | code | meaning |
 * |---|---|
 * | `WASM_LOAD` | the wasm file could not be fetched, or is no wasm |
 * | `CSP` | the page's Content-Security-Policy forbids WebAssembly (`'wasm-unsafe-eval'` is missing) |
 * | `VERSION_MISMATCH` | the wasm file belongs to another version of this package |
 * | `OUT_OF_MEMORY` | wasm memory cannot grow any further |
 * | `NON_FINITE` | the data hold NaN or an infinity, and `nonFinite` is `'error'` |
 * | `OVERFLOW` | a value, or the scale of its block, is beyond the float format that it would be stored in |
 * | `DISPOSED` | the object was used after `dispose()` |
 * | `UNKNOWN_FORMAT` | a file is of no supported format |
 * | `BAD_FILE` | a file breaks the rules of its format; `byteOffset` says where |
 * | `UNSUPPORTED_DTYPE` | a tensor's type cannot be read or converted |
 * | `NOT_FOUND` | a file has no tensor of that name |
 * | `CHANGED` | a file was changed while it was read |
 * | `WORKER` | a worker could not be started, or ended before its time |
 * | `RUNTIME` | onnxruntime-web is not installed, or cannot load or run a model |
 * | `QUALITY` | a result misses the required SQNR |
 * | `NO_EFFECT` | the command line was to quantize a model of which nothing can be |
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
  | 'DISPOSED'
  | 'UNKNOWN_FORMAT'
  | 'BAD_FILE'
  | 'UNSUPPORTED_DTYPE'
  | 'NOT_FOUND'
  | 'CHANGED'
  | 'WORKER'
  | 'RUNTIME'
  | 'QUALITY'
  | 'NO_EFFECT'
  | 'IO'
  | 'EXISTS';

/** Where an error happened, as far as it is known. */
export interface ErrorPlace {
  /** Name of the tensor. */
  tensor?: string | undefined;
  /** Offset from the start of the file, in bytes. */
  byteOffset?: number | undefined;
  /** Path of the file. */
  path?: string | undefined;
  /** What helps. The message ends with it. */
  hint?: Hint | undefined;
  /** The error underneath. */
  cause?: unknown;
}

/** Every error of this package that is not a wrong argument. */
export class ScalepointError extends Error {
  /** Tells it from other errors, also where classes are not the same. */
  override readonly name = 'ScalepointError';
  /** What happened. */
  readonly code: ErrorCode;
  /** The tensor in question, where it is known. */
  readonly tensor?: string;
  /** Where in the file, where it is known. */
  readonly byteOffset?: number;
  /** Path of the file that exists already, or cannot be opened or written, where it is known. */
  readonly path?: string;
  /** What helps, where something does. */
  readonly hint?: Hint;
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

/** An error about an argument. */
export type OptionError<E extends RangeError | TypeError> = E & {
  /** Path of the option or argument: `dtype`, `rules[2].to`. */
  readonly option: string;
  /** What is wrong with it; the message says the same. */
  readonly problem: OptionProblem;
};

function withProblem<E extends RangeError | TypeError>(
  kind: new (message: string, options?: ErrorOptions) => E,
  problem: OptionProblem,
  cause?: unknown,
): OptionError<E> {
  const message = `${problem.option}: ${sayProblem(problem)}`;
  const error = new kind(message, cause === undefined ? undefined : { cause });
  return Object.assign(error, { option: problem.option, problem });
}

/** The error for an argument of the right type with a wrong value. */
export function rangeError(option: string, expected: Expected, got?: unknown, hint?: Hint): OptionError<RangeError> {
  return withProblem(RangeError, { option, expected, got, hint });
}

/** The error for an argument of a wrong type, or for an option that does not exist. */
export function typeError(
  option: string,
  expected: Expected,
  got?: unknown,
  hint?: Hint,
  cause?: unknown,
): OptionError<TypeError> {
  return withProblem(TypeError, { option, expected, got, hint }, cause);
}

/** What is wrong with an argument, if the error is about one. */
export function problemOf(error: unknown): OptionProblem | undefined {
  return error instanceof RangeError || error instanceof TypeError
    ? (error as Partial<OptionError<RangeError>>).problem
    : undefined;
}

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

  constructor(code: ErrorCode, message: string, place: ErrorPlace = {}) {
    super(message, place.cause === undefined ? undefined : { cause: place.cause });
    this.code = code;
    if (place.tensor !== undefined) this.tensor = place.tensor;
    if (place.byteOffset !== undefined) this.byteOffset = place.byteOffset;
    if (place.path !== undefined) this.path = place.path;
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
};

function withOption<E extends RangeError | TypeError>(error: E, option: string): OptionError<E> {
  return Object.assign(error, { option });
}

/** The error for an argument of the right type with a wrong value: `option: text`. */
export function rangeError(option: string, text: string): OptionError<RangeError> {
  return withOption(new RangeError(`${option}: ${text}`), option);
}

/** The error for an argument of a wrong type, or for an option that does not exist: `option: text`. */
export function typeError(option: string, text: string, cause?: unknown): OptionError<TypeError> {
  return withOption(new TypeError(`${option}: ${text}`, cause === undefined ? undefined : { cause }), option);
}

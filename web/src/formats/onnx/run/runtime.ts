/** The used part of onnxruntime-web (1.22 or newer; tests run 1.30.0). It is an optional peer: callers install it or pass it. */
import { ScalepointError } from '../../../core/errors.js';
import { nodeModule } from '../../../core/node.js';
import type { Hint } from '../../../core/option-problem.js';
import type { BackendJob, RunTensor, Runtime } from '../../run.js';

/** Description of an input by a session. */
export interface InputMetadata {
  readonly name: string;
  readonly isTensor: boolean;
  readonly type: string;
  /** Shape. Dimensions that are not fixed have a name, which may be empty. */
  readonly shape: readonly (number | string)[];
}

export interface Session {
  readonly inputMetadata: readonly InputMetadata[];
  readonly outputNames: readonly string[];
  run(
    feeds: Readonly<Record<string, RunTensor>>,
    outputs: readonly string[],
    options: { readonly logSeverityLevel: 4 },
  ): Promise<Readonly<Record<string, RunTensor>>>;
  /** Prints the profile of a session that was made with one. */
  endProfiling?(): void;
  release(): Promise<void>;
}

/** `Runtime` with the used types. */
export interface TypedRuntime {
  readonly InferenceSession: { create(model: Uint8Array, options?: object): Promise<Session> };
  readonly Tensor: new (type: string, data: unknown, dims: readonly number[]) => RunTensor;
  readonly env?: {
    logLevel?: string;
    readonly wasm?: { numThreads?: number };
    readonly versions?: { readonly web?: string; readonly node?: string };
  };
}

/** The package of the runtime. */
export const runtimeName = 'onnxruntime-web';

/** Loads the given runtime, or the installed one. @throws ScalepointError `RUNTIME` */
export async function loadRuntime(given: Runtime | undefined): Promise<TypedRuntime> {
  if (given !== undefined) return given as TypedRuntime;
  let found: TypedRuntime;
  try {
    // Hide the import from bundlers, because pages that do not run models need not have the package.
    found = await import(/* @vite-ignore */ /* webpackIgnore: true */ runtimeName);
  } catch (cause) {
    const message =
      'running models takes onnxruntime-web: npm install onnxruntime-web; in a page, import it and pass it as run.runtime';
    throw new ScalepointError('RUNTIME', message, { cause });
  }
  if (found.env !== undefined) found.env.logLevel = 'fatal';
  // Use one thread: more would keep a Node process alive.
  if (found.env?.wasm !== undefined && nodeModule('node:os') !== undefined) found.env.wasm.numThreads = 1;
  return found;
}

/** A model in the runtime's form. */
export type Loadable = BackendJob['model'];

/** Logs nothing: the error has the message. */
export const quiet = { logSeverityLevel: 4 } as const;

/** Opens a session, passes it to `use`, and closes it. Errors name the model. @throws ScalepointError `RUNTIME` */
export async function withSession<T>(
  { InferenceSession }: TypedRuntime,
  { bytes, externalData }: Loadable,
  { label, level = 'all' }: { readonly label: string; readonly level?: 'all' | 'disabled' },
  use: (session: Session) => Promise<T>,
): Promise<T> {
  let session: Session;
  try {
    const files = externalData.length === 0 ? {} : { externalData };
    session = await InferenceSession.create(bytes, { graphOptimizationLevel: level, ...quiet, ...files });
  } catch (cause) {
    throw runtimeError(`load ${label}`, cause);
  }
  try {
    return await use(session);
  } finally {
    await session.release();
  }
}

/** Words about a failed run. */
interface RunHints {
  readonly about?: string;
  readonly hint?: Hint;
}

/** Runs a session. @param label names the model in errors. @throws ScalepointError `RUNTIME` */
export async function runSession(
  session: Session,
  feeds: Readonly<Record<string, RunTensor>>,
  label: string,
  { names = session.outputNames, ...hints }: RunHints & { readonly names?: readonly string[] } = {},
): Promise<ReadonlyMap<string, RunTensor>> {
  try {
    const results = await session.run(feeds, names, quiet);
    return new Map(names.flatMap((name) => (results[name] ? [[name, results[name]] as const] : [])));
  } catch (cause) {
    throw runtimeError(`run ${label}`, cause, hints);
  }
}

/** Wraps an error of the runtime. @param action what it cannot do */
export function runtimeError(action: string, cause: unknown, { about = '', hint }: RunHints = {}): ScalepointError {
  return new ScalepointError('RUNTIME', `onnxruntime-web cannot ${action}: ${runtimeText(cause)}${about}`, {
    cause,
    hint,
  });
}

/** The words of an error of the runtime. */
export const runtimeText = (cause: unknown) =>
  (cause instanceof Error ? cause.message : String(cause)).trim().slice(0, 500);

/** Values as plain data, which outlive a session that keeps their elements, and can be sent elsewhere. */
export function plainValues(values: Iterable<readonly [string, RunTensor]>): BackendJob['feeds'] {
  return Object.fromEntries([...values].map(([name, { type, dims, data }]) => [name, { type, dims: [...dims], data }]));
}

/** Plain values in the form of a runtime. */
export function runtimeTensors({ Tensor }: TypedRuntime, values: BackendJob['feeds']): Record<string, RunTensor> {
  const tensors = Object.entries(values).map(([name, { type, data, dims }]) => [name, new Tensor(type, data, dims)]);
  return Object.fromEntries(tensors);
}

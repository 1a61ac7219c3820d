/** onnxruntime-web, as far as it is used here. It is no dependency: whoever wants to run models has it installed, or hands it over. */
import { ScalepointError } from '../../../core/errors.js';
import { nodeModule } from '../../../core/node.js';
import type { Hint } from '../../../core/option-problem.js';
import type { Runtime } from '../../run.js';

/** A value that goes into a model or comes out of it. */
export interface RuntimeTensor {
  readonly type: string;
  readonly dims: readonly number[];
  readonly data: ArrayLike<number | bigint | string>;
}

/** What a session says about an input. */
export interface InputMetadata {
  readonly name: string;
  readonly isTensor: boolean;
  readonly type: string;
  /** Dimensions that are not fixed have a name, which may be empty. */
  readonly shape: readonly (number | string)[];
}

export interface Session {
  readonly inputMetadata: readonly InputMetadata[];
  readonly outputNames: readonly string[];
  run(
    feeds: Readonly<Record<string, RuntimeTensor>>,
    options: { readonly logSeverityLevel: 4 },
  ): Promise<Readonly<Record<string, RuntimeTensor>>>;
  release(): Promise<void>;
}

/** The same with the types that are used. */
export interface TypedRuntime {
  readonly InferenceSession: { create(model: Uint8Array, options?: object): Promise<Session> };
  readonly Tensor: new (type: string, data: unknown, dims: readonly number[]) => RuntimeTensor;
}

const name = 'onnxruntime-web';

/** The runtime that was given, or the one that is installed. @throws ScalepointError `RUNTIME` */
export async function loadRuntime(given: Runtime | undefined): Promise<TypedRuntime> {
  if (given !== undefined) return given as TypedRuntime;
  let found: TypedRuntime & { env?: { logLevel?: string; wasm?: { numThreads?: number } } };
  try {
    // Bundlers do not look for it, so that pages that run no models need not have it.
    found = await import(/* @vite-ignore */ /* webpackIgnore: true */ name);
  } catch (cause) {
    const message =
      'running models takes onnxruntime-web: npm install onnxruntime-web; in a page, import it and pass it as run.runtime';
    throw new ScalepointError('RUNTIME', message, { cause });
  }
  if (found.env !== undefined) found.env.logLevel = 'fatal';
  // Its threads would keep a process of Node alive.
  if (found.env?.wasm !== undefined && nodeModule('node:os') !== undefined) found.env.wasm.numThreads = 1;
  return found;
}

/** A model as the runtime takes it. */
export interface Loadable {
  readonly bytes: Uint8Array;
  readonly externalData: readonly { readonly path: string; readonly data: Uint8Array }[];
}

/** Opens a session, hands it to `use`, closes it. Errors say which model they are about. @throws ScalepointError `RUNTIME` */
export async function withSession<T>(
  { InferenceSession }: TypedRuntime,
  { bytes, externalData }: Loadable,
  label: string,
  level: 'all' | 'disabled',
  use: (session: Session) => Promise<T>,
): Promise<T> {
  let session: Session;
  try {
    session = await InferenceSession.create(bytes, {
      graphOptimizationLevel: level,
      // What goes wrong is told by the error.
      logSeverityLevel: 4,
      ...(externalData.length === 0 ? {} : { externalData }),
    });
  } catch (cause) {
    throw failed(label, 'load', cause);
  }
  try {
    return await use(session);
  } finally {
    await session.release();
  }
}

/** An error of the runtime as one of this package. */
export function failed(
  label: string,
  what: 'load' | 'run',
  cause: unknown,
  { about = '', hint }: { about?: string; hint?: Hint } = {},
): ScalepointError {
  const text = (cause instanceof Error ? cause.message : String(cause)).trim().slice(0, 500);
  return new ScalepointError('RUNTIME', `onnxruntime-web cannot ${what} ${label}: ${text}${about}`, { cause, hint });
}

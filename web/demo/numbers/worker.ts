// Computes for the page, so that it never waits.

import { load } from 'scalepoint';
import { failureOf, NumbersEngine } from './engine.js';

/** A call of the page. */
export interface PageCall {
  readonly id: number;
  readonly name: 'view' | 'text' | 'files' | 'tensor' | 'drop' | 'pack';
  readonly values: readonly unknown[];
}

/** A message to the page. The first one, with id 0, says that the core is loaded. */
export type WorkerReply =
  | { readonly id: number; readonly value: unknown }
  | {
      readonly id: number;
      readonly error: ReturnType<typeof failureOf> & { readonly isFileError: boolean; details: unknown };
    };

const errorReply = (id: number, error: unknown): WorkerReply => {
  const { name, tensor, byteOffset } = error as { name?: unknown; tensor?: unknown; byteOffset?: unknown };
  return { id, error: { ...failureOf(error), isFileError: name === 'FileError', details: { tensor, byteOffset } } };
};

const engine = load({ blocks: true }).then((core) => {
  self.postMessage({
    id: 0,
    value: { version: core.version, simd: core.simd, buildId: core.buildId },
  } satisfies WorkerReply);
  return new NumbersEngine(core);
});
engine.catch((error: unknown) => self.postMessage(errorReply(0, error)));

self.onmessage = async ({ data: { id, name, values } }: MessageEvent<PageCall>) => {
  try {
    const target = (await engine) as unknown as Record<PageCall['name'], (...values: readonly unknown[]) => unknown>;
    self.postMessage({ id, value: await target[name](...values) } satisfies WorkerReply);
  } catch (error) {
    self.postMessage(errorReply(id, error));
  }
};

// Computes for the page, so that it never waits.
import { load } from 'scalepoint';
import { answerCalls } from '../shared/calls.js';
import type { CoreFacts } from '../shared/site.js';
import { NumbersEngine } from './engine.js';
import type { Comma } from './numbers.js';
import type { ViewRequest } from './view.js';

const core = load({ blocks: true });
const engine = core.then((loaded) => new NumbersEngine(loaded));
// Each call reports the failure.
engine.catch(() => {});

const calls = {
  /** Settles when the core is loaded. */
  async facts(): Promise<CoreFacts> {
    const { version, simd, buildId } = await core;
    return { version, simd, buildId };
  },
  view: async (wish: ViewRequest) => (await engine).view(wish),
  text: async ({ text, comma }: { text: string; comma: Comma | undefined }) => (await engine).text(text, comma),
  files: async (files: readonly File[]) => (await engine).files(files),
  tensor: async (index: number) => (await engine).tensor(index),
  drop: async (id: number) => (await engine).drop(id),
  pack: async (wish: Pick<ViewRequest, 'settings' | 'dataId'>) => (await engine).pack(wish),
};
export type NumbersCalls = typeof calls;

answerCalls(calls);

/** Judges results by their outputs: runs the original once, and each result on the backends. */
import { rangeError, ScalepointError } from '../../../core/errors.js';
import type { JudgeContext } from '../../format.js';
import { isHeldBack, mostShare } from '../../held-back.js';
import type {
  BackendJob,
  BackendName,
  JudgedOutput,
  OutputJudge,
  OutputRunOptions,
  RunBackend,
  RunTensor,
} from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { targetNamed } from '../targets.js';
import { backendIn, listening } from './execute.js';
import { hasFloat16, measureRanges, overflowsIn, tooLarge } from './float-ranges.js';
import { measureFolds } from './folds.js';
import { feedsOf, inTypesOf, runSample } from './inputs.js';
import { runnableOf } from './runnable.js';
import { loadRuntime, plainValues, runSession, withSession } from './runtime.js';
import { samplesOf } from './samples.js';
import { ComparedSamples } from './values.js';

type Feeds = BackendJob['feeds'];

/** A sample, with the outputs of the original. */
interface Expected {
  readonly feeds: Feeds;
  readonly outputs: ReadonlyMap<string, RunTensor>;
}

const failedAs = (backend: BackendName, output: string, failure: string): JudgedOutput => {
  return { backend, output, cosine: Number.NaN, sqnrDb: Number.NaN, failure };
};

/** Outputs of a result on a backend. */
async function judgeOn(
  backend: RunBackend,
  model: OnnxModel,
  expected: readonly Expected[],
  signal: AbortSignal | undefined,
): Promise<JudgedOutput[]> {
  const [first, ...others] = expected.map(({ feeds }) => inTypesOf(model, feeds)) as [Feeds, ...Feeds[]];
  const job = { model: await runnableOf(model), level: 'all', measures: false } as const;
  // Run all samples in one session, where the backend can.
  const answer = await backend.run({ ...job, feeds: first, ...(others.length > 0 && { more: others }) }, signal);
  const answers = [answer];
  if (answer.kind === 'ran') {
    for (const [i, feeds] of others.entries()) {
      const outputs = answer.more?.[i];
      answers.push(outputs ? { ...answer, outputs } : await backend.run({ ...job, feeds }, signal));
    }
  }
  signal?.throwIfAborted();
  // Compare the outputs over all samples.
  const compared = new ComparedSamples();
  for (const [i, one] of answers.entries()) {
    if (one.kind === 'noAdapter') throw new ScalepointError('RUNTIME', `${backend.name}: ${one.text}`);
    if (one.kind !== 'ran') return [failedAs(backend.name, '', one.text)];
    compared.add((expected[i] as Expected).outputs, new Map(Object.entries(one.outputs)));
  }
  const { outputs, skippedOutputs } = compared.result();
  const different = skippedOutputs.filter(({ reason }) => reason.kind !== 'notNumbers');
  if (outputs.length + different.length === 0) {
    throw new ScalepointError('RUNTIME', 'the model has no outputs of numbers, by which results could be judged');
  }
  return [
    ...outputs.map(({ name: output, error: { cosine, sqnrDb }, mismatched }): JudgedOutput => {
      if (mismatched > 0) return failedAs(backend.name, output, 'NaN or infinite where the original is not');
      return { backend: backend.name, output, cosine, sqnrDb };
    }),
    ...different.map(({ name, reason }) => failedAs(backend.name, name, reason.text)),
  ];
}

/** Runs the original, and returns a judge of results. See `Format.judge`. */
export async function judgeOf(
  original: OnnxModel,
  options: OutputRunOptions,
  context: JudgeContext,
): Promise<OutputJudge<OnnxModel>> {
  const { samples, dimensions = {}, backends = ['wasm'] } = options;
  const { readOptionFile, open, signal } = context;
  const runtime = await loadRuntime(options.runtime);
  const runnable = await runnableOf(original);
  signal?.throwIfAborted();
  // Run the original on wasm.
  const expected: Expected[] = [];
  const keep = (feeds: Readonly<Record<string, RunTensor>>, outputs: ReadonlyMap<string, RunTensor>) => {
    const values = new Map(Object.entries(plainValues(outputs)));
    expected.push({ feeds: plainValues(Object.entries(feeds)), outputs: values });
    signal?.throwIfAborted();
  };
  const label = 'the original';
  const run = () =>
    withSession(runtime, runnable, { label }, async (session) => {
      if (samples === undefined) {
        const { values } = await feedsOf({ runtime, session }, runnable, options, readOptionFile);
        keep(values, await runSession(session, values, label));
        return;
      }
      for await (const sample of samplesOf('run.samples', samples, original, { open, signal }).read()) {
        const opened = { runtime, session, known: runnable, dimensions };
        const { feeds, outputs } = await runSample(opened, sample, `${label} on ${sample.path}`);
        keep(feeds, outputs);
      }
    });
  await (backends.includes('webgpu') ? listening(runtime, run) : run());
  // Judge results by it.
  let measured: Awaited<ReturnType<typeof measureRanges>> | undefined;
  const rangesOf = async () => {
    const samples = expected.map(({ feeds }) => feeds);
    measured ??= await measureRanges(runtime, original, runnable, samples);
    return measured;
  };
  const places = backends.map((one) => backendIn(runtime, one));
  let kept: readonly Expected[] = expected;
  return {
    async judge(made, only) {
      const judged: JudgedOutput[] = [];
      const overflows = hasFloat16(made) ? overflowsIn(made, tooLarge(original, await rangesOf())) : [];
      signal?.throwIfAborted();
      if (overflows.length > 0) {
        const worst = Math.max(...overflows.map(({ largest }) => largest));
        const list = overflows.slice(0, 3).map(({ value, op }) => `${value} (${op})`);
        const more = overflows.length > list.length ? ', …' : '';
        const reach = Math.round(worst).toLocaleString('en');
        const text = `activations reach ${reach}, which float16 cannot hold on a GPU: ${list.join(', ')}${more}`;
        const chosen = places.filter(({ name }) => only === undefined || name === only);
        return chosen.map(({ name }) => ({ ...failedAs(name, '', text), overflows }));
      }
      for (const place of places) {
        if (only === undefined || place.name === only) judged.push(...(await judgeOn(place, made, kept, signal)));
      }
      return judged;
    },

    async ranges(to) {
      if (targetNamed(to).half !== true) return undefined;
      const ranges = await rangesOf();
      return tooLarge(original, ranges).size === 0 ? undefined : ranges;
    },

    async folds() {
      const isJudged = (_: Expected, i: number) => isHeldBack(i, mostShare);
      if (samples === undefined || expected.length < 2)
        throw rangeError('run.samples', { kind: 'number', min: 2, unit: 'samples' }, expected.length);
      kept = expected.filter(isJudged);
      const feeds = expected.filter((one, i) => !isJudged(one, i)).map((one) => one.feeds);
      return measureFolds(runtime, original, runnable, feeds);
    },
  };
}

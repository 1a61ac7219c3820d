/** Judges results by their outputs: runs the original once, and each result on the backends. */
import { rangeError, ScalepointError } from '../../../core/errors.js';
import { quoted } from '../../files/bytes.js';
import type { JudgeContext } from '../../format.js';
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
import { backendIn, hasFloat16 } from './backends.js';
import { listening } from './execute.js';
import { measureRanges, overflowsIn, overflowText, tooLarge } from './float-ranges.js';
import { feedsOf, inTypesOf } from './inputs.js';
import { ComparedSamples, outputsOf, sampleFeeds } from './on-samples.js';
import { runnableOf } from './runnable.js';
import { loadRuntime, type RuntimeTensor, withSession } from './runtime.js';
import { openInputs, samplesOf } from './samples.js';

type Feeds = BackendJob['feeds'];

/** A sample, with the outputs of the original. */
interface Expected {
  readonly feeds: Feeds;
  readonly outputs: ReadonlyMap<string, RunTensor>;
}

/** A value as plain data, which outlives its session. */
const plain = ({ type, dims, data }: RuntimeTensor): RunTensor => ({ type, dims: [...dims], data });
const plainFeeds = (values: Readonly<Record<string, RuntimeTensor>>): Feeds =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, plain(value)]));

/** Runs the original on wasm. */
async function expectedOf(
  original: OnnxModel,
  options: OutputRunOptions,
  { readOptionFile, open, signal }: JudgeContext,
): Promise<Expected[]> {
  const { samples, dimensions = {}, backends } = options;
  const runtime = await loadRuntime(options.runtime);
  const runnable = await runnableOf(original);
  signal?.throwIfAborted();
  const run = () =>
    withSession(runtime, runnable, 'the original', 'all', async (session) => {
      const expected: Expected[] = [];
      const add = async (values: Record<string, RuntimeTensor>, label: string) => {
        const outputs = await outputsOf(session, values, label);
        expected.push({
          feeds: plainFeeds(values),
          outputs: new Map([...outputs].map(([name, value]) => [name, plain(value)])),
        });
        signal?.throwIfAborted();
      };
      if (samples === undefined) {
        const { values } = await feedsOf(runtime, session.inputMetadata, runnable, options, readOptionFile);
        await add(values, 'the original');
        return expected;
      }
      const inputs = openInputs(original);
      const opened = { runtime, session, known: runnable, dimensions };
      for await (const { path, inputs: arrays } of samplesOf('run.samples', samples, inputs, open, signal).read()) {
        const feeds = sampleFeeds(opened, arrays, (name) => `${path}[${quoted(name)}]`);
        await add(feeds, `the original on ${path}`);
      }
      if (expected.length === 0) throw rangeError('run.samples', { kind: 'number', min: 1, unit: 'samples' }, 0);
      return expected;
    });
  return backends?.includes('webgpu') ? listening(runtime, run) : run();
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
  const { signal } = context;
  const expected = await expectedOf(original, options, context);
  const runtime = await loadRuntime(options.runtime);
  const { backends = ['wasm'] } = options;
  const runnable = await runnableOf(original);
  let measured: Awaited<ReturnType<typeof measureRanges>> | undefined;
  const rangesOf = async () => {
    const samples = expected.map(({ feeds }) => feeds);
    measured ??= await measureRanges(runtime, original, runnable, samples);
    return measured;
  };
  const places = backends.map((one) => (typeof one === 'string' ? backendIn(runtime, one) : one));
  return {
    async judge(made, only) {
      const judged: JudgedOutput[] = [];
      const overflows = hasFloat16(made) ? overflowsIn(made, tooLarge(original, await rangesOf())) : [];
      signal?.throwIfAborted();
      if (overflows.length > 0) {
        const chosen = places.filter(({ name }) => only === undefined || name === only);
        return chosen.map(({ name }) => ({ ...failedAs(name, '', overflowText(overflows)), overflows }));
      }
      for (const place of places) {
        if (only === undefined || place.name === only) judged.push(...(await judgeOn(place, made, expected, signal)));
      }
      return judged;
    },

    async ranges(to) {
      if (targetNamed(to).half !== true) return undefined;
      const ranges = await rangesOf();
      return tooLarge(original, ranges).size === 0 ? undefined : ranges;
    },
  };
}

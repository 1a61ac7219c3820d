/** Compares the outputs of two models over samples. */
import { rangeError } from '../../../core/errors.js';
import { quoted } from '../../files/bytes.js';
import type {
  CollectRunsOptions,
  LogitsOptions,
  ModelRuns,
  ModelSamples,
  OutputsEvaluation,
  OutputsOf,
} from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { ComparedSamples, outputsOf, sampleFeeds } from './on-samples.js';
import { runnableOf } from './runnable.js';
import { loadRuntime, withSession } from './runtime.js';
import { openInputs, samplesOf } from './samples.js';

/** Opens a model to give outputs. @throws ScalepointError `RUNTIME` */
export async function withRunOutputs<T>(
  model: OnnxModel,
  { runtime: given, dimensions = {}, signal }: LogitsOptions,
  label: string,
  use: (outputs: OutputsOf) => Promise<T>,
): Promise<T> {
  const runtime = await loadRuntime(given);
  const runnable = await runnableOf(model);
  signal?.throwIfAborted();
  return withSession(runtime, runnable, label, 'all', (session) =>
    use(async (arrays, path) => {
      const opened = { runtime, session, known: runnable, dimensions };
      const feeds = sampleFeeds(opened, arrays, (name) => `${path}[${quoted(name)}]`);
      return outputsOf(session, feeds, `${label} on ${path}`);
    }),
  );
}

/** Compares the outputs of a model with those of a reference. See `evaluateModel`. */
export function evaluateOutputs(
  model: OnnxModel,
  data: ModelSamples,
  reference: Pick<ModelRuns, 'withOutputs'>,
  options: Pick<CollectRunsOptions, 'runtime' | 'dimensions' | 'option' | 'open' | 'signal'>,
  onSample: (done: number) => Promise<void>,
): Promise<OutputsEvaluation> {
  const { option, open, signal } = options;
  const inputs = openInputs(model);
  const samples = samplesOf(option, data, inputs, open, signal);
  return reference.withOutputs(options, 'the reference', (expected) =>
    withRunOutputs(model, options, 'the model', async (found) => {
      const compared = new ComparedSamples();
      let done = 0;
      for await (const { path, inputs: arrays } of samples.read()) {
        signal?.throwIfAborted();
        done = compared.add(await expected(arrays, path), await found(arrays, path));
        await onSample(done);
        signal?.throwIfAborted();
      }
      if (done === 0) throw rangeError(option, { kind: 'number', min: 1, unit: 'samples' }, 0);
      return compared.result();
    }),
  );
}

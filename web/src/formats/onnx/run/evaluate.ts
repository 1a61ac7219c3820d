/** Compares the outputs of two models over samples. */
import { rangeError } from '../../../core/errors.js';
import { addSums, measuresOf, mismatchesOf, nonFiniteOf, sumCount } from '../../../core/measure.js';
import { quoted } from '../../../files/bytes.js';
import type {
  CollectRunsOptions,
  EvaluatedOutput,
  LogitsOptions,
  ModelRuns,
  ModelSamples,
  OutputsEvaluation,
  OutputsOf,
  SkippedOutputReason,
} from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { feedsFrom } from './inputs.js';
import { runnableOf } from './runnable.js';
import { failed, loadRuntime, withSession } from './runtime.js';
import { samplesOf } from './samples.js';
import { sumsOf } from './sums.js';
import { onlyInA, onlyInB, runtimeNumbers, whyNotCompared } from './values.js';

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
      const pathOf = (name: string) => `${path}[${quoted(name)}]`;
      const { values } = feedsFrom(runtime, session.inputMetadata, runnable, {
        arrays,
        pathOf,
        dimensions,
        seed: 1,
        isStrict: true,
      });
      try {
        const results = await session.run(values, { logSeverityLevel: 4 });
        return new Map(session.outputNames.flatMap((name) => (results[name] ? [[name, results[name]] as const] : [])));
      } catch (cause) {
        throw failed(`${label} on ${path}`, 'run', cause);
      }
    }),
  );
}

type Outputs = Awaited<ReturnType<OutputsOf>>;
type Output = Outputs extends ReadonlyMap<string, infer One> ? One : never;

/** Errors of an output so far. */
class OutputErrors {
  readonly #sums = new Float64Array(sumCount);
  #count = 0;
  #mismatched = 0;
  #worst: EvaluatedOutput['worst'] | undefined;

  add(sample: number, reference: Output, output: Output): void {
    const [x, y] = [runtimeNumbers(reference), runtimeNumbers(output)];
    const sums = sumsOf(x, y);
    if (nonFiniteOf(sums) > 0) this.#mismatched += mismatchesOf(x, y);
    addSums(this.#sums, sums);
    this.#count += x.length;
    const error = measuresOf(sums, x.length);
    if (this.#worst === undefined || error.sqnrDb < this.#worst.error.sqnrDb) this.#worst = { sample, error };
  }

  result(name: string): EvaluatedOutput {
    const worst = this.#worst as EvaluatedOutput['worst'];
    return { name, error: measuresOf(this.#sums, this.#count), mismatched: this.#mismatched, worst };
  }
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
  const inputs = model.proto.graph.inputs.filter(({ name }) => !model.weights.some(({ value }) => value === name));
  const samples = samplesOf(option, data, inputs, open, signal);
  return reference.withOutputs(options, 'the reference', (expected) =>
    withRunOutputs(model, options, 'the model', async (found) => {
      const errors = new Map<string, OutputErrors>();
      const skipped = new Map<string, SkippedOutputReason>();
      let done = 0;
      for await (const { path, inputs: arrays } of samples.read()) {
        signal?.throwIfAborted();
        const [before, after] = [await expected(arrays, path), await found(arrays, path)];
        for (const [name, value] of before) {
          const other = after.get(name);
          const reason = other === undefined ? onlyInB : whyNotCompared(other, value);
          if (reason !== undefined && !skipped.has(name)) skipped.set(name, reason);
          if (other === undefined || skipped.has(name)) continue;
          const own = errors.get(name) ?? new OutputErrors();
          errors.set(name, own);
          own.add(done, value, other);
        }
        for (const name of after.keys()) if (!before.has(name)) skipped.set(name, onlyInA);
        await onSample(++done);
        signal?.throwIfAborted();
      }
      if (done === 0) throw rangeError(option, { kind: 'number', min: 1, unit: 'samples' }, 0);
      const compared = [...errors].filter(([name]) => !skipped.has(name));
      return {
        samples: done,
        outputs: compared.map(([name, one]) => one.result(name)),
        skippedOutputs: [...skipped].map(([name, reason]) => ({ name, reason })),
      };
    }),
  );
}

/** Runs of a model: on samples, and on tokens. */
import { ScalepointError } from '../../../core/errors.js';
import { quoted } from '../../files/bytes.js';
import type { InputArray, LogitsOf, LogitsOptions, ModelRuns, RunTensor } from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { Graphs } from '../graph/graph.js';
import { collectFromRuns } from './collect.js';
import { type OpenSession, runSample } from './inputs.js';
import { limitOf, runnableOf } from './runnable.js';
import { loadRuntime, runtimeError, withSession } from './runtime.js';
import { samplesOf } from './samples.js';
import { ComparedSamples, runtimeNumbers } from './values.js';

/** Name of the input of tokens, as in transformers.js. */
const idsName = 'input_ids';

/** Name of the output, as in transformers.js. A model with one output may name it otherwise. */
const logitsName = 'logits';

/** Values of inputs beside the tokens, by name. Others follow from their shapes. */
const besides: Readonly<Record<string, (i: number) => number>> = {
  attention_mask: () => 1,
  token_type_ids: () => 0,
  position_ids: (i) => i,
};

/** Opens a model to be run on samples. @param label names it in errors. @throws ScalepointError `RUNTIME` */
async function withOpenSession<T>(
  model: OnnxModel,
  { runtime: given, dimensions = {}, signal }: LogitsOptions,
  label: string,
  use: (opened: OpenSession) => Promise<T>,
): Promise<T> {
  const runtime = await loadRuntime(given);
  const runnable = await runnableOf(model);
  signal?.throwIfAborted();
  return withSession(runtime, runnable, { label }, (session) => use({ runtime, session, known: runnable, dimensions }));
}

/** The runs of a model that a runtime runs. */
export function modelRunsOf(model: OnnxModel): ModelRuns {
  const { graph } = model.proto;
  const names = graph.inputs.map(({ name }) => name);
  const runs: ModelRuns = {
    tokens: names.includes(idsName) ? (limitOf(new Graphs(model), graph, idsName) ?? 2 ** 32 - 1) : undefined,
    // Classifiers have logits, too, a row for each text.
    hasLogits: graph.outputs.some(({ name, shape }) => name === logitsName && (shape?.length ?? 3) === 3),

    sampleOf(ids) {
      const shape = [1, ids.length];
      const sample: Record<string, InputArray> = { [idsName]: { data: ids, shape } };
      for (const [name, value] of Object.entries(besides)) {
        if (names.includes(name)) sample[name] = { data: Float64Array.from(ids, (_, i) => value(i)), shape };
      }
      return sample;
    },

    collect: (samples, options, hooks) => collectFromRuns(model, samples, options, hooks),

    withOutputs: (options, label, use) =>
      withOpenSession(model, options, label, (opened) =>
        use(async (inputs, path) => (await runSample(opened, { path, inputs }, `${label} on ${path}`)).outputs),
      ),

    evaluate(data, reference, options, onSample) {
      const samples = samplesOf(options.option, data, model, options);
      return reference.withOutputs(options, 'the reference', (expected) =>
        runs.withOutputs(options, 'the model', async (found) => {
          const compared = new ComparedSamples();
          for await (const { path, inputs } of samples.read()) {
            options.signal?.throwIfAborted();
            await onSample(compared.add(await expected(inputs, path), await found(inputs, path)));
            options.signal?.throwIfAborted();
          }
          return compared.result();
        }),
      );
    },

    withLogits(options, use) {
      // Find the output. Caches are empty, and their outputs are not taken.
      const { outputs } = graph;
      const named = outputs.find(({ name }) => name === logitsName) ?? (outputs.length === 1 ? outputs[0] : undefined);
      if (named === undefined) {
        const text = `the model has no output ${quoted(logitsName)}, so that it cannot be judged on texts`;
        throw new ScalepointError('UNKNOWN_FORMAT', text);
      }
      const { name } = named;
      return withOpenSession(model, options, 'the model', async (opened) => {
        // Run one text, and check the shape of its logits.
        const run = async (ids: Uint32Array): Promise<RunTensor & { readonly vocabulary: number }> => {
          const sample = { path: 'inputs', inputs: new Map(Object.entries(runs.sampleOf(ids))) };
          const result = (await runSample(opened, sample, 'the model', [name])).outputs.get(name);
          if (result === undefined) throw runtimeError('run the model', `no output ${quoted(name)}`);
          const { dims } = result;
          const [batch, rows, vocabulary] = dims;
          if (dims.length === 3 && batch === 1 && rows === ids.length && vocabulary !== undefined) {
            return { type: result.type, dims, data: result.data, vocabulary };
          }
          const text = `the output ${quoted(name)} has the shape ${dims.join(' × ')}, and logits of ${ids.length} tokens have 1 × ${ids.length} × vocabulary`;
          throw new ScalepointError('UNKNOWN_FORMAT', text);
        };
        // The shape that the graph declares may leave the vocabulary open.
        const { vocabulary } = await run(Uint32Array.of(0, 0));
        const logits: LogitsOf = async (ids) => {
          const numbers = runtimeNumbers(await run(ids));
          return numbers instanceof Float32Array ? (numbers as Float32Array<ArrayBuffer>) : Float32Array.from(numbers);
        };
        return use(logits, vocabulary);
      });
    },
  };
  return runs;
}

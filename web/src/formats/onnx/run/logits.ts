/** Runs language models: ids of tokens in, logits out. */
import { ScalepointError } from '../../../core/errors.js';
import { quoted } from '../../files/bytes.js';
import type { LogitsOf, LogitsOptions, ModelSample } from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { outputsOf, sampleFeeds } from './on-samples.js';
import { runnableOf } from './runnable.js';
import { failed, loadRuntime, withSession } from './runtime.js';
import { runtimeNumbers } from './values.js';

/** Name of the output, as in transformers.js. A model with one output may name it otherwise. */
export const logitsName = 'logits';

/**
 * Opens a model, and hands `use` a function for the logits of texts: rows of the vocabulary, one for each token. Caches are empty, and their
 * outputs are not taken.
 * @throws ScalepointError `RUNTIME`
 */
export async function withLogits<T>(
  model: OnnxModel,
  sampleOf: (ids: Uint32Array) => ModelSample,
  { runtime: given, dimensions = {}, signal }: LogitsOptions,
  use: (logits: LogitsOf, vocabulary: number) => Promise<T>,
): Promise<T> {
  // Find the output.
  const { outputs } = model.proto.graph;
  const name =
    outputs.find((output) => output.name === logitsName)?.name ?? (outputs.length === 1 ? outputs[0]?.name : undefined);
  if (name === undefined) {
    throw new ScalepointError(
      'UNKNOWN_FORMAT',
      `the model has no output ${quoted(logitsName)}, so that it cannot be judged on texts`,
    );
  }
  const runtime = await loadRuntime(given);
  const runnable = await runnableOf(model);
  signal?.throwIfAborted();
  return withSession(runtime, runnable, 'the model', 'all', async (session) => {
    // Run one text.
    const run = async (ids: Uint32Array) => {
      const arrays = new Map(Object.entries(sampleOf(ids)));
      const opened = { runtime, session, known: runnable, dimensions };
      const feeds = sampleFeeds(opened, arrays, (input) => `inputs[${quoted(input)}]`);
      const result = (await outputsOf(session, feeds, 'the model', [name])).get(name);
      if (result !== undefined) return result;
      throw failed('the model', 'run', `no output ${quoted(name)}`);
    };
    // Check the shape of the logits.
    const check = ({ dims }: Awaited<ReturnType<typeof run>>, tokens: number): number => {
      const [batch, rows, vocabulary] = dims;
      if (dims.length === 3 && batch === 1 && rows === tokens && vocabulary !== undefined) return vocabulary;
      const text = `the output ${quoted(name)} has the shape ${dims.join(' × ')}, and logits of ${tokens} tokens have 1 × ${tokens} × vocabulary`;
      throw new ScalepointError('UNKNOWN_FORMAT', text);
    };
    // The shape that the graph declares may leave the vocabulary open.
    const vocabulary = check(await run(Uint32Array.of(0, 0)), 2);
    const logits: LogitsOf = async (ids) => {
      const result = await run(ids);
      check(result, ids.length);
      const numbers = runtimeNumbers(result);
      return numbers instanceof Float32Array ? (numbers as Float32Array<ArrayBuffer>) : Float32Array.from(numbers);
    };
    return use(logits, vocabulary);
  });
}

/** Runs two models on the same inputs in onnxruntime-web, and compares their outputs. */

import { type Hint, mention } from '../../../core/option-problem.js';
import type { ReadOptionFile } from '../../format.js';
import type { BackendJob, ComparedLayer, RunInput, RunOptions, RunReport, RunTensor } from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { backendIn, type ComparedModel, hasFloat16, innerValues, runOnBackends } from './backends.js';
import { listening } from './execute.js';
import { measureRanges, overflowsIn, tooLarge } from './float-ranges.js';
import { type Feeds, feedsOf, inTypesOf } from './inputs.js';
import { type GraphValue, type RunnableModel, runnableOf, withGraphOutputs } from './runnable.js';
import { failed, type Loadable, loadRuntime, type RuntimeTensor, type TypedRuntime, withSession } from './runtime.js';
import { compareOutputs, compareValue, whyNotCompared } from './values.js';

type Values = ReadonlyMap<string, RunTensor>;

/** A value as plain data, which can be sent elsewhere. */
const plain = ({ type, dims, data }: RuntimeTensor): RunTensor => ({ type, dims, data });

/** Words about guessed sizes, and the option to set them. */
function guessesOf(guessed: ReadonlyMap<string, number>): { about?: string; hint?: Hint } {
  if (guessed.size === 0) return {};
  const list = [...guessed].slice(0, 6).map(([name, size]) => `${name} ${size}`);
  const more = guessed.size > list.length ? ', …' : '';
  return {
    about: `; sizes were guessed: ${list.join(', ')}${more}`,
    hint: { kind: 'try', option: mention('run.dimensions'), effect: 'sets others' },
  };
}

/** Runs a model once. Copies the outputs, which end with the session. */
async function runOnce(
  runtime: TypedRuntime,
  model: Loadable,
  label: string,
  level: 'all' | 'disabled',
  feedsFor: (session: Parameters<Parameters<typeof withSession>[4]>[0]) => Promise<Feeds>,
): Promise<Values> {
  return withSession(runtime, model, label, level, async (session) => {
    const { values, guessed } = await feedsFor(session);
    try {
      // Log nothing: the error has the message.
      const results = await session.run(values, { logSeverityLevel: 4 });
      return new Map(session.outputNames.map((name) => [name, plain(results[name] as RuntimeTensor)]));
    } catch (cause) {
      throw failed(label, 'run', cause, guessesOf(guessed));
    }
  });
}

/** SQNR in dB that counts as lossless. */
const most = 60;

/** Compared layers, with the loss of each. */
function layersOf(values: readonly GraphValue[], a: Values, b: Values): ComparedLayer[] {
  const known = new Map<string, number>();
  return values.flatMap(({ name, op, inputs }) => {
    const [x, y] = [a.get(name), b.get(name)];
    if (x === undefined || y === undefined || whyNotCompared(x, y) !== undefined) return [];
    const compared = compareValue(name, x, y);
    const sqnr = Math.min(most, compared.error.sqnrDb);
    known.set(name, sqnr);
    const before = inputs.reduce((least, input) => Math.min(least, known.get(input) ?? most), most);
    return [{ ...compared, op, lossDb: Math.max(0, before - sqnr) }];
  });
}

/** Values that both models compute. */
function common(a: RunnableModel, b: RunnableModel): GraphValue[] {
  const inB = new Set(b.values.map(({ name }) => name));
  return a.values.filter(({ name }) => inB.has(name));
}

/** Runs both models. See `compareModels`. */
export async function compareRuns(
  a: OnnxModel,
  b: OnnxModel,
  options: RunOptions,
  readOptionFile: ReadOptionFile,
  signal?: AbortSignal,
): Promise<RunReport> {
  const { backends, layers: wantsLayers = false } = options;
  const runtime = await loadRuntime(options.runtime);
  const [first, second] = [await runnableOf(a), await runnableOf(b)];
  signal?.throwIfAborted();

  // Run both on wasm, which is the reference of all backends.
  let feeds: Feeds | undefined;
  const runBoth = async (models: readonly [Loadable, Loadable], level: 'all' | 'disabled') => {
    const before = await runOnce(runtime, models[0], 'A', level, async ({ inputMetadata }) => {
      feeds ??= await feedsOf(runtime, inputMetadata, first, options, readOptionFile);
      return feeds;
    });
    signal?.throwIfAborted();
    const after = await runOnce(runtime, models[1], 'B', level, async () => {
      const { values, ...rest } = feeds as Feeds;
      const inTypes = Object.entries(inTypesOf(b, values as BackendJob['feeds']));
      const tensors = inTypes.map(([name, { type, data, dims }]) => [name, new runtime.Tensor(type, data, dims)]);
      return { ...rest, values: Object.fromEntries(tensors) };
    });
    signal?.throwIfAborted();
    return [before, after] as const;
  };
  const start = () => runBoth([first, second], 'all');
  const [before, after] = backends?.includes('webgpu') ? await listening(runtime, start) : await start();
  const { outputs, skippedOutputs } = compareOutputs(before, after);
  const { values: fed, guessed, given } = feeds as unknown as Feeds;
  const inputs = Object.entries(fed).map(
    ([name, { dims: shape }]): RunInput => ({ name, shape, isGiven: given.has(name) }),
  );
  let report: RunReport = { inputs, guessedSizes: Object.fromEntries(guessed), outputs, skippedOutputs };

  // wasm computes float16 in float32, where values beyond it show nothing.
  if (hasFloat16(b)) {
    const samples = [Object.fromEntries(Object.entries(fed).map(([name, value]) => [name, plain(value)]))];
    const overflows = overflowsIn(b, tooLarge(a, await measureRanges(runtime, a, first, samples)));
    signal?.throwIfAborted();
    if (overflows.length > 0) report = { ...report, overflows };
  }

  // Compare the results of nodes.
  let [inA, inB]: readonly [Values, Values] = [new Map(), new Map()];
  if (wantsLayers) {
    const values = common(first, second);
    const names = values.filter(({ isOutput }) => !isOutput).map(({ name }) => name);
    // Backends are held to all values of each model.
    const [namesA, namesB] = backends === undefined ? [names, names] : [innerValues(first), innerValues(second)];
    [inA, inB] = await runBoth([withGraphOutputs(first, namesA), withGraphOutputs(second, namesB)], 'disabled');
    report = { ...report, layers: layersOf(values, inA, inB) };
  }
  if (backends === undefined) return report;

  // Run both on the other backends.
  const plainFeeds = Object.fromEntries(Object.entries(fed).map(([name, value]) => [name, plain(value)]));
  const withFeeds = (values: Values): Values => new Map([...Object.entries(plainFeeds), ...values]);
  const judged: readonly [ComparedModel, ComparedModel] = [
    { model: a, runnable: first, outputs: before, values: withFeeds(inA) },
    { model: b, runnable: second, outputs: after, values: withFeeds(inB) },
  ];
  const places = backends.map((one) => (typeof one === 'string' ? backendIn(runtime, one) : one));
  return { ...report, backends: await runOnBackends(places, ...judged, plainFeeds, wantsLayers, signal) };
}

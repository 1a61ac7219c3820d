/** Runs two models on the same inputs in onnxruntime-web and on other backends, and compares their outputs. */

import { type Hint, mention } from '../../../core/option-problem.js';
import type { ReadOptionFile } from '../../format.js';
import type {
  BackendAnswer,
  BackendJob,
  BackendOutput,
  BackendReport,
  BackendRun,
  ComparedLayer,
  NodeCheck,
  RunBackend,
  RunInput,
  RunOptions,
  RunReport,
} from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { backendIn, listening } from './execute.js';
import { hasFloat16, measureRanges, overflowsIn, tooLarge } from './float-ranges.js';
import { type Feeds, feedsOf, inTypesOf } from './inputs.js';
import { checkNodes, type RanModel } from './nodes.js';
import { type GraphValue, type RunnableModel, runnableOf, withGraphOutputs } from './runnable.js';
import { type Loadable, loadRuntime, plainValues, runSession, runtimeTensors, withSession } from './runtime.js';
import { compareOutputs, compareValue, type Values, whyNotCompared } from './values.js';

/** Words about guessed sizes, and the option to set them. */
function guessHints(guessed: ReadonlyMap<string, number>): { about?: string; hint?: Hint } {
  if (guessed.size === 0) return {};
  const list = [...guessed].slice(0, 6).map(([name, size]) => `${name} ${size}`);
  const more = guessed.size > list.length ? ', …' : '';
  return {
    about: `; sizes were guessed: ${list.join(', ')}${more}`,
    hint: { kind: 'try', option: mention('run.dimensions'), effect: 'sets others' },
  };
}

const asMap = (values: BackendJob['feeds']): Values => new Map(Object.entries(values));

/** SQNR in dB that counts as lossless. */
const most = 60;

/** Compares the values of nodes, with the loss of each. */
function compareLayers(values: readonly GraphValue[], a: Values, b: Values): ComparedLayer[] {
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

/** Names of values that nodes compute, beside outputs. */
const innerValues = (values: readonly GraphValue[]): string[] =>
  values.filter(({ isOutput }) => !isOutput).map(({ name }) => name);

/** A model, and its run on wasm. */
interface ComparedModel extends RanModel {
  /** Outputs with all optimizations. */
  readonly outputs: Values;
}

/**
 * Runs one model on a backend.
 * @param original outputs of the first model on wasm
 * @param reference the model that nodes are held to; undefined without checks of nodes
 * @param given inputs of the first model
 */
async function runOn(
  backend: RunBackend,
  { model, runnable, values, outputs: onWasm }: ComparedModel,
  { original, reference }: { readonly original: Values; readonly reference: RanModel | undefined },
  { given, signal }: { readonly given: BackendJob['feeds']; readonly signal: AbortSignal | undefined },
): Promise<{ readonly answer: BackendAnswer; readonly result: BackendRun }> {
  const feeds = inTypesOf(model, given);
  const ask = async (job: BackendJob) => {
    const answer = await backend.run(job, signal);
    signal?.throwIfAborted();
    return answer;
  };
  const answer = await ask({ model: runnable, feeds, level: 'all', measures: true });
  if (answer.kind !== 'ran') {
    const lacksFloat16 = answer.adapter?.hasFloat16 === false && hasFloat16(model);
    const kind = answer.kind !== 'noAdapter' && lacksFloat16 ? 'needsFloat16' : answer.kind;
    return { answer, result: { kind, text: answer.text } };
  }
  const { outputs: all, skippedOutputs } = compareOutputs(original, asMap(answer.outputs));
  const outputs = all.map((output): BackendOutput => {
    const [own, here] = [onWasm.get(output.name), answer.outputs[output.name]];
    if (backend.name === 'wasm' || own === undefined || here === undefined) return output;
    return { ...output, own: compareValue(output.name, own, here).error };
  });
  let nodes: NodeCheck | undefined;
  if (reference !== undefined) {
    const whole = withGraphOutputs(model, runnable, innerValues(runnable.values));
    const ran = await ask({ model: whole, feeds, level: 'disabled', measures: false });
    const tested = { model, runnable, values };
    if (ran.kind === 'ran')
      nodes = await checkNodes(reference, { ...tested, onBackend: asMap(ran.outputs) }, feeds, ask);
  }
  const { times = { firstSeconds: Number.NaN, seconds: Number.NaN, runs: 0 }, placement } = answer;
  const more = { ...(placement && { placement }), ...(nodes && { nodes }) };
  return { answer, result: { kind: 'ran', outputs, skippedOutputs, times, ...more } };
}

/** Runs both models. See `compareModels`. */
export async function compareOnnxRuns(
  a: OnnxModel,
  b: OnnxModel,
  options: RunOptions & { readonly signal: AbortSignal | undefined },
  readOptionFile: ReadOptionFile,
): Promise<RunReport> {
  const { backends, layers: wantsLayers = false, signal } = options;
  const runtime = await loadRuntime(options.runtime);
  const [first, second] = [await runnableOf(a), await runnableOf(b)];
  signal?.throwIfAborted();

  // Run both on wasm, which is the reference of all backends.
  let found: Feeds | undefined;
  const runBoth = async (models: readonly [Loadable, Loadable], level: 'all' | 'disabled') => {
    const before = await withSession(runtime, models[0], { label: 'A', level }, async (session) => {
      found ??= await feedsOf({ runtime, session }, first, options, readOptionFile);
      return runSession(session, found.values, 'A', guessHints(found.guessed));
    });
    signal?.throwIfAborted();
    const { values, guessed, given } = found as Feeds;
    const feeds = plainValues(Object.entries(values));
    const after = await withSession(runtime, models[1], { label: 'B', level }, (session) =>
      runSession(session, runtimeTensors(runtime, inTypesOf(b, feeds)), 'B', guessHints(guessed)),
    );
    signal?.throwIfAborted();
    return { before: asMap(plainValues(before)), after: asMap(plainValues(after)), feeds, guessed, given };
  };
  const start = () => runBoth([first, second], 'all');
  const run = await (backends?.includes('webgpu') ? listening(runtime, start) : start());
  const { before, after, feeds, guessed, given } = run;
  const { outputs, skippedOutputs } = compareOutputs(before, after);
  const inputs = Object.entries(feeds).map(
    ([name, { dims: shape }]): RunInput => ({ name, shape, isGiven: given.has(name) }),
  );
  let report: RunReport = { inputs, guessedSizes: Object.fromEntries(guessed), outputs, skippedOutputs };

  // wasm computes float16 in float32, where values beyond it show nothing.
  if (hasFloat16(b)) {
    const overflows = overflowsIn(b, tooLarge(a, await measureRanges(runtime, a, first, [feeds])));
    signal?.throwIfAborted();
    if (overflows.length > 0) report = { ...report, overflows };
  }

  // Compare the results of nodes that are in both models.
  let [inA, inB]: readonly [Values, Values] = [new Map(), new Map()];
  if (wantsLayers) {
    const named = new Set(second.values.map(({ name }) => name));
    const values = first.values.filter(({ name }) => named.has(name));
    // Backends are held to all values of each model.
    const outputsFor = (model: OnnxModel, runnable: RunnableModel) =>
      withGraphOutputs(model, runnable, innerValues(backends === undefined ? values : runnable.values));
    const inside = await runBoth([outputsFor(a, first), outputsFor(b, second)], 'disabled');
    [inA, inB] = [inside.before, inside.after];
    report = { ...report, layers: compareLayers(values, inA, inB) };
  }
  if (backends === undefined) return report;

  // Run both on the other backends. Nodes of the second one are held to the first one on wasm, and elsewhere each to itself.
  const withFeeds = (values: Values): Values => new Map([...Object.entries(feeds), ...values]);
  const original = { model: a, runnable: first, outputs: before, values: withFeeds(inA) };
  const made = { model: b, runnable: second, outputs: after, values: withFeeds(inB) };
  const reports: BackendReport[] = [];
  for (const backend of backends.map((one) => backendIn(runtime, one))) {
    const isWasm = backend.name === 'wasm';
    const more = { given: feeds, signal };
    const referenceOf = (model: ComparedModel | undefined) => ({
      original: before,
      reference: wantsLayers ? model : undefined,
    });
    const { result } = await runOn(backend, original, referenceOf(isWasm ? undefined : original), more);
    const last = await runOn(backend, made, referenceOf(isWasm ? original : made), more);
    const { runtime: name, adapter } = last.answer;
    reports.push({ backend: backend.name, runtime: name, ...(adapter && { adapter }), a: result, b: last.result });
  }
  return { ...report, backends: reports };
}

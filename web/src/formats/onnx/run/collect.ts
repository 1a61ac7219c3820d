/** Runs a model on samples, and adds up sums over the inputs of its weights. */
import { rangeError, ScalepointError } from '../../../core/errors.js';
import { mention } from '../../../core/option-problem.js';
import { quoted } from '../../files/bytes.js';
import { isHeldBack } from '../../held-back.js';
import type { CollectedSums, CollectHooks, CollectRunsOptions, ModelSamples, SummedInputs } from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { rangedValues } from '../graph/activations.js';
import { Graphs } from '../graph/graph.js';
import { floatValues } from './float-ranges.js';
import { feedsFrom } from './inputs.js';
import { findInputs, type JointInputs, reasonFor } from './product-inputs.js';
import { SampleRun } from './resume.js';
import { type RunnableModel, runnableOf } from './runnable.js';
import { failed, loadRuntime, type RuntimeTensor, type Session, type TypedRuntime, withSession } from './runtime.js';
import { type NamedSample, openInputs, type Samples, samplesOf } from './samples.js';
import { type SumOutputs, SumsGraph } from './sums-graph.js';

/**
 * Most bytes of the squares of a pass together, unless a single one has more. An entry takes 12 bytes: 4 in the runtime, 4 of its output,
 * 4 of sums in float64, of which half is kept, because squares are symmetric; and 4 for those of held-back samples.
 */
const mostBytes = 12 * 2 ** 25;

/** Sums over all samples so far. */
interface OpenSums extends SummedInputs {
  readonly shared: JointInputs;
  rows: number;
  heldBackRows: number;
  /** Upper triangle of the sums of products, row by row; undefined if they are not wanted in this pass. */
  moments: Float64Array<ArrayBuffer> | undefined;
  /** Upper triangle of the sums of products of held-back samples. */
  heldBack: Float64Array<ArrayBuffer> | undefined;
}

/** A pass over all samples. */
interface Pass {
  readonly squares: readonly OpenSums[];
  readonly moments: readonly OpenSums[];
}

/** Inputs of convolutions have importance alone: products of all columns would be those of patches. */
const hasMoments = ({ inputs }: JointInputs) => inputs.every(({ place }) => place !== 'channels');

/** Splits the work into passes. */
function passesOf(all: readonly OpenSums[], wantsMoments: boolean, holdsBack: boolean): Pass[] {
  if (!wantsMoments) return [{ squares: all, moments: [] }];
  const groups: OpenSums[][] = [];
  const mostEntries = mostBytes / (holdsBack ? 16 : 12);
  let entries = Number.POSITIVE_INFINITY;
  for (const sums of all) {
    if (!hasMoments(sums.shared)) continue;
    if (entries + sums.columns ** 2 > mostEntries) {
      groups.push([]);
      entries = 0;
    }
    groups.at(-1)?.push(sums);
    entries += sums.columns ** 2;
  }
  const [first, ...more] = groups;
  if (first === undefined || more.length > 0) {
    return [{ squares: all, moments: [] }, ...groups.map((moments) => ({ squares: [], moments }))];
  }
  return [{ squares: all.filter(({ shared }) => !hasMoments(shared)), moments: first }];
}

/** Outputs for some sums. */
interface Wanted {
  readonly sums: OpenSums;
  readonly outputs: readonly SumOutputs[];
}

/** Adds the model's sums for a sample. @throws ScalepointError `NON_FINITE` naming the first weight */
function addSums(
  wanted: readonly Wanted[],
  results: Readonly<Record<string, RuntimeTensor>>,
  isFirst: boolean,
  isHeld: boolean,
  path: string,
): void {
  const floatsOf = (name: string) => (results[name] as RuntimeTensor).data as Float32Array;
  for (const { sums, outputs } of wanted) {
    const { columns, squares, shared } = sums;
    const moments = isHeld ? sums.heldBack : sums.moments;
    const [name = ''] = shared.names;
    const check = (value: number) => {
      if (Number.isFinite(value)) return;
      const text = `the inputs of ${quoted(name)} are not finite, or too large to be squared, in ${path}`;
      throw new ScalepointError('NON_FINITE', text, { tensor: name });
    };
    for (const output of outputs) {
      const elements = Number(((results[output.elements] as RuntimeTensor).data as BigInt64Array)[0]);
      if (isFirst) sums.rows += elements / columns;
      if (isFirst && isHeld) sums.heldBackRows += elements / columns;
      if (output.squares !== undefined) {
        const more = floatsOf(output.squares);
        for (let i = 0; i < columns; i++) {
          check(more[i] as number);
          (squares[i] as number) += more[i] as number;
        }
      }
      if (output.moments === undefined || moments === undefined) continue;
      const more = floatsOf(output.moments);
      let at = 0;
      for (let i = 0; i < columns; i++) {
        const square = more[i * (columns + 1)] as number;
        check(square);
        if (isFirst) (squares[i] as number) += square;
        for (let j = i; j < columns; j++) (moments[at++] as number) += more[i * columns + j] as number;
      }
    }
  }
}

/**
 * Widens ranges by those of a sample.
 * @param finite values that have to be finite: those of products
 * @throws ScalepointError `NON_FINITE` naming the value
 */
function addRanges(
  ranges: Map<string, readonly [number, number]>,
  names: readonly string[],
  finite: ReadonlySet<string>,
  { data }: RuntimeTensor,
  path: string,
): void {
  for (const [i, name] of names.entries()) {
    const [least, largest] = [data[i] as number, data[names.length + i] as number];
    // Without elements, the least is Infinity.
    const isBounded = least > -Infinity && largest < Infinity;
    if (finite.has(name) && !isBounded) {
      throw new ScalepointError('NON_FINITE', `the value ${quoted(name)} is not finite in ${path}`, { tensor: name });
    }
    const [low, high] = ranges.get(name) ?? [least, largest];
    ranges.set(name, [Math.min(low, least), Math.max(high, largest)]);
  }
}

/** The means of products over rows, as a whole square. */
function meansOf(columns: number, rows: number, moments: Float64Array): Float32Array<ArrayBuffer> {
  const means = new Float32Array(columns * columns);
  let at = 0;
  for (let i = 0; i < columns; i++) {
    for (let j = i; j < columns; j++) {
      const mean = (moments[at++] as number) / rows;
      means[i * columns + j] = mean;
      means[j * columns + i] = mean;
    }
  }
  return means;
}

/** Hands over the means of some inputs, and frees the sums. */
async function handOver(sums: OpenSums, takeMoments: CollectHooks['takeMoments']): Promise<void> {
  const { columns, rows, heldBackRows, moments, heldBack } = sums;
  sums.moments = undefined;
  sums.heldBack = undefined;
  if (moments === undefined || rows === 0) return;
  // If held-back samples alone reached the inputs, the other sums are 0, and these take their place.
  if (heldBackRows === 0)
    heldBack?.forEach((sum, i) => {
      moments[i] = (moments[i] as number) + sum;
    });
  await takeMoments(sums, meansOf(columns, rows - heldBackRows, moments), false);
  if (heldBack !== undefined && heldBackRows > 0) {
    await takeMoments(sums, meansOf(columns, heldBackRows, heldBack), true);
  }
}

/** Takes the results of a sample. */
type TakeResults = (results: Readonly<Record<string, RuntimeTensor>>, path: string, done: number) => Promise<void>;

/** Runs a session on all samples but the first ones. Returns the number of all. @param skip called with the samples that it leaves out */
async function runAll(
  runtime: TypedRuntime,
  session: Session,
  model: RunnableModel,
  samples: Samples,
  dimensions: Readonly<Record<string, number>>,
  skip: (sample: NamedSample, index: number) => Promise<boolean>,
  take: TakeResults,
): Promise<number> {
  let done = 0;
  for await (const sample of samples.read()) {
    const { path, inputs } = sample;
    if (await skip(sample, done)) {
      done++;
      continue;
    }
    const pathOf = (name: string) => `${path}[${quoted(name)}]`;
    const given = { arrays: inputs, pathOf, dimensions, seed: 1, isStrict: true };
    const { values } = feedsFrom(runtime, session.inputMetadata, model, given);
    let results: Readonly<Record<string, RuntimeTensor>>;
    try {
      results = await session.run(values, { logSeverityLevel: 4 });
    } catch (cause) {
      throw failed(`the model on ${path}`, 'run', cause);
    }
    await take(results, path, ++done);
  }
  return done;
}

/** Collects sums over the inputs of weights. See `calibrateModel`. */
export async function collectFromRuns(
  model: OnnxModel,
  data: ModelSamples,
  options: CollectRunsOptions,
  { onSample, onSums, takeMoments }: CollectHooks,
): Promise<CollectedSums> {
  const { option, dimensions = {}, moments: wantsMoments, heldBack: share, open, signal } = options;
  const inputs = openInputs(model);
  const samples = samplesOf(option, data, inputs, open, signal);
  const graphs = new Graphs(model);
  const { shared, unreached } = findInputs(model, graphs);
  const all = shared.map((one): OpenSums => {
    const { names, columns, matrices } = one;
    return {
      shared: one,
      names,
      columns,
      matrices,
      rows: 0,
      heldBackRows: 0,
      squares: new Float64Array(columns),
      moments: undefined,
      heldBack: undefined,
    };
  });
  const passes = passesOf(all, wantsMoments, share > 0);
  if (passes.length > 1 && !samples.isRepeatable) {
    const hint = { kind: 'try', option: mention('moments', false), effect: 'takes one pass' } as const;
    throw rangeError(option, { kind: 'type', types: [`iterable that can be read ${passes.length} times`] }, data, hint);
  }
  const runtime = await loadRuntime(options.runtime);
  const runnable = await runnableOf(model);
  signal?.throwIfAborted();
  const finite = new Set(options.ranges ? rangedValues(graphs, model.weights) : []);
  const ranged = options.ranges ? [...new Set([...finite, ...floatValues(model, graphs)])] : [];
  const ranges = new Map<string, readonly [number, number]>();
  const run = new SampleRun(options.resume, passes.length, all, ranged, ranges, share > 0);
  let count = Array.isArray(data) ? data.length : run.count;
  let left: readonly OpenSums[] = all;
  const handSums = async () => {
    left = all.filter(({ rows }) => rows > 0);
    for (const sums of left) if (sums.heldBackRows === sums.rows) sums.heldBackRows = 0;
    await onSums(
      left.filter(({ shared: one }) => wantsMoments && hasMoments(one)),
      run.pass === 0,
    );
  };
  for (const [i, pass] of passes.entries()) {
    // Leave out what an interrupted run has done.
    if (i < run.pass) {
      if (i === 0) await handSums();
      continue;
    }
    // Build the graph of this pass.
    const graph = new SumsGraph(model, graphs);
    const isRun = ({ rows }: OpenSums) => i === 0 || rows > 0;
    const wanted: Wanted[] = [];
    for (const [list, isMoments] of [
      [pass.squares, false],
      [pass.moments, true],
    ] as const) {
      for (const sums of list.filter(isRun)) {
        const { shared: one } = sums;
        wanted.push({ sums, outputs: one.inputs.map((input) => graph.add(input, isMoments)) });
      }
    }
    const names = i === 0 ? ranged : [];
    const rangesOutput = names.length === 0 ? undefined : graph.addRanges(names);
    if (wanted.length === 0 && rangesOutput === undefined) continue;
    // Name the first layer whose inputs are not finite.
    wanted.sort((a, b) => all.indexOf(a.sums) - all.indexOf(b.sums));
    run.begin(i, pass.moments.filter(isRun));
    // Run it.
    await withSession(runtime, graph.finish(runnable), 'the model', 'all', async (session) => {
      const skip = async (sample: NamedSample, index: number) => {
        signal?.throwIfAborted();
        return run.skips(sample, index);
      };
      count = await runAll(runtime, session, runnable, samples, dimensions, skip, async (results, path, done) => {
        signal?.throwIfAborted();
        addSums(wanted, results, i === 0, wantsMoments && isHeldBack(done - 1, share), path);
        if (rangesOutput !== undefined) addRanges(ranges, names, finite, results[rangesOutput] as RuntimeTensor, path);
        await run.passed(done, count);
        await onSample({ pass: i + 1, passes: passes.length, done, total: Math.max(count, done) });
        signal?.throwIfAborted();
      });
      run.end(count);
    });
    if (count === 0) throw rangeError(option, { kind: 'number', min: 1, unit: 'samples' }, 0);
    // Hand over the moments.
    if (i === 0) await handSums();
    for (const sums of pass.moments) {
      await handOver(sums, takeMoments);
      signal?.throwIfAborted();
    }
    if (i + 1 < passes.length) await run.finished(count);
  }
  // Values behind masks are infinite, and caches may be empty.
  const known = [...ranges].filter(([, range]) => range.every(Number.isFinite));
  const idle = all.filter(({ rows }) => rows === 0).flatMap(({ names }) => names);
  return {
    samples: count,
    heldBack: wantsMoments ? Array.from({ length: count }, (_, i) => isHeldBack(i, share)).filter(Boolean).length : 0,
    sums: left,
    ranges: new Map(known),
    unreached: [...unreached, ...idle.map((name) => ({ name, reason: reasonFor('notRun', '') }))],
  };
}

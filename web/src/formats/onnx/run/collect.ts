/** Runs a model on samples, and adds up sums over the inputs of its weights. */
import { rangeError, ScalepointError } from '../../../core/errors.js';
import { mention } from '../../../core/option-problem.js';
import { quoted } from '../../files/bytes.js';
import { isHeldBack } from '../../held-back.js';
import type {
  CollectedSums,
  CollectHooks,
  CollectRunsOptions,
  ModelSamples,
  RunTensor,
  SummedInputs,
} from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { rangedValues } from '../graph/activations.js';
import { Graphs } from '../graph/graph.js';
import { floatValues } from './float-ranges.js';
import { runSample } from './inputs.js';
import { findInputs, type JointInputs, reasonFor } from './product-inputs.js';
import { type KeptSums, SampleRun } from './resume.js';
import { runnableOf } from './runnable.js';
import { loadRuntime, withSession } from './runtime.js';
import { samplesOf } from './samples.js';
import { type SumOutputs, SumsGraph, type ValueRanges, widenRanges } from './sums-graph.js';

/**
 * Most bytes of the squares of a pass together, unless a single one has more. An entry takes 12 bytes: 4 in the runtime, 4 of its output,
 * 4 of sums in float64, of which half is kept, because squares are symmetric; and 4 for those of held-back samples.
 */
const mostBytes = 12 * 2 ** 25;

/** Sums over all samples so far. */
interface OpenSums extends SummedInputs, KeptSums {
  readonly shared: JointInputs;
  readonly columns: number;
  readonly squares: Float64Array<ArrayBuffer>;
  rows: number;
  heldBackRows: number;
}

/** A pass over all samples. */
interface Pass {
  readonly squares: readonly OpenSums[];
  readonly moments: readonly OpenSums[];
}

/** Inputs of convolutions have importance alone: products of all columns would be those of patches. */
const takesMoments = ({ shared }: OpenSums) => shared.inputs.every(({ place }) => place !== 'channels');

/** Splits the work into passes. */
function planPasses(all: readonly OpenSums[], wantsMoments: boolean, holdsBack: boolean): Pass[] {
  if (!wantsMoments) return [{ squares: all, moments: [] }];
  const groups: OpenSums[][] = [];
  const mostEntries = mostBytes / (holdsBack ? 16 : 12);
  let entries = Number.POSITIVE_INFINITY;
  for (const sums of all) {
    if (!takesMoments(sums)) continue;
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
  return [{ squares: all.filter((sums) => !takesMoments(sums)), moments: first }];
}

/** Outputs for some sums. */
interface Wanted {
  readonly sums: OpenSums;
  readonly outputs: readonly SumOutputs[];
}

/** Adds the model's sums for a sample. @throws ScalepointError `NON_FINITE` naming the first weight */
function addResults(
  wanted: readonly Wanted[],
  results: ReadonlyMap<string, RunTensor>,
  { isFirst, isHeld, path }: { readonly isFirst: boolean; readonly isHeld: boolean; readonly path: string },
): void {
  const floatsOf = (name: string) => results.get(name)?.data as Float32Array;
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
      const elements = Number(results.get(output.elements)?.data[0]);
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

/** Hands over the means of products of some inputs over rows, as whole squares, and frees the sums. */
async function handOverMeans(sums: OpenSums, takeMoments: CollectHooks['takeMoments']): Promise<void> {
  const { columns, rows, heldBackRows, moments, heldBack } = sums;
  sums.moments = undefined;
  sums.heldBack = undefined;
  if (moments === undefined || rows === 0) return;
  // If held-back samples alone reached the inputs, the other sums are 0, and these take their place.
  if (heldBackRows === 0) for (const [i, sum] of heldBack?.entries() ?? []) (moments[i] as number) += sum;
  const squareOf = (triangle: Float64Array, count: number) => {
    const means = new Float32Array(columns * columns);
    let at = 0;
    for (let i = 0; i < columns; i++) {
      for (let j = i; j < columns; j++) {
        const mean = (triangle[at++] as number) / count;
        means[i * columns + j] = mean;
        means[j * columns + i] = mean;
      }
    }
    return means;
  };
  await takeMoments(sums, squareOf(moments, rows - heldBackRows), false);
  if (heldBack !== undefined && heldBackRows > 0) await takeMoments(sums, squareOf(heldBack, heldBackRows), true);
}

/** Collects sums over the inputs of weights. See `calibrateModel`. */
export async function collectFromRuns(
  model: OnnxModel,
  data: ModelSamples,
  options: CollectRunsOptions,
  { onSample, onSums, takeMoments }: CollectHooks,
): Promise<CollectedSums> {
  const { option, dimensions = {}, moments: wantsMoments, heldBack: share, signal } = options;
  const samples = samplesOf(option, data, model, options);
  const graphs = new Graphs(model);
  const { shared, unreached } = findInputs(model, graphs);
  const all = shared.map((one): OpenSums => {
    const { names, columns, matrices } = one;
    const squares = new Float64Array(columns);
    const none = { rows: 0, heldBackRows: 0, moments: undefined, heldBack: undefined };
    return { shared: one, names, columns, matrices, squares, ...none };
  });
  const passes = planPasses(all, wantsMoments, share > 0);
  if (passes.length > 1 && !samples.isRepeatable) {
    const hint = { kind: 'try', option: mention('moments', false), effect: 'takes one pass' } as const;
    throw rangeError(option, { kind: 'type', types: [`iterable that can be read ${passes.length} times`] }, data, hint);
  }
  const runtime = await loadRuntime(options.runtime);
  const runnable = await runnableOf(model);
  signal?.throwIfAborted();
  // Values of products have to be finite.
  const finite = new Set(options.ranges ? rangedValues(graphs, model.weights) : []);
  const ranged = options.ranges ? [...new Set([...finite, ...floatValues(model, graphs)])] : [];

  // Take over what an interrupted run has done.
  const columns = all.map((sums) => sums.columns);
  const run = new SampleRun(options.resume, columns, { passes: passes.length, ranged, holdsBack: share > 0 });
  const { found } = run;
  const ranges: ValueRanges = new Map(found?.ranges);
  for (const [i, sums] of found === undefined ? [] : all.entries()) {
    sums.rows = found?.rows[i] ?? 0;
    sums.heldBackRows = found?.heldBackRows[i] ?? 0;
    sums.squares.set(found?.squares[i] ?? []);
  }
  let count = Array.isArray(data) ? data.length : (found?.count ?? 0);
  const begin = found?.pass ?? 0;
  let left: readonly OpenSums[] = all;
  const handOverSums = async () => {
    left = all.filter(({ rows }) => rows > 0);
    for (const sums of left) if (sums.heldBackRows === sums.rows) sums.heldBackRows = 0;
    const summed = wantsMoments ? left.filter(takesMoments) : [];
    await onSums(summed, begin === 0);
  };
  if (begin > 0) await handOverSums();

  for (const [i, pass] of [...passes.entries()].slice(begin)) {
    // Build the graph of this pass.
    const isFirst = i === 0;
    const graph = new SumsGraph(model, graphs);
    const isRun = ({ rows }: OpenSums) => isFirst || rows > 0;
    const outputsFor = (sums: OpenSums, isSquare: boolean): Wanted => {
      return { sums, outputs: sums.shared.inputs.map((input) => graph.add(input, isSquare)) };
    };
    const wanted = [
      ...pass.squares.filter(isRun).map((sums) => outputsFor(sums, false)),
      ...pass.moments.filter(isRun).map((sums) => outputsFor(sums, true)),
    ];
    const names = isFirst ? ranged : [];
    const rangesOutput = names.length === 0 ? undefined : graph.addRanges(names);
    if (wanted.length === 0 && rangesOutput === undefined) continue;
    // Name the first layer whose inputs are not finite.
    wanted.sort((a, b) => all.indexOf(a.sums) - all.indexOf(b.sums));
    run.begin(i, pass.moments.filter(isRun));
    // Run it.
    await withSession(runtime, graph.finish(runnable), { label: 'the model' }, async (session) => {
      const opened = { runtime, session, known: runnable, dimensions };
      let done = 0;
      for await (const sample of samples.read()) {
        signal?.throwIfAborted();
        if (await run.skips(sample, done++)) continue;
        const { path } = sample;
        const { outputs } = await runSample(opened, sample, `the model on ${path}`);
        signal?.throwIfAborted();
        addResults(wanted, outputs, { isFirst, isHeld: wantsMoments && isHeldBack(done - 1, share), path });
        if (rangesOutput !== undefined) {
          const limits = outputs.get(rangesOutput) as RunTensor;
          // Without elements, the least is Infinity.
          const isWide = (at: number) =>
            !(Number(limits.data[at]) > -Infinity && Number(limits.data[names.length + at]) < Infinity);
          const wide = names.find((name, at) => finite.has(name) && isWide(at));
          if (wide !== undefined) {
            const message = `the value ${quoted(wide)} is not finite in ${path}`;
            throw new ScalepointError('NON_FINITE', message, { tensor: wide });
          }
          widenRanges(ranges, names, limits);
        }
        await run.keep({ pass: i, done, count }, all, ranges);
        await onSample({ pass: i + 1, passes: passes.length, done, total: Math.max(count, done) });
        signal?.throwIfAborted();
      }
      count = done;
      run.end(count);
    });
    // Hand over the moments.
    if (isFirst) await handOverSums();
    for (const sums of pass.moments) {
      await handOverMeans(sums, takeMoments);
      signal?.throwIfAborted();
    }
    if (i + 1 < passes.length) await run.keep({ pass: i + 1, done: 0, count }, all, ranges);
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

/** Runs two models on the same inputs in onnxruntime-web, and compares their outputs. */

import { measuresOf, mismatchesOf, nonFiniteOf } from '../../../core/measure.js';
import { type Hint, mention } from '../../../core/option-problem.js';
import type { ReadOptionFile } from '../../format.js';
import type { ComparedLayer, ComparedOutput, RunInput, RunOptions, RunReport, SkippedOutputReason } from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { type Feeds, feedsOf, fromHalf } from './inputs.js';
import { type GraphValue, type RunnableModel, runnableOf, withGraphOutputs } from './runnable.js';
import { failed, type Loadable, loadRuntime, type RuntimeTensor, type TypedRuntime, withSession } from './runtime.js';
import { sumsOf } from './sums.js';

export const onlyInA: SkippedOutputReason = { kind: 'onlyInA', text: 'only A has it' };
export const onlyInB: SkippedOutputReason = { kind: 'onlyInB', text: 'only B has it' };

type Values = ReadonlyMap<string, RuntimeTensor>;

/** Numbers of a numeric tensor. */
export function runtimeNumbers({ type, data }: RuntimeTensor): ArrayLike<number> {
  if (type === 'float16' && data instanceof Uint16Array) return Float32Array.from(data, fromHalf);
  if (type === 'int64' || type === 'uint64') return Float64Array.from(data as ArrayLike<bigint>, Number);
  return data as ArrayLike<number>;
}

/** The reason not to compare two values; undefined if they can be compared. */
export function whyNotCompared(a: RuntimeTensor, b: RuntimeTensor): SkippedOutputReason | undefined {
  if (a.dims.join() !== b.dims.join()) {
    const text = `shapes ${a.dims.join('×')} and ${b.dims.join('×')}`;
    return { kind: 'shapes', a: a.dims, b: b.dims, text };
  }
  const hasTexts = [a, b].some(({ type }) => type === 'string');
  return hasTexts ? { kind: 'notNumbers', text: 'texts' } : undefined;
}

/** Compares two values of a name that can be compared. */
function compareValue(name: string, a: RuntimeTensor, b: RuntimeTensor): ComparedOutput {
  const [x, y] = [runtimeNumbers(a), runtimeNumbers(b)] as const;
  const sums = sumsOf(x, y);
  const mismatched = nonFiniteOf(sums) > 0 ? mismatchesOf(x, y) : 0;
  return { name, shape: a.dims, error: measuresOf(sums, x.length), mismatched };
}

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
      return new Map(session.outputNames.map((name) => [name, results[name] as RuntimeTensor]));
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
  const runtime = await loadRuntime(options.runtime);
  const [first, second] = [await runnableOf(a), await runnableOf(b)];
  signal?.throwIfAborted();
  let feeds: Feeds | undefined;
  const runBoth = async (models: readonly [Loadable, Loadable], level: 'all' | 'disabled') => {
    const before = await runOnce(runtime, models[0], 'A', level, async ({ inputMetadata }) => {
      feeds ??= await feedsOf(runtime, inputMetadata, first, options, readOptionFile);
      return feeds;
    });
    signal?.throwIfAborted();
    const after = await runOnce(runtime, models[1], 'B', level, async () => feeds as Feeds);
    signal?.throwIfAborted();
    return [before, after] as const;
  };
  const [before, after] = await runBoth([first, second], 'all');
  const outputs: ComparedOutput[] = [];
  const skippedOutputs: RunReport['skippedOutputs'][number][] = [];
  for (const [name, value] of before) {
    const other = after.get(name);
    const reason = other === undefined ? onlyInA : whyNotCompared(value, other);
    if (reason !== undefined) skippedOutputs.push({ name, reason });
    else if (other !== undefined) outputs.push(compareValue(name, value, other));
  }
  for (const name of after.keys()) if (!before.has(name)) skippedOutputs.push({ name, reason: onlyInB });
  const { values: fed, guessed, given } = feeds as unknown as Feeds;
  const inputs = Object.entries(fed).map(
    ([name, { dims: shape }]): RunInput => ({ name, shape, isGiven: given.has(name) }),
  );
  const report = { inputs, guessedSizes: Object.fromEntries(guessed), outputs, skippedOutputs };
  if (options.layers !== true) return report;
  const values = common(first, second);
  const names = values.filter(({ isOutput }) => !isOutput).map(({ name }) => name);
  const [inA, inB] = await runBoth([withGraphOutputs(first, names), withGraphOutputs(second, names)], 'disabled');
  return { ...report, layers: layersOf(values, inA, inB) };
}

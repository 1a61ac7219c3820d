/** Measures values of a model in float32, and finds those that a result has in float16, which cannot hold them. */
import type { BackendJob, OverflowingValue, RunTensor } from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { intOf, onnxTypeNumber } from '../file/proto.js';
import { measuredBeyond } from '../graph/beyond-half.js';
import { Constants } from '../graph/constants.js';
import { Graphs } from '../graph/graph.js';
import { Types } from '../graph/types.js';
import type { RunnableModel } from './runnable.js';
import { runSession, runtimeTensors, type TypedRuntime, withSession } from './runtime.js';
import { SumsGraph, type ValueRanges, widenRanges } from './sums-graph.js';

/** The largest number of float16. */
const largestHalf = 65504;

/** Names of the float32 inputs of the main graph that are read, and of the float32 values that its nodes give. */
export function floatValues(model: OnnxModel, graphs: Graphs): string[] {
  const types = new Types(graphs, graphs.main);
  const { root } = graphs.main;
  const inputs = root.inputs.flatMap(({ name }) => {
    const value = graphs.valueAt(root, name);
    return value === undefined || value.weight !== undefined || value.uses.length === 0 ? [] : [name];
  });
  const given = model.proto.graph.nodes
    .filter(({ opType }) => opType !== 'Constant' && opType !== 'ConstantOfShape')
    .flatMap(({ outputs }) => outputs);
  return [...inputs, ...given].filter((name) => name !== '' && types.isFloat(graphs.valueAt(root, name)));
}

/** True if a model has float16 anywhere. */
export function hasFloat16({ proto: { graph }, weights }: OnnxModel): boolean {
  const half = onnxTypeNumber('F16');
  const isHalf = ({ type }: { readonly type: number }) => type === half;
  return (
    weights.some(({ source }) => source.dtype === 'F16') ||
    [...graph.inputs, ...graph.outputs, ...graph.values].some(isHalf) ||
    graph.nodes.some((node) => node.opType === 'Cast' && intOf(node, 'to', 0) === half)
  );
}

/** Runs a model on inputs, and returns ranges of its float32 values. Values that are not finite have none. */
export async function measureRanges(
  runtime: TypedRuntime,
  model: OnnxModel,
  runnable: RunnableModel,
  samples: readonly BackendJob['feeds'][],
): Promise<ValueRanges> {
  const graphs = new Graphs(model);
  const names = floatValues(model, graphs);
  const ranges: ValueRanges = new Map();
  if (names.length === 0) return ranges;
  const graph = new SumsGraph(model, graphs);
  const output = graph.addRanges(names);
  const label = 'the original';
  await withSession(runtime, graph.finish(runnable), { label }, async (session) => {
    for (const feeds of samples) {
      const results = await runSession(session, runtimeTensors(runtime, feeds), label);
      widenRanges(ranges, names, results.get(output) as RunTensor);
    }
  });
  return new Map([...ranges].filter(([, range]) => range.every(Number.isFinite)));
}

/** Values that float16 cannot hold, with their largest magnitudes. */
export function tooLarge(model: OnnxModel, ranges: ValueRanges): Map<string, number> {
  const graphs = new Graphs(model);
  const facts = { graphs, types: new Types(graphs, graphs.main), constants: new Constants(model, new Map()) };
  return new Map([...measuredBeyond(facts, ranges)].filter(([, most]) => most > largestHalf));
}

/** Values of the original that a result has in float16, and that float16 cannot hold. @param large those of the original */
export function overflowsIn(made: OnnxModel, large: ReadonlyMap<string, number>): OverflowingValue[] {
  if (large.size === 0) return [];
  const [float, half] = [onnxTypeNumber('F32'), onnxTypeNumber('F16')];
  const graphs = new Graphs(made);
  const known = new Types(graphs, graphs.main);
  const { root } = graphs.main;
  const types = new Map<string, number | undefined>();
  const typeOf = (name: string) => types.get(name) ?? known.of(graphs.valueAt(root, name));
  const found = new Map<string, OverflowingValue>();
  for (const { opType, name: node, inputs, outputs } of made.proto.graph.nodes) {
    const floats = inputs.map(typeOf).filter((type) => type === float || type === half);
    for (const output of outputs) {
      // Products with codes have the type of their rows.
      types.set(output, known.of(graphs.valueAt(root, output)) ?? floats[0]);
      const [input = ''] = inputs;
      const isHalf = typeOf(output) === half;
      // A Cast gives an output its type back, or narrows a value for its readers.
      const value = isHalf && !large.has(output) && opType === 'Cast' ? input : output;
      const isNarrow = isHalf || (opType === 'Cast' && typeOf(input) === half);
      const largest = large.get(value);
      if (largest === undefined || !isNarrow || found.has(value)) continue;
      found.set(value, { value, node, op: opType, largest });
    }
  }
  return [...found.values()];
}

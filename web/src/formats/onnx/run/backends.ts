/** Runs two models on several backends, and compares with the first model on wasm. */
import type {
  BackendAnswer,
  BackendJob,
  BackendOutput,
  BackendReport,
  BackendRun,
  NodeCheck,
  RunBackend,
} from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { intOf, onnxTypeNumber } from '../file/proto.js';
import type { Values } from './apart.js';
import { execute } from './execute.js';
import { inTypesOf } from './inputs.js';
import { checkNodes, type RanModel } from './nodes.js';
import { type RunnableModel, withGraphOutputs } from './runnable.js';
import { runtimeName, type TypedRuntime } from './runtime.js';
import { compareOutputs, compareValue } from './values.js';

/** A model, and its run on wasm. */
export interface ComparedModel extends RanModel {
  /** Its outputs with all optimizations. */
  readonly outputs: Values;
}

/** Runs jobs in a runtime of this process or page. */
export function backendIn(runtime: TypedRuntime, name: 'wasm' | 'webgpu'): RunBackend {
  return { name, run: (job) => execute(runtime, runtimeName, name, job) };
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

/** Names of values that nodes compute, beside outputs. */
export const innerValues = ({ values }: Pick<RunnableModel, 'values'>): string[] =>
  values.filter(({ isOutput }) => !isOutput).map(({ name }) => name);

const asMap = (answer: BackendAnswer & { kind: 'ran' }): Values => new Map(Object.entries(answer.outputs));

/**
 * Runs one model on a backend.
 * @param original outputs of the first model on wasm
 * @param reference the model that nodes are held to; undefined without checks of nodes
 */
async function runOn(
  backend: RunBackend,
  judged: ComparedModel,
  original: Values,
  reference: RanModel | undefined,
  given: BackendJob['feeds'],
  signal: AbortSignal | undefined,
): Promise<{ readonly answer: BackendAnswer; readonly result: BackendRun }> {
  const feeds = inTypesOf(judged.model, given);
  const ask = async (job: BackendJob) => {
    const answer = await backend.run(job, signal);
    signal?.throwIfAborted();
    return answer;
  };
  const answer = await ask({ model: judged.runnable, feeds, level: 'all', measures: true });
  if (answer.kind !== 'ran') {
    const lacksFloat16 = answer.adapter?.hasFloat16 === false && hasFloat16(judged.model);
    const kind = answer.kind !== 'noAdapter' && lacksFloat16 ? 'needsFloat16' : answer.kind;
    return { answer, result: { kind, text: answer.text } };
  }
  const { outputs: all, skippedOutputs } = compareOutputs(original, asMap(answer));
  const outputs = all.map((output): BackendOutput => {
    const [own, here] = [judged.outputs.get(output.name), answer.outputs[output.name]];
    if (backend.name === 'wasm' || own === undefined || here === undefined) return output;
    return { ...output, own: compareValue(output.name, own, here).error };
  });
  let nodes: NodeCheck | undefined;
  if (reference !== undefined) {
    const whole = withGraphOutputs(judged.runnable, innerValues(judged.runnable));
    const ran = await ask({ model: whole, feeds, level: 'disabled', measures: false });
    if (ran.kind === 'ran') nodes = await checkNodes(reference, judged, asMap(ran), feeds, ask);
  }
  const { times, placement } = answer;
  return {
    answer,
    result: {
      kind: 'ran',
      outputs,
      skippedOutputs,
      times: times ?? { firstSeconds: Number.NaN, seconds: Number.NaN, runs: 0 },
      ...(placement && { placement }),
      ...(nodes && { nodes }),
    },
  };
}

/**
 * Runs both models on each backend.
 * @param layers true to check nodes
 * @throws errors of backends, and the reason of the signal
 */
export async function runOnBackends(
  backends: readonly RunBackend[],
  a: ComparedModel,
  b: ComparedModel,
  feeds: BackendJob['feeds'],
  layers: boolean,
  signal: AbortSignal | undefined,
): Promise<BackendReport[]> {
  const reports: BackendReport[] = [];
  for (const backend of backends) {
    const isWasm = backend.name === 'wasm';
    const first = await runOn(backend, a, a.outputs, layers && !isWasm ? a : undefined, feeds, signal);
    const second = await runOn(backend, b, a.outputs, layers ? (isWasm ? a : b) : undefined, feeds, signal);
    const { runtime, adapter } = second.answer;
    reports.push({ backend: backend.name, runtime, ...(adapter && { adapter }), a: first.result, b: second.result });
  }
  return reports;
}

/** Finds factors for the channels of norms, by which codes of their outputs lose less. */
import type { BackendJob, FoldedNorm } from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { Graphs } from '../graph/graph.js';
import { scalableNorms } from '../graph/outliers.js';
import { mostExponent } from '../options.js';
import type { RunnableModel } from './runnable.js';
import { runSession, runtimeTensors, type TypedRuntime, withSession } from './runtime.js';
import { SumsGraph } from './sums-graph.js';

/**
 * Runs a model on inputs, and finds a power of two near max |x| ^ 0.7 / max |w| ^ 0.3 for each channel of a norm, relative to the mean of the
 * channels. x are the outputs of the norm, and w the elements of the weights behind it. Channels without both keep the factor 1. Norms
 * whose factors are all 1 are left out.
 */
export async function measureFolds(
  runtime: TypedRuntime,
  model: OnnxModel,
  runnable: RunnableModel,
  samples: readonly BackendJob['feeds'][],
): Promise<FoldedNorm[]> {
  const graphs = new Graphs(model);
  const norms = scalableNorms(model, graphs);
  if (norms.length === 0) return [];
  const graph = new SumsGraph(model, graphs);
  const measured = norms.map(({ value, channels, matrices }) => ({
    value,
    channels,
    output: graph.addColumnRanges(value, channels),
    weights: [...matrices].map(([weight, along]) => graph.addColumnRanges(weight.value, channels, along)),
    low: new Float64Array(channels).fill(Infinity),
    high: new Float64Array(channels).fill(-Infinity),
    most: new Float64Array(channels),
  }));
  const label = 'the original';
  await withSession(runtime, graph.finish(runnable), { label }, async (session) => {
    for (const feeds of samples) {
      const results = await runSession(session, runtimeTensors(runtime, feeds), label);
      const dataOf = (name: string) => results.get(name)?.data as Float32Array;
      for (const { channels, output, weights, low, high, most } of measured) {
        const found = dataOf(output);
        for (let i = 0; i < channels; i++) {
          low[i] = Math.min(low[i] as number, found[i] as number);
          high[i] = Math.max(high[i] as number, found[channels + i] as number);
        }
        for (const name of weights) {
          for (const [i, value] of dataOf(name).entries())
            most[i % channels] = Math.max(most[i % channels] as number, Math.abs(value));
        }
      }
    }
  });
  return measured.flatMap(({ value, channels, low, high, most }): FoldedNorm[] => {
    const logarithms = Array.from({ length: channels }, (_, i) => {
      const largest = Math.max(-(low[i] as number), high[i] as number);
      return 0.7 * Math.log2(largest) - 0.3 * Math.log2(most[i] as number);
    });
    const known = logarithms.filter(Number.isFinite);
    const mean = known.reduce((sum, one) => sum + one, 0) / known.length;
    const exponents = logarithms.map((one) => {
      const exponent = Number.isFinite(one) ? Math.round(one - mean) : 0;
      return Math.max(-mostExponent, Math.min(mostExponent, exponent));
    });
    const ends = (values: Float64Array) => exponents.map((exponent, i) => (values[i] as number) / 2 ** exponent);
    const range = [Math.min(...ends(low)), Math.max(...ends(high))] as const;
    const changes = exponents.some((exponent) => exponent !== 0);
    return changes && range.every(Number.isFinite) ? [{ value, exponents, range }] : [];
  });
}

/** Runs of a model: on samples, and on tokens. */
import type { InputArray, ModelRuns } from '../../run.js';
import type { OnnxModel } from '../file/model.js';
import { Graphs } from '../graph/graph.js';
import { collectFromRuns } from './collect.js';
import { evaluateOutputs, withRunOutputs } from './evaluate.js';
import { logitsName, withLogits } from './logits.js';
import { limitOf } from './runnable.js';

/** Name of the input of tokens, as in transformers.js. */
const idsName = 'input_ids';

/** Values of inputs beside the tokens, by name. Others follow from their shapes. */
const besides: Readonly<Record<string, (i: number) => number>> = {
  attention_mask: () => 1,
  token_type_ids: () => 0,
  position_ids: (i) => i,
};

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
    withOutputs: (options, label, use) => withRunOutputs(model, options, label, use),
    evaluate: (samples, reference, options, onSample) => evaluateOutputs(model, samples, reference, options, onSample),
    withLogits: (options, use) => withLogits(model, runs.sampleOf, options, use),
  };
  return runs;
}

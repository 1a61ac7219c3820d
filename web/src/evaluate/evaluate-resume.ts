/** Evaluations that go on after an interruption, from a file with the states of the tokens. */

import type { Opened } from '../convert/open.js';
import { rangeError } from '../core/errors.js';
import { waitingFor } from '../core/waiting.js';
import type { EvaluationResume, JudgedModel } from './evaluate.js';
import { damaged, digestOfTokens, PassState, pathOf, stampsOf } from './pass-state.js';
import { evaluationFrom, savedEvaluation } from './saved-state.js';

/** A judgment of models on tokens. */
interface Evaluation {
  readonly opened: readonly Opened[];
  readonly models: readonly JudgedModel[];
  readonly ids: Uint32Array<ArrayBuffer>;
  readonly size: number;
  readonly signal: AbortSignal | undefined;
}

/** Judges models from the state that an interrupted run left, and removes it at the end. */
export async function withEvaluationState<T>(
  place: string | URL,
  { opened, models, ids, size, signal }: Evaluation,
  judge: (resume: EvaluationResume) => Promise<T>,
): Promise<T> {
  if (models.some(({ layerWorkers }) => layerWorkers === undefined)) {
    throw rangeError('resume', { kind: 'onlyFor', files: 'language models in folders and GGUF files' }, place);
  }
  const waiting = waitingFor(signal);
  try {
    const path = pathOf(place);
    const model = await Promise.all(opened.map(({ model }) => stampsOf(model.files)));
    const run = { model, data: await digestOfTokens(ids), options: { size } };
    const inputs = opened.flatMap((one) => one.inputs);
    const state = await PassState.open(path, run, { overwrite: false, waiting, option: 'resume', inputs });
    const found = state.take();
    const passed = found && evaluationFrom(found, Math.floor(ids.length / size) * size);
    const fits = passed !== undefined && passed.layer < (models[passed.model]?.passes ?? 0);
    if (found !== undefined && !fits) throw damaged(path);
    const result = await judge({ passed, save: (now) => state.save(savedEvaluation(now)) });
    await state.remove();
    return result;
  } finally {
    waiting.end();
  }
}

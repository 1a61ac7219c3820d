/** Outputs of models that a runtime runs on samples, beside those of a reference. */

import type { Opened } from '../convert/open.js';
import { ScalepointError } from '../core/errors.js';
import { waitingFor } from '../core/waiting.js';
import type { FileInput } from '../formats/files/bytes.js';
import { openWithin } from '../formats/files/open.js';
import type { ModelSamples, OutputsEvaluation, RunOptions } from '../formats/run.js';
import { type LanguageData, progressReporter, samplesFrom, type TextOptions } from './texts.js';

/** Compares the outputs of a model with those of a reference. See `evaluateModel`. */
export async function evaluateSamples(
  model: Opened,
  reference: Opened,
  data: LanguageData | ModelSamples,
  { run, ...own }: TextOptions & { readonly run: Pick<RunOptions, 'runtime' | 'dimensions'> },
): Promise<OutputsEvaluation> {
  const [runs, other] = [await model.format.runs?.(model.model), await reference.format.runs?.(reference.model)];
  if (runs === undefined || other === undefined) {
    const { label } = (runs === undefined ? model : reference).format;
    const text = `only ONNX models can be run on samples, and this is ${label}; texts judge language models of all formats`;
    throw new ScalepointError('RUNTIME', text);
  }
  const { signal } = own;
  const waiting = waitingFor(signal);
  try {
    const samples = await samplesFrom(model, runs, data, own);
    const count = Array.isArray(samples) ? samples.length : 0;
    const open = (file: FileInput) => openWithin(waiting, file);
    const report = progressReporter(own, 'evaluate', 'samples');
    return await runs.evaluate(samples, other, { ...run, option: 'data', signal, open }, async (done) =>
      report({ pass: 1, passes: 1, done, total: Math.max(count, done) }),
    );
  } finally {
    waiting.end();
  }
}

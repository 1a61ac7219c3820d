/** Outputs of models that a runtime runs on samples, beside those of a reference. */

import type { Opened } from '../convert/open.js';
import { ScalepointError } from '../core/errors.js';
import { waitingFor } from '../core/waiting.js';
import { openWithin } from '../formats/files/open.js';
import type { ModelSamples, OutputsEvaluation, RunOptions } from '../formats/run.js';
import type { TextOptions } from './text-options.js';
import { isLanguageData, samplesOfTexts } from './text-samples.js';
import type { LanguageData } from './tokens.js';

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
  const { signal, onProgress } = own;
  const waiting = waitingFor(signal);
  try {
    const samples = isLanguageData(data) ? await samplesOfTexts(model, runs, data, own) : data;
    const count = Array.isArray(samples) ? samples.length : 0;
    const options = {
      ...run,
      option: 'data',
      signal,
      open: (file: Parameters<typeof openWithin>[1]) => openWithin(waiting, file),
    };
    let rested = performance.now();
    return await runs.evaluate(samples, other, options, async (done) => {
      onProgress?.({ phase: 'evaluate', unit: 'samples', pass: 1, passes: 1, done, total: Math.max(count, done) });
      if (performance.now() - rested < 50) return;
      // Let the page draw.
      await new Promise((resolve) => setTimeout(resolve));
      rested = performance.now();
    });
  } finally {
    waiting.end();
  }
}

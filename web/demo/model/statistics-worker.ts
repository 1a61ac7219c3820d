// Runs a model on data that decide about its codes: a language model on a text, to collect how much each column of its weights is used, or an
// ONNX model on samples, to find norms to fold. It is started for one request, and ended to cancel it.
import { calibrateModel, type QuantizeModelOptions, quantizeModel } from 'scalepoint/model';
import { answerCalls } from '../shared/calls.js';
import { inputOf, type PageFile } from '../shared/page-files.js';
import { idsOf, type TextQuestion } from './ids.js';
import { chunkTokens } from './outputs.js';
import { loadedRuntime } from './runtime.js';
import { savingWorkers, withWorkers } from './workers.js';

/** A question. @param wantsMoments true for the moments of GPTQ, false for an importance matrix */
interface StatisticsQuestion extends TextQuestion {
  readonly wantsMoments: boolean;
}

async function make(question: StatisticsQuestion, onProgress: (share: number) => void): Promise<Blob> {
  const { files, wantsMoments } = question;
  const ids = await idsOf(question, true);
  const work = (workers: number) =>
    calibrateModel(inputOf(files), 'tokenized', {
      tokenizer: { encode: () => ids },
      chunkSize: Math.min(chunkTokens, ids.length),
      moments: wantsMoments,
      workers,
      onProgress: ({ done, total }) => onProgress(done / Math.max(1, total)),
    });
  const made = await withWorkers(savingWorkers, work);
  const { moments } = made;
  return wantsMoments && moments !== undefined ? moments.blob() : made.blob();
}

/** Norms to fold by samples, with the worst output before and after. @param options of the result, without data */
async function fold(question: {
  readonly files: readonly PageFile[];
  readonly options: QuantizeModelOptions;
  readonly samples: File;
}) {
  const { files, options, samples } = question;
  const run = { samples: { files: samples }, runtime: await loadedRuntime(false) };
  const { report } = await quantizeModel(inputOf(files), { ...options, foldOutliers: true, run, workers: 0 });
  return report.folding ?? { norms: [] };
}

const calls = { make, fold };
export type StatisticsCalls = typeof calls;

answerCalls(calls);

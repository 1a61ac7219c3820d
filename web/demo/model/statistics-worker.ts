// Runs a language model on a text, and collects how much each column of its weights is used. It is started for one request, and ended to
// cancel it.
import { calibrateModel } from 'scalepoint/model';
import { answerCalls } from '../shared/calls.js';
import { inputOf } from '../shared/page-files.js';
import { idsOf, type TextQuestion } from './ids.js';
import { chunkTokens } from './outputs.js';
import { savingWorkers, withWorkers } from './workers.js';

/** A question. @param wantsMoments true for the moments of GPTQ, false for an importance matrix */
interface StatisticsQuestion extends TextQuestion {
  readonly wantsMoments: boolean;
}

async function make(question: StatisticsQuestion, onProgress: (share: number) => void): Promise<Blob> {
  const { files, wantsMoments } = question;
  const { ids } = await idsOf(question, true);
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

const calls = { make };
export type StatisticsCalls = typeof calls;

answerCalls(calls);

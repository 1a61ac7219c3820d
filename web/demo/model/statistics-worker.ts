// Runs a language model on a text, and collects how much each column of its weights is used. It is started for one request, and ended to
// cancel it.
import { calibrateModel, ScalepointError } from 'scalepoint/model';
import { type Failure, failureOf } from './failure.js';
import { idsOf, type TextQuestion } from './ids.js';
import { chunkTokens } from './outputs.js';
import { savingWorkers } from './workers.js';

/** A request. @param wantsMoments true for the moments of GPTQ, false for an importance matrix */
export interface StatisticsQuestion extends TextQuestion {
  readonly wantsMoments: boolean;
}

export type StatisticsAnswer =
  | { readonly kind: 'progress'; readonly share: number }
  | { readonly kind: 'made'; readonly blob: Blob }
  | ({ readonly kind: 'failed' } & Failure);

const answer = (message: StatisticsAnswer) => self.postMessage(message);

async function make(question: StatisticsQuestion): Promise<void> {
  const { files, wantsMoments } = question;
  const ids = await idsOf(question);
  const work = (workers: number) =>
    calibrateModel([...files], 'tokenized', {
      tokenizer: { encode: () => ids },
      chunkSize: Math.min(chunkTokens, ids.length),
      moments: wantsMoments,
      workers,
      onProgress: ({ done, total }) => answer({ kind: 'progress', share: done / Math.max(1, total) }),
    });
  // Without workers of its own, this one does the work.
  const made = await work(savingWorkers).catch((error: unknown) => {
    if (!(error instanceof ScalepointError && error.code === 'WORKER')) throw error;
    return work(0);
  });
  const { moments } = made;
  answer({ kind: 'made', blob: await (wantsMoments && moments !== undefined ? moments.blob() : made.blob()) });
}

self.onmessage = ({ data }: MessageEvent<StatisticsQuestion>) => {
  make(data).catch((error: unknown) => answer({ kind: 'failed', ...failureOf(error) }));
};

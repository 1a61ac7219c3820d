import { type BenchResult, type BenchRow, runBench } from 'scalepoint/bench';
import { failureText } from '../shared/problems.js';
import { type HeadlineTurn, headlineFloats, measureHeadline } from './headline.js';

/** Message from the page that starts a run. */
export interface BenchRequest {
  readonly quick: boolean;
  /** The headline only. */
  readonly first: boolean;
}

/** Messages to the page. Each row is sent once it is measured; `done` or `failed` comes last. */
export type BenchReply =
  | { readonly kind: 'row'; readonly row: BenchRow }
  | { readonly kind: 'turn'; readonly turn: HeadlineTurn }
  | { readonly kind: 'done'; readonly result?: BenchResult }
  | { readonly kind: 'failed'; readonly message: string };

const reply = (message: BenchReply) => self.postMessage(message);

// The worker keeps the page responsive during a run, and keeps work of the page out of the measurements.
self.onmessage = ({ data }: MessageEvent<BenchRequest>) => {
  const work: Promise<BenchResult | undefined> = data.first
    ? measureHeadline((turn) => reply({ kind: 'turn', turn })).then(() => undefined)
    : runBench({
        quick: data.quick,
        ...(data.quick && { size: headlineFloats }),
        onRow: (row) => reply({ kind: 'row', row }),
      });
  work.then(
    (result) => reply({ kind: 'done', ...(result && { result }) }),
    (error: unknown) => reply({ kind: 'failed', message: failureText(error) }),
  );
};

import { type BenchResult, type BenchRow, runBench } from 'scalepoint/bench';

/** Message from the page that starts a run. */
export interface BenchRequest {
  readonly quick: boolean;
  /** Only the part that begins with the headline. */
  readonly first: boolean;
}

/** Messages to the page. Each row is sent once it is measured; `done` or `failed` comes last. */
export type BenchReply =
  | { readonly kind: 'row'; readonly row: BenchRow }
  | { readonly kind: 'done'; readonly result: BenchResult }
  | { readonly kind: 'failed'; readonly message: string };

const reply = (message: BenchReply) => self.postMessage(message);

// The worker keeps the page responsive during a run, and keeps work of the page out of the measurements.
self.onmessage = ({ data }: MessageEvent<BenchRequest>) => {
  const only = data.first ? ({ only: 'arrays' } as const) : {};
  runBench({ quick: data.quick, ...only, onRow: (row) => reply({ kind: 'row', row }) }).then(
    (result) => reply({ kind: 'done', result }),
    (error: unknown) => reply({ kind: 'failed', message: error instanceof Error ? error.message : String(error) }),
  );
};

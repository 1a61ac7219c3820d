import { type BenchResult, type BenchRow, runBench } from 'scalepoint/bench';

/** What the page asks: how thoroughly. */
export interface BenchRequest {
  readonly quick: boolean;
}

/** What comes back: rows, then the end. */
export type BenchReply =
  | { readonly kind: 'row'; readonly row: BenchRow }
  | { readonly kind: 'done'; readonly result: BenchResult }
  | { readonly kind: 'failed'; readonly message: string };

const reply = (message: BenchReply) => self.postMessage(message);

// In a worker nothing else on the page gets in the way, and the page stays quick whatever is measured.
self.onmessage = ({ data }: MessageEvent<BenchRequest>) => {
  runBench({ quick: data.quick, onRow: (row) => reply({ kind: 'row', row }) }).then(
    (result) => reply({ kind: 'done', result }),
    (error: unknown) => reply({ kind: 'failed', message: error instanceof Error ? error.message : String(error) }),
  );
};

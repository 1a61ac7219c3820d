/** The interface that the worker pool and the calling thread share. */
import type { Note } from '../core/note.js';
import type { ByteSource } from '../formats/files/bytes.js';
import type { ByteSink } from '../formats/files/sink.js';
import type { Batch, BatchResult } from './task.js';

/** Carries out batches. */
export interface TileRunner {
  /** Batches to start before waiting for the first one. */
  readonly concurrency: number;
  /** A note for the report, such as the reason why there are no workers. */
  readonly note?: Note;
  /** @throws TaskError */
  run(batch: Batch): Promise<BatchResult>;
  /** Takes back the output of a batch, whose memory is reused. */
  recycle(output: ArrayBuffer): void;
  /** Ends all work, and rejects pending promises with the reason. Safe to call twice. */
  dispose(reason?: unknown): void;
}

/** The files that batches read and write. */
export interface WorkFiles {
  readonly sources: readonly ByteSource[];
  readonly sinks: readonly Pick<ByteSink, 'reference'>[];
}

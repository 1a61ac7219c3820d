/** Takes the output of a batch: into memory, or into files that this thread opened. */
import type { WriteBytes } from '../formats/files/reference.js';
import { type Batch, TaskError } from './task.js';
import type { Put } from './tile-converter.js';

/** Takes the output of one batch. */
export interface BatchOutput {
  readonly put: Put;
  /** Ends the batch. Returns the output that is in memory. */
  end(): ArrayBuffer;
}

/**
 * Collects an output in memory.
 * @param spare memory of an earlier output, reused if its size fits, because garbage of megabytes for each batch would pile up
 */
export function memoryOutput({ outputBytes }: Batch, spare: ArrayBuffer | undefined): BatchOutput {
  const output = spare?.byteLength === outputBytes ? spare : new ArrayBuffer(outputBytes);
  const memory = new Uint8Array(output);
  return { put: (offset, bytes) => memory.set(bytes, offset), end: () => output };
}

/** Writes an output into files, as the batch says. The output of a single task is written from where it lies, that of several at once. */
export function fileOutput(batch: Batch, writes: Float64Array, files: readonly WriteBytes[]): BatchOutput {
  const write = (offset: number, bytes: Uint8Array) => {
    const end = offset + bytes.length;
    for (let i = 0; i < writes.length; i += 4) {
      const from = writes[i + 2] as number;
      const first = Math.max(offset, from);
      const last = Math.min(end, from + (writes[i + 3] as number));
      if (first >= last) continue;
      try {
        const write = files[writes[i] as number] as WriteBytes;
        write((writes[i + 1] as number) + first - from, bytes.subarray(first - offset, last - offset));
      } catch (cause) {
        // Name the task that makes the first of these bytes.
        const task = batch.tasks.findIndex(
          (one) =>
            one.kind === 'encode' &&
            one.outputs.some((part) => part.offset <= first && first < part.offset + part.bytes),
        );
        throw new TaskError(Math.max(0, task), cause, true);
      }
    }
  };
  const [first, ...others] = batch.tasks;
  const made = first?.kind === 'encode' ? first.outputs.reduce((sum, { bytes }) => sum + bytes, 0) : 0;
  if (others.length === 0 && made === batch.outputBytes) return { put: write, end: () => new ArrayBuffer(0) };
  const memory = memoryOutput(batch, undefined);
  return {
    put: memory.put,
    end() {
      write(0, new Uint8Array(memory.end()));
      return new ArrayBuffer(0);
    },
  };
}

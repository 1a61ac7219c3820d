/** How far the work is, and when callers are notified. */

/** How far a conversion is. */
export interface Progress {
  /** What is being done. */
  readonly phase: 'quantize' | 'copy' | 'verify';
  /** Name of the tensor. */
  readonly tensor: string;
  /** Which tensor, from 0, in the order of the input. */
  readonly index: number;
  /** How many tensors there are. */
  readonly count: number;
  /** Of several targets: the one whose result is being made. The numbers are about this result. */
  readonly to?: string;
  /** Bytes of tensors done so far, and in all. */
  readonly bytesDone: number;
  /** All bytes that there are to do. */
  readonly bytesTotal: number;
}

/** Milliseconds between two reports of one tensor. */
const interval = 50;

/** Whether it is time for a report: at the end of each tensor, and in between when 50 ms have passed since the last one. */
export function reportTimes(): (isEnd: boolean) => boolean {
  let last = performance.now();
  return (isEnd) => {
    const now = performance.now();
    if (!isEnd && now - last < interval) return false;
    last = now;
    return true;
  };
}

// When a caller hears how far the work is.

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

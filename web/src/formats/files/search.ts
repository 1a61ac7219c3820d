/** Binary search. */

/** Number of items at the start for which `before` holds. These items must come first. */
export function countBefore<T>(items: readonly T[], before: (item: T) => boolean): number {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (before(items[middle] as T)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Chooses one of several types for each tensor, with the least sum of errors within a budget of bytes (a multiple-choice knapsack). Pure
 * arithmetic in a fixed order: the same lists give the same choices everywhere.
 */

/** One of the types that a tensor can have; or the sum of several tensors. */
export interface SizedChoice {
  /** Size in this type: a whole number. */
  readonly bytes: number;
  readonly error: number;
}

/** One choice of each list. */
export interface Allocation {
  /** For each list, the index of its choice. */
  readonly picks: readonly number[];
  readonly bytes: number;
  readonly error: number;
  /** A lower bound of the error within the budget. Equal to `error` if that is proven to be the least. */
  readonly bound: number;
}

/** A choice and its index in its list. */
interface IndexedChoice extends SizedChoice {
  readonly pick: number;
}

/** The way from one corner of a list's hull to the next, larger one. */
interface Upgrade {
  readonly list: number;
  readonly from: IndexedChoice;
  readonly to: IndexedChoice;
  /** Decrease of the error per byte. */
  readonly slope: number;
}

/** The choices that are worth their bytes: each has more bytes and a lower error than the one before it. */
function worthwhile(list: readonly SizedChoice[]): IndexedChoice[] {
  const sorted = list
    .map(({ bytes, error }, pick): IndexedChoice => ({ bytes, error, pick }))
    .sort((a, b) => a.bytes - b.bytes || a.error - b.error || a.pick - b.pick);
  const kept: IndexedChoice[] = [];
  for (const one of sorted) if (kept.length === 0 || one.error < (kept.at(-1) as IndexedChoice).error) kept.push(one);
  return kept;
}

const slopeOf = (from: SizedChoice, to: SizedChoice) => (from.error - to.error) / (to.bytes - from.bytes);

/** The upgrades along the lower convex hulls of all lists, by falling slope. */
function sortedUpgrades(lists: readonly (readonly IndexedChoice[])[]): Upgrade[] {
  const all = lists.flatMap((candidates, list) => {
    const upgrades: Upgrade[] = [];
    for (let i = 1; i < candidates.length; i++) {
      const to = candidates[i] as IndexedChoice;
      let from = candidates[i - 1] as IndexedChoice;
      // Drop corners above the line between their neighbors.
      for (let last = upgrades.at(-1); last !== undefined && last.slope <= slopeOf(from, to); last = upgrades.at(-1)) {
        from = last.from;
        upgrades.pop();
      }
      upgrades.push({ list, from, to, slope: slopeOf(from, to) });
    }
    return upgrades;
  });
  return all.sort((a, b) => b.slope - a.slope || a.list - b.list || a.from.bytes - b.from.bytes);
}

function sumChoices(choices: readonly SizedChoice[]): SizedChoice {
  let [bytes, error] = [0, 0];
  for (const choice of choices) {
    bytes += choice.bytes;
    error += choice.error;
  }
  return { bytes, error };
}

/**
 * Points from the smallest size to the least error. Each error is the least for its size. Between two points, the line that connects them
 * is a lower bound.
 */
export function frontier(lists: readonly (readonly SizedChoice[])[]): SizedChoice[] {
  const candidates = lists.map(worthwhile);
  const picks = candidates.map(([smallest]) => smallest as IndexedChoice);
  const points = [sumChoices(picks)];
  let { bytes, error } = points[0] as SizedChoice;
  for (const { from, to } of sortedUpgrades(candidates)) {
    bytes += to.bytes - from.bytes;
    error -= from.error - to.error;
    points.push({ bytes, error: Math.max(0, error) });
  }
  return points;
}

/** Choices for some of the lists. */
interface SearchState extends SizedChoice {
  /** Priced cost above that of the cheapest choices. */
  readonly cost: number;
  readonly before: SearchState | undefined;
  readonly taken: IndexedChoice | undefined;
}

/** Largest number of states that are followed at once. Reached by tables with many nearly equal sums. */
const mostStates = 1 << 13;

/** Merges two lists of states that are sorted by bytes. Drops states that are not worth their bytes. */
function mergeStates(a: readonly SearchState[], b: readonly SearchState[]): SearchState[] {
  const all: SearchState[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    const [x, y] = [a[i], b[j]];
    const isFirst = y === undefined || (x !== undefined && (x.bytes - y.bytes || x.error - y.error) <= 0);
    const next = (isFirst ? x : y) as SearchState;
    if (isFirst) i++;
    else j++;
    const last = all.at(-1);
    if (last === undefined || next.error < last.error) all.push(next);
  }
  return all;
}

/**
 * Searches for choices with a lower error than known ones.
 * @param price of a byte. At the right price, the cheapest choice of each list is nearly part of the best result.
 */
function searchFrom(
  candidates: readonly (readonly IndexedChoice[])[],
  budget: number,
  known: readonly IndexedChoice[],
  price: number,
): Allocation {
  let best = known;
  let { error: bestError } = sumChoices(known);
  const priced = ({ bytes, error }: SizedChoice) => error + price * bytes;
  const cheapest = candidates.map((list) => list.reduce((least, one) => (priced(one) < priced(least) ? one : least)));
  const all = sumChoices(cheapest);
  /** A lower bound of the error within the budget. */
  const least = all.error + price * (all.bytes - budget);
  // Find the lists with more than one choice that may be part of a better result.
  const gap = bestError - least;
  const open = candidates.flatMap((list, i) => {
    const lowest = priced(cheapest[i] as IndexedChoice);
    const options = list.flatMap((one) => {
      const cost = Math.max(0, priced(one) - lowest);
      return one === cheapest[i] || cost < gap ? [{ ...one, cost }] : [];
    });
    return options.length > 1 ? [{ list: i, options }] : [];
  });
  const isOpen = new Set(open.map(({ list }) => list));
  const fixed = sumChoices(cheapest.filter((_, i) => !isOpen.has(i)));
  let rest = sumChoices(open.map(({ list }) => cheapest[list] as IndexedChoice));
  let leastRest = open.reduce((sum, { options }) => sum + (options[0] as IndexedChoice).bytes, 0);
  let states: SearchState[] = [{ ...fixed, cost: 0, before: undefined, taken: undefined }];
  /** The lowest cost of the states that were dropped because there were more than `mostStates`. */
  let dropped = Number.POSITIVE_INFINITY;
  for (const [decided, { list, options }] of open.entries()) {
    const one = cheapest[list] as IndexedChoice;
    rest = { bytes: rest.bytes - one.bytes, error: rest.error - one.error };
    leastRest -= (options[0] as IndexedChoice).bytes;
    // Add the choices of one more list to each state, without those that cannot lead to a better result.
    let next: SearchState[] = [];
    for (const taken of options) {
      const longer: SearchState[] = [];
      for (const before of states) {
        const bytes = before.bytes + taken.bytes;
        const cost = before.cost + taken.cost;
        if (bytes + leastRest > budget || least + cost >= bestError) continue;
        longer.push({ bytes, error: before.error + taken.error, cost, before, taken });
      }
      next = mergeStates(next, longer);
    }
    if (next.length > mostStates) {
      next.sort((a, b) => a.cost - b.cost || a.bytes - b.bytes);
      dropped = Math.min(dropped, (next[mostStates] as SearchState).cost);
      next = next.slice(0, mostStates).sort((a, b) => a.bytes - b.bytes);
    }
    states = next;
    // Complete each state with the cheapest choices of the other lists, and remember the best result so far.
    for (const state of states) {
      if (state.bytes + rest.bytes > budget || state.error + rest.error >= bestError) continue;
      const picks = [...cheapest];
      let at: SearchState | undefined = state;
      for (let i = decided; i >= 0 && at !== undefined; i--, at = at.before)
        picks[(open[i] as (typeof open)[number]).list] = at.taken as IndexedChoice;
      const { bytes, error } = sumChoices(picks);
      // Rounding differs with the order of the sum, so that the comparison is repeated with the final sum.
      if (bytes <= budget && error < bestError) [best, bestError] = [picks, error];
    }
  }
  const { bytes, error } = sumChoices(best);
  const bound = Math.max(0, Math.min(error, least + dropped));
  return { picks: best.map(({ pick }) => pick), bytes, error, bound };
}

/**
 * The choices with the least sum of errors within the budget; undefined if the smallest choices exceed it. Of equal sums, the first
 * choices. The price of a byte at which the budget is spent rules out most choices. The others are searched; with more than `mostStates`
 * states, only the cheapest are followed, and `bound` shows how far the result may be from the best.
 * @param lists each with at least one choice
 * @param budget in bytes
 */
export function chooseWithin(lists: readonly (readonly SizedChoice[])[], budget: number): Allocation | undefined {
  const candidates = lists.map(worthwhile);
  const picks = candidates.map(([smallest]) => smallest as IndexedChoice);
  let left = budget - sumChoices(picks).bytes;
  if (left < 0) return undefined;
  // Take upgrades by falling slope, and skip those that do not fit. The slope of the first of these is the price.
  let slope: number | undefined;
  for (const { list, from, to, slope: gain } of sortedUpgrades(candidates)) {
    const more = to.bytes - from.bytes;
    if (more > left) slope ??= gain;
    else if (picks[list] === from) {
      picks[list] = to;
      left -= more;
    }
  }
  if (slope !== undefined) return searchFrom(candidates, budget, picks, slope);
  const { bytes, error } = sumChoices(picks);
  return { picks: picks.map(({ pick }) => pick), bytes, error, bound: error };
}

/**
 * Chooses one of several types for each tensor, with the least sum of errors within a budget of bytes (a multiple-choice knapsack). Pure
 * arithmetic in a fixed order: the same lists give the same choices everywhere.
 */

/** One of the types that a tensor can have. */
export interface SizedChoice {
  /** Size of the tensor in this type: a whole number. */
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

/** A sum and its size. */
export interface SizeError {
  readonly bytes: number;
  readonly error: number;
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

/** The upgrades along the lower convex hull of a list, each with a lower slope than the one before it. */
function hullUpgrades(candidates: readonly IndexedChoice[], list: number): Upgrade[] {
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
}

/** The upgrades of all lists, by falling slope. */
function sortedUpgrades(lists: readonly (readonly IndexedChoice[])[]): Upgrade[] {
  return lists
    .flatMap(hullUpgrades)
    .sort((a, b) => b.slope - a.slope || a.list - b.list || a.from.bytes - b.from.bytes);
}

function sumChoices(choices: readonly SizedChoice[]): SizeError {
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
export function frontier(lists: readonly (readonly SizedChoice[])[]): SizeError[] {
  const candidates = lists.map(worthwhile);
  const picks = candidates.map(([smallest]) => smallest as IndexedChoice);
  const points = [sumChoices(picks)];
  let { bytes, error } = points[0] as SizeError;
  for (const { from, to } of sortedUpgrades(candidates)) {
    bytes += to.bytes - from.bytes;
    error -= from.error - to.error;
    points.push({ bytes, error: Math.max(0, error) });
  }
  return points;
}

/** The result of taking upgrades within a budget. */
interface Walk {
  readonly picks: IndexedChoice[];
  /** The slope of the first upgrade that did not fit; undefined if all were taken. */
  readonly slope: number | undefined;
}

/** Takes upgrades by falling slope, and skips those that do not fit. */
function takeUpgrades(candidates: readonly (readonly IndexedChoice[])[], budget: number): Walk {
  const picks = candidates.map(([smallest]) => smallest as IndexedChoice);
  let left = budget - sumChoices(picks).bytes;
  let slope: number | undefined;
  for (const { list, from, to, slope: gain } of sortedUpgrades(candidates)) {
    const more = to.bytes - from.bytes;
    if (more > left) slope ??= gain;
    else if (picks[list] === from) {
      picks[list] = to;
      left -= more;
    }
  }
  return { picks, slope };
}

/** Choices for some of the lists. */
interface SearchState extends SizeError {
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

/** A list with several choices that may be part of a better result. */
interface OpenList {
  readonly list: number;
  readonly options: readonly (IndexedChoice & { readonly cost: number })[];
}

/** Searches for choices with a lower error than known ones. */
class Search {
  readonly #candidates: readonly (readonly IndexedChoice[])[];
  readonly #budget: number;
  /** The price of a byte. At the right price, the cheapest choice of each list is nearly part of the best result. */
  readonly #price: number;
  /** The cheapest choice of each list at that price. */
  readonly #cheapest: readonly IndexedChoice[];
  /** A lower bound of the error within the budget. */
  readonly #least: number;
  #best: IndexedChoice[];
  #error: number;
  /** The lowest cost of the states that were dropped because there were more than `mostStates`. */
  #dropped = Number.POSITIVE_INFINITY;

  constructor(
    candidates: readonly (readonly IndexedChoice[])[],
    budget: number,
    known: IndexedChoice[],
    price: number,
  ) {
    this.#candidates = candidates;
    this.#budget = budget;
    this.#price = price;
    this.#best = known;
    this.#error = sumChoices(known).error;
    this.#cheapest = candidates.map((list) =>
      list.reduce((best, one) => (this.#priced(one) < this.#priced(best) ? one : best)),
    );
    const { bytes, error } = sumChoices(this.#cheapest);
    this.#least = error + price * (bytes - budget);
  }

  #priced({ bytes, error }: SizedChoice): number {
    return error + this.#price * bytes;
  }

  /** The lists with more than one choice that may be part of a better result. */
  #open(): OpenList[] {
    const gap = this.#error - this.#least;
    return this.#candidates.flatMap((list, i) => {
      const least = this.#priced(this.#cheapest[i] as IndexedChoice);
      const options = list.flatMap((one) => {
        const cost = Math.max(0, this.#priced(one) - least);
        return one === this.#cheapest[i] || cost < gap ? [{ ...one, cost }] : [];
      });
      return options.length > 1 ? [{ list: i, options }] : [];
    });
  }

  /** Completes a state with the cheapest choices of the other lists, and remembers the result if it is the best so far. */
  #complete(state: SearchState, rest: SizeError, open: readonly OpenList[], decided: number): void {
    if (state.bytes + rest.bytes > this.#budget || state.error + rest.error >= this.#error) return;
    const picks = [...this.#cheapest];
    let at: SearchState | undefined = state;
    for (let i = decided - 1; i >= 0 && at !== undefined; i--, at = at.before) {
      picks[(open[i] as OpenList).list] = at.taken as IndexedChoice;
    }
    const { bytes, error } = sumChoices(picks);
    // Rounding differs with the order of the sum, so that the comparison is repeated with the final sum.
    if (bytes > this.#budget || error >= this.#error) return;
    this.#best = picks;
    this.#error = error;
  }

  /** The states after one more list, without those that cannot lead to a better result. */
  #expand(states: readonly SearchState[], { options }: OpenList, leastRest: number): SearchState[] {
    let all: SearchState[] = [];
    for (const taken of options) {
      const next: SearchState[] = [];
      for (const before of states) {
        const bytes = before.bytes + taken.bytes;
        const cost = before.cost + taken.cost;
        if (bytes + leastRest > this.#budget || this.#least + cost >= this.#error) continue;
        next.push({ bytes, error: before.error + taken.error, cost, before, taken });
      }
      all = mergeStates(all, next);
    }
    if (all.length <= mostStates) return all;
    const byCost = [...all].sort((a, b) => a.cost - b.cost || a.bytes - b.bytes);
    this.#dropped = Math.min(this.#dropped, (byCost[mostStates] as SearchState).cost);
    return byCost.slice(0, mostStates).sort((a, b) => a.bytes - b.bytes);
  }

  run(): Allocation {
    const open = this.#open();
    const isOpen = new Set(open.map(({ list }) => list));
    const fixed = sumChoices(this.#cheapest.filter((_, i) => !isOpen.has(i)));
    let rest = sumChoices(open.map(({ list }) => this.#cheapest[list] as IndexedChoice));
    let leastRest = open.reduce((sum, { options }) => sum + (options[0] as IndexedChoice).bytes, 0);
    let states: SearchState[] = [{ ...fixed, cost: 0, before: undefined, taken: undefined }];
    for (const [i, one] of open.entries()) {
      const cheapest = this.#cheapest[one.list] as IndexedChoice;
      rest = { bytes: rest.bytes - cheapest.bytes, error: rest.error - cheapest.error };
      leastRest -= (one.options[0] as IndexedChoice).bytes;
      states = this.#expand(states, one, leastRest);
      for (const state of states) this.#complete(state, rest, open, i + 1);
    }
    const { bytes, error } = sumChoices(this.#best);
    const bound = Math.max(0, Math.min(error, this.#least + this.#dropped));
    return { picks: this.#best.map(({ pick }) => pick), bytes, error, bound };
  }
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
  if (sumChoices(candidates.map(([smallest]) => smallest as IndexedChoice)).bytes > budget) return undefined;
  const { picks, slope } = takeUpgrades(candidates, budget);
  if (slope !== undefined) return new Search(candidates, budget, picks, slope).run();
  const { bytes, error } = sumChoices(picks);
  return { picks: picks.map(({ pick }) => pick), bytes, error, bound: error };
}

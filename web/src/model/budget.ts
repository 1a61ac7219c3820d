/**
 * Chooses one of several forms for each tensor, so that the errors are least in so many bytes (a multiple-choice knapsack). Pure
 * arithmetic, in a fixed order: the same lists give the same choices everywhere.
 */

/** One of the forms that a tensor can have. */
export interface Choice {
  /** A whole number. */
  readonly bytes: number;
  readonly error: number;
}

/** A choice for each list. */
export interface Chosen {
  /** Which choice of each list. */
  readonly picks: readonly number[];
  readonly bytes: number;
  readonly error: number;
  /** Nothing in these bytes has a lower error. Equal to the error if that is proven to be the least. */
  readonly bound: number;
}

/** A choice, and which one of its list it is. */
interface Candidate extends Choice {
  readonly pick: number;
}

/** A sum and its size. */
export interface Point {
  readonly bytes: number;
  readonly error: number;
}

/** From one corner of a list's hull to the next. */
interface Step {
  readonly list: number;
  readonly from: Candidate;
  readonly to: Candidate;
  /** By how much the error falls for each byte. */
  readonly slope: number;
}

/** The choices that are worth their bytes: each costs more than the one before it, and has a lower error. */
function worthwhile(list: readonly Choice[]): Candidate[] {
  const sorted = list
    .map(({ bytes, error }, pick): Candidate => ({ bytes, error, pick }))
    .sort((a, b) => a.bytes - b.bytes || a.error - b.error || a.pick - b.pick);
  const kept: Candidate[] = [];
  for (const one of sorted) if (kept.length === 0 || one.error < (kept.at(-1) as Candidate).error) kept.push(one);
  return kept;
}

const slopeOf = (from: Choice, to: Choice) => (from.error - to.error) / (to.bytes - from.bytes);

/** The steps along the lower convex hull, each flatter than the one before it. */
function hullSteps(candidates: readonly Candidate[], list: number): Step[] {
  const steps: Step[] = [];
  for (let i = 1; i < candidates.length; i++) {
    const to = candidates[i] as Candidate;
    let from = candidates[i - 1] as Candidate;
    // A corner that lies above the line between its neighbors is none.
    for (let last = steps.at(-1); last !== undefined && last.slope <= slopeOf(from, to); last = steps.at(-1)) {
      from = last.from;
      steps.pop();
    }
    steps.push({ list, from, to, slope: slopeOf(from, to) });
  }
  return steps;
}

/** The steps of all lists, those first that gain most for a byte. */
function sortedSteps(lists: readonly (readonly Candidate[])[]): Step[] {
  return lists.flatMap(hullSteps).sort((a, b) => b.slope - a.slope || a.list - b.list || a.from.bytes - b.from.bytes);
}

function sumOf(choices: readonly Choice[]): Point {
  let [bytes, error] = [0, 0];
  for (const choice of choices) {
    bytes += choice.bytes;
    error += choice.error;
  }
  return { bytes, error };
}

/**
 * Sizes and the least error in them, from the smallest size to the least error. In each of these sizes nothing has a lower error; between
 * them, the line that connects them is a lower bound.
 */
export function frontier(lists: readonly (readonly Choice[])[]): Point[] {
  const candidates = lists.map(worthwhile);
  const picks = candidates.map(([smallest]) => smallest as Candidate);
  const points = [sumOf(picks)];
  let { bytes, error } = points[0] as Point;
  for (const { from, to } of sortedSteps(candidates)) {
    bytes += to.bytes - from.bytes;
    error -= from.error - to.error;
    points.push({ bytes, error: Math.max(0, error) });
  }
  return points;
}

/** What the steps lead to within a budget. */
interface Walk {
  readonly picks: Candidate[];
  /** The gain for a byte of the first step that was too long. undefined: all were taken. */
  readonly slope: number | undefined;
}

/** Takes the steps that gain most, and goes on with shorter ones where one is too long. */
function walk(candidates: readonly (readonly Candidate[])[], budget: number): Walk {
  const picks = candidates.map(([smallest]) => smallest as Candidate);
  let left = budget - sumOf(picks).bytes;
  let slope: number | undefined;
  for (const { list, from, to, slope: gain } of sortedSteps(candidates)) {
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
interface State extends Point {
  /** How much more this costs than the best choices at the price of a byte. */
  readonly cost: number;
  readonly before: State | undefined;
  readonly taken: Candidate | undefined;
}

/** States that are followed at once. More of them are needed for tables in which many sums are almost alike. */
const mostStates = 1 << 13;

/** The states of both lists that are worth their bytes. Both are sorted by their bytes. */
function merged(a: readonly State[], b: readonly State[]): State[] {
  const all: State[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    const [x, y] = [a[i], b[j]];
    const isFirst = y === undefined || (x !== undefined && (x.bytes - y.bytes || x.error - y.error) <= 0);
    const next = (isFirst ? x : y) as State;
    if (isFirst) i++;
    else j++;
    const last = all.at(-1);
    if (last === undefined || next.error < last.error) all.push(next);
  }
  return all;
}

/** A list whose choice is open. */
interface Open {
  readonly list: number;
  /** The choices that may be part of something better than what is known. */
  readonly options: readonly (Candidate & { readonly cost: number })[];
}

/** A search for something better than what is known. */
class Search {
  readonly #candidates: readonly (readonly Candidate[])[];
  readonly #budget: number;
  /** The price of a byte. At the right price, what is best for each list by itself is nearly what is best for all. */
  readonly #price: number;
  /** The best choice of each list at that price. */
  readonly #cheapest: readonly Candidate[];
  /** No choices within the budget have a lower error. */
  readonly #least: number;
  #best: Candidate[];
  #error: number;
  /** The lowest cost of a state that was dropped for want of room. */
  #dropped = Number.POSITIVE_INFINITY;

  constructor(candidates: readonly (readonly Candidate[])[], budget: number, known: Candidate[], price: number) {
    this.#candidates = candidates;
    this.#budget = budget;
    this.#price = price;
    this.#best = known;
    this.#error = sumOf(known).error;
    this.#cheapest = candidates.map((list) =>
      list.reduce((best, one) => (this.#priced(one) < this.#priced(best) ? one : best)),
    );
    const { bytes, error } = sumOf(this.#cheapest);
    this.#least = error + price * (bytes - budget);
  }

  #priced({ bytes, error }: Choice): number {
    return error + this.#price * bytes;
  }

  /** The lists that have more than one choice which may be part of something better. */
  #open(): Open[] {
    const gap = this.#error - this.#least;
    return this.#candidates.flatMap((list, i) => {
      const least = this.#priced(this.#cheapest[i] as Candidate);
      const options = list.flatMap((one) => {
        const cost = Math.max(0, this.#priced(one) - least);
        return one === this.#cheapest[i] || cost < gap ? [{ ...one, cost }] : [];
      });
      return options.length > 1 ? [{ list: i, options }] : [];
    });
  }

  /** Remembers a state if the cheapest choices of the other lists make the best of it that is known. */
  #complete(state: State, rest: Point, open: readonly Open[], decided: number): void {
    if (state.bytes + rest.bytes > this.#budget || state.error + rest.error >= this.#error) return;
    const picks = [...this.#cheapest];
    let at: State | undefined = state;
    for (let i = decided - 1; i >= 0 && at !== undefined; i--, at = at.before) {
      picks[(open[i] as Open).list] = at.taken as Candidate;
    }
    const { bytes, error } = sumOf(picks);
    // Sums in another order may differ by their rounding.
    if (bytes > this.#budget || error >= this.#error) return;
    this.#best = picks;
    this.#error = error;
  }

  /** The states after one more list, of which something better may come. */
  #expand(states: readonly State[], { options }: Open, leastRest: number): State[] {
    let all: State[] = [];
    for (const taken of options) {
      const next: State[] = [];
      for (const before of states) {
        const bytes = before.bytes + taken.bytes;
        const cost = before.cost + taken.cost;
        if (bytes + leastRest > this.#budget || this.#least + cost >= this.#error) continue;
        next.push({ bytes, error: before.error + taken.error, cost, before, taken });
      }
      all = merged(all, next);
    }
    if (all.length <= mostStates) return all;
    const byCost = [...all].sort((a, b) => a.cost - b.cost || a.bytes - b.bytes);
    this.#dropped = Math.min(this.#dropped, (byCost[mostStates] as State).cost);
    return byCost.slice(0, mostStates).sort((a, b) => a.bytes - b.bytes);
  }

  run(): Chosen {
    const open = this.#open();
    const isOpen = new Set(open.map(({ list }) => list));
    const fixed = sumOf(this.#cheapest.filter((_, i) => !isOpen.has(i)));
    let rest = sumOf(open.map(({ list }) => this.#cheapest[list] as Candidate));
    let leastRest = open.reduce((sum, { options }) => sum + (options[0] as Candidate).bytes, 0);
    let states: State[] = [{ ...fixed, cost: 0, before: undefined, taken: undefined }];
    for (const [i, one] of open.entries()) {
      const cheapest = this.#cheapest[one.list] as Candidate;
      rest = { bytes: rest.bytes - cheapest.bytes, error: rest.error - cheapest.error };
      leastRest -= (one.options[0] as Candidate).bytes;
      states = this.#expand(states, one, leastRest);
      for (const state of states) this.#complete(state, rest, open, i + 1);
    }
    const { bytes, error } = sumOf(this.#best);
    const bound = Math.max(0, Math.min(error, this.#least + this.#dropped));
    return { picks: this.#best.map(({ pick }) => pick), bytes, error, bound };
  }
}

/**
 * The choices with the least sum of errors among those with at most so many bytes; undefined if the smallest ones have more. Among equals
 * the first ones. What cannot be part of the answer is ruled out by the price of a byte at which the budget is spent; the rest is searched
 * through. If that would take too many states, the cheapest are followed, and `bound` tells how far the answer may be from the best.
 * @param lists at least one choice each
 */
export function chooseWithin(lists: readonly (readonly Choice[])[], budget: number): Chosen | undefined {
  const candidates = lists.map(worthwhile);
  if (sumOf(candidates.map(([smallest]) => smallest as Candidate)).bytes > budget) return undefined;
  const { picks, slope } = walk(candidates, budget);
  if (slope !== undefined) return new Search(candidates, budget, picks, slope).run();
  const { bytes, error } = sumOf(picks);
  return { picks: picks.map(({ pick }) => pick), bytes, error, bound: error };
}

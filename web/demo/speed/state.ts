import type { BenchRow } from 'scalepoint/bench';
import type { HeadlineTurn } from './headline.js';

/** State of the page. The drawing is a function of it. */
export interface State {
  /** `first` measures the headline only, `all` everything. */
  readonly run: 'none' | 'first' | 'all';
  /** End of the last run. Undefined before the first run and during one. */
  readonly ended?: 'done' | 'stopped' | 'failed' | undefined;
  /** Message of the failure. */
  readonly problem?: string | undefined;
  /** The rows of a run of everything, in order. */
  readonly rows: readonly BenchRow[];
  /** The turns of the headline, once all of them are measured. */
  readonly turns?: readonly HeadlineTurn[];
  readonly length: 'quick' | 'full';
}

/** Part of the median that the middle half of the ratios may span on a machine that does nothing else. */
const calmSpread = 0.2;

/** Figures of the headline. */
export interface HeadlineFigures {
  /** Time of plain JavaScript over that of Scalepoint: the median of the turns. */
  readonly ratio: number;
  /** The ends of the middle half of the turns. */
  readonly low: number;
  readonly high: number;
  /** Median times in milliseconds. */
  readonly ours: number;
  readonly plain: number;
  /** True if the spread is so wide that the machine does other work. */
  readonly isBusy: boolean;
}

/** The value at a share of the sorted numbers. */
function quantile(sorted: readonly number[], share: number): number {
  const at = share * (sorted.length - 1);
  const [low, high] = [sorted[Math.floor(at)] ?? Number.NaN, sorted[Math.ceil(at)] ?? Number.NaN];
  return low + (at - Math.floor(at)) * (high - low);
}

/** The figures of some turns. */
export function figuresOf(turns: readonly HeadlineTurn[]): HeadlineFigures {
  const sorted = (of: (turn: HeadlineTurn) => number) => turns.map(of).sort((a, b) => a - b);
  const ratios = sorted(({ ours, plain }) => plain / ours);
  const [low, ratio, high] = [0.25, 0.5, 0.75].map((share) => quantile(ratios, share)) as [number, number, number];
  const median = (of: (turn: HeadlineTurn) => number) => quantile(sorted(of), 0.5);
  return {
    ratio,
    low,
    high,
    ours: median(({ ours }) => ours),
    plain: median(({ plain }) => plain),
    isBusy: high - low > calmSpread * ratio,
  };
}

import type { BenchRow } from 'scalepoint/bench';

/** What the page knows. What is drawn follows from it. */
export interface State {
  /** `first` measures the headline only, `all` everything. */
  readonly run: 'none' | 'first' | 'all';
  /** How the last run ended. Undefined before the first one and while one is going on. */
  readonly ended?: 'done' | 'stopped' | 'failed';
  /** Why it failed. */
  readonly problem?: string;
  /** The rows of a run of everything, in order. */
  readonly rows: readonly BenchRow[];
  /** The row of the headline, of whichever run measured it last. */
  readonly headline?: BenchRow;
  readonly length: 'quick' | 'full';
}

/** The operation of the headline: from floats to codes, with the search for their range. */
export const headlineOperation = 'range and quantize';

/** Takes a row into account. */
export function withRow(state: State, row: BenchRow): State {
  const headline = row.operation === headlineOperation && row.part === 'arrays' ? { headline: row } : {};
  return { ...state, ...headline, ...(state.run === 'all' && { rows: [...state.rows, row] }) };
}

import type { BenchRow } from 'scalepoint/bench';

/** State of the page. The drawing is a function of it. */
export interface State {
  /** `first` measures the headline only, `all` everything. */
  readonly run: 'none' | 'first' | 'all';
  /** End of the last run. Undefined before the first run and during one. */
  readonly ended?: 'done' | 'stopped' | 'failed';
  /** Message of the failure. */
  readonly problem?: string;
  /** The rows of a run of everything, in order. */
  readonly rows: readonly BenchRow[];
  /** The row of the headline, with the least times of all runs of its size. */
  readonly headline?: BenchRow;
  readonly length: 'quick' | 'full';
}

/** The operation of the headline: from floats to codes, with the search for their range. */
export const headlineOperation = 'range and quantize';

/** Number of measurements of the headline when the page opens. */
export const headlineRuns = 3;

/** The least times of two runs. Other work on the machine can only make a run slower. */
function least(known: BenchRow | undefined, row: BenchRow): BenchRow {
  if (known?.plain === undefined || row.plain === undefined || known.size !== row.size) return row;
  const milliseconds = Math.min(known.milliseconds, row.milliseconds);
  const plain = Math.min(known.milliseconds * known.plain, row.milliseconds * row.plain) / milliseconds;
  if (known.limit === undefined || row.limit === undefined) return { ...row, milliseconds, plain };
  const limit = milliseconds / Math.min(known.milliseconds / known.limit, row.milliseconds / row.limit);
  return { ...row, milliseconds, plain, limit };
}

/** Takes a row into account. */
export function withRow(state: State, row: BenchRow): State {
  const headline =
    row.operation === headlineOperation && row.part === 'arrays' ? { headline: least(state.headline, row) } : {};
  return { ...state, ...headline, ...(state.run === 'all' && { rows: [...state.rows, row] }) };
}

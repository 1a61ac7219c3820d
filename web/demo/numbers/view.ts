// Requests to the worker and the views that it computes, all as plain data.

import type { ErrorMeasures } from 'scalepoint';
import type { Failure } from '../shared/calls.js';
import type { Bins } from '../shared/charts.js';
import type { Levels } from '../shared/levels.js';
import type { ChartMark, Series } from '../shared/lines.js';
import type { Bars } from './bars.js';
import type { DataFacts, Statistics } from './data.js';
import type { ByteCount } from './evaluate.js';
import type { RangeMethod, Settings } from './settings.js';

/** The parts of the page that are computed only while they are open. */
export type Section = 'line' | 'ladder' | 'clipping' | 'codes' | 'errors' | 'rows' | 'twin';

/** A request of the page for a view. */
export interface ViewRequest {
  readonly settings: Settings;
  /** The visitor's own data; undefined for generated data. */
  readonly dataId: number | undefined;
  /** Most numbers to quantize. Of larger data a sample is taken. */
  readonly limit: number;
  /** Sizes in pixels, which decide how many bars and levels there is room for. */
  readonly widths: { readonly histogram: number; readonly line: number; readonly errors: number };
  /** Position of the number line's view, from 0 (lowest code) to 1 (highest). Undefined: where the numbers are. */
  readonly lineAt: number | undefined;
  /** The first row of the table of numbers, or the index that it is to hold. */
  readonly row: { readonly start: number } | { readonly index: number };
  readonly open: readonly Section[];
}

/** The error and the size of a result. */
export interface Result {
  readonly exact: boolean;
  /** Count of the quantized numbers. */
  readonly used: number;
  readonly comparison: ErrorMeasures;
  /** Share of the numbers that were clipped. */
  readonly clipped: number;
  readonly bytes: ByteCount;
  readonly parts: { readonly kind: string; readonly count: number; readonly length: number };
  /** The smallest and the largest scale; undefined for blocks. */
  readonly scales: readonly [number, number] | undefined;
  /** Of the first part; undefined for blocks. */
  readonly firstScale: number | undefined;
  readonly firstZeroPoint: number | undefined;
}

/** The part that the pictures show. */
export interface PartView {
  readonly part: number;
  readonly count: number;
  readonly levels: Levels;
  readonly levelsUsed: number;
  readonly clipped: number;
}

/** Numbers of the number line and the levels that they go to. */
export interface LineView {
  readonly start: number;
  readonly steps: number;
  readonly values: readonly number[];
  readonly restored: readonly number[];
  /** Count of the numbers in view. Fewer may be drawn. */
  readonly total: number;
}

/** A row of the table of numbers. */
export interface NumberRow {
  readonly index: number;
  readonly original: number;
  readonly code?: number;
  readonly restored?: number;
  /** The numbers that it shares a scale with, if the row above has another scale. */
  readonly part?: { readonly index: number; readonly scale: number | undefined };
}

/** A row of the table of types. */
export interface Rung {
  /** Settings that give this row. */
  readonly change: Pick<Settings, 'codes' | 'bits' | 'block'>;
  readonly name: string;
  readonly sqnrDb: number;
  readonly bytes: ByteCount;
}

/** SQNR against the step, and the choice of each range method. */
export interface ClippingView {
  readonly points: Series['points'];
  readonly marks: readonly (ChartMark & { readonly method: RangeMethod })[];
  readonly length: number;
}

/** All that the page shows of a result. Sections that were not wanted are absent. */
export interface NumbersView {
  readonly settings: Settings;
  readonly data: DataFacts;
  readonly statistics: Statistics;
  readonly failure?: Failure;
  readonly result?: Result;
  readonly part?: PartView;
  readonly partCount: number;
  readonly bars?: Bars;
  readonly line?: LineView;
  readonly errors?: Bins;
  readonly rows?: { readonly start: number; readonly total: number; readonly rows: readonly NumberRow[] };
  /** Count of numbers for each code, from the lowest code on. */
  readonly codeCounts?: Uint32Array;
  readonly ladder?: { readonly rungs: readonly Rung[]; readonly basis: string };
  readonly clipping?: ClippingView;
  readonly codes?: readonly Series[];
}

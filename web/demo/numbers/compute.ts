// Turns an evaluation into the data that the page draws. Runs in the worker.

import { blockTypeInfo, type Scalepoint } from 'scalepoint';
import type { Failure } from '../shared/calls.js';
import type { Bins } from '../shared/charts.js';
import { binsFor } from '../shared/charts.js';
import { formatCount } from '../shared/format.js';
import { type Levels, levelAt } from '../shared/levels.js';
import { barsOf, binsOf } from './bars.js';
import { clippingCurve, codeCurves } from './curves.js';
import type { DataSet, Statistics } from './data.js';
import { countBytes, type Evaluation, evaluate, type Slice, sliceOf } from './evaluate.js';
import { partAt, partsOf } from './parts.js';
import { bitWidths, blockChoices, defaultSettings, granularityOf, type Settings, typeName } from './settings.js';
import type { LineView, NumberRow, NumbersView, Result, Rung, ViewRequest } from './view.js';

/** Most numbers to quantize for each row of the table of types. Of larger data a sample is taken. */
const ladderLimit = 65_536;
/** Most numbers of the number line. More would be a blur. */
const mostPoints = 60;
const rowsOnPage = 16;

/** Steps between levels that the number line shows at once. */
function stepsInView({ qmin, qmax }: Levels, width: number): number {
  return Math.min(qmax - qmin, width < 480 ? 4 : width < 800 ? 6 : 8);
}

function meanOf(codes: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < codes.length; i++) sum += codes[i]!;
  return sum / Math.max(1, codes.length);
}

/** The numbers that the number line shows. */
function lineOf({ values, restored, levels, codes }: Slice, width: number, share: number | undefined): LineView {
  const steps = stepsInView(levels, width);
  const start =
    share === undefined
      ? Math.max(levels.qmin, Math.min(levels.qmax - steps, Math.round(meanOf(codes) - steps / 2)))
      : levels.qmin + Math.round(share * (levels.qmax - levels.qmin - steps));
  // Numbers beyond the outermost levels go to them too, so the line extends 0.6 steps beyond either end.
  const [low, high] = [levelAt(levels, start - 0.6), levelAt(levels, start + steps + 0.6)];
  // Restored numbers are rounded to float32, so they are assigned to levels with a margin of half a step.
  const [first, last] = [levelAt(levels, start - 0.5), levelAt(levels, start + steps + 0.5)];
  const inView: number[] = [];
  for (let i = 0; i < values.length; i++) {
    const [x, y] = [values[i]!, restored[i]!];
    if (x >= low && x <= high && y > first && y < last) inView.push(i);
  }
  const every = Math.max(1, Math.ceil(inView.length / mostPoints));
  const shown = inView.filter((_, i) => i % every === 0);
  return {
    start,
    steps,
    values: shown.map((i) => values[i]!),
    restored: shown.map((i) => restored[i]!),
    total: inView.length,
  };
}

function errorsOf(core: Scalepoint, { values, restored }: Slice, width: number): Bins | undefined {
  const difference = new Float32Array(values.length);
  for (let i = 0; i < values.length; i++) difference[i] = restored[i]! - values[i]!;
  return binsOf(core, difference, Math.min(64, binsFor(difference.length, width)));
}

/** The first element whose position in the data is at least `wanted`. A sample does not have every position. */
function firstAt({ values, position }: Evaluation, wanted: number): number {
  let low = 0;
  let high = values.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (position(middle) < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

function rowsOf(data: DataSet, evaluation: Evaluation | undefined, wanted: ViewRequest['row']): NumbersView['rows'] {
  const total = evaluation?.values.length ?? data.values.length;
  const asked =
    'start' in wanted ? wanted.start : evaluation === undefined ? wanted.index : firstAt(evaluation, wanted.index);
  const start = Math.max(0, Math.min(asked, total - 1));
  const rows: NumberRow[] = [];
  for (let i = start; i < Math.min(start + rowsOnPage, total); i++) {
    if (evaluation === undefined) rows.push({ index: i, original: data.values[i]! });
    else {
      const { parts, scale } = evaluation;
      const part = partAt(parts, i);
      const isNew = parts.count > 1 && (i === start || part !== partAt(parts, i - 1));
      rows.push({
        ...(isNew && { part: { index: part, scale: scale[part] } }),
        index: evaluation.position(i),
        original: evaluation.values[i]!,
        restored: evaluation.restored[i]!,
        ...(evaluation.codes !== undefined && { code: evaluation.codes[i]! }),
      });
    }
  }
  return { start, total, rows };
}

/** Counts the occurrences of each code from qmin to qmax. */
function countCodes({ codes, levels }: Slice): Uint32Array {
  const counts = new Uint32Array(levels.qmax - levels.qmin + 1);
  for (let i = 0; i < codes.length; i++) {
    const at = codes[i]! - levels.qmin;
    counts[at] = counts[at]! + 1;
  }
  return counts;
}

/** True if the rows of the data can be cut into blocks of a type. */
const fitsBlocks = (data: DataSet, block: Settings['block']) =>
  (data.shape.at(-1) ?? 1) % blockTypeInfo(block).elements === 0;

/** Result of a call; undefined if it throws. Data with NaN fit integers that saturate, but no other type. */
function attempt<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch {
    return undefined;
  }
}

/** Results of all types, each with the settings beside it. */
function ladderOf(core: Scalepoint, data: DataSet, settings: Settings): NonNullable<NumbersView['ladder']> {
  const { bits, block } = defaultSettings;
  const changes: Rung['change'][] = [
    ...bitWidths.map((width) => ({ codes: 'integers' as const, bits: width, block })),
    { codes: 'nf4', bits, block },
    { codes: 'float8', bits, block },
    ...blockChoices
      .filter((type) => fitsBlocks(data, type))
      .map((type) => ({ codes: 'blocks' as const, bits, block: type })),
  ];
  let used = 0;
  const rungs = changes.flatMap((change) => {
    const there = { ...settings, ...change };
    const found = attempt(() => evaluate(core, data, there, ladderLimit));
    if (found === undefined) return [];
    used = found.values.length;
    return { change, name: typeName(there), sqnrDb: found.comparison.sqnrDb, bytes: countBytes(data, there) };
  });
  const basis = data.values.length <= ladderLimit ? 'the same numbers' : `a sample of ${formatCount(used)} numbers`;
  return { rungs, basis };
}

function resultOf({ exact, values, comparison, clipped, bytes, parts, scale, zeroPoint }: Evaluation): Result {
  return {
    exact,
    used: values.length,
    comparison,
    clipped: clipped / values.length,
    bytes,
    parts: { kind: parts.kind, count: parts.count, length: parts.span },
    scales:
      scale.length === 0 ? undefined : [scale.reduce((a, b) => Math.min(a, b)), scale.reduce((a, b) => Math.max(a, b))],
    firstScale: scale[0],
    firstZeroPoint: zeroPoint[0],
  };
}

/** The sections that show the part of an evaluation. */
function partSections(core: Scalepoint, evaluation: Evaluation, slice: Slice, wish: ViewRequest): Partial<NumbersView> {
  const counts = countCodes(slice);
  const clips = wish.open.includes('clipping') && evaluation.settings.codes === 'integers';
  const clipping = clips ? attempt(() => clippingCurve(core, evaluation, slice)) : undefined;
  const errors = wish.open.includes('errors') ? errorsOf(core, slice, wish.widths.errors) : undefined;
  return {
    part: {
      part: slice.part,
      count: slice.values.length,
      levels: slice.levels,
      levelsUsed: counts.reduce((n, count) => n + Number(count > 0), 0),
      clipped: slice.clipped,
    },
    ...(wish.open.includes('line') && { line: lineOf(slice, wish.widths.line, wish.lineAt) }),
    ...(errors !== undefined && { errors }),
    ...(wish.open.includes('twin') && { codeCounts: counts }),
    ...(clipping !== undefined && { clipping }),
  };
}

/** The data to draw of an evaluation, or of the numbers alone without one. */
export function viewOf(
  core: Scalepoint,
  data: DataSet,
  statistics: Statistics,
  outcome: { readonly evaluation?: Evaluation; readonly failure?: Failure },
  wish: ViewRequest,
): NumbersView {
  const { settings, open, widths } = wish;
  const { evaluation, failure } = outcome;
  const { values, ...facts } = data;
  const slice = evaluation && sliceOf(evaluation, settings.part);
  const shown = slice?.values ?? values;
  const bars = barsOf(core, shown, slice?.codes, binsFor(shown.length, widths.histogram));
  return {
    settings,
    data: facts,
    statistics,
    partCount: evaluation?.parts.count ?? partsOf(granularityOf(settings, data.shape.length), data.shape).count,
    ...(failure !== undefined && { failure }),
    ...(evaluation !== undefined && { result: resultOf(evaluation) }),
    ...(bars !== undefined && { bars }),
    ...(open.includes('rows') && { rows: rowsOf(data, evaluation, wish.row)! }),
    ...(evaluation !== undefined && slice !== undefined && partSections(core, evaluation, slice, wish)),
    ...(evaluation !== undefined && open.includes('ladder') && { ladder: ladderOf(core, data, settings) }),
    ...(evaluation !== undefined &&
      open.includes('codes') && { codes: attempt(() => codeCurves(core, data, settings)) ?? [] }),
  };
}

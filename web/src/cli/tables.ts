/** Tables of plans and reports. */
import { basename } from 'node:path';
import type { ModelPlan, ModelReport, PlannedTensorInfo, TensorReport } from '../model.js';
import type { ModelFit, ModelTotals } from '../tooling.js';
import { repairText } from './repair-text.js';
import {
  columnsOf,
  counted,
  formatBytes,
  formatDecibels,
  formatError,
  formatShape,
  lowestLine,
  nameText,
  outputLine,
  painter,
  printable,
  type TableColumn,
  type TableRow,
  table,
} from './text.js';

/** The columns that plans and reports begin with. */
const firstColumns: readonly TableColumn[] = [
  { title: 'tensor', align: 'left' },
  { title: 'dtype', align: 'left' },
  { title: 'shape', align: 'left' },
  { title: 'before', align: 'right' },
  { title: 'after', align: 'right' },
];

function firstCells({ name, shape, from, to, bytesBefore, bytesAfter }: PlannedTensorInfo): string[] {
  const type = from === to ? from : `${from} → ${to}`;
  return [nameText(name), type, formatShape(shape), formatBytes(bytesBefore), formatBytes(bytesAfter)];
}

/** Counts of quantized, cast and kept tensors. */
function countsText({ quantized, cast, kept }: ModelTotals): string {
  const some = [
    ...(quantized > 0 || cast === 0 ? [`${quantized} quantized`] : []),
    ...(cast > 0 ? [`${cast} cast`] : []),
    `${kept} kept`,
  ];
  return some.join(', ');
}

/** Share of the bytes that a target converts, without those that rules keep. */
export function convertedShare(tensors: readonly PlannedTensorInfo[]): number {
  const open = tensors.filter(({ kept }) => kept?.kind !== 'rule');
  const sum = (list: readonly PlannedTensorInfo[]) => list.reduce((all, { bytesBefore }) => all + bytesBefore, 0);
  return sum(open) === 0 ? 0 : sum(open.filter(({ kept }) => kept === undefined)) / sum(open);
}

/** A target that converts a smaller share has next to no effect. */
export const leastConverted = 0.01;

/** Words about a target that converts next to nothing. */
function littleText(tensors: readonly PlannedTensorInfo[], { quantized, cast }: ModelTotals): string {
  const share = convertedShare(tensors);
  return quantized + cast === 0 || share >= leastConverted ? '' : `; ${shareText(share)} of the bytes, nearly nothing`;
}

/** A small share in percent. */
export const shareText = (share: number): string => `${(100 * share).toPrecision(1)} %`;

function totalsText(file: string, tensors: readonly PlannedTensorInfo[], totals: ModelTotals): string[] {
  const { bytesBefore, bytesAfter, ratio, bitsPerWeight, fellBack = 0 } = totals;
  const share = (100 * fellBack).toPrecision(2);
  const others = fellBack === 0 ? '' : `; ${share} % of the elements in other types, whose blocks divide their rows`;
  return [
    `${printable(basename(file))}: ${counted(tensors.length, 'tensor')}, ${countsText(totals)}${littleText(tensors, totals)}${others}`,
    `${formatBytes(bytesBefore)} → ${formatBytes(bytesAfter)}, ratio ${ratio.toFixed(2)}, ${bitsPerWeight.toFixed(2)} bits per weight`,
  ];
}

/** The line about values that the errors leave out, if any. */
function leftOutLine(tensors: readonly TensorReport[]): string[] {
  const left = tensors.filter(({ error }) => error !== undefined && error.nonFinite > 0);
  const [first] = left;
  if (first === undefined) return [];
  const total = left.reduce((sum, { error }) => sum + (error?.nonFinite ?? 0), 0);
  const where = left.length === 1 ? nameText(first.name) : counted(left.length, 'tensor');
  return [`${counted(total, 'pair')} left out of the errors, NaN or infinite: ${where}`];
}

/** The line about the loss of a result of a given size. */
function fitLines(fit: ModelFit | undefined): string[] {
  if (fit === undefined) return [];
  const { error, bound } = fit;
  const gap = bound === 0 ? Number.POSITIVE_INFINITY : 100 * (error / bound - 1);
  const least = error === bound ? 'the least in this size' : `at most ${gap.toPrecision(2)} % above the least`;
  return [`predicted error ${error.toPrecision(3)}, ${least}`];
}

/** Lines of a plan. @param written the files that would be written beside the output */
export function planText(
  file: string,
  output: string | null,
  { tensors, totals, fit }: ModelPlan,
  written: readonly string[],
): string[] {
  const paint = painter(process.stdout);
  const columns: TableColumn[] = [...firstColumns, { title: 'kept because', align: 'left' }];
  const rows = tensors.map((tensor): TableRow => {
    const { kept } = tensor;
    return { cells: [...firstCells(tensor), kept?.text ?? ''], ...(kept === undefined ? {} : { style: 'dim' }) };
  });
  const lines = rows.length === 0 ? [] : [...table(columns, rows, columnsOf(process.stdout), paint), ''];
  const what = output === null ? 'would be' : `would write ${printable(output)}:`;
  lines.push(...totalsText(file, tensors, totals), ...fitLines(fit), `${what} ${counted(totals.bytesAfter, 'byte')}`);
  for (const path of written) lines.push(`would write ${printable(path)}`);
  return lines;
}

/** Lines of a report. */
export function reportText(
  file: string,
  { tensors, totals, repair }: ModelReport,
  stream: NodeJS.WriteStream,
  fit?: ModelFit,
): string[] {
  const paint = painter(stream);
  const columns: TableColumn[] = [
    ...firstColumns,
    { title: 'SQNR dB', align: 'right' },
    { title: 'max error', align: 'right' },
  ];
  // Leave out the tensors of a copy.
  const rows = tensors.flatMap((tensor): TableRow[] => {
    const { error, kept } = tensor;
    if (kept?.kind === 'copy') return [];
    const cells = firstCells(tensor);
    if (error === undefined) return [{ cells, remark: `kept: ${kept?.text}`, style: 'dim' }];
    return [{ cells: [...cells, formatDecibels(error.sqnrDb), formatError(error.maxAbsoluteError)] }];
  });
  const lines = rows.length === 0 ? [] : [...table(columns, rows, columnsOf(stream), paint), ''];
  lines.push(
    ...totalsText(file, tensors, totals),
    ...fitLines(fit),
    ...lowestLine(tensors),
    ...outputLine(tensors),
    ...leftOutLine(tensors),
    ...repairText(repair, columnsOf(stream), paint),
  );
  return lines;
}

/** Tables of plans and reports. */
import { basename } from 'node:path';
import type { ModelPlan, ModelReport, ModelTotals, PlannedTensorInfo } from '../model.js';
import {
  type Column,
  columnsOf,
  count,
  formatBytes,
  formatDecibels,
  formatError,
  formatShape,
  lowestLine,
  painter,
  printable,
  type Row,
  table,
} from './text.js';

/** The columns that plans and reports begin with. */
const firstColumns: readonly Column[] = [
  { title: 'tensor', align: 'left' },
  { title: 'dtype', align: 'left' },
  { title: 'shape', align: 'left' },
  { title: 'before', align: 'right' },
  { title: 'after', align: 'right' },
];

function firstCells({ name, shape, from, to, bytesBefore, bytesAfter }: PlannedTensorInfo): string[] {
  const type = from === to ? from : `${from} → ${to}`;
  return [printable(name), type, formatShape(shape), formatBytes(bytesBefore), formatBytes(bytesAfter)];
}

function totalsText(file: string, tensors: readonly PlannedTensorInfo[], totals: ModelTotals): string[] {
  const { quantized, kept, bytesBefore, bytesAfter, ratio, bitsPerWeight } = totals;
  return [
    `${printable(basename(file))}: ${count(tensors.length, 'tensor')}, ${quantized} quantized, ${kept} kept`,
    `${formatBytes(bytesBefore)} → ${formatBytes(bytesAfter)}, ratio ${ratio.toFixed(2)}, ${bitsPerWeight.toFixed(2)} bits per weight`,
  ];
}

/** What a plan says. `written`: the files that would be written beside the output. */
export function planText(
  file: string,
  output: string,
  { tensors, totals }: ModelPlan,
  written: readonly string[],
): string[] {
  const paint = painter(process.stdout);
  const columns: Column[] = [...firstColumns, { title: 'kept because', align: 'left' }];
  const rows = tensors.map((tensor): Row => {
    const { kept } = tensor;
    return { cells: [...firstCells(tensor), kept ?? ''], ...(kept === undefined ? {} : { style: 'dim' }) };
  });
  const lines = rows.length === 0 ? [] : [...table(columns, rows, columnsOf(process.stdout), paint), ''];
  lines.push(
    ...totalsText(file, tensors, totals),
    `would write ${printable(output)}: ${count(totals.bytesAfter, 'byte')}`,
  );
  for (const path of written) lines.push(`would write ${printable(path)}`);
  return lines;
}

/** What a report says. */
export function reportText(file: string, { tensors, totals }: ModelReport): string[] {
  const paint = painter(process.stdout);
  const columns: Column[] = [
    ...firstColumns,
    { title: 'SQNR dB', align: 'right' },
    { title: 'max error', align: 'right' },
  ];
  const rows = tensors.map((tensor): Row => {
    const { error, kept } = tensor;
    const cells = firstCells(tensor);
    if (error === undefined) return { cells, remark: `kept: ${kept}`, style: 'dim' };
    return { cells: [...cells, formatDecibels(error.sqnrDb), formatError(error.maxAbsoluteError)] };
  });
  const lines = rows.length === 0 ? [] : [...table(columns, rows, columnsOf(process.stdout), paint), ''];
  lines.push(...totalsText(file, tensors, totals), ...lowestLine(tensors));
  return lines;
}

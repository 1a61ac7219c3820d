import type { BenchPart, BenchRow } from 'scalepoint/bench';
import { formatReal } from '../shared/format.js';

/** Names of the parts of the benchmark. */
export const titles: Readonly<Record<BenchPart, string>> = {
  arrays: 'Arrays in wasm memory',
  blocks: 'To ggml’s blocks',
  layers: 'Layers: y = x W',
};

/** Terms and units of the parts, explained. */
export const terms: Readonly<Record<BenchPart, string>> = {
  arrays:
    'Floats to whole numbers of 8 or 4 bits, without a copy unless the name says so. G floats/s: billions of floats a second.',
  blocks:
    'Blocks are some numbers with their own scales, as GGUF files have them. M weights/s: millions of weights a second.',
  layers:
    'Products of a layer with 8- or 4-bit weights (W8, W4) and float or 8-bit inputs (A32, A8). GMAC/s: billions of multiplications with their additions a second.',
};

const times = (ratio: number | undefined) =>
  ratio === undefined ? '' : `${formatReal(ratio, ratio < 10 ? 2 : 3)}\u00a0×`;

/** A time: `0.42 ms`, `38 µs`. */
export function formatTime(milliseconds: number): string {
  return milliseconds < 0.1
    ? `${formatReal(milliseconds * 1000, 3)}\u00a0µs`
    : `${formatReal(milliseconds, 3)}\u00a0ms`;
}

/** The table cells of a measurement, formatted for people. */
export function cellsOf({ operation, size, milliseconds, rate, unit, limit, plain }: BenchRow): string[] {
  return [
    operation,
    size.replace(' x ', ' × '),
    formatTime(milliseconds),
    times(limit),
    times(plain),
    `${formatReal(rate, 3)}\u00a0${unit}`,
  ];
}

const headings = ['operation', 'on', 'time', 'of the limit', 'JavaScript takes', 'rate'];
const plainCells = (row: BenchRow) => cellsOf(row).map((cell) => cell.replaceAll('\u00a0', ' '));

/** The table as aligned text. */
export function textOf(rows: readonly BenchRow[], about: string): string {
  const lines = [headings, ...rows.map(plainCells)];
  const widths = headings.map((_, column) => Math.max(...lines.map((cells) => cells[column]!.length)));
  // Words to the left, numbers to the right.
  const padded = (cell: string, column: number) =>
    column < 2 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!);
  return `${lines.map((cells) => cells.map(padded).join('  ').trimEnd()).join('\n')}\n\n${about}\n`;
}

/** The table in Markdown. */
export function markdownOf(rows: readonly BenchRow[], about: string): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  return `${[line(headings), line(headings.map(() => '---')), ...rows.map((row) => line(plainCells(row)))].join('\n')}\n\n${about}\n`;
}

/** The exact figures as CSV. */
export function csvOf(rows: readonly BenchRow[]): string {
  const names = ['part', 'operation', 'size', 'milliseconds', 'rate', 'unit', 'limit', 'plain'] as const;
  const field = (value: string | number | undefined) => (typeof value === 'string' ? `"${value}"` : (value ?? ''));
  return `${[names.join(','), ...rows.map((row) => names.map((name) => field(row[name])).join(','))].join('\n')}\n`;
}

/** Text for terminals: colors, numbers in a few digits, tables that fit the width. */
import { styleText } from 'node:util';
import { type ComparedTensor, standsForInfinity } from '../tooling.js';

/** Names come from files. Characters that could move the cursor, color the screen or reverse the text are escaped. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (character) => {
    return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
  });
}

/** Characters of a single text that are shown. --json prints all of it. */
const mostShown = 1000;

/** A text that is too long to be read, cut off. */
function cut(text: string): string {
  return text.length > mostShown ? `${text.slice(0, mostShown - 1)}…` : text;
}

/** A name as it is shown. */
export function nameText(name: string): string {
  return cut(printable(name.slice(0, mostShown + 1)));
}

type Style = 'bold' | 'dim' | 'red' | 'green';

/** Colors text. */
type Paint = (style: Style, text: string) => string;

/** Colors text for a stream, if it should have color. */
export function painter(stream: NodeJS.WriteStream): Paint {
  // Otherwise Node would check stdout, whatever the stream, which is checked below.
  const options = { validateStream: false } as { stream?: NodeJS.WritableStream };
  // By the usual environment variables.
  const { NO_COLOR, FORCE_COLOR, TERM } = process.env;
  const isForced = FORCE_COLOR ? FORCE_COLOR !== '0' : stream.isTTY === true && TERM !== 'dumb';
  const hasColor = isForced && !NO_COLOR && !process.argv.includes('--no-color');
  return hasColor ? (style, text) => styleText(style, text, options) : (_, text) => text;
}

/** Prints the reason why a command failed, on one line. */
export function complain(text: string): void {
  process.stderr.write(`${painter(process.stderr)('red', 'scalepoint:')} ${printable(text)}\n`);
}

/** Characters that are written at once. A text of all lines could be longer than a string can be. */
const mostWritten = 2 ** 20;

/** Prints lines. */
export function printLines(lines: Iterable<string>, stream: NodeJS.WriteStream = process.stdout): void {
  let text = '';
  for (const line of lines) {
    text += `${line}\n`;
    if (text.length < mostWritten) continue;
    stream.write(text);
    text = '';
  }
  if (text !== '') stream.write(text);
}

/** Columns of the terminal; infinite in a pipe. */
export function terminalColumns(stream: NodeJS.WriteStream): number {
  return stream.columns || Number(process.env.COLUMNS) || Number.POSITIVE_INFINITY;
}

/** A size in decimal units with three digits: 512 B, 67.1 kB, 1.24 MB. */
export function formatBytes(bytes: number): string {
  let value = bytes;
  for (const unit of ['B', 'kB', 'MB', 'GB', 'TB']) {
    if (value < 999.5 || unit === 'TB') {
      const digits = unit === 'B' || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
      return `${value.toFixed(digits)} ${unit}`;
    }
    value /= 1000;
  }
  return '';
}

export function formatShape(shape: readonly number[]): string {
  return shape.length === 0 ? 'scalar' : shape.join('×');
}

/** An SQNR. It is infinite without any error, and minus infinity if zeros became something else. */
export function formatDecibels(db: number): string {
  if (db === Number.POSITIVE_INFINITY) return 'exact';
  return Number.isFinite(db) ? db.toFixed(2) : '-∞';
}

/** An SQNR in a sentence. */
export function withDecibels(db: number): string {
  return db === Number.POSITIVE_INFINITY ? 'exact' : `${formatDecibels(db)} dB`;
}

/** A tensor with its error. */
export interface MeasuredTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly error?: { readonly sqnrDb: number; readonly maxAbsoluteError: number } | undefined;
}

/** True if a tensor is a single number that stands for infinity, so that its error has no meaning. */
export function isInfinity({ shape, error }: MeasuredTensor): boolean {
  const elements = shape.reduce((product, size) => product * size, 1);
  return standsForInfinity(elements, error?.maxAbsoluteError ?? 0);
}

/** The line about the worst tensor; empty if all are exact. */
export function lowestLine(tensors: readonly MeasuredTensor[]): string[] {
  let worst: { readonly name: string; readonly db: number } | undefined;
  for (const tensor of tensors) {
    const { name, error } = tensor;
    if (error !== undefined && error.sqnrDb < (worst?.db ?? Number.POSITIVE_INFINITY) && !isInfinity(tensor))
      worst = { name, db: error.sqnrDb };
  }
  return worst === undefined ? [] : [`lowest SQNR ${withDecibels(worst.db)}: ${nameText(worst.name)}`];
}

/** Errors of a tensor's outputs. */
interface MeasuredOutput {
  readonly before: number;
  readonly after: number;
  readonly heldBack: boolean;
}

/** The line about the errors of outputs with GPTQ; empty without. Matrices whose outputs were exact before do not count. */
export function outputLine(
  tensors: readonly {
    readonly error?: { readonly output?: MeasuredOutput | undefined } | undefined;
  }[],
): string[] {
  const all = tensors.flatMap(({ error }) => error?.output ?? []).filter(({ before }) => before > 0);
  const held = all.filter(({ heldBack }) => heldBack);
  const [judged, where] = held.length > 0 ? [held, 'held-back data'] : [all, 'the data that codes were fitted to'];
  const shares = judged.map(({ before, after }) => after / before).sort((a, b) => a - b);
  if (shares.length === 0) return [];
  const share = (at: number) => (shares[at] as number).toFixed(2);
  const middle = share(Math.floor((shares.length - 1) / 2));
  const range =
    shares.length === 1 ? '' : ` (${share(0)} to ${share(shares.length - 1)}, ${countText(shares.length, 'tensor')})`;
  return [`squared errors of outputs on ${where}: ${middle} of those without GPTQ${range}`];
}

/** The magnitude of an error, with two digits. */
export function formatError(error: number): string {
  return error === 0 ? '0' : error.toExponential(1);
}

/** Columns of text, and columns of numbers. */
export const left = (...titles: string[]): TableColumn[] => titles.map((title) => ({ title, align: 'left' }));
export const right = (...titles: string[]): TableColumn[] => titles.map((title) => ({ title, align: 'right' }));

/** Columns of an error, for `errorCells`. */
export const errorColumns: readonly TableColumn[] = right('SQNR dB', 'cosine', 'max error');

/** SQNR, cosine and largest error of an output or a tensor. */
export const errorCells = ({ sqnrDb, cosine, maxAbsoluteError }: ComparedTensor['error']): string[] => [
  formatDecibels(sqnrDb),
  cosine.toFixed(6),
  formatError(maxAbsoluteError),
];

/** A duration: 5 s, 3 min 05 s, 2 h 07 min. */
export function formatSeconds(seconds: number): string {
  const whole = Math.ceil(seconds);
  const padded = (n: number) => String(n).padStart(2, '0');
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${padded(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${padded(Math.floor((whole % 3600) / 60))} min`;
}

export function countText(n: number, what: string): string {
  return `${n.toLocaleString('en')} ${what}${n === 1 ? '' : 's'}`;
}

/** A word of a command line, quoted where a shell needs it. */
export const shellWord = (text: string): string =>
  /^[\w./:@%+,=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

/** A list of names in a sentence: the first few, and the number of the others. */
export function listText(names: readonly string[], most: number): string {
  const more = names.length > most ? ` and ${(names.length - most).toLocaleString('en')} more` : '';
  return names.slice(0, most).map(nameText).join(', ') + more;
}

/** Lines with an empty one behind them; an empty list stays empty. */
export const spaced = (lines: readonly string[]): string[] => (lines.length === 0 ? [] : [...lines, '']);

interface TableColumn {
  readonly title: string;
  readonly align: 'left' | 'right';
}

/** A row of a table. A remark can take the place of its last cells. */
export interface TableRow {
  readonly cells: readonly string[];
  readonly remark?: string;
  readonly style?: Style;
}

/** Columns that names need to stand beside the rest of their rows. */
const leastName = 12;

/** Most characters of a column, also in a pipe: the width of one cell is added to every row. */
const mostColumn = 200;

/**
 * Lines of a table; none without rows. In a narrow terminal, and in a pipe if it is very long, a text that is too long for the first column gets a line of
 * its own above the rest of its row.
 */
export function table(
  columns: readonly TableColumn[],
  rows: readonly TableRow[],
  stream: NodeJS.WriteStream = process.stdout,
): string[] {
  if (rows.length === 0) return [];
  const paint = painter(stream);
  const widths = columns.map(({ title }, i) =>
    rows.reduce((most, { cells }) => Math.max(most, Math.min(cells[i]?.length ?? 0, mostColumn)), title.length),
  );
  const gap = '  ';
  const sum = (list: readonly number[]) => list.reduce((total, n) => total + n + gap.length, -gap.length);
  // Remarks may be wider than the columns that they replace.
  const others = rows.reduce(
    (most, { cells, remark }) =>
      remark === undefined ? most : Math.max(most, sum([0, ...widths.slice(1, cells.length), remark.length])),
    sum([0, ...widths.slice(1)]),
  );
  // Names have lines of their own if the other columns leave no room for them.
  const room = terminalColumns(stream) - others;
  widths[0] = Math.min(widths[0] as number, room < leastName ? 0 : room);

  const pad = (text: string, i: number) => {
    return columns[i]?.align === 'right' ? text.padStart(widths[i] as number) : text.padEnd(widths[i] as number);
  };
  const line = ({ cells, remark }: TableRow) => {
    const padded = cells.map(pad);
    return [...padded, ...(remark === undefined ? [] : [remark])].join(gap).trimEnd();
  };
  const titles = { cells: columns.map(({ title }) => title), style: 'bold' } as const;
  const lines: string[] = [];
  for (const row of [titles, ...rows]) {
    const [name = '', ...rest] = row.cells.map(cut);
    const styled = (text: string) => (row.style === undefined ? text : paint(row.style, text));
    if (name.length > (widths[0] as number)) lines.push(styled(name), styled(line({ ...row, cells: ['', ...rest] })));
    else lines.push(styled(line({ ...row, cells: [name, ...rest] })));
  }
  return lines;
}

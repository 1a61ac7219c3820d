#!/usr/bin/env node
// The command line over model.ts. Results go to stdout; progress and errors to stderr, so that pipes stay clean.
import { basename, dirname, join } from 'node:path';
import { parseArgs, styleText } from 'node:util';
import {
  inspectModel,
  type ModelInfo,
  type ModelReport,
  type Progress,
  QualityError,
  quantizeModel,
  type Rule,
  ScalepointError,
} from './model.js';

const usage = `scalepoint: make models smaller

  scalepoint inspect  FILE                      what is in a model file
  scalepoint quantize FILE --to int8 [-o OUT]   the same with 8-bit weights

FILE is a .safetensors or .npy file; its content decides, not its name.
scalepoint COMMAND --help tells more; scalepoint --version names the build.
`;

const inspectUsage = `scalepoint inspect FILE [--json]

Lists the tensors of a .safetensors or .npy file: name, dtype, shape, size.
Reads the header only.

  --json       print JSON: { file, format, bytes, tensors, metadata }
  --no-color   no colour, like NO_COLOR=1 in the environment

Examples
  scalepoint inspect model.safetensors
  scalepoint inspect model.safetensors --json | jq '.tensors[].name'
`;

const quantizeUsage = `scalepoint quantize FILE --to int8 [-o OUT] [options]

Weights of two or more dimensions (F32, F16, BF16) become int8 with one scale
for each output channel, stored as X.weight and X.weight_scale. Embeddings,
norms, biases, 1-D tensors and lm_head are kept. A table tells what became of
every tensor: sizes, SQNR, the largest error, or why it was kept.

  --to int8             what weights become
  -o, --output OUT      where the result goes; without it beside FILE, with a
                        name that ends in .int8.safetensors
  --rule 'REGEX=int8'   quantize tensors whose name matches, embeddings too
  --rule 'REGEX=keep'   keep tensors whose name matches; rules can be repeated,
                        the first one that matches decides
  --min-sqnr DB         fail, and write nothing, if a tensor's SQNR is lower
  --force               replace OUT if it is there
  --json                print JSON: { file, output, to, tensors, totals }
  --quiet               print errors only
  --no-color            no colour, like NO_COLOR=1 in the environment

OUT appears whole or not at all.
Exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.

Examples
  scalepoint quantize model.safetensors --to int8 -o small.safetensors
  scalepoint quantize model.safetensors --to int8 --rule '^decoder=keep'
  scalepoint quantize weights.npy --to int8 --min-sqnr 35 --json
`;

/** The command line itself is wrong: exit code 2. */
class UsageError extends Error {}

/** A signal came: exit code 128 and its number. */
class Interrupted extends Error {
  readonly exitCode: number;
  constructor(exitCode: number) {
    super('interrupted, nothing was written');
    this.exitCode = exitCode;
  }
}

// ------------------------------------------------------------------------------------------------------------------------ text

/** Names come from files: what could move the cursor, colour the screen or reverse the text is shown as an escape. */
function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (character) => {
    return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
  });
}

type Style = 'bold' | 'dim' | 'red' | 'green';

/** Whether a stream takes colour, by the usual variables. */
function takesColour(stream: NodeJS.WriteStream): boolean {
  const { NO_COLOR, FORCE_COLOR, TERM } = process.env;
  if (NO_COLOR || process.argv.includes('--no-color')) return false;
  if (FORCE_COLOR) return FORCE_COLOR !== '0';
  return stream.isTTY === true && TERM !== 'dumb';
}

/** Colours text for a stream. */
function painter(stream: NodeJS.WriteStream): (style: Style, text: string) => string {
  // Node would look at stdout whatever stream is meant; takesColour has decided already.
  const options = { validateStream: false } as { stream?: NodeJS.WritableStream };
  return takesColour(stream) ? (style, text) => styleText(style, text, options) : (_, text) => text;
}

/** Columns of the terminal; endless in a pipe, where nobody looks at line ends. */
function columnsOf(stream: NodeJS.WriteStream): number {
  return stream.columns || Number(process.env.COLUMNS) || Number.POSITIVE_INFINITY;
}

/** A size in decimal units with three digits: 512 B, 67.1 kB, 1.24 MB. */
function formatBytes(bytes: number): string {
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

function formatShape(shape: readonly number[]): string {
  return shape.length === 0 ? 'scalar' : shape.join('×');
}

function formatDecibels(db: number): string {
  return Number.isFinite(db) ? db.toFixed(2) : 'exact';
}

function count(n: number, what: string): string {
  return `${n.toLocaleString('en')} ${what}${n === 1 ? '' : 's'}`;
}

interface Column {
  readonly title: string;
  readonly align: 'left' | 'right';
}

/** A row of a table: its cells, and a remark that takes the place of the cells that are missing. */
interface Row {
  readonly cells: readonly string[];
  readonly remark?: string;
  readonly style?: Style;
}

/**
 * Lines of a table. The first column gives way in a narrow terminal: a text that is too long for it gets a line of its own, above the
 * rest of its row, so that nothing is cut off.
 */
function table(
  columns: readonly Column[],
  rows: readonly Row[],
  width: number,
  paint: (style: Style, text: string) => string,
) {
  const widths = columns.map(({ title }, i) =>
    Math.max(title.length, ...rows.map(({ cells }) => cells[i]?.length ?? 0)),
  );
  const gap = '  ';
  const sum = (list: readonly number[]) => list.reduce((total, n) => total + n + gap.length, -gap.length);
  // Remarks may need more than the columns that they stand in.
  for (const { cells, remark = '' } of rows) {
    const missing = remark.length - sum(widths.slice(cells.length));
    if (remark !== '' && missing > 0) widths[widths.length - 1] = (widths.at(-1) as number) + missing;
  }
  const others = sum(widths.slice(1)) + gap.length;
  widths[0] = Math.min(widths[0] as number, Math.max(12, width - others));

  const pad = (text: string, i: number) => {
    return columns[i]?.align === 'right' ? text.padStart(widths[i] as number) : text.padEnd(widths[i] as number);
  };
  const line = ({ cells, remark }: Row) => {
    const padded = cells.map(pad);
    return [...padded, ...(remark === undefined ? [] : [remark])].join(gap).trimEnd();
  };
  const lines = [paint('bold', line({ cells: columns.map(({ title }) => title) }))];
  for (const row of rows) {
    const [name = '', ...rest] = row.cells;
    const styled = (text: string) => (row.style === undefined ? text : paint(row.style, text));
    if (name.length > (widths[0] as number)) lines.push(styled(name), styled(line({ ...row, cells: ['', ...rest] })));
    else lines.push(styled(line(row)));
  }
  return lines;
}

// -------------------------------------------------------------------------------------------------------------------- commands

/** Parses options. @throws UsageError */
function parse<T extends NonNullable<NonNullable<Parameters<typeof parseArgs>[0]>['options']>>(
  args: string[],
  options: T,
) {
  try {
    return parseArgs({ args, options, allowPositionals: true, strict: true });
  } catch (error) {
    // The first sentence says what is wrong; the second explains "--" at length.
    throw new UsageError(error instanceof Error ? (error.message.split(/\. /)[0] as string) : String(error));
  }
}

function onlyFile(positionals: readonly string[], command: string): string {
  const [file, extra] = positionals;
  if (file === undefined || file === '') throw new UsageError(`${command} needs a FILE`);
  if (extra !== undefined) throw new UsageError(`${command} takes one FILE, got ${JSON.stringify(extra)} as well`);
  return file;
}

/** Calls f; errors about a file say which. */
async function about<T>(file: string, f: () => Promise<T>): Promise<T> {
  try {
    return await f();
  } catch (error) {
    if (error instanceof ScalepointError && error.code !== 'IO' && error.code !== 'EXISTS') placeOf.set(error, file);
    throw error;
  }
}

/** The file that an error is about. */
const placeOf = new WeakMap<Error, string>();

function printJson(value: unknown): void {
  // JSON has no Infinity: an exact tensor's SQNR becomes null.
  process.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
}

async function inspect(args: string[]): Promise<number> {
  const { values, positionals } = parse(args, {
    json: { type: 'boolean' },
    'no-color': { type: 'boolean' },
    help: { type: 'boolean', short: 'h' },
  });
  if (values.help) {
    process.stdout.write(inspectUsage);
    return 0;
  }
  const file = onlyFile(positionals, 'inspect');
  const info = await about(file, () => inspectModel(file));
  if (values.json) printJson({ file, ...info });
  else process.stdout.write(`${inspectText(file, info).join('\n')}\n`);
  return 0;
}

function inspectText(file: string, info: ModelInfo): string[] {
  const paint = painter(process.stdout);
  const width = columnsOf(process.stdout);
  const { format, bytes, tensors, metadata } = info;
  const elements = tensors.reduce((sum, { shape }) => sum + shape.reduce((product, n) => product * n, 1), 0);
  const facts = [format, count(tensors.length, 'tensor'), count(elements, 'element'), formatBytes(bytes)];
  const lines = [`${paint('bold', printable(file))}: ${facts.join(', ')}`];
  if (tensors.length > 0) {
    const columns: Column[] = [
      { title: 'tensor', align: 'left' },
      { title: 'dtype', align: 'left' },
      { title: 'shape', align: 'left' },
      { title: 'size', align: 'right' },
    ];
    const rows = tensors.map(({ name, dtype, shape, bytes: size }) => ({
      cells: [printable(name), dtype, formatShape(shape), formatBytes(size)],
    }));
    lines.push('', ...table(columns, rows, width, paint));
  }
  const keys = Object.keys(metadata);
  if (keys.length > 0) {
    lines.push('', paint('bold', 'metadata'));
    for (const key of keys) {
      const line = `  ${printable(key)}: ${printable((metadata[key] as string).slice(0, 1000))}`;
      // Some programs store pages of settings here; --json has them whole.
      const most = Math.min(width, 1000);
      lines.push(line.length > most ? `${line.slice(0, most - 1)}…` : line);
    }
  }
  return lines;
}

function parseRule(text: string): Rule {
  const split = text.lastIndexOf('=');
  const target = text.slice(split + 1);
  if (split < 1 || (target !== 'int8' && target !== 'keep')) {
    throw new UsageError(`--rule: expected 'REGEX=int8' or 'REGEX=keep', got ${JSON.stringify(text)}`);
  }
  let match: RegExp;
  try {
    match = new RegExp(text.slice(0, split));
  } catch (error) {
    throw new UsageError(`--rule: ${error instanceof Error ? error.message : error}`);
  }
  return target === 'keep' ? { match, keep: true } : { match, to: target };
}

/** model.safetensors -> model.int8.safetensors, in the same folder. */
function defaultOutput(file: string): string {
  return join(dirname(file), `${basename(file).replace(/\.(safetensors|npy)$/i, '')}.int8.safetensors`);
}

async function quantize(args: string[]): Promise<number> {
  const { values, positionals } = parse(args, {
    to: { type: 'string' },
    output: { type: 'string', short: 'o' },
    rule: { type: 'string', multiple: true },
    'min-sqnr': { type: 'string' },
    force: { type: 'boolean' },
    json: { type: 'boolean' },
    quiet: { type: 'boolean' },
    'no-color': { type: 'boolean' },
    help: { type: 'boolean', short: 'h' },
  });
  if (values.help) {
    process.stdout.write(quantizeUsage);
    return 0;
  }
  const file = onlyFile(positionals, 'quantize');
  const { to, output = defaultOutput(file), force = false, json = false, quiet = false } = values;
  if (to === undefined) throw new UsageError('quantize needs --to int8');
  if (to !== 'int8') throw new UsageError(`--to: expected int8, got ${JSON.stringify(to)}`);
  if (output === '' || output === '-') throw new UsageError('--output: expected the name of a file');
  const rules = (values.rule ?? []).map(parseRule);
  const limit = values['min-sqnr'];
  if (limit !== undefined && (limit.trim() === '' || Number.isNaN(Number(limit)))) {
    throw new UsageError(`--min-sqnr: expected a number of decibels, got ${JSON.stringify(limit)}`);
  }

  const progress = progressLine(!quiet && process.stderr.isTTY === true);
  const show = (report: ModelReport, written: string | undefined) => {
    if (json) printJson({ file, output: written ?? null, to, ...report });
    else if (!quiet) process.stdout.write(`${reportText(file, report, written).join('\n')}\n`);
  };
  try {
    const { report } = await about(file, () =>
      quantizeModel(file, {
        to,
        rules,
        output,
        overwrite: force,
        signal: abortOnSignal(),
        onProgress: progress.update,
        ...(limit === undefined ? {} : { minSqnrDb: Number(limit) }),
      }),
    );
    progress.clear();
    show(report, output);
    for (const { match } of quiet ? [] : rules) {
      if (report.tensors.some(({ name }) => name.search(match) >= 0)) continue;
      process.stderr.write(`scalepoint: no tensor matches the rule ${printable(match.source)}\n`);
    }
    return 0;
  } catch (error) {
    progress.clear();
    if (error instanceof QualityError && !json) show(error.report, undefined);
    throw error;
  }
}

/** A signal that aborts when the process is asked to end. */
function abortOnSignal(): AbortSignal {
  const controller = new AbortController();
  const numbers = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 };
  for (const [name, number] of Object.entries(numbers)) {
    // Once: a second Ctrl-C ends the process at once.
    process.once(name, () => controller.abort(new Interrupted(128 + number)));
  }
  return controller.signal;
}

/** One line on stderr that is drawn over and over; nothing unless `active`. Quick conversions never show it. */
function progressLine(active: boolean) {
  const start = performance.now();
  let last = start;
  let drawn = false;
  return {
    update({ tensor, bytesDone, bytesTotal }: Progress): void {
      const now = performance.now();
      if (!active || now - start < 200 || now - last < 50) return;
      last = now;
      drawn = true;
      const done = bytesDone / Math.max(bytesTotal, 1);
      const bar = '█'.repeat(Math.round(done * 20)).padEnd(20, '░');
      const percent = `${Math.floor(done * 100)}%`.padStart(4);
      const text = `${percent} ${bar} ${formatBytes(bytesDone)} of ${formatBytes(bytesTotal)}  ${printable(tensor)}`;
      // A line as long as the terminal would scroll it.
      process.stderr.write(`\r\x1b[2K${text.slice(0, columnsOf(process.stderr) - 1)}`);
    },
    clear(): void {
      if (drawn) process.stderr.write('\r\x1b[2K');
      drawn = false;
    },
  };
}

function reportText(file: string, report: ModelReport, written: string | undefined): string[] {
  const paint = painter(process.stdout);
  const { tensors, totals } = report;
  const columns: Column[] = [
    { title: 'tensor', align: 'left' },
    { title: 'dtype', align: 'left' },
    { title: 'shape', align: 'left' },
    { title: 'before', align: 'right' },
    { title: 'after', align: 'right' },
    { title: 'SQNR dB', align: 'right' },
    { title: 'max error', align: 'right' },
  ];
  const rows = tensors.map(({ name, shape, from, to, bytesBefore, bytesAfter, error, kept }): Row => {
    const type = from === to ? from : `${from} → ${to}`;
    const cells = [printable(name), type, formatShape(shape), formatBytes(bytesBefore), formatBytes(bytesAfter)];
    if (error === undefined) return { cells, remark: `kept: ${kept}`, style: 'dim' };
    const largest = error.maxAbsoluteError === 0 ? '0' : error.maxAbsoluteError.toExponential(1);
    return { cells: [...cells, formatDecibels(error.sqnrDb), largest] };
  });

  const { quantized, kept, bytesBefore, bytesAfter, ratio, bitsPerWeight } = totals;
  const lines = rows.length === 0 ? [] : [...table(columns, rows, columnsOf(process.stdout), paint), ''];
  lines.push(
    `${printable(basename(file))}: ${count(tensors.length, 'tensor')}, ${quantized} quantized, ${kept} kept`,
    `${formatBytes(bytesBefore)} → ${formatBytes(bytesAfter)}, ratio ${ratio.toFixed(2)}, ${bitsPerWeight.toFixed(2)} bits per weight`,
  );
  const worst = tensors
    .flatMap(({ name, error }) => (error === undefined ? [] : [{ name, db: error.sqnrDb }]))
    .reduce<{ name: string; db: number } | undefined>(
      (low, next) => (low && low.db <= next.db ? low : next),
      undefined,
    );
  if (worst !== undefined) lines.push(`lowest SQNR ${formatDecibels(worst.db)} dB: ${printable(worst.name)}`);
  if (written !== undefined) lines.push(paint('green', `wrote ${printable(written)}`));
  return lines;
}

async function version(): Promise<number> {
  const [{ load }, { buildId, version: number }] = await Promise.all([import('./index.js'), import('./core.mjs')]);
  const sp = await load();
  process.stdout.write(`scalepoint ${number} (core ${buildId.toString(16)}, ${sp.simd ? 'SIMD' : 'scalar'})\n`);
  sp.dispose();
  return 0;
}

// ------------------------------------------------------------------------------------------------------------------------ main

async function run(args: string[]): Promise<number> {
  const [command, ...rest] = args;
  switch (command) {
    case 'inspect':
      return inspect(rest);
    case 'quantize':
      return quantize(rest);
    case 'help':
    case '--help':
    case '-h':
      process.stdout.write(usage);
      return 0;
    case '--version':
    case '-v':
      return version();
    case undefined:
      throw new UsageError('expected a command, inspect or quantize');
    default:
      throw new UsageError(`expected inspect or quantize, got ${JSON.stringify(command)}`);
  }
}

/** Says on one line what went wrong, with --json also on stdout. Returns the exit code. */
function explain(error: unknown, args: readonly string[]): number {
  const message = error instanceof Error ? error.message : String(error);
  const file = error instanceof Error ? placeOf.get(error) : undefined;
  let text = file === undefined ? message : `${file}: ${message}`;
  if (error instanceof ScalepointError) {
    const { code, tensor, byteOffset } = error;
    if (byteOffset !== undefined) text += ` (byte ${byteOffset})`;
    if (code === 'EXISTS') text += '; --force replaces it';
    const report = error instanceof QualityError ? error.report : {};
    if (args.includes('--json')) printJson({ file, ...report, error: { code, message, tensor, byteOffset } });
  }
  if (error instanceof UsageError)
    text += `; see scalepoint ${/^(inspect|quantize)$/.test(args[0] ?? '') ? `${args[0]} ` : ''}--help`;
  const paint = painter(process.stderr);
  process.stderr.write(`${paint('red', 'scalepoint:')} ${printable(text)}\n`);
  if (error instanceof UsageError) return 2;
  return error instanceof Interrupted ? error.exitCode : 1;
}

// A reader such as `head` that has seen enough is no error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
});

const args = process.argv.slice(2);
run(args).then(
  (code) => {
    process.exitCode = code;
  },
  (error: unknown) => {
    process.exitCode = explain(error, args);
  },
);

import { type ComparedTensor, type CompareReport, compareModels, inspectModel, ScalepointError } from '../model.js';
import { withInput } from './input.js';
import { commonOptions, decibelsOf, filesOf, parse, workersOf } from './options.js';
import { abortOnSignal, about, effort, errorJson, peakBytes, printJson, progressLine, UsageError } from './process.js';
import {
  type Column,
  columnsOf,
  count,
  formatDecibels,
  formatError,
  formatShape,
  listed,
  lowestLine,
  nameText,
  painter,
  printable,
  printLines,
  table,
  withDecibels,
} from './text.js';
import { compareUsage } from './usage.js';

const options = {
  ...commonOptions,
  sort: { type: 'string' },
  'min-sqnr': { type: 'string' },
  workers: { type: 'string' },
  quiet: { type: 'boolean' },
} as const;

/** Most names in a line of text. */
const mostNames = 5;

/** Compares two models. Returns the exit code. */
export async function compare(args: string[]): Promise<number> {
  const { values, positionals } = parse(args, options);
  if (values.help) {
    process.stdout.write(compareUsage());
    return 0;
  }
  const [first, second] = filesOf(positionals, ['A', 'B'], 'compare') as [string, string];
  if (first === '-' && second === '-') throw new UsageError('compare: only one of the two can be standard input');
  const { sort = 'file', quiet = false, json = false } = values;
  if (sort !== 'file' && sort !== 'sqnr') {
    throw new UsageError(`--sort: expected file or sqnr, got ${JSON.stringify(sort)}`);
  }
  const wanted = { sort, quiet, json, verbose: values.verbose ?? false };
  const workers = workersOf(values.workers);
  const limit = decibelsOf(values['min-sqnr']);
  const signal = abortOnSignal('interrupted');
  const progress = progressLine(quiet);
  return withInput(
    first,
    (a) =>
      withInput(
        second,
        async (b) => {
          // Each one alone first, so that an error in a header names the file.
          for (const { name, file } of [a, b]) await about(name, () => inspectModel(file));
          const report = await compareModels(a.file, b.file, {
            signal,
            onProgress: progress.update,
            ...(workers === undefined ? {} : { workers }),
          }).finally(progress.clear);
          return show(a.name, b.name, report, limit, wanted);
        },
        signal,
      ),
    signal,
  );
}

/** How the result is shown. */
interface Wanted {
  /** `file` or `sqnr`. */
  readonly sort: string;
  readonly quiet: boolean;
  readonly json: boolean;
  readonly verbose: boolean;
}

/** Prints the result. Returns the exit code. */
function show(a: string, b: string, result: CompareReport, limit: number | undefined, wanted: Wanted): number {
  const report = wanted.sort === 'sqnr' ? { ...result, tensors: sorted(result.tensors) } : result;
  const failure = limit === undefined ? undefined : missed(report, limit);
  if (wanted.json) {
    const told = failure === undefined ? {} : { error: errorJson(failure) };
    printJson({ a, b, ...report, peakBytes: peakBytes(), ...told });
  } else if (!wanted.quiet) {
    const lines = compareText(a, b, report);
    if (wanted.verbose) lines.push(effort());
    printLines(lines);
  }
  if (failure !== undefined) {
    process.stderr.write(`${painter(process.stderr)('red', 'scalepoint:')} ${printable(failure.message)}\n`);
    return 1;
  }
  return 0;
}

/** Sorts tensors by SQNR, the lowest first. */
function sorted(tensors: readonly ComparedTensor[]): ComparedTensor[] {
  // The difference of two infinities is NaN.
  return [...tensors].sort((a, b) => (a.error.sqnrDb === b.error.sqnrDb ? 0 : a.error.sqnrDb - b.error.sqnrDb));
}

/** The error if a tensor has a lower SQNR than wanted. */
function missed({ tensors }: CompareReport, limit: number): ScalepointError | undefined {
  if (tensors.length === 0) return new ScalepointError('QUALITY', 'the models have no tensors to compare');
  const below = sorted(tensors).filter(({ error }) => error.sqnrDb < limit);
  const [worst] = below;
  if (worst === undefined) return undefined;
  const names = below.map(({ name, error }) => `${JSON.stringify(name)} (${withDecibels(error.sqnrDb)})`);
  return new ScalepointError('QUALITY', `SQNR below ${limit} dB: ${listed(names, 3)}`, { tensor: worst.name });
}

function compareText(a: string, b: string, report: CompareReport): string[] {
  const paint = painter(process.stdout);
  const { tensors, total, skipped, onlyInA, onlyInB } = report;
  const columns: Column[] = [
    { title: 'tensor', align: 'left' },
    { title: 'dtype', align: 'left' },
    { title: 'shape', align: 'left' },
    { title: 'SQNR dB', align: 'right' },
    { title: 'cosine', align: 'right' },
    { title: 'max error', align: 'right' },
  ];
  const rows = tensors.map(({ name, shape, a: from, b: to, error }) => ({
    cells: [
      nameText(name),
      from === to ? from : `${from} → ${to}`,
      formatShape(shape),
      formatDecibels(error.sqnrDb),
      error.cosine.toFixed(6),
      formatError(error.maxAbsoluteError),
    ],
  }));
  const lines = rows.length === 0 ? [] : [...table(columns, rows, columnsOf(process.stdout), paint), ''];
  lines.push(`${printable(a)} and ${printable(b)}: ${count(tensors.length, 'tensor')} compared`);
  if (tensors.length > 0) {
    lines.push(
      `SQNR ${withDecibels(total.sqnrDb)}, cosine ${total.cosine.toFixed(6)}, max error ${formatError(total.maxAbsoluteError)}`,
    );
    lines.push(...lowestLine(tensors));
  }
  if (total.nonFinite > 0) lines.push(`${count(total.nonFinite, 'pair')} left out: NaN or infinite`);
  for (const { name, reason } of skipped.slice(0, mostNames)) {
    lines.push(`not compared: ${nameText(name)}: ${printable(reason)}`);
  }
  if (skipped.length > mostNames) lines.push(`not compared: ${skipped.length - mostNames} more`);
  for (const [file, names] of [
    [a, onlyInA],
    [b, onlyInB],
  ] as const) {
    if (names.length > 0) lines.push(`only in ${printable(file)}: ${listed(names, mostNames)}`);
  }
  return lines;
}

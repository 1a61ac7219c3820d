/** The command `compare`. */

import { type CompareReport, compareModels, inspectModel, ScalepointError } from '../model.js';
import type { ComparedTensor } from '../tooling.js';
import { backendNames, withBackends } from './backends.js';
import { backendText } from './backends-text.js';
import { compareFlags } from './flags.js';
import { withInput } from './input.js';
import { choiceOf, decibelsOf, filesOf, parseArguments, workersOf } from './parse.js';
import { abortOnSignal, about, effort, errorJson, peakBytes, printJson, progressLine, UsageError } from './process.js';
import { missedOutput, runOptionsOf, runText } from './running.js';
import {
  columnsOf,
  counted,
  errorCells,
  errorColumns,
  formatError,
  formatShape,
  isInfinity,
  listed,
  lowestLine,
  nameText,
  painter,
  printable,
  printLines,
  type TableColumn,
  table,
  withDecibels,
} from './text.js';
import { compareUsage } from './usage.js';

/** Most names in a line of text. */
const mostNames = 5;

/** Compares two models. Returns the exit code. */
export async function compareCommand(args: string[]): Promise<number> {
  const { values, positionals } = parseArguments(args, compareFlags);
  if (values.help) {
    process.stdout.write(compareUsage());
    return 0;
  }
  const [first, second] = filesOf(positionals, ['A', 'B'], 'compare') as [string, string];
  if (first === '-' && second === '-') throw new UsageError('compare: only one of the two can be standard input');
  const { quiet = false, json = false } = values;
  const sort = choiceOf('sort', values.sort, compareFlags.sort.choices) ?? 'file';
  const wanted = { sort, quiet, json, verbose: values.verbose ?? false };
  const workers = workersOf(values.workers);
  const limit = decibelsOf(values['min-sqnr']);
  const run = runOptionsOf(values);
  const backends = backendNames(values.backend);
  const signal = abortOnSignal('interrupted');
  const progress = progressLine(quiet);
  return withInput(
    first,
    (a) =>
      withInput(
        second,
        async (b) => {
          // Each one alone first, so that an error in a header names the file.
          for (const { name, file } of [a, b]) await about(name, () => inspectModel(file, { signal }));
          const report = await withBackends(backends, values.browser, (places) =>
            compareModels(a.file, b.file, {
              signal,
              onProgress: progress.update,
              ...(workers === undefined ? {} : { workers }),
              ...(run === undefined ? {} : { run: { ...run, ...(places && { backends: places }) } }),
            }),
          ).finally(progress.clear);
          return show(a.name, b.name, report, limit, wanted);
        },
        signal,
      ),
    signal,
  );
}

/** Options of the output. */
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
  // With --run, --min-sqnr applies to the outputs.
  const miss = result.outputs === undefined ? missed : missedOutput;
  const failure = limit === undefined ? withoutPair(result) : miss(report, limit);
  if (wanted.json) {
    const text = failure === undefined ? {} : { error: errorJson(failure) };
    printJson({ a, b, ...report, peakBytes: peakBytes(), ...text });
  } else if (!wanted.quiet) {
    const run = result.outputs === undefined ? [] : ['', ...runText(result), ...backendText(result)];
    const lines = [...compareText(a, b, report), ...run];
    if (wanted.verbose) lines.push(effort());
    printLines(lines);
  }
  if (failure !== undefined) {
    process.stderr.write(`${painter(process.stderr)('red', 'scalepoint:')} ${printable(failure.message)}\n`);
    return 1;
  }
  return 0;
}

/** The error for models that share no tensor, so that the comparison says nothing. */
function withoutPair({ tensors, skipped, onlyInA, onlyInB, outputs }: CompareReport): ScalepointError | undefined {
  if (outputs !== undefined || tensors.length + skipped.length > 0 || onlyInA.length + onlyInB.length === 0)
    return undefined;
  return new ScalepointError('NOT_FOUND', 'the models have no tensor of the same name');
}

/** Sorts tensors by SQNR, the lowest first. */
function sorted(tensors: readonly ComparedTensor[]): ComparedTensor[] {
  // The difference of two infinities is NaN.
  return [...tensors].sort((a, b) => (a.error.sqnrDb === b.error.sqnrDb ? 0 : a.error.sqnrDb - b.error.sqnrDb));
}

/** The error if the SQNR of a tensor is too low, or if the other model has no tensor to compare it with. */
function missed(report: CompareReport, limit: number): ScalepointError | undefined {
  const { tensors, skipped, onlyInA, onlyInB } = report;
  if (tensors.length === 0 && skipped.length === 0 && onlyInA.length === 0 && onlyInB.length === 0) {
    return new ScalepointError('QUALITY', 'the models have no tensors to compare');
  }
  const below = sorted(tensors).filter((tensor) => tensor.error.sqnrDb < limit && !isInfinity(tensor));
  const decibels = new Map(below.map(({ name, error }) => [name, ` (${withDecibels(error.sqnrDb)})`]));
  const differing = skipped.filter(({ differs }) => differs);
  const findings: readonly [what: string, names: readonly string[]][] = [
    [`SQNR below ${limit} dB`, below.map(({ name }) => name)],
    ['only in A', onlyInA],
    ['only in B', onlyInB],
    ['of another shape or type', differing.map(({ name }) => name)],
    [
      'NaN or infinite, and not the same in both',
      tensors.filter(({ mismatched }) => mismatched > 0).map(({ name }) => name),
    ],
  ];
  const found = findings.filter(([, names]) => names.length > 0);
  const [first] = found;
  if (first === undefined) {
    return tensors.length > 0 ? undefined : new ScalepointError('QUALITY', 'the models have no tensors to compare');
  }
  const text = found.map(([what, names]) => {
    const shown = names.map((name) => JSON.stringify(name) + (first[0] === what ? (decibels.get(name) ?? '') : ''));
    return `${what}: ${listed(shown, 3)}`;
  });
  return new ScalepointError('QUALITY', text.join('; '), { tensor: first[1][0] });
}

function compareText(a: string, b: string, report: CompareReport): string[] {
  const paint = painter(process.stdout);
  // List the tensors.
  const { tensors, total, skipped, onlyInA, onlyInB } = report;
  const columns: TableColumn[] = [
    { title: 'tensor', align: 'left' },
    { title: 'dtype', align: 'left' },
    { title: 'shape', align: 'left' },
    ...errorColumns,
  ];
  const rows = tensors.map(({ name, shape, a: from, b: to, error }) => ({
    cells: [nameText(name), from === to ? from : `${from} → ${to}`, formatShape(shape), ...errorCells(error)],
  }));
  const lines = rows.length === 0 ? [] : [...table(columns, rows, columnsOf(process.stdout), paint), ''];
  // Sum up.
  lines.push(`${printable(a)} and ${printable(b)}: ${counted(tensors.length, 'tensor')} compared`);
  if (tensors.length > 0) {
    lines.push(
      `SQNR ${withDecibels(total.sqnrDb)}, cosine ${total.cosine.toFixed(6)}, max error ${formatError(total.maxAbsoluteError)}`,
    );
    lines.push(...lowestLine(tensors));
  }
  // Name what was left out.
  if (total.nonFinite > 0) lines.push(`${counted(total.nonFinite, 'pair')} left out: NaN or infinite`);
  const mismatched = tensors.filter((tensor) => tensor.mismatched > 0);
  for (const { name, mismatched: pairs } of mismatched.slice(0, mostNames)) {
    lines.push(`NaN or infinite, and not the same in both: ${printable(name)}, ${counted(pairs, 'element')}`);
  }
  if (mismatched.length > mostNames) {
    lines.push(`NaN or infinite, and not the same in both: ${mismatched.length - mostNames} more`);
  }
  for (const { name, reason } of skipped.slice(0, mostNames)) {
    lines.push(`not compared: ${nameText(name)}: ${printable(reason.text)}`);
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

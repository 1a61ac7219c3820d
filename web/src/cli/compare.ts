/** The command `compare`. */

import { type CompareReport, compareModels, inspectModel, ScalepointError } from '../model.js';
import type { ComparedTensor } from '../tooling.js';
import { withBackends } from './backends.js';
import { backendText } from './backends-text.js';
import { compareFlags } from './flags.js';
import { type Input, withInputs } from './input.js';
import { makeCommand, positionalFiles } from './parse.js';
import { abortOnSignal, about, effort, errorJson, peakBytes, printJson, progressLine, UsageError } from './process.js';
import { missedOutput, runOptionsOf, runText } from './running.js';
import {
  countText,
  errorCells,
  errorColumns,
  formatError,
  formatShape,
  isInfinity,
  listText,
  lowestLine,
  nameText,
  painter,
  printable,
  printLines,
  type TableColumn,
  table,
  terminalColumns,
  withDecibels,
} from './text.js';

/** Most names in a line of text. */
const mostNames = 5;

/** Compares two models. */
export const compare = makeCommand(
  () => compareFlags,
  async ({ values, positionals }) => {
    const [first, second] = positionalFiles(positionals, ['A', 'B'], 'compare');
    if (first === '-' && second === '-') throw new UsageError('compare: only one of the two can be standard input');
    const { quiet = false, workers, 'min-sqnr': limit } = values;
    const run = runOptionsOf(values);
    const signal = abortOnSignal('interrupted');
    const progress = progressLine(quiet);
    return withInputs(
      [first, second],
      async (inputs) => {
        const [a, b] = inputs as [Input, Input];
        // Each one alone first, so that an error in a header names the file.
        for (const { name, file } of [a, b]) await about(name, () => inspectModel(file, { signal }));
        const result = await withBackends(values.backend?.flat(), values.browser, (backends) =>
          compareModels(a.file, b.file, {
            signal,
            onProgress: progress.update,
            workers,
            run: run && { ...run, ...(backends && { backends }) },
          }),
        ).finally(progress.clear);
        const report = values.sort === 'sqnr' ? { ...result, tensors: bySqnr(result.tensors) } : result;
        // With --run, --min-sqnr applies to the outputs.
        const judge = result.outputs === undefined ? missedTensor : missedOutput;
        const failure = limit === undefined ? withoutPair(result) : judge(report, limit);
        if (values.json) {
          printJson({
            a: a.name,
            b: b.name,
            ...report,
            peakBytes: peakBytes(),
            ...(failure && { error: errorJson(failure) }),
          });
        } else if (!quiet) {
          const ran = result.outputs === undefined ? [] : ['', ...runText(result), ...backendText(result)];
          printLines([...compareText(a.name, b.name, report), ...ran, ...(values.verbose ? [effort()] : [])]);
        }
        if (failure === undefined) return 0;
        process.stderr.write(`${painter(process.stderr)('red', 'scalepoint:')} ${printable(failure.message)}\n`);
        return 1;
      },
      signal,
    );
  },
);

/** The error for models that share no tensor, so that the comparison says nothing. */
function withoutPair({ tensors, skipped, onlyInA, onlyInB, outputs }: CompareReport): ScalepointError | undefined {
  if (outputs !== undefined || tensors.length + skipped.length > 0 || onlyInA.length + onlyInB.length === 0)
    return undefined;
  return new ScalepointError('NOT_FOUND', 'the models have no tensor of the same name');
}

/** Sorts tensors by SQNR, the lowest first. */
function bySqnr(tensors: readonly ComparedTensor[]): ComparedTensor[] {
  // The difference of two infinities is NaN.
  return [...tensors].sort((a, b) => (a.error.sqnrDb === b.error.sqnrDb ? 0 : a.error.sqnrDb - b.error.sqnrDb));
}

/** The error if the SQNR of a tensor is too low, or if the other model has no tensor to compare it with. */
function missedTensor(report: CompareReport, limit: number): ScalepointError | undefined {
  const { tensors, skipped, onlyInA, onlyInB } = report;
  if (tensors.length === 0 && skipped.length === 0 && onlyInA.length === 0 && onlyInB.length === 0) {
    return new ScalepointError('QUALITY', 'the models have no tensors to compare');
  }
  const below = bySqnr(tensors).filter((tensor) => tensor.error.sqnrDb < limit && !isInfinity(tensor));
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
    return `${what}: ${listText(shown, 3)}`;
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
  const lines = rows.length === 0 ? [] : [...table(columns, rows, terminalColumns(process.stdout), paint), ''];
  // Sum up.
  lines.push(`${printable(a)} and ${printable(b)}: ${countText(tensors.length, 'tensor')} compared`);
  if (tensors.length > 0) {
    lines.push(
      `SQNR ${withDecibels(total.sqnrDb)}, cosine ${total.cosine.toFixed(6)}, max error ${formatError(total.maxAbsoluteError)}`,
    );
    lines.push(...lowestLine(tensors));
  }
  // Name what was left out.
  if (total.nonFinite > 0) lines.push(`${countText(total.nonFinite, 'pair')} left out: NaN or infinite`);
  const mismatched = tensors.filter((tensor) => tensor.mismatched > 0);
  for (const { name, mismatched: pairs } of mismatched.slice(0, mostNames)) {
    lines.push(`NaN or infinite, and not the same in both: ${printable(name)}, ${countText(pairs, 'element')}`);
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
    if (names.length > 0) lines.push(`only in ${printable(file)}: ${listText(names, mostNames)}`);
  }
  return lines;
}

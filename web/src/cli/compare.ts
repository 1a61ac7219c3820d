/** The command `compare`. */

import { type CompareReport, compareModels, inspectModel, resultName, ScalepointError } from '../model.js';
import type { ComparedTensor, FormatInfo } from '../tooling.js';
import { withBackends } from './backends.js';
import { backendText } from './backends-text.js';
import { balanced, compareFlags } from './flags.js';
import { type Input, withInputs } from './input.js';
import { makeCommand, positionalFiles } from './parse.js';
import { abortOnSignal, about, effort, errorJson, peakBytes, printJson, progressLine, UsageError } from './process.js';
import { mismatchText, missedOutput, runOptionsOf, runText, skippedLines } from './running.js';
import {
  complain,
  countText,
  errorCells,
  errorColumns,
  formatError,
  formatShape,
  isInfinity,
  left,
  listText,
  lowestLine,
  nameText,
  printable,
  printLines,
  spaced,
  table,
  withDecibels,
} from './text.js';
import { exampleFile, plainFormats } from './usage.js';

/** Most names in a line of text. */
const mostNames = 5;

/** Compares two models. */
export const compare = makeCommand({
  about: 'measure the error of B against A',
  line: () => 'compare A B',
  usage: ['compare A B [options]'],
  text: () =>
    'Compares the tensors of model B with those of the same name in model A: SQNR, cosine and the largest error, for each ' +
    'tensor and in all. Codes and blocks are restored first, so a quantized model can be compared with its original.',
  flags: () => compareFlags,
  examples() {
    // A folder is made of a model of another format.
    const files = plainFormats().filter(({ isFolder }) => !isFolder);
    const [first] = files as [FormatInfo];
    return [
      ...files.map((format) => {
        const file = exampleFile(format);
        return `compare ${file} ${resultName(file, { to: balanced(format.targets), format: format.name })}`;
      }),
      `compare ${exampleFile(first, 'old')} ${exampleFile(first, 'new')} --min-sqnr 30 --quiet`,
      'compare model.onnx model_q4.onnx --run --layers',
    ];
  },
  async carryOut({ values, positionals }) {
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
        complain(failure.message);
        return 1;
      },
      signal,
    );
  },
});

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
  // List the tensors.
  const { tensors, total, skipped, onlyInA, onlyInB } = report;
  const rows = tensors.map(({ name, shape, a: from, b: to, error }) => ({
    cells: [nameText(name), from === to ? from : `${from} → ${to}`, formatShape(shape), ...errorCells(error)],
  }));
  const lines = spaced(table([...left('tensor', 'dtype', 'shape'), ...errorColumns], rows));
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
    lines.push(mismatchText(name, pairs));
  }
  if (mismatched.length > mostNames) {
    lines.push(`NaN or infinite, and not the same in both: ${mismatched.length - mostNames} more`);
  }
  lines.push(...skippedLines(skipped.slice(0, mostNames)));
  if (skipped.length > mostNames) lines.push(`not compared: ${skipped.length - mostNames} more`);
  for (const [file, names] of [
    [a, onlyInA],
    [b, onlyInB],
  ] as const) {
    if (names.length > 0) lines.push(`only in ${printable(file)}: ${listText(names, mostNames)}`);
  }
  return lines;
}

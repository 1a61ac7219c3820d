/** Options and output of `compare --run`. */
import type { CompareReport, QuantizeModelOptions, RunOptions } from '../model.js';
import { ScalepointError } from '../model.js';
import { type ComparedLayer, mention, type OutputsEvaluation } from '../tooling.js';
import type { compareFlags, quantizeFlags, ValuesOf } from './flags.js';
import {
  countText,
  errorCells,
  errorColumns,
  formatDecibels,
  formatShape,
  left,
  listText,
  nameText,
  printable,
  right,
  table,
  withDecibels,
} from './text.js';
import { wrongFlag } from './wording.js';

/** Options for running the models; undefined unless a flag asks for it. @throws UsageError */
export function runOptionsOf(values: ValuesOf<typeof compareFlags>): RunOptions | undefined {
  const { run, layers, input, dim = [], seed } = values;
  const isAsked = [layers, input, values.dim, seed, values.backend].some((value) => value !== undefined);
  if (run !== true && !isAsked) return undefined;
  // NAME=FILE, or a file with all inputs. Paths may hold "=" as well.
  const named = input?.map((text) => {
    const at = text.indexOf('=');
    return at < 0 ? (['', text] as const) : ([text.slice(0, at), text.slice(at + 1)] as const);
  });
  const [first, ...others] = named ?? [];
  const plain = named?.findIndex(([name]) => name === '') ?? -1;
  if (plain >= 0 && others.length > 0) {
    throw wrongFlag('input', { kind: 'text', form: 'NAME=FILE', examples: ['x=x.npy'] }, input?.[plain], {
      kind: 'with',
      options: [mention('--input', 'given several times')],
    });
  }
  return {
    dimensions: Object.fromEntries(dim),
    layers,
    inputs: plain >= 0 ? first?.[1] : named && Object.fromEntries(named),
    seed,
  };
}

/** Options of --min-output and of runs, without backends; empty without them. @param folds true with --fold-outliers */
export function outputOptionsOf(
  { 'min-output': minOutput, samples, dim = [], seed }: ValuesOf<typeof quantizeFlags>,
  folds: boolean,
): {
  readonly minOutput?: NonNullable<QuantizeModelOptions['minOutput']>;
  readonly run?: NonNullable<QuantizeModelOptions['run']>;
} {
  if (minOutput === undefined && !folds) return {};
  return {
    ...(minOutput === undefined ? {} : { minOutput }),
    run: { dimensions: Object.fromEntries(dim), ...(samples && { samples: { files: samples } }), seed },
  };
}

/** Lines about tensors or outputs that were not compared. */
export const skippedLines = (
  skipped: readonly { readonly name: string; readonly reason: { readonly text: string } }[],
): string[] => skipped.map(({ name, reason }) => `not compared: ${nameText(name)}: ${printable(reason.text)}`);

/** The line about NaN and infinities that differ. */
export const mismatchText = (name: string, count: number): string =>
  `NaN or infinite, and not the same in both: ${nameText(name)}, ${countText(count, 'element')}`;

/** Lines about the outputs and layers of the models. */
export function runText({ outputs = [], skippedOutputs = [], layers, overflows = [] }: CompareReport): string[] {
  const lines: string[] = [];
  if (layers !== undefined) {
    const columns = [...left('layer', 'operator', 'shape'), ...errorColumns, ...right('loss dB')];
    const rows = layers.map((layer) => ({
      cells: [
        nameText(layer.name),
        printable(layer.op),
        formatShape(layer.shape),
        ...errorCells(layer.error),
        layer.lossDb === 0 ? '' : layer.lossDb.toFixed(1),
      ],
    }));
    // Name the first layer with an error, and the one with the largest loss.
    const first = layers.find(({ error }) => error.sqnrDb !== Infinity);
    const worst = first && layers.reduce((most, layer) => (layer.lossDb > most.lossDb ? layer : most), first);
    const text = ({ name, op, error }: ComparedLayer) =>
      `${printable(name)} (${printable(op)}), SQNR ${withDecibels(error.sqnrDb)}`;
    const found =
      first && worst ? [`the error begins at ${text(first)}`, `most is lost at ${text(worst)}`] : ['no layer differs'];
    if (rows.length > 0) lines.push(...table(columns, rows), '', ...found, '');
  }
  const rows = outputs.map((output) => ({
    cells: [nameText(output.name), formatShape(output.shape), ...errorCells(output.error)],
  }));
  lines.push(...table([...left('output', 'shape'), ...errorColumns], rows), ...skippedLines(skippedOutputs));
  for (const { value, op, largest } of overflows) {
    const reach = Math.round(largest).toLocaleString('en');
    lines.push(`infinite in float16 on a GPU: ${nameText(value)} (${printable(op)}) reaches ${reach}`);
  }
  return lines;
}

/** Lines about the outputs of models on samples. */
export function samplesText(a: string, b: string, found: OutputsEvaluation): string[] {
  const { samples, outputs, skippedOutputs } = found;
  const columns = [...left('output'), ...errorColumns, ...right('worst sample', 'its SQNR dB')];
  const rows = outputs.map((output) => {
    const { name, worst } = output;
    return {
      cells: [nameText(name), ...errorCells(output.error), String(worst.sample), formatDecibels(worst.error.sqnrDb)],
    };
  });
  const lines = [`${printable(a)} on ${countText(samples, 'sample')}, beside ${printable(b)}`];
  lines.push(...table(columns, rows));
  for (const { name, error, mismatched } of outputs) {
    if (mismatched > 0) lines.push(mismatchText(name, mismatched));
    else if (error.nonFinite > 0)
      lines.push(`${countText(error.nonFinite, 'pair')} of ${nameText(name)} left out: NaN or infinite`);
  }
  return [...lines, ...skippedLines(skippedOutputs)];
}

/** The error if an output has a lower SQNR than wanted, or cannot be compared. */
export function missedOutput(
  { outputs = [], skippedOutputs = [], overflows = [] }: CompareReport,
  limit: number,
): ScalepointError | undefined {
  const below = outputs.filter(({ error, mismatched }) => error.sqnrDb < limit || mismatched > 0);
  const names = [
    ...below.map(({ name, error }) => `${JSON.stringify(name)} (${withDecibels(error.sqnrDb)})`),
    ...skippedOutputs.map(({ name, reason }) => `${JSON.stringify(name)} (${reason.text})`),
    ...overflows.map(({ value }) => `${JSON.stringify(value)} (infinite in float16)`),
  ];
  if (names.length === 0) return undefined;
  return new ScalepointError('QUALITY', `outputs with an SQNR below ${limit} dB: ${listText(names, 3)}`);
}

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
  listText,
  nameText,
  painter,
  printable,
  type TableColumn,
  table,
  terminalColumns,
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

/** Options of --min-output, without backends; empty without it. */
export function outputOptionsOf({ 'min-output': minOutput, samples, dim = [], seed }: ValuesOf<typeof quantizeFlags>): {
  readonly minOutput?: NonNullable<QuantizeModelOptions['minOutput']>;
  readonly run?: NonNullable<QuantizeModelOptions['run']>;
} {
  if (minOutput === undefined) return {};
  return {
    minOutput,
    run: { dimensions: Object.fromEntries(dim), ...(samples && { samples: { files: samples } }), seed },
  };
}

/** Lines about the outputs and layers of the models. */
export function runText({ outputs = [], skippedOutputs = [], layers, overflows = [] }: CompareReport): string[] {
  const paint = painter(process.stdout);
  const width = terminalColumns(process.stdout);
  let lines: string[] = [];
  if (layers !== undefined) {
    const columns: TableColumn[] = [
      { title: 'layer', align: 'left' },
      { title: 'operator', align: 'left' },
      { title: 'shape', align: 'left' },
      ...errorColumns,
      { title: 'loss dB', align: 'right' },
    ];
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
    if (rows.length > 0) lines = [...table(columns, rows, width, paint), '', ...found, ''];
  }
  const columns: TableColumn[] = [
    { title: 'output', align: 'left' },
    { title: 'shape', align: 'left' },
    ...errorColumns,
  ];
  const rows = outputs.map((output) => ({
    cells: [nameText(output.name), formatShape(output.shape), ...errorCells(output.error)],
  }));
  if (rows.length > 0) lines = [...lines, ...table(columns, rows, width, paint)];
  for (const { name, reason } of skippedOutputs)
    lines.push(`not compared: ${nameText(name)}: ${printable(reason.text)}`);
  for (const { value, op, largest } of overflows) {
    const reach = Math.round(largest).toLocaleString('en');
    lines.push(`infinite in float16 on a GPU: ${nameText(value)} (${printable(op)}) reaches ${reach}`);
  }
  return lines;
}

/** Lines about the outputs of models on samples. */
export function samplesText(a: string, b: string, found: OutputsEvaluation): string[] {
  const { samples, outputs, skippedOutputs } = found;
  const columns: TableColumn[] = [
    { title: 'output', align: 'left' },
    ...errorColumns,
    { title: 'worst sample', align: 'right' },
    { title: 'its SQNR dB', align: 'right' },
  ];
  const rows = outputs.map((output) => {
    const { name, worst } = output;
    return {
      cells: [nameText(name), ...errorCells(output.error), String(worst.sample), formatDecibels(worst.error.sqnrDb)],
    };
  });
  const lines = [`${printable(a)} on ${countText(samples, 'sample')}, beside ${printable(b)}`];
  if (rows.length > 0) lines.push(...table(columns, rows, terminalColumns(process.stdout), painter(process.stdout)));
  for (const { name, error, mismatched } of outputs) {
    if (mismatched > 0)
      lines.push(`NaN or infinite, and not the same in both: ${nameText(name)}, ${countText(mismatched, 'element')}`);
    else if (error.nonFinite > 0)
      lines.push(`${countText(error.nonFinite, 'pair')} of ${nameText(name)} left out: NaN or infinite`);
  }
  for (const { name, reason } of skippedOutputs)
    lines.push(`not compared: ${nameText(name)}: ${printable(reason.text)}`);
  return lines;
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

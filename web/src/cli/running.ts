/** Options and output of `compare --run`. */
import type { CompareReport, QuantizeModelOptions, RunOptions } from '../model.js';
import { ScalepointError } from '../model.js';
import { type ComparedLayer, type InputArray, mention, type OutputsEvaluation, oneOf } from '../tooling.js';
import { wholeOf } from './parse.js';
import {
  columnsOf,
  counted,
  errorCells,
  errorColumns,
  formatDecibels,
  formatShape,
  listed,
  nameText,
  painter,
  printable,
  type TableColumn,
  table,
  withDecibels,
} from './text.js';
import { wrongFlag } from './wording.js';

interface RunValues {
  readonly run?: boolean | undefined;
  readonly layers?: boolean | undefined;
  readonly input?: string[] | undefined;
  readonly dim?: string[] | undefined;
  readonly seed?: string | undefined;
  readonly backend?: string[] | undefined;
}

/** NAME=VALUE, or VALUE alone. Paths may hold "=" as well. */
function split(text: string): readonly [name: string, value: string] {
  const at = text.indexOf('=');
  return at < 0 ? ['', text] : [text.slice(0, at), text.slice(at + 1)];
}

function inputsOf(given: readonly string[]): RunOptions['inputs'] {
  const named: Record<string, string | InputArray> = {};
  for (const one of given) {
    const [name, file] = split(one);
    if (name === '' && given.length > 1) {
      throw wrongFlag('input', { kind: 'text', form: 'NAME=FILE', examples: ['x=x.npy'] }, one, {
        kind: 'with',
        options: [mention('--input', 'given several times')],
      });
    }
    if (name === '') return file;
    named[name] = file;
  }
  return named;
}

/** Sizes of dimensions by name. @throws UsageError */
export function dimensionsOf(dim: readonly string[] = []): Record<string, number> {
  const dimensions: Record<string, number> = {};
  for (const one of dim) {
    const [name, size] = split(one);
    if (name === '') throw wrongFlag('dim', oneOf(['NAME=N']), one);
    dimensions[name] = wholeOf('dim', size) as number;
  }
  return dimensions;
}

/** Options for running the models; undefined unless a flag asks for it. @throws UsageError */
export function runOptionsOf({ run, layers, input, dim, seed, backend }: RunValues): RunOptions | undefined {
  const wanted = [layers, input, dim, seed, backend].some((value) => value !== undefined);
  if (run !== true && !wanted) return undefined;
  return {
    dimensions: dimensionsOf(dim),
    ...(layers === true ? { layers } : {}),
    ...(input === undefined ? {} : { inputs: inputsOf(input) }),
    ...(seed === undefined ? {} : { seed: wholeOf('seed', seed) }),
  };
}

interface OutputValues extends Pick<RunValues, 'dim' | 'seed'> {
  readonly 'min-output'?: string | undefined;
  readonly samples?: string[] | undefined;
}

/** Options of --min-output, without backends; empty without it. @throws UsageError */
export function outputOptionsOf({ 'min-output': bound, samples, dim, seed }: OutputValues): {
  readonly minOutput?: NonNullable<QuantizeModelOptions['minOutput']>;
  readonly run?: NonNullable<QuantizeModelOptions['run']>;
} {
  if (bound === undefined) return {};
  // The model functions check the rest.
  const minOutput = /^(\d+\.?\d*|\.\d+)$/.test(bound) ? Number(bound) : (bound as `${number}dB`);
  return {
    minOutput,
    run: {
      dimensions: dimensionsOf(dim),
      ...(samples === undefined ? {} : { samples: { files: samples } }),
      ...(seed === undefined ? {} : { seed: wholeOf('seed', seed) }),
    },
  };
}

/** Lines about the first layer with an error, and the one with the largest loss. */
function layerLines(layers: readonly ComparedLayer[]): string[] {
  const first = layers.find(({ error }) => error.sqnrDb !== Infinity);
  if (first === undefined) return ['no layer differs'];
  const worst = layers.reduce((most, layer) => (layer.lossDb > most.lossDb ? layer : most), first);
  const text = ({ name, op, error }: ComparedLayer) =>
    `${printable(name)} (${printable(op)}), SQNR ${withDecibels(error.sqnrDb)}`;
  return [`the error begins at ${text(first)}`, `most is lost at ${text(worst)}`];
}

/** Lines about the outputs and layers of the models. */
export function runText({ outputs = [], skippedOutputs = [], layers, overflows = [] }: CompareReport): string[] {
  const paint = painter(process.stdout);
  const width = columnsOf(process.stdout);
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
    if (rows.length > 0) lines = [...table(columns, rows, width, paint), '', ...layerLines(layers), ''];
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
  const lines = [`${printable(a)} on ${counted(samples, 'sample')}, beside ${printable(b)}`];
  if (rows.length > 0) lines.push(...table(columns, rows, columnsOf(process.stdout), painter(process.stdout)));
  for (const { name, error, mismatched } of outputs) {
    if (mismatched > 0)
      lines.push(`NaN or infinite, and not the same in both: ${nameText(name)}, ${counted(mismatched, 'element')}`);
    else if (error.nonFinite > 0)
      lines.push(`${counted(error.nonFinite, 'pair')} of ${nameText(name)} left out: NaN or infinite`);
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
  return new ScalepointError('QUALITY', `outputs with an SQNR below ${limit} dB: ${listed(names, 3)}`);
}

import { basename, dirname, join } from 'node:path';
import {
  ggufTargets,
  type ModelPlan,
  type ModelReport,
  type ModelTarget,
  type ModelTotals,
  type PlannedTensorInfo,
  type PlanOptions,
  planModel,
  QualityError,
  quantizeModel,
  type Rule,
  ScalepointError,
  safetensorsTargets,
} from '../model.js';
import { type Config, checkFree, configPath, printConfig, readConfig, writeText } from './config.js';
import {
  asUsage,
  commonOptions,
  decibelsOf,
  filesOf,
  granularityOf,
  parse,
  rangeOf,
  ruleOf,
  targetOf,
  translated,
  workersOf,
} from './options.js';
import { abortOnSignal, about, effort, errorJson, peakBytes, printJson, progressLine, UsageError } from './process.js';
import {
  type Column,
  columnsOf,
  count,
  formatBytes,
  formatDecibels,
  formatError,
  formatShape,
  lowestLine,
  painter,
  printable,
  type Row,
  table,
} from './text.js';
import { planUsage, quantizeUsage } from './usage.js';

const options = {
  ...commonOptions,
  to: { type: 'string' },
  output: { type: 'string', short: 'o' },
  scheme: { type: 'string' },
  granularity: { type: 'string' },
  range: { type: 'string' },
  'group-size': { type: 'string' },
  packed: { type: 'boolean' },
  activations: { type: 'string' },
  rule: { type: 'string', multiple: true },
  pure: { type: 'boolean' },
  requantize: { type: 'boolean' },
  'fix-alignment': { type: 'boolean' },
  config: { type: 'string' },
  workers: { type: 'string' },
  'min-sqnr': { type: 'string' },
  force: { type: 'boolean' },
  quiet: { type: 'boolean' },
  'dry-run': { type: 'boolean' },
} as const;
type Values = ReturnType<typeof parse<typeof options>>['values'];

/** What a command line asks for. */
interface Request {
  readonly file: string;
  readonly output: string;
  readonly plan: PlanOptions;
  readonly rules: readonly Rule[];
}

/** model.safetensors -> model.int8.safetensors, model.gguf -> model.Q4_K_M.gguf; in the same folder. */
function defaultOutput(file: string, to: ModelTarget): string {
  const stem = basename(file).replace(/\.(safetensors\.index\.json|safetensors|npy|gguf)$/i, '');
  const extension = (safetensorsTargets as readonly string[]).includes(to) ? 'safetensors' : 'gguf';
  return join(dirname(file), `${stem}.${to}.${extension}`);
}

/** Reads the command line. @throws UsageError */
function requestOf(values: Values, positionals: readonly string[], command: string): Request {
  const [file] = filesOf(positionals, ['FILE'], command) as [string];
  const { scheme, activations, packed, pure, requantize, 'fix-alignment': fixAlignment } = values;
  if (values.to === undefined) {
    throw new UsageError(
      `${command} needs --to ${safetensorsTargets[0]}, ${ggufTargets[0]} or another type; --help lists them`,
    );
  }
  const to = targetOf(values.to);
  const output = values.output ?? defaultOutput(file, to);
  if (output === '' || output === '-') throw new UsageError('--output: expected the name of a file');
  if (values.config !== undefined && !(safetensorsTargets as readonly string[]).includes(to)) {
    throw new UsageError('--config: this option is for safetensors files');
  }
  const rules = (values.rule ?? []).map(ruleOf);
  const granularity = granularityOf(values.granularity, values['group-size']);
  const range = rangeOf(values.range);
  const plan: PlanOptions = {
    to,
    rules,
    // The model functions check what is not checked here.
    ...(scheme === undefined ? {} : { scheme: scheme as NonNullable<PlanOptions['scheme']> }),
    ...(activations === undefined ? {} : { activations: activations as NonNullable<PlanOptions['activations']> }),
    ...(granularity === undefined ? {} : { granularity }),
    ...(range === undefined ? {} : { range }),
    ...(packed === undefined ? {} : { packed }),
    ...(pure === undefined ? {} : { pure }),
    ...(requantize === undefined ? {} : { requantize }),
    ...(fixAlignment === undefined ? {} : { fixAlignment }),
  };
  return { file, output, plan, rules };
}

/** Says on stderr what deserves attention: notes about the result, and rules without effect, which are slips most often. */
function remark(rules: readonly Rule[], tensors: readonly PlannedTensorInfo[], notes: readonly string[]): void {
  for (const note of notes) process.stderr.write(`scalepoint: ${printable(translated(note))}\n`);
  for (const { match } of rules) {
    if (tensors.some(({ name }) => name.search(match) >= 0)) continue;
    process.stderr.write(`scalepoint: no tensor matches the rule ${printable(match.source)}\n`);
  }
}

/** Makes a model smaller. Returns the exit code. */
export async function quantize(args: string[]): Promise<number> {
  const { values, positionals } = parse(args, options);
  if (values.help) {
    process.stdout.write(quantizeUsage);
    return 0;
  }
  return values['dry-run'] ? dryRun(values, positionals, 'quantize') : convert(values, positionals);
}

/** Tells what `quantize` would do. Returns the exit code. */
export async function plan(args: string[]): Promise<number> {
  const { values, positionals } = parse(args, options);
  if (values.help) {
    process.stdout.write(planUsage);
    return 0;
  }
  return dryRun(values, positionals, 'plan');
}

async function dryRun(values: Values, positionals: readonly string[], command: string): Promise<number> {
  workersOf(values.workers);
  decibelsOf(values['min-sqnr']);
  const { file, output, plan, rules } = requestOf(values, positionals, command);
  let planned: ModelPlan;
  try {
    planned = await about(file, () => planModel(file, plan));
  } catch (error) {
    throw asUsage(error, values);
  }
  const { quantizationConfig = null, ...rest } = planned;
  if (values.json) printJson({ file, output, ...rest, quantizationConfig, peakBytes: peakBytes() });
  else if (!values.quiet) {
    const lines = planText(file, output, planned);
    if (values.verbose) lines.push(effort());
    process.stdout.write(`${lines.join('\n')}\n`);
  }
  if (!values.quiet) remark(rules, planned.tensors, planned.notes);
  return 0;
}

async function convert(values: Values, positionals: readonly string[]): Promise<number> {
  const workers = workersOf(values.workers);
  const minSqnrDb = decibelsOf(values['min-sqnr']);
  const { file, output, plan, rules } = requestOf(values, positionals, 'quantize');
  const { force = false, quiet = false, json = false } = values;
  const signal = abortOnSignal('interrupted, nothing was written');
  const progress = progressLine(quiet);
  const show = (report: ModelReport, written: string | null, config: string | null, missed?: QualityError) => {
    const failure = missed && { error: errorJson(missed) };
    if (json) printJson({ file, output: written, config, to: plan.to, ...report, peakBytes: peakBytes(), ...failure });
    else if (!quiet) {
      const lines = reportText(file, report);
      if (values.verbose) lines.push(effort());
      for (const path of [written, config]) {
        if (path !== null) lines.push(painter(process.stdout)('green', `wrote ${printable(path)}`));
      }
      process.stdout.write(`${lines.join('\n')}\n`);
    }
  };
  try {
    const path = values.config;
    const given = path === undefined ? undefined : await about(path, () => readConfig(path));
    // Told by the plan, so that a file in the way shows before the work and not after it.
    const { quantizationConfig } = await about(file, () => planModel(file, plan));
    const target = quantizationConfig === undefined ? undefined : configPath(output);
    if (target !== undefined) await checkFree(target, force);

    const { report, config } = await about(file, () =>
      quantizeModel(file, {
        ...plan,
        output,
        overwrite: force,
        signal,
        onProgress: progress.update,
        ...(given === undefined ? {} : { config: given.value }),
        ...(workers === undefined ? {} : { workers }),
        ...(minSqnrDb === undefined ? {} : { minSqnrDb }),
      }),
    );
    progress.clear();
    const writesConfig = target !== undefined && config !== undefined;
    if (writesConfig) await writeConfig(target, config, given, output, force);
    show(report, output, writesConfig ? target : null);
    if (!quiet) {
      remark(rules, report.tensors, report.notes);
      if (given !== undefined && !writesConfig) {
        process.stderr.write(
          `scalepoint: no quantization_config is needed, ${printable(path as string)} was not used\n`,
        );
      }
    }
    return 0;
  } catch (error) {
    progress.clear();
    if (error instanceof QualityError) show(error.report, null, null, error);
    throw asUsage(error, values);
  }
}

/** Writes the configuration of a model that is there already. @throws ScalepointError that says so */
async function writeConfig(
  path: string,
  value: unknown,
  given: Config | undefined,
  output: string,
  overwrite: boolean,
): Promise<void> {
  try {
    await writeText(path, (given?.print ?? printConfig)(value), overwrite);
  } catch (cause) {
    if (!(cause instanceof ScalepointError)) throw cause;
    const message = `${cause.message}; the model was written to ${JSON.stringify(output)}, but loaders need the configuration`;
    throw new ScalepointError('IO', message, { cause });
  }
}

/** The columns that plans and reports begin with. */
const firstColumns: readonly Column[] = [
  { title: 'tensor', align: 'left' },
  { title: 'dtype', align: 'left' },
  { title: 'shape', align: 'left' },
  { title: 'before', align: 'right' },
  { title: 'after', align: 'right' },
];

function firstCells({ name, shape, from, to, bytesBefore, bytesAfter }: PlannedTensorInfo): string[] {
  const type = from === to ? from : `${from} → ${to}`;
  return [printable(name), type, formatShape(shape), formatBytes(bytesBefore), formatBytes(bytesAfter)];
}

function totalsText(file: string, tensors: readonly PlannedTensorInfo[], totals: ModelTotals): string[] {
  const { quantized, kept, bytesBefore, bytesAfter, ratio, bitsPerWeight } = totals;
  return [
    `${printable(basename(file))}: ${count(tensors.length, 'tensor')}, ${quantized} quantized, ${kept} kept`,
    `${formatBytes(bytesBefore)} → ${formatBytes(bytesAfter)}, ratio ${ratio.toFixed(2)}, ${bitsPerWeight.toFixed(2)} bits per weight`,
  ];
}

function planText(file: string, output: string, { tensors, totals, quantizationConfig }: ModelPlan): string[] {
  const paint = painter(process.stdout);
  const columns: Column[] = [...firstColumns, { title: 'kept because', align: 'left' }];
  const rows = tensors.map((tensor): Row => {
    const { kept } = tensor;
    return { cells: [...firstCells(tensor), kept ?? ''], ...(kept === undefined ? {} : { style: 'dim' }) };
  });
  const lines = rows.length === 0 ? [] : [...table(columns, rows, columnsOf(process.stdout), paint), ''];
  lines.push(
    ...totalsText(file, tensors, totals),
    `would write ${printable(output)}: ${count(totals.bytesAfter, 'byte')}`,
  );
  if (quantizationConfig !== undefined) lines.push(`would write ${printable(configPath(output))}`);
  return lines;
}

function reportText(file: string, { tensors, totals }: ModelReport): string[] {
  const paint = painter(process.stdout);
  const columns: Column[] = [
    ...firstColumns,
    { title: 'SQNR dB', align: 'right' },
    { title: 'max error', align: 'right' },
  ];
  const rows = tensors.map((tensor): Row => {
    const { error, kept } = tensor;
    const cells = firstCells(tensor);
    if (error === undefined) return { cells, remark: `kept: ${kept}`, style: 'dim' };
    return { cells: [...cells, formatDecibels(error.sqnrDb), formatError(error.maxAbsoluteError)] };
  });
  const lines = rows.length === 0 ? [] : [...table(columns, rows, columnsOf(process.stdout), paint), ''];
  lines.push(...totalsText(file, tensors, totals), ...lowestLine(tensors));
  return lines;
}

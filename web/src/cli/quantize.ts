import { basename, dirname, join } from 'node:path';
import {
  type ModelPlan,
  type ModelReport,
  type PlannedTensorInfo,
  type PlanOptions,
  planModel,
  QualityError,
  quantizeModel,
  type Rule,
  resultName,
  ScalepointError,
  type Words,
} from '../model.js';
import { asUsage, choicesOf, formatFlags, inCommandWords, type SidecarOption, sidecarsOf, tables } from './formats.js';
import { commonOptions, decibelsOf, filesOf, parse, ruleOf, targetOf, workersOf } from './options.js';
import { abortOnSignal, about, effort, errorJson, peakBytes, printJson, progressLine, UsageError } from './process.js';
import { type Place, placeOf, readSidecars, sidecarPath, write } from './sidecars.js';
import { planText, reportText } from './tables.js';
import { listed, painter, printable } from './text.js';
import { planUsage, quantizeUsage } from './usage.js';

/** Options of no format. */
const options = {
  ...commonOptions,
  to: { type: 'string' },
  output: { type: 'string', short: 'o' },
  rule: { type: 'string', multiple: true },
  workers: { type: 'string' },
  'min-sqnr': { type: 'string' },
  force: { type: 'boolean' },
  quiet: { type: 'boolean' },
  'dry-run': { type: 'boolean' },
} as const;
type Values = ReturnType<typeof parse<typeof options>>['values'];

/** A command line, split. */
interface Line {
  readonly values: Values;
  /** The flags of formats among them. */
  readonly words: Words;
  readonly positionals: readonly string[];
}

function lineOf(args: string[]): Line {
  const { values, positionals } = parse(args, { ...formatFlags(), ...options });
  return { values: values as Values, words: values as Words, positionals };
}

/** What a command line asks for. */
interface Request {
  readonly file: string;
  /** Where the result goes, if that was said. */
  readonly output: string | undefined;
  readonly plan: PlanOptions;
  readonly rules: readonly Rule[];
  readonly sidecars: readonly SidecarOption[];
}

/** Reads the command line. @throws UsageError */
function requestOf({ values, words, positionals }: Line, command: string): Request {
  const [file] = filesOf(positionals, ['FILE'], command) as [string];
  if (values.to === undefined) {
    const some = tables().map(({ formats: [first] }) => first?.targets[0]?.name);
    throw new UsageError(`${command} needs --to ${some.join(', ')} or another type; --help lists them`);
  }
  const { output } = values;
  if (output === '' || output === '-') throw new UsageError('--output: expected the name of a file');
  const to = targetOf(values.to);
  const sidecars = sidecarsOf(words, to);
  const rules = (values.rule ?? []).map(ruleOf);
  // The model functions check what is not checked here.
  const plan = { to, rules, ...choicesOf(words, to) } as unknown as PlanOptions;
  return { file, output, plan, rules, sidecars };
}

/** Where a result goes: beside the file, with the target in its name, unless that was said. */
function outputOf({ file, output }: Request, plan: ModelPlan): string {
  return output ?? join(dirname(file), resultName(basename(file), plan));
}

/** Prints notes about the result on stderr, and rules that match nothing, which are mistakes most often. */
function remark(rules: readonly Rule[], tensors: readonly PlannedTensorInfo[], notes: readonly string[]): void {
  for (const note of notes) process.stderr.write(`scalepoint: ${printable(inCommandWords(note))}\n`);
  for (const { match } of rules) {
    if (tensors.some(({ name }) => name.search(match) >= 0)) continue;
    process.stderr.write(`scalepoint: no tensor matches the rule ${printable(match.source)}\n`);
  }
}

/** Makes a model smaller. Returns the exit code. */
export async function quantize(args: string[]): Promise<number> {
  const line = lineOf(args);
  if (line.values.help) {
    process.stdout.write(quantizeUsage());
    return 0;
  }
  return line.values['dry-run'] ? dryRun(line, 'quantize') : convert(line);
}

/** Tells what `quantize` would do. Returns the exit code. */
export async function plan(args: string[]): Promise<number> {
  const line = lineOf(args);
  if (line.values.help) {
    process.stdout.write(planUsage());
    return 0;
  }
  return dryRun(line, 'plan');
}

/** Plans. Errors about options are those of the command line. */
async function planFor({ values, words }: Line, { file, plan }: Request): Promise<ModelPlan> {
  try {
    return await about(file, () => planModel(file, plan));
  } catch (error) {
    throw asUsage(error, words, values.rule);
  }
}

async function dryRun(line: Line, command: string): Promise<number> {
  const { values } = line;
  workersOf(values.workers);
  decibelsOf(values['min-sqnr']);
  const request = requestOf(line, command);
  const { file, rules, sidecars } = request;
  const planned = await planFor(line, request);
  const output = outputOf(request, planned);
  if (values.json) {
    const members = planned as unknown as Readonly<Record<string, unknown>>;
    // null if there is none.
    const additions = Object.fromEntries(sidecars.map(({ sidecar: { planned: key } }) => [key, members[key] ?? null]));
    printJson({ file, output, ...planned, ...additions, peakBytes: peakBytes() });
  } else if (!values.quiet) {
    const written = sidecars.flatMap((sidecar) => sidecarPath(output, sidecar, planned) ?? []);
    const lines = planText(file, output, planned, written);
    if (values.verbose) lines.push(effort());
    process.stdout.write(`${lines.join('\n')}\n`);
  }
  if (!values.quiet) remark(rules, planned.tensors, planned.notes);
  return 0;
}

/** What was written. */
interface Written {
  readonly output: string | null;
  /** Paths of the files beside it, by option; null where there is none. */
  readonly sidecars: Readonly<Record<string, string | null>>;
}

/** Prints what became of a model. */
function show({ values }: Line, { file, plan }: Request, report: ModelReport, written: Written, missed?: QualityError) {
  if (values.json) {
    const { output, sidecars } = written;
    const failure = missed && { error: errorJson(missed) };
    printJson({ file, output, ...sidecars, to: plan.to, ...report, peakBytes: peakBytes(), ...failure });
    return;
  }
  if (values.quiet) return;
  const lines = reportText(file, report);
  if (values.verbose) lines.push(effort());
  for (const path of [written.output, ...Object.values(written.sidecars)]) {
    if (path !== null) lines.push(painter(process.stdout)('green', `wrote ${printable(path)}`));
  }
  process.stdout.write(`${lines.join('\n')}\n`);
}

async function convert(line: Line): Promise<number> {
  const { values, words } = line;
  workersOf(values.workers);
  decibelsOf(values['min-sqnr']);
  const request = requestOf(line, 'quantize');
  const signal = abortOnSignal('interrupted, nothing was written');
  const progress = progressLine(values.quiet ?? false);
  try {
    await carryOut(line, request, signal, progress);
    return 0;
  } catch (error) {
    progress.clear();
    if (error instanceof QualityError) {
      const none = Object.fromEntries(request.sidecars.map(({ option }) => [option, null]));
      show(line, request, error.report, { output: null, sidecars: none }, error);
    }
    throw asUsage(error, words, values.rule);
  }
}

/** The error for a plan that converts nothing: why, and the ways out. */
function nothingToDo({ tensors, notes }: ModelPlan): ScalepointError {
  const reasons = new Map<string, number>();
  for (const { kept = '' } of tensors) reasons.set(kept, (reasons.get(kept) ?? 0) + 1);
  const counts = [...reasons].sort(([, a], [, b]) => b - a).map(([reason, n]) => `${n} ${reason}`);
  const why = tensors.length === 0 ? 'there are no tensors' : `kept: ${listed(counts, 5)}`;
  return new ScalepointError(
    'NO_EFFECT',
    [`nothing would be converted (${why})`, ...notes, '--force copies it'].join('; '),
  );
}

async function carryOut(
  line: Line,
  request: Request,
  signal: AbortSignal,
  progress: ReturnType<typeof progressLine>,
): Promise<void> {
  const { force = false, quiet = false, ...values } = line.values;
  const [workers, minSqnrDb] = [workersOf(values.workers), decibelsOf(values['min-sqnr'])];
  const { file, plan, rules } = request;
  const sidecars = await readSidecars(request.sidecars);
  // The plan tells which files will be written. An existing one is an error before the work begins.
  const planned = await about(file, () => planModel(file, plan));
  if (planned.totals.quantized === 0 && !force) await about(file, () => Promise.reject(nothingToDo(planned)));
  const output = outputOf(request, planned);
  const places: Place[] = [];
  for (const sidecar of sidecars) places.push(await placeOf(output, sidecar, planned, force));

  const given = sidecars.flatMap(({ option, value }) => (value === undefined ? [] : [[option, value] as const]));
  const result = await about(file, () =>
    quantizeModel(file, {
      ...plan,
      ...Object.fromEntries(given),
      output,
      overwrite: force,
      signal,
      onProgress: progress.update,
      ...(workers === undefined ? {} : { workers }),
      ...(minSqnrDb === undefined ? {} : { minSqnrDb }),
    }),
  );
  progress.clear();
  for (const place of places) await write(place, result, output, force);
  const written = Object.fromEntries(places.map(({ sidecar: { option }, path }) => [option, path ?? null]));
  show(line, request, result.report, { output, sidecars: written });
  if (quiet) return;
  for (const { sidecar, path, cleared } of places) {
    if (path === undefined || cleared === undefined) continue;
    process.stderr.write(
      `scalepoint: took the ${sidecar.sidecar.entry} out of ${printable(path)}: the result has none\n`,
    );
  }
  remark(rules, result.report.tensors, result.report.notes);
  for (const { sidecar, path } of places) {
    if (sidecar.path === undefined || path !== undefined) continue;
    const text = `no ${sidecar.sidecar.entry} is needed, ${printable(sidecar.path)} was not used`;
    process.stderr.write(`scalepoint: ${text}\n`);
  }
}

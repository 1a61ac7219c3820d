/** The command `quantize`, and copies. */
import { dirname, resolve } from 'node:path';
import {
  type ModelPlan,
  type ModelReport,
  QualityError,
  type QuantizeModelOptions,
  quantizeModel,
  type RunOptions,
} from '../model.js';
import { converters, formats, type ModelFit, ofType, without } from '../tooling.js';
import { withBackends } from './backends.js';
import { optionTables, quantizeFlags } from './flags.js';
import { formatGroups, namedFiles } from './format-flags.js';
import type { Input } from './input.js';
import {
  checkFree,
  namedFilesOf,
  nothingToDo,
  outputOf,
  pathsOf,
  shortened,
  standardOutput,
  standardOutputStream,
} from './output.js';
import { checkFilesApart } from './overlap.js';
import { dryRun } from './plan.js';
import {
  abortOnSignal,
  about,
  effort,
  errorJson,
  Interrupted,
  peakBytes,
  progressLine,
  UsageError,
} from './process.js';
import { preparePush, pushText } from './push.js';
import {
  checkLine,
  checkSavesApart,
  makeQuantizeCommand,
  named,
  planRequest,
  type QuantizeLine,
  type ResultRequest,
  remark,
  remarkNotes,
  remarkOnLeft,
  withRequests,
  writtenFiles,
} from './request.js';
import { fileStampsOf, makeParts, ResumableRun } from './resume.js';
import { outputOptionsOf } from './running.js';
import {
  joinCompleted,
  placeOfCopy,
  planSidecar,
  readSidecars,
  type SidecarPlace,
  writeSidecarFile,
} from './sidecars.js';
import { checkSavedFree, fitJson, savedLine, savePlan, saveRules } from './sizes.js';
import { convertedShare, leastConverted, reportText } from './tables.js';
import { countText, painter, printable, printLines } from './text.js';
import { exampleFormat } from './usage.js';
import { asUsage, wrongFlag } from './wording.js';

/** Makes results. Returns the exit code. */
export async function convert(line: QuantizeLine, command: string): Promise<number> {
  const { values, words } = line;
  const files = checkLine(line, command);
  if (values.output === standardOutput) {
    if (process.stdout.isTTY)
      throw wrongFlag('output', ofType('name of a file'), standardOutput, {
        kind: 'because',
        message: 'standard output is a terminal, unless > or a pipe sends it elsewhere',
      });
    if (values.json) throw wrongFlag('json', without('output', standardOutput));
    const hint = { kind: 'because', message: 'output that was written cannot be taken back' } as const;
    if (values['min-sqnr'] !== undefined)
      throw wrongFlag('min-sqnr', without('output', standardOutput), undefined, hint);
  }
  const signal = abortOnSignal(
    values.resume ? 'interrupted; the same command goes on' : 'interrupted, nothing was written',
  );
  const written: string[] = [];
  const progress = progressLine(values.quiet ?? false);
  return withRequests(
    line,
    files,
    async (requests, documents, inputs) => {
      let current = requests[0];
      try {
        // Prepare all results first, so that wrong requests fail before the work begins.
        const prepared: PreparedResult[] = [];
        const work = { signal, onProgress: progress.update };
        for (const request of requests) {
          current = request;
          prepared.push(await prepare(line, request, work, inputs));
        }
        checkResultsApart(prepared);
        joinCompleted(prepared);
        const paths = prepared.flatMap(({ output, planned }) => pathsOf(output, planned));
        if (requests.length > 1 && !values.resume) await checkFree(paths, values.force ?? false);
        const push = await preparePush(line, prepared, signal);
        // Carry out one result after the other.
        await withBackends(values.backend?.flat(), values.browser, async (backends) => {
          for (const one of prepared) {
            current = one.request;
            documents.push(...(await makeResult(line, one, { signal, progress, backends })));
            written.push(...pathsOf(one.output, one.planned));
          }
        });
        for (const { run } of prepared) await run?.finish();
        const pushed = await push?.();
        if (pushed === undefined) return;
        for (const document of documents) Object.assign(document, { push: pushed });
        if (!values.quiet) remark(pushText(pushed));
      } catch (error) {
        // Print the report of a missed quality gate.
        progress.clear();
        if (error instanceof QualityError && current !== undefined) {
          const { sidecars, plan } = current;
          const none = sidecars.flatMap(({ option, sidecar }) => (sidecar.isWhole ? [] : [[option, null] as const]));
          const nothing = { to: plan.to, output: null, paths: [], isWhole: false, sidecars: Object.fromEntries(none) };
          documents.push(...showReport(line, current, error.report, nothing, error));
        }
        // Results are finished one after the other, so an interruption leaves those already written.
        const left = shortened(written).map(printable).join(', ');
        const isPartly = error instanceof Interrupted && left !== '' && !values.resume;
        throw asUsage(
          isPartly ? new Interrupted(`interrupted, nothing was written but ${left}`, error.exitCode) : error,
          words,
          current?.plan.rules ?? [],
        );
      }
    },
    signal,
  );
}

/** Makes models smaller. */
export const quantize = makeQuantizeCommand({
  about: 'make a smaller copy of a model',
  line: () => `[quantize] FILE --to ${exampleFormat().to} [-o OUT]`,
  usage: ['[quantize] FILE... --to TYPE [-o OUT] [options]'],
  text(all) {
    const start =
      'Makes a model smaller. Prints a table of all tensors: sizes, SQNR, the largest error, or the reason why one was kept. ';
    if (all) return start + [...formats, ...converters()].flatMap(({ about }) => about || []).join(' ');
    return `${start}FILE may be a folder; of several, each gets a result of its own. Quantized weights need the settings that are written beside OUT.`;
  },
  groups: () => [{ flags: quantizeFlags }, ...formatGroups()],
  footnotes() {
    const options = optionTables().flatMap(({ table }) => Object.values(table.entries));
    return [...options.flatMap(({ sidecar }) => sidecar?.about ?? []), 'OUT appears only when it is complete.'];
  },
  examples(all) {
    const some = all
      ? [...formats, ...converters()].flatMap(({ examples }) => examples)
      : formats.flatMap(({ examples }) => examples.slice(0, 1));
    return some.map((example) => `quantize ${example}`);
  },
  carryOut: (line) => (line.values['dry-run'] ? dryRun(line, 'quantize') : convert(line, 'quantize')),
});

/** A written result. */
interface WrittenResult {
  /** The target of the result. */
  readonly to: string;
  readonly fit?: ModelFit | undefined;
  readonly output: string | null;
  /** Paths of its files, the main one first. */
  readonly paths: readonly string[];
  /** True if the other parts of the work are done, too. */
  readonly isWhole: boolean;
  /** Paths of the files beside it, by option; null for those that were not written. */
  readonly sidecars: Readonly<Record<string, string | null>>;
}

/** Prints the report of a result, on stderr if stdout holds the model. Returns its JSON documents, if any. */
function showReport(
  { values }: QuantizeLine,
  { input, plan }: ResultRequest,
  report: ModelReport,
  written: WrittenResult,
  missed?: QualityError,
): object[] {
  const { to, fit, output, paths, sidecars, isWhole } = written;
  if (values.json) {
    const failure = missed && { error: errorJson(missed) };
    const files = paths.length > 1 || plan.part !== undefined ? { files: paths, isWhole } : {};
    const rest = { to, ...files, ...report, ...fitJson(fit), peakBytes: peakBytes(), ...failure };
    return [{ file: input.name, output, ...sidecars, ...rest }];
  }
  if (values.quiet) return [];
  const stream = output === standardOutput ? process.stderr : process.stdout;
  const lines = reportText(input.name, report, stream, fit);
  if (values.verbose) lines.push(effort());
  for (const path of [...shortened(paths), ...Object.values(sidecars)]) {
    if (path !== null && path !== standardOutput) lines.push(painter(stream)('green', `wrote ${printable(path)}`));
  }
  printLines(lines, stream);
  return [];
}

/** Prints remarks on files beside the result that were not used or could not be written. */
function remarkOnSidecars(places: readonly SidecarPlace[], output: string, planned: ModelPlan): void {
  remarkOnLeft(places);
  for (const { sidecar, path, left } of places) {
    const { entry, planned: key } = sidecar.sidecar;
    if (path !== undefined || left !== undefined) continue;
    let text: string | undefined;
    if (output === standardOutput && key in planned) {
      text = `standard output has no place for the ${entry}; scalepoint plan --json prints it`;
    } else if (sidecar.path !== undefined) {
      text = `no ${entry} is needed, ${printable(sidecar.path)} was not used`;
    }
    if (text !== undefined) process.stderr.write(`scalepoint: ${text}\n`);
  }
}

/** A checked request, and the files that it writes. */
interface PreparedResult {
  readonly request: ResultRequest;
  readonly planned: ModelPlan;
  /** The plan with all tensors, if it is to be saved. */
  readonly whole: ModelPlan | undefined;
  readonly output: string;
  readonly places: SidecarPlace[];
  /** Paths of all files that it writes and shares with no other result. */
  readonly written: readonly string[];
  /** With --resume: the run, and the names of all tensors. */
  readonly run: ResumableRun | undefined;
  /** True if the result of an earlier run is there, and whole. */
  readonly isDone: boolean;
  readonly names: readonly string[];
}

/** Fails if results of two models would have a file of the same name. @throws UsageError */
function checkResultsApart(prepared: readonly PreparedResult[]): void {
  const owners = new Map<string, Input>();
  for (const { request, written } of prepared) {
    for (const path of written) {
      const place = resolve(path);
      const { input } = request;
      const owner = owners.get(place) ?? input;
      if (owner !== input) {
        const both = `${printable(owner.name)} and ${printable(input.name)}`;
        throw new UsageError(
          `the results of ${both} would both write ${printable(path)}; quantize one after the other`,
        );
      }
      owners.set(place, input);
    }
  }
}

/** The name of a result in an error message: that of the input, with the type if there are several. */
function describeRequest({ values }: QuantizeLine, { input, plan }: ResultRequest): string {
  return values.to?.includes(',') ? `${input.name} to ${plan.to}` : input.name;
}

/** Checks a request, and plans its files. @throws UsageError, ScalepointError */
async function prepare(
  line: QuantizeLine,
  request: ResultRequest,
  work: Pick<QuantizeModelOptions, 'signal' | 'onProgress'>,
  inputs: readonly Input[],
): Promise<PreparedResult> {
  const { force = false } = line.values;
  const { input, plan } = request;
  const isCopy = plan.to === 'copy';
  if (isCopy && request.sidecars.some(({ path }) => path !== undefined)) {
    throw wrongFlag('config', without('to', 'copy'));
  }
  const sidecars = await readSidecars(request.sidecars, plan, input);
  // Fail before the work begins if a file of the plan exists.
  await checkSavesApart(line, request);
  await checkSavedFree(line.values, force);
  const planned = await planRequest(line, request, work);
  const output = outputOf(input, request.asked, named(planned, line.values));
  const isFile = output !== standardOutput;
  const files = await writtenFiles(line, request, planned, output);
  for (const one of inputs) await checkFilesApart(files, one, line);
  const written = isFile ? files.flatMap(({ path, isShared }) => (isShared ? [] : path)) : [];
  // A conversion to another format has an effect, even if no tensor changes.
  const isMeant = isCopy || plan.part !== undefined || planned.architecture !== undefined;
  if (convertedShare(planned.tensors) < leastConverted && !force && !isMeant)
    await about(describeRequest(line, request), () => Promise.reject(nothingToDo(planned)));
  // Go on with an interrupted run, or begin one.
  let run: ResumableRun | undefined;
  if (line.values.resume === true) {
    const paths = files.map(({ path }) => path);
    const model = await fileStampsOf(input, planned, await namedFiles(line), paths);
    const options = { ...planned.options, sidecars: sidecars.map(({ path }) => path), files: planned.files };
    run = await about(input.name, () => ResumableRun.open(output, planned, { model, options }, force));
  }
  const overwrite = force || run?.isResumed === true;
  const isDone = run !== undefined && !overwrite && (await run.isThere(namedFilesOf(planned, output), dirname(output)));
  if (run !== undefined && !isDone) await checkFree(pathsOf(output, planned), overwrite);
  const places: SidecarPlace[] = [];
  for (const sidecar of isDone ? [] : sidecars) {
    if (isCopy) {
      if (isFile) places.push(...(await placeOfCopy(output, input, sidecar, planned, overwrite)));
    } else
      places.push(
        isFile ? await planSidecar(output, sidecar, planned, input, overwrite) : { sidecar, path: undefined },
      );
  }
  // Drop the list of tensors, which is made anew during the conversion. A long one would be in memory twice.
  const whole = line.values['save-plan'] === undefined ? undefined : planned;
  const names = run === undefined ? [] : planned.tensors.map(({ name }) => name);
  const short = { ...planned, options: planned.options, tensors: [] };
  return { request, planned: short, whole, output, places, written, run, isDone, names };
}

/** Carries out a request. Returns its JSON documents, if any. */
async function makeResult(
  line: QuantizeLine,
  { request, planned, whole, output, places, run, isDone, names }: PreparedResult,
  {
    signal,
    progress,
    backends,
  }: {
    readonly signal: AbortSignal;
    readonly progress: ReturnType<typeof progressLine>;
    readonly backends: RunOptions['backends'];
  },
): Promise<object[]> {
  const { force = false, quiet = false, ...values } = line.values;
  const { minOutput, run: runs } = outputOptionsOf(values, line.words['fold-outliers'] !== undefined);
  const { workers, 'min-sqnr': minSqnrDb } = values;
  const { input, plan } = request;
  if (isDone) {
    if (!quiet)
      remark([
        `${output} is there already, with the files and sizes of the plan: nothing was done; --force makes it again`,
      ]);
    const { to, totals } = planned;
    return values.json
      ? [{ file: input.name, output, to, files: pathsOf(output, planned), isWhole: true, totals }]
      : [];
  }
  // Write the model.
  const isFile = output !== standardOutput;
  const sidecars = places.map(({ sidecar }) => sidecar);
  const given = sidecars.flatMap(({ option, value }) => (value === undefined ? [] : [[option, value] as const]));
  const { update: onProgress } = progress;
  const make = (own: Pick<QuantizeModelOptions, 'part' | 'overwrite' | 'onProgress'>) =>
    quantizeModel(input.file, {
      // Use the types of the plan, so that nothing is measured twice.
      ...planned.options,
      ...Object.fromEntries(given),
      output: isFile ? output : standardOutputStream(),
      signal,
      workers,
      minSqnrDb,
      ...(minOutput === undefined ? {} : { minOutput }),
      ...(runs === undefined ? {} : { run: { ...runs, ...(backends && { backends }) } }),
      ...own,
    });
  const options = sidecars.map(({ option }) => option);
  const work = { output, plan: planned, names, sidecars: options, force, onProgress, make };
  const result = await about(describeRequest(line, request), () =>
    run === undefined ? make({ overwrite: force, onProgress }) : makeParts(run, work),
  );
  progress.clear();
  // With --part, the run that completes the result writes the files beside it. Two runs may end at the same time.
  const isPart = plan.part !== undefined;
  const hasContent = ({ sidecar: { option, sidecar } }: SidecarPlace) =>
    sidecar.isCompleted !== true || (result as unknown as Readonly<Record<string, unknown>>)[option] !== undefined;
  const made = places.map(
    (place): SidecarPlace =>
      result.isWhole && hasContent(place) ? place : { sidecar: place.sidecar, path: undefined },
  );
  for (const place of made) await writeSidecarFile(place, result, output, force || isPart || run?.isResumed === true);
  const shown = made.filter(
    ({ sidecar: { sidecar }, path, cleared }) => !sidecar.isWhole || (path && cleared !== null),
  );
  const written = Object.fromEntries(shown.map(({ sidecar: { option }, path }) => [option, path ?? null]));
  // Print the report.
  const paths = pathsOf(output, planned);
  const { report, isWhole } = result;
  const documents = showReport(line, request, report, {
    to: planned.to,
    fit: result.fit ?? planned.fit,
    output,
    paths,
    isWhole,
    sidecars: written,
  });
  // Write the rules and the plan, and print remarks.
  const rules = [...(planned.options.rules ?? []), ...(report.repair?.rules ?? [])];
  await saveRules(line.values, rules, force, output);
  if (whole !== undefined) await savePlan(line.values, whole, force, output);
  if (!quiet) remark(savedLine(line.values));
  if (quiet) return documents;
  if (isPart) {
    const { length } = result.files;
    const share = length === 0 ? 'there are fewer files than parts, so that it has none' : countText(length, 'file');
    remark([`part ${plan.part}: ${share}; ${isWhole ? 'the result is whole' : 'other parts are missing'}`]);
  }
  for (const { sidecar, path, cleared } of made) {
    if (path === undefined || cleared === undefined) continue;
    const removed = cleared === null ? 'removed' : `took the ${sidecar.sidecar.entry} out of`;
    const what = `${removed} ${printable(path)}: the result has none`;
    process.stderr.write(`scalepoint: ${what}\n`);
  }
  remark(input.remark === undefined ? [] : [input.remark]);
  remarkNotes(result.report.notes, rules);
  remarkOnSidecars(places, output, planned);
  return documents;
}

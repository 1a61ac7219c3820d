/** The commands that convert: `quantize`, `plan`, `split` and `merge`. */
import { dirname, resolve } from 'node:path';
import {
  inspectModel,
  type ModelPlan,
  type ModelReport,
  modelFormats,
  type Note,
  type PlanModelOptions,
  type PlanOptions,
  planModel,
  presetTarget,
  QualityError,
  type QuantizeModelOptions,
  quantizeModel,
  type Rule,
  type RunOptions,
} from '../model.js';
import {
  aFile,
  checkFits,
  didYouMean,
  type FormatInfo,
  formats,
  type ModelFit,
  noteText,
  ofType,
  oneOf,
  onlyWith,
  type Preset,
  presets,
  urlOfText,
  type Words,
  withOptions,
  without,
} from '../tooling.js';
import { backendNames, withBackends } from './backends.js';
import { convertingFlags, outputRunFlags, quantizeFlags } from './flags.js';
import {
  acceptsTarget,
  choiceFlags,
  choicesOf,
  formatFlags,
  namedFiles,
  readFlags,
  type SidecarOption,
  sidecarFlags,
  sidecarsOf,
  usualTables,
  withTexts,
} from './format-flags.js';
import { type Input, withInputs } from './input.js';
import {
  afterAll,
  called,
  checkFree,
  checkName,
  checkStandardOutput,
  fewOf,
  folderOf,
  insideOf,
  isFolderPath,
  named,
  nothingToDo,
  outputOf,
  partNote,
  pathsOf,
  standardOutput,
  standardOutputStream,
} from './output.js';
import { checkFilesApart, type WrittenFile } from './overlap.js';
import { adapterOf, choiceOf, decibelsOf, filesOf, parseArguments, targetOf, workersOf } from './parse.js';
import { abortOnSignal, about, effort, errorJson, peakBytes, printJson, progressLine, UsageError } from './process.js';
import { fileStampsOf, journalPath, makeParts, ResumableRun } from './resume.js';
import { outputOptionsOf } from './running.js';
import {
  joinCompleted,
  placeOf,
  placeOfCopy,
  readSidecars,
  type SidecarPlace,
  sidecarPath,
  sidecarPlace,
  write,
} from './sidecars.js';
import {
  checkSavedFree,
  checkSizes,
  fitJson,
  isSized,
  planIn,
  rulesOf,
  ruleTexts,
  savedLine,
  savePlan,
  saveRules,
  sizeLabel,
  sizeOptionsOf,
  typesOf,
} from './sizes.js';
import { convertedShare, leastConverted, planText, reportText } from './tables.js';
import { counted, painter, printable, printLines } from './text.js';
import { planUsage, quantizeUsage } from './usage.js';
import { asUsage, commandWordsFor, wrongFlag } from './wording.js';

type LineValues = ReturnType<typeof parseArguments<typeof quantizeFlags>>['values'];

/** A command line, split. */
interface Line {
  readonly values: LineValues;
  /** The flags of formats among them. */
  readonly words: Words;
  readonly positionals: readonly string[];
}

async function lineOf(args: string[]): Promise<Line> {
  const { values, positionals } = parseArguments(args, { ...formatFlags(), ...quantizeFlags });
  const given = values as LineValues;
  const types = await typesOf(given['tensor-type-file']);
  const rules = [...(given.rule ?? []), ...types];
  return { values: rules.length === 0 ? given : { ...given, rule: rules }, words: values as Words, positionals };
}

/** One result that a command line asks for. */
interface ResultRequest {
  readonly input: Input;
  /** Value of -o, if given. */
  readonly asked: string | undefined;
  readonly plan: PlanOptions;
  /** The plan of --plan. The model has to fit it. */
  readonly saved?: ModelPlan;
  readonly sidecars: readonly SidecarOption[];
}

/** Flags about the quality of a result, which go with a plan. */
const judgingFlags: readonly string[] = ['min-sqnr', 'min-output', ...outputRunFlags];

/** Checks the flags of --min-output. @throws UsageError */
function checkOutputFlags(values: LineValues, words: Words): void {
  outputOptionsOf(values);
  if (values['min-output'] === undefined) {
    const other = outputRunFlags.find((name) => words[name] !== undefined);
    if (other !== undefined) throw wrongFlag(other, onlyWith('--min-output'));
    return;
  }
  // The types are not known before the runs, so that no size can be held and no plan be made.
  for (const other of ['target-size', 'target-bpw', 'save-plan'] as const) {
    if (words[other] !== undefined) throw wrongFlag('min-output', without(`--${other}`));
  }
}

/** The command for arguments in the order of llama-quantize: `in.gguf [out.gguf] Q4_K_M`. Undefined for others. */
function commandForTypeLast(positionals: readonly string[]): string | undefined {
  const last = positionals.at(-1)?.toLowerCase();
  const names = modelFormats().flatMap(({ targets }) => targets.map(({ name }) => name));
  const type = names.find((name) => name.toLowerCase() === last);
  if (type === undefined || positionals.length < 2 || positionals.length > 3) return undefined;
  const word = (text: string) => (/^[\w./:@%+,=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const [file = '', output] = positionals;
  const target = positionals.length === 3 ? ` -o ${word(output as string)}` : '';
  return `scalepoint quantize ${word(file)} --to ${type}${target}`;
}

/** Commands that take several models, each with a result of its own. */
const takingSeveral: readonly string[] = ['quantize', 'plan'];

/** The models of a command line. @throws UsageError */
function modelsOf({ values, words, positionals }: Line, command: string): readonly string[] {
  // Files of one model are given as one.
  const stems = new Set(positionals.map((file) => file.replace(/-\d{5,}-of-\d{5,}(?=\.\w+$)/, '')));
  const isSeveral = positionals.length > 1 && stems.size === positionals.length && takingSeveral.includes(command);
  if (!isSeveral) return filesOf(positionals, ['FILE'], command);
  if (positionals.includes('')) throw new UsageError(`${command} needs names of files, got ""`);
  for (const flag of ['save-plan', 'save-rules', ...sidecarFlags().map(({ name }) => name)])
    if (words[flag] !== undefined) throw new UsageError(`--${flag} goes with one FILE, got ${positionals.length}`);
  if (values.output === standardOutput)
    throw new UsageError(`--output - goes with one FILE, got ${positionals.length}`);
  return positionals;
}

/** Checks the parts of a command line that do not depend on the files. Returns the models. @throws UsageError */
function checkLine(line: Line, command: string): readonly string[] {
  const { values, words, positionals } = line;
  const meant = commandForTypeLast(positionals);
  if (meant !== undefined) throw new UsageError(`the type and the result are flags here; write: ${meant}`);
  const files = modelsOf(line, command);
  const { to, preset, output } = values;
  workersOf(values.workers);
  decibelsOf(values['min-sqnr']);
  if (output === '') throw wrongFlag('output', { kind: 'anyOf', of: [ofType('name of a file'), oneOf(['-'])] }, output);
  if (to !== undefined && preset !== undefined) throw wrongFlag('preset', without('to'));
  checkSizes(values, to?.split(',').length ?? 1);
  if (values.resume === true) {
    for (const other of ['part', 'min-sqnr', 'min-output'] as const)
      if (words[other] !== undefined) throw wrongFlag('resume', without(`--${other}`));
    if (output === standardOutput) throw wrongFlag('resume', without('output', output));
    if (files.some((file) => file === '-' || urlOfText(file)?.url !== undefined))
      throw wrongFlag('resume', { kind: 'onlyFor', files: 'models in files' });
  }
  checkOutputFlags(values, words);
  if (values.plan !== undefined) {
    const others = [
      ...convertingFlags.filter((name) => ![...judgingFlags, 'plan', 'save-plan', 'lora'].includes(name)),
      ...choiceFlags().filter((name) => !readFlags().includes(name)),
    ];
    const other = others.find((name) => words[name] !== undefined);
    if (other !== undefined) throw wrongFlag(other, without('--plan'));
    return files;
  }
  if (to === undefined && preset === undefined && !isSized(values)) {
    const some = usualTables().map(({ formats: [first] }) => first?.targets[0]?.name);
    throw new UsageError(
      `${command} needs --to ${some.join(', ')} or another type, or --preset; --help-all lists them`,
    );
  }
  choiceOf('preset', preset, presets);
  return files;
}

const isPreset = (text: string | undefined): text is Preset => presets.some((preset) => preset === text);

/** Targets of --to or --preset. @throws UsageError for an unknown type */
async function wantedOf({ to, preset }: LineValues, input: Input): Promise<readonly string[]> {
  if (isPreset(preset)) {
    const { format } = await about(input.name, () => inspectModel(input.file));
    return [presetTarget(format, preset)];
  }
  // Only --target-size or --target-bpw is given.
  if (to === undefined) return ['auto'];
  const wanted: string[] = [];
  for (const one of to.split(',')) wanted.push(await oneTarget(one.trim(), input));
  return [...new Set(wanted)];
}

/** Target for one word of --to. @throws UsageError for an unknown type */
async function oneTarget(to: string, { name, file }: Input): Promise<string> {
  const formatOf = async () => (await about(name, () => inspectModel(file))).format;
  const target = targetOf(to);
  if (formats().some((format) => acceptsTarget(format, target))) return target;
  const format = await formatOf();
  const { label, targets } = formats().find((known) => known.name === format) as FormatInfo;
  const names = targets.map((known) => known.name);
  const hint = didYouMean(to, names);
  // List all types only if there is no similar name.
  throw wrongFlag('to', hint.names.length > 0 ? ofType('type') : oneOf(names, aFile(label)), to, hint);
}

/** The adapters that a command line names. @throws UsageError */
function loraOf({ lora }: LineValues) {
  return lora === undefined ? {} : { lora: lora.map(adapterOf) };
}

/** Reads the command line: a request for each model and type. @throws UsageError */
async function requestsOf(line: Line, inputs: readonly Input[]): Promise<readonly ResultRequest[]> {
  const requests: ResultRequest[] = [];
  for (const input of inputs) requests.push(...(await requestsFor(line, input, inputs.length)));
  return requests;
}

async function requestsFor({ values, words }: Line, input: Input, count: number): Promise<readonly ResultRequest[]> {
  if (values.plan !== undefined) {
    const saved = await planIn(values.plan);
    const to = String(saved.options.to);
    const sidecars = sidecarsOf(words, to);
    const read = readFlags().flatMap((name) => (words[name] === undefined ? [] : [[name, words[name]] as const]));
    const plan = { ...saved.options, ...loraOf(values), ...choicesOf(Object.fromEntries(read), to) };
    const asked = count > 1 ? await folderOf(values.output, 1) : await insideOf(values.output);
    return [{ input, asked, plan, saved, sidecars }];
  }
  const wanted = await wantedOf(values, input);
  const rules = await rulesOf(values);
  const texts = await withTexts(words);
  const isSeveral = wanted.length * count > 1;
  const asked = isSeveral ? await folderOf(values.output, wanted.length) : await insideOf(values.output);
  return wanted.map((to) => {
    const sidecars = sidecarsOf(words, to);
    // The model functions check the rest.
    const plan = {
      to,
      rules,
      ...loraOf(values),
      ...sizeOptionsOf(values),
      ...choicesOf(texts, to, wanted),
    } as unknown as PlanOptions;
    return { input, asked, plan, sidecars };
  });
}

/** Prints remarks on stderr. */
function remark(texts: readonly string[]): void {
  for (const text of texts) process.stderr.write(`scalepoint: ${printable(text)}\n`);
}

/** Prints notes about the result on stderr. */
function remarkNotes(notes: readonly Note[], rules: readonly Rule[] | undefined): void {
  const words = commandWordsFor({}, ruleTexts(rules ?? []));
  remark(notes.map((note) => noteText(note, words)));
}

/** Makes a model smaller. Returns the exit code. */
export async function quantizeCommand(args: string[]): Promise<number> {
  const line = await lineOf(args);
  if (line.values.help || line.values['help-all']) {
    process.stdout.write(quantizeUsage(line.values['help-all'] === true));
    return 0;
  }
  return line.values['dry-run'] ? dryRun(line, 'quantize') : convert(line);
}

/** Prints a plan of `quantize`. Returns the exit code. */
export async function plan(args: string[]): Promise<number> {
  const line = await lineOf(args);
  if (line.values.help || line.values['help-all']) {
    process.stdout.write(planUsage(line.values['help-all'] === true));
    return 0;
  }
  return dryRun(line, 'plan');
}

/** Copies a model: `split` and `merge`. @param check checks the flags about files. Returns the exit code. */
export async function copyCommand(
  args: string[],
  command: string,
  usage: () => string,
  check: (words: Words) => void,
): Promise<number> {
  const { values, words, positionals } = await lineOf(args);
  if (values.help) {
    process.stdout.write(usage());
    return 0;
  }
  const other = convertingFlags.find((name) => values[name] !== undefined);
  if (other !== undefined) {
    throw wrongFlag(other, { kind: 'absent' }, values[other], {
      kind: 'takenBy',
      call: 'scalepoint quantize',
      name: `--${other}`,
    });
  }
  check(words);
  const line: Line = { values: { ...values, to: 'copy' }, words, positionals };
  return values['dry-run'] ? dryRun(line, command) : convert(line, command);
}

/** The files of --save-rules and --save-plan. */
function writtenSaves({ values }: Line): WrittenFile[] {
  return (['save-rules', 'save-plan'] as const).flatMap((flag) => {
    const path = values[flag];
    return path === undefined ? [] : [{ flag, path }];
  });
}

/** The files that a request writes: those of the result, also of its other parts, those beside it, the rules and the plan. */
async function writtenFiles(
  line: Line,
  { input, sidecars }: ResultRequest,
  planned: ModelPlan,
  output: string,
): Promise<readonly WrittenFile[]> {
  if (output === standardOutput) return writtenSaves(line);
  const { options } = planned;
  // The last part writes the index, so that all names of the whole result count.
  const isPart = (options as { readonly part?: string }).part !== undefined;
  const whole = isPart ? await planModel(input.file, { ...options, part: undefined } as PlanModelOptions) : planned;
  const beside = sidecars.flatMap((one): WrittenFile[] => {
    const { isWhole, isCompleted } = one.sidecar;
    const path = (isWhole || isCompleted ? sidecarPath : sidecarPlace)(output, one, whole);
    return path === undefined ? [] : [{ flag: 'output', path, isSidecar: true, isShared: isCompleted }];
  });
  return [
    ...pathsOf(output, whole).map((path): WrittenFile => ({ flag: 'output', path })),
    ...beside,
    ...(line.values.resume === true ? [{ flag: 'output', path: journalPath(output) } as const] : []),
    ...writtenSaves(line),
  ];
}

/** The value of -o if it is the name of a file. */
function namedOutput(asked: string | undefined): string | undefined {
  return asked === undefined || asked === standardOutput || isFolderPath(asked) ? undefined : asked;
}

/** Compares the names that are given, before the measuring for a size, which takes long. @throws UsageError */
async function checkGiven(line: Line, { input, asked }: ResultRequest): Promise<void> {
  if (writtenSaves(line).length === 0) return;
  const path = namedOutput(asked);
  await checkFilesApart([...(path ? [{ flag: 'output', path } as const] : []), ...writtenSaves(line)], input, line);
}

/** Plans, and checks the output. Errors about options are those of the command line. */
async function planFor(
  { values, words }: Line,
  { input, asked, plan, saved }: ResultRequest,
  work: Pick<QuantizeModelOptions, 'signal' | 'onProgress'> = {},
): Promise<ModelPlan> {
  const workers = workersOf(values.workers);
  // Without a type, the name of the output decides about the format.
  const path = namedOutput(asked);
  const first = { ...plan, ...work, ...(workers === undefined ? {} : { workers }), ...(path && { output: path }) };
  const planOf = (options: PlanModelOptions) => about(input.name, () => planModel(input.file, options));
  try {
    const planned = await planOf(first);
    if (saved !== undefined) checkFits(saved, planned.tensors);
    if (asked !== undefined && asked !== standardOutput) checkName(asked, planned);
    if (planned.files.length < 2 || (asked === undefined && input.fileName === undefined)) return planned;
    // Plan again with the output: the names of several files are part of their sizes.
    const output = outputOf(input, asked, called(planned, sizeLabel(values)));
    const { files, totals } = await planOf({ ...planned.options, ...work, output });
    return withOptions({ ...planned, files, totals }, planned.options);
  } catch (error) {
    throw asUsage(error, words, ruleTexts(plan.rules ?? []));
  }
}

async function dryRun(line: Line, command: string): Promise<number> {
  const { 'min-output': bound } = line.values;
  if (bound !== undefined) {
    const hint = { kind: 'because', message: 'a plan runs no models' } as const;
    throw wrongFlag('min-output', { kind: 'absent' }, bound, hint);
  }
  return withInputs(checkLine(line, command), async (inputs) => {
    const requests = await requestsOf(line, inputs);
    const documents: object[] = [];
    for (const request of requests) documents.push(...(await showPlan(line, request)));
    printDocuments(documents, requests);
    return 0;
  });
}

/** Prints JSON: one document, or a list of them if several results were asked for. */
function printDocuments(documents: readonly object[], requests: readonly ResultRequest[]): void {
  const [first] = documents;
  if (first !== undefined) printJson(requests.length > 1 ? documents : first);
}

/** Prints a plan. Returns its JSON documents, if any. */
async function showPlan(line: Line, request: ResultRequest): Promise<object[]> {
  const { values } = line;
  const { input, sidecars } = request;
  const force = values.force ?? false;
  await checkGiven(line, request);
  await checkSavedFree(values, force);
  const progress = progressLine(values.quiet ?? false);
  const planned = await planFor(line, request, { onProgress: progress.update }).finally(progress.clear);
  const hasName = input.fileName !== undefined || request.asked !== undefined;
  const output = hasName ? outputOf(input, request.asked, called(planned, sizeLabel(values))) : null;
  if (writtenSaves(line).length > 0) {
    await checkFilesApart(await writtenFiles(line, request, planned, output ?? standardOutput), input, line);
    await saveRules(values, planned.options.rules ?? [], force);
    await savePlan(values, planned, force);
  }
  const isFile = output !== null && output !== standardOutput;
  const places: SidecarPlace[] = [];
  for (const one of isFile ? sidecars : []) {
    if (one.sidecar.isCompleted) {
      for (const ready of await readSidecars([one], request.plan, input))
        places.push(await placeOf(output as string, ready, planned, input, force));
    } else {
      const sidecar = { ...one, value: undefined, print: one.sidecar.print };
      places.push({ sidecar, path: sidecarPath(output as string, one, planned) });
    }
  }
  const documents: object[] = [];
  if (values.json) {
    const members = planned as unknown as Readonly<Record<string, unknown>>;
    // Absent members become null, except those of a few targets.
    const keys = sidecars.flatMap(({ sidecar: { planned: key, isWhole } }) =>
      isWhole && !(key in members) ? [] : key,
    );
    const additions = Object.fromEntries(keys.map((key) => [key, members[key] ?? null]));
    const files = output === null ? planned.files : named(planned, output);
    const rest = { files, ...additions, ...fitJson(planned.fit), peakBytes: peakBytes() };
    documents.push({ file: input.name, output, ...planned, ...rest });
  } else if (!values.quiet) {
    const written = isFile ? places.flatMap(({ path }) => path ?? []) : [];
    const paths = isFile ? pathsOf(output, planned) : [];
    const several = paths.length > 1 ? fewOf(paths) : [];
    const main = paths.length === 1 ? (paths[0] as string) : isFile ? counted(paths.length, 'file') : output;
    const lines = [...planText(input.name, main, planned, [...several, ...written]), ...savedLine(values)];
    if (values.verbose) lines.push(effort());
    printLines(lines);
  }
  if (!values.quiet) {
    remark(input.remark === undefined ? [] : [input.remark]);
    remarkNotes(planned.notes, planned.options.rules);
    remarkOnLeft(places);
  }
  return documents;
}

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
function show(
  { values }: Line,
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
  for (const path of [...fewOf(paths), ...Object.values(sidecars)]) {
    if (path !== null && path !== standardOutput) lines.push(painter(stream)('green', `wrote ${printable(path)}`));
  }
  printLines(lines, stream);
  return [];
}

async function convert(line: Line, command = 'quantize'): Promise<number> {
  const { values, words } = line;
  const files = checkLine(line, command);
  if (values.output === standardOutput) {
    checkStandardOutput({ json: values.json ?? false, minSqnr: values['min-sqnr'] !== undefined });
  }
  // Open the inputs.
  const signal = abortOnSignal(
    values.resume ? 'interrupted; the same command goes on' : 'interrupted, nothing was written',
  );
  const written: string[] = [];
  const progress = progressLine(values.quiet ?? false);
  return withInputs(
    files,
    async (inputs) => {
      const requests = await requestsOf(line, inputs);
      const documents: object[] = [];
      let current = requests[0];
      try {
        // Prepare all results first, so that wrong requests fail before the work begins.
        const prepared: PreparedResult[] = [];
        const work = { signal, onProgress: progress.update };
        for (const request of requests) {
          current = request;
          prepared.push(await prepare(line, request, work, inputs));
        }
        checkApart(prepared);
        joinCompleted(prepared);
        const paths = prepared.flatMap(({ output, planned }) => pathsOf(output, planned));
        if (requests.length > 1 && !values.resume) await checkFree(paths, values.force ?? false);
        // Carry out one result after the other.
        await withBackends(backendNames(values.backend), values.browser, async (backends) => {
          for (const one of prepared) {
            current = one.request;
            documents.push(...(await carryOut(line, one, signal, progress, backends)));
            for (const path of pathsOf(one.output, one.planned)) written.push(path);
          }
        });
        for (const { run } of prepared) await run?.finish();
        return 0;
      } catch (error) {
        // Print the report of a missed quality gate.
        progress.clear();
        const request = current;
        if (error instanceof QualityError && request !== undefined) {
          const none = Object.fromEntries(
            request.sidecars.flatMap(({ option, sidecar }) => (sidecar.isWhole ? [] : [[option, null]])),
          );
          documents.push(
            ...show(
              line,
              request,
              error.report,
              { to: request.plan.to, output: null, paths: [], isWhole: false, sidecars: none },
              error,
            ),
          );
        }
        throw asUsage(values.resume ? error : afterAll(error, written), words, ruleTexts(request?.plan.rules ?? []));
      } finally {
        printDocuments(documents, requests);
      }
    },
    signal,
  );
}

/** Prints remarks on existing files that lack the entry of a result. */
function remarkOnLeft(places: readonly SidecarPlace[]): void {
  for (const { sidecar, left } of places) {
    if (left === undefined) continue;
    remark([`${left} is there already and stays as it is, without the ${sidecar.sidecar.entry}; --force adds it`]);
  }
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
function checkApart(prepared: readonly PreparedResult[]): void {
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

/** Subject of an error message: the input, and the type if there are several. */
function whatOf({ values }: Line, { input, plan }: ResultRequest): string {
  return values.to?.includes(',') ? `${input.name} to ${plan.to}` : input.name;
}

async function prepare(
  line: Line,
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
  await checkGiven(line, request);
  await checkSavedFree(line.values, force);
  const planned = await planFor(line, request, work);
  const output = outputOf(input, request.asked, called(planned, sizeLabel(line.values)));
  const isFile = output !== standardOutput;
  const files = await writtenFiles(line, request, planned, output);
  for (const one of inputs) await checkFilesApart(files, one, line);
  const written = isFile ? files.flatMap(({ path, isShared }) => (isShared ? [] : path)) : [];
  // A conversion to another format has an effect, even if no tensor changes.
  const isMeant = isCopy || plan.part !== undefined || planned.architecture !== undefined;
  if (convertedShare(planned.tensors) < leastConverted && !force && !isMeant)
    await about(whatOf(line, request), () => Promise.reject(nothingToDo(planned)));
  // Go on with an interrupted run, or begin one.
  const run = line.values.resume === true ? await runOf(line, request, planned, output) : undefined;
  const overwrite = force || run?.isResumed === true;
  const isDone = run !== undefined && !overwrite && (await run.isThere(named(planned, output), dirname(output)));
  if (run !== undefined && !isDone) await checkFree(pathsOf(output, planned), overwrite);
  const places: SidecarPlace[] = [];
  for (const sidecar of isDone ? [] : sidecars) {
    if (isCopy) {
      if (isFile) places.push(...(await placeOfCopy(output, input, sidecar, planned, overwrite)));
    } else
      places.push(isFile ? await placeOf(output, sidecar, planned, input, overwrite) : { sidecar, path: undefined });
  }
  // Drop the list of tensors, which is made anew during the conversion. A long one would be in memory twice.
  const whole = line.values['save-plan'] === undefined ? undefined : planned;
  const names = run === undefined ? [] : planned.tensors.map(({ name }) => name);
  const short = { ...planned, options: planned.options, tensors: [] };
  return { request, planned: short, whole, output, places, written, run, isDone, names };
}

/** The run of a result with --resume. */
async function runOf(line: Line, request: ResultRequest, planned: ModelPlan, output: string): Promise<ResumableRun> {
  const { words, values } = line;
  const { input, sidecars } = request;
  const others = await namedFiles(words);
  const options = { ...planned.options, sidecars: sidecars.map(({ path }) => path), files: planned.files };
  const written = await writtenFiles(line, request, planned, output);
  const model = await fileStampsOf(
    input.name,
    planned,
    others,
    written.map(({ path }) => path),
  );
  return about(input.name, () => ResumableRun.open(output, planned, { model, options }, values.force ?? false));
}

/** Carries out a request. Returns its JSON documents, if any. */
async function carryOut(
  line: Line,
  { request, planned, whole, output, places, run, isDone, names }: PreparedResult,
  signal: AbortSignal,
  progress: ReturnType<typeof progressLine>,
  backends: RunOptions['backends'],
): Promise<object[]> {
  const { force = false, quiet = false, ...values } = line.values;
  const { minOutput, run: runs } = outputOptionsOf(values);
  const [workers, minSqnrDb] = [workersOf(values.workers), decibelsOf(values['min-sqnr'])];
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
      ...(workers === undefined ? {} : { workers }),
      ...(minSqnrDb === undefined ? {} : { minSqnrDb }),
      ...(minOutput === undefined ? {} : { minOutput, run: { ...runs, ...(backends && { backends }) } }),
      ...own,
    });
  const options = sidecars.map(({ option }) => option);
  const work = { output, plan: planned, names, sidecars: options, force, onProgress, make };
  const result = await about(whatOf(line, request), () =>
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
  for (const place of made) await write(place, result, output, force || isPart || run?.isResumed === true);
  const shown = made.filter(
    ({ sidecar: { sidecar }, path, cleared }) => !sidecar.isWhole || (path && cleared !== null),
  );
  const written = Object.fromEntries(shown.map(({ sidecar: { option }, path }) => [option, path ?? null]));
  // Print the report.
  const paths = pathsOf(output, planned);
  const { report, isWhole } = result;
  const documents = show(line, request, report, {
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
  if (isPart) remark([partNote(plan.part, result)]);
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

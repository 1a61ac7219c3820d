/** From a command line to the results that it asks for: of `quantize`, `plan`, `split` and `merge`. */
import {
  inspectModel,
  type ModelPlan,
  modelFormats,
  type Note,
  type PlanModelOptions,
  type PlanOptions,
  planModel,
  presetTarget,
  type QuantizeModelOptions,
  type Rule,
} from '../model.js';
import {
  aFile,
  checkFits,
  didYouMean,
  type FormatInfo,
  formats,
  hubEndpoint,
  hubNameOf,
  noteText,
  ofType,
  oneOf,
  onlyWith,
  targetsByResult,
  targetsLabel,
  urlOfText,
  withOptions,
  without,
} from '../tooling.js';
import { type AdapterFile, outputRunFlags, quantizeFlags, targetFlags, usualTables } from './flags.js';
import {
  acceptsTarget,
  choiceFlags,
  formatChoices,
  formatFlags,
  readFlags,
  type SidecarOption,
  sidecarFlags,
  sidecarOptions,
  withTexts,
} from './format-flags.js';
import { hubFileNamed, type Input, withInputs } from './input.js';
import { checkOutputName, isFolderPath, outputOf, pathsOf, resolveOutput, standardOutput } from './output.js';
import { checkFilesApart, type WrittenFile } from './overlap.js';
import { type Command, type Line, makeCommand, positionalFiles, spelledTarget } from './parse.js';
import { about, printJson, UsageError } from './process.js';
import { checkPushFlags } from './push.js';
import { journalPath } from './resume.js';
import { type SidecarPlace, sidecarPath, sidecarPlace } from './sidecars.js';
import { checkSizes, isSized, planIn, rulesOf } from './sizes.js';
import { printable, shellWord } from './text.js';
import { asUsage, commandWordsFor, wrongFlag } from './wording.js';

/** A command line of `quantize`, with flags of formats. */
export type QuantizeLine = Line<typeof quantizeFlags>;

/** One result that a command line asks for. */
export interface ResultRequest {
  readonly input: Input;
  /** Value of -o, if given. */
  readonly asked: string | undefined;
  readonly plan: PlanOptions;
  /** The plan of --plan. The model has to fit it. */
  readonly saved?: ModelPlan;
  readonly sidecars: readonly SidecarOption[];
}

/** Makes a command that takes the flags of `quantize`. */
export const makeQuantizeCommand = (command: Omit<Command<typeof quantizeFlags>, 'flags'>) =>
  makeCommand({ ...command, flags: () => ({ ...formatFlags(), ...quantizeFlags }) as typeof quantizeFlags });

/** The command for arguments in the order of llama-quantize: `in.gguf [out.gguf] Q4_K_M`. Undefined for others. */
function commandForTypeLast(positionals: readonly string[]): string | undefined {
  const last = positionals.at(-1)?.toLowerCase();
  const names = modelFormats().flatMap(({ targets }) => targets.map(({ name }) => name));
  const type = names.find((name) => name.toLowerCase() === last);
  if (type === undefined || positionals.length < 2 || positionals.length > 3) return undefined;
  const [file = '', output] = positionals;
  const target = positionals.length === 3 ? ` -o ${shellWord(output as string)}` : '';
  return `scalepoint quantize ${shellWord(file)} --to ${type}${target}`;
}

/** The models of a command line. @throws UsageError */
function modelsIn({ values, words, positionals }: QuantizeLine, command: string): readonly string[] {
  // Files of one model are given as one.
  const stems = new Set(positionals.map((file) => file.replace(/-\d{5,}-of-\d{5,}(?=\.\w+$)/, '')));
  const takesSeveral = command === 'quantize' || command === 'plan';
  if (!takesSeveral || positionals.length < 2 || stems.size < positionals.length)
    return positionalFiles(positionals, ['FILE'], command);
  if (positionals.includes('')) throw new UsageError(`${command} needs names of files, got ""`);
  const single = ['save-plan', 'save-rules', 'push', ...Object.keys(sidecarFlags())].find(
    (flag) => words[flag] !== undefined,
  );
  const flag = single ?? (values.output === standardOutput ? `output ${standardOutput}` : undefined);
  if (flag !== undefined) throw new UsageError(`--${flag} goes with one FILE, got ${positionals.length}`);
  return positionals;
}

/** Checks the parts of a command line that do not depend on the files. Returns the models. @throws UsageError */
export function checkLine(line: QuantizeLine, command: string): readonly string[] {
  const { values, words, positionals } = line;
  const meant = commandForTypeLast(positionals);
  if (meant !== undefined) throw new UsageError(`the type and the result are flags here; write: ${meant}`);
  const files = modelsIn(line, command);
  const { to, preset, output } = values;
  const given = (...names: readonly string[]) => names.find((name) => words[name] !== undefined);
  const exclude = (flag: string, ...others: readonly string[]) => {
    const other = given(...others);
    if (other !== undefined) throw wrongFlag(flag, without(`--${other}`));
  };
  if (preset !== undefined) exclude('preset', 'to');
  checkPushFlags({ ...values, part: words.part });
  checkSizes(values, to?.split(',').length ?? 1);
  if (values.resume === true) {
    exclude('resume', 'part', 'min-sqnr', 'min-output', 'fold-outliers');
    if (output === standardOutput) throw wrongFlag('resume', without('output', output));
    if (files.some((file) => file === '-' || (urlOfText(file) !== undefined && !isHubName(file))))
      throw wrongFlag('resume', { kind: 'onlyFor', files: 'models in files' });
  }
  const ofRuns = given(...Object.keys(outputRunFlags));
  if (given('min-output', 'fold-outliers') === undefined && ofRuns !== undefined)
    throw wrongFlag(ofRuns, onlyWith('--min-output'));
  // Neither types nor folds are known before the runs, so that no size can be held and no plan be made.
  if (given('fold-outliers') !== undefined) exclude('fold-outliers', 'save-plan');
  if (values['min-output'] !== undefined)
    exclude('min-output', 'target-size', 'target-bpw', 'target-divergence', 'save-plan');
  if (values.plan !== undefined) {
    // Flags about the quality of a result, about adapters and about files to read go with a plan.
    const beside = ['plan', 'save-plan', 'lora', ...readFlags()];
    const other = given(...Object.keys({ ...targetFlags, ...choiceFlags() }).filter((name) => !beside.includes(name)));
    if (other !== undefined) throw wrongFlag(other, without('--plan'));
  } else if (to === undefined && preset === undefined && !isSized(values)) {
    const some = usualTables().map(({ formats: [first] }) => first.targets[0]?.name);
    throw new UsageError(
      `${command} needs --to ${some.join(', ')} or another type, or --preset; --help-all lists them`,
    );
  }
  return files;
}

/** True for a name of the hub, or an address of its pages. @throws RangeError for a wrong one */
const isHubName = (text: string) => /^(hf|https?):/i.test(text) && hubNameOf(text, hubEndpoint()) !== undefined;

/** A command line whose flags name files of the hub at the commits of now, for its plan and journal. */
async function pinned({ values, words, ...line }: QuantizeLine): Promise<QuantizeLine> {
  const pin = async (text: string) =>
    /^(hf|https?):/i.test(text) ? ((await hubFileNamed(text))?.address ?? text) : text;
  const own: Record<string, string> = {};
  for (const name of readFlags()) {
    const word = words[name];
    if (typeof word === 'string') own[name] = await pin(word);
  }
  const lora: AdapterFile[] = [];
  for (const one of values.lora ?? []) lora.push({ ...one, file: await pin(one.file) });
  return { ...line, values: { ...values, ...(values.lora && { lora }) }, words: { ...words, ...own } };
}

/** The targets of --to or --preset for a model. @throws UsageError for an unknown type */
async function targetsFor({ to, preset }: QuantizeLine['values'], { name, file }: Input): Promise<readonly string[]> {
  const inspected = async () => (await about(name, () => inspectModel(file))).format;
  if (preset !== undefined) return [presetTarget(await inspected(), preset)];
  // Only --target-size or --target-bpw is given.
  if (to === undefined) return ['auto'];
  const found = new Set<string>();
  for (const word of to.split(',')) {
    const target = spelledTarget(word.trim());
    if (!formats.some((format) => acceptsTarget(format, target))) {
      const format = await inspected();
      const { label, targets } = formats.find((known) => known.name === format) as FormatInfo;
      const names = targets.map((known) => known.name);
      const hint = didYouMean(word.trim(), names);
      // List all types only if there is no similar name.
      throw wrongFlag('to', hint.names.length > 0 ? ofType('type') : oneOf(names, aFile(label)), word.trim(), hint);
    }
    found.add(target);
  }
  return [...found];
}

/** Reads the command line: a request for each model and type. @throws UsageError */
async function requestsOf(
  { values, words }: QuantizeLine,
  inputs: readonly Input[],
): Promise<readonly ResultRequest[]> {
  const requests: ResultRequest[] = [];
  const lora = values.lora && { lora: values.lora };
  for (const input of inputs) {
    if (values.plan !== undefined) {
      const saved = await planIn(values.plan);
      const to = String(saved.options.to);
      const read = readFlags().flatMap((name) => (words[name] === undefined ? [] : [[name, words[name]] as const]));
      const plan = { ...saved.options, ...lora, ...formatChoices(Object.fromEntries(read), to) };
      requests.push({
        input,
        asked: await resolveOutput(values.output, inputs.length, 1),
        plan,
        saved,
        sidecars: sidecarOptions(words, to),
      });
      continue;
    }
    const targets = await targetsFor(values, input);
    const rules = await rulesOf(values);
    const texts = await withTexts(words);
    // Some targets are models of one result.
    const results = targetsByResult(targets);
    const asked = await resolveOutput(values.output, results.length * inputs.length, results.length);
    for (const own of results) {
      const [to = '', ...also] = own;
      const sidecars = sidecarOptions(words, to);
      const { 'target-size': targetSize, 'target-bpw': bits, 'target-divergence': nats } = values;
      const size = {
        ...(targetSize && { targetSize }),
        ...(bits && { targetBitsPerWeight: Number(bits) }),
        ...(nats && { targetDivergence: Number(nats) }),
      };
      const choices = {
        ...lora,
        ...size,
        ...formatChoices(texts, own, targets),
        ...(also.length > 0 && { also }),
      };
      // The model functions check the rest.
      requests.push({ input, asked, plan: { to, rules, ...choices } as unknown as PlanOptions, sidecars });
    }
  }
  return requests;
}

/**
 * Opens the models of a command line, and passes on what is asked for. Prints the documents of `carryOut` as JSON in any case: one document,
 * or a list of them if several results were asked for.
 */
export function withRequests(
  line: QuantizeLine,
  files: readonly string[],
  carryOut: (requests: readonly ResultRequest[], documents: object[], inputs: readonly Input[]) => Promise<void>,
  signal?: AbortSignal,
): Promise<number> {
  return withInputs(
    files,
    async (inputs) => {
      const requests = await requestsOf(await pinned(line), inputs);
      const documents: object[] = [];
      try {
        await carryOut(requests, documents, inputs);
      } finally {
        const [first] = documents;
        if (first !== undefined) printJson(requests.length > 1 ? documents : first);
      }
      return 0;
    },
    signal,
  );
}

/** A plan with the requested size or all of its targets, if there are any, in place of the target, for the name of the result. */
export function named(
  planned: ModelPlan,
  { 'target-size': size, 'target-bpw': bits, 'target-divergence': nats }: QuantizeLine['values'],
): ModelPlan {
  // A number alone means bytes.
  const text = size !== undefined && /^\d+$/.test(size) ? `${size}B` : size?.replaceAll(' ', '');
  const { also = [] } = planned.options;
  const several = also.length === 0 ? undefined : targetsLabel(planned.to, also);
  const label = nats !== undefined ? `${nats}nats` : bits === undefined ? (text ?? several) : `${bits}bpw`;
  return label === undefined ? planned : { ...planned, to: label as ModelPlan['to'] };
}

/** Prints remarks on stderr. */
export function remark(texts: readonly string[]): void {
  for (const text of texts) process.stderr.write(`scalepoint: ${printable(text)}\n`);
}

/** Prints notes about the result on stderr. */
export function remarkNotes(notes: readonly Note[], rules: readonly Rule[] = []): void {
  const words = commandWordsFor({}, rules);
  remark(notes.map((note) => noteText(note, words)));
}

/** Prints remarks on existing files that lack the entry of a result. */
export function remarkOnLeft(places: readonly SidecarPlace[]): void {
  for (const { sidecar, left } of places) {
    if (left === undefined) continue;
    remark([`${left} is there already and stays as it is, without the ${sidecar.sidecar.entry}; --force adds it`]);
  }
}

/** The files of --save-rules and --save-plan. */
export function writtenSaves({ values }: Pick<QuantizeLine, 'values'>): WrittenFile[] {
  return (['save-rules', 'save-plan'] as const).flatMap((flag) => {
    const path = values[flag];
    return path === undefined ? [] : [{ flag, path }];
  });
}

/** The files that a request writes: those of the result, also of its other parts, those beside it, the rules and the plan. */
export async function writtenFiles(
  line: QuantizeLine,
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
export async function checkSavesApart(line: QuantizeLine, { input, asked }: ResultRequest): Promise<void> {
  if (writtenSaves(line).length === 0) return;
  const path = namedOutput(asked);
  await checkFilesApart([...(path ? [{ flag: 'output', path } as const] : []), ...writtenSaves(line)], input, line);
}

/** Plans, and checks the output. Errors about options are those of the command line. */
export async function planRequest(
  { values, words }: QuantizeLine,
  { input, asked, plan, saved }: ResultRequest,
  work: Pick<QuantizeModelOptions, 'signal' | 'onProgress'> = {},
): Promise<ModelPlan> {
  const { workers } = values;
  // Without a type, the name of the output decides about the format.
  const path = namedOutput(asked);
  const first = { ...plan, ...work, workers, ...(path && { output: path }) };
  const planOf = (options: PlanModelOptions) => about(input.name, () => planModel(input.file, options));
  try {
    const planned = await planOf(first);
    if (saved !== undefined) checkFits(saved, planned.tensors);
    if (asked !== undefined && asked !== standardOutput) checkOutputName(asked, planned);
    if (planned.files.length < 2 || (asked === undefined && input.fileName === undefined)) return planned;
    // Plan again with the output: the names of several files are part of their sizes.
    const output = outputOf(input, asked, named(planned, values));
    const { files, totals } = await planOf({ ...planned.options, ...work, output });
    return withOptions({ ...planned, files, totals }, planned.options);
  } catch (error) {
    throw asUsage(error, words, plan.rules ?? []);
  }
}

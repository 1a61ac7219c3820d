// The choice of a target and its options, as data: what a format offers, what applies, and the names of results.
import { type ModelFormat, type PlanOptions, presetTarget, resultName } from 'scalepoint/model';
import { type FormatInfo, formats, type Preset, ruleFrom, type TypeFit, towerArchitecture } from '../../src/tooling.js';
import { type ModelFile, nameInFolder, titleOf } from '../shared/files.js';
import { formatMany } from '../shared/format.js';
import { type FlagWords, isOffered } from './controls.js';
import { bytesIn } from './sizes.js';

/**
 * A file of data about the model's inputs, and its use: importance of columns, moments for GPTQ, or samples by which norms were found that are
 * folded into the weights behind them.
 */
export type ChosenStatistics = { readonly file: File } & (
  | { readonly method: 'importance' | 'gptq' }
  | { readonly method: 'fold'; readonly norms: readonly object[] }
);

/** The visitor's choices for a model. Options are stored as flags of the command line, which mean the same in every format. */
export interface ModelChoice {
  /** `auto` if the types follow from a size. */
  readonly to: PlanOptions['to'] | 'auto';
  /** By flag: `{ 'group-size': '32', all: true }`. */
  readonly words: FlagWords;
  /** Names of tensors that stay as they are. */
  readonly kept: ReadonlySet<string>;
  /** As on the command line: `REGEX=TYPE` or `REGEX=keep`. */
  readonly rules: readonly string[];
  /** The size that the result may have, as on the command line: `60kB`. Without one the types follow from `to`. */
  readonly size?: string;
  /** Statistics by which codes are chosen. Links do not carry them. */
  readonly statistics?: ChosenStatistics;
}

/** The types that fit into a size. They replace the target, and the rules of the choice come before them. */
export type Fit = Pick<TypeFit, 'to' | 'rules' | 'bytes' | 'error' | 'bound'>;

/** The package's facts about a format. */
export function infoOf(format: ModelFormat): FormatInfo {
  const info = formats.find(({ name }) => name === format);
  if (info === undefined) throw new Error(`there is no format ${format}`);
  return info;
}

/** The targets of a format that the page offers. */
export const offeredTargets = (format: ModelFormat): FormatInfo['targets'] =>
  infoOf(format).targets.filter(({ copies, needs }) => !copies && needs === undefined);

/** A target in a list. */
export const targetLabel = ({ name, about }: FormatInfo['targets'][number]): string =>
  about === undefined ? name : `${name}: ${about}`;

/** Families of types in long lists. A name belongs to the first whose pattern fits. */
const families: readonly (readonly [pattern: RegExp, family: string])[] = [
  [/^mlx-/, 'MLX'],
  [/^comfy-/, 'ComfyUI'],
  [/^(gptq|awq)/, 'GPTQ and AWQ'],
  [/^IQ/, 'i-quants'],
  [/^(TQ|Q1_0|Q2_0)/, 'two or three values'],
  [/^Q\d_[01]$/, 'simple blocks'],
  [/^Q\d_K/, 'k-quants'],
  [/^(MXFP|NVFP|float8)/i, 'small floats'],
  [/^(B?F\d|b?float)/, 'floats of 16 and 32 bits'],
  [/./, 'integers'],
];
/** Targets of a format that need no families. */
const fewTargets = 16;

/** Targets of a format in groups, for a list. */
export function groupsOf(format: ModelFormat, targets = offeredTargets(format)) {
  const { label } = infoOf(format);
  const groups = new Map<string, FormatInfo['targets'][number][]>();
  for (const target of targets) {
    const family = families.find(([pattern]) => pattern.test(target.name))?.[1];
    const name = targets.length > fewTargets ? `${label}: ${family}` : label;
    groups.set(name, [...(groups.get(name) ?? []), target]);
  }
  return [...groups].map(([label, targets]) => ({ label, targets }));
}

/** The formats of a model and of its results. */
export type ModelFormats = Pick<ModelFile, 'format' | 'other' | 'folders'>;

/** Formats that a model can become, its own first. */
export function formatsOf({ format, other, folders = [] }: ModelFormats): readonly ModelFormat[] {
  return [format, ...(other === undefined ? [] : [other]), ...folders];
}

/** Format of the target: the model's own, or one that it can be converted to. */
export function formatFor(model: ModelFormats, to: string | null): ModelFormat {
  const has = (candidate: ModelFormat) => infoOf(candidate).targets.some(({ name }) => name === to);
  return formatsOf(model).find(has) ?? model.format;
}

/** The format whose presets are offered beside a target: that of the target, or the usual one if that has no presets. */
export function presetFormat(model: ModelFormats, to: string | null): ModelFormat {
  const format = formatFor(model, to);
  return infoOf(format).targets.some(({ preset }) => preset !== undefined) ? format : usualFormat(model);
}

/** True if a result is a folder: a model of a format of folders, or one that is turned back into a folder of its files. */
export const makesFolder = ({ folders = [] }: ModelFormats, format: ModelFormat): boolean => folders.includes(format);

/** The usual format of a result: the one that the model can be converted to, if there is one. */
export function usualFormat({ format, other }: ModelFormats): ModelFormat {
  return other ?? format;
}

/** Names of the options that mean something for a target. Results of a size are made of the types around the smallest preset. */
export function optionNames(format: ModelFormat, to: string): readonly string[] {
  const target = to === 'auto' ? presetTarget(format, 'small') : to;
  const names = infoOf(format).targets.find(({ name }) => name === target)?.options ?? [];
  return names.filter(isOffered);
}

/** The choices for a model that was just opened. */
export function initialChoice(format: ModelFormat): ModelChoice {
  return { to: presetTarget(format, 'balanced'), words: {}, kept: new Set(), rules: [] };
}

/** Changes the target, and drops the size and the flags that do not apply to it. */
export function withTarget(
  format: ModelFormat,
  { size: _, ...choice }: ModelChoice,
  to: ModelChoice['to'],
): ModelChoice {
  const { entries } = infoOf(format).options;
  const known = optionNames(format, to).flatMap((name) => entries[name]?.flags.map((flag) => flag.name) ?? []);
  const words = Object.fromEntries(Object.entries(choice.words).filter(([name]) => known.includes(name)));
  // The tensors have other names in another format.
  const isSame = choice.to === 'auto' || infoOf(format).targets.some(({ name }) => name === choice.to);
  return isSame ? { ...choice, to, words } : { to, words, kept: new Set(), rules: [] };
}

/** The settings for the language model of a folder. */
function withoutTower(choice: ModelChoice): ModelChoice {
  const { mmproj: _, ...words } = choice.words;
  return { ...choice, words };
}

/** The settings for a preset. Presets are for language models, not for vision towers. */
export function withPreset(format: ModelFormat, choice: ModelChoice, preset: Preset): ModelChoice {
  return withTarget(format, withoutTower(choice), presetTarget(format, preset));
}

/**
 * The choice with a size. A conversion to another format needs a target of that format. Any will do, since targets of a format share their
 * types.
 */
export function withSize(model: ModelFormats, choice: ModelChoice, size: string): ModelChoice {
  if (choice.size !== undefined) return { ...choice, size };
  const now = presetFormat(model, choice.to);
  const to = now === model.format ? 'auto' : presetTarget(now, 'balanced');
  return { ...withTarget(now, withoutTower(choice), to), size };
}

/** A name as a regular expression. */
export const escaped = (name: string) => name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

/** A regular expression that matches the names of all tensors to keep, and no others. */
function keptPattern({ kept }: ModelChoice): string | undefined {
  return kept.size === 0 ? undefined : `^(${[...kept].map(escaped).join('|')})$`;
}

/** The statistics as options; none for a target that does not take them. */
function statisticsOptions(format: ModelFormat, { to, statistics }: ModelChoice): Record<string, unknown> {
  if (statistics === undefined) return {};
  if (statistics.method === 'fold') return takesFolds(format, to) ? { foldOutliers: statistics.norms } : {};
  if (!takesStatistics(format, to)) return {};
  const { file, method } = statistics;
  return method === 'gptq' ? { method, moments: file } : { importance: file };
}

/** True if large channels of norms may move into the weights of a target. */
export const takesFolds = (format: ModelFormat, to: string): boolean =>
  infoOf(format)
    .targets.find(({ name }) => name === to)
    ?.options?.includes('foldOutliers') === true;

/** True if the codes of a target may depend on statistics. */
export function takesStatistics(format: ModelFormat, to: string): boolean {
  return optionNames(format, to).includes('importance');
}

/** Key of the settings for all tensors, without a size and those that are kept by hand, for what is remembered about a choice. */
export function settingsKey({ to, words, rules, statistics }: ModelChoice): readonly unknown[] {
  if (statistics === undefined) return [to, words, rules];
  const { file, method } = statistics;
  return [to, words, rules, method, file.name, file.size, file.lastModified];
}

/** The values of options, by name. */
function valuesOf(format: ModelFormat, { to, words }: ModelChoice): Record<string, unknown> {
  const { entries } = infoOf(format).options;
  const values: Record<string, unknown> = {};
  for (const name of optionNames(format, to)) {
    const entry = entries[name];
    if (entry?.flags.some((flag) => words[flag.name] !== undefined)) values[name] = entry.read(words);
  }
  return values;
}

/**
 * The choices as options of `planModel` and `quantizeModel`: with the size that they have, or with the types that fit into it.
 * @throws RangeError for a rule or an option
 */
export function optionsOf(format: ModelFormat, choice: ModelChoice, fit?: Fit): PlanOptions {
  const pattern = keptPattern(choice);
  const rules = [
    ...(pattern === undefined ? [] : [{ match: pattern, keep: true } as const]),
    ...choice.rules.map((text) => ruleFrom(text)),
    ...(fit?.rules ?? []),
  ];
  const base = {
    to: fit?.to ?? choice.to,
    ...valuesOf(format, choice),
    ...statisticsOptions(format, choice),
    ...(choice.size === undefined || fit !== undefined ? {} : { targetSize: choice.size }),
  } as PlanOptions;
  return rules.length === 0 ? base : { ...base, rules };
}

/** True if the result is the vision tower of a folder. */
export function isTower(format: ModelFormat, choice: ModelChoice): boolean {
  return valuesOf(format, choice).mmproj === true;
}

/** Name of the output: `model.safetensors` becomes `model.int4.safetensors`, or `model.60kB.safetensors`. */
export function outputName(name: string, format: ModelFormat, choice: ModelChoice): string {
  const { to, size } = choice;
  const architecture = isTower(format, choice) ? towerArchitecture : undefined;
  return resultName(name.replace(/\.index\.json$/i, ''), {
    to: size ?? to,
    format: infoOf(format).result,
    architecture,
  });
}

/** Name of the result of a model, a file or a folder: `model.gguf` becomes the folder `model-bfloat16`. */
export function outputOf(model: ModelFile, choice: ModelChoice): string {
  const format = formatFor(model, choice.to);
  const name = outputName(nameInFolder(model), format, choice);
  if (!makesFolder(model, format)) return name;
  const kind = choice.size ?? choice.to;
  return name.replace(`.${kind}${infoOf(format).extensions[0]}`, `-${kind}`);
}

/** The file that programs take of a result: that with the weights, if the model is turned back into a folder. */
export function weightsIn(model: ModelFormats, { to }: ModelChoice, result: string, within = `${result}/`): string {
  const format = formatFor(model, to);
  const isTurnedBack = makesFolder(model, format) && infoOf(format).isFolder !== true;
  return isTurnedBack ? `${within}model${infoOf(format).extensions[0]}` : result;
}

/** A name that the hub allows for a repository. */
const allowed = (name: string) =>
  name
    .replace(/[^\w.-]+/g, '-')
    .replace(/([.-])[.-]+/g, '$1')
    .replace(/^[.-]+|(\.git)?[.-]*$/g, '')
    .slice(0, 80);

/** The usual name of a repository with a result, by which people look for it: `tiny-GGUF`, `tiny-ONNX`, `tiny-4bit`, `tiny-int4`. */
export function usualRepository(model: ModelFile, extension: string, to: string): string {
  const { name, hub } = model;
  const [, own] = /^[^/]+\/([^/:@]+)/.exec(hub?.name ?? '') ?? [];
  const title = titleOf(model);
  const stem = title === name ? name.replace(/\.index\.json$/i, '').replace(/\.[^.]*$/, '') : title;
  const base = (own ?? stem).replace(/[._-](gguf|onnx)$/i, '');
  const kinds: Readonly<Record<string, string>> = { '.gguf': 'GGUF', '.onnx': 'ONNX' };
  const kind = kinds[extension] ?? to.replace(/^mlx-(?=\d)/, '');
  return allowed(`${base}-${kind}`);
}

const quoted = (text: string) => (/^[\w./:=,+-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`);

/** The statistics as flags of the command line. */
function statisticsWords({ statistics }: ModelChoice): readonly string[] {
  if (statistics === undefined) return [];
  const name = quoted(statistics.file.name);
  if (statistics.method === 'fold') return ['--fold-outliers', `--samples ${name}`];
  return statistics.method === 'gptq' ? ['--method gptq', `--moments ${name}`] : [`--imatrix ${name}`];
}

/** The choices as a command line, in parts that belong together: a flag with its value. */
export function commandParts(name: string, choice: ModelChoice): readonly string[] {
  const pattern = keptPattern(choice);
  const words = Object.entries(choice.words).map(([flag, value]) =>
    value === true ? `--${flag}` : `--${flag} ${quoted(value)}`,
  );
  const rules = [...(pattern === undefined ? [] : [`${pattern}=keep`]), ...choice.rules];
  return [
    'npx scalepoint quantize',
    quoted(name),
    ...(choice.to === 'auto' ? [] : [`--to ${choice.to}`]),
    ...(choice.size === undefined ? [] : [`--target-size ${quoted(choice.size)}`]),
    ...words,
    ...statisticsWords(choice),
    ...rules.map((rule) => `--rule ${quoted(rule)}`),
  ];
}

/** The choices as a command line. */
export const commandOf = (name: string, _format: ModelFormat, choice: ModelChoice): string =>
  commandParts(name, choice).join(' ');

/** A value as JavaScript. */
function literal(value: unknown): string {
  if (value instanceof File) return JSON.stringify(value.name);
  if (Array.isArray(value)) return `[${value.map(literal).join(', ')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  return `{ ${Object.entries(value)
    .map(([key, member]) => `${key}: ${literal(member)}`)
    .join(', ')} }`;
}

/** The choices as TypeScript. */
export function codeOf(
  name: string,
  format: ModelFormat,
  choice: ModelChoice,
  output = outputName(name, format, choice),
): string {
  const { statistics } = choice;
  // The norms are found anew.
  const folds = statistics?.method === 'fold' && { foldOutliers: true, run: { samples: { files: statistics.file } } };
  const options = { ...optionsOf(format, choice), ...folds, output };
  return [
    "import { quantizeModel } from 'scalepoint/model';",
    '',
    `await quantizeModel(${JSON.stringify(name)}, {`,
    ...Object.entries(options).map(([key, value]) => `  ${key}: ${literal(value)},`),
    '});',
    '',
  ].join('\n');
}

// --------------------------------------------------------------------------------------------------------------------------- links

/** The choices as the hash of an address, without `#`. It holds settings only, no data of the file. */
export function hashOf(format: ModelFormat, choice: ModelChoice): string {
  const parameters = new URLSearchParams();
  const usual = initialChoice(format);
  if (choice.to !== usual.to) parameters.set('to', choice.to);
  if (choice.size !== undefined) parameters.set('target-size', choice.size);
  for (const [flag, value] of Object.entries(choice.words)) parameters.set(flag, value === true ? 'yes' : value);
  for (const rule of choice.rules) parameters.append('rule', rule);
  for (const name of choice.kept) parameters.append('keep', name);
  return parameters.toString();
}

/** The settings in the hash of an address, as text: `int4`, `group-size 32`, `2 rules`. Empty without settings. */
export function settingsIn(hash: string): readonly string[] {
  const parameters = new URLSearchParams(hash.replace(/^#/, ''));
  const known = new Map(
    formats.flatMap(({ options }) =>
      Object.values(options.entries).flatMap(({ flags }) => flags.map((flag) => [flag.name, flag] as const)),
    ),
  );
  const said: string[] = [];
  const to = parameters.get('to');
  if (to !== null && to !== 'auto') said.push(to);
  const size = parameters.get('target-size');
  if (size !== null && bytesIn(size) !== undefined) said.push(`at most ${size}`);
  for (const [name, value] of parameters) {
    const flag = name === 'rule' || name === 'target-size' ? undefined : known.get(name);
    if (flag !== undefined) said.push(flag.value === undefined ? name : `${name} ${value}`);
  }
  const [rules, kept] = [parameters.getAll('rule').length, parameters.getAll('keep').length];
  if (rules > 0) said.push(formatMany(rules, 'rule'));
  if (kept > 0) said.push(`the ${kept === 1 ? 'name' : 'names'} of ${formatMany(kept, 'kept tensor')}`);
  return said;
}

/** The format to which the choices of an address apply. */
export function formatIn(model: ModelFormats, hash: string): ModelFormat {
  const to = new URLSearchParams(hash.replace(/^#/, '')).get('to');
  return to === null ? usualFormat(model) : formatFor(model, to);
}

/** The choices of an address. Those that do not apply to the format are left out. */
export function choiceOf(format: ModelFormat, hash: string): ModelChoice {
  const parameters = new URLSearchParams(hash.replace(/^#/, ''));
  const usual = initialChoice(format);
  const { options } = infoOf(format);
  const size = parameters.get('target-size') ?? '';
  const hasSize = bytesIn(size) !== undefined;
  const isAuto = hasSize && parameters.get('to') === 'auto';
  const known = offeredTargets(format).find(({ name }) => name === parameters.get('to'))?.name;
  const to = isAuto ? 'auto' : (known ?? usual.to);
  const words: Record<string, string | true> = {};
  for (const { name, value } of optionNames(format, to).flatMap((option) => options.entries[option]?.flags ?? [])) {
    const text = parameters.get(name);
    if (text !== null) words[name] = value === undefined ? true : text;
  }
  const kept = new Set(parameters.getAll('keep'));
  return { to: to as ModelChoice['to'], words, kept, rules: parameters.getAll('rule'), ...(hasSize && { size }) };
}

/** Options of plans and results, and their checks. */
import type { Converter } from '../architectures/converter.js';
import { convertersFrom } from '../architectures/registry.js';
import type { CallOptions } from '../core/check.js';
import { rangeError, typeError } from '../core/errors.js';
import { didYouMean } from '../core/nearest.js';
import { type Expected, type Hint, ofType, orList } from '../core/option-problem.js';
import { amended, checkOptionValues, checkTogether, numberOption, type OptionsOf, option } from '../core/schema.js';
import type { Format, Target } from '../formats/format.js';
import type { PlanChoices } from '../formats/options.js';
import { formatNamed, formats } from '../formats/registry.js';
import { checkFileSize } from '../formats/shards.js';
import { checkAdapters } from './open.js';

import { checkOptions, workNames } from './work-options.js';

/** Names of options of formats: about files beside the result, or those that decide about it. */
export function optionNames(sidecars: boolean, of: readonly Pick<Format, 'options'>[] = formats): string[] {
  const names = new Set<string>();
  for (const { options } of of) {
    for (const [name, { sidecar }] of Object.entries(options.entries)) {
      // Files that describe a result alone are made, not given.
      if ((sidecar !== undefined) === sidecars && !sidecar?.isWhole) names.add(name);
    }
  }
  return [...names];
}

/** Options that decide about a result. */
export function planNames(): string[] {
  return ['to', ...optionNames(false), 'rules', 'lora', ...sizeNames];
}

/** Options about texts and how they pass a model. */
const textNames = ['chunkSize', 'maxTokens', 'tokenizer', ...workNames];

/** The options of calls that make results or measure them, by the name of the call. */
export function modelCalls() {
  const [plan, sidecars] = [planNames(), optionNames(true)];
  const result = [...plan, 'output', ...workNames];
  return {
    quantizeModel: [...result, 'overwrite', 'minSqnrDb', 'minOutput', 'run', ...sidecars],
    planModel: result,
    estimateModel: [...plan, 'sample', ...workNames],
    measureTypes: [...plan, ...workNames],
    compareModels: ['run', ...workNames],
    verifyModel: [...sidecars, 'onProgress', 'signal'],
    evaluateModel: ['text', 'data', 'reference', 'resume', 'run', ...textNames],
    calibrateModel: ['output', 'overwrite', 'moments', 'heldBack', 'mix', 'ranges', 'resume', 'run', ...textNames],
  } satisfies CallOptions;
}

/** Most names of targets in an error about one format, and of each format in an error about all. */
const mostNames = 10;
const mostNamesOfEach = 3;

/** The targets of a format in an error, the likeliest first. */
function expectedTarget({ targets, label }: Format, most = mostNames): Expected {
  const rank = ({ preset, isUsual }: Target) => (preset !== undefined ? 0 : isUsual ? 1 : 2);
  const examples = [...targets].sort((a, b) => rank(a) - rank(b)).map(({ name }) => name);
  return { kind: 'text', form: `a target of ${label}`, examples: examples.slice(0, most) };
}

/** The nearest target of each format, with the formats where there are several. */
function nearTarget(to: unknown, owners: readonly Format[]): Hint | undefined {
  const found = owners.flatMap(({ targets, label }) => {
    const names = targets.map(({ name }) => name);
    // Without a similar name, take the integer with at least as many bits: int8 for int5.
    const bits = (name: unknown) => Number(/^u?int(\d+)$/.exec(typeof name === 'string' ? name : '')?.[1] ?? NaN);
    const wider = names.filter((name) => bits(name) >= bits(to)).sort((a, b) => bits(a) - bits(b));
    const near = didYouMean(to, names).names[0] ?? wider[0];
    return near === undefined ? [] : [{ near, label }];
  });
  const names = [...new Set(found.map(({ near }) => near))];
  if (names.length === 0) return undefined;
  if (owners.length === 1) return { kind: 'didYouMean', names };
  const formatsOf = (name: string) => found.filter(({ near }) => near === name).map(({ label }) => label);
  return { kind: 'didYouMean', names: names.map((name) => `${name} for ${orList(formatsOf(name))}`) };
}

/**
 * Checks options before the file is opened: their names, and that at least one format has the target. A missing target is an error of
 * `checkChoices`, which knows the format.
 */
export function checkPlanOptions(options: object, call: keyof ReturnType<typeof modelCalls>): void {
  const calls = modelCalls();
  checkOptions(options, calls[call], calls);
  const { to, lora } = options as { to?: unknown; lora?: unknown };
  if (lora !== undefined) checkAdapters(lora);
  checkSize(options as SizeOptions);
  if (to === 'auto' && hasSizeOption(options as SizeOptions)) return;
  if (to === undefined || formats.some((format) => accepts(format, to))) return;
  // Name the first of the formats that share a table.
  const owners = formats.filter((format, i, all) => all.findIndex(({ options }) => options === format.options) === i);
  const expected: Expected = { kind: 'anyOf', of: owners.map((format) => expectedTarget(format, mostNamesOfEach)) };
  throw rangeError('to', expected, to, nearTarget(to, owners));
}

/** The error for a target that is impossible for files of a format. */
export function targetError(from: Format, to: unknown): RangeError {
  const others = makersFor(from).filter(({ converter }) => converter !== undefined);
  const conditions = others.map(({ format, converter }) =>
    ofType(`target of ${format.label} if it is ${converter?.condition}`),
  );
  // For a target of another format, name the files that its conversion needs.
  const maker = others.find(
    ({ format }) =>
      accepts(format, to) || (typeof to === 'string' && format.targets.some(({ name }) => name.startsWith(`${to}_`))),
  );
  const files =
    'config.json and the tokenizer beside the weights: give the folder of the model, or a list of its files';
  const hint: Hint | undefined =
    maker === undefined ? nearTarget(to, [from]) : { kind: 'because', message: `${maker.format.label} needs ${files}` };
  return rangeError('to', { kind: 'anyOf', of: [expectedTarget(from), ...conditions] }, to, hint);
}

/** Checks everything that decides about a result of a file of this format. Returns its maker. */
export function checkChoices(from: Format, choices: PlanChoices): Maker {
  const maker = makerOf(from, choices.to);
  if (maker === undefined) throw targetError(from, choices.to);
  const { format } = maker;
  const { entries } = format.options;
  const given = Object.entries(choices).filter(([, value]) => value !== undefined);
  for (const owner of formats) {
    if (owner.options === format.options) continue;
    const foreign = given.find(([name]) => !Object.hasOwn(entries, name) && optionNames(false, [owner]).includes(name));
    // Reject options of other formats: they would have no effect.
    if (foreign !== undefined)
      throw rangeError(foreign[0], { kind: 'onlyFor', files: `${owner.label} files` }, foreign[1]);
  }
  for (const [name, value] of given) if (Object.hasOwn(entries, name)) entries[name]?.check(value, name);
  format.options.check(choices);
  return maker;
}

/** The format, and perhaps the conversion, that makes a result. */
export interface Maker {
  /** The format that knows the target, and whose options decide. */
  readonly format: Format;
  /** The conversion, if the model is of another format. */
  readonly converter?: Converter;
}

/** Checks that a format has a target of that name. */
function accepts({ targets, aliases }: Format, to: unknown): boolean {
  return targets.some(({ name }) => name === to) || (typeof to === 'string' && Object.hasOwn(aliases, to));
}

/** True if a target knows an option of its format. */
export function targetTakes(to: string, option: string): boolean {
  return formats.some(({ targets, aliases }) => {
    const name = Object.hasOwn(aliases, to) ? (aliases as Readonly<Record<string, string>>)[to] : to;
    return targets.find((target) => target.name === name)?.options.includes(option) ?? false;
  });
}

/** Targets by the result that they make. Those that take `also` make one together. */
export function targetsByResult<T extends string>(targets: readonly T[]): readonly (readonly T[])[] {
  const joined = targets.filter((to) => targetTakes(to, 'also'));
  return targets.flatMap((to) => (!joined.includes(to) ? [[to]] : to === joined[0] ? [joined] : []));
}

/** The targets of one result in its name: onnx:q4-q8. */
export const targetsLabel = (to: string, also: readonly string[] = []): string =>
  [to, ...also.map((other) => other.replace(/^onnx:/, ''))].join('-');

/** Lists the makers for models of a format. */
export function makersFor(format: Format): readonly Maker[] {
  const converters = convertersFrom(format.name);
  return [{ format }, ...converters.map((converter) => ({ format: formatNamed(converter.result), converter }))];
}

/** Finds the maker of a target for models of a format. Undefined if the target is impossible. */
export function makerOf(format: Format, to: unknown): Maker | undefined {
  return makersFor(format).find((maker) => accepts(maker.format, to));
}

/** Limits of the size of a result. */
const sizeEntries = {
  /**
   * GGUF, and int4, int8 and q4 of other formats: the largest size of all files of the result together, in bytes or as '3.5GB'. Measures
   * the error of each weight in each type, and chooses the types with the least error in this size. With moments of a language model, the
   * sum of errors is the expected divergence of the next token. `rules` have priority.
   * @defaultValue the types follow from `to`
   */
  targetSize: option<number | string>(checkFileSize),
  /** Target size as bits for each element of the model's tensors, such as 4.5. @defaultValue the types follow from `to` */
  targetBitsPerWeight: amended(numberOption({ above: 0, max: 64 }), { excludedBy: [{ option: 'targetSize' }] }),
  /**
   * Language models, with `moments`: the smallest result whose expected divergence of the next token is at most this, in nats.
   * @defaultValue the types follow from `to`
   */
  targetDivergence: amended(numberOption({ above: 0 }), {
    excludedBy: [{ option: 'targetSize' }, { option: 'targetBitsPerWeight' }],
  }),
};

/** Limits of the size of a result. */
export interface SizeOptions extends OptionsOf<typeof sizeEntries> {}

export const sizeNames: readonly string[] = Object.keys(sizeEntries);

/** True if a size is given. */
export function hasSizeOption(options: SizeOptions): boolean {
  return Object.keys(sizeEntries).some((name) => options[name as keyof SizeOptions] !== undefined);
}

/** @throws TypeError or RangeError naming the option */
export function checkSize(options: SizeOptions): void {
  checkTogether(sizeEntries, options);
  checkOptionValues(sizeEntries, options);
}

/** The least quality of each output. */
export interface OutputBound {
  /** Its measure: the cosine to the output of the original, or the SQNR in dB. */
  readonly kind: 'cosine' | 'sqnrDb';
  /** The least number. */
  readonly least: number;
}

const expected: Expected = {
  kind: 'anyOf',
  of: [
    { kind: 'number', above: 0, max: 1 },
    { kind: 'text', form: 'a number of decibels', examples: ['40dB'] },
  ],
};

/** Reads the option. @throws TypeError, RangeError */
export function outputBoundOf(minOutput: unknown): OutputBound {
  if (typeof minOutput === 'number') {
    if (minOutput > 0 && minOutput <= 1) return { kind: 'cosine', least: minOutput };
    throw rangeError('minOutput', expected, minOutput);
  }
  if (typeof minOutput !== 'string') throw typeError('minOutput', expected, minOutput);
  const [, decibels] = /^\s*([-+]?(?:\d+\.?\d*|\.\d+))\s*dB\s*$/i.exec(minOutput) ?? [];
  if (decibels === undefined) throw rangeError('minOutput', expected, minOutput);
  return { kind: 'sqnrDb', least: Number(decibels) };
}

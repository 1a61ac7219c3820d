// Controls of the options of a format, and their words on the page.
import type { ModelFormat } from 'scalepoint/model';
import { formats, type OptionWords, show } from '../../src/tooling.js';
import { infoOf, type ModelChoice, optionNames } from './choice.js';

type FlagWords = ModelChoice['words'];

/** A control for an option: a checkbox if it has two values, a list otherwise. The first value is the usual one. */
export interface Control {
  readonly option: string;
  readonly label: string;
  readonly values: readonly { readonly label: string; readonly words: FlagWords }[];
}

const flag = (option: string, label: string, words: FlagWords): Control => {
  return {
    option,
    label,
    values: [
      { label: 'no', words: {} },
      { label: 'yes', words },
    ],
  };
};

/** Labels of the options of the command line. Other options are labeled with their text of the help. */
const controls: readonly Control[] = [
  {
    option: 'granularity',
    label: 'One scale for each',
    values: [
      { label: 'group of 128, or what fits', words: {} },
      { label: 'row', words: { granularity: 'per-channel' } },
      { label: 'group of 32', words: { 'group-size': '32' } },
      { label: 'group of 64', words: { 'group-size': '64' } },
      { label: 'group of 128', words: { 'group-size': '128' } },
    ],
  },
  {
    option: 'blockSize',
    label: 'One scale for each',
    values: [
      { label: 'usual block', words: {} },
      ...['16', '32', '64', '128', '256'].map((size) => ({ label: `block of ${size}`, words: { 'block-size': size } })),
    ],
  },
  {
    option: 'range',
    label: 'Levels cover',
    values: [
      { label: 'all numbers (min-max)', words: {} },
      { label: 'what loses least (slower)', words: { range: 'mse' } },
      { label: 'all but 0.1 % (percentile)', words: { range: 'percentile:99.9' } },
      { label: 'what keeps most information (entropy)', words: { range: 'entropy' } },
    ],
  },
  flag('scheme', 'Zero points, for weights that lean to one side', { scheme: 'asymmetric' }),
  flag('zeroPoints', 'Zero points, for weights that lean to one side', { 'zero-points': true }),
  flag('perTensor', 'One scale for a whole tensor', { 'per-tensor': true }),
  flag('include', 'Also convolutions and the like, for programs that read the file with Scalepoint', { all: true }),
  flag('activations', 'Activations in 8 bits, too, when the model runs (W8A8)', { activations: 'int8-dynamic' }),
  flag('packed', 'Codes one a byte, not packed', { plain: true }),
  flag('pure', 'Every weight in one type, without the usual mixture', { pure: true }),
  flag('search', 'Search for better scales in the same types and bytes (slower)', { search: 'best' }),
  flag('keepSplit', 'As many files as the model has', { 'keep-split': true }),
  flag('requantize', 'Also quantize what is quantized already', { requantize: true }),
  flag('kvCache', 'Caches of language models in float16', { 'kv-cache': 'float16' }),
  flag('nonFinite', 'Write NaN and infinities of tensors that stay floats', { 'non-finite': 'keep' }),
  flag('missingBytes', 'Convert although the tokenizer has no byte tokens (llama.cpp may crash)', {
    'missing-bytes': 'keep',
  }),
  flag('mmproj', 'The vision tower alone, for --mmproj of llama.cpp', { mmproj: true }),
];

/** Options that the page cannot carry out: they write a second file, or are about one. */
const notHere = ['externalData', 'config'];

/** Options that apply only to models that become another format, and those that apply only to models that do not. */
const [whenConverted, whenNot] = [
  ['missingBytes', 'mmproj'],
  ['requantize', 'fixAlignment'],
];

/** Matches names of tensors of vision towers. */
const towers = /(^|\.)(visual|vision_tower|vision_model)\./;

/** True for a model with a vision tower beside a language model. */
export function hasTower({ tensors }: { readonly tensors: readonly { readonly name: string }[] }): boolean {
  return tensors.some(({ name }) => towers.test(name));
}

/** The controls for a target. @param isConverted true if the model has another format. @param tower true if it has a vision tower */
export function controlsFor(format: ModelFormat, to: string, isConverted = false, tower = false): Control[] {
  const { entries } = infoOf(format).options;
  const without = isConverted ? [...whenNot, ...(tower ? [] : ['mmproj'])] : whenConverted;
  return optionNames(format, to).flatMap((option) => {
    if (without.includes(option)) return [];
    const known = controls.find((control) => control.option === option);
    if (known !== undefined) return [known];
    const [first] = entries[option]?.flags ?? [];
    if (notHere.includes(option) || first === undefined || first.value !== undefined) return [];
    return [flag(option, `${first.about[0]?.toUpperCase()}${first.about.slice(1)}`, { [first.name]: true })];
  });
}

const flagsOf = ({ values }: Control) => new Set(values.flatMap(({ words }) => Object.keys(words)));

/** Index of the value of a control that the flags state. */
export function valueAt(control: Control, words: FlagWords): number {
  const said = [...flagsOf(control)].filter((name) => words[name] !== undefined);
  const matches = (candidate: FlagWords) =>
    Object.keys(candidate).length === said.length && said.every((name) => candidate[name] === words[name]);
  return Math.max(
    0,
    control.values.findIndex((value) => matches(value.words)),
  );
}

/** The flags with another value of a control. */
export function withValue(control: Control, words: FlagWords, value: number): FlagWords {
  const flags = flagsOf(control);
  const others = Object.entries(words).filter(([name]) => !flags.has(name));
  return { ...Object.fromEntries(others), ...control.values[value]?.words };
}

// ------------------------------------------------------------------------------------------------------------------------- words

/** Labels of options without a control of their own under More. */
const otherNames: Readonly<Record<string, string>> = {
  to: 'type',
  rules: 'rules under More',
  targetSize: 'size',
  targetBitsPerWeight: 'size',
  file: 'file',
  output: 'output',
};

/** The control for a path such as `granularity.groupSize`. */
const controlAt = (path: string) => controls.find(({ option }) => option === path.split('.')[0]);

function nameOf(path: string): string {
  const control = controlAt(path);
  if (control !== undefined) return `“${control.label}” under More`;
  const [base = path] = /^\w+/.exec(path) ?? [];
  return otherNames[base] ?? path;
}

/** True for equal values, and for objects with equal members. */
function isSame(a: unknown, b: unknown): boolean {
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return a === b;
  const [first, second] = [Object.entries(a), Object.entries(b)];
  return first.length === second.length && first.every(([key, value]) => b[key as keyof typeof b] === value);
}

/** The label of a value of an option, as its control has it. */
function labelOf(path: string, value: unknown): string | undefined {
  const control = controlAt(path);
  const [name = '', member] = path.split('.');
  const info = formats.find(({ options }) => Object.hasOwn(options.entries, name))?.options.entries[name];
  const found = control?.values.slice(1).find(({ words }) => {
    const read = info?.read(words);
    const at = member === undefined ? read : (read as Readonly<Record<string, unknown>> | undefined)?.[member];
    return isSame(at, value);
  });
  return found?.label;
}

/** Words of the page: options have the labels of their controls. */
export const pageWords: OptionWords = {
  option: nameOf,
  withValues(path, values) {
    if (path === 'rules[].keep') return '“keep” in the list of tensors';
    if (path === 'rules[].to') return `${values.map((value) => `“${value}”`).join(' or ')} in the list of tensors`;
    const labels = values.map(
      (value) => labelOf(path, value) ?? (typeof value === 'object' ? show(value) : String(value)),
    );
    return labels.every((label) => label === 'yes') ? nameOf(path) : `${nameOf(path)}: ${labels.join(' or ')}`;
  },
  value: String,
};

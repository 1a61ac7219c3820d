/** The flags of all commands, in the order of their help. Parsing, help, completions and messages read them from here; formats add their own. */
import { type ModelFormat, presetTarget, type QuantizeModelOptions, resultName } from '../model.js';
import {
  type BackendName,
  didYouMean,
  type Flag,
  type FormatInfo,
  formats,
  maxWorkers,
  mostShare,
  NamePattern,
  type NumberForm,
  type OptionTable,
  ofType,
  oneOf,
  orList,
  presets,
  rangeError,
  readNumber,
  type Target,
} from '../tooling.js';

/** A flag of a command. `T` is the type of its value. */
export interface CommandFlag<T = unknown> extends Omit<Flag, 'name'> {
  /** The type of its value. No flag has this member: it carries the type alone. */
  readonly type?: T | undefined;
  /** One letter, for `-o`. */
  readonly short?: string;
  /** Path of the option of the model functions that it sets. @defaultValue its name in camel case */
  readonly option?: string;
  /** True if the command writes the file that the value names. */
  readonly isWritten?: boolean;
  /** The text in the help that a screen shows, which has the flags of most lines alone; true for `about`. */
  readonly usual?: true | string | (() => string);
  /** The rest of the text in the help of all flags. */
  readonly rest?: () => string;
  /** Its values, in lists with headings. */
  readonly lists?: () => readonly { readonly title: string; readonly values: readonly string[] }[];
  /** The value for a text, or for each one of a flag that can be repeated. @throws RangeError naming the flag @defaultValue the text itself */
  readonly read?: (text: string, name: string) => unknown;
}

/** Flags by name. */
export type CommandFlags = Readonly<Record<string, CommandFlag>>;

/** Flags under a heading of the help; undefined for none. */
export interface FlagGroup {
  readonly title?: string;
  readonly flags: CommandFlags;
}

/** The values of flags. */
export type ValuesOf<Flags> = {
  readonly [Name in keyof Flags]?: Flags[Name] extends { readonly type?: infer T } ? T | undefined : never;
};

/** A flag with a value. @param value its word in the help, such as FILE */
function flag<T = string>(value: string, about: string, more: Omit<CommandFlag, 'about'> = {}): CommandFlag<T> {
  return { ...(more as Omit<CommandFlag<T>, 'about'>), value, about };
}

const flags = (value: string, about: string, more: Omit<CommandFlag, 'about'> = {}) =>
  flag<readonly string[]>(value, about, { ...more, multiple: true });
const onOff = (about: string, more: Omit<CommandFlag<boolean>, 'about'> = {}): CommandFlag<boolean> => ({
  ...more,
  about,
});

/** A flag whose value is a number. */
const numberFlag = (value: string, about: string, form: Omit<NumberForm, 'kind'>, option?: string) =>
  flag<number>(value, about, {
    ...(option && { option }),
    read: (text, name) => readNumber(text, name, { kind: 'number', ...form }),
  });

const decibels = { unit: 'decibels' };
const share = { min: 0, max: mostShare };
const fromZero = { whole: true, min: 0 } as const;
const fromFour = { whole: true, min: 4 } as const;

/** Finds a word in a list. @throws RangeError naming the flag */
function wordIn<const Word extends string>(words: readonly Word[], text: string, name: string): Word {
  const known = words.find((word) => word === text);
  if (known === undefined) throw rangeError(`--${name}`, oneOf(words), text, didYouMean(text, words));
  return known;
}

/** A flag with a few values. */
const oneOfWords = <const Word extends string>(
  value: string,
  choices: readonly Word[],
  about: string,
  more: Omit<CommandFlag, 'about'> = {},
) => flag<Word>(value, about, { ...more, choices, read: (text, name) => wordIn(choices, text, name) });

/** Fails without a name. */
function readFileName(text: string, name: string): string {
  if (text === '') throw rangeError(`--${name}`, ofType('name of a file'), text);
  return text;
}

/** Sizes of dimensions. @param about the dimensions */
const dimensions = (about: string) =>
  flag<readonly (readonly [name: string, size: number])[]>(
    'NAME=N',
    `${about}, by its name or as INPUT.AXIS; can be repeated`,
    {
      multiple: true,
      option: 'run.dimensions',
      read(text, name) {
        const [, dimension, size] = /^([^=]+)=(.*)$/s.exec(text) ?? [];
        if (dimension === undefined) throw rangeError(`--${name}`, oneOf(['NAME=N']), text);
        return [dimension, readNumber(size, name, { kind: 'number', ...fromZero })];
      },
    },
  );

const backendNames: readonly BackendName[] = ['wasm', 'webgpu', 'node'];

/** Names of backends. A value may have several, separated by commas. */
const backends = (about: string) =>
  flag<readonly (readonly BackendName[])[]>('NAME', about, {
    multiple: true,
    option: 'run.backends',
    choices: backendNames,
    read: (text, name) => text.split(',').map((word) => wordIn(backendNames, word.trim(), name)),
  });

/** An adapter, and how many times it is added. */
export interface AdapterFile {
  readonly file: string;
  readonly strength?: number;
}

/** Reads a value of --lora. @throws RangeError */
export function readAdapterFlag(text: string): AdapterFile {
  const [, path, strength] = /^(.+):([-+]?(?:\d+\.?\d*|\.\d+))$/.exec(text) ?? [];
  if (path !== undefined) return { file: path, strength: Number(strength) };
  if (text === '' || text.endsWith(':')) throw rangeError('--lora', ofType('name of a file'), text);
  return { file: text };
}

const seed = (about: string) => numberFlag('N', about, fromZero, 'run.seed');
const help = onOff('print this help', { short: 'h' });
const quiet = onOff('print errors only', { short: 'q', usual: true });
const workers = numberFlag(
  'N',
  'number of worker threads; 0 does the work in the main thread; by default the number of processors minus one',
  { whole: true, min: 0, max: maxWorkers },
);

/** The flag --json, and the flags that all commands take. @param members of the JSON @param usual as of CommandFlag */
const commonFlags = (members: string, usual?: true | string) => ({
  json: onOff(`print JSON: ${members}`, { ...(usual && { usual }) }),
  verbose: onOff('print time and memory, and the stack of an error'),
  'no-color': onOff('no color, like NO_COLOR=1 in the environment'),
  help,
});

export const inspectFlags = {
  sort: oneOfWords(
    'BY',
    ['file', 'name', 'size', 'elements', 'dtype'],
    'order of the tensors: file (the default), name, size or elements (the largest first), or dtype',
  ),
  filter: flag<NamePattern>('REGEX', 'only the tensors whose names match', {
    read: (given, name) => new NamePattern(given, `--${name}`),
  }),
  ...commonFlags('{ file, format, bytes, files, tensors, metadata, totals, peakBytes }'),
};

// ----------------------------------------------------------------------------------------------------------- quantize, plan and copies

/** A table of options, and the formats that share it. */
interface SharedTable {
  readonly table: OptionTable;
  readonly formats: readonly [FormatInfo, ...FormatInfo[]];
}

/** Lists the tables of all formats, each once. */
export function optionTables(): readonly SharedTable[] {
  return [...new Set(formats.map(({ options }) => options))].map((table) => {
    const sharing = formats.filter(({ options }) => options === table);
    return { table, formats: sharing as unknown as SharedTable['formats'] };
  });
}

/** Lists the tables of formats with presets, which users without a preference choose from. */
export function usualTables(): readonly SharedTable[] {
  return optionTables().filter(({ formats: [{ targets }] }) => targets.some(({ preset }) => preset !== undefined));
}

/** The usual target: that of the preset `balanced`. */
export function balanced(targets: readonly Target[]): string {
  return (targets.find(({ preset }) => preset === 'balanced') ?? targets[0])?.name ?? '';
}

const toAbout = 'type of the weights in the result; several types, separated by commas, make a file each';

/** Flags that decide about the types of a result. */
export const targetFlags = {
  to: flag('TYPE', toAbout, {
    usual() {
      const usual = usualTables().map(({ formats: [{ targets }] }) => balanced(targets));
      const all = new Set(
        optionTables().flatMap(({ formats: all }) => all.flatMap(({ targets }) => targets.map(({ name }) => name))),
      );
      return `${toAbout}; ${orList(usual)}, or another of ${all.size}`;
    },
    lists: () =>
      optionTables().map(({ formats: sharing }) => ({
        title: [...new Set(sharing.map(({ files }) => files))].join(', '),
        values: [...new Set(sharing.flatMap(({ targets }) => targets.map(({ name }) => name)))],
      })),
  }),
  preset: oneOfWords('P', presets, 'in place of --to', {
    rest() {
      const names = usualTables().map(({ formats: [{ name }] }) => name as ModelFormat);
      const types = presets.map((one) => `${one} (${names.map((name) => presetTarget(name, one)).join(', ')})`);
      return `: ${types.join(', ')}`;
    },
    usual: true,
  }),
  rule: flags(
    "'REGEX=TYPE'",
    'tensors whose names match become TYPE, even if they are kept by default; keep in place of TYPE keeps them as they are',
    { option: 'rules', usual: true, rest: () => '; can be repeated, and the first match decides' },
  ),
  'tensor-type-file': flag('FILE', 'read rules NAME=TYPE from a file, as llama-quantize does; NAME is in lower case', {
    option: 'rules',
  }),
  rules: flag('FILE', 'read rules from a file, one a line; they come after those of --rule'),
  'target-size': flag(
    'SIZE',
    'choose the types with the least error that fit into a file of this size, such as 3.5GB; measures every weight in every type; with ' +
      '--moments of a language model, by the expected divergence; ' +
      '--to may be left out',
    { usual: true },
  ),
  'target-bpw': flag('BITS', 'the same for a number of bits per weight, such as 4.5', {
    option: 'targetBitsPerWeight',
    read(given, name) {
      if (/^(\d+\.?\d*|\.\d+)$/.test(given)) return given;
      throw rangeError(`--${name}`, { kind: 'text', form: 'a number of bits', examples: ['4.5'] }, given);
    },
  }),
  'target-divergence': flag(
    'NATS',
    'the smallest file whose expected divergence is at most this, with --moments of a language model, such as 0.01',
    {
      option: 'targetDivergence',
      read(given, name) {
        if (Number(given) > 0) return given;
        throw rangeError(`--${name}`, { kind: 'text', form: 'a number of nats', examples: ['0.01'] }, given);
      },
    },
  ),
  'save-rules': flag('FILE', 'write the chosen types as rules, which --rules reads', {
    isWritten: true,
    read: readFileName,
  }),
  plan: flag('FILE', 'carry out a plan of --save-plan, in place of --to and other options'),
  'save-plan': flag('FILE', 'write the plan as JSON, which --plan carries out', {
    isWritten: true,
    read: readFileName,
  }),
  lora: flag<readonly AdapterFile[]>(
    'FILE[:S]',
    'safetensors and PyTorch: add an adapter (LoRA) to the weights, S times (default 1), before they are quantized; can be repeated',
    { multiple: true, read: readAdapterFlag, usual: true },
  ),
};

/** Flags about the runs of --min-output and --fold-outliers. */
export const outputRunFlags = {
  samples: flags(
    'FILE',
    'with --min-output and --fold-outliers: samples of the inputs, as for calibrate --data: .npz, .npy or JSON lines; random inputs by default; can be repeated',
    { option: 'run.samples' },
  ),
  dim: dimensions('with --samples and --min-output: size of a dimension that is not fixed'),
  seed: seed('with --min-output: seed of random inputs'),
  backend: backends('with --min-output: where outputs must hold (default wasm); as for compare; can be repeated'),
  browser: flag('PATH', 'the browser for --backend webgpu'),
};

/** Flags about the least quality of a result. */
const limitFlags = {
  'min-sqnr': numberFlag('DB', "fail, and write nothing, if a tensor's SQNR is lower", decibels, 'minSqnrDb'),
  'min-output': flag<NonNullable<QuantizeModelOptions['minOutput']>>(
    'BOUND',
    'ONNX: run the result and FILE, and raise types of tensors, the largest gain per byte first, until each output is this close: a cosine ' +
      'such as 0.999, or an SQNR such as 40dB; fail, and write nothing, if that is out of reach; needs the package onnxruntime-web',
    // The model functions check the rest.
    { read: (given) => (/^(\d+\.?\d*|\.\d+)$/.test(given) ? Number(given) : given) },
  ),
  ...outputRunFlags,
};

/** Flags that copies do not take, as they convert nothing. */
export const convertingFlags = { ...targetFlags, ...limitFlags };

/** Flags about the work and the files of a result, also of copies. */
export const writingFlags = {
  output: flag('OUT', 'file or folder for the result', {
    short: 'o',
    usual: 'file or folder for the result; by default a file beside FILE',
    rest() {
      const outputs = optionTables().map(({ formats: [{ extensions, result, targets }] }) =>
        resultName(`model${extensions[0]}`, { to: balanced(targets), format: result }),
      );
      return `, or - for standard output; by default a file beside FILE with TYPE in its name: ${outputs.join(', ')}`;
    },
    read(given, name) {
      if (given !== '') return given;
      throw rangeError(`--${name}`, { kind: 'anyOf', of: [ofType('name of a file'), oneOf(['-'])] }, given);
    },
  }),
  workers,
  'dry-run': onOff('write nothing, print a plan as scalepoint plan does', { usual: true }),
  resume: onOff(
    'keep each file of the result as soon as it is whole, and go on after an interrupted run with --resume',
    { usual: true },
  ),
  force: onOff('replace OUT and the files beside it if they exist', { short: 'f', option: 'overwrite', usual: true }),
  push: flag(
    'OWNER/NAME',
    'push the whole result to this repository of the hub, with a card, and make the repository if it is missing; files of somebody else ' +
      'there need --force; needs a token that may write, and the package @huggingface/hub',
    { option: 'repository' },
  ),
  'push-pr': onOff('with --push: make a pull request'),
  public: onOff(
    'with --push: everybody sees a new repository, as by default if the source is a public model of the hub',
  ),
  private: onOff('with --push: a new repository is private, as by default for all other sources'),
  measured: flag(
    'FILE',
    'with --push: the JSON of scalepoint evaluate, whose perplexity and divergence the card states',
  ),
  quiet,
  ...commonFlags(
    '{ file, output, config, to, tensors, totals, notes, peakBytes }; for several files also { files, isWhole }; with --min-output also ' +
      '{ repair }; with --fold-outliers also { folding }',
    'print JSON',
  ),
  'help-all': onOff('explain all options', { usual: true }),
};

/** Flags of `quantize` that do not belong to a format. */
export const quantizeFlags = { ...convertingFlags, ...writingFlags };

/** Flags that the help of `plan` shows. The command takes all flags of `quantize`. */
export const planFlags = {
  ...targetFlags,
  quiet,
  ...commonFlags('{ file, output, format, to, tensors, totals, files, notes, quantizationConfig, peakBytes }', true),
  'help-all': writingFlags['help-all'],
};

// ------------------------------------------------------------------------------------------------------------------------ other commands

export const compareFlags = {
  sort: oneOfWords('BY', ['file', 'sqnr'], 'sqnr lists the worst first; by default in the order of A'),
  'min-sqnr': numberFlag(
    'DB',
    'fail if the SQNR of a tensor is lower, if only one model has the tensor, if the shapes differ, or if one holds NaN where the other ' +
      'does not',
    decibels,
    'minSqnrDb',
  ),
  workers,
  run: onOff(
    'ONNX: also run both on the same inputs, random by default, and compare the outputs; needs the package onnxruntime-web; ' +
      '--min-sqnr then applies to the outputs',
  ),
  layers: onOff('with --run, also compare the results of all nodes, to find where the error begins', {
    option: 'run.layers',
  }),
  backend: backends(
    'run both in this place, too, and compare with A on wasm: wasm, webgpu in an installed Chromium, Chrome or Edge without a window, or ' +
      'node, which needs the package onnxruntime-node; can be repeated',
  ),
  browser: flag('PATH', 'the browser for --backend webgpu, in place of the first that is found'),
  input: flags('FILE', 'inputs for --run: a .npz file with all of them, or NAME=FILE.npy, which can be repeated', {
    option: 'run.inputs',
  }),
  dim: dimensions('size of a dimension that is not fixed'),
  seed: seed('seed of random inputs'),
  quiet,
  ...commonFlags(
    '{ a, b, tensors, total, skipped, onlyInA, onlyInB, peakBytes }; with --run also { inputs, guessedSizes, outputs, skippedOutputs, layers, backends }',
  ),
};

/** Flags of `verify`. Those about files beside models belong to formats. */
export const verifyFlags = {
  quiet,
  ...commonFlags('{ file, config, format, bytes, files, tensors, problems, notes, peakBytes }'),
};

/** Flags about the data of `evaluate` and `calibrate`. @param data about the samples */
export const dataFlags = (data: string) => ({
  data: flags('FILE', `${data}: .npz files, .npy files for a model with one input, or JSON lines; can be repeated`),
  dim: dimensions('ONNX: size of a dimension that no sample determines'),
  text: flags('FILE', 'a text in UTF-8; can be repeated; needs the package @huggingface/tokenizers'),
  ids: flag('FILE', 'ids of tokens in place of texts: numbers between spaces, commas or line ends'),
  'chunk-size': numberFlag('N', 'tokens of a chunk (default 512, or fewer if the model was made for fewer)', fromFour),
  'max-tokens': numberFlag('N', 'most tokens to use, from the start (default all)', fromFour),
  workers,
});

export const evaluateFlags = {
  ...dataFlags('in place of texts, samples for two ONNX models, to compare the outputs'),
  resume: flag(
    'STATE',
    'keep the state of the run in this file, and go on from it after an interruption; 4 bytes for each token and element of a hidden state',
  ),
  quiet,
  ...commonFlags(
    '{ a, b, tokens, counted, chunks, vocabulary, perplexity, peakBytes }; with B also { referencePerplexity, kl, sameTop, logDifference }; with --data { a, b, samples, outputs, skippedOutputs, peakBytes }',
  ),
};

export const calibrateFlags = {
  ...dataFlags('samples for an ONNX model, in place of texts'),
  output: flag('OUT', 'the file to write (default imatrix.gguf)', { short: 'o' }),
  moments: onOff(
    'also write OUT.moments.safetensors, the second moments for --method gptq: 8 K² bytes for inputs of K columns, 4 K² with --held-back 0',
  ),
  'held-back': numberFlag(
    'SHARE',
    'with --moments: the share of chunks or samples that is held back to judge codes by, which takes as much room again; 0 to 0.5 (default 0.125)',
    share,
  ),
  mix: numberFlag(
    'SHARE',
    'with --moments, not for ONNX: the share of random tokens, which are added to the text; 0 to 0.5 (default 0.25)',
    share,
  ),
  ranges: onOff(
    'ONNX: also write OUT.ranges.safetensors, the ranges of activations, by which int8-static and float16 decide',
  ),
  resume: onOff(
    'go on behind the last finished layer or sample of an interrupted run; its state is in .OUT.resume beside OUT',
  ),
  force: onOff('replace OUT if it exists, and an interrupted run with other data', { short: 'f', option: 'overwrite' }),
  quiet,
  ...commonFlags(
    '{ file, output, tokens, mixedTokens, chunks, weights, size, peakBytes }; with --moments and --ranges also { moments: { path, size }, ranges: { path, size } }; for ONNX also { unreached }',
  ),
};

export const benchFlags = {
  quick: onOff('less data, fewer samples'),
  only: oneOfWords('PART', ['arrays', 'blocks', 'layers'], 'measure arrays, blocks or layers only'),
  size: numberFlag(
    'N',
    'number of floats in arrays and blocks, a multiple of 256 (default 2^24; with --quick 2^20)',
    fromZero,
  ),
  width: numberFlag('N', 'inputs and outputs of the layers (default 4096; with --quick 1024)', fromZero),
  ...commonFlags('{ version, tier, rows, engine, processor }'),
};

export const completionsFlags = { help };

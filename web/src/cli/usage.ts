/** The texts of --help: as wide as the terminal, from 40 to 80 columns. The formats contribute their parts. */
import { type ModelFormat, presetTarget, resultName } from '../model.js';
import {
  converters,
  type Flag,
  type FormatInfo,
  type FormatOption,
  formats,
  type OptionTable,
  orList,
  type Preset,
  presets,
  type Sidecar,
  type Target,
} from '../tooling.js';
import {
  benchFlags,
  type CommandFlag,
  type CommandName,
  calibrateFlags,
  commandAbouts,
  compareFlags,
  completionsFlags,
  evaluateFlags,
  inspectFlags,
  outputRunFlags,
  quantizeFlags,
  verifyFlags,
} from './flags.js';
import { copyFlags, optionFlags, sidecarFlags, tables, usualTables } from './format-flags.js';
import { columnsOf } from './text.js';

/** Columns of a line. */
function lineWidth(): number {
  return Math.max(40, Math.min(80, columnsOf(process.stdout)));
}

/** Words in lines of that width, all of which begin with some spaces. */
function wrapped(text: string, indent = 0): string[] {
  const width = lineWidth();
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && indent + line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line].map((part) => ' '.repeat(indent) + part);
}

/** The column where explanations begin, and the columns that they need. */
const column = 24;
const leastAbout = 32;

/** A flag and its explanation. */
function explained(flag: string, about: string, at = column): string[] {
  const start = `  ${flag}`;
  // In a narrow terminal, explanations stand below.
  if (lineWidth() < at + leastAbout) return [start, ...wrapped(about, 6)];
  const lines = wrapped(about, at);
  if (start.length > at - 2) return [start, ...lines];
  return [start.padEnd(at) + (lines[0] as string).trimStart(), ...lines.slice(1)];
}

const flagLine = ({ name, value, about }: Flag) =>
  explained(`--${name}${value === undefined ? '' : ` ${value}`}`, about);

/** The lines of flags of a command. */
function flagLines(flags: Readonly<Record<string, CommandFlag>>, at = column): string[] {
  const shown = Object.entries(flags).filter(([name]) => name !== 'help');
  return shown.flatMap(([name, { short, value, about }]) => {
    const long = `--${name}${value === undefined ? '' : ` ${value}`}`;
    return explained(short === undefined ? long : `-${short}, ${long}`, about, at);
  });
}

/** A name for a file of a format. */
const exampleFile = ({ extensions: [extension = ''] }: FormatInfo, stem = 'model') => exampleName(extension, stem);

/** An example for an extension. Files of some formats have one name. */
const exampleName = (extension: string, stem = 'model') => (extension.startsWith('.') ? stem + extension : extension);

/** The usual target: that of the preset `balanced`. */
function balanced(targets: readonly Target[]): string {
  return (targets.find(({ preset }) => preset === 'balanced') ?? targets[0])?.name ?? '';
}

const first = () => formats()[0] as FormatInfo;

const text = (lines: readonly string[]) => `${lines.join('\n')}\n`;

// ---------------------------------------------------------------------------------------------------------------------- overview

/** The usual line of each command. */
const usageOf: Readonly<Record<CommandName, (to: string) => string>> = {
  quantize: (to) => `[quantize] FILE --to ${to} [-o OUT]`,
  inspect: () => 'inspect FILE',
  plan: (to) => `plan FILE --to ${to}`,
  split: () => 'split FILE --split-size 1.9GB',
  merge: () => 'merge FILE [-o OUT]',
  compare: () => 'compare A B',
  verify: () => 'verify FILE',
  evaluate: () => 'evaluate A [B] --text FILE',
  calibrate: () => 'calibrate FILE --text FILE',
  bench: () => 'bench',
  completions: () => 'completions bash|zsh|fish',
};

export function usage(): string {
  const extensions = formats().flatMap(({ extensions: all }) => all);
  const to = first().targets[0]?.name;
  return text([
    'scalepoint: make models smaller',
    '',
    ...(Object.keys(commandAbouts) as CommandName[]).flatMap((name) =>
      explained(`scalepoint ${usageOf[name](to ?? '')}`, commandAbouts[name], 48),
    ),
    '',
    ...wrapped(
      `FILE is a ${orList(extensions)} file; its content decides, not its name. It may be a folder that holds a model, ` +
        'a URL, or - for standard input. For a model in several files, name the index or, for GGUF, the first file. OUT may be - for ' +
        'standard output.',
    ),
    ...wrapped(
      'scalepoint help COMMAND explains a command, and --help-all all of its options; scalepoint --version prints version and build.',
    ),
  ]);
}

export function inspectUsage(): string {
  const files = formats().flatMap((format) => format.extensions.map((extension) => exampleName(extension)));
  return text([
    'scalepoint inspect FILE [--json]',
    '',
    ...wrapped(
      'Lists the tensors of a model with name, dtype, shape and size, and then its metadata. Long values are cut short. Reads ' +
        'headers only.',
    ),
    '',
    ...flagLines(inspectFlags, 19),
    '',
    'Examples',
    ...files.map((file) => `  scalepoint inspect ${file}`),
    `  scalepoint inspect ${exampleFile(first())} --filter 'attn|mlp' --sort size`,
    `  scalepoint inspect ${exampleFile(first())} --json | jq '.tensors[].name'`,
  ]);
}

// ------------------------------------------------------------------------------------------------------------- plan and quantize

/** The targets of the presets. */
function presetText(): string {
  const types = (preset: Preset) =>
    usualTables().map(({ formats: [format] }) => presetTarget((format as FormatInfo).name as ModelFormat, preset));
  return `in place of --to: ${presets.map((preset) => `${preset} (${types(preset).join(', ')})`).join(', ')}`;
}

/** The targets of all formats, and rules. */
function targetLines(): string[] {
  const lists = tables().flatMap(({ formats }) => {
    const [format] = formats;
    const start = `      ${formats.map(({ files }) => files).join(', ')}`;
    const names = wrapped((format as FormatInfo).targets.map(({ name }) => name).join(' '), 26);
    if (start.length > 24) return [start, ...names];
    return [start.padEnd(26) + (names[0] as string).trimStart(), ...names.slice(1)];
  });
  const { to, rule } = quantizeFlags;
  return [
    ...explained('--to TYPE', to.about),
    ...lists,
    ...explained('--preset P', presetText()),
    ...explained("--rule 'REGEX=TYPE'", rule.about),
    ...explained(
      "--rule 'REGEX=keep'",
      'tensors whose names match are kept; --rule can be repeated, and the first match decides',
    ),
    ...flagLines(
      pick('tensor-type-file', 'rules', 'target-size', 'target-bpw', 'save-rules', 'plan', 'save-plan', 'lora'),
    ),
  ];
}

/** Some flags of `quantize`, in this order. */
function pick(...names: (keyof typeof quantizeFlags)[]): Record<string, CommandFlag> {
  return Object.fromEntries(names.map((name) => [name, quantizeFlags[name]]));
}

const optionsIn = (table: OptionTable): readonly FormatOption[] => Object.values(table.entries);

/** The options of a table. @param sidecars true to include those about files beside the result */
function tableLines(table: OptionTable, sidecars: boolean): string[] {
  const shown = optionsIn(table).filter(({ sidecar }) => sidecars || sidecar === undefined);
  return ['', table.title, ...shown.flatMap(({ flags }) => flags.flatMap(flagLine))];
}

const sidecarsIn = (): Sidecar[] =>
  tables().flatMap(({ table }) => optionsIn(table).flatMap(({ sidecar }) => sidecar ?? []));

/** The options that are used most. @param more lines of others */
function usualLines(more: readonly string[]): string[] {
  const { to, rule } = quantizeFlags;
  const usual = usualTables().map(({ formats: [format] }) => balanced((format as FormatInfo).targets));
  const count = new Set(tables().flatMap(({ formats }) => (formats[0] as FormatInfo).targets.map(({ name }) => name)))
    .size;
  return [
    ...explained('--to TYPE', `${to.about}; ${orList(usual)}, or another of ${count}`),
    ...explained('--preset P', presetText()),
    ...explained("--rule 'REGEX=TYPE'", `${rule.about}; keep in place of TYPE keeps them as they are`),
    ...flagLines(pick('target-size', 'lora')),
    ...more,
    ...flagLines(pick('quiet', 'help-all')),
  ];
}

/** The help of `quantize`. @param all true for all options, false for those that a screen shows */
export function quantizeUsage(all: boolean): string {
  if (!all) {
    return text([
      'scalepoint [quantize] FILE... --to TYPE [-o OUT] [options]',
      '',
      ...wrapped(
        'Makes a model smaller. Prints a table of all tensors: sizes, SQNR, the largest error, or the reason why one was kept. FILE may be a ' +
          'folder; of several, each gets a result of its own. Quantized weights need the settings that are written beside OUT.',
      ),
      '',
      ...usualLines([
        ...explained('-o, --output OUT', 'file or folder for the result; by default a file beside FILE'),
        ...flagLines(pick('dry-run', 'resume', 'force')),
        ...explained('--json', 'print JSON'),
      ]),
      '',
      ...wrapped('Exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.'),
      '',
      'Examples',
      ...formats().flatMap(({ examples }) => examples.slice(0, 1).map((example) => `  scalepoint quantize ${example}`)),
    ]);
  }
  const abouts = [...formats(), ...converters()].map(({ about }) => about);
  const outputs = tables().map(({ formats: [format] }) => {
    const { extensions, result: name, targets } = format as FormatInfo;
    return resultName(`model${extensions[0]}`, { to: balanced(targets), format: name });
  });
  return text([
    'scalepoint [quantize] FILE... --to TYPE [-o OUT] [options]',
    '',
    ...wrapped(
      'Makes a model smaller. Prints a table of all tensors: sizes, SQNR, the largest error, or the reason why one was kept. ' +
        abouts.join(' '),
    ),
    '',
    ...targetLines(),
    ...explained(
      '-o, --output OUT',
      `file or folder for the result, or - for standard output; by default a file beside FILE with TYPE in its name: ${outputs.join(', ')}`,
    ),
    ...flagLines(
      pick(
        'min-sqnr',
        'min-output',
        ...outputRunFlags,
        'workers',
        'dry-run',
        'resume',
        'force',
        'json',
        'quiet',
        'verbose',
        'no-color',
      ),
    ),
    ...tables().flatMap(({ table }) => tableLines(table, true)),
    '',
    ...sidecarsIn().flatMap(({ about }) => (about === undefined ? [] : wrapped(about))),
    'OUT appears only when it is complete.',
    ...wrapped('Exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.'),
    '',
    'Examples',
    ...[...formats(), ...converters()].flatMap(({ examples }) =>
      examples.map((example) => `  scalepoint quantize ${example}`),
    ),
  ]);
}

/** The help of `plan`. @param all true for all options, false for those that a screen shows */
export function planUsage(all: boolean): string {
  // A plan has no errors, so examples with a limit for them are left out.
  const examples = formats().flatMap(
    ({ examples: all }) => all.filter((example) => !example.includes('--min-sqnr')).at(-1) ?? [],
  );
  const json = explained(
    '--json',
    'print JSON: { file, output, format, to, tensors, totals, files, notes, quantizationConfig, peakBytes }',
  );
  return text([
    'scalepoint plan FILE --to TYPE [options]',
    '',
    ...wrapped(
      'Shows the result that scalepoint quantize would make with the same options: the type of every tensor, the reason why one ' +
        'is kept, and the exact size. Reads headers only, except with --target-size or --target-bpw.',
    ),
    '',
    ...(all
      ? [
          ...targetLines(),
          ...json,
          ...flagLines(pick('quiet', 'verbose', 'no-color')),
          ...tables().flatMap(({ table }) => tableLines(table, false)),
        ]
      : usualLines(json)),
    '',
    'Examples',
    ...examples.map((example) => `  scalepoint plan ${example}`),
    `  scalepoint plan ${exampleFile(first())} --to ${first().targets[0]?.name} --json | jq .totals.bytesAfter`,
  ]);
}

// ---------------------------------------------------------------------------------------------------------------- split and merge

const resultLines = () => [
  ...explained('--dry-run', 'write nothing, print a plan'),
  ...flagLines(pick('resume')),
  ...explained('-f, --force', 'replace existing files'),
  ...explained('--json', 'print JSON, as quantize does'),
  ...flagLines(pick('quiet', 'verbose', 'no-color')),
];

export function splitUsage(): string {
  return text([
    'scalepoint split FILE --split-size SIZE [-o OUT]',
    '',
    ...wrapped(
      'Copies a model into several files; no tensor is cut. GGUF is split as by gguf-split, and safetensors get an index as ' +
        'by transformers. scalepoint quantize takes the same options, to convert and split at once.',
    ),
    '',
    ...optionFlags(copyFlags).flatMap(flagLine),
    ...explained(
      '-o, --output OUT',
      'name of the whole model, or a folder; by default that of FILE: model.gguf becomes model-00001-of-00003.gguf and so on',
    ),
    ...resultLines(),
    '',
    'Examples',
    '  scalepoint split model.gguf --split-size 1.9GB',
    '  scalepoint split model.safetensors --shard-size 5GB -o shards/model.safetensors',
  ]);
}

export function mergeUsage(): string {
  return text([
    'scalepoint merge FILE [-o OUT]',
    '',
    ...wrapped(
      'Copies a model in several files into one. FILE is the index of safetensors, the first file of a split GGUF model, or ' +
        'the folder that they are in.',
    ),
    '',
    ...optionFlags(['metadata']).flatMap(flagLine),
    ...explained(
      '-o, --output OUT',
      'the new file, or a folder; by default a file beside FILE, named after the whole model: model.gguf',
    ),
    ...resultLines(),
    '',
    'Examples',
    '  scalepoint merge model-00001-of-00003.gguf',
    '  scalepoint merge model.safetensors.index.json -o model.safetensors',
  ]);
}

// ----------------------------------------------------------------------------------------------------------------- compare, bench

export function compareUsage(): string {
  // A folder is made of a model of another format.
  const files = formats().filter(({ name, result, isFolder }) => name === result && !isFolder);
  const examples = files.map((format) => {
    const to = balanced(format.targets);
    const file = exampleFile(format);
    return `  scalepoint compare ${file} ${resultName(file, { to, format: format.name })}`;
  });
  return text([
    'scalepoint compare A B [options]',
    '',
    ...wrapped(
      'Compares the tensors of model B with those of the same name in model A: SQNR, cosine and the largest error, for each ' +
        'tensor and in all. Codes and blocks are restored first, so a quantized model can be compared with its original.',
    ),
    '',
    ...flagLines(compareFlags, 18),
    '',
    ...wrapped('Exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.'),
    '',
    'Examples',
    ...examples,
    `  scalepoint compare ${exampleFile(first(), 'old')} ${exampleFile(first(), 'new')} --min-sqnr 30 --quiet`,
    '  scalepoint compare model.onnx model_q4.onnx --run --layers',
  ]);
}

export function verifyUsage(): string {
  const sidecar = sidecarFlags();
  return text([
    'scalepoint verify FILE [options]',
    '',
    ...wrapped(
      'Reads all of a model and reports problems: sizes, offsets or types in the header that do not fit; scales that are NaN or ' +
        'infinite; padding bits that are set; codes, scales and zero points that do not match; files that an index names and ' +
        'that are missing; a wrong configuration beside the model. NaN among floats is a note.',
    ),
    '',
    ...sidecar.flatMap(({ name, value }) =>
      explained(`--${name} ${value}`, 'the configuration to check; by default the file beside FILE', 18),
    ),
    ...flagLines(verifyFlags, 18),
    '',
    ...wrapped('Exit code: 0 no problems, 1 problems, 2 wrong usage, 130 interrupted.'),
    '',
    'Examples',
    ...formats()
      .filter(({ name, result }) => name === result)
      .map((format) => `  scalepoint verify ${exampleFile(format)}`),
    "  scalepoint verify . --json | jq '.problems[].text'",
  ]);
}

export function evaluateUsage(): string {
  return text([
    'scalepoint evaluate A [B] --text FILE [options]',
    'scalepoint evaluate A.onnx B.onnx --data FILE [options]',
    '',
    ...wrapped(
      'Judges a language model on a text: perplexity as llama-perplexity defines it, and with B how far the probabilities of the next token ' +
        'are from those of B, such as the model before it was quantized. Takes GGUF files and folders of Llama, Mistral, Mixtral, SmolLM3, ' +
        'Gemma 1 to 3, Phi-2, GPT-NeoX, Falcon, ChatGLM 3 and GLM-4-9B, Command R, Cohere 2, OLMo 1 to 3, EXAONE 4, Hunyuan, Nemotron, ' +
        'Seed-OSS, StarCoder 2 and StableLM, ' +
        'of Qwen 2 and 3, Phi-3, Granite, GLM-4 and Ernie 4.5 with and without experts, of OLMoE and gpt-oss, and ONNX models from input_ids to ' +
        'logits. Only the second half of each chunk counts. With samples of their inputs, compares the outputs of ONNX models of every kind with those of B.',
    ),
    '',
    ...flagLines(evaluateFlags, 18),
    '',
    ...wrapped('Exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.'),
    '',
    'Examples',
    '  scalepoint evaluate model.Q4_K_M.gguf ./model --text wiki.test.txt',
    '  scalepoint evaluate model.gguf --ids tokens.txt --chunk-size 256 --json',
    '  scalepoint evaluate model_q4.onnx model.onnx --data samples.npz',
  ]);
}

export function calibrateUsage(): string {
  return text([
    'scalepoint calibrate MODEL --text FILE [options]',
    'scalepoint calibrate MODEL.onnx --data FILE [options]',
    '',
    ...wrapped(
      'Runs a language model on texts and writes how important each column of its weights is, as an importance matrix of llama.cpp: for ' +
        '--imatrix of scalepoint quantize and of llama-quantize. Takes the models of scalepoint evaluate, and ONNX models with samples of their ' +
        'inputs, which run in onnxruntime-web.',
    ),
    '',
    ...flagLines(calibrateFlags, 18),
    '',
    ...wrapped('Exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.'),
    '',
    'Examples',
    '  scalepoint calibrate ./model --text calibration.txt -o imatrix.gguf',
    '  scalepoint ./model --to Q3_K_M --imatrix imatrix.gguf',
    '  scalepoint calibrate ./model --text calibration.txt --moments',
    '  scalepoint calibrate model.onnx --data samples.npz --moments -o model.stats',
    '  scalepoint ./model --to Q4_K_M --method gptq --moments imatrix.gguf.moments.safetensors',
  ]);
}

export function benchUsage(): string {
  return text([
    'scalepoint bench [options]',
    '',
    ...wrapped(
      "Measures the library on this machine, on one thread: arrays, ggml's blocks and layers, beside a loop that only reads and " +
        'writes memory, and beside plain JavaScript. They run in turns, and the fastest turn of each counts, so the ratios also ' +
        'hold on a busy machine. Takes about a minute; with --quick some seconds.',
    ),
    '',
    ...flagLines(benchFlags, 17),
    '',
    'Examples',
    '  scalepoint bench --quick',
    "  scalepoint bench --only layers --json | jq '.rows[].milliseconds'",
  ]);
}

export function completionsUsage(): string {
  return text([
    'scalepoint completions SHELL',
    '',
    ...wrapped(
      'Prints a script with which the shell completes commands, options and their values by the tab key. SHELL is bash, zsh or fish.',
    ),
    '',
    ...explained('-h, --help', completionsFlags.help.about, 14),
    '',
    'Examples',
    '  scalepoint completions bash > ~/.local/share/bash-completion/completions/scalepoint',
    '  scalepoint completions zsh > ~/.zfunc/_scalepoint',
    '  scalepoint completions fish > ~/.config/fish/completions/scalepoint.fish',
  ]);
}

/** The texts of --help: as wide as the terminal, from 40 to 80 columns. The formats contribute their parts. */
import { type ModelFormat, presetTarget, resultName } from '../model.js';
import {
  converters,
  type FormatInfo,
  type FormatOption,
  formats,
  orList,
  type Preset,
  presets,
  type Target,
} from '../tooling.js';
import {
  benchFlags,
  type CommandFlags,
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
import { copyOptions, formatFlags, optionTables, sidecarFlags, usualTables } from './format-flags.js';
import { terminalColumns } from './text.js';

/** Columns of a line. */
function lineWidth(): number {
  return Math.max(40, Math.min(80, terminalColumns(process.stdout)));
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

/** The lines of flags, without that of --help. */
function flagLines(flags: CommandFlags, at = column): string[] {
  const shown = Object.entries(flags).filter(([name]) => name !== 'help');
  return shown.flatMap(([name, { short, value, about }]) => {
    const long = `--${name}${value === undefined ? '' : ` ${value}`}`;
    return explained(short === undefined ? long : `-${short}, ${long}`, about, at);
  });
}

/** The lines of some flags of `quantize`, in this order. */
const quantizeLines = (...names: (keyof typeof quantizeFlags)[]) =>
  flagLines(Object.fromEntries(names.map((name) => [name, quantizeFlags[name]])));

/** A name for a file of a format. */
const exampleFile = ({ extensions: [extension = ''] }: FormatInfo, stem = 'model') => exampleName(extension, stem);

/** An example for an extension. Files of some formats have one name. */
const exampleName = (extension: string, stem = 'model') => (extension.startsWith('.') ? stem + extension : extension);

/** The usual target: that of the preset `balanced`. */
function balanced(targets: readonly Target[]): string {
  return (targets.find(({ preset }) => preset === 'balanced') ?? targets[0])?.name ?? '';
}

const first = () => formats[0] as FormatInfo;

/** The formats whose results are of the same format. */
const plainFormats = () => formats.filter(({ name, result }) => name === result);

const joinLines = (lines: readonly string[]) => `${lines.join('\n')}\n`;

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

/** The help without a command. */
export function overview(): string {
  const extensions = formats.flatMap(({ extensions: all }) => all);
  const to = first().targets[0]?.name;
  return joinLines([
    'scalepoint: make models smaller',
    '',
    ...(Object.keys(commandAbouts) as CommandName[]).flatMap((name) =>
      explained(`scalepoint ${usageOf[name](to ?? '')}`, commandAbouts[name], 48),
    ),
    '',
    ...wrapped(
      `FILE is a ${orList(extensions)} file; its content decides, not its name. It may be a folder that holds a model, ` +
        'a URL, a model of the Hugging Face hub as hf:OWNER/NAME or hf:OWNER/NAME:Q8_0, or - for standard input. For a model in several files, name the index or, for GGUF, the first file. OUT may be - for ' +
        'standard output.',
    ),
    ...wrapped(
      'scalepoint help COMMAND explains a command, and --help-all all of its options; scalepoint --version prints version and build.',
    ),
  ]);
}

/** The parts of a command's help. */
interface Help {
  /** The ways to call it. */
  readonly usage: readonly string[];
  readonly about: string;
  /** Lines about its flags. */
  readonly flags: readonly string[];
  /** Lines behind them. */
  readonly more?: readonly string[];
  readonly examples: readonly string[];
}

const exitCodes = (done = 'done', failed = 'failed') =>
  wrapped(`Exit code: 0 ${done}, 1 ${failed}, 2 wrong usage, 130 interrupted.`);

/** The targets of the presets. */
function presetText(): string {
  const types = (preset: Preset) =>
    usualTables().map(({ formats: [format] }) => presetTarget((format as FormatInfo).name as ModelFormat, preset));
  return `in place of --to: ${presets.map((preset) => `${preset} (${types(preset).join(', ')})`).join(', ')}`;
}

/** The targets of all formats, and rules. */
function targetLines(): string[] {
  const lists = optionTables().flatMap(({ formats }) => {
    const start = `      ${[...new Set(formats.map(({ files }) => files))].join(', ')}`;
    const all = new Set(formats.flatMap(({ targets }) => targets.map(({ name }) => name)));
    const names = wrapped([...all].join(' '), 26);
    if (start.length > 24) return [start, ...names];
    return [start.padEnd(26) + (names[0] as string).trimStart(), ...names.slice(1)];
  });
  return [
    ...quantizeLines('to'),
    ...lists,
    ...explained('--preset P', presetText()),
    ...quantizeLines('rule'),
    ...explained(
      "--rule 'REGEX=keep'",
      'tensors whose names match are kept; --rule can be repeated, and the first match decides',
    ),
    ...quantizeLines(
      'tensor-type-file',
      'rules',
      'target-size',
      'target-bpw',
      'save-rules',
      'plan',
      'save-plan',
      'lora',
    ),
  ];
}

/** The options of formats. @param isShown chooses some */
function optionLines(isShown: (option: FormatOption) => boolean): string[] {
  return optionTables().flatMap(({ table }) => {
    const flags = Object.values(table.entries).flatMap((option) => (isShown(option) ? option.flags : []));
    return ['', table.title, ...flags.flatMap((flag) => flagLines({ [flag.name]: flag }))];
  });
}

/** The options that are used most. @param more lines of others */
function usualLines(more: readonly string[]): string[] {
  const { to, rule } = quantizeFlags;
  const usual = usualTables().map(({ formats: [format] }) => balanced((format as FormatInfo).targets));
  const all = new Set(
    optionTables().flatMap(({ formats: [format] }) => (format as FormatInfo).targets.map(({ name }) => name)),
  );
  return [
    ...explained('--to TYPE', `${to.about}; ${orList(usual)}, or another of ${all.size}`),
    ...explained('--preset P', presetText()),
    ...explained("--rule 'REGEX=TYPE'", `${rule.about}; keep in place of TYPE keeps them as they are`),
    ...quantizeLines('target-size', 'lora'),
    ...more,
    ...quantizeLines('quiet', 'help-all'),
  ];
}

/** The help of `quantize`. @param all true for all options, false for those that a screen shows */
function quantizeHelp(all: boolean): Help {
  const usage = ['scalepoint [quantize] FILE... --to TYPE [-o OUT] [options]'];
  const start =
    'Makes a model smaller. Prints a table of all tensors: sizes, SQNR, the largest error, or the reason why one was kept. ';
  if (!all) {
    return {
      usage,
      about:
        `${start}FILE may be a folder; of several, each gets a result of its own. Quantized weights need the settings that are written ` +
        'beside OUT.',
      flags: usualLines([
        ...explained('-o, --output OUT', 'file or folder for the result; by default a file beside FILE'),
        ...quantizeLines('dry-run', 'resume', 'force'),
        ...explained('--json', 'print JSON'),
      ]),
      more: exitCodes(),
      examples: formats.flatMap(({ examples }) => examples.slice(0, 1).map((example) => `quantize ${example}`)),
    };
  }
  const makers = [...formats, ...converters()];
  const outputs = optionTables().map(({ formats: [format] }) => {
    const { extensions, result: name, targets } = format as FormatInfo;
    return resultName(`model${extensions[0]}`, { to: balanced(targets), format: name });
  });
  const sidecars = optionTables().flatMap(({ table }) =>
    Object.values(table.entries).flatMap(({ sidecar }) => sidecar ?? []),
  );
  return {
    usage,
    about: start + makers.flatMap(({ about }) => about || []).join(' '),
    flags: [
      ...targetLines(),
      ...explained(
        '-o, --output OUT',
        `file or folder for the result, or - for standard output; by default a file beside FILE with TYPE in its name: ${outputs.join(', ')}`,
      ),
      ...quantizeLines('min-sqnr', 'min-output', ...outputRunFlags, 'workers', 'dry-run', 'resume', 'force', 'json'),
      ...quantizeLines('push', 'push-pr', 'public', 'private', 'measured', 'quiet', 'verbose', 'no-color'),
      ...optionLines(() => true),
    ],
    more: [
      ...sidecars.flatMap(({ about }) => (about === undefined ? [] : wrapped(about))),
      'OUT appears only when it is complete.',
      ...exitCodes(),
    ],
    examples: makers.flatMap(({ examples }) => examples.map((example) => `quantize ${example}`)),
  };
}

/** The help of `plan`. @param all true for all options, false for those that a screen shows */
function planHelp(all: boolean): Help {
  // A plan has no errors, so examples with a limit for them are left out.
  const examples = formats.flatMap(
    ({ examples: some }) => some.filter((example) => !example.includes('--min-sqnr')).at(-1) ?? [],
  );
  const json = explained(
    '--json',
    'print JSON: { file, output, format, to, tensors, totals, files, notes, quantizationConfig, peakBytes }',
  );
  return {
    usage: ['scalepoint plan FILE --to TYPE [options]'],
    about:
      'Shows the result that scalepoint quantize would make with the same options: the type of every tensor, the reason why one ' +
      'is kept, and the exact size. Reads headers only, except with --target-size or --target-bpw.',
    flags: all
      ? [
          ...targetLines(),
          ...json,
          ...quantizeLines('quiet', 'verbose', 'no-color'),
          ...optionLines(({ sidecar }) => sidecar === undefined),
        ]
      : usualLines(json),
    examples: [
      ...examples.map((example) => `plan ${example}`),
      `plan ${exampleFile(first())} --to ${first().targets[0]?.name} --json | jq .totals.bytesAfter`,
    ],
  };
}

/** The lines of flags of copies. @param options of formats that they take @param output about the flag --output */
function copyLines(options: readonly string[], output: string): string[] {
  return [
    ...flagLines(formatFlags((name) => options.includes(name))),
    ...explained('-o, --output OUT', output),
    ...explained('--dry-run', 'write nothing, print a plan'),
    ...quantizeLines('resume'),
    ...explained('-f, --force', 'replace existing files'),
    ...explained('--json', 'print JSON, as quantize does'),
    ...quantizeLines('quiet', 'verbose', 'no-color'),
  ];
}

/** The help of each command. */
const helps: Readonly<Record<CommandName, (all: boolean) => Help>> = {
  quantize: quantizeHelp,
  plan: planHelp,
  inspect: () => ({
    usage: ['scalepoint inspect FILE [--json]'],
    about:
      'Lists the tensors of a model with name, dtype, shape and size, and then its metadata. Long values are cut short. Reads ' +
      'headers only.',
    flags: flagLines(inspectFlags, 19),
    examples: [
      ...formats.flatMap(({ extensions }) => extensions.map((extension) => `inspect ${exampleName(extension)}`)),
      `inspect ${exampleFile(first())} --filter 'attn|mlp' --sort size`,
      `inspect ${exampleFile(first())} --json | jq '.tensors[].name'`,
    ],
  }),
  split: () => ({
    usage: ['scalepoint split FILE --split-size SIZE [-o OUT]'],
    about:
      'Copies a model into several files; no tensor is cut. GGUF is split as by gguf-split, and safetensors get an index as ' +
      'by transformers. scalepoint quantize takes the same options, to convert and split at once.',
    flags: copyLines(
      copyOptions,
      'name of the whole model, or a folder; by default that of FILE: model.gguf becomes model-00001-of-00003.gguf and so on',
    ),
    examples: [
      'split model.gguf --split-size 1.9GB',
      'split model.safetensors --shard-size 5GB -o shards/model.safetensors',
    ],
  }),
  merge: () => ({
    usage: ['scalepoint merge FILE [-o OUT]'],
    about:
      'Copies a model in several files into one. FILE is the index of safetensors, the first file of a split GGUF model, or ' +
      'the folder that they are in.',
    flags: copyLines(
      ['metadata'],
      'the new file, or a folder; by default a file beside FILE, named after the whole model: model.gguf',
    ),
    examples: ['merge model-00001-of-00003.gguf', 'merge model.safetensors.index.json -o model.safetensors'],
  }),
  compare: () => ({
    usage: ['scalepoint compare A B [options]'],
    about:
      'Compares the tensors of model B with those of the same name in model A: SQNR, cosine and the largest error, for each ' +
      'tensor and in all. Codes and blocks are restored first, so a quantized model can be compared with its original.',
    flags: flagLines(compareFlags, 18),
    more: exitCodes(),
    examples: [
      ...plainFormats()
        // A folder is made of a model of another format.
        .filter(({ isFolder }) => !isFolder)
        .map((format) => {
          const file = exampleFile(format);
          return `compare ${file} ${resultName(file, { to: balanced(format.targets), format: format.name })}`;
        }),
      `compare ${exampleFile(first(), 'old')} ${exampleFile(first(), 'new')} --min-sqnr 30 --quiet`,
      'compare model.onnx model_q4.onnx --run --layers',
    ],
  }),
  verify: () => ({
    usage: ['scalepoint verify FILE [options]'],
    about:
      'Reads all of a model and reports problems: sizes, offsets or types in the header that do not fit; scales that are NaN or ' +
      'infinite; padding bits that are set; codes, scales and zero points that do not match; files that an index names and ' +
      'that are missing; a wrong configuration beside the model. NaN among floats is a note.',
    flags: [
      ...Object.entries(sidecarFlags()).flatMap(([name, { value }]) =>
        explained(`--${name} ${value}`, 'the configuration to check; by default the file beside FILE', 18),
      ),
      ...flagLines(verifyFlags, 18),
    ],
    more: exitCodes('no problems', 'problems'),
    examples: [
      ...plainFormats().map((format) => `verify ${exampleFile(format)}`),
      "verify . --json | jq '.problems[].text'",
    ],
  }),
  evaluate: () => ({
    usage: [
      'scalepoint evaluate A [B] --text FILE [options]',
      'scalepoint evaluate A.onnx B.onnx --data FILE [options]',
    ],
    about:
      'Judges a language model on a text: perplexity as llama-perplexity defines it, and with B how far the probabilities of the next token ' +
      'are from those of B, such as the model before it was quantized. Takes GGUF files and folders of Llama, Mistral, Mixtral, SmolLM3, ' +
      'Gemma 1 to 3, Phi-2, GPT-NeoX, Falcon, ChatGLM 3 and GLM-4-9B, Command R, Cohere 2, OLMo 1 to 3, EXAONE 4, Hunyuan, Nemotron, ' +
      'Arcee, Seed-OSS, StarCoder 2 and StableLM, ' +
      'of Qwen 2 and 3, Phi-3, Granite, GLM-4 and Ernie 4.5 with and without experts, of OLMoE and gpt-oss, and ONNX models from input_ids to ' +
      'logits. Only the second half of each chunk counts. With samples of their inputs, compares the outputs of ONNX models of every kind with those of B.',
    flags: flagLines(evaluateFlags, 18),
    more: exitCodes(),
    examples: [
      'evaluate model.Q4_K_M.gguf ./model --text wiki.test.txt',
      'evaluate model.gguf --ids tokens.txt --chunk-size 256 --json',
      'evaluate model_q4.onnx model.onnx --data samples.npz',
    ],
  }),
  calibrate: () => ({
    usage: [
      'scalepoint calibrate MODEL --text FILE [options]',
      'scalepoint calibrate MODEL.onnx --data FILE [options]',
    ],
    about:
      'Runs a language model on texts and writes how important each column of its weights is, as an importance matrix of llama.cpp: for ' +
      '--imatrix of scalepoint quantize and of llama-quantize. Takes the models of scalepoint evaluate, and ONNX models with samples of their ' +
      'inputs, which run in onnxruntime-web.',
    flags: flagLines(calibrateFlags, 18),
    more: exitCodes(),
    examples: [
      'calibrate ./model --text calibration.txt -o imatrix.gguf',
      './model --to Q3_K_M --imatrix imatrix.gguf',
      'calibrate ./model --text calibration.txt --moments',
      'calibrate model.onnx --data samples.npz --moments -o model.stats',
      './model --to Q4_K_M --method gptq --moments imatrix.gguf.moments.safetensors',
    ],
  }),
  bench: () => ({
    usage: ['scalepoint bench [options]'],
    about:
      "Measures the library on this machine, on one thread: arrays, ggml's blocks and layers, beside a loop that only reads and " +
      'writes memory, and beside plain JavaScript. They run in turns, and the fastest turn of each counts, so the ratios also ' +
      'hold on a busy machine. Takes about a minute; with --quick some seconds.',
    flags: flagLines(benchFlags, 17),
    examples: ['bench --quick', "bench --only layers --json | jq '.rows[].milliseconds'"],
  }),
  completions: () => ({
    usage: ['scalepoint completions SHELL'],
    about:
      'Prints a script with which the shell completes commands, options and their values by the tab key. SHELL is bash, zsh or fish.',
    flags: explained('-h, --help', completionsFlags.help.about, 14),
    examples: [
      'completions bash > ~/.local/share/bash-completion/completions/scalepoint',
      'completions zsh > ~/.zfunc/_scalepoint',
      'completions fish > ~/.config/fish/completions/scalepoint.fish',
    ],
  }),
};

/** The help of a command. @param all true for all options, false for those that a screen shows */
export function helpText(command: CommandName, all: boolean): string {
  const { usage, about, flags, more = [], examples } = helps[command](all);
  return joinLines([
    ...usage,
    '',
    ...wrapped(about),
    '',
    ...flags,
    ...(more.length === 0 ? [] : ['', ...more]),
    '',
    'Examples',
    ...examples.map((example) => `  scalepoint ${example}`),
  ]);
}

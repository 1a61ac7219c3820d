/** The texts of --help: as wide as the terminal, from 40 to 80 columns. The formats contribute their parts. */
import { type ModelFormat, presetTarget, resultName } from '../model.js';
import {
  converters,
  type Flag,
  type FormatInfo,
  formats,
  type OptionInfo,
  type OptionTable,
  type Preset,
  presets,
  type Sidecar,
  type Target,
} from '../tooling.js';
import { tables } from './formats.js';
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

/** A list in a sentence: `a, b or c`. */
function listed(words: readonly string[]): string {
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`;
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

/** A name for a file of a format. */
const exampleFile = ({ extensions }: FormatInfo, stem = 'model') => `${stem}${extensions[0]}`;

/** The usual target: that of the preset `balanced`. */
function balanced(targets: readonly Target[]): string {
  return (targets.find(({ preset }) => preset === 'balanced') ?? targets[0])?.name ?? '';
}

const first = () => formats()[0] as FormatInfo;

const commonLines = (at: number) => [
  ...explained('--verbose', 'print time and memory, and the stack of an error', at),
  ...explained('--no-color', 'no color, like NO_COLOR=1 in the environment', at),
];

const text = (lines: readonly string[]) => `${lines.join('\n')}\n`;

// ---------------------------------------------------------------------------------------------------------------------- overview

export function usage(): string {
  const extensions = formats().flatMap(({ extensions: all }) => all);
  const to = first().targets[0]?.name;
  return text([
    'scalepoint: make models smaller',
    '',
    ...explained(`scalepoint [quantize] FILE --to ${to} [-o OUT]`, 'make a smaller copy of a model', 48),
    ...explained('scalepoint inspect FILE', 'list tensors and metadata', 48),
    ...explained(`scalepoint plan FILE --to ${to}`, 'show the plan: types and sizes', 48),
    ...explained('scalepoint split FILE --split-size 1.9GB', 'copy a model into several files', 48),
    ...explained('scalepoint merge FILE [-o OUT]', 'copy several files into one', 48),
    ...explained('scalepoint compare A B', 'measure the error of B against A', 48),
    ...explained('scalepoint verify FILE', 'read all of a model, find damage', 48),
    ...explained('scalepoint bench', 'measure speed on this machine', 48),
    '',
    ...wrapped(
      `FILE is a ${listed(extensions)} file; its content decides, not its name. It may be a folder that holds a model, ` +
        'or - for standard input. For a model in several files, name the index or, for GGUF, the first file. OUT may be - for ' +
        'standard output.',
    ),
    ...wrapped('scalepoint help COMMAND explains a command; scalepoint --version prints version and build.'),
  ]);
}

export function inspectUsage(): string {
  const files = formats().flatMap((format) => format.extensions.map((extension) => `model${extension}`));
  return text([
    'scalepoint inspect FILE [--json]',
    '',
    ...wrapped(
      'Lists the tensors of a model with name, dtype, shape and size, and then its metadata. Long values are cut short. Reads ' +
        'headers only.',
    ),
    '',
    ...explained('--json', 'print JSON: { file, format, bytes, files, tensors, metadata, totals, peakBytes }', 15),
    ...commonLines(15),
    '',
    'Examples',
    ...files.map((file) => `  scalepoint inspect ${file}`),
    `  scalepoint inspect ${exampleFile(first())} --json | jq '.tensors[].name'`,
  ]);
}

// ------------------------------------------------------------------------------------------------------------- plan and quantize

/** The targets of the presets. */
function presetText(): string {
  const types = (preset: Preset) =>
    tables().map(({ formats: [format] }) => presetTarget((format as FormatInfo).name as ModelFormat, preset));
  return `in place of --to: ${presets.map((preset) => `${preset} (${types(preset).join(', ')})`).join(', ')}`;
}

/** The targets of all formats, and rules. */
function targetLines(): string[] {
  const lists = tables().flatMap(({ formats }) => {
    const [format] = formats;
    const start = `      ${formats.map(({ files }) => files).join(', ')}`;
    const names = wrapped((format as FormatInfo).targets.map(({ name }) => name).join(' '), 26);
    return [start.padEnd(26) + (names[0] as string).trimStart(), ...names.slice(1)];
  });
  return [
    ...explained(
      '--to TYPE',
      'type of the weights in the result; several types, separated by commas, make a file each',
    ),
    ...lists,
    ...explained('--preset P', presetText()),
    ...explained("--rule 'REGEX=TYPE'", 'tensors whose names match become TYPE, even if they are kept by default'),
    ...explained(
      "--rule 'REGEX=keep'",
      'tensors whose names match are kept; --rule can be repeated, and the first match decides',
    ),
    ...explained(
      '--tensor-type-file FILE',
      'read rules NAME=TYPE from a file, as llama-quantize does; NAME is in lower case',
    ),
    ...explained('--rules FILE', 'read rules from a file, one a line; they come after those of --rule'),
    ...explained(
      '--target-size SIZE',
      'choose the types with the least error that fit into a file of this size, such as 3.5GB; measures every weight in every type; ' +
        '--to may be left out',
    ),
    ...explained('--target-bpw BITS', 'the same for a number of bits per weight, such as 4.5'),
    ...explained('--save-rules FILE', 'write the chosen types as rules, which --rules reads'),
  ];
}

const optionsIn = (table: OptionTable): readonly OptionInfo[] => Object.values(table.entries);

/** The options of a table. @param sidecars true to include those about files beside the result */
function tableLines(table: OptionTable, sidecars: boolean): string[] {
  const shown = optionsIn(table).filter(({ sidecar }) => sidecars || sidecar === undefined);
  return ['', table.title, ...shown.flatMap(({ flags }) => flags.flatMap(flagLine))];
}

const sidecarsIn = (): Sidecar[] =>
  tables().flatMap(({ table }) => optionsIn(table).flatMap(({ sidecar }) => sidecar ?? []));

export function quantizeUsage(): string {
  const abouts = [...formats(), ...converters()].map(({ about }) => about);
  const outputs = tables().map(({ formats: [format] }) => {
    const { extensions, result: name, targets } = format as FormatInfo;
    return resultName(`model${extensions[0]}`, { to: balanced(targets), format: name });
  });
  return text([
    'scalepoint [quantize] FILE --to TYPE [-o OUT] [options]',
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
    ...explained('--min-sqnr DB', "fail, and write nothing, if a tensor's SQNR is lower"),
    ...explained(
      '--workers N',
      'number of worker threads; 0 does the work in the main thread; by default the number of processors minus one',
    ),
    ...explained('--dry-run', 'write nothing, print a plan as scalepoint plan does'),
    ...explained('--force', 'replace OUT and the files beside it if they exist'),
    ...explained(
      '--json',
      'print JSON: { file, output, config, to, tensors, totals, notes, peakBytes }; for several files also { files, isWhole }',
    ),
    ...explained('--quiet', 'print errors only'),
    ...commonLines(column),
    ...tables().flatMap(({ table }) => tableLines(table, true)),
    '',
    ...sidecarsIn().flatMap(({ about }) => wrapped(about)),
    'OUT appears only when it is complete.',
    ...wrapped('Exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.'),
    '',
    'Examples',
    ...[...formats(), ...converters()].flatMap(({ examples }) =>
      examples.map((example) => `  scalepoint quantize ${example}`),
    ),
  ]);
}

export function planUsage(): string {
  // A plan has no errors, so examples with a limit for them are left out.
  const examples = formats().flatMap(
    ({ examples: all }) => all.filter((example) => !example.includes('--min-sqnr')).at(-1) ?? [],
  );
  return text([
    'scalepoint plan FILE --to TYPE [options]',
    '',
    ...wrapped(
      'Shows the result that scalepoint quantize would make with the same options: the type of every tensor, the reason why one ' +
        'is kept, and the exact size. Reads headers only, except with --target-size or --target-bpw.',
    ),
    '',
    ...targetLines(),
    ...explained(
      '--json',
      'print JSON: { file, output, format, to, tensors, totals, files, notes, quantizationConfig, peakBytes }',
    ),
    ...explained('--quiet', 'print errors only'),
    ...commonLines(column),
    ...tables().flatMap(({ table }) => tableLines(table, false)),
    '',
    'Examples',
    ...examples.map((example) => `  scalepoint plan ${example}`),
    `  scalepoint plan ${exampleFile(first())} --to ${first().targets[0]?.name} --json | jq .totals.bytesAfter`,
  ]);
}

// ---------------------------------------------------------------------------------------------------------------- split and merge

/** Options that copies have, by their names; each once. */
function copyFlags(names: readonly string[]): string[] {
  const flags = tables().flatMap(({ table }) => names.flatMap((name) => table.entries[name]?.flags ?? []));
  return [...new Map(flags.map((flag) => [flag.name, flag])).values()].flatMap(flagLine);
}

const resultLines = () => [
  ...explained('--dry-run', 'write nothing, print a plan'),
  ...explained('--force', 'replace existing files'),
  ...explained('--json', 'print JSON, as quantize does'),
  ...explained('--quiet', 'print errors only'),
  ...commonLines(column),
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
    ...copyFlags(['shardSize', 'splitTensors', 'part', 'metadata']),
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
    ...copyFlags(['metadata']),
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
  const files = formats().filter(({ name, result }) => name === result);
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
    ...explained('--sort sqnr', 'list the worst first; by default in the order of A', 18),
    ...explained(
      '--min-sqnr DB',
      'fail if the SQNR of a tensor is lower, if only one model has the tensor, if the shapes differ, or if one holds NaN where the other does not',
      18,
    ),
    ...explained(
      '--workers N',
      'number of worker threads; 0 does the work in the main thread; by default the number of processors minus one',
      18,
    ),
    ...explained(
      '--run',
      'ONNX: also run both on the same inputs, random by default, and compare the outputs; needs the package onnxruntime-web; ' +
        '--min-sqnr then applies to the outputs',
      18,
    ),
    ...explained('--layers', 'with --run, also compare the results of all nodes, to find where the error begins', 18),
    ...explained(
      '--input FILE',
      'inputs for --run: a .npz file with all of them, or NAME=FILE.npy, which can be repeated',
      18,
    ),
    ...explained(
      '--dim NAME=N',
      'size of a dimension that is not fixed, by its name or as INPUT.AXIS; can be repeated',
      18,
    ),
    ...explained('--seed N', 'seed of random inputs', 18),
    ...explained(
      '--json',
      'print JSON: { a, b, tensors, total, skipped, onlyInA, onlyInB, peakBytes }; with --run also { outputs, skippedOutputs, layers }',
      18,
    ),
    ...explained('--quiet', 'print errors only', 18),
    ...commonLines(18),
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
    ...explained(
      '--json',
      'print JSON: { file, config, format, bytes, files, tensors, problems, notes, peakBytes }',
      18,
    ),
    ...explained('--quiet', 'print errors only', 18),
    ...commonLines(18),
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

/** Flags about files beside models. */
function sidecarFlags(): Flag[] {
  const all = tables().flatMap(({ table }) => optionsIn(table).filter(({ sidecar }) => sidecar !== undefined));
  return all.flatMap(({ flags }) => flags);
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
    ...explained('--quick', 'less data, fewer samples', 17),
    ...explained('--only PART', 'measure arrays, blocks or layers only', 17),
    ...explained(
      '--size N',
      'number of floats in arrays and blocks, a multiple of 256 (default 2^24; with --quick 2^20)',
      17,
    ),
    ...explained('--width N', 'inputs and outputs of the layers (default 4096; with --quick 1024)', 17),
    ...explained('--json', 'print JSON: { version, tier, rows, engine, processor }', 17),
    ...commonLines(17),
    '',
    'Examples',
    '  scalepoint bench --quick',
    "  scalepoint bench --only layers --json | jq '.rows[].milliseconds'",
  ]);
}

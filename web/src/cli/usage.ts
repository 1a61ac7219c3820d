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
  ...explained('--verbose', 'tell time and memory; with an error, where it arose', at),
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
    ...explained(`scalepoint [quantize] FILE --to ${to} [-o OUT]`, 'the same with smaller weights', 48),
    ...explained('scalepoint inspect FILE', 'what is in a model file', 48),
    ...explained(`scalepoint plan FILE --to ${to}`, 'what quantizing would make of it', 48),
    ...explained('scalepoint split FILE --split-size 1.9GB', 'the same in several files', 48),
    ...explained('scalepoint merge FILE [-o OUT]', 'and in one again', 48),
    ...explained('scalepoint compare A B', 'how far B is from A', 48),
    ...explained('scalepoint verify FILE', 'whether it is whole and sound', 48),
    ...explained('scalepoint bench', 'how fast this is on this machine', 48),
    '',
    ...wrapped(
      `FILE is a ${listed(extensions)} file; its content decides, not its name. It may be a folder that holds a model, ` +
        'or - for standard input. Of a model in several files it is the index or, for GGUF, the first file. OUT may be - for ' +
        'standard output.',
    ),
    ...wrapped('scalepoint help COMMAND tells more; scalepoint --version names the build.'),
  ]);
}

export function inspectUsage(): string {
  const files = formats().flatMap((format) => format.extensions.map((extension) => `model${extension}`));
  return text([
    'scalepoint inspect FILE [--json]',
    '',
    ...wrapped(
      'Lists the tensors of a model: name, dtype, shape, size; then its metadata, long values cut short; and what else its ' +
        'format tells. Reads headers only.',
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
    ...explained('--to TYPE', 'what weights become; several with commas between them make a file each'),
    ...lists,
    ...explained('--preset P', presetText()),
    ...explained("--rule 'REGEX=TYPE'", 'tensors whose name matches become TYPE, also those that are kept by default'),
    ...explained(
      "--rule 'REGEX=keep'",
      'tensors whose name matches are kept; rules can be repeated, the first one that matches decides',
    ),
    ...explained(
      '--tensor-type-file FILE',
      'rules NAME=TYPE from a file, as llama-quantize takes them; NAME is in lower case',
    ),
    ...explained('--rules FILE', 'rules from a file, one in each line; they come after those of --rule'),
    ...explained(
      '--target-size SIZE',
      'types for the weights that lose least in a file of this size, such as 3.5GB; every weight is measured in every type, and TYPE ' +
        'may be left out',
    ),
    ...explained('--target-bpw BITS', 'the same for so many bits per weight, such as 4.5'),
    ...explained(
      '--save-rules FILE',
      'write the types that were chosen as rules, to be edited and given back with --rules',
    ),
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
      'Makes a model smaller. A table tells what became of every tensor: sizes, SQNR, the largest error, or why it was kept. ' +
        abouts.join(' '),
    ),
    '',
    ...targetLines(),
    ...explained(
      '-o, --output OUT',
      `where the result goes, - for standard output, or a folder; without it beside FILE, with TYPE in its name: ${outputs.join(', ')}`,
    ),
    ...explained('--min-sqnr DB', "fail, and write nothing, if a tensor's SQNR is lower"),
    ...explained(
      '--workers N',
      'threads that share the work, 0 for none; by default one less than there are processors',
    ),
    ...explained('--dry-run', 'only tell what would be done, like scalepoint plan'),
    ...explained('--force', 'replace OUT, and what belongs beside it, if they are there'),
    ...explained(
      '--json',
      'print JSON: { file, output, config, to, tensors, totals, notes, peakBytes }, of several files also { files, isWhole }',
    ),
    ...explained('--quiet', 'print errors only'),
    ...commonLines(column),
    ...tables().flatMap(({ table }) => tableLines(table, true)),
    '',
    ...sidecarsIn().flatMap(({ about }) => wrapped(about)),
    'OUT appears whole or not at all.',
    ...wrapped('Exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.'),
    '',
    'Examples',
    ...[...formats(), ...converters()].flatMap(({ examples }) =>
      examples.map((example) => `  scalepoint quantize ${example}`),
    ),
  ]);
}

export function planUsage(): string {
  const examples = formats().flatMap(({ examples }) => examples.at(-1) ?? []);
  return text([
    'scalepoint plan FILE --to TYPE [options]',
    '',
    ...wrapped(
      'Tells what scalepoint quantize would do with the same options: what becomes of every tensor, why it is kept, and the ' +
        'exact size of the result. Reads headers only.',
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
  ...explained('--dry-run', 'only tell what would be done'),
  ...explained('--force', 'replace files that are there'),
  ...explained('--json', 'print JSON, as quantize does'),
  ...explained('--quiet', 'print errors only'),
  ...commonLines(column),
];

export function splitUsage(): string {
  return text([
    'scalepoint split FILE --split-size SIZE [-o OUT]',
    '',
    ...wrapped(
      'Copies a model into several files; no tensor is cut. GGUF becomes what gguf-split makes of it, safetensors get an ' +
        'index as transformers writes it. The same options are for quantize, which converts and splits at once.',
    ),
    '',
    ...copyFlags(['shardSize', 'splitTensors', 'part', 'metadata']),
    ...explained(
      '-o, --output OUT',
      'what the whole is called, or a folder; without it as FILE: model.gguf becomes model-00001-of-00003.gguf and so on',
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
    ...explained('-o, --output OUT', 'where the file goes; without it beside FILE, called as the whole: model.gguf'),
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
    return `  scalepoint compare ${exampleFile(format)} ${exampleFile(format, `model.${to}`)}`;
  });
  return text([
    'scalepoint compare A B [options]',
    '',
    ...wrapped(
      'Holds the tensors of model B against those of model A, by name: SQNR, cosine, the largest error, for each of them and ' +
        'in all. Codes with scales and blocks count as what they stand for, so a model can be compared with what it was ' +
        'made from.',
    ),
    '',
    ...explained('--sort sqnr', 'the worst first; without it in the order of A', 18),
    ...explained(
      '--min-sqnr DB',
      "fail if a tensor's SQNR is lower, if one of them lacks it or has it in another shape, or holds NaN where the other does not",
      18,
    ),
    ...explained(
      '--workers N',
      'threads that share the work, 0 for none; by default one less than there are processors',
      18,
    ),
    ...explained(
      '--run',
      'ONNX: also run both on the same inputs, random unless given, and compare the outputs; takes the package onnxruntime-web. --min-sqnr ' +
        'is about the outputs then',
      18,
    ),
    ...explained('--layers', 'and what the nodes of both give: where the error begins', 18),
    ...explained('--input FILE', 'inputs: a .npz file with all of them; or NAME=FILE.npy, which can be repeated', 18),
    ...explained(
      '--dim NAME=N',
      'the size of a dimension that is not fixed, by its name or as INPUT.AXIS; can be repeated',
      18,
    ),
    ...explained('--seed N', 'other random inputs', 18),
    ...explained(
      '--json',
      'print JSON: { a, b, tensors, total, skipped, onlyInA, onlyInB, peakBytes }, with --run also { outputs, skippedOutputs, layers }',
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
      'Reads all of a model and checks what can be checked: sizes, offsets and types in the header; that no scale is NaN or ' +
        'infinite, and no bit belongs to no code; that the parts of codes fit each other; the files of an index; and the ' +
        'configuration beside the model. NaN among floats is told as a note.',
    ),
    '',
    ...sidecar.flatMap(({ name, value }) =>
      explained(`--${name} ${value}`, 'the file to compare with; without it the one beside FILE', 18),
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
    "  scalepoint verify . --json | jq '.problems[].message'",
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
      "Measures the library on this machine: arrays, ggml's blocks, layers, on one thread, against the memory limit and plain " +
        'JavaScript. Contestants run in turns and medians are compared, so the ratios hold on a machine that is not idle, ' +
        'too. It takes a minute, --quick some seconds.',
    ),
    '',
    ...explained('--quick', 'less data, fewer samples', 17),
    ...explained('--only PART', 'arrays, blocks or layers alone', 17),
    ...explained('--size N', 'floats of arrays and blocks, a multiple of 256 (2^24; 2^20)', 17),
    ...explained('--width N', 'inputs and outputs of the layers (4096; 1024)', 17),
    ...explained('--json', 'print JSON: { version, tier, rows, engine, processor }', 17),
    ...commonLines(17),
    '',
    'Examples',
    '  scalepoint bench --quick',
    "  scalepoint bench --only layers --json | jq '.rows[].milliseconds'",
  ]);
}

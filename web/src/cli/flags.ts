/** The flags of all commands, in the order of their help. Parsing, help and completions read them from here; formats add their own. */

/** A flag of a command line. */
export interface CommandFlag {
  /** Without a value a flag is a switch. */
  readonly type: 'boolean' | 'string';
  /** One letter, for `-o`. */
  readonly short?: string;
  readonly multiple?: boolean;
  /** Placeholder for its value in the help. FILE and OUT are completed with names of files. */
  readonly value?: string;
  /** The accepted values, if there are few. */
  readonly choices?: readonly string[];
  /** True if the command writes the file that the value names. */
  readonly isWritten?: boolean;
  readonly about: string;
}

const help = { type: 'boolean', short: 'h', about: 'print this help' } as const;
const verbose = { type: 'boolean', about: 'print time and memory, and the stack of an error' } as const;
const noColor = { type: 'boolean', about: 'no color, like NO_COLOR=1 in the environment' } as const;
const quiet = { type: 'boolean', short: 'q', about: 'print errors only' } as const;
const workers = {
  type: 'string',
  value: 'N',
  about: 'number of worker threads; 0 does the work in the main thread; by default the number of processors minus one',
} as const;

/** The flag --json, and the flags that all commands take. */
const common = <const Members extends string>(members: Members) =>
  ({
    json: { type: 'boolean', about: `print JSON: ${members}` },
    verbose,
    'no-color': noColor,
    help,
  }) as const;

export const inspectFlags = {
  sort: {
    type: 'string',
    value: 'BY',
    choices: ['file', 'name', 'size', 'elements', 'dtype'],
    about: 'order of the tensors: file (the default), name, size or elements (the largest first), or dtype',
  },
  filter: { type: 'string', value: 'REGEX', about: 'only the tensors whose names match' },
  ...common('{ file, format, bytes, files, tensors, metadata, totals, peakBytes }'),
} as const;

/** Flags of `quantize` that do not belong to a format. */
export const quantizeFlags = {
  to: {
    type: 'string',
    value: 'TYPE',
    about: 'type of the weights in the result; several types, separated by commas, make a file each',
  },
  preset: { type: 'string', value: 'P', about: 'in place of --to' },
  rule: {
    type: 'string',
    multiple: true,
    value: "'REGEX=TYPE'",
    about: 'tensors whose names match become TYPE, even if they are kept by default',
  },
  'tensor-type-file': {
    type: 'string',
    value: 'FILE',
    about: 'read rules NAME=TYPE from a file, as llama-quantize does; NAME is in lower case',
  },
  rules: {
    type: 'string',
    value: 'FILE',
    about: 'read rules from a file, one a line; they come after those of --rule',
  },
  'target-size': {
    type: 'string',
    value: 'SIZE',
    about:
      'choose the types with the least error that fit into a file of this size, such as 3.5GB; measures every weight in every type; ' +
      '--to may be left out',
  },
  'target-bpw': { type: 'string', value: 'BITS', about: 'the same for a number of bits per weight, such as 4.5' },
  'save-rules': {
    type: 'string',
    value: 'FILE',
    isWritten: true,
    about: 'write the chosen types as rules, which --rules reads',
  },
  plan: { type: 'string', value: 'FILE', about: 'carry out a plan of --save-plan, in place of --to and other options' },
  'save-plan': {
    type: 'string',
    value: 'FILE',
    isWritten: true,
    about: 'write the plan as JSON, which --plan carries out',
  },
  lora: {
    type: 'string',
    multiple: true,
    value: 'FILE[:S]',
    about:
      'safetensors and PyTorch: add an adapter (LoRA) to the weights, S times (default 1), before they are quantized; can be repeated',
  },
  output: { type: 'string', short: 'o', value: 'OUT', about: 'file or folder for the result' },
  'min-sqnr': { type: 'string', value: 'DB', about: "fail, and write nothing, if a tensor's SQNR is lower" },
  'min-output': {
    type: 'string',
    value: 'BOUND',
    about:
      'ONNX: run the result and FILE, and raise types of tensors, the largest gain per byte first, until each output is this close: a cosine ' +
      'such as 0.999, or an SQNR such as 40dB; fail, and write nothing, if that is out of reach; needs the package onnxruntime-web',
  },
  samples: {
    type: 'string',
    multiple: true,
    value: 'FILE',
    about:
      'with --min-output: samples of the inputs, as for calibrate --data: .npz, .npy or JSON lines; random inputs by default; can be repeated',
  },
  dim: {
    type: 'string',
    multiple: true,
    value: 'NAME=N',
    about: 'with --min-output: size of a dimension that is not fixed, by its name or as INPUT.AXIS; can be repeated',
  },
  seed: { type: 'string', value: 'N', about: 'with --min-output: seed of random inputs' },
  backend: {
    type: 'string',
    multiple: true,
    value: 'NAME',
    choices: ['wasm', 'webgpu', 'node'],
    about: 'with --min-output: where outputs must hold (default wasm); as for compare; can be repeated',
  },
  browser: { type: 'string', value: 'PATH', about: 'the browser for --backend webgpu' },
  workers,
  'dry-run': { type: 'boolean', about: 'write nothing, print a plan as scalepoint plan does' },
  resume: {
    type: 'boolean',
    about: 'keep each file of the result as soon as it is whole, and go on after an interrupted run with --resume',
  },
  force: { type: 'boolean', short: 'f', about: 'replace OUT and the files beside it if they exist' },
  quiet,
  'help-all': { type: 'boolean', about: 'explain all options' },
  ...common(
    '{ file, output, config, to, tensors, totals, notes, peakBytes }; for several files also { files, isWhole }; with --min-output also ' +
      '{ repair }',
  ),
} as const;

export const compareFlags = {
  sort: {
    type: 'string',
    value: 'BY',
    choices: ['file', 'sqnr'],
    about: 'sqnr lists the worst first; by default in the order of A',
  },
  'min-sqnr': {
    type: 'string',
    value: 'DB',
    about:
      'fail if the SQNR of a tensor is lower, if only one model has the tensor, if the shapes differ, or if one holds NaN where the other ' +
      'does not',
  },
  workers,
  run: {
    type: 'boolean',
    about:
      'ONNX: also run both on the same inputs, random by default, and compare the outputs; needs the package onnxruntime-web; ' +
      '--min-sqnr then applies to the outputs',
  },
  layers: {
    type: 'boolean',
    about: 'with --run, also compare the results of all nodes, to find where the error begins',
  },
  backend: {
    type: 'string',
    multiple: true,
    value: 'NAME',
    choices: ['wasm', 'webgpu', 'node'],
    about:
      'run both in this place, too, and compare with A on wasm: wasm, webgpu in an installed Chromium, Chrome or Edge without a window, or ' +
      'node, which needs the package onnxruntime-node; can be repeated',
  },
  browser: {
    type: 'string',
    value: 'PATH',
    about: 'the browser for --backend webgpu, in place of the first that is found',
  },
  input: {
    type: 'string',
    multiple: true,
    value: 'FILE',
    about: 'inputs for --run: a .npz file with all of them, or NAME=FILE.npy, which can be repeated',
  },
  dim: {
    type: 'string',
    multiple: true,
    value: 'NAME=N',
    about: 'size of a dimension that is not fixed, by its name or as INPUT.AXIS; can be repeated',
  },
  seed: { type: 'string', value: 'N', about: 'seed of random inputs' },
  quiet,
  ...common(
    '{ a, b, tensors, total, skipped, onlyInA, onlyInB, peakBytes }; with --run also { inputs, guessedSizes, outputs, skippedOutputs, layers, backends }',
  ),
} as const;

/** Flags of `verify`. Those about files beside models belong to formats. */
export const verifyFlags = {
  quiet,
  ...common('{ file, config, format, bytes, files, tensors, problems, notes, peakBytes }'),
} as const;

/** Flags about texts. */
const texts = {
  text: {
    type: 'string',
    multiple: true,
    value: 'FILE',
    about: 'a text in UTF-8; can be repeated; needs the package @huggingface/tokenizers',
  },
  ids: {
    type: 'string',
    value: 'FILE',
    about: 'ids of tokens in place of texts: numbers between spaces, commas or line ends',
  },
  'chunk-size': {
    type: 'string',
    value: 'N',
    about: 'tokens of a chunk (default 512, or fewer if the model was made for fewer)',
  },
  'max-tokens': { type: 'string', value: 'N', about: 'most tokens to use, from the start (default all)' },
  workers,
} as const;

/** Flags of `evaluate`. */
export const evaluateFlags = {
  data: {
    type: 'string',
    multiple: true,
    value: 'FILE',
    about:
      'in place of texts, samples for two ONNX models, to compare the outputs: .npz files, .npy files for a model with one input, or JSON ' +
      'lines; can be repeated',
  },
  dim: {
    type: 'string',
    multiple: true,
    value: 'NAME=N',
    about: 'ONNX: size of a dimension that no sample determines, by its name or as INPUT.AXIS; can be repeated',
  },
  ...texts,
  resume: {
    type: 'string',
    value: 'STATE',
    about:
      'keep the state of the run in this file, and go on from it after an interruption; 4 bytes for each token and element of a hidden state',
  },
  quiet,
  ...common(
    '{ a, b, tokens, counted, chunks, perplexity, peakBytes }; with B also { referencePerplexity, kl, sameTop, logDifference }; with --data { a, b, samples, outputs, skippedOutputs, peakBytes }',
  ),
} as const;

/** Flags of `calibrate`. */
export const calibrateFlags = {
  data: {
    type: 'string',
    multiple: true,
    value: 'FILE',
    about:
      'samples for an ONNX model, in place of texts: .npz files, .npy files for a model with one input, or JSON lines; can be repeated',
  },
  dim: {
    type: 'string',
    multiple: true,
    value: 'NAME=N',
    about: 'ONNX: size of a dimension that no sample determines, by its name or as INPUT.AXIS; can be repeated',
  },
  ...texts,
  output: { type: 'string', short: 'o', value: 'OUT', about: 'the file to write (default imatrix.gguf)' },
  moments: {
    type: 'boolean',
    about:
      'also write OUT.moments.safetensors, the second moments for --method gptq: 8 K² bytes for inputs of K columns, 4 K² with --held-back 0',
  },
  'held-back': {
    type: 'string',
    value: 'SHARE',
    about:
      'with --moments: the share of chunks or samples that is held back to judge codes by, which takes as much room again; 0 to 0.5 (default 0.125)',
  },
  mix: {
    type: 'string',
    value: 'SHARE',
    about:
      'with --moments, not for ONNX: the share of random tokens, which are added to the text; 0 to 0.5 (default 0.25)',
  },
  ranges: {
    type: 'boolean',
    about:
      'ONNX: also write OUT.ranges.safetensors, the ranges of activations, by which int8-static and float16 decide',
  },
  resume: {
    type: 'boolean',
    about:
      'go on behind the last finished layer or sample of an interrupted run; its state is in .OUT.resume beside OUT',
  },
  force: { type: 'boolean', short: 'f', about: 'replace OUT if it exists, and an interrupted run with other data' },
  quiet,
  ...common(
    '{ file, output, tokens, mixedTokens, chunks, weights, size, peakBytes }; with --moments and --ranges also { moments: { path, size }, ranges: { path, size } }; for ONNX also { unreached }',
  ),
} as const;

export const benchFlags = {
  quick: { type: 'boolean', about: 'less data, fewer samples' },
  only: {
    type: 'string',
    value: 'PART',
    choices: ['arrays', 'blocks', 'layers'],
    about: 'measure arrays, blocks or layers only',
  },
  size: {
    type: 'string',
    value: 'N',
    about: 'number of floats in arrays and blocks, a multiple of 256 (default 2^24; with --quick 2^20)',
  },
  width: { type: 'string', value: 'N', about: 'inputs and outputs of the layers (default 4096; with --quick 1024)' },
  ...common('{ version, tier, rows, engine, processor }'),
} as const;

export const completionsFlags = { help } as const;

/** The commands, and what they do in a few words. */
export const commandAbouts = {
  quantize: 'make a smaller copy of a model',
  inspect: 'list tensors and metadata',
  plan: 'show the plan: types and sizes',
  split: 'copy a model into several files',
  merge: 'copy several files into one',
  compare: 'measure the error of B against A',
  verify: 'read all of a model, find damage',
  evaluate: 'judge a model on texts or samples',
  calibrate: 'collect statistics on your data',
  bench: 'measure speed on this machine',
  completions: 'complete commands by the tab key',
} as const;
export type CommandName = keyof typeof commandAbouts;

/** Flags of `quantize` about the runs of --min-output. */
export const outputRunFlags = ['samples', 'dim', 'seed', 'backend', 'browser'] as const;

/** Flags of `quantize` that copies do not take, as they convert nothing. */
export const convertingFlags = [
  'to',
  'preset',
  'rule',
  'tensor-type-file',
  'target-size',
  'target-bpw',
  'lora',
  'rules',
  'save-rules',
  'plan',
  'save-plan',
  'min-sqnr',
  'min-output',
  ...outputRunFlags,
] as const satisfies readonly (keyof typeof quantizeFlags)[];

export const shells = ['bash', 'zsh', 'fish'] as const;

// Each option on the page: a control under More, a place elsewhere, or nothing.
import { type FormatInfo, type FormatOption, flagWords, formats, type OptionWords, show } from '../../src/tooling.js';

/** Flags of the command line by name. */
export type FlagWords = Readonly<Record<string, string | true>>;

/** An option on the page. Without a label it is a checkbox if it is a switch of the command line, and has no control otherwise. */
interface PageOption {
  /** Label of its control. */
  readonly label?: string;
  /** Labels and values of a list, the usual one first. Without a list it is a checkbox. */
  readonly list?: readonly (readonly [label: string, value?: unknown])[];
  /** The value that a checkbox sets. @defaultValue that of the switch of the command line */
  readonly on?: unknown;
  /** Models that it applies to: those that become another format, and perhaps have a vision tower, or those that keep theirs. */
  readonly for?: 'converted' | 'towers' | 'unconverted';
  /** Its place without a control under More, in words. */
  readonly place?: string;
  /** True if the page cannot carry it out: it is about several files, or texts in them. */
  readonly isLeftOut?: true;
}

const zeroPoints = 'Zero points, for weights that lean to one side';

/** The options, apart from switches of the command line whose checkboxes have the text of the help. */
export const pageOptions: Readonly<Record<string, PageOption>> = {
  to: { place: 'type' },
  rules: { place: 'rules under More' },
  targetSize: { place: 'size' },
  targetBitsPerWeight: { place: 'size' },
  granularity: {
    label: 'One scale for each',
    list: [
      ['group of 128, or what fits'],
      ['row', { kind: 'per-channel' }],
      ...[32, 64, 128].map((groupSize) => [`group of ${groupSize}`, { groupSize }] as const),
    ],
  },
  blockSize: {
    label: 'One scale for each',
    list: [['usual block'], ...[16, 32, 64, 128, 256].map((size) => [`block of ${size}`, size] as const)],
  },
  range: {
    label: 'Levels cover',
    list: [
      ['all numbers (min-max)'],
      ['what loses least (slower)', 'mse'],
      ['all but 0.1 % (percentile)', { percentile: 99.9 }],
      ['what keeps most information (entropy)', 'entropy'],
    ],
  },
  scheme: { label: zeroPoints, on: 'asymmetric' },
  zeroPoints: { label: zeroPoints, on: true },
  reduceRange: { label: 'Like older files on the hub: 7-bit signed weights' },
  perTensor: { label: 'One scale for a whole tensor' },
  include: {
    label: 'Also convolutions and the like, for programs that read the file with Scalepoint',
    on: 'all',
  },
  activations: {
    label: 'Round the inputs of layers to 8 bits as well when the model runs (W8A8)',
    on: 'int8-dynamic',
  },
  packed: { label: 'One code in each byte (larger file)', on: false },
  pure: { label: 'Every weight in one type, without the usual mixture' },
  search: { label: 'Search for better scales in the same types and bytes (slower)', on: 'best' },
  keepSplit: { label: "Keep the model's parts" },
  requantize: { label: 'Also quantize what is quantized already', for: 'unconverted' },
  fixAlignment: { label: 'Repair a wrong alignment in the header', for: 'unconverted' },
  profile: { label: "Use onnxruntime's own attention, for transformers.js 4", on: 'fused' },
  kvCache: { label: 'Remember the text in float16 (half the cache)', on: 'float16' },
  nonFinite: { label: 'Write NaN and infinities of tensors that stay floats', on: 'keep' },
  missingBytes: {
    label: 'Convert although the tokenizer has no byte tokens (llama.cpp may crash)',
    on: 'keep',
    for: 'converted',
  },
  mmproj: { label: 'Only the part that reads pictures (for --mmproj of llama.cpp)', for: 'towers' },
  importance: {},
  method: {},
  moments: {},
  damping: {},
  order: {},
  ranges: {},
  dequantize: {},
  pruneLayers: {},
  includeWeights: {},
  excludeWeights: {},
  unseenColumns: {},
  preTokenizer: {},
  externalData: { isLeftOut: true },
  foldOutliers: { isLeftOut: true },
  config: { isLeftOut: true },
  shardSize: { isLeftOut: true },
  splitTensors: { isLeftOut: true },
  part: { isLeftOut: true },
  metadata: { isLeftOut: true },
};

/** True for an option that the page can carry out. */
export const isOffered = (option: string): boolean => pageOptions[option]?.isLeftOut !== true;

/** A control for an option: a checkbox if it has two values, a list otherwise. The first value is the usual one. */
export interface Control {
  readonly option: string;
  readonly label: string;
  readonly values: readonly { readonly label: string; readonly words: FlagWords }[];
}

/** The control of an option. Switches without a label have the text of their help. */
function controlOf(option: string, entry: FormatOption): Control | undefined {
  const { label, list, on, isLeftOut = false } = pageOptions[option] ?? {};
  const [flag] = entry.flags;
  const about = flag?.value === undefined ? flag?.about : undefined;
  const title = label ?? about?.replace(/^./, (letter) => letter.toUpperCase());
  if (title === undefined || isLeftOut) return undefined;
  const choices = list ?? [['no'], ['yes', on ?? flag?.means ?? true]];
  const values = choices.map(([name, value]) => {
    return { label: name ?? '', words: (value === undefined ? {} : flagWords(entry, value)) as FlagWords };
  });
  return { option, label: title, values };
}

/** Matches names of tensors of vision towers. */
const towers = /(^|\.)(visual|vision_tower|vision_model)\./;

/** True for a model with a vision tower beside a language model. */
export function hasTower({ tensors }: { readonly tensors: readonly { readonly name: string }[] }): boolean {
  return tensors.some(({ name }) => towers.test(name));
}

/** The controls for options. @param isConverted true if the model has another format @param tower true if it has a vision tower */
export function controlsFor(
  { options: { entries } }: FormatInfo,
  names: readonly string[],
  isConverted = false,
  tower = false,
): Control[] {
  const applies = { converted: isConverted, towers: isConverted && tower, unconverted: !isConverted };
  return names.flatMap((option) => {
    const { for: when } = pageOptions[option] ?? {};
    const entry = entries[option];
    return entry === undefined || (when !== undefined && !applies[when]) ? [] : (controlOf(option, entry) ?? []);
  });
}

const isSame = (a: FlagWords, b: FlagWords) =>
  Object.keys(a).length === Object.keys(b).length && Object.keys(a).every((name) => a[name] === b[name]);

/** The flags of a control among others, and the rest. */
function split({ values }: Control, words: FlagWords): readonly [own: FlagWords, others: FlagWords] {
  const flags = new Set(values.flatMap((value) => Object.keys(value.words)));
  const part = (isOwn: boolean) =>
    Object.fromEntries(Object.entries(words).filter(([name]) => flags.has(name) === isOwn));
  return [part(true), part(false)];
}

/** Index of the value of a control that the flags state. */
export function valueAt(control: Control, words: FlagWords): number {
  const [own] = split(control, words);
  return Math.max(
    0,
    control.values.findIndex((value) => isSame(value.words, own)),
  );
}

/** The flags with another value of a control. */
export function withValue(control: Control, words: FlagWords, value: number): FlagWords {
  return { ...split(control, words)[1], ...control.values[value]?.words };
}

/** The option of a path such as `granularity.groupSize`: its entry, and its control if it has a label on the page. */
function optionAt(path: string) {
  const [option = path] = /^\w+/.exec(path) ?? [];
  const entry = formats.find(({ options }) => Object.hasOwn(options.entries, option))?.options.entries[option];
  const hasLabel = entry !== undefined && pageOptions[option]?.label !== undefined;
  return { option, entry, control: hasLabel ? controlOf(option, entry) : undefined };
}

function nameOf(path: string): string {
  const { option, control } = optionAt(path);
  return control === undefined ? (pageOptions[option]?.place ?? path) : `“${control.label}” under More`;
}

/** Words of the page: options have the labels of their controls. */
export const pageWords: OptionWords = {
  option: nameOf,
  withValues(path, values) {
    if (path === 'rules[].keep') return '“keep” in the list of tensors';
    if (path === 'rules[].to') return `${values.map((value) => `“${value}”`).join(' or ')} in the list of tensors`;
    const { option, entry, control } = optionAt(path);
    const member = path.slice(option.length + 1);
    const labels = values.map((value) => {
      const words = entry && flagWords(entry, member === '' ? value : { [member]: value });
      const known = control?.values.slice(1).find((one) => isSame(one.words, words as FlagWords));
      return known?.label ?? (typeof value === 'object' ? show(value) : String(value));
    });
    return labels.every((label) => label === 'yes') ? nameOf(path) : `${nameOf(path)}: ${labels.join(' or ')}`;
  },
  value: String,
};

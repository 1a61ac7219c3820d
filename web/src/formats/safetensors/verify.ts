/** Compares the tensors of a safetensors model with each other, with its config.json and with its index. */
import type { CompressedForm } from '../../codecs/compressed-tensors.js';
import { show } from '../../core/show.js';
import type { Finding, LogicalTensor, OpenModel } from '../format.js';
import { NamePattern } from '../name-pattern.js';
import type { SafetensorsSidecars } from './options.js';

type Fields = Readonly<Record<string, unknown>>;

const isFields = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const listOf = (value: unknown): readonly string[] =>
  Array.isArray(value) ? value.filter((item) => typeof item === 'string') : [];

/** Data of a finding: the tensor concerned, and other data by kind. */
type Data = Readonly<Record<string, unknown>> & { readonly tensor?: string };

const problem = (kind: string, text: string, data: Data = {}): Finding => ({
  severity: 'problem',
  kind,
  ...data,
  text,
});
const note = (kind: string, text: string, data: Data = {}): Finding => ({ severity: 'note', kind, ...data, text });

/** A tensor that holds codes. */
interface Coded extends LogicalTensor {
  readonly form: CompressedForm;
}

const isCoded = (tensor: LogicalTensor): tensor is Coded => tensor.form.codec === 'compressed-tensors';

// ------------------------------------------------------------------------------------------------------------------------ tensors

/** Findings for parts that do not form a tensor: scales of a wrong shape, codes without scales. */
function strayParts(model: OpenModel, tensors: readonly LogicalTensor[]): Finding[] {
  const stored = new Set(model.tensors.map(({ name }) => name));
  // Skip parts of codes.
  const alone = tensors.filter((tensor) => !isCoded(tensor));
  return alone.flatMap(({ name, type }) => {
    const [, base = '', part] = /^(.*)_(packed|scale|zero_point)$/s.exec(name) ?? [];
    if (part === 'packed' && type === 'I32') {
      return [problem('packedAlone', 'the packed codes have no scale and shape that fit them', { tensor: name })];
    }
    const codes = [base, `${base}_packed`].find((one) => stored.has(one));
    return part === undefined || codes === undefined
      ? []
      : [problem('partMisfit', `it does not fit the codes of ${show(codes)}`, { tensor: name, codes })];
  });
}

// -------------------------------------------------------------------------------------------------------------------- config.json

/** The expressions of a configuration. Undefined for those that only Python supports. */
type Patterns = Map<string, NamePattern | undefined>;

/** True if an entry of a configuration matches a module: by its name, or by an expression at its start. */
function means(entry: string, module: string, patterns: Patterns): boolean {
  if (!entry.startsWith('re:')) return entry === module;
  if (!patterns.has(entry)) patterns.set(entry, patternIn(entry));
  return patterns.get(entry)?.test(module) ?? false;
}

function patternIn(entry: string): NamePattern | undefined {
  try {
    return new NamePattern(`^(?:${entry.slice(3)})`, 'ignore');
  } catch {
    return undefined;
  }
}

/** Group of a module. Matches by name override those by class. */
function groupOf(groups: readonly Fields[], module: string, patterns: Patterns): Fields | undefined {
  const classes = ['Linear', 'Embedding'];
  return (
    groups.find(({ targets }) => listOf(targets).some((target) => means(target, module, patterns))) ??
    groups.find(({ targets }) => listOf(targets).some((target) => classes.includes(target)))
  );
}

/** Findings for a group that contradicts a weight. */
function differences({ name, shape, form }: Coded, weights: Fields, format: unknown): Finding[] {
  const { type, bits, symmetric, groupSize, packed } = form;
  const found: Finding[] = [];
  const add = (key: string, stated: unknown, actual: unknown, text: string) =>
    found.push(problem('configDiffers', `config.json says ${text}`, { tensor: name, key, stated, actual }));
  const expect = (key: string, actual: unknown) => {
    const stated = weights[key];
    if (stated !== actual) add(key, stated, actual, `${key} ${show(stated)}, but it is ${show(actual)}`);
  };
  expect('num_bits', bits);
  expect('type', type);
  expect('symmetric', symmetric);
  // A group of a whole row equals one scale per row.
  const whole = groupSize === undefined && weights.group_size === shape[1];
  if (groupSize !== undefined) expect('group_size', groupSize);
  else if (weights.strategy === 'group' && !whole) expect('strategy', 'channel');
  if (typeof format === 'string' && (format === 'pack-quantized') !== packed) {
    const are = packed ? 'packed' : 'not packed';
    add('format', format, are, `format ${show(format)}, but the codes are ${are}`);
  }
  return found;
}

function compareWithConfig(coded: readonly Coded[], config: Fields): Finding[] {
  const { quantization_config: quantization } = config;
  if (!isFields(quantization)) {
    return coded.length === 0
      ? []
      : [problem('noConfig', `config.json has no quantization_config, but ${counted(coded)} codes`)];
  }
  const { quant_method: method, config_groups: groups, ignore, format } = quantization;
  if (method !== 'compressed-tensors') {
    const text = `config.json names the method ${show(method)}, which is not known here and was not checked`;
    return [note('unknownMethod', text, { method })];
  }
  if (coded.length === 0)
    return [problem('noCodes', 'config.json has a quantization_config, but no tensor holds codes')];
  const known = isFields(groups) ? Object.values(groups).filter(isFields) : [];
  const patterns: Patterns = new Map();
  return coded.flatMap((tensor): Finding[] => {
    const { name } = tensor;
    if (!name.endsWith('.weight')) {
      return [
        note('notNameable', 'config.json cannot refer to it: its name does not end in .weight', { tensor: name }),
      ];
    }
    const module = name.slice(0, -'.weight'.length);
    if (listOf(ignore).some((entry) => means(entry, module, patterns))) {
      return [problem('ignored', 'config.json says that it holds no codes (ignore)', { tensor: name })];
    }
    const group = groupOf(known, module, patterns);
    if (group === undefined) return [problem('noGroup', 'no group of config.json names it', { tensor: name })];
    const weights = isFields(group.weights) ? group.weights : {};
    return differences(tensor, weights, group.format ?? format);
  });
}

const counted = (coded: readonly Coded[]) => (coded.length === 1 ? 'a tensor holds' : `${coded.length} tensors hold`);

// -------------------------------------------------------------------------------------------------------------------------- index

/** Compares the size stated by an index. A wrong one is harmless, because loaders do not use it. */
function compareWithIndex(model: OpenModel & { readonly index?: { readonly metadata: Fields } }): Finding[] {
  const stated = model.index?.metadata.total_size;
  const size = model.tensors.reduce((sum, { bytes }) => sum + bytes, 0);
  if (stated === undefined || (typeof stated === 'string' ? Number(stated) : stated) === size) return [];
  const text = `the index says that the tensors have ${show(stated)} bytes, but they have ${size}`;
  return [note('indexDiffers', text, { stated, actual: size })];
}

/** Findings about contradictions in a model. Offsets, sizes and names have been checked on opening. */
export function verifySafetensors(
  model: OpenModel,
  tensors: readonly LogicalTensor[],
  { config }: SafetensorsSidecars,
): Finding[] {
  const coded = tensors.filter(isCoded);
  const found = [...strayParts(model, tensors), ...compareWithIndex(model)];
  if (config !== undefined) return [...found, ...compareWithConfig(coded, config)];
  if (coded.length === 0) return found;
  const text = `${counted(coded)} codes; the config.json that says so was not checked`;
  return [...found, note('configNotGiven', text)];
}

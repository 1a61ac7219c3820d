/** Compares the tensors of a safetensors model with each other, with its config.json and with its index. */
import type { CompressedForm } from '../../codecs/compressed-tensors.js';
import { show } from '../../core/show.js';
import type { Finding, LogicalTensor, OpenModel } from '../format.js';
import type { SafetensorsSidecars } from './options.js';

type Fields = Readonly<Record<string, unknown>>;

const isFields = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const listOf = (value: unknown): readonly string[] =>
  Array.isArray(value) ? value.filter((item) => typeof item === 'string') : [];

const problem = (message: string, tensor?: string): Finding => {
  return { kind: 'problem', message, ...(tensor === undefined ? {} : { tensor }) };
};
const note = (message: string, tensor?: string): Finding => ({ ...problem(message, tensor), kind: 'note' });

/** A tensor that holds codes. */
interface Coded extends LogicalTensor {
  readonly form: CompressedForm;
}

const isCoded = (tensor: LogicalTensor): tensor is Coded => tensor.form.codec === 'compressed-tensors';

// ------------------------------------------------------------------------------------------------------------------------ tensors

/** Parts that were found by their names, but make no whole: a scale of another shape, codes without one. */
function strayParts(model: OpenModel, tensors: readonly LogicalTensor[]): Finding[] {
  const stored = new Set(model.tensors.map(({ name }) => name));
  // What belongs to codes is no tensor by itself.
  const alone = tensors.filter((tensor) => !isCoded(tensor));
  return alone.flatMap(({ name, type }) => {
    const [, base = '', part] = /^(.*)_(packed|scale|zero_point)$/s.exec(name) ?? [];
    if (part === 'packed' && type === 'I32') {
      return [problem('the packed codes have no scale and shape that fit them', name)];
    }
    const codes = [base, `${base}_packed`].find((one) => stored.has(one));
    return part === undefined || codes === undefined
      ? []
      : [problem(`it does not fit the codes of ${show(codes)}`, name)];
  });
}

// -------------------------------------------------------------------------------------------------------------------- config.json

/** Whether a configuration means a module: by its name, or by an expression that its name begins with. */
function means(entry: string, module: string): boolean {
  if (!entry.startsWith('re:')) return entry === module;
  try {
    return new RegExp(`^(?:${entry.slice(3)})`).test(module);
  } catch {
    // Python knows expressions that JavaScript does not. Nothing can be said about them.
    return false;
  }
}

/** The group that a module belongs to. Its name is stronger than its class. */
function groupOf(groups: readonly Fields[], module: string): Fields | undefined {
  const classes = ['Linear', 'Embedding'];
  return (
    groups.find(({ targets }) => listOf(targets).some((target) => means(target, module))) ??
    groups.find(({ targets }) => listOf(targets).some((target) => classes.includes(target)))
  );
}

/** What a group says of its weights that is not so. */
function differences({ shape, form }: Coded, weights: Fields, format: unknown): string[] {
  const { type, bits, symmetric, groupSize, packed } = form;
  const found: string[] = [];
  const expect = (key: string, actual: unknown) => {
    if (weights[key] !== actual) found.push(`${key} ${show(weights[key])}, but it is ${show(actual)}`);
  };
  expect('num_bits', bits);
  expect('type', type);
  expect('symmetric', symmetric);
  // A group that is as long as the row is one scale a row.
  const whole = groupSize === undefined && weights.group_size === shape[1];
  if (groupSize !== undefined) expect('group_size', groupSize);
  else if (weights.strategy === 'group' && !whole) expect('strategy', 'channel');
  if (typeof format === 'string' && (format === 'pack-quantized') !== packed) {
    found.push(`format ${show(format)}, but the codes are ${packed ? 'packed' : 'not packed'}`);
  }
  return found;
}

function compareWithConfig(coded: readonly Coded[], config: Fields): Finding[] {
  const { quantization_config: quantization } = config;
  if (!isFields(quantization)) {
    return coded.length === 0 ? [] : [problem(`config.json has no quantization_config, but ${counted(coded)} codes`)];
  }
  const { quant_method: method, config_groups: groups, ignore, format } = quantization;
  if (method !== 'compressed-tensors') {
    return [note(`config.json: what ${show(method)} means is not known here, and was not checked`)];
  }
  if (coded.length === 0) return [problem('config.json has a quantization_config, but no tensor holds codes')];
  const known = isFields(groups) ? Object.values(groups).filter(isFields) : [];
  return coded.flatMap((tensor): Finding[] => {
    const { name } = tensor;
    if (!name.endsWith('.weight')) return [note('config.json cannot name it, as it is no .weight', name)];
    const module = name.slice(0, -'.weight'.length);
    if (listOf(ignore).some((entry) => means(entry, module))) {
      return [problem('config.json says that it holds no codes (ignore)', name)];
    }
    const group = groupOf(known, module);
    if (group === undefined) return [problem('no group of config.json names it', name)];
    const weights = isFields(group.weights) ? group.weights : {};
    return differences(tensor, weights, group.format ?? format).map((text) =>
      problem(`config.json says ${text}`, name),
    );
  });
}

const counted = (coded: readonly Coded[]) => (coded.length === 1 ? 'a tensor holds' : `${coded.length} tensors hold`);

// -------------------------------------------------------------------------------------------------------------------------- index

/** The size that an index states. Loaders do not need it, so that a wrong one does no harm. */
function compareWithIndex(model: OpenModel & { readonly index?: { readonly metadata: Fields } }): Finding[] {
  const stated = model.index?.metadata.total_size;
  const size = model.tensors.reduce((sum, { bytes }) => sum + bytes, 0);
  if (stated === undefined || Number(stated) === size) return [];
  return [note(`the index says that the tensors have ${show(stated)} bytes, but they have ${size}`)];
}

/** What does not go together in a model. That every offset, size and name is right was checked when it was opened. */
export function verifySafetensors(
  model: OpenModel,
  tensors: readonly LogicalTensor[],
  { config }: SafetensorsSidecars,
): Finding[] {
  const coded = tensors.filter(isCoded);
  const found = [...strayParts(model, tensors), ...compareWithIndex(model)];
  if (config !== undefined) found.push(...compareWithConfig(coded, config));
  else if (coded.length > 0) found.push(note(`${counted(coded)} codes; the config.json that says so was not checked`));
  return found;
}

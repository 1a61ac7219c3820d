/**
 * config.json: the `quantization_config` that describes the codes of a model for loaders.
 * Reference: github.com/vllm-project/compressed-tensors, src/compressed_tensors/quantization/quant_args.py and quant_config.py at
 * ac8e2ba8.
 */
import type { CompressedForm } from '../../codecs/compressed-tensors.js';
import { ScalepointError, typeError } from '../../core/errors.js';
import { ofType } from '../../core/option-problem.js';
import { quoted } from '../../files/bytes.js';
import { whyNoJson } from '../../files/json.js';
import type { PlannedTensor } from '../format.js';
import type { Sidecar } from '../options.js';
import { isKeptFor } from '../reason.js';
import { keeperByName, linearOnly } from './keep.js';

// ------------------------------------------------------------------------------------------------------------ quantization_config

/** Module of a tensor as a configuration names it: X for `X.weight`; undefined for other tensors. */
function moduleOf(name: string): string | undefined {
  return name.endsWith('.weight') ? name.slice(0, -'.weight'.length) : undefined;
}

/** QuantizationArgs of compressed-tensors, with the keys known to all its versions since 0.11, because it refuses unknown ones. */
function quantizationArgs(
  args: Readonly<Record<'num_bits' | 'type' | 'symmetric' | 'strategy' | 'group_size' | 'dynamic', unknown>>,
  observer: 'minmax' | 'mse' | null,
) {
  return { ...args, actorder: null, block_structure: null, observer, observer_kwargs: {} };
}

function weightArgs({ type, bits, symmetric, groupSize, range }: CompressedForm) {
  const strategy = groupSize === undefined ? 'channel' : 'group';
  const args = { num_bits: bits, type, symmetric, strategy, group_size: groupSize ?? null, dynamic: false };
  // Name the closest observer of llm-compressor.
  return quantizationArgs(args, range === 'mse' ? 'mse' : 'minmax');
}

/** int8 per token, when the model runs. */
function activationArgs() {
  const args = { num_bits: 8, type: 'int', symmetric: true, strategy: 'token', group_size: null, dynamic: true };
  return quantizationArgs(args, null);
}

/** Names of weights with codes of one kind. */
interface Group {
  readonly form: CompressedForm;
  readonly members: PlannedTensor['source'][];
}

/** Weights with codes, by bits and group size; and the modules of matrices without codes. */
function groupsOf(tensors: readonly PlannedTensor[]): { groups: readonly Group[]; ignore: string[] } {
  const groups = new Map<string, Group>();
  const byForm = new Map<CompressedForm, Group>();
  const groupOf = (form: CompressedForm) => {
    const key = `${form.bits} ${form.groupSize}`;
    const group = groups.get(key) ?? { form, members: [] };
    groups.set(key, group);
    byForm.set(form, group);
    return group;
  };
  const ignore: string[] = [];
  for (const { source, form } of tensors) {
    if (form.codec === 'compressed-tensors') {
      const group = byForm.get(form as CompressedForm) ?? groupOf(form as CompressedForm);
      group.members.push(source);
    } else if (source.shape.length === 2) {
      const module = moduleOf(source.name);
      if (module !== undefined) ignore.push(module);
    }
  }
  // An output layer that shares the embedding's weight is a module without its own tensor.
  const named = (pattern: RegExp) => tensors.some(({ source }) => pattern.test(source.name));
  if (named(/(^|\.)(embed_tokens|wte|word_embeddings|shared)\.weight$/) && !named(/(^|\.)lm_head\./)) {
    ignore.push('lm_head');
  }
  return { groups: [...groups.values()], ignore };
}

/** Modules with codes other than linear layers: convolutions, and embeddings selected by a rule. */
function specialModules(members: Group['members']): string[] {
  const keptByName = keeperByName([]);
  const notLinear = linearOnly(members);
  return members.flatMap(({ name, shape }) => {
    const special = notLinear(name, shape) !== undefined || isKeptFor('embedding', keptByName(name));
    return special ? (moduleOf(name) ?? []) : [];
  });
}

function formatOf({ packed, type }: CompressedForm, activations: string | undefined): string {
  if (type === 'float') return 'float-quantized';
  if (packed) return 'pack-quantized';
  return activations === undefined ? 'naive-quantized' : 'int-quantized';
}

/** The `quantization_config` for config.json; undefined if nothing has codes. */
export function describe(
  tensors: readonly PlannedTensor[],
  activations: 'int8-dynamic' | undefined,
): Record<string, unknown> | undefined {
  const { groups, ignore } = groupsOf(tensors);
  const [first] = groups;
  if (first === undefined) return undefined;
  const configGroups: Record<string, unknown> = {};
  for (const { form, members } of groups) {
    const modules = () => members.flatMap(({ name }) => moduleOf(name) ?? []);
    const targets = groups.length === 1 ? ['Linear', ...specialModules(members)] : modules();
    if (targets.length === 0) continue;
    configGroups[`group_${Object.keys(configGroups).length}`] = {
      targets,
      weights: weightArgs(form),
      input_activations: activations === undefined ? null : activationArgs(),
      output_activations: null,
      // Loaders read this format; older ones read that of the whole file.
      format: formatOf(form, activations),
    };
  }
  return {
    quant_method: 'compressed-tensors',
    format: formatOf(first.form, activations),
    quantization_status: 'compressed',
    global_compression_ratio: null,
    ignore,
    kv_cache_scheme: null,
    config_groups: configGroups,
    sparsity_config: {},
    transform_config: {},
    // First version with every key above.
    version: '0.11.0',
  };
}

// ----------------------------------------------------------------------------------------------------------------------- the file

/** @throws TypeError if `config` is not an object */
export function checkConfig(config: unknown): void {
  if (typeof config === 'object' && config !== null && !Array.isArray(config)) return;
  throw typeError('config', ofType('object of a config.json'), config);
}

/**
 * A model's config.json with the `quantization_config` as its last key, replacing one of compressed-tensors. The argument is not changed.
 * @throws TypeError if `config` is not an object; ScalepointError `BAD_FILE` if it describes a model quantized by another method
 */
export function mergeConfig(
  config: unknown,
  quantizationConfig: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  checkConfig(config);
  const { quantization_config: before, ...rest } = config as Record<string, unknown>;
  const method = (before as { quant_method?: unknown } | null | undefined)?.quant_method;
  if (before !== undefined && before !== null && method !== 'compressed-tensors') {
    const by = typeof method === 'string' ? `by ${quoted(method)}` : 'by a method that it does not name';
    throw new ScalepointError('BAD_FILE', `config: the model is quantized already, ${by}`);
  }
  return { ...rest, quantization_config: quantizationConfig };
}

/** A config.json without the `quantization_config`, or undefined if it has none. */
function withoutEntry(config: unknown): Record<string, unknown> | undefined {
  const { quantization_config: before, ...rest } = config as Record<string, unknown>;
  return before === undefined ? undefined : rest;
}

function print(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

/** A JSON text with other numbers. Skips strings by hand, because a long one would exceed the stack of a regular expression. */
function withNumbers(text: string, change: (number: string) => string): string {
  let result = '';
  for (let from = 0; ; ) {
    const begin = text.indexOf('"', from);
    const between = text.slice(from, begin < 0 ? text.length : begin);
    result += between.replace(/-?\d[\d.eE+-]*/g, change);
    if (begin < 0) return result;
    let end = begin;
    for (let backslashes = 1; backslashes % 2 === 1; ) {
      end = text.indexOf('"', end + 1);
      for (backslashes = 0; text[end - 1 - backslashes] === '\\'; ) backslashes++;
    }
    from = end + 1;
    result += text.slice(begin, from);
  }
}

/**
 * Reads a config.json. Numbers become strings, printed in their original spelling: Python distinguishes 1.0 from 1, and its integers can
 * exceed JavaScript's.
 */
function parse(text: string): ReturnType<Sidecar['parse']> {
  // Prefix of strings that stand for numbers, random so that a file cannot contain it.
  const mark = `number ${crypto.randomUUID()} `;
  let value: unknown;
  try {
    JSON.parse(text);
    value = JSON.parse(withNumbers(text, (number) => `"${mark}${number}"`));
  } catch (cause) {
    throw new ScalepointError('BAD_FILE', `it is not JSON: ${whyNoJson(text) ?? 'nested too deeply'}`, { cause });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ScalepointError('BAD_FILE', 'expected a JSON object');
  }
  const pattern = new RegExp(`"${mark}([^"]*)"`, 'g');
  return {
    value: value as Record<string, unknown>,
    print: (merged) => print(merged).replace(pattern, '$1'),
  };
}

/** config.json beside a safetensors file. */
export const configSidecar: Sidecar = {
  planned: 'quantizationConfig',
  entry: 'quantization_config',
  about:
    'Loaders of codes need a quantization_config. It is written beside OUT: config.json beside model.safetensors, ' +
    'X.config.json beside X.safetensors.',
  merge: mergeConfig,
  without: withoutEntry,
  fits: (types) => types.some((type) => /^([IU](8|16|32)|F4|F[68]_\w+)$/.test(type)),
  // Use config.json, which loaders read, beside model.safetensors, and a distinct name beside other files.
  nameFor(output) {
    return output === 'model.safetensors' ? 'config.json' : `${output.replace(/\.safetensors$/i, '')}.config.json`;
  },
  parse,
  print,
};

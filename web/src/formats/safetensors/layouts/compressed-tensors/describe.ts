/**
 * The `quantization_config` that describes codes in the layout of compressed-tensors for loaders.
 * Reference: github.com/vllm-project/compressed-tensors, src/compressed_tensors/quantization/quant_args.py and quant_config.py at
 * ac8e2ba8.
 */
import type { Form } from '../../../codecs/codec.js';
import type { CompressedForm } from '../../../codecs/compressed-tensors.js';
import type { PlannedTensor } from '../../../format.js';
import { isKeptFor } from '../../../reason.js';
import { keeperByName, linearOnly } from '../../keep.js';

/** Module of a tensor as a configuration names it: X for `X.weight`; undefined for other tensors. */
function moduleOf(name: string): string | undefined {
  return name.endsWith('.weight') ? name.slice(0, -'.weight'.length) : undefined;
}

/** QuantizationArgs of compressed-tensors, with the keys known to all its versions since 0.11, because it refuses unknown ones. */
export function quantizationArgs(
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

/** The part of a configuration that describes codes. */
export interface Scheme {
  /** Codes with equal keys share a group of the configuration. */
  readonly key: string;
  readonly format: string;
  readonly weights: Readonly<Record<string, unknown>>;
}

/** The scheme of a form; undefined for floats. */
type SchemeOf = (form: Form) => Scheme | undefined;

/** Names of weights with codes of one kind. */
interface Group {
  readonly scheme: Scheme;
  readonly members: PlannedTensor['source'][];
}

/** Weights with codes, by bits and group size; and the modules of matrices without codes. */
function groupsOf(
  tensors: readonly PlannedTensor[],
  schemeOf: SchemeOf,
): { groups: readonly Group[]; ignore: string[] } {
  const groups = new Map<string, Group>();
  const byForm = new Map<Form, Group | undefined>();
  const groupOf = (form: Form) => {
    const scheme = schemeOf(form);
    const group = scheme && (groups.get(scheme.key) ?? { scheme, members: [] });
    if (group !== undefined) groups.set(group.scheme.key, group);
    byForm.set(form, group);
    return group;
  };
  const ignore: string[] = [];
  for (const { source, form } of tensors) {
    const group = byForm.has(form) ? byForm.get(form) : groupOf(form);
    if (group !== undefined) group.members.push(source);
    else if (source.shape.length === 2) {
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

/** The scheme of integers and of float8 with a scale for each row. */
export function compressedScheme(activations: 'int8-dynamic' | undefined): SchemeOf {
  return (form) => {
    if (form.codec !== 'compressed-tensors') return undefined;
    const its = form as CompressedForm;
    return { key: `${its.bits} ${its.groupSize}`, format: formatOf(its, activations), weights: weightArgs(its) };
  };
}

/** Settings of a configuration besides those of the weights. */
interface Settings {
  readonly activations?: 'int8-dynamic' | undefined;
  /** First version of compressed-tensors with every key. */
  readonly version: string;
}

/** The `quantization_config` for config.json; undefined if nothing has codes. */
export function describe(
  tensors: readonly PlannedTensor[],
  schemeOf: SchemeOf,
  { activations, version }: Settings,
): Record<string, unknown> | undefined {
  const { groups, ignore } = groupsOf(tensors, schemeOf);
  const [first] = groups;
  if (first === undefined) return undefined;
  const configGroups: Record<string, unknown> = {};
  for (const { scheme, members } of groups) {
    const modules = () => members.flatMap(({ name }) => moduleOf(name) ?? []);
    const targets = groups.length === 1 ? ['Linear', ...specialModules(members)] : modules();
    if (targets.length === 0) continue;
    configGroups[`group_${Object.keys(configGroups).length}`] = {
      targets,
      weights: scheme.weights,
      input_activations: activations === undefined ? null : activationArgs(),
      output_activations: null,
      // Loaders read this format; older ones read that of the whole file.
      format: scheme.format,
    };
  }
  return {
    quant_method: 'compressed-tensors',
    format: first.scheme.format,
    quantization_status: 'compressed',
    global_compression_ratio: null,
    ignore,
    kv_cache_scheme: null,
    config_groups: configGroups,
    sparsity_config: {},
    transform_config: {},
    version,
  };
}

/**
 * The `quantization_config` of codes in the layout of compressed-tensors: written for loaders, read to find codes, and compared with them.
 * Reference: github.com/vllm-project/compressed-tensors, src/compressed_tensors/quantization/quant_args.py and quant_config.py at
 * ac8e2ba8.
 */
import { ScalepointError } from '../../../../core/errors.js';
import { show } from '../../../../core/show.js';
import type { Form } from '../../../codecs/codec.js';
import type { CompressedForm } from '../../../codecs/compressed-tensors.js';
import { quoted } from '../../../files/bytes.js';
import type { Finding, LogicalTensor, PlannedTensor } from '../../../format.js';
import { MatchingWork, NamePattern } from '../../../name-pattern.js';
import { isKeptFor } from '../../../reason.js';
import { keeperByName, linearOnly } from '../../keep.js';
import { type Fields, isFields, moduleOfWeight, noteFound, problemFound } from '../layout.js';

// ------------------------------------------------------------------------------------------------------------------------ writing

/** QuantizationArgs of compressed-tensors, with the keys known to all its versions since 0.11, because it refuses unknown ones. */
export function quantizationArgs(
  args: Readonly<Record<'num_bits' | 'type' | 'symmetric' | 'strategy' | 'group_size' | 'dynamic', unknown>>,
  observer: 'minmax' | 'mse' | null,
) {
  return { ...args, actorder: null, block_structure: null, observer, observer_kwargs: {} };
}

/** int8 per token, when the model runs. */
const activationArgs = quantizationArgs(
  { num_bits: 8, type: 'int', symmetric: true, strategy: 'token', group_size: null, dynamic: true },
  null,
);

/** The part of a configuration that describes codes. */
export interface Scheme {
  /** Codes with equal keys share a group of the configuration. */
  readonly key: string;
  readonly format: string;
  readonly weights: Fields;
}

/** Settings of a configuration besides those of the weights. */
interface Settings {
  readonly activations?: 'int8-dynamic' | undefined;
  /** First version of compressed-tensors with every key. */
  readonly version: string;
}

/** The modules of weights, as a configuration names them. */
const modulesOf = (weights: readonly { readonly name: string }[]): string[] =>
  weights.flatMap(({ name }) => (name.endsWith('.weight') ? [moduleOfWeight(name)] : []));

/** The `quantization_config` for config.json; undefined if nothing has codes. @param schemeOf gives undefined for floats */
export function describe(
  tensors: readonly PlannedTensor[],
  schemeOf: (form: Form, activations: string | undefined) => Scheme | undefined,
  { activations, version }: Settings,
): Record<string, unknown> | undefined {
  // Gather weights by their schemes, and the modules of matrices without codes.
  const groups = new Map<string, { readonly scheme: Scheme; readonly members: LogicalTensor[] }>();
  const schemes = new Map<Form, Scheme | undefined>();
  const plain: LogicalTensor[] = [];
  for (const { source, form } of tensors) {
    if (!schemes.has(form)) schemes.set(form, schemeOf(form, activations));
    const scheme = schemes.get(form);
    if (scheme !== undefined) {
      const group = groups.get(scheme.key) ?? { scheme, members: [] };
      groups.set(scheme.key, group);
      group.members.push(source);
    } else if (source.shape.length === 2) plain.push(source);
  }
  const [first] = groups.values();
  if (first === undefined) return undefined;
  // An output layer that shares the embedding's weight is a module without its own tensor.
  const hasEmbedding = /(^|\.)(embed_tokens|wte|word_embeddings|shared)\.weight$/;
  const isTied =
    tensors.some(({ source }) => hasEmbedding.test(source.name)) &&
    !tensors.some(({ source }) => /(^|\.)lm_head\./.test(source.name));
  const configGroups: Record<string, unknown> = {};
  for (const { scheme, members } of groups.values()) {
    // A single group has all linear layers, and the others by name: convolutions, and embeddings that a rule selects.
    const keptByName = keeperByName([]);
    const notLinear = linearOnly(members);
    const special = members.filter(
      ({ name, shape }) => notLinear(name, shape) !== undefined || isKeptFor('embedding', keptByName(name)),
    );
    const targets = groups.size === 1 ? ['Linear', ...modulesOf(special)] : modulesOf(members);
    if (targets.length === 0) continue;
    configGroups[`group_${Object.keys(configGroups).length}`] = {
      targets,
      weights: scheme.weights,
      input_activations: activations === undefined ? null : activationArgs,
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
    ignore: [...modulesOf(plain), ...(isTied ? ['lm_head'] : [])],
    kv_cache_scheme: null,
    config_groups: configGroups,
    sparsity_config: {},
    transform_config: {},
    version,
  };
}

// ------------------------------------------------------------------------------------------------------------------------ reading

const stringsIn = (value: unknown): readonly string[] =>
  Array.isArray(value) ? value.filter((item) => typeof item === 'string') : [];

/** Most expressions of a configuration: each may be compared with each module. */
const mostExpressions = 1000;

function badExpressions(has: string, cause?: unknown): ScalepointError {
  const message = `config.json: quantization_config has ${has} expressions for modules`;
  return new ScalepointError('BAD_FILE', message, { cause });
}

/** Lists of modules, by their names or by expressions at their start. */
export class ModuleLists {
  /** The first list with each name. */
  readonly #names = new Map<string, number>();
  readonly #patterns = new Map<NamePattern, number>();

  /** @throws ScalepointError `BAD_FILE` for too many expressions */
  constructor(lists: readonly (readonly string[])[]) {
    const work = new MatchingWork();
    const seen = new Set<string>();
    for (const [i, list] of lists.entries()) {
      for (const entry of list) {
        if (seen.has(entry)) continue;
        seen.add(entry);
        if (!entry.startsWith('re:')) {
          this.#names.set(entry, i);
          continue;
        }
        try {
          this.#patterns.set(new NamePattern(`^(?:${entry.slice(3)})`, 'ignore', work), i);
        } catch {
          // Only Python supports this expression.
        }
        if (this.#patterns.size > mostExpressions) throw badExpressions(`more than ${mostExpressions}`);
      }
    }
  }

  /** The first list that has a module; -1 if no list does. */
  find(module: string): number {
    const named = this.#names.get(module) ?? Number.POSITIVE_INFINITY;
    for (const [pattern, i] of this.#patterns) {
      if (i >= named) break;
      try {
        if (pattern.test(module)) return i;
      } catch (cause) {
        throw badExpressions(`too many steps of matching in ${quoted(pattern.source)}, among its`, cause);
      }
    }
    return named === Number.POSITIVE_INFINITY ? -1 : named;
  }
}

/** Gives the group of a module in a `quantization_config`. Matches by name override those by class. */
export function configGroups({ config_groups: all }: Fields): (module: string) => Fields | undefined {
  const groups = isFields(all) ? Object.values(all).filter(isFields) : [];
  const lists = groups.map(({ targets }) => stringsIn(targets));
  const modules = new ModuleLists(lists);
  const usual = groups[lists.findIndex((targets) => targets.includes('Linear') || targets.includes('Embedding'))];
  return (module) => groups[modules.find(module)] ?? usual;
}

/** Findings for weights that contradict the `quantization_config` that describes them. */
export function verifyCompressed(coded: readonly LogicalTensor[], quantization: Fields): Finding[] {
  const groupOf = configGroups(quantization);
  const ignored = new ModuleLists([stringsIn(quantization.ignore)]);
  return coded.flatMap(({ name, shape, form }): Finding[] => {
    const tensor = { tensor: name };
    if (!name.endsWith('.weight'))
      return [noteFound('notNameable', 'config.json cannot refer to it: its name does not end in .weight', tensor)];
    const module = moduleOfWeight(name);
    if (ignored.find(module) >= 0)
      return [problemFound('ignored', 'config.json says that it holds no codes (ignore)', tensor)];
    const group = groupOf(module);
    if (group === undefined) return [problemFound('noGroup', 'no group of config.json names it', tensor)];
    const weights = isFields(group.weights) ? group.weights : {};
    const { type, bits, symmetric, groupSize, packed } = form as CompressedForm;
    // A group of a whole row equals one scale per row.
    const isWholeRow = groupSize === undefined && weights.group_size === shape[1];
    const facts: Fields = {
      num_bits: bits,
      type,
      symmetric,
      ...(groupSize !== undefined && { group_size: groupSize }),
      ...(groupSize === undefined && weights.strategy === 'group' && !isWholeRow && { strategy: 'channel' }),
    };
    const found = Object.entries(facts).flatMap(([key, actual]): Finding[] => {
      const stated = weights[key];
      const text = `config.json says ${key} ${show(stated)}, but it is ${show(actual)}`;
      return stated === actual ? [] : [problemFound('configDiffers', text, { ...tensor, key, stated, actual })];
    });
    const stated = group.format ?? quantization.format;
    if (typeof stated !== 'string' || (stated === 'pack-quantized') === packed) return found;
    const actual = packed ? 'packed' : 'not packed';
    const text = `config.json says format ${show(stated)}, but the codes are ${actual}`;
    return [...found, problemFound('configDiffers', text, { ...tensor, key: 'format', stated, actual })];
  });
}

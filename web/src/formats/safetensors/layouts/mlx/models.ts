/**
 * Models that mlx-lm loads: the names of their tensors there, and modules that have more bits.
 * Reference: github.com/ml-explore/mlx-lm at d78bf58e, mlx_lm/models: `sanitize` and `quant_predicate` of each file.
 */

import { ScalepointError } from '../../../../core/errors.js';
import { elementsOf } from '../../../codecs/elements.js';
import { quoted } from '../../../files/bytes.js';
import { badTensor } from '../../../files/errors.js';
import type { LogicalTensor } from '../../../format.js';
import type { Fields } from '../layout.js';

/** Experts that are stacked. */
interface Experts {
  /** The module of a layer that has them. */
  readonly block: string;
  /** Names of their projections in mlx-lm. */
  readonly projections: Readonly<Record<string, string>>;
}

/** Facts of a model. */
interface Model {
  /** 'tied': it has the weight of the embedding. 'own': it is a weight. 'either': config.json says which. */
  readonly head: 'tied' | 'own' | 'either';
  readonly experts?: Experts;
  /** End of the names of modules with 8 bits in groups of 64. */
  readonly precise?: string;
  /** Names in mlx-lm, if they differ. */
  readonly rename?: (name: string) => string;
  /** Buffers that mlx-lm leaves out. */
  readonly unused?: RegExp;
  /** The embedding in mlx-lm. @defaultValue model.embed_tokens */
  readonly embedding?: string;
}

const either: Model = { head: 'either' };
const tied: Model = { head: 'tied' };
const own: Model = { head: 'own' };

const projections = { gate_proj: 'gate_proj', up_proj: 'up_proj', down_proj: 'down_proj' };

/** By `model_type` of config.json. */
const models: Readonly<Record<string, Model>> = {
  llama: either,
  mistral: either,
  smollm3: either,
  qwen2: either,
  qwen3: either,
  gemma: tied,
  gemma2: tied,
  gemma3_text: either,
  phi: own,
  phi3: either,
  starcoder2: either,
  stablelm: own,
  cohere: tied,
  cohere2: tied,
  olmo2: either,
  olmo3: either,
  granite: either,
  glm: either,
  glm4: own,
  exaone4: either,
  ernie4_5: either,
  hunyuan_v1_dense: tied,
  nemotron: either,
  seed_oss: either,
  ministral3: either,
  lfm2: tied,
  gpt_neox: {
    head: 'own',
    embedding: 'model.embed_in',
    unused: /\.attention\.(masked_)?bias$/,
    rename: (name) => name.replace(/^gpt_neox\.layers\./, 'model.h.').replace(/^(gpt_neox\.)?(?!model\.)/, 'model.'),
  },
  mixtral: {
    head: 'either',
    experts: { block: 'block_sparse_moe', projections: { w1: 'gate_proj', w2: 'down_proj', w3: 'up_proj' } },
  },
  qwen2_moe: { head: 'own', experts: { block: 'mlp', projections } },
  qwen3_moe: { head: 'either', experts: { block: 'mlp', projections }, precise: '.mlp.gate' },
};

function refuse(message: string): never {
  throw new ScalepointError('UNKNOWN_FORMAT', message);
}

/** The weights of all experts as one tensor. */
function stacked(name: string, members: readonly LogicalTensor[]): LogicalTensor {
  const [first] = members;
  if (first === undefined) return badTensor(name, 'expert 0 is missing');
  const form = JSON.stringify(first.form);
  for (let i = 0; i < members.length; i++) {
    const member = members[i];
    if (member === undefined) return badTensor(name, `expert ${i} is missing`);
    if (member.shape.join() === first.shape.join() && JSON.stringify(member.form) === form) continue;
    const [its, that] = [member, first].map(({ type, shape }) => `${type} [${shape.join(', ')}]`);
    badTensor(member.name, `it is ${its}, and ${first.name} is ${that}`);
  }
  const { shape, type } = first;
  if (first.form.codec === 'copy') badTensor(first.name, `experts of the type ${type} cannot be stacked`);
  const own = first.form.codec === 'cast' ? {} : { members };
  return {
    name,
    shape: [members.length, ...shape],
    type,
    form: first.form,
    parts: members.flatMap((member) => member.parts),
    isRenamed: true,
    gathered: { width: elementsOf(shape.slice(1)), ...own },
  };
}

/** Stacks experts, each in the place of the first. */
function withStacks(tensors: readonly LogicalTensor[], { block, projections: names }: Experts): LogicalTensor[] {
  const pattern = new RegExp(`^(.*\\.${block})\\.experts\\.(\\d{1,6})\\.(${Object.keys(names).join('|')})\\.weight$`);
  const stacks = new Map<string, LogicalTensor[]>();
  const order: (LogicalTensor | string)[] = [];
  for (const tensor of tensors) {
    const [, prefix, index, projection] = pattern.exec(tensor.name) ?? [];
    if (projection === undefined) {
      if (tensor.name.includes('.experts.')) badTensor(tensor.name, 'mlx-lm knows no such tensor of an expert');
      order.push(tensor);
      continue;
    }
    const name = `${prefix}.switch_mlp.${names[projection]}.weight`;
    if (!stacks.has(name)) order.push(name);
    const stack = stacks.get(name) ?? [];
    stack[Number(index)] = tensor;
    stacks.set(name, stack);
  }
  return order.map((one) => (typeof one === 'string' ? stacked(one, stacks.get(one) as LogicalTensor[]) : one));
}

/** A model as mlx-lm has it. */
export interface MlxModel {
  readonly tensors: readonly LogicalTensor[];
  /** Names of tensors that are left out. */
  readonly unused: readonly string[];
  /** Keys that config.json needs besides its own. */
  readonly also: Fields;
  /** True for modules that have 8 bits in groups of 64. */
  isPrecise(module: string): boolean;
}

/**
 * Arranges a model as mlx-lm loads it.
 * @throws ScalepointError `UNKNOWN_FORMAT` for a model that is not known, `BAD_FILE` for one that lacks a tensor
 */
export function mlxModel(source: readonly LogicalTensor[], config: Fields | undefined): MlxModel {
  if (config === undefined) {
    return refuse('MLX needs the config.json of the model beside it: give the folder of the model');
  }
  const { model_type: type, tie_word_embeddings: stated } = config;
  const known = typeof type === 'string' && Object.hasOwn(models, type) ? models[type] : undefined;
  if (known === undefined) {
    const list = Object.keys(models).join(', ');
    return refuse(`MLX: models of the type ${quoted(String(type))} are not known here; known are ${list}`);
  }
  const { head, experts, precise, rename = (name) => name, unused, embedding = 'model.embed_tokens' } = known;
  const headName = type === 'gpt_neox' ? 'model.embed_out.weight' : 'lm_head.weight';
  const all = source.map((tensor): LogicalTensor => {
    const name = rename(tensor.name);
    return name === tensor.name ? tensor : { ...tensor, name, isRenamed: true };
  });
  const names = new Set(all.map(({ name }) => name));
  if (!names.has(`${embedding}.weight`))
    badTensor(`${embedding}.weight`, `it is missing; mlx-lm needs it in a ${type} model`);
  // Decide about the output layer.
  const hasHead = names.has(headName);
  const isTied = head === 'tied' || (head === 'either' && (typeof stated === 'boolean' ? stated : !hasHead));
  if (head === 'tied' && stated === false && hasHead) {
    refuse(`MLX: ${type} models with an output layer of their own are not known to mlx-lm`);
  }
  if (!isTied && !hasHead)
    badTensor(headName, 'it is missing, and config.json does not say that the embedding takes its place');
  const isUnused = (name: string) =>
    /(^|\.)rotary_emb\.inv_freq$/.test(name) || unused?.test(name) === true || (isTied && name === headName);
  const used = all.filter(({ name }) => !isUnused(name));
  return {
    tensors: experts === undefined ? used : withStacks(used, experts),
    unused: all.flatMap(({ name }) => (isUnused(name) ? [name] : [])),
    // mlx-lm and transformers have different defaults.
    also: head === 'either' && typeof stated !== 'boolean' ? { tie_word_embeddings: isTied } : {},
    isPrecise: (module) => precise !== undefined && module.endsWith(precise),
  };
}

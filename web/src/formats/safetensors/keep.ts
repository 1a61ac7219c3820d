/**
 * Chooses by name the tensors that are kept by default when weights become integers. Norms, biases, embeddings, the output layer and the
 * router of experts are small and sensitive, and so are the towers for pictures and sound of language models. Scales and zero points belong
 * to weights that are quantized already.
 */

import { type Reason, rankReason, reasons } from '../reason.js';
import { own } from './reasons.js';

/** A name, split at dots and slashes. */
interface NameParts {
  readonly parts: readonly string[];
  readonly last: string;
  /** The innermost module: `linear` in `norm1.linear.weight`, which is a linear layer inside of a norm. */
  readonly owner: string;
  /** True if the owner is a sibling of a list of experts. */
  readonly nextToExperts: boolean;
  /** True in a model that has a token embedding or an output layer outside of towers. */
  readonly ofLanguageModel: boolean;
}

const scaleName = /(^|_)(scales?|scale_inv|absmax|quant_map)$/i;
const zeroPointName = /(^|_)(zero_points?|q?zeros)$/i;

/** Modules for pictures and sound, and those that fit their outputs to a language model, in the names of Hugging Face. */
const towerName =
  /(^|[./])(visual|vision|vision_(tower|model|encoder|embed_tokens|projection)|vit_large_projector|audio_(tower|model|encoder)|image_newline|(multi_modal|mm|vision|audio|modality)_projector|connector)([./]|$)/i;

/** Reasons to keep a tensor. The first one that matches is reported. */
const keptKinds: readonly (readonly [reason: Reason, matches: (name: NameParts) => boolean])[] = [
  [reasons.bias, ({ last, owner }) => /(^|_)bias(_|$)/i.test(last) || /(^|_)bias$/i.test(owner)],
  [own({ kind: 'lmHead' }), ({ parts }) => parts.some((part) => /^lm_head$/i.test(part))],
  [
    reasons.embedding,
    ({ owner, last }) => [owner, last].some((part) => /embed|embd|(^|_)emb$|^w[tp]e$|^shared$|_tokens?$/i.test(part)),
  ],
  [
    reasons.norm,
    ({ owner, last }) => [owner, last].some((part) => /norm(_?\d+)?$|^norm_|^(ln|bn|gn)(\d*|_\w+)$/i.test(part)),
  ],
  // Loaders expect routers in floats. A gate without experts beside it is an ordinary layer.
  [
    reasons.router,
    ({ parts, owner, nextToExperts }) =>
      parts.some((part) => /^router$/i.test(part)) ||
      (nextToExperts && /^(shared_expert_)?gate$/i.test(owner)) ||
      // Hunyuan's router.
      (owner === 'wg' && parts.at(-3) === 'gate'),
  ],
  // DeepSeek's indexer weighs its heads in floats.
  [own({ kind: 'sensitive' }), ({ parts, owner }) => owner === 'weights_proj' && parts.at(-3) === 'indexer'],
  [own({ kind: 'tower' }), ({ parts, ofLanguageModel }) => ofLanguageModel && towerName.test(parts.join('.'))],
  [own({ kind: 'scale' }), ({ last }) => scaleName.test(last)],
  [own({ kind: 'zeroPoint' }), ({ last }) => zeroPointName.test(last)],
];

/** Number of cached ends of names. Models have a few dozen. */
const mostEnds = 1024;

/** Names to check as a whole: those with routers, or with parts that count anywhere in the name. */
const unusual = /lm_head|router|gate[./]|indexer[./]|vision|visual|audio|projector|connector/i;

/** Begin of the last two parts of a name. */
function endOf(name: string): number {
  let separators = 0;
  for (let at = name.length - 1; at >= 0; at--) {
    const unit = name.charCodeAt(at);
    if ((unit === 0x2e || unit === 0x2f) && ++separators === 2) return at + 1;
  }
  return 0;
}

/**
 * Makes a function from names to the reason to keep a tensor by default, or undefined.
 * @param tensors all of the model, because the meaning of some names depends on others
 */
export function keeperByName(tensors: readonly { readonly name: string }[]): (name: string) => Reason | undefined {
  const ofLanguageModel = tensors.some(
    ({ name }) => /(^|[./])(embed_tokens|lm_head)[./]/.test(name) && !towerName.test(name),
  );
  /** The parts of names before `experts`. */
  const expertPrefixes = new Set<string>();
  for (const { name } of tensors) {
    const at = name.search(/(^|[./])experts[./]/i);
    if (at >= 0) expertPrefixes.add(name.slice(0, at));
  }
  const reasonFor = (name: string): Reason | undefined => {
    const parts = name.split(/[./]/);
    const last = parts.at(-1) ?? '';
    const owner = parts.at(-2) ?? '';
    const prefix = name.slice(0, Math.max(0, name.length - last.length - owner.length - 2));
    const nextToExperts = expertPrefixes.has(prefix);
    return keptKinds.find(([, matches]) => matches({ parts, last, owner, nextToExperts, ofLanguageModel }))?.[0];
  };
  const known = new Map<string, { readonly reason: Reason | undefined }>();
  return (name) => {
    // Decide about all others by the last two parts.
    if (unusual.test(name)) return reasonFor(name);
    const end = name.slice(endOf(name));
    let found = known.get(end);
    if (found === undefined) {
      found = { reason: reasonFor(name) };
      if (known.size < mostEnds) known.set(end, found);
    }
    return found.reason;
  };
}

const conv1DReason = own({ kind: 'conv1D' });

/** End of the names of weights in GPT-2's layers. */
const conv1D = /(^|\.)(c_attn|c_proj|c_fc|q_attn)\.weight$/;

/**
 * Makes a function from weights to the reason why loaders of compressed-tensors do not decode them, or undefined. Loaders decode linear
 * layers: the two-dimensional `.weight` of a module. Names reveal one other class: GPT-2's Conv1D, a linear layer that is stored
 * transposed.
 * @param tensors all tensors of the model
 */
export function linearOnly(
  tensors: readonly { readonly name: string; readonly shape: readonly number[] }[],
): (name: string, shape: readonly number[]) => Reason | undefined {
  // c_attn computes queries, keys and values, so its rows are the longer side only if it is transposed.
  const isConv1D = tensors.some(
    ({ name, shape: [rows = 0, columns = 0] }) => columns === 3 * rows && /(^|\.)c_attn\.weight$/.test(name),
  );
  return (name, shape) => {
    if (shape.length !== 2) return rankReason(shape.length);
    if (!name.endsWith('.weight') && name !== 'weight') return reasons.notWeight;
    return isConv1D && conv1D.test(name) ? conv1DReason : undefined;
  };
}

/**
 * Which tensors are kept by default when weights become integers. Names tell: norms, biases, embeddings, the output layer and the router
 * of experts are small and matter much; scales and zero points belong to weights that are quantized already.
 */

import { type Reason, rankReason, reasons } from '../reason.js';
import { own } from './reasons.js';

/** A name in its parts between dots and slashes. */
interface NameParts {
  readonly parts: readonly string[];
  readonly last: string;
  /** The innermost module: `linear` in `norm1.linear.weight`, which is a linear layer inside of a norm. */
  readonly owner: string;
  /** Whether the owner is next to a list of experts. */
  readonly nextToExperts: boolean;
}

const scaleName = /(^|_)(scales?|scale_inv|absmax|quant_map)$/i;
const zeroPointName = /(^|_)(zero_points?|q?zeros)$/i;

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
  // Loaders expect routers in floats. A gate without experts next to it is an ordinary layer.
  [
    reasons.router,
    ({ parts, owner, nextToExperts }) =>
      parts.some((part) => /^router$/i.test(part)) || (nextToExperts && /^(shared_expert_)?gate$/i.test(owner)),
  ],
  [own({ kind: 'scale' }), ({ last }) => scaleName.test(last)],
  [own({ kind: 'zeroPoint' }), ({ last }) => zeroPointName.test(last)],
];

/** Ends of names that are remembered. Models have a few dozen of them. */
const mostEnds = 1024;

/** Names that have to be looked at as a whole: with parts whose place in the name does not matter, or with routers. */
const unusual = /lm_head|router|gate[./]/i;

/** Where the last two parts of a name begin. */
function endOf(name: string): number {
  let separators = 0;
  for (let at = name.length - 1; at >= 0; at--) {
    const unit = name.charCodeAt(at);
    if ((unit === 0x2e || unit === 0x2f) && ++separators === 2) return at + 1;
  }
  return 0;
}

/**
 * Makes a function that returns why a tensor of some name is kept by default, or undefined.
 * @param tensors all of the model, since some names only have a meaning together
 */
export function keeperByName(tensors: readonly { readonly name: string }[]): (name: string) => Reason | undefined {
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
    return keptKinds.find(([, matches]) => matches({ parts, last, owner, nextToExperts }))?.[0];
  };
  const known = new Map<string, { readonly reason: Reason | undefined }>();
  return (name) => {
    // Of all others, the last two parts tell.
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

/** The end of a name that is that of a weight in layers of GPT-2. */
const conv1D = /(^|\.)(c_attn|c_proj|c_fc|q_attn)\.weight$/;

/**
 * Makes a function that returns why a weight is decoded by no loader of compressed-tensors, or undefined. They act on linear layers: on
 * the two-dimensional `.weight` of a module. Names do not tell more, but for one case: GPT-2's Conv1D, a linear layer that is stored
 * transposed, is of another class.
 * @param tensors all tensors of the model
 */
export function linearOnly(
  tensors: readonly { readonly name: string; readonly shape: readonly number[] }[],
): (name: string, shape: readonly number[]) => Reason | undefined {
  // c_attn makes queries, keys and values, so that its rows are the longer side only if it is transposed.
  const isConv1D = tensors.some(
    ({ name, shape: [rows = 0, columns = 0] }) => columns === 3 * rows && /(^|\.)c_attn\.weight$/.test(name),
  );
  return (name, shape) => {
    if (shape.length !== 2) return rankReason(shape.length);
    if (!name.endsWith('.weight') && name !== 'weight') return reasons.notWeight;
    return isConv1D && conv1D.test(name) ? conv1DReason : undefined;
  };
}

/**
 * Which tensors are kept by default when weights become integers. Names tell: norms, biases, embeddings, the output layer and the router
 * of experts are small and matter much; scales and zero points belong to weights that are quantized already.
 */

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
const keptKinds: readonly [reason: string, matches: (name: NameParts) => boolean][] = [
  ['bias', ({ last, owner }) => /(^|_)bias(_|$)/i.test(last) || /(^|_)bias$/i.test(owner)],
  ['lm_head', ({ parts }) => parts.some((part) => /^lm_head$/i.test(part))],
  [
    'embedding',
    ({ owner, last }) => [owner, last].some((part) => /embed|embd|(^|_)emb$|^w[tp]e$|^shared$|_tokens?$/i.test(part)),
  ],
  [
    'norm',
    ({ owner, last }) => [owner, last].some((part) => /norm(_?\d+)?$|^norm_|^(ln|bn|gn)(\d*|_\w+)$/i.test(part)),
  ],
  // Loaders expect routers in floats. A gate without experts next to it is an ordinary layer.
  [
    'router',
    ({ parts, owner, nextToExperts }) =>
      parts.some((part) => /^router$/i.test(part)) || (nextToExperts && /^(shared_expert_)?gate$/i.test(owner)),
  ],
  ['scale', ({ last }) => scaleName.test(last)],
  ['zero point', ({ last }) => zeroPointName.test(last)],
];

/**
 * Makes a function that returns why a tensor of some name is kept by default, or undefined.
 * @param names all names of the model, since some only have a meaning together
 */
export function keeperByName(names: Iterable<string>): (name: string) => string | undefined {
  /** The parts of names before `experts`. */
  const expertPrefixes = new Set<string>();
  for (const name of names) {
    const at = name.search(/(^|[./])experts[./]/i);
    if (at >= 0) expertPrefixes.add(name.slice(0, at));
  }
  return (name) => {
    const parts = name.split(/[./]/);
    const last = parts.at(-1) ?? '';
    const owner = parts.at(-2) ?? '';
    const prefix = name.slice(0, Math.max(0, name.length - last.length - owner.length - 2));
    const nextToExperts = expertPrefixes.has(prefix);
    return keptKinds.find(([, matches]) => matches({ parts, last, owner, nextToExperts }))?.[0];
  };
}

/** Whether a name is that of scales or zero points. */
export function namesParameters(name: string): boolean {
  const last = name.split(/[./]/).at(-1) ?? '';
  return scaleName.test(last) || zeroPointName.test(last);
}

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

/** Names that are remembered without their numbers. Models have a few dozen of them. */
const mostPatterns = 1024;

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
  const reasonFor = (name: string): string | undefined => {
    const parts = name.split(/[./]/);
    const last = parts.at(-1) ?? '';
    const owner = parts.at(-2) ?? '';
    const prefix = name.slice(0, Math.max(0, name.length - last.length - owner.length - 2));
    const nextToExperts = expertPrefixes.has(prefix);
    return keptKinds.find(([, matches]) => matches({ parts, last, owner, nextToExperts }))?.[0];
  };
  // Numbers of layers and experts mean nothing, but for what is next to experts.
  if (expertPrefixes.size > 0) return reasonFor;
  const known = new Map<string, { readonly reason: string | undefined }>();
  return (name) => {
    const pattern = name.replace(/(^|[./])\d+(?=[./]|$)/g, '$1#');
    let found = known.get(pattern);
    if (found === undefined) {
      found = { reason: reasonFor(name) };
      if (known.size < mostPatterns) known.set(pattern, found);
    }
    return found.reason;
  };
}

/**
 * Makes a function that returns why a weight is decoded by no loader of compressed-tensors, or undefined. They act on linear layers: on
 * the two-dimensional `.weight` of a module. Names do not tell more, but for one case: GPT-2's Conv1D, a linear layer that is stored
 * transposed, is of another class.
 * @param tensors all tensors of the model
 */
export function linearOnly(
  tensors: readonly { readonly name: string; readonly shape: readonly number[] }[],
): (name: string, shape: readonly number[]) => string | undefined {
  // c_attn makes queries, keys and values, so that its rows are the longer side only if it is transposed.
  const isConv1D = tensors.some(
    ({ name, shape: [rows = 0, columns = 0] }) => /(^|\.)c_attn\.weight$/.test(name) && columns === 3 * rows,
  );
  return (name, shape) => {
    if (shape.length !== 2) return `${shape.length}-D`;
    if (!/(^|\.)weight$/.test(name)) return 'not a .weight';
    return isConv1D && /(^|\.)(c_attn|c_proj|c_fc|q_attn)\.weight$/.test(name) ? 'Conv1D' : undefined;
  };
}

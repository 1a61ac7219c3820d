/** Weights that become float16. */
import { dtypeReason } from '../../reason.js';
import type { Weight } from '../file/model.js';
import { holdsWeight } from '../graph/beyond-half.js';
import type { Magnitudes } from '../graph/constants.js';
import type { Use } from '../graph/graph.js';
import { isFloat32 } from '../graph/readers.js';
import { type OnnxReason, ownReasons } from '../reasons.js';
import type { Context, Half, Keep } from './decision.js';
import type { HalfNodes } from './half-nodes.js';
import { fewestElements, whyNotWorth } from './sizes.js';

/** Operators with scales of codes as float inputs. */
const scaled: readonly string[] = [
  'DequantizeLinear',
  'QuantizeLinear',
  'MatMulNBits',
  'MatMulBnb4',
  'GatherBlockQuantized',
];

/** The reason to keep scales of codes; undefined if not all readers take a weight for that. */
function whyScales(readers: readonly Use[]): OnnxReason | undefined {
  const [first] = readers;
  const isScale = first !== undefined && readers.every(({ node }) => scaled.includes(node.opType));
  return isScale ? { kind: 'scales', operator: first.node.opType } : undefined;
}

const beyond = (magnitudes: Magnitudes | undefined): OnnxReason => ({
  kind: 'beyondHalf',
  most: magnitudes?.most ?? 0,
});

/** Types with more bytes than float16. */
const wide: readonly string[] = ['F32', 'F64'];

/** First version of ai.onnx whose Cast names types by number. */
export const castOpset = 6;

/** Decides about float16 in front of nodes in float32. */
function behindCast(context: Context, weight: Weight): Half | Keep {
  const { dtype } = weight.source;
  if (!wide.includes(dtype)) return { kind: 'keep', weight, reason: dtypeReason(dtype) as OnnxReason };
  const magnitudes = context.constants.of(weight);
  const reason =
    whyNotWorth(context, weight, ['F32']) ??
    whyScales(context.graphs.readers(weight)) ??
    (holdsWeight(magnitudes) ? undefined : beyond(magnitudes)) ??
    context.opsets.obstacle(weight.graph, castOpset);
  return reason === undefined
    ? { kind: 'half', weight, inHalfGraph: false, isCast: true, halfUses: [] }
    : { kind: 'keep', weight, reason };
}

/** Decides about float16 in a graph of float16. */
function inHalfGraph({ graphs, constants }: Context, weight: Weight, nodes: HalfNodes): Half | Keep {
  const { dtype, bytes } = weight.source;
  const keep = (reason: OnnxReason): Keep => ({ kind: 'keep', weight, reason });
  if (!wide.includes(dtype) || !isFloat32(graphs, weight)) return keep(dtypeReason(dtype) as OnnxReason);
  const value = graphs.valueAt(weight.graph, weight.value);
  if (value === undefined || (value.uses.length === 0 && !value.isOutput)) return keep(ownReasons.notRead);
  const { halves, floats } = nodes.readersOf(value);
  const scales = halves.length === 0 ? whyScales(floats) : undefined;
  if (scales !== undefined) return keep(scales);
  const isCast = floats.length > 0 || value.isOutput;
  const magnitudes = constants.of(weight);
  if (isCast && !holdsWeight(magnitudes))
    return { ...keep(beyond(magnitudes)), ...(halves.length > 0 && { halfUses: halves }) };
  if (!isCast || bytes >= 4 * fewestElements) {
    return { kind: 'half', weight, inHalfGraph: true, isCast, halfUses: isCast ? halves : [] };
  }
  // Keep a small weight, and let nodes in float16 read a Cast of it.
  const operator = floats[0]?.node.opType ?? '';
  if (halves.length === 0) return keep(value.isOutput ? ownReasons.output : { kind: 'readBy', operator });
  const reason: OnnxReason = value.isOutput ? { kind: 'alsoOutput' } : { kind: 'alsoReadBy', operator };
  return { kind: 'keep', weight, reason, halfUses: halves };
}

/** Decides about a weight whose target is float16. */
export function decideHalf(context: Context, weight: Weight): Half | Keep {
  const { graphs, halves } = context;
  // Functions keep their types.
  const isInside = graphs.scopeOf(weight.graph).function !== undefined;
  return halves === undefined || isInside ? behindCast(context, weight) : inHalfGraph(context, weight, halves);
}

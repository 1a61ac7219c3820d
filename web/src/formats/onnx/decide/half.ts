/** Weights that become float16. */
import { dtypeReason } from '../../reason.js';
import type { Weight } from '../file/model.js';
import { holdsWeight } from '../graph/beyond-half.js';
import type { Use } from '../graph/graph.js';
import { isFloat32 } from '../graph/readers.js';
import { type OnnxReason, ownReasons } from '../reasons.js';
import { type Context, type Half, type Keep, keepWeight } from './decision.js';
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

/** First version of ai.onnx whose Cast names types by number. */
export const castOpset = 6;

/** Decides about a weight whose target is float16. */
export function decideHalf(context: Context, weight: Weight): Half | Keep {
  const { graphs, halves: nodes, opsets } = context;
  const { dtype, bytes } = weight.source;
  const isWide = dtype === 'F32' || dtype === 'F64';
  const magnitudes = context.constants.of(weight);
  const beyond = !holdsWeight(magnitudes) && ({ kind: 'beyondHalf', most: magnitudes?.most ?? 0 } as const);
  // In front of nodes in float32, a Cast follows it. Functions keep their types.
  if (nodes === undefined || graphs.scopeOf(weight.graph).function !== undefined) {
    const reason =
      (!isWide && (dtypeReason(dtype) as OnnxReason)) ||
      whyNotWorth(context, weight, ['F32']) ||
      whyScales(graphs.readers(weight)) ||
      beyond ||
      opsets.obstacle(weight.graph, castOpset);
    if (reason) return keepWeight(weight, reason);
    return { kind: 'half', weight, inHalfGraph: false, isCast: true, halfUses: [] };
  }
  // In a graph of float16, keep what is no float32 for all readers.
  const value = graphs.valueAt(weight.graph, weight.value);
  const { halves, floats } = value === undefined ? { halves: [], floats: [] } : nodes.readersOf(value);
  const isOutput = value?.isOutput === true;
  const reason =
    (!(isWide && isFloat32(graphs, weight)) && (dtypeReason(dtype) as OnnxReason)) ||
    (!isOutput && !value?.uses.length && ownReasons.notRead) ||
    (halves.length === 0 && whyScales(floats));
  if (reason) return keepWeight(weight, reason);
  // Keep what float16 does not hold and a small weight, if some read float32, and let nodes in float16 read a Cast of it.
  const isCast = floats.length > 0 || isOutput;
  const isSmall = isCast && bytes < 4 * fewestElements;
  const operator = floats[0]?.node.opType ?? '';
  const whyFloat: OnnxReason | false =
    (isCast && beyond) ||
    (isSmall && isOutput && (halves.length === 0 ? ownReasons.output : { kind: 'alsoOutput' })) ||
    (isSmall && { kind: halves.length === 0 ? 'readBy' : 'alsoReadBy', operator });
  if (whyFloat) return { ...keepWeight(weight, whyFloat), ...(halves.length > 0 && { halfUses: halves }) };
  return { kind: 'half', weight, inHalfGraph: true, isCast, halfUses: isCast ? halves : [] };
}

/** Decisions about weights, as data. The modules of `write` carry them out. */
import type { SearchedRange } from '../../../core/range.js';
import type { DequantizeLinearForm } from '../../codecs/dequantize-linear.js';
import type { MatMulBnb4Form } from '../../codecs/matmul-bnb4.js';
import type { MatMulNBitsForm } from '../../codecs/matmul-nbits.js';
import type { PartsOf } from '../../format.js';
import type { Weight } from '../file/model.js';
import type { OnnxNode } from '../file/proto.js';
import type { Constants } from '../graph/constants.js';
import type { Graphs, ReadingNode, Use } from '../graph/graph.js';
import type { Opsets } from '../graph/opsets.js';
import type { OnnxChoices } from '../options.js';
import type { OnnxReason, RestoredReason } from '../reasons.js';
import type { TargetInfo } from '../targets.js';
import type { HalfNodes } from './half-nodes.js';

/** Context of the decisions about all weights of a model. */
export interface Context {
  readonly graphs: Graphs;
  readonly opsets: Opsets;
  readonly partsOf: PartsOf;
  readonly choices: OnnxChoices;
  /** The search for ranges of codes; undefined for those of the smallest and largest element. */
  readonly range: SearchedRange | undefined;
  /** Nodes in float16, if the graph becomes float16. */
  readonly halves: HalfNodes | undefined;
  /** Magnitudes of constants, if a target is float16. */
  readonly constants: Constants;
  /** True if codes of q8 are symmetric in this model. */
  readonly hasSymmetricQ8: boolean;
  /** True for models that can be trained. */
  readonly trains: boolean;
  /** Weights already decided. */
  readonly decided: ReadonlySet<Weight>;
  /** Target of a weight by the rules; undefined if they keep it. */
  targetOf(weight: Weight): TargetInfo | undefined;
}

/** A DequantizeLinear. */
export interface Dequantizer {
  readonly kind: 'dequantize';
  readonly domain: string;
  /** Version of ai.onnx that it requires, if it belongs to that domain. */
  readonly opset: number;
}

/** Keeps a weight. */
export interface Keep {
  readonly kind: 'keep';
  readonly weight: Weight;
  readonly reason: OnnxReason;
  /** Inputs of nodes in float16, which read a Cast of it. */
  readonly halfUses?: readonly Use[];
}

/** The decision to keep a weight. */
export function keepWeight(weight: Weight, reason: OnnxReason): Keep {
  return { kind: 'keep', weight, reason };
}

/** Stores float16, with a Cast for readers of float32. */
export interface Half {
  readonly kind: 'half';
  readonly weight: Weight;
  /** True if the graph computes in float16. */
  readonly inHalfGraph: boolean;
  /** True if some nodes read float32, from a Cast. */
  readonly isCast: boolean;
  /** With a Cast: inputs of nodes in float16. */
  readonly halfUses: readonly Use[];
}

/** Stores blocks, and replaces each reader by a node that computes with them. */
export interface Blocks {
  readonly kind: 'blocks';
  readonly weight: Weight;
  readonly form: MatMulNBitsForm | MatMulBnb4Form;
  /** The matrix [k, n] that products multiply by. Blocks lie along k. */
  readonly k: number;
  readonly n: number;
  readonly products: readonly ReadingNode[];
  readonly lookups: readonly ReadingNode[];
  /** Nodes before the readers that become unused. */
  readonly unneeded: readonly OnnxNode[];
  /** Readers that compute in float16. */
  readonly halves: ReadonlySet<OnnxNode>;
}

/** Stores codes that are restored to floats before use. */
export interface Restored {
  readonly kind: 'restored';
  readonly weight: Weight;
  readonly form: DequantizeLinearForm;
  /** Restores the floats: a DequantizeLinear; Cast and Mul; or, for a table, nodes behind the Gathers that look up its codes. */
  readonly by:
    | Dequantizer
    | { readonly kind: 'cast' }
    | { readonly kind: 'gather'; readonly readers: readonly ReadingNode[] };
  /** Reason, for a target of integers. */
  readonly reason?: RestoredReason;
}

/** A reader that takes codes of integers. */
export interface IntegerReader {
  readonly reader: ReadingNode;
  readonly operation: 'product' | 'convolution' | 'lookup' | 'attention';
}

/** Stores codes that are multiplied as integers. */
export interface Integers {
  readonly kind: 'integers';
  readonly weight: Weight;
  readonly form: DequantizeLinearForm;
  readonly readers: readonly IntegerReader[];
  /** True if codes of the target are symmetric. Such targets share no quantized activations with others. */
  readonly isSymmetric: boolean;
  readonly unneeded: readonly OnnxNode[];
  /** Restores floats for other readers, if any. */
  readonly dequantizer: Dequantizer | undefined;
}

/** Stores codes of all weights of one node, which then computes with integers. */
export interface Together {
  readonly kind: 'together';
  readonly operator: 'LSTM' | 'EmbedLayerNormalization';
  readonly reader: ReadingNode;
  /** Weights by input of the node. */
  readonly weights: ReadonlyMap<number, { readonly weight: Weight; readonly form: DequantizeLinearForm }>;
}

/** Stores both weights of a MoE as blocks, whose node becomes a QMoE. */
export interface Experts {
  readonly kind: 'experts';
  readonly operator: 'MoE';
  readonly reader: ReadingNode;
  /** Weights [experts, rows, columns] by input of the node. Blocks lie along the columns. */
  readonly weights: ReadonlyMap<number, Weight>;
  readonly form: MatMulNBitsForm;
}

/** Decision about one or several weights. */
export type WeightDecision = Keep | Half | Blocks | Restored | Integers | Together | Experts;

/** Weights of a decision. */
export function weightsOfDecision(decision: WeightDecision): readonly Weight[] {
  if (decision.kind === 'experts') return [...decision.weights.values()];
  if (decision.kind !== 'together') return [decision.weight];
  return [...decision.weights.values()].map(({ weight }) => weight);
}

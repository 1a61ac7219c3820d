/** What becomes of weights. Decisions are data: the modules of `write` carry them out. */
import type { DequantizeLinearForm } from '../../../codecs/dequantize-linear.js';
import type { MatMulBnb4Form } from '../../../codecs/matmul-bnb4.js';
import type { MatMulNBitsForm } from '../../../codecs/matmul-nbits.js';
import type { PartsOf } from '../../format.js';
import type { Weight } from '../file/model.js';
import type { OnnxNode } from '../file/proto.js';
import type { Graphs, Reader, Use } from '../graph/graph.js';
import type { Opsets } from '../graph/opsets.js';
import type { OnnxChoices } from '../options.js';
import type { OnnxReason, RestoredReason } from '../reasons.js';
import type { TargetInfo } from '../targets.js';
import type { HalfNodes } from './half-nodes.js';

/** What is the same for all weights of a model. */
export interface Context {
  readonly graphs: Graphs;
  readonly opsets: Opsets;
  readonly partsOf: PartsOf;
  readonly choices: OnnxChoices;
  /** What the graph becomes if it computes with float16. */
  readonly halves: HalfNodes | undefined;
  /** Whether the codes of q8 have a sign in this model. */
  readonly isSignedQ8: boolean;
  /** Whether the model can be trained. */
  readonly trains: boolean;
  /** Weights whose decision is made. */
  readonly decided: ReadonlySet<Weight>;
  /** What a weight is to become by the rules; undefined if it is to be kept. */
  targetOf(weight: Weight): TargetInfo | undefined;
}

/** The DequantizeLinear that makes floats of codes. */
export interface Dequantizer {
  readonly kind: 'dequantize';
  readonly domain: string;
  /** The version of ai.onnx that it takes, if it is of that domain. */
  readonly opset: number;
}

/** It stays as it is. */
export interface Keep {
  readonly kind: 'keep';
  readonly weight: Weight;
  readonly reason: OnnxReason;
  /** Inputs of nodes that compute with float16, which read a Cast of it. */
  readonly halfUses?: readonly Use[];
}

/** float16, and a Cast for whatever reads float32. */
export interface Half {
  readonly kind: 'half';
  readonly weight: Weight;
  /** Whether the graph computes with float16. */
  readonly inHalfGraph: boolean;
  /** Whether some nodes read float32, which a Cast gives. */
  readonly isCast: boolean;
  /** Beside a Cast: inputs of nodes that compute with float16. */
  readonly halfUses: readonly Use[];
}

/** Blocks, and a node that computes with them in the place of each reader. */
export interface Blocks {
  readonly kind: 'blocks';
  readonly weight: Weight;
  readonly form: MatMulNBitsForm | MatMulBnb4Form;
  /** The matrix [k, n] that products multiply by. Blocks lie along k. */
  readonly k: number;
  readonly n: number;
  readonly products: readonly Reader[];
  readonly lookups: readonly Reader[];
  /** Nodes before the readers that are not needed any more. */
  readonly unneeded: readonly OnnxNode[];
  /** Readers that compute with float16. */
  readonly halves: ReadonlySet<OnnxNode>;
}

/** Codes that become floats again before they are used. */
export interface Restored {
  readonly kind: 'restored';
  readonly weight: Weight;
  readonly form: DequantizeLinearForm;
  /** What makes floats of the codes: a DequantizeLinear; Cast and Mul; or, of a table, nodes behind the Gathers that look up its codes. */
  readonly by:
    | Dequantizer
    | { readonly kind: 'cast' }
    | { readonly kind: 'gather'; readonly readers: readonly Reader[] };
  /** Why a target for integers comes to this. */
  readonly reason?: RestoredReason;
}

/** A reader that takes codes of integers. */
export interface IntegerReader {
  readonly reader: Reader;
  readonly operation: 'product' | 'convolution' | 'lookup' | 'attention';
}

/** Codes that are multiplied as integers. */
export interface Integers {
  readonly kind: 'integers';
  readonly weight: Weight;
  readonly form: DequantizeLinearForm;
  readonly readers: readonly IntegerReader[];
  /** Whether codes of the target have a sign. Such targets and others quantize an activation each for itself. */
  readonly isSigned: boolean;
  readonly unneeded: readonly OnnxNode[];
  /** Makes floats for the other readers, if there are some. */
  readonly dequantizer: Dequantizer | undefined;
}

/** Codes of all weights that one node reads, which computes with integers then. */
export interface Together {
  readonly kind: 'together';
  readonly operator: 'LSTM' | 'EmbedLayerNormalization';
  readonly reader: Reader;
  /** By the inputs of the node. */
  readonly weights: ReadonlyMap<number, { readonly weight: Weight; readonly form: DequantizeLinearForm }>;
}

/** What becomes of a weight, or of several. */
export type Decision = Keep | Half | Blocks | Restored | Integers | Together;

/** The weights that a decision is about. */
export function weightsOf(decision: Decision): readonly Weight[] {
  if (decision.kind !== 'together') return [decision.weight];
  return [...decision.weights.values()].map(({ weight }) => weight);
}

/** Reasons to keep weights of ONNX models. */
import { reasonWords, type SharedReason } from '../reason.js';

/** A reason that names an operator. */
type OfOperator<Kind extends string> = {
  /** The reason. */
  readonly kind: Kind;
  /** Name of the operator, such as `Gather`. */
  readonly operator: string;
};

/** A reason of this format. */
type OwnReason =
  /** The weight has too few elements. */
  | { readonly kind: 'small' }
  /** The model can be trained. */
  | { readonly kind: 'training' }
  /** No node reads it. */
  | { readonly kind: 'notRead' }
  /** The weight is an output of its graph. */
  | { readonly kind: 'output' }
  /** The weight is an output of its graph, and nodes in float16 read a copy. */
  | { readonly kind: 'alsoOutput' }
  /** A node of this operator reads it, which does not take codes. */
  | OfOperator<'readBy'>
  /** A node of this operator reads it, besides nodes that take codes. */
  | OfOperator<'alsoReadBy'>
  /** Attributes of the reader, or of a node before it, are those of a function. */
  | OfOperator<'openAttributes'>
  /** The weight is the first input of a product. */
  | OfOperator<'firstInput'>
  /** The reader of the weight is in a function. */
  | OfOperator<'inFunction'>
  /** Nodes of these operators move its elements before the reader. */
  | {
      readonly kind: 'moved';
      /** Name of the operator, such as `Gather`. */
      readonly operator: string;
      /** Names of the operators. */
      readonly movers: readonly string[];
    }
  /** The reader of the weight multiplies by a number that float16 does not hold. */
  | OfOperator<'factor'>
  /** Readers of the weight see elements of these types. */
  | {
      readonly kind: 'readAs';
      /** Names of the types, such as `FLOAT`. */
      readonly types: readonly string[];
    }
  /** Blocks do not divide the columns of a matrix. */
  | {
      readonly kind: 'matrixRows';
      /** Number of rows. */
      readonly rows: number;
    }
  /** float16 does not hold its elements: some are too large, or all are tiny. */
  | {
      readonly kind: 'beyondHalf';
      /** Largest magnitude of an element. */
      readonly most: number;
    }
  /** The weight holds the scales of codes. */
  | OfOperator<'scales'>
  | Obstacle;

/** Obstacles to raising the version of ai.onnx. */
export type Obstacle =
  /** The model imports no version of it. */
  | { readonly kind: 'noOpset' }
  /** Functions keep their versions. */
  | {
      readonly kind: 'functionOpset';
      /** The version. */
      readonly opset: number;
    }
  /** A newer version changes the meaning of the operator. */
  | {
      readonly kind: 'opset';
      /** The version. */
      readonly opset: number;
      /** Name of the operator, such as `Gather`. */
      readonly operator: string;
    };

/** Reason for a node of a float16 graph to compute in float32. */
export type BeyondHalf =
  /** A constant that float16 cannot hold, or values that it makes. */
  | 'constant'
  /** Squares up to their root, as in normalizations. */
  | 'squares'
  /** Squares, exponentials and running sums, up to a product or a function that gives values of a usual size. */
  | 'growth'
  /** A bound of a divisor or of a logarithm, such as an epsilon. */
  | 'divisor'
  /** Statistics of a BatchNormalization, which tell the size of its values. */
  | 'statistics'
  /** Measured ranges. */
  | 'measured';

/** A node that computes in float32 because of its values. */
export interface BeyondNode {
  /** Name of the node, or of its first output. */
  readonly node: string;
  readonly operator: string;
  readonly why: BeyondHalf;
}

/** A reason of this format, or one that formats share. */
export type OnnxReason = OwnReason | SharedReason;

/** Reason why a weight is not multiplied as integers: its reader, or a version that cannot be raised. */
export type RestoredReason = Extract<OwnReason, { kind: 'readBy' | 'inFunction' }> | Obstacle;

/** Reason why the codes of a weight do not depend on statistics. */
export type NoInputsReason =
  /** No reader multiplies rows of inputs by the weight; the first one is this operator. */
  | { readonly kind: 'readBy'; readonly operator: string }
  /** Products have matrices. It has this number of dimensions. */
  | { readonly kind: 'rank'; readonly rank: number }
  /** Some products sum over one dimension, others over the other, or scales lie along the inputs. */
  | { readonly kind: 'alongInputs' }
  /** All of its elements share a scale. */
  | { readonly kind: 'oneScale' }
  /** The weight has too many inputs for a task. */
  | { readonly kind: 'tooLong'; readonly inputs: number };

/** A weight whose codes do not depend on statistics. */
export interface WithoutInputs {
  readonly name: string;
  readonly reason: NoInputsReason;
}

/** Reasons without data, made once because a model may have a hundred thousand tensors. */
export const ownReasons = {
  small: { kind: 'small' },
  training: { kind: 'training' },
  notRead: { kind: 'notRead' },
  output: { kind: 'output' },
} as const satisfies { readonly [Kind in OwnReason['kind']]?: { readonly kind: Kind } };

type WordsOf<Kind extends OwnReason['kind']> =
  | string
  | ((reason: Extract<OwnReason, { readonly kind: Kind }>) => string);

/** Words of each kind in reports. */
const words: { readonly [Kind in OwnReason['kind']]: WordsOf<Kind> } = {
  small: 'small',
  training: 'trainable',
  notRead: 'unused',
  output: 'an output',
  alsoOutput: 'also an output',
  readBy: ({ operator }) => `read by ${operator}`,
  alsoReadBy: ({ operator }) => `also read by ${operator}`,
  openAttributes: ({ operator }) => `read by ${operator}, whose attributes are parameters of a function`,
  firstInput: ({ operator }) => `read by ${operator} as its first input`,
  inFunction: ({ operator }) => `read by ${operator} in a function`,
  moved: ({ operator, movers }) => `read by ${operator} through ${movers.join(', ')}`,
  factor: ({ operator }) => `read by ${operator} with a factor that float16 does not hold`,
  readAs: ({ types }) => `read as ${types.join(' and ')}`,
  matrixRows: ({ rows }) => `row count ${rows} is not a multiple of the block size`,
  beyondHalf: ({ most }) => `beyond float16: its largest magnitude is ${Number(most.toPrecision(3))}`,
  scales: ({ operator }) => `scales of ${operator}`,
  noOpset: 'the model imports no ai.onnx opset',
  functionOpset: ({ opset }) => `opset ${opset} of a function`,
  opset: ({ opset, operator }) => `opset ${opset}: ${operator} would mean something else in a newer one`,
};

/** The words of a reason of this format; undefined for others. */
export const reasonText = reasonWords(words);

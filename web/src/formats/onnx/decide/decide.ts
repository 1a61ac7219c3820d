/** Decides about each weight of a model, without writing anything. */
import type { PartsOf } from '../../format.js';
import { ruleFor } from '../../options.js';
import { reasons } from '../../reason.js';
import type { Statistics } from '../../statistics.js';
import type { WeightNames } from '../../weight-names.js';
import type { OnnxModel, Weight } from '../file/model.js';
import { kindsById } from '../file/proto.js';
import { Constants } from '../graph/constants.js';
import { Graphs } from '../graph/graph.js';
import { Opsets } from '../graph/opsets.js';
import { looksUpRows } from '../graph/products.js';
import { type Channels, operatorOfScales, type Reading, readingOf } from '../graph/readers.js';
import type { OnnxChoices } from '../options.js';
import { type OnnxReason, ownReasons } from '../reasons.js';
import { type TargetInfo, type TargetOf, targetNamed } from '../targets.js';
import { chooseBlocks, floatsRead } from './blocks.js';
import { type Context, keepWeight, type WeightDecision, weightsOfDecision } from './decision.js';
import { decideHalf } from './half.js';
import { HalfNodes, lowestHalf } from './half-nodes.js';
import { type Weighed, weighDecisions } from './inputs.js';
import { decideIntegers } from './integers.js';
import { chooseRestored } from './restored.js';
import { fewestElements, whyNotWorth } from './sizes.js';
import { decideStatics, type StaticDecision } from './static.js';
import { decideExperts } from './together.js';

/** Decisions about a model: at least one for each weight, in the order of the weights. */
export interface Decisions extends Weighed {
  readonly graphs: Graphs;
  readonly opsets: Opsets;
  /** Nodes that compute in float16; undefined if the graph is unchanged. */
  readonly halves: HalfNodes | undefined;
  /** True if only its version of ai.onnx keeps the graph from computing in float16. */
  readonly isTooOldForHalf: boolean;
  /** Products whose activations become integers. */
  readonly statics: readonly StaticDecision[];
}

/** Facts beside the graph that decide. */
export interface Evidence {
  readonly statistics: Statistics;
  /** Further names that statistics may have for weights. */
  readonly names: WeightNames | undefined;
  /** Magnitudes of constants; undefined if no target depends on them. */
  readonly constants: Constants | undefined;
}

/** Layers whose errors add up from step to step. int4-weights gives them 8 bits. */
const recurrent: readonly string[] = ['LSTM', 'GRU', 'RNN'];

/** Operators that multiply matrices, which restored blocks leave in place. */
const products: readonly string[] = ['MatMul', 'Gemm', 'MoE'];

/** Kinds of reasons to keep a weight from blocks that leave it to other codes. */
const openReasons: readonly OnnxReason['kind'][] = [
  'readBy',
  'rank',
  'matrixRows',
  'alsoReadBy',
  'moved',
  'inFunction',
];

/** Ways of the weights that are worth codes, by kind of target. */
const deciders: {
  readonly [Kind in 'blocks' | 'restored' | 'integers' | 'static']: (
    context: Context,
    reading: Reading,
    target: TargetOf<Kind>,
  ) => WeightDecision;
} = {
  blocks(context, reading, target) {
    const { choices, halves } = context;
    const range = context.range === 'mse' ? 'mse' : undefined;
    const { readers, channels } = reading;
    const experts = decideExperts(context, reading, target);
    if (experts !== undefined) return experts;
    // Readers in float16 compute in float16.
    const readsHalf = floatsRead(reading) === 'F16';
    const isBeyond = readers.some(({ node }) => halves?.isBeyond(node));
    const blockSize = choices.blockSize ?? target.blockSize;
    const blocks = chooseBlocks(context, reading, {
      codec: target.codec,
      bits: target.bits,
      blockSize,
      zeroPoints: choices.zeroPoints ?? false,
      scale: readsHalf || (target.half && !isBeyond) ? 'F16' : 'F32',
      range: context.range && 'mse',
      isHalf: (node) => readsHalf || halves?.has(node) === true,
    });
    if (blocks.kind !== 'keep') return blocks;
    // Others may have 8 bits and be restored when the model is loaded, so that they have the speed of floats on each backend. They are
    // unsigned, because onnxruntime-web (1.30) looks up int8 on the CPU where all else runs on WebGPU.
    const { kind } = blocks.reason;
    const isOther = 'restoresOthers' in target && openReasons.includes(kind);
    // Products with several matrices, in functions, and behind norms, and experts without a QMoE keep their nodes: DequantizeLinear restores
    // their blocks.
    const areProducts = readers.every(({ node }) => products.includes(node.opType));
    const isNormed = kind === 'readBy' && channels !== undefined && products.includes(channels.operator);
    const isRestorable =
      target.codec === 'matmul-nbits' &&
      target.bits < 8 &&
      halves === undefined &&
      (isNormed || (areProducts && (kind === 'rank' || kind === 'inFunction')));
    const codes = isOther
      ? chooseRestored(context, reading, { bits: 8, signed: false, symmetric: false, range, casts: true })
      : isRestorable
        ? chooseRestored(context, reading, { bits: 4, signed: true, symmetric: true, blockSize })
        : blocks;
    return codes.kind === 'keep' ? blocks : codes;
  },

  restored(context, reading, target) {
    const { zeroPoints = false, dequantize } = context.choices;
    const { range } = context;
    const signedBytes = { bits: 8, signed: true, symmetric: true, range } as const;
    if (target.blockSize === undefined) {
      const signed = target.signed === true;
      const casts = dequantize === 'cast';
      return chooseRestored(context, reading, { bits: 8, signed, symmetric: signed, range, casts });
    }
    const { blockSize = target.blockSize } = context.choices;
    if (reading.readers.some(({ node }) => recurrent.includes(node.opType))) {
      return chooseRestored(context, reading, signedBytes);
    }
    // Use blocks for tables: DequantizeLinear would restore the whole table at every run, and Gather does not take int4.
    if (reading.readers.every(looksUpRows) && (range === undefined || range === 'mse')) {
      const isHalf = reading.weight.source.dtype === 'F16';
      const blocks = chooseBlocks(context, reading, {
        codec: 'matmul-nbits',
        bits: 4,
        blockSize,
        zeroPoints,
        scale: isHalf ? 'F16' : 'F32',
        range,
        isHalf: () => isHalf,
      });
      if (blocks.kind === 'blocks') return blocks;
    }
    const signed = zeroPoints === false;
    const codes = chooseRestored(context, reading, { bits: 4, signed, symmetric: signed, blockSize, range });
    // Convolutions lose too much with 4 bits.
    const isConvolved = codes.kind === 'keep' && codes.reason.kind === 'rank';
    return isConvolved ? chooseRestored(context, reading, signedBytes) : codes;
  },

  integers: decideIntegers,

  static(context, reading, { signed }) {
    const { range } = context;
    // Products of integers with several matrices have a single scale.
    const isBatched =
      reading.weight.source.shape.length > 2 && reading.readers.some(({ node }) => node.opType === 'MatMul');
    const one = { ...(reading.channels as Channels), axis: undefined, zeroPointAxis: undefined };
    const codes = { bits: 8, signed, symmetric: signed, range } as const;
    return chooseRestored(context, isBatched ? { ...reading, channels: one } : reading, codes);
  },
};

/** Decides about a weight, and about others that must become codes together with it. */
function decideWeight(context: Context, weight: Weight): WeightDecision {
  const { graphs, halves } = context;
  const target = context.targetOf(weight);
  if (target === undefined) return keepWeight(weight, reasons.rule);
  if (target.kind === 'half') return decideHalf(context, weight);
  // Find the first reason to keep it: its size and type, and its readers.
  const scaled = operatorOfScales(graphs, weight);
  const notWorth: OnnxReason | undefined =
    scaled === undefined ? whyNotWorth(context, weight, target.takes) : { kind: 'scales', operator: scaled };
  const reading = notWorth === undefined ? readingOf(graphs, weight) : undefined;
  const operator = (reading?.open ?? reading?.readers[0])?.node.opType;
  const read = reading && floatsRead(reading);
  const reason: OnnxReason | false | undefined =
    notWorth ||
    (operator === undefined &&
      (graphs.isOutput(weight.graph, weight.value) ? ownReasons.output : ownReasons.notRead)) ||
    (operator !== undefined &&
      reading?.channels === undefined && {
        kind: reading?.open === undefined ? 'readBy' : 'openAttributes',
        operator,
      }) ||
    (target.kind === 'blocks' &&
      !(target.takes as readonly unknown[]).includes(read) && {
        kind: 'readAs',
        types: [...(reading?.types ?? [])].map((id) => kindsById.get(id)?.name ?? `type ${id}`),
      });
  const decision = reason
    ? keepWeight(weight, reason)
    : (deciders[target.kind] as (context: Context, reading: Reading, target: TargetInfo) => WeightDecision)(
        context,
        reading as Reading,
        target,
      );
  if (decision.kind !== 'keep') return decision;
  // Fall back to float16 if the target does. In a float32 graph, a Cast follows it.
  const isHalf =
    halves === undefined
      ? target.half && reading?.readers.length && (reading.channels === undefined || read === 'F32')
      : target.half || decision.reason.kind === 'readAs';
  return isHalf ? decideHalf(context, weight) : decision;
}

/**
 * Decides about all weights of a model.
 * @throws ScalepointError `BAD_FILE` for statistics of another model
 */
export function decide(
  model: OnnxModel,
  choices: OnnxChoices,
  partsOf: PartsOf,
  { statistics = {}, names, constants = new Constants(model, new Map()) }: Partial<Evidence> = {},
): Decisions {
  const { to, rules = [] } = choices;
  const { weights, proto } = model;
  const graphs = new Graphs(model);
  const opsets = new Opsets(graphs);
  // Find the nodes that compute in float16, if it has weights worth it. Nodes that read a weight excepted by a rule keep their type.
  const target = targetNamed(to);
  const isLarge = ({ source: { dtype, bytes } }: Weight) => dtype === 'F32' && bytes >= 4 * fewestElements;
  const wantsHalf = target.half === true && !proto.trains && weights.some(isLarge);
  const isTooOldForHalf = wantsHalf && (graphs.main.opsets.get('') ?? 0) < lowestHalf;
  let halves: HalfNodes | undefined;
  if (wantsHalf && !isTooOldForHalf) {
    const excepted = weights.filter(({ source }) => {
      const rule = ruleFor(rules, source.name);
      return rule !== undefined && (rule.keep || (rule.to !== undefined && targetNamed(rule.to).half !== true));
    });
    const floats = excepted.flatMap((weight) => graphs.readers(weight).flatMap(({ node, path }) => [node, ...path]));
    const hasHalfCaches = choices.kvCache === 'float16';
    halves = new HalfNodes(graphs, new Set(floats), { constants, ranges: statistics.ranges, hasHalfCaches });
  }
  // Decide about the weights in order: some become codes together with later ones.
  const decided = new Set<Weight>();
  const context: Context = {
    graphs,
    opsets,
    partsOf,
    choices,
    range: choices.range === 'min-max' ? undefined : choices.range,
    halves,
    constants,
    // Where there are no convolutions and no attention, transformers.js has int8.
    hasSymmetricQ8: !graphs.nodes.some(({ node }) =>
      ['Conv', 'GroupQueryAttention', 'MultiHeadAttention'].includes(node.opType),
    ),
    trains: proto.trains,
    decided,
    targetOf({ source }) {
      const rule = ruleFor(rules, source.name);
      if (rule?.keep) return undefined;
      return rule?.to === undefined ? target : targetNamed(rule.to);
    },
  };
  const plain: WeightDecision[] = [];
  for (const weight of weights) {
    if (decided.has(weight)) continue;
    const decision = decideWeight(context, weight);
    plain.push(decision);
    for (const one of weightsOfDecision(decision)) decided.add(one);
  }
  const weighed = weighDecisions(graphs, plain, statistics, choices, names);
  const { decisions, statics } = decideStatics(context, weighed.decisions, statistics.ranges ?? new Map());
  return { ...weighed, graphs, opsets, halves, isTooOldForHalf, decisions, statics };
}

/** Decides about each weight of a model, without writing anything. */
import type { Note } from '../../../core/note.js';
import type { Feedback, PartsOf } from '../../format.js';
import { ruleFor } from '../../options.js';
import { reasons } from '../../reason.js';
import type { Statistics } from '../../statistics.js';
import type { OnnxModel, Weight } from '../file/model.js';
import { typeName } from '../file/proto.js';
import { Constants } from '../graph/constants.js';
import { Graphs } from '../graph/graph.js';
import { Opsets } from '../graph/opsets.js';
import { type Reading, readingOf } from '../graph/readers.js';
import { operatorOfScales } from '../graph/scales.js';
import type { OnnxChoices } from '../options.js';
import { type OnnxReason, ownReasons, type WithoutInputs } from '../reasons.js';
import { type TargetInfo, type TargetOf, targetNamed } from '../targets.js';
import { floatsRead } from './blocks.js';
import { type Context, type WeightDecision, weightsOfDecision } from './decision.js';
import { decideExperts } from './experts.js';
import { decideHalf } from './half.js';
import { HalfNodes, lowestHalf } from './half-nodes.js';
import { OnnxInputStatistics } from './inputs.js';
import { decideIntegers, prefersSymmetry } from './integers.js';
import { decideBlocksOrRestored, decideRestored } from './restored.js';
import { fewestElements, whyNotWorth } from './sizes.js';
import { decideActivations, decideStatic, type StaticDecision, withBiases } from './static.js';

/** Decisions about a model. */
export interface Decisions {
  readonly graphs: Graphs;
  readonly opsets: Opsets;
  /** Nodes that compute in float16; undefined if the graph is unchanged. */
  readonly halves: HalfNodes | undefined;
  /** True if only its version of ai.onnx keeps the graph from computing in float16. */
  readonly isTooOldForHalf: boolean;
  /** Decisions, at least one for each weight, in the order of the weights. */
  readonly decisions: readonly WeightDecision[];
  /** Moments of the weights that are rounded with GPTQ. */
  readonly feedback: ReadonlyMap<Weight, Feedback>;
  /** Weights whose codes do not depend on statistics, if there are any statistics. */
  readonly withoutInputs: readonly WithoutInputs[];
  /** Notes about entries of statistics. */
  readonly notes: readonly Note[];
  /** Products whose activations become integers. */
  readonly statics: readonly StaticDecision[];
}

/** Reason why the readers of a weight take no form of a target; undefined if some do. */
function whyNotRead(context: Context, reading: Reading, target: TargetInfo): OnnxReason | undefined {
  const { weight, readers, open, channels, types } = reading;
  const operator = (open ?? readers[0])?.node.opType;
  if (operator === undefined) {
    return context.graphs.isOutput(weight.graph, weight.value) ? ownReasons.output : ownReasons.notRead;
  }
  if (channels === undefined) return { kind: open === undefined ? 'readBy' : 'openAttributes', operator };
  const isTaken = target.kind !== 'blocks' || (target.takes as readonly unknown[]).includes(floatsRead(reading));
  return isTaken ? undefined : { kind: 'readAs', types: [...types].map(typeName) };
}

type Decider<Target = TargetInfo> = (context: Context, reading: Reading, target: Target) => WeightDecision;

/** Functions that decide about weights worth codes, by kind of target. */
const deciders: { readonly [Kind in 'blocks' | 'restored' | 'integers' | 'static']: Decider<TargetOf<Kind>> } = {
  blocks: decideBlocksOrRestored,
  restored: decideRestored,
  integers: decideIntegers,
  static: decideStatic,
};

/** True if a weight that has no codes becomes float16. @param reading undefined if it is not worth another form */
function isHalfInstead(
  context: Context,
  { half }: TargetInfo,
  reading: Reading | undefined,
  reason: OnnxReason,
): boolean {
  if (context.halves !== undefined) return half === true || reason.kind === 'readAs';
  // In a float32 graph, a Cast follows it.
  const isComputed = reading !== undefined && reading.readers.length > 0;
  return half === true && isComputed && (reading.channels === undefined || floatsRead(reading) === 'F32');
}

/** Decides about a weight, and about others that must become codes together with it. */
function decideWeight(context: Context, weight: Weight): WeightDecision {
  const target = context.targetOf(weight);
  if (target === undefined) return { kind: 'keep', weight, reason: reasons.rule };
  if (target.kind === 'half') return decideHalf(context, weight);
  // Look up its readers, and decide about codes.
  const scaled = operatorOfScales(context.graphs, weight);
  const notWorth: OnnxReason | undefined =
    scaled === undefined ? whyNotWorth(context, weight, target.takes) : { kind: 'scales', operator: scaled };
  const reading = notWorth === undefined ? readingOf(context.graphs, weight) : undefined;
  const experts =
    reading === undefined || target.kind !== 'blocks' ? undefined : decideExperts(context, reading, target);
  if (experts !== undefined) return experts;
  const reason = reading === undefined ? notWorth : whyNotRead(context, reading, target);
  const found: WeightDecision =
    reading === undefined || reason !== undefined
      ? { kind: 'keep', weight, reason: reason as OnnxReason }
      : (deciders[target.kind] as Decider)(context, reading, target);
  // Fall back to float16 if the target does.
  const isHalf = found.kind === 'keep' && isHalfInstead(context, target, reading, found.reason);
  return isHalf ? decideHalf(context, weight) : found;
}

/** True if a graph shall compute in float16: by its target, and if it has weights worth it. */
function isHalfGraph({ proto, weights }: OnnxModel, to: TargetInfo): boolean {
  const isLarge = ({ source: { dtype, bytes } }: Weight) => dtype === 'F32' && bytes >= 4 * fewestElements;
  return to.half === true && !proto.trains && weights.some(isLarge);
}

/** Nodes that read a weight excepted by a rule, which keep their type. */
function exceptedNodes(graphs: Graphs, { weights }: OnnxModel, { rules = [] }: OnnxChoices) {
  const excepted = weights.filter(({ source }) => {
    const rule = ruleFor(rules, source.name);
    return rule !== undefined && (rule.keep || (rule.to !== undefined && targetNamed(rule.to).half !== true));
  });
  return new Set(excepted.flatMap((weight) => graphs.readers(weight).flatMap(({ node, path }) => [node, ...path])));
}

/**
 * Decides about all weights of a model.
 * @throws ScalepointError `BAD_FILE` for statistics of another model
 */
export function decide(
  model: OnnxModel,
  choices: OnnxChoices,
  partsOf: PartsOf,
  statistics: Statistics = {},
  constants = new Constants(model, new Map()),
): Decisions {
  const { to, rules = [] } = choices;
  const graphs = new Graphs(model);
  const opsets = new Opsets(graphs);
  // Find the nodes that compute in float16.
  const target = targetNamed(to);
  const wantsHalf = isHalfGraph(model, target);
  const isTooOldForHalf = wantsHalf && (graphs.main.opsets.get('') ?? 0) < lowestHalf;
  const halves =
    wantsHalf && !isTooOldForHalf
      ? new HalfNodes(
          graphs,
          exceptedNodes(graphs, model, choices),
          constants,
          statistics.ranges,
          choices.kvCache === 'float16',
        )
      : undefined;
  // Decide about the weights in order: some become codes together with later ones.
  const decided = new Set<Weight>();
  const context: Context = {
    graphs,
    opsets,
    partsOf,
    choices,
    halves,
    constants,
    hasSymmetricQ8: prefersSymmetry(graphs),
    trains: model.proto.trains,
    decided,
    targetOf({ source }) {
      const rule = ruleFor(rules, source.name);
      if (rule?.keep) return undefined;
      return rule?.to === undefined ? target : targetNamed(rule.to);
    },
  };
  const inputs = new OnnxInputStatistics(graphs, statistics, choices);
  const decisions: WeightDecision[] = [];
  for (const weight of model.weights) {
    if (decided.has(weight)) continue;
    const decision = inputs.add(decideWeight(context, weight));
    decisions.push(decision);
    for (const one of weightsOfDecision(decision)) decided.add(one);
  }
  const { feedback, without: withoutInputs } = inputs;
  const isStatic = (decision: WeightDecision) =>
    weightsOfDecision(decision).every((weight) => context.targetOf(weight)?.kind === 'static');
  const statics = decideActivations(context, decisions, isStatic, statistics.ranges ?? new Map());
  const notes = inputs.notes();
  const whole = withBiases(graphs, decisions, statics, constants);
  return { graphs, opsets, halves, isTooOldForHalf, decisions: whole, feedback, withoutInputs, statics, notes };
}

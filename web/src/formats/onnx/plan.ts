/** Plans ONNX results from the skeleton: reads the graphs, decides about each weight, and writes the result. */
import { ScalepointError } from '../../core/errors.js';
import type { Note } from '../../core/note.js';
import { quoted } from '../files/bytes.js';
import type { FilePlan, PartsOf, PlannedTensor, SourceTensor } from '../format.js';
import type { ActivationRanges, Statistics } from '../statistics.js';
import { elementCount } from '../tensors.js';
import { cacheTypeIn } from './config.js';
import { type Decisions, decide } from './decide/decide.js';
import type { Keep, WeightDecision } from './decide/decision.js';
import { type HalfNodes, lowestHalf } from './decide/half-nodes.js';
import { fewestElements } from './decide/sizes.js';
import { quantizeOpset, type StaticDecision } from './decide/static.js';
import type { OnnxModel } from './file/model.js';
import { onnxTypeNumber } from './file/proto.js';
import { isPast } from './graph/caches.js';
import type { Constants } from './graph/constants.js';
import { onnxLogicalTensors } from './graph/logical.js';
import { parametersIn } from './graph/parameters.js';
import {
  beyondHalfNotes,
  blockCostNote,
  cachesNote,
  castCostNote,
  dequantizeCostNote,
  eightBitsNote,
  floatActivationsNote,
  floatCachesNote,
  floatNodesNote,
  floatZeroPointsNote,
  integerCostNote,
  largeBindingsNote,
  littleNote,
  noHalfNote,
  noInputsNote,
  noRangesNote,
  nothingNote,
  restoredNote,
  runsOnNote,
  signedNote,
  staticCostNote,
  type WhyNothing,
} from './notes.js';
import type { OnnxChoices } from './options.js';
import type { BeyondNode } from './reasons.js';
import { dtypeOfName } from './signature.js';
import { type OnnxTarget, type TargetInfo, targetNamed } from './targets.js';
import { dataSuffix } from './write/builder.js';
import { writeResult } from './write/write.js';

/** Largest protobuf message in bytes. */
const mostBytes = 2 ** 31 - 1;

/** Operators whose weights only other targets take. */
const otherOperators: readonly string[] = ['Conv', 'ConvTranspose', 'LSTM', 'GRU', 'RNN'];

/** Reason why nothing is converted, with targets that would help. */
function whyNothing(model: OnnxModel, { decisions, graphs }: Decisions, target: TargetInfo): WhyNothing {
  // Find the weights that are large enough.
  const isLarge = ({ shape }: SourceTensor) => shape.length > 1 && (elementCount(shape) ?? 0) >= fewestElements;
  const scales = new Set(
    decisions.flatMap((one) => (one.kind === 'keep' && one.reason.kind === 'scales' ? [one.weight.source] : [])),
  );
  const types = new Set(model.tensors.filter((one) => isLarge(one) && !scales.has(one)).map(({ dtype }) => dtype));
  const kept = decisions.flatMap((one) => (one.kind === 'keep' && isLarge(one.weight.source) ? [one.reason] : []));
  // Name codes.
  const codes = onnxLogicalTensors(model).flatMap(({ form }) => ('bits' in form ? [Number(form.bits)] : []));
  if (!types.has('F32') && codes.length > 0) {
    return { why: 'quantized', weights: codes.length, bits: [...new Set(codes)].sort((a, b) => a - b) };
  }
  // Name a type that the target does not take.
  const dtype = types.has('F32') ? undefined : ['F16', 'BF16'].find((type) => types.has(type));
  if (dtype !== undefined && !(target.takes as readonly string[]).includes(dtype)) {
    const isHalf = dtype === 'F16';
    if (target.kind === 'half') return { why: 'sameType', dtype };
    return { why: 'dtype', dtype, others: isHalf ? ['q4', 'int8-weights'] : [] };
  }
  if (target.blockSize === undefined) return { why: 'noWeights' };
  // Name an operator that blocks do not support.
  if (kept.some(({ kind }) => kind === 'inFunction')) return { why: 'inFunctions', others: ['q8', 'int8-weights'] };
  const hasRank = target.kind === 'restored' && kept.some(({ kind }) => kind === 'rank');
  const operator = otherOperators.find(
    (one) =>
      kept.some((reason) => (reason.kind === 'readBy' || reason.kind === 'alsoReadBy') && reason.operator === one) ||
      (hasRank && graphs.nodes.some(({ node }) => node.opType === one)),
  );
  return operator === undefined
    ? { why: 'noWeights' }
    : { why: 'operator', operator, others: ['q8', 'int8-weights', 'fp16'] };
}

/** Notes about the run-time costs of a result. @param codecs those of its weights */
function costNotes(
  target: TargetInfo,
  { dequantize }: OnnxChoices,
  codecs: ReadonlySet<string>,
  { opsets, graphs, statics }: Decisions,
): Note[] {
  const hasBlocks = codecs.has('matmul-nbits') || codecs.has('matmul-bnb4');
  // The only blocks of int4-weights are tables.
  const isForProducts = target.kind !== 'restored' || target.blockSize === undefined;
  if (hasBlocks && isForProducts) return [blockCostNote()];
  if (!codecs.has('dequantize-linear')) return [];
  if (target.kind === 'integers') return [integerCostNote()];
  if (target.kind === 'static') {
    const obstacle = opsets.obstacle(graphs.main.root, quantizeOpset);
    if (obstacle !== undefined) return [floatActivationsNote(obstacle)];
    return [statics.every(isWithoutRange) ? dequantizeCostNote(false) : staticCostNote()];
  }
  if (target.kind !== 'restored') return [];
  return [dequantize === 'cast' ? castCostNote() : dequantizeCostNote(target.blockSize === undefined)];
}

/** Number of signed weights that are multiplied as integers. */
function countSigned({ decisions }: Decisions): number {
  return decisions.reduce((count, decision) => {
    if (decision.kind === 'integers') return count + (decision.form.signed ? 1 : 0);
    const isProduct = decision.kind === 'together' && decision.operator === 'LSTM';
    return count + (isProduct ? decision.weights.size : 0);
  }, 0);
}

/** Weights with 8 bits of a target with 4. */
function eightBitsNotes({ decisions, graphs }: Decisions, { kind, bits }: TargetInfo): Note[] {
  if (kind !== 'restored' || bits === 8) return [];
  const counts = new Map<string, number>();
  for (const decision of decisions) {
    if (decision.kind !== 'restored' || decision.form.bits !== 8) continue;
    const operator = graphs.readers(decision.weight)[0]?.node.opType ?? '';
    counts.set(operator, (counts.get(operator) ?? 0) + 1);
  }
  return counts.size === 0 ? [] : [eightBitsNote(counts)];
}

/** True for a product without a range of its input or its output. */
const isWithoutRange = ({ input, output }: StaticDecision) => input === undefined || output === undefined;

/** Fails for ranges of another model. @throws ScalepointError `BAD_FILE` */
function checkRanges({ statics }: Decisions, ranges: ActivationRanges): void {
  if (statics.length === 0 || !statics.every(isWithoutRange)) return;
  const [first = ''] = ranges.keys();
  const text = `the ranges are those of another model: they have ${quoted(first)}, and no activations of its products`;
  throw new ScalepointError('BAD_FILE', text);
}

/** Nodes in float32 because of their values, as data. */
const beyondNodes = ({ beyond }: HalfNodes): BeyondNode[] =>
  beyond.map(({ node, why }) => ({ node: node.name || node.outputs[0] || '', operator: node.opType, why }));

/** Least share of the bytes that a target has to save. */
const leastSaved = 0.25;

/** Targets without ranges and other needs, which take most operators. */
const helpful: readonly OnnxTarget[] = ['q8-blocks', 'int8-weights', 'fp16'];

/** The note about a result that is hardly smaller, which names the target that helps. */
function littleNotes(
  model: OnnxModel,
  choices: OnnxChoices,
  { decisions, graphs }: Decisions,
  partsOf: PartsOf,
  files: FilePlan['files'],
): Note[] {
  const sizeOf = (result: FilePlan['files']) => result.reduce((sum, { size }) => sum + size, 0);
  const isRuled = (one: WeightDecision): one is Keep => one.kind === 'keep' && one.reason.kind === 'rule';
  const open = decisions.filter(isRuled).reduce((all, { weight }) => all - weight.source.bytes, model.bytes);
  const savedBy = (result: FilePlan['files']) => (model.bytes - sizeOf(result)) / open;
  const saved = savedBy(files);
  const large = decisions.filter((one) => one.kind === 'keep' && one.weight.source.bytes >= 4 * fewestElements);
  const stays = large.filter(
    (one) => one.kind === 'keep' && one.reason.kind !== 'rule' && one.reason.kind !== 'scales',
  );
  if (saved >= leastSaved || stays.length === 0 || targetNamed(choices.to).kind === 'half') return [];
  const bytes = new Map<string, number>();
  for (const decision of stays) {
    if (decision.kind !== 'keep') continue;
    const { weight } = decision;
    const operator = graphs.readers(weight)[0]?.node.opType ?? 'no node';
    bytes.set(operator, (bytes.get(operator) ?? 0) + weight.source.bytes);
  }
  const kept = [...bytes].map(([operator, n]) => ({ operator, bytes: n })).sort((a, b) => b.bytes - a.bytes);
  const rules = choices.rules?.filter(({ keep }) => keep);
  const others = helpful
    .filter((to) => to !== choices.to)
    .map((to) => ({
      to,
      saved: savedBy(writeResult(model, decide(model, { to, rules }, partsOf), partsOf, undefined).files),
    }));
  // Of targets that save nearly as much, take the first.
  const most = Math.max(...others.map((one) => one.saved));
  const best = others.find((one) => one.saved > most - 0.05) as (typeof others)[number];
  return [littleNote(saved, kept, best.saved > saved + 0.05 ? best : undefined)];
}

/** Bytes of the largest binding that each GPU has: maxStorageBufferBindingSize of WebGPU by default. */
const mostBinding = 2 ** 27;

/** Tensors of a result that need larger bindings. Codes that a Cast widens are float32 there. */
function largeBindings(
  { tensors }: FilePlan,
  { decisions }: Decisions,
): { readonly name: string; readonly bytes: number }[] {
  const widened = new Set(
    decisions.flatMap((one) =>
      (one.kind === 'restored' && one.by.kind !== 'gather') || (one.kind === 'half' && one.isCast)
        ? [one.weight.source.name]
        : [],
    ),
  );
  return tensors
    .map(({ source, kept, parts }) => {
      const stored =
        kept === undefined ? Math.max(0, ...parts.map(({ bytes }) => bytes)) : (source.parts[0]?.tensor.bytes ?? 0);
      const floats = widened.has(source.name) ? 4 * (elementCount(source.shape) ?? 0) : 0;
      return { name: source.name, bytes: Math.max(stored, floats) };
    })
    .filter(({ bytes }) => bytes > mostBinding)
    .sort((a, b) => b.bytes - a.bytes);
}

/** Bytes of weights in the memory of WebAssembly, which ends at 4 GiB, that leave room for all else. */
const mostInWasm = 3.5 * 2 ** 30;

/** Bytes of the weights of a loaded result: Casts are folded. */
function loadedBytes({ tensors }: FilePlan, { decisions }: Decisions): number {
  const folded = new Set(
    decisions.flatMap((one) =>
      (one.kind === 'restored' && one.by.kind === 'cast') || (one.kind === 'half' && one.isCast && !one.inHalfGraph)
        ? [one.weight.source.name]
        : [],
    ),
  );
  return tensors.reduce((all, { source, kept, parts }) => {
    if (folded.has(source.name)) return all + 4 * (elementCount(source.shape) ?? 0);
    const stored = kept === undefined ? parts : source.parts.map(({ tensor }) => tensor);
    return stored.reduce((sum, { bytes }) => sum + bytes, all);
  }, 0);
}

/** True if there is the config.json that tells transformers.js 3 of caches; undefined if it does not know them, or the target. */
const hasConfig = ({ proto }: OnnxModel, { to, config }: OnnxChoices): boolean | undefined =>
  proto.graph.inputs.some(isPast) && dtypeOfName(`_${to}.onnx`) !== undefined ? config !== undefined : undefined;

/** True if config.json says of caches in float32 that they are float16. */
const hasWrongCaches = ({ proto }: OnnxModel, { to, config = {} }: OnnxChoices) =>
  cacheTypeIn(config, to) === 'float16' &&
  proto.graph.inputs.some((input) => isPast(input) && input.type === onnxTypeNumber('F32'));

/** Notes for users about a result. */
function notesOf(model: OnnxModel, choices: OnnxChoices, made: Decisions, plan: FilePlan, partsOf: PartsOf): Note[] {
  const { tensors, files } = plan;
  const large = largeBindings(plan, made);
  const loaded = loadedBytes(plan, made);
  const target = targetNamed(choices.to);
  const { halves, isTooOldForHalf, decisions, graphs } = made;
  const restored = decisions.flatMap((one) =>
    one.kind === 'restored' && one.reason !== undefined ? [one.reason] : [],
  );
  const without = made.statics.filter(isWithoutRange).map(({ product }) => product.weight.source.name);
  const signed = countSigned(made);
  const hasFloatZeroPoints = decisions.some(
    (one) => one.kind === 'blocks' && one.form.codec === 'matmul-nbits' && one.form.floatZeroPoint === true,
  );
  const hasExperts = decisions.some(({ kind }) => kind === 'experts');
  const codecs = new Set(tensors.flatMap(({ kept, form }) => (kept === undefined ? [form.codec] : [])));
  return [
    ...littleNotes(model, choices, made, partsOf, files),
    ...made.notes,
    ...(made.withoutInputs.length === 0 ? [] : [noInputsNote(made.withoutInputs)]),
    ...(isTooOldForHalf ? [noHalfNote(graphs.main.opsets.get(''), lowestHalf)] : []),
    ...(halves === undefined || halves.floats.size === 0 ? [] : [floatNodesNote(halves.floats)]),
    ...(halves === undefined ? [] : beyondHalfNotes(beyondNodes(halves), halves.reached)),
    ...(choices.kvCache === 'float16'
      ? [cachesNote(halves?.caches.size ?? 0, choices.to, hasConfig(model, choices))]
      : []),
    ...(choices.kvCache !== 'float16' && hasWrongCaches(model, choices) ? [floatCachesNote(choices.to)] : []),
    ...(restored.length === 0 ? [] : [restoredNote(restored)]),
    ...(signed === 0 ? [] : [signedNote(signed, choices.reduceRange === false ? 8 : 7)]),
    ...(without.length === 0 ? [] : [noRangesNote(without)]),
    ...eightBitsNotes(made, target),
    ...(hasFloatZeroPoints ? [floatZeroPointsNote()] : []),
    ...(codecs.size === 0
      ? [nothingNote(whyNothing(model, made, target))]
      : [
          ...costNotes(target, choices, codecs, made),
          runsOnNote(target.onWebGpu, loaded > mostInWasm ? loaded : undefined, hasExperts),
        ]),
    ...(large.length === 0 ? [] : [largeBindingsNote(large)]),
  ];
}

/**
 * Plans the result for a model. Weights go into a second file on request, or if the model would be too large.
 * @param output the name of the result, from which that of the second file derives
 * @throws ScalepointError `BAD_FILE` for statistics of another model
 */
export function planOnnx(
  model: OnnxModel,
  choices: OnnxChoices,
  partsOf: PartsOf,
  output = 'model.onnx',
  statistics: Statistics = {},
  constants?: Constants,
): FilePlan {
  const decisions = decide(model, choices, partsOf, statistics, constants);
  checkRanges(decisions, statistics.ranges ?? new Map());
  const written = (dataFile: string | undefined) => writeResult(model, decisions, partsOf, dataFile);
  const beside = output + dataSuffix;
  let plan = written(choices.externalData ? beside : undefined);
  const isTooLarge = plan.files.some(({ suffix, size }) => suffix === '' && size > mostBytes);
  if (isTooLarge && !choices.externalData) plan = written(beside);
  const file = decisions.feedback.size > 0 ? { moments: statistics.moments?.file } : {};
  const parameters = parametersIn(decisions.graphs, model.weights);
  const tensors = plan.tensors.map((tensor): PlannedTensor => {
    const [part] = tensor.source.parts;
    return part !== undefined && parameters.has(part.tensor) ? tensor : { ...tensor, infinities: true };
  });
  const notes = notesOf(model, choices, decisions, plan, partsOf);
  const isTold = decisions.halves?.caches.size && hasConfig(model, choices) !== undefined;
  const value = { kv_cache_dtype: { [choices.to]: 'float16' } };
  const sidecars = isTold ? [{ option: 'config', value, base: choices.config }] : [];
  return { ...plan, ...file, tensors, notes, sidecars };
}

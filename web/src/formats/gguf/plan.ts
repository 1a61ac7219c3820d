/**
 * Plans GGUF results as llama-quantize makes them: types and order of the tensors, and the metadata, all from the header.
 * Reference: github.com/ggml-org/llama.cpp, src/llama-quant.cpp at 007dbbf. Tests compare with v0.5.0.
 */
import { blockTypeInfo, hasFeedback, isBlockType } from '../../core/blocks.js';
import { rangeError, ScalepointError } from '../../core/errors.js';
import { type Hint, mention } from '../../core/option-problem.js';
import { quoted } from '../files/bytes.js';
import type { FilePlan, LogicalTensor, PartsOf, SourceTensor } from '../format.js';
import { keepHint, ruleFor } from '../options.js';
import { type Reason, rankReason, reasons } from '../reason.js';
import { quantizedBefore } from '../source-note.js';
import type { Statistics } from '../statistics.js';
import { compareNames, partName, plainTensor } from '../tensors.js';
import { WeightStatistics } from '../weight-statistics.js';
import type { GgufPair, GgufTensor } from './contents.js';
import { edited } from './edits.js';
import type { GgufHeader } from './header.js';
import { measuredWeight, withImportance } from './importance.js';
import { fallback, layerOf, Mixture } from './mixture.js';
import { checkScaled, type ScaledWeight, scaledWeights, scalePart } from './nvfp4.js';
import type { GgufChoices } from './options.js';
import { u32Pair } from './pairs.js';
import { pruned, withLayers } from './prune.js';
import { keptNames, outputReason } from './reasons.js';
import { type Choice, planResult, type ResultTensor } from './result.js';
import { withoutSplits } from './splits.js';
import { aliases, type FileType, fileTypes, type GgufTarget, isCastType, type TargetType } from './targets.js';
import { ggmlType } from './types.js';

// ------------------------------------------------------------------------------------------------------------------- what is kept

/** Reason of llama-quantize to keep a tensor; undefined if it is converted. */
function keptReason({ name, shape }: GgufTensor): Reason | undefined {
  // ggml ignores dimensions of 1 at the end of its order.
  if (shape.slice(0, -1).every((dimension) => dimension <= 1)) return rankReason(1);
  // llama-quantize also accepts every name of 5 bytes: it compares the position of "weight", -1 if missing, with the length minus 6.
  if (!name.endsWith('weight') && new TextEncoder().encode(name).length !== 5) return reasons.notWeight;
  return keptNames.find(([, pattern]) => pattern.test(name))?.[0];
}

// -------------------------------------------------------------------------------------------------------------------------- plan

/** True for weights that are codes and can be restored. */
const isCoded = (dtype: string) => isBlockType(dtype) || dtype === 'NVFP4';

/**
 * Fails if a tensor cannot be converted. @param scaled the weight, if it is in NVFP4 and its scale fits
 * @throws ScalepointError `UNSUPPORTED_DTYPE`
 */
function checkConvertible(
  { name, dtype, byteOffset }: GgufTensor,
  type: string,
  requantize: boolean,
  scaled: ScaledWeight | undefined,
): void {
  const fail = (message: string, hint: Hint): never => {
    const place = { tensor: name, byteOffset, hint };
    throw new ScalepointError('UNSUPPORTED_DTYPE', `tensor ${quoted(name)}: ${message}`, place);
  };
  if (dtype === 'NVFP4' && scaled === undefined) {
    fail('its scale is not a float32 for each matrix', keepHint);
  }
  if (!isCastType(dtype) && !isCoded(dtype)) {
    fail(`${dtype} cannot be converted to ${type}`, keepHint);
  }
  if (!isCastType(type) && isCoded(dtype) && !requantize) {
    fail(`it is quantized already, as ${dtype}`, {
      kind: 'try',
      option: mention('requantize', true),
      effect: 'quantizes it again, which adds to its errors',
    });
  }
}

/** Pairs of the result: those of the input except for splits, then the version and type of the quantization. */
function pairsOf({ pairs }: GgufView, fileType: FileType): GgufPair[] {
  const replaced = ['general.quantization_version', 'general.file_type'];
  return [
    ...withoutSplits(pairs).filter(({ key }) => !replaced.includes(key)),
    u32Pair('general.quantization_version', 2),
    u32Pair('general.file_type', fileTypes[fileType].id),
  ];
}

/** Types for which llama-quantize requires importance, because the errors would be too large without it. */
const demanding: readonly string[] = ['IQ1_S', 'IQ1_M', 'IQ2_XXS', 'IQ2_XS', 'IQ2_S', 'IQ3_XXS'];

/** Fails where llama-quantize requires importance. It does not for embeddings and the output, if ggml can do without. */
function checkImportance({ name, type, importance }: ResultTensor, to: FileType, given: boolean): void {
  if (importance !== undefined) return;
  const isNeeded = isBlockType(type) && blockTypeInfo(type).needsWeights;
  const isFree = !isNeeded && /^(output|(per_layer_)?token_embd)\.weight$/.test(name);
  if (isFree || !(demanding.includes(type) || (to === 'Q2_K_S' && type === 'Q2_K'))) return;
  if (!given) {
    const isOwn = to === 'Q2_K_S' || demanding.includes(fileTypes[to].base);
    throw rangeError('importance', { kind: 'required' }, undefined, {
      kind: 'with',
      options: [mention('to', to), ...(isOwn ? [] : [mention(`tensor ${quoted(name)}`, type)])],
    });
  }
  const message = `the importance matrix has no numbers for tensor ${quoted(name)}, which ${type} does not work without`;
  throw new ScalepointError('BAD_FILE', message, { tensor: name });
}

/** The error for rows that are not whole blocks. */
function unfitError({ name, shape, byteOffset }: GgufTensor, type: TargetType, more = ''): ScalepointError {
  const { elements } = ggmlType(type);
  const message = `rows of ${shape.at(-1)} are not a multiple of ${type}'s blocks of ${elements}${more}`;
  const place = { tensor: name, hint: keepHint, byteOffset };
  return new ScalepointError('UNSUPPORTED_DTYPE', `tensor ${quoted(name)}: ${message}`, place);
}

/** Chooses the type of each tensor. */
class Chooser {
  readonly #choices: GgufChoices;
  readonly #base: TargetType;
  readonly #mixture: Mixture;

  constructor(view: GgufView, fileType: FileType, choices: GgufChoices, hasImportance: boolean) {
    this.#choices = choices;
    this.#base = fileTypes[fileType].base;
    this.#mixture = new Mixture(view, fileType, hasImportance);
  }

  choose(tensor: GgufTensor): Choice {
    const { name, dtype, shape } = tensor;
    const { pure = false, rules = [] } = this.#choices;
    const isLeft = this.#choices.leaveOutputTensor === true && name === 'output.weight';
    const kept = isLeft ? outputReason : keptReason(tensor);
    if (kept !== undefined) return { type: dtype, kept };
    const rule = ruleFor(rules, name);
    if (rule?.keep === true) return { type: dtype, kept: reasons.rule };
    let type: TargetType = this.#base;
    if (rule?.to !== undefined) type = rule.to as TargetType;
    else if (!pure && !isCastType(type)) type = this.#mixture.typeOf(tensor);
    const fitting = fallback(type, shape);
    if (fitting === undefined) throw unfitError(tensor, type, `, and ${type} has no replacement`);
    if (fitting !== type && this.#choices.fallback === false) throw unfitError(tensor, type);
    const unfit = fitting === type ? {} : { unfit: type };
    return fitting === dtype ? { type: fitting, kept: reasons.sameType, ...unfit } : { type: fitting, ...unfit };
  }
}

/** Resolves aliases of a target. */
export function fileTypeOf(to: Exclude<GgufTarget, 'copy'>): FileType {
  return to in aliases ? aliases[to as keyof typeof aliases] : (to as FileType);
}

/** The members of a header that a plan reads. Models converted from other formats provide them, too. */
export type GgufView = Pick<GgufHeader, 'tensors' | 'metadata' | 'pairs' | 'alignment'>;

/** A tensor, and its source. */
interface Sourced {
  readonly tensor: GgufTensor;
  readonly from: ResultTensor['from'];
}

/** Copies of the tensors, in the order of the input. */
function copies(tensors: readonly Sourced[]): ResultTensor[] {
  return tensors.map(({ tensor: { name, shape, dtype }, from }) => ({
    name,
    shape,
    type: dtype,
    kept: reasons.copy,
    from,
  }));
}

/** A tensor with the number of its layer. */
interface Placed {
  readonly one: Sourced;
  readonly layer: number;
}

/** The tensors in the order of the result, without pruned layers: sorted by layer and name; with `keepSplit`, in the order of the files. */
function sorted(tensors: readonly Sourced[], choices: GgufChoices) {
  const byName = (a: Placed, b: Placed) => a.layer - b.layer || compareNames(a.one.tensor.name, b.one.tensor.name);
  const byPlace = ({ one: { tensor: a } }: Placed, { one: { tensor: b } }: Placed) =>
    (a.file ?? 0) - (b.file ?? 0) || a.byteOffset - b.byteOffset;
  const inOrder = tensors
    .map((one): Placed => ({ one, layer: layerOf(one.tensor.name) }))
    .sort(choices.keepSplit === true ? byPlace : byName);
  const origins = new Map(inOrder.map(({ one }) => [one.tensor, one.from]));
  const { tensors: left, layers, notes } = pruned([...origins.keys()], choices.pruneLayers);
  const results = left.map(({ tensor, source }) => ({ tensor, source, from: origins.get(source) as Sourced['from'] }));
  return { results: renumbered(results), layers, notes };
}

/** Tensors with consecutive indexes in the plan, in the order of the input, after some were left out. */
function renumbered<T extends { readonly from: Sourced['from'] }>(tensors: readonly T[]): T[] {
  const indexes = new Set(tensors.flatMap(({ from }) => (from instanceof Uint8Array ? [] : [from.index])));
  const places = new Map([...indexes].sort((a, b) => a - b).map((index, place) => [index, place]));
  return tensors.map((one) => {
    const { from } = one;
    return from instanceof Uint8Array ? one : { ...one, from: { ...from, index: places.get(from.index) as number } };
  });
}

/** The tensor with the scales of a weight in NVFP4, one for each matrix. */
function scaleOf({ name, shape, from }: ResultTensor): ResultTensor {
  const matrices = shape.slice(0, -2).reduce((product, n) => product * n, 1);
  return { name: partName(name, scalePart), shape: [matrices], type: 'F32', from, role: 'globalScale' };
}

/** The stored tensor of a source that is one alone. */
function storedTensor(from: ResultTensor['from']): SourceTensor | undefined {
  return from instanceof Uint8Array ? undefined : from.source.parts[0]?.tensor;
}

/** Results without the scales of weights that had them and are stored in another type, which readers would apply once more. */
function withoutScales(results: readonly ResultTensor[], scaled: ReadonlyMap<SourceTensor, ScaledWeight>) {
  const weights = results.flatMap(({ from, kept }) => {
    const weight = kept === undefined ? scaled.get(storedTensor(from) as SourceTensor) : undefined;
    return weight === undefined ? [] : [weight];
  });
  if (weights.length === 0) return { results, notes: [] };
  const left = new Set(weights.flatMap(({ beside }) => beside));
  const rest = results.filter(({ from }) => !left.has(storedTensor(from) as SourceTensor));
  const notes = quantizedBefore(weights.map(({ weight: { name } }) => ({ name, words: 'NVFP4' })));
  return { results: renumbered(rest), notes };
}

/** Chooses a type for each tensor. @param weights those in NVFP4 */
function converted(
  view: GgufView,
  tensors: ReturnType<typeof sorted>['results'],
  fileType: FileType,
  choices: GgufChoices,
  statistics: Statistics,
  weights: ReadonlyMap<SourceTensor, ScaledWeight>,
) {
  const { requantize = false } = choices;
  const hasImportance = statistics.importance !== undefined;
  const rest = { ...view, tensors: tensors.map(({ tensor }) => tensor) };
  const chooser = new Chooser(rest, fileType, choices, hasImportance);
  const known = new WeightStatistics(statistics, choices);
  const all = tensors.map(({ tensor, source, from: stored }): ResultTensor => {
    const { name, shape } = tensor;
    const choice = chooser.choose(tensor);
    if (choice.kept !== undefined) return { name, shape, ...choice, from: stored };
    const scaled = weights.get(storedTensor(stored) as SourceTensor);
    checkConvertible(source, choice.type, requantize, scaled);
    // Read it with its scale.
    const from = scaled === undefined || stored instanceof Uint8Array ? stored : { ...stored, source: scaled.weight };
    const { type } = choice;
    const weight = measuredWeight(source);
    // Casts do not depend on importance, but their errors are weighted by it.
    const importance = isCastType(type) ? known.seen(weight) : known.importanceOf(weight);
    const feedback = isBlockType(type)
      ? known.feedbackOf(weight, importance !== undefined && hasFeedback(type))
      : undefined;
    const moments = known.momentsOf(weight);
    const result = { name, shape, ...choice, from, importance, feedback, moments };
    checkImportance(result, fileType, hasImportance);
    return result;
  });
  const { results, notes } = withoutScales(all, weights);
  const scaled = results.flatMap((result) =>
    result.type === 'NVFP4' && result.kept === undefined ? [result, scaleOf(result)] : [result],
  );
  return { results: scaled, notes: [...notes, ...known.notes()] };
}

/**
 * Plans the result of llama-quantize for a file, or copies of its tensors. Splits are those of gguf-split.
 * @param sources source of each tensor if the model was converted: a tensor to read, or computed bytes
 * @throws ScalepointError `UNSUPPORTED_DTYPE` if a tensor cannot be converted, or is quantized already; RangeError if the metadata cannot
 *   be edited, or if the target requires an importance matrix; `BAD_FILE` if the matrix does not fit
 */
export function planGguf(
  view: GgufView,
  choices: GgufChoices,
  partsOf: PartsOf,
  sources?: readonly (LogicalTensor | Uint8Array<ArrayBuffer>)[],
  statistics: Statistics = {},
): FilePlan {
  const { to, metadata } = choices;
  if (sources === undefined && choices.mmproj === true)
    throw rangeError('mmproj', { kind: 'onlyFor', files: 'folders with a vision tower' }, true);
  if (sources !== undefined && choices.keepSplit === true)
    throw rangeError('keepSplit', { kind: 'onlyFor', files: 'GGUF files' }, true);
  let read = 0;
  const own = sources === undefined ? view.tensors.map((tensor): SourceTensor => ({ file: 0, ...tensor })) : [];
  const tensors = view.tensors.map((tensor, i): Sourced => {
    const source = sources === undefined ? plainTensor(own[i] as SourceTensor) : sources[i];
    return { tensor, from: source instanceof Uint8Array ? source : { source: source as LogicalTensor, index: read++ } };
  });
  // llama-quantize pads to 32 regardless of the file. Copies keep the file's alignment.
  if (to === 'copy') {
    const pairs = edited(withoutSplits(view.pairs), view, metadata);
    return planResult(pairs, copies(tensors), partsOf, { choices, alignment: view.alignment });
  }
  const fileType = fileTypeOf(to);
  checkScaled(fileType, view.metadata['general.architecture']);
  const { results: left, layers, notes: missing } = sorted(tensors, choices);
  const set = edited(pairsOf(view, fileType), view, metadata);
  const pairs = withLayers(withImportance(set, statistics.importance), view, layers);
  const { results, notes } = converted(view, left, fileType, choices, statistics, scaledWeights(own));
  const plan = planResult(pairs, results, partsOf, { choices });
  const file = results.some(({ moments }) => moments !== undefined) ? { moments: statistics.moments?.file } : {};
  return { ...plan, ...file, notes: [...plan.notes, ...missing, ...notes] };
}

/**
 * Plans GGUF results as llama-quantize makes them: types and order of the tensors, and the metadata, all from the header.
 * Reference: github.com/ggml-org/llama.cpp, src/llama-quant.cpp at 007dbbf. Tests compare with v0.5.0.
 */
import { blockTypeInfo, hasFeedback, isBlockType } from '../../core/blocks.js';
import { rangeError, ScalepointError } from '../../core/errors.js';
import { type Hint, mention } from '../../core/option-problem.js';
import { elementsOf } from '../codecs/elements.js';
import { quoted } from '../files/bytes.js';
import type { FilePlan, LogicalTensor, PartsOf, SourceTensor } from '../format.js';
import { keepHint, ruleFor } from '../options.js';
import { type Reason, rankReason, reasons } from '../reason.js';
import type { ImportanceMatrix, Statistics } from '../statistics.js';
import { compareNames, partName, plainTensor, quantizedBefore } from '../tensors.js';
import { WeightStatistics } from '../weight-statistics.js';
import { type GgufPair, type GgufTensor, ggmlType } from './contents.js';
import { edited } from './edits.js';
import type { GgufHeader } from './header.js';
import { fallback, layerNumber, mixtureTypes } from './mixture.js';
import { checkScaled, type ScaledWeight, scaledWeights, scalePart } from './nvfp4.js';
import type { GgufChoices } from './options.js';
import { pairOf, u32Pair, withoutSplits } from './pairs.js';
import { pruned, withLayers } from './prune.js';
import { keptNames, outputReason } from './reasons.js';
import { type Choice, planResult, type ResultTensor } from './result.js';
import {
  type AdapterTarget,
  aliases,
  type FileType,
  fileTypes,
  type GgufTarget,
  isCastType,
  type TargetType,
} from './targets.js';

/** True for weights that are codes and can be restored. */
const isCodedWeight = (dtype: string) => isBlockType(dtype) || dtype === 'NVFP4';

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
  if (!isCastType(dtype) && !isCodedWeight(dtype)) {
    fail(`${dtype} cannot be converted to ${type}`, keepHint);
  }
  if (!isCastType(type) && isCodedWeight(dtype) && !requantize) {
    fail(`it is quantized already, as ${dtype}`, {
      kind: 'try',
      option: mention('requantize', true),
      effect: 'quantizes it again, which adds to its errors',
    });
  }
}

/** Types for which llama-quantize requires importance, because the errors would be too large without it. */
const demanding: readonly string[] = ['IQ1_S', 'IQ1_M', 'IQ2_XXS', 'IQ2_XS', 'IQ2_S', 'IQ3_XXS'];

/** Fails where llama-quantize requires importance. It does not for embeddings and the output, if ggml can do without. */
function requireImportance({ name, type, importance }: ResultTensor, to: FileType, given: boolean): void {
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

/** Chooses the type of a tensor. @param mixed chooses it by the mixture, and counts tensors */
function typeChoice(
  tensor: GgufTensor,
  fileType: FileType,
  choices: GgufChoices,
  mixed: ReturnType<typeof mixtureTypes>,
): Choice {
  const { name, dtype, shape } = tensor;
  const { pure = false, rules = [], leaveOutputTensor } = choices;
  const kept = (reason: Reason) => ({ type: dtype, kept: reason });
  if (leaveOutputTensor === true && name === 'output.weight') return kept(outputReason);
  // ggml ignores dimensions of 1 at the end of its order.
  if (shape.slice(0, -1).every((dimension) => dimension <= 1)) return kept(rankReason(1));
  // llama-quantize also accepts every name of 5 bytes: it compares the position of "weight", -1 if missing, with the length minus 6.
  if (!name.endsWith('weight') && new TextEncoder().encode(name).length !== 5) return kept(reasons.notWeight);
  const known = keptNames.find(([, pattern]) => pattern.test(name));
  if (known !== undefined) return kept(known[0]);
  const rule = ruleFor(rules, name);
  if (rule?.keep === true) return kept(reasons.rule);
  let type: TargetType = fileTypes[fileType].base;
  if (rule?.to !== undefined) type = rule.to as TargetType;
  else if (!pure && !isCastType(type)) type = mixed(tensor);
  const fitting = fallback(type, shape);
  if (fitting === undefined) throw unfitError(tensor, type, `, and ${type} has no replacement`);
  if (fitting !== type && choices.fallback === false) throw unfitError(tensor, type);
  const unfit = fitting === type ? {} : { unfit: type };
  return fitting === dtype ? { type: fitting, kept: reasons.sameType, ...unfit } : { type: fitting, ...unfit };
}

/** Longest text of a key about importance: llama-quantize keeps 128 bytes with a final 0. */
const mostTextBytes = 127;

/** The pairs, with those that llama-quantize adds for an importance matrix. */
function withImportance(pairs: readonly GgufPair[], matrix: ImportanceMatrix | undefined): readonly GgufPair[] {
  if (matrix === undefined) return pairs;
  const { file, dataset, entries, chunks } = matrix;
  const texts = Object.entries({ file, dataset }).flatMap(([end, value]): GgufPair[] => {
    if (value === undefined) return [];
    const { key, bytes } = pairOf({ name: `quantize.imatrix.${end}`, type: 'string', value });
    const excess = new TextEncoder().encode(value).length - mostTextBytes;
    if (excess <= 0) return [{ key, bytes }];
    const cut = bytes.slice(0, bytes.length - excess);
    new DataView(cut.buffer).setBigUint64(cut.length - mostTextBytes - 8, BigInt(mostTextBytes), true);
    return [{ key, bytes: cut }];
  });
  const own = [
    ...texts,
    u32Pair('quantize.imatrix.entries_count', entries.size),
    ...(chunks > 0 ? [u32Pair('quantize.imatrix.chunks_count', chunks)] : []),
  ];
  const set = own.map(({ key }) => key);
  return [...pairs.filter(({ key }) => !set.includes(key)), ...own];
}

/** Resolves aliases of a target. */
export function fileTypeOf(to: Exclude<GgufTarget, 'copy' | AdapterTarget>): FileType {
  return to in aliases ? aliases[to as keyof typeof aliases] : (to as FileType);
}

/** The members of a header that a plan reads. Models converted from other formats provide them, too. */
export type GgufView = Pick<GgufHeader, 'tensors' | 'metadata' | 'pairs' | 'alignment'>;

/** A tensor, and its source. */
interface Sourced {
  readonly tensor: GgufTensor;
  readonly from: ResultTensor['from'];
}

/** The tensors in the order of the result, without pruned layers: sorted by layer and name; with `keepSplit`, in the order of the files. */
function inResultOrder(tensors: readonly Sourced[], choices: GgufChoices) {
  const placed = tensors.map((one) => ({ ...one, layer: layerNumber(one.tensor.name) }));
  if (choices.keepSplit === true)
    placed.sort(({ tensor: a }, { tensor: b }) => (a.file ?? 0) - (b.file ?? 0) || a.byteOffset - b.byteOffset);
  else placed.sort((a, b) => a.layer - b.layer || compareNames(a.tensor.name, b.tensor.name));
  const origins = new Map(placed.map(({ tensor, from }) => [tensor, from]));
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

/** The stored tensor of a source that is one alone. */
function storedTensor(from: ResultTensor['from']): SourceTensor | undefined {
  return from instanceof Uint8Array ? undefined : from.source.parts[0]?.tensor;
}

/** Chooses a type for each tensor. @param given choices, statistics, and the weights in NVFP4 */
function converted(
  view: GgufView,
  tensors: ReturnType<typeof inResultOrder>['results'],
  fileType: FileType,
  given: { choices: GgufChoices; statistics: Statistics; weights: ReadonlyMap<SourceTensor, ScaledWeight> },
) {
  const { choices, statistics, weights } = given;
  const { requantize = false } = choices;
  const hasImportance = statistics.importance !== undefined;
  const mixed = mixtureTypes({ ...view, tensors: tensors.map(({ tensor }) => tensor) }, fileType, hasImportance);
  const known = new WeightStatistics(statistics, choices);
  const all = tensors.map(({ tensor, source, from: stored }): ResultTensor => {
    const { name, shape } = tensor;
    const choice = typeChoice(tensor, fileType, choices, mixed);
    if (choice.kept !== undefined) return { name, shape, ...choice, from: stored };
    const scaled = weights.get(storedTensor(stored) as SourceTensor);
    checkConvertible(source, choice.type, requantize, scaled);
    // Read it with its scale.
    const from = scaled === undefined || stored instanceof Uint8Array ? stored : { ...stored, source: scaled.weight };
    const { type } = choice;
    // A tensor, as statistics describe it. Experts are consecutive matrices.
    const weight = {
      name: source.name,
      columns: source.shape.at(-1) ?? 1,
      matrices: source.shape.at(-3) ?? 1,
      isTable: source.name === 'token_embd.weight' || source.name === 'per_layer_token_embd.weight',
    };
    // Casts do not depend on importance, but their errors are weighted by it.
    const importance = isCastType(type) ? known.seen(weight) : known.importanceOf(weight);
    const feedback =
      isBlockType(type) || type === 'NVFP4'
        ? known.feedbackOf(weight, importance !== undefined && (type === 'NVFP4' || hasFeedback(type)))
        : undefined;
    const moments = known.momentsOf(weight);
    const divergence = known.divergenceOf(weight);
    const result = { name, shape, ...choice, from, importance, feedback, moments, divergence };
    requireImportance(result, fileType, hasImportance);
    return result;
  });
  // Leave out scales of weights that are stored in another type, since readers would apply them once more.
  const restored = all.flatMap(({ from, kept }) =>
    kept === undefined ? (weights.get(storedTensor(from) as SourceTensor) ?? []) : [],
  );
  const scales = new Set(restored.flatMap(({ beside }) => beside));
  const left =
    scales.size === 0 ? all : renumbered(all.filter(({ from }) => !scales.has(storedTensor(from) as SourceTensor)));
  // Add the scales of weights that become NVFP4, one for each matrix.
  const results = left.flatMap((result): ResultTensor[] => {
    const { name, shape, type, kept, from } = result;
    if (type !== 'NVFP4' || kept !== undefined) return [result];
    const matrices = elementsOf(shape.slice(0, -2));
    const scale = { name: partName(name, scalePart), shape: [matrices], type: 'F32', from, role: 'globalScale' };
    return [result, scale];
  });
  const notes = quantizedBefore(restored.map(({ weight: { name } }) => ({ name, words: 'NVFP4' })));
  return { results, notes: [...notes, ...known.notes()] };
}

/**
 * Plans the result of llama-quantize for a file, or copies of its tensors. Splits are those of gguf-split.
 * @param given statistics, and the source of each tensor if the model was converted: a tensor to read, or computed bytes
 * @throws ScalepointError `UNSUPPORTED_DTYPE` if a tensor cannot be converted, or is quantized already; RangeError if the metadata cannot
 *   be edited, or if the target requires an importance matrix; `BAD_FILE` if the matrix does not fit
 */
export function planGguf(
  view: GgufView,
  choices: GgufChoices,
  partsOf: PartsOf,
  given: {
    readonly sources?: readonly (LogicalTensor | Uint8Array<ArrayBuffer>)[];
    readonly statistics?: Statistics;
  } = {},
): FilePlan {
  const { sources, statistics = {} } = given;
  const { to, metadata } = choices;
  if (sources === undefined && choices.mmproj === true)
    throw rangeError('mmproj', { kind: 'onlyFor', files: 'folders with a vision tower' }, true);
  if (sources !== undefined && choices.keepSplit === true)
    throw rangeError('keepSplit', { kind: 'onlyFor', files: 'GGUF files' }, true);
  if (to === 'lora-gguf')
    throw rangeError('to', { kind: 'onlyFor', files: 'folders of models together with an adapter (lora)' }, to);
  let read = 0;
  const own = sources === undefined ? view.tensors.map((tensor): SourceTensor => ({ file: 0, ...tensor })) : [];
  const tensors = view.tensors.map((tensor, i): Sourced => {
    const source = sources === undefined ? plainTensor(own[i] as SourceTensor) : sources[i];
    return { tensor, from: source instanceof Uint8Array ? source : { source: source as LogicalTensor, index: read++ } };
  });
  // llama-quantize pads to 32 regardless of the file. Copies keep the file's alignment.
  if (to === 'copy') {
    const pairs = edited(withoutSplits(view.pairs), view, metadata);
    const copies = tensors.map(({ tensor: { name, shape, dtype }, from }) => {
      return { name, shape, type: dtype, kept: reasons.copy, from };
    });
    return planResult(pairs, copies, partsOf, { choices, alignment: view.alignment });
  }
  const fileType = fileTypeOf(to);
  checkScaled(fileType, view.metadata['general.architecture']);
  const { results: left, layers, notes: missing } = inResultOrder(tensors, choices);
  const replaced = ['general.quantization_version', 'general.file_type'];
  const versioned = [
    ...withoutSplits(view.pairs).filter(({ key }) => !replaced.includes(key)),
    u32Pair('general.quantization_version', 2),
    u32Pair('general.file_type', fileTypes[fileType].id),
  ];
  const set = edited(versioned, view, metadata);
  const pairs = withLayers(withImportance(set, statistics.importance), view, layers);
  const { results, notes } = converted(view, left, fileType, { choices, statistics, weights: scaledWeights(own) });
  const plan = planResult(pairs, results, partsOf, { choices });
  const file = results.some(({ moments }) => moments !== undefined) ? { moments: statistics.moments?.file } : {};
  return { ...plan, ...file, notes: [...plan.notes, ...missing, ...notes] };
}

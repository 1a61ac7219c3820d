/**
 * Plans GGUF results as llama-quantize makes them: the types of the tensors, their order, and the metadata. Everything follows from the
 * header.
 * Reference: github.com/ggml-org/llama.cpp, src/llama-quant.cpp.
 */
import type { CastForm } from '../../codecs/cast.js';
import { type GgmlForm, ggmlForm } from '../../codecs/ggml.js';
import { type BlockType, isBlockType } from '../../core/blocks.js';
import { rangeError, ScalepointError } from '../../core/errors.js';
import { quoted } from '../../files/bytes.js';
import type { FilePlan, OutputFile, PartsOf, PlannedTensor, Segment } from '../format.js';
import { keepMention, type PlanChoices, ruleFor } from '../options.js';
import { largeNote, shardLimit, shardSuffix, shardsOf } from '../shards.js';
import { compareNames, convertedTensor, keptTensor } from '../tensors.js';
import { edited } from './edits.js';
import { defaultAlignment, type GgufHeader, type GgufPair, type GgufTensor } from './header.js';
import { Importance, type ImportanceMatrix, withImportance } from './importance.js';
import { layoutGguf, u32Pair } from './layout.js';
import { fallback, layerOf, Mixture } from './mixture.js';
import {
  aliases,
  type FileType,
  fileTypes,
  fixAlignmentMention,
  type GgufOptions,
  type GgufTarget,
  importanceMention,
  isCastType,
  requantizeMention,
  type TargetType,
} from './options.js';
import { pruned, withLayers } from './prune.js';
import { mostSplits, splitPairs, storedSize, withoutSplits } from './splits.js';
import { ggmlBytes, ggmlType } from './types.js';

// ------------------------------------------------------------------------------------------------------------------- what is kept

/** Names of tensors that are never converted. The first pattern that matches gives the reason. */
const keptNames: readonly [reason: string, name: RegExp][] = [
  ['norm', /_norm\.weight/],
  ['router', /ffn_gate_inp\.weight|ffn_gate_tid2eid\.weight/],
  ['small weight', /altup|laurel|indexer\.[kq]_proj\.weight/],
  ['per-layer projection', /per_layer_model_proj/],
  ['position embedding', /^position_embd\.weight$|\.position_embd|sam\.pos_embd/],
  ['token type embedding', /^token_types\.weight$/],
  ['convolution', /ssm_conv1d|shortconv\.conv\.weight/],
  ['time mixing', /time_mix_(first|[wva][012]|g[12]|decay_w[12]|lerp_fused)\.weight/],
  ['position bias', /attn_rel_b\.weight|\.rel_pos/],
  ['vision', /sam\.neck\.|sam\.net_|\.patch_embd|\.patch_merger/],
  ['codebook', /a\.rvq\.codebook|mm\.a\.code_embd/],
];

/** Why llama-quantize keeps a tensor; undefined if it converts it. */
function keptReason({ name, shape }: GgufTensor): string | undefined {
  // ggml ignores dimensions of 1 at the end of its order.
  if (shape.slice(0, -1).every((dimension) => dimension <= 1)) return '1-D';
  // llama-quantize also accepts every name of 5 bytes: it compares the position of "weight", -1 if there is none, with the length minus 6.
  if (!name.endsWith('weight') && new TextEncoder().encode(name).length !== 5) return 'not a weight';
  return keptNames.find(([, pattern]) => pattern.test(name))?.[0];
}

// -------------------------------------------------------------------------------------------------------------------------- plan

/** The type of a tensor in the result, and why it is kept if it is. */
interface Choice {
  readonly type: string;
  readonly kept?: string;
}

/** The form of a tensor that is converted. @throws ScalepointError `UNSUPPORTED_DTYPE` */
function formTo(tensor: GgufTensor, type: string, requantize: boolean, importance: Importance): CastForm | GgmlForm {
  const { name, dtype, byteOffset } = tensor;
  const fail = (message: string): never => {
    throw new ScalepointError('UNSUPPORTED_DTYPE', `tensor ${quoted(name)}: ${message}`, { tensor: name, byteOffset });
  };
  if (!isCastType(dtype) && !isBlockType(dtype)) {
    fail(`${dtype} cannot be converted to ${type}; ${keepMention} copies it`);
  }
  if (isCastType(type)) return { codec: 'cast', to: type };
  if (isBlockType(dtype) && !requantize) {
    fail(`it is quantized already, as ${dtype}; ${requantizeMention} quantizes it again, which adds to its errors`);
  }
  return ggmlForm(type as BlockType, importance.of(tensor));
}

/** The pairs of the result: those of the input without the ones about splitting, then the version and type of the quantization. */
function pairsOf({ pairs }: GgufHeader, fileType: FileType): GgufPair[] {
  const replaced = ['general.quantization_version', 'general.file_type'];
  return [
    ...withoutSplits(pairs).filter(({ key }) => !replaced.includes(key)),
    u32Pair('general.quantization_version', 2),
    u32Pair('general.file_type', fileTypes[fileType].id),
  ];
}

/** Fails where llama-quantize asks for importance, because a result without it would be worth nothing. */
function checkImportance({ tensor, choice }: Placed, form: CastForm | GgmlForm, to: GgufTarget, given: boolean): void {
  const { name, byteOffset } = tensor;
  const isFree = /^(output|(per_layer_)?token_embd)\.weight$/.test(name);
  if (to !== 'Q2_K_S' || choice.type !== 'Q2_K' || isFree || ('importance' in form && form.importance !== undefined))
    return;
  if (!given) throw rangeError('to', `${to} takes an importance matrix, ${importanceMention}`);
  const message = `the importance matrix has no numbers for tensor ${quoted(name)}, which ${to} does not work without`;
  throw new ScalepointError('BAD_FILE', message, { tensor: name, byteOffset });
}

/** Chooses the type of each tensor. */
class Chooser {
  readonly #choices: GgufChoices;
  readonly #base: TargetType;
  readonly #mixture: Mixture;

  constructor(header: GgufHeader, fileType: FileType, choices: GgufChoices, hasImportance: boolean) {
    this.#choices = choices;
    this.#base = fileTypes[fileType].base;
    this.#mixture = new Mixture(header, fileType, hasImportance);
  }

  choose(tensor: GgufTensor): Choice {
    const { name, dtype, shape } = tensor;
    const { pure = false, rules = [] } = this.#choices;
    const isLeft = this.#choices.leaveOutputTensor === true && name === 'output.weight';
    const kept = isLeft ? 'output' : keptReason(tensor);
    if (kept !== undefined) return { type: dtype, kept };
    const rule = ruleFor(rules, name);
    if (rule?.keep === true) return { type: dtype, kept: 'rule' };
    let type: TargetType = this.#base;
    if (rule?.to !== undefined) type = rule.to as TargetType;
    else if (!pure && !isCastType(type)) type = this.#mixture.typeOf(tensor);
    const fitting = fallback(type, shape);
    if (fitting === undefined) {
      const { elements } = ggmlType(type);
      const message = `rows of ${shape.at(-1)} hold no whole number of ${type}'s blocks of ${elements}, and nothing replaces it`;
      throw new ScalepointError('UNSUPPORTED_DTYPE', `tensor ${quoted(name)}: ${message}; ${keepMention} copies it`, {
        tensor: name,
        byteOffset: tensor.byteOffset,
      });
    }
    return fitting === dtype ? { type: fitting, kept: 'same type' } : { type: fitting };
  }
}

/** The note about an alignment that is stated but does not hold. */
function alignmentNote(stated: number): string {
  return (
    `general.alignment says ${stated}, but llama-quantize pads to 32, and so does this file: llama.cpp will not find its ` +
    `tensors. ${fixAlignmentMention} states 32`
  );
}

/** What decides about a GGUF result, after it has been checked. */
export type GgufChoices = PlanChoices<GgufOptions, GgufTarget>;

/** A tensor of the result, and which one of the input it is. */
interface Placed {
  readonly tensor: GgufTensor;
  /** In the input, where its layer may have another number. */
  readonly source: GgufTensor;
  readonly index: number;
  readonly choice: Choice;
}

/** The tensors in the order of the result, which is that of layers and names; copies keep the order of the input. */
function placedTensors(
  header: GgufHeader,
  choices: GgufChoices,
  hasImportance: boolean,
): { placed: Placed[]; fileType: FileType | undefined; layers: number | undefined } {
  const { to } = choices;
  if (to === 'copy') {
    const copies = header.tensors.map((tensor, index) => ({
      tensor,
      source: tensor,
      index,
      choice: { type: tensor.dtype, kept: 'copy' },
    }));
    return { placed: copies, fileType: undefined, layers: undefined };
  }
  const fileType: FileType = to in aliases ? aliases[to as keyof typeof aliases] : (to as FileType);
  const sorted = header.tensors
    .map((tensor) => ({ tensor, layer: layerOf(tensor.name) }))
    .sort((a, b) => a.layer - b.layer || compareNames(a.tensor.name, b.tensor.name))
    .map(({ tensor }) => tensor);
  const { tensors, layers } = pruned(sorted, choices.pruneLayers);
  // The plan lists what is left in the order of the input.
  const left = new Set(tensors.map(({ source }) => source));
  const indexes = new Map(header.tensors.filter((tensor) => left.has(tensor)).map((tensor, index) => [tensor, index]));
  const rest = { ...header, tensors: tensors.map(({ tensor }) => tensor) };
  const chooser = new Chooser(rest, fileType, choices, hasImportance);
  const placed = tensors.map(({ tensor, source }) => {
    return { tensor, source, index: indexes.get(source) as number, choice: chooser.choose(tensor) };
  });
  return { placed, fileType, layers };
}

const extension = '.gguf';

/** What tensors take in the result. */
function sizesOf(placed: readonly Placed[]): number[] {
  return placed.map(({ tensor: { shape }, choice }) => storedSize(ggmlBytes(ggmlType(choice.type), shape) ?? 0));
}

/** Where each file of the result begins in the list of its tensors; undefined if it is one file without a number. */
function beginsOf(placed: readonly Placed[], choices: GgufChoices): readonly number[] | undefined {
  const sizes = sizesOf(placed);
  if (choices.splitTensors !== undefined) {
    return shardsOf(sizes, Number.POSITIVE_INFINITY, choices.splitTensors, mostSplits);
  }
  const limit = shardLimit(choices, sizes);
  return limit === undefined ? undefined : shardsOf(sizes, limit, undefined, mostSplits);
}

/** Lays out the files of a result. The first one has the metadata. */
function layOut(
  header: GgufHeader,
  pairs: readonly GgufPair[],
  placed: readonly Placed[],
  choices: GgufChoices,
): { files: OutputFile[]; wrongAlignment: number | undefined } {
  const { to, fixAlignment = false } = choices;
  // llama-quantize pads to 32 whatever the file states. Copies are as they were.
  const alignment = to === 'copy' ? header.alignment : defaultAlignment;
  const begins = beginsOf(placed, choices);
  let wrongAlignment: number | undefined;
  const files = (begins ?? [0]).map((begin, i, all): OutputFile => {
    const some = placed.slice(begin, all[i + 1]);
    const own = [...(i === 0 ? pairs : []), ...(begins === undefined ? [] : splitPairs(i, all.length, placed.length))];
    const entries = some.map(({ tensor: { name, shape }, choice }) => ({ name, dtype: choice.type, shape }));
    const layout = layoutGguf(own, entries, fixAlignment, i === 0 ? alignment : defaultAlignment);
    wrongAlignment ??= layout.wrongAlignment;
    const segments: Segment[] = [{ at: 0, bytes: layout.header }];
    for (const [j, { index }] of some.entries()) {
      segments.push({ at: (layout.tensors[j] as GgufTensor).byteOffset, tensor: index, role: 'data' });
    }
    const name =
      begins === undefined ? { suffix: '' } : { suffix: shardSuffix(i, all.length, extension), replaces: extension };
    return { ...name, size: layout.size, segments };
  });
  return { files, wrongAlignment };
}

/**
 * Plans what llama-quantize would make of a file, or copies of its tensors. The result is split as by gguf-split.
 * @throws ScalepointError `UNSUPPORTED_DTYPE` if a tensor cannot be converted, or would be quantized again; RangeError if the metadata
 *   cannot be edited, or if the target takes an importance matrix; `BAD_FILE` if that does not fit
 */
export function planGguf(
  header: GgufHeader,
  choices: GgufChoices,
  partsOf: PartsOf,
  matrix?: ImportanceMatrix | undefined,
): FilePlan {
  const { to, requantize = false, metadata } = choices;
  const { placed, fileType, layers } = placedTensors(header, choices, matrix !== undefined);
  const importance = new Importance(matrix);
  const before = fileType === undefined ? withoutSplits(header.pairs) : pairsOf(header, fileType);
  const pairs = withLayers(withImportance(edited(before, header, metadata), matrix), header, layers);
  const { files, wrongAlignment } = layOut(header, pairs, placed, choices);
  const tensors: PlannedTensor[] = [];
  for (const one of placed) {
    const { tensor, index, choice } = one;
    const source = { file: 0, ...one.source };
    if (choice.kept !== undefined) tensors[index] = keptTensor(source, choice.kept);
    else {
      const form = formTo(one.source, choice.type, requantize, importance);
      checkImportance(one, form, to, matrix !== undefined);
      tensors[index] = convertedTensor(source, form, partsOf(tensor.shape, form));
    }
  }
  return {
    format: 'gguf',
    files,
    tensors,
    notes: [
      ...(wrongAlignment === undefined ? [] : [alignmentNote(wrongAlignment)]),
      ...importance.notes(),
      ...largeNote(
        choices,
        placed.map(({ tensor }) => tensor),
        sizesOf(placed),
      ),
    ],
    sidecars: [],
  };
}

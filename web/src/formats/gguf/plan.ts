/**
 * Plans GGUF results as llama-quantize makes them: the types of the tensors, their order, and the metadata. Everything follows from the
 * header.
 * Reference: github.com/ggml-org/llama.cpp, src/llama-quant.cpp, without an importance matrix.
 */
import type { CastForm } from '../../codecs/cast.js';
import type { GgmlForm } from '../../codecs/ggml.js';
import { type BlockType, isBlockType } from '../../core/blocks.js';
import { ScalepointError } from '../../core/errors.js';
import { quoted } from '../../files/bytes.js';
import type { FilePlan, PartsOf, PlannedTensor, Segment } from '../format.js';
import { keepMention, type PlanChoices, ruleFor } from '../options.js';
import { compareNames, convertedTensor, keptTensor } from '../tensors.js';
import type { GgufHeader, GgufPair, GgufTensor } from './header.js';
import { layoutGguf, u32Pair } from './layout.js';
import { fallback, layerOf, Mixture } from './mixture.js';
import {
  aliases,
  type FileType,
  fileTypes,
  fixAlignmentMention,
  type GgufOptions,
  type GgufTarget,
  isCastType,
  requantizeMention,
  type TargetType,
} from './options.js';
import { ggmlType } from './types.js';

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
function formTo({ name, dtype, byteOffset }: GgufTensor, type: string, requantize: boolean): CastForm | GgmlForm {
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
  return { codec: 'ggml', to: type as BlockType };
}

/** The pairs of the result: those of the input without the ones about splitting, then the version and type of the quantization. */
function pairsOf({ pairs }: GgufHeader, fileType: FileType): GgufPair[] {
  const replaced = [
    'general.quantization_version',
    'general.file_type',
    'split.no',
    'split.count',
    'split.tensors.count',
  ];
  return [
    ...pairs.filter(({ key }) => !replaced.includes(key)),
    u32Pair('general.quantization_version', 2),
    u32Pair('general.file_type', fileTypes[fileType].id),
  ];
}

/** Chooses the type of each tensor. */
class Chooser {
  readonly #choices: GgufChoices;
  readonly #base: TargetType;
  readonly #mixture: Mixture;

  constructor(header: GgufHeader, fileType: FileType, choices: GgufChoices) {
    this.#choices = choices;
    this.#base = fileTypes[fileType].base;
    this.#mixture = new Mixture(header, fileType);
  }

  choose(tensor: GgufTensor): Choice {
    const { name, dtype, shape } = tensor;
    const { pure = false, rules = [] } = this.#choices;
    const kept = keptReason(tensor);
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

/**
 * Plans what llama-quantize would make of a file. The tensors of the result are sorted by layer and name.
 * @throws ScalepointError `UNSUPPORTED_DTYPE` if a tensor cannot be converted, or would be quantized again; `UNKNOWN_FORMAT` if the file is
 *   one of several that make up a model
 */
export function planGguf(header: GgufHeader, choices: GgufChoices, partsOf: PartsOf): FilePlan {
  const { to, requantize = false, fixAlignment = false } = choices;
  const fileType: FileType = to in aliases ? aliases[to as keyof typeof aliases] : (to as FileType);
  const parts = header.metadata['split.count'];
  if (typeof parts === 'number' && parts > 1) {
    throw new ScalepointError(
      'UNKNOWN_FORMAT',
      `the file is one of ${parts} that make up a model; llama-gguf-split --merge joins them`,
    );
  }
  const chooser = new Chooser(header, fileType, choices);
  const sorted = header.tensors
    .map((tensor, index) => ({ tensor, index, layer: layerOf(tensor.name) }))
    .sort((a, b) => a.layer - b.layer || compareNames(a.tensor.name, b.tensor.name))
    .map(({ tensor, index }) => ({ tensor, index, choice: chooser.choose(tensor) }));
  const layout = layoutGguf(
    pairsOf(header, fileType),
    sorted.map(({ tensor: { name, shape }, choice }) => ({ name, dtype: choice.type, shape })),
    fixAlignment,
  );

  const tensors: PlannedTensor[] = [];
  const segments: Segment[] = [{ at: 0, bytes: layout.header }];
  for (const [i, { tensor, index, choice }] of sorted.entries()) {
    const source = { ...tensor, file: 0 };
    if (choice.kept !== undefined) tensors[index] = keptTensor(source, choice.kept);
    else {
      const form = formTo(tensor, choice.type, requantize);
      tensors[index] = convertedTensor(source, form, partsOf(tensor.shape, form));
    }
    segments.push({ at: (layout.tensors[i] as GgufTensor).byteOffset, tensor: index, role: 'data' });
  }
  const { wrongAlignment } = layout;
  return {
    format: 'gguf',
    files: [{ suffix: '', size: layout.size, segments }],
    tensors,
    notes: wrongAlignment === undefined ? [] : [alignmentNote(wrongAlignment)],
    sidecars: [],
  };
}

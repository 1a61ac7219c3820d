/**
 * Plans of GGUF results, as llama-quantize makes them: which tensor gets which type, in which order they come, and what becomes of
 * the metadata. Everything follows from the header.
 * Reference: github.com/ggml-org/llama.cpp, src/llama-quant.cpp, without an importance matrix.
 */

import { type BlockType, blockTypes, isBlockType } from '../../core/blocks.js';
import { ScalepointError } from '../../core/errors.js';
import { show } from '../../core/show.js';
import { quoted } from '../../files/bytes.js';
import type { CastType, Conversion, FilePlan, PlannedTensor, Rule } from '../../pipeline/plan.js';
import { ruleFor } from '../../pipeline/plan.js';
import { compareNames } from '../safetensors/header.js';
import { type GgufHeader, type GgufPair, type GgufTensor, ggmlType, layoutGguf, u32Pair } from './header.js';

/** A type that tensors are converted to. */
type TargetType = CastType | BlockType;

/** File types of llama-quantize: its number of each (llama_ftype), and the type that most tensors get. */
const fileTypes = {
  Q8_0: { id: 7, base: 'Q8_0' },
  Q4_0: { id: 2, base: 'Q4_0' },
  Q4_1: { id: 3, base: 'Q4_1' },
  Q5_0: { id: 8, base: 'Q5_0' },
  Q5_1: { id: 9, base: 'Q5_1' },
  Q2_K: { id: 10, base: 'Q2_K' },
  Q3_K_S: { id: 11, base: 'Q3_K' },
  Q3_K_M: { id: 12, base: 'Q3_K' },
  Q3_K_L: { id: 13, base: 'Q3_K' },
  Q4_K_S: { id: 14, base: 'Q4_K' },
  Q4_K_M: { id: 15, base: 'Q4_K' },
  Q5_K_S: { id: 16, base: 'Q5_K' },
  Q5_K_M: { id: 17, base: 'Q5_K' },
  Q6_K: { id: 18, base: 'Q6_K' },
  IQ4_NL: { id: 25, base: 'IQ4_NL' },
  F16: { id: 1, base: 'F16' },
  BF16: { id: 32, base: 'BF16' },
  F32: { id: 0, base: 'F32' },
} as const satisfies Readonly<Record<string, { id: number; base: TargetType }>>;
type FileType = keyof typeof fileTypes;

/** Short names, which mean the same on llama-quantize's command line. */
const aliases = { Q3_K: 'Q3_K_M', Q4_K: 'Q4_K_M', Q5_K: 'Q5_K_M' } as const satisfies Readonly<
  Record<string, FileType>
>;

/** What a GGUF file can become. */
export const ggufTargets: readonly FileType[] = Object.freeze(Object.keys(fileTypes) as FileType[]);

/** A target of a GGUF result: a file type, or Q3_K, Q4_K or Q5_K for its M form. */
export type GgufTarget = FileType | keyof typeof aliases;

/** Whether this is a target of a GGUF result. */
export function isGgufTarget(value: unknown): value is GgufTarget {
  return typeof value === 'string' && (Object.hasOwn(fileTypes, value) || Object.hasOwn(aliases, value));
}

/** What decides about a GGUF result, beside its target. */
export interface GgufOptions {
  /** Every weight in the type of the target, without the mixture. @defaultValue false */
  readonly pure?: boolean | undefined;
  /** Whether weights that are quantized already may be quantized again, which adds to their errors. @defaultValue false */
  readonly requantize?: boolean | undefined;
  /**
   * llama-quantize pads to 32 bytes and copies `general.alignment` as it is. Where that says something else, programs look for the
   * tensors in the wrong places: true states 32, false gives the same bytes as llama-quantize, and a note.
   * @defaultValue false
   */
  readonly fixAlignment?: boolean | undefined;
  /** Types of single tensors. They do not reach what llama.cpp needs in floats: norms, 1-D tensors and the like. @defaultValue none */
  readonly rules?: readonly Rule[] | undefined;
}

const castTypes: readonly CastType[] = ['F32', 'F16', 'BF16'];
const isCastType = (dtype: string): dtype is CastType => castTypes.includes(dtype as CastType);

// ---------------------------------------------------------------------------------------------------------------------- options

function checkOptions(to: unknown, { pure, requantize, fixAlignment, rules }: GgufOptions): void {
  if (!isGgufTarget(to))
    throw new RangeError(`to: expected one of ${ggufTargets.join(', ')} for GGUF, got ${show(to)}`);
  for (const [name, value] of Object.entries({ pure, requantize, fixAlignment })) {
    if (value !== undefined && typeof value !== 'boolean') {
      throw new TypeError(`${name}: expected true or false, got ${show(value)}`);
    }
  }
  if (rules === undefined) return;
  if (!Array.isArray(rules)) throw new TypeError(`rules: expected an array, got ${show(rules)}`);
  for (const [i, rule] of rules.entries()) {
    const { match, keep, to: type, granularity } = (rule ?? {}) as Record<string, unknown>;
    if (!(match instanceof RegExp)) throw new TypeError(`rules[${i}].match: expected a RegExp, got ${show(match)}`);
    if (keep !== undefined && typeof keep !== 'boolean') {
      throw new TypeError(`rules[${i}].keep: expected true or false, got ${show(keep)}`);
    }
    if ((keep === true) === (type !== undefined)) {
      throw new RangeError(
        `rules[${i}]: expected keep: true or a type in to, got keep: ${show(keep)}, to: ${show(type)}`,
      );
    }
    if (type !== undefined && !(typeof type === 'string' && (isCastType(type) || isBlockType(type)))) {
      const types = [...castTypes, ...blockTypes].join(', ');
      throw new RangeError(`rules[${i}].to: expected one of ${types} for GGUF, got ${show(type)}`);
    }
    if (granularity !== undefined) {
      throw new RangeError(`rules[${i}].granularity: only for safetensors, got ${show(granularity)}`);
    }
  }
}

// ------------------------------------------------------------------------------------------------------------------- what is kept

/** What names say about tensors that are never converted; the first that matches gives the reason. */
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

/** Why llama-quantize leaves a tensor as it is, if it does. */
function keptReason({ name, shape }: GgufTensor): string | undefined {
  // ggml counts dimensions up to the last that is not 1.
  if (shape.slice(0, -1).every((dimension) => dimension <= 1)) return '1-D';
  // llama-quantize takes every name of 5 bytes for a weight as well: it subtracts 6 from the length and compares with "not found", -1.
  if (!name.endsWith('weight') && new TextEncoder().encode(name).length !== 5) return 'not a weight';
  return keptNames.find(([, pattern]) => pattern.test(name))?.[0];
}

// ---------------------------------------------------------------------------------------------------------------------- mixture

/** Which part of a model a tensor is, by its name; the first that matches. */
const categories = [
  ['output', /^output\.weight$/],
  ['embedding', /^(per_layer_)?token_embd\.weight$/],
  ['value', /attn_qkv\.weight|attn_kv_b\.weight|attn_v\.weight/],
  ['key', /attn_k\.weight/],
  ['query', /attn_q\.weight/],
  ['attention output', /attn_output\.weight/],
  ['up', /ffn_up/],
  ['gate', /ffn_gate/],
  ['down', /ffn_down/],
] as const;
type Category = (typeof categories)[number][0];

function categoryOf(name: string): Category | undefined {
  return categories.find(([, pattern]) => pattern.test(name))?.[0];
}

/** What the mixture needs to know of a model. */
interface Model {
  readonly falcon: boolean;
  /** Heads of queries for each head of keys and values. */
  readonly groupedHeads: number;
  readonly experts: number;
  readonly layers: number;
  /** Whether llama.cpp takes it for one of 70 B parameters with grouped heads. */
  readonly is70B: boolean;
  /** Tensors of the category 'value'. */
  readonly values: number;
  /** Whether the embeddings serve as output layer, too. */
  readonly tied: boolean;
}

/** Told by the number of layers, differently for each architecture. */
function is70B(architecture: unknown, layers: number, grouped: boolean): boolean {
  switch (architecture) {
    case 'llama':
    case 'llama-embed':
      return layers === 80 && grouped;
    case 'qwen2':
    case 'deci':
    case 'olmo':
      return layers === 80;
    case 'jais2':
      return layers === 68;
    default:
      return false;
  }
}

function modelOf({ metadata, tensors }: GgufHeader): Model {
  const architecture = metadata['general.architecture'];
  const number = (key: string): number | undefined => {
    // llama.cpp reads none of these of a vision encoder.
    if (architecture === 'clip') return undefined;
    const value = metadata[`${architecture}.${key}`];
    // One number a layer: the first layer's counts.
    const list = Array.isArray(value) ? value : ((value as { first?: unknown } | undefined)?.first ?? [value]);
    const first: unknown = (list as readonly unknown[])[0];
    return typeof first === 'number' ? first : undefined;
  };
  const heads = number('attention.head_count') ?? 0;
  const headsKv = number('attention.head_count_kv') ?? heads;
  const layers = number('block_count') ?? 0;
  return {
    falcon: architecture === 'falcon',
    groupedHeads: headsKv === 0 ? 0 : Math.floor(heads / headsKv),
    experts: number('expert_count') ?? 0,
    layers,
    is70B: is70B(architecture, layers, heads !== headsKv),
    values: tensors.filter(({ name }) => categoryOf(name) === 'value').length,
    tied: !tensors.some(({ name }) => name === 'output.weight'),
  };
}

/** The layers that matter more: the first and last eighth, and every third between them. */
function isImportant(layer: number, layers: number): boolean {
  const eighth = Math.floor(layers / 8);
  return layer < eighth || layer >= Math.floor((7 * layers) / 8) || (layer - eighth) % 3 === 2;
}

/** The layer that a name tells, or -1. C's scanf reads the number, so that blanks and a sign may come before it. */
function layerOf(name: string): number {
  return Number(/^blk\.\s*([-+]?\d+)/.exec(name)?.[1] ?? -1);
}

/** llama-quantize's choice of types. Counts tensors, so that it has to see them in the order of the result. */
class Mixture {
  private readonly model: Model;
  private readonly fileType: FileType;
  private readonly base: TargetType;
  private valuesSeen = 0;
  private downsSeen = 0;

  constructor(model: Model, fileType: FileType) {
    this.model = model;
    this.fileType = fileType;
    this.base = fileTypes[fileType].base;
  }

  typeOf({ name, shape }: GgufTensor): TargetType {
    const category = categoryOf(name);
    switch (category) {
      case 'output':
        return this.output(shape);
      case 'embedding':
        return this.model.tied ? this.output(shape) : this.base;
      case 'value':
        return this.value(this.valuesSeen++);
      case 'key':
        return this.model.experts === 8 ? 'Q8_0' : this.base;
      case 'down': {
        const seen = this.downsSeen++;
        return this.down(this.model.experts > 1 ? layerOf(name) : seen);
      }
      case 'attention output':
        return this.attentionOutput();
      default:
        return this.base;
    }
  }

  private output(shape: readonly number[]): TargetType {
    if (this.model.falcon || !fits(this.base, shape)) return 'Q8_0';
    return this.base === 'Q8_0' ? 'Q8_0' : 'Q6_K';
  }

  private value(index: number): TargetType {
    const { groupedHeads, experts, is70B, values } = this.model;
    if (experts === 8) return 'Q8_0';
    let type = this.base;
    if (this.fileType === 'Q2_K') type = groupedHeads >= 4 ? 'Q4_K' : 'Q3_K';
    else if (this.fileType === 'Q3_K_M') type = index < 2 ? 'Q5_K' : 'Q4_K';
    else if (this.fileType === 'Q3_K_L') type = 'Q5_K';
    else if (this.fileType === 'IQ4_NL' && groupedHeads >= 4) type = 'Q5_K';
    else if (this.fileType === 'Q4_K_S' && index < 4) type = 'Q5_K';
    else if ((this.fileType === 'Q4_K_M' || this.fileType === 'Q5_K_M') && isImportant(index, values)) type = 'Q6_K';
    // Eight heads share these weights there: more bits cost little.
    return is70B && (type === 'Q3_K' || type === 'Q4_K') ? 'Q5_K' : type;
  }

  private down(layer: number): TargetType {
    const { falcon, layers } = this.model;
    const inFirst = (part: number) => layer < Math.floor(layers / part);
    switch (this.fileType) {
      case 'Q2_K':
        return 'Q3_K';
      case 'Q3_K_M':
        if (inFirst(16)) return 'Q5_K';
        return !falcon || isImportant(layer, layers) ? 'Q4_K' : 'Q3_K';
      case 'Q3_K_L':
        return falcon ? 'Q4_K' : 'Q5_K';
      case 'Q4_K_S':
        return !falcon && inFirst(8) ? 'Q5_K' : 'Q4_K';
      case 'Q4_K_M':
        if (!falcon) return isImportant(layer, layers) ? 'Q6_K' : 'Q4_K';
        if (inFirst(16)) return 'Q6_K';
        return isImportant(layer, layers) ? 'Q5_K' : 'Q4_K';
      case 'Q5_K_M':
        return isImportant(layer, layers) ? 'Q6_K' : 'Q5_K';
      case 'IQ4_NL':
        return inFirst(8) ? 'Q5_K' : 'IQ4_NL';
      default:
        return this.base;
    }
  }

  private attentionOutput(): TargetType {
    const { falcon, experts } = this.model;
    if (falcon) return this.fileType === 'Q3_K_L' ? 'Q4_K' : this.base;
    if (experts === 8) {
      const raised: readonly FileType[] = ['Q2_K', 'Q3_K_S', 'Q3_K_M', 'IQ4_NL', 'Q4_K_S', 'Q4_K_M'];
      return raised.includes(this.fileType) ? 'Q5_K' : this.base;
    }
    if (this.fileType === 'Q2_K') return 'Q3_K';
    if (this.fileType === 'Q3_K_M') return 'Q4_K';
    return this.fileType === 'Q3_K_L' ? 'Q5_K' : this.base;
  }
}

/** Types that take the place of those with blocks of 256 where rows are no multiple of that. */
const fallbacks: Readonly<Partial<Record<TargetType, BlockType>>> = {
  Q2_K: 'Q4_0',
  Q3_K: 'Q4_0',
  Q4_K: 'Q5_0',
  Q5_K: 'Q5_1',
  Q6_K: 'Q8_0',
};

/** Whether rows are whole blocks. */
function fits(type: TargetType, shape: readonly number[]): boolean {
  return (shape.at(-1) ?? 1) % ggmlType(type).elements === 0;
}

function fallback(type: TargetType, shape: readonly number[]): TargetType {
  if (fits(type, shape)) return type;
  const smaller = fallbacks[type];
  return smaller !== undefined && fits(smaller, shape) ? smaller : 'F16';
}

// -------------------------------------------------------------------------------------------------------------------------- plan

/** What becomes of a tensor: its new type, or its own with the reason. */
interface Choice {
  readonly type: string;
  readonly kept?: string;
}

function conversionTo(
  { name, dtype, byteOffset }: GgufTensor,
  { type, kept }: Choice,
  requantize: boolean,
): Conversion {
  if (kept !== undefined) return { kind: 'copy' };
  const fail = (message: string): never => {
    throw new ScalepointError('UNSUPPORTED_DTYPE', `tensor ${quoted(name)}: ${message}`, { tensor: name, byteOffset });
  };
  if (!isCastType(dtype) && !isBlockType(dtype)) {
    fail(`${dtype} cannot be converted to ${type}; a rule with keep: true copies it`);
  }
  if (isCastType(type)) return { kind: 'cast', to: type };
  if (isBlockType(dtype) && !requantize) {
    fail(`it is quantized already, as ${dtype}; requantize: true quantizes it again, which adds to its errors`);
  }
  return { kind: 'blocks', to: type as BlockType };
}

/** The pairs of the result: those of the input but for the split of the file, then what says how it was quantized. */
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

/**
 * Plans what llama-quantize would make of a file. Its tensors come by layers and names, whatever their order was.
 * @throws RangeError or TypeError naming the option; ScalepointError `UNSUPPORTED_DTYPE` if a tensor cannot be converted, or would be
 *   quantized again; `UNKNOWN_FORMAT` if the file is one of several that make up a model
 */
export function planGguf(header: GgufHeader, to: GgufTarget, options: GgufOptions = {}): FilePlan {
  checkOptions(to, options);
  const { pure = false, requantize = false, rules = [] } = options;
  const fileType: FileType = to in aliases ? aliases[to as keyof typeof aliases] : (to as FileType);
  const parts = header.metadata['split.count'];
  if (typeof parts === 'number' && parts > 1) {
    throw new ScalepointError(
      'UNKNOWN_FORMAT',
      `the file is one of ${parts} that make up a model; llama-gguf-split --merge joins them`,
    );
  }

  const { base } = fileTypes[fileType];
  const mixture = new Mixture(modelOf(header), fileType);
  const choose = (tensor: GgufTensor): Choice => {
    const { name, dtype, shape } = tensor;
    const keep = keptReason(tensor);
    if (keep !== undefined) return { type: dtype, kept: keep };
    const rule = ruleFor(rules, name);
    if (rule?.keep === true) return { type: dtype, kept: 'rule' };
    let type: TargetType = base;
    if (rule?.to !== undefined) type = rule.to as TargetType;
    else if (!pure && !isCastType(base)) type = mixture.typeOf(tensor);
    type = fallback(type, shape);
    return type === dtype ? { type, kept: 'same type' } : { type };
  };

  const sorted = header.tensors
    .map((tensor, index) => ({ tensor, index, layer: layerOf(tensor.name) }))
    .sort((a, b) => a.layer - b.layer || compareNames(a.tensor.name, b.tensor.name))
    .map(({ tensor, index }) => ({ tensor, index, choice: choose(tensor) }));
  const layout = layoutGguf(
    pairsOf(header, fileType),
    sorted.map(({ tensor: { name, shape }, choice }) => ({ name, dtype: choice.type, shape })),
    options.fixAlignment ?? false,
  );

  const tensors: PlannedTensor[] = [];
  for (const [i, { tensor, index, choice }] of sorted.entries()) {
    const placed = layout.tensors[i] as GgufTensor;
    tensors[index] = {
      source: { ...tensor, file: 0 },
      conversion: conversionTo(tensor, choice, requantize),
      parts: [{ role: 'data', ...placed }],
      ...(choice.kept === undefined ? {} : { kept: choice.kept }),
    };
  }
  const { wrongAlignment } = layout;
  const note =
    `general.alignment says ${wrongAlignment}, but llama-quantize pads to 32, and so does this file: llama.cpp will not find its ` +
    'tensors. fixAlignment states 32';
  return {
    tensors,
    header: layout.header,
    size: layout.size,
    ...(wrongAlignment === undefined ? {} : { notes: [note] }),
  };
}

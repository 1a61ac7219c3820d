/**
 * llama-quantize's mixture: tensors that matter more get more bits.
 * Reference: github.com/ggml-org/llama.cpp, src/llama-quant.cpp at 007dbbf, llama_tensor_get_type. Tests compare with v0.5.0.
 */
import type { BlockType } from '../../core/blocks.js';
import { partName } from '../tensors.js';
import { type GgufTensor, ggmlType } from './contents.js';
import type { GgufHeader } from './header.js';
import { hasScale, scalePart } from './nvfp4.js';
import { type FileType, fileTypes, type TargetType } from './targets.js';

/** Categories of tensors by their names. The first match decides. */
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

/** Category of a tensor; undefined if the mixture treats it like most. */
export function categoryOf(name: string): Category | undefined {
  return categories.find(([, pattern]) => pattern.test(name))?.[0];
}

/** The members of a header that the mixture reads. */
type Header = Pick<GgufHeader, 'metadata' | 'tensors'>;

/** Facts about a model. */
interface Model {
  readonly falcon: boolean;
  /** Number of query heads per head of keys and values. */
  readonly groupedHeads: number;
  readonly experts: number;
  readonly layers: number;
  /** True if llama.cpp treats it as a model of 70 B parameters with grouped heads. */
  readonly is70B: boolean;
  /** Number of tensors in the category 'value'. */
  readonly values: number;
  /** True if the output layer shares the weights of the embedding. */
  readonly tied: boolean;
}

/** True if llama.cpp takes a model for one of 70 B parameters: by number of layers, per architecture. */
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

function mixtureFacts({ metadata, tensors }: Header): Model {
  const architecture = metadata['general.architecture'];
  const number = (key: string): number | undefined => {
    // llama.cpp does not read these for a vision encoder.
    if (architecture === 'clip') return undefined;
    const value = metadata[`${architecture}.${key}`];
    // Use the first number of a list with one for each layer.
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

/** True for layers that get more bits: the first and last eighth, and every third in between. */
function isImportant(layer: number, layers: number): boolean {
  const eighth = Math.floor(layers / 8);
  return layer < eighth || layer >= Math.floor((7 * layers) / 8) || (layer - eighth) % 3 === 2;
}

/** Number of the layer in a name, or -1. llama.cpp reads it with scanf, so spaces and a sign may precede it. */
export function layerNumber(name: string): number {
  return Number(/^blk\.\s*([-+]?\d+)/.exec(name)?.[1] ?? -1);
}

/** File types with uneven levels. */
const uneven: readonly FileType[] = ['IQ4_NL', 'IQ4_XS'];

/** File types of less than three bits, for which other rules hold. */
const small: readonly FileType[] = ['IQ1_S', 'IQ1_M', 'IQ2_XXS', 'IQ2_XS', 'IQ2_S', 'IQ2_M'];
/** True for the two largest of these. */
const isLargest = (fileType: FileType) => fileType === 'IQ2_S' || fileType === 'IQ2_M';

/** Chooses types for tensors. It counts them, so they must come in the order of the result. */
export class Mixture {
  private readonly model: Model;
  private readonly fileType: FileType;
  private readonly base: TargetType;
  private readonly names: ReadonlySet<string>;
  private valuesSeen = 0;
  private downsSeen = 0;
  private upsSeen = 0;
  private gatesSeen = 0;

  /** @param hasImportance whether there is an importance matrix */
  constructor(
    header: Header,
    fileType: FileType,
    private readonly hasImportance: boolean,
  ) {
    this.model = mixtureFacts(header);
    const names = new Set(fileType === 'NVFP4' ? header.tensors.map(({ name }) => name) : []);
    // Weights in NVFP4 already have scales of their own.
    for (const { name, dtype } of header.tensors) if (dtype === 'NVFP4') names.delete(partName(name, scalePart));
    this.names = names;
    this.fileType = fileType;
    this.base = fileTypes[fileType].base;
  }

  typeOf({ name, shape }: GgufTensor): TargetType {
    const category = categoryOf(name);
    if (this.fileType === 'NVFP4') return this.scaled(name);
    if (this.fileType === 'MXFP4_MOE') return this.expert(category, shape);
    switch (category) {
      case 'output':
        return this.output(shape);
      case 'embedding':
        return this.model.tied ? this.output(shape) : this.embedding();
      default:
        return small.includes(this.fileType) ? this.smallType(category) : this.typeIn(category, name);
    }
  }

  /** Type of a tensor that is neither output nor embedding. */
  private typeIn(category: Category | undefined, name: string): TargetType {
    // In models with experts, read the layer from the name instead of counting.
    const layer = (seen: number) => (this.model.experts > 1 ? layerNumber(name) : seen);
    switch (category) {
      case 'value':
        return this.value(this.valuesSeen++);
      case 'key':
        return this.model.experts === 8 ? 'Q8_0' : this.query();
      case 'query':
        return this.query();
      case 'up':
        return this.upOrGate(layer(this.upsSeen++));
      case 'gate':
        return this.upOrGate(layer(this.gatesSeen++));
      case 'down':
        return this.down(layer(this.downsSeen++));
      case 'attention output':
        return this.attentionOutput();
      default:
        return this.base;
    }
  }

  /** Like `typeIn`, for file types of less than three bits. */
  private smallType(category: Category | undefined): TargetType {
    const { groupedHeads, experts, layers } = this.model;
    const better = isLargest(this.fileType) ? 'IQ3_S' : 'Q2_K';
    switch (category) {
      case 'value':
        return groupedHeads >= 4 || experts >= 4 ? 'Q4_K' : better;
      case 'key':
        return experts === 8 ? 'Q4_K' : this.base;
      case 'down':
        return this.downsSeen++ < Math.floor(layers / 8) ? better : this.base;
      case 'attention output':
        if (experts === 8) return 'Q5_K';
        if (isLargest(this.fileType)) return 'IQ3_S';
        return this.base === 'IQ1_S' || this.base === 'IQ1_M' ? 'IQ2_XXS' : this.base;
      default:
        return this.base;
    }
  }

  /** Type of a tensor in a file of NVFP4: other weights get 8 bits, and so do those whose name of a scale is taken, as in Gemma 4. */
  private scaled(name: string): TargetType {
    return hasScale(name) && !this.names.has(partName(name, scalePart)) ? 'NVFP4' : 'Q8_0';
  }

  /** Type of a tensor in a file of MXFP4 experts: other weights get 8 bits. */
  private expert(category: Category | undefined, shape: readonly number[]): TargetType {
    const isOutput = category === 'output' || (category === 'embedding' && this.model.tied);
    return !isOutput && (shape.at(-3) ?? 1) > 1 ? 'MXFP4' : 'Q8_0';
  }

  private embedding(): TargetType {
    if (isLargest(this.fileType) || this.fileType === 'IQ3_XXS') return 'IQ3_S';
    if (small.includes(this.fileType)) return 'Q2_K';
    const ternary: readonly FileType[] = ['TQ1_0', 'TQ2_0', 'Q2_0'];
    return ternary.includes(this.fileType) ? 'Q4_K' : this.base;
  }

  private output(shape: readonly number[]): TargetType {
    if (this.model.falcon || !fitsRows(this.base, shape)) return 'Q8_0';
    if (small.includes(this.fileType) || this.fileType === 'IQ3_XXS') return 'Q5_K';
    return this.base === 'Q8_0' ? 'Q8_0' : 'Q6_K';
  }

  private value(index: number): TargetType {
    const { groupedHeads, experts, is70B, values } = this.model;
    if (experts === 8) return 'Q8_0';
    let type = this.base;
    if (this.fileType === 'Q2_K') type = groupedHeads >= 4 ? 'Q4_K' : 'Q3_K';
    else if (this.fileType === 'Q2_K_S' && groupedHeads >= 4) type = 'Q4_K';
    else if (this.fileType === 'IQ3_XXS') type = this.grouped(this.hasImportance ? 'IQ3_XXS' : 'IQ3_S');
    else if (this.fileType === 'IQ3_XS' || this.fileType === 'IQ3_S') type = this.grouped(this.base);
    else if (this.fileType === 'IQ3_M') type = 'Q4_K';
    else if (this.fileType === 'Q3_K_M') type = index < 2 ? 'Q5_K' : 'Q4_K';
    else if (this.fileType === 'Q3_K_L') type = 'Q5_K';
    else if (uneven.includes(this.fileType) && groupedHeads >= 4) type = 'Q5_K';
    else if (this.fileType === 'Q4_K_S' && index < 4) type = 'Q5_K';
    else if ((this.fileType === 'Q4_K_M' || this.fileType === 'Q5_K_M') && isImportant(index, values)) type = 'Q6_K';
    // Eight heads share these weights in such a model, so more bits cost little.
    return is70B && (type === 'Q3_K' || type === 'Q4_K') ? 'Q5_K' : type;
  }

  /** Type of weights that four or more heads share, which are small. */
  private grouped(type: TargetType): TargetType {
    return this.model.groupedHeads >= 4 ? 'Q4_K' : type;
  }

  private query(): TargetType {
    if (this.fileType === 'IQ3_XS') return 'IQ3_XXS';
    return this.fileType === 'IQ3_XXS' ? 'IQ2_S' : this.base;
  }

  private upOrGate(layer: number): TargetType {
    const { layers } = this.model;
    const isInner = layer >= Math.floor(layers / 8) && layer < Math.floor((7 * layers) / 8);
    return this.fileType === 'IQ3_XS' && isInner ? 'IQ3_XXS' : this.base;
  }

  private down(layer: number): TargetType {
    const { falcon, layers, experts } = this.model;
    const inFirst = (part: number) => layer < Math.floor(layers / part);
    switch (this.fileType) {
      case 'Q2_K':
        return 'Q3_K';
      case 'Q2_K_S':
        return inFirst(8) ? 'Q4_K' : this.base;
      case 'IQ3_XXS':
        if (this.hasImportance) return this.base;
        return inFirst(8) ? 'Q4_K' : 'Q3_K';
      case 'IQ3_M':
        return inFirst(8) || (experts === 8 && isImportant(layer, layers)) ? 'Q4_K' : this.base;
      case 'Q4_0':
        return this.hasImportance && inFirst(8) ? 'Q4_1' : this.base;
      case 'Q5_0':
        return this.hasImportance && inFirst(8) ? 'Q5_1' : this.base;
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
      case 'IQ4_XS':
        return !this.hasImportance && inFirst(8) ? 'Q5_K' : this.base;
      default:
        return this.base;
    }
  }

  private attentionOutput(): TargetType {
    const { falcon, experts } = this.model;
    if (falcon) return this.fileType === 'Q3_K_L' ? 'Q4_K' : this.base;
    if (experts === 8) {
      const threeBits = ['Q3_K_S', 'Q3_K_M', 'IQ3_XXS', 'IQ3_XS', 'IQ3_S', 'IQ3_M'] as const;
      const raised: readonly FileType[] = ['Q2_K', ...threeBits, 'Q4_K_S', 'Q4_K_M', ...uneven];
      return raised.includes(this.fileType) ? 'Q5_K' : this.base;
    }
    if (this.fileType === 'Q2_K') return 'Q3_K';
    if (this.fileType === 'IQ3_XXS') return 'IQ3_S';
    if (this.fileType === 'Q3_K_M' || this.fileType === 'IQ3_M') return 'Q4_K';
    return this.fileType === 'Q3_K_L' ? 'Q5_K' : this.base;
  }
}

/** Replacements for types whose blocks do not divide a row. */
const fallbacks: Readonly<Partial<Record<TargetType, BlockType>>> = {
  NVFP4: 'Q8_0',
  Q2_K: 'Q4_0',
  Q3_K: 'Q4_0',
  Q4_K: 'Q5_0',
  Q5_K: 'Q5_1',
  Q6_K: 'Q8_0',
  IQ1_S: 'IQ4_NL',
  IQ1_M: 'IQ4_NL',
  IQ2_XXS: 'IQ4_NL',
  IQ2_XS: 'IQ4_NL',
  IQ2_S: 'IQ4_NL',
  IQ3_XXS: 'IQ4_NL',
  IQ3_S: 'IQ4_NL',
  IQ4_XS: 'IQ4_NL',
  TQ1_0: 'Q4_0',
  TQ2_0: 'Q4_0',
  Q2_0: 'Q4_0',
};

/** True if each row is a whole number of blocks. */
function fitsRows(type: TargetType, shape: readonly number[]): boolean {
  return (shape.at(-1) ?? 1) % ggmlType(type).elements === 0;
}

/** The type itself if its blocks divide the rows, else llama-quantize's replacement; undefined without one. */
export function fallback(type: TargetType, shape: readonly number[]): TargetType | undefined {
  if (fitsRows(type, shape)) return type;
  if (type === 'Q1_0') return undefined;
  const smaller = fallbacks[type];
  return smaller !== undefined && fitsRows(smaller, shape) ? smaller : 'F16';
}

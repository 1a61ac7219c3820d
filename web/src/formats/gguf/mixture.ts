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

/** File types of less than three bits, for which other rules hold. */
const small: readonly FileType[] = ['IQ1_S', 'IQ1_M', 'IQ2_XXS', 'IQ2_XS', 'IQ2_S', 'IQ2_M'];

/**
 * Makes a function that chooses the type of a tensor. It counts tensors, so they must come in the order of the result.
 * @param hasImportance true if there is an importance matrix
 */
export function mixtureTypes(
  header: Header,
  fileType: FileType,
  hasImportance: boolean,
): (tensor: GgufTensor) => TargetType {
  const { falcon, groupedHeads, experts, layers, is70B, values, tied } = mixtureFacts(header);
  const { base } = fileTypes[fileType];
  const isSmall = small.includes(fileType);
  const isLargest = fileType === 'IQ2_S' || fileType === 'IQ2_M';
  // Weights in NVFP4 already have scales of their own.
  const names = new Set(fileType === 'NVFP4' ? header.tensors.map(({ name }) => name) : []);
  for (const { name, dtype } of header.tensors) if (dtype === 'NVFP4') names.delete(partName(name, scalePart));
  const seen: Partial<Record<Category, number>> = {};

  /** The type of this file's row of a table. */
  const ofFile = (types: Readonly<Partial<Record<FileType, TargetType>>>): TargetType => types[fileType] ?? base;

  const output = (shape: readonly number[]): TargetType => {
    if (falcon || !fitsRows(base, shape)) return 'Q8_0';
    if (isSmall || fileType === 'IQ3_XXS') return 'Q5_K';
    return base === 'Q8_0' ? 'Q8_0' : 'Q6_K';
  };

  const value = (index: number): TargetType => {
    if (experts === 8) return 'Q8_0';
    // Weights that four or more heads share are small.
    const isShared = groupedHeads >= 4;
    const important = isImportant(index, values) ? 'Q6_K' : base;
    const type = ofFile({
      Q2_K: isShared ? 'Q4_K' : 'Q3_K',
      Q2_K_S: isShared ? 'Q4_K' : base,
      IQ3_XXS: isShared ? 'Q4_K' : hasImportance ? 'IQ3_XXS' : 'IQ3_S',
      IQ3_XS: isShared ? 'Q4_K' : base,
      IQ3_S: isShared ? 'Q4_K' : base,
      IQ3_M: 'Q4_K',
      Q3_K_M: index < 2 ? 'Q5_K' : 'Q4_K',
      Q3_K_L: 'Q5_K',
      IQ4_NL: isShared ? 'Q5_K' : base,
      IQ4_XS: isShared ? 'Q5_K' : base,
      Q4_K_S: index < 4 ? 'Q5_K' : base,
      Q4_K_M: important,
      Q5_K_M: important,
    });
    // Eight heads share these weights in such a model, so more bits cost little.
    return is70B && (type === 'Q3_K' || type === 'Q4_K') ? 'Q5_K' : type;
  };

  const upOrGate = (layer: number): TargetType => {
    const isInner = layer >= Math.floor(layers / 8) && layer < Math.floor((7 * layers) / 8);
    return fileType === 'IQ3_XS' && isInner ? 'IQ3_XXS' : base;
  };

  const down = (layer: number): TargetType => {
    const inFirst = (part: number) => layer < Math.floor(layers / part);
    const important = isImportant(layer, layers);
    const unevenLevels = !hasImportance && inFirst(8) ? 'Q5_K' : base;
    const ofFalcon = inFirst(16) ? 'Q6_K' : important ? 'Q5_K' : 'Q4_K';
    return ofFile({
      Q2_K: 'Q3_K',
      Q2_K_S: inFirst(8) ? 'Q4_K' : base,
      IQ3_XXS: hasImportance ? base : inFirst(8) ? 'Q4_K' : 'Q3_K',
      IQ3_M: inFirst(8) || (experts === 8 && important) ? 'Q4_K' : base,
      Q4_0: hasImportance && inFirst(8) ? 'Q4_1' : base,
      Q5_0: hasImportance && inFirst(8) ? 'Q5_1' : base,
      Q3_K_M: inFirst(16) ? 'Q5_K' : !falcon || important ? 'Q4_K' : 'Q3_K',
      Q3_K_L: falcon ? 'Q4_K' : 'Q5_K',
      Q4_K_S: !falcon && inFirst(8) ? 'Q5_K' : 'Q4_K',
      Q4_K_M: falcon ? ofFalcon : important ? 'Q6_K' : 'Q4_K',
      Q5_K_M: important ? 'Q6_K' : 'Q5_K',
      IQ4_NL: unevenLevels,
      IQ4_XS: unevenLevels,
    });
  };

  const attentionOutput = (): TargetType => {
    if (falcon) return ofFile({ Q3_K_L: 'Q4_K' });
    if (experts !== 8) return ofFile({ Q2_K: 'Q3_K', IQ3_XXS: 'IQ3_S', Q3_K_M: 'Q4_K', IQ3_M: 'Q4_K', Q3_K_L: 'Q5_K' });
    const threeBits = ['Q3_K_S', 'Q3_K_M', 'IQ3_XXS', 'IQ3_XS', 'IQ3_S', 'IQ3_M'] as const;
    const raised: readonly FileType[] = ['Q2_K', ...threeBits, 'Q4_K_S', 'Q4_K_M', 'IQ4_NL', 'IQ4_XS'];
    return raised.includes(fileType) ? 'Q5_K' : base;
  };

  /** The type in files of less than three bits. */
  const smallType = (category: Category | undefined, index: number): TargetType => {
    const better = isLargest ? 'IQ3_S' : 'Q2_K';
    if (category === 'value') return groupedHeads >= 4 || experts >= 4 ? 'Q4_K' : better;
    if (category === 'key') return experts === 8 ? 'Q4_K' : base;
    if (category === 'down') return index < Math.floor(layers / 8) ? better : base;
    if (category !== 'attention output') return base;
    if (experts === 8) return 'Q5_K';
    if (isLargest) return 'IQ3_S';
    return base === 'IQ1_S' || base === 'IQ1_M' ? 'IQ2_XXS' : base;
  };

  return ({ name, shape }) => {
    const category = categoryOf(name);
    const isOutput = category === 'output' || (category === 'embedding' && tied);
    // In files of NVFP4, other weights get 8 bits, and so do those whose name of a scale is taken, as in Gemma 4.
    if (fileType === 'NVFP4') return hasScale(name) && !names.has(partName(name, scalePart)) ? 'NVFP4' : 'Q8_0';
    // In files of MXFP4, weights that are not experts get 8 bits.
    if (fileType === 'MXFP4_MOE') return !isOutput && (shape.at(-3) ?? 1) > 1 ? 'MXFP4' : 'Q8_0';
    if (isOutput) return output(shape);
    if (category === 'embedding') {
      if (isLargest || fileType === 'IQ3_XXS') return 'IQ3_S';
      return isSmall ? 'Q2_K' : ofFile({ TQ1_0: 'Q4_K', TQ2_0: 'Q4_K', Q2_0: 'Q4_K' });
    }
    if (category === undefined) return base;
    const index = seen[category] ?? 0;
    seen[category] = index + 1;
    if (isSmall) return smallType(category, index);
    // In models with experts, read the layer from the name instead of counting.
    const layer = experts > 1 ? layerNumber(name) : index;
    const query = ofFile({ IQ3_XS: 'IQ3_XXS', IQ3_XXS: 'IQ2_S' });
    if (category === 'value') return value(index);
    if (category === 'key') return experts === 8 ? 'Q8_0' : query;
    if (category === 'query') return query;
    if (category === 'up' || category === 'gate') return upOrGate(layer);
    return category === 'down' ? down(layer) : attentionOutput();
  };
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

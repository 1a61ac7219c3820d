/** GGUF results: tensors and pairs, once it is decided what they become. */
import type { CastForm } from '../../codecs/cast.js';
import type { GgmlForm } from '../../codecs/ggml.js';
import type { BlockType } from '../../core/blocks.js';
import type { FilePlan, LogicalTensor, PartsOf, PlannedTensor, Segment } from '../format.js';
import { convertedLogical, keptLogical } from '../tensors.js';
import type { GgufPair, GgufTensor } from './header.js';
import { type LayoutOptions, layoutGguf } from './layout.js';
import { fixAlignmentMention, isCastType } from './options.js';

/** The type of a tensor in a result, and why it is kept if it is. */
export interface Choice {
  readonly type: string;
  readonly kept?: string;
}

/** A tensor of a result. */
export interface ResultTensor extends Choice {
  readonly name: string;
  readonly shape: readonly number[];
  /** What it is made of, and which tensor of the plan that is; or its bytes, where nothing is read. */
  readonly from: { readonly source: LogicalTensor; readonly index: number } | Uint8Array<ArrayBuffer>;
}

/** The note about an alignment that is stated but does not hold. */
function alignmentNote(stated: number): string {
  return (
    `general.alignment says ${stated}, but llama-quantize pads to 32, and so does this file: llama.cpp will not find its ` +
    `tensors. ${fixAlignmentMention} states 32`
  );
}

/** The form of a type. */
export function formTo(type: string): CastForm | GgmlForm {
  return isCastType(type) ? { codec: 'cast', to: type } : { codec: 'ggml', to: type as BlockType };
}

/** Whether a tensor can be copied: its elements are in one place, and of that type. */
function isAsStored({ form, gathered, parts }: LogicalTensor, type: string): boolean {
  const adds = (form as Partial<CastForm>).add ?? 0;
  return gathered === undefined && adds === 0 && parts.length === 1 && parts[0]?.tensor.dtype === type;
}

/** Lays out a result. The tensors are written in their order. */
export function planResult(
  pairs: readonly GgufPair[],
  results: readonly ResultTensor[],
  partsOf: PartsOf,
  options: LayoutOptions = {},
): FilePlan {
  const layout = layoutGguf(
    pairs,
    results.map(({ name, type, shape }) => ({ name, dtype: type, shape })),
    options,
  );
  const tensors: PlannedTensor[] = [];
  const segments: Segment[] = [{ at: 0, bytes: layout.header }];
  for (const [i, { type, kept, from }] of results.entries()) {
    const at = (layout.tensors[i] as GgufTensor).byteOffset;
    if (from instanceof Uint8Array) {
      segments.push({ at, bytes: from });
      continue;
    }
    const { source, index } = from;
    if (kept !== undefined && isAsStored(source, type)) tensors[index] = keptLogical(source, kept);
    else {
      const form = formTo(type);
      tensors[index] = convertedLogical(source, form, partsOf(source.shape, form));
    }
    segments.push({ at, tensor: index, role: 'data' });
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

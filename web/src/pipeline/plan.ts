/**
 * The plan of a conversion: what becomes of each tensor, and where every byte of the result goes. Made from headers alone
 * (safetensors.ts, gguf.ts beside this file), carried out by engine.ts. Plain data, so that workers take it as it is.
 */
import type { BlockType } from '../core/blocks.js';
import type { SearchedRange } from '../core/range.js';

/** Float types that a tensor can be cast to. */
export type CastType = 'F32' | 'F16' | 'BF16';

/** Codes with scales, as compressed-tensors stores them. */
export interface CodesConversion {
  readonly kind: 'codes';
  /** Integers, or float8e4m3fn: 8 bits, symmetric, with one scale for each index of axis 0 and not packed. */
  readonly type: 'int' | 'float';
  readonly bits: 4 | 8;
  readonly symmetric: boolean;
  /** Elements of the last dimension that share a scale, a divisor of it; undefined: everything of one index of axis 0. */
  readonly groupSize: number | undefined;
  /** True: `weight_packed`, int32 words of offset-binary codes, rows padded to whole words. False: int8 codes as they are. */
  readonly packed: boolean;
  /** Type of the scales. */
  readonly scale: CastType;
  /** Integers: how the ranges of rows that fit into a tile are found; undefined: from the smallest and the largest value. */
  readonly range?: SearchedRange | undefined;
}

/** How the elements of a tensor become the bytes of its parts. */
export type Conversion =
  /** The bytes as they are: one part. */
  | { readonly kind: 'copy' }
  /** From any float or block type: one part. */
  | { readonly kind: 'cast'; readonly to: CastType }
  /** From any float or block type, in blocks along the last dimension: one part. */
  | { readonly kind: 'blocks'; readonly to: BlockType }
  /** From any float type: parts in the roles below. */
  | CodesConversion;

/** What a part of a converted tensor holds. `shape` has its bytes in `constant`. */
export type Role = 'data' | 'scale' | 'zeroPoint' | 'shape';

/** A tensor of the result. */
export interface PlannedPart {
  readonly role: Role;
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: number;
  /** Where its bytes begin in the result. */
  readonly byteOffset: number;
  /** The bytes, where they follow from the header alone. */
  readonly constant?: Uint8Array<ArrayBuffer>;
}

/** A tensor of the input. */
export interface SourceTensor {
  readonly name: string;
  /** As the format spells it: 'F32', 'BF16', 'Q4_K', 'I64'. */
  readonly dtype: string;
  /** Row-major, the last dimension running fastest (GGUF's ne reversed). */
  readonly shape: readonly number[];
  readonly bytes: number;
  /** Where its bytes begin in its file. */
  readonly byteOffset: number;
  /** Which file of a sharded model, from 0. */
  readonly file: number;
  /** True where the file stores the elements in another order, so that they have no offsets in it. */
  readonly rearranged?: boolean;
}

/** What becomes of a tensor. */
export interface PlannedTensor {
  readonly source: SourceTensor;
  readonly conversion: Conversion;
  /** What the result holds of it, at least one part; the first has the role 'data'. */
  readonly parts: readonly PlannedPart[];
  /** Why it is copied, in a few words such as `bias`, `1-D` or `rule`; undefined if it is converted. */
  readonly kept?: string;
}

/** A whole result. */
export interface FilePlan {
  /** In the order of the input. */
  readonly tensors: readonly PlannedTensor[];
  /** The first bytes of the result. Between the parts, and up to `size`, everything else is 0 (padding). */
  readonly header: Uint8Array<ArrayBuffer>;
  /** Bytes of the result. */
  readonly size: number;
  /** safetensors with codes: the `quantization_config` for config.json. */
  readonly quantizationConfig?: Readonly<Record<string, unknown>>;
  /** What the user should know about the result, in sentences without a full stop. */
  readonly notes?: readonly string[];
}

/** What to do with the tensors whose names match. The first rule that matches decides. */
export type Rule =
  | { readonly match: RegExp; readonly keep: true; readonly to?: undefined; readonly granularity?: undefined }
  | {
      readonly match: RegExp;
      readonly keep?: false | undefined;
      /** A target of the format, or a tensor type: 'int4', 'Q6_K', 'F16'. */
      readonly to: string;
      readonly granularity?: ModelGranularity | undefined;
    };

/** Which elements share a scale: one index of axis 0, or so many neighbours of the last dimension. */
export type ModelGranularity =
  | { readonly kind: 'per-channel' }
  | { readonly kind: 'per-group'; readonly groupSize: number };

/** The rule that decides about a name. search() minds no lastIndex, so that expressions with a g or y flag match alike every time. */
export function ruleFor(rules: readonly Rule[], name: string): Rule | undefined {
  return rules.find(({ match }) => name.search(match) >= 0);
}

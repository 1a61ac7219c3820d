/**
 * Recipes: the metadata of a converted model, and how each of its tensors is made from tensors of the source. Modules for architectures
 * write recipes; carry-out.ts carries them out.
 */
import type { Note } from '../core/note.js';
import type { ElementView } from '../formats/format.js';
import type { GgufKey } from '../formats/gguf/pairs.js';

/** Rows of a tensor: the first one, and their number. A row has the elements of the last dimension; a row of a vector is an element. */
export type RowWindow = readonly [first: number, rows: number];

/** Description of one tensor of the result. */
export interface Recipe {
  /** Name in the result. */
  readonly name: string;
  /** Shape in the result, row-major. */
  readonly shape: readonly number[];
  /** Tensors of the source. The elements of several follow each other, in order. Empty with `values`. */
  readonly sources: readonly string[];
  /** Computed values, such as rope factors, in place of sources. Stored as F32. */
  readonly values?: Float32Array<ArrayBuffer>;
  /**
   * Number of heads, of d rows each, whose rows move to Llama's rotary layout: row h·d + half·d/2 + i of the source is row h·d + 2i + half
   * of the result.
   */
  readonly permuteHeads?: number;
  /** Elements to take of each source, in their order in the result, as of a transpose. All in their own order by default. */
  readonly view?: ElementView;
  /** Rows to take of each source, as many of each. All by default. */
  readonly windows?: readonly RowWindow[];
  /** Rows of zeros behind those of the source. @defaultValue 0 */
  readonly zeroRows?: number;
  /** True: elements become -1, 0 or 1 times the mean magnitude of all, whichever is nearest. @defaultValue false */
  readonly ternary?: boolean;
  /** Number that each element is multiplied by, in float32, before anything is added. */
  readonly factor?: number;
  /** A second factor for each row, by which these products are multiplied. Only with one source, and without windows or a view. */
  readonly rowFactors?: Float32Array<ArrayBuffer>;
  /** Number added to each element, in float32. */
  readonly add?: number;
  /** True: -exp(x) in place of each element x, as with logarithms of decays. @defaultValue false */
  readonly negativeExp?: boolean;
  /** True if it is stored as F32 for every target. @defaultValue false */
  readonly float32?: boolean;
}

/** Result of converting a model of a known architecture. */
export interface Conversion {
  readonly architecture: string;
  /** In writing order, without general.file_type and general.quantization_version, which the target decides. */
  readonly keys: readonly GgufKey[];
  /** In any order. */
  readonly tensors: readonly Recipe[];
  /** Notes for the user about the result. */
  readonly notes: readonly Note[];
  /** The type of each tensor by its name, if the target alone decides about the types. Undefined if llama-quantize's rules do. */
  readonly types?: ReadonlyMap<string, string> | undefined;
}

/** A tensor that a folder holds. */
export interface FolderTensor {
  readonly name: string;
  /** Type in the spelling of safetensors: `BF16`, `F32`, `F8_E4M3`. */
  readonly dtype: string;
  readonly shape: readonly number[];
}

/** A folder: its tensors, and the files beside them. */
export interface Folder {
  /** Name of the folder, if known. */
  readonly name: string | undefined;
  readonly tensors: readonly FolderTensor[];
  /** `__metadata__` of the files with the tensors. */
  readonly metadata: Readonly<Record<string, string>>;
  /** True if weights of it are codes with scales, whose values are read. */
  readonly isCoded?: boolean;
  /** True if two tensors have the same bytes; undefined if one of them is made of codes. */
  areEqual?(a: string, b: string): Promise<boolean | undefined>;
  /** The values of a tensor of few floats; undefined if it is made of codes. */
  floats?(name: string): Promise<Float32Array | undefined>;
  /** Bytes of a file, such as `config.json`; undefined if the folder lacks it. */
  file(name: string): Promise<Uint8Array<ArrayBuffer> | undefined>;
}

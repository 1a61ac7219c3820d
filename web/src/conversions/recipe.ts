/**
 * What a model of one format becomes in another: the entries of the metadata, and how each tensor of the result is made from tensors of the
 * source. Who knows an architecture writes recipes; others carry them out.
 */
import type { Note } from '../core/note.js';
import type { GgufKey } from '../formats/gguf/pairs.js';

/** How a tensor of the result is made. */
export interface Recipe {
  /** In the result. */
  readonly name: string;
  /** Row-major, as the result has it. */
  readonly shape: readonly number[];
  /** Tensors of the source. Several are stacked along a new first axis, in order. Empty with `values`. */
  readonly sources: readonly string[];
  /** Values that are made and not read, such as rope factors. They are stored as F32. */
  readonly values?: Float32Array<ArrayBuffer>;
  /**
   * For so many heads of d rows each, rows move to Llama's rotary layout: row h·d + half·d/2 + i of the source is row h·d + 2i + half of
   * the result.
   */
  readonly permuteHeads?: number;
  /** Only so many rows are taken, from the first on. */
  readonly rows?: number;
  /** A number that is added to each element in float32. */
  readonly add?: number;
  /** Whether it is stored as F32 whatever the target is. @defaultValue false */
  readonly float32?: boolean;
}

/** What a model of a known architecture becomes. */
export interface Conversion {
  readonly architecture: string;
  /** In writing order, without general.file_type and general.quantization_version, which the target decides. */
  readonly keys: readonly GgufKey[];
  /** In any order. */
  readonly tensors: readonly Recipe[];
  /** What the user should know about the result. */
  readonly notes: readonly Note[];
}

/** A tensor that a folder holds. */
export interface FolderTensor {
  readonly name: string;
  /** As safetensors spells it: `BF16`, `F32`, `F8_E4M3`. */
  readonly dtype: string;
  readonly shape: readonly number[];
}

/** A folder: its tensors, and the files beside them. */
export interface Folder {
  /** Its name, if that is known. */
  readonly name: string | undefined;
  readonly tensors: readonly FolderTensor[];
  /** `__metadata__` of the files with the tensors. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The bytes of a file, such as `config.json`; undefined if there is none of that name. */
  file(name: string): Promise<Uint8Array<ArrayBuffer> | undefined>;
}

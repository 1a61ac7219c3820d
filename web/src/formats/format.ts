/**
 * What a file format is to the rest of the package. A format is one folder beside this file, and a line each in registry.ts and
 * signatures.ts. Everything that others say about it comes from here: options and help of the command line, the lists of the page, error messages.
 */
import type { Form, Part, Role } from '../codecs/codec.js';
import type { Note } from '../core/note.js';
import type { ByteSource, FileInput } from '../files/bytes.js';
import type { OptionTable, PlanChoices } from './options.js';
import type { Reason } from './reason.js';
import type { RunOptions, RunReport } from './run.js';

// ------------------------------------------------------------------------------------------------------------------------ reading

/** A value of the metadata. 64-bit integers are bigints where a number would round them. */
export type MetadataValue =
  | string
  | number
  | bigint
  | boolean
  | readonly (string | number | bigint | boolean)[]
  /** A long array. */
  | {
      /** Such as `string`, `i32`, `f32`. */
      readonly elementType: string;
      /** Number of its elements. */
      readonly length: number;
      /** The first of its elements. */
      readonly first: readonly (string | number | bigint | boolean)[];
    };

/** A tensor as a file stores it. */
export interface SourceTensor {
  /** Its name in the file. */
  readonly name: string;
  /** As the format spells it: `F32`, `BF16`, `Q4_K`, `I64`. */
  readonly dtype: string;
  /** Row-major: the last dimension runs fastest. Empty for a scalar. */
  readonly shape: readonly number[];
  /** Size in bytes. */
  readonly bytes: number;
  /** Where its bytes begin, from the start of its file. */
  readonly byteOffset: number;
  /** Which file of a model in several files, from 0. */
  readonly file: number;
  /** True if the file stores the elements in another order, so that they have no offsets in it. */
  readonly rearranged?: boolean;
}

/** A file, and what it was opened by. */
export interface OpenFile {
  readonly input: FileInput;
  readonly source: ByteSource;
}

/** Opens one more file of a model, in the way in which the given ones were opened. */
export type OpenInput = (input: FileInput) => Promise<ByteSource>;

/**
 * Reads a file that an option names, such as an importance matrix. Each input is opened, read and closed once, and the result is shared
 * by all plans of an open model.
 */
export type ReadOptionFile = <T>(input: FileInput, read: (source: ByteSource) => Promise<T>) => Promise<T>;

/** What a header says of a model. */
interface ModelContents {
  /** In the order of their bytes. */
  readonly tensors: readonly SourceTensor[];
  /** Without a prototype, as `__proto__` may be a key. */
  readonly metadata: Readonly<Record<string, MetadataValue>>;
}

/** An open model. Formats add what they need for a plan. */
export interface OpenModel extends ModelContents {
  /** Size of its files in bytes. */
  readonly bytes: number;
  /** What the tensors' `file` counts. */
  readonly files: readonly ByteSource[];
  /** Closes files that were opened in addition to the given ones. */
  close?(): Promise<void>;
}

/** A tensor as a whole: floats, or codes together with their scales. */
export interface LogicalTensor {
  readonly name: string;
  readonly shape: readonly number[];
  /** Its type in reports, such as `F16`, `Q4_K` or, for packed codes, `I4`. */
  readonly type: string;
  readonly form: Form;
  /**
   * The stored tensors that it consists of, in the order of the codec's parts. If it is gathered, these are stored tensors of one size,
   * whose elements follow each other.
   */
  readonly parts: readonly { readonly role: Role; readonly tensor: SourceTensor }[];
  /** Whether its parts are tensors with names of their own, as where it is one of another format. */
  readonly isRenamed?: boolean;
  /** The same as the transpose of this matrix, if the file does not tell which of both the original was. */
  readonly turned?: Pick<LogicalTensor, 'shape' | 'form'>;
  /** Whether the model reads this matrix as its transpose. */
  readonly isTurned?: boolean;
  /** How a tensor of single elements is put together, if its elements do not stand one after the other in one place. */
  readonly gathered?: Gathered;
}

/** Elements that are put together when they are read. */
export interface Gathered {
  /**
   * If rows are moved: row h·d + half·d/2 + i of each stored tensor is row h·d + 2i + half of what is read. This is d. It is even, and
   * divides the number of rows.
   */
  readonly headRows?: number;
  /** Elements of a row. */
  readonly width: number;
}

// ------------------------------------------------------------------------------------------------------------------------- plans

/** What becomes of a tensor. */
export interface PlannedTensor {
  readonly source: LogicalTensor;
  /** The form that it is stored in. */
  readonly form: Form;
  /**
   * What the result holds of it, at least one part, named after the tensor. The first one holds its elements. Tensors of one shape and
   * form may share the list.
   */
  readonly parts: readonly Part[];
  /** Why it is copied; undefined if it is converted. */
  readonly kept?: Reason;
}

/** Bytes of a file of the input. */
export interface Copied {
  /** Which file of the model. */
  readonly from: number;
  readonly begin: number;
  readonly bytes: number;
}

/** Known bytes that are made when they are needed, every time anew. */
export interface MadeBytes {
  /** How many there are. */
  readonly bytes: number;
  /** All of them, some at a time. */
  make(): Iterable<Uint8Array<ArrayBuffer>>;
}

/**
 * A stretch of a file to be written: bytes that are known, bytes of the input, or a part of a tensor, which is named by its index in the
 * plan.
 */
export type Segment =
  | { readonly at: number; readonly bytes: Uint8Array<ArrayBuffer> }
  | { readonly at: number; readonly made: MadeBytes }
  | { readonly at: number; readonly copied: Copied }
  | { readonly at: number; readonly tensor: number; readonly role: Role };

/** Known bytes in one array. */
export function madeBytes({ bytes, make }: MadeBytes): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(bytes);
  let at = 0;
  for (const piece of make()) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

/** A file of a result. */
export interface OutputFile {
  /** What its name has in addition to that of the output; empty for a file that has just that name. */
  readonly suffix: string;
  /** An extension of the output's name that the suffix takes the place of, where the name ends so. */
  readonly replaces?: string;
  /** Whether it names the other files, so that it is of no use before all of them are there. */
  readonly isIndex?: boolean;
  /** Size in bytes. */
  readonly size: number;
  /** In any order. Whatever they leave free is filled with 0. */
  readonly segments: readonly Segment[];
}

/** The name of a file of a result, without its folder. @param output the name of the output */
export function fileName(output: string, { suffix, replaces }: Pick<OutputFile, 'suffix' | 'replaces'>): string {
  const isReplaced = replaces !== undefined && output.toLowerCase().endsWith(replaces);
  return (isReplaced ? output.slice(0, -replaces.length) : output) + suffix;
}

/** Something that belongs beside a result, such as an entry of the model's config.json. */
interface SidecarContent {
  /** The option that describes it. */
  readonly option: string;
  readonly value: Readonly<Record<string, unknown>>;
}

/** A whole result. Everything follows from the headers of the input. */
export interface FilePlan {
  /** Name of the result's format. */
  readonly format: string;
  /** Of a model that becomes one of another format: what it is, as that format calls it. */
  readonly architecture?: string;
  /** At least one, the main one first: it appears when all others are there. A part of a result may have none. */
  readonly files: readonly OutputFile[];
  /** Files that make the result whole, and that others write: those of the other parts, and the index of all. */
  readonly others?: readonly OutputFile[];
  /** In the order of the input. */
  readonly tensors: readonly PlannedTensor[];
  /** What the user should know about the result. */
  readonly notes: readonly Note[];
  readonly sidecars: readonly SidecarContent[];
}

/** Gives the parts of a tensor in a form. Formats are handed this, so that they depend on no codec's code. */
export type PartsOf = (shape: readonly number[], form: Form) => readonly Part[];

// -------------------------------------------------------------------------------------------------------------------- verifying

/** Something that was noticed about a model. */
export interface Finding {
  /** A problem makes the model wrong; a note is what its users should know, and may be intended. */
  readonly severity: 'problem' | 'note';
  /** What it is about, such as `notFinite`. Programs decide by this, never by the text. */
  readonly kind: string;
  /** What it is in words, without the tensor's name. */
  readonly text: string;
  /** Name of the tensor that it is about. */
  readonly tensor?: string;
  /** Name of the file, if the model has several. */
  readonly file?: string;
  /** Where it is, from the start of the file. */
  readonly byteOffset?: number;
  /** More about it, by kind. */
  readonly [datum: string]: unknown;
}

// ------------------------------------------------------------------------------------------------------------------------ formats

/** Something that models of a format can become. */
export interface Target {
  /** What the option `to` calls it. */
  readonly name: string;
  /** In a few words, for people who choose. */
  readonly about?: string;
  /** Options that mean something for it. */
  readonly options: readonly string[];
  /** If it converts nothing: it is for what becomes of the files and of their metadata. */
  readonly copies?: boolean;
  /** If it is the one to offer to those who do not want to choose. */
  readonly preset?: 'small' | 'balanced' | 'safe';
}

/** What weights of a result become where each of them may become something else, so that the result has a given size. */
export interface Mixtures {
  /** The target that a mixture is called by, if none was given. */
  readonly to: string;
  /** What rules may give a weight beside leaving it as it is, for a target; undefined if it takes no mixtures. */
  types(to: string): readonly string[] | undefined;
  /** Bytes that a part takes in a file, with what pads it. */
  stored(bytes: number): number;
  /**
   * How much the error of a tensor counts, in relation to the squares of its elements; 1 if it is not there. What all else goes through
   * counts more.
   */
  weight?(name: string): number;
  /** The target that says most of a mixture. @param elements how many of them have each type */
  nearest?(elements: ReadonlyMap<string, number>): string;
}

/**
 * What users are told about a format.
 * @typeParam TargetName what `to` may be
 * @typeParam Result name of the format that results have
 */
export interface FormatInfo<
  Name extends string = string,
  TargetName extends string = string,
  Result extends string = string,
> {
  /** What reports call it. */
  readonly name: Name;
  /** What texts call it. */
  readonly label: string;
  /** What texts call its files, in a list of what can be read. */
  readonly files: string;
  /** Ends of the names of files, the usual one first. The content decides, not the name. */
  readonly extensions: readonly string[];
  /** Name of the format that results have. */
  readonly result: Result;
  /** What becomes of its files, in a sentence or two. */
  readonly about: string;
  /** Arguments of a command line that makes something of a file. */
  readonly examples: readonly string[];
  /** What weights of its files can become. */
  readonly targets: readonly Target[];
  /** More names of targets. */
  readonly aliases: { readonly [Alias in TargetName]?: TargetName };
  /** What rules may ask for. */
  readonly ruleTargets: readonly string[];
  /** Formats with the same targets share a table. */
  readonly options: OptionTable;
  /** What its elements are called. */
  readonly unit: 'element' | 'parameter';
  /** How the name of a result ends, in place of the extension of the input, where others expect that. */
  resultEnd?(to: string): string;
  /** Whether a model may be split into files of this format, without an index. Their names end like `-00001-of-00003`. */
  readonly takesSplits?: boolean;
  /** What a summary says of a model in addition to what it says of all of them. */
  facts?(model: ModelContents): readonly string[];
  /** Programs that read a result, the usual one first. */
  readers?(to: string, file: string): readonly Reader[];
}

/** A program that reads results. */
export interface Reader {
  /** The name of the program. */
  readonly program: string;
  /** What it takes to load the file: a command, or a line or two of code. */
  readonly code: string;
  /** What else it needs, in a sentence. */
  readonly needs?: string;
}

/**
 * A format.
 * @typeParam Options what decides about a result
 * @typeParam Sidecars the contents of files beside it
 */
export interface Format<
  Name extends string = string,
  TargetName extends string = string,
  Result extends string = string,
  Options extends object = object,
  Sidecars extends object = object,
  Model extends OpenModel = OpenModel,
> extends FormatInfo<Name, TargetName, Result> {
  /** The first bytes of every file. */
  readonly magic?: readonly number[];
  /** How weights of a result may differ in type. Undefined if they may not. */
  readonly mixtures?: Mixtures;
  /** Tells a format without a magic number by its first bytes, up to 32 of them. */
  sniff?(head: Uint8Array): boolean;
  /** The file that names all files of a model, if there can be several. */
  readonly index?: { readonly name: string; sniff(head: Uint8Array): boolean };
  /** Whether other files may hold data of a model. They have no format of their own, and the model names them. */
  readonly takesData?: boolean;
  /**
   * Opens a model: one file; or, if they were given, an index and the files that it names, a model and the files with its data, or all
   * files of a split model. Others are opened by `open`.
   */
  open(files: readonly OpenFile[], open: OpenInput): Promise<Model>;
  /** Its tensors, codes together with their scales. */
  tensors(model: Model): Promise<readonly LogicalTensor[]>;
  /**
   * Decides what becomes of each tensor, and lays out the result. The choices have been checked.
   * @param output the name of the result without its folder, if it has one
   */
  plan(
    model: Model,
    choices: PlanChoices<Options & Sidecars, TargetName>,
    partsOf: PartsOf,
    output: string | undefined,
    readOptionFile: ReadOptionFile,
  ): FilePlan | Promise<FilePlan>;
  /** The words of its own reasons to keep a tensor, a few of them; undefined for other reasons. */
  reasonText?(reason: Reason): string | undefined;
  /**
   * Runs two open models on the same inputs and compares their outputs; undefined if models of the format are not run. The code for it is
   * loaded by the call, because few callers run models.
   * @throws ScalepointError `RUNTIME` if a model cannot be run
   */
  compareRuns?(a: Model, b: Model, options: RunOptions, signal?: AbortSignal): Promise<RunReport>;
  /** Compares what different parts of an open model say about each other. Its numbers are looked at elsewhere. */
  verify?(model: Model, tensors: readonly LogicalTensor[], sidecars: Sidecars): readonly Finding[];
}

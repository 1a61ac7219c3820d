/**
 * The interface of file formats. A format is one folder beside this file, and a line each in registry.ts and signatures.ts. Options and
 * help of the command line, lists of the page and error messages all read its description from here.
 */

import type { Note } from '../core/note.js';
import type { CastType } from './codecs/cast.js';
import type { Form, Part, Role, SetsCut } from './codecs/codec.js';
import type { ByteSource, FileInput, OptionFile } from './files/bytes.js';
import type { KnownModels } from './known-models.js';
import type { OptionTable, PlanChoices } from './options.js';
import type { Reason } from './reason.js';
import type { ModelRuns, OutputJudge, OutputRunOptions, RunOptions, RunReport } from './run.js';
import type { ColumnOrder, WeightMoments } from './statistics.js';
import type { WeightNames } from './weight-names.js';

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
  /** Type in the format's spelling: `F32`, `BF16`, `Q4_K`, `I64`. */
  readonly dtype: string;
  /** Row-major: the last dimension runs fastest. Empty for a scalar. */
  readonly shape: readonly number[];
  /** Size in bytes. */
  readonly bytes: number;
  /** Offset of its first byte in its file. */
  readonly byteOffset: number;
  /** Index of its file in a model of several files, from 0. */
  readonly file: number;
  /** True if the file stores the elements in another order, so that they have no offsets in it. */
  readonly rearranged?: boolean;
}

/** An open file, and the input that it was opened by. */
export interface OpenFile {
  readonly input: FileInput;
  readonly source: ByteSource;
}

/** Opens another file of a model in the same way as the given ones. */
export type OpenInput = (input: FileInput) => Promise<ByteSource>;

/**
 * Reads a file that an option names, such as an importance matrix. Each input is opened, read and closed once, and the result is shared
 * by all plans of an open model. Errors about the input name the option. `read` also gets the input as files are opened.
 */
export type ReadOptionFile = <T>(
  option: string,
  input: OptionFile,
  read: (source: ByteSource, file: FileInput) => Promise<T>,
) => Promise<T>;

/** Contents of a model's header. */
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
  /** Its files, indexed by `file` of the tensors. */
  readonly files: readonly ByteSource[];
  /**
   * Gives the bytes of a file beside the model, such as `config.json`; undefined if it is not there. Set once the model is open.
   * @throws ScalepointError `IO`, `BAD_FILE` if it is absurdly long
   */
  fileBeside?(name: string): Promise<Uint8Array<ArrayBuffer> | undefined>;
  /** Closes the files that `open` added to the given ones. */
  close?(): Promise<void>;
  /** The MD5 of each file, as an index of the model states it, in hexadecimal digits. */
  readonly checksums?: readonly (string | undefined)[];
  /** Adapters that are merged into its weights as these are read. Their files follow those of the model. */
  readonly adapters?: ModelAdapters;
}

/** Gives the type of the floats that codes stand for; undefined for plain elements. */
export type CodedFloats = (form: Form) => CastType | undefined;

/** The adapters of an open model. */
export interface ModelAdapters {
  /** The note about them in a result. */
  readonly note: Note;
  /** Names of their tensors that take the place of some of the model. */
  readonly replaced: readonly string[];
  /**
   * Adds them to the weights that they name.
   * @throws ScalepointError `BAD_FILE` if they name a weight that is not there, or one of another shape; `UNSUPPORTED_DTYPE`
   */
  merge(tensors: readonly LogicalTensor[], codedFloats: CodedFloats): LogicalTensor[];
}

/** A tensor as a whole: floats, or codes together with their scales. */
export interface LogicalTensor {
  readonly name: string;
  readonly shape: readonly number[];
  /** Its type in reports, such as `F16`, `Q4_K` or, for packed codes, `I4`. */
  readonly type: string;
  readonly form: Form;
  /** Its stored tensors, in the order of the codec's parts. A gathered tensor has several of one size, whose elements follow each other. */
  readonly parts: readonly { readonly role: Role; readonly tensor: SourceTensor }[];
  /** True if its parts have unrelated names, as in a tensor of another format. */
  readonly isRenamed?: boolean;
  /** Reading as the transpose of this matrix, if the file leaves open which of the two the original was. */
  readonly turned?: Pick<LogicalTensor, 'shape' | 'form'>;
  /** True if the model reads this matrix as its transpose. */
  readonly isTurned?: boolean;
  /** Assembly of a tensor of single elements that are not contiguous in a file. */
  readonly gathered?: Gathered;
  /** Asks questions about all of it, whose answers decide how it is read. */
  readonly prepare?: ((tensor: PlannedTensor) => Preparation) | undefined;
}

/** Questions about a tensor before it is read. Returns the tensor as it is read then. */
export type Preparation = Generator<
  { readonly kind: 'question'; readonly tensor: PlannedTensor; readonly cut: SetsCut; readonly requests: undefined },
  PlannedTensor,
  unknown
>;

/** Elements of a stored tensor in another order: a strided view, as in NumPy. The result has them one after the other. */
export interface ElementView {
  /** The first element. */
  readonly offset: number;
  /** Dimensions, the outermost first: the count, and the elements from one to the next in the stored tensor. */
  readonly dims: readonly (readonly [count: number, stride: number])[];
}

/** Codes that change places together with their scales. */
export interface CodedView {
  /** The bytes of each part that are taken, in their order in the result. Offset and strides are in bytes. */
  readonly views: Readonly<Record<Role, ElementView>>;
  /** Rows of each matrix of the result, if no rectangle holds rows of two. */
  readonly matrixRows?: number | undefined;
}

/** Elements that are moved while they are read. */
export interface Gathered {
  /** The elements of each stored tensor that are taken, in their order in the result. All in their own order by default. */
  readonly view?: ElementView | undefined;
  /** In place of `view`: one for each part, which is taken as a whole. Then parts may differ in size. */
  readonly views?: readonly ElementView[] | undefined;
  /** Elements of a row. */
  readonly width: number;
  /** The stacked weights, if these are read as a whole, such as codes with their scales. The parts are those of all, one after the other. */
  readonly members?: readonly Pick<LogicalTensor, 'form' | 'parts'>[];
  /** The part of a weight with codes, in place of `view`. */
  readonly coded?: CodedView | undefined;
  /** A factor for each row. Only with one stored tensor. */
  readonly rowFactors?: Float32Array<ArrayBuffer> | undefined;
  /** A factor for each column. Only with one stored tensor. */
  readonly columnFactors?: Float32Array<ArrayBuffer> | undefined;
  /** Rows of zeros behind those of the only stored tensor. @defaultValue 0 */
  readonly zeroRows?: number | undefined;
}

// ------------------------------------------------------------------------------------------------------------------------- plans

/** A tensor of the input with its form in the result. */
export interface PlannedTensor {
  readonly source: LogicalTensor;
  /** Form in the result. */
  readonly form: Form;
  /**
   * Its parts in the result, at least one, named after the tensor. The first holds its elements. Tensors of one shape and form may share
   * the list.
   */
  readonly parts: readonly Part[];
  /** Reason to copy it; undefined if it is converted. */
  readonly kept?: Reason;
  /** True if infinities are by design, as in masks: then NaN alone is an error, and no note mentions them. */
  readonly infinities?: true;
  /** Tensors whose ranges count as its own, in the answers to each RangeCut. */
  readonly sharesRangeWith?: readonly LogicalTensor[] | undefined;
  /** Set if the weight is rounded with GPTQ. */
  readonly feedback?: Feedback | undefined;
  /** The type that it was to have, if another one was chosen because blocks do not divide its rows. */
  readonly unfit?: string | undefined;
  /** The moments of its inputs, if they are known, by which the errors of its outputs are measured. */
  readonly moments?: WeightMoments | undefined;
  /** The divergence of a language model for each unit of its relative error, by which types are chosen for a size. */
  readonly divergence?: number | undefined;
}

/** Second moments of the inputs of a matrix, in the `moments` of the plan, for GPTQ. */
export interface Feedback extends WeightMoments {
  /** Share of the mean of the diagonal that is added to it. */
  readonly damping: number;
  /** The order in which columns are rounded. */
  readonly order: ColumnOrder;
}

/** Bytes of a file of the input. */
export interface Copied {
  /** Index of the model's file. */
  readonly from: number;
  readonly begin: number;
  readonly bytes: number;
}

/** Bytes that are made on demand, anew for each use. */
export interface MadeBytes {
  /** Number of bytes. */
  readonly bytes: number;
  /** Makes all of them, in chunks. */
  make(): Iterable<Uint8Array<ArrayBuffer>>;
}

/**
 * A range of a file to be written: known bytes, bytes of the input, a part of a tensor, given by its index in the plan, or the MD5 of
 * another file, given by its index, as 32 hexadecimal digits.
 */
export type Segment =
  | { readonly at: number; readonly bytes: Uint8Array<ArrayBuffer> }
  | { readonly at: number; readonly made: MadeBytes }
  | { readonly at: number; readonly copied: Copied }
  | { readonly at: number; readonly tensor: number; readonly role: Role }
  | { readonly at: number; readonly md5: number };

/** Bytes of an MD5 as digits. */
export const md5Digits = 32;

/** Makes the bytes as one array. */
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
  /**
   * Suffix of its name behind the output's; empty if it has the output's name. If the output is a folder, a slash and the name of the file in
   * it.
   */
  readonly suffix: string;
  /** Extension of the output's name that the suffix replaces, if present. */
  readonly replaces?: string;
  /** True for an index, which is written after all files that it names. */
  readonly isIndex?: boolean;
  /** True for a file beside the weights, such as config.json: `suffix` is its name beside an output called `model`. */
  readonly isBeside?: boolean;
  /** Size in bytes. */
  readonly size: number;
  /** Contents, in any order. Gaps are filled with 0. */
  readonly segments: readonly Segment[];
}

/** True for a file of a result that is a folder. */
export function isInFolder({ suffix }: Pick<OutputFile, 'suffix'>): boolean {
  return suffix.startsWith('/');
}

/** Contents for a file beside a result, such as an entry of the model's config.json. */
interface SidecarContent {
  /** Name of the option that describes it. */
  readonly option: string;
  /** The value of the entry. */
  readonly value: Readonly<Record<string, unknown>>;
  /** Further keys of the file. */
  readonly also?: Readonly<Record<string, unknown>>;
  /** The content to which the entry is added if none is given. @defaultValue an empty object */
  readonly base?: Readonly<Record<string, unknown>> | undefined;
}

/** A whole result. Everything follows from the headers of the input. */
export interface FilePlan {
  /** Name of the result's format. */
  readonly format: string;
  /** For a model converted to another format: its architecture, in that format's spelling. */
  readonly architecture?: string;
  /** False if the adapters of the model are not part of its weights in the result. @defaultValue true */
  readonly mergesAdapters?: boolean;
  /** At least one file, the main one first; it appears once all others are complete. A part of a result may have no files. */
  readonly files: readonly OutputFile[];
  /** Files of the result that other parts of the work write, and the index of all. */
  readonly others?: readonly OutputFile[];
  /** In the order of the input. */
  readonly tensors: readonly PlannedTensor[];
  /** Notes for the user about the result. */
  readonly notes: readonly Note[];
  readonly sidecars: readonly SidecarContent[];
  /** Methods of quantization of weights that were decoded, which files beside the model may name. */
  readonly decoded?: readonly string[];
  /** The file of second moments, which tasks read beside those of the model. */
  readonly moments?: FileInput | undefined;
  /** True if NaN and infinities are errors in tensors that stay floats and that no rule keeps. */
  readonly refusesNonFinite?: boolean;
}

/** Gives the parts of a tensor in a form. Passed to formats, so that they do not depend on the code of codecs. */
export type PartsOf = (shape: readonly number[], form: Form) => readonly Part[];

/** Inputs of a plan besides model and choices. */
interface PlanContext {
  readonly partsOf: PartsOf;
  /** The name of the result without its folder, if it has one. */
  readonly output: string | undefined;
  readonly readOptionFile: ReadOptionFile;
  /** Finds the names that statistics may have for tensors, besides their own. */
  weightNames(): Promise<WeightNames>;
  /** Loads the facts of known models. */
  knownModels(): Promise<KnownModels>;
}

// -------------------------------------------------------------------------------------------------------------------- verifying

/** An observation about a model. */
export interface Finding {
  /** 'problem': the model is wrong. 'note': users should know, and it may be intended. */
  readonly severity: 'problem' | 'note';
  /** Kind, such as `notFinite`. Programs decide by the kind, never by the text. */
  readonly kind: string;
  /** Description without the tensor's name. */
  readonly text: string;
  /** Name of the tensor concerned. */
  readonly tensor?: string | undefined;
  /** Name of the file, if the model has several. */
  readonly file?: string | undefined;
  /** Offset in the file. */
  readonly byteOffset?: number | undefined;
  /** More data, by kind. */
  readonly [datum: string]: unknown;
}

// ------------------------------------------------------------------------------------------------------------------------ formats

/** A conversion target for models of a format. */
export interface Target {
  /** Value of the option `to`. */
  readonly name: string;
  /** Description in a few words, for the help. */
  readonly about?: string;
  /** Names of the options that apply to it. */
  readonly options: readonly string[];
  /** True if it copies all tensors and changes only files and metadata. */
  readonly copies?: boolean;
  /** Preset that offers it to users without a preference. */
  readonly preset?: 'small' | 'balanced' | 'safe';
  /** Options with files that it cannot do without. */
  readonly needs?: readonly string[];
  /** Options about files beside the result whose contents are those of the model's folder, unless they are given. */
  readonly completes?: readonly string[];
  /** True for a common choice, which errors name before others. */
  readonly isUsual?: boolean;
  /** The next better type of a weight, if outputs are too far off (`minOutput`); undefined if that is the type of the file. */
  readonly raised?: string;
}

/** Choices for results of a given size, in which the types of weights differ. */
export interface Mixtures {
  /** Default target of a mixture. */
  readonly to: string;
  /** Types that rules may give a weight, besides keeping it, for a target; undefined if it takes no mixtures. */
  types(to: string): readonly string[] | undefined;
  /** The unit of a tensor in results for a target: loaders need one type for all of a unit. Undefined if it may have any. */
  unit?(to: string, name: string): string | undefined;
  /** Bytes of a part in a file, including padding. */
  stored(bytes: number): number;
  /** Weight of a tensor's error in relation to the squares of its elements; 1 by default. Tensors that all others depend on weigh more. */
  weight?(name: string): number;
  /** The target that describes a mixture best. @param elements number of elements of each type */
  nearest?(elements: ReadonlyMap<string, number>): string;
}

/**
 * Description of a format for users.
 * @typeParam TargetName values of `to`
 * @typeParam Result name of the results' format
 */
export interface FormatInfo<
  Name extends string = string,
  TargetName extends string = string,
  Result extends string = string,
> {
  /** Name in reports. */
  readonly name: Name;
  /** Name in texts. */
  readonly label: string;
  /** Name of its files in a list of readable files. */
  readonly files: string;
  /** File extensions, the usual one first. Files are recognized by content, not by name. */
  readonly extensions: readonly string[];
  /** Name of the results' format. */
  readonly result: Result;
  /** Description of its results, in a sentence or two. */
  readonly about: string;
  /** Arguments of example command lines. */
  readonly examples: readonly string[];
  /** Targets for its weights. */
  readonly targets: readonly Target[];
  /** More names of targets. */
  readonly aliases: { readonly [Alias in TargetName]?: TargetName };
  /** Targets for rules. */
  readonly ruleTargets: readonly string[];
  /** Formats with the same targets share a table. */
  readonly options: OptionTable;
  /** Name of one element. */
  readonly unit: 'element' | 'parameter';
  /** Ending of a result's name in place of the input's extension, where programs expect one. */
  resultEnd?(to: string): string;
  /** Name of a result of an architecture whose files have names of their own; undefined for others. */
  ownName?(stem: string, to: string, architecture: string): string | undefined;
  /** True if a result has the name of the folder of its model, where the input has a name like `model`. */
  readonly isNamedByModel?: boolean;
  /** True if a result is a folder, whose files have fixed names. */
  readonly isFolder?: boolean;
  /** True if a model may be split into files without an index, whose names end like `-00001-of-00003`. */
  readonly takesSplits?: boolean;
  /** True if adapters can be merged into its weights. */
  readonly takesAdapters?: boolean;
  /** Facts for the summary of a model, in addition to those of all formats. */
  facts?(model: ModelContents): readonly string[];
  /**
   * Programs that read a result, the usual one first.
   * @param architecture of the model, as GGUF calls it; empty if it is no language model; undefined if that is not known
   */
  readers?(to: string, file: string, architecture?: string): readonly Reader[];
}

/** Means to read inputs and samples. */
export interface JudgeContext {
  readonly readOptionFile: ReadOptionFile;
  /** Opens files of samples. */
  readonly open: OpenInput;
  readonly signal: AbortSignal | undefined;
}

/** A program that reads results. */
export interface Reader {
  /** The name of the program. */
  readonly program: string;
  /** A command or a line or two of code that loads the file. */
  readonly code: string;
  /** Further requirements, in a sentence. */
  readonly needs?: string;
  /** The code for a file on the hub, in the repository OWNER/NAME. @defaultValue `code`, with the repository in place of FOLDER */
  readonly fromHub?: string;
}

/**
 * A format.
 * @typeParam Options options of a result
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
  /** Choices for results whose weights differ in type; undefined if they may not differ. */
  readonly mixtures?: Mixtures;
  /** Recognizes a format without a magic number by up to 1024 first bytes. */
  sniff?(head: Uint8Array): boolean;
  /** True for the start of a damaged file, if no format recognizes it: its reader says what is wrong. */
  resembles?(head: Uint8Array): boolean;
  /** The file that names all files of a model, if there can be several. */
  readonly index?: { readonly name: string; sniff(head: Uint8Array): boolean };
  /** Usual names of its models in folders, without the extension; `model` by default. */
  readonly folderNames?: readonly string[];
  /** True if models of other formats in the same folder come first. */
  readonly isLastChoice?: boolean;
  /** True if other files may hold data of a model. The model names them; they have no format themselves. */
  readonly takesData?: boolean;
  /**
   * Opens a model: one file; an index and the files that it names; a model and the files with its data; or all files of a split model.
   * Files that are not given are opened by `open`.
   */
  open(files: readonly OpenFile[], open: OpenInput): Promise<Model>;
  /** Tensors of a model, codes together with their scales. */
  tensors(model: Model): Promise<readonly LogicalTensor[]>;
  /** Tensors as results with codes have them: a matrix for each expert in the place of a stack. @defaultValue as they are */
  apart?(tensors: readonly LogicalTensor[]): readonly LogicalTensor[];
  /**
   * Chooses a form for each tensor, and lays out the result. `choices` are valid. Undefined if models are read to inspect and compare them,
   * and no result is made of them.
   */
  plan?(
    model: Model,
    choices: PlanChoices<Options & Sidecars, TargetName>,
    context: PlanContext,
  ): FilePlan | Promise<FilePlan>;
  /** Words, a few, for its own reasons to keep a tensor; undefined for other reasons. */
  reasonText?(reason: Reason): string | undefined;
  /**
   * Runs two open models on the same inputs and compares their outputs; undefined if models of the format cannot be run. Loads its code
   * when called, because few callers run models.
   * @param readOptionFile reads files of inputs
   * @throws ScalepointError `RUNTIME` if a model cannot be run
   */
  compareRuns?(
    a: Model,
    b: Model,
    options: RunOptions,
    readOptionFile: ReadOptionFile,
    signal?: AbortSignal,
  ): Promise<RunReport>;
  /**
   * Runs an open model, and returns a judge of results that are made of it; undefined if models of the format cannot be run. Loads its code
   * when called.
   * @throws TypeError, RangeError for inputs; ScalepointError `RUNTIME` if the model cannot be run
   */
  judge?(original: Model, options: OutputRunOptions, context: JudgeContext): Promise<OutputJudge<Model>>;
  /** Runs of an open model on samples, loaded when called; undefined if models of the format cannot be run that way. */
  runs?(model: Model): Promise<ModelRuns>;
  /** Compares parts of an open model that describe each other. Its numbers are checked elsewhere. */
  verify?(model: Model, tensors: readonly LogicalTensor[], sidecars: Sidecars): readonly Finding[];
}

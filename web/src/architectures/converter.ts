/**
 * The interface of conversions between formats. A conversion presents an open model of one format as a model of another, whose tensors are
 * read from the first. All features of the other format then apply: its targets, options and plans.
 */
import type { FilePlan, LogicalTensor, OpenModel, PartsOf, Reader, ReadOptionFile } from '../formats/format.js';
import type { PlanChoices } from '../formats/options.js';
import type { Reason } from '../formats/reason.js';
import type { WeightNames } from '../formats/weight-names.js';
import type { Carried } from './carry-out.js';

/** Files beside a model. */
export interface Beside {
  /** Name of the folder, if it is known. */
  readonly folder: string | undefined;
  /** True if each look-up of a file is a request to a server. */
  readonly isRemote: boolean;
  /**
   * Bytes of a file of the folder, such as `config.json`; undefined if the folder lacks it.
   * @throws ScalepointError `IO`, `BAD_FILE` if it is absurdly long
   */
  file(name: string): Promise<Uint8Array<ArrayBuffer> | undefined>;
}

/** A model presented in another format. */
export interface Converted {
  /** Architecture, as the other format names it, such as `flux`. */
  readonly architecture: string;
  /** Its tensors in the other format, without those that are computed instead of read. */
  readonly tensors: readonly LogicalTensor[];
  /** The metadata and all tensors in the other format, for models whose outputs can be computed. */
  readonly contents?: Carried;
  /**
   * Chooses a type for each tensor, and lays out the result. `choices` are valid.
   * @param output the name of the result, if it has one
   * @throws ScalepointError `UNSUPPORTED_DTYPE`
   */
  plan(
    choices: PlanChoices,
    partsOf: PartsOf,
    readOptionFile: ReadOptionFile,
    output?: string,
  ): FilePlan | Promise<FilePlan>;
}

/** Description of a conversion for users. */
interface ConverterInfo {
  /** Name of the format of the models. */
  readonly from: readonly string[];
  /** Name of the format of the results. */
  readonly result: string;
  /** Description of the conversion, in a sentence. */
  readonly about: string;
  /** Arguments of example command lines. */
  readonly examples: readonly string[];
  /** Programs that read a result, if only some readers of its format do. */
  readers?(architecture: string, file: string): readonly Reader[] | undefined;
}

/** A conversion from models of one format to another. */
export interface Converter extends ConverterInfo {
  /** True if it turns results of another conversion back, so that its models have outputs, names and comparisons of their own. @defaultValue false */
  readonly turnsBack?: true;
  /** For messages: condition on the file, to follow `if it is`. */
  readonly condition: string;
  /** Words, a few, for its own reasons to keep a tensor; undefined for other reasons. */
  reasonText?(reason: Reason): string | undefined;
  /**
   * The names that tensors of a model have in the other format, for statistics that name them so; undefined if the conversion does not
   * know the model.
   */
  weightNames?(model: OpenModel, beside: Beside): Promise<WeightNames | undefined>;
  /** Choices that make a result of the kind of this model of the other format, to compare them. */
  choicesLike?(result: OpenModel): object;
  /** Architecture that a model seems to have, such as `flux`; undefined if nothing marks it as a model of the other format's kind. */
  detect(model: OpenModel, beside: Beside): Promise<string | undefined>;
  /**
   * Converts a model; undefined if nothing marks it as a model of the other format's kind.
   * @param choices valid choices for the result
   * @throws ScalepointError `UNKNOWN_FORMAT` if this model cannot be converted, `BAD_FILE`, `UNSUPPORTED_DTYPE`
   */
  convert(model: OpenModel, beside: Beside, choices: object): Promise<Converted | undefined>;
}

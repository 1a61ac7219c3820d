/**
 * What a conversion between formats is to the rest of the package. It takes an open model of one format for one of another, whose tensors
 * are read from the model. So everything that the other format can do follows: its targets, its options, its plans.
 */
import type { FilePlan, LogicalTensor, OpenModel, PartsOf, Reader, ReadOptionFile } from '../formats/format.js';
import type { PlanChoices } from '../formats/options.js';
import type { Reason } from '../formats/reason.js';

/** What lies beside a model. */
export interface Beside {
  /** Name of the folder, if it is known. */
  readonly folder: string | undefined;
  /** Whether looking for a file asks a server. */
  readonly isRemote: boolean;
  /**
   * The bytes of a file of the folder, such as `config.json`; undefined if there is none of that name.
   * @throws ScalepointError `IO`, `BAD_FILE` if it is absurdly long
   */
  file(name: string): Promise<Uint8Array<ArrayBuffer> | undefined>;
}

/** A model that was taken for one of another format. */
export interface Converted {
  /** What it is, as the other format calls it, such as `flux`. */
  readonly architecture: string;
  /** Its tensors as the other format has them. Those that are made and not read are not among them. */
  readonly tensors: readonly LogicalTensor[];
  /**
   * Decides what becomes of each tensor, and lays out the result. The choices have been checked.
   * @throws ScalepointError `UNSUPPORTED_DTYPE`
   */
  plan(choices: PlanChoices, partsOf: PartsOf, readOptionFile: ReadOptionFile): FilePlan | Promise<FilePlan>;
}

/** What users are told about a conversion. */
interface ConverterInfo {
  /** Name of the format of the models. */
  readonly from: string;
  /** Name of the format of the results. */
  readonly result: string;
  /** What is converted, in a sentence. */
  readonly about: string;
  /** Arguments of a command line that converts something. */
  readonly examples: readonly string[];
  /** Programs that read a result, where these are not all that read its format. */
  readers?(architecture: string, file: string): readonly Reader[] | undefined;
}

/** A conversion from models of one format to another. */
export interface Converter extends ConverterInfo {
  /** For messages: what a file has to be, behind `if it is`. */
  readonly condition: string;
  /** The words of its own reasons to keep a tensor, a few of them; undefined for other reasons. */
  reasonText?(reason: Reason): string | undefined;
  /** What a model seems to be, such as `flux`; undefined if nothing says that it is a model of the other format's kind. */
  detect(model: OpenModel, beside: Beside): Promise<string | undefined>;
  /**
   * Undefined if nothing says that it is a model of the other format's kind.
   * @param choices what decides about the result. It has been checked.
   * @throws ScalepointError `UNKNOWN_FORMAT` if it is one that cannot be converted, `BAD_FILE`, `UNSUPPORTED_DTYPE`
   */
  convert(model: OpenModel, beside: Beside, choices: object): Promise<Converted | undefined>;
}

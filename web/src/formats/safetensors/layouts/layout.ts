/**
 * The interface of layouts: the ways in which tools store quantized weights in safetensors. A layout is one file or folder beside this
 * file, and a line in registry.ts. Its targets are rows of ../targets.ts, and its arithmetic is that of codecs.
 *
 * Reading: `find` gathers stored tensors into weights. A weight has the name that it has in a model of floats, such as `X.weight` of
 * `X.qweight`, `X.scales` and `X.qzeros`, and the shape of that model. If the parts hold the transpose, then `grid` and `runs` of the codec
 * map rectangles of the weight to bytes of the stored transpose, and `decode` turns them: nobody else knows.
 *
 * Writing: `plan` makes the decisions of one result. Names of parts derive from the weight's by `suffix` and `replaces` of `Part`.
 */

import type { Note } from '../../../core/note.js';
import type { CastType } from '../../codecs/cast.js';
import type { Form } from '../../codecs/codec.js';
import type { FilePlan, Finding, LogicalTensor, OpenModel, PlannedTensor, Reader, SourceTensor } from '../../format.js';
import type { PlanChoices } from '../../options.js';
import type { Reason } from '../../reason.js';
import type { SafetensorsOptions } from '../options.js';
import type { SafetensorsTarget, StoredCodes } from '../targets.js';

/** An object of a JSON file. */
export type Fields = Readonly<Record<string, unknown>>;

/** Checked choices for a safetensors result. */
export type SafetensorsChoices = PlanChoices<SafetensorsOptions, SafetensorsTarget>;

// ------------------------------------------------------------------------------------------------------------------------ reading

/** A model as a layout looks for its weights in it. */
export interface StoredModel extends Pick<OpenModel, 'metadata'> {
  /** Tensors that no layout before has taken, in file order. */
  readonly tensors: readonly SourceTensor[];
  /** One of them. */
  tensor(name: string): SourceTensor | undefined;
  /**
   * The first bytes of a tensor, all by default; valid until the next call. Neighboring tensors are read together.
   * @throws ScalepointError `BAD_FILE` for more than 1 MiB, because only small tensors are read while planning
   */
  read(tensor: SourceTensor, bytes?: number): Promise<Uint8Array<ArrayBuffer>>;
  /** The object in a JSON file beside the model, such as `config.json`; undefined without the file, and for other contents. */
  json(name: string): Promise<Fields | undefined>;
}

/** A weight that a layout found. */
export interface FoundWeight {
  readonly tensor: LogicalTensor;
  /** Names of stored tensors that belong to it besides its parts, such as its shape. As a whole they become one tensor of floats. */
  readonly beside?: readonly string[];
}

/** The weights of a layout in a model. */
export interface FoundWeights {
  readonly weights: readonly FoundWeight[];
  /** By the name of a stored tensor: the rest of an error message that begins `it is quantized already (GPTQ)`. */
  readonly refused?: ReadonlyMap<string, string>;
}

// ------------------------------------------------------------------------------------------------------------------------ writing

/** A tensor that may become codes. */
export interface WeightToStore {
  readonly source: LogicalTensor;
  /** Its target. */
  readonly to: string;
  /** Type of its floats: F32, F16, BF16 or F64. */
  readonly dtype: string;
}

/** Adds the importance of columns to forms. */
export interface Weighing {
  /** True for a matrix that the form can weigh. */
  takes(shape: readonly number[], form: Form): boolean;
  add(form: Form, importance: Float32Array<ArrayBuffer>): Form;
}

/** The decisions of a layout about one result. */
export interface LayoutPlan {
  /** The tensors under the names and in the order of the result, if these differ: stacked, joined or renamed. */
  readonly tensors?: readonly LogicalTensor[];
  /** Reason to keep a tensor by its name, unless a rule selects it. @defaultValue that of `keeperByName` */
  keptByName?(name: string): Reason | undefined;
  /** Reason why loaders take no codes for a tensor, unless `include` or a rule asks for them. */
  notLinear?(name: string, shape: readonly number[]): Reason | undefined;
  /** Reason why a tensor cannot be stored in codes at all. */
  obstacle?(weight: WeightToStore): Reason | undefined;
  /** Weights with codes that loaders would take for floats because of the other weights, and the reasons to keep them. */
  takenForFloats?(planned: readonly PlannedTensor[]): ReadonlyMap<string, Reason>;
  /** Sizes of groups in a row that a target takes by default, the first that divides all rows. Empty if its form has no choice. */
  groupSizes(to: string): readonly number[];
  /** True if stacked matrices have groups as well; otherwise tensors of more than two dimensions have whole rows. */
  readonly groupsStacked?: boolean;
  /** Type of the tensors without codes, except those that rules keep or convert. @defaultValue as stored */
  readonly floats?: CastType | undefined;
  /** The form of a weight. Equal forms should be one object. @param groupSize undefined for whole rows, and without a choice */
  formOf(weight: WeightToStore, groupSize: number | undefined): Form;
  readonly weighing?: Weighing | undefined;
  /** Adds facts that depend on several tensors. */
  finish?(planned: readonly PlannedTensor[]): readonly PlannedTensor[];
  /** Content for files beside the result. */
  sidecars(planned: readonly PlannedTensor[]): FilePlan['sidecars'];
  /** Notes about readers. */
  notes(planned: readonly PlannedTensor[]): readonly Note[];
  /** `__metadata__` of the result. @defaultValue that of the source */
  metadata?(source: Readonly<Record<string, string>>): Readonly<Record<string, string>>;
  /** Further members of `metadata` in the index of several files. */
  indexMetadata?(planned: readonly PlannedTensor[]): Fields;
  /** Largest size of a file in bytes, where the layout has a rule of its own. */
  readonly shardBytes?: number;
}

/** The start of a plan. */
export interface LayoutStart {
  readonly tensors: readonly LogicalTensor[];
  readonly choices: SafetensorsChoices;
  /** False for a bare array, whose name has no meaning and which has no configuration. */
  readonly isModel: boolean;
  /** The objects in those of the files beside the model that the writer `reads` and that are there. */
  readonly beside: ReadonlyMap<string, Fields>;
}

/** Makes the decisions of a result. */
export type PlanLayout = (start: LayoutStart) => LayoutPlan;

/** Writes a layout. */
interface LayoutWriter {
  /** Kinds of codes in the table of targets that it stores. */
  readonly stores: readonly StoredCodes['kind'][];
  /** True for a layout that only takes known models; others, and bare arrays, are refused. @defaultValue false */
  readonly forKnownModels?: boolean;
  /** JSON files beside the model that plans need, such as `config.json`. */
  readonly reads?: readonly string[];
  /** Makes the decisions of a result; or `load` gives a function that does. */
  plan?: PlanLayout;
  /** Loads large code that only this layout needs. */
  load?(): Promise<PlanLayout>;
  /** Programs that read a result, the usual one first. */
  readers(to: string, file: string): readonly Reader[];
}

/** A layout. */
export interface CodedLayout {
  /** Name in messages. */
  readonly label: string;
  /** Name of a form in messages, if the layout has weights of several tools. */
  labelOf?(form: Form): string;
  /** Ids of the codecs of its weights. No other layout has them. */
  readonly codecs: readonly string[];
  /** Finds its weights. They can be read by `codecOf(form).decode`. Other tools' weights are refused by name, see ../quantized.ts. */
  find?(model: StoredModel): Promise<FoundWeights>;
  /** Type of the floats that a weight is restored to where the target does not say. */
  floats(form: Form): CastType;
  /** False if a weight cannot be cut into tiles for every target. @defaultValue true */
  canBeCut?(tensor: LogicalTensor): boolean;
  /** Values of `quant_method` in the quantization_config of config.json, if it has one; `mlx` for one beside a `quantization`. */
  readonly quantMethods?: readonly string[];
  /** Compares its weights with the quantization_config of its method. */
  verify?(coded: readonly LogicalTensor[], quantization: Fields): readonly Finding[];
  readonly writer?: LayoutWriter;
}

/**
 * The interface of layouts: the ways in which tools store quantized weights in safetensors. A layout is one file or folder beside this
 * file, and a line in registry.ts. Its arithmetic is that of codecs.
 *
 * Reading: `find` gathers stored tensors into weights. A weight has the name that it has in a model of floats, such as `X.weight` of
 * `X.qweight`, `X.scales` and `X.qzeros`, and the shape of that model. If the parts hold the transpose, then `grid` and `runs` of the codec
 * map rectangles of the weight to bytes of the stored transpose, and `decode` turns them: nobody else knows.
 *
 * Writing: `targets` are rows of the table of targets, and `plan` makes the decisions of one result. Names of parts derive from the weight's
 * by `suffix` and `replaces` of `Part`.
 */

import type { Note } from '../../../core/note.js';
import type { CastType } from '../../codecs/cast.js';
import type { Form } from '../../codecs/codec.js';
import type { CodeWidth } from '../../codecs/compressed-tensors.js';
import type {
  FilePlan,
  Finding,
  LogicalTensor,
  OpenModel,
  PlannedTensor,
  Reader,
  SourceTensor,
  Target,
} from '../../format.js';
import type { KnownModels } from '../../known-models.js';
import type { PlanChoices } from '../../options.js';
import type { Reason } from '../../reason.js';
import { shardOptions } from '../../shards.js';
import { statisticsNames } from '../../statistics.js';
import type { SafetensorsOptions } from '../options.js';

/** An object of a JSON file. */
export type Fields = Readonly<Record<string, unknown>>;

/** True for an object of JSON. */
export const isFields = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The object in a JSON text; undefined for other contents. */
export function fieldsInJson(text: string | Uint8Array): Fields | undefined {
  try {
    const value: unknown = JSON.parse(typeof text === 'string' ? text : new TextDecoder().decode(text));
    return isFields(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Types of floats by their names in configurations. */
export const castTypes: ReadonlyMap<unknown, CastType> = new Map([
  ['float32', 'F32'],
  ['float16', 'F16'],
  ['bfloat16', 'BF16'],
]);

/** Checked choices for a safetensors result. */
export type SafetensorsChoices = PlanChoices<SafetensorsOptions>;

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

/** Makes a function that gives equal forms as one object, so that weights of one shape share their tiles. */
export function formSharing<AnyForm extends Form>(): (form: AnyForm) => AnyForm {
  const known = new Map<string, AnyForm>();
  return (form) => {
    const key = JSON.stringify(form);
    const first = known.get(key) ?? form;
    known.set(key, first);
    return first;
  };
}

/** The parts of a weight that are there, by their roles. */
export const partsByRole = (stored: Readonly<Record<string, SourceTensor | undefined>>): LogicalTensor['parts'] =>
  Object.entries(stored).flatMap(([role, tensor]) => (tensor === undefined ? [] : [{ role, tensor }]));

/** The module of a weight: X for `X.weight`. */
export const moduleOfWeight = (name: string): string => name.slice(0, -'.weight'.length);

// ------------------------------------------------------------------------------------------------------------------------ writing

/** Options of all targets that convert. */
export const floatOptions = ['requantize', 'nonFinite', ...shardOptions];

/** Options of targets whose scales are searched for, and which config.json describes. */
export const blockOptions = ['range', 'importance', 'config', ...floatOptions];

/** The same of targets that GPTQ can round. */
export const fedBlockOptions = ['range', ...statisticsNames, 'config', ...floatOptions];

/** A row of the table of targets. */
export interface CodedTarget extends Omit<Target, 'name'> {
  /** Kind of its codes. All codes of a file have one kind, because its configuration describes one. */
  readonly kind: 'integers' | 'floats' | 'comfy' | 'microscaled' | 'mlx' | 'gptq';
  /** Facts of its codes, for the layout alone. */
  readonly codes?: unknown;
  /** Bits of `integers`. */
  readonly bits?: CodeWidth;
  /** Sizes of groups in a row by default: the first that divides all rows is used. @defaultValue the codes leave no choice */
  readonly groupSizes?: readonly number[];
  /** The sizes for experts, which have to become codes together. @defaultValue those of others */
  readonly expertGroups?: readonly number[];
  /** Sizes of groups that loaders know. @defaultValue all */
  readonly knownGroups?: readonly number[];
  /** Targets that rules may mix it with for a result of a given size. @defaultValue it takes no mixtures */
  readonly mixedWith?: readonly string[];
}

/** A tensor that may become codes. */
export interface WeightToStore {
  readonly source: LogicalTensor;
  /** Its target, and the `codes` of its row. */
  readonly to: string;
  readonly codes: unknown;
  /** Type of its floats: F32, F16, BF16 or F64. */
  readonly dtype: string;
}

/** Adds the importance of columns to forms. */
interface Weighing {
  /** True for a matrix that the form can weigh. */
  takes(shape: readonly number[], form: Form): boolean;
  /** True for a form that GPTQ can round. @defaultValue all can */
  feeds?(form: Form): boolean;
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
  /** True if stacked matrices have groups as well; otherwise tensors of more than two dimensions have whole rows. */
  readonly groupsStacked?: boolean;
  /** Type of the tensors without codes, except those that rules keep or convert. @defaultValue as stored */
  readonly floats?: CastType | undefined;
  /** True for tensors without codes that keep their type although `floats` states one. */
  keepsType?(name: string): boolean;
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
  /** The `codes` of the row of the main target; undefined for floats, of which rules take single weights. */
  readonly codes: unknown;
  /** False for a bare array, whose name has no meaning and which has no configuration. */
  readonly isModel: boolean;
  /** The objects in those of the files beside the model that the layout `reads` and that are there. */
  readonly beside: ReadonlyMap<string, Fields>;
  /** Known models, if the layout needs their facts; otherwise empty. */
  readonly known: KnownModels;
}

/** Makes the decisions of a result. */
export type PlanLayout = (start: LayoutStart) => LayoutPlan;

/** A layout. */
export interface CodedLayout {
  /** Name in messages. */
  readonly label: string;
  /** Name of a form in messages, if the layout has weights of several tools. */
  labelOf?(form: Form): string;
  /** Ids of the codecs of its weights. No other layout has them. */
  readonly codecs: readonly string[];
  /** True to look for its weights before others do, because its marks say more than names and types. @defaultValue false */
  readonly findsFirst?: boolean;
  /** Finds its weights. They can be read by `codecOf(form).decode`. Weights of tools that no layout reads are named in ../safetensors.ts. */
  find?(model: StoredModel): Promise<FoundWeights>;
  /** Type of the floats that a weight is restored to where the target does not say. */
  floats(form: Form): CastType;
  /** False if a weight cannot be cut into tiles for every target. @defaultValue true */
  canBeCut?(tensor: LogicalTensor): boolean;
  /** Values of `quant_method` in the quantization_config of config.json, if it has one; `mlx` for one beside a `quantization`. */
  readonly quantMethods?: readonly string[];
  /** Compares its weights with the quantization_config of its method. */
  verify?(coded: readonly LogicalTensor[], quantization: Fields): readonly Finding[];
  /** Its targets by name, in the order of the help; undefined for a layout that is only read. What follows is about their results. */
  readonly targets?: Readonly<Record<string, CodedTarget>>;
  /** True for targets that only take known models; others, and bare arrays, are refused. @defaultValue false */
  readonly forKnownModels?: boolean;
  /** True if plans need the facts that families of architectures state. @defaultValue false */
  readonly needsKnownModels?: boolean;
  /** True if loaders join layers, which need one scheme then. @defaultValue false */
  readonly joinsLayers?: boolean;
  /** True if loaders take a matrix for each expert where checkpoints have all of a layer in one tensor. @defaultValue false */
  readonly splitsExperts?: boolean;
  /** JSON files beside the model that plans need, such as `config.json`. */
  readonly reads?: readonly string[];
  /** Makes the decisions of a result; or `load` gives a function that does. */
  plan?(start: LayoutStart): LayoutPlan;
  /** Loads large code that only this layout needs. */
  load?(): Promise<PlanLayout>;
  /** Programs that read a result besides this package, the usual one first. @param file name of the result */
  readers?(file: string): readonly Reader[];
}

/** A finding of `verify`: the model is wrong. @param data the tensor concerned, and other data by kind */
export const problemFound = (
  kind: string,
  text: string,
  data: Fields & { readonly tensor?: string } = {},
): Finding => ({
  severity: 'problem',
  kind,
  ...data,
  text,
});

/** A finding of `verify` that users should know. @param data the tensor concerned, and other data by kind */
export const noteFound = (kind: string, text: string, data: Fields & { readonly tensor?: string } = {}): Finding => ({
  ...problemFound(kind, text, data),
  severity: 'note',
});

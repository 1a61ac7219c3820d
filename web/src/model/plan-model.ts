/** Plans, also for results of a given size. */
import { typeError } from '../core/errors.js';
import type { Note } from '../core/note.js';
import { ofType } from '../core/option-problem.js';
import type { ModelOutput } from '../files/sinks.js';
import type { PlanChoices, Rule } from '../formats/options.js';
import type { FormatOptions, ModelTarget, ResultFormat } from '../formats/registry.js';
import { sizeForm } from '../formats/shards.js';
import { withCallbacks } from '../pipeline/callbacks.js';
import type { WorkOptions } from '../pipeline/start.js';
import { curveOf, fitOpen, fitWithin, measureOpen, type SizePoint, type TypeFit, type TypeTable } from './fit.js';
import { entriesFor } from './maker.js';
import { type ModelInput, type Opened, withModel } from './open.js';
import { checkPlanOptions, checkWorkOptions, planNames, workNames } from './options.js';
import {
  infoOf,
  type ModelTotals,
  nameOf,
  type PlannedFile,
  type PlannedTensorInfo,
  planFor,
  plannedFiles,
  totalsOf,
} from './plan.js';
import { checkSize, hasSize, type SizeOptions } from './sizes.js';

/** What decides about a result. */
export interface PlanOptions extends FormatOptions, SizeOptions {
  /**
   * safetensors (and .npy, which becomes safetensors): int8, int4, float8e4m3fn, float16, bfloat16. GGUF: Q8_0, Q4_K_M and the other
   * file types of llama-quantize; F16, BF16 and F32 also from quantized files. Both: 'copy', which leaves every tensor as it is, to split or
   * join models or to edit metadata.
   * A folder of a language model, and a checkpoint of a diffusion model, become GGUF by the types of GGUF.
   */
  readonly to: ModelTarget;
  /**
   * Exceptions from what is converted by default; the first match wins.
   * @defaultValue none
   */
  readonly rules?: readonly Rule[];
}

/** What decides about a plan for a result of a given size. */
export interface SizedPlanOptions extends Omit<PlanOptions, 'to'> {
  /** 'auto': for GGUF the file type of most weights, int4 for safetensors, q4 for ONNX. */
  readonly to: ModelTarget | 'auto';
}

/** Options of `planModel`. */
export interface PlanModelOptions extends SizedPlanOptions, WorkOptions {
  /**
   * Where the result will go. Nothing is written; the name of a path or a URL decides about sizes, as results in several files hold the
   * names of some of them.
   * @defaultValue `model` with the usual extension
   */
  readonly output?: ModelOutput;
}

/** What a result of a given size loses. The errors of tensors are in relation to the squares of their elements. */
export interface ModelFit extends Omit<TypeFit, 'to' | 'types'> {
  /** Of the result. */
  readonly bytes: number;
}

/** What would become of a model. */
export interface ModelPlan {
  /** Format of the result. */
  readonly format: ResultFormat;
  /** What weights become. */
  readonly to: ModelTarget;
  /** Of a model that becomes one of another format: what it is, as that format calls it, such as `llama` or `flux`. */
  readonly architecture?: string;
  /** In the order of the input. */
  readonly tensors: readonly PlannedTensorInfo[];
  /** `bytesAfter` is the exact size of the result, as it is called by default or by `output`. */
  readonly totals: ModelTotals;
  /** safetensors with codes: what belongs into config.json as `quantization_config`. */
  readonly quantizationConfig?: Readonly<Record<string, unknown>>;
  /** The files of the result, the main one first. */
  readonly files: readonly PlannedFile[];
  /** With `targetSize` or `targetBitsPerWeight`: the rules that make a result of that size, and what it loses. */
  readonly fit?: ModelFit;
  /** What you should know about the result; mostly nothing. */
  readonly notes: readonly Note[];
  /** What it was made with: `quantizeModel` takes the plan in place of options. Not enumerable, as it says nothing of the model. */
  readonly options: PlanOptions;
}

/** Choices without a size: rules stand in its place. */
export async function fitted(
  opened: Opened,
  options: SizedPlanOptions,
  work: WorkOptions,
): Promise<{ readonly choices: PlanChoices; readonly fit?: ModelFit }> {
  if (!hasSize(options)) return { choices: options as PlanChoices };
  const { choices, fit } = await fitOpen(opened, options as PlanChoices, work);
  const { bytes, error, bound, rules } = fit;
  return { choices, fit: { bytes, error, bound, rules } };
}

/** Options without those that say how the work is done. */
function withoutWork<T extends object>(options: T): T {
  return Object.fromEntries(Object.entries(options).filter(([name]) => !workNames.includes(name))) as T;
}

/**
 * What would become of a model: the type and size of every tensor, and the exact size of the result. Reads headers only, unless the types
 * are to be chosen for a size: then all weights are measured.
 * @example const { totals } = await planModel('model.gguf', { to: 'Q4_K_M' });
 * @example const plan = await planModel('model.gguf', { to: 'auto', targetSize: '3.5GB' });
 * @throws TypeError or RangeError naming the option; what `inspectModel` throws; ScalepointError `UNSUPPORTED_DTYPE` if a tensor cannot
 *   be converted
 */
export async function planModel(file: ModelInput, options: PlanModelOptions): Promise<ModelPlan> {
  checkPlanOptions(options, [...planNames(), 'output', ...workNames]);
  checkWorkOptions(options);
  const { output, ...rest } = options;
  if (output === null || !['undefined', 'string', 'object'].includes(typeof output)) {
    throw typeError('output', ofType('path', 'URL', 'stream'), output);
  }
  return withCallbacks(rest, (own) => withModel(file, own, (opened) => planOpen(opened, own, nameOf(output))));
}

async function planOpen(
  opened: Opened,
  options: SizedPlanOptions & WorkOptions,
  output: string | undefined,
): Promise<ModelPlan> {
  const { choices, fit } = await fitted(opened, options, options);
  const plan = await planFor(opened, choices, output);
  const tensors = plan.tensors.map((tensor) => infoOf(tensor, plan));
  const entries = entriesFor(opened.format, choices.to);
  const result = {
    format: plan.format as ResultFormat,
    to: choices.to,
    ...(plan.architecture === undefined ? {} : { architecture: plan.architecture }),
    tensors,
    totals: totalsOf(tensors, opened.model.bytes, plan),
    files: plannedFiles(plan),
    ...(fit === undefined ? {} : { fit }),
    notes: plan.notes,
    ...Object.fromEntries(plan.sidecars.map(({ option, value }) => [entries[option]?.sidecar?.planned, value])),
  };
  return Object.defineProperty(result, 'options', { value: withoutWork(choices) }) as ModelPlan;
}

/**
 * Measures what each tensor of a model loses in each type that it may have in a result for that target. All of a tensor is measured, in
 * bounded memory and with workers. `fitTypes` and `sizeCurve` answer from the table without reading the model again.
 * @example const table = await measureTypes('model.gguf', { to: 'auto' });
 * @throws what `planModel` throws; ScalepointError `NON_FINITE`, `OVERFLOW`, `WORKER` or `OUT_OF_MEMORY`; the signal's reason
 */
export async function measureTypes(
  file: ModelInput,
  options: Omit<SizedPlanOptions, keyof SizeOptions> & WorkOptions,
): Promise<TypeTable> {
  const { to } = options;
  // No size is needed for a table.
  checkPlanOptions({ ...options, ...(to === 'auto' ? { targetSize: 1 } : {}) }, [...planNames(), ...workNames]);
  checkWorkOptions(options);
  return withCallbacks(options, (own) =>
    withModel(file, own, async (opened) => {
      const usual = opened.format.mixtures?.to ?? to;
      const table = await measureOpen(opened, { ...own, to: to === 'auto' ? usual : to } as PlanChoices, own);
      return { ...table, to };
    }),
  );
}

/**
 * The types with the least sum of errors in a size, from a table that `measureTypes` gave. The size is exact for GGUF; headers of
 * safetensors and ONNX may differ by some bytes from what the table says, which `planModel` and `quantizeModel` make up for.
 * @example const { to, rules } = fitTypes(table, { targetBitsPerWeight: 4.5 });
 * @throws TypeError or RangeError naming the option; with the smallest size if there is nothing as small
 */
export function fitTypes(table: TypeTable, size: SizeOptions): TypeFit {
  checkSize(size);
  if (!hasSize(size)) throw typeError('targetSize', sizeForm, undefined);
  return fitWithin(table, size);
}

/**
 * Sizes of results and the least sum of errors in each, from the smallest one to that of the least error. Between two neighbors, the line
 * that connects them is a lower bound.
 * @example for (const { bytes, error } of sizeCurve(table)) console.log(bytes, error);
 */
export function sizeCurve(table: TypeTable): SizePoint[] {
  return curveOf(table);
}

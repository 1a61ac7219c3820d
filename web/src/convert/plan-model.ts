/** Plans, also for results of a given size. */
import { checkKeys } from '../core/check.js';
import { typeError } from '../core/errors.js';
import type { Note } from '../core/note.js';
import { ofType } from '../core/option-problem.js';
import { pauseFor } from '../core/waiting.js';
import type { ModelOutput } from '../formats/files/sinks.js';
import type { PlanChoices, Rule } from '../formats/options.js';
import type { FormatOptions, ModelTarget, ResultFormat } from '../formats/registry.js';
import { fileName, sizeForm } from '../formats/shards.js';
import { curveOf, fitOpen, fitWithin, measureOpen, type SizePoint, type TypeFit, type TypeTable } from './fit.js';
import { type LoraAdapter, type Opened, withModel } from './open.js';
import { checkPlanOptions, checkSize, hasSizeOption, type SizeOptions, sizeNames } from './options.js';
import {
  infoOf,
  type ModelTotals,
  outputName,
  type PlannedFile,
  type PlannedTensorInfo,
  planFor,
  totalsOf,
  usualOutput,
} from './plan.js';
import type { ModelInput } from './recognize.js';
import { planJson } from './saved-plan.js';
import { checkWorkOptions, type WorkOptions, withCallbacks, workNames } from './work-options.js';

/** The options that decide about a result. */
export interface PlanOptions extends FormatOptions, SizeOptions {
  /**
   * The target, one of:
   * - safetensors, PyTorch and .npy: int8, int4, float8e4m3fn, nvfp4, mxfp4, mxfp8, gptq, gptq-8bit, gptq-3bit, gptq-2bit, awq, float16,
   *   bfloat16; comfy-fp8, comfy-int8, comfy-mxfp8, comfy-nvfp4; mlx-4bit, mlx-2bit, mlx-3bit, mlx-5bit, mlx-6bit, mlx-8bit, mlx-mxfp4,
   *   mlx-nvfp4, mlx-mxfp8.
   *   Also for GGUF files of language models whose names and layouts can be turned back; config.json and tokenizer.json are made with them.
   * - GGUF, and folders of language models and checkpoints of diffusion models, which become GGUF: Q8_0, Q6_K, Q5_K_M, Q5_K_S, Q5_0, Q5_1,
   *   Q4_K_M, Q4_K_S, Q4_0, Q4_1, Q3_K_L, Q3_K_M, Q3_K_S, Q2_K, Q2_K_S, IQ4_XS, IQ4_NL, IQ3_M, IQ3_S, IQ3_XS, IQ3_XXS, IQ2_M, IQ2_S, IQ2_XS,
   *   IQ2_XXS, IQ1_M, IQ1_S, TQ2_0, TQ1_0, Q2_0, Q1_0, MXFP4_MOE, MXFP4, NVFP4, F16, BF16, F32. An `output` called `.gguf` makes GGUF of a
   *   folder.
   * - ONNX: q8, q8-blocks, q4, q4f16, q2, q2f16, bnb4, fp16, int8, uint8, int8-static, int8-weights, uint8-weights, int4-weights.
   * - WebLLM: mlc-q4f16_1, mlc-q4f32_1.
   * - transformers.js, from folders of decoders and encoders: onnx:fp32, onnx:fp16, onnx:q8, onnx:int8, onnx:uint8, onnx:q4, onnx:q4f16,
   *   onnx:bnb4, onnx:q8-blocks.
   * - lora-gguf, which writes the adapter of `lora` alone, for llama.cpp, beside a folder or file of its base model.
   * - copy, which leaves every tensor as it is, for splitting or joining models or editing metadata.
   * - auto with a size, which chooses the types: for GGUF the file type of most weights, int4 for safetensors, q4 for ONNX.
   */
  readonly to: ModelTarget | 'auto';
  /**
   * Exceptions from the default choice of tensors and types; the first match wins.
   * @defaultValue none
   */
  readonly rules?: readonly Rule[] | undefined;
  /**
   * safetensors and files of PyTorch: adapters (LoRA) that are added to the weights, in this order, before these are quantized or cast. Each
   * layer of an adapter has to match a weight.
   * @defaultValue none
   */
  readonly lora?: readonly LoraAdapter[] | undefined;
}

/** Options of `planModel`. */
export interface PlanModelOptions extends PlanOptions, WorkOptions {
  /**
   * Destination of the result. Nothing is written; the name of a path or a URL affects sizes, because results in several files contain the
   * names of some of them.
   * @defaultValue `model` with the usual extension
   */
  readonly output?: ModelOutput | undefined;
}

/** The planned result of a conversion. */
export interface ModelPlan {
  /** Format of the result. */
  readonly format: ResultFormat;
  /** The target of the weights. */
  readonly to: ModelTarget;
  /** Architecture of a model that is converted to another format, in the words of that format, such as `llama` or `flux`. */
  readonly architecture?: string | undefined;
  /** In the order of the input. */
  readonly tensors: readonly PlannedTensorInfo[];
  /** Sums over all tensors. `bytesAfter` is the exact size of the result under the name of `output`, or its default name. */
  readonly totals: ModelTotals;
  /** safetensors with codes: the entry `quantization_config` for config.json. */
  readonly quantizationConfig?: Readonly<Record<string, unknown>> | undefined;
  /** ONNX with caches in float16: the entries for `transformers.js_config` in config.json. */
  readonly transformersConfig?: Readonly<Record<string, unknown>> | undefined;
  /** GPTQ: the content of quantize_config.json. */
  readonly quantizeConfig?: Readonly<Record<string, unknown>> | undefined;
  /** AWQ: the content of quant_config.json. */
  readonly quantConfig?: Readonly<Record<string, unknown>> | undefined;
  /** The files of the result, the main one first. */
  readonly files: readonly PlannedFile[];
  /**
   * With `targetSize` or `targetBitsPerWeight`: the rules that make a result of that size, and its error. `bytes` is its exact size.
   */
  readonly fit?: Omit<TypeFit, 'to' | 'types'> | undefined;
  /** Notes about the result; mostly empty. */
  readonly notes: readonly Note[];
  /**
   * The options of the plan: `quantizeModel` takes the plan in place of options. Not enumerable, as they do not describe the model, but part
   * of `JSON.stringify(plan)`.
   */
  readonly options: PlanOptions;
}

/** Replaces a size among the choices by the rules that make a result of that size. @param name of the output, if it has one */
export async function fitted(
  opened: Opened,
  options: PlanOptions,
  work: WorkOptions,
  name?: string,
): Promise<{ readonly choices: PlanChoices; readonly fit?: ModelPlan['fit'] }> {
  if (!hasSizeOption(options)) return { choices: options as PlanChoices };
  const { choices, fit } = await fitOpen(opened, options as PlanChoices, work, name);
  const { to: _, types: _types, ...rest } = fit;
  return { choices, fit: rest };
}

/**
 * Plans a conversion: the type and size of every tensor, and the exact size of the result. Reads headers only, unless the types are to be
 * chosen for a size: then all weights are measured. For float16 in ONNX models, also looks at the magnitudes of weights, in files that are near.
 * @example const { totals } = await planModel('model.gguf', { to: 'Q4_K_M' });
 * @example const plan = await planModel('model.gguf', { to: 'auto', targetSize: '3.5GB' });
 * @throws TypeError or RangeError naming the option; what `inspectModel` throws; ScalepointError `UNSUPPORTED_DTYPE` if a tensor cannot
 *   be converted
 */
export async function planModel(file: ModelInput, options: PlanModelOptions): Promise<ModelPlan> {
  checkPlanOptions(options, 'planModel');
  checkWorkOptions(options);
  const { output, ...rest } = options;
  if (output === null || !['undefined', 'string', 'object'].includes(typeof output)) {
    throw typeError('output', ofType('path', 'URL', 'stream'), output);
  }
  const name = outputName(output);
  return withCallbacks(rest, (own) =>
    withModel(file, own, async (opened) => {
      const { choices, fit } = await fitted(opened, own, own, name);
      const plan = await planFor(opened, choices, name);
      await pauseFor(plan.tensors);
      const tensors = plan.tensors.map((tensor) => infoOf(tensor, plan));
      const usual = usualOutput(plan.format);
      const result = {
        format: plan.format as ResultFormat,
        to: choices.to,
        ...(plan.architecture === undefined ? {} : { architecture: plan.architecture }),
        tensors,
        totals: totalsOf(tensors, opened.model.bytes, plan),
        files: plan.files.map((made): PlannedFile => ({ name: fileName(usual, made), bytes: made.size })),
        ...(fit === undefined ? {} : { fit }),
        notes: plan.notes,
        ...Object.fromEntries(
          plan.sidecars.map(({ option, value }) => [plan.entries[option]?.sidecar?.planned, value]),
        ),
      };
      const decisive = Object.entries(choices).filter(([option]) => !workNames.includes(option));
      return withOptions(result, Object.fromEntries(decisive) as unknown as PlanOptions);
    }),
  );
}

/** A plan with its options, which are not enumerable but part of its JSON. */
export function withOptions(plan: Omit<ModelPlan, 'options'>, options: PlanOptions): ModelPlan {
  const whole = Object.defineProperty({ ...plan }, 'options', { value: options }) as ModelPlan;
  return Object.defineProperty(whole, 'toJSON', { value: () => planJson(whole) });
}

/**
 * Measures the error of each tensor of a model in each type that it may have in a result for that target. Measures every element, in
 * bounded memory and with workers. `fitTypes` and `sizeCurve` use the table without reading the model again.
 * @example const table = await measureTypes('model.gguf', { to: 'auto' });
 * @throws what `planModel` throws; ScalepointError `NON_FINITE`, `OVERFLOW`, `WORKER` or `OUT_OF_MEMORY`; the signal's reason
 */
export async function measureTypes(
  file: ModelInput,
  options: Omit<PlanOptions, keyof SizeOptions> & WorkOptions,
): Promise<TypeTable> {
  const to = options?.to;
  // A table needs no size, but `auto` is refused without one.
  checkPlanOptions(to === 'auto' ? { ...options, targetSize: 1 } : options, 'measureTypes');
  checkWorkOptions(options);
  return withCallbacks(options, (own) =>
    withModel(file, own, async (opened) => {
      const usual = opened.format.mixtures?.to ?? to;
      const table = await measureOpen(opened, { ...own, to: to === 'auto' ? usual : to } as PlanChoices, own);
      return { ...table, to };
    }),
  );
}

function checkTable(table: unknown): void {
  if (Array.isArray((table as { tensors?: unknown } | null | undefined)?.tensors)) return;
  throw typeError('table', { kind: 'returnedBy', call: 'measureTypes' }, table);
}

/**
 * Finds the types with the least sum of errors in a size, from a table of `measureTypes`. The size is exact for GGUF. The headers of
 * safetensors and ONNX may differ by some bytes from those in the table; `planModel` and `quantizeModel` correct for the difference.
 * @example const { to, rules } = fitTypes(table, { targetBitsPerWeight: 4.5 });
 * @throws TypeError or RangeError naming the option; for a size that is too small, the message gives the smallest possible one
 */
export function fitTypes(table: TypeTable, size: SizeOptions): TypeFit {
  checkTable(table);
  checkKeys(size, sizeNames);
  checkSize(size);
  if (!hasSizeOption(size)) throw typeError('targetSize', sizeForm, undefined);
  return fitWithin(table, size);
}

/**
 * Lists sizes of results and the least sum of errors in each, from the smallest size to that of the least error. Between two neighbors, the
 * line that connects them is a lower bound.
 * @example for (const { bytes, error } of sizeCurve(table)) console.log(bytes, error);
 */
export function sizeCurve(table: TypeTable): SizePoint[] {
  checkTable(table);
  return curveOf(table);
}

/** `quantizeModel`: converts a model file, or carries out a plan. */

import { rangeError, typeError } from '../core/errors.js';
import { exactly, type Hint, mention, ofType, oneOf } from '../core/option-problem.js';
import { amended, checkOptionValues, checkTogether, numberOption, option, toggle } from '../core/schema.js';
import { inMemory, isFolder } from '../formats/files/sinks.js';
import type { PlanChoices } from '../formats/options.js';
import type { FormatOptions, FormatSidecars, ModelTarget, ResultFormat } from '../formats/registry.js';
import { type Opened, withModel } from './open.js';
import {
  checkPlanOptions,
  hasSizeOption,
  outputBoundOf,
  type SizeOptions,
  sizeNames,
  targetsByResult,
  targetsLabel,
  targetTakes,
} from './options.js';
import { infosOf, type ModelFilePlan, outputName, type PlannedFile, planFor } from './plan.js';
import { fitted, type ModelPlan, type PlanOptions } from './plan-model.js';
import { type ModelReport, type Quantized, quantizeOpen, type ResultOptions } from './quantize.js';
import type { ModelInput } from './recognize.js';
import { findsFolds, repairOpen } from './repair.js';
import { resultName } from './result-name.js';
import { checkFits, checkPlan } from './saved-plan.js';
import { checkRunOptions, checkWorkOptions, outputRunNames, type Progress, withCallbacks } from './work-options.js';

/** Options of `quantizeModel`. */
export interface QuantizeModelOptions extends PlanOptions, FormatSidecars, ResultOptions {}

/** Options of `quantizeModel` for several results. */
export interface QuantizeModelsOptions extends Omit<QuantizeModelOptions, 'to' | 'targetSize' | 'targetBitsPerWeight'> {
  /** Targets of one format, each of them once. */
  readonly to: readonly ModelTarget[];
  /**
   * The folder of the results, each under its usual name: a path or URL (Node) of an existing folder, or a FileSystemDirectoryHandle.
   * @defaultValue memory
   */
  readonly output?: string | URL | FileSystemDirectoryHandle | undefined;
}

/** The result of `quantizeModel`. */
export interface QuantizeModelResult {
  /** Format of the result. */
  readonly format: ResultFormat;
  /** The conversion of each tensor, and its error against the original. */
  readonly report: ModelReport;
  /**
   * safetensors with codes: the given config.json, or an empty one, with the `quantization_config`. Without codes: the given one without
   * its `quantization_config`, if it has one. ONNX with caches in float16: the config.json of the model, if it was given or found, with the
   * type of the caches for transformers.js 3.
   */
  readonly config?: Readonly<Record<string, unknown>> | undefined;
  /** GPTQ: the content of quantize_config.json, which AutoGPTQ and GPTQModel read before config.json. */
  readonly quantizeConfig?: Readonly<Record<string, unknown>> | undefined;
  /** AWQ: the content of quant_config.json, which early releases of AutoAWQ read. */
  readonly quantConfig?: Readonly<Record<string, unknown>> | undefined;
  /** The files that were made, the main one first. */
  readonly files: readonly PlannedFile[];
  /** With `targetSize` or `targetBitsPerWeight`: the rules that were found. */
  readonly fit?: NonNullable<ModelPlan['fit']> | undefined;
  /** True if the result is whole. In work in parts, true only for the part that ends last. */
  readonly isWhole: boolean;
  /**
   * The file's bytes.
   * @param name of one of several files
   * @throws TypeError if the file went to `output`; or, with several files, if none has this name
   */
  bytes(name?: string): Promise<Uint8Array<ArrayBuffer>>;
  /** The file's bytes as a Blob. */
  blob(name?: string): Promise<Blob>;
}

/** Options beside a plan. */
type MoreOptions = FormatSidecars &
  ResultOptions &
  Pick<FormatOptions, 'importance' | 'moments' | 'ranges'> &
  Pick<PlanOptions, 'lora'>;

/**
 * Makes a model smaller.
 *
 * safetensors become safetensors in compressed-tensors' layout, with the `quantization_config` for config.json. int8 and int4: codes packed
 * into int32 words, in groups of 128 with a scale for each: `X.weight_packed`, `X.weight_scale` and `X.weight_shape`. int8 takes groups of
 * 64 or 32 where 128 does not divide all rows, and a scale for each row where these do not either. float8: codes with a scale for each row,
 * `X.weight` and `X.weight_scale`. nvfp4, mxfp4 and mxfp8: small floats in blocks. Embeddings, norms, biases, 1-D tensors and lm_head are kept, and tensors that would not become smaller;
 * `rules` change that, except for 1-D tensors. GGUF files become the same, byte for byte, as with llama-quantize. A .npy file becomes a
 * safetensors file with one weight.
 *
 * safetensors also become GGUF, by the types of GGUF: language models with their config.json and tokenizer, which are looked for beside the
 * file or given in a list with it, as llama.cpp converts and quantizes them; and checkpoints of diffusion models by the rules of
 * ComfyUI-GGUF's tools.
 *
 * Kept tensors are copied bit by bit and appear in the report with the reason.
 *
 * Memory: at most 64 MiB a worker and four times the header, whatever the size of the model; 1 KiB for each tensor, and as much again for
 * garbage while the heap has room for it, as in Node without `--max-old-space-size`; 84 MiB for what is fetched ahead from servers; in
 * Node up to 40 MiB for the garbage of connections and Blobs; and the result unless there is an `output`.
 * @example await quantizeModel('model.safetensors', { to: 'int8', output: 'model.int8.safetensors' });
 * @example await quantizeModel(file, await planModel(file, { to: 'int8' }), { output });
 * @example const [q8, q4] = await quantizeModel('model.onnx', { to: ['q8', 'q4'], output: 'onnx' });
 * @example await quantizeModel(file, JSON.parse(planText), { output });
 * @example await quantizeModel('model.onnx', { to: 'q4', minOutput: 0.999, run: { samples: { files: 'samples.npz' } }, output });
 * @param plan of `planModel` for the same file, also after JSON. A RangeError whose option is `plan` says how the file differs.
 * @param more options in addition to those of a plan; if the plan was saved, also `importance`, `moments`, `ranges` and `lora`, because a saved
 *   plan names no files
 * @throws TypeError or RangeError naming the option. ScalepointError `UNKNOWN_FORMAT`, `BAD_FILE`, `UNSUPPORTED_DTYPE`, `IO`,
 *   `CHANGED`, `EXISTS`, `WORKER`, `OUT_OF_MEMORY`; `NON_FINITE` if a weight that becomes codes holds NaN or an infinity, `OVERFLOW` if a
 *   weight exceeds the range of its new type; `QUALITY` (a QualityError); `RUNTIME` or an error of a backend with `minOutput`. The signal's reason if it was aborted. After an error, no output
 *   or part of one is left.
 */
export function quantizeModel(file: ModelInput, plan: ModelPlan, more?: MoreOptions): Promise<QuantizeModelResult>;
/**
 * Makes several results of one model, in the order of the targets, each under its usual name: `model.onnx` becomes `model_quantized.onnx`
 * and `model_q4.onnx`. If one fails, those before it stay. Targets of transformers.js alone are one result, in the folder `output`.
 */
export function quantizeModel(
  file: ModelInput,
  options: QuantizeModelsOptions,
): Promise<readonly QuantizeModelResult[]>;
export function quantizeModel(file: ModelInput, options: QuantizeModelOptions): Promise<QuantizeModelResult>;
export async function quantizeModel(
  file: ModelInput,
  choices: QuantizeModelOptions | QuantizeModelsOptions | ModelPlan,
  more: MoreOptions = {},
): Promise<QuantizeModelResult | readonly QuantizeModelResult[]> {
  const targets: unknown = (choices as { to?: unknown } | null | undefined)?.to;
  if (Array.isArray(targets)) {
    const { to: _, ...rest } = choices as QuantizeModelsOptions;
    if (targets.length === 0) throw rangeError('to', { kind: 'number', min: 1, unit: 'target' }, 0);
    for (const [i, to] of targets.entries()) {
      if (typeof to !== 'string') throw typeError(`to[${i}]`, ofType('string'), to);
      if (targets.indexOf(to) < i) throw rangeError(`to[${i}]`, { kind: 'distinct' }, to);
    }
    if (hasSizeOption(choices as SizeOptions)) {
      const hint: Hint = { kind: 'with', options: sizeNames.map((name) => mention(name)) };
      throw rangeError('to', exactly(1, 'target'), targets.length, hint);
    }
    // Targets of one folder are models of one result.
    const [[first, ...also] = [], ...others] = targetsByResult(targets as readonly ModelTarget[]);
    if (first !== undefined && also.length > 0 && others.length === 0)
      return [await quantizeModel(file, { ...rest, to: first, also } as QuantizeModelOptions)];
    for (const to of targets) checkQuantizeOptions({ ...rest, to });
    return withCallbacks(rest, (own) => withModel(file, own, (opened) => quantizeSeveral(opened, targets, own)));
  }
  // Take the options of a plan, if one was given.
  let options = choices as QuantizeModelOptions;
  let check: ((plan: ModelFilePlan) => void) | undefined;
  if (typeof choices === 'object' && choices !== null && 'tensors' in choices && 'totals' in choices) {
    checkPlan(choices);
    check = (plan) => checkFits(choices, infosOf(plan));
    options = { ...choices.options, ...more } as QuantizeModelOptions;
  } else if (Object.keys(more).length > 0) options = { ...options, ...more };
  checkQuantizeOptions(options);
  return withCallbacks(options, (own) =>
    withModel(file, own, async (opened) => {
      const { choices: fittedChoices, fit } = await fitted(opened, own, own, outputName(own.output));
      return quantizeHolding(opened, fittedChoices, own, { check, fit });
    }),
  );
}

/** Options of `quantizeModel` that are about no format. A result of a given size has no room for better types. */
const resultEntries = {
  overwrite: toggle(),
  minSqnrDb: numberOption({}),
  minOutput: amended(option(outputBoundOf), {
    excludedBy: [{ option: 'targetSize' }, { option: 'targetBitsPerWeight' }],
  }),
  run: amended(
    option(() => {}),
    { needs: [{ option: 'minOutput' }, { option: 'foldOutliers', value: true }] },
  ),
};

function checkQuantizeOptions(options: QuantizeModelOptions): void {
  checkPlanOptions(options, 'quantizeModel');
  checkWorkOptions(options);
  checkOptionValues(resultEntries, options);
  checkTogether(resultEntries, options);
  if (options.run !== undefined) checkRunOptions(options.run, outputRunNames);
  options.signal?.throwIfAborted();
}

/**
 * Quantizes an open model, with norms folded as `foldOutliers` asks, and types raised until outputs hold `minOutput`, if these are given.
 * @param called the name of the result if the output has no name
 * @param check called with the plan before types are raised
 */
async function quantizeHolding(
  opened: Opened,
  choices: PlanChoices,
  options: ResultOptions,
  {
    called,
    check,
    fit,
  }: { called?: string; check?: ((plan: ModelFilePlan) => void) | undefined; fit?: ModelPlan['fit'] },
): Promise<QuantizeModelResult> {
  const { minOutput, output } = options;
  let made: Quantized;
  if (minOutput === undefined && !findsFolds(choices))
    made = await quantizeOpen(opened, choices, options, { called, check });
  else {
    // Options are checked before the model is run.
    const planned = await planFor(opened, choices, outputName(output) ?? called);
    check?.(planned);
    const { choices: found, ...report } = await repairOpen(opened, choices, options);
    made = await quantizeOpen(opened, found, options, { called });
    made = { ...made, report: { ...made.report, ...report } };
  }
  const { format, report, sidecars, memory, files, isSingle, isWhole } = made;
  const sinkNamed = (name: string | undefined) => {
    const sinks = inMemory(memory);
    const found = sinks[name === undefined && isSingle ? 0 : files.findIndex((file) => file.name === name)];
    if (found !== undefined) return found;
    throw typeError('name', oneOf(files.map((file) => file.name)), name);
  };
  return {
    format,
    report,
    ...sidecars,
    files,
    isWhole,
    ...(fit === undefined ? {} : { fit }),
    bytes: async (name) => sinkNamed(name).bytes(),
    blob: async (name) => sinkNamed(name).blob(),
  };
}

// ----------------------------------------------------------------------------------------------------------------- several results

/** Makes a result for each target, each under its usual name. Errors that follow from the arguments are thrown before any work. */
async function quantizeSeveral(
  opened: Opened,
  targets: readonly ModelTarget[],
  options: Omit<PlanChoices, 'to'> & ResultOptions,
): Promise<readonly QuantizeModelResult[]> {
  const { onProgress, output: folder } = options;
  const source = opened.model.files[0]?.name?.split(/[\\/]/).pop() || 'model';
  const wanted: { choices: PlanChoices & ResultOptions; called: string }[] = [];
  for (const own of targetsByResult(targets)) {
    const [to, ...also] = own as readonly [ModelTarget, ...ModelTarget[]];
    // Leave out the options that only other targets know.
    const given = Object.entries(options).filter(
      ([option]) => own.some((one) => targetTakes(one, option)) || !targets.some((other) => targetTakes(other, option)),
    );
    const report = onProgress && ((progress: Progress) => onProgress({ ...progress, to }));
    const choices = {
      ...Object.fromEntries(given),
      to,
      ...(also.length > 0 && { also }),
      ...(report && { onProgress: report }),
    };
    const { format, architecture } = await planFor(opened, choices);
    const called = resultName(source, { to: targetsLabel(to, also), format, architecture });
    // A path in the folder; or the folder itself if it is a handle, which makes files by name.
    let output = folder;
    if (folder instanceof URL) output = new URL(encodeURIComponent(called), folder.href.replace(/\/?$/, '/'));
    else if (typeof folder === 'string') output = /[\\/]$/.test(folder) ? folder + called : `${folder}/${called}`;
    else if (folder !== undefined && !isFolder(folder))
      throw rangeError('output', ofType('path of a folder', 'FileSystemDirectoryHandle'), folder);
    wanted.push({ choices: output === undefined ? choices : { ...choices, output }, called });
  }
  const results: QuantizeModelResult[] = [];
  for (const { choices, called } of wanted) results.push(await quantizeHolding(opened, choices, choices, { called }));
  return results;
}

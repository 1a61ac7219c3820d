/** Measures the loss of a conversion on a sample of each tensor, or on all of it. Writes nothing. */

import { rangeError } from '../core/errors.js';
import { adaptedRows } from '../formats/adapted-rows.js';
import { elementsOf } from '../formats/codecs/elements.js';
import type { ElementView, Gathered, LogicalTensor } from '../formats/format.js';
import { mainPart } from './logical-tensor.js';
import { measureTensors } from './measuring.js';
import { withModel } from './open.js';
import { checkPlanOptions } from './options.js';
import { planFor } from './plan.js';
import { fitted, type PlanOptions } from './plan-model.js';
import { type ModelReport, reportOf } from './quantize.js';
import type { ModelInput } from './recognize.js';
import { checkWorkOptions, type WorkOptions, withCallbacks } from './work-options.js';

/** Options of `estimateModel`, without those of a plan. */
export interface EstimateOptions extends WorkOptions {
  /**
   * Approximate number of elements to measure of each tensor. Rows from the middle of a longer tensor stand for all of it, and are
   * quantized as if they were the tensor. Infinity measures everything.
   * @defaultValue 65536
   */
  readonly sample?: number | undefined;
}

/** The loss of a conversion. */
export interface ModelEstimate extends ModelReport {
  /** Number of converted tensors that were measured on a sample. If it is 0, the errors are those of the result. */
  readonly sampled: number;
}

const defaultSample = 1 << 16;

/** Rows from the middle of a tensor, as a new tensor. The same tensor if it is short, or if its rows are not contiguous. */
export function sampleRows(source: LogicalTensor, most: number): LogicalTensor {
  const { gathered } = source;
  if (gathered !== undefined) return sampleOfGathered(source, gathered, most);
  const { shape, parts } = source;
  const [rows = 1, ...rest] = shape;
  const { bytes, byteOffset, rearranged } = mainPart(source);
  const width = elementsOf(rest);
  const wanted = Math.max(1, Math.floor(most / Math.max(1, width)));
  const rowBytes = bytes / rows;
  if (shape.length < 2 || wanted >= rows || rearranged || !Number.isInteger(rowBytes)) return source;
  const first = Math.floor((rows - wanted) / 2);
  if (parts.length > 1) return adaptedRows(source, first, wanted) ?? source;
  const tensor = { ...mainPart(source), byteOffset: byteOffset + first * rowBytes, bytes: wanted * rowBytes };
  return { ...source, shape: [wanted, ...rest], parts: parts.map((part) => ({ ...part, tensor })) };
}

/** Rows from the middle of a view, about as many as wanted; undefined if its dimensions are not those of rows. */
function middleRows(
  { offset, dims }: ElementView,
  width: number,
  wanted: number,
): Pick<LogicalTensor, 'shape' | 'gathered'> | undefined {
  const [first, ...rest] = dims;
  if (first === undefined) return undefined;
  const [count, stride] = first;
  const inner = rest.reduce((product, [n]) => product * n, 1) / width;
  if (!Number.isInteger(inner)) return undefined;
  if (inner > wanted)
    return middleRows({ offset: offset + Math.floor((count - 1) / 2) * stride, dims: rest }, width, wanted);
  const some = Math.min(count, Math.floor(wanted / inner));
  const view = { offset: offset + Math.floor((count - some) / 2) * stride, dims: [[some, stride] as const, ...rest] };
  return { shape: [some * inner, width], gathered: { width, view } };
}

/** Samples the stored tensor in the middle of a gathered one, where cutWeighted looks for its importance. */
function sampleOfGathered(
  whole: LogicalTensor,
  { width, view, views, members, coded, rowFactors, columnFactors, zeroRows = 0 }: Gathered,
  most: number,
): LogicalTensor {
  if ((coded ?? rowFactors ?? columnFactors) !== undefined) return whole;
  const { parts, ...source } = whole;
  const inMiddle = <T>(list: readonly T[]) => list[Math.floor((list.length - 1) / 2)] as T;
  const rows = elementsOf(source.shape) / (members ?? parts).length / width - zeroRows;
  if (members !== undefined) {
    const { name, type } = source;
    return sampleRows({ name, type, shape: [rows, width], ...inMiddle(members) }, most);
  }
  const part = inMiddle(parts);
  if (views !== undefined) {
    const shape = [elementsOf(part.tensor.shape) / width, width];
    return sampleOfGathered({ ...whole, shape, parts: [part] }, { width, view: inMiddle(views) }, most);
  }
  const { name, type, form, prepare } = source;
  if (view !== undefined) {
    const matrix = elementsOf(source.shape.slice(-2)) / width;
    const some = middleRows(view, width, Math.min(rows, matrix, Math.max(1, Math.floor(most / Math.max(1, width)))));
    return some === undefined ? whole : { ...whole, ...some, parts: [part] };
  }
  return sampleRows({ name, type, form, shape: [rows, width], parts: [part], prepare }, most);
}

/**
 * Estimates the loss of a conversion: the error of each tensor that would be converted, measured on a sample of it, with the exact sizes of
 * a plan. Writes nothing, and reads no more than the sample.
 * @example const { tensors } = await estimateModel('model.safetensors', { to: 'int4' });
 * @throws what `planModel` throws; ScalepointError `NON_FINITE`, `OVERFLOW`, `WORKER` or `OUT_OF_MEMORY`; the signal's reason
 */
export async function estimateModel(file: ModelInput, options: PlanOptions & EstimateOptions): Promise<ModelEstimate> {
  checkPlanOptions(options, 'estimateModel');
  checkWorkOptions(options);
  const { sample } = options;
  if (sample !== undefined && !(typeof sample === 'number' && sample >= 1)) {
    throw rangeError('sample', { kind: 'number', min: 1 }, sample);
  }
  options.signal?.throwIfAborted();
  return withCallbacks(options, (own) =>
    withModel(file, own, async (opened) => {
      const { choices } = await fitted(opened, own, own);
      const { model } = opened;
      const plan = await planFor(opened, choices);
      let sampled = 0;
      const chosen = plan.tensors.map((tensor) => {
        const source = tensor.kept === undefined ? sampleRows(tensor.source, sample ?? defaultSample) : tensor.source;
        if (source === tensor.source) return tensor;
        sampled++;
        return { ...tensor, source };
      });
      const sums = await measureTensors(model, chosen, plan.moments, own);
      return { ...reportOf(model, plan, sums.measures(chosen)), sampled };
    }),
  );
}

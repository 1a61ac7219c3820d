/** Measures the loss of a conversion on a sample of each tensor, or on all of it. Writes nothing. */
import { elementsOf } from '../codecs/elements.js';
import { adaptedRows } from '../formats/adapted-rows.js';
import type { Gathered, LogicalTensor } from '../formats/format.js';
import type { PlanChoices } from '../formats/options.js';
import { mainPart } from '../pipeline/logical-tensor.js';
import { measureTensors } from '../pipeline/measuring.js';
import type { WorkOptions } from '../pipeline/start.js';
import type { Opened } from './open.js';
import { planFor } from './plan.js';
import { type ModelReport, reportOf } from './report.js';

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
function sampleOf(source: LogicalTensor, most: number): LogicalTensor {
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

/** The same for the stored tensor in the middle, where cutWeighted looks for its importance. */
function sampleOfGathered(
  { parts, ...source }: LogicalTensor,
  { width, members }: Gathered,
  most: number,
): LogicalTensor {
  const inMiddle = <T>(list: readonly T[]) => list[Math.floor((list.length - 1) / 2)] as T;
  const rows = elementsOf(source.shape) / (members ?? parts).length / width;
  if (members !== undefined) {
    const { name, type } = source;
    return sampleOf({ name, type, shape: [rows, width], ...inMiddle(members) }, most);
  }
  const part = inMiddle(parts);
  const { name, type, form } = source;
  return sampleOf({ name, type, form, shape: [rows, width], parts: [part] }, most);
}

/** Estimates the result of an open model. See `estimateModel`. */
export async function estimateOpen(
  opened: Opened,
  choices: PlanChoices,
  options: EstimateOptions,
): Promise<ModelEstimate> {
  const { sample = defaultSample } = options;
  const { model } = opened;
  const plan = await planFor(opened, choices);
  let sampled = 0;
  const chosen = plan.tensors.map((tensor) => {
    const source = tensor.kept === undefined ? sampleOf(tensor.source, sample) : tensor.source;
    if (source === tensor.source) return tensor;
    sampled++;
    return { ...tensor, source };
  });
  const sums = await measureTensors(model, chosen, plan.data, options);
  return { ...reportOf(model, plan, sums.measures(chosen)), sampled };
}

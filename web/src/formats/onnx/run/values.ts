/** Values of runs as numbers, and their comparison. */

import { measuresOf, mismatchesOf, nonFiniteOf } from '../../../core/measure.js';
import { fromHalf } from '../../codecs/floats-in.js';
import type { ComparedOutput, RunReport, RunTensor, SkippedOutputReason } from '../../run.js';
import { sumsOf } from './sums.js';

export const onlyInA: SkippedOutputReason = { kind: 'onlyInA', text: 'only A has it' };
export const onlyInB: SkippedOutputReason = { kind: 'onlyInB', text: 'only B has it' };

/** Numbers of a numeric tensor. */
export function runtimeNumbers({ type, data }: RunTensor): ArrayLike<number> {
  if (type === 'float16' && data instanceof Uint16Array) return Float32Array.from(data, fromHalf);
  if (type === 'int64' || type === 'uint64') return Float64Array.from(data as ArrayLike<bigint>, Number);
  return data as ArrayLike<number>;
}

/** The reason not to compare two values; undefined if they can be compared. */
export function whyNotCompared(a: RunTensor, b: RunTensor): SkippedOutputReason | undefined {
  if (a.dims.join() !== b.dims.join()) {
    const text = `shapes ${a.dims.join('×')} and ${b.dims.join('×')}`;
    return { kind: 'shapes', a: a.dims, b: b.dims, text };
  }
  const hasTexts = [a, b].some(({ type }) => type === 'string');
  return hasTexts ? { kind: 'notNumbers', text: 'texts' } : undefined;
}

/** Compares two values of a name that can be compared. */
export function compareValue(name: string, a: RunTensor, b: RunTensor): ComparedOutput {
  const [x, y] = [runtimeNumbers(a), runtimeNumbers(b)] as const;
  const sums = sumsOf(x, y);
  const mismatched = nonFiniteOf(sums) > 0 ? mismatchesOf(x, y) : 0;
  return { name, shape: a.dims, error: measuresOf(sums, x.length), mismatched };
}

/** Compares the outputs of two models. */
export function compareOutputs(
  before: ReadonlyMap<string, RunTensor>,
  after: ReadonlyMap<string, RunTensor>,
): Pick<RunReport, 'outputs' | 'skippedOutputs'> {
  const outputs: ComparedOutput[] = [];
  const skippedOutputs: RunReport['skippedOutputs'][number][] = [];
  for (const [name, value] of before) {
    const other = after.get(name);
    const reason = other === undefined ? onlyInA : whyNotCompared(value, other);
    if (reason !== undefined) skippedOutputs.push({ name, reason });
    else if (other !== undefined) outputs.push(compareValue(name, value, other));
  }
  for (const name of after.keys()) if (!before.has(name)) skippedOutputs.push({ name, reason: onlyInB });
  return { outputs, skippedOutputs };
}

/** Compares tensors of two models: decodes both, and adds up the errors. */

import { sumCount } from '../core/measure.js';
import type { Rectangle } from '../formats/codecs/codec.js';
import { elementsOf, rectanglesOf } from '../formats/codecs/elements.js';
import type { ByteSource } from '../formats/files/bytes.js';
import type { LogicalTensor, PlannedTensor } from '../formats/format.js';
import { runSteps } from './engine.js';
import { TensorProgress } from './progress.js';
import { gridOf, rectangleInput } from './rectangle-input.js';
import { type WorkOptions, withRunner } from './start.js';
import type { Steps } from './steps.js';

/** Two tensors of one shape. */
export type TensorPair = readonly [a: LogicalTensor, b: LogicalTensor];

/** The errors of all pairs. */
export interface PairSums {
  /** Error sums of each pair, in the core's order. */
  readonly sums: readonly Float64Array[];
  /** For each pair the count of elements that are NaN or infinite in one tensor, and another value in the other. */
  readonly mismatched: Float64Array;
}

/** Bytes of the parts that hold the elements, in the whole tensor. */
function elementBytes({ parts }: LogicalTensor): number {
  return parts.reduce((sum, { role, tensor }) => sum + (role === parts[0]?.role ? tensor.bytes : 0), 0);
}

/** Cuts a pair into rectangles at which both tensors can be cut. */
function rectanglesOfPair(pair: TensorPair): Iterable<Rectangle> {
  return rectanglesOf(elementsOf(pair[0].shape), pair.map(gridOf));
}

/** The tasks of all pairs. @param firstFileOfB count of the files of the first model */
function* comparedSteps(pairs: readonly TensorPair[], firstFileOfB: number, progress: TensorProgress): Steps {
  for (const [index, pair] of pairs.entries()) {
    const [a, b] = pair;
    if (elementsOf(a.shape) === 0) {
      progress.add(index, 0);
      continue;
    }
    const tensor: PlannedTensor = { source: a, form: a.form, parts: [] };
    for (const rectangle of rectanglesOfPair(pair)) {
      const { rows, columns } = rectangle;
      const inputs = [rectangleInput(a, rectangle), rectangleInput(b, rectangle, firstFileOfB)] as const;
      const sourceBytes = inputs[0].parts.reduce(
        (sum, { role, bytes, count }) => sum + (role === a.parts[0]?.role ? bytes * count : 0),
        0,
      );
      const task = { kind: 'compare', rows, columns, inputs } as const;
      yield { kind: 'tile', tensor, index, task, destinations: [], sourceBytes, rectangle };
    }
  }
}

/** Compares pairs of tensors. @param files of both models */
export async function comparePairs(
  pairs: readonly TensorPair[],
  [filesOfA, filesOfB]: readonly [readonly ByteSource[], readonly ByteSource[]],
  options: WorkOptions,
): Promise<PairSums> {
  const { onProgress, signal } = options;
  const files = [...filesOfA, ...filesOfB];
  const elements = pairs.reduce((sum, [{ shape }]) => sum + elementsOf(shape), 0);
  const reported = (index: number) => {
    const [a] = pairs[index] as TensorPair;
    return { phase: 'quantize', tensor: a.name, bytes: elementBytes(a) } as const;
  };
  const progress = new TensorProgress(pairs.length, reported, onProgress);
  const mismatched = new Float64Array(pairs.length);
  const sums = await withRunner(elements, { sources: files, sinks: [] }, options, (runner) =>
    runSteps({
      steps: comparedSteps(pairs, filesOfA.length, progress),
      tensors: pairs.length,
      files,
      runner,
      progress,
      signal,
      take({ tiles }, { answers }) {
        for (const { task, mismatched: count = 0 } of answers) {
          const { index } = tiles[task] as (typeof tiles)[number];
          mismatched[index] = (mismatched[index] as number) + count;
        }
      },
    }),
  );
  return { sums: pairs.map((_, i) => sums.of(i) ?? new Float64Array(sumCount)), mismatched };
}

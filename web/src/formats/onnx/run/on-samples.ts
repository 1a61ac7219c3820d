/** Runs a model on samples, and compares its outputs with those of another one over all of them. */
import { addSums, measuresOf, mismatchesOf, nonFiniteOf, sumCount } from '../../../core/measure.js';
import type { EvaluatedOutput, InputArray, OutputsEvaluation, RunTensor, SkippedOutputReason } from '../../run.js';
import { feedsFrom, type Known } from './inputs.js';
import { failed, type RuntimeTensor, type Session, type TypedRuntime } from './runtime.js';
import { sumsOf } from './sums.js';
import { onlyInA, onlyInB, runtimeNumbers, whyNotCompared } from './values.js';

/** A session of a model, and its facts for inputs. */
export interface SampledSession {
  readonly runtime: TypedRuntime;
  readonly session: Session;
  readonly known: Known;
  /** Sizes of dimensions that samples leave open, by name or as `input.axis`. */
  readonly dimensions: Readonly<Record<string, number>>;
}

/** The inputs of a sample, for a session. @throws RangeError for invalid inputs, or ones that lack */
export function sampleFeeds(
  { runtime, session, known, dimensions }: SampledSession,
  arrays: ReadonlyMap<string, InputArray>,
  pathOf: (name: string) => string,
): Record<string, RuntimeTensor> {
  const given = { arrays, pathOf, dimensions, seed: 1, isStrict: true };
  return feedsFrom(runtime, session.inputMetadata, known, given).values;
}

/** Runs a session. @param label names the model in errors. @throws ScalepointError `RUNTIME` */
export async function outputsOf(
  session: Session,
  feeds: Record<string, RuntimeTensor>,
  label: string,
  names: readonly string[] = session.outputNames,
): Promise<ReadonlyMap<string, RuntimeTensor>> {
  try {
    const results = await session.run(feeds, names, { logSeverityLevel: 4 });
    return new Map(names.flatMap((name) => (results[name] ? [[name, results[name]] as const] : [])));
  } catch (cause) {
    throw failed(label, 'run', cause);
  }
}

/** Errors of an output so far. */
class SampleErrors {
  readonly #sums = new Float64Array(sumCount);
  #count = 0;
  #mismatched = 0;
  #worst: EvaluatedOutput['worst'] | undefined;

  add(sample: number, reference: RunTensor, output: RunTensor): void {
    const [x, y] = [runtimeNumbers(reference), runtimeNumbers(output)];
    const sums = sumsOf(x, y);
    if (nonFiniteOf(sums) > 0) this.#mismatched += mismatchesOf(x, y);
    addSums(this.#sums, sums);
    this.#count += x.length;
    const error = measuresOf(sums, x.length);
    if (this.#worst === undefined || error.sqnrDb < this.#worst.error.sqnrDb) this.#worst = { sample, error };
  }

  result(name: string): EvaluatedOutput {
    const worst = this.#worst as EvaluatedOutput['worst'];
    return { name, error: measuresOf(this.#sums, this.#count), mismatched: this.#mismatched, worst };
  }
}

/** Compares the outputs of a model, A, with those of a reference, B, one sample after the other. */
export class ComparedSamples {
  readonly #errors = new Map<string, SampleErrors>();
  readonly #skipped = new Map<string, SkippedOutputReason>();
  #samples = 0;

  /** Adds a sample. Returns the number of samples. */
  add(reference: ReadonlyMap<string, RunTensor>, outputs: ReadonlyMap<string, RunTensor>): number {
    for (const [name, value] of reference) {
      const other = outputs.get(name);
      const reason = other === undefined ? onlyInB : whyNotCompared(other, value);
      if (reason !== undefined && !this.#skipped.has(name)) this.#skipped.set(name, reason);
      if (other === undefined || this.#skipped.has(name)) continue;
      const own = this.#errors.get(name) ?? new SampleErrors();
      this.#errors.set(name, own);
      own.add(this.#samples, value, other);
    }
    for (const name of outputs.keys()) if (!reference.has(name)) this.#skipped.set(name, onlyInA);
    return ++this.#samples;
  }

  result(): OutputsEvaluation {
    const compared = [...this.#errors].filter(([name]) => !this.#skipped.has(name));
    return {
      samples: this.#samples,
      outputs: compared.map(([name, one]) => one.result(name)),
      skippedOutputs: [...this.#skipped].map(([name, reason]) => ({ name, reason })),
    };
  }
}

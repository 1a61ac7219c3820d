/** Statistics of models that a runtime runs on samples. */
import { ScalepointError, typeError } from '../core/errors.js';
import { ofType } from '../core/option-problem.js';
import { openWithin } from '../files/open.js';
import type { ModelOutput } from '../files/sinks.js';
import { tooFewToHoldBack } from '../formats/held-back.js';
import type { ModelRuns, ModelSample, ModelSamples, RunOptions, UnreachedWeight } from '../formats/run.js';
import type { MomentsFile } from '../formats/statistics.js';
import { importanceOf } from '../language/collect.js';
import { MomentsLayout } from '../language/moments-file.js';
import { rangesFile } from '../language/ranges-file.js';
import type { LanguageData } from '../language/tokens.js';
import { chunkedTokens, type TextOptions } from './evaluate-model.js';
import type { Opened } from './open.js';
import { momentsEnd, rangesEnd, withOutputFiles } from './statistics-output.js';

/** Options of `calibrateModel`, checked. */
interface RunsOptions extends TextOptions {
  readonly output: ModelOutput | undefined;
  readonly overwrite: boolean;
  readonly moments: boolean;
  /** The share of samples that is held back from moments. */
  readonly heldBack: number;
  /** True if the caller gave it. */
  readonly isShareGiven: boolean;
  readonly ranges: boolean;
  readonly run: Pick<RunOptions, 'runtime' | 'dimensions'>;
}

/** Statistics, as `calibrateModel` gives them. */
interface RunStatistics extends Omit<MomentsFile, 'path'> {
  readonly tokens: number;
  readonly chunks: number;
  readonly heldBackChunks?: number | undefined;
  readonly weights: readonly string[];
  readonly unreached: readonly UnreachedWeight[];
  readonly moments?: MomentsFile | undefined;
  readonly ranges?: MomentsFile | undefined;
}

const isText = (one: unknown) => typeof one === 'string' || ArrayBuffer.isView(one) || Array.isArray(one);

/** True for texts and ids, which are not samples. */
function isLanguageData(data: LanguageData | ModelSamples): data is LanguageData {
  if (typeof data === 'string' || ArrayBuffer.isView(data)) return true;
  return Array.isArray(data) && data.length > 0 && data.every((one) => isText(one) || typeof one === 'number');
}

/** Samples of texts: one for each chunk. */
async function samplesOfTexts(
  opened: Opened,
  runs: ModelRuns,
  data: LanguageData,
  options: TextOptions,
): Promise<ModelSample[]> {
  if (runs.tokens === undefined) {
    throw typeError('data', ofType('iterable of samples', '{ files }'), data);
  }
  const limits = { vocabulary: runs.tokens, context: Number.POSITIVE_INFINITY };
  const { ids, size } = await chunkedTokens('data', data, [opened], limits, options);
  const samples: ModelSample[] = [];
  for (let at = 0; at < ids.length; at += size) samples.push(runs.sampleOf(ids.subarray(at, at + size)));
  return samples;
}

/** Collects statistics of a model by running it. See `calibrateModel`. */
export async function calibrateRuns(
  opened: Opened,
  runs: ModelRuns,
  data: LanguageData | ModelSamples,
  { output, overwrite, moments, heldBack, isShareGiven, ranges, run, ...others }: RunsOptions,
): Promise<RunStatistics> {
  const { signal, onProgress } = others;
  const beside = [...(moments ? [momentsEnd] : []), ...(ranges ? [rangesEnd] : [])];
  return withOutputFiles(opened, { output, overwrite, signal, beside }, async ([main, ...more], waiting) => {
    const [second, third] = [moments ? more[0] : undefined, ranges ? more.at(-1) : undefined];
    // Tokenize texts.
    const samples = isLanguageData(data) ? await samplesOfTexts(opened, runs, data, others) : data;
    const options = {
      ...run,
      option: 'data',
      moments,
      heldBack,
      ranges,
      signal,
      open: (input: Parameters<typeof openWithin>[1]) => openWithin(waiting, input),
    };
    // Run the samples. Write second moments when their pass ends.
    let layout: MomentsLayout | undefined;
    let rested = performance.now();
    const found = await runs.collect(samples, options, {
      async onSample({ pass, passes, done, total }) {
        onProgress?.({ phase: 'calibrate', unit: 'samples', pass, passes, done, total });
        if (performance.now() - rested < 50) return;
        // Let the page draw.
        await new Promise((resolve) => setTimeout(resolve));
        rested = performance.now();
      },
      async onSums(sums) {
        if (!moments) return;
        const inputs = sums.map(({ names, columns, heldBackRows }) => ({ names, columns, heldBack: heldBackRows > 0 }));
        const held = sums.reduce((most, { heldBackRows }) => Math.max(most, heldBackRows), 0);
        layout = new MomentsLayout(inputs, { tokens: mostRows(sums) - held, heldBack: held });
        await second?.sized(layout.size).write(0, layout.header);
      },
      async takeMoments({ names }, means, isHeldBack) {
        const sink = second?.sized(layout?.size ?? 0);
        if (sink !== undefined) await layout?.write(sink, names[0] as string, means, isHeldBack);
      },
    });
    if (found.sums.length === 0) {
      throw new ScalepointError(
        'RUNTIME',
        'no inputs of weights were reached: the model has no such products, or no sample runs them',
      );
    }
    if (found.heldBack === 0 && isShareGiven && heldBack > 0) {
      throw tooFewToHoldBack('data', found.samples, 2, 'samples');
    }
    // Write the importance, then the ranges.
    const tokens = mostRows(found.sums);
    const { file, weights } = importanceOf(found.sums, found.samples, Math.ceil(tokens / found.samples));
    await main?.sized(file.length).write(0, file);
    const { unreached, samples: chunks } = found;
    const { size, bytes, blob } = (main as NonNullable<typeof main>).result();
    const made = { tokens, chunks, weights, unreached, size, bytes, blob };
    if (third !== undefined) {
      const file = rangesFile(found.ranges, chunks);
      await third.sized(file.length).write(0, file);
    }
    return {
      ...made,
      ...(second === undefined ? {} : { moments: second.result(), heldBackChunks: found.heldBack }),
      ...(third === undefined ? {} : { ranges: third.result() }),
    };
  });
}

/** Rows that the inputs of a weight had, at most. */
function mostRows(sums: readonly { readonly rows: number }[]): number {
  return sums.reduce((most, { rows }) => Math.max(most, rows), 0);
}

/** Statistics of models that a runtime runs on samples. */

import type { Opened } from '../convert/open.js';
import { ScalepointError } from '../core/errors.js';
import { waitingFor } from '../core/waiting.js';
import type { FileInput } from '../formats/files/bytes.js';
import { openInput, openWithin } from '../formats/files/open.js';
import type { ByteSink } from '../formats/files/sinks.js';
import { stampFiles } from '../formats/files/state-file.js';
import { tooFewToHoldBack } from '../formats/held-back.js';
import { rangesFile } from '../formats/ranges-file.js';
import type { CollectHooks, ModelRuns, ModelSamples, RunOptions } from '../formats/run.js';
import { momentsEnd, rangesEnd } from '../formats/statistics.js';
import { MomentsLayout } from './moments-file.js';
import { type CalibrationOptions, withOutputFiles, writeImportance } from './statistics-output.js';
import { type LanguageData, progressReporter, samplesFrom } from './texts.js';

/** Options of `calibrateModel`, checked. */
interface RunsOptions extends CalibrationOptions {
  readonly ranges: boolean;
  readonly run: Pick<RunOptions, 'runtime' | 'dimensions'>;
}

/** The files of samples; undefined for samples that come one after the other. */
function sampleFiles(data: LanguageData | ModelSamples): readonly FileInput[] | undefined {
  if (typeof data !== 'object' || data === null || !('files' in data)) return undefined;
  const { files } = data;
  return Array.isArray(files) ? files : [files as FileInput];
}

/** Rows that the inputs of a weight had, at most. */
const mostRows = (sums: readonly { readonly rows: number }[]): number =>
  sums.reduce((most, { rows }) => Math.max(most, rows), 0);

/** Collects statistics of a model by running it. See `calibrateModel`. */
export async function calibrateRuns(
  opened: Opened,
  runs: ModelRuns,
  data: LanguageData | ModelSamples,
  { output, overwrite, resume, moments, heldBack, isShareGiven, ranges, run, ...others }: RunsOptions,
) {
  const { signal } = others;
  // Note the files of samples among the inputs, before an output is opened.
  const noting = waitingFor(signal);
  try {
    const notes = { inputs: opened.inputs, option: 'data' };
    for (const file of sampleFiles(data) ?? []) await (await openInput(noting, file, notes)).close();
  } catch {
    // The run reports it by the name of the option.
  } finally {
    noting.end();
  }
  const ends = [...(moments ? [momentsEnd] : []), ...(ranges ? [rangesEnd] : [])];
  const outputs = { output, overwrite, resume, signal };
  return withOutputFiles(opened, outputs, ends, async ({ main, beside, waiting, openState }) => {
    const samples = await samplesFrom(opened, runs, data, others);
    const checkCount = (count: number) => {
      if (count < 2 && isShareGiven && heldBack > 0) throw tooFewToHoldBack('data', count, 2, 'samples');
    };
    if (Array.isArray(samples)) checkCount(samples.length);

    // Find the state of an interrupted run. Samples that come one after the other are compared as they come.
    const open = (input: FileInput) => openWithin(waiting, input);
    const stamps: unknown[] = [];
    for (const file of (resume && sampleFiles(data)) || []) {
      const source = await open(file);
      stamps.push(...(await stampFiles([source]).finally(() => source.close())));
    }
    const state = await openState({
      'the model': resume && (await stampFiles(opened.model.files)),
      'the data': sampleFiles(data) && stamps,
      'the options': { moments, heldBack, ranges, dimensions: run.dimensions ?? {} },
    });

    // Run the model. Write moments as they come.
    const [second, third] = [beside.get(momentsEnd), beside.get(rangesEnd)];
    const report = progressReporter(others, 'calibrate', 'samples');
    let passed = 0;
    let layout: MomentsLayout | undefined;
    let sink: Pick<ByteSink, 'write'> | undefined;
    const hooks: CollectHooks = {
      async onSample(progress) {
        passed = progress.done;
        await report(progress);
      },
      async onSums(sums, isFirst) {
        // Leave no state of a run that cannot go on.
        if (isFirst) {
          try {
            checkCount(passed);
          } catch (error) {
            await state?.remove();
            throw error;
          }
        }
        if (second === undefined) return;
        const held = sums.reduce((most, { heldBackRows }) => Math.max(most, heldBackRows), 0);
        const inputs = sums.map(({ names, columns, heldBackRows }) => ({ names, columns, heldBack: heldBackRows > 0 }));
        layout = new MomentsLayout(inputs, { tokens: mostRows(sums) - held, heldBack: held });
        const to = second.sized(layout.size);
        sink = (await state?.moments(isFirst)) ?? to;
        if (isFirst) await sink.write(0, layout.header);
      },
      async takeMoments({ names }, means, isHeldBack) {
        if (sink !== undefined) await layout?.write(sink, names[0] as string, means, isHeldBack);
      },
    };
    const options = { ...run, option: 'data', moments, heldBack, ranges, signal, open, resume: state };
    const found = await runs.collect(samples, options, hooks);
    const { size: momentsSize } = (layout as MomentsLayout | undefined) ?? {};
    if (second !== undefined && momentsSize !== undefined)
      await state?.copyMoments(momentsSize, second.sized(momentsSize));
    if (found.sums.length === 0) {
      const text = 'no inputs of weights were reached: the model has no such products, or no sample runs them';
      throw new ScalepointError('RUNTIME', text);
    }

    // Write the importance, then the ranges.
    const tokens = mostRows(found.sums);
    const { unreached, samples: chunks } = found;
    const weights = await writeImportance(main, found.sums, { chunks, chunkSize: Math.ceil(tokens / chunks) });
    if (third !== undefined) {
      const file = rangesFile(found.ranges, chunks);
      await third.sized(file.length).write(0, file);
    }
    return {
      ...{ tokens, chunks, weights, unreached, ...main.result() },
      ...(second === undefined ? {} : { moments: second.result(), heldBackChunks: found.heldBack }),
      ...(third === undefined ? {} : { ranges: third.result() }),
    };
  });
}

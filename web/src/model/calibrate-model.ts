import { typeError } from '../core/errors.js';
import { ofType } from '../core/option-problem.js';
import type { ModelOutput } from '../files/sinks.js';
import type { ModelSamples, RunOptions, UnreachedWeight } from '../formats/run.js';
import type { MomentsFile } from '../formats/statistics.js';
import type { TakeMoments } from '../language/collect.js';
import type { LanguageData } from '../language/tokens.js';
import { withCallbacks } from '../pipeline/callbacks.js';
import { checkRunOptions } from './compare-models.js';
import { checkTextOptions, chunkedTokens, type TextOptions, tokenProgress } from './evaluate-model.js';
import { withLanguage } from './language.js';
import { withModel } from './open.js';
import { modelCalls } from './options.js';
import type { ModelInput } from './recognize.js';
import { momentsEnd, withOutputs } from './statistics-output.js';
import { checkOptions } from './work-options.js';

/** Options of `calibrateModel`. */
export interface CalibrateModelOptions extends TextOptions {
  /** Destination of the file, as for `quantizeModel`. @defaultValue memory, see `bytes()` and `blob()` */
  readonly output?: ModelOutput | undefined;
  /** Allows `output` to replace a file. @defaultValue false */
  readonly overwrite?: boolean | undefined;
  /**
   * True: also collects second moments, for the method `gptq`: the mean of X'X for each distinct input of weights. With a path as `output`,
   * they go to the file `OUTPUT.moments.safetensors` beside it, otherwise to memory. For inputs of K columns they take 4 K² bytes of the
   * file; while a layer is run, 8 K² bytes of memory for each of its inputs, and 8 K² for the largest.
   * @defaultValue false
   */
  readonly moments?: boolean | undefined;
  /** For ONNX models: sizes of dimensions that samples leave open, and the runtime, as for `compareModels`. @defaultValue none, and the installed onnxruntime-web */
  readonly run?: Pick<RunOptions, 'runtime' | 'dimensions'> | undefined;
}

/** Statistics of a model's inputs. */
export interface ModelStatistics {
  /** Tokens that were counted; for samples, the most rows that the inputs of a weight had. */
  readonly tokens: number;
  /** Chunks that the tokens were cut into, or samples. */
  readonly chunks: number;
  /** Weights with statistics, in llama.cpp's names; for ONNX models, in those of the model. */
  readonly weights: readonly string[];
  /** For ONNX models: weights whose inputs were not reached. */
  readonly unreached?: readonly UnreachedWeight[] | undefined;
  /** Size of the file in bytes. */
  readonly size: number;
  /** The second moments, if they were asked for. */
  readonly moments?: MomentsFile | undefined;
  /** The file. @throws TypeError if it was written to `output` */
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  /** The same as a Blob. @throws TypeError if it was written to `output` */
  blob(): Promise<Blob>;
}

/**
 * Runs a language model on texts, and writes how important each column of its weights is: the mean square of what it is multiplied with. The
 * file is an importance matrix of llama.cpp, for the option `importance` and for llama-quantize. Takes the models of `evaluateModel`; a folder
 * and the GGUF files made of it have the same statistics. In models with experts, the weights of an expert count the tokens that reach it;
 * those have no moments. For memory see `evaluateModel`.
 * @example const statistics = await calibrateModel('model/model.safetensors', text, { output: 'imatrix.gguf' });
 * @throws what `evaluateModel` throws; ScalepointError `NON_FINITE` naming the weight whose inputs are not finite
 */
export async function calibrateModel(
  model: ModelInput,
  data: LanguageData | ModelSamples,
  options: CalibrateModelOptions = {},
): Promise<ModelStatistics> {
  checkOptions(options, modelCalls().calibrateModel, modelCalls());
  const { output, overwrite, moments, run = {}, ...others } = options;
  if (moments !== undefined && typeof moments !== 'boolean') throw typeError('moments', ofType('boolean'), moments);
  checkRunOptions(run, ['runtime', 'dimensions']);
  checkTextOptions(others);
  if (data === undefined) throw typeError('data', ofType('string', 'Uint32Array', 'array'), data);
  others.signal?.throwIfAborted();
  const collect = await import('../language/collect.js');
  const { beginTexts } = await import('../language/evaluate.js');
  return withCallbacks(others, (own) =>
    withModel(model, own, async (opened) => {
      const runs = await opened.format.runs?.(opened.model);
      if (runs !== undefined) {
        const { calibrateRuns } = await import('./calibrate-runs.js');
        const all = { ...own, output, overwrite: overwrite === true, moments: moments === true, run };
        return calibrateRuns(opened, runs, data, all);
      }
      const { signal } = own;
      const beside = moments === true ? [momentsEnd] : [];
      return withOutputs(opened, { output, overwrite: overwrite === true, signal, beside }, ([main, second]) =>
        withLanguage(opened, own, async (language) => {
          const { forward, facts } = language;
          const limits = { vocabulary: forward.vocabulary, context: facts.context };
          const { ids, size } = await chunkedTokens('data', data as LanguageData, [opened], limits, own);
          const texts = beginTexts(ids, size, language.beginning);
          // Lay out the moments, and write those of each layer behind it.
          let take: TakeMoments | undefined;
          if (second !== undefined) {
            const { MomentsLayout } = await import('../language/moments-file.js');
            const shared = Array.from({ length: facts.layers }, (_, i) => forward.inputsOf(i)).flat();
            const layout = new MomentsLayout(shared, texts.length);
            const sink = second.sized(layout.size);
            await sink.write(0, layout.header);
            take = (...numbers) => layout.write(sink, ...numbers);
          }
          const onProgress = tokenProgress(own, 'calibrate');
          const sums = await collect.collectSums(language, texts, size, { onProgress, takeMoments: take });
          const chunks = Math.ceil(texts.length / size);
          const { file, weights } = collect.importanceOf(sums, chunks, size);
          await main?.sized(file.length).write(0, file);
          const { path: _, ...result } = (main as NonNullable<typeof main>).result();
          return { tokens: texts.length, chunks, weights, ...result, ...(second && { moments: second.result() }) };
        }),
      );
    }),
  );
}

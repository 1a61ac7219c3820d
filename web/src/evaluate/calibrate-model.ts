/** `calibrateModel`: collects statistics of the inputs of weights. */

import { withModel } from '../convert/open.js';
import { modelCalls } from '../convert/options.js';
import type { ModelInput } from '../convert/recognize.js';
import { checkOptions, checkRunOptions, withCallbacks } from '../convert/work-options.js';
import { rangeError, typeError } from '../core/errors.js';
import { imported } from '../core/imported.js';
import type { Note } from '../core/note.js';
import { ofType } from '../core/option-problem.js';
import type { ModelOutput } from '../formats/files/sinks.js';
import { momentsShare } from '../formats/held-back.js';
import type { ModelSamples, RunOptions, UnreachedWeight } from '../formats/run.js';
import type { MomentsFile } from '../formats/statistics.js';
import { checkTextOptions, dataOnHub, type LanguageData, type TextOptions } from './texts.js';

/** Options of `calibrateModel`. */
export interface CalibrateModelOptions extends TextOptions {
  /** Destination of the file, as for `quantizeModel`. @defaultValue memory, see `bytes()` and `blob()` */
  readonly output?: ModelOutput | undefined;
  /** Allows `output` to replace a file. @defaultValue false */
  readonly overwrite?: boolean | undefined;
  /**
   * True: goes on behind the last finished layer of an interrupted run, or the last finished sample, with the same result as that of a single
   * run. Needs a path as `output` (Node). After each layer the hidden states go to a file beside it, `.NAME.resume`, and moments to
   * `.NAME.resume.moments`; after samples the sums so far, which takes at most a twentieth of the time. The end of the run removes both.
   * @defaultValue false
   */
  readonly resume?: boolean | undefined;
  /**
   * True: also collects second moments, for the method `gptq`: the mean of X'X for each distinct input of weights. With a path as `output`,
   * they go to the file `OUTPUT.moments.safetensors` beside it, otherwise to memory. With language models, also measures the divergence of
   * the next token that each weight causes when it is rounded, by which `targetSize` chooses types; this takes about as long as a pass of the
   * data, and 32 to 128 hidden states for each weight in memory. For inputs of K columns they take 8 K² bytes of the
   * file, or 4 K² if nothing is held back; while a layer is run, 8 K² bytes of memory for each of its inputs, and 8 K² for the largest.
   * @defaultValue false
   */
  readonly moments?: boolean | undefined;
  /**
   * With `moments`: the share of chunks or samples that is held back from them, from 0 to 0.5. The file has moments of these as well, by
   * which `quantizeModel` judges the codes that it makes by the others. The second chunk is held back, then one of each 1 / share. With a
   * single sample, or fewer than two whole chunks, nothing is, and errors of outputs are those on the data of the codes. The importance
   * counts all data.
   * @defaultValue 0.125
   */
  readonly heldBack?: number | undefined;
  /**
   * With `moments`, for folders and GGUF files: the share of random tokens among all that are counted, from 0 to 0.5. Whole chunks of them are
   * added to the tokens of the data, even over the vocabulary and the same in each run. So weights made by a text of one kind also hold for
   * others. The importance counts them, too.
   * @defaultValue 0.25
   */
  readonly mix?: number | undefined;
  /**
   * For ONNX models, true: also collects the least and the largest element of each activation. `int8-static` takes the scales of its
   * activations from them, and `fp16`, `q4f16` and `q2f16` keep float32 where they reach beyond float16. With a path as `output`, they go to the file `OUTPUT.ranges.safetensors` beside it, otherwise to memory.
   * @defaultValue false
   */
  readonly ranges?: boolean | undefined;
  /** For ONNX models: sizes of dimensions that samples leave open, and the runtime, as for `compareModels`. @defaultValue none, and the installed onnxruntime-web */
  readonly run?: Pick<RunOptions, 'runtime' | 'dimensions'> | undefined;
}

/** Statistics of a model's inputs. */
export interface ModelStatistics {
  /** Tokens that were counted; for samples, the most rows that the inputs of a weight had. */
  readonly tokens: number;
  /** Count of these tokens that are random; undefined for samples. */
  readonly mixedTokens?: number | undefined;
  /** Chunks that the tokens were cut into, or samples. */
  readonly chunks: number;
  /** Count of these chunks or samples that were held back from the moments; undefined without moments. */
  readonly heldBackChunks?: number | undefined;
  /** Weights with statistics, in llama.cpp's names; for ONNX models, in those of the model. */
  readonly weights: readonly string[];
  /** Facts about the statistics of a language model that users should know, such as data of few different tokens. */
  readonly notes?: readonly Note[] | undefined;
  /** For ONNX models: weights whose inputs were not reached. */
  readonly unreached?: readonly UnreachedWeight[] | undefined;
  /** Size of the file in bytes. */
  readonly size: number;
  /** Path or URL of the written file; undefined if it is in memory. */
  readonly path?: string | URL | undefined;
  /** The second moments, if they were asked for. */
  readonly moments?: MomentsFile | undefined;
  /** The ranges of activations, if they were asked for. */
  readonly ranges?: MomentsFile | undefined;
  /** The file. @throws TypeError if it was written to `output` */
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  /** The file as a Blob. @throws TypeError if it was written to `output` */
  blob(): Promise<Blob>;
}

/**
 * Runs a language model on texts, and writes how important each column of its weights is: the mean square of what it is multiplied with. The
 * file is an importance matrix of llama.cpp, for the option `importance` and for llama-quantize. Takes the models of `evaluateModel`; a folder
 * and the GGUF files made of it have the same statistics. In models with experts, the weights of an expert count the tokens that reach it;
 * those have no moments. For memory see `evaluateModel`.
 * @example const statistics = await calibrateModel('model/model.safetensors', text, { output: 'imatrix.gguf' });
 * @throws what `evaluateModel` throws; ScalepointError `NON_FINITE` naming the weight whose inputs are not finite; RangeError naming `data`
 *   if a given `heldBack` would leave nothing
 */
export async function calibrateModel(
  model: ModelInput,
  data: LanguageData | ModelSamples,
  options: CalibrateModelOptions = {},
): Promise<ModelStatistics> {
  checkOptions(options, modelCalls().calibrateModel, modelCalls());
  const { output, overwrite, moments, heldBack, mix, ranges, resume, run = {}, ...others } = options;
  for (const [name, value] of Object.entries({ resume, moments, ranges })) {
    if (value !== undefined && typeof value !== 'boolean') throw typeError(name, ofType('boolean'), value);
  }
  const shares = {
    heldBack: momentsShare('heldBack', heldBack, moments === true),
    isShareGiven: heldBack !== undefined,
  };
  const mixed = momentsShare('mix', mix, moments === true);
  checkRunOptions(run, ['runtime', 'dimensions']);
  checkTextOptions(others);
  if (data === undefined) throw typeError('data', ofType('string', 'Uint32Array', 'array'), data);
  others.signal?.throwIfAborted();
  // An interrupted run goes on beside the output.
  if (resume === true && typeof output !== 'string' && !(output instanceof URL)) {
    const message = 'an interrupted run goes on from a file beside it';
    throw typeError('output', ofType('path'), output, { kind: 'because', message });
  }
  return withCallbacks(others, (own) =>
    withModel(model, own, async (opened) => {
      const outputs = { output, overwrite: overwrite === true, resume: resume === true };
      const all = { ...own, ...outputs, moments: moments === true, ...shares };
      const runs = await opened.format.runs?.(opened.model);
      if (runs !== undefined) {
        if (mix !== undefined) throw rangeError('mix', { kind: 'onlyFor', files: 'folders and GGUF files' }, mix);
        const { calibrateRuns } = await imported(import('./calibrate-runs.js'));
        return calibrateRuns(opened, runs, await dataOnHub(data, own.signal), { ...all, ranges: ranges === true, run });
      }
      if (ranges === true) throw rangeError('ranges', { kind: 'onlyFor', files: 'ONNX' }, ranges);
      const { calibrateLanguage } = await imported(import('./calibrate-language.js'));
      return calibrateLanguage(opened, data as LanguageData, { ...all, mix: mixed });
    }),
  );
}

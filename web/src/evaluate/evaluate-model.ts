/** `evaluateModel`: judges a language model on texts. */

import { type Opened, withModel } from '../convert/open.js';
import { modelCalls } from '../convert/options.js';
import type { ModelInput } from '../convert/recognize.js';
import { checkOptions, checkRunOptions, withCallbacks } from '../convert/work-options.js';
import { ScalepointError, typeError } from '../core/errors.js';
import { imported } from '../core/imported.js';
import { mention, ofType } from '../core/option-problem.js';
import { waitingFor } from '../core/waiting.js';
import type { FileInput } from '../formats/files/bytes.js';
import { openWithin } from '../formats/files/open.js';
import type { ModelSamples, OutputsEvaluation, RunOptions } from '../formats/run.js';
import type { JudgedModel, LanguageComparison, LanguageEvaluation } from './evaluate.js';
import {
  checkTextOptions,
  chunkedTokens,
  dataOnHub,
  type LanguageData,
  progressReporter,
  samplesFrom,
  type TextOptions,
} from './texts.js';

/** Options of `evaluateModel`. */
export interface EvaluateModelOptions extends TextOptions {
  /** A text, several ones, or ids of tokens, to judge language models. @defaultValue none, with `data` */
  readonly text?: LanguageData | undefined;
  /**
   * In place of `text`, for ONNX models of every kind: samples of the inputs, as for `calibrateModel`. The outputs are compared with those of
   * `reference`, sample by sample. Both models are in memory, and one sample with its outputs.
   * @defaultValue none, with `text`
   */
  readonly data?: LanguageData | ModelSamples | undefined;
  /** A model of the same vocabulary that the divergence is measured from, such as the one before it was quantized. */
  readonly reference?: ModelInput | undefined;
  /** For ONNX models: the runtime, and sizes of dimensions that tokens leave open, as for `compareModels`. @defaultValue the installed onnxruntime-web */
  readonly run?: Pick<RunOptions, 'runtime' | 'dimensions'> | undefined;
  /**
   * Path of a file for the state of the run (Node): the hidden states behind the last finished layer. A run that finds the file goes on from
   * there, with the same result as that of a single run, whose end removes it. For GGUF files and folders only.
   * @defaultValue no file: an interrupted run begins anew
   */
  readonly resume?: string | URL | undefined;
}

/**
 * Judges a language model on a text: perplexity, and with a reference how far the probabilities of the next token are from the reference's.
 * Takes GGUF files and folders of Llama, Mistral, Mixtral, SmolLM3, Gemma 1 to 3, Phi-2, GPT-NeoX, Falcon, ChatGLM 3 and GLM-4-9B, Command R,
 * Cohere 2, OLMo 1 to 3, EXAONE 4, Hunyuan, Nemotron, Arcee, Seed-OSS, StarCoder 2 and StableLM; of Qwen 2 and 3, Phi-3, Granite, GLM-4 and Ernie 4.5 with and without experts; of
 * OLMoE and gpt-oss; and ONNX models with `input_ids` and `logits`, which run in onnxruntime-web, one chunk at a time, with empty caches. The model and the
 * reference may differ in format. The figures are those of llama-perplexity: of each chunk of `chunkSize` tokens the second half counts.
 *
 * Memory: for each worker the weights of one layer, or of one expert, as floats; 4 bytes for each token and element of a hidden state, and
 * twice for the reference and for experts; and 128 MiB for logits. Workers share the tokens, and every number of workers gives the same
 * figures. ONNX models are in memory whole, with the logits of a chunk.
 *
 * With `data` in place of `text`, runs two ONNX models on samples of their inputs, and gives the error of each output over all samples.
 * @example const { perplexity, kl, sameTop } = await evaluateModel('model-Q4_K_M.gguf', { reference: file, text });
 * @example const { outputs } = await evaluateModel('model_q4.onnx', { reference: 'model.onnx', data: { files: 'samples.npz' } });
 * @throws what `inspectModel` throws; TypeError or RangeError naming the option; ScalepointError `UNKNOWN_FORMAT` for models that cannot
 *   be run, `RUNTIME` if the tokenizer cannot be loaded, `NON_FINITE` if the outputs are not finite; the signal's reason
 */
export function evaluateModel(
  model: ModelInput,
  options: EvaluateModelOptions & { readonly reference: ModelInput; readonly data: LanguageData | ModelSamples },
): Promise<OutputsEvaluation>;
export function evaluateModel(
  model: ModelInput,
  options: EvaluateModelOptions & { readonly reference: ModelInput; readonly text: LanguageData },
): Promise<LanguageComparison>;
export function evaluateModel(
  model: ModelInput,
  options: EvaluateModelOptions & { readonly text: LanguageData },
): Promise<LanguageEvaluation>;
export async function evaluateModel(
  model: ModelInput,
  options: EvaluateModelOptions,
): Promise<LanguageEvaluation | OutputsEvaluation> {
  checkOptions(options, modelCalls().evaluateModel, modelCalls());
  const { text, data, reference, resume, run = {}, ...others } = options;
  if (resume !== undefined && typeof resume !== 'string' && !(resume instanceof URL)) {
    throw typeError('resume', ofType('path'), resume);
  }
  checkRunOptions(run, ['runtime', 'dimensions']);
  checkTextOptions(others);
  if (data !== undefined) {
    for (const [name, value] of Object.entries({ text, resume })) {
      if (value !== undefined)
        throw typeError(name, ofType('undefined'), value, { kind: 'with', options: [mention('data')] });
    }
    if (reference === undefined) throw typeError('reference', { kind: 'required' }, reference);
  } else if (text === undefined) throw typeError('text', ofType('string', 'Uint32Array', 'array'), text);
  others.signal?.throwIfAborted();
  if (data !== undefined && reference !== undefined) {
    return withCallbacks({ ...others, run }, (own) =>
      withModel(model, own, (first) =>
        withModel(reference, own, async (second) => {
          const [runs, other] = [await first.format.runs?.(first.model), await second.format.runs?.(second.model)];
          if (runs === undefined || other === undefined) {
            const { label } = (runs === undefined ? first : second).format;
            const about = `only ONNX models can be run on samples, and this is ${label}; texts judge language models of all formats`;
            throw new ScalepointError('RUNTIME', about);
          }
          const { signal } = own;
          const waiting = waitingFor(signal);
          try {
            const samples = await samplesFrom(first, runs, await dataOnHub(data, signal), own);
            const count = Array.isArray(samples) ? samples.length : 0;
            const open = (file: FileInput) => openWithin(waiting, file);
            const report = progressReporter(own, 'evaluate', 'samples');
            return await runs.evaluate(samples, other, { ...run, option: 'data', signal, open }, async (done) =>
              report({ pass: 1, passes: 1, done, total: Math.max(count, done) }),
            );
          } finally {
            waiting.end();
          }
        }),
      ),
    );
  }
  // Loaded with the first call, as most apps do not run models.
  const { evaluateLanguage, withJudged } = await imported(import('./evaluate.js'));
  return withCallbacks({ ...others, run }, (own) => {
    const { signal } = own;
    // Judge one model, or two that are open.
    const judged = async (
      opened: readonly Opened[],
      models: readonly [JudgedModel, JudgedModel?],
      context: number,
    ): Promise<LanguageEvaluation> => {
      const [made, other] = models;
      const limits = { vocabulary: made.vocabulary, context, beginning: made.beginning ?? other?.beginning };
      const tokens = await chunkedTokens('text', text, opened, { ...own, limits });
      const place = resume === undefined ? undefined : { resume, opened, signal };
      return evaluateLanguage(models, tokens, progressReporter(own, 'evaluate', 'tokens'), place);
    };
    // Open the model, and the reference if there is one.
    return withModel(model, own, (first) =>
      withJudged(first, own, async (made, context) => {
        if (reference === undefined) return judged([first], [made], context);
        return withModel(reference, own, (second) =>
          withJudged(second, { ...own, layerWorkers: made.layerWorkers }, (other, otherContext) =>
            judged([first, second], [made, other], Math.min(context, otherContext)),
          ),
        );
      }),
    );
  });
}

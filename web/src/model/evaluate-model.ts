/** `evaluateModel`: judges a language model on texts. */
import { rangeError, typeError } from '../core/errors.js';
import { ofType, whole } from '../core/option-problem.js';
import { waitingFor } from '../core/waiting.js';
import type { RunOptions } from '../formats/run.js';
import type {
  EvaluationResume,
  JudgedModel,
  LanguageComparison,
  LanguageEvaluation,
  TokenProgress,
} from '../language/evaluate.js';
import { type LanguageData, type TextTokenizer, tokensOf } from '../language/tokens.js';
import { withCallbacks } from '../pipeline/callbacks.js';
import type { DataProgress } from '../pipeline/progress.js';
import type { WorkOptions } from '../pipeline/start.js';
import { checkRunOptions } from './compare-models.js';
import { folderTokenizer } from './language.js';
import { type Opened, withModel } from './open.js';
import { modelCalls } from './options.js';
import type { ModelInput } from './recognize.js';
import { checkOptions, checkWorkOptions } from './work-options.js';

/** Options about texts, of `evaluateModel` and `calibrateModel`. */
export interface TextOptions extends Omit<WorkOptions, 'onProgress'> {
  /** Tokens of a chunk. @defaultValue 512, or fewer if the model was made for fewer or the text is shorter */
  readonly chunkSize?: number | undefined;
  /** Most tokens to use, from the start of the texts. @defaultValue all */
  readonly maxTokens?: number | undefined;
  /** Turns texts into ids. @defaultValue `tokenizer.json` beside the model, read by the package @huggingface/tokenizers */
  readonly tokenizer?: TextTokenizer | undefined;
  /** Called at least once a pass. An error that it throws ends the work, as does a rejected promise. */
  readonly onProgress?: ((progress: DataProgress) => void) | undefined;
}

/** Options of `evaluateModel`. */
export interface EvaluateModelOptions extends TextOptions {
  /** A text, several ones, or ids of tokens. */
  readonly text: LanguageData;
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

export function checkTextOptions({ chunkSize, maxTokens, tokenizer, onProgress, ...work }: TextOptions): void {
  checkWorkOptions({ ...work, onProgress: onProgress as WorkOptions['onProgress'] });
  for (const [name, value, least] of [
    ['chunkSize', chunkSize, 4],
    ['maxTokens', maxTokens, 4],
  ] as const) {
    if (value !== undefined && !(Number.isSafeInteger(value) && value >= least))
      throw rangeError(name, whole(least), value);
  }
  if (tokenizer !== undefined && typeof (tokenizer as { encode?: unknown } | null)?.encode !== 'function') {
    throw typeError('tokenizer', { kind: 'object', keys: ['encode'] }, tokenizer);
  }
}

/** The tokens of the texts, and the size of their chunks. @throws RangeError naming `text` if there are too few */
export async function chunkedTokens(
  path: string,
  data: LanguageData,
  opened: readonly Opened[],
  limits: { readonly vocabulary: number; readonly context: number; readonly beginning?: number | undefined },
  { chunkSize, maxTokens, tokenizer, signal }: TextOptions,
): Promise<{ ids: Uint32Array<ArrayBuffer>; size: number }> {
  let made: Promise<TextTokenizer> | undefined;
  const tokenizerOf = async () => {
    if (tokenizer !== undefined) return tokenizer;
    for (const one of opened) if ((await one.beside.file('tokenizer.json')) !== undefined) return folderTokenizer(one);
    return folderTokenizer(opened[0] as Opened);
  };
  const { vocabulary, beginning } = limits;
  // A tokenizer of the caller may take any time.
  const waiting = waitingFor(signal);
  const found = waiting.soon(tokensOf(path, data, vocabulary, beginning, () => (made ??= tokenizerOf())));
  const all = await found.finally(waiting.end);
  const ids = maxTokens === undefined ? all : all.slice(0, maxTokens);
  const size = chunkSize ?? Math.min(512, limits.context, ids.length);
  if (size < 4 || ids.length < size) {
    throw rangeError(path, { kind: 'number', min: Math.max(4, size), unit: 'tokens' }, ids.length);
  }
  return { ids, size };
}

/** Reports progress, and lets the page draw. */
export function tokenProgress(
  { onProgress, signal }: Pick<TextOptions, 'onProgress' | 'signal'>,
  phase: DataProgress['phase'],
): TokenProgress {
  let rested = performance.now();
  return async (progress) => {
    signal?.throwIfAborted();
    onProgress?.({ phase, unit: 'tokens', ...progress });
    if (performance.now() - rested > 50) {
      await new Promise((resolve) => setTimeout(resolve));
      rested = performance.now();
      signal?.throwIfAborted();
    }
  };
}

/**
 * Judges a language model on a text: perplexity, and with a reference how far the probabilities of the next token are from the reference's.
 * Takes GGUF files and folders of Llama, Mistral, Mixtral, SmolLM3, Qwen 2, Qwen 3 with and without experts, Gemma 2 and 3 and Phi-3; and
 * ONNX models with `input_ids` and `logits`, which run in onnxruntime-web, one chunk at a time, with empty caches. The model and the
 * reference may differ in format. The figures are those of llama-perplexity: of each chunk of `chunkSize` tokens the second half counts.
 *
 * Memory: for each worker the weights of one layer, or of one expert, as floats; 4 bytes for each token and element of a hidden state, and
 * twice for the reference and for experts; and 128 MiB for logits. Workers share the tokens, and every number of workers gives the same
 * figures. ONNX models are in memory whole, with the logits of a chunk.
 * @example const { perplexity, kl, sameTop } = await evaluateModel('model.Q4_K_M.gguf', { reference: file, text });
 * @throws what `inspectModel` throws; TypeError or RangeError naming the option; ScalepointError `UNKNOWN_FORMAT` for models that cannot
 *   be run, `RUNTIME` if the tokenizer cannot be loaded, `NON_FINITE` if the outputs are not finite; the signal's reason
 */
export function evaluateModel(
  model: ModelInput,
  options: EvaluateModelOptions & { readonly reference: ModelInput },
): Promise<LanguageComparison>;
export function evaluateModel(model: ModelInput, options: EvaluateModelOptions): Promise<LanguageEvaluation>;
export async function evaluateModel(model: ModelInput, options: EvaluateModelOptions): Promise<LanguageEvaluation> {
  // Check the options.
  checkOptions(options, modelCalls().evaluateModel, modelCalls());
  const { text, reference, resume, run = {}, ...others } = options;
  if (resume !== undefined && typeof resume !== 'string' && !(resume instanceof URL)) {
    throw typeError('resume', ofType('path'), resume);
  }
  checkRunOptions(run, ['runtime', 'dimensions']);
  checkTextOptions(others);
  if (text === undefined) throw typeError('text', ofType('string', 'Uint32Array', 'array'), text);
  others.signal?.throwIfAborted();
  // Loaded with the first call, as most apps do not run models.
  const judge = await import('../language/evaluate.js');
  const { withJudged } = await import('./judged.js');
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
      const { ids, size } = await chunkedTokens('text', text, opened, limits, own);
      const progress = tokenProgress(own, 'evaluate');
      const run = (state?: EvaluationResume) => judge.evaluateLanguage(made, other, ids, size, progress, state);
      if (resume === undefined) return run();
      const { withEvaluationState } = await import('./evaluate-resume.js');
      const all = models.filter((one) => one !== undefined);
      return withEvaluationState(resume, { opened, models: all, ids, size, signal }, run);
    };
    // Open the model, and the reference if there is one.
    return withModel(model, own, (first) =>
      withJudged(first, own, async (made, context) => {
        if (reference === undefined) return judged([first], [made], context);
        return withModel(reference, own, (second) =>
          withJudged(second, { ...own, hands: made.hands }, (other, otherContext) =>
            judged([first, second], [made, other], Math.min(context, otherContext)),
          ),
        );
      }),
    );
  });
}

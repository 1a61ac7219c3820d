/** The command `evaluate`: judges models on texts or samples. */
import { evaluateModel, type LanguageData, type LanguageEvaluation } from '../model.js';
import { isUnsuited, isWithinErrors, whole, without } from '../tooling.js';
import { type dataFlags, evaluateFlags, type ValuesOf } from './flags.js';
import { type Input, withInputs } from './input.js';
import { checkFilesApart, type WrittenFile } from './overlap.js';
import { makeCommand, positionalFiles } from './parse.js';
import { abortOnSignal, about, dataProgressLine, effort, peakBytes, printJson, UsageError } from './process.js';
import { samplesText } from './running.js';
import { readText } from './side-file.js';
import { countText, printable, printLines } from './text.js';
import { wrongFlag } from './wording.js';

/** Values of flags about data. */
type DataValues = ValuesOf<ReturnType<typeof dataFlags>>;

/** Largest text in bytes. */
const mostText = 256 * 2 ** 20;

/** Reads the texts that a command line names, or the ids of tokens. @throws UsageError, ScalepointError */
export async function readTexts(
  { text = [], ids }: Pick<DataValues, 'text' | 'ids'>,
  command: string,
): Promise<LanguageData> {
  if (ids === undefined) {
    if (text.length === 0)
      throw new UsageError(`${command} needs --text FILE or --ids FILE, or for ONNX models --data FILE`);
    return Promise.all(text.map((path) => readText(path, mostText)));
  }
  if (text.length > 0) throw wrongFlag('ids', without('--text'));
  const words = (await readText(ids, mostText)).split(/[\s,[\]]+/).filter((word) => word !== '');
  const wrong = words.find((word) => !/^\d{1,9}$/.test(word));
  if (wrong !== undefined) throw wrongFlag('ids', whole(0), wrong.slice(0, 40));
  return Uint32Array.from(words, Number);
}

/** The options of the model functions that flags about data set. */
export function dataOptions({ 'chunk-size': chunkSize, 'max-tokens': maxTokens, workers, dim }: DataValues) {
  return { chunkSize, maxTokens, workers, ...(dim && { run: { dimensions: Object.fromEntries(dim) } }) };
}

/** A number with its standard error, in digits that the error leaves. */
function withError({ value, error }: LanguageEvaluation['perplexity']): string {
  if (!Number.isFinite(error)) return value.toPrecision(5);
  if (error === 0) return Number(value.toPrecision(5)).toString();
  const digits = Math.min(8, Math.max(0, 2 - Math.ceil(Math.log10(error))));
  return `${value.toFixed(digits)} ± ${error.toFixed(digits)}`;
}

function evaluationLines(a: string, b: string | undefined, found: LanguageEvaluation): string[] {
  const { counted: tokens, chunks, perplexity, referencePerplexity, kl, sameTop, logDifference } = found;
  const lines = [`${printable(a)}: ${countText(tokens, 'token')} of ${countText(chunks, 'chunk')} judged`];
  const doubts = isUnsuited(found)
    ? [`the text does not suit the model: its perplexity is near that of a guess among its ${found.vocabulary} tokens`]
    : [];
  const own = `perplexity      ${withError(perplexity)}`;
  if (b === undefined || kl === undefined || referencePerplexity === undefined || sameTop === undefined) {
    return [...lines, own, ...doubts];
  }
  if (doubts.length === 0 && logDifference !== undefined && isWithinErrors(logDifference)) {
    doubts.push('the perplexities differ by two standard errors at most: this text cannot tell them apart');
  }
  const share = { value: 100 * sameTop.value, error: 100 * sameTop.error };
  return [
    ...lines,
    `same top token  ${withError(share)} %`,
    own,
    `reference       ${withError(referencePerplexity)}   ${printable(b)}`,
    ...doubts,
    '',
    `KL divergence   ${withError(kl)}   median ${kl.median.toPrecision(3)}, 99 % below ${kl.percentile99.toPrecision(3)}, largest ${kl.max.toPrecision(3)}`,
  ];
}

/** Judges a model on texts or samples. */
export const evaluate = makeCommand({
  about: 'judge a model on texts or samples',
  line: () => 'evaluate A [B] --text FILE',
  usage: ['evaluate A [B] --text FILE [options]', 'evaluate A.onnx B.onnx --data FILE [options]'],
  text: () =>
    'Judges a language model on a text: perplexity as llama-perplexity defines it, and with B how far the probabilities of the next token ' +
    'are from those of B, such as the model before it was quantized. Takes GGUF files and folders of Llama, Mistral, Mixtral, SmolLM3, ' +
    'Gemma 1 to 3, Phi-2, GPT-NeoX, Falcon, ChatGLM 3 and GLM-4-9B, Command R, Cohere 2, OLMo 1 to 3, EXAONE 4, Hunyuan, Nemotron, ' +
    'Arcee, Seed-OSS, StarCoder 2 and StableLM, ' +
    'of Qwen 2 and 3, Phi-3, Granite, GLM-4 and Ernie 4.5 with and without experts, of OLMoE and gpt-oss, and ONNX models from input_ids to ' +
    'logits. Only the second half of each chunk counts. With samples of their inputs, compares the outputs of ONNX models of every kind with those of B.',
  flags: () => evaluateFlags,
  examples: () => [
    'evaluate model-Q4_K_M.gguf ./model --text wiki.test.txt',
    'evaluate model.gguf --ids tokens.txt --chunk-size 256 --json',
    'evaluate model_q4.onnx model.onnx --data samples.npz',
  ],
  async carryOut(line) {
    const { values, positionals } = line;
    const files = positionalFiles(positionals, positionals.length > 1 ? ['A', 'B'] : ['A'], 'evaluate');
    const { data, resume, quiet = false } = values;
    if (data !== undefined && [values.text, values.ids, resume].some((flag) => flag !== undefined)) {
      throw new UsageError('--data goes without --text, --ids and --resume');
    }
    if (data !== undefined && files.length < 2) throw new UsageError('evaluate with --data needs A and B');
    const text = data === undefined ? await readTexts(values, 'evaluate') : '';
    const signal = abortOnSignal('interrupted');
    const progress = dataProgressLine(quiet);
    const options = { ...dataOptions(values), signal, onProgress: progress.update };
    const print = (a: Input, b: Input | undefined, found: object, lines: () => string[]) => {
      if (values.json) printJson({ a: a.name, b: b?.name ?? null, ...found, peakBytes: peakBytes() });
      else if (!quiet) printLines([...lines(), ...(values.verbose ? [effort()] : [])]);
      return 0;
    };
    return withInputs(
      files,
      async ([first, b]) => {
        const a = first as Input;
        if (data !== undefined && b !== undefined) {
          const found = await about(a.name, () =>
            evaluateModel(a.file, { reference: b.file, data: { files: data }, ...options }),
          ).finally(progress.clear);
          return print(a, b, found, () => samplesText(a.name, b.name, found));
        }
        const written: WrittenFile[] = resume === undefined ? [] : [{ flag: 'resume', path: resume }];
        for (const input of b === undefined ? [a] : [a, b]) await checkFilesApart(written, input, line);
        const found = await about(a.name, () =>
          evaluateModel(a.file, { text, reference: b?.file, ...options, resume }),
        ).finally(progress.clear);
        return print(a, b, found, () => evaluationLines(a.name, b?.name, found));
      },
      signal,
    );
  },
});

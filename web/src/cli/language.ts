/** `evaluate` and `calibrate`: language models on texts. */
import { basename, dirname, join } from 'node:path';
import {
  calibrateModel,
  type EvaluateModelOptions,
  evaluateModel,
  type LanguageData,
  type LanguageEvaluation,
  planModel,
} from '../model.js';
import { grouped, momentsEnd, mostShare, rangesEnd, type UnreachedWeight, whole, without } from '../tooling.js';
import { calibrateFlags, evaluateFlags } from './flags.js';
import { type Input, withInput } from './input.js';
import { checkFilesApart, type WrittenFile } from './overlap.js';
import { filesOf, parseArguments, workersOf } from './parse.js';
import { abortOnSignal, about, dataProgressLine, effort, peakBytes, printJson, UsageError } from './process.js';
import { dimensionsOf, samplesText } from './running.js';
import { readText } from './side-file.js';
import { counted, formatBytes, listed, printable, printLines } from './text.js';
import { calibrateUsage, evaluateUsage } from './usage.js';
import { asUsage, wrongFlag } from './wording.js';

/** Largest text in bytes. */
const mostText = 256 * 2 ** 20;

/** Values of flags about texts. */
interface TextValues {
  readonly text?: readonly string[];
  readonly ids?: string;
  readonly 'chunk-size'?: string;
  readonly 'max-tokens'?: string;
  readonly workers?: string;
}

/** The texts that a command line names. @throws UsageError, ScalepointError */
async function dataOf({ text = [], ids }: TextValues, command: 'evaluate' | 'calibrate'): Promise<LanguageData> {
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

function sizesOf(values: TextValues): Pick<EvaluateModelOptions, 'chunkSize' | 'maxTokens' | 'workers'> {
  const number = (flag: 'chunk-size' | 'max-tokens') => {
    const value = values[flag];
    if (value !== undefined && !/^\d{1,9}$/.test(value)) throw wrongFlag(flag, whole(4), value);
    return value === undefined ? undefined : Number(value);
  };
  return { chunkSize: number('chunk-size'), maxTokens: number('max-tokens'), workers: workersOf(values.workers) };
}

/** A number with its standard error, in digits that the error leaves. */
function withError({ value, error }: LanguageEvaluation['perplexity']): string {
  if (!Number.isFinite(error)) return value.toPrecision(5);
  const digits = error > 0 ? Math.min(8, Math.max(0, 2 - Math.ceil(Math.log10(error)))) : 4;
  return `${value.toFixed(digits)} ± ${error.toFixed(digits)}`;
}

function evaluationLines(a: string, b: string | undefined, found: LanguageEvaluation): string[] {
  const { counted: tokens, chunks, perplexity, referencePerplexity, kl, sameTop } = found;
  const lines = [
    `${printable(a)}: ${counted(tokens, 'token')} of ${counted(chunks, 'chunk')} judged`,
    `perplexity      ${withError(perplexity)}`,
  ];
  if (b === undefined || kl === undefined || referencePerplexity === undefined || sameTop === undefined) return lines;
  const share = { value: 100 * sameTop.value, error: 100 * sameTop.error };
  return [
    ...lines,
    `reference       ${withError(referencePerplexity)}   ${printable(b)}`,
    '',
    `KL divergence   ${withError(kl)}   median ${kl.median.toPrecision(3)}, 99 % below ${kl.percentile99.toPrecision(3)}, largest ${kl.max.toPrecision(3)}`,
    `same top token  ${withError(share)} %`,
  ];
}

/** Judges a language model on a text. Returns the exit code. */
export async function evaluate(args: string[]): Promise<number> {
  const { values, positionals } = parseArguments(args, evaluateFlags);
  if (values.help) {
    process.stdout.write(evaluateUsage());
    return 0;
  }
  const names = positionals.length > 1 ? ['A', 'B'] : ['A'];
  const [first, second] = filesOf(positionals, names, 'evaluate') as [string, string | undefined];
  const { data, dim } = values;
  const others = [values.text, values.ids, values.resume];
  if (data !== undefined && others.some((flag) => flag !== undefined)) {
    throw new UsageError('--data goes without --text, --ids and --resume');
  }
  if (data !== undefined && second === undefined) throw new UsageError('evaluate with --data needs A and B');
  const text = data === undefined ? await dataOf(values, 'evaluate') : '';
  const sizes = { ...sizesOf(values), ...(dim === undefined ? {} : { run: { dimensions: dimensionsOf(dim) } }) };
  const signal = abortOnSignal('interrupted');
  const progress = dataProgressLine(values.quiet ?? false);
  const judgeSamples = async (a: Input, b: Input, files: readonly string[]): Promise<number> => {
    const options = { reference: b.file, data: { files }, ...sizes, signal, onProgress: progress.update };
    const found = await about(a.name, () => evaluateModel(a.file, options)).finally(progress.clear);
    if (values.json) printJson({ a: a.name, b: b.name, ...found, peakBytes: peakBytes() });
    else if (!values.quiet) {
      const lines = samplesText(a.name, b.name, found);
      if (values.verbose) lines.push(effort());
      printLines(lines);
    }
    return 0;
  };
  const judge = async (a: Input, b: Input | undefined): Promise<number> => {
    const written: WrittenFile[] = values.resume === undefined ? [] : [{ flag: 'resume', path: values.resume }];
    for (const input of b === undefined ? [a] : [a, b]) await checkFilesApart(written, input, { words: values });
    const found = await about(a.name, () =>
      evaluateModel(a.file, {
        text,
        reference: b?.file,
        ...sizes,
        resume: values.resume,
        signal,
        onProgress: progress.update,
      }),
    ).finally(progress.clear);
    if (values.json) printJson({ a: a.name, b: b?.name ?? null, ...found, peakBytes: peakBytes() });
    else if (!values.quiet) {
      const lines = evaluationLines(a.name, b?.name, found);
      if (values.verbose) lines.push(effort());
      printLines(lines);
    }
    return 0;
  };
  return withInput(
    first,
    (a) => {
      if (second === undefined) return judge(a, undefined);
      return withInput(second, (b) => (data === undefined ? judge(a, b) : judgeSamples(a, b, data)), signal);
    },
    signal,
  );
}

/** Weights without statistics, by the reason. */
function unreachedLines(unreached: readonly UnreachedWeight[]): string[] {
  return [...grouped(unreached, ({ reason }) => reason.text)].map(([reason, some]) => {
    const names = some.map(({ name }) => name);
    return `without statistics, ${printable(reason)}: ${listed(names, 3)}`;
  });
}

/** The share of --held-back or --mix. @throws UsageError */
function shareIn(values: { readonly moments?: boolean }, flag: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (values.moments !== true) throw new UsageError(`--${flag} goes with --moments`);
  if (/^\d*\.?\d+$/.test(text) && Number(text) <= mostShare) return Number(text);
  throw wrongFlag(flag, { kind: 'number', min: 0, max: mostShare }, text);
}

/** Writes the importance of a model's weights. Returns the exit code. */
export async function calibrate(args: string[]): Promise<number> {
  const { values, positionals } = parseArguments(args, calibrateFlags);
  if (values.help) {
    process.stdout.write(calibrateUsage());
    return 0;
  }
  // Read the flags and the data.
  const [file] = filesOf(positionals, ['MODEL'], 'calibrate') as [string];
  const { output = 'imatrix.gguf', force = false, quiet = false, resume = false } = values;
  const { data: files, dim } = values;
  const other = (['text', 'ids'] as const).find((flag) => values[flag] !== undefined);
  if (files !== undefined && other !== undefined) throw wrongFlag('data', without(`--${other}`));
  const data = files === undefined ? await dataOf(values, 'calibrate') : { files };
  const sizes = { ...sizesOf(values), ...(dim === undefined ? {} : { run: { dimensions: dimensionsOf(dim) } }) };
  const heldBack = shareIn(values, 'held-back', values['held-back']);
  const mix = shareIn(values, 'mix', values.mix);
  const signal = abortOnSignal(
    resume
      ? 'interrupted; --resume goes on behind the last finished layer or sample'
      : 'interrupted, nothing was written',
  );
  const progress = dataProgressLine(quiet);
  return withInput(
    file,
    async (input) => {
      const onProgress = progress.update;
      const state = join(dirname(output), `.${basename(output)}.resume`);
      const written: WrittenFile[] = [
        output,
        ...(values.moments ? [output + momentsEnd] : []),
        ...(values.ranges ? [output + rangesEnd] : []),
        ...(resume ? [state, `${state}.moments`] : []),
      ].map((path) => ({ flag: 'output', path }));
      await checkFilesApart(written, input, { words: values });
      // Run the model.
      const wanted = { moments: values.moments, heldBack, mix, ranges: values.ranges };
      const options = { ...sizes, ...wanted, output, overwrite: force, resume, signal, onProgress };
      const {
        tokens,
        mixedTokens,
        chunks,
        heldBackChunks,
        weights,
        notes = [],
        unreached,
        size,
        moments,
        ranges,
      } = await about(input.name, () =>
        calibrateModel(input.file, data, options).catch((error) => Promise.reject(asUsage(error, values))),
      ).finally(progress.clear);
      for (const { text } of notes) printLines([`scalepoint: ${printable(text)}`], process.stderr);
      // Print the files, and how to use them.
      const second = moments && { path: String(moments.path), size: moments.size };
      const third = ranges && { path: String(ranges.path), size: ranges.size };
      if (values.json) {
        const beside = {
          ...(second && { moments: second, heldBackChunks }),
          ...(third && { ranges: third }),
          ...(unreached && { unreached }),
        };
        printJson({
          file: input.name,
          output,
          tokens,
          mixedTokens,
          chunks,
          weights,
          notes,
          size,
          ...beside,
          peakBytes: peakBytes(),
        });
      } else if (!quiet) {
        const random = mixedTokens ? ` (${mixedTokens.toLocaleString('en')} of them random)` : '';
        const rows = unreached === undefined ? `${counted(tokens, 'token')}${random}` : counted(chunks, 'sample');
        const [to, blocks] = unreached === undefined ? ['Q4_K_M', 'Q4_K_M'] : ['q4 --range mse', 'q4'];
        const lines = [
          `${printable(output)}: ${counted(weights.length, 'weight')}, ${rows}, ${formatBytes(size)}`,
          ...unreachedLines(unreached ?? []),
          `quantize with it: scalepoint ${printable(input.name)} --to ${to} --imatrix ${printable(output)}`,
        ];
        if (second !== undefined) {
          const path = printable(second.path);
          const unit = unreached === undefined ? 'chunk' : 'sample';
          const held = heldBackChunks
            ? `${counted(heldBackChunks, unit)} of ${chunks.toLocaleString('en')} held back`
            : `no ${unit} held back`;
          lines.push(
            `${path}: second moments, ${held}, ${formatBytes(second.size)}`,
            `quantize with them: scalepoint ${printable(input.name)} --to ${blocks} --method gptq --moments ${path}`,
          );
        }
        if (third !== undefined) {
          const path = printable(third.path);
          // In a model without products, such as an LSTM alone, int8-static takes no ranges.
          const options = { to: 'int8-static', ranges: third.path } as const;
          const plan = await planModel(input.file, options).catch(() => undefined);
          const hasProducts = plan?.notes.some(({ kind }) => kind === 'staticCost');
          lines.push(
            `${path}: ranges of activations, ${formatBytes(third.size)}`,
            hasProducts
              ? `quantize with them: scalepoint ${printable(input.name)} --to int8-static --ranges ${path}`
              : 'int8-static has no use for them: the model has no products of activations and weights that it takes',
            'with fp16, q4f16 and q2f16, they decide which nodes stay in float32',
          );
        }
        if (values.verbose) lines.push(effort());
        printLines(lines);
      }
      return 0;
    },
    signal,
  );
}

/** Texts for models: options about them, and their tokens. */

import { withHub } from '../convert/named.js';
import { type Opened, withModel } from '../convert/open.js';
import type { ModelInput } from '../convert/recognize.js';
import { type DataProgress, type WorkOptions, workEntries } from '../convert/work-options.js';

import { asOption, rangeError, ScalepointError, typeError } from '../core/errors.js';
import { imported } from '../core/imported.js';
import { ofType, whole } from '../core/option-problem.js';
import { callback, checkOptionValues, numberOption, type OptionsOf, option } from '../core/schema.js';
import { show } from '../core/show.js';
import { waitingFor } from '../core/waiting.js';
import type { GgufModel } from '../formats/gguf/gguf.js';
import type { ModelRuns, ModelSample, ModelSamples } from '../formats/run.js';

/** Texts for a language model: ids of tokens, or characters with a tokenizer. */
export type LanguageData =
  /** Ids of one text. */
  | Uint32Array
  | Int32Array
  | readonly number[]
  /** One text. */
  | string
  /** Several texts, which follow each other. */
  | readonly (string | Uint32Array | Int32Array | readonly number[])[];

/** Turns a text into ids. */
export interface TextTokenizer {
  /** Ids of a text, without special tokens around it. */
  encode(text: string): readonly number[] | Uint32Array | Promise<readonly number[] | Uint32Array>;
}

/** Options about texts. */
const textEntries = {
  /** Tokens of a chunk. @defaultValue 512, or fewer if the model was made for fewer or the text is shorter */
  chunkSize: numberOption({ whole: true, min: 4 }),
  /** Most tokens to use, from the start of the texts. @defaultValue all */
  maxTokens: numberOption({ whole: true, min: 4 }),
  /** Turns texts into ids. @defaultValue `tokenizer.json` beside the model, or the vocabulary in a GGUF file, read by the package @huggingface/tokenizers */
  tokenizer: option<TextTokenizer>((value, name) => {
    if (typeof (value as { encode?: unknown } | null)?.encode === 'function') return;
    throw typeError(name, { kind: 'object', keys: ['encode'] }, value);
  }),
  /** Called at least once a pass. An error that it throws ends the work, as does a rejected promise. */
  onProgress: callback<(progress: DataProgress) => void>(),
};

/** Options about texts, of `evaluateModel` and `calibrateModel`. */
export interface TextOptions extends Omit<WorkOptions, 'onProgress'>, OptionsOf<typeof textEntries> {}

export const checkTextOptions = (options: TextOptions): void =>
  checkOptionValues({ ...workEntries, ...textEntries }, options);

// ------------------------------------------------------------------------------------------------------------------------ tokens

/** A JSON file beside a model; undefined without it. @throws ScalepointError `BAD_FILE` */
export async function objectBeside(
  { beside }: Opened,
  name: string,
): Promise<Readonly<Record<string, unknown>> | undefined> {
  const bytes = await beside.file(name);
  if (bytes === undefined) return undefined;
  try {
    const parsed: unknown = JSON.parse(new TextDecoder().decode(bytes));
    return typeof parsed === 'object' && parsed !== null ? { ...parsed } : {};
  } catch (cause) {
    throw new ScalepointError('BAD_FILE', `${name} is not JSON`, { cause });
  }
}

/** The package that reads `tokenizer.json`. */
const tokenizersName = '@huggingface/tokenizers';

/** The part of that package that is used. */
interface TokenizersPackage {
  readonly Tokenizer: new (
    tokenizer: object,
    config: object,
  ) => {
    encode(text: string, options: { add_special_tokens: boolean }): { readonly ids: readonly number[] };
  };
}

/** The tokenizer beside a model, or in it: the contents of tokenizer.json and tokenizer_config.json. */
export interface TokenizerContents {
  readonly tokenizer: object;
  readonly config: object;
}

/** The tokenizer of a model; undefined without one. @throws ScalepointError `BAD_FILE`, `UNKNOWN_FORMAT` for vocabularies that cannot be read */
async function tokenizerContents(opened: Opened): Promise<TokenizerContents | undefined> {
  const { format, model } = opened;
  const beside = await objectBeside(opened, 'tokenizer.json');
  if (beside !== undefined) {
    return { tokenizer: beside, config: (await objectBeside(opened, 'tokenizer_config.json')) ?? {} };
  }
  if (format.name !== 'gguf') return undefined;
  // It knows the families of models, which most apps do not load.
  const { tokenizerJson } = await imported(import('../architectures/tokenizer-json.js'));
  const tokenizer = tokenizerJson((model as GgufModel).header);
  return tokenizer && { tokenizer, config: {} };
}

/** The tokenizer beside a model or in it, for the package @huggingface/tokenizers. @throws what `tokenizerContents` and `inspectModel` throw */
export const tokenizerOf = (input: ModelInput): Promise<TokenizerContents | undefined> =>
  withModel(input, {}, tokenizerContents);

/** The tokenizer of a model. @throws ScalepointError `RUNTIME` without the package, `BAD_FILE` without a tokenizer */
async function modelTokenizer(opened: Opened): Promise<TextTokenizer> {
  const contents = await tokenizerContents(opened);
  if (contents === undefined) {
    const text =
      'there is no tokenizer.json beside the model; give the ids of tokens in place of texts, or a tokenizer';
    throw new ScalepointError('BAD_FILE', text);
  }
  let loaded: TokenizersPackage;
  try {
    // Hidden from bundlers, because pages that give ids need not have the package.
    loaded = (await import(/* @vite-ignore */ /* webpackIgnore: true */ tokenizersName)) as TokenizersPackage;
  } catch (cause) {
    const text = `texts take ${tokenizersName}: npm install ${tokenizersName}; in a page, import it and pass a tokenizer`;
    throw new ScalepointError('RUNTIME', text, { cause });
  }
  try {
    const made = new loaded.Tokenizer(contents.tokenizer, contents.config);
    return { encode: (text) => made.encode(text, { add_special_tokens: false }).ids };
  } catch (cause) {
    throw new ScalepointError('BAD_FILE', 'tokenizer.json cannot be read', { cause });
  }
}

const isIds = (value: unknown): value is Uint32Array | Int32Array | readonly number[] =>
  value instanceof Uint32Array ||
  value instanceof Int32Array ||
  (Array.isArray(value) && value.every((id) => typeof id === 'number'));

/**
 * The tokens of all texts, one after the other, and the size of their chunks. If the first text is given as characters, the model's first token
 * stands in front of it, as with llama-perplexity and llama-imatrix (github.com/ggml-org/llama.cpp, tools/perplexity/perplexity.cpp at 050fc7f).
 * @param option name of the argument, for errors
 * @param opened models, of which the first one with a tokenizer gives it
 * @param limits with the model's first token, if it has one
 * @throws TypeError or RangeError naming the option, also if there are too few tokens
 */
export async function chunkedTokens(
  option: string,
  data: unknown,
  opened: readonly Opened[],
  {
    limits: { vocabulary, context, beginning },
    chunkSize,
    maxTokens,
    tokenizer,
    signal,
  }: TextOptions & {
    readonly limits: { readonly vocabulary: number; readonly context: number; readonly beginning?: number | undefined };
  },
): Promise<{ ids: Uint32Array<ArrayBuffer>; size: number }> {
  let made = tokenizer;
  const encode = async (text: string) => {
    if (made === undefined) {
      const has = await Promise.all(opened.map(({ beside }) => beside.file('tokenizer.json')));
      const found = opened[has.findIndex((bytes) => bytes !== undefined)];
      made = await modelTokenizer(
        found ?? opened.find(({ format }) => format.name === 'gguf') ?? (opened[0] as Opened),
      );
    }
    return made.encode(text);
  };
  const texts: readonly unknown[] =
    typeof data === 'string' || isIds(data) ? [data] : Array.isArray(data) ? data : [undefined];
  const collect = async () => {
    const ids: number[] = [];
    for (const [index, text] of texts.entries()) {
      const path = texts.length === 1 ? option : `${option}[${index}]`;
      if (typeof text !== 'string' && !isIds(text)) {
        throw typeError(path, { kind: 'type', types: ['string', 'Uint32Array', 'array of ids'] }, text);
      }
      for (const id of typeof text === 'string' ? await encode(text) : text) {
        if (!Number.isInteger(id) || id < 0 || id >= vocabulary) {
          if (typeof text !== 'string') throw rangeError(path, whole(0, vocabulary - 1), id);
          const message = `the tokenizer gives the id ${show(id)}, and the model has ${vocabulary}`;
          throw new ScalepointError('BAD_FILE', message);
        }
        ids.push(id);
      }
    }
    if (beginning !== undefined && typeof texts[0] === 'string' && ids.length > 0) ids.unshift(beginning);
    return Uint32Array.from(maxTokens === undefined ? ids : ids.slice(0, maxTokens));
  };
  // A tokenizer of the caller may take any time.
  const waiting = waitingFor(signal);
  const ids = await waiting.soon(collect()).finally(waiting.end);
  const size = chunkSize ?? Math.min(512, context, ids.length);
  if (size < 4 || ids.length < size) {
    throw rangeError(option, { kind: 'number', min: Math.max(4, size), unit: 'tokens' }, ids.length);
  }
  return { ids, size };
}

/** Data whose files are those that names on the hub mean, at one commit for all passes. @throws RangeError, ScalepointError naming the option */
export async function dataOnHub<T>(data: T, signal: AbortSignal | undefined): Promise<T> {
  if (typeof data !== 'object' || data === null || !('files' in data)) return data;
  const onHub = async (file: unknown, path: string) => {
    const { file: found } = await withHub(file, signal).catch((error) => Promise.reject(asOption(path, error)));
    return found;
  };
  const { files } = data;
  const found = Array.isArray(files)
    ? await Promise.all(files.map((file, i) => onHub(file, `data.files[${i}]`)))
    : await onHub(files, 'data.files');
  return { ...data, files: found };
}

/** Texts and ids as samples of a model that a runtime runs, one for each chunk. Samples stay as they are. */
export async function samplesFrom(
  opened: Opened,
  runs: ModelRuns,
  data: LanguageData | ModelSamples,
  options: TextOptions,
): Promise<ModelSamples> {
  const isText = (one: unknown) => typeof one === 'string' || ArrayBuffer.isView(one) || Array.isArray(one);
  const isList = Array.isArray(data) && data.length > 0;
  const areTexts = isList && data.every((one: unknown) => isText(one) || typeof one === 'number');
  if (typeof data !== 'string' && !ArrayBuffer.isView(data) && !areTexts) return data as ModelSamples;
  if (runs.tokens === undefined) throw typeError('data', ofType('iterable of samples', '{ files }'), data);
  const limits = { vocabulary: runs.tokens, context: Number.POSITIVE_INFINITY };
  const { ids, size } = await chunkedTokens('data', data, [opened], { ...options, limits });
  const samples: ModelSample[] = [];
  for (let at = 0; at < ids.length; at += size) samples.push(runs.sampleOf(ids.subarray(at, at + size)));
  return samples;
}

// ---------------------------------------------------------------------------------------------------------------------- progress

/** Called with the tokens that have passed a layer. */
export type TokenProgress = (
  progress: Pick<DataProgress, 'pass' | 'passes' | 'done' | 'total'>,
) => void | Promise<void>;

/** Makes a function that reports progress, and lets the page draw. */
export function progressReporter(
  { onProgress, signal }: Pick<TextOptions, 'onProgress' | 'signal'>,
  phase: DataProgress['phase'],
  unit: DataProgress['unit'],
): TokenProgress {
  let rested = performance.now();
  return async (progress) => {
    signal?.throwIfAborted();
    onProgress?.({ phase, unit, ...progress });
    if (performance.now() - rested < 50) return;
    await new Promise((resolve) => setTimeout(resolve));
    rested = performance.now();
    signal?.throwIfAborted();
  };
}

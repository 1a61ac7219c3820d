/** Tokens of texts, from what callers give. */
import { rangeError, ScalepointError, typeError } from '../core/errors.js';
import { whole } from '../core/option-problem.js';
import { show } from '../core/show.js';

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

const isIds = (value: unknown): value is Uint32Array | Int32Array | readonly number[] =>
  value instanceof Uint32Array ||
  value instanceof Int32Array ||
  (Array.isArray(value) && value.every((id) => typeof id === 'number'));

/**
 * The ids of all texts, one after the other. If the first is given as characters, the model's first token stands in front of it, as with
 * llama-perplexity and llama-imatrix (github.com/ggml-org/llama.cpp, tools/perplexity/perplexity.cpp at 050fc7f).
 * @param option name of the argument, for errors
 * @param beginning the model's first token, if it has one
 * @param tokenizer asked for where a text is given
 * @throws TypeError or RangeError naming the option
 */
export async function tokensOf(
  option: string,
  data: unknown,
  vocabulary: number,
  beginning: number | undefined,
  tokenizer: () => Promise<TextTokenizer>,
): Promise<Uint32Array<ArrayBuffer>> {
  const texts: readonly unknown[] =
    typeof data === 'string' || isIds(data) ? [data] : Array.isArray(data) ? data : [undefined];
  const ids: number[] = [];
  for (const [index, text] of texts.entries()) {
    const path = texts.length === 1 ? option : `${option}[${index}]`;
    if (typeof text !== 'string' && !isIds(text)) {
      throw typeError(path, { kind: 'type', types: ['string', 'Uint32Array', 'array of ids'] }, text);
    }
    const own = typeof text === 'string' ? await (await tokenizer()).encode(text) : text;
    for (const id of own) {
      if (!Number.isInteger(id) || id < 0 || id >= vocabulary) {
        if (typeof text !== 'string') throw rangeError(path, whole(0, vocabulary - 1), id);
        throw new ScalepointError(
          'BAD_FILE',
          `the tokenizer gives the id ${show(id)}, and the model has ${vocabulary}`,
        );
      }
      ids.push(id);
    }
  }
  if (beginning !== undefined && typeof texts[0] === 'string' && ids.length > 0) ids.unshift(beginning);
  return Uint32Array.from(ids);
}

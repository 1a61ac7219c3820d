import { tokenizerOf } from '../../src/tooling.js';
import { inputOf, type PageFile, wholeFile } from '../shared/page-files.js';

/** A text and the files of its tokenizer. */
export interface TextQuestion {
  /** The files of the model, which may have the tokenizer with them. */
  readonly files: readonly PageFile[];
  /** `tokenizer.json` and its configuration, as far as they were chosen apart from the model. */
  readonly tokenizer: readonly File[];
  /** The text that the visitor chose; undefined for the built-in one. */
  readonly text: File | undefined;
  /** Most tokens of the text. */
  readonly tokens: number;
}

/** Turns texts into tokens, and back. */
interface ModelTokenizer {
  encode(text: string): readonly number[];
  decode(ids: readonly number[]): string;
}

/** The tokenizer that was chosen, that of the model's folder, or that of a GGUF file. */
export async function tokenizerFor({
  files,
  tokenizer,
}: Omit<TextQuestion, 'text' | 'tokens'>): Promise<ModelTokenizer> {
  const { Tokenizer } = await import('@huggingface/tokenizers');
  const json = async (name: string): Promise<object | undefined> => {
    const file = [...tokenizer, ...files].find((one) => one.name === name);
    return file && (JSON.parse(await (await wholeFile(file)).text()) as object);
  };
  const chosen = await json('tokenizer.json').catch((error) => Promise.reject(unreadable(error)));
  const contents = chosen
    ? { tokenizer: chosen, config: await json('tokenizer_config.json') }
    : await tokenizerOf(inputOf(files));
  try {
    const made = new Tokenizer(contents?.tokenizer ?? {}, contents?.config ?? {});
    return {
      encode: (text) => made.encode(text, { add_special_tokens: false }).ids,
      decode: (ids) => made.decode([...ids], { skip_special_tokens: true, clean_up_tokenization_spaces: false }),
    };
  } catch (error) {
    throw unreadable(error);
  }
}

const unreadable = (error: unknown) =>
  new Error(`tokenizer.json cannot be read: ${error instanceof Error ? error.message : String(error)}`);

const textAt = async (address: URL) => (await fetch(address)).text();

/** Tokens of the stories by which the storyteller is judged. Those after them are for statistics. */
const judgedStories = 4096;

/**
 * The ids of a built-in text: a story, or those of the site's storyteller if the tokenizer was made for these. It takes two thirds of the tokens
 * for a character of these, others as many. Statistics come from other texts than those by which their results are judged.
 */
async function builtInIds({ encode }: ModelTokenizer, isForStatistics: boolean): Promise<readonly number[]> {
  const texts = await Promise.all([
    textAt(new URL('./story.txt', import.meta.url)),
    textAt(new URL('./stories.txt', import.meta.url)),
  ]);
  const [story = [], stories = []] = texts.map(encode);
  const [one = 0, many = 0] = [story, stories].map((ids, i) => ids.length / (texts[i] as string).length);
  if (many < 0.8 * one) return isForStatistics ? stories.slice(judgedStories) : stories.slice(0, judgedStories);
  return isForStatistics ? encode(await textAt(new URL('./calibration.txt', import.meta.url))) : story;
}

/** Ids of a text's tokens. @param isForStatistics false to judge a result by them */
export async function idsOf(question: TextQuestion, isForStatistics = false): Promise<Uint32Array<ArrayBuffer>> {
  const { text, tokens } = question;
  const tokenizer = await tokenizerFor(question);
  const found = text === undefined ? await builtInIds(tokenizer, isForStatistics) : tokenizer.encode(await text.text());
  const ids = Uint32Array.from(found);
  if (ids.length < 8) throw new Error(`the text has ${ids.length} of the 8 tokens that are needed at least`);
  return ids.subarray(0, tokens).slice();
}

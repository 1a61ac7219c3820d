import { type PageFile, wholeFile } from '../shared/page-files.js';

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

/** Ids of a text's tokens. */
export async function idsOf({ files, tokenizer, text, tokens }: TextQuestion): Promise<Uint32Array<ArrayBuffer>> {
  const { Tokenizer } = await import('@huggingface/tokenizers');
  const json = async (name: string): Promise<object> => {
    const file = [...tokenizer, ...files].find((one) => one.name === name);
    return file === undefined ? {} : (JSON.parse(await (await wholeFile(file)).text()) as object);
  };
  let encode: (text: string) => readonly number[];
  try {
    const made = new Tokenizer(await json('tokenizer.json'), await json('tokenizer_config.json'));
    encode = (words) => made.encode(words, { add_special_tokens: false }).ids;
  } catch (error) {
    throw new Error(`tokenizer.json cannot be read: ${error instanceof Error ? error.message : String(error)}`);
  }
  const words =
    text === undefined ? await (await fetch(new URL('./story.txt', import.meta.url))).text() : await text.text();
  const ids = Uint32Array.from(encode(words));
  if (ids.length < 8) throw new Error(`the text has ${ids.length} of the 8 tokens that are needed at least`);
  return ids.subarray(0, tokens).slice();
}

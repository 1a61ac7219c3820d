/** Opens language models to run them: folders and GGUF files. */
import type { Converted } from '../conversions/converter.js';
import { convertersFrom } from '../conversions/registry.js';
import { ScalepointError } from '../core/errors.js';
import type { OpenModel } from '../formats/format.js';
import type { RunnableLanguage } from '../language/evaluate.js';
import { beginningOf, languageFacts, type Metadata } from '../language/facts.js';
import { LanguageForward } from '../language/forward.js';
import { LanguageRows, type LanguageTensor } from '../language/source.js';
import type { TextTokenizer } from '../language/tokens.js';
import { type WorkOptions, withRunner } from '../pipeline/start.js';
import type { Opened } from './open.js';

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

/** The tokenizer of a model's folder. @throws ScalepointError `RUNTIME` without the package, `BAD_FILE` without a tokenizer */
export async function folderTokenizer({ beside }: Opened): Promise<TextTokenizer> {
  const json = async (name: string): Promise<object | undefined> => {
    const bytes = await beside.file(name);
    if (bytes === undefined) return undefined;
    try {
      return JSON.parse(new TextDecoder().decode(bytes)) as object;
    } catch (cause) {
      throw new ScalepointError('BAD_FILE', `${name} is not JSON`, { cause });
    }
  };
  const tokenizer = await json('tokenizer.json');
  if (tokenizer === undefined) {
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
    const made = new loaded.Tokenizer(tokenizer, (await json('tokenizer_config.json')) ?? {});
    return { encode: (text) => made.encode(text, { add_special_tokens: false }).ids };
  } catch (cause) {
    throw new ScalepointError('BAD_FILE', 'tokenizer.json cannot be read', { cause });
  }
}

/** Metadata and tensors of a model in llama.cpp's names. */
interface LanguageContents {
  readonly metadata: Metadata;
  readonly tensors: ReadonlyMap<string, LanguageTensor>;
}

async function contentsOf({ format, model, beside }: Opened): Promise<LanguageContents> {
  if (format.name === 'gguf') {
    const tensors = await format.tensors(model);
    const { metadata } = model as OpenModel;
    return {
      metadata: (key) => (Object.hasOwn(metadata, key) ? metadata[key] : undefined),
      tensors: new Map(tensors.map((tensor) => [tensor.name, tensor])),
    };
  }
  for (const converter of convertersFrom(format.name)) {
    const contents: Converted['contents'] = (await converter.convert(model, beside, { missingBytes: 'keep' }))
      ?.contents;
    if (contents === undefined) continue;
    const { view, sources } = contents;
    return {
      metadata: (key) => (Object.hasOwn(view.metadata, key) ? view.metadata[key] : undefined),
      tensors: new Map(view.tensors.map(({ name }, i) => [name, sources[i] as LanguageTensor])),
    };
  }
  const text = 'only GGUF files and folders of language models, with config.json and tokenizer, can be run here';
  throw new ScalepointError('UNKNOWN_FORMAT', text);
}

/**
 * Makes a language model ready to be run, and hands it to `use`. Its tensors are read as they are needed.
 * @throws ScalepointError `UNKNOWN_FORMAT` for other models and architectures
 */
export async function withLanguage<T>(
  opened: Opened,
  options: Pick<WorkOptions, 'core' | 'signal'>,
  use: (model: RunnableLanguage) => Promise<T>,
): Promise<T> {
  const { metadata, tensors } = await contentsOf(opened);
  const load = await import('../core/load.js');
  const { files } = opened.model;
  // Reading is a small share of the work, so that the calling thread does it.
  return withRunner(
    0,
    { sources: files, sinks: [] },
    { core: options.core, signal: options.signal, workers: 0 },
    async (runner) => {
      const rows = new LanguageRows(tensors, runner);
      // Phi-3 has other factors for contexts beyond the original one, which chunks do not reach by default.
      const named = ['rope_freqs.weight', 'rope_factors_short.weight'].find((name) => rows.has(name));
      const divisors = named === undefined ? undefined : await rows.read(named, 0, 1);
      const facts = languageFacts(metadata, divisors);
      if (facts.experts > 0) {
        throw new ScalepointError('UNKNOWN_FORMAT', 'models with experts cannot be run here yet');
      }
      const core = await load.instantiateCore('core', await load.compileCore('core', options.core));
      try {
        const forward = new LanguageForward(core, facts, rows);
        return await use({ core, facts, forward, beginning: beginningOf(metadata, forward.vocabulary) });
      } finally {
        core.dispose();
      }
    },
  );
}

/** Opens language models to run them: folders and GGUF files. */

import type { Converted } from '../architectures/converter.js';
import { convertersFrom } from '../architectures/registry.js';
import type { Opened } from '../convert/open.js';
import { defaultWorkers, type WorkOptions, withRunner } from '../convert/start.js';
import { ScalepointError } from '../core/errors.js';
import { elementsOf, largestCount } from '../formats/codecs/elements.js';
import type { OpenModel } from '../formats/format.js';
import type { RunnableLanguage } from './evaluate.js';
import { beginningOf, languageFacts, type Metadata } from './facts.js';
import { LanguageForward } from './forward.js';
import { type LayerWorkers, withLayerWorkers } from './layer-workers.js';
import { LanguageRows, type LanguageTensor } from './source.js';
import type { TextTokenizer } from './tokens.js';

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
    const contents: Converted['contents'] = (
      await converter.convert(model, beside, { missingBytes: 'keep', requantize: true })
    )?.contents;
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

/** Bytes of the weights of layers that all workers hold together by default. */
const layerBytes = 2 ** 31;

/** Number of workers for a model, if the caller gives none: fewer where the weights of a layer are large. */
function workersFor(tensors: ReadonlyMap<string, LanguageTensor>): number {
  const layers = new Map<string, number>();
  let all = 0;
  for (const [name, tensor] of tensors) {
    const elements = tensor instanceof Uint8Array ? tensor.length / 4 : elementsOf(tensor.shape);
    const layer = /^blk\.\d+/.exec(name)?.[0] ?? '';
    if (layer !== '') layers.set(layer, (layers.get(layer) ?? 0) + elements);
    all += elements;
  }
  const most = Math.floor(layerBytes / (4 * Math.max(1, ...layers.values())));
  const workers = defaultWorkers(all);
  return workers === 0 ? 0 : Math.max(1, Math.min(workers, most));
}

/** Options of work with language models. */
export interface LanguageOptions extends Pick<WorkOptions, 'workers' | 'worker' | 'core' | 'signal'> {
  /** Workers of another model, which wait while this one is run. */
  readonly layerWorkers?: LayerWorkers | undefined;
}

/**
 * Makes a language model ready to be run, and hands it to `use`. Its tensors are read as they are needed.
 * @throws ScalepointError `UNKNOWN_FORMAT` for other models and architectures
 */
export async function withLanguage<T>(
  opened: Opened,
  options: LanguageOptions,
  use: (model: RunnableLanguage) => Promise<T>,
): Promise<T> {
  const { metadata, tensors } = await contentsOf(opened);
  const { core, signal, workers = workersFor(tensors) } = options;
  const { files } = opened.model;
  const start = async (layerWorkers: LayerWorkers): Promise<T> =>
    // Reading is a small share of the work, so that the calling thread does it.
    withRunner(0, { sources: files, sinks: [] }, { core, signal, workers: 0 }, async (runner) => {
      const rows = new LanguageRows(tensors, runner);
      // Phi-3 has other factors for contexts beyond the original one, which chunks do not reach by default.
      const named = ['rope_freqs.weight', 'rope_factors_short.weight'].find((name) => rows.has(name));
      const divisors = named === undefined ? undefined : await rows.read(named, 0, 1);
      const shapes = [...tensors.values()].flatMap((one) => (one instanceof Uint8Array ? [] : [one]));
      const facts = languageFacts(metadata, divisors, largestCount(shapes));
      const forward = new LanguageForward(layerWorkers, facts, rows);
      return use({ layerWorkers, facts, forward, beginning: beginningOf(metadata, forward.vocabulary) });
    });
  return options.layerWorkers === undefined ? withLayerWorkers(workers, options, start) : start(options.layerWorkers);
}

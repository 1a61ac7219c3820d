/** Language models of all formats, to be judged on texts. */

import type { Opened } from '../convert/open.js';
import { ScalepointError } from '../core/errors.js';
import type { LogitsOf, RunOptions } from '../formats/run.js';
import { type JudgedModel, judgedLanguage } from './evaluate.js';
import { type LanguageOptions, withLanguage } from './language.js';

/** Logits of tokens of a text, from those of whole chunks. The last chunk is remembered. */
function fromChunks(logits: LogitsOf, ids: Uint32Array, chunkSize: number, vocabulary: number) {
  let [at, known] = [-1, new Float32Array(0)];
  return async (first: number, count: number): Promise<Float32Array<ArrayBuffer>> => {
    const begin = first - (first % chunkSize);
    if (begin !== at) [at, known] = [begin, await logits(ids.subarray(begin, begin + chunkSize))];
    return known.subarray((first - begin) * vocabulary, (first - begin + count) * vocabulary);
  };
}

/** A value of a JSON file beside a model; undefined without the file or the key. */
async function valueBeside({ beside }: Opened, file: string, key: string): Promise<unknown> {
  const bytes = await beside.file(file);
  if (bytes === undefined) return undefined;
  try {
    const parsed: unknown = JSON.parse(new TextDecoder().decode(bytes));
    return typeof parsed === 'object' && parsed !== null && Object.hasOwn(parsed, key)
      ? (parsed as Record<string, unknown>)[key]
      : undefined;
  } catch (cause) {
    throw new ScalepointError('BAD_FILE', `${file} is not JSON`, { cause });
  }
}

/** Id of the token in front of texts, by the files beside a model without a tokenizer of its own; undefined if no token is added. */
async function beginningBeside(opened: Opened): Promise<number | undefined> {
  if ((await valueBeside(opened, 'tokenizer_config.json', 'add_bos_token')) !== true) return undefined;
  const id = await valueBeside(opened, 'config.json', 'bos_token_id');
  return Number.isSafeInteger(id) ? (id as number) : undefined;
}

/**
 * Makes a language model ready to be judged, and hands it to `use` with the number of tokens that it was made for.
 * @throws ScalepointError `UNKNOWN_FORMAT` for other models
 */
export async function withJudged<T>(
  opened: Opened,
  options: LanguageOptions & { readonly run: Pick<RunOptions, 'runtime' | 'dimensions'> },
  use: (model: JudgedModel, context: number) => Promise<T>,
): Promise<T> {
  const runs = await opened.format.runs?.(opened.model);
  if (runs === undefined) {
    return withLanguage(opened, options, (made) => use(judgedLanguage(made), made.facts.context));
  }
  if (runs.tokens === undefined) {
    const text =
      'the model takes no input_ids, so that it cannot be judged on texts; data in place of text compares outputs';
    throw new ScalepointError('UNKNOWN_FORMAT', text);
  }
  const beginning = await beginningBeside(opened);
  const load = await import('../core/load.js');
  const { run, signal } = options;
  return runs.withLogits({ ...run, signal }, async (logits, vocabulary) => {
    const core = await load.instantiateCore('core', await load.compileCore('core', options.core));
    try {
      const prepare: JudgedModel['prepare'] = async (ids, chunkSize) => fromChunks(logits, ids, chunkSize, vocabulary);
      return await use({ core, vocabulary, beginning, passes: 0, prepare }, Number.POSITIVE_INFINITY);
    } finally {
      core.dispose();
    }
  });
}

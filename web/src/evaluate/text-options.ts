/** Options about texts, and the tokens of texts. */

import type { Opened } from '../convert/open.js';
import type { DataProgress } from '../convert/progress.js';
import type { WorkOptions } from '../convert/start.js';
import { checkWorkOptions } from '../convert/work-options.js';
import { rangeError, typeError } from '../core/errors.js';
import { whole } from '../core/option-problem.js';
import { waitingFor } from '../core/waiting.js';
import type { TokenProgress } from './evaluate.js';
import { folderTokenizer } from './language.js';
import { type LanguageData, type TextTokenizer, tokensOf } from './tokens.js';

/** Options about texts, of `evaluateModel` and `calibrateModel`. */
export interface TextOptions extends Omit<WorkOptions, 'onProgress'> {
  /** Tokens of a chunk. @defaultValue 512, or fewer if the model was made for fewer or the text is shorter */
  readonly chunkSize?: number | undefined;
  /** Most tokens to use, from the start of the texts. @defaultValue all */
  readonly maxTokens?: number | undefined;
  /** Turns texts into ids. @defaultValue `tokenizer.json` beside the model, read by the package @huggingface/tokenizers */
  readonly tokenizer?: TextTokenizer | undefined;
  /** Called at least once a pass. An error that it throws ends the work, as does a rejected promise. */
  readonly onProgress?: ((progress: DataProgress) => void) | undefined;
}

export function checkTextOptions({ chunkSize, maxTokens, tokenizer, onProgress, ...work }: TextOptions): void {
  checkWorkOptions({ ...work, onProgress: onProgress as WorkOptions['onProgress'] });
  for (const [name, value, least] of [
    ['chunkSize', chunkSize, 4],
    ['maxTokens', maxTokens, 4],
  ] as const) {
    if (value !== undefined && !(Number.isSafeInteger(value) && value >= least))
      throw rangeError(name, whole(least), value);
  }
  if (tokenizer !== undefined && typeof (tokenizer as { encode?: unknown } | null)?.encode !== 'function') {
    throw typeError('tokenizer', { kind: 'object', keys: ['encode'] }, tokenizer);
  }
}

/** The tokens of the texts, and the size of their chunks. @throws RangeError naming `text` if there are too few */
export async function chunkedTokens(
  path: string,
  data: LanguageData,
  opened: readonly Opened[],
  limits: { readonly vocabulary: number; readonly context: number; readonly beginning?: number | undefined },
  { chunkSize, maxTokens, tokenizer, signal }: TextOptions,
): Promise<{ ids: Uint32Array<ArrayBuffer>; size: number }> {
  let made: Promise<TextTokenizer> | undefined;
  const tokenizerOf = async () => {
    if (tokenizer !== undefined) return tokenizer;
    for (const one of opened) if ((await one.beside.file('tokenizer.json')) !== undefined) return folderTokenizer(one);
    return folderTokenizer(opened[0] as Opened);
  };
  const { vocabulary, beginning } = limits;
  // A tokenizer of the caller may take any time.
  const waiting = waitingFor(signal);
  const found = waiting.soon(tokensOf(path, data, vocabulary, beginning, () => (made ??= tokenizerOf())));
  const all = await found.finally(waiting.end);
  const ids = maxTokens === undefined ? all : all.slice(0, maxTokens);
  const size = chunkSize ?? Math.min(512, limits.context, ids.length);
  if (size < 4 || ids.length < size) {
    throw rangeError(path, { kind: 'number', min: Math.max(4, size), unit: 'tokens' }, ids.length);
  }
  return { ids, size };
}

/** Reports progress, and lets the page draw. */
export function tokenProgress(
  { onProgress, signal }: Pick<TextOptions, 'onProgress' | 'signal'>,
  phase: DataProgress['phase'],
): TokenProgress {
  let rested = performance.now();
  return async (progress) => {
    signal?.throwIfAborted();
    onProgress?.({ phase, unit: 'tokens', ...progress });
    if (performance.now() - rested > 50) {
      await new Promise((resolve) => setTimeout(resolve));
      rested = performance.now();
      signal?.throwIfAborted();
    }
  };
}

/** Writes with a language model: its weights stay in memory, and it reads a text token by token. */
import { withModel } from '../convert/open.js';
import type { ModelInput } from '../convert/recognize.js';
import type { WorkOptions } from '../convert/work-options.js';
import { ScalepointError } from '../core/errors.js';
import type { Metadata } from './facts.js';
import { withLanguage } from './language.js';

/** A language model that is ready to read a text. */
export interface TextReader {
  /** Number of tokens that the model knows. */
  readonly vocabulary: number;
  /** Tokens that the model was made for. */
  readonly context: number;
  /** Id in front of texts; undefined if the model adds none. */
  readonly beginning: number | undefined;
  /** Ids that end a text. */
  readonly ends: readonly number[];
  /**
   * Reads tokens that follow `from` others. Those that were read before from there on are forgotten.
   * @param count tokens at the end whose followers are wanted
   * @returns the most likely token behind each of these; the first of equals
   * @throws ScalepointError `NON_FINITE`
   */
  read(ids: ArrayLike<number>, from: number, count: number): Promise<Uint32Array<ArrayBuffer>>;
}

/** Options of `withReader`. */
export interface ReaderOptions extends Pick<WorkOptions, 'worker' | 'core' | 'signal'> {
  /** Tokens of the longest text. */
  readonly room: number;
  /** 1: a worker does the work. 0: the calling thread does. @defaultValue 1 */
  readonly workers?: 0 | 1;
  /** Called with the share of the weights that are in memory. */
  readonly onProgress?: (share: number) => void;
}

/** Ids that end a text: of the whole text, and of a turn. */
const endKeys = ['eos_token_id', 'eot_token_id', 'eom_token_id'];

const endsOf = (metadata: Metadata): number[] =>
  endKeys.map((key) => metadata(`tokenizer.ggml.${key}`)).filter((id) => typeof id === 'number');

/**
 * Makes a language model ready to read a text, and hands it to `use`. Takes GGUF files and folders of the models that `evaluateModel` runs a
 * layer at a time, if they have no experts. Memory: all weights as floats, in one WebAssembly memory of at most 4 GiB.
 * @throws what `inspectModel` throws; ScalepointError `UNKNOWN_FORMAT` for other models, `OUT_OF_MEMORY`; the signal's reason
 */
export function withReader<T>(
  input: ModelInput,
  { room, workers = 1, onProgress, ...options }: ReaderOptions,
  use: (reader: TextReader) => Promise<T>,
): Promise<T> {
  return withModel(input, options, (opened) =>
    withLanguage(opened, { ...options, workers }, async ({ forward, facts, beginning, metadata }) => {
      await forward.hold((layers) => {
        options.signal?.throwIfAborted();
        onProgress?.(layers / (facts.layers + 1));
      });
      onProgress?.(1);
      const { vocabulary } = forward;
      const read: TextReader['read'] = async (ids, from, count) => {
        const logits = await forward.read(Uint32Array.from(ids), from, room, count);
        return Uint32Array.from({ length: count }, (_, row) => {
          let best = 0;
          const at = row * vocabulary;
          for (let id = 0; id < vocabulary; id++) {
            const logit = logits[at + id] as number;
            if (!Number.isFinite(logit))
              throw new ScalepointError('NON_FINITE', 'the logits of the model are not finite');
            if (logit > (logits[at + best] as number)) best = id;
          }
          return best;
        });
      };
      return use({ vocabulary, context: facts.context, beginning, ends: endsOf(metadata), read });
    }),
  );
}

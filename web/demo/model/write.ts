// Texts that a model and its result write, as data: the request, its progress, and sentences about both.
import { differing, verdictOf, wordsOf } from '../shared/continuations.js';
import { formatCount } from '../shared/format.js';
import type { ResultQuestion } from './made.js';

/** A request to the worker. */
export interface WriteQuestion extends ResultQuestion {
  /** Key of the choice: the models of the last one are still in memory. */
  readonly key: string;
  /** `tokenizer.json` and its configuration, as far as they were chosen apart from the model. */
  readonly tokenizer: readonly File[];
  /** The text to continue. */
  readonly begin: string;
  /** Most tokens to write. */
  readonly length: number;
}

/** The text of one of the models so far. */
export interface WriteSide {
  readonly text: string;
  readonly tokens: number;
  /** Seconds since the beginning was read. */
  readonly seconds: number;
  readonly isDone: boolean;
  /** True if it repeats itself. */
  readonly isStuck: boolean;
}

/** A step of the work. */
export type WriteProgress =
  | { readonly step: 'quantize' | 'load'; readonly share: number }
  /** Both models read the beginning. */
  | { readonly step: 'read' }
  | ({ readonly step: 'text'; readonly side: 0 | 1 } & WriteSide);

/** Places of the original's text where the result would have written the same token, reading what the original wrote. */
export interface Agreement {
  readonly same: number;
  readonly of: number;
  /** Size of the result. */
  readonly bytes: number;
}

/** Tokens to write. */
export const lengthChoices: readonly number[] = [40, 100, 200];

/** Everything about the texts of one model. */
export interface WriteState {
  readonly begin: string;
  readonly length: number;
  /** The type that writes or has written. */
  readonly label: string;
  /** Undefined while nothing is being written. */
  readonly progress: WriteProgress | undefined;
  /** The beginning of the texts that are shown. */
  readonly given: string;
  /** The text of the original, and that of the result. Empty before the first one. */
  readonly sides: readonly WriteSide[];
  readonly agreement: Agreement | undefined;
  readonly problem: string;
}

/** Speed of a model that writes: `12 tokens a second`. */
export function speedText({ tokens, seconds, isDone }: WriteSide): string {
  // The first token comes with the reading of the beginning.
  if (tokens < 2 || seconds === 0) return isDone && tokens === 0 ? 'The text ends here.' : '';
  const rate = (tokens - 1) / seconds;
  const text = rate < 10 ? rate.toFixed(1) : formatCount(Math.round(rate));
  return `${formatCount(tokens)} tokens, ${text} a second`;
}

/** Sentences about the text of the result, once it is written. */
export function resultText({ sides, agreement, label }: Pick<WriteState, 'sides' | 'agreement' | 'label'>): string {
  const [before, after] = sides;
  if (before === undefined || after === undefined || agreement === undefined) return '';
  const [original, words] = [before, after].map(({ text }) => wordsOf(text)) as [string[], string[]];
  if (agreement.of === 0) return 'The original writes nothing: for it, the text ends here.';
  const { same, of } = agreement;
  const places =
    same === of ? `at all ${formatCount(of)} places` : `at ${formatCount(same)} of ${formatCount(of)} places`;
  const verdict = verdictOf('text', words, original, differing(words, original), after.isStuck && !before.isStuck);
  return `Reading what the original wrote, ${label} finds the same next token ${places}. ${verdict}`;
}

/** The line below the button while both write. */
export function statusOf({ progress, label }: WriteState): string {
  const percent = (share: number) => `${Math.floor(share * 100)}\u00a0%`;
  const words: {
    readonly [Step in WriteProgress['step']]: (progress: Extract<WriteProgress, { step: Step }>) => string;
  } = {
    quantize: ({ share }) => `Making ${label}: ${percent(share)}`,
    load: ({ share }) => `Loading both models: ${percent(share)}`,
    read: () => 'Both read the beginning…',
    text: () => 'Both write…',
  };
  return progress === undefined ? '' : (words[progress.step] as (progress: WriteProgress) => string)(progress);
}

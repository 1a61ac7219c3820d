/** Statistics of language models that are run a layer at a time. */

import type { Opened } from '../convert/open.js';
import { type Note, noteOf } from '../core/note.js';
import { uniform } from '../core/uniform.js';
import type { ModelOutput } from '../formats/files/sinks.js';
import { isHeldBack, tooFewToHoldBack } from '../formats/held-back.js';
import type { MomentsFile } from '../formats/statistics.js';
import { collectFromTexts, importanceOf, type TakeMoments } from './collect.js';
import { beginTexts } from './evaluate.js';
import { withLanguage } from './language.js';
import type { PassState } from './pass-state.js';
import { momentsEnd, withOutputFiles } from './statistics-output.js';
import { chunkedTokens, type TextOptions, tokenProgress } from './text-options.js';
import type { LanguageData } from './tokens.js';

/** Options of `calibrateModel`, checked. */
interface LanguageStatisticsOptions extends TextOptions {
  readonly output: ModelOutput | undefined;
  readonly overwrite: boolean;
  readonly moments: boolean;
  /** The share of chunks that is held back from moments. */
  readonly heldBack: number;
  /** True if the caller gave it. */
  readonly isShareGiven: boolean;
  /** The share of random tokens. */
  readonly mix: number;
  readonly resume: boolean;
}

/** Statistics, as `calibrateModel` gives them. */
interface LanguageStatistics extends Omit<MomentsFile, 'path'> {
  readonly notes: readonly Note[];
  readonly tokens: number;
  readonly mixedTokens: number;
  readonly chunks: number;
  readonly heldBackChunks?: number | undefined;
  readonly weights: readonly string[];
  readonly moments?: MomentsFile | undefined;
}

/** Random tokens for a share of all tokens, in whole chunks. */
function randomTokens(ids: Uint32Array, size: number, share: number, vocabulary: number): Uint32Array<ArrayBuffer> {
  const chunks = Math.round((Math.floor(ids.length / size) * share) / (1 - share));
  const random = uniform(1);
  return Uint32Array.from({ length: chunks * size }, () => Math.floor(random() * vocabulary));
}

/**
 * Puts what is held back of the data and of random tokens last, where a shorter chunk of the data stands already. With fewer than two whole
 * chunks of data, nothing is held back.
 * @returns the tokens in this order, and how many of them are not held back
 */
function heldBackLast(ids: Uint32Array<ArrayBuffer>, mixed: Uint32Array, size: number, share: number) {
  const whole = Math.floor(ids.length / size);
  const own: Uint32Array[] = [];
  const held: Uint32Array[] = [];
  for (const tokens of [ids, mixed]) {
    for (let i = 0; (i + 1) * size <= tokens.length; i++) {
      (whole >= 2 && isHeldBack(i, share) ? held : own).push(tokens.subarray(i * size, (i + 1) * size));
    }
  }
  const texts = new Uint32Array(ids.length + mixed.length);
  for (const [i, chunk] of [...own, ...held, ids.subarray(whole * size)].entries()) texts.set(chunk, i * size);
  return { texts, fitted: held.length === 0 ? texts.length : own.length * size };
}

/**
 * The least share of the tokens that a text could have, which is the smaller of its length and the vocabulary, for statistics that hold for
 * other texts. Measured with the model of stories: see `web/demo/guide/06-let-data-decide.md`.
 */
const leastSeen = 0.05;

/** The note about a text of few different tokens. */
function fewTokensNotes(ids: Uint32Array, vocabulary: number): Note[] {
  const seen = new Set(ids).size;
  if (seen >= leastSeen * Math.min(ids.length, vocabulary)) return [];
  const text =
    `the data have ${seen} of the ${vocabulary} tokens that the model knows; weights made by them may be worse for other texts than without ` +
    'data, which errors on held-back data do not show: add texts of other kinds, or random tokens';
  return [noteOf('fewTokens', { seen, vocabulary, tokens: ids.length }, text)];
}

/** Collects statistics of a language model. See `calibrateModel`. */
export async function calibrateLanguage(
  opened: Opened,
  data: LanguageData,
  { output, overwrite, moments, heldBack, isShareGiven, mix, resume, ...own }: LanguageStatisticsOptions,
): Promise<LanguageStatistics> {
  const { signal } = own;
  const files = resume ? await import('./pass-state.js') : undefined;
  const place = files?.besideOutput(output);
  const saved = await import('./saved-state.js');
  const beside = moments ? [momentsEnd] : [];
  let state: PassState | undefined;
  try {
    const made = await withOutputFiles(opened, { output, overwrite, signal, beside }, ([main, second], waiting) =>
      withLanguage(opened, own, async (language) => {
        const { forward, facts } = language;
        const limits = { vocabulary: forward.vocabulary, context: facts.context, beginning: language.beginning };
        const { ids, size } = await chunkedTokens('data', data, [opened], limits, own);
        const mixed = randomTokens(ids, size, mix, forward.vocabulary);
        const laidOut = heldBackLast(ids, mixed, size, heldBack);
        const { fitted } = laidOut;
        const texts = beginTexts(laidOut.texts, size, language.beginning);
        const held = texts.length - fitted;
        if (held === 0 && isShareGiven && heldBack > 0) {
          throw tooFewToHoldBack('data', ids.length, 2 * size, 'tokens');
        }

        // Find the state of an interrupted run.
        if (files !== undefined && place !== undefined) {
          const model = await files.stampsOf(opened.model.files);
          const run = { model, data: await files.digestOfTokens(texts), options: { size, moments, fitted } };
          const names = { option: 'output', inputs: opened.inputs };
          state = await files.PassState.open(place, run, { overwrite, waiting, ...names });
        }
        const found = state?.take();
        const passed = found && saved.passFrom(found, texts.length * facts.hidden);
        if (files !== undefined && found !== undefined && (passed === undefined || passed.layer >= facts.layers)) {
          throw files.damaged(place as string);
        }

        // Lay out the moments, and write those of each layer behind it.
        let take: TakeMoments | undefined;
        let finishMoments = async () => {};
        if (second !== undefined) {
          const { MomentsLayout } = await import('./moments-file.js');
          const layers = Array.from({ length: facts.layers }, (_, i) => forward.inputsOf(i));
          const shared = [...layers.flat(), forward.head];
          const inputs = shared.map((one) => ({ ...one, heldBack: held > 0 }));
          const layout = new MomentsLayout(inputs, { tokens: fitted, heldBack: held, mixed: mixed.length });
          const sink = second.sized(layout.size);
          const to = (await state?.moments(passed === undefined)) ?? sink;
          if (passed === undefined) await to.write(0, layout.header);
          take = (...numbers) => layout.write(to, ...numbers);
          if (to !== sink) finishMoments = async () => state?.copyMoments(layout.size, sink);
        }

        // Run the model.
        const sums = await collectFromTexts(language, texts, size, {
          onProgress: tokenProgress(own, 'calibrate'),
          takeMoments: take,
          fitted,
          passed,
          onLayer: state && ((now) => (state as PassState).save(saved.savedPass(now))),
        });
        await finishMoments();
        const chunks = Math.ceil(texts.length / size);
        const { file, weights } = importanceOf(sums, chunks, size);
        await main?.sized(file.length).write(0, file);
        const result = (main as NonNullable<typeof main>).result();
        const beside = second && { moments: second.result(), heldBackChunks: Math.ceil(held / size) };
        const notes = fewTokensNotes(beginTexts(ids, size, language.beginning), forward.vocabulary);
        return { tokens: texts.length, mixedTokens: mixed.length, chunks, weights, notes, ...result, ...beside };
      }),
    );
    await state?.remove();
    return made;
  } finally {
    await state?.close();
  }
}

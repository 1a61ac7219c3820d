/**
 * Perplexity of language models, and their divergence from a reference, as llama-perplexity defines them: the text is one stream of tokens,
 * cut into chunks; in each the first token becomes the one that begins texts, where the model has one, and the second half counts.
 * Reference: github.com/ggml-org/llama.cpp, tools/perplexity/perplexity.cpp at commit 050fc7f32de16858ac667d775b43a51ed8976e6f.
 */

import type { Opened } from '../convert/open.js';
import { StatusId, TokenJudgmentRecord } from '../core/door.js';
import { rangeError, ScalepointError } from '../core/errors.js';
import { type Core, checkStatus } from '../core/memory.js';
import { waitingFor } from '../core/waiting.js';
import { sha256Of } from '../formats/files/checksums.js';
import { StateFile, stampFiles } from '../formats/files/state-file.js';
import type { RunOptions } from '../formats/run.js';
import type { InputWatcher, RunnableLanguage } from './forward.js';
import { type LanguageOptions, withLanguage } from './language.js';
import type { LayerWorkers } from './layer-workers.js';
import { objectBeside, type TokenProgress } from './texts.js';

/** A figure and the standard error of it. */
interface Estimate {
  /** The figure: a mean, or made of one. */
  readonly value: number;
  /** Standard error of the figure; NaN for one token. */
  readonly error: number;
}

/** Divergences of Kullback and Leibler of the reference's next token from the model's, in nats. */
interface DivergenceFigures extends Estimate {
  /** Half of the tokens are below it. */
  readonly median: number;
  /** Below it are 99 % of the tokens. */
  readonly percentile99: number;
  /** Below it are 99.9 % of the tokens. */
  readonly percentile999: number;
  /** The largest one. */
  readonly max: number;
}

/** Judgment of a language model on a text. */
export interface LanguageEvaluation {
  /** Tokens of the text that were used: whole chunks. */
  readonly tokens: number;
  /** Tokens that count. */
  readonly counted: number;
  /** Chunks of the text. */
  readonly chunks: number;
  /** Tokens among which the model chooses. A guess among them has this perplexity. */
  readonly vocabulary: number;
  /** e to the mean of -log(probability) of the tokens that count. */
  readonly perplexity: Estimate;
  /** The reference's, if there is one. */
  readonly referencePerplexity?: Estimate | undefined;
  /** Divergence from the reference, if there is one. */
  readonly kl?: DivergenceFigures | undefined;
  /** Share of tokens whose most likely next token is the reference's. */
  readonly sameTop?: Estimate | undefined;
  /** Mean of log(perplexity) minus the reference's, over tokens. */
  readonly logDifference?: Estimate | undefined;
}

/** Judgment of a language model beside a reference. */
export interface LanguageComparison extends LanguageEvaluation {
  /** The reference's perplexity. */
  readonly referencePerplexity: Estimate;
  /** Divergence from the reference. */
  readonly kl: DivergenceFigures;
  /** Share of tokens whose most likely next token is the reference's. */
  readonly sameTop: Estimate;
  /** Mean of log(perplexity) minus the reference's, over tokens. */
  readonly logDifference: Estimate;
}

/** A text with a perplexity of this share of a guess among all tokens does not suit a model. */
const unsuitedShare = 0.5;

/** True if a text does not suit a model: it is not in its language, or the tokenizer is another one's. The reference counts, if there is one. */
export const isUnsuited = ({ perplexity, referencePerplexity, vocabulary }: LanguageEvaluation): boolean =>
  (referencePerplexity ?? perplexity).value >= unsuitedShare * vocabulary;

/** True if a text cannot tell two models apart by their perplexities: they differ by two standard errors at most. */
export const isWithinErrors = ({ value, error }: Estimate): boolean => Math.abs(value) <= 2 * error;

/** Logits of some tokens of a text: rows of the vocabulary. The memory may be used again. */
type TakeLogits = (first: number, count: number) => Promise<Float32Array<ArrayBuffer>>;

/** A language model that gives logits. */
export interface JudgedModel extends Pick<RunnableLanguage, 'beginning'> {
  readonly core: Core;
  /** The workers that run it; undefined if a runtime does. */
  readonly layerWorkers?: LayerWorkers | undefined;
  readonly vocabulary: number;
  /** Number of passes over all tokens before the logits. */
  readonly passes: number;
  /** Passes all tokens. @param ids whole chunks */
  prepare(
    ids: Uint32Array<ArrayBuffer>,
    chunkSize: number,
    onProgress: TokenProgress,
    hooks: Pick<PassOptions, 'passed' | 'onLayer'>,
  ): Promise<TakeLogits>;
}

/** Judges a model that is run a layer at a time. */
export function judgedLanguage(model: RunnableLanguage): JudgedModel {
  const { layerWorkers, beginning, facts, forward } = model;
  return {
    core: layerWorkers.core,
    layerWorkers,
    beginning,
    vocabulary: forward.vocabulary,
    passes: facts.layers,
    async prepare(ids, chunkSize, onProgress, hooks) {
      const states = await statesOf(model, ids, chunkSize, { onTokens: onProgress, ...hooks });
      const { hidden } = facts;
      return (first, count) => forward.logits(states.slice(first * hidden, (first + count) * hidden));
    },
  };
}

/** Bytes of logits that are in memory together, of each model. */
export const logitBytes = 1 << 27;

/** Options of `statesOf`. */
interface PassOptions {
  readonly onTokens: TokenProgress;
  /** A layer that an earlier run has passed, and the states behind it. */
  readonly passed?: { readonly layer: number; readonly states: Float32Array<ArrayBuffer> } | undefined;
  /** Takes the inputs of the products of a layer. */
  readonly watcher?: ((layer: number) => InputWatcher) | undefined;
  /** Called behind each layer. */
  readonly onLayer?: ((layer: number, states: Float32Array<ArrayBuffer>) => Promise<void>) | undefined;
}

/** States of all tokens behind the last layer. */
export async function statesOf(
  { facts, forward }: RunnableLanguage,
  ids: Uint32Array,
  textSize: number,
  { onTokens, passed, watcher, onLayer }: PassOptions,
): Promise<Float32Array<ArrayBuffer>> {
  const states = passed?.states ?? (await forward.embed(ids));
  const { layers: passes } = facts;
  for (let layer = (passed?.layer ?? -1) + 1; layer < passes; layer++) {
    const report = (done: number) => onTokens({ pass: layer + 1, passes, done, total: ids.length });
    await forward.layer(layer, states, textSize, report, watcher?.(layer));
    await onLayer?.(layer, states);
  }
  return states;
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
  // A model without a tokenizer of its own has the id of the token in front of texts in files beside it.
  const adds = (await objectBeside(opened, 'tokenizer_config.json'))?.add_bos_token === true;
  const id = adds ? (await objectBeside(opened, 'config.json'))?.bos_token_id : undefined;
  const beginning = Number.isSafeInteger(id) ? Number(id) : undefined;
  const load = await import('../core/load.js');
  const { run, signal } = options;
  return runs.withLogits({ ...run, signal }, async (logits, vocabulary) => {
    const core = await load.instantiateCore('core', await load.compileCore('core', options.core));
    try {
      const prepare: JudgedModel['prepare'] = async (ids, chunkSize) => {
        // Remember the logits of the last chunk.
        let [at, known] = [-1, new Float32Array(0)];
        return async (first, count) => {
          const begin = first - (first % chunkSize);
          if (begin !== at) [at, known] = [begin, await logits(ids.subarray(begin, begin + chunkSize))];
          return known.subarray((first - begin) * vocabulary, (first - begin + count) * vocabulary);
        };
      };
      return await use({ core, vocabulary, beginning, passes: 0, prepare }, Number.POSITIVE_INFINITY);
    } finally {
      core.dispose();
    }
  });
}

/** The mean of numbers and its standard error. */
function meanOf(values: Float64Array): Estimate {
  const n = values.length;
  const mean = values.reduce((a, b) => a + b, 0) / n;
  const square = values.reduce((a, b) => a + (b - mean) ** 2, 0);
  return { value: mean, error: n > 1 ? Math.sqrt(square / (n - 1) / n) : Number.NaN };
}

function perplexityOf(losses: Float64Array): Estimate {
  const { value, error } = meanOf(losses);
  const perplexity = Math.exp(value);
  return { value: perplexity, error: perplexity * error };
}

/** The value below which a share of sorted numbers lies, interpolated. */
function quantileOf(sorted: Float64Array, share: number): number {
  const at = share * (sorted.length - 1);
  const [low, high] = [sorted[Math.floor(at)] as number, sorted[Math.ceil(at)] as number];
  return low + (high - low) * (at - Math.floor(at));
}

/** A copy of the ids in which each chunk, the last and perhaps shorter one too, begins with the model's first token, if it has one. */
export function beginTexts(
  ids: Uint32Array,
  chunkSize: number,
  beginning: number | undefined,
): Uint32Array<ArrayBuffer> {
  const texts = ids.slice();
  if (beginning !== undefined) for (let at = 0; at < texts.length; at += chunkSize) texts[at] = beginning;
  return texts;
}

/**
 * Judges a token by the next one.
 * @param logits address of the model's logits. @param reference that of the reference's; 0 without one
 * @throws ScalepointError `NON_FINITE` naming the token
 */
export function judgeToken(
  { core, vocabulary }: Pick<JudgedModel, 'core' | 'vocabulary'>,
  [logits, reference]: readonly [logits: number, reference: number],
  token: number,
  next: number,
): TokenJudgmentRecord {
  const record = core.pushRecord(TokenJudgmentRecord);
  const status = core.models.judgeToken(logits, reference, vocabulary, next, record);
  const judgment = TokenJudgmentRecord.read(core.module, record);
  core.popRecord(record);
  if (status === StatusId.nonFinite) {
    throw new ScalepointError('NON_FINITE', `the logits of token ${token} are not finite`);
  }
  checkStatus(status);
  return judgment;
}

/** Where an evaluation goes on, and keeps its states. */
export interface EvaluationPlace {
  /** Path of the file of the state. */
  readonly resume: string | URL;
  /** The model, and the reference if there is one. */
  readonly opened: readonly Opened[];
  readonly signal: AbortSignal | undefined;
}

/** States behind a layer of one of the models. */
interface PassedModel {
  /** Index of the model: 0, or 1 for the reference. */
  readonly model: number;
  readonly layer: number;
  /** States of the models up to this one. */
  readonly states: readonly Float32Array<ArrayBuffer>[];
}

/**
 * Judges a model on a text.
 * @param models the model, and a reference if there is one
 * @param ids the text; at least one chunk
 * @param place goes on behind the last layer of an interrupted run. The end of the run removes its state.
 * @throws ScalepointError `NON_FINITE`, `BAD_FILE` if the models have other vocabularies
 */
export async function evaluateLanguage(
  models: readonly [JudgedModel, JudgedModel?],
  { ids, size: chunkSize }: { readonly ids: Uint32Array<ArrayBuffer>; readonly size: number },
  onProgress: TokenProgress,
  place?: EvaluationPlace,
): Promise<LanguageEvaluation> {
  if (place === undefined) return judgeTexts(models, { ids, chunkSize }, onProgress, {});
  const { resume, opened, signal } = place;
  if (models.some((one) => one !== undefined && one.layerWorkers === undefined)) {
    throw rangeError('resume', { kind: 'onlyFor', files: 'language models in folders and GGUF files' }, resume);
  }
  const waiting = waitingFor(signal);
  try {
    const model = await Promise.all(opened.map((one) => stampFiles(one.model.files)));
    const data = await sha256Of(new Uint8Array(ids.slice().buffer));
    const facts = { 'the model': model, 'the data': data, 'the options': { size: chunkSize } };
    const options = { overwrite: false, waiting, option: 'resume', inputs: opened.flatMap(({ inputs }) => inputs) };
    const state = await StateFile.open({ path: resume }, facts, options);
    // Take over the states of an interrupted run, if they are those of these models on the text.
    const found = state.take();
    const { model: index = -1, layer = -1 } = (found?.about ?? {}) as Partial<PassedModel>;
    const tokens = Math.floor(ids.length / chunkSize) * chunkSize;
    const states = found?.arrays.filter((one) => one instanceof Float32Array) ?? [];
    const isWhole =
      Number.isSafeInteger(layer) &&
      layer >= 0 &&
      layer < (models[index]?.passes ?? 0) &&
      states.length === found?.arrays.length &&
      states.length === index + 1 &&
      states.every(({ length }) => length > 0 && length % tokens === 0);
    if (found !== undefined && !isWhole) throw state.damaged();
    const passed = found && { model: index, layer, states };
    const result = await judgeTexts(models, { ids, chunkSize }, onProgress, {
      passed,
      save: ({ states, ...about }) => state.save({ about, arrays: states }),
    });
    await state.remove();
    return result;
  } finally {
    waiting.end();
  }
}

/** Passes all layers of the models, and judges the second half of each chunk. */
async function judgeTexts(
  given: readonly [JudgedModel, JudgedModel?],
  { ids, chunkSize }: { readonly ids: Uint32Array<ArrayBuffer>; readonly chunkSize: number },
  onProgress: TokenProgress,
  resume: { readonly passed?: PassedModel | undefined; readonly save?: (passed: PassedModel) => Promise<void> },
): Promise<LanguageEvaluation> {
  const [model, reference] = given;
  const models = reference === undefined ? [model] : [model, reference];
  const { vocabulary } = model;
  if (reference !== undefined && reference.vocabulary !== vocabulary) {
    const text = `the model knows ${vocabulary} tokens and the reference ${reference.vocabulary}`;
    throw new ScalepointError('BAD_FILE', text);
  }
  // Pass all layers.
  const chunks = Math.floor(ids.length / chunkSize);
  const beginning = models.find((one) => one.beginning !== undefined)?.beginning;
  const cut = beginTexts(ids.subarray(0, chunks * chunkSize), chunkSize, beginning);
  const takes: TakeLogits[] = [];
  const passes = models.reduce((sum, one) => sum + one.passes, 1);
  const states = [...(resume.passed?.states ?? [])];
  const hooksOf = (index: number): Pick<PassOptions, 'passed' | 'onLayer'> => {
    const { passed, save } = resume;
    const known = states[index];
    // The models before the one that was interrupted have passed all layers.
    const layer = index === passed?.model ? passed.layer : (models[index]?.passes ?? 0) - 1;
    return {
      passed: known && { layer, states: known },
      onLayer:
        save &&
        ((layer, now) => {
          states[index] = now;
          return save({ model: index, layer, states });
        }),
    };
  };
  let before = 0;
  for (const one of models) {
    const onTokens: TokenProgress = (progress) => onProgress({ ...progress, pass: before + progress.pass, passes });
    takes.push(await one.prepare(cut, chunkSize, onTokens, hooksOf(takes.length)));
    before += one.passes;
  }

  // Judge the second half of each chunk, some tokens at a time.
  const first = Math.floor(chunkSize / 2);
  const each = chunkSize - first - 1;
  const counted = chunks * each;
  const losses = models.map(() => new Float64Array(counted));
  const [divergences, same] = [new Float64Array(counted), new Float64Array(counted)];
  const [ours, theirs] = losses as [Float64Array, Float64Array | undefined];
  const step = Math.max(1, Math.min(each, Math.floor(logitBytes / (4 * vocabulary))));
  const { core } = model;
  const memory = core.allocate(8 * vocabulary);
  const other = memory + 4 * vocabulary;
  try {
    for (let chunk = 0; chunk < chunks; chunk++) {
      for (let at = 0; at < each; at += step) {
        const n = Math.min(step, each - at);
        const begin = chunk * chunkSize + first + at;
        const logits: Float32Array[] = [];
        for (const take of takes) logits.push(await take(begin, n));
        for (let i = 0; i < n; i++) {
          for (const [m, all] of logits.entries()) {
            const row = all.subarray(i * vocabulary, (i + 1) * vocabulary);
            core.module.HEAPF32.set(row, memory / 4 + m * vocabulary);
          }
          const [token, next] = [begin + i, cut[begin + i + 1] as number];
          const index = chunk * each + at + i;
          const { loss, divergence, sameTop } = judgeToken(model, [memory, theirs ? other : 0], token, next);
          ours[index] = loss;
          divergences[index] = divergence;
          same[index] = sameTop ? 1 : 0;
          if (theirs !== undefined) theirs[index] = judgeToken(model, [other, 0], token, next).loss;
        }
        await onProgress({ pass: passes, passes, done: begin + n + 1, total: cut.length });
      }
    }
  } finally {
    core.release(memory);
  }

  // Sum up the figures.
  const all = { tokens: cut.length, counted, chunks, vocabulary, perplexity: perplexityOf(ours) };
  if (theirs === undefined) return all;
  const sorted = divergences.slice().sort();
  return {
    ...all,
    referencePerplexity: perplexityOf(theirs),
    kl: {
      ...meanOf(divergences),
      median: quantileOf(sorted, 0.5),
      percentile99: quantileOf(sorted, 0.99),
      percentile999: quantileOf(sorted, 0.999),
      max: sorted.at(-1) ?? 0,
    },
    sameTop: meanOf(same),
    logDifference: meanOf(ours.map((loss, i) => loss - (theirs[i] as number))),
  };
}

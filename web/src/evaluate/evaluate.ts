/**
 * Perplexity of language models, and their divergence from a reference, as llama-perplexity defines them: the text is one stream of tokens,
 * cut into chunks; in each the first token becomes the one that begins texts, where the model has one, and the second half counts.
 * Reference: github.com/ggml-org/llama.cpp, tools/perplexity/perplexity.cpp at commit 050fc7f32de16858ac667d775b43a51ed8976e6f.
 */

import type { DataProgress } from '../convert/progress.js';
import { StatusId, TokenJudgmentRecord } from '../core/door.js';
import { ScalepointError } from '../core/errors.js';
import { type Core, checkStatus } from '../core/memory.js';
import type { LanguageFacts } from './facts.js';
import type { InputWatcher, LanguageForward } from './forward.js';
import type { LayerWorkers } from './layer-workers.js';
import type { PassedModel } from './saved-state.js';

/** A figure and the standard error of it. */
interface Estimate {
  /** The figure: a mean, or made of one. */
  readonly value: number;
  /** Its standard error; NaN for one token. */
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

/** A model that is ready to be run. */
export interface RunnableLanguage {
  readonly layerWorkers: LayerWorkers;
  readonly facts: LanguageFacts;
  readonly forward: LanguageForward;
  /** Id that begins each chunk; undefined if the model adds none. */
  readonly beginning: number | undefined;
}

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

/** State of an interrupted evaluation, and a place for later ones. */
export interface EvaluationResume {
  /** Layers that an earlier run has passed. */
  readonly passed?: PassedModel | undefined;
  /** Called behind each layer. */
  readonly save?: ((passed: PassedModel) => Promise<void>) | undefined;
}

/** Bytes of logits that are in memory together, of each model. */
const logitBytes = 1 << 27;

/** Called with the tokens that have passed a layer. */
export type TokenProgress = (
  progress: Pick<DataProgress, 'pass' | 'passes' | 'done' | 'total'>,
) => void | Promise<void>;

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

/** Figures of each counted token. */
interface TokenFigures {
  /** Losses of the model, then of the reference. */
  readonly losses: readonly Float64Array<ArrayBuffer>[];
  readonly divergences: Float64Array<ArrayBuffer>;
  /** 1 where both models predict the same token, 0 elsewhere. */
  readonly same: Float64Array<ArrayBuffer>;
}

/** Judges tokens by the logits of one or two models, which it copies into memory of the core. */
class TokenJudge {
  readonly #core: Core;
  readonly #vocabulary: number;
  readonly #memory: number;

  constructor({ core, vocabulary }: JudgedModel) {
    this.#core = core;
    this.#vocabulary = vocabulary;
    this.#memory = core.allocate(8 * vocabulary);
  }

  release(): void {
    this.#core.release(this.#memory);
  }

  /** @param logits a row of each model @param next the token that follows @throws ScalepointError `NON_FINITE` naming the token */
  judge(figures: TokenFigures, index: number, logits: readonly Float32Array[], token: number, next: number): void {
    const { losses, divergences, same } = figures;
    const [own, other] = [this.#memory, this.#memory + 4 * this.#vocabulary];
    for (const [i, row] of logits.entries()) this.#core.module.HEAPF32.set(row, own / 4 + i * this.#vocabulary);
    const isCompared = logits.length > 1;
    const { loss, divergence, sameTop } = this.#compare(own, isCompared ? other : 0, token, next);
    (losses[0] as Float64Array)[index] = loss;
    if (!isCompared) return;
    divergences[index] = divergence;
    same[index] = sameTop ? 1 : 0;
    (losses[1] as Float64Array)[index] = this.#compare(other, 0, token, next).loss;
  }

  #compare(logits: number, reference: number, token: number, next: number): TokenJudgmentRecord {
    const core = this.#core;
    const record = core.pushRoom(TokenJudgmentRecord.bytes);
    const status = core.models.judgeToken(logits, reference, this.#vocabulary, next, record);
    const judgment = TokenJudgmentRecord.read(core.module, record);
    core.popRecord(record);
    if (status === StatusId.nonFinite) {
      throw new ScalepointError('NON_FINITE', `the logits of token ${token} are not finite`);
    }
    checkStatus(status);
    return judgment;
  }
}

/** Sums up figures of tokens. */
function summaryOf({ losses, divergences, same }: TokenFigures, tokens: number, chunks: number): LanguageEvaluation {
  const [own, reference] = losses as readonly [Float64Array, Float64Array | undefined];
  const figures = { tokens, counted: own.length, chunks, perplexity: perplexityOf(own) };
  if (reference === undefined) return figures;
  const sorted = divergences.slice().sort();
  return {
    ...figures,
    referencePerplexity: perplexityOf(reference),
    kl: {
      ...meanOf(divergences),
      median: quantileOf(sorted, 0.5),
      percentile99: quantileOf(sorted, 0.99),
      percentile999: quantileOf(sorted, 0.999),
      max: sorted.at(-1) ?? 0,
    },
    sameTop: meanOf(same),
    logDifference: meanOf(own.map((loss, i) => loss - (reference[i] as number))),
  };
}

/**
 * Judges a model on a text.
 * @param ids the text; at least one chunk
 * @throws ScalepointError `NON_FINITE`, `BAD_FILE` if the models have other vocabularies
 */
export async function evaluateLanguage(
  model: JudgedModel,
  reference: JudgedModel | undefined,
  ids: Uint32Array,
  chunkSize: number,
  onProgress: TokenProgress,
  resume: EvaluationResume = {},
): Promise<LanguageEvaluation> {
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
  const figures: TokenFigures = {
    losses: models.map(() => new Float64Array(counted)),
    divergences: new Float64Array(counted),
    same: new Float64Array(counted),
  };
  const step = Math.max(1, Math.min(each, Math.floor(logitBytes / (4 * vocabulary))));
  const judge = new TokenJudge(model);
  try {
    for (let chunk = 0; chunk < chunks; chunk++) {
      for (let at = 0; at < each; at += step) {
        const n = Math.min(step, each - at);
        const begin = chunk * chunkSize + first + at;
        const logits: Float32Array[] = [];
        for (const take of takes) logits.push(await take(begin, n));
        for (let i = 0; i < n; i++) {
          const rows = logits.map((all) => all.subarray(i * vocabulary, (i + 1) * vocabulary));
          judge.judge(figures, chunk * each + at + i, rows, begin + i, cut[begin + i + 1] as number);
        }
        await onProgress({ pass: passes, passes, done: begin + n + 1, total: cut.length });
      }
    }
  } finally {
    judge.release();
  }
  return summaryOf(figures, cut.length, chunks);
}

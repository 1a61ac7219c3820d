// Comparisons of outputs, as data: models that offer it, choices, and estimates of time.

import type { LanguageComparison } from 'scalepoint/model';
import { isUnsuited, isWithinErrors, type RunReport } from '../../src/tooling.js';
import { formatCount } from '../shared/format.js';
import type { VerticalAxis } from '../shared/lines.js';
import type { ResultQuestion } from './made.js';

/** Data that both models are run on. */
export interface OutputsData {
  readonly kind: Judgment['kind'];
  /** The text that the visitor chose; undefined for the built-in one. */
  readonly text: File | undefined;
  /** `tokenizer.json` and its configuration, as far as they were chosen apart from the model. */
  readonly tokenizer: readonly File[];
  /** Most tokens of the text. */
  readonly tokens: number;
  /** Arrays for an ONNX model, or a picture; undefined for random arrays. */
  readonly inputs: File | undefined;
  /** Sizes of dimensions that the model leaves open, by their names. Others are guessed. */
  readonly sizes: Readonly<Record<string, number>>;
}

/** Both models in one place. */
export type PlaceReport = NonNullable<RunReport['backends']>[number];
export type PlaceRun = PlaceReport['a'];

/** The outputs of a result beside those of the original. */
export type Judgment =
  | { readonly kind: 'texts'; readonly figures: LanguageComparison }
  | { readonly kind: 'arrays'; readonly figures: RunReport };

/** A type whose outputs were compared. */
export interface JudgedType {
  /** Key of the choice and of the data. */
  readonly key: string;
  /** The type, or the size of a mixture. */
  readonly label: string;
  /** Settings beside the type, in words. */
  readonly settings: string;
  /** Size of the result. */
  readonly bytes: number;
  /** Size of the original. */
  readonly bytesBefore: number;
  /** Seconds of running the models, without quantizing. */
  readonly seconds: number;
  readonly judgment: Judgment;
}

/** A step of the work. */
export type OutputsProgress =
  | { readonly step: 'quantize'; readonly share: number }
  /** @param wantsGpu true if they run on WebGPU as well */
  | { readonly step: 'run'; readonly wantsGpu: boolean }
  | {
      readonly step: 'layers';
      readonly tokens: number;
      readonly share: number;
    };

/** A request to the worker: compare a result with the model that it is made of. */
export interface OutputsQuestion extends OutputsData, ResultQuestion {
  /** True if the models run in onnxruntime-web. */
  readonly needsRuntime: boolean;
}

/** Choices of the number of tokens. */
export const tokenChoices: readonly number[] = [256, 1024, 4096];

/** Tokens of a chunk: short enough that a short text has several. */
export const chunkTokens = 256;

// ----------------------------------------------------------------------------------------------------------------------- duration

/** Products of weights and activations that a processor makes in a second, until this device has been measured. */
export const usualRate = 4e9;
/** Seconds that every run takes. */
const startSeconds = 0.5;

/** Estimated seconds of running two models on a text. @param weights number of elements of the matrices of one */
export function secondsFor(weights: number, tokens: number, rate: number): number {
  return startSeconds + (2 * weights * tokens) / rate;
}

/** The rate that a run had; undefined if it was too short to tell. */
export function rateOf(weights: number, tokens: number, seconds: number): number | undefined {
  const own = seconds - startSeconds;
  return own < 1 ? undefined : (2 * weights * tokens) / own;
}

// -------------------------------------------------------------------------------------------------------------------------- words

/** A share as a number of places, in as many digits as its error leaves: `97 of 100`. */
export function places(share: number): string {
  if (share === 1) return 'all places';
  const hundredths = Math.round(share * 100);
  if (hundredths < 100) return `${hundredths} of 100 places`;
  // All would be the same in two digits.
  return `${Math.min(999, Math.round(share * 1000))} of 1,000 places`;
}

/** Two numbers in as few digits as show their difference, three at least. */
export function pairText(a: number, b: number): readonly [string, string] {
  for (let digits = 3; digits < 6; digits++) {
    const texts = [a, b].map((value) => formatted(value, digits)) as [string, string];
    if (texts[0] !== texts[1]) return texts;
  }
  return [formatted(a, 3), formatted(b, 3)];
}

const formatted = (value: number, digits: number) =>
  value >= 10 ** digits
    ? new Intl.NumberFormat('en', { maximumFractionDigits: 0 }).format(value)
    : value.toLocaleString('en', { minimumSignificantDigits: digits, maximumSignificantDigits: digits });

/** The perplexity before and after, as a clause. */
function perplexityText(figures: LanguageComparison): string {
  const { perplexity, referencePerplexity, vocabulary, logDifference } = figures;
  const [before, after] = [referencePerplexity.value, perplexity.value];
  const [a, b] = pairText(before, after);
  if (isUnsuited(figures)) {
    return `this text does not suit the model, whose perplexity of ${a} is near that of a guess among its ${formatCount(vocabulary)} tokens`;
  }
  if (a === b) return `perplexity stays at ${a}`;
  const change = `perplexity ${after > before ? 'rises' : 'falls'} from ${a} to ${b}`;
  return isWithinErrors(logDifference)
    ? `${change}, within two standard errors, so that this text cannot tell them apart`
    : change;
}

/** The error of an output in relation to it, as a percentage. */
export function relativeText(share: number): string {
  if (share === 0) return '0 %';
  const percent = share * 100;
  if (percent < 0.001) return 'less than 0.001 %';
  return `${percent >= 100 ? Math.round(percent).toLocaleString('en') : Number(percent.toPrecision(2))} %`;
}

/** The output with the largest error in relation to it. */
function worstOutput({ outputs }: RunReport): RunReport['outputs'][number] | undefined {
  return outputs.reduce<RunReport['outputs'][number] | undefined>(
    (worst, one) => (worst === undefined || one.error.sqnrDb < worst.error.sqnrDb ? one : worst),
    undefined,
  );
}

/** One sentence about what a type does. */
export function verdictOf(judgment: Judgment): string {
  if (judgment.kind === 'texts') {
    const { figures } = judgment;
    const same = `The next word that the model finds most likely is the same in ${places(figures.sameTop.value)}`;
    return `${same}; ${perplexityText(figures)}.`;
  }
  const { figures } = judgment;
  const worst = worstOutput(figures);
  if (worst === undefined) return 'The models have no output that could be compared.';
  const { sqnrDb, relativeL2 } = worst.error;
  const bad = figures.outputs.reduce((sum, { mismatched }) => sum + mismatched, 0);
  const differ = bad === 0 ? '' : ` ${bad} of the numbers are infinite or NaN in one model only.`;
  const [beyond] = figures.overflows?.toSorted((a, b) => b.largest - a.largest) ?? [];
  const ending =
    beyond === undefined
      ? differ
      : `${differ} In float16 on a GPU, ${beyond.value} (${beyond.op}) is infinite: it reaches ${formatCount(Math.round(beyond.largest))}, beyond 65,504.`;
  if (sqnrDb === Number.POSITIVE_INFINITY) return `The outputs are exactly the same.${ending}`;
  const off = `off by ${relativeText(relativeL2)}`;
  return figures.outputs.length > 1
    ? `Of the ${figures.outputs.length} outputs, ${worst.name} changes most: it is ${off}.${ending}`
    : `The output ${worst.name} is ${off}.${ending}`;
}

/** Words for the places where a model ran. */
const placeNames: Readonly<Record<PlaceReport['backend'], string>> = {
  wasm: 'the processor',
  webgpu: 'your GPU',
  node: 'onnxruntime-node',
};

/** Reasons that a model does not run in a place, after its name. */
const failureWords: Readonly<Record<Exclude<PlaceRun['kind'], 'ran'>, string>> = {
  noAdapter: 'does not run: the browser gives no GPU',
  needsFloat16: 'does not run: it computes in float16, which this GPU does not',
  noSession: 'cannot be loaded',
  notRun: 'does not run',
};

/** Name of a place: `your GPU`, or what stands in for one. */
export function placeName({ backend, adapter }: PlaceReport): string {
  return adapter?.isSoftware ? 'WebGPU in software' : placeNames[backend];
}

/** Clocks of pages advance by up to a millisecond, so that shorter times may be anything, even 0. */
const clockSeconds = 0.001;

/** Speed of a result in relation to the original. Times differ by some percent from run to run. */
function speedText(before: number, after: number): string {
  const digits = (value: number) => (value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString('en'));
  if (Math.min(before, after) < clockSeconds) {
    const [own, other] = [after, before].map((seconds) =>
      seconds < clockSeconds ? 'less than 1 ms' : `${digits(seconds * 1000)} ms`,
    );
    return own === other ? `takes ${own}, as the original does` : `takes ${own}, the original ${other}`;
  }
  const ratio = before / after;
  if (ratio >= 1.1) return `is ${digits(ratio)} times as fast as the original`;
  return ratio <= 1 / 1.1 ? `takes ${digits(1 / ratio)} times as long as the original` : 'is as fast as the original';
}

/** The largest error of an output in relation to it. */
const worstOf = ({ outputs }: Extract<PlaceRun, { kind: 'ran' }>) =>
  outputs.reduce((most, { error }) => Math.max(most, error.relativeL2), 0);

/** Sentences about speed and errors in each place, the GPU first: `On your GPU q4 is 2.1 times as fast as the original, …`. */
export function placesText(label: string, places: readonly PlaceReport[]): string {
  const sentences = [...places].reverse().map((place): string => {
    const { a, b } = place;
    const where = `On ${placeName(place)}`;
    if (b.kind !== 'ran') return `${where}, ${label} ${failureWords[b.kind]}.`;
    if (a.kind !== 'ran') return `${where}, the original ${failureWords[a.kind]}.`;
    const error = worstOf(b);
    const outputs = error === 0 ? 'its outputs are the same' : `its outputs are off by ${relativeText(error)}`;
    const doubt = place.adapter?.isSoftware ? ' These times are not those of a GPU.' : '';
    return `${where} ${label} ${speedText(a.times.seconds, b.times.seconds)}, and ${outputs}.${doubt}`;
  });
  const isAlone = places.every(({ backend }) => backend === 'wasm');
  return [...sentences, ...(isAlone ? ['This browser gives no GPU to pages.'] : [])].join(' ');
}

/** A number with its standard error, in the digits that the error leaves. */
export function withError(value: number, error: number, unit = ''): string {
  const digits = error > 0 && Number.isFinite(error) ? Math.min(7, Math.max(0, 1 - Math.floor(Math.log10(error)))) : 3;
  const text = (number: number) => number.toFixed(digits).replace('-', '\u2212');
  return Number.isFinite(error) && error > 0 ? `${text(value)} ± ${text(error)}${unit}` : `${text(value)}${unit}`;
}

// -------------------------------------------------------------------------------------------------------------------------- chart

/** Height of a judgment in the chart: -log10 of the mean divergence, or the SQNR of the worst output. Infinite if nothing changes. */
export function heightOf(judgment: Judgment): number {
  return judgment.kind === 'texts'
    ? -Math.log10(judgment.figures.kl.value)
    : (worstOutput(judgment.figures)?.error.sqnrDb ?? Number.NaN);
}

/** Steps within a decade, where there is room for them. */
const decadeSteps: readonly (readonly number[])[] = [[1, 2, 5], [1, 3], [1]];

/** The axis of divergences. Smaller ones are higher. */
export const divergenceAxis: VerticalAxis = {
  unit: 'KL',
  ticks(low, high, wanted) {
    // With less room, every second or third decade has a line.
    for (let every = 1, i = 0; ; i++) {
      const steps = decadeSteps[i] ?? [1];
      if (i >= decadeSteps.length) every++;
      const found: number[] = [];
      for (let decade = Math.floor(-high / every) * every; decade <= -low; decade += every) {
        for (const step of steps) {
          const at = -(decade + Math.log10(step));
          if (at >= low && at <= high) found.push(at);
        }
      }
      if (found.length <= Math.max(2, wanted)) return found;
    }
  },
  label(tick) {
    const value = Number((10 ** -tick).toPrecision(1));
    return value >= 1e-4 ? String(value) : value.toExponential(0).replace('e-', 'e\u2212');
  },
};

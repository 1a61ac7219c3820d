/**
 * Frequencies of the rotary embedding, as Hugging Face's transformers computes them for each kind of scaling.
 * Reference: github.com/huggingface/transformers, src/transformers/modeling_rope_utils.py at 008e574.
 */
import { show } from '../../core/show.js';
import type { Config, Rope } from '../huggingface/config.js';
import { badFolderFile, unsupported } from '../huggingface/errors.js';
import { member } from '../huggingface/json.js';
import { neededSetting, setting } from '../huggingface/rope.js';

const file = 'config.json';

/** Angles of a rotary embedding, by position. */
export interface Frequencies {
  /** Angle of each pair of elements at position 1. */
  readonly usual: readonly number[];
  /** The angles of texts that are longer than `original` tokens, if they differ. */
  readonly long?: { readonly angles: readonly number[]; readonly original: number };
  /** Factor of sines and cosines. */
  readonly factor: number;
}

/** A list of numbers above 0, one for each pair. */
function listSetting(rope: Rope, name: string, count: number): readonly number[] {
  const list = member(rope.settings, name);
  const fits = Array.isArray(list) && list.length === count && list.every((n) => typeof n === 'number' && n > 0);
  return fits
    ? list
    : badFolderFile(file, `${rope.where}.${name} has to be ${count} numbers above 0, got ${show(list)}`);
}

/**
 * The frequencies of a layer.
 * @param rotated elements of a head that turn
 * @param kinds of scaling that the family has
 * @throws ScalepointError `UNKNOWN_FORMAT` for other kinds, `BAD_FILE`
 */
export function frequenciesOf(
  rope: Rope,
  config: Config,
  { theta, rotated, kinds }: { readonly theta: number; readonly rotated: number; readonly kinds: readonly string[] },
): Frequencies {
  const plain = Array.from({ length: rotated / 2 }, (_, i) => theta ** ((-2 * i) / rotated));
  // Phi's first name of the scaling for long contexts.
  const type = rope.type === 'su' ? 'longrope' : rope.type;
  if (type === undefined) return { usual: plain, factor: 1 };
  if (!kinds.includes(type))
    unsupported(file, `${rope.where}.rope_type is ${show(rope.type)}; it can be ${kinds.join(', ') || 'default'} here`);
  const context = config.whole('max_position_embeddings');
  const original =
    setting(rope, 'original_max_position_embeddings') ?? config.maybePositive('original_max_position_embeddings');
  if (type === 'linear') {
    const factor = neededSetting(rope, 'factor');
    return { usual: plain.map((angle) => angle / factor), factor: 1 };
  }
  if (type === 'llama3') {
    const [factor, low, high] = [
      neededSetting(rope, 'factor'),
      neededSetting(rope, 'low_freq_factor'),
      neededSetting(rope, 'high_freq_factor'),
    ];
    const trained = original ?? badFolderFile(file, `${rope.where}.original_max_position_embeddings is missing`);
    const usual = plain.map((angle) => {
      const turns = (trained * angle) / (2 * Math.PI);
      const share = Math.min(1, Math.max(0, (turns - low) / (high - low)));
      return (angle / factor) * (1 - share) + angle * share;
    });
    return { usual, factor: 1 };
  }
  if (type === 'yarn') {
    const factor = neededSetting(rope, 'factor');
    const grown = (scale: number) => (factor <= 1 ? 1 : 0.1 * scale * Math.log(factor) + 1);
    const [scale, all] = [setting(rope, 'mscale'), setting(rope, 'mscale_all_dim')];
    const derived = scale !== undefined && all !== undefined ? grown(scale) / grown(all) : grown(1);
    const pairOf = (turns: number) =>
      (rotated * Math.log((original ?? context) / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
    const cut = member(rope.settings, 'truncate') !== false;
    const [first, last] = [pairOf(setting(rope, 'beta_fast') ?? 32), pairOf(setting(rope, 'beta_slow') ?? 1)];
    const low = Math.max(0, cut ? Math.floor(first) : first);
    const end = Math.min(rotated - 1, cut ? Math.ceil(last) : last);
    const high = low === end ? end + 0.001 : end;
    const usual = plain.map((angle, i) => {
      const share = Math.min(1, Math.max(0, (i - low) / (high - low)));
      return (angle / factor) * share + angle * (1 - share);
    });
    return { usual, factor: setting(rope, 'attention_factor') ?? derived };
  }
  // longrope: two lists of divisors, for short and for long texts.
  const trained = original ?? context;
  const [short, long] = ['short_factor', 'long_factor'].map((name) => listSetting(rope, name, rotated / 2)) as [
    readonly number[],
    readonly number[],
  ];
  const scale = setting(rope, 'factor') ?? context / trained;
  const derived = scale <= 1 ? 1 : Math.sqrt(1 + Math.log(scale) / Math.log(trained));
  return {
    usual: plain.map((angle, i) => angle / (short[i] as number)),
    long: { angles: plain.map((angle, i) => angle / (long[i] as number)), original: trained },
    factor: setting(rope, 'attention_factor') ?? derived,
  };
}

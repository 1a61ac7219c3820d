/**
 * Scaling of the rotary embedding: keys for linear and yarn, factors as tensors for Llama 3 and Phi-3.
 * Reference: github.com/ggml-org/llama.cpp, conversion/ base.py at 00bd27a, llama.py 0274f0f, phi.py 051139f.
 */
import { show } from '../../core/show.js';
import { isCount } from '../../formats/files/json.js';
import type { Recipe } from '../recipe.js';
import { type Config, positive, type Rope } from './config.js';
import { badConfig, unsupportedConfig } from './errors.js';
import { member } from './json.js';
import type { Keys } from './keys.js';

const { fround } = Math;

/** A setting, a number above 0; undefined if it is missing. */
export function setting(rope: Rope, name: string): number | undefined {
  return positive(`${rope.where}.${name}`, member(rope.settings, name));
}

/** A setting that must not be missing. */
export function neededSetting(rope: Rope, name: string): number {
  return setting(rope, name) ?? badConfig(`${rope.where}.${name} is missing`);
}

/** Keys of linear and yarn. Fails for types that the architecture does not support. */
export function ropeKeys(rope: Rope, types: readonly string[]): Keys {
  const { type } = rope;
  if (type === undefined) return {};
  if (!types.includes(type))
    unsupportedConfig(`${rope.where}.rope_type is ${show(type)}; it can be ${types.join(', ')} here`);
  if (type !== 'linear' && type !== 'yarn') return {};
  const scaling = { 'rope.scaling.type': type, 'rope.scaling.factor': neededSetting(rope, 'factor') };
  if (type === 'linear') return scaling;
  return {
    ...scaling,
    'rope.scaling.yarn_ext_factor': setting(rope, 'extrapolation_factor'),
    'rope.scaling.yarn_attn_factor': setting(rope, 'attention_factor') ?? setting(rope, 'attn_factor'),
    'rope.scaling.yarn_beta_fast': setting(rope, 'beta_fast'),
    'rope.scaling.yarn_beta_slow': setting(rope, 'beta_slow'),
    'rope.scaling.original_context_length':
      wholeSetting(rope, 'original_max_position_embeddings') ?? neededSetting(rope, 'original_max_position_embeddings'),
  };
}

/** A setting, a whole number above 0; undefined if it is missing. */
export function wholeSetting(rope: Rope, name: string): number | undefined {
  const value = setting(rope, name);
  if (value === undefined || Number.isInteger(value)) return value;
  return badConfig(`${rope.where}.${name} has to be a whole number, got ${value}`);
}

/**
 * Pairs of a head that turn by each of up to 4 coordinates of a position: time, height and width of a picture. llama.cpp ends the process if
 * they are more than the head has.
 * @param rotated elements of a head that turn
 * @param usual the pairs if config.json states none
 */
export function ropeSections(rope: Rope, rotated: number, usual?: readonly number[]): readonly number[] {
  const list = member(rope.settings, 'mrope_section') ?? usual;
  if (!Array.isArray(list) || list.length > 4 || !list.every((n) => isCount(n)))
    return badConfig(`${rope.where}.mrope_section has to be up to 4 whole numbers, got ${show(list)}`);
  const sections = [...list, 0, 0, 0, 0].slice(0, 4);
  if (2 * sections.reduce((sum, n) => sum + n, 0) > rotated)
    return badConfig(`mrope_section ${sections.join(', ')} turns more than ${rotated} elements of a head`);
  return sections;
}

/** A computed tensor. */
export function madeTensor(name: string, values: readonly number[]): Recipe {
  return { name, shape: [values.length], sources: [], values: Float32Array.from(values), float32: true };
}

/**
 * Factors that divide the frequencies, for Llama 3's scaling: 1 for short waves, `factor` for long ones, and in between a mix of both.
 * All steps are rounded to float32, as the converter of llama.cpp computes them.
 * @param isWide true if those behind the frequencies are computed in float64
 */
export function llama3Factors(
  rope: Rope,
  config: Config,
  {
    head,
    theta,
    usualFactor = 8,
    isWide = false,
  }: { head: number; theta: number; usualFactor?: number | undefined; isWide?: boolean },
): readonly Recipe[] {
  if (rope.type !== 'llama3') return [];
  const round = isWide ? (value: number) => value : fround;
  const [factor, low, high] = [
    setting(rope, 'factor') ?? usualFactor,
    setting(rope, 'low_freq_factor') ?? 1,
    setting(rope, 'high_freq_factor') ?? 4,
  ];
  // Llama 4 has 1 for both, so that no frequency lies between them.
  if (low > high) badConfig(`${rope.where}.low_freq_factor is ${low} and high_freq_factor is ${high}`);
  const context =
    setting(rope, 'original_max_position_embeddings') ??
    config.maybePositive('original_max_position_embeddings') ??
    8192;
  const factors = Array.from({ length: head / 2 }, (_, i) => {
    const frequency = fround(1 / fround(theta ** fround((2 * i) / head)));
    const wave = round((2 * Math.PI) / frequency);
    if (wave < context / high) return 1;
    if (wave > context / low) return factor;
    if (low === high) return 1;
    const smooth = round(round(round(context / wave) - low) / (high - low));
    return round(1 / round(round(round(1 - smooth) / factor) + smooth));
  });
  return [madeTensor('rope_freqs.weight', factors)];
}

/** Factors of Phi-3 for contexts beyond the training context, and the matching factor of attention. */
export function longFactors(
  rope: Rope,
  dimensions: number,
  context: number,
  original: number,
): { readonly tensors: readonly Recipe[]; readonly attentionFactor?: number } {
  const lists = (['long_factor', 'short_factor'] as const).map((name) => {
    const list = member(rope.settings, name);
    if (list === undefined) return undefined;
    const where = `${rope.where}.${name}`;
    if (!Array.isArray(list) || list.length !== dimensions / 2)
      badConfig(`${where} has to be an array of ${dimensions / 2} numbers, got ${show(list)}`);
    return (list as unknown[]).map((value) => positive(where, value) ?? badConfig(`${where} has a gap`));
  });
  const [long, short] = lists;
  if (long === undefined && short === undefined) {
    if (rope.type !== undefined) badConfig(`${rope.where}.long_factor is missing`);
    return { tensors: [] };
  }
  if (long === undefined || short === undefined)
    return badConfig(`${rope.where}.${long === undefined ? 'long' : 'short'}_factor is missing`);
  if (rope.type === undefined) badConfig(`${rope.where}.type is missing`);
  const scale = context / original;
  const grown = rope.type === 'yarn' ? 0.1 * Math.log(scale) + 1 : Math.sqrt(1 + Math.log(scale) / Math.log(original));
  return {
    tensors: [madeTensor('rope_factors_long.weight', long), madeTensor('rope_factors_short.weight', short)],
    attentionFactor: scale > 1 ? grown : 1,
  };
}

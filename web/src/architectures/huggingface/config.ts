/** Typed reading of config.json. In multimodal models, settings of the text model override those around them. */
import { show } from '../../core/show.js';
import { badConfig, unsupportedConfig } from './errors.js';
import { arrayMember, isObject, type Json, member, objectMember } from './json.js';

/** Largest number accepted from a config. GGUF stores u32; no real size comes near. */
const largest = 2 ** 31 - 1;

/** Keys with counts that decide how much is kept: of layers, heads and experts, and elements of a head. */
const counts = /layer|depth|head|expert/;

/** Keys whose null has a meaning of its own, such as no window. A null in place of another key counts as missing. */
const nullable: readonly string[] = [
  'num_key_value_heads',
  'q_lora_rank',
  'sliding_window',
  'attn_logit_softcapping',
  'final_logit_softcapping',
];

/** A config.json. Missing keys have the defaults of the architecture. Every error names the key. */
export class Config {
  readonly #keys: Json;
  readonly #defaults: Json;
  readonly #within: string;
  readonly #mostCount: number;
  readonly #assumed = new Set<string>();
  readonly #asked = new Set<string>();

  /**
   * @param defaultsOf gives the values of missing keys, by the class of the model
   * @param mostCount of `largestCount`
   * @param within object of the file that `keys` is, for errors
   */
  constructor(keys: Json, defaultsOf: (className: unknown) => Json = () => ({}), mostCount = largest, within?: string) {
    // Models that also speak keep the language model that thinks in an object of its own.
    const around = objectMember(keys, 'thinker_config') ?? keys;
    const text = Object.entries(objectMember(around, 'text_config') ?? {}).filter(([, value]) => value !== null);
    this.#keys = { ...keys, ...Object.fromEntries(text) };
    this.#defaults = defaultsOf(arrayMember(this.#keys, 'architectures')[0]);
    this.#within = within === undefined ? '' : `${within}.`;
    this.#mostCount = mostCount;
  }

  /** The value that the file states; undefined if it is missing or null. */
  stated(name: string): unknown {
    this.#asked.add(name);
    return member(this.#keys, name);
  }

  /** The stated value, else the default of the architecture; undefined without one. */
  get(name: string): unknown {
    const stated = this.stated(name);
    if (stated !== undefined || (nullable.includes(name) && Object.hasOwn(this.#keys, name))) return stated;
    const value = member(this.#defaults, name);
    if (value !== undefined) this.#assumed.add(name);
    return value;
  }

  /** Keys that were looked for. */
  get asked(): ReadonlySet<string> {
    return this.#asked;
  }

  /** Keys that were read as their defaults, with these. */
  get assumed(): readonly string[] {
    return [...this.#assumed].map((name) => `${this.#within}${name} ${show(this.#defaults[name])}`);
  }

  /** A whole number of at least `least`; undefined if it is missing. */
  maybeWhole(name: string, least = 1): number | undefined {
    const value = this.get(name);
    if (value === undefined) return undefined;
    if (typeof value !== 'number' || !Number.isInteger(value) || value < least || value > largest)
      badConfig(`${this.#within}${name} has to be a whole number of at least ${least}, got ${show(value)}`);
    if (value > this.#mostCount && counts.test(name)) {
      const room = `they have room for at most ${this.#mostCount}`;
      badConfig(`the tensors are too few for ${this.#within}${name} ${value}: ${room}`);
    }
    return value;
  }

  /** A whole number of at least `least`. */
  whole(name: string, otherwise?: number, least = 1): number {
    return this.maybeWhole(name, least) ?? otherwise ?? badConfig(`${this.#within}${name} is missing`);
  }

  /** A finite number above 0; undefined if it is missing. */
  maybePositive(name: string): number | undefined {
    return positive(this.#within + name, this.get(name));
  }

  /** A finite number above 0. */
  positive(name: string, otherwise?: number): number {
    return this.maybePositive(name) ?? otherwise ?? badConfig(`${this.#within}${name} is missing`);
  }

  /** True or false; undefined if it is missing. */
  maybeFlag(name: string): boolean | undefined {
    const value = this.get(name);
    if (value === undefined || typeof value === 'boolean') return value;
    return badConfig(`${this.#within}${name} has to be true or false, got ${show(value)}`);
  }

  /** Fails if a key has a value other than `values`, the ones that the runtime supports. */
  only(name: string, ...values: readonly unknown[]): void {
    const value = this.get(name);
    if (value !== undefined && !values.includes(value))
      unsupportedConfig(
        `${this.#within}${name} is ${show(value)}; llama.cpp computes this architecture with ${values.map(show).join(' or ')} only`,
      );
  }
}

/** A finite number above 0; undefined for undefined. */
export function positive(name: string, value: unknown): number | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0)
    badConfig(`${name} has to be a number above 0, got ${show(value)}`);
  return value;
}

/** Settings of the rotary embedding. */
export interface Rope {
  /** In lower case: `linear`, `yarn`, `llama3`, `longrope`; undefined without scaling and for `default`. */
  readonly type: string | undefined;
  /** Object with the settings; empty if missing. */
  readonly settings: Json;
  /** Name of the object in errors. */
  readonly where: string;
  /** Base of the frequencies. */
  readonly theta: number | undefined;
  /** Base of the frequencies in layers with a sliding window. */
  readonly localTheta: number | undefined;
}

/** Reads the rotary embedding's settings: `rope_parameters`, else `rope_scaling` with `rope_theta` beside it. */
export function readRope(config: Config): Rope {
  const name = config.get('rope_parameters') === undefined ? 'rope_scaling' : 'rope_parameters';
  const given = config.get(name);
  if (given !== undefined && !isObject(given)) badConfig(`${name} has to be an object, got ${show(given)}`);
  const all: Json = (given as Json | undefined) ?? {};
  const settings = objectMember(all, 'full_attention') ?? all;
  const local = objectMember(all, 'sliding_attention');
  const type = member(settings, 'rope_type') ?? member(settings, 'type');
  if (type !== undefined && typeof type !== 'string')
    badConfig(`${name}.rope_type has to be a string, got ${show(type)}`);
  const own = type?.toLowerCase();
  const theta = positive(`${name}.rope_theta`, member(settings, 'rope_theta'));
  // A list has a base for each layer, which its class reads.
  const isListed = Array.isArray(config.stated('rope_theta'));
  const beside = isListed ? undefined : positive('rope_theta', config.stated('rope_theta'));
  if (theta !== undefined && beside !== undefined && theta !== beside)
    badConfig(`rope_theta is ${beside} and ${name}.rope_theta is ${theta}`);
  return {
    type: own === 'default' ? undefined : own,
    settings,
    where: name,
    theta: theta ?? (isListed ? undefined : config.maybePositive('rope_theta')),
    localTheta:
      positive(`${name}.sliding_attention.rope_theta`, member(local, 'rope_theta')) ??
      config.maybePositive('rope_local_base_freq'),
  };
}

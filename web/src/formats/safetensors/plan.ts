/**
 * Plans of safetensors results: floats of another type, or integers or float8 with scales in the layout of compressed-tensors, which vLLM,
 * transformers and llama.cpp's converter load. Names, shapes, places and the configuration all follow from the headers of the input.
 */

import { ScalepointError } from '../../core/errors.js';
import { type SearchedRange, searchOf } from '../../core/range.js';
import { show } from '../../core/show.js';
import { quoted } from '../../files/bytes.js';
import {
  type CastType,
  type CodesConversion,
  type Conversion,
  type FilePlan,
  type ModelGranularity,
  type PlannedPart,
  type PlannedTensor,
  type Role,
  type Rule,
  ruleFor,
  type SourceTensor,
} from '../../pipeline/plan.js';
import { cutsRows } from '../../pipeline/steps.js';
import { elementCount, layoutSafetensors, type TensorDType, type TensorInfo } from './header.js';
import { keeperByName, namesParameters } from './keep.js';

/** What the weights of a safetensors file can become. */
export const safetensorsTargets = ['int8', 'int4', 'float8e4m3fn', 'float16', 'bfloat16'] as const;

/** A target of a safetensors result. */
export type SafetensorsTarget = (typeof safetensorsTargets)[number];

/** Whether this is a target of a safetensors result. */
export function isSafetensorsTarget(value: unknown): value is SafetensorsTarget {
  return safetensorsTargets.includes(value as SafetensorsTarget);
}

/** What decides about a safetensors result. */
export interface SafetensorsOptions {
  readonly to: SafetensorsTarget;
  /**
   * Integers: symmetric, or with zero points. llama.cpp's converter ignores the zero points of codes that are not packed.
   * @defaultValue 'symmetric'
   */
  readonly scheme?: 'symmetric' | 'asymmetric' | undefined;
  /**
   * Integers: what shares a scale. Groups are always packed.
   * @defaultValue per channel for int8, groups of 128 for int4
   */
  readonly granularity?: ModelGranularity | undefined;
  /**
   * Integers: how the range of each channel or group is found, as for arrays. 'mse' counts with scales as they are stored, and is never
   * worse than 'min-max'. Channels of more than 2^20 elements (packed with zero points: 2^17) keep the range of all their values.
   * @defaultValue 'min-max'
   */
  readonly range?: 'min-max' | SearchedRange | undefined;
  /**
   * Integers: codes in int32 words (`pack-quantized`). A file has one form, so one packed weight packs all.
   * @defaultValue true if any weight has 4 bits or groups
   */
  readonly packed?: boolean | undefined;
  /**
   * int8: a configuration that has the activations quantized as well, token by token when the model runs (W8A8).
   * @defaultValue activations stay floats
   */
  readonly activations?: 'int8-dynamic' | undefined;
  /** @defaultValue none */
  readonly rules?: readonly Rule[] | undefined;
}

const floatTargets: Readonly<Partial<Record<SafetensorsTarget, CastType>>> = { float16: 'F16', bfloat16: 'BF16' };

/** Bits of integer codes; undefined for floats. */
function bitsOf(to: SafetensorsTarget): 4 | 8 | undefined {
  return to === 'int8' ? 8 : to === 'int4' ? 4 : undefined;
}

function isFloat8(to: unknown): to is 'float8e4m3fn' {
  return to === 'float8e4m3fn';
}

function defaultGranularity(bits: 4 | 8): ModelGranularity {
  return bits === 8 ? { kind: 'per-channel' } : { kind: 'per-group', groupSize: 128 };
}

// --------------------------------------------------------------------------------------------------------------------- options

/** Elements of the largest group. */
const maxGroupSize = 2 ** 18;

function checkGranularity(value: unknown, name: string): void {
  if (value === undefined) return;
  if (typeof value !== 'object' || value === null) {
    throw new TypeError(
      `${name}: expected { kind: 'per-channel' } or { kind: 'per-group', groupSize }, got ${show(value)}`,
    );
  }
  const { kind, groupSize } = value as { kind?: unknown; groupSize?: unknown };
  if (kind === 'per-channel') {
    if (groupSize !== undefined)
      throw new TypeError(`${name}.groupSize: only for kind 'per-group', got ${show(groupSize)}`);
    return;
  }
  if (kind !== 'per-group') {
    throw new RangeError(`${name}.kind: expected 'per-channel' or 'per-group', got ${show(kind)}`);
  }
  // A multiple of 8 fills whole words with 4 or 8 bits, so that no word of codes has two scales. A group is converted at once, so that
  // it has to fit a tile.
  const fits = Number.isSafeInteger(groupSize) && (groupSize as number) > 0 && (groupSize as number) <= maxGroupSize;
  if (!fits || (groupSize as number) % 8 !== 0) {
    throw new RangeError(
      `${name}.groupSize: expected a multiple of 8 up to ${maxGroupSize}, such as 32, 64 or 128, got ${show(groupSize)}`,
    );
  }
}

function checkRange(range: unknown): void {
  if (range === undefined || range === 'min-max' || searchOf(range) !== undefined) return;
  throw new RangeError(`range: expected 'min-max', 'mse', 'entropy' or { percentile }, got ${show(range)}`);
}

function checkRules(rules: unknown): void {
  if (rules === undefined) return;
  if (!Array.isArray(rules)) throw new TypeError(`rules: expected an array, got ${show(rules)}`);
  const targets = safetensorsTargets.map((to) => `'${to}'`).join(', ');
  for (const [i, rule] of rules.entries()) {
    const { match, keep, to, granularity } = (rule ?? {}) as Record<string, unknown>;
    if (!(match instanceof RegExp)) throw new TypeError(`rules[${i}].match: expected a RegExp, got ${show(match)}`);
    if (keep !== undefined && typeof keep !== 'boolean') {
      throw new TypeError(`rules[${i}].keep: expected true or false, got ${show(keep)}`);
    }
    if ((keep === true) === (to !== undefined)) {
      throw new RangeError(
        `rules[${i}]: expected keep: true or a target in to, got keep: ${show(keep)}, to: ${show(to)}`,
      );
    }
    if (to !== undefined && !isSafetensorsTarget(to)) {
      throw new RangeError(`rules[${i}].to: expected one of ${targets}, got ${show(to)}`);
    }
    if (granularity !== undefined && (to === undefined || bitsOf(to) === undefined)) {
      throw new RangeError(`rules[${i}].granularity: only for to: 'int8' or 'int4', got to: ${show(to)}`);
    }
    checkGranularity(granularity, `rules[${i}].granularity`);
  }
}

/**
 * Checks the options that decide about a safetensors result; others are ignored. They come from JavaScript as well, so they are checked
 * as if they had no types.
 * @throws TypeError or RangeError naming the option and the value
 */
export function checkSafetensorsOptions(options: SafetensorsOptions): void {
  const { to, scheme, granularity, range, packed, activations, rules } = options;
  if (!isSafetensorsTarget(to)) {
    const targets = safetensorsTargets.map((target) => `'${target}'`).join(', ');
    throw new RangeError(`to: expected one of ${targets} for safetensors, got ${show(to)}`);
  }
  if (scheme !== undefined && scheme !== 'symmetric' && scheme !== 'asymmetric') {
    throw new RangeError(`scheme: expected 'symmetric' or 'asymmetric', got ${show(scheme)}`);
  }
  if (packed !== undefined && typeof packed !== 'boolean') {
    throw new TypeError(`packed: expected true or false, got ${show(packed)}`);
  }
  if (activations !== undefined && activations !== 'int8-dynamic') {
    throw new RangeError(`activations: expected 'int8-dynamic', got ${show(activations)}`);
  }
  checkGranularity(granularity, 'granularity');
  checkRange(range);
  checkRules(rules);

  const bits = bitsOf(to);
  if (isFloat8(to)) {
    if (granularity?.kind === 'per-group') {
      throw new RangeError(`granularity: to: '${to}' has one scale a channel, got granularity 'per-group'`);
    }
    if (scheme === 'asymmetric') throw new RangeError(`scheme: to: '${to}' is symmetric, got 'asymmetric'`);
    if (packed === true) throw new RangeError(`packed: only for integers, got packed: true with to: '${to}'`);
  }
  if (bits === undefined) {
    if (granularity !== undefined && !isFloat8(to))
      throw new RangeError(`granularity: only for to: 'int8' or 'int4', got to: '${to}'`);
    if (range !== undefined) throw new RangeError(`range: only for to: 'int8' or 'int4', got to: '${to}'`);
    if (activations !== undefined) throw new RangeError(`activations: only for to: 'int8', got to: '${to}'`);
  }
  // A configuration has one form for all codes of a file.
  let codes: string | undefined = bits !== undefined || isFloat8(to) ? to : undefined;
  for (const [i, rule] of (rules ?? []).entries()) {
    if (rule.keep || (!isFloat8(rule.to) && bitsOf(rule.to as SafetensorsTarget) === undefined)) continue;
    codes ??= rule.to;
    if (isFloat8(codes) !== isFloat8(rule.to)) {
      throw new RangeError(`rules[${i}].to: a file has one form of codes, got '${rule.to}' beside '${codes}'`);
    }
  }
  // What each integer target of the plan and its rules asks of the form.
  const forms: { name: string; to: SafetensorsTarget; granularity: ModelGranularity | undefined }[] = [
    { name: '', to, granularity },
  ];
  for (const [i, rule] of (rules ?? []).entries()) {
    if (!rule.keep) {
      const target = rule.to as SafetensorsTarget;
      forms.push({
        name: `rules[${i}].`,
        to: target,
        granularity: rule.granularity ?? (target === to ? granularity : undefined),
      });
    }
  }
  for (const form of forms) {
    const formBits = bitsOf(form.to);
    if (formBits === undefined) continue;
    const { kind } = form.granularity ?? defaultGranularity(formBits);
    if (packed === false && formBits === 4) {
      throw new RangeError(`packed: 4 bits are always packed, got packed: false with ${form.name}to: 'int4'`);
    }
    if (packed === false && kind === 'per-group') {
      throw new RangeError(
        `packed: groups are always packed, got packed: false with ${form.name}granularity 'per-group'`,
      );
    }
    if (activations === undefined) continue;
    // The kernels for 8-bit activations take int8 weights with one scale a row.
    if (formBits !== 8)
      throw new RangeError(`activations: 'int8-dynamic' needs int8 weights, got ${form.name}to: '${form.to}'`);
    if (kind !== 'per-channel') {
      throw new RangeError(
        `activations: 'int8-dynamic' needs granularity 'per-channel', got ${form.name}granularity '${kind}'`,
      );
    }
  }
  if (activations !== undefined && scheme === 'asymmetric') {
    throw new RangeError("activations: 'int8-dynamic' needs scheme 'symmetric', got 'asymmetric'");
  }
  if (activations !== undefined && packed === true) {
    throw new RangeError("activations: 'int8-dynamic' needs codes that are not packed, got packed: true");
  }
}

// ------------------------------------------------------------------------------------------------------------------------ plan

/** Bytes of an element of the types that can be converted. */
const floatBytes: Readonly<Record<string, number>> = { F32: 4, F16: 2, BF16: 2, F64: 8 };

function isFloat(dtype: string): boolean {
  return Object.hasOwn(floatBytes, dtype);
}

/** Types that quantized weights are stored in. */
const codeTypes = /^(F8_|F6_|F4$|[IU]8$|[IU]32$)/;

/** Why a tensor of such a type cannot be converted. */
function strangeType(dtype: string): string {
  const small = /^F([468])_?/.exec(dtype);
  if (small !== null) return `float${small[1]} already`;
  return dtype === 'C64' ? 'complex' : 'not a float';
}

/** A part before its place in the file is known. */
interface Part {
  readonly role: Role;
  readonly name: string;
  readonly dtype: TensorDType;
  readonly shape: readonly number[];
  readonly constant?: Uint8Array<ArrayBuffer>;
}

/** What becomes of a tensor, before places are known. */
interface Decision {
  readonly conversion: Conversion;
  readonly parts: readonly Part[];
  readonly kept?: string;
}

/** What the names of parts that are taken are called. */
const partWords: Readonly<Record<Role, string>> = {
  data: 'packed',
  scale: 'scale',
  zeroPoint: 'zero point',
  shape: 'shape',
};

/** `weight_shape`: int64, little-endian. */
function shapeBytes(shape: readonly number[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(8 * shape.length);
  const view = new DataView(bytes.buffer);
  shape.forEach((dimension, i) => {
    view.setBigInt64(8 * i, BigInt(dimension), true);
  });
  return bytes;
}

/**
 * The parts of a weight with codes. `X.weight` has its scales in `X.weight_scale`; any other name is extended in the same way.
 * Packed along a dimension, codes take ceil(n * bits / 32) words; zero points of packed weights are packed down the rows.
 */
function codeParts(name: string, shape: readonly number[], conversion: CodesConversion): Part[] {
  const { type, bits, symmetric, groupSize, packed, scale } = conversion;
  const words = (n: number) => Math.ceil((n * bits) / 32);
  const [rows = 0, ...inner] = shape;
  const columns = inner.at(-1) ?? 1;
  const scales = groupSize === undefined ? [rows, ...inner.map(() => 1)] : [rows, columns / groupSize];
  const parts: Part[] = [
    packed
      ? { role: 'data', name: `${name}_packed`, dtype: 'I32', shape: [rows, words(columns)] }
      : { role: 'data', name, dtype: type === 'float' ? 'F8_E4M3' : 'I8', shape },
    { role: 'scale', name: `${name}_scale`, dtype: scale, shape: scales },
  ];
  if (!symmetric) {
    parts.push({
      role: 'zeroPoint',
      name: `${name}_zero_point`,
      ...(packed ? { dtype: 'I32', shape: [words(rows), ...scales.slice(1)] } : { dtype: 'I8', shape: scales }),
    });
  }
  if (packed) {
    parts.push({
      role: 'shape',
      name: `${name}_shape`,
      dtype: 'I64',
      shape: [shape.length],
      constant: shapeBytes(shape),
    });
  }
  return parts;
}

function partBytes({ dtype, shape }: Part): number {
  const size = floatBytes[dtype] ?? { I8: 1, F8_E4M3: 1, I32: 4, I64: 8 }[dtype as string] ?? 0;
  return size * (elementCount(shape) ?? 0);
}

/** Decides about tensors, one at a time. */
class Planner {
  readonly #options: SafetensorsOptions;
  readonly #isModel: boolean;
  readonly #names: ReadonlySet<string>;
  readonly #keptByName: (name: string) => string | undefined;
  /** Modules, and weights, that are quantized already. */
  readonly #quantized = new Set<string>();

  /** `isModel`: whether names mean something. */
  constructor(tensors: readonly SourceTensor[], options: SafetensorsOptions, isModel: boolean) {
    this.#options = options;
    this.#isModel = isModel;
    this.#names = new Set(tensors.map(({ name }) => name));
    this.#keptByName = isModel ? keeperByName(this.#names) : () => undefined;
    for (const { name, dtype, shape } of tensors) {
      if (shape.length > 1 && codeTypes.test(dtype)) this.#quantized.add(name).add(ownerOf(name));
    }
  }

  /** `packed`: whether the codes of the file are. */
  decide(source: SourceTensor, packed: boolean): Decision {
    const { name, dtype, shape } = source;
    const keep = (kept: string): Decision => ({
      conversion: { kind: 'copy' },
      parts: [{ role: 'data', name, dtype: dtype as TensorDType, shape }],
      kept,
    });
    const { to: target, scheme = 'symmetric', range = 'min-max' } = this.#options;
    const rule = ruleFor(this.#options.rules ?? [], name);
    if (rule?.keep) return keep('rule');
    if (!isFloat(dtype)) return keep(strangeType(dtype));
    const to = (rule?.to ?? target) as SafetensorsTarget;

    const cast = floatTargets[to];
    const bits = isFloat8(to) ? 8 : bitsOf(to);
    if (cast !== undefined || bits === undefined) {
      const type = cast as CastType;
      if (dtype === type) return keep('same type');
      // Whoever multiplies with them expects their type, and small ones would become 0.
      if (rule === undefined && namesParameters(name) && this.#quantized.has(ownerOf(name))) return keep('scale');
      return { conversion: { kind: 'cast', to: type }, parts: [{ role: 'data', name, dtype: type, shape }] };
    }

    // What cannot be done, rule or not.
    if (shape.length === 0) return keep('scalar');
    if (source.bytes === 0) return keep('empty');
    if (shape.length === 1) return keep(this.#keptByName(name) ?? '1-D');
    const asked =
      rule?.granularity ?? (to === target ? this.#options.granularity : undefined) ?? defaultGranularity(bits);
    const groupSize = asked.kind === 'per-group' ? asked.groupSize : undefined;
    const byName = rule === undefined ? this.#keptByName(name) : undefined;
    if (byName !== undefined) return keep(byName);
    const conversion: CodesConversion = {
      kind: 'codes',
      type: isFloat8(to) ? 'float' : 'int',
      bits,
      symmetric: scheme === 'symmetric' || isFloat8(to),
      groupSize,
      packed: !isFloat8(to) && (packed || bits === 4 || groupSize !== undefined),
      scale: dtype === 'F64' ? 'F32' : (dtype as CastType),
      ...(range === 'min-max' || isFloat8(to) ? {} : { range }),
    };
    if (conversion.packed && shape.length > 2) return keep(`${shape.length}-D`);
    const columns = shape.at(-1) as number;
    if (groupSize !== undefined && columns % groupSize !== 0) return keep(`rows of ${columns}, groups of ${groupSize}`);
    const parts = codeParts(name, shape, conversion);
    const taken = parts.find((part) => part.name !== name && this.#names.has(part.name));
    if (taken !== undefined) return keep(`${partWords[taken.role]} name taken`);
    if (rule === undefined) {
      // A .npy file is quantized because somebody wants that array quantized; float64 is what numpy makes unasked.
      if (this.#isModel && dtype === 'F64') return keep('F64');
      if (parts.reduce((sum, part) => sum + partBytes(part), 0) >= source.bytes) return keep('not smaller');
    }
    return { conversion, parts };
  }
}

/** The module that a tensor stands in. */
function ownerOf(name: string): string {
  return name.slice(0, Math.max(0, name.lastIndexOf('.')));
}

/**
 * Plans a safetensors result.
 *
 * Integers, by default int8 per channel in codes as they are (`naive-quantized`, or `int-quantized` with `activations`) and int4 in
 * packed groups of 128 (`pack-quantized`): weights of two or more dimensions are converted, unless their names say norm, embedding,
 * lm_head, bias, router or the like, or they would not become smaller. Packed ones have exactly two dimensions, and rows that the
 * groups divide. A configuration has one form for all: a single packed weight has int8 weights packed too.
 *
 * float8e4m3fn: the same weights, per channel and as they are (`float-quantized`).
 *
 * Floats: every F32, F64, F16 and BF16 tensor is cast, except the scales of weights that are quantized already.
 *
 * `format` is that of the input: names in a .npy file mean nothing, and there is no model to configure.
 * @throws TypeError or RangeError naming the option; ScalepointError `BAD_FILE` if the header would be too long
 */
export function planSafetensors(
  tensors: readonly SourceTensor[],
  metadata: Readonly<Record<string, string>>,
  options: SafetensorsOptions & { readonly format: 'safetensors' | 'npy' },
): FilePlan {
  checkSafetensorsOptions(options);
  const isModel = options.format === 'safetensors';
  const planner = new Planner(tensors, options, isModel);
  const has = (packed: boolean) =>
    decisions.some(({ conversion }) => conversion.kind === 'codes' && conversion.packed === packed);
  let decisions = tensors.map((source) => planner.decide(source, options.packed ?? false));
  if (has(true) && has(false)) decisions = tensors.map((source) => planner.decide(source, true));

  const layout = layoutSafetensors(
    decisions.flatMap(({ parts }) => parts),
    metadata,
  );
  const places = new Map(layout.tensors.map((placed) => [placed.name, placed]));
  const place = ({ role, name, constant }: Part): PlannedPart => ({
    role,
    ...(places.get(name) as TensorInfo),
    ...(constant === undefined ? {} : { constant }),
  });
  const planned = tensors.map((source, i): PlannedTensor => {
    const { conversion, parts, kept } = decisions[i] as Decision;
    return { source, conversion, parts: parts.map(place), ...(kept === undefined ? {} : { kept }) };
  });
  const quantizationConfig = isModel ? describe(planned, options.activations) : undefined;
  const long = planned.filter(
    (tensor) =>
      tensor.conversion.kind === 'codes' &&
      tensor.conversion.range !== undefined &&
      cutsRows(tensor, tensor.conversion),
  ).length;
  return {
    tensors: planned,
    header: layout.header,
    size: layout.size,
    ...(quantizationConfig === undefined ? {} : { quantizationConfig }),
    ...(long === 0
      ? {}
      : {
          notes: [
            `range: the channels of ${long === 1 ? 'a tensor' : `${long} tensors`} are too long to search; their range is min-max`,
          ],
        }),
  };
}

// --------------------------------------------------------------------------------------------------------------- configuration

/** The module of `X.weight`: X. Other tensors have none that a configuration could name. */
function moduleOf({ name }: SourceTensor): string | undefined {
  return name.endsWith('.weight') ? name.slice(0, -'.weight'.length) : undefined;
}

/**
 * QuantizationArgs of compressed-tensors. It refuses keys that it does not know, so these are the ones that all its versions since
 * 0.11 know.
 */
function quantizationArgs(
  type: 'int' | 'float',
  bits: number,
  symmetric: boolean,
  strategy: string,
  groupSize: number | null,
  dynamic: boolean,
  observer: 'minmax' | 'mse',
) {
  return {
    num_bits: bits,
    type,
    symmetric,
    strategy,
    group_size: groupSize,
    dynamic,
    actorder: null,
    block_structure: null,
    observer: dynamic ? null : observer,
    observer_kwargs: {},
  };
}

/** The `quantization_config` for config.json; undefined if nothing has codes. */
function describe(
  tensors: readonly PlannedTensor[],
  activations: 'int8-dynamic' | undefined,
): Record<string, unknown> | undefined {
  const groups = new Map<string, { conversion: CodesConversion; members: SourceTensor[] }>();
  const ignore: string[] = [];
  for (const { source, conversion } of tensors) {
    if (conversion.kind === 'codes') {
      const key = `${conversion.bits} ${conversion.groupSize}`;
      const group = groups.get(key) ?? { conversion, members: [] };
      group.members.push(source);
      groups.set(key, group);
    } else if (source.shape.length === 2) {
      const module = moduleOf(source);
      if (module !== undefined) ignore.push(module);
    }
  }
  const [first] = groups.values();
  if (first === undefined) return undefined;
  // An output layer that shares the embedding's weight is a module without a tensor of its own.
  const named = (pattern: RegExp) => tensors.some(({ source }) => pattern.test(source.name));
  if (!named(/(^|\.)lm_head\./) && named(/(^|\.)(embed_tokens|wte|word_embeddings|shared)\.weight$/)) {
    ignore.push('lm_head');
  }

  const inputs = activations === undefined ? null : quantizationArgs('int', 8, true, 'token', null, true, 'minmax');
  const single = groups.size === 1;
  const configGroups: Record<string, unknown> = {};
  for (const { conversion, members } of groups.values()) {
    const targets = single
      ? ['Linear', ...specialModules(members)]
      : members.flatMap((source) => moduleOf(source) ?? []);
    if (targets.length === 0) continue;
    const { type, bits, symmetric, groupSize, range } = conversion;
    const strategy = groupSize === undefined ? 'channel' : 'group';
    // Of llm-compressor's observers the one that comes closest.
    const observer = range === 'mse' ? 'mse' : 'minmax';
    configGroups[`group_${Object.keys(configGroups).length}`] = {
      targets,
      weights: quantizationArgs(type, bits, symmetric, strategy, groupSize ?? null, false, observer),
      input_activations: inputs,
      output_activations: null,
    };
  }
  let format = activations === undefined ? 'naive-quantized' : 'int-quantized';
  if (first.conversion.packed) format = 'pack-quantized';
  if (first.conversion.type === 'float') format = 'float-quantized';
  return {
    quant_method: 'compressed-tensors',
    format,
    quantization_status: 'compressed',
    global_compression_ratio: null,
    ignore,
    kv_cache_scheme: null,
    config_groups: configGroups,
    sparsity_config: {},
    transform_config: {},
    // The first version that knows every key above.
    version: '0.11.0',
  };
}

/** Modules with codes that are no linear layers: convolutions, and embeddings that a rule asked for. */
function specialModules(members: readonly SourceTensor[]): string[] {
  const keptByName = keeperByName([]);
  return members.flatMap((source) => {
    const special = source.shape.length > 2 || keptByName(source.name) === 'embedding';
    return special ? (moduleOf(source) ?? []) : [];
  });
}

/**
 * A model's config.json with the `quantization_config` as its last key, in place of one that it has from compressed-tensors. The given
 * object stays as it is.
 * @throws TypeError if `config` is no object; ScalepointError `BAD_FILE` if it describes a model that is quantized by other means
 */
export function mergeConfig(
  config: unknown,
  quantizationConfig: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  if (typeof config !== 'object' || config === null || Array.isArray(config)) {
    throw new TypeError(`config: expected the object of a config.json, got ${show(config)}`);
  }
  const { quantization_config: before, ...rest } = config as Record<string, unknown>;
  const method = (before as { quant_method?: unknown } | null | undefined)?.quant_method;
  if (before !== undefined && before !== null && method !== 'compressed-tensors') {
    const told = typeof method === 'string' ? `by ${quoted(method)}` : 'by a method that it does not name';
    throw new ScalepointError('BAD_FILE', `config: the model is quantized already, ${told}`);
  }
  return { ...rest, quantization_config: quantizationConfig };
}

/**
 * Plans of safetensors results: floats of another type, or integers or float8 with scales in the layout of compressed-tensors, which vLLM,
 * transformers and llama.cpp's converter load. Names, shapes, places and the configuration all follow from the headers of the input.
 */
import type { CastForm, CastType } from '../../codecs/cast.js';
import type { Role } from '../../codecs/codec.js';
import type { CompressedForm } from '../../codecs/compressed-tensors.js';
import type { FilePlan, OutputFile, PartsOf, PlannedPart, PlannedTensor, Segment, SourceTensor } from '../format.js';
import { type PlanChoices, type Rule, ruleFor } from '../options.js';
import { convertedTensor, keptTensor } from '../tensors.js';
import { describe } from './config.js';
import { layoutSafetensors, type TensorDType } from './header.js';
import { keeperByName, namesParameters } from './keep.js';
import { bitsOf, defaultGranularity, isFloat8, type SafetensorsOptions, type SafetensorsTarget } from './options.js';

/** What decides about a safetensors result: checked. */
export type SafetensorsChoices = PlanChoices<SafetensorsOptions, SafetensorsTarget>;

const floatTargets: Readonly<Partial<Record<string, CastType>>> = { float16: 'F16', bfloat16: 'BF16' };

/** Types that can be converted. */
const floatTypes: readonly string[] = ['F32', 'F16', 'BF16', 'F64'];

/** Types that quantized weights are stored in. */
const codeTypes = /^(F8_|F6_|F4$|[IU]8$|[IU]32$)/;

/** Why a tensor of such a type cannot be converted. */
function strangeType(dtype: string): string {
  const small = /^F([468])_?/.exec(dtype);
  if (small !== null) return `float${small[1]} already`;
  return dtype === 'C64' ? 'complex' : 'not a float';
}

/** What a part is called whose name is taken. */
const partWords: Readonly<Record<Role, string>> = {
  data: 'packed',
  scale: 'scale',
  zeroPoint: 'zero point',
  shape: 'shape',
};

/** The module that a tensor stands in. */
function ownerOf(name: string): string {
  return name.slice(0, Math.max(0, name.lastIndexOf('.')));
}

/** Decides about tensors, one at a time. */
class Planner {
  readonly #choices: SafetensorsChoices;
  readonly #isModel: boolean;
  readonly #partsOf: PartsOf;
  readonly #names: ReadonlySet<string>;
  readonly #keptByName: (name: string) => string | undefined;
  /** Modules, and weights, that are quantized already. */
  readonly #quantized = new Set<string>();

  /** @param isModel whether names mean something */
  constructor(tensors: readonly SourceTensor[], choices: SafetensorsChoices, isModel: boolean, partsOf: PartsOf) {
    this.#choices = choices;
    this.#isModel = isModel;
    this.#partsOf = partsOf;
    this.#names = new Set(tensors.map(({ name }) => name));
    this.#keptByName = isModel ? keeperByName(this.#names) : () => undefined;
    for (const { name, dtype, shape } of tensors) {
      if (shape.length > 1 && codeTypes.test(dtype)) this.#quantized.add(name).add(ownerOf(name));
    }
  }

  /** @param packed whether the codes of the file are */
  decide(source: SourceTensor, packed: boolean): PlannedTensor {
    const rule = ruleFor(this.#choices.rules ?? [], source.name);
    if (rule?.keep) return keptTensor(source, 'rule');
    if (!floatTypes.includes(source.dtype)) return keptTensor(source, strangeType(source.dtype));
    const to = rule?.to ?? this.#choices.to;
    const cast = floatTargets[to];
    return cast === undefined ? this.#toCodes(source, to, rule, packed) : this.#toFloats(source, cast, rule);
  }

  #toFloats(source: SourceTensor, to: CastType, rule: Rule | undefined): PlannedTensor {
    const { name, dtype, shape } = source;
    if (dtype === to) return keptTensor(source, 'same type');
    // Whoever multiplies with them expects their type, and small ones would become 0.
    if (rule === undefined && namesParameters(name) && this.#quantized.has(ownerOf(name))) {
      return keptTensor(source, 'scale');
    }
    const form: CastForm = { codec: 'cast', to };
    return convertedTensor(source, form, this.#partsOf(shape, form));
  }

  #toCodes(source: SourceTensor, to: string, rule: Rule | undefined, packed: boolean): PlannedTensor {
    const { name, dtype, shape, bytes } = source;
    // What cannot be done, rule or not.
    if (shape.length === 0) return keptTensor(source, 'scalar');
    if (bytes === 0) return keptTensor(source, 'empty');
    if (shape.length === 1) return keptTensor(source, this.#keptByName(name) ?? '1-D');
    const byName = rule === undefined ? this.#keptByName(name) : undefined;
    if (byName !== undefined) return keptTensor(source, byName);
    const form = this.#formOf(dtype, to, rule, packed);
    if (form.packed && shape.length > 2) return keptTensor(source, `${shape.length}-D`);
    const columns = shape.at(-1) as number;
    if (form.groupSize !== undefined && columns % form.groupSize !== 0) {
      return keptTensor(source, `rows of ${columns}, groups of ${form.groupSize}`);
    }
    const parts = this.#partsOf(shape, form);
    const taken = parts.find(({ suffix }) => suffix !== '' && this.#names.has(name + suffix));
    if (taken !== undefined) return keptTensor(source, `${partWords[taken.role]} name taken`);
    if (rule === undefined) {
      // A .npy file is quantized because somebody wants that array quantized, and float64 is what numpy makes unasked.
      if (this.#isModel && dtype === 'F64') return keptTensor(source, 'F64');
      if (parts.reduce((sum, part) => sum + part.bytes, 0) >= bytes) return keptTensor(source, 'not smaller');
    }
    return convertedTensor(source, form, parts);
  }

  #formOf(dtype: string, to: string, rule: Rule | undefined, packed: boolean): CompressedForm {
    const { scheme = 'symmetric', range = 'min-max', granularity, to: target } = this.#choices;
    const float = isFloat8(to);
    const bits = bitsOf(to) ?? 8;
    const asked = rule?.granularity ?? (to === target ? granularity : undefined) ?? defaultGranularity(bits);
    const groupSize = asked.kind === 'per-group' ? asked.groupSize : undefined;
    return {
      codec: 'compressed-tensors',
      type: float ? 'float' : 'int',
      bits,
      symmetric: scheme === 'symmetric' || float,
      groupSize,
      packed: !float && (packed || bits === 4 || groupSize !== undefined),
      scale: dtype === 'F64' ? 'F32' : (dtype as CastType),
      ...(range === 'min-max' || float ? {} : { range }),
    };
  }
}

/** Lays out the file. */
function layOut(tensors: readonly PlannedTensor[], metadata: Readonly<Record<string, string>>): OutputFile {
  const parts = tensors.flatMap((tensor) => tensor.parts);
  const layout = layoutSafetensors(parts as readonly (PlannedPart & { readonly dtype: TensorDType })[], metadata);
  const places = new Map(layout.tensors.map(({ name, byteOffset }) => [name, byteOffset]));
  const segments: Segment[] = [{ at: 0, bytes: layout.header }];
  for (const [tensor, { parts }] of tensors.entries()) {
    for (const { name, role, constant } of parts) {
      const at = places.get(name) as number;
      segments.push(constant === undefined ? { at, tensor, role } : { at, bytes: constant });
    }
  }
  return { suffix: '', size: layout.size, segments };
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
 * @param isModel false for an array that is no part of a model: then names mean nothing, and there is nothing to configure
 * @throws ScalepointError `BAD_FILE` if the header would be too long
 */
export function planSafetensors(
  tensors: readonly SourceTensor[],
  metadata: Readonly<Record<string, string>>,
  choices: SafetensorsChoices,
  partsOf: PartsOf,
  isModel = true,
): FilePlan {
  const planner = new Planner(tensors, choices, isModel, partsOf);
  let decided = tensors.map((source) => planner.decide(source, choices.packed ?? false));
  const has = (packed: boolean) =>
    decided.some(({ form }) => form.codec === 'compressed-tensors' && (form as CompressedForm).packed === packed);
  if (has(true) && has(false)) decided = tensors.map((source) => planner.decide(source, true));
  const quantizationConfig = isModel ? describe(decided, choices.activations) : undefined;
  return {
    format: 'safetensors',
    files: [layOut(decided, metadata)],
    tensors: decided,
    notes: [],
    sidecars: quantizationConfig === undefined ? [] : [{ option: 'config', value: quantizationConfig }],
  };
}

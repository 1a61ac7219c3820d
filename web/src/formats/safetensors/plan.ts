/**
 * Plans of safetensors results: floats of another type, or integers or float8 with scales in the layout of compressed-tensors, which vLLM,
 * transformers and llama.cpp's converter load. Names, shapes, places and the configuration all follow from the headers of the input.
 */
import type { CastForm, CastType } from '../../codecs/cast.js';
import type { Part, Role } from '../../codecs/codec.js';
import type { CodeWidth } from '../../codecs/codes.js';
import type { CompressedForm } from '../../codecs/compressed-tensors.js';
import {
  type FilePlan,
  fileName,
  type LogicalTensor,
  type OutputFile,
  type PartsOf,
  type PlannedTensor,
  type Segment,
  type SourceTensor,
} from '../format.js';
import { type PlanChoices, type Rule, ruleFor } from '../options.js';
import { largeNote, shardLimit, shardSuffix, shardsOf } from '../shards.js';
import { type Copies, compareNames, convertedLogical, elementCount, keptTensor } from '../tensors.js';
import { describe } from './config.js';
import { layoutSafetensors, type NamedTensor, type TensorDType } from './header.js';
import { keeperByName, linearOnly } from './keep.js';
import { type Left, notesOf } from './notes.js';
import {
  bitsOf,
  defaultGroupSizes,
  granularityOf,
  isFloat8,
  isPlain,
  type SafetensorsOptions,
  type SafetensorsTarget,
} from './options.js';

/** What decides about a safetensors result: checked. */
export type SafetensorsChoices = PlanChoices<SafetensorsOptions, SafetensorsTarget>;

const floatTargets: Readonly<Partial<Record<string, CastType>>> = { float16: 'F16', bfloat16: 'BF16' };

/** Types that can be converted. */
const floatTypes: readonly string[] = ['F32', 'F16', 'BF16', 'F64'];

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

/** A tensor as floats. */
interface Floats {
  readonly source: LogicalTensor;
  /** The stored tensor, if that is one of floats, or of anything else without scales. */
  readonly stored: SourceTensor | undefined;
  /** Type of the floats. Of codes it is that of their scales. */
  readonly dtype: string;
  readonly bytes: number;
}

function floatsOf(source: LogicalTensor): Floats {
  const { tensor } = source.parts[0] as LogicalTensor['parts'][number];
  if (source.form.codec !== 'compressed-tensors') {
    return { source, stored: tensor, dtype: tensor.dtype, bytes: tensor.bytes };
  }
  const { scale } = source.form as CompressedForm;
  const bytes = (elementCount(source.shape) ?? 0) * (scale === 'F32' ? 4 : 2);
  return { source, stored: undefined, dtype: scale, bytes };
}

/** What is to become of a tensor, before anything is known about the others. */
interface Wish {
  readonly floats: Floats;
  readonly rule: Rule | undefined;
  readonly to: string;
  /** Why it is kept. */
  readonly kept?: string | undefined;
  /** If something would take it along: which. */
  readonly why?: Left['why'];
}

/** Decides about the tensors of a file. */
class Planner {
  readonly #choices: SafetensorsChoices;
  readonly #isModel: boolean;
  readonly #makeParts: PartsOf;
  /** Forms and parts are made once for all tensors that have them in common. */
  readonly #forms = new Map<string, CompressedForm>();
  readonly #casts: Readonly<Record<CastType, CastForm>> = {
    F32: { codec: 'cast', to: 'F32' },
    F16: { codec: 'cast', to: 'F16' },
    BF16: { codec: 'cast', to: 'BF16' },
  };
  readonly #parts = new Map<CompressedForm | CastForm, Map<string, readonly Part[]>>();
  readonly #copies: Copies = new Map();
  readonly #ends = new Map<string, boolean>();
  readonly #names: ReadonlySet<string>;
  readonly #keptByName: (name: string) => string | undefined;
  readonly #notLinear: (name: string, shape: readonly number[]) => string | undefined;

  /**
   * @param names of all stored tensors that the result may hold
   * @param isModel whether names mean something
   */
  constructor(
    tensors: readonly LogicalTensor[],
    names: ReadonlySet<string>,
    choices: SafetensorsChoices,
    isModel: boolean,
    partsOf: PartsOf,
  ) {
    this.#choices = choices;
    this.#isModel = isModel;
    this.#makeParts = partsOf;
    this.#names = names;
    this.#keptByName = isModel ? keeperByName(names) : () => undefined;
    this.#notLinear = isModel ? linearOnly(tensors) : () => undefined;
  }

  decide(tensors: readonly LogicalTensor[]): {
    readonly planned: readonly PlannedTensor[];
    readonly left: readonly Left[];
  } {
    const wishes = tensors.map((source) => this.#wish(source));
    const rows = wishes.flatMap((wish) => this.#rowInDefaultGroups(wish));
    const groupSize = defaultGroupSizes.find((size) => rows.every((columns) => columns % size === 0));
    const left: Left[] = [];
    const planned = wishes.map((wish) => {
      const { floats, kept, why } = wish;
      const { source, bytes } = floats;
      if (kept !== undefined) {
        if (why !== undefined) left.push({ source, bytes, why });
        return this.#keep(floats, kept);
      }
      const cast = floatTargets[wish.to];
      if (cast !== undefined) return this.#cast(source, cast);
      const form = this.#formOf(wish, groupSize);
      const columns = source.shape.at(-1) as number;
      const cuts = form.groupSize === undefined || columns % form.groupSize === 0;
      const misfit = this.#misfit(wish, cuts ? form : this.#formWith(wish, undefined));
      if (misfit !== undefined) return this.#keep(floats, misfit);
      if (!cuts) {
        left.push({ source, bytes, why: 'rows', groupSize: form.groupSize as number });
        return this.#keep(floats, `rows of ${columns}, groups of ${form.groupSize}`);
      }
      return convertedLogical(source, form, this.#partsOf(source.shape, form));
    });
    return { planned, left };
  }

  #partsOf(shape: readonly number[], form: CompressedForm | CastForm): readonly Part[] {
    let known = this.#parts.get(form);
    if (known === undefined) {
      known = new Map();
      this.#parts.set(form, known);
    }
    const key = shape.join();
    const found = known.get(key);
    if (found !== undefined) return found;
    const parts = this.#makeParts(shape, form);
    known.set(key, parts);
    return parts;
  }

  #wish(source: LogicalTensor): Wish {
    const rule = ruleFor(this.#choices.rules ?? [], source.name);
    const floats = floatsOf(source);
    const to = rule?.to ?? this.#choices.to;
    const wish = { floats, rule, to };
    if (rule?.keep) return { ...wish, kept: 'rule' };
    if (to === 'copy') return { ...wish, kept: 'copy' };
    if (!floatTypes.includes(floats.dtype)) return { ...wish, kept: strangeType(floats.dtype) };
    const cast = floatTargets[to];
    if (cast !== undefined) return floats.stored?.dtype === cast ? { ...wish, kept: 'same type' } : wish;
    return { ...wish, ...this.#obstacle(floats, rule) };
  }

  /** Why a tensor has no codes, whatever their form. */
  #obstacle({ source, dtype, bytes }: Floats, rule: Rule | undefined): Pick<Wish, 'kept' | 'why'> {
    const { name, shape } = source;
    // What cannot be done, rule or not.
    if (shape.length === 0) return { kept: 'scalar' };
    if (bytes === 0) return { kept: 'empty' };
    if (shape.length === 1) return { kept: this.#keptByName(name) ?? '1-D' };
    if (rule !== undefined) return {};
    const byName = this.#keptByName(name);
    if (byName !== undefined) return { kept: byName };
    const notLinear = this.#choices.include === 'all' ? undefined : this.#notLinear(name, shape);
    if (notLinear !== undefined) return { kept: notLinear, why: 'not linear' };
    // A .npy file is quantized because somebody wants that array quantized, and float64 is what numpy makes unasked.
    return this.#isModel && dtype === 'F64' ? { kept: 'F64', why: 'F64' } : {};
  }

  /** Why the codes of a tensor cannot be stored, or need not be. */
  #misfit({ floats: { source, bytes }, rule }: Wish, form: CompressedForm): string | undefined {
    const parts = this.#partsOf(source.shape, form);
    const taken = parts.find(({ suffix }) => this.#isEnd(suffix) && this.#names.has(source.name + suffix));
    if (taken !== undefined) return `${partWords[taken.role]} name taken`;
    if (rule !== undefined) return undefined;
    return parts.reduce((sum, part) => sum + part.bytes, 0) >= bytes ? 'not smaller' : undefined;
  }

  /** Whether a name of the model ends in what a part adds to one. Mostly none does, and no name has to be made to know that. */
  #isEnd(suffix: string): boolean {
    if (suffix === '') return false;
    const known = this.#ends.get(suffix);
    if (known !== undefined) return known;
    let isEnd = false;
    for (const name of this.#names) isEnd ||= name.endsWith(suffix);
    this.#ends.set(suffix, isEnd);
    return isEnd;
  }

  /** The length of the rows of a tensor that gets the default groups of int8. */
  #rowInDefaultGroups(wish: Wish): number[] {
    const { floats, to, kept } = wish;
    const { shape } = floats.source;
    if (kept !== undefined || to !== 'int8' || shape.length !== 2) return [];
    if (isPlain(this.#choices) || this.#asked(wish) !== undefined) return [];
    return this.#misfit(wish, this.#formOf(wish, undefined)) === undefined ? [shape[1] as number] : [];
  }

  /** The granularity that was asked for. */
  #asked({ to, rule }: Wish) {
    return granularityOf(this.#choices, to, rule);
  }

  /** Elements that share a scale; undefined for whole rows. */
  #groupSizeOf(wish: Wish, bits: CodeWidth, groupSizeOfInt8: number | undefined): number | undefined {
    const asked = this.#asked(wish);
    // Groups would cross the inner dimensions.
    if (wish.floats.source.shape.length !== 2 || asked?.kind === 'per-channel') return undefined;
    if (asked !== undefined) return asked.groupSize;
    return bits === 4 ? defaultGroupSizes[0] : groupSizeOfInt8;
  }

  #formOf(wish: Wish, groupSizeOfInt8: number | undefined): CompressedForm {
    const plain = isFloat8(wish.to) || isPlain(this.#choices);
    return this.#formWith(wish, plain ? undefined : this.#groupSizeOf(wish, bitsOf(wish.to) ?? 8, groupSizeOfInt8));
  }

  #formWith({ to, floats }: Wish, groupSize: number | undefined): CompressedForm {
    const key = `${to} ${floats.dtype} ${groupSize}`;
    const known = this.#forms.get(key);
    if (known !== undefined) return known;
    const form = this.#newForm(to, floats, groupSize);
    this.#forms.set(key, form);
    return form;
  }

  #newForm(to: string, floats: Floats, groupSize: number | undefined): CompressedForm {
    const { scheme = 'symmetric', range = 'min-max' } = this.#choices;
    const float = isFloat8(to);
    return {
      codec: 'compressed-tensors',
      type: float ? 'float' : 'int',
      bits: bitsOf(to) ?? 8,
      symmetric: scheme === 'symmetric' || float,
      groupSize,
      packed: !float && !isPlain(this.#choices),
      scale: floats.dtype === 'F64' ? 'F32' : (floats.dtype as CastType),
      ...(range === 'min-max' || float ? {} : { range }),
    };
  }

  /** Copies a tensor. Codes become the floats that they stand for: no configuration would tell what copies of them mean. */
  #keep({ source, stored, dtype }: Floats, kept: string): PlannedTensor {
    return stored === undefined ? this.#cast(source, dtype as CastType) : keptTensor(stored, kept, this.#copies);
  }

  #cast(source: LogicalTensor, to: CastType): PlannedTensor {
    const form = this.#casts[to];
    return convertedLogical(source, form, this.#partsOf(source.shape, form));
  }
}

/** Bytes that are known, one after the other in the file. */
function joined(list: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(list.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of list) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

/** Lays out a file. Its segments are in order. @param first which tensor of the plan comes first in the file */
function layOut(
  tensors: readonly PlannedTensor[],
  metadata: Readonly<Record<string, string>>,
  first = 0,
): Omit<OutputFile, 'suffix'> {
  const named: NamedTensor[] = [];
  const owners: number[] = [];
  for (let tensor = 0; tensor < tensors.length; tensor++) {
    const { source, parts } = tensors[tensor] as PlannedTensor;
    for (const { suffix, dtype, shape } of parts) {
      named.push({ name: suffix === '' ? source.name : source.name + suffix, dtype: dtype as TensorDType, shape });
      owners.push(tensor);
    }
  }
  const { header, size, order, offsets } = layoutSafetensors(named, metadata);
  const firsts = new Uint32Array(tensors.length);
  for (let i = owners.length - 1; i >= 0; i--) firsts[owners[i] as number] = i;
  const segments: Segment[] = [{ at: 0, bytes: header }];
  let known: Uint8Array[] = [];
  let knownAt = 0;
  const flush = () => {
    if (known.length > 0) segments.push({ at: knownAt, bytes: joined(known) });
    known = [];
  };
  for (const index of order) {
    const tensor = owners[index] as number;
    const part = tensors[tensor]?.parts[index - (firsts[tensor] as number)] as Part;
    const at = offsets[index] as number;
    if (part.constant === undefined) {
      flush();
      segments.push({ at, tensor: first + tensor, role: part.role });
      continue;
    }
    if (known.length === 0) knownAt = at;
    known.push(part.constant);
  }
  flush();
  return { size, segments };
}

const extension = '.safetensors';

/** The index of the files of a model, with the indentation and order that transformers gives it. */
function indexOf(tensors: readonly PlannedTensor[], fileOf: (tensor: number) => string): OutputFile {
  const map: (readonly [name: string, file: string])[] = [];
  let total = 0;
  for (const [i, { source, parts }] of tensors.entries()) {
    const file = fileOf(i);
    for (const { suffix, bytes } of parts) {
      map.push([source.name + suffix, file]);
      total += bytes;
    }
  }
  map.sort(([a], [b]) => compareNames(a, b));
  // No object, which would put names that are numbers first.
  const lines = map.map(([name, file]) => `    ${JSON.stringify(name)}: ${JSON.stringify(file)}`);
  const metadata = `  "metadata": {\n    "total_size": ${total}\n  }`;
  const bytes = new TextEncoder().encode(`{\n${metadata},\n  "weight_map": {\n${lines.join(',\n')}\n  }\n}\n`);
  return { suffix: '.index.json', isIndex: true, size: bytes.length, segments: [{ at: 0, bytes }] };
}

/** Bytes of all parts of a tensor, which stay together. */
function storedSize({ parts }: PlannedTensor): number {
  return parts.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Lays out the files of a result: one; or an index, and files with whole tensors. */
function filesOf(
  tensors: readonly PlannedTensor[],
  metadata: Readonly<Record<string, string>>,
  choices: SafetensorsChoices,
  output: string,
): OutputFile[] {
  const sizes = tensors.map(storedSize);
  const limit = shardLimit(choices, sizes);
  const begins = limit === undefined ? [0] : shardsOf(sizes, limit);
  if (begins.length === 1) return [{ suffix: '', ...layOut(tensors, metadata) }];
  const files = begins.map((begin, i): OutputFile => {
    const suffix = shardSuffix(i, begins.length, extension);
    return { suffix, replaces: extension, ...layOut(tensors.slice(begin, begins[i + 1]), metadata, begin) };
  });
  const names = files.map((file) => fileName(output, file));
  let shard = 0;
  const index = indexOf(tensors, (tensor) => {
    while (tensor >= (begins[shard + 1] ?? tensors.length)) shard++;
    return names[shard] as string;
  });
  return [index, ...files];
}

/**
 * Plans a safetensors result.
 *
 * Integers, by default packed in groups of 128 (`pack-quantized`): the weights of linear layers are converted, unless their names say
 * norm, embedding, lm_head, bias, router or the like, or they would not become smaller. Where 128 does not divide all rows that become
 * int8, their groups are of 64 or 32, and if these do not divide them either, each row has one scale. Rows that given groups, or those
 * of int4, do not divide are kept.
 *
 * float8e4m3fn: the same weights, per channel and as they are (`float-quantized`).
 *
 * Floats: every F32, F64, F16 and BF16 tensor is cast.
 * @param tensors of which none has codes, or else codes together with their scales, to be quantized again
 * @param isModel false for an array that is no part of a model: then names mean nothing, and there is nothing to configure
 * @param output the name of the result, by which an index names its files
 * @throws ScalepointError `BAD_FILE` if the header would be too long
 */
export function planSafetensors(
  tensors: readonly LogicalTensor[],
  metadata: Readonly<Record<string, string>>,
  choices: SafetensorsChoices,
  partsOf: PartsOf,
  isModel = true,
  output = `model${extension}`,
): FilePlan {
  const names = new Set(tensors.map(({ name }) => name));
  const planner = new Planner(tensors, names, choices, isModel, partsOf);
  const { planned, left } = planner.decide(tensors);
  const quantizationConfig = isModel ? describe(planned, choices.activations) : undefined;
  return {
    format: 'safetensors',
    files: filesOf(planned, metadata, choices, output),
    tensors: planned,
    notes: [
      ...(isModel && choices.to !== 'copy' ? notesOf(planned, left, choices) : []),
      ...largeNote(
        choices,
        planned.map(({ source }) => source),
        planned.map(storedSize),
      ),
    ],
    sidecars: quantizationConfig === undefined ? [] : [{ option: 'config', value: quantizationConfig }],
  };
}

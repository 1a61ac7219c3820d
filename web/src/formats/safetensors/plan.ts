/**
 * Plans safetensors results: floats of another type, or codes in the layout of the target. Names, shapes, offsets and the configuration
 * follow from the headers of the input, and from the files beside it.
 */

import { ScalepointError } from '../../core/errors.js';
import type { CastForm, CastType } from '../codecs/cast.js';
import type { Form, Part } from '../codecs/codec.js';
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
import { type Rule, ruleFor } from '../options.js';
import { cachedReason, dtypeReason, nonFloatReason, type Reason, rankReason, reasons } from '../reason.js';
import { largeNote, shardLimit, shardSuffix, shardsOf } from '../shards.js';
import type { Statistics } from '../statistics.js';
import {
  type Copies,
  compareNames,
  convertedLogical,
  elementCount,
  keptLogical,
  keptTensor,
  partName,
} from '../tensors.js';
import type { WeightNames } from '../weight-names.js';
import type { TensorDType } from './header.js';
import { SafetensorsInputStatistics } from './inputs.js';
import { keeperByName } from './keep.js';
import type {
  Fields,
  LayoutPlan,
  LayoutStart,
  PlanLayout,
  SafetensorsChoices,
  WeightToStore,
} from './layouts/layout.js';
import { codedLayoutOf, codeWriterOf, isCoded, quantizedLayoutOf } from './layouts/registry.js';
import { sourceNotes } from './layouts/source-note.js';
import { type Left, notesOnLeft } from './notes.js';
import { granularityOf, hasSharedGranularity } from './options.js';
import { own } from './reasons.js';
import { castOf, knownGroupsOf, safetensorsTargets, takesOption } from './targets.js';
import { layoutListed } from './write-header.js';

/** Types that can be converted. */
const floatTypes: readonly string[] = ['F32', 'F16', 'BF16', 'F64'];

const complexReason = own({ kind: 'complex' });
const smallFloatReason = cachedReason((bits: number) => own({ kind: 'smallFloat', bits }));

/** Reason not to convert a tensor of an unsupported type. */
function strangeType(dtype: string): Reason {
  const [, bits] = /^F([468])_?/.exec(dtype) ?? [];
  if (bits !== undefined) return smallFloatReason(Number(bits));
  return dtype === 'C64' ? complexReason : nonFloatReason(dtype);
}

/** A tensor with its choice before the others are known. */
interface Wish extends WeightToStore {
  /** The stored tensor, if it is a single one without scales; undefined for stacked ones. */
  readonly stored: SourceTensor | undefined;
  /** Bytes of the floats. */
  readonly bytes: number;
  readonly rule: Rule | undefined;
  /** Reason to keep it. */
  kept: Reason | undefined;
  /** Option that would convert it, if there is one. */
  left: 'include' | 'rule' | undefined;
}

function wishOf(source: LogicalTensor, rule: Rule | undefined, to: string): Wish {
  const { tensor } = source.parts[0] as LogicalTensor['parts'][number];
  const layout = codedLayoutOf(source.form);
  const stored = layout === undefined && source.gathered === undefined ? tensor : undefined;
  const dtype = layout === undefined ? tensor.dtype : layout.floats(source.form);
  const bytes =
    layout === undefined
      ? tensor.bytes * source.parts.length
      : (elementCount(source.shape) ?? 0) * (dtype === 'F32' ? 4 : 2);
  return { source, stored, dtype, bytes, rule, to, kept: undefined, left: undefined };
}

/** Parts of one form, by the array of a shape. Equal shapes may be distinct arrays. */
interface PartsByShape {
  readonly byArray: Map<readonly number[], readonly Part[]>;
  readonly byNumbers: Map<string, readonly Part[]>;
}

/** The decisions about all tensors. */
interface Decided {
  readonly planned: readonly PlannedTensor[];
  /** Kept weights that an option would convert. */
  readonly left: readonly Left[];
}

/** Decides about the tensors of a file. */
class Planner {
  readonly #choices: SafetensorsChoices;
  readonly #isModel: boolean;
  readonly #makeParts: PartsOf;
  readonly #casts: Readonly<Record<CastType, CastForm>> = {
    F32: { codec: 'cast', to: 'F32' },
    F16: { codec: 'cast', to: 'F16' },
    BF16: { codec: 'cast', to: 'BF16' },
  };
  readonly #parts = new Map<Form, PartsByShape>();
  readonly #copies: Copies = new Map();
  readonly #ends = new Map<string, boolean>();
  readonly #tensors: readonly LogicalTensor[];
  #names: ReadonlySet<string> | undefined;
  /** Undefined without targets of codes. */
  readonly #layout: LayoutPlan | undefined;
  readonly #keptByName: (name: string) => Reason | undefined;
  /** Weights that loaders would take for floats. */
  readonly #taken = new Map<string, Reason>();

  readonly #inputs: SafetensorsInputStatistics | undefined;

  /** @param isModel true if names have meaning */
  constructor(
    tensors: readonly LogicalTensor[],
    choices: SafetensorsChoices,
    isModel: boolean,
    partsOf: PartsOf,
    inputs: SafetensorsInputStatistics | undefined,
    layout: LayoutPlan | undefined,
  ) {
    this.#choices = choices;
    this.#inputs = inputs;
    this.#isModel = isModel;
    this.#makeParts = partsOf;
    this.#tensors = tensors;
    this.#layout = layout;
    this.#keptByName = isModel ? (layout?.keptByName ?? keeperByName(tensors)) : () => undefined;
  }

  decide(): Decided {
    let decided = this.#decideOnce();
    // Keep weights that would be read wrongly. This may change the groups of others, and so which weights become codes.
    for (;;) {
      const found = this.#layout?.takenForFloats?.(decided.planned) ?? [];
      const before = this.#taken.size;
      for (const [name, reason] of found) this.#taken.set(name, reason);
      if (this.#taken.size === before) break;
      decided = this.#decideOnce();
    }
    const weigh = (tensor: PlannedTensor) =>
      isCoded(tensor) ? this.#inputs?.weighed(tensor, this.#layout?.weighing) : undefined;
    return { ...decided, planned: decided.planned.map((tensor) => weigh(tensor) ?? tensor) };
  }

  #decideOnce(): Decided {
    const wishes = this.#tensors.map((source) => this.#wish(source));
    const groupSizes = this.#groupSizes(wishes);
    const left: Left[] = [];
    const planned = wishes.map((wish) => {
      const { source, bytes, kept } = wish;
      if (kept !== undefined) {
        left.push(...this.#leftOf(wish, kept, groupSizes.get(wish.to)));
        return this.#keep(wish, kept);
      }
      const cast = castOf(wish.to);
      if (cast !== undefined) return this.#cast(source, cast);
      const groupSize = this.#groupSizeOf(wish, groupSizes.get(wish.to));
      const groups = this.#uncutGroups(wish, groupSize);
      const form = this.#formOf(wish, groups === undefined ? groupSize : undefined);
      const misfit = this.#misfit(wish, form);
      if (misfit !== undefined) return this.#keep(wish, misfit);
      if (groups !== undefined) {
        const reason = { kind: 'notDivisible', dimension: source.shape.at(-1) as number, by: groups.size } as const;
        left.push({ source, bytes, reason, by: 'groups', groups });
        return this.#keep(wish, reason);
      }
      return convertedLogical(source, form, this.#partsOf(source.shape, form));
    });
    return { planned, left };
  }

  /** A kept weight, if an option would convert it. @param usual default group size of its target */
  #leftOf(wish: Wish, reason: Reason, usual: number | undefined): Left[] {
    const { source, bytes, left: by } = wish;
    if (by === undefined) return [];
    // Default groups adapt to the rows that become codes.
    const groupSize = this.#groupSizeOf(wish, this.#hasChoice(wish) ? undefined : usual);
    const groups = this.#uncutGroups(wish, groupSize);
    const misfit = this.#misfit(wish, this.#formOf(wish, groups === undefined ? groupSize : undefined));
    const fits = misfit === undefined || (by === 'rule' && misfit.kind === 'notSmaller');
    return fits ? [{ source, bytes, reason, by, groups }] : [];
  }

  /** Groups, with the option that sets them, if they do not divide the rows of a weight. */
  #uncutGroups({ source, to, rule }: Wish, groupSize: number | undefined): Left['groups'] {
    if (groupSize === undefined || (source.shape.at(-1) as number) % groupSize === 0) return undefined;
    const { rules = [] } = this.#choices;
    const isShared = rule?.granularity === undefined && hasSharedGranularity(this.#choices, to);
    const path = rule === undefined || isShared ? 'granularity' : `rules[${rules.indexOf(rule)}].granularity`;
    return { path, size: groupSize, isFixed: knownGroupsOf(to) !== undefined };
  }

  #partsOf(shape: readonly number[], form: Form): readonly Part[] {
    let known = this.#parts.get(form);
    if (known === undefined) {
      known = { byArray: new Map(), byNumbers: new Map() };
      this.#parts.set(form, known);
    }
    const found = known.byArray.get(shape);
    if (found !== undefined) return found;
    const key = shape.join();
    const parts = known.byNumbers.get(key) ?? this.#makeParts(shape, form);
    known.byNumbers.set(key, parts);
    known.byArray.set(shape, parts);
    return parts;
  }

  #wish(source: LogicalTensor): Wish {
    const { rules, to: target } = this.#choices;
    const rule = rules && ruleFor(rules, source.name);
    const to = rule?.to ?? target;
    const wish = wishOf(source, rule, to);
    const cast = castOf(to);
    if (rule?.keep) wish.kept = reasons.rule;
    else if (to === 'copy') wish.kept = reasons.copy;
    else if (!floatTypes.includes(wish.dtype)) wish.kept = strangeType(wish.dtype);
    else if (cast === undefined) this.#obstruct(wish);
    else if (wish.stored?.dtype === cast) wish.kept = reasons.sameType;
    return wish;
  }

  /** Finds reasons against codes of any form. */
  #obstruct(wish: Wish): void {
    const { source, dtype, bytes, rule } = wish;
    const { name, shape } = source;
    // Check obstacles that rules cannot override.
    if (shape.length === 0) wish.kept = rankReason(0);
    else if (bytes === 0) wish.kept = reasons.empty;
    else if (shape.length === 1) wish.kept = this.#keptByName(name) ?? rankReason(1);
    else wish.kept = this.#taken.get(name) ?? this.#layout?.obstacle?.(wish);
    if (wish.kept !== undefined || rule !== undefined) return;
    wish.kept = this.#keptByName(name);
    if (wish.kept !== undefined) {
      // Scales and zero points belong to weights that are codes already.
      if (wish.kept.kind !== 'scale' && wish.kept.kind !== 'zeroPoint') wish.left = 'rule';
      return;
    }
    wish.kept = this.#layout?.notLinear?.(name, shape);
    if (wish.kept !== undefined && takesOption(wish.to, 'include')) wish.left = 'include';
    if (wish.kept !== undefined) return;
    // Quantize float64 from a .npy file: it is numpy's default type, and the file was chosen for quantizing.
    if (this.#isModel && dtype === 'F64') {
      wish.kept = dtypeReason(dtype);
      wish.left = 'rule';
    }
  }

  /** Reason why codes of a tensor cannot be stored, or do not pay. */
  #misfit({ source, bytes, rule }: Wish, form: Form): Reason | undefined {
    const parts = this.#partsOf(source.shape, form);
    let size = 0;
    for (const part of parts) {
      const { role, suffix } = part;
      if (this.#isEnd(suffix) && this.#hasName(partName(source.name, part))) return own({ kind: 'nameTaken', role });
      size += part.bytes;
    }
    return rule === undefined && size >= bytes ? reasons.notSmaller : undefined;
  }

  /** True if a stored tensor that the result may hold has this name. */
  #hasName(name: string): boolean {
    this.#names ??= new Set(this.#tensors.map((tensor) => tensor.name));
    return this.#names.has(name);
  }

  /** True if a name of the model ends with a part's suffix. Mostly false, which avoids building names. */
  #isEnd(suffix: string): boolean {
    if (suffix === '') return false;
    const known = this.#ends.get(suffix);
    if (known !== undefined) return known;
    let isEnd = false;
    for (const { name } of this.#tensors) isEnd ||= name.endsWith(suffix);
    this.#ends.set(suffix, isEnd);
    return isEnd;
  }

  /** Default group size of each target with codes: the first of its sizes that divides all rows. */
  #groupSizes(wishes: readonly Wish[]): ReadonlyMap<string, number | undefined> {
    const rows = new Map<string, Set<number>>();
    for (const wish of wishes) {
      const { source, to, kept } = wish;
      if (kept !== undefined || source.shape.length !== 2 || !this.#hasChoice(wish)) continue;
      const lengths = rows.get(to) ?? new Set();
      rows.set(to, lengths);
      if (this.#misfit(wish, this.#formOf(wish, undefined)) === undefined) lengths.add(source.shape[1] as number);
    }
    return new Map(
      safetensorsTargets.map((to) => {
        const [first, ...others] = this.#layout?.groupSizes(to) ?? [];
        const lengths = [...(rows.get(to) ?? [])];
        const divides = (size: number | undefined) => lengths.every((columns) => columns % (size ?? 1) === 0);
        return [to, others.length === 0 ? first : [first, ...others].find(divides)];
      }),
    );
  }

  /** True if a weight gets groups of a default size. */
  #hasChoice(wish: Wish): boolean {
    const sizes = this.#layout?.groupSizes(wish.to).length ?? 0;
    return sizes > 1 && this.#asked(wish) === undefined;
  }

  /** Requested granularity. */
  #asked({ to, rule }: Wish) {
    return granularityOf(this.#choices, to, rule);
  }

  /** Elements that share a scale; undefined for whole rows. @param usual that of the target, if the options leave it open */
  #groupSizeOf(wish: Wish, usual: number | undefined): number | undefined {
    if ((this.#layout?.groupSizes(wish.to).length ?? 0) === 0) return undefined;
    const asked = this.#asked(wish);
    // Use whole rows where groups would cross inner dimensions.
    const hasGroups = wish.source.shape.length === 2 || this.#layout?.groupsStacked === true;
    if (!hasGroups || asked?.kind === 'per-channel') return undefined;
    return asked === undefined ? usual : asked.groupSize;
  }

  #formOf(wish: Wish, groupSize: number | undefined): Form {
    if (this.#layout === undefined) throw new Error(`no layout has the target ${wish.to}`);
    return this.#layout.formOf(wish, groupSize);
  }

  /** Keeps a tensor. Codes are restored to floats, because the configuration cannot describe copies of them. */
  #keep({ source, stored, dtype, rule }: Wish, kept: Reason): PlannedTensor {
    const floats = rule === undefined && floatTypes.includes(dtype) ? this.#layout?.floats : undefined;
    if (stored === undefined || (floats ?? dtype) !== dtype) {
      return this.#cast(source, floats ?? (dtype === 'F64' ? 'F32' : (dtype as CastType)));
    }
    return source.isRenamed ? keptLogical(source, kept) : keptTensor(stored, kept, this.#copies);
  }

  #cast(source: LogicalTensor, to: CastType): PlannedTensor {
    const form = this.#casts[to];
    return convertedLogical(source, form, this.#partsOf(source.shape, form));
  }
}

/** Statistics of the inputs of a model's weights, and the names that they have for them. */
interface NamedStatistics {
  readonly statistics: Statistics;
  readonly names?: WeightNames | undefined;
}

/** Joins consecutive known bytes. */
function joined(list: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(list.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of list) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

/** A part whose type safetensors has. */
type StoredPart = Part & { readonly dtype: TensorDType };

/** Lays out a file, with segments in order. @param first index in the plan of the file's first tensor */
function layOut(
  tensors: readonly PlannedTensor[],
  metadata: Readonly<Record<string, string>>,
  first = 0,
): Omit<OutputFile, 'suffix'> {
  // Index parts: the tensor of each, and its number in the tensor.
  const count = tensors.reduce((sum, { parts }) => sum + parts.length, 0);
  const owners = new Uint32Array(count);
  const numbers = new Uint8Array(count);
  let at = 0;
  for (let tensor = 0; tensor < tensors.length; tensor++) {
    const { length } = (tensors[tensor] as PlannedTensor).parts;
    for (let part = 0; part < length; part++) {
      owners[at] = tensor;
      numbers[at++] = part;
    }
  }
  // Lay out the header and the offsets of parts.
  const ownerOf = (index: number) => tensors[owners[index] as number] as PlannedTensor;
  const partOf = (index: number) => ownerOf(index).parts[numbers[index] as number] as StoredPart;
  const nameOf = (index: number) => partName(ownerOf(index).source.name, partOf(index));
  const { header, size, order, offsets } = layoutListed({ count, nameOf, kindOf: partOf }, metadata);
  // Make a segment for each part, joining consecutive known bytes.
  const segments: Segment[] = [{ at: 0, made: header }];
  let known: Uint8Array[] = [];
  let knownAt = 0;
  const flush = () => {
    if (known.length > 0) segments.push({ at: knownAt, bytes: joined(known) });
    known = [];
  };
  for (const index of order) {
    const part = partOf(index);
    const at = offsets[index] as number;
    if (part.constant === undefined) {
      flush();
      segments.push({ at, tensor: first + (owners[index] as number), role: part.role });
      continue;
    }
    if (known.length === 0) knownAt = at;
    known.push(part.constant);
  }
  flush();
  return { size, segments };
}

const extension = '.safetensors';

/** The index of a model's files, with the indentation and order of transformers. */
function indexOf(tensors: readonly PlannedTensor[], more: Fields, fileOf: (tensor: number) => string): OutputFile {
  const map: (readonly [name: string, file: string])[] = [];
  let total = 0;
  for (const [i, { source, parts }] of tensors.entries()) {
    const file = fileOf(i);
    for (const part of parts) {
      map.push([partName(source.name, part), file]);
      total += part.bytes;
    }
  }
  map.sort(([a], [b]) => compareNames(a, b));
  // Build the text directly: an object would move numeric names to the front.
  const lines = map.map(([name, file]) => `    ${JSON.stringify(name)}: ${JSON.stringify(file)}`);
  const facts = Object.entries({ total_size: total, ...more }).map(
    ([key, value]) => `    ${JSON.stringify(key)}: ${JSON.stringify(value)}`,
  );
  const metadata = `  "metadata": {\n${facts.join(',\n')}\n  }`;
  const bytes = new TextEncoder().encode(`{\n${metadata},\n  "weight_map": {\n${lines.join(',\n')}\n  }\n}\n`);
  return { suffix: '.index.json', isIndex: true, size: bytes.length, segments: [{ at: 0, bytes }] };
}

/** Bytes of all parts of a tensor, which share a file. */
function storedSize({ parts }: PlannedTensor): number {
  return parts.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Lays out the files of a result: one; or an index, and files with whole tensors. */
function filesOf(
  tensors: readonly PlannedTensor[],
  metadata: Readonly<Record<string, string>>,
  choices: SafetensorsChoices,
  output: string,
  layout: LayoutPlan | undefined,
): OutputFile[] {
  const sizes = tensors.map(storedSize);
  const limit = shardLimit(choices, sizes) ?? layout?.shardBytes;
  const begins = limit === undefined ? [0] : shardsOf(sizes, limit);
  if (begins.length === 1) return [{ suffix: '', ...layOut(tensors, metadata) }];
  const files = begins.map((begin, i): OutputFile => {
    const suffix = shardSuffix(i, begins.length, extension);
    return { suffix, replaces: extension, ...layOut(tensors.slice(begin, begins[i + 1]), metadata, begin) };
  });
  const names = files.map((file) => fileName(output, file));
  let shard = 0;
  const index = indexOf(tensors, layout?.indexMetadata?.(tensors) ?? {}, (tensor) => {
    while (tensor >= (begins[shard + 1] ?? tensors.length)) shard++;
    return names[shard] as string;
  });
  return [index, ...files];
}

/** Inputs of a plan besides tensors and choices. */
interface PlanSetting {
  readonly metadata: Readonly<Record<string, string>>;
  readonly partsOf: PartsOf;
  /** False for a bare array, whose name has no meaning and which has no configuration. */
  readonly isModel: boolean;
  /** Name of the result, from which those of its files derive. @defaultValue model.safetensors */
  readonly output?: string | undefined;
  readonly inputs?: NamedStatistics;
  /** Objects in the JSON files beside the model that the writer of its layout reads. */
  readonly beside?: LayoutStart['beside'];
  /** Makes the decisions of the layout. @defaultValue that of the writer */
  readonly planLayout?: PlanLayout | undefined;
}

/**
 * Plans a safetensors result.
 *
 * Integers, by default packed in groups of 128 (`pack-quantized`): the weights of linear layers are converted, unless their names say norm,
 * embedding, lm_head, bias, router or the like, or they would not become smaller. Where 128 does not divide all rows that become int8,
 * their groups are of 64 or 32, and if these do not divide them either, each row has one scale. Rows that given groups, or those of int4,
 * do not divide are kept.
 *
 * float8e4m3fn: the same weights, per channel and as they are (`float-quantized`).
 *
 * Floats: every F32, F64, F16 and BF16 tensor is cast.
 * @param tensors plain tensors, and codes together with their scales if they are to be quantized again
 * @throws ScalepointError `BAD_FILE` if the header is too long, or if the statistics are those of another model; `UNKNOWN_FORMAT` if the
 * layout does not know the model
 */
export function planSafetensors(
  tensors: readonly LogicalTensor[],
  choices: SafetensorsChoices,
  {
    metadata,
    partsOf,
    isModel,
    output = `model${extension}`,
    inputs: named,
    beside = new Map(),
    planLayout = codeWriterOf(choices)?.plan,
  }: PlanSetting,
): FilePlan {
  if (!isModel && codeWriterOf(choices)?.forKnownModels) {
    const message = `${choices.to} is for models that are known by names, not for a single array`;
    throw new ScalepointError('UNKNOWN_FORMAT', message);
  }
  const { statistics = {}, names } = named ?? {};
  const inputs = statistics.importance && new SafetensorsInputStatistics(statistics, choices, names);
  const layout = planLayout?.({ tensors, choices, isModel, beside });
  const all = layout?.tensors ?? tensors;
  const { planned: decided, left } = new Planner(all, choices, isModel, partsOf, inputs, layout).decide();
  const planned = layout?.finish?.(decided) ?? decided;
  const converted = planned.filter(isCoded);
  return {
    format: 'safetensors',
    files: filesOf(planned, layout?.metadata?.(metadata) ?? metadata, choices, output, layout),
    tensors: planned,
    ...(planned.some(({ moments }) => moments !== undefined) ? { moments: statistics.moments?.file } : {}),
    notes: [
      ...(choices.to === 'copy' ? [] : sourceNotes(all)),
      ...(inputs?.notes() ?? []),
      ...(isModel && choices.to !== 'copy'
        ? [...(layout?.notes(planned) ?? []), ...notesOnLeft(converted, left, choices.to)]
        : []),
      ...largeNote(
        choices,
        planned.map(({ source }) => source),
        planned.map(storedSize),
      ),
    ],
    decoded: [...new Set(all.flatMap(({ form }) => quantizedLayoutOf(form)?.quantMethods ?? []))],
    sidecars: isModel ? (layout?.sidecars(planned) ?? []) : [],
  };
}

/**
 * Plans safetensors results: floats of another type, or codes in the layout of the target. Names, shapes, offsets and the configuration
 * follow from the headers of the input, and from the files beside it.
 */

import { ScalepointError } from '../../core/errors.js';
import { type Note, noteOf } from '../../core/note.js';
import { mention, type OptionMention } from '../../core/option-problem.js';
import type { CastForm, CastType } from '../codecs/cast.js';
import type { Form, Part } from '../codecs/codec.js';
import { changesElements } from '../codecs/elements.js';
import { grouped, joinedBytes, quotedNames } from '../files/bytes.js';
import type { FilePlan, LogicalTensor, OutputFile, PartsOf, PlannedTensor, Segment, SourceTensor } from '../format.js';
import { type Rule, ruleFor } from '../options.js';
import { cachedReason, dtypeReason, nonFloatReason, type Reason, rankReason, reasons } from '../reason.js';
import { fileName, largeNote, shardLimit, shardSuffix, shardsOf } from '../shards.js';
import type { Statistics } from '../statistics.js';
import { type Copies, compareNames, elementCount, keptLogical, keptTensor, partName } from '../tensors.js';
import type { WeightNames } from '../weight-names.js';
import { WeightStatistics } from '../weight-statistics.js';
import type { TensorDType } from './header.js';
import { keeperByName } from './keep.js';
import type {
  Fields,
  LayoutPlan,
  LayoutStart,
  PlanLayout,
  SafetensorsChoices,
  WeightToStore,
} from './layouts/layout.js';
import {
  codedLayoutOf,
  granularityFor,
  hasSharedGranularity,
  layoutOfCodes,
  quantizedLayoutOf,
  safetensorsTargets,
  sourceNotes,
  targetRows,
} from './layouts/registry.js';
import { layoutListed } from './write-header.js';

// -------------------------------------------------------------------------------------------------------------------------- notes

/** A kept weight that an option or a rule would convert. */
interface LeftWeight {
  readonly source: LogicalTensor;
  /** Size as floats. */
  readonly bytes: number;
  readonly reason: Reason;
  /** Remedy: another size of groups alone, `include: 'all'`, or a rule. */
  readonly by: 'groups' | 'include' | 'rule';
  /** Groups that do not divide its rows. */
  readonly groups: UncutGroups | undefined;
}

/** Groups that do not divide the rows of a weight. */
interface UncutGroups {
  /** Path of the granularity that sets them. */
  readonly path: string;
  readonly size: number;
  /** True if the target has no other choice than groups. */
  readonly isFixed: boolean;
}

/** Number of elements in a row. */
const columnsOfLeft = ({ source }: LeftWeight) => source.shape.at(-1) as number;

/** The note about weights that stay floats. @param why words behind their number @param remedy options that convert them, with words */
function leftNote(
  kind: string,
  left: readonly LeftWeight[],
  { why, remedy }: { readonly why: string; readonly remedy: readonly (string | OptionMention)[] },
  data: object = {},
): Note {
  const stay = left.length === 1 ? '1 weight stays' : `${left.length} weights stay`;
  return noteOf(kind, { tensors: left.map(({ source }) => source.name), ...data }, stay + why, ...remedy);
}

/** An option that converts weights, with one for their groups if these do not divide all rows. */
function remedyFor(option: OptionMention | undefined, left: readonly LeftWeight[]): (string | OptionMention)[] {
  const options = option === undefined ? [] : [option];
  const uncut = left.flatMap((one) =>
    one.groups === undefined ? [] : [{ ...one.groups, columns: columnsOfLeft(one) }],
  );
  const [first] = uncut;
  if (first !== undefined) {
    const most = uncut.reduce((largest, { size }) => Math.max(largest, size), 0);
    const usual = new Set(safetensorsTargets.flatMap((to) => targetRows.get(to)?.groupSizes ?? []));
    const groupSize = [...usual]
      .sort((a, b) => b - a)
      .find((size) => size < most && uncut.every(({ columns }) => columns % size === 0));
    // Some loaders know no rows without groups.
    if (groupSize !== undefined) options.push(mention(first.path, { kind: 'per-group', groupSize }));
    else if (!uncut.some(({ isFixed }) => isFixed)) options.push(mention(first.path, { kind: 'per-channel' }));
  }
  if (options.length === 0) return [];
  const all = options.flatMap((one, i) => (i === 0 ? [one] : [' and ', one]));
  return ['; ', ...all, ` ${options.length > 1 ? 'convert' : 'converts'} ${left.length === 1 ? 'it' : 'them'}`];
}

const bytesOfAll = (list: readonly { readonly bytes: number }[]) => list.reduce((sum, { bytes }) => sum + bytes, 0);

/** Notes about options that would convert kept weights. */
function notesOnLeft(converted: readonly PlannedTensor[], left: readonly LeftWeight[], to: string): Note[] {
  const byRule = mention('rules[].to', to);
  const rows = left.filter(({ by }) => by === 'groups');
  const ruled = left.filter(({ by }) => by === 'rule');
  const doubles = ruled.filter(({ reason }) => reason.kind === 'dtype');
  const named = ruled.filter(({ reason }) => reason.kind !== 'dtype');
  const others = left.filter(({ by }) => by === 'include');
  const notes = [...grouped(rows, ({ groups }) => groups?.path).values()].map((some) => {
    const columns = [...new Set(some.map(columnsOfLeft))];
    const groupSizes = [...new Set(some.flatMap(({ groups }) => groups?.size ?? []))];
    const few = columns.length > 3 ? `${columns.slice(0, 3).join(', ')} and others` : columns.join(', ');
    const why = `: rows of ${few} cannot be divided into groups of ${groupSizes.join(' or ')}`;
    return leftNote('leftRows', some, { why, remedy: remedyFor(undefined, some) }, { columns, groupSizes });
  });
  if (doubles.length > 0)
    notes.push(leftNote('leftDoubles', doubles, { why: ', as float64', remedy: remedyFor(byRule, doubles) }));
  // Ignore a few small ones among many, such as the first layer of a vision transformer.
  const convertedBytes = () =>
    bytesOfAll(converted.flatMap(({ source: { parts } }) => parts.map(({ tensor }) => tensor)));
  if (others.length > 0 && bytesOfAll(others) > convertedBytes()) {
    const readers = ', for programs that read the file with Scalepoint';
    const remedy = [...remedyFor(mention('include', 'all'), others), readers];
    notes.push(leftNote('leftLayers', others, { why: ': loaders decode linear layers only', remedy }));
  }
  // Most models keep such weights on purpose. Name the remedy only if there is nothing else.
  if (named.length > 0 && converted.length + rows.length + doubles.length + others.length === 0)
    notes.push(leftNote('leftByName', named, { why: ', because of their names', remedy: remedyFor(byRule, named) }));
  return notes;
}

// ----------------------------------------------------------------------------------------------------------------- each tensor alone

/** Types that can be converted. */
const floatTypes: readonly string[] = ['F32', 'F16', 'BF16', 'F64'];

const smallFloatReason = cachedReason((bits: number) => ({ kind: 'smallFloat', bits }));

/** Inputs of a plan besides tensors and choices. */
interface PlanSetting {
  readonly metadata: Readonly<Record<string, string>>;
  readonly partsOf: PartsOf;
  /** False for a bare array, whose name has no meaning and which has no configuration. */
  readonly isModel: boolean;
  /** Name of the result, from which those of its files derive. @defaultValue model.safetensors */
  readonly output?: string | undefined;
  /** Statistics of the inputs of the model's weights, and the names that they have for them. */
  readonly inputs?: { readonly statistics: Statistics; readonly names?: WeightNames | undefined };
  /** Objects in the JSON files beside the model that its layout reads. */
  readonly beside?: LayoutStart['beside'];
  readonly known?: LayoutStart['known'];
  /** Makes the decisions of the layout, if it loads them. @defaultValue its `plan` */
  readonly planLayout?: PlanLayout | undefined;
}

/** A tensor with its choice before the others are known. */
interface Candidate extends WeightToStore {
  /** The stored tensor, if it is a single one without scales; undefined for stacked ones. */
  readonly stored: SourceTensor | undefined;
  /** Bytes of the floats. */
  readonly bytes: number;
  readonly rule: Rule | undefined;
  /** Reason to keep it. */
  readonly kept?: Reason | undefined;
  /** Option that would convert it, if there is one. */
  readonly remedy?: 'include' | 'rule' | undefined;
}

/** Makes a function that chooses for tensors, each alone. */
function candidateMaker(
  tensors: readonly LogicalTensor[],
  { rules = [], to: target }: SafetensorsChoices,
  isModel: boolean,
  layout: LayoutPlan | undefined,
): (source: LogicalTensor) => Candidate {
  const keptByName = isModel ? (layout?.keptByName ?? keeperByName(tensors)) : () => undefined;
  return (source) => {
    const { name, shape, form, parts, gathered } = source;
    const { tensor } = parts[0] as LogicalTensor['parts'][number];
    const coded = codedLayoutOf(form);
    const stored = coded === undefined && gathered === undefined ? tensor : undefined;
    const dtype = coded === undefined ? tensor.dtype : coded.floats(form);
    const codedBytes = (elementCount(shape) ?? 0) * (dtype === 'F32' ? 4 : 2);
    const bytes = coded === undefined ? tensor.bytes * parts.length : codedBytes;
    const rule = ruleFor(rules, name);
    const to = rule?.to ?? target;
    const { cast, codes, options = [] } = targetRows.get(to) ?? {};
    const weight = { source, stored, dtype, bytes, rule, to, codes };
    // Find reasons against any change.
    if (rule?.keep) return { ...weight, kept: reasons.rule };
    if (to === 'copy') return { ...weight, kept: reasons.copy };
    if (!floatTypes.includes(dtype)) {
      const [, bits] = /^F([468])_?/.exec(dtype) ?? [];
      const other = dtype === 'C64' ? { kind: 'complex' } : nonFloatReason(dtype);
      return { ...weight, kept: bits === undefined ? other : smallFloatReason(Number(bits)) };
    }
    if (cast !== undefined) return stored?.dtype === cast ? { ...weight, kept: reasons.sameType } : weight;
    // Find reasons against codes that rules cannot override.
    if (shape.length === 0) return { ...weight, kept: rankReason(0) };
    if (bytes === 0) return { ...weight, kept: reasons.empty };
    if (shape.length === 1) return { ...weight, kept: keptByName(name) ?? rankReason(1) };
    const obstacle = layout?.obstacle?.(weight);
    if (obstacle !== undefined || rule !== undefined) return { ...weight, kept: obstacle };
    // Scales and zero points belong to weights that are codes already. A rule converts all others.
    const named = keptByName(name);
    const isPart = named?.kind === 'scale' || named?.kind === 'zeroPoint';
    if (named !== undefined) return { ...weight, kept: named, remedy: isPart ? undefined : 'rule' };
    const kept = layout?.notLinear?.(name, shape);
    if (kept !== undefined) return { ...weight, kept, remedy: options.includes('include') ? 'include' : undefined };
    // Quantize float64 from a .npy file: it is numpy's default type, and the file was chosen for quantizing.
    return isModel && dtype === 'F64' ? { ...weight, kept: dtypeReason(dtype), remedy: 'rule' } : weight;
  };
}

// -------------------------------------------------------------------------------------------------------------- all tensors together

/** Forms of floats, which all tensors share. */
const casts: Readonly<Record<CastType, CastForm>> = {
  F32: { codec: 'cast', to: 'F32' },
  F16: { codec: 'cast', to: 'F16' },
  BF16: { codec: 'cast', to: 'BF16' },
};

/** The decisions about all tensors. */
interface Decided {
  readonly planned: readonly PlannedTensor[];
  /** Kept weights that an option would convert. */
  readonly left: readonly LeftWeight[];
}

/** Decides about the tensors of a file. */
function decideAll(
  tensors: readonly LogicalTensor[],
  choices: SafetensorsChoices,
  { isModel, partsOf }: PlanSetting,
  layout: LayoutPlan | undefined,
): Decided {
  /** Parts that tensors of one shape and form share. Equal shapes may be distinct arrays. */
  const partsByForm = new Map<Form, Map<readonly number[] | string, readonly Part[]>>();
  const sharedParts: PartsOf = (shape, form) => {
    const known = partsByForm.get(form) ?? new Map<readonly number[] | string, readonly Part[]>();
    partsByForm.set(form, known);
    const found = known.get(shape);
    if (found !== undefined) return found;
    const numbers = shape.join();
    const parts = known.get(numbers) ?? partsOf(shape, form);
    known.set(numbers, parts).set(shape, parts);
    return parts;
  };
  /** Names of tensors by the suffix of a part. Mostly no tensor has one, and names of parts are not built. */
  const namesBySuffix = new Map<string, ReadonlySet<string>>();
  const copies: Copies = new Map();
  const candidates = tensors.map(candidateMaker(tensors, choices, isModel, layout));

  const castTo = (source: LogicalTensor, to: CastType): PlannedTensor => ({
    source,
    form: casts[to],
    parts: sharedParts(source.shape, casts[to]),
  });

  /** Keeps a tensor. Codes are restored to floats, because the configuration cannot describe copies of them. */
  const keep = ({ source, stored, dtype, rule }: Candidate, kept: Reason) => {
    const isCast = rule === undefined && floatTypes.includes(dtype) && layout?.keepsType?.(source.name) !== true;
    const floats = isCast ? layout?.floats : undefined;
    const changes = source.form.codec === 'cast' && changesElements(source.form as CastForm);
    if (stored === undefined || changes || (floats ?? dtype) !== dtype)
      return castTo(source, floats ?? (dtype === 'F64' ? 'F32' : (dtype as CastType)));
    return source.isRenamed ? keptLogical(source, kept) : keptTensor(stored, kept, copies);
  };

  /** The form of a weight with its parts, and the reason why these cannot be stored, or do not pay. */
  const formed = (candidate: Candidate, groupSize: number | undefined) => {
    const { source, to, bytes, rule } = candidate;
    if (layout === undefined) throw new Error(`no layout has the target ${to}`);
    const form = layout.formOf(candidate, groupSize);
    const parts = sharedParts(source.shape, form);
    const taken = parts.find((part) => {
      const { suffix } = part;
      if (suffix === '') return false;
      let names = namesBySuffix.get(suffix);
      if (names === undefined) {
        names = new Set(tensors.flatMap(({ name }) => (name.endsWith(suffix) ? [name] : [])));
        namesBySuffix.set(suffix, names);
      }
      return names.size > 0 && names.has(partName(source.name, part));
    });
    const size = parts.reduce((sum, part) => sum + part.bytes, 0);
    const isLarge = rule === undefined && size >= bytes;
    const misfit = taken ? { kind: 'nameTaken', role: taken.role } : isLarge ? reasons.notSmaller : undefined;
    return { form, parts, misfit };
  };

  /** The sizes of groups by default, of which all weights with the key get the first that divides all of their rows. */
  const defaultGroups = ({ to, source }: Candidate) => {
    const { groupSizes = [], expertGroups } = targetRows.get(to) ?? {};
    const isExpert = expertGroups !== undefined && /(^|\.)experts\.\d+\.\w+\.weight$/.test(source.name);
    return isExpert ? { key: `${to} experts`, sizes: expertGroups } : { key: to, sizes: groupSizes };
  };

  /** True if a weight gets groups of a default size, which depends on others. */
  const hasChoice = (candidate: Candidate) =>
    defaultGroups(candidate).sizes.length > 1 && granularityFor(choices, candidate.to, candidate.rule) === undefined;

  // Loaders of some layouts would take weights with codes for floats because of others. Keeping these may change the groups of others, and so
  // which weights become codes: decide again until no such weight is left.
  for (const taken = new Map<string, Reason>(); ; ) {
    // Collect the lengths of the rows that become codes, for each target with a choice of groups.
    const lengths = new Map<string, Set<number>>();
    for (const candidate of candidates) {
      const { source, kept } = candidate;
      const [, columns = 0, ...others] = source.shape;
      if (kept !== undefined || taken.has(source.name) || others.length > 0 || !hasChoice(candidate)) continue;
      const { key } = defaultGroups(candidate);
      const known = lengths.get(key) ?? new Set();
      lengths.set(key, known);
      if (formed(candidate, undefined).misfit === undefined) known.add(columns);
    }
    /** Default group sizes by key: the first that divides all rows. */
    const usualSizes = new Map<string, number | undefined>();
    const left: LeftWeight[] = [];
    const planned = candidates.map((candidate): PlannedTensor => {
      const { source, to, bytes, remedy, rule } = candidate;
      const { shape } = source;
      const kept = candidate.kept ?? taken.get(source.name);
      const { cast, knownGroups } = targetRows.get(to) ?? {};
      const { key, sizes } = defaultGroups(candidate);
      if (kept !== undefined && remedy === undefined) return keep(candidate, kept);
      if (kept === undefined && cast !== undefined) return castTo(source, cast);
      if (!usualSizes.has(key)) {
        const rows = sizes.length === 1 ? [] : [...(lengths.get(key) ?? [])];
        usualSizes.set(
          key,
          sizes.find((size) => rows.every((columns) => columns % size === 0)),
        );
      }
      // Find the elements that share a scale: undefined for whole rows, which also stand where groups would cross inner dimensions. Default
      // groups adapt to the rows that become codes.
      const adapts = kept !== undefined && hasChoice(candidate);
      const asked = granularityFor(choices, to, rule) ?? {
        kind: 'usual',
        groupSize: adapts ? undefined : usualSizes.get(key),
      };
      const hasGroups = sizes.length > 0 && (shape.length === 2 || layout?.groupsStacked === true);
      let size = hasGroups && asked.kind !== 'per-channel' ? asked.groupSize : undefined;
      let uncut: UncutGroups | undefined;
      if (size !== undefined && (shape.at(-1) ?? 1) % size !== 0) {
        const isShared = rule === undefined || (rule.granularity === undefined && hasSharedGranularity(choices, to));
        const path = isShared ? 'granularity' : `rules[${choices.rules?.indexOf(rule)}].granularity`;
        uncut = { path, size, isFixed: knownGroups !== undefined };
        size = undefined;
      }
      const { form, parts, misfit } = formed(candidate, size);
      const isRemedied = misfit === undefined || (remedy === 'rule' && misfit.kind === 'notSmaller');
      if (kept !== undefined && remedy !== undefined && isRemedied)
        left.push({ source, bytes, reason: kept, by: remedy, groups: uncut });
      if (kept !== undefined || misfit !== undefined) return keep(candidate, kept ?? (misfit as Reason));
      if (uncut === undefined) return { source, form, parts };
      const reason = { kind: 'notDivisible', dimension: shape.at(-1) as number, by: uncut.size } as const;
      left.push({ source, bytes, reason, by: 'groups', groups: uncut });
      return keep(candidate, reason);
    });
    const before = taken.size;
    for (const [name, reason] of layout?.takenForFloats?.(planned) ?? []) taken.set(name, reason);
    if (taken.size === before) return { planned, left };
  }
}

// -------------------------------------------------------------------------------------------------------------------------- files

/** Lays out a file, with segments in order. @param first index in the plan of the file's first tensor */
function laidOutFile(
  tensors: readonly PlannedTensor[],
  metadata: Readonly<Record<string, string>>,
  first = 0,
): Omit<OutputFile, 'suffix'> {
  // Index parts: the tensor of each, and its number in the tensor.
  const count = tensors.reduce((sum, { parts }) => sum + parts.length, 0);
  const owners = new Uint32Array(count);
  const numbers = new Uint8Array(count);
  let index = 0;
  for (const [owner, { parts }] of tensors.entries()) {
    for (let number = 0; number < parts.length; number++) {
      owners[index] = owner;
      numbers[index++] = number;
    }
  }
  // Lay out the header and the offsets of parts, whose types safetensors has.
  const partOf = (index: number) =>
    tensors[owners[index] as number]?.parts[numbers[index] as number] as Part & { dtype: TensorDType };
  const nameOf = (index: number) => partName(tensors[owners[index] as number]?.source.name ?? '', partOf(index));
  const { header, size, order, offsets } = layoutListed({ count, nameOf, kindOf: partOf }, metadata);
  // Make a segment for each part, joining consecutive known bytes.
  const segments: Segment[] = [{ at: 0, made: header }];
  for (let i = 0; i < order.length; ) {
    const index = order[i] as number;
    const at = offsets[index] as number;
    const known: Uint8Array[] = [];
    for (; i < order.length; i++) {
      const { constant } = partOf(order[i] as number);
      if (constant === undefined) break;
      known.push(constant);
    }
    if (known.length === 0) {
      segments.push({ at, tensor: first + (owners[index] as number), role: partOf(index).role });
      i++;
      continue;
    }
    segments.push({ at, bytes: joinedBytes(known) });
  }
  return { size, segments };
}

const extension = '.safetensors';

/** The index of a model's files, with the indentation and order of transformers. */
function indexFile(tensors: readonly PlannedTensor[], more: Fields, fileOf: (tensor: number) => string): OutputFile {
  const map = tensors.flatMap(({ source, parts }, i) =>
    parts.map((part) => [partName(source.name, part), fileOf(i)] as const),
  );
  map.sort(([a], [b]) => compareNames(a, b));
  const total = tensors.reduce((sum, { parts }) => sum + parts.reduce((all, { bytes }) => all + bytes, 0), 0);
  // Build the text directly: an object would move numeric names to the front.
  const lines = (entries: readonly (readonly [string, unknown])[]) =>
    entries.map(([key, value]) => `    ${JSON.stringify(key)}: ${JSON.stringify(value)}`).join(',\n');
  const metadata = `  "metadata": {\n${lines(Object.entries({ total_size: total, ...more }))}\n  }`;
  const bytes = new TextEncoder().encode(`{\n${metadata},\n  "weight_map": {\n${lines(map)}\n  }\n}\n`);
  return { suffix: '.index.json', isIndex: true, size: bytes.length, segments: [{ at: 0, bytes }] };
}

// ---------------------------------------------------------------------------------------------------------------------- the whole

/** Gives weights with codes the importance and the moments of their inputs. @throws ScalepointError `BAD_FILE` */
function withStatistics(
  planned: readonly PlannedTensor[],
  choices: SafetensorsChoices,
  { statistics, names }: NonNullable<PlanSetting['inputs']>,
  weighing: LayoutPlan['weighing'],
): Pick<FilePlan, 'tensors' | 'notes'> {
  const known = new WeightStatistics(statistics, choices);
  const notMatrices: string[] = [];
  let [asked, found] = [0, 0];
  const tensors = planned.map((tensor): PlannedTensor => {
    const { source, form } = tensor;
    const { name, shape } = source;
    if (weighing === undefined || codedLayoutOf(form) === undefined) return tensor;
    if (!weighing.takes(shape, form)) {
      notMatrices.push(name);
      return tensor;
    }
    asked++;
    const weight = { name, columns: shape[1] as number, names: names?.get(name) };
    const importance = known.importanceOf(weight);
    const feedback = known.feedbackOf(weight, importance !== undefined && weighing.feeds?.(form) !== false);
    if (importance === undefined) return tensor;
    found++;
    const data = { feedback, moments: known.momentsOf(weight), divergence: known.divergenceOf(weight) };
    return { ...tensor, form: weighing.add(form, importance), ...data };
  });
  if (asked > 0 && found === 0) {
    const message = 'the statistics have no entry for any weight of it: they are those of another model';
    throw new ScalepointError('BAD_FILE', message);
  }
  const text = `quantized without statistics, which count for matrices with rows of moderate length: ${quotedNames(notMatrices)}`;
  const notes = notMatrices.length === 0 ? [] : [noteOf('notWeighed', { tensors: notMatrices }, text)];
  return { tensors, notes: [...known.notes(), ...notes] };
}

/**
 * Plans a safetensors result.
 *
 * Integers, by default packed in groups of 128 (`pack-quantized`): the weights of linear layers are converted, unless their names say norm,
 * embedding, lm_head, bias, router or the like, or they would not become smaller. Where 128 does not divide all rows that become int8,
 * their groups are of 64 or 32, and if these do not divide them either, each row has one scale. Rows that given groups, or those of int4,
 * do not divide are kept, except that experts get the groups of int8.
 *
 * float8e4m3fn: the same weights, per channel and as they are (`float-quantized`).
 *
 * Floats: every F32, F64, F16 and BF16 tensor is cast.
 * @param tensors plain tensors, and codes together with their scales if they are to be quantized again
 * @throws ScalepointError `BAD_FILE` if the header is too long, or if the statistics are those of another model; `UNKNOWN_FORMAT` if the
 * layout does not know the model
 */
export function planSafetensors(...given: Parameters<typeof planInSteps>): FilePlan {
  const steps = planInSteps(...given);
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/** Plans as `planSafetensors`, and yields between steps that take long for many tensors. */
export function* planInSteps(
  tensors: readonly LogicalTensor[],
  choices: SafetensorsChoices,
  setting: PlanSetting,
): Generator<void, FilePlan> {
  const { metadata, isModel, output = `model${extension}`, inputs, beside = new Map(), known = {} } = setting;
  const coded = layoutOfCodes(choices);
  if (!isModel && coded?.forKnownModels) {
    const message = `${choices.to} is for models that are known by names, not for a single array`;
    throw new ScalepointError('UNKNOWN_FORMAT', message);
  }
  const start = { tensors, choices, codes: targetRows.get(choices.to)?.codes, isModel, beside, known };
  const layout = setting.planLayout?.(start) ?? coded?.plan?.(start);
  const all = layout?.tensors ?? tensors;
  const decided = decideAll(all, choices, setting, layout);
  yield;
  const weighed =
    inputs?.statistics.importance === undefined
      ? { tensors: decided.planned, notes: [] }
      : withStatistics(decided.planned, choices, inputs, layout?.weighing);
  const planned = layout?.finish?.(weighed.tensors) ?? weighed.tensors;
  const sizes = planned.map(({ parts }) => parts.reduce((sum, { bytes }) => sum + bytes, 0));
  // Lay out the files: one; or an index, and files with whole tensors.
  const stated = layout?.metadata?.(metadata) ?? metadata;
  const limit = shardLimit(choices, sizes) ?? layout?.shardBytes;
  const begins = limit === undefined ? [0] : shardsOf(sizes, limit);
  const files = begins.map((begin, i): OutputFile => {
    if (begins.length === 1) return { suffix: '', ...laidOutFile(planned, stated) };
    const suffix = shardSuffix(i, begins.length, extension);
    return { suffix, replaces: extension, ...laidOutFile(planned.slice(begin, begins[i + 1]), stated, begin) };
  });
  if (files.length > 1) {
    const names = files.map((file) => fileName(output, file));
    let shard = 0;
    const index = indexFile(planned, layout?.indexMetadata?.(planned) ?? {}, (tensor) => {
      while (tensor >= (begins[shard + 1] ?? planned.length)) shard++;
      return names[shard] as string;
    });
    files.unshift(index);
  }
  yield;
  const sources = planned.map(({ source }) => source);
  const converted = planned.filter(({ form }) => codedLayoutOf(form) !== undefined);
  const notes = [
    ...(choices.to === 'copy' ? [] : sourceNotes(all)),
    ...weighed.notes,
    ...(isModel && choices.to !== 'copy'
      ? [...(layout?.notes(planned) ?? []), ...notesOnLeft(converted, decided.left, choices.to)]
      : []),
    ...largeNote(choices, sources, sizes),
  ];
  yield;
  return {
    format: 'safetensors',
    files,
    tensors: planned,
    ...(planned.some(({ moments }) => moments !== undefined) ? { moments: inputs?.statistics.moments?.file } : {}),
    notes,
    decoded: [...new Set(all.flatMap(({ form }) => quantizedLayoutOf(form)?.quantMethods ?? []))],
    sidecars: isModel ? (layout?.sidecars(planned) ?? []) : [],
  };
}

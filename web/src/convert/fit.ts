/** Results of a given size: the error of each tensor in each type, and the types that fit best. */

import { ErrorSumsRecord } from '../core/door.js';
import { rangeError } from '../core/errors.js';
import { onlyWith, without } from '../core/option-problem.js';
import { elementsOf } from '../formats/codecs/elements.js';
import { codecOf } from '../formats/codecs/registry.js';
import type { FilePlan, PlannedTensor } from '../formats/format.js';
import { type PlanChoices, type Rule, ruleFor } from '../formats/options.js';
import { formatNamed, type ModelFormat } from '../formats/registry.js';
import { parseSize } from '../formats/shards.js';
import { chooseWithin, frontier } from './budget.js';
import { measureTensors } from './measuring.js';
import { rulesFor } from './mixture-rules.js';
import type { Opened } from './open.js';
import { makerOf, makersFor, type SizeOptions, sizeNames, targetError } from './options.js';
import { planFor, resultBytes } from './plan.js';
import type { WorkOptions } from './work-options.js';

// ------------------------------------------------------------------------------------------------------------------------- tables

/** A type that a tensor may have in a result, with its size and its error. */
interface TypeOption {
  /** Name of the type in rules; `keep` for a tensor that stays as it is. */
  readonly to: string;
  /** Bytes in the file, padding included. */
  readonly bytes: number;
  /**
   * weight · Σe² / Σx², with the weight of the tensor among all tensors, for codes without importance. With moments, e and x are those of
   * the tensor's outputs on the inputs that the moments were collected from. With measured divergences, the weight is that of the tensor: then
   * this is the expected divergence of the model's next token, in nats.
   */
  readonly error: number;
}

/** The error of each tensor of a model in each type. Plain data: it can be stored and sent. */
export interface TypeTable {
  /** Format whose types these are. */
  readonly format: ModelFormat;
  /** The given target. */
  readonly to: string;
  /** In the order of the input. */
  readonly tensors: readonly {
    /** Its name in the file. */
    readonly name: string;
    /** Number of its elements. */
    readonly elements: number;
    /** Name of its unit: tensors of one unit get one type, because loaders join them. Without a name, it is a unit of its own. */
    readonly unit?: string | undefined;
    /** The types that it may have, at least one. */
    readonly types: readonly TypeOption[];
  }[];
  /** Bytes of the result that belong to no tensor, such as its header. */
  readonly otherBytes: number;
  /** True if errors are expected divergences of the next token in nats, by data that measured them. */
  readonly isDivergence?: boolean | undefined;
}

type TensorTypes = TypeTable['tensors'][number];

/** A size, and the least error of a result of that size. */
export interface SizePoint {
  /** Size of the result. */
  readonly bytes: number;
  /** Sum of the tensors' errors. */
  readonly error: number;
}

/** The types with the least error in a size. */
export interface TypeFit {
  /** The target to use together with the rules. */
  readonly to: string;
  /** Rules for the tensors that have a choice of types; tensors of different layers share a rule. */
  readonly rules: readonly Rule[];
  /** Size of the result. Approximate for safetensors and ONNX. */
  readonly bytes: number;
  /** Sum of the errors of all tensors. */
  readonly error: number;
  /** A lower bound of the sum in this size. Equal to `error` if that is proven to be the least. */
  readonly bound: number;
  /** True if errors are expected divergences, as in the table. */
  readonly isDivergence?: boolean | undefined;
  /** The type of each tensor, in the order of the table. */
  readonly types: readonly TypeOption[];
}

// --------------------------------------------------------------------------------------------------------------------- measuring

/** A tensor in a type, as planned. */
interface PlannedType {
  readonly to: string;
  readonly tensor: PlannedTensor;
  readonly bytes: number;
}

/** The types that each tensor can have, from a plan for each type in which a rule gives it to all tensors that the target converts. */
async function plannedTypes(opened: Opened, given: PlanChoices, option: string) {
  // Importance alone says nothing of how tensors compare: types chosen by it lost more than those chosen by weights alone (guide 06).
  const { importance, moments: data, ...others } = given as PlanChoices & Record<'importance' | 'moments', unknown>;
  const choices: PlanChoices = data === undefined ? others : given;
  // Plan the target alone, to know which tensors it converts.
  const maker = makerOf(opened.format, choices.to);
  if (maker === undefined) throw targetError(opened.format, choices.to);
  const { format } = maker;
  const { mixtures, ruleTargets } = format;
  const types = mixtures?.types(choices.to);
  if (mixtures === undefined || types === undefined) throw rangeError(option, without('to', choices.to));
  const bytesIn = ({ parts }: PlannedTensor) => parts.reduce((sum, part) => sum + mixtures.stored(part.bytes), 0);
  const { rules = [] } = choices;
  const base = await planFor(opened, choices);
  const isOpen = ({ kept, source }: PlannedTensor) =>
    (kept === undefined || kept?.kind === 'sameType') && ruleFor(rules, source.name) === undefined;
  const open = base.tensors.map(isOpen);
  const names = base.tensors.flatMap(({ source }, i) => (open[i] ? [source.name] : []));
  const planned = async (to: string, by = choices): Promise<FilePlan> =>
    planFor(opened, { ...by, rules: [...rules, ...rulesFor(names.map((name) => [name, to]))] });
  const sum = ({ tensors }: FilePlan) => tensors.reduce((bytes, tensor) => bytes + bytesIn(tensor), 0);
  // Begin each list with the tensor as it is.
  const kept = await planned('keep');
  const otherThan = (plan: FilePlan) => resultBytes(plan) - sum(plan);
  const plainBytes = otherThan(kept);
  // Keys about importance make the header larger.
  const otherBytes =
    choices === given || importance === undefined ? plainBytes : otherThan(await planned('keep', given));
  const found = kept.tensors.map((tensor, i): PlannedType[] => {
    const own = open[i] ? tensor : (base.tensors[i] as PlannedTensor);
    // Name the type that a rule gave it, for the others of its unit.
    const ruled = own.kept === undefined && !open[i] ? ruleFor(rules, own.source.name)?.to : undefined;
    const keptName = ruleTargets.includes(own.source.type) ? own.source.type : 'keep';
    return [{ to: ruled ?? keptName, tensor: own, bytes: bytesIn(own) }];
  });
  // Add each smaller type.
  let moments = base.moments;
  for (const to of types) {
    const plan = await planned(to);
    moments ??= plan.moments;
    // Share the extra bytes of this plan's header among the tensors.
    const more = Math.max(0, Math.ceil((otherThan(plan) - plainBytes) / Math.max(1, names.length)));
    for (const [i, tensor] of plan.tensors.entries()) {
      const list = found[i] as PlannedType[];
      const bytes = bytesIn(tensor) + more;
      // The type that a tensor got is another one if its rows do not fit the requested one.
      const made = codecOf(tensor.form).label(tensor.form);
      const label = ruleTargets.includes(made) ? made : to;
      const [asItIs] = list as [PlannedType];
      // A type that is not smaller than the original has no use.
      const isWorth = open[i] && tensor.kept === undefined && bytes < asItIs.bytes;
      if (isWorth && !list.some((known) => known.to === label)) list.push({ to: label, tensor, bytes });
    }
  }
  return { format, found, otherBytes, moments };
}

/** Measures the errors of the tensors of an open model in each type that they can have. See `measureTypes`. */
export async function measureOpen(
  opened: Opened,
  choices: PlanChoices,
  options: WorkOptions,
  option = 'to',
): Promise<TypeTable> {
  const { format, found, otherBytes, moments } = await plannedTypes(opened, choices, option);
  const all = found.flat().map(({ tensor }) => tensor);
  const sums = await measureTensors(opened.model, all, moments, options);
  // Tensors whose divergence was not measured count as much as those with one do on average.
  const divergences = found.map(
    (list) => list.find(({ tensor }) => tensor.divergence !== undefined)?.tensor.divergence,
  );
  const measured = divergences.filter((one) => one !== undefined);
  const usual = measured.reduce((sum, one) => sum + one, 0) / measured.length;
  let next = 0;
  const tensors = found.map((list, index): TensorTypes => {
    const [{ tensor }] = list as [PlannedType];
    const { name, shape } = tensor.source;
    const weight = measured.length > 0 ? (divergences[index] ?? usual) : (format.mixtures?.weight?.(name) ?? 1);
    const all = list.map(() => sums.of(next++)).map((one) => one && ErrorSumsRecord.read({ HEAPF64: one }, 0));
    // With moments of its inputs, the loss is the squared error of a tensor's outputs relative to their squares; else that of its elements.
    // Types whose outputs were not measured are estimated by the importance of columns, as if the inputs of different ones were independent.
    const most = (name: 'outputX' | 'weightedX') =>
      all.reduce((largest, one) => Math.max(largest, one?.[name] ?? 0), 0);
    const [outputX, weightedX] = [most('outputX'), most('weightedX')];
    const types = list.map(({ to, bytes }, i): TypeOption => {
      const one = all[i];
      if (one === undefined || (one.outputX === 0 && one.squaredError === 0)) return { to, bytes, error: 0 };
      if (one.outputX > 0) return { to, bytes, error: weight * (one.outputError / one.outputX) };
      const loss = one.weightedX > 0 ? one.weightedError / one.weightedX : one.squaredError / one.squaredX;
      return { to, bytes, error: weight * (loss * (outputX > 0 && weightedX > 0 ? weightedX / outputX : 1)) };
    });
    const unit = format.mixtures?.unit?.(choices.to, name);
    return { name, elements: elementsOf(shape), ...(unit === undefined ? {} : { unit }), types };
  });
  const isDivergence = measured.length > 0 ? { isDivergence: true } : {};
  return { format: format.name as ModelFormat, to: choices.to, tensors, otherBytes, ...isDivergence };
}

// ----------------------------------------------------------------------------------------------------------------------- choosing

/** Bytes that the tensors of a table may take. */
function budgetOf(table: TypeTable, { targetSize, targetBitsPerWeight = 0, targetDivergence }: SizeOptions): number {
  const { tensors, otherBytes } = table;
  if (targetSize !== undefined) return (parseSize(targetSize) as number) - otherBytes;
  if (targetDivergence !== undefined) {
    if (!table.isDivergence) {
      const message =
        'no divergence is known: calibrate the language model with moments, and give them with the method gptq';
      throw rangeError('targetDivergence', onlyWith('moments'), undefined, { kind: 'because', message });
    }
    const points = curveOf(table);
    const least = points.at(-1)?.error ?? 0;
    const found = points.find(({ error }) => error <= targetDivergence);
    if (found === undefined) throw rangeError('targetDivergence', { kind: 'number', min: least }, targetDivergence);
    return found.bytes - otherBytes;
  }
  const elements = tensors.reduce((sum, tensor) => sum + tensor.elements, 0);
  return Math.floor((targetBitsPerWeight * elements) / 8);
}

/** Tensors that get one type, with the sums of their bytes and errors in each. */
interface TypeUnit {
  /** Their indices in the table. */
  readonly members: readonly number[];
  readonly types: readonly TypeOption[];
}

/** The units of a table, in the order of their first tensors. */
function typeUnits({ tensors }: TypeTable): TypeUnit[] {
  const byName = new Map<string, number[]>();
  const all: number[][] = [];
  for (const [i, { unit }] of tensors.entries()) {
    const known = unit === undefined ? undefined : byName.get(unit);
    if (known !== undefined) {
      known.push(i);
      continue;
    }
    const members = [i];
    all.push(members);
    if (unit !== undefined) byName.set(unit, members);
  }
  /** The types that all members may have, in the order of the first one's. */
  const of = (members: readonly number[]): TypeUnit => {
    const [first, ...others] = members.map((i) => tensors[i] as TensorTypes) as [TensorTypes, ...TensorTypes[]];
    const types = first.types.flatMap((type) => {
      let { bytes, error } = type;
      for (const other of others) {
        const same = other.types.find(({ to }) => to === type.to);
        if (same === undefined) return [];
        bytes += same.bytes;
        error += same.error;
      }
      return [{ to: type.to, bytes, error }];
    });
    return { members, types };
  };
  return all.flatMap((members) => {
    const unit = of(members);
    if (unit.types.length > 0) return [unit];
    // Rules gave some of them types that the others cannot have. The others can all stay as they are.
    const isFixed = (i: number) => (tensors[i] as TensorTypes).types.length === 1;
    const open = members.filter((i) => !isFixed(i));
    return [...members.filter(isFixed).map((i) => of([i])), ...(open.length > 0 ? [of(open)] : [])];
  });
}

/** Size of a result with the smallest type of each tensor. */
function leastBytes(table: TypeTable): number {
  return typeUnits(table).reduce(
    (sum, { types }) => sum + Math.min(...types.map(({ bytes }) => bytes)),
    table.otherBytes,
  );
}

/** The error for a size that is too small. @param least the smallest possible size */
function tooSmall(table: TypeTable, { targetSize, targetBitsPerWeight }: SizeOptions, least: number): RangeError {
  if (targetSize !== undefined) {
    return rangeError('targetSize', { kind: 'number', min: least, unit: 'bytes' }, targetSize);
  }
  const elements = table.tensors.reduce((sum, tensor) => sum + tensor.elements, 0);
  const min = Math.ceil((8e4 * (least - table.otherBytes)) / elements) / 1e4;
  return rangeError('targetBitsPerWeight', { kind: 'number', min }, targetBitsPerWeight);
}

/** The types with the least sum of errors in a size. @throws RangeError if the size is too small */
export function fitWithin(table: TypeTable, size: SizeOptions): TypeFit {
  const fit = fitFor(table, budgetOf(table, size));
  if (fit === undefined) throw tooSmall(table, size, leastBytes(table));
  return fit;
}

/** Chooses types within a budget for the bytes of tensors; undefined if it is too small. */
function fitFor(table: TypeTable, budget: number): TypeFit | undefined {
  const { tensors, otherBytes, format, to } = table;
  const units = typeUnits(table);
  const chosen = chooseWithin(
    units.map((unit) => unit.types),
    budget,
  );
  if (chosen === undefined) return undefined;
  const types: TypeOption[] = [];
  for (const [i, unit] of units.entries()) {
    const { to: name } = unit.types[chosen.picks[i] as number] as TypeOption;
    for (const member of unit.members) {
      types[member] = (tensors[member] as TensorTypes).types.find((type) => type.to === name) as TypeOption;
    }
  }
  const elements = new Map<string, number>();
  for (const [i, type] of types.entries()) {
    elements.set(type.to, (elements.get(type.to) ?? 0) + (tensors[i] as TensorTypes).elements);
  }
  const named = tensors.flatMap(({ name, types: all }, i) =>
    all.length > 1 ? [[name, (types[i] as TypeOption).to] as const] : [],
  );
  const { mixtures } = formatNamed(format);
  const { bytes, error, bound } = chosen;
  return {
    to: to === 'auto' ? (mixtures?.nearest?.(elements) ?? mixtures?.to ?? to) : to,
    rules: rulesFor(named),
    bytes: bytes + otherBytes,
    error,
    bound,
    ...(table.isDivergence && { isDivergence: true }),
    types,
  };
}

/** Sizes of results and their least errors. See `sizeCurve`. */
export function curveOf(table: TypeTable): SizePoint[] {
  const points = frontier(typeUnits(table).map(({ types }) => types));
  return points.map(({ bytes, error }) => ({ bytes: bytes + table.otherBytes, error }));
}

/**
 * Replaces a size by the rules for the types that fit it best.
 * @param name of the output, if it has one
 */
export async function fitOpen(
  opened: Opened,
  { targetSize, targetBitsPerWeight, targetDivergence, ...given }: PlanChoices & SizeOptions,
  options: WorkOptions,
  name = '',
): Promise<{ readonly choices: PlanChoices; readonly fit: TypeFit }> {
  // Measure all types.
  const size = { targetSize, targetBitsPerWeight, targetDivergence };
  const option = sizeNames.find((one) => size[one as keyof typeof size] !== undefined);
  const isAuto = given.to === 'auto';
  // Without a target, the format is that of the output's name if the model can have it, else that of the model.
  const formats = makersFor(opened.format).map(({ format }) => format);
  const named = formats.find(({ extensions }) => extensions.some((end) => name.toLowerCase().endsWith(end)));
  const { mixtures } = named ?? opened.format;
  const start = { ...given, to: isAuto ? (mixtures?.to ?? given.to) : given.to };
  // The size is that of the whole result, also for work in parts.
  const whole = { ...start, part: undefined };
  const measured = await measureOpen(opened, whole, options, option);
  const table = isAuto ? { ...measured, to: 'auto' } : measured;
  const chosenBy = (fit: TypeFit): PlanChoices => ({
    ...start,
    to: fit.to,
    rules: [...(given.rules ?? []), ...fit.rules],
  });
  const sizeOf = async (fit: TypeFit) =>
    resultBytes(await planFor(opened, { ...chosenBy(fit), part: undefined } as PlanChoices));
  if (targetSize === undefined) {
    const fit = fitWithin(table, size);
    return { choices: chosenBy(fit), fit: { ...fit, bytes: await sizeOf(fit) } };
  }
  // Headers may be larger than in the table. Then the tensors have less room.
  for (let budget = budgetOf(table, size); ; ) {
    const fit = fitFor(table, budget);
    if (fit === undefined) {
      const smallest = fitFor(table, leastBytes(table) - table.otherBytes) as TypeFit;
      throw tooSmall(table, size, await sizeOf(smallest));
    }
    const bytes = await sizeOf(fit);
    const over = bytes - (parseSize(targetSize) as number);
    if (over <= 0) return { choices: chosenBy(fit), fit: { ...fit, bytes } };
    budget -= over;
  }
}

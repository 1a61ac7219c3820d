/** Plans conversions from headers alone. */

import type { ConversionReason } from '../architectures/registry.js';
import { ScalepointError } from '../core/errors.js';
import { type Note, noteOf } from '../core/note.js';
import { elementsOf } from '../formats/codecs/elements.js';
import { codecOf, partsOf } from '../formats/codecs/registry.js';
import { quotedNames } from '../formats/files/bytes.js';
import { urlFileName } from '../formats/files/open.js';
import { type FilePlan, type FormatInfo, fileName, type PlannedTensor } from '../formats/format.js';
import {
  expressionOf,
  isMatch,
  type NonFiniteOptions,
  type PlanChoices,
  type Rule,
  ruleFor,
} from '../formats/options.js';
import { isKeptFor, type Reason, type SharedReason, sharedReasonText } from '../formats/reason.js';
import { type FormatReason, formatNamed } from '../formats/registry.js';
import type { WeightNames } from '../formats/weight-names.js';
import { storedBytes } from './logical-tensor.js';
import type { Opened } from './open.js';
import { checkChoices, type Maker, makersFor, targetError } from './options.js';
import { partPlan } from './work-parts.js';

/** The planned conversion of a tensor. */
export interface PlannedTensorInfo {
  /** Its name in the file. */
  readonly name: string;
  /** Its shape in the file. */
  readonly shape: readonly number[];
  /** Names of the tensors that it is made of, in a conversion to another format. */
  readonly sources?: readonly string[] | undefined;
  /** Its type in the file. */
  readonly from: string;
  /** Its type in the result; I4 or I8 for packed codes. */
  readonly to: string;
  /** Its size in the file, in bytes. */
  readonly bytesBefore: number;
  /** Its size in the result, in bytes, with scales and zero points. */
  readonly bytesAfter: number;
  /** The reason, for a tensor that stays as it is. */
  readonly kept?: KeptReason | undefined;
}

/** Sums over a model. */
export interface ModelTotals {
  /** Number of tensors that become codes with scales, or blocks. */
  readonly quantized: number;
  /** Number of tensors that become floats of another type. */
  readonly cast: number;
  /** Number of tensors that stay as they are. */
  readonly kept: number;
  /** Size of the files, headers included. */
  readonly bytesBefore: number;
  /** Size of the result, headers included. */
  readonly bytesAfter: number;
  /** bytesBefore / bytesAfter. */
  readonly ratio: number;
  /** Bits of the result's tensors, scales included, for each element of the original ones. */
  readonly bitsPerWeight: number;
  /** GGUF: share of the elements whose type is another one, because its blocks do not divide their rows; undefined instead of 0. */
  readonly fellBack?: number | undefined;
}

/** A plan, and the words of its reasons. */
export interface ModelFilePlan extends FilePlan {
  readonly keptFor: KeptFor;
}

/** Notes of codecs about the tensors that become their forms. */
function codecNotes(tensors: readonly PlannedTensor[]): Note[] {
  const byCodec = new Map<string, { name: string; shape: readonly number[]; form: PlannedTensor['form'] }[]>();
  for (const { source, form } of tensors) {
    if (codecOf(form).notes === undefined) continue;
    const list = byCodec.get(form.codec) ?? [];
    list.push({ name: source.name, shape: source.shape, form });
    byCodec.set(form.codec, list);
  }
  return [...byCodec].flatMap(([codec, list]) => codecOf({ codec }).notes?.(list) ?? []);
}

/** The name of a result that goes to a path. */
export function nameOf(output: unknown): string | undefined {
  if (output instanceof URL) return urlFileName(output) || undefined;
  return typeof output === 'string' ? output.split(/[\\/]/).pop() || undefined : undefined;
}

/** The names that statistics may have for tensors: those that conversions give them. */
async function weightNames({ format, model, beside }: Opened): Promise<WeightNames> {
  for (const { converter } of makersFor(format)) {
    const names = await converter?.weightNames?.(model, beside);
    if (names !== undefined) return names;
  }
  return new Map();
}

/**
 * Plans the conversion of an open model.
 * @param output the name of the result, if it has one
 * @throws TypeError or RangeError naming the option; ScalepointError
 */
export async function planFor(opened: Opened, choices: PlanChoices, output?: string): Promise<ModelFilePlan> {
  const maker = checkChoices(opened.format, choices);
  const { format, converter } = maker;
  let plan: FilePlan | undefined;
  if (converter === undefined) {
    if (format.plan === undefined)
      throw new ScalepointError('UNKNOWN_FORMAT', `models of ${format.label} are quantized already`);
    plan = await format.plan(opened.model, choices, partsOf, output, opened.readOptionFile, () => weightNames(opened));
  } else {
    const converted = await converter.convert(opened.model, opened.beside, choices);
    if (converted)
      plan = {
        ...(await converted.plan(choices, partsOf, opened.readOptionFile)),
        architecture: converted.architecture,
      };
  }
  if (plan === undefined) throw targetError(opened.format, choices.to);
  const keptFor = keptIn(maker);
  const rulesOn = ruleNotes(format, choices.rules ?? [], { ...plan, keptFor });
  const { adapters } = opened.model;
  const notes = [...(adapters ? [adapters.note] : []), ...plan.notes, ...codecNotes(plan.tensors), ...rulesOn];
  const { part, nonFinite } = choices as { readonly part?: unknown } & NonFiniteOptions;
  const refusesNonFinite = choices.to !== 'copy' && nonFinite !== 'keep';
  return { ...partPlan({ ...plan, notes, refusesNonFinite }, part), keptFor };
}

/** The description of a planned tensor. */
export function infoOf(
  { source, form, parts, kept }: PlannedTensor,
  { keptFor }: Pick<ModelFilePlan, 'keptFor'>,
): PlannedTensorInfo {
  const { name, shape, type: from } = source;
  const to = codecOf(form).label(form);
  const bytesBefore = storedBytes(source);
  const bytesAfter = parts.reduce((sum, { bytes }) => sum + bytes, 0);
  // Written out because objects made by spread take several times the memory.
  const info: PlannedTensorInfo =
    kept === undefined
      ? { name, shape, from, to, bytesBefore, bytesAfter }
      : { name, shape, from, to, bytesBefore, bytesAfter, kept: keptFor(kept) };
  return source.isRenamed ? { ...info, sources: source.parts.map(({ tensor }) => tensor.name) } : info;
}

/** The descriptions of all planned tensors, one after the other. */
export function* infosOf(plan: ModelFilePlan): Iterable<PlannedTensorInfo> {
  for (const tensor of plan.tensors) yield infoOf(tensor, plan);
}

/** A file of a result. */
export interface PlannedFile {
  /**
   * Its name without the folder, for an output called `model` with the usual extension. `resultFiles` gives the names for other outputs.
   */
  readonly name: string;
  /** Size in bytes. */
  readonly bytes: number;
}

/** The files of a plan, the main one first. */
export function plannedFiles({ files, format }: FilePlan): PlannedFile[] {
  const output = usualOutput(format);
  return files.map((file) => ({ name: fileName(output, file), bytes: file.size }));
}

/** The default name of a result. */
export function usualOutput(format: string): string {
  const { isFolder = false, extensions } = formatNamed(format);
  return isFolder ? 'model' : `model${extensions[0]}`;
}

/** Size of a result in bytes. */
export function resultBytes({ files }: FilePlan): number {
  return files.reduce((sum, { size }) => sum + size, 0);
}

export function totalsOf(tensors: readonly PlannedTensorInfo[], bytesBefore: number, plan: FilePlan): ModelTotals {
  const converted = plan.tensors.filter(({ kept }) => kept === undefined);
  const cast = converted.filter(({ form }) => codecOf(form).isPlain).length;
  const elements = tensors.reduce((sum, { shape }) => sum + elementsOf(shape), 0);
  const payload = tensors.reduce((sum, { bytesAfter }) => sum + bytesAfter, 0);
  const bytesAfter = resultBytes(plan);
  const unfit = plan.tensors.reduce(
    (sum, { unfit, source }) => sum + (unfit === undefined ? 0 : elementsOf(source.shape)),
    0,
  );
  return {
    quantized: converted.length - cast,
    cast,
    kept: tensors.length - converted.length,
    bytesBefore,
    bytesAfter,
    ratio: bytesBefore / bytesAfter,
    bitsPerWeight: elements === 0 ? 0 : (8 * payload) / elements,
    ...(unfit === 0 ? {} : { fellBack: unfit / elements }),
  };
}

/**
 * The reason why a tensor stays as it is: the kind with its data, such as `{ kind: 'rank', rank: 1 }`, and the same in a few words, such as
 * `1-D`. Programs decide by the kind, never by the text.
 */
export type KeptReason = (SharedReason | FormatReason | ConversionReason) & {
  /** The reason in a few words. */
  readonly text: string;
};

/** Adds the words to a reason. Returns the same object for the same reason, as a model may have a hundred thousand tensors. */
export type KeptFor = (reason: Reason) => KeptReason;

/** Makes the function that adds words to the reasons of a result. */
export function keptIn({ format, converter }: Maker): KeptFor {
  const known = new Map<Reason, KeptReason>();
  const textFor = (reason: Reason) =>
    sharedReasonText(reason) ?? converter?.reasonText?.(reason) ?? format.reasonText?.(reason) ?? reason.kind;
  return (reason) => {
    const found = known.get(reason) ?? ({ ...reason, text: textFor(reason) } as KeptReason);
    known.set(reason, found);
    return found;
  };
}

/** A plan as far as rules decide about it. */
interface RuledPlan extends Pick<FilePlan, 'tensors'> {
  readonly keptFor: KeptFor;
}

/** The name of a rule in notes. */
function titleOf(rule: Rule): string {
  return `the rule ${expressionOf(rule)}=${rule.to ?? 'keep'}`;
}

/** The outcome for a tensor that a rule was to convert, in words: `stored as Q8_0`, `kept (norm)`. */
function outcomeOf({ kept, form }: PlannedTensor, { keptFor }: RuledPlan): string {
  return kept === undefined ? `stored as ${codecOf(form).label(form)}` : `kept (${keptFor(kept).text})`;
}

/** A rule as data. */
const dataOf = (rule: Rule) => ({ rule: expressionOf(rule), to: rule.to ?? 'keep' });

/** The note about a rule that matches nothing. */
const unmatchedNote = (rule: Rule) =>
  noteOf('ruleUnmatched', dataOf(rule), `no tensor matches the rule ${expressionOf(rule)}`);

/** The note about a rule whose tensors all match earlier rules. */
const lateNote = (rule: Rule) =>
  noteOf('ruleTooLate', dataOf(rule), `${titleOf(rule)} has no effect: earlier rules decide`);

/** The note about a rule whose tensors cannot have the requested type. */
function vainNote(rule: Rule, missed: readonly PlannedTensor[], plan: RuledPlan): Note {
  const byOutcome = new Map<string, string[]>();
  for (const tensor of missed) {
    const outcome = outcomeOf(tensor, plan);
    const names = byOutcome.get(outcome) ?? [];
    names.push(tensor.source.name);
    byOutcome.set(outcome, names);
  }
  const outcomes = [...byOutcome].map(([outcome, names]) => `${quotedNames(names)} ${outcome}`).join('; ');
  const tensors = missed.map(({ source }) => source.name);
  return noteOf('ruleWithoutEffect', { ...dataOf(rule), tensors }, `${titleOf(rule)} has no effect: ${outcomes}`);
}

/**
 * Notes about rules without effect: nothing matches, earlier rules match the same tensors, or the format does not allow the type for them.
 * The target of a rule is compared with the type of the result where results have types of these names.
 */
export function ruleNotes({ ruleTargets }: FormatInfo, rules: readonly Rule[], plan: RuledPlan): Note[] {
  const decided = new Map<Rule, PlannedTensor[]>();
  for (const tensor of plan.tensors) {
    const rule = ruleFor(rules, tensor.source.name);
    if (rule === undefined) continue;
    const list = decided.get(rule);
    if (list === undefined) decided.set(rule, [tensor]);
    else list.push(tensor);
  }
  return rules.flatMap((rule) => {
    const { to, keep } = rule;
    const tensors = decided.get(rule) ?? [];
    if (tensors.length === 0) {
      const isMatched = plan.tensors.some(({ source }) => isMatch(rule, source.name));
      return [isMatched ? lateNote(rule) : unmatchedNote(rule)];
    }
    if (keep || to === undefined) return [];
    const labels = new Set(plan.tensors.map(({ form }) => codecOf(form).label(form)));
    const hasTypeNames = ruleTargets.some((name) => labels.has(name));
    const missed = tensors.filter(({ form, kept }) => {
      if (kept !== undefined) return !isKeptFor('sameType', kept);
      return hasTypeNames && codecOf(form).label(form) !== to;
    });
    return missed.length < tensors.length ? [] : [vainNote(rule, missed, plan)];
  });
}

/** Plans conversions from headers alone. */

import { type ConversionReason, loadKnownModels } from '../architectures/registry.js';
import { ScalepointError } from '../core/errors.js';
import { type Note, noteOf } from '../core/note.js';
import { pauseFor } from '../core/waiting.js';
import { elementsOf } from '../formats/codecs/elements.js';
import { codecOf, partsOf } from '../formats/codecs/registry.js';
import { quotedNames } from '../formats/files/bytes.js';
import { urlFileName } from '../formats/files/open.js';
import type { FilePlan, FormatInfo, PlannedTensor } from '../formats/format.js';
import {
  expressionOf,
  isMatch,
  type NonFiniteOptions,
  type OptionTable,
  type PlanChoices,
  type Rule,
  ruleFor,
} from '../formats/options.js';
import { type Reason, type SharedReason, sharedReasonText } from '../formats/reason.js';
import { type FormatReason, formatNamed } from '../formats/registry.js';
import { storedBytes } from './logical-tensor.js';
import type { Opened } from './open.js';
import { checkChoices, makersFor, targetError } from './options.js';
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
  /** The options that decide about its target. */
  readonly entries: OptionTable['entries'];
  readonly keptFor: KeptFor;
}

/** The name of a result that goes to a path. */
export function outputName(output: unknown): string | undefined {
  if (output instanceof URL) return urlFileName(output) || undefined;
  return typeof output === 'string' ? output.split(/[\\/]/).pop() || undefined : undefined;
}

/**
 * Plans the conversion of an open model.
 * @param output the name of the result, if it has one
 * @throws TypeError or RangeError naming the option; ScalepointError
 */
export async function planFor(opened: Opened, choices: PlanChoices, output?: string): Promise<ModelFilePlan> {
  const { model, beside, readOptionFile } = opened;
  const maker = checkChoices(opened.format, choices);
  const { format, converter } = maker;
  await pauseFor(model.tensors);
  let plan: FilePlan | undefined;
  if (converter === undefined) {
    if (format.plan === undefined)
      throw new ScalepointError('UNKNOWN_FORMAT', `models of ${format.label} are quantized already`);
    // The names that statistics may have for tensors are those that conversions give them.
    const weightNames = async () => {
      for (const other of makersFor(opened.format)) {
        const names = await other.converter?.weightNames?.(model, beside);
        if (names !== undefined) return names;
      }
      return new Map();
    };
    plan = await format.plan(model, choices, {
      partsOf,
      output,
      readOptionFile,
      weightNames,
      knownModels: loadKnownModels,
    });
  } else {
    const converted = await converter.convert(model, beside, choices);
    const made = await converted?.plan(choices, partsOf, readOptionFile, output);
    if (converted && made) plan = { ...made, architecture: converted.architecture };
  }
  if (plan === undefined) throw targetError(opened.format, choices.to);
  // Add words to the reasons. The same reason gets the same object, as a model may have a hundred thousand tensors.
  const known = new Map<Reason, KeptReason>();
  const textFor = (reason: Reason) =>
    sharedReasonText(reason) ?? converter?.reasonText?.(reason) ?? format.reasonText?.(reason) ?? reason.kind;
  const keptFor: KeptFor = (reason) => {
    const found = known.get(reason) ?? ({ ...reason, text: textFor(reason) } as KeptReason);
    known.set(reason, found);
    return found;
  };
  // Collect the notes: of adapters, of the format, of codecs about the tensors that become their forms, and of rules.
  const isMerged = model.adapters !== undefined && plan.mergesAdapters !== false;
  const notes = [...(isMerged ? [model.adapters.note] : []), ...plan.notes];
  const byCodec = new Map<string, { name: string; shape: readonly number[]; form: PlannedTensor['form'] }[]>();
  for (const { source, form } of plan.tensors) {
    if (codecOf(form).notes === undefined) continue;
    const list = byCodec.get(form.codec) ?? [];
    list.push({ name: source.name, shape: source.shape, form });
    byCodec.set(form.codec, list);
  }
  for (const [codec, list] of byCodec) notes.push(...(codecOf({ codec }).notes?.(list) ?? []));
  if (choices.rules !== undefined)
    for (const note of ruleNotes(format, choices.rules, { ...plan, keptFor })) notes.push(note);
  const { part, nonFinite } = choices as { readonly part?: unknown } & NonFiniteOptions;
  const whole = { ...plan, notes, refusesNonFinite: choices.to !== 'copy' && nonFinite !== 'keep' };
  return { ...(part === undefined ? whole : partPlan(whole, part)), entries: format.options.entries, keptFor };
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
 * `a vector`. Programs decide by the kind, never by the text.
 */
export type KeptReason = (SharedReason | FormatReason | ConversionReason) & {
  /** The reason in a few words. */
  readonly text: string;
};

/** Adds the words to a reason. */
type KeptFor = (reason: Reason) => KeptReason;

/**
 * Notes about rules without effect: nothing matches, earlier rules match the same tensors, or the format does not allow the type for them.
 * The target of a rule is compared with the type of the result where results have types of these names.
 */
function ruleNotes(
  { ruleTargets }: FormatInfo,
  rules: readonly Rule[],
  { tensors: all, keptFor }: Pick<ModelFilePlan, 'tensors' | 'keptFor'>,
): Note[] {
  const decided = new Map<Rule, PlannedTensor[]>();
  for (const tensor of all) {
    const rule = ruleFor(rules, tensor.source.name);
    if (rule === undefined) continue;
    const list = decided.get(rule) ?? [];
    list.push(tensor);
    decided.set(rule, list);
  }
  return rules.flatMap((rule) => {
    const { to, keep } = rule;
    const tensors = decided.get(rule) ?? [];
    const expression = expressionOf(rule);
    const data = { rule: expression, to: to ?? 'keep' };
    const title = `the rule ${expression}=${data.to}`;
    if (tensors.length === 0) {
      return all.some(({ source }) => isMatch(rule, source.name))
        ? [noteOf('ruleTooLate', data, `${title} has no effect: earlier rules decide`)]
        : [noteOf('ruleUnmatched', data, `no tensor matches the rule ${expression}`)];
    }
    if (keep || to === undefined) return [];
    const labels = new Set(all.map(({ form }) => codecOf(form).label(form)));
    const hasTypeNames = ruleTargets.some((name) => labels.has(name));
    const missed = tensors.filter(({ form, kept }) => {
      if (kept !== undefined) return kept?.kind !== 'sameType';
      return hasTypeNames && codecOf(form).label(form) !== to;
    });
    if (missed.length < tensors.length) return [];
    // Say what became of the tensors: `stored as Q8_0`, `kept (norm)`.
    const byOutcome = new Map<string, string[]>();
    for (const { source, form, kept } of missed) {
      const outcome = kept === undefined ? `stored as ${codecOf(form).label(form)}` : `kept (${keptFor(kept).text})`;
      const list = byOutcome.get(outcome) ?? [];
      list.push(source.name);
      byOutcome.set(outcome, list);
    }
    const outcomes = [...byOutcome].map(([outcome, names]) => `${quotedNames(names)} ${outcome}`).join('; ');
    const names = missed.map(({ source }) => source.name);
    return [noteOf('ruleWithoutEffect', { ...data, tensors: names }, `${title} has no effect: ${outcomes}`)];
  });
}

/** Notes about rules that change nothing, which are usually mistakes. */

import { type Note, noteOf } from '../core/note.js';
import { codecOf } from '../formats/codecs/registry.js';
import { quotedNames } from '../formats/files/bytes.js';
import type { FilePlan, FormatInfo, PlannedTensor } from '../formats/format.js';
import { expressionOf, isMatch, type Rule, ruleFor } from '../formats/options.js';
import { isKeptFor } from '../formats/reason.js';
import type { KeptFor } from './kept.js';

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

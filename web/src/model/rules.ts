/** Notes about rules that change nothing, which are mistakes most often. */
import { codecOf } from '../codecs/registry.js';
import { quoted } from '../files/bytes.js';
import type { FilePlan, FormatInfo, PlannedTensor } from '../formats/format.js';
import { type Rule, ruleFor } from '../formats/options.js';

/** Tensors that a note names. */
const mostNames = 3;

function listed(names: readonly string[]): string {
  const more = names.length > mostNames ? ` and ${names.length - mostNames} more` : '';
  return names.slice(0, mostNames).map(quoted).join(', ') + more;
}

/** How a note calls a rule. */
function titleOf({ match, to }: Rule): string {
  return `the rule ${match.source}=${to ?? 'keep'}`;
}

/** What became of tensors that were to be of another type. Tensors for the same reason are told together. */
function reasons(tensors: readonly PlannedTensor[]): string {
  const byReason = new Map<string, string[]>();
  for (const { source, kept, form } of tensors) {
    const reason = kept === undefined ? `stored as ${codecOf(form).label(form)}` : `kept (${kept})`;
    const names = byReason.get(reason);
    if (names === undefined) byReason.set(reason, [source.name]);
    else names.push(source.name);
  }
  return [...byReason].map(([reason, names]) => `${listed(names)} ${reason}`).join('; ');
}

/**
 * Notes about rules without effect: nothing matches, earlier rules decide about all that does, or the format allows nothing else for it.
 * What a rule asks for is compared with the type of the result where results have types of these names.
 */
export function ruleNotes({ ruleTargets }: FormatInfo, rules: readonly Rule[], plan: FilePlan): string[] {
  const decided = new Map<Rule, PlannedTensor[]>();
  for (const tensor of plan.tensors) {
    const rule = ruleFor(rules, tensor.source.name);
    if (rule === undefined) continue;
    const list = decided.get(rule);
    if (list === undefined) decided.set(rule, [tensor]);
    else list.push(tensor);
  }
  return rules.flatMap((rule) => {
    const { match, to, keep } = rule;
    const tensors = decided.get(rule) ?? [];
    if (tensors.length === 0) {
      const isMatched = plan.tensors.some(({ source }) => source.name.search(match) >= 0);
      return [
        isMatched
          ? `${titleOf(rule)} has no effect: earlier rules decide`
          : `no tensor matches the rule ${match.source}`,
      ];
    }
    if (keep || to === undefined) return [];
    const labels = new Set(plan.tensors.map(({ form }) => codecOf(form).label(form)));
    const hasTypeNames = ruleTargets.some((name) => labels.has(name));
    const missed = tensors.filter(({ form, kept }) => {
      if (kept !== undefined) return kept !== 'same type';
      return hasTypeNames && codecOf(form).label(form) !== to;
    });
    return missed.length < tensors.length ? [] : [`${titleOf(rule)} has no effect: ${reasons(missed)}`];
  });
}

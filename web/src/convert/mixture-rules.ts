/** Makes rules that choose the type of each tensor, and reads and writes rules as lines of text. */
import { rangeError } from '../core/errors.js';
import { oneOf } from '../core/option-problem.js';
import { NamePattern } from '../formats/name-pattern.js';
import { expressionOf, type Rule } from '../formats/options.js';

/** Escapes a name for a regular expression. An end of a line would end the rule in a file of rules. */
export const escapeName = (name: string) =>
  name.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&').replace(/[\n\r\u2028\u2029]/g, (end) => {
    return `\\u${end.charCodeAt(0).toString(16).padStart(4, '0')}`;
  });

/** Splits a name at its first number, usually that of the layer. */
function splitAtNumber(name: string): readonly [before: string, number: string, after: string] {
  const [, before = name, number = '', after = ''] = /^(\D*)(\d+)(.*)$/s.exec(name) ?? [];
  return [before, number, after];
}

/**
 * Makes rules for tensors by their names. Tensors whose names differ only in the number of the layer share a rule, so that people can read
 * and edit it: `^blk\.(0|1|7)\.ffn_down\.weight$`.
 */
export function rulesFor(types: Iterable<readonly [name: string, to: string]>): Rule[] {
  const groups = new Map<string, { readonly to: string; readonly name: string; readonly numbers: string[] }>();
  for (const [name, to] of types) {
    const [before, number, after] = splitAtNumber(name);
    const key = JSON.stringify([before, number !== '', after, to]);
    const group = groups.get(key) ?? { to, name, numbers: [] };
    group.numbers.push(number);
    groups.set(key, group);
  }
  return [...groups.values()].map(({ to, name, numbers }): Rule => {
    const [before, , after] = splitAtNumber(name);
    const some = numbers.length === 1 ? numbers[0] : `(${numbers.join('|')})`;
    const match = `^${escapeName(before)}${some}${escapeName(after)}$`;
    return to === 'keep' ? { match, keep: true } : { match, to };
  });
}

/**
 * Writes rules as lines `REGEX=TYPE` or `REGEX=keep`. `rulesFrom` reads them, and llama-quantize reads them with --tensor-type-file, except
 * lines with `keep`.
 * @example await writeFile('rules.txt', rulesText(plan.fit.rules));
 */
export function rulesText(rules: readonly Rule[]): string {
  return rules.map((rule) => `${expressionOf(rule)}=${rule.keep ? 'keep' : rule.to}\n`).join('');
}

/** Reads a rule from a line. @throws RangeError naming `option` */
export function ruleFrom(text: string, option = 'rules'): Rule {
  // Split at the last "=": expressions may contain it, types never do.
  const split = text.lastIndexOf('=');
  const to = text.slice(split + 1).trim();
  if (split < 1 || to === '') {
    throw rangeError(option, oneOf(['REGEX=TYPE', 'REGEX=keep']), text);
  }
  const match = text.slice(0, split);
  // Throws unless it is a regular expression.
  new NamePattern(match, option);
  return to.toLowerCase() === 'keep' ? { match, keep: true } : { match, to };
}

/** Reads rules from lines of text. Ignores empty lines and lines that begin with #. @throws RangeError naming the line */
export function rulesFrom(text: string): Rule[] {
  return text.split(/\r?\n/).flatMap((line, i) => {
    const words = line.trim();
    return words === '' || words.startsWith('#') ? [] : [ruleFrom(words, `line ${i + 1}`)];
  });
}

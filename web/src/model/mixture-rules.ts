/** Rules that give each tensor a type of its own, and rules as lines of text. */
import { rangeError } from '../core/errors.js';
import { ofType, oneOf } from '../core/option-problem.js';
import type { Rule } from '../formats/options.js';

/** A name as a regular expression. */
const literal = (name: string) => name.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');

/** Splits a name at its first number, which is mostly that of the layer. */
function partsOf(name: string): readonly [before: string, number: string, after: string] {
  const [, before = name, number = '', after = ''] = /^(\D*)(\d+)(.*)$/s.exec(name) ?? [];
  return [before, number, after];
}

/**
 * Rules for tensors by their names. Those that differ in the number of the layer alone share one, so that the rules can be read and edited:
 * `^blk\.(0|1|7)\.ffn_down\.weight$`.
 */
export function rulesFor(types: Iterable<readonly [name: string, to: string]>): Rule[] {
  const groups = new Map<string, { readonly to: string; readonly name: string; readonly numbers: string[] }>();
  for (const [name, to] of types) {
    const [before, number, after] = partsOf(name);
    const key = JSON.stringify([before, number !== '', after, to]);
    const group = groups.get(key) ?? { to, name, numbers: [] };
    group.numbers.push(number);
    groups.set(key, group);
  }
  return [...groups.values()].map(({ to, name, numbers }): Rule => {
    const [before, , after] = partsOf(name);
    const some = numbers.length === 1 ? numbers[0] : `(${numbers.join('|')})`;
    const match = new RegExp(`^${literal(before)}${some}${literal(after)}$`);
    return to === 'keep' ? { match, keep: true } : { match, to };
  });
}

/**
 * Rules as lines `REGEX=TYPE` or `REGEX=keep`. `rulesFrom` reads them, and so does llama-quantize with --tensor-type-file as long as there
 * is no `keep`.
 * @example await writeFile('rules.txt', rulesText(plan.fit.rules));
 */
export function rulesText(rules: readonly Rule[]): string {
  return rules.map(({ match, keep, to }) => `${match.source}=${keep ? 'keep' : to}\n`).join('');
}

/** A rule of a line. @throws RangeError naming `option` */
export function ruleFrom(text: string, option = 'rules'): Rule {
  // Types have no "=", but expressions may.
  const split = text.lastIndexOf('=');
  const to = text.slice(split + 1).trim();
  if (split < 1 || to === '') {
    throw rangeError(option, oneOf(['REGEX=TYPE', 'REGEX=keep']), text);
  }
  const source = text.slice(0, split);
  let match: RegExp;
  try {
    match = new RegExp(source);
  } catch (error) {
    // The engine's text repeats the expression before it says what is wrong.
    const message = (error instanceof Error ? error.message : String(error)).split(': ').at(-1) as string;
    throw rangeError(option, ofType('regular expression'), source, { kind: 'because', message });
  }
  return to.toLowerCase() === 'keep' ? { match, keep: true } : { match, to };
}

/** Rules from lines of text. Empty lines and those that begin with # say nothing. @throws RangeError naming the line */
export function rulesFrom(text: string): Rule[] {
  return text.split(/\r?\n/).flatMap((line, i) => {
    const words = line.trim();
    return words === '' || words.startsWith('#') ? [] : [ruleFrom(words, `line ${i + 1}`)];
  });
}

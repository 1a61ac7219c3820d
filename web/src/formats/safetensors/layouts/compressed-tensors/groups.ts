/** The groups of modules in a `quantization_config`. */
import { NamePattern } from '../../../name-pattern.js';
import { isFields } from '../../stored-model.js';
import type { Fields } from '../layout.js';

export const listOf = (value: unknown): readonly string[] =>
  Array.isArray(value) ? value.filter((item) => typeof item === 'string') : [];

/** The expressions of a configuration. Undefined for those that only Python supports. */
export type Patterns = Map<string, NamePattern | undefined>;

/** True if an entry of a configuration matches a module: by its name, or by an expression at its start. */
export function means(entry: string, module: string, patterns: Patterns): boolean {
  if (!entry.startsWith('re:')) return entry === module;
  if (!patterns.has(entry)) patterns.set(entry, patternIn(entry));
  return patterns.get(entry)?.test(module) ?? false;
}

function patternIn(entry: string): NamePattern | undefined {
  try {
    return new NamePattern(`^(?:${entry.slice(3)})`, 'ignore');
  } catch {
    return undefined;
  }
}

/** Group of a module. Matches by name override those by class. */
export function groupOf(groups: readonly Fields[], module: string, patterns: Patterns): Fields | undefined {
  const classes = ['Linear', 'Embedding'];
  return (
    groups.find(({ targets }) => listOf(targets).some((target) => means(target, module, patterns))) ??
    groups.find(({ targets }) => listOf(targets).some((target) => classes.includes(target)))
  );
}

/** The groups of a `quantization_config`. */
export function groupsIn({ config_groups: groups }: Fields): readonly Fields[] {
  return isFields(groups) ? Object.values(groups).filter(isFields) : [];
}

/** Looks up the `num_bits` of a weight in a configuration; undefined without an entry. */
export type StatedBits = (name: string) => number | undefined;

/** Looks up the bits of weights in config.json. */
export function statedBits(config: Fields | undefined): StatedBits {
  const quantization = config?.quantization_config;
  const groups = isFields(quantization) ? groupsIn(quantization) : [];
  const patterns: Patterns = new Map();
  return (name) => {
    const weights = groupOf(groups, name.replace(/\.weight$/, ''), patterns)?.weights;
    const bits = isFields(weights) ? weights.num_bits : undefined;
    return typeof bits === 'number' ? bits : undefined;
  };
}

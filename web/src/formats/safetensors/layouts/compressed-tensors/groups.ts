/** The groups of modules in a `quantization_config`. */
import { ScalepointError } from '../../../../core/errors.js';
import { quoted } from '../../../files/bytes.js';
import { MatchingWork, NamePattern } from '../../../name-pattern.js';
import { isFields } from '../../stored-model.js';
import type { Fields } from '../layout.js';

export const listOf = (value: unknown): readonly string[] =>
  Array.isArray(value) ? value.filter((item) => typeof item === 'string') : [];

/** Most expressions of a configuration: each may be compared with each module. */
const mostExpressions = 1000;

/** An expression of a configuration; undefined for one that only Python supports. */
function patternIn(entry: string, work: MatchingWork): NamePattern | undefined {
  try {
    return new NamePattern(`^(?:${entry.slice(3)})`, 'ignore', work);
  } catch {
    return undefined;
  }
}

function badExpressions(has: string, cause?: unknown): ScalepointError {
  const message = `config.json: quantization_config has ${has} expressions for modules`;
  return new ScalepointError('BAD_FILE', message, { cause });
}

/** Lists of modules, by their names or by expressions at their start. */
export class ModuleLists {
  /** The first list with each name. */
  readonly #names = new Map<string, number>();
  readonly #patterns = new Map<NamePattern, number>();

  /** @throws ScalepointError `BAD_FILE` for too many expressions */
  constructor(lists: readonly (readonly string[])[]) {
    const seen = new Set<string>();
    const work = new MatchingWork();
    for (const [i, list] of lists.entries()) {
      for (const entry of list) {
        if (seen.has(entry)) continue;
        seen.add(entry);
        const pattern = entry.startsWith('re:') ? patternIn(entry, work) : undefined;
        if (pattern !== undefined) this.#patterns.set(pattern, i);
        else if (!entry.startsWith('re:')) this.#names.set(entry, i);
        if (this.#patterns.size > mostExpressions) {
          throw badExpressions(`more than ${mostExpressions}`);
        }
      }
    }
  }

  /** The first list that has a module; -1 if none does. */
  find(module: string): number {
    const named = this.#names.get(module) ?? Number.POSITIVE_INFINITY;
    for (const [pattern, i] of this.#patterns) {
      if (i >= named) break;
      try {
        if (pattern.test(module)) return i;
      } catch (cause) {
        throw badExpressions(`too many steps of matching in ${quoted(pattern.source)}, among its`, cause);
      }
    }
    return named === Number.POSITIVE_INFINITY ? -1 : named;
  }
}

/** Gives the group of a module. Matches by name override those by class. */
export function groupsOf(config: Fields): (module: string) => Fields | undefined {
  const groups = groupsIn(config);
  const lists = groups.map(({ targets }) => listOf(targets));
  const modules = new ModuleLists(lists);
  const classes = ['Linear', 'Embedding'];
  const usual = groups[lists.findIndex((targets) => targets.some((target) => classes.includes(target)))];
  return (module) => groups[modules.find(module)] ?? usual;
}

/** The groups of a `quantization_config`. */
function groupsIn({ config_groups: groups }: Fields): readonly Fields[] {
  return isFields(groups) ? Object.values(groups).filter(isFields) : [];
}

/** Looks up the `num_bits` of a weight in a configuration; undefined without an entry. */
export type StatedBits = (name: string) => number | undefined;

/** Looks up the bits of weights in config.json. */
export function statedBits(config: Fields | undefined): StatedBits {
  const quantization = config?.quantization_config;
  const groupOf = isFields(quantization) ? groupsOf(quantization) : () => undefined;
  return (name) => {
    const weights = groupOf(name.replace(/\.weight$/, ''))?.weights;
    const bits = isFields(weights) ? weights.num_bits : undefined;
    return typeof bits === 'number' ? bits : undefined;
  };
}

// Options that texts mention, as data: each edge spells them in its own way.

/** An option in a text: `include: 'all'` for programs, `--all` on a command line. */
export interface Mention {
  readonly kind: 'option';
  /** Its name, as the API has it. */
  readonly option: string;
  /** The value that the text speaks of; undefined for the option in general. */
  readonly value?: unknown;
}

/** Mentions an option. */
export function mention(option: string, value?: unknown): Mention {
  return value === undefined ? { kind: 'option', option } : { kind: 'option', option, value };
}

/** A sentence in parts. */
export type Sentence = readonly (string | Mention)[];

/** A value as code. */
function literal(value: unknown): string {
  if (typeof value === 'string') return `'${value}'`;
  if (Array.isArray(value)) return `[${value.map(literal).join(', ')}]`;
  if (typeof value !== 'object' || value === null) return String(value);
  return `{ ${Object.entries(value)
    .map(([name, member]) => `${name}: ${literal(member)}`)
    .join(', ')} }`;
}

/** An option as code: `include: 'all'`. */
export function optionCode({ option, value }: Mention): string {
  return value === undefined ? option : `${option}: ${literal(value)}`;
}

/** The text of a sentence. @param spell how options are spelled; by default as code */
export function textOf(sentence: Sentence, spell: (mention: Mention) => string = optionCode): string {
  return sentence.map((part) => (typeof part === 'string' ? part : spell(part))).join('');
}

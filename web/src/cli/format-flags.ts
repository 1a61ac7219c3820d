/** The options of formats on the command line: their flags, and their values. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { type FormatInfo, type FormatOption, formats, type Sidecar, targetTakes, type Words } from '../tooling.js';
import { type CommandFlag, type CommandFlags, type FlagGroup, optionTables, readAdapterFlag } from './flags.js';
import { localPath, readText } from './side-file.js';
import { asUsage, wrongFlag } from './wording.js';

/** The flags of options of formats, under the headings of the tables. @param isWanted chooses the options */
export function formatGroups(isWanted: (name: string, option: FormatOption) => boolean = () => true): FlagGroup[] {
  return optionTables().map(({ table: { title, entries } }) => {
    const flags = Object.entries(entries).flatMap(([name, option]) => (isWanted(name, option) ? option.flags : []));
    return { title, flags: Object.fromEntries(flags.map((flag) => [flag.name, flag])) };
  });
}

/** The flags of options of formats, each once. @param isWanted chooses the options */
export function formatFlags(isWanted?: (name: string, option: FormatOption) => boolean): CommandFlags {
  return Object.assign({}, ...formatGroups(isWanted).map(({ flags }) => flags));
}

/** The flags about files beside models. */
export const sidecarFlags = () => formatFlags((_, { sidecar }) => sidecar !== undefined);

/** The flags of options that decide about a result, without those about files beside it. */
export const choiceFlags = () => formatFlags((_, { sidecar }) => sidecar === undefined);

/** True for a flag that names a file to read. */
const readsFile = ({ value, isText = false, isWritten = false }: CommandFlag) =>
  value?.startsWith('FILE') === true && !isText && !isWritten;

/** Names of the flags that name files to read, which a plan leaves open. */
export const readFlags = (): readonly string[] =>
  Object.entries(choiceFlags()).flatMap(([name, flag]) => (readsFile(flag) ? [name] : []));

/** True if files of a format can become this. */
export function acceptsTarget({ targets, aliases }: FormatInfo, to: string): boolean {
  return targets.some(({ name }) => name === to) || Object.hasOwn(aliases, to);
}

/** The options of all formats, by name. Those of the formats that have the target come first. */
function optionsFor(to: string): readonly (readonly [name: string, option: FormatOption])[] {
  const having = formats.filter((format) => acceptsTarget(format, to));
  const found = new Map<string, FormatOption>();
  for (const { options } of [...having, ...formats]) {
    for (const [name, option] of Object.entries(options.entries)) if (!found.has(name)) found.set(name, option);
  }
  return [...found];
}

/** A file that a flag names. */
export interface NamedFile {
  readonly flag: string;
  readonly path: string;
}

/** A command line with the flags that its command has. */
export interface FlaggedLine {
  readonly words: Words;
  readonly flags: CommandFlags;
}

/** The local files that flags name, to be read. The files of a folder count. */
export async function namedFiles({ words, flags }: FlaggedLine): Promise<readonly NamedFile[]> {
  const found: NamedFile[] = [];
  for (const [name, flag] of Object.entries(flags)) {
    if (!readsFile(flag) && !flag.isText) continue;
    for (const word of [words[name] ?? []].flat()) {
      if (typeof word !== 'string') continue;
      const text = name === 'lora' ? readAdapterFlag(word).file : word;
      // The reader of the flag refuses addresses that are wrong.
      const path = /^(https?|hf):/i.test(text) ? undefined : localPath(text);
      if (path === undefined) continue;
      const inside = await readdir(path).catch(() => undefined);
      for (const one of inside?.map((file) => join(path, file)) ?? [path]) found.push({ flag: name, path: one });
    }
  }
  return found;
}

/** The words of a command line, with the texts of files in place of their names where options take texts. @throws ScalepointError */
export async function withTexts(words: Words): Promise<Words> {
  const texts: Record<string, string> = {};
  for (const [name, { isText }] of Object.entries(formatFlags())) {
    const path = words[name];
    if (isText === true && path !== undefined) texts[name] = await readText(String(path));
  }
  return { ...words, ...texts };
}

/**
 * The options that the flags of a command line mean, except those about files beside the result.
 * @param own the target, or the targets of one result
 * @param all all requested targets: an option applies to those that take it
 * @throws UsageError
 */
export function formatChoices(
  words: Words,
  own: string | readonly string[],
  all: readonly string[] = [own].flat(),
): Record<string, unknown> {
  const [to = '', ...also] = [own].flat();
  const takes = (name: string) => [to, ...also].some((target) => targetTakes(target, name));
  const choices: Record<string, unknown> = {};
  for (const [name, { sidecar, flags, read }] of optionsFor(to)) {
    const isForOthers = !takes(name) && all.some((other) => targetTakes(other, name));
    if (sidecar !== undefined || isForOthers || flags.every((flag) => words[flag.name] === undefined)) continue;
    try {
      choices[name] = read(words);
    } catch (error) {
      throw asUsage(error, words);
    }
  }
  return choices;
}

/** An option about a file beside the result, such as config.json. */
export interface SidecarOption {
  readonly option: string;
  readonly sidecar: Sidecar;
  /** The file to take the content from, if one was given. */
  readonly path: string | undefined;
}

/** All options about files beside results. @throws UsageError for an option that the target's formats do not have */
export function sidecarOptions(words: Words, to: string): readonly SidecarOption[] {
  const found: SidecarOption[] = [];
  for (const [option, { sidecar, flags }] of optionsFor(to)) {
    const [flag] = flags;
    if (sidecar === undefined) continue;
    const path = flag && words[flag.name];
    const owners = formats.filter(({ options }) => Object.hasOwn(options.entries, option));
    if (path !== undefined && !owners.some((format) => acceptsTarget(format, to))) {
      throw wrongFlag(flag?.name ?? option, { kind: 'onlyFor', files: `${owners[0]?.label} files` });
    }
    found.push({ option, sidecar, path: path === undefined ? undefined : String(path) });
  }
  return found;
}

/** The options of formats on the command line: their flags, their values, and errors about them. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type Flag,
  type FormatInfo,
  type FormatOption,
  formats,
  type OptionTable,
  type Sidecar,
  type Words,
} from '../tooling.js';
import { type CommandFlag, calibrateFlags, evaluateFlags, quantizeFlags } from './flags.js';
import { adapterOf } from './parse.js';
import { localPath, readText } from './side-file.js';
import { asUsage, wrongFlag } from './wording.js';

/** A table of options, and the formats that share it. */
export interface SharedTable {
  readonly table: OptionTable;
  readonly formats: readonly FormatInfo[];
}

/** The tables of all formats, each once. */
export function tables(): readonly SharedTable[] {
  const found = new Map<OptionTable, FormatInfo[]>();
  for (const format of formats()) {
    const formats = found.get(format.options) ?? [];
    formats.push(format);
    found.set(format.options, formats);
  }
  return [...found].map(([table, formats]) => ({ table, formats }));
}

/** The tables of formats with presets, which users without a preference choose from. */
export function usualTables(): readonly SharedTable[] {
  return tables().filter(({ formats: [format] }) => format?.targets.some(({ preset }) => preset !== undefined));
}

/** Options of copies. */
export const copyFlags = ['shardSize', 'splitTensors', 'part', 'metadata'] as const;

/** The flags of some options of formats, each once. */
export function optionFlags(names: readonly string[]): readonly Flag[] {
  const flags = tables().flatMap(({ table }) => names.flatMap((name) => table.entries[name]?.flags ?? []));
  return [...new Map(flags.map((flag) => [flag.name, flag])).values()];
}

/** Flags about files beside models. */
export function sidecarFlags(): readonly Flag[] {
  const all = tables().flatMap(({ table }) => Object.values(table.entries));
  const flags = all.flatMap(({ sidecar, flags }) => (sidecar === undefined ? [] : flags));
  // Several formats may have the same configuration.
  return [...new Map(flags.map((flag) => [flag.name, flag])).values()];
}

/** True if files of a format can become this. */
export function acceptsTarget({ targets, aliases }: FormatInfo, to: string): boolean {
  return targets.some(({ name }) => name === to) || Object.hasOwn(aliases, to);
}

/** The options of all formats, by name. Those of the formats that have the target come first. */
function entries(to: string | undefined): readonly (readonly [name: string, info: FormatOption])[] {
  const all = formats();
  const having = to === undefined ? [] : all.filter((format) => acceptsTarget(format, to));
  const found = new Map<string, FormatOption>();
  for (const { options } of [...having, ...all]) {
    for (const [name, info] of Object.entries(options.entries)) if (!found.has(name)) found.set(name, info);
  }
  return [...found];
}

/** The flags of all formats, for parseArgs. */
export function formatFlags(): Record<string, { type: 'string' | 'boolean'; multiple: boolean }> {
  const flags = entries(undefined).flatMap(([, info]) => info.flags);
  return Object.fromEntries(
    flags.map(({ name, value, multiple = false }) => [
      name,
      { type: value === undefined ? 'boolean' : 'string', multiple },
    ]),
  );
}

/** The flags of options that decide about a result, without those about files beside it. */
export function choiceFlags(): readonly string[] {
  return entries(undefined).flatMap(([, { sidecar, flags }]) => (sidecar ? [] : flags.map(({ name }) => name)));
}

/** Those that name files to read, which a plan leaves open. */
export function readFlags(): readonly string[] {
  return entries(undefined).flatMap(([, { sidecar, flags }]) =>
    sidecar ? [] : flags.flatMap(({ name, value, isText }) => (value === 'FILE' && isText !== true ? [name] : [])),
  );
}

/** The flags of all commands whose values are names of files to read. */
function fileFlags(): ReadonlySet<string> {
  const own = [quantizeFlags, evaluateFlags, calibrateFlags].flatMap((flags) =>
    Object.entries<CommandFlag>(flags).flatMap(([name, { value, isWritten }]) =>
      value?.startsWith('FILE') && isWritten !== true ? [name] : [],
    ),
  );
  const others = entries(undefined).flatMap(([, { flags }]) => flags.filter(({ value }) => value === 'FILE'));
  return new Set([...own, ...others.map(({ name }) => name)]);
}

/** A file that a flag names. */
export interface NamedFile {
  readonly flag: string;
  readonly path: string;
}

/** The local files that flags name, to be read. The files of a folder count. */
export async function namedFiles(words: Words): Promise<readonly NamedFile[]> {
  const found: NamedFile[] = [];
  for (const flag of fileFlags()) {
    const given = words[flag];
    for (const value of typeof given === 'string' ? [given] : Array.isArray(given) ? (given as string[]) : []) {
      const text = flag === 'lora' ? adapterOf(value).file : value;
      // The reader of the flag refuses addresses that are wrong.
      const path = /^https?:/i.test(text) ? undefined : localPath(text);
      if (path === undefined) continue;
      const inside = await readdir(path).catch(() => undefined);
      for (const one of inside?.map((name) => join(path, name)) ?? [path]) found.push({ flag, path: one });
    }
  }
  return found;
}

/** The words of a command line, with the texts of files in place of their names where options take texts. @throws ScalepointError */
export async function withTexts(words: Words): Promise<Words> {
  const texts: Record<string, string> = {};
  for (const { name, isText } of entries(undefined).flatMap(([, { flags }]) => flags)) {
    const path = words[name];
    if (isText === true && path !== undefined) texts[name] = await readText(String(path));
  }
  return { ...words, ...texts };
}

const isGiven = ({ flags }: FormatOption, words: Words) => flags.some(({ name }) => words[name] !== undefined);

/** True if a target knows an option. The model functions report options that it does not know. */
export function knows(to: string, option: string): boolean {
  return formats().some(({ targets, aliases }) => {
    const name = (aliases as Readonly<Record<string, string>>)[to] ?? to;
    return targets.find((target) => target.name === name)?.options.includes(option) ?? false;
  });
}

/**
 * The options that the flags of a command line mean, except those about files beside the result.
 * @param all all requested targets: an option applies to those that know it
 * @throws UsageError
 */
export function choicesOf(words: Words, to: string, all: readonly string[] = [to]): Record<string, unknown> {
  const given = entries(to).filter(([name, info]) => {
    const isForOthers = !knows(to, name) && all.some((other) => knows(other, name));
    return info.sidecar === undefined && isGiven(info, words) && !isForOthers;
  });
  return Object.fromEntries(
    given.map(([name, info]) => {
      try {
        return [name, info.read(words)];
      } catch (error) {
        throw asUsage(error, words);
      }
    }),
  );
}

/** An option about a file beside the result, such as config.json. */
export interface SidecarOption {
  readonly option: string;
  readonly sidecar: Sidecar;
  /** The file to take the content from, if one was given. */
  readonly path: string | undefined;
}

/** All options about files beside results. @throws UsageError for an option that the target's formats do not have */
export function sidecarsOf(words: Words, to: string): readonly SidecarOption[] {
  const found: SidecarOption[] = [];
  for (const [option, { sidecar, flags }] of entries(to)) {
    const [flag] = flags;
    if (sidecar === undefined) continue;
    const path = flag && words[flag.name];
    const owners = formats().filter(({ options }) => Object.hasOwn(options.entries, option));
    if (path !== undefined && !owners.some((format) => acceptsTarget(format, to))) {
      throw wrongFlag(flag?.name ?? option, { kind: 'onlyFor', files: `${owners[0]?.label} files` });
    }
    found.push({ option, sidecar, path: path === undefined ? undefined : String(path) });
  }
  return found;
}

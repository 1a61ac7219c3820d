/** Destinations of results on a command line. */
import { lstat, stat } from 'node:fs/promises';
import { basename, dirname, join, sep } from 'node:path';
import {
  type ModelPlan,
  modelFormats,
  type QuantizeModelResult,
  resultFiles,
  resultName,
  ScalepointError,
} from '../model.js';
import { aFile, exactly, mention, noteText, ofType, without } from '../tooling.js';
import type { Input } from './input.js';
import { ruleTexts } from './sizes.js';
import { systemText } from './system-text.js';
import { convertedShare, shareText } from './tables.js';
import { counted, listed } from './text.js';
import { commandWordsFor, wrongFlag } from './wording.js';

/** Name of standard output as a value of -o. */
export const standardOutput = '-';

/** Path of a result: as given by -o, or in that folder or beside the input with the target in its name. */
export function outputOf({ name, isPath, fileName }: Input, asked: string | undefined, plan: ModelPlan): string {
  if (asked !== undefined && !(fileName !== undefined && isFolderPath(asked))) return asked;
  if (fileName === undefined)
    throw wrongFlag('output', { kind: 'required' }, undefined, {
      kind: 'because',
      message: 'a model from standard input has no name; -o - is standard output',
    });
  const usual = resultName(fileName, plan);
  // A copy beside its input needs another name.
  const isTaken = asked === undefined && resultFiles(usual, plan).includes(fileName);
  const extension = modelFormats().find((format) => format.name === plan.format)?.extensions[0] ?? '';
  const own = isTaken ? `${usual.slice(0, usual.length - extension.length)}.${plan.to}${extension}` : usual;
  return join(asked ?? (isPath ? dirname(name) : '.'), own);
}

/** The paths of all files of a result, the main one first. Standard output has room for one. */
export function pathsOf(output: string, plan: ModelPlan): string[] {
  if (output === standardOutput) return [output];
  const name = basename(output);
  return resultFiles(name, plan).map((file) => output.slice(0, output.length - name.length) + file);
}

/** The files of a plan, named after the output. */
export function namedFilesOf(planned: ModelPlan, output: string): ModelPlan['files'] {
  const names = resultFiles(basename(output), planned);
  return planned.files.map(({ bytes }, i) => ({ name: names[i] as string, bytes }));
}

/** Most files that are all listed. Of more, the first and the last are. */
const mostFiles = 6;

/** The paths in a text: of many, the first ones and the last. */
export function shortened(paths: readonly string[]): string[] {
  const last = paths.at(-1);
  if (paths.length <= mostFiles || last === undefined) return [...paths];
  return [...paths.slice(0, 2), `… ${paths.length - 3} more …`, last];
}

/** Note about a part of the work: its files, and the state of the whole. */
export function partNote(part: string | undefined, { files, isWhole }: QuantizeModelResult): string {
  const share =
    files.length === 0 ? 'there are fewer files than parts, so that it has none' : counted(files.length, 'file');
  const rest = isWhole ? 'the result is whole' : 'other parts are missing';
  return `part ${part}: ${share}; ${rest}`;
}

/** True if a path ends like that of a folder. */
export function isFolderPath(path: string): boolean {
  return path.endsWith('/') || path.endsWith(sep);
}

const isFolder = async (path: string): Promise<boolean> =>
  (await stat(path).catch(() => undefined))?.isDirectory() ?? false;

/** The requested output. The path of a folder gets a separator at its end. */
export async function resolvedOutput(asked: string | undefined): Promise<string | undefined> {
  if (asked === undefined || asked === standardOutput || isFolderPath(asked)) return asked;
  return (await isFolder(asked)) ? asked + sep : asked;
}

/** The folder for several results, if one is given. @throws UsageError */
export async function folderFor(asked: string | undefined, types: number): Promise<string | undefined> {
  if (asked === undefined) return undefined;
  if (asked === standardOutput)
    throw wrongFlag('to', exactly(1, 'type'), types, { kind: 'with', options: [mention('output', asked)] });
  if (!(await isFolder(asked))) {
    throw wrongFlag('output', ofType('existing folder for several results'), asked);
  }
  return isFolderPath(asked) ? asked : asked + sep;
}

/** Fails if one of several files exists. @throws ScalepointError `EXISTS` */
export async function checkFree(paths: readonly string[], force: boolean): Promise<void> {
  for (const output of paths) {
    const there = await lstat(output).catch(() => undefined);
    if (force || there === undefined) continue;
    throw new ScalepointError('EXISTS', `${JSON.stringify(output)} exists already, nothing was written`, {
      path: output,
    });
  }
}

/** Fails if a name says that the file is of another format than it will be. @throws UsageError */
export function checkName(output: string, { format: name }: ModelPlan): void {
  const formats = modelFormats();
  const format = formats.find((known) => known.name === name);
  const [own = ''] = format?.extensions ?? [];
  const lower = output.toLowerCase();
  // Files beside models are JSON, and models are not.
  const end = [...formats.flatMap(({ extensions }) => extensions), '.json']
    .filter((extension) => lower.endsWith(extension))
    .sort((a, b) => b.length - a.length)[0];
  if (end === undefined || end === own) return;
  const better = `${output.slice(0, output.length - end.length)}${own}`;
  const expected = ofType(`name of ${aFile(format?.label ?? name)}`);
  throw wrongFlag('output', expected, output, { kind: 'didYouMean', names: [better] });
}

/** Fails if a model cannot go to standard output. @throws UsageError */
export function checkStandardOutput({ json, minSqnr }: { json: boolean; minSqnr: boolean }): void {
  if (process.stdout.isTTY)
    throw wrongFlag('output', ofType('name of a file'), standardOutput, {
      kind: 'because',
      message: 'standard output is a terminal, unless > or a pipe sends it elsewhere',
    });
  if (json) throw wrongFlag('json', without('output', standardOutput));
  if (minSqnr) {
    throw wrongFlag('min-sqnr', without('output', standardOutput), undefined, {
      kind: 'because',
      message: 'output that was written cannot be taken back',
    });
  }
}

/** Standard output as a stream of bytes. */
export function standardOutputStream(): WritableStream<Uint8Array<ArrayBuffer>> {
  return new WritableStream({
    write: (bytes) =>
      new Promise((resolve, reject) => {
        process.stdout.write(bytes, (cause) => {
          if (!cause) resolve();
          else reject(new ScalepointError('IO', `cannot write to standard output: ${systemText(cause)}`, { cause }));
        });
      }),
  });
}

/** The error for a plan that converts nothing, or next to nothing, with reasons and remedies. */
export function nothingToDo({ tensors, notes, options }: ModelPlan): ScalepointError {
  const reasons = new Map<string, number>();
  for (const { kept } of tensors) {
    if (kept === undefined) continue;
    const { text } = kept;
    reasons.set(text, (reasons.get(text) ?? 0) + 1);
  }
  const counts = [...reasons].sort(([, a], [, b]) => b - a).map(([reason, n]) => `${counted(n, 'tensor')}: ${reason}`);
  const why = tensors.length === 0 ? 'there are no tensors' : listed(counts, 5);
  const words = commandWordsFor({}, ruleTexts(options.rules ?? []));
  const share = convertedShare(tensors);
  const what =
    share === 0 ? 'nothing would be converted' : `nearly nothing would be converted, ${shareText(share)} of the bytes`;
  const message = [
    `${what} (${why})`,
    ...notes.map((note) => noteText(note, words)),
    `--force ${share === 0 ? 'copies it' : 'converts it all the same'}`,
  ].join('; ');
  return new ScalepointError('NO_EFFECT', message);
}

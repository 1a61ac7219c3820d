/** Destinations of results on a command line. */
import { lstat, stat } from 'node:fs/promises';
import { basename, dirname, join, sep } from 'node:path';
import { type ModelPlan, modelFormats, resultFiles, resultName, ScalepointError } from '../model.js';
import { aFile, exactly, mention, noteText, ofType } from '../tooling.js';
import type { Input } from './input.js';
import { systemText } from './system-text.js';
import { convertedShare, shareText } from './tables.js';
import { countText, listText } from './text.js';
import { commandWordsFor, wrongFlag } from './wording.js';

/** Name of standard output as a value of -o. */
export const standardOutput = '-';

/** Path of a result: as given by -o, or in that folder or beside the input with the target in its name. */
export function outputOf(input: Input, asked: string | undefined, plan: ModelPlan): string {
  const { name, isPath, fileName, folderName } = input;
  if (asked !== undefined && !(fileName !== undefined && isFolderPath(asked))) return asked;
  if (fileName === undefined)
    throw wrongFlag('output', { kind: 'required' }, undefined, {
      kind: 'because',
      message: 'a model from standard input has no name; -o - is standard output',
    });
  const usual = resultName(folderName === undefined ? fileName : `${folderName}/${fileName}`, plan);
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
const mostFiles = 12;

/** The paths in a text: of many, the first ones and the last. */
export function shortened(paths: readonly string[]): string[] {
  const last = paths.at(-1);
  if (paths.length <= mostFiles || last === undefined) return [...paths];
  return [...paths.slice(0, 2), `… ${paths.length - 3} more …`, last];
}

/** True if a path ends like that of a folder. */
export function isFolderPath(path: string): boolean {
  return path.endsWith('/') || path.endsWith(sep);
}

/**
 * The requested output. The path of a folder gets a separator at its end.
 * @param count number of results; several need a folder
 * @param types number of types of each model
 * @throws UsageError
 */
export async function resolveOutput(
  asked: string | undefined,
  count: number,
  types: number,
): Promise<string | undefined> {
  if (asked === undefined || (count === 1 && asked === standardOutput)) return asked;
  if (asked === standardOutput)
    throw wrongFlag('to', exactly(1, 'type'), types, { kind: 'with', options: [mention('output', asked)] });
  if (count === 1 && isFolderPath(asked)) return asked;
  const isFolder = (await stat(asked).catch(() => undefined))?.isDirectory() ?? false;
  if (!isFolder && count > 1) throw wrongFlag('output', ofType('existing folder for several results'), asked);
  return isFolder && !isFolderPath(asked) ? asked + sep : asked;
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
export function checkOutputName(output: string, { format: name }: ModelPlan): void {
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
  const counts = [...reasons]
    .sort(([, a], [, b]) => b - a)
    .map(([reason, n]) => `${countText(n, 'tensor')}: ${reason}`);
  const why = tensors.length === 0 ? 'there are no tensors' : listText(counts, 5);
  const words = commandWordsFor({}, options.rules ?? []);
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

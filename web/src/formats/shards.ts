/**
 * Models in several files: cutting results into files, dividing the work into parts, finding the files of a model. A tensor is never cut.
 */
import { rangeError, ScalepointError, typeError } from '../core/errors.js';
import { nodeModule } from '../core/node.js';
import { type Note, noteOf } from '../core/note.js';
import { type Expected, without } from '../core/option-problem.js';
import { amended, type OptionsOf, option, type Words } from '../core/schema.js';
import { type ByteSource, type FileInput, farFileBeside, isFarFile, quoted, quotedNames } from './files/bytes.js';
import type { OpenInput, OutputFile, Target } from './format.js';

// ------------------------------------------------------------------------------------------------------------------------ options

const decimal = { '': 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12 };
const units: Readonly<Record<string, number>> = { ...decimal, ki: 2 ** 10, mi: 2 ** 20, gi: 2 ** 30, ti: 2 ** 40 };

/** Parses a size into bytes; undefined if invalid. */
export function parseSize(size: unknown): number | undefined {
  const [, digits, unit = ''] = typeof size === 'string' ? (/^(\d+(?:\.\d+)?) ?([kmgt]i?)?b?$/i.exec(size) ?? []) : [];
  const factor = units[unit.toLowerCase()] ?? NaN;
  const bytes = digits === undefined ? size : Math.floor(Number((Number(digits) * factor).toFixed(3)));
  return typeof bytes === 'number' && Number.isSafeInteger(bytes) && bytes > 0 ? bytes : undefined;
}

/** Valid sizes, for errors. */
export const sizeForm: Expected = {
  kind: 'anyOf',
  of: [
    { kind: 'number', unit: 'bytes' },
    { kind: 'text', examples: ['5GB', '1.9GiB'] },
  ],
};

/** Checks a size of files. @throws TypeError or RangeError naming the option */
export function checkFileSize(value: unknown, name: string): void {
  if (parseSize(value) !== undefined) return;
  throw ['number', 'string'].includes(typeof value)
    ? rangeError(name, sizeForm, value)
    : typeError(name, sizeForm, value);
}

/** Options for the files of a result. */
export const shardEntries = {
  /**
   * safetensors and GGUF: splits the result into files with at most this many bytes of tensors: a number, or a string such as '5GB' or '1.9
   * GiB'. A larger tensor gets a file to itself. safetensors get an index, unless everything fits into one file. GGUF is split as by
   * gguf-split. The output is named as a whole: `model.gguf` becomes `model-00001-of-00003.gguf`.
   * @defaultValue one file
   */
  shardSize: amended(
    option<number | string>(
      checkFileSize,
      { name: 'shard-size', value: 'SIZE', about: 'several files of at most SIZE of tensors each: 5GB, 1.9GiB' },
      { name: 'split-size', value: 'SIZE', about: 'the same, as it is called for GGUF' },
    ),
    {
      read({ 'shard-size': shard, 'split-size': split }: Words) {
        if (shard !== undefined && split !== undefined) throw rangeError('--split-size', without('--shard-size'));
        checkFileSize(shard ?? split, shard === undefined ? '--split-size' : '--shard-size');
        return shard ?? split;
      },
    },
  ),
};

/** The option for the work of one of several jobs. */
export const partEntry = {
  /**
   * safetensors and GGUF: '3/16' makes the third of sixteen parts of the work: its share of the files, with the same bytes as in a single
   * run. The part that finishes last, with the files of all others in place, writes the index.
   * @defaultValue all of the work
   */
  part: option<`${number}/${number}`>(
    (value, name) => {
      if (partOf(value) === undefined) throw rangeError(name, { kind: 'text', examples: ['1/16', '16/16'] }, value);
    },
    {
      name: 'part',
      value: 'I/N',
      about: 'only the files of part I of N, such as 3/16; the last part to be done writes the index',
    },
  ),
};

/** Names of these options, for the lists of targets. */
export const shardOptions: readonly string[] = Object.keys({ ...shardEntries, ...partEntry });

export interface ShardOptions extends OptionsOf<typeof shardEntries>, OptionsOf<typeof partEntry> {}

/** A part of the work: its number, from 1, and the number of parts. */
export interface WorkPart {
  readonly number: number;
  readonly count: number;
}

/** Largest number of parts. */
const mostParts = 99_999;

/** Parses a part such as '3/16'; undefined if invalid. */
export function partOf(text: unknown): WorkPart | undefined {
  const [, number, count] = typeof text === 'string' ? (/^(\d{1,5})\/(\d{1,5})$/.exec(text) ?? []) : [];
  const part = { number: Number(number), count: Number(count) };
  return part.number >= 1 && part.number <= part.count && part.count <= mostParts ? part : undefined;
}

/** The target that copies all tensors; COPY in llama-quantize. */
export type Copy = 'copy';

/** Description of that target. @param options names of the options that apply to it */
export function copyTarget(options: readonly string[]): Target & { readonly name: Copy } {
  return { name: 'copy', about: 'every tensor as it is: to split, to join', options, copies: true };
}

// ------------------------------------------------------------------------------------------------------------------------ cutting

/** The name of a file beside safetensors: as loaders read it beside model.safetensors, and distinct beside others. */
export function nameBeside(output: string, usualName: string): string {
  const [, folder = '', name = ''] = /^(.*[\\/])?([^\\/]*)$/s.exec(output) ?? [];
  if (name === 'model.safetensors') return folder + usualName;
  return `${folder}${name.replace(/\.safetensors$/i, '')}.${usualName}`;
}

/** The name of a file of a result. @param output the name of the output, with or without its folder */
export function fileName(
  output: string,
  { suffix, replaces, isBeside }: Pick<OutputFile, 'suffix' | 'replaces' | 'isBeside'>,
): string {
  if (isBeside) return nameBeside(output, suffix);
  const isReplaced = replaces !== undefined && output.toLowerCase().endsWith(replaces);
  return (isReplaced ? output.slice(0, -replaces.length) : output) + suffix;
}

/** Default size of the files of parts, the former default of transformers. */
const usualSize = 5e9;

/** Largest number of files, by the five digits in their names. */
const mostShards = 99_999;

/**
 * Largest number of tensor bytes in a file; undefined if the result is one file. Work in parts gets a file for each part.
 * @param sizes of the tensors
 */
export function shardLimit(
  { shardSize: size, part: text }: ShardOptions,
  sizes: readonly number[],
): number | undefined {
  if (size !== undefined) return parseSize(size);
  const parts = text === undefined ? undefined : partOf(text);
  if (parts === undefined) return undefined;
  const bytes = sizes.reduce((sum, one) => sum + one, 0);
  return Math.max(1, Math.min(usualSize, Math.ceil(bytes / parts.count)));
}

/**
 * Cuts a list of tensors into files, in order, starting a new file where the limit would be exceeded. Returns the index of the first tensor
 * of each file; at least one file.
 * @param most tensors in a file
 * @throws RangeError for too many files
 */
export function shardsOf(
  sizes: readonly number[],
  limit: number,
  most = Number.POSITIVE_INFINITY,
  mostFiles = mostShards,
): number[] {
  const begins = [0];
  let bytes = 0;
  for (const [i, size] of sizes.entries()) {
    const tensors = i - (begins.at(-1) as number);
    if (tensors > 0 && (bytes + size > limit || tensors === most)) {
      begins.push(i);
      bytes = 0;
    }
    bytes += size;
  }
  if (begins.length <= mostFiles) return begins;
  throw rangeError('shardSize', { kind: 'number', max: mostFiles, unit: 'files' }, begins.length);
}

/** The note about tensors larger than the requested file size. */
export function largeNote(
  { shardSize: size }: ShardOptions,
  tensors: readonly { readonly name: string }[],
  sizes: readonly number[],
): Note[] {
  if (size === undefined) return [];
  const limit = parseSize(size) ?? Number.POSITIVE_INFINITY;
  const names = tensors.filter((_, i) => (sizes[i] ?? 0) > limit).map(({ name }) => name);
  if (names.length === 0) return [];
  const text = `exceeds the requested shard size and gets a file of its own: ${quotedNames(names, 1)}`;
  return [noteOf('largerThanFile', { tensors: names }, text)];
}

/** Suffix of the name of one of several files, `-00001-of-00003.gguf`. @param index from 0 */
export function shardSuffix(index: number, count: number, extension: string): string {
  const digits = (n: number) => String(n).padStart(5, '0');
  return `-${digits(index + 1)}-of-${digits(count)}${extension}`;
}

// ------------------------------------------------------------------------------------------------------------------------ finding

/** Opens a file of a model by its name. */
export type OpenByName = (name: string) => Promise<ByteSource>;

/** Opens files in the folder of a given path or URL. @param files description of the files to give if the input has no folder */
export function besideFile(input: FileInput, open: OpenInput, files: Expected): OpenByName {
  if (input instanceof URL) return (name) => open(new URL(encodeURIComponent(name), input));
  if (isFarFile(input)) return async (name) => open(farFileBeside(input, name));
  const paths = nodeModule('node:path');
  if (typeof input === 'string' && paths !== undefined) {
    return (name) => open(paths.join(paths.dirname(input), name));
  }
  throw typeError('file', files, 1);
}

/** Adds the name of the file to an error, because an offset alone is ambiguous among several files. */
export async function inFile<T>(name: string | undefined, result: Promise<T>): Promise<T> {
  try {
    return await result;
  } catch (error) {
    if (!(error instanceof ScalepointError) || error.code !== 'BAD_FILE' || name === undefined) throw error;
    const { code, statement, tensor, byteOffset, hint } = error;
    throw new ScalepointError(code, `${quoted(name)}: ${statement}`, { tensor, byteOffset, hint, cause: error });
  }
}

/**
 * Models in several files: how results are cut into them, which part of the work is whose, and how the files of a model are found. Nothing
 * is ever cut inside of a tensor.
 */
import { rangeError, ScalepointError, typeError } from '../core/errors.js';
import { nodeModule } from '../core/node.js';
import { type Note, noteOf } from '../core/note.js';
import { type Expected, without } from '../core/option-problem.js';
import { type ByteSource, type FileInput, quoted, quotedNames } from '../files/bytes.js';
import type { OpenInput, Target } from './format.js';
import type { OptionInfo, PlanChoices } from './options.js';

// ------------------------------------------------------------------------------------------------------------------------ options

/** What decides about the files of a result. */
export interface ShardOptions {
  /**
   * safetensors and GGUF: a result in several files, each with so many bytes of tensors at most: a number, or a text such as '5GB' or
   * '1.9 GiB'. A larger tensor gets a file of its own. safetensors get an index; a result that fits into one file is one file. GGUF is
   * split as gguf-split does it. The output's name is that of the whole: `model.gguf` becomes `model-00001-of-00003.gguf`.
   * @defaultValue one file
   */
  readonly shardSize?: number | string | undefined;
  /**
   * safetensors and GGUF: '3/16' makes the third of sixteen parts of the work: its share of the files, with the same bytes as in one run.
   * The part that finds the files of all others in place writes the index.
   * @defaultValue all of the work
   */
  readonly part?: `${number}/${number}` | undefined;
}

/** The names of the options, for lists of what a target knows. */
export const shardOptions: readonly string[] = ['shardSize', 'part'];

const units: Readonly<Record<string, number>> = { '': 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12 };
const binaryUnits: Readonly<Record<string, number>> = { ki: 2 ** 10, mi: 2 ** 20, gi: 2 ** 30, ti: 2 ** 40 };

/** The bytes that a size means; undefined if it means none. */
export function bytesOf(size: unknown): number | undefined {
  const [, digits, unit = ''] = typeof size === 'string' ? (/^(\d+(?:\.\d+)?) ?([kmgt]i?)?b?$/i.exec(size) ?? []) : [];
  const factor = units[unit.toLowerCase()] ?? binaryUnits[unit.toLowerCase()] ?? Number.NaN;
  const bytes = digits === undefined ? size : Math.floor(Number((Number(digits) * factor).toFixed(3)));
  return Number.isSafeInteger(bytes) && (bytes as number) > 0 ? (bytes as number) : undefined;
}

/** What a size can be. */
export const sizeForm: Expected = {
  kind: 'anyOf',
  of: [
    { kind: 'number', unit: 'bytes' },
    { kind: 'text', examples: ['5GB', '1.9GiB'] },
  ],
};

/** --shard-size and --split-size. */
export const shardSize: OptionInfo = {
  flags: [
    { name: 'shard-size', value: 'SIZE', about: 'several files, of so many bytes of tensors at most: 5GB, 1.9GiB' },
    { name: 'split-size', value: 'SIZE', about: 'the same, as it is called for GGUF' },
  ],
  check(value, name) {
    if (bytesOf(value) !== undefined) return;
    throw typeof value === 'number' || typeof value === 'string'
      ? rangeError(name, sizeForm, value)
      : typeError(name, sizeForm, value);
  },
  read({ 'shard-size': shard, 'split-size': split }) {
    if (shard !== undefined && split !== undefined) throw rangeError('--split-size', without('--shard-size'));
    const size = shard ?? split;
    if (bytesOf(size) !== undefined) return size;
    throw rangeError(shard === undefined ? '--split-size' : '--shard-size', sizeForm, size);
  },
};

/** A part of the work: which one, from 1, and of how many. */
export interface WorkPart {
  readonly number: number;
  readonly count: number;
}

/** More parts than that are a mistake. */
const mostParts = 99_999;

/** What a part is called; undefined if it is none. */
export function partOf(text: unknown): WorkPart | undefined {
  const [, number, count] = typeof text === 'string' ? (/^(\d{1,5})\/(\d{1,5})$/.exec(text) ?? []) : [];
  const part = { number: Number(number), count: Number(count) };
  return part.number >= 1 && part.number <= part.count && part.count <= mostParts ? part : undefined;
}

/** --part. */
export const part: OptionInfo = {
  flags: [
    {
      name: 'part',
      value: 'I/N',
      about: 'only the files of part I of N, such as 3/16; the last part to be done writes the index',
    },
  ],
  check(value, name) {
    if (partOf(value) !== undefined) return;
    throw rangeError(name, { kind: 'text', examples: ['1/16', '16/16'] }, value);
  },
  read: (words) => words.part,
};

/** The target that converts nothing. llama-quantize calls it COPY. */
export type Copy = 'copy';

/** The same for people. @param options that mean something for it */
export function copyTarget(options: readonly string[]): Target & { readonly name: Copy } {
  return { name: 'copy', about: 'every tensor as it is: to split, to join', options, copies: true };
}

/** @throws RangeError if rules are to convert what is to be copied */
export function checkCopy({ to, rules = [] }: PlanChoices): void {
  if (to === 'copy' && rules.length > 0) throw rangeError('rules', without('to', 'copy'));
}

// ------------------------------------------------------------------------------------------------------------------------ cutting

/** Files of parts have so many bytes at most if nothing was said. It is what transformers long had. */
const usualSize = 5e9;

/** Names have room for so many. */
const mostShards = 99_999;

/**
 * The bytes of tensors that a file of a result has at most; undefined if the result is one file. Of work in parts, each part gets a file.
 * @param sizes of the tensors
 */
export function shardLimit(
  { shardSize: size, part: text }: ShardOptions,
  sizes: readonly number[],
): number | undefined {
  if (size !== undefined) return bytesOf(size);
  const parts = partOf(text);
  if (parts === undefined) return undefined;
  const bytes = sizes.reduce((sum, one) => sum + one, 0);
  return Math.max(1, Math.min(usualSize, Math.ceil(bytes / parts.count)));
}

/**
 * Cuts a list of tensors into files: one after the other, a new file where the limit would be passed. Returns where each file begins. There
 * is always one file.
 * @param most tensors in a file
 * @throws RangeError if there would be too many
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

/** The note about tensors that are larger than the files that were asked for. */
export function largeNote(
  { shardSize: size }: ShardOptions,
  tensors: readonly { readonly name: string }[],
  sizes: readonly number[],
): Note[] {
  const limit = bytesOf(size) ?? Number.POSITIVE_INFINITY;
  const names = tensors.filter((_, i) => (sizes[i] ?? 0) > limit).map(({ name }) => name);
  if (names.length === 0) return [];
  const text = `larger than the files that were asked for, and in a file alone: ${quotedNames(names, 1)}`;
  return [noteOf('largerThanFile', { tensors: names }, text)];
}

/** What the name of one of several files has behind that of the whole, `-00001-of-00003.gguf`. @param index from 0 */
export function shardSuffix(index: number, count: number, extension: string): string {
  const digits = (n: number) => String(n).padStart(5, '0');
  return `-${digits(index + 1)}-of-${digits(count)}${extension}`;
}

// ------------------------------------------------------------------------------------------------------------------------ finding

/** Opens a file of a model by its name. */
export type OpenByName = (name: string) => Promise<ByteSource>;

/** Opens files in the folder of one that was given, by path or URL. @param files that have to be given where there is no folder */
export function besideFile(input: FileInput, open: OpenInput, files: Expected): OpenByName {
  if (input instanceof URL) return (name) => open(new URL(encodeURIComponent(name), input));
  const paths = nodeModule('node:path');
  if (typeof input === 'string' && paths !== undefined) {
    return (name) => open(paths.join(paths.dirname(input), name));
  }
  throw typeError('file', files, 1);
}

/** Adds the name of the file to an error. With several files, the offset alone would not tell where it is. */
export async function inFile<T>(name: string | undefined, result: Promise<T>): Promise<T> {
  try {
    return await result;
  } catch (error) {
    if (!(error instanceof ScalepointError) || error.code !== 'BAD_FILE' || name === undefined) throw error;
    const { code, statement, tensor, byteOffset, hint } = error;
    throw new ScalepointError(code, `${quoted(name)}: ${statement}`, { tensor, byteOffset, hint, cause: error });
  }
}

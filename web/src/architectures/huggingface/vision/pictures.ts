/**
 * Preparation of pictures for a vision tower, from preprocessor_config.json and processor_config.json.
 * Reference: github.com/ggml-org/llama.cpp, conversion/base.py at 720d7fa.
 */
import { show } from '../../../core/show.js';
import type { Folder } from '../../recipe.js';
import { badFolderFile } from '../errors.js';
import { type Json, member, objectMember, parseObject } from '../json.js';

const files = ['preprocessor_config.json', 'processor_config.json'] as const;

/** Object of each file whose members count like those around it. */
const inner = ['media_proc_cfg', 'image_processor'] as const;

/** Preparation of pictures. */
export interface Pictures {
  /** Mean and standard deviation of red, green and blue; undefined if no file states them. */
  readonly mean: readonly number[] | undefined;
  readonly deviation: readonly number[] | undefined;
  /** Tokens that a picture becomes. */
  readonly tokens: number | undefined;
  /** Pixels of a large picture's longer side. */
  readonly longestEdge: number | undefined;
}

function colors(name: string, value: unknown): readonly number[] | undefined {
  if (value === undefined) return undefined;
  if (Array.isArray(value) && value.length === 3 && value.every(Number.isFinite)) return value as number[];
  return badFolderFile(files[0], `${name} has to be an array of 3 numbers, got ${show(value)}`);
}

function wholeSize(name: string, value: unknown): number | undefined {
  if (value === undefined || (Number.isInteger(value) && (value as number) > 0 && (value as number) < 2 ** 31))
    return value as number | undefined;
  return badFolderFile(files[0], `${name} has to be a whole number of at least 1, got ${show(value)}`);
}

/** Reads the files. Members of the second one count more. */
export async function readPictures(folder: Folder): Promise<Pictures> {
  let all: Json = {};
  for (const [i, name] of files.entries()) {
    const bytes = await folder.file(name);
    if (bytes === undefined) continue;
    const own = parseObject(name, bytes);
    all = { ...all, ...own, ...objectMember(own, inner[i] as string) };
  }
  return {
    mean: colors('image_mean', member(all, 'image_mean')),
    deviation: colors('image_std', member(all, 'image_std')),
    tokens: wholeSize('image_seq_length', member(all, 'image_seq_length')),
    longestEdge: wholeSize('size.longest_edge', member(objectMember(all, 'size'), 'longest_edge')),
  };
}

/** A mean or a deviation. Fails without one. */
export function needed(value: readonly number[] | undefined, name: 'image_mean' | 'image_std'): readonly number[] {
  return value ?? badFolderFile(files[0], `${name} is missing; copy ${files[0]} of the model into the folder`);
}

/**
 * Pooling: how an embedding model reduces the vectors of its tokens to one. Read from the files of sentence-transformers.
 * Reference: github.com/ggml-org/llama.cpp, conversion/base.py at 00bd27a.
 */
import { show } from '../../core/show.js';
import type { Folder } from '../recipe.js';
import { badFolderFile, unsupported } from './errors.js';
import { isObject, member, parseJson, parseObject } from './json.js';

/** Architectures whose converter reads the pooling. */
const pooled = [
  'qwen2',
  'qwen3',
  'gemma-embedding',
  'bert',
  'jina-bert-v2',
  'jina-bert-v3',
  'nomic-bert',
  'modern-bert',
];

/** Keys of a pooling's config.json with llama.cpp's numbers. The first that is true counts. */
const flags: readonly (readonly [key: string, pooling: number])[] = [
  ['pooling_mode_mean_tokens', 1],
  ['pooling_mode_cls_token', 2],
  ['pooling_mode_lasttoken', 3],
];
const modes = new Map<unknown, number>([
  ['mean', 1],
  ['cls', 2],
  ['lasttoken', 3],
]);

/** The number of a folder's pooling; undefined without one in modules.json. */
export async function readPooling(folder: Folder, architecture: string): Promise<number | undefined> {
  if (!pooled.includes(architecture)) return undefined;
  const bytes = await folder.file('modules.json');
  if (bytes === undefined) return undefined;
  const modules = parseJson('modules.json', bytes);
  if (!Array.isArray(modules)) return badFolderFile('modules.json', 'it holds no array');
  const module = (modules as unknown[]).filter(isObject).find((one) => {
    const type = member(one, 'type');
    return typeof type === 'string' && type.endsWith('Pooling');
  });
  if (module === undefined) return undefined;
  const path = member(module, 'path');
  if (typeof path !== 'string')
    return badFolderFile('modules.json', `the path of the pooling has to be a string, got ${show(path)}`);
  if (path.split(/[\\/]/).includes('..') || /^[\\/]|:/.test(path))
    return badFolderFile('modules.json', `the path of the pooling leads out of the folder: ${show(path)}`);
  const file = `${path}/config.json`;
  const settings = await folder.file(file);
  if (settings === undefined) return badFolderFile(file, 'modules.json names this file, but it is missing');
  const keys = parseObject(file, settings);
  const flag = flags.find(([key]) => member(keys, key) === true);
  if (flag !== undefined) return flag[1];
  return modes.get(member(keys, 'pooling_mode')) ?? unsupported(file, 'the pooling is not mean, cls or lasttoken');
}

/**
 * Pooling: how an embedding model reduces the vectors of its tokens to one. Read from the files of sentence-transformers.
 * Reference: github.com/ggml-org/llama.cpp, conversion/base.py at 00bd27a.
 */
import { type Note, noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { quoted } from '../../files/bytes.js';
import type { Folder } from '../recipe.js';
import { badFolderFile, unsupported } from './errors.js';
import { isObject, type Json, member, parseJson, parseObject } from './json.js';

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

/** Facts of modules.json: the modules that make one vector of those of the tokens. */
interface VectorModules {
  /** The number of the pooling; undefined without one in modules.json. */
  readonly pooling: number | undefined;
  readonly notes: readonly Note[];
}

/** Reads modules.json. */
export async function readModules(folder: Folder, architecture: string): Promise<VectorModules> {
  const bytes = await folder.file('modules.json');
  if (bytes === undefined) return { pooling: undefined, notes: [] };
  const modules = parseJson('modules.json', bytes);
  if (!Array.isArray(modules)) return badFolderFile('modules.json', 'it holds no array');
  const ofType = (end: string) =>
    (modules as unknown[]).filter(isObject).filter((one) => {
      const type = member(one, 'type');
      return typeof type === 'string' && type.endsWith(end);
    });
  const dense = ofType('Dense').map((one) => String(member(one, 'path')));
  const text =
    `the ${dense.length === 1 ? 'layer' : 'layers'} ${dense.map(quoted).join(', ')} of sentence-transformers behind the pooling ` +
    `${dense.length === 1 ? 'is' : 'are'} left out: vectors of llama.cpp differ from those of sentence-transformers`;
  const notes = dense.length === 0 ? [] : [noteOf('denseLeftOut', { paths: dense }, text)];
  const [module] = ofType('Pooling');
  if (module === undefined || !pooled.includes(architecture)) return { pooling: undefined, notes };
  return { pooling: await poolingOf(folder, module), notes };
}

/** The number of the pooling of a module. */
async function poolingOf(folder: Folder, module: Json): Promise<number> {
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

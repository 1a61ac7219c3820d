/**
 * Pooling: how an embedding model reduces the vectors of its tokens to one, and the layers behind it. Read from the files of
 * sentence-transformers.
 * Reference: github.com/ggml-org/llama.cpp, conversion/base.py at 00bd27a and conversion/gemma.py at 061b8c5.
 */
import { type Note, noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { floatsIn } from '../../formats/codecs/floats-in.js';
import { quoted } from '../../formats/files/bytes.js';
import { openSource } from '../../formats/files/open.js';
import { readSafetensors } from '../../formats/safetensors/header.js';
import type { Folder, Recipe } from '../recipe.js';
import { badFolderFile, unsupported } from './errors.js';
import { isObject, type Json, member, parseJson, parseObject } from './json.js';
import type { Keys } from './keys.js';

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
  /** The pooling, and sizes of the layers behind it, as far as modules.json has them. */
  readonly keys: Keys;
  /** Matrices of the layers behind the pooling. */
  readonly tensors: readonly Recipe[];
  readonly notes: readonly Note[];
}

/** Reads modules.json. */
export async function readModules(
  folder: Folder,
  architecture: string,
  writesPooling: boolean,
): Promise<VectorModules> {
  const bytes = await folder.file('modules.json');
  if (bytes === undefined) return { keys: {}, tensors: [], notes: [] };
  const modules = parseJson('modules.json', bytes);
  if (!Array.isArray(modules)) return badFolderFile('modules.json', 'it holds no array');
  const ofType = (end: string) =>
    (modules as unknown[]).filter(isObject).filter((one) => {
      const type = member(one, 'type');
      return typeof type === 'string' && type.endsWith(end);
    });
  const layers = ofType('Dense');
  // llama.cpp has such layers for EmbeddingGemma alone.
  const hasLayers = architecture === 'gemma-embedding';
  const dense = hasLayers ? await Promise.all(layers.map((one) => denseOf(folder, one))) : [];
  if (new Set(dense.map(({ recipe }) => recipe.name)).size < dense.length)
    unsupported('modules.json', `it has ${dense.length} layers of the type Dense; llama.cpp knows 2_Dense and 3_Dense`);
  const notes = dense.flatMap((one) => one.notes);
  if (!hasLayers && layers.length > 0) {
    const paths = layers.map((one) => String(member(one, 'path')));
    const [words, are] = paths.length === 1 ? ['layer', 'is'] : ['layers', 'are'];
    const text =
      `the ${words} ${paths.map(quoted).join(', ')} of sentence-transformers behind the pooling ${are} left out: vectors of llama.cpp ` +
      'differ from those of sentence-transformers';
    notes.push(noteOf('denseLeftOut', { paths }, text));
  }
  const [module] = ofType('Pooling');
  let pooling: Keys = {};
  if (module !== undefined && writesPooling) {
    const { file, keys } = await moduleSettings(folder, module, 'pooling');
    const [, flagged] = flags.find(([key]) => member(keys, key) === true) ?? [];
    const mode = flagged ?? modes.get(member(keys, 'pooling_mode'));
    pooling = { pooling_type: mode ?? unsupported(file, 'the pooling is not mean, cls or lasttoken') };
  }
  return {
    keys: Object.assign({}, ...dense.map((one) => one.keys), pooling),
    tensors: dense.map(({ recipe }) => recipe),
    notes,
  };
}

/** The part of a folder that modules are read from. */
type ModuleFiles = Pick<Folder, 'file'>;

/** The path of a module, and the file of its settings. */
export async function moduleSettings(
  folder: ModuleFiles,
  module: Json,
  what: string,
): Promise<{ path: string; file: string; keys: Json }> {
  const path = member(module, 'path');
  if (typeof path !== 'string')
    return badFolderFile('modules.json', `the path of the ${what} has to be a string, got ${show(path)}`);
  if (path.split(/[\\/]/).includes('..') || /^[\\/]|:/.test(path))
    return badFolderFile('modules.json', `the path of the ${what} leads out of the folder: ${show(path)}`);
  const file = `${path}/config.json`;
  const settings = await folder.file(file);
  if (settings === undefined) return badFolderFile(file, 'modules.json names this file, but it is missing');
  return { path, file, keys: parseObject(file, settings) };
}

/** A layer behind the pooling. */
export interface DenseLayer {
  readonly path: string;
  /** Its settings. */
  readonly file: string;
  /** Its weights. */
  readonly weights: string;
  readonly shape: readonly [rows: number, columns: number];
  readonly matrix: Float32Array<ArrayBuffer>;
  readonly bias: Float32Array<ArrayBuffer> | undefined;
  /** Name of the class of its activation; undefined for none. */
  readonly activation: unknown;
}

/** Reads a layer behind the pooling. @throws ScalepointError `BAD_FILE`, `UNKNOWN_FORMAT` */
export async function readDense(folder: ModuleFiles, module: Json): Promise<DenseLayer> {
  const { path, file, keys } = await moduleSettings(folder, module, 'layer behind the pooling');
  const [inputs, outputs] = [member(keys, 'in_features'), member(keys, 'out_features')];
  const weights = `${path}/model.safetensors`;
  const bytes = await folder.file(weights);
  if (bytes === undefined) return badFolderFile(weights, 'modules.json names its folder, but it is missing');
  const { tensors } = await readSafetensors(await openSource(bytes));
  const floatsOf = (name: string) => {
    const found = tensors.find((one) => one.name === name);
    if (found === undefined) return undefined;
    const { dtype, byteOffset, bytes: size } = found;
    if (dtype !== 'F64' && dtype !== 'F32' && dtype !== 'F16' && dtype !== 'BF16')
      return unsupported(weights, `${name} is ${dtype}, and no float`);
    const data = bytes.slice(byteOffset, byteOffset + size);
    const values = dtype === 'F64' ? Float32Array.from(new Float64Array(data.buffer)) : floatsIn(data, dtype);
    return { shape: found.shape, values };
  };
  const matrix = floatsOf('linear.weight') ?? badFolderFile(weights, 'the tensor "linear.weight" is missing');
  const { shape } = matrix;
  const [rows = 0, columns = 0] = shape;
  if (shape.length !== 2 || rows !== outputs || columns !== inputs)
    badFolderFile(
      weights,
      `linear.weight has the shape [${shape.join(', ')}]; by ${file} it is [${show(outputs)}, ${show(inputs)}]`,
    );
  const bias = floatsOf('linear.bias')?.values;
  if (bias !== undefined && bias.length !== rows)
    badFolderFile(weights, `linear.bias has ${bias.length} elements, and linear.weight ${rows} rows`);
  const stated = member(keys, 'activation_function');
  const isPlain = stated === undefined || (typeof stated === 'string' && /(^|\.)Identity$/.test(stated));
  const activation = isPlain ? undefined : stated;
  return { path, file, weights, shape: [rows, columns], matrix: matrix.values, bias, activation };
}

/** A layer behind the pooling in llama.cpp: its matrix, its sizes, and notes about parts of it that are not applied there. */
async function denseOf(folder: Folder, module: Json) {
  const { path, shape, matrix, bias, activation } = await readDense(folder, module);
  // The converter gives every other path the second name.
  const isSecond = path === '2_Dense';
  const [rows, columns] = shape;
  const sizes: Keys = isSecond
    ? { dense_2_feat_in: columns, dense_2_feat_out: rows }
    : { dense_3_feat_in: columns, dense_3_feat_out: rows };
  const recipe: Recipe = { name: `${isSecond ? 'dense_2' : 'dense_3'}.weight`, shape, sources: [], values: matrix };
  // llama.cpp applies no bias and no activation behind the matrix.
  const parts = [
    ...(bias === undefined ? [] : ['the bias']),
    ...(activation === undefined ? [] : [`the activation ${show(activation)}`]),
  ];
  const text =
    `${parts.join(' and ')} of the layer ${quoted(path)} behind the pooling left out: vectors of llama.cpp differ from those of ` +
    'sentence-transformers';
  return { keys: sizes, recipe, notes: parts.length === 0 ? [] : [noteOf('denseLeftOut', { paths: [path] }, text)] };
}

/**
 * Modules of sentence-transformers behind an encoder, which make one vector of those of the tokens: a pooling, products and norms.
 * Reference: github.com/UKPLab/sentence-transformers, sentence_transformers/models/Pooling.py at 01d5ae3, Dense.py at 0e6dff7.
 */
import { show } from '../../core/show.js';
import { badFolderFile, unsupported } from '../huggingface/errors.js';
import { isObject, type Json, member, parseJson } from '../huggingface/json.js';
import { type DenseLayer, moduleSettings, readDense } from '../huggingface/pooling.js';
import type { Folder } from '../recipe.js';
import type { ValueName } from './graph.js';
import { functionNamed, type Parts } from './parts.js';

const file = 'modules.json';

/** Functions behind products, by the names of their classes in torch. */
const functionClasses: Readonly<Record<string, string>> = { Tanh: 'tanh', ReLU: 'relu', GELU: 'gelu', SiLU: 'silu' };

/** A module behind the encoder. */
type SentenceModule =
  | { readonly kind: 'mean' | 'first' | 'last' | 'normalize' }
  | { readonly kind: 'dense'; readonly layer: DenseLayer; readonly apply: string | undefined };

/** The modules of a folder behind the encoder, and their files. */
export interface SentenceModules {
  readonly modules: readonly SentenceModule[];
  readonly files: readonly string[];
}

const poolings: Readonly<Record<string, SentenceModule['kind'] & ('mean' | 'first' | 'last')>> = {
  mean: 'mean',
  cls: 'first',
  lasttoken: 'last',
};

/** The pooling that its settings state: each mode is a flag, or one of them is named. */
function poolingIn(settings: string, keys: Json): SentenceModule {
  const named = member(keys, 'pooling_mode');
  const flagged = Object.keys(keys).flatMap((key) => {
    const [, mode] = /^pooling_mode_(\w+?)(?:_tokens?)?$/.exec(key) ?? [];
    return mode !== undefined && keys[key] === true ? [mode] : [];
  });
  const mode =
    named === undefined ? flagged.join(' and ') : typeof named === 'string' ? named.toLowerCase() : show(named);
  const kind = Object.hasOwn(poolings, mode) ? poolings[mode] : undefined;
  if (kind === undefined)
    return unsupported(
      settings,
      `the pooling is ${mode || 'not named'}; it can be ${Object.keys(poolings).join(', ')}`,
    );
  if (member(keys, 'include_prompt') === false)
    unsupported(settings, 'include_prompt is false, and the graph does not know which tokens are those of a prompt');
  return { kind };
}

/** Reads the modules; undefined without any. @throws ScalepointError `UNKNOWN_FORMAT` for others than the graph computes, `BAD_FILE` */
export async function readSentence(folder: Pick<Folder, 'file'>): Promise<SentenceModules | undefined> {
  const bytes = await folder.file(file);
  if (bytes === undefined) return undefined;
  const list = parseJson(file, bytes);
  if (!Array.isArray(list) || !list.every(isObject)) return badFolderFile(file, 'it holds no array of objects');
  const modules: SentenceModule[] = [];
  const files: string[] = [];
  for (const [i, one] of (list as readonly Json[]).entries()) {
    const type = member(one, 'type');
    const [, name] = /^sentence_transformers\.(?:\w+\.)*(\w+)$/.exec(typeof type === 'string' ? type : '') ?? [];
    if (i === 0 && name === 'Transformer') {
      // The folder itself.
      const path = member(one, 'path');
      if (path !== '')
        unsupported(file, `the encoder lies in ${show(path)}; convert that folder, or move its files up`);
    } else if (i === 1 && name === 'Pooling') {
      const { file: settings, keys } = await moduleSettings(folder, one, 'pooling');
      modules.push(poolingIn(settings, keys));
      files.push(settings);
    } else if (i > 1 && name === 'Dense') {
      const layer = await readDense(folder, one);
      const [, end = ''] = /(\w+)$/.exec(String(layer.activation ?? '')) ?? [];
      const apply = Object.hasOwn(functionClasses, end) ? functionClasses[end] : undefined;
      if (layer.activation !== undefined && apply === undefined) {
        const known = ['Identity', ...Object.keys(functionClasses)].join(', ');
        unsupported(layer.file, `activation_function is ${show(layer.activation)}; it can be ${known}`);
      }
      modules.push({ kind: 'dense', layer, apply });
      files.push(layer.file, layer.weights);
    } else if (i > 1 && name === 'Normalize') modules.push({ kind: 'normalize' });
    // Dropout does nothing but in training.
    else if (!(i > 1 && name === 'Dropout'))
      unsupported(
        file,
        `module ${i} is ${show(type)}; graphs have Transformer, Pooling, then Dense and Normalize of sentence_transformers`,
      );
  }
  if (modules.length === 0) unsupported(file, 'no module makes one vector of those of the tokens');
  return { modules, files };
}

/**
 * Writes the vector of a text.
 * @param states vectors of its tokens
 * @param hidden their length
 * @returns its name and length
 */
export function sentenceVector(
  parts: Parts,
  states: ValueName,
  attentionMask: ValueName,
  hidden: number,
  { modules }: SentenceModules,
): { readonly vector: ValueName; readonly length: number } {
  const { graph } = parts;
  let [vector, length] = [states, hidden];
  for (const one of modules) {
    if (one.kind === 'dense') {
      const { path, shape, weights, matrix, bias } = one.layer;
      const [rows, columns] = shape;
      if (columns !== length)
        badFolderFile(weights, `it takes vectors of ${columns} elements, and those before it have ${length}`);
      const weight = graph.op('Transpose', [graph.known(`${path}.linear.weight`, matrix, shape)], { perm: [1, 0] });
      vector = graph.op('MatMul', [vector, weight]);
      if (bias !== undefined) vector = graph.op('Add', [vector, graph.known(`${path}.linear.bias`, bias, [rows])]);
      if (one.apply !== undefined) vector = functionNamed(one.apply)(graph, vector);
      length = rows;
    } else if (one.kind === 'mean') vector = parts.mean(vector, attentionMask);
    else if (one.kind === 'first') vector = graph.op('Gather', [vector, graph.int(0)], { axis: 1 });
    else if (one.kind === 'last') {
      const isWord = graph.cast(attentionMask, 'I32');
      const last = graph.op('ArgMax', [isWord], { axis: 1, keepdims: 1, select_last_index: 1 });
      vector = graph.op('GatherND', [vector, last], { batch_dims: 1 });
    } else {
      // torch divides by 1e-12 at least, for vectors of zeros.
      const size = graph.op('ReduceL2', [vector, graph.ints([-1])], { keepdims: 1 });
      vector = graph.op('Div', [vector, graph.op('Add', [size, graph.float(1e-12)])]);
    }
  }
  return { vector, length };
}

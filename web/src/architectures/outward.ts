/**
 * GGUF files of language models as folders of Hugging Face: the way back from what folders become. A class of models is described once, by
 * its rows of tensors and its keys; here a config.json is derived from the metadata, read by this description as if a folder held it, and
 * the tensors that such a folder has are made of those that they become.
 */
import { blockTypeInfo, isBlockType } from '../core/blocks.js';
import { ScalepointError } from '../core/errors.js';
import { show } from '../core/show.js';
import type { CastForm } from '../formats/codecs/cast.js';
import { bytesOfElements, elementsOf, greatestCommonDivisor, largestCount } from '../formats/codecs/elements.js';
import { type ByteSource, quoted } from '../formats/files/bytes.js';
import type { ElementView, LogicalTensor } from '../formats/format.js';
import type { GgufModel } from '../formats/gguf/gguf.js';
import { withScales } from '../formats/gguf/nvfp4.js';
import { arrayOf } from '../formats/gguf/pairs.js';
import { towerArchitecture } from '../formats/gguf/signature.js';
import type { WeightNames } from '../formats/weight-names.js';
import { dimensionsText } from './carry-out.js';
import { splitName } from './families/deepseek.js';
import { families, knownModels, outwardClass, readModelFacts } from './families/index.js';
import { Config } from './huggingface/config.js';
import { weightNamesOf } from './huggingface/convert.js';
import { type Json, member } from './huggingface/json.js';
import { fileKeys } from './huggingface/keys.js';
import { configNames, type FileFacts, type RopeTensors } from './huggingface/outward-config.js';
import { type Model, type ModelClass, never } from './huggingface/reading.js';
import { expectedTensors, recipes } from './huggingface/tensors.js';
import type { FolderTensor, Recipe } from './recipe.js';

/** A file as a folder. */
export interface OutwardFolder {
  /** Its class at Hugging Face. */
  readonly className: string;
  /** Its config.json, without the type of the floats. */
  readonly config: Json;
  /** In the order of the table of its class. */
  readonly tensors: readonly LogicalTensor[];
  /** The names of the file, for statistics. */
  readonly names: WeightNames;
}

/** The decays of state spaces, whose logarithms folders have. */
const roundedNames = /^blk\.\d+\.ssm_a$/;

const refuse = (message: string, tensor?: string): never => {
  throw new ScalepointError('UNKNOWN_FORMAT', message, { tensor });
};

// ---------------------------------------------------------------------------------------------------------------------- config.json

/** Keys that say what is so without them, in files of some converters. */
const needless: readonly string[] = [
  ...['vocab_size', 'rope.dimension_count', 'attention.key_length', 'attention.value_length', 'rope.scaling.type'],
  'rope.scaling.factor',
];

/** The first key of a file that differs from those of a model that is read from the config.json. */
function firstDifference({ header }: GgufModel, { architecture, keys, sizes }: Model): string | undefined {
  const made = new Map(fileKeys(architecture, undefined, keys, []).map((key) => [key.name, key]));
  const text = (value: unknown): string => {
    if (typeof value === 'number') return String(Math.fround(value));
    if (typeof value !== 'object') return String(value);
    // A number stands for a list of equal ones.
    const all = Array.from(value as ArrayLike<unknown>, text);
    return new Set(all).size === 1 ? (all[0] as string) : all.join();
  };
  const usual = (name: string) =>
    name === 'vocab_size'
      ? sizes.vocabulary
      : name === 'rope.scaling.factor'
        ? 1
        : name === 'rope.scaling.type'
          ? header.metadata[`${architecture}.rope.scaling.factor`] === 1
            ? header.metadata[`${architecture}.${name}`]
            : 'none'
          : sizes.head;
  for (const name of Object.keys(header.metadata)) {
    if (!name.startsWith(`${architecture}.`)) continue;
    const value = arrayOf(header, name) ?? header.metadata[name];
    const own = name.slice(architecture.length + 1);
    const key = made.get(name);
    if (key === undefined && needless.includes(own) && value === usual(own)) continue;
    if (key === undefined) return `${name} is ${show(value)}, which no key of config.json says`;
    if (text(key.value) !== text(value)) return `${name} is ${show(value)}, and by config.json ${show(key.value)}`;
  }
  return undefined;
}

// -------------------------------------------------------------------------------------------------------------------------- tensors

/** Rows of a tensor of the file that are rows of a tensor of the folder. */
interface Piece {
  readonly recipe: Recipe;
  /** The first row in the folder's tensor, and their number. */
  readonly first: number;
  readonly rows: number;
  /** The first element in the file's tensor. */
  readonly at: number;
}

/** The first element of the folder's tensor that a piece has. */
const viewStart = ({ recipe }: Piece) => recipe.view?.offset ?? 0;

/** Places of the rows of a folder's tensor. */
function piecesOf({ name, shape }: FolderTensor, used: readonly Recipe[]): Piece[] {
  const width = shape.length < 2 ? 1 : (shape.at(-1) as number);
  const all = elementsOf(shape) / width;
  return used.flatMap((recipe) => {
    const { sources, windows } = recipe;
    let at = 0;
    return sources.flatMap((source, i) => {
      const [first, rows] = windows?.[i] ?? [0, all];
      const piece = { recipe, first, rows, at };
      at += rows * width;
      return source === name ? [piece] : [];
    });
  });
}

/** A dimension of a view: its count, the elements from one to the next in the folder's tensor, and those in the file's. */
interface Turn {
  readonly count: number;
  readonly stride: number;
  readonly to: number;
}

/** The dimensions of a view, which are the outermost first. Strides in its result follow from the counts. */
function turnsOf(dims: ElementView['dims']): Turn[] {
  let to = 1;
  const turns = dims.toReversed().map(([count, stride]): Turn => {
    const one = { count, stride, to };
    to *= count;
    return one;
  });
  return turns.reverse();
}

/** The view that gives elements in the order of the folder; undefined if they do not fill a run of elements there. */
function viewBack(turns: readonly Turn[], elements: number): ElementView | undefined {
  const dims = turns.filter(({ count }) => count > 1).sort((a, b) => b.stride - a.stride);
  let next = 1;
  const isWhole = dims.toReversed().every(({ count, stride }) => {
    const follows = stride === next;
    next *= count;
    return follows;
  });
  return isWhole && next === elements
    ? { offset: 0, dims: dims.map(({ count, to }) => [count, to] as const) }
    : undefined;
}

/** The dimensions that move heads of rows to Llama's rotary layout. */
function headTurns(heads: number, [rows = 1, ...rest]: readonly number[]): ElementView['dims'] {
  const [d, width] = [rows / heads, elementsOf(rest)];
  return [
    [heads, d * width],
    [d / 2, width],
    [2, (d / 2) * width],
    [width, 1],
  ];
}

type Stored = LogicalTensor['parts'][number];

/** Elements of a stored tensor from one on, as a part of a tensor of the folder. */
function stretchOf({ role, tensor }: Stored, at: number, shape: readonly number[]): Stored {
  const [begin, bytes] = [at, elementsOf(shape)].map((n) => bytesOfElements(tensor.dtype, n)) as [number, number];
  return { role, tensor: { ...tensor, shape, bytes, byteOffset: tensor.byteOffset + begin } };
}

/**
 * The assembly of a tensor of which several tensors of the file have elements between those of the others: of two in turns, such as gates and
 * ups, or of all in runs, one after the other.
 * @returns undefined if they do not make it up
 */
function assembled(
  pieces: readonly Piece[],
  stored: readonly Stored[],
  shape: readonly number[],
): Pick<LogicalTensor, 'parts' | 'gathered'> | undefined {
  const elements = elementsOf(shape);
  const width = shape.at(-1) as number;
  const views = pieces.map(({ recipe }) => recipe.view);
  const [first, second] = views;
  const [one, two] = stored as [Stored, Stored];
  const isPair = stored.length === 2 && JSON.stringify(first?.dims) === JSON.stringify(second?.dims);
  if (isPair && first?.offset === 0 && second !== undefined && one.tensor.file === two.tensor.file) {
    // A view goes from the one to the other, and back.
    const to = (two.tensor.byteOffset - one.tensor.byteOffset) / bytesOfElements(one.tensor.dtype, 1);
    const view = viewBack([{ count: 2, stride: second.offset, to }, ...turnsOf(first.dims)], elements);
    const bytes = one.tensor.bytes + two.tensor.bytes;
    if (view !== undefined) return { parts: [{ ...one, tensor: { ...one.tensor, bytes } }], gathered: { width, view } };
  }
  const runs = pieces.flatMap(({ first, rows, at, recipe: { view } }, i) => {
    const whole = { at: first * width, from: at, taken: rows * width, view: undefined as ElementView | undefined };
    if (view === undefined) return [{ ...whole, part: stored[i] as Stored }];
    const [[blocks, block] = [0, 0], ...inner] = view.dims;
    const taken = inner.reduce((product, [n]) => product * n, 1);
    const back = viewBack(turnsOf(inner), taken);
    if (back === undefined) return [];
    return Array.from({ length: blocks }, (_, n) => {
      return { at: view.offset + n * block, from: n * taken, taken, view: back, part: stored[i] as Stored };
    });
  });
  runs.sort((a, b) => a.at - b.at);
  let end = 0;
  for (const { at, taken } of runs) {
    if (at !== end || taken % width !== 0) return undefined;
    end += taken;
  }
  if (end !== elements) return undefined;
  return {
    parts: runs.map(({ part, from, taken }) => stretchOf(part, from, [taken / width, width])),
    gathered: { width, views: runs.map(({ view, taken }) => view ?? { offset: 0, dims: [[taken, 1]] }) },
  };
}

/** A tensor of the folder, made of those that it becomes. */
function turnedBack(
  folder: FolderTensor,
  used: readonly Recipe[],
  byName: ReadonlyMap<string, LogicalTensor>,
): LogicalTensor {
  const { name, shape } = folder;
  const cannot = (reason: string) =>
    refuse(`tensor ${quoted(used[0]?.name ?? name)}: ${reason}, so that ${name} cannot be made of it`, used[0]?.name);
  const width = shape.length < 2 ? 1 : (shape.at(-1) as number);
  const pieces = piecesOf(folder, used).sort((a, b) => a.first - b.first || viewStart(a) - viewStart(b));
  const [{ recipe }] = pieces as [Piece];
  const { rowFactors, factor = 1, add } = recipe;
  if (rowFactors !== undefined || !Number.isInteger(Math.log2(Math.abs(factor))))
    cannot('its elements are multiplied by factors, and rounded');
  const sources = pieces.map((piece) => byName.get(piece.recipe.name) as LogicalTensor);
  const [first] = sources as [LogicalTensor];
  const { type, form } = first;
  const other = sources.find((source) => source.type !== type);
  if (other !== undefined) cannot(`${other.name} is ${other.type} and ${first.name} ${type}`);
  const changes = { ...(add === undefined ? {} : { add: -add }), ...(factor === 1 ? {} : { factor: 1 / factor }) };
  const changed = Object.keys(changes).length === 0 ? form : ({ ...form, ...changes } as CastForm);
  if (changed !== form && form.codec !== 'cast') cannot(`it is ${type}, and its elements are changed`);
  const made = { name, shape, type, form: changed, isRenamed: true };
  const stored = sources.map((source) => source.parts[0] as Stored);
  const isBlocks = isBlockType(type);
  if (pieces.length > 1 && pieces.some((piece) => piece.recipe.view !== undefined)) {
    if (isBlocks) cannot(`it is ${type}, whose blocks cannot be taken apart or change places`);
    const found = assembled(pieces, stored, shape);
    return found === undefined ? cannot('its elements lie between those of others') : { ...made, ...found };
  }
  let end = 0;
  for (const { first, rows } of pieces) {
    if (first !== end) cannot('it has only some of the rows, or some of them twice');
    end = first + rows;
  }
  if (end * width !== elementsOf(shape)) cannot('it has only some of the rows');
  if (pieces.length > 1 && pieces.some((piece) => piece.recipe.permuteHeads !== undefined))
    cannot('its rows are some of it, in another order');
  const isSingle = pieces.length === 1;
  const { permuteHeads, view: own } = recipe;
  const moved = permuteHeads === undefined ? own?.dims : headTurns(permuteHeads, shape);
  const view = isSingle && moved !== undefined ? viewBack(turnsOf(moved), elementsOf(shape)) : undefined;
  if (isSingle && moved !== undefined && (view === undefined || own?.offset))
    cannot('its elements lie between those of others');
  const isWhole = isSingle && elementsOf(first.shape) === elementsOf(shape) && view === undefined;
  if (isWhole) return { ...made, parts: first.parts };
  // Take rows: blocks of a row follow each other, as elements do.
  const block = isBlocks ? blockTypeInfo(type).elements : 1;
  const strides = view?.dims.flatMap(([count, stride]) => (stride === 1 ? count : stride)) ?? [];
  const isApart = block > 1 && view !== undefined && view.dims.at(-1)?.[1] !== 1;
  if (first.parts.length > 1 || isApart || [width, ...strides].some((n) => n % block !== 0))
    cannot(`it is ${type}, whose blocks cannot be taken apart or change places`);
  const each = pieces.reduce((divisor, { rows }) => greatestCommonDivisor(divisor, rows), 0);
  const parts = pieces.flatMap(({ rows, at }, i) =>
    Array.from({ length: rows / each }, (_, n) => stretchOf(stored[i] as Stored, at + n * each * width, [each, width])),
  );
  return parts.length === 1 && view === undefined
    ? { ...made, parts }
    : { ...made, parts, gathered: { width, ...(view && { view }) } };
}

// ----------------------------------------------------------------------------------------------------------------------- the folder

/** Reads a small tensor of float32. */
async function floatsOf({ files, tensors }: GgufModel, name: string): Promise<Float32Array | undefined> {
  const tensor = tensors.find((one) => one.name === name);
  if (tensor?.dtype !== 'F32' || tensor.bytes > 1 << 20) return undefined;
  const bytes = await (files[tensor.file] as ByteSource).read(tensor.byteOffset, tensor.byteOffset + tensor.bytes);
  return new Float32Array(bytes.slice().buffer);
}

/** The names of the tensors of a folder of this class, which the names of a file mean. */
function namesIn(model: Model, byName: ReadonlyMap<string, LogicalTensor>): FolderTensor[] {
  return [...expectedTensors(model.table, model.sizes)].flatMap(({ name, shape, required, to }) => {
    const missing = to.find((one) => !byName.has(one));
    if (missing === undefined) return [{ name, shape, dtype: 'F32' }];
    return required ? refuse(`the tensor ${quoted(missing)} is missing`, missing) : [];
  });
}

/** The folder of a class that a file is made of. @throws ScalepointError if it is that of another class */
async function folderOfClass(
  gguf: GgufModel,
  one: ModelClass,
  className: string,
  [outClass, modelType]: readonly [string, string],
  facts: FileFacts,
  own: Json,
): Promise<OutwardFolder> {
  const { header } = gguf;
  const stored = withScales(gguf.tensors);
  const byName = new Map(stored.map((tensor) => [tensor.name, tensor]));
  const defaults = () => one.classes[className] as Json;
  const read = (keys: Json, names: readonly string[]) => {
    const config = new Config(
      { architectures: [className], model_type: modelType, ...keys },
      defaults,
      largestCount(gguf.tensors),
    );
    const model = readModelFacts(config, { names, embeddingRows: facts.vocabulary, isCoded: false });
    return { config, model };
  };
  // Find the names that the description asks for, and keep those alone.
  // Settings that are fixed for the class are those of llama.cpp, whatever their names could mean.
  const isFit = (name: string, value: unknown) => value !== undefined && one.only?.[name]?.includes(value) !== false;
  const names = { ...configNames(facts), ...own };
  const all = Object.fromEntries(Object.entries(names).filter(([name, value]) => isFit(name, value)));
  // Descriptions look for the tensors that correct the shares of experts by their names.
  const corrections = [
    ...(facts.has(/\.exp_probs_b\./) ? ['.mlp.gate.e_score_correction_bias', '.expert_bias'] : []),
    ...(facts.takers === undefined ? [] : ['.experts.0.gate_proj.weight']),
    ...(facts.takers === 'MLX' && knownModels[modelType]?.splitsLatent ? [splitName] : []),
  ];
  const { asked } = read(all, corrections).config;
  const keys = Object.fromEntries(Object.entries(all).filter(([name]) => asked.has(name)));
  const first = namesIn(read(keys, corrections).model, byName);
  const { model } = read(
    keys,
    first.map(({ name }) => name),
  );
  if (model.architecture !== one.architecture) refuse(`config.json means the architecture ${model.architecture}`);
  const difference = firstDifference(gguf, model);
  if (difference !== undefined) refuse(difference);
  const folder = namesIn(model, byName);
  const found = recipes(folder, {
    table: model.table,
    sizes: model.sizes,
    architecture: one.architecture,
    assumed: [],
  });
  // Compare the tensors with those that the folder becomes.
  const computed = new Map(model.made().map((recipe) => [recipe.name, recipe]));
  const used = new Map<string, Recipe[]>();
  const recipesByName = new Map(found.map((recipe) => [recipe.name, recipe]));
  for (const { name, shape } of stored) {
    const recipe = recipesByName.get(name);
    const values = computed.get(name)?.values;
    if (recipe === undefined) {
      const floats = values && (await floatsOf(gguf, name));
      if (floats?.length === values?.length && floats?.every((value, i) => value === values?.[i])) continue;
      const why = values === undefined ? 'has no place in such a folder' : 'differs from what config.json can say';
      refuse(`the tensor ${quoted(name)} ${why}`, name);
      continue;
    }
    // Files leave out dimensions of 1 in front.
    const short = (dims: readonly number[]) => dimensionsText(dims.filter((n, i) => n !== 1 || i === dims.length - 1));
    const [own, wanted] = [shape, recipe.shape].map(short);
    if (own !== wanted) refuse(`the tensor ${quoted(name)} has the shape ${own}, and by config.json ${wanted}`, name);
    for (const source of new Set(recipe.sources)) {
      const known = used.get(source) ?? [];
      known.push(recipe);
      used.set(source, known);
    }
  }
  const tensors = folder.map((tensor) => turnedBack(tensor, used.get(tensor.name) ?? [], byName));
  const ids = ['bos', 'eos', 'pad'].map((role, i) => {
    const id = header.metadata[`tokenizer.ggml.${['bos', 'eos', 'padding'][i]}_token_id`];
    return [`${role}_token_id`, typeof id === 'number' ? id : undefined] as const;
  });
  const config = {
    architectures: [outClass],
    model_type: modelType,
    ...Object.fromEntries(ids.filter(([, id]) => id !== undefined)),
    ...keys,
  };
  return { className: outClass, config, tensors, names: weightNamesOf(found) };
}

/** Names of the kinds of layers without keys and with them, by architecture. */
const layerKinds: Readonly<Record<string, readonly [string, string]>> = {
  lfm2: ['conv', 'full_attention'],
  lfm2moe: ['conv', 'full_attention'],
  granitehybrid: ['mamba', 'attention'],
};

/**
 * Turns a file back into a folder.
 * @param takers loaders of codes, which take a tensor for each expert where models of the class have stacks
 * @throws ScalepointError `UNKNOWN_FORMAT` with the reason for files that no known class gives
 */
export async function outwardFolder(gguf: GgufModel, takers?: FileFacts['takers']): Promise<OutwardFolder> {
  const { metadata, header } = gguf;
  const architecture = metadata['general.architecture'];
  if (architecture === towerArchitecture || metadata['general.type'] === 'adapter')
    refuse(
      'a vision tower or an adapter in GGUF cannot be turned back into a folder; start from the folder of its model',
    );
  const lost = gguf.tensors.find(({ name }) => roundedNames.test(name));
  if (lost !== undefined)
    refuse(
      `models of the architecture ${show(architecture)} cannot be turned back into a folder: the tensor ${quoted(lost.name)} holds -exp(x) in ` +
        'place of each x, which is rounded',
      lost.name,
    );
  const all = families.filter((one) => one.architecture === architecture);
  if (typeof architecture !== 'string' || all.length === 0)
    refuse(
      `models of the architecture ${show(architecture)} cannot be turned back into a folder: it is not known here`,
    );
  const prefix = `${architecture}.`;
  const rope: RopeTensors = {
    divisors: await floatsOf(gguf, 'rope_freqs.weight'),
    long: await floatsOf(gguf, 'rope_factors_long.weight'),
    short: await floatsOf(gguf, 'rope_factors_short.weight'),
  };
  const key: FileFacts['key'] = (name) => arrayOf(header, prefix + name) ?? metadata[prefix + name];
  const has: FileFacts['has'] = (pattern) => gguf.tensors.some(({ name }) => pattern.test(name));
  const rowsOf: FileFacts['rowsOf'] = (name) => gguf.tensors.find((tensor) => tensor.name === name)?.shape[0];
  // Of several classes, those come first that have a window or shared experts as the file has, and those with a head.
  const windowed = Number(key('attention.sliding_window') ?? 0) > 0;
  const candidates = all.flatMap((one) =>
    Object.entries(one.classes).flatMap(([name, defaults]) => {
      const named = outwardClass(one, name);
      const hasWindow = member(defaults, 'sliding_window') !== undefined;
      const odd =
        2 * Number(hasWindow !== windowed) +
        2 * Number(/Shared/.test(name) !== has(/_shexp\./)) +
        Number(/Model$/.test(name));
      return named === undefined ? [] : [{ one, name, named, hasWindow, odd }];
    }),
  );
  candidates.sort((a, b) => a.odd - b.odd);
  if (candidates.length === 0)
    refuse(
      `models of the architecture ${show(architecture)} are parts of others, of which a file has the language model alone`,
    );
  let reason: ScalepointError | undefined;
  for (const { one, name, named, hasWindow } of candidates) {
    const facts: FileFacts = {
      key,
      has,
      rowsOf,
      takers,
      hasWindow,
      kinds: layerKinds[String(architecture)],
      vocabulary: rowsOf('token_embd.weight') ?? 0,
      rope,
      largest: one.traits?.largest,
      slides: one.slides === never ? undefined : one.traits?.slides,
    };
    const own = one.outward === undefined ? {} : one.outward(facts, name);
    if (own === undefined) continue;
    try {
      return await folderOfClass(gguf, one, name, named, facts, own);
    } catch (error) {
      if (!(error instanceof ScalepointError) || error.code === 'IO') throw error;
      reason ??= new ScalepointError(
        'UNKNOWN_FORMAT',
        `the file cannot be turned back into a folder of ${name}: ${error.statement}`,
        { tensor: error.tensor, cause: error },
      );
    }
  }
  throw reason;
}

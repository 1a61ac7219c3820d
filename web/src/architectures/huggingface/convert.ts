/**
 * Converts a folder of Hugging Face to the contents of a GGUF file: keys, recipes of tensors, and notes.
 * Reference: github.com/ggml-org/llama.cpp, conversion/base.py at 00bd27a and 051139f. Tests compare with v0.5.0.
 */

import { type Note, noteOf } from '../../core/note.js';
import { mention } from '../../core/option-problem.js';
import { largestCount } from '../../formats/codecs/elements.js';
import { type ExpertPart, expertName, expertStacks } from '../../formats/safetensors/experts.js';
import type { WeightName, WeightNames } from '../../formats/weight-names.js';
import { defaultsOf, readModelFacts } from '../families/index.js';
import { configOfParams } from '../families/mistral.js';
import type { Conversion, Folder, Recipe } from '../recipe.js';
import { Config } from './config.js';
import { badConfig, badFolderFile, unsupported, unsupportedConfig } from './errors.js';
import { refuseAdapter } from './files.js';
import { arrayMember, decodeText, type Json, member, objectMember, parseObject } from './json.js';
import { fileKeys } from './keys.js';
import { readModules } from './pooling.js';
import type { Model, Read } from './reading.js';
import { recipes, scoreName, towerParts, usualOutside } from './tensors.js';
import { readTokenizer } from './tokenizer.js';
import { towerKinds } from './vision/towers.js';

/** Choices of a conversion. */
export interface ConvertOptions {
  /**
   * Treatment of a SentencePiece vocabulary that lacks tokens for some of the 256 bytes. llama.cpp aborts at the first character
   * that such a vocabulary lacks. `keep` converts it, with a note.
   * @defaultValue 'refuse'
   */
  readonly missingBytes?: 'refuse' | 'keep';
  /** Name of the pre-tokenizer in llama.cpp, if it is not recognized. */
  readonly preTokenizer?: string | undefined;
}

/** Names of the token embedding, with the prefixes that folders have. */
const embeddingName =
  /^((model|ernie)\.)?(language_model\.)?(model\.)?(text_model\.)?embed_tokens\.weight$|^gpt_neox\.embed_in\.weight$|^(transformer\.)?wte\.weight$|^(model\.)?backbone\.embeddings\.weight$|^(transformer\.)?(embedding\.)?word_embeddings\.weight$|^tok_embeddings\.weight$/;
const bertEmbeddingName =
  /^((bert|roberta|distilbert)\.)?embeddings\.word_embeddings\.weight$|^(model\.)?embeddings\.tok_embeddings\.weight$|^(shared|encoder\.embed_tokens|(model\.)?encoder)\.weight$/;
const headName = /^((language_model\.)?lm_head|output)\.weight$/;

/** Fails unless the folder holds a whole model with plain weights. */
export async function checkFolder(folder: Folder, keys: Json): Promise<void> {
  await refuseAdapter(folder);
  for (const [where, from] of [
    ['', keys],
    ['text_config.', objectMember(keys, 'text_config')],
  ] as const) {
    const settings = member(from, 'quantization_config');
    if (settings === undefined || folder.isCoded) continue;
    const method = typeof settings === 'object' ? member(settings as Json, 'quant_method') : undefined;
    const named = typeof method === 'string' ? ` (${JSON.stringify(method.slice(0, 60))})` : '';
    unsupportedConfig(
      `${where}quantization_config says that the weights are quantized${named}; convert the model that they were made from`,
    );
  }
  if (folder.tensors.length === 0) badFolderFile('safetensors', 'the folder has no tensors');
}

/** The tensors of a model. */
function modelRecipes(folder: Folder, model: Model, { assumed }: Config): readonly Recipe[] {
  const { sizes, architecture, tied } = model;
  let { table } = model;
  const head = folder.tensors.find(({ name }) => headName.test(name));
  const writesHead = (table.outside ?? usualOutside).some(({ from }) => from === 'lm_head');
  if (tied === false && head === undefined && writesHead)
    badConfig('tie_word_embeddings is false, but the tensor lm_head.weight is missing');
  // Some tied models have their embedding under the name of the head alone.
  const isNoted = Object.entries(folder.metadata).some(([name, of]) => embeddingName.test(name) && of === head?.name);
  if (
    head !== undefined &&
    (isNoted || tied === true) &&
    !folder.tensors.some(({ name }) => embeddingName.test(name))
  ) {
    const { rename } = table;
    table = {
      ...table,
      rename: (name) => (name === 'lm_head.weight' ? 'model.embed_tokens.weight' : rename ? rename(name) : name),
    };
  }
  // Check the shape in the folder, because rows beyond the vocabulary are cut off later.
  const rows = model.longEmbedding === true ? embeddingRows(folder) : undefined;
  const long = rows !== undefined && rows > sizes.vocabulary;
  const stored = long ? { ...sizes, vocabulary: rows } : sizes;
  const read = recipes(folder.tensors, { table, sizes: stored, architecture, assumed });
  const cut = (recipe: Recipe): Recipe =>
    recipe.name === 'token_embd.weight'
      ? { ...recipe, shape: [sizes.vocabulary, sizes.hidden], windows: [[0, sizes.vocabulary]] }
      : recipe;
  return [...model.made(), ...(long ? read.map(cut) : read)];
}

/** Rows of the token embedding. */
function embeddingRows({ tensors }: Folder): number | undefined {
  for (const pattern of [embeddingName, bertEmbeddingName, headName]) {
    const found = tensors.find(({ name }) => pattern.test(name));
    if (found !== undefined) return found.shape[0];
  }
  return undefined;
}

/** Parts of names that wrappers of torch.compile, FSDP and DataParallel leave in checkpoints. */
const wrappers = /^((_orig_mod|_fsdp_wrapped_module|module)\.)+|(?<=\.)(_orig_mod|_fsdp_wrapped_module)\./g;

/**
 * The note about a head that differs from the embedding where one of them stands for both: by tie_word_embeddings, or because the converter
 * leaves heads of the architecture out.
 */
async function headNotes(folder: Folder, { tied }: Model, tensors: readonly Recipe[]): Promise<Note[]> {
  const nameOf = (pattern: RegExp) => folder.tensors.find(({ name }) => pattern.test(name.replace(wrappers, '')))?.name;
  const [head, embedding] = [nameOf(headName), nameOf(embeddingName)];
  if (head === undefined || embedding === undefined) return [];
  const isWritten = tensors.some(({ sources }) => sources.includes(head));
  if (isWritten && tied !== true) return [];
  const isEqual = await folder.areEqual?.(head, embedding);
  if (isEqual === true) return [];
  const differs = isEqual === undefined ? 'may differ' : 'differs';
  const text = isWritten
    ? `tie_word_embeddings is true, but the tensor ${head} ${differs} from the embedding: llama.cpp's output layer becomes this tensor, and ` +
      'transformers takes the embedding'
    : `the tensor ${head} ${differs} from the embedding, and is left out: llama.cpp's output layer is the embedding`;
  return [noteOf('tiedHead', { tensors: [head], isWritten }, text)];
}

/** Names of rerankers of Qwen3, whose class is that of models for texts. */
const rerankerName = /qwen3-(vl-)?reranker/i;

/** The tokens that a reranker answers with, which the folder's name, its README and config.json tell. */
async function answersOf(folder: Folder, keys: Json): Promise<Read['answers']> {
  if (arrayMember(keys, 'architectures')[0] !== 'Qwen3ForCausalLM') return undefined;
  const readme = await folder.file('README.md');
  const isNamed = [folder.name, member(keys, '_name_or_path')].some((name) => rerankerName.test(String(name)));
  if (!isNamed && !(readme && /# qwen3-(vl-)?reranker/i.test(decodeText('README.md', readme)))) return undefined;
  const bytes = await folder.file('tokenizer.json');
  if (bytes === undefined) return undefined;
  const vocabulary = objectMember(objectMember(parseObject('tokenizer.json', bytes), 'model'), 'vocab');
  const [yes, no] = ['yes', 'no'].map((word) => member(vocabulary, word));
  if (typeof yes === 'number' && typeof no === 'number') return [yes, no];
  return unsupported('tokenizer.json', 'the folder is that of a reranker, and the vocabulary lacks "yes" or "no"');
}

/** The model that a folder describes, without its tokenizer. */
async function modelOf(given: Folder) {
  // Take wrappers off the names of tensors.
  const stored = new Map<string, string>();
  const unwrapped = given.tensors.map((tensor) => {
    const name = tensor.name.replace(wrappers, '');
    if (name === tensor.name) return tensor;
    stored.set(name, tensor.name);
    return { ...tensor, name };
  });
  const folder = stored.size === 0 ? given : { ...given, tensors: unwrapped };
  const bytes = await folder.file('config.json');
  const params = bytes === undefined ? await folder.file('params.json') : undefined;
  if (bytes === undefined && params === undefined) return badConfig('the folder has none');
  const keys =
    params === undefined
      ? parseObject('config.json', bytes as Uint8Array)
      : configOfParams(parseObject('params.json', params));
  await checkFolder(folder, keys);
  const config = new Config(keys, defaultsOf, largestCount(folder.tensors));
  const names = folder.tensors.map(({ name }) => name);
  const isCoded = folder.isCoded === true;
  const answers = await answersOf(folder, keys);
  // Read the numbers of activations.
  const numbered = folder.tensors.filter(({ name, shape }) => name.includes('.act_fn.') && shape.every((n) => n === 1));
  const read = numbered.map(
    async ({ name }) => [name, (await folder.floats?.(stored.get(name) ?? name))?.[0]] as const,
  );
  const scalars = new Map(
    (await Promise.all(read)).flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const])),
  );
  const model = readModelFacts(config, {
    scalars,
    names,
    embeddingRows: embeddingRows(folder),
    isCoded,
    answers,
  });
  const made = modelRecipes(folder, model, config);
  const tensors = made.map((recipe) =>
    stored.size === 0 ? recipe : { ...recipe, sources: recipe.sources.map((name) => stored.get(name) ?? name) },
  );
  const notes: Note[] = [];
  // Note layers that predict further tokens, which are left out.
  const used = new Set(made.flatMap(({ sources }) => sources));
  const layerOf = (name: string) => Number(/(^|\.)model\.layers\.(\d+)\./.exec(name)?.[2] ?? -1);
  const next = names.filter(
    (name) => !used.has(name) && (/^(model\.)?mtp\./.test(name) || layerOf(name) >= model.sizes.layers),
  );
  if (next.length > 0) {
    const count = next.length;
    const text =
      `layers that predict further tokens are left out (${count} tensor${count === 1 ? '' : 's'}): ` +
      'logits do not depend on them, but nothing can be drafted with the result';
    notes.push(noteOf('nextLayersLeftOut', { count }, text));
  }
  // Note towers for pictures and sound, which are left out.
  const count = names.filter((name) => towerParts.test(name)).length;
  const hasVision = objectMember(keys, 'vision_config') !== undefined;
  if (count > 0 && (hasVision || objectMember(keys, 'audio_config') !== undefined)) {
    const leftOut = `left out (${count} tensor${count === 1 ? '' : 's'})`;
    const architecture = arrayMember(keys, 'architectures')[0];
    const isKnown = hasVision && typeof architecture === 'string' && Object.hasOwn(towerKinds, architecture);
    const words = isKnown
      ? [
          `the vision tower is ${leftOut}; `,
          mention('mmproj', true),
          ' with ',
          mention('to', 'F16'),
          ' makes a second file of it',
        ]
      : [`towers for pictures or sound are ${leftOut}; llama.cpp's convert_hf_to_gguf.py --mmproj knows some of them`];
    notes.push(noteOf('towersLeftOut', { count, isKnown }, ...words));
  }
  if (names.includes(scoreName) && !tensors.some(({ sources }) => sources.includes(scoreName))) {
    const text = `${scoreName}, the head of a classifier, is left out: llama.cpp runs this architecture without it`;
    notes.push(noteOf('scoreLeftOut', { tensors: [scoreName] }, text));
  }
  return { config, model, tensors, notes };
}

/** The recipes of a folder's weights, without its tokenizer. */
export async function folderRecipes(folder: Folder): Promise<Pick<Conversion, 'architecture' | 'tensors'>> {
  const { model, tensors } = await modelOf(folder);
  return { architecture: model.architecture, tensors };
}

/** llama.cpp's names of the tensors of a folder, for statistics. Experts are matrices of one tensor there. */
export async function folderWeightNames(folder: Folder): Promise<WeightNames> {
  const { tensors } = await modelOf(folder);
  return weightNamesOf(tensors, expertStacks(folder.tensors));
}

/** The names of the tensors that recipes make, by those of their sources. */
export function weightNamesOf(
  tensors: readonly Recipe[],
  stacks: ReturnType<typeof expertStacks> = new Map(),
): WeightNames {
  const names = new Map<string, WeightName[]>();
  for (const { name, sources, windows } of tensors) {
    // Name the matrices that a stack of experts becomes in results with codes.
    const stack = stacks.get(sources[0] as string);
    const isOf = ({ projection }: ExpertPart) =>
      name.includes(`ffn_${projection.split('_')[0]}_`) || /_gate_up_/.test(name);
    for (const part of stack?.parts.filter(isOf) ?? [])
      for (let e = 0; stack !== undefined && e < stack.experts; e++)
        names.set(expertName(stack, e, part), [{ name, matrix: [e, stack.experts] }]);
    // Statistics have one row of inputs for a matrix, so that parts of one that lie apart have no entry of their own.
    if (windows !== undefined && windows.length > 1) continue;
    for (const [index, source] of sources.entries()) {
      const matrix = sources.length > 1 ? ([index, sources.length] as const) : undefined;
      const others = names.get(source);
      if (others === undefined) names.set(source, [{ name, matrix }]);
      else others.push({ name, matrix });
    }
  }
  return names;
}

/**
 * Converts a folder of Hugging Face to GGUF. The result equals that of llama.cpp's converter; folders that it would convert wrongly are
 * refused.
 */
export async function convertHuggingface(folder: Folder, options: ConvertOptions = {}): Promise<Conversion> {
  const { config, model, tensors, notes } = await modelOf(folder);
  const { facts } = model;
  const modules = await readModules(folder, model.architecture, facts.writesPooling === true);
  const heads = await headNotes(folder, model, tensors);
  const tokenizer = await readTokenizer(folder, {
    config,
    architecture: model.architecture,
    facts,
    encoder: model.encoder,
    size: model.sizes.vocabulary,
    missingBytes: options.missingBytes ?? 'refuse',
    preTokenizer: options.preTokenizer,
    templates: model.templates,
  });
  return {
    architecture: model.architecture,
    keys: fileKeys(model.architecture, folder.name, { ...model.keys, ...modules.keys }, tokenizer.keys),
    tensors: [...modules.tensors, ...tensors],
    notes: [...model.notes, ...notes, ...heads, ...modules.notes, ...tokenizer.notes],
  };
}

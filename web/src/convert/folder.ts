/** The model in a folder. */
import { ScalepointError } from '../core/errors.js';
import { nodeModule } from '../core/node.js';
import { ioError, quoted } from '../formats/files/bytes.js';
import { signatures } from '../formats/signatures.js';

/** Most models that an error lists. */
const mostNames = 5;

/** The longest extension of a model that a name ends with, in lower case. */
function extensionOf(name: string): string | undefined {
  const ends = signatures.flatMap(({ extensions }) => extensions.filter((end) => name.toLowerCase().endsWith(end)));
  return ends.sort((a, b) => b.length - a.length)[0];
}

/** Ranks of a format. */
const ranks = 3;

/**
 * Rank of a file as the model of a folder, the lowest first: an index (0), then the names that loaders look for (1), then other names (2).
 * Folders often hold a model in the formats of several loaders, and files with an extension like `.bin` that are no models: formats of last
 * choice have ranks from 3 on. Undefined for files that are no models by their names.
 */
export function folderRank(name: string): number | undefined {
  const extension = extensionOf(name);
  if (extension === undefined) return undefined;
  const { isLastChoice = false, folderNames = ['model'] } =
    signatures.find(({ extensions }) => extensions.includes(extension)) ?? {};
  const first = isLastChoice ? ranks : 0;
  if (extension.endsWith('.json')) return first;
  return first + (folderNames.some((usual) => name.toLowerCase() === usual + extension) ? 1 : 2);
}

/** True if a file belongs to a split model, after its first file. */
function isFurther(name: string): boolean {
  const extension = extensionOf(name) as string;
  const takesSplits = signatures.some((format) => format.takesSplits && format.extensions.includes(extension));
  const [, number] = /-(\d{5,})-of-\d{5,}\.\w+$/.exec(name) ?? [];
  return takesSplits && number !== undefined && Number(number) !== 1;
}

/** The file that tells a pipeline of diffusers: a folder with a folder for each of its models. */
export const pipelineIndex = 'model_index.json';

/** The folder of a pipeline with the model that makes images or videos; the others hold its encoders, for example. */
export function pipelinePart(folders: readonly string[]): string | undefined {
  return ['transformer', 'unet'].find((part) => folders.includes(part));
}

/** The folder in which models of transformers.js lie, beside the settings of a model. */
export const onnxFolder = 'onnx';

/** Files of GGUF models that are no models by themselves: projectors of images, statistics, and heads for speculative decoding. */
const besideGguf = /(^|[/._-])(mmproj|imatrix|mtp|eagle3|dflash|dspark)[._-].*\.gguf$/i;

/** The models among the names of a folder: those of the best rank. */
function bestOf(names: readonly string[]): readonly string[] {
  const models = names.flatMap((name) => {
    const rank = folderRank(name);
    return rank === undefined || name.startsWith('.') || isFurther(name) ? [] : [{ name, rank }];
  });
  const best = models.reduce((least, model) => Math.min(least, model.rank), Infinity);
  const found = models.filter((model) => model.rank === best).map(({ name }) => name);
  const own = found.filter((name) => !besideGguf.test(name));
  return own.length > 0 ? own : found;
}

/** The folder inside of a folder without models that has the model, if there is one. */
function innerFolder(names: readonly string[]): string | undefined {
  return names.includes(pipelineIndex) ? pipelinePart(names) : names.find((name) => name === onnxFolder);
}

/** Names for messages, the first few of a long list. */
const listed = (names: readonly string[]) =>
  names.slice(0, mostNames).join(', ') + (names.length > mostNames ? ', …' : '');

/**
 * Path of the model in a folder of the system, or in a folder in that: the one of a pipeline of diffusers, or of transformers.js.
 * @throws ScalepointError `IO`, or `NOT_FOUND` unless there is one
 */
export async function modelInFolder(folder: string): Promise<string> {
  const label = quoted(folder);
  const [fs, paths] = [nodeModule('node:fs/promises'), nodeModule('node:path')];
  let names: string[] = [];
  try {
    names = ((await fs?.readdir(folder)) ?? []).sort();
  } catch (cause) {
    throw ioError(`cannot read ${label}`, cause);
  }
  // Take the only model of the best rank.
  const found = bestOf(names);
  const [first] = found;
  const part = first === undefined ? innerFolder(names) : undefined;
  if (part !== undefined && paths !== undefined) return modelInFolder(paths.join(folder, part));
  if (first === undefined || paths === undefined) throw noModel(`the folder ${label}`);
  if (found.length > 1) {
    throw new ScalepointError('NOT_FOUND', `the folder ${label} holds several models; name one: ${listed(found)}`);
  }
  return paths.join(folder, first);
}

function noModel(where: string): ScalepointError {
  const ends = signatures.flatMap(({ extensions }) => extensions).sort((a, b) => b.length - a.length);
  return new ScalepointError('NOT_FOUND', `${where} holds no ${ends.join(', ')} file`);
}

// ---------------------------------------------------------------------------------------------------------------------- lists

/** The type of a GGUF file in its name: the last one counts. `UD-` and `_XL` belong to it. */
const typeInName =
  /(?<![a-z0-9])(?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ[12]_0|MXFP4(?:_MOE)?|NVFP4|BF16|F16|FP16|F32)(?![a-z0-9_])/gi;

/** The type of a file by its name, or by those of its folders. */
function typeOf(path: string): string | undefined {
  const parts = path
    .replace(/\.\w+$/, '')
    .split('/')
    .reverse();
  for (const part of parts) {
    const type = part.match(typeInName)?.at(-1);
    if (type !== undefined) return type.toUpperCase();
  }
  return undefined;
}

/** Types of GGUF files to begin from, the one with the smallest loss and size first. */
const usualSources: readonly string[] = ['BF16', 'F16', 'FP16', 'F32', 'Q8_0'];

/**
 * The models among the paths of a list: one, if the choice is clear. Looks in folders only where the top has none.
 * @param tag the type of the wanted file
 */
export function modelsInList(paths: readonly string[], tag?: string): readonly string[] {
  const ggufs = paths.filter((path) => /\.gguf$/i.test(path) && !isFurther(path) && !besideGguf.test(path));
  if (tag !== undefined) {
    const wanted = tag.toUpperCase();
    const named = ggufs.filter((path) => typeOf(path) === wanted);
    if (named.length > 0) return named;
    // Other words at the end of a name.
    const ends = [`-${wanted}`, `_${wanted}`, `.${wanted}`, `/${wanted}`];
    const stemOf = (path: string) => path.replace(/(-\d{5,}-of-\d{5,})?\.\w+$/, '').toUpperCase();
    const others = paths.filter((path) => folderRank(path) !== undefined && !isFurther(path));
    return others.filter((path) => ends.some((end) => `/${stemOf(path)}`.endsWith(end)));
  }
  const top = [...new Set(paths.map((path) => path.split('/')[0] as string))];
  const files = bestOf(paths.filter((path) => !path.includes('/')));
  const inner = files.length === 0 ? innerFolder(top) : undefined;
  if (inner !== undefined) {
    const inside = paths.flatMap((path) => (path.startsWith(`${inner}/`) ? path.slice(inner.length + 1) : []));
    return modelsInList(inside).map((path) => `${inner}/${path}`);
  }
  const found = files.length > 0 ? files : ggufs;
  if (found.length < 2 || !found.every((path) => ggufs.includes(path))) return found;
  const best = usualSources.find((type) => found.some((path) => typeOf(path) === type));
  return best === undefined ? found : found.filter((path) => typeOf(path) === best);
}

/**
 * Path of the model in a list, such as the files of a repository.
 * @param nameWith a name of the list with the type or the path of a file, for the question
 * @throws ScalepointError `NOT_FOUND` unless there is one; of several, its hint has the names
 */
export function modelInList(
  paths: readonly string[],
  tag: string | undefined,
  label: string,
  nameWith: (choice: { readonly tag: string } | { readonly path: string }) => string,
): string {
  const found = modelsInList(paths, tag);
  const [first, ...others] = found;
  if (first !== undefined && others.length === 0) return first;
  // Without a file of the type, offer those that are there.
  const choices = first === undefined ? modelsInList(paths) : found;
  const all =
    first === undefined && tag !== undefined
      ? paths.filter((path) => /\.gguf$/i.test(path) && !isFurther(path))
      : choices;
  if (all.length === 0) throw noModel(label);
  const types = all.map(typeOf);
  const names = all.map((path, i) => {
    const type = types[i];
    return nameWith(type !== undefined && types.indexOf(type) === types.lastIndexOf(type) ? { tag: type } : { path });
  });
  const what = first === undefined ? `${label} has no file of the type ${tag}` : `${label} holds several models`;
  throw new ScalepointError('NOT_FOUND', what, { hint: { kind: 'didYouMean', names } });
}

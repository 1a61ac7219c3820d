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
  const models = names.flatMap((name) => {
    const rank = folderRank(name);
    return rank === undefined || name.startsWith('.') || isFurther(name) ? [] : [{ name, rank }];
  });
  // Take the only model of the best rank.
  const best = models.reduce((least, model) => Math.min(least, model.rank), Infinity);
  const found = models.filter((model) => model.rank === best).map(({ name }) => name);
  const [first] = found;
  const inside = names.includes(pipelineIndex) ? pipelinePart(names) : names.find((name) => name === onnxFolder);
  const part = first === undefined ? inside : undefined;
  if (part !== undefined && paths !== undefined) return modelInFolder(paths.join(folder, part));
  if (first === undefined || paths === undefined) {
    const ends = signatures.flatMap(({ extensions }) => extensions).sort((a, b) => b.length - a.length);
    throw new ScalepointError('NOT_FOUND', `the folder ${label} holds no ${ends.join(', ')} file`);
  }
  if (found.length > 1) {
    const list = found.slice(0, mostNames).join(', ') + (found.length > mostNames ? ', …' : '');
    throw new ScalepointError('NOT_FOUND', `the folder ${label} holds several models; name one: ${list}`);
  }
  return paths.join(folder, first);
}

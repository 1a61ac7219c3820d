/** The model in a folder. */
import { ScalepointError } from '../core/errors.js';
import { nodeModule } from '../core/node.js';
import { ioError, quoted } from '../files/bytes.js';
import { signatures } from '../formats/signatures.js';

/** Most models that an error lists. */
const mostNames = 5;

/** Rank of a file as the model of a folder, the lowest first: an index, then the names that loaders look for. */
function rank(name: string, extension: string): number {
  if (extension.endsWith('.json')) return 0;
  return name.toLowerCase() === `model${extension}` ? 1 : 2;
}

/** True if a file belongs to a split model, after its first file. */
function isFurther(name: string, extension: string): boolean {
  const takesSplits = signatures().some((format) => format.takesSplits && format.extensions.includes(extension));
  const [, number] = /-(\d{5,})-of-\d{5,}\.\w+$/.exec(name) ?? [];
  return takesSplits && number !== undefined && Number(number) !== 1;
}

/** Path of the model in a folder of the system. @throws ScalepointError `IO`, or `NOT_FOUND` unless there is one */
export async function modelInFolder(folder: string): Promise<string> {
  const label = quoted(folder);
  const [fs, paths] = [nodeModule('node:fs/promises'), nodeModule('node:path')];
  let names: string[] = [];
  try {
    names = ((await fs?.readdir(folder)) ?? []).sort();
  } catch (cause) {
    throw ioError(`cannot read ${label}`, cause);
  }
  const ends = signatures()
    .flatMap(({ extensions }) => extensions)
    .sort((a, b) => b.length - a.length);
  const models = names.flatMap((name) => {
    const extension = ends.find((end) => name.toLowerCase().endsWith(end));
    return extension === undefined || name.startsWith('.') || isFurther(name, extension)
      ? []
      : [{ name, rank: rank(name, extension) }];
  });
  // Take the only model of the best rank.
  const best = models.reduce((least, model) => Math.min(least, model.rank), Infinity);
  const found = models.filter((model) => model.rank === best).map(({ name }) => name);
  const [first] = found;
  if (first === undefined || paths === undefined) {
    throw new ScalepointError('NOT_FOUND', `the folder ${label} holds no ${ends.join(', ')} file`);
  }
  if (found.length > 1) {
    const list = found.slice(0, mostNames).join(', ') + (found.length > mostNames ? ', …' : '');
    throw new ScalepointError('NOT_FOUND', `the folder ${label} holds several models; name one: ${list}`);
  }
  return paths.join(folder, first);
}

/** Reads files of moments, with code that is loaded for them alone. */
import type { ReadOptionFile } from '../format.js';
import { inFile } from '../shards.js';
import { momentsFileOf } from '../statistics.js';
import type { ModelMoments } from './importance.js';
import type { GgufOptions } from './options.js';

/** Reads the file of moments that the options name; undefined without one. @throws ScalepointError `BAD_FILE`, `IO` */
export async function readMoments(
  { data }: Pick<GgufOptions, 'data'>,
  readOptionFile: ReadOptionFile,
): Promise<ModelMoments | undefined> {
  if (data === undefined) return undefined;
  const moments = await import('./moments.js');
  const file = momentsFileOf(data);
  return {
    file,
    ...(await readOptionFile(file, (source) => inFile(source.name ?? 'data', moments.momentsIn(source)))),
  };
}

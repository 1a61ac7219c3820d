/** Reads the statistics that options name: importance matrices, and files of second moments with code that is loaded for them alone. */
import { ScalepointError } from '../core/errors.js';
import { mention } from '../core/option-problem.js';
import type { ByteSource, FileInput, OptionFile } from './files/bytes.js';
import type { ReadOptionFile } from './format.js';
import { importanceIn } from './gguf/importance-matrix.js';
import { inFile } from './shards.js';
import {
  type ActivationRanges,
  type ModelMoments,
  type Statistics,
  type StatisticsOfModel,
  statisticsFileOf,
} from './statistics.js';
import type { StatisticsOptions } from './statistics-options.js';

/** Bytes that show the kind of a file. */
const startBytes = 1 << 12;

/** The options that name statistics. */
interface StatisticsChoices extends Pick<StatisticsOptions, 'importance' | 'moments'> {
  /** Ranges of activations. */
  readonly ranges?: OptionFile | StatisticsOfModel | undefined;
  /** Parts of names: only entries with one of them count. */
  readonly includeWeights?: readonly string[] | undefined;
  /** Parts of names: entries with one of them do not count. */
  readonly excludeWeights?: readonly string[] | undefined;
}

/** Kinds of files, each read by the option of its name. */
const kinds = {
  importance: 'an importance matrix',
  moments: 'a file of second moments',
  ranges: 'a file of ranges of activations',
} as const;

/** Reads a file of an option. @throws ScalepointError `BAD_FILE` for statistics of another kind, naming the option that takes them */
async function readStatisticsFile<T>(
  kind: keyof typeof kinds,
  given: OptionFile | StatisticsOfModel,
  readOptionFile: ReadOptionFile,
  read: (source: ByteSource) => Promise<T>,
): Promise<T & { readonly input: FileInput; readonly name: string | undefined }> {
  const file = await statisticsFileOf(kind, given);
  return readOptionFile(kind, file, async (source, input) => {
    const name = kind === 'importance' && typeof file === 'string' ? file : source.name;
    const checked = async () => {
      const start = new TextDecoder('latin1').decode(await source.read(0, Math.min(startBytes, source.size)));
      const isMatrix = start.startsWith('GGUF') && start.includes('imatrix');
      const stated = isMatrix ? 'importance' : (/"format":"scalepoint\.(\w+)"/.exec(start)?.[1] ?? kind);
      if (stated === kind || !Object.hasOwn(kinds, stated)) return read(source);
      const found = stated as keyof typeof kinds;
      const hint = { kind: 'try', option: mention(found), effect: 'takes it' } as const;
      throw new ScalepointError('BAD_FILE', `this is ${kinds[found]}, not ${kinds[kind]}`, { hint });
    };
    return { ...(await inFile(name ?? kind, checked())), input, name };
  });
}

/**
 * Reads the statistics that the options name. Without an importance matrix, the diagonals of the moments are the importance.
 * @throws ScalepointError `BAD_FILE`, `IO`
 */
export async function readStatistics(choices: StatisticsChoices, readOptionFile: ReadOptionFile): Promise<Statistics> {
  const { importance, includeWeights = [], excludeWeights = [] } = choices;
  let moments: ModelMoments | undefined;
  if (choices.moments !== undefined) {
    const { momentsIn } = await import('./on-demand.js');
    const {
      input: file,
      weights,
      importance,
    } = await readStatisticsFile('moments', choices.moments, readOptionFile, momentsIn);
    moments = { file, weights, importance };
  }
  let ranges: ActivationRanges | undefined;
  if (choices.ranges !== undefined) {
    const { rangesIn } = await import('./on-demand.js');
    const read = async (source: ByteSource) => ({ ranges: await rangesIn(source) });
    ({ ranges } = await readStatisticsFile('ranges', choices.ranges, readOptionFile, read));
  }
  if (importance === undefined) return { importance: moments?.importance, moments, ranges };
  const {
    name: file,
    dataset,
    chunks,
    ...matrix
  } = await readStatisticsFile('importance', importance, readOptionFile, importanceIn);
  // Leave out entries that do not count.
  const isIn = (name: string) => (part: string) => name.includes(part);
  const entries = [...matrix.entries].filter(
    ([name]) => (includeWeights.length === 0 || includeWeights.some(isIn(name))) && !excludeWeights.some(isIn(name)),
  );
  const counted = entries.length === 0 ? undefined : { file, dataset, chunks, entries: new Map(entries) };
  return { importance: counted, moments, ranges };
}

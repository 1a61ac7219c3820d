/** Reads the statistics that options name: importance matrices, and files of second moments with code that is loaded for them alone. */
import type { OptionFile } from './files/bytes.js';
import type { ReadOptionFile } from './format.js';
import { importanceIn } from './gguf/importance-matrix.js';
import { inFile } from './shards.js';
import {
  type ActivationRanges,
  type ImportanceMatrix,
  type ModelMoments,
  momentsFileOf,
  rangesFileOf,
  type Statistics,
  type StatisticsOfModel,
} from './statistics.js';
import type { StatisticsOptions } from './statistics-options.js';

/** The options that name statistics. */
interface StatisticsChoices extends Pick<StatisticsOptions, 'importance' | 'data'> {
  /** Ranges of activations. */
  readonly ranges?: OptionFile | StatisticsOfModel | undefined;
  /** Parts of names: only entries with one of them count. */
  readonly includeWeights?: readonly string[] | undefined;
  /** Parts of names: entries with one of them do not count. */
  readonly excludeWeights?: readonly string[] | undefined;
}

async function readMoments(
  data: NonNullable<StatisticsOptions['data']>,
  readOptionFile: ReadOptionFile,
): Promise<ModelMoments> {
  const { momentsIn } = await import('./on-demand.js');
  return readOptionFile('data', await momentsFileOf(data), async (source, file) => {
    return { file, ...(await inFile(source.name ?? 'data', momentsIn(source))) };
  });
}

function readMatrix(importance: OptionFile, readOptionFile: ReadOptionFile): Promise<ImportanceMatrix> {
  return readOptionFile('importance', importance, async (source) => {
    const file = typeof importance === 'string' ? importance : source.name;
    return { ...(await inFile(file ?? 'importance', importanceIn(source))), file };
  });
}

/** The matrix without entries that do not count; undefined if no entry is left. */
function chosen(matrix: ImportanceMatrix, { includeWeights = [], excludeWeights = [] }: StatisticsChoices) {
  const isIn = (name: string) => (part: string) => name.includes(part);
  const entries = [...matrix.entries].filter(
    ([name]) => (includeWeights.length === 0 || includeWeights.some(isIn(name))) && !excludeWeights.some(isIn(name)),
  );
  return entries.length === 0 ? undefined : { ...matrix, entries: new Map(entries) };
}

/** Reads ranges of activations. @throws ScalepointError `BAD_FILE`, `IO` */
async function readRanges(
  ranges: OptionFile | StatisticsOfModel,
  readOptionFile: ReadOptionFile,
): Promise<ActivationRanges> {
  const { rangesIn } = await import('./on-demand.js');
  const file = await rangesFileOf(ranges);
  return readOptionFile('ranges', file, (source) => inFile(source.name ?? 'ranges', rangesIn(source)));
}

/**
 * Reads the statistics that the options name. Without an importance matrix, the diagonals of the moments are the importance.
 * @throws ScalepointError `BAD_FILE`, `IO`
 */
export async function readStatistics(choices: StatisticsChoices, readOptionFile: ReadOptionFile): Promise<Statistics> {
  const { importance, data } = choices;
  const moments = data === undefined ? undefined : await readMoments(data, readOptionFile);
  const ranges = choices.ranges === undefined ? undefined : await readRanges(choices.ranges, readOptionFile);
  if (importance === undefined) return { importance: moments?.importance, moments, ranges };
  return { importance: chosen(await readMatrix(importance, readOptionFile), choices), moments, ranges };
}

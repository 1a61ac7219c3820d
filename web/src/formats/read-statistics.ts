/** Reads the statistics that options name: importance matrices, and files of second moments with code that is loaded for them alone. */
import { ScalepointError } from '../core/errors.js';
import { mention } from '../core/option-problem.js';
import type { ByteSource, OptionFile } from './files/bytes.js';
import type { ReadOptionFile } from './format.js';
import { importanceIn } from './gguf/importance-matrix.js';
import { inFile } from './shards.js';
import {
  type ActivationRanges,
  type ImportanceMatrix,
  importanceFileOf,
  type ModelMoments,
  momentsFileOf,
  rangesFileOf,
  type Statistics,
  type StatisticsOfModel,
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

/** The option that takes each kind of file. */
const kinds = ['importance', 'moments', 'ranges'] as const;
const names = {
  importance: 'an importance matrix',
  moments: 'a file of second moments',
  ranges: 'a file of ranges of activations',
} as const;

/** Refuses statistics of another kind. @throws ScalepointError `BAD_FILE` naming the option that takes them */
async function refuseOthers(wanted: (typeof kinds)[number], source: ByteSource): Promise<void> {
  const start = new TextDecoder('latin1').decode(await source.read(0, Math.min(startBytes, source.size)));
  const isMatrix = start.startsWith('GGUF') && start.includes('imatrix');
  const [, named] = /"format":"scalepoint\.(\w+)"/.exec(start) ?? [];
  const found = isMatrix ? 'importance' : kinds.find((kind) => kind === named);
  if (found === undefined || found === wanted) return;
  const hint = { kind: 'try', option: mention(found), effect: 'takes it' } as const;
  throw new ScalepointError('BAD_FILE', `this is ${names[found]}, not ${names[wanted]}`, { hint });
}

async function readMoments(
  given: NonNullable<StatisticsOptions['moments']>,
  readOptionFile: ReadOptionFile,
): Promise<ModelMoments> {
  const { momentsIn } = await import('./on-demand.js');
  return readOptionFile('moments', await momentsFileOf(given), async (source, file) => {
    const read = refuseOthers('moments', source).then(() => momentsIn(source));
    return { file, ...(await inFile(source.name ?? 'moments', read)) };
  });
}

async function readMatrix(
  given: OptionFile | StatisticsOfModel,
  readOptionFile: ReadOptionFile,
): Promise<ImportanceMatrix> {
  const importance = await importanceFileOf(given);
  return readOptionFile('importance', importance, async (source) => {
    const file = typeof importance === 'string' ? importance : source.name;
    const read = refuseOthers('importance', source).then(() => importanceIn(source));
    return { ...(await inFile(file ?? 'importance', read)), file };
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
  return readOptionFile('ranges', file, (source) =>
    inFile(
      source.name ?? 'ranges',
      refuseOthers('ranges', source).then(() => rangesIn(source)),
    ),
  );
}

/**
 * Reads the statistics that the options name. Without an importance matrix, the diagonals of the moments are the importance.
 * @throws ScalepointError `BAD_FILE`, `IO`
 */
export async function readStatistics(choices: StatisticsChoices, readOptionFile: ReadOptionFile): Promise<Statistics> {
  const { importance } = choices;
  const moments = choices.moments === undefined ? undefined : await readMoments(choices.moments, readOptionFile);
  const ranges = choices.ranges === undefined ? undefined : await readRanges(choices.ranges, readOptionFile);
  if (importance === undefined) return { importance: moments?.importance, moments, ranges };
  return { importance: chosen(await readMatrix(importance, readOptionFile), choices), moments, ranges };
}

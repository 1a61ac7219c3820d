/** Gives the weights of a model their statistics, and records mismatches for the notes. */
import { ScalepointError } from '../core/errors.js';
import { type Note, noteOf } from '../core/note.js';
import { mention } from '../core/option-problem.js';
import { type ByteSource, type FileInput, type OptionFile, quoted, quotedNames } from './files/bytes.js';
import type { Feedback, ReadOptionFile } from './format.js';
import { importanceIn } from './gguf/importance-matrix.js';
import type { StatisticsOptions } from './options.js';
import { inFile } from './shards.js';
import {
  type ActivationRanges,
  type ImportanceEntry,
  type ModelMoments,
  type Statistics,
  type StatisticsOfModel,
  statisticsFileOf,
  type WeightMoments,
} from './statistics.js';
import type { WeightName } from './weight-names.js';

/** A weight, as statistics describe it. */
export interface MeasuredWeight {
  /** Name of its tensor, for messages. */
  readonly name: string;
  /** Further names that statistics may have for it. Its own counts first. */
  readonly names?: readonly WeightName[] | undefined;
  /** Columns of each of its matrices: the inputs of its product. */
  readonly columns: number;
  /** Number of matrices with inputs of their own, such as experts. Undefined: 1. */
  readonly matrices?: number | undefined;
  /** True for tables that are not multiplied with activations, whose entries may have any size. */
  readonly isTable?: boolean | undefined;
}

/** Defaults of `damping`: of most weights, and of a table that is the output layer, too, since the moments know nothing of looking rows up. */
const usualDamping = 0.01;
const tableDamping = 2;

/** The entry of a weight, under the first of its names that there is. */
function statedEntry<T>(entries: ReadonlyMap<string, T> | undefined, { name, names = [] }: MeasuredWeight) {
  for (const known of [{ name, matrix: undefined }, ...names]) {
    const entry = entries?.get(known.name);
    if (entry !== undefined) return { ...known, entry };
  }
  return undefined;
}

/** The importance of one of an entry's matrices. */
function statedImportance({ matrix, entry }: { matrix?: WeightName['matrix']; entry: ImportanceEntry }) {
  if (matrix === undefined) return entry.values;
  const [index, of] = matrix;
  const columns = entry.values.length / of;
  return Number.isInteger(columns) ? entry.values.slice(index * columns, (index + 1) * columns) : entry.values;
}

/** Share of the mean importance that columns of importance 0 get. Others lose less than 0.1 dB by it, and such columns gain up to 30. */
const unseenShare = 0.01;

const isUnseen = (value: number) => value === 0;

/** Options that decide about statistics. */
interface StatisticsUse extends Pick<StatisticsOptions, 'method' | 'damping' | 'order'> {
  /** `zero`: columns of importance 0 have no weight. @defaultValue 'floor' */
  readonly unseenColumns?: 'floor' | 'zero' | undefined;
}

/** The statistics of a model's weights. */
export class WeightStatistics {
  readonly #statistics: Statistics;
  readonly #choices: StatisticsUse;
  readonly #used = new Set<string>();
  readonly #without: string[] = [];
  readonly #partial: string[] = [];
  #unusedMatrices = 0;
  readonly #plain: string[] = [];
  readonly #unseen: string[] = [];
  #unseenColumns = 0;

  constructor(statistics: Statistics, choices: StatisticsUse) {
    this.#statistics = statistics;
    this.#choices = choices;
  }

  /** Importance of the columns of a weight whose result does not depend on it; undefined without a fitting entry. */
  seen(weight: MeasuredWeight): Float32Array<ArrayBuffer> | undefined {
    const found = statedEntry(this.#statistics.importance?.entries, weight);
    const values = found && statedImportance(found);
    return values?.length === weight.columns * (weight.matrices ?? 1) ? values : undefined;
  }

  /**
   * Importance of the columns of a weight, those of several matrices one after the other; undefined without an entry.
   * @throws ScalepointError `BAD_FILE` if the matrix belongs to another model
   */
  importanceOf(weight: MeasuredWeight): Float32Array<ArrayBuffer> | undefined {
    const { importance } = this.#statistics;
    if (importance === undefined) return undefined;
    const found = statedEntry(importance.entries, weight);
    const size = weight.columns * (weight.matrices ?? 1);
    if (found !== undefined) this.#used.add(found.name);
    const values = found && statedImportance(found);
    if (found === undefined || values === undefined || (values.length !== size && weight.isTable)) {
      this.#without.push(weight.name);
      return undefined;
    }
    if (values.length !== size) {
      const message = `the importance matrix has ${values.length} numbers for it instead of ${size}`;
      throw new ScalepointError('BAD_FILE', `${quoted(weight.name)}: ${message}: it is that of another model`, {
        tensor: weight.name,
      });
    }
    const { matrix, entry } = found;
    const unused = entry.unused?.filter((index) => matrix === undefined || index === matrix[0]).length ?? 0;
    if (unused > 0) this.#partial.push(weight.name);
    this.#unusedMatrices += unused;
    const unseen = values.filter(isUnseen).length;
    if (unseen === 0) return values;
    this.#unseen.push(weight.name);
    this.#unseenColumns += unseen;
    if (this.#choices.unseenColumns === 'zero') return values;
    // Give columns that no input reached when it was collected a floor. With 0, blocks of such columns would become zeros, which texts of
    // other kinds would meet. A matrix of zeros alone weighs its columns alike.
    const result = values.slice();
    for (let first = 0; first < values.length; first += weight.columns) {
      const matrix = result.subarray(first, first + weight.columns);
      const sum = matrix.reduce((all, value) => all + value, 0);
      const seen = weight.columns - matrix.filter(isUnseen).length;
      const floor = seen === 0 ? 1 : (sum / seen) * unseenShare;
      for (const [i, value] of matrix.entries()) if (isUnseen(value)) matrix[i] = floor;
    }
    return result;
  }

  /** The moments of the inputs of a weight, in the file of moments; undefined without. */
  momentsOf(weight: MeasuredWeight): WeightMoments | undefined {
    const found = statedEntry(this.#statistics.moments?.weights, weight);
    const fits = found?.entry.columns === weight.columns && found.matrix === undefined && (weight.matrices ?? 1) === 1;
    return fits ? found.entry : undefined;
  }

  /** The divergence of a weight for each unit of its relative error; undefined if it is unknown. */
  divergenceOf(weight: MeasuredWeight): number | undefined {
    const found = statedEntry(this.#statistics.moments?.divergences, weight);
    return found?.matrix === undefined ? found?.entry : undefined;
  }

  /**
   * The moments of a weight for GPTQ; undefined without moments, or with another method.
   * @param takesFeedback false if its form is always rounded to the nearest
   */
  feedbackOf(weight: MeasuredWeight, takesFeedback: boolean): Feedback | undefined {
    const { method, damping, order = 'falling' } = this.#choices;
    if (method !== 'gptq') return undefined;
    const moments = this.momentsOf(weight);
    if (moments !== undefined && takesFeedback) {
      const isTable = statedEntry(this.#statistics.moments?.weights, weight)?.name === 'token_embd.weight';
      return { ...moments, damping: damping ?? (isTable ? tableDamping : usualDamping), order };
    }
    this.#plain.push(weight.name);
    return undefined;
  }

  /** Notes about mismatches. */
  notes(): Note[] {
    const { importance } = this.#statistics;
    const columns = this.#unseenColumns;
    const unseen = `${columns} ${columns === 1 ? 'column was' : 'columns were'} never active when the importance matrix was made, and`;
    const effect =
      this.#choices.unseenColumns === 'zero' ? 'may become zeros' : `weigh ${unseenShare} of the mean of their matrix`;
    const unused = [...(importance?.entries.keys() ?? [])].filter((name) => !this.#used.has(name));
    const count = this.#unusedMatrices;
    const matrices = count === 1 ? '1 matrix was' : `${count} matrices were`;
    return [
      ...mismatchNote('noImportance', 'quantized without importance: no entry in the matrix for', this.#without),
      ...mismatchNote(
        'partialImportance',
        `${matrices} never active when the importance matrix was made, such as experts that no token reached; all of their columns weigh alike:`,
        this.#partial,
        { matrices: count },
      ),
      ...mismatchNote('unseenColumns', `${unseen} ${effect}:`, this.#unseen, { columns }),
      ...mismatchNote('unusedImportance', 'in the importance matrix but not quantized by it:', unused),
      ...mismatchNote(
        'noFeedback',
        'rounded to the nearest, because the data lacks their moments or their type lacks GPTQ:',
        this.#plain,
      ),
    ];
  }
}

function mismatchNote(kind: string, what: string, tensors: readonly string[], data: object = {}): Note[] {
  return tensors.length === 0 ? [] : [noteOf(kind, { tensors, ...data }, `${what} ${quotedNames(tensors)}`)];
}

// ------------------------------------------------------------------------------------------------------------------------ reading

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
    const { momentsIn } = await import('./safetensors/statistics-files.js');
    const { input, ...read } = await readStatisticsFile('moments', choices.moments, readOptionFile, momentsIn);
    const { weights, importance, divergences } = read;
    moments = { file: input, weights, importance, divergences };
  }
  let ranges: ActivationRanges | undefined;
  if (choices.ranges !== undefined) {
    const { rangesIn } = await import('./safetensors/statistics-files.js');
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

/** Statistics of the inputs of a model's weights: as options take them, and as plans use them. */
import type { FileInput, OptionFile } from './files/bytes.js';

/**
 * Names of the options about statistics, for the targets that they apply to. They stand apart from the options' table, because apps that
 * only name results load the targets.
 */
export const statisticsNames = ['importance', 'method', 'moments', 'damping', 'order'] as const;

/** End of the name of a file of moments, behind that of the statistics. */
export const momentsEnd = '.moments.safetensors';

/** End of the name of an entry of a file of moments: the divergence that a weight causes. */
export const divergenceEnd = '.divergence';

/** End of the name of a file of ranges of activations, behind that of the statistics. */
export const rangesEnd = '.ranges.safetensors';

/** A file of second moments. */
export interface MomentsFile {
  /** Size in bytes. */
  readonly size: number;
  /** Path or URL of the written file; undefined if it is in memory. */
  readonly path?: string | URL | undefined;
  /** The file, if it is in memory. @throws TypeError if it was written */
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  /** The file as a Blob. @throws TypeError if it was written */
  blob(): Promise<Blob>;
}

/** Statistics of `calibrateModel`: an importance matrix, and files of more. */
export interface StatisticsOfModel {
  /** Path or URL of the importance matrix; undefined if it is in memory. */
  readonly path?: string | URL | undefined;
  /** Second moments of inputs, which GPTQ needs. */
  readonly moments?: MomentsFile | undefined;
  /** The least and the largest element of activations. */
  readonly ranges?: MomentsFile | undefined;
  /** The importance matrix as a Blob. @throws TypeError if it was written */
  blob?(): Promise<Blob>;
}

/** True for the result of `calibrateModel`. */
export const hasImportance = (given: unknown): given is StatisticsOfModel & Pick<MomentsFile, 'path' | 'blob'> =>
  typeof given === 'object' && given !== null && 'chunks' in given && 'blob' in given;

/** True for statistics with a file of second moments, or of ranges of activations. */
export function hasStatisticsFile<Kind extends 'moments' | 'ranges'>(
  kind: Kind,
  given: unknown,
): given is Readonly<Record<Kind, MomentsFile>> {
  return typeof given === 'object' && given !== null && typeof (given as StatisticsOfModel)[kind]?.blob === 'function';
}

/** The file that an option about statistics means. */
export async function statisticsFileOf(
  kind: 'importance' | 'moments' | 'ranges',
  given: OptionFile | StatisticsOfModel,
): Promise<OptionFile> {
  let made: Pick<MomentsFile, 'path' | 'blob'> | undefined;
  if (kind === 'importance') made = hasImportance(given) ? given : undefined;
  else if (hasStatisticsFile(kind, given)) made = given[kind];
  return made === undefined ? (given as OptionFile) : (made.path ?? (await made.blob()));
}

/** The least and the largest element of activations, by the names of values. */
export type ActivationRanges = ReadonlyMap<string, readonly [least: number, largest: number]>;

/** Importance of one weight. */
export interface ImportanceEntry {
  /** One number for each column, those of several matrices (experts) one after the other. */
  readonly values: Float32Array<ArrayBuffer>;
  /** Indices of matrices that no token reached, whose columns weigh alike. @defaultValue empty */
  readonly unused?: readonly number[];
}

/** An importance matrix that has been checked: all numbers are finite and not negative. */
export interface ImportanceMatrix {
  /** By the names of weights. */
  readonly entries: ReadonlyMap<string, ImportanceEntry>;
  /** Path as given, or name. */
  readonly file: string | undefined;
  readonly dataset: string | undefined;
  /** Number of chunks of text it was made from; 0 if unknown. */
  readonly chunks: number;
}

/** Position of the moments of a weight's inputs: a square of float32. */
export interface WeightMoments {
  readonly byteOffset: number;
  readonly columns: number;
  /** Position of the moments of held-back data, of the same size; undefined without. */
  readonly heldBackOffset?: number | undefined;
}

/** The order in which rounding goes through the columns of a matrix: as they are stored, or those with the largest inputs first. */
export type ColumnOrder = 'stored' | 'falling';

/** Second moments of the inputs of weights. */
export interface ModelMoments {
  /** The file that holds them. */
  readonly file: FileInput;
  /** By the names of weights. */
  readonly weights: ReadonlyMap<string, WeightMoments>;
  /** Their diagonals, as an importance matrix. */
  readonly importance: ImportanceMatrix;
  /** By the names of weights: the divergence of the next token in nats for each unit of relative error of a weight's outputs; may be empty. */
  readonly divergences: ReadonlyMap<string, number>;
}

/** The statistics of a model that options name. */
export interface Statistics {
  readonly importance?: ImportanceMatrix | undefined;
  readonly moments?: ModelMoments | undefined;
  readonly ranges?: ActivationRanges | undefined;
}

/** Statistics of a model's inputs, as options take them. */
import type { FileInput } from '../files/bytes.js';

/** A file of second moments. */
export interface MomentsFile {
  /** Size in bytes. */
  readonly size: number;
  /** Path or URL of the written file; undefined if it is in memory. */
  readonly path?: string | URL | undefined;
  /** The file, if it is in memory. */
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  /** The file, if it is in memory. */
  blob(): Blob;
}

/** Statistics with second moments. */
export interface StatisticsOfModel {
  readonly moments?: MomentsFile | undefined;
}

/** True for statistics with moments. */
export const hasMoments = (data: unknown): data is { readonly moments: MomentsFile } =>
  typeof data === 'object' && data !== null && typeof (data as Partial<StatisticsOfModel>).moments?.blob === 'function';

/** The file of moments that the option `data` means. */
export function momentsFileOf(data: FileInput | StatisticsOfModel): FileInput {
  return hasMoments(data) ? (data.moments.path ?? data.moments.blob()) : (data as FileInput);
}

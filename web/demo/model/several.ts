// Several models, as data: which of the files are models of their own, and their sizes.
import { type ModelTarget, planModel } from 'scalepoint/model';
import { isModelName, type ModelFile, openModelFiles } from '../shared/files.js';
import { inputOf } from '../shared/page-files.js';

/** A model in the list. */
export interface SeveralRow {
  readonly before: number;
  /** Size of its result; undefined until it is planned, or if it cannot be. */
  readonly after: number | undefined;
  /** Its state as text: progress, name of the result, or a problem. */
  readonly state: string;
}

/** Opens each file with the name of a model. Undefined unless there are several and each can be opened. */
export async function openEach(files: readonly File[]): Promise<readonly ModelFile[] | undefined> {
  const named = files.filter(({ name }) => isModelName(name));
  if (named.length < 2) return undefined;
  const opened = await Promise.all(named.map((file) => openModelFiles([file]).catch(() => undefined)));
  return opened.every((model) => model !== undefined) ? opened : undefined;
}

/** Size of the result of a model. @throws what `planModel` throws */
export async function planOf({ files }: ModelFile, to: ModelTarget): Promise<number> {
  return (await planModel(inputOf(files), { to })).totals.bytesAfter;
}

/** Sums over all rows. `after` is undefined until all are planned. */
export function totalOf(rows: readonly SeveralRow[]): { before: number; after: number | undefined } {
  const isWhole = rows.every(({ after }) => after !== undefined);
  return {
    before: rows.reduce((sum, { before }) => sum + before, 0),
    after: isWhole ? rows.reduce((sum, { after = 0 }) => sum + after, 0) : undefined,
  };
}

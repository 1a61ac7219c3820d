// Several things that were dropped together, as data: the models among them, their sizes, and why others cannot be opened.
import { type ModelTarget, planModel } from 'scalepoint/model';
import { UnreadFile } from '../shared/file-error.js';
import {
  claimOf,
  isBeside,
  isIndex,
  type ModelFile,
  mainFile,
  modelExtensions,
  openModelFiles,
} from '../shared/files.js';
import { inputOf } from '../shared/page-files.js';
import type { PageProblem } from '../shared/problems.js';
import { headOf, looksLikeText, strangerOf } from '../shared/strangers.js';
import { explain } from './explain.js';

/** A dropped thing that is no model, or cannot be read. */
interface LostThing {
  readonly name: string;
  readonly problem: PageProblem;
}

/** A thing in the list. */
export type Thing = ModelFile | LostThing;

export const isModel = (thing: Thing): thing is ModelFile => !('problem' in thing);

/** A model in the list. */
export interface SeveralRow {
  readonly before: number;
  /** Size of its result; undefined until it is planned, or if it cannot be. */
  readonly after: number | undefined;
  /** True if nothing in it would change, so that it is not saved. */
  readonly isSame: boolean;
  /** Its state as text: progress, name of the result, or a problem. */
  readonly state: string;
}

/** Explains that a file is not a model, and what else can be done with it. */
async function explainStranger(file: File): Promise<PageProblem> {
  const title = 'That cannot be opened here';
  const supported = `This page reads ${modelExtensions()}.`;
  if (file.size === 0) return { title, text: `${file.name} is empty. ${supported}` };
  const head = await headOf(file);
  const stranger = strangerOf(head);
  if (stranger !== undefined) return { title, text: `${file.name} is ${stranger}. ${supported}` };
  if (!looksLikeText(head)) return { title, text: `${file.name} is not a model that this page knows. ${supported}` };
  return {
    title,
    text: `${file.name} is not a model. ${supported} If it holds numbers, “Your numbers” reads them.`,
    action: {
      label: 'Open in Your numbers',
      run: () => void import('../shared/visit.js').then(({ visit }) => visit('numbers/', [file])),
    },
  };
}

/** The last digits of the name of one of several files, which belong together. */
const part = /-\d{5}-of-\d{5}\./;

/** Values by key, in the order of the first of each. */
function grouped<Value>(values: readonly Value[], keyOf: (value: Value) => unknown): readonly (readonly Value[])[] {
  const groups = new Map<unknown, Value[]>();
  for (const value of values) groups.set(keyOf(value), [...(groups.get(keyOf(value)) ?? []), value]);
  return [...groups.values()];
}

/** The files of a folder, or files without one: as one model, or else as models of their own. */
async function openGroup(files: readonly File[]): Promise<readonly Thing[]> {
  const main = mainFile(files);
  try {
    const model = await openModelFiles(files);
    return [model ?? { name: main.name, problem: await explainStranger(main) }];
  } catch (error) {
    const models = files.filter(({ name }) => claimOf(name) !== undefined);
    const beside = files.filter((file) => isBeside(file) && !models.includes(file) && !isIndex(file));
    const byFormat = grouped([...files.filter(isIndex), ...models], ({ name }) => claimOf(name));
    const isWhole = byFormat.length === 1 && files.some((file) => isIndex(file) || part.test(file.name));
    if (models.length < 2 || isWhole) return [{ name: main.name, problem: explain(error) }];
    // What describes a model goes with it, if it is the only one of its format.
    const parts =
      byFormat.length > 1 ? byFormat.map((group) => [...group, ...beside]) : models.map((model): File[] => [model]);
    const others = files.filter((file) => !parts.flat().includes(file) && !isBeside(file));
    return (await Promise.all([...parts, ...others.map((file) => [file])].map(openGroup))).flat();
  }
}

/** Opens everything that was dropped. Each folder, and each file that belongs to no other, is a thing. */
export async function openAll(files: readonly File[]): Promise<readonly Thing[]> {
  const unread = files.filter((file) => file instanceof UnreadFile);
  const read = files.filter((file) => !(file instanceof UnreadFile));
  const groups = grouped(read, ({ webkitRelativePath }) => webkitRelativePath.split('/')[0]);
  const opened = await Promise.all(groups.map(openGroup));
  const lost = unread.map(
    ({ name, why }): LostThing => ({ name, problem: { title: 'That cannot be read', text: why } }),
  );
  return [...opened.flat(), ...lost];
}

/** Size of the result of a model; undefined if nothing in it would change. @throws what `planModel` throws */
export async function planOf({ files }: ModelFile, to: ModelTarget): Promise<number | undefined> {
  const { totals } = await planModel(inputOf(files), { to });
  return totals.quantized + totals.cast === 0 ? undefined : totals.bytesAfter;
}

/** Sums over all rows. `after` is undefined until all are planned. */
export function totalOf(rows: readonly SeveralRow[]): { before: number; after: number | undefined } {
  const isWhole = rows.every(({ after }) => after !== undefined);
  return {
    before: rows.reduce((sum, { before }) => sum + before, 0),
    after: isWhole ? rows.reduce((sum, { after = 0 }) => sum + after, 0) : undefined,
  };
}

// Models that were open before, which the browser can open again: their handles are in its database, or the names of samples. Nothing else
// of them is kept.
import { filesIn } from './entries.js';
import { type Handle, handlesOf, noteHandle } from './handles.js';
import { remember } from './remember.js';
import { fetchSample, type SampleName, sampleName } from './sample.js';

/** Something that was opened. */
export interface KeptModel {
  readonly id: string;
  readonly name: string;
  readonly handles: readonly Handle[];
  /** The sample of the site that it is. It has no handles. */
  readonly sample?: SampleName | undefined;
  readonly time: number;
}

/** Most models that are kept. */
const most = 6;

const settled = <Value>(request: IDBRequest<Value>) =>
  new Promise<Value>((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

/** Acts on the table of kept models. @throws DOMException where the browser has no database for this page */
async function withTable<Value>(mode: IDBTransactionMode, act: (table: IDBObjectStore) => IDBRequest<Value>) {
  const request = indexedDB.open('scalepoint', 1);
  request.onupgradeneeded = () => request.result.createObjectStore('models', { keyPath: 'id' });
  const database = await settled(request);
  try {
    return await settled(act(database.transaction('models', mode).objectStore('models')));
  } finally {
    database.close();
  }
}

/** The kept models, the newest first. */
export async function keptModels(): Promise<readonly KeptModel[]> {
  const all: KeptModel[] = await withTable('readonly', (table) => table.getAll()).catch(() => []);
  return all.sort((a, b) => b.time - a.time);
}

/** True if two lists have the same files and folders. */
async function areSame(a: readonly Handle[], b: readonly Handle[]): Promise<boolean> {
  if (a.length !== b.length) return false;
  for (const [i, handle] of a.entries()) if (!(await handle.isSameEntry(b[i] as Handle))) return false;
  return true;
}

/** Keeps what was opened. Returns its identity, or undefined if it is no sample and the browser gave no handles, or if there is no database. */
export async function keepModel(name: string, files: readonly File[]): Promise<string | undefined> {
  try {
    const sample = sampleName(files);
    const handles = sample === undefined ? await handlesOf(files) : [];
    if (handles === undefined || (handles.length === 0 && sample === undefined)) return undefined;
    const all = await keptModels();
    let id: string = crypto.randomUUID();
    for (const one of all) if (one.sample === sample && (await areSame(one.handles, handles))) id = one.id;
    await withTable('readwrite', (table) => table.put({ id, name, handles, sample, time: Date.now() }));
    const others = all.filter((one) => one.id !== id);
    for (const { id } of others.slice(most - 1)) await withTable('readwrite', (table) => table.delete(id));
    remember('kept', 'yes');
    return id;
  } catch {
    return undefined;
  }
}

/** Forgets all of them. */
export async function forgetModels(): Promise<void> {
  remember('kept', '');
  await withTable('readwrite', (table) => table.clear()).catch(() => {});
}

/** True if they may be read without asking the visitor. */
export async function mayRead({ handles }: KeptModel): Promise<boolean> {
  for (const handle of handles) if ((await handle.queryPermission?.()) === 'prompt') return false;
  return true;
}

/** Asks the visitor, where the browser demands it. Call it on a click. Returns the answer. */
export async function askToRead({ handles }: KeptModel): Promise<boolean> {
  for (const handle of handles) {
    if ((await handle.queryPermission?.()) !== 'prompt') continue;
    if ((await handle.requestPermission?.()) !== 'granted') return false;
  }
  return true;
}

/** The files of a kept model. @throws FileError if it is a sample that is not there any more */
export const filesOf = ({ handles, sample }: KeptModel): Promise<readonly File[]> =>
  sample === undefined ? filesBehind(handles) : fetchSample(sample);

/** The files behind handles, as if they had been dropped. */
export async function filesBehind(handles: readonly Handle[]): Promise<readonly File[]> {
  const found = await Promise.all(
    handles.map(async (handle) => {
      const files = await filesIn(handle);
      noteHandle(files, handle);
      return files;
    }),
  );
  return found.flat();
}

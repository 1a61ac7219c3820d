/**
 * Runs that go on after an interruption. With --resume, each file of a result appears as soon as it is whole, and a journal beside the
 * result records it. The next run with --resume skips recorded files, if model, options and version are the same. Each file has the same
 * bytes as in a single run, because it is made as a part of the work (`part`). After the last file the journal is removed. A run after that
 * knows the result by its names, sizes and times.
 */
import { readdir, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import {
  inspectModel,
  type ModelPlan,
  type ModelReport,
  type Progress,
  type QuantizeModelOptions,
  type QuantizeModelResult,
  resultFiles,
} from '../model.js';
import { hubFileOf, StateFile, targetTakes } from '../tooling.js';
import type { NamedFile } from './format-flags.js';
import type { Input } from './input.js';

/** A file by which a change is noticed: its name, size in bytes, and time of the last change. */
type FileStamp = readonly [name: string, size: number, time: number];

/** A finished part in the journal. */
interface PartRecord {
  readonly files: readonly FileStamp[];
  readonly report: ModelReport;
  /** Contents of files beside the result, by the names of their options. */
  readonly contents: Readonly<Record<string, unknown>>;
}

/** The parts of a result, as the journal has them. */
interface Parts {
  /** The part that was begun last. */
  began?: number;
  readonly parts: Record<number, PartRecord>;
}

/** The stamp of a file; undefined if it is missing. */
async function stampOf(path: string): Promise<FileStamp | undefined> {
  const status = await stat(path).catch(() => undefined);
  return status?.isFile() ? [basename(path), status.size, status.mtimeMs] : undefined;
}

const isIndexName = (name: string) => name.endsWith('.json');

const isSame = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);

/** The path of the journal of an output. */
export function journalPath(output: string): string {
  return join(dirname(output), `.${basename(output)}.resume`);
}

/** The parts of a result that are done, and those to come. */
export class ResumableRun {
  readonly #state: StateFile;
  readonly #model: readonly FileStamp[];
  readonly #made: Parts;
  /** Number of parts. */
  readonly count: number;
  /** True if an interrupted run goes on. */
  readonly isResumed: boolean;

  private constructor(state: StateFile, model: readonly FileStamp[], count: number) {
    const found = state.take()?.about as Parts | undefined;
    this.#state = state;
    this.#model = model;
    this.#made = found ?? { parts: {} };
    this.count = count;
    this.isResumed = found !== undefined;
  }

  /**
   * Opens the journal of an output, or prepares a new one.
   * @param force begins anew where the interrupted run differs
   * @throws ScalepointError `CHANGED` if the model, the options or the version differ from those of the interrupted run, `BAD_FILE` if no run
   *   wrote the journal, or it was changed since
   */
  static async open(
    output: string,
    plan: ModelPlan,
    { model, options }: { readonly model: readonly FileStamp[]; readonly options: unknown },
    force: boolean,
  ): Promise<ResumableRun> {
    const files = plan.files.filter(({ name }) => !isIndexName(name));
    const count = targetTakes(plan.to, 'part') ? Math.max(1, files.length) : 1;
    const facts = { 'the model': model, 'the options': options };
    const remedy = '--force begins anew';
    const state = await StateFile.open({ path: journalPath(output) }, facts, { overwrite: force, remedy });
    return new ResumableRun(state, model, count);
  }

  /** The record of a part whose files are in place; undefined if it is to be made. @param number from 1 */
  async done(number: number, folder: string): Promise<PartRecord | undefined> {
    const record = this.#made.parts[number];
    if (record === undefined) return undefined;
    for (const stamp of record.files) if (!isSame(await stampOf(join(folder, stamp[0])), stamp)) return undefined;
    return record;
  }

  /** True if files of these names and sizes are there, and nothing that decides about them changed later. */
  async isThere(files: ModelPlan['files'], folder: string): Promise<boolean> {
    const newest = Math.max(...this.#model.map(([, , time]) => time));
    const stamps = await Promise.all(files.map(({ name }) => stampOf(join(folder, name))));
    return stamps.every((stamp, i) => stamp !== undefined && stamp[1] === files[i]?.bytes && stamp[2] >= newest);
  }

  /** True if an existing file of a part was written by an interrupted run. */
  owns(number: number): boolean {
    return this.#made.began === number || this.#made.parts[number] !== undefined;
  }

  /** Notes that a part begins. */
  async begin(number: number): Promise<void> {
    this.#made.began = number;
    await this.#state.save({ about: this.#made, arrays: [] });
  }

  /** Notes that the files of a part are whole. */
  async end(number: number, paths: readonly string[], record: Omit<PartRecord, 'files'>): Promise<void> {
    const stamps = await Promise.all(paths.map(stampOf));
    this.#made.parts[number] = { ...record, files: stamps.flatMap((stamp) => (stamp ? [stamp] : [])) };
    await this.#state.save({ about: this.#made, arrays: [] });
  }

  /** Removes the journal, once all files are there. */
  async finish(): Promise<void> {
    await this.#state.remove();
  }
}

/** Files beside models and adapters that decide about results: configurations. */
const configurations = /config\.json$/;
/** Files that a conversion to another format reads besides: tokenizers and templates. */
const besideModel = /\.(json|model|txt|jinja2?)$/;
/** Files that it reads in folders beside the model, such as a pooling. */
const inFolders = ['config.json', 'model.safetensors', 'pytorch_model.bin'];

/** The files beside a model or an adapter that decide about a result. */
async function filesAround(path: string, isConverted: boolean): Promise<string[]> {
  const folder = dirname(path);
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
  const names = isConverted ? besideModel : configurations;
  return entries.flatMap((entry) => {
    const inside = join(folder, entry.name);
    if (entry.isDirectory()) return isConverted ? inFolders.map((name) => join(inside, name)) : [];
    return names.test(entry.name) ? [inside] : [];
  });
}

/**
 * The stamps of the files that decide about a result: those of the model and of adapters with the configurations beside them, and others
 * that flags name.
 * @param written files of the result, which may lie beside the model
 */
export async function fileStampsOf(
  input: Input,
  plan: ModelPlan,
  others: readonly NamedFile[],
  written: readonly string[],
): Promise<FileStamp[]> {
  const stamps: FileStamp[] = [];
  const paths = others.map(({ path }) => path);
  const hub = hubFileOf(input.file);
  if (hub === undefined) {
    const { name: model } = input;
    const { files } = await inspectModel(model);
    paths.push(model, ...files.map((name) => join(dirname(model), name)));
    paths.push(...(await filesAround(model, plan.architecture !== undefined)));
  } else {
    // A commit decides about all files of the model.
    const { address, entry, repository } = hub;
    stamps.push([`${address}#${entry.oid}`, entry.size ?? 0, repository.listing.modified ?? Infinity]);
  }
  for (const { flag, path } of others) if (flag === 'lora') paths.push(...(await filesAround(path, false)));
  const results = new Set(written.map((path) => resolve(path)));
  const read = [...new Set(paths.map((path) => resolve(path)))].filter((path) => !results.has(path)).sort();
  for (const path of read) {
    const stamp = await stampOf(path);
    if (stamp !== undefined) stamps.push(stamp);
  }
  return stamps;
}

/** The work of a run in parts. */
export interface PartWork {
  readonly output: string;
  readonly plan: ModelPlan;
  /** Names of all tensors, in the order of the model. */
  readonly names: readonly string[];
  /** Options of the files beside the result. */
  readonly sidecars: readonly string[];
  readonly force: boolean;
  onProgress(progress: Progress): void;
  /** Makes a part. */
  make(options: Pick<QuantizeModelOptions, 'part' | 'overwrite' | 'onProgress'>): Promise<QuantizeModelResult>;
}

/** Makes the parts that are missing. Returns the result as that of a single run. */
export async function makeParts(run: ResumableRun, work: PartWork): Promise<QuantizeModelResult> {
  const { output, plan, sidecars, make } = work;
  const folder = dirname(output);
  const index = plan.files.find(({ name }) => isIndexName(name));
  const records: Omit<PartRecord, 'files'>[] = [];
  let last: QuantizeModelResult | undefined;
  let bytesBefore = 0;
  for (let number = 1; number <= run.count; number++) {
    // The part that is made last writes the index.
    const needsIndex = number === run.count && last === undefined && index !== undefined;
    const indexes = needsIndex ? resultFiles(basename(output), plan).filter(isIndexName) : [];
    const stamps = await Promise.all(indexes.map((name) => stampOf(join(folder, name))));
    // Take a part that an earlier run finished.
    const known = stamps.includes(undefined) ? undefined : await run.done(number, folder);
    if (known !== undefined) {
      records.push(known);
      bytesBefore += known.report.tensors.reduce((sum, tensor) => sum + tensor.bytesBefore, 0);
      continue;
    }
    // Make it.
    const overwrite = work.force || run.owns(number);
    await run.begin(number);
    let bytesOfPart = 0;
    last = await make({
      ...(run.count > 1 ? { part: `${number}/${run.count}` as const } : {}),
      overwrite,
      onProgress: (progress) => {
        bytesOfPart = progress.bytesTotal;
        const { bytesBefore: bytesTotal } = plan.totals;
        work.onProgress({ ...progress, bytesDone: Math.min(bytesBefore + progress.bytesDone, bytesTotal), bytesTotal });
      },
    });
    // Write down that it is whole.
    bytesBefore += bytesOfPart;
    const members = last as unknown as Readonly<Record<string, unknown>>;
    const contents = Object.fromEntries(sidecars.map((name) => [name, members[name]]));
    const record = { report: last.report, contents };
    await run.end(
      number,
      last.files.map(({ name }) => join(folder, name)),
      record,
    );
    records.push(record);
  }
  const none = () => Promise.reject(new TypeError('the result went to files'));
  const contents = records.at(-1)?.contents;
  // The report of all parts is that of a single run.
  const tensors = new Map(records.flatMap(({ report }) => report.tensors.map((tensor) => [tensor.name, tensor])));
  const all = [...plan.notes, ...records.flatMap(({ report }) => report.notes)];
  const report: ModelReport = {
    tensors: work.names.flatMap((name) => tensors.get(name) ?? []),
    totals: plan.totals,
    notes: [...new Map(all.map((note) => [JSON.stringify(note), note])).values()],
  };
  return { ...contents, format: plan.format, report, files: plan.files, isWhole: true, bytes: none, blob: none };
}

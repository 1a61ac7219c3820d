/**
 * Runs that go on after an interruption. With --resume, each file of a result appears as soon as it is whole, and a journal beside the
 * result records it. The next run with --resume skips recorded files, if model, options and version are the same. Each file has the same
 * bytes as in a single run, because it is made as a part of the work (`part`). After the last file the journal is removed. A run after that
 * knows the result by its names, sizes and times.
 */
import { createHash } from 'node:crypto';
import { readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { buildId, version } from '../core/core.mjs';
import {
  inspectModel,
  type ModelPlan,
  type ModelReport,
  type Progress,
  type QuantizeModelOptions,
  type QuantizeModelResult,
  resultFiles,
  ScalepointError,
} from '../model.js';
import { type NamedFile, takesOption } from './format-flags.js';

/** A file by which a change is noticed: its name, size in bytes, and time of the last change. */
type FileStamp = readonly [name: string, size: number, time: number];

/** The facts that decide about the bytes of a result. */
interface RunFacts {
  readonly version: string;
  readonly model: readonly FileStamp[];
  readonly options: unknown;
}

/** A finished part in the journal. */
interface PartRecord {
  readonly files: readonly FileStamp[];
  readonly report: ModelReport;
  /** Contents of files beside the result, by the names of their options. */
  readonly contents: Readonly<Record<string, unknown>>;
}

interface Journal extends RunFacts {
  /** The part that was begun last. */
  began?: number;
  readonly parts: Record<number, PartRecord>;
}

/** JSON has no infinities, which errors may be. */
const infinite = 'scalepoint:number';
const textOf = (value: unknown) =>
  JSON.stringify(value, (_, item) =>
    typeof item === 'number' && !Number.isFinite(item) ? { [infinite]: String(item) } : item,
  );
const restored = (text: string): unknown =>
  JSON.parse(text, (_, item) =>
    typeof item === 'object' && item !== null && infinite in item ? Number(item[infinite]) : item,
  );

/** The stamp of a file; undefined if it is missing. */
async function stampOf(path: string): Promise<FileStamp | undefined> {
  const status = await stat(path).catch(() => undefined);
  return status?.isFile() ? [basename(path), status.size, status.mtimeMs] : undefined;
}

const isIndex = (name: string) => name.endsWith('.json');

const isSame = (a: unknown, b: unknown) => textOf(a) === textOf(b);

/** The beginning of every journal. Files of other programs lack it. */
const journalStart = '{"version":"';

/** The digest of a journal, by which changes of it are noticed. */
const digestOf = (journal: Journal) => createHash('sha256').update(textOf(journal)).digest('hex');

/** Reads a journal. @throws ScalepointError `BAD_FILE` if no run wrote it, or it was changed since */
function journalIn(text: string, path: string, current: string): Journal {
  const bad = (what: string) => new ScalepointError('BAD_FILE', `${JSON.stringify(path)} ${what}`, { path });
  if (!text.startsWith(journalStart)) {
    throw bad('is not the journal of an interrupted run: choose another output, or move this file');
  }
  const damaged = bad('is damaged; remove it to begin anew');
  let found: (Journal & { digest?: unknown }) | undefined;
  try {
    found = restored(text) as Journal;
  } catch {
    throw damaged;
  }
  const { digest, ...journal } = found;
  // Journals of other versions may look otherwise, and nothing of them is used.
  if (typeof journal.version !== 'string' || (journal.version === current && digest !== digestOf(journal)))
    throw damaged;
  return journal;
}

/** The path of the journal of an output. */
export function journalPath(output: string): string {
  return join(dirname(output), `.${basename(output)}.resume.json`);
}

/** The parts of a result that are done, and those to come. */
export class ResumableRun {
  readonly #path: string;
  readonly #journal: Journal;
  /** Number of parts. */
  readonly count: number;
  /** True if an interrupted run goes on. */
  readonly isResumed: boolean;

  private constructor(path: string, journal: Journal, count: number, isResumed: boolean) {
    this.#path = path;
    this.#journal = journal;
    this.count = count;
    this.isResumed = isResumed;
  }

  /**
   * Opens the journal of an output, or prepares a new one.
   * @param force begins anew where the interrupted run differs
   * @throws ScalepointError `CHANGED` if the model, the options or the version differ from those of the interrupted run
   */
  static async open(
    output: string,
    plan: ModelPlan,
    { model, options }: Pick<RunFacts, 'model' | 'options'>,
    force: boolean,
  ): Promise<ResumableRun> {
    const path = journalPath(output);
    const facts: RunFacts = { version: `${version} ${buildId}`, model, options };
    const files = plan.files.filter(({ name }) => !isIndex(name));
    const count = takesOption(plan.to, 'part') ? Math.max(1, files.length) : 1;
    const journal = await readFile(path, 'utf8').then(
      (text) => journalIn(text, path, facts.version),
      () => undefined,
    );
    if (journal !== undefined) {
      const changed = [
        ...(isSame(journal.model, facts.model) ? [] : ['the model']),
        ...(isSame(journal.options, facts.options) ? [] : ['the options']),
        ...(isSame(journal.version, facts.version) ? [] : ['the version of scalepoint']),
      ];
      if (changed.length === 0) return new ResumableRun(path, journal, count, true);
      if (!force) {
        const what = `${changed.join(' and ')} changed since the interrupted run; --force begins anew`;
        throw new ScalepointError('CHANGED', what, { path });
      }
    }
    return new ResumableRun(path, { ...facts, parts: {} }, count, false);
  }

  /** The record of a part whose files are in place; undefined if it is to be made. @param number from 1 */
  async done(number: number, folder: string): Promise<PartRecord | undefined> {
    const record = this.#journal.parts[number];
    if (record === undefined) return undefined;
    for (const stamp of record.files) if (!isSame(await stampOf(join(folder, stamp[0])), stamp)) return undefined;
    return record;
  }

  /** True if files of these names and sizes are there, and nothing that decides about them changed later. */
  async isThere(files: ModelPlan['files'], folder: string): Promise<boolean> {
    const newest = Math.max(...this.#journal.model.map(([, , time]) => time));
    const stamps = await Promise.all(files.map(({ name }) => stampOf(join(folder, name))));
    return stamps.every((stamp, i) => stamp !== undefined && stamp[1] === files[i]?.bytes && stamp[2] >= newest);
  }

  /** True if an existing file of a part was written by an interrupted run. */
  owns(number: number): boolean {
    return this.#journal.began === number || this.#journal.parts[number] !== undefined;
  }

  /** Notes that a part begins. */
  async begin(number: number): Promise<void> {
    this.#journal.began = number;
    await this.#save();
  }

  /** Notes that the files of a part are whole. */
  async end(number: number, paths: readonly string[], record: Omit<PartRecord, 'files'>): Promise<void> {
    const stamps = await Promise.all(paths.map(stampOf));
    this.#journal.parts[number] = { ...record, files: stamps.flatMap((stamp) => (stamp ? [stamp] : [])) };
    await this.#save();
  }

  /** Removes the journal, once all files are there. */
  async finish(): Promise<void> {
    await rm(this.#path, { force: true });
  }

  async #save(): Promise<void> {
    // A run that is killed here leaves the old journal or the new one.
    const partial = `${this.#path}.partial`;
    try {
      await writeFile(partial, textOf({ ...this.#journal, digest: digestOf(this.#journal) }));
      await rename(partial, this.#path);
    } catch (cause) {
      throw new ScalepointError('IO', `cannot write ${JSON.stringify(this.#path)}`, { cause, path: this.#path });
    }
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
  model: string,
  plan: ModelPlan,
  others: readonly NamedFile[],
  written: readonly string[],
): Promise<FileStamp[]> {
  const { files } = await inspectModel(model);
  const shards = files.map((name) => join(dirname(model), name));
  const adapters = others.flatMap(({ flag, path }) => (flag === 'lora' ? [path] : []));
  const around = [
    ...(await filesAround(model, plan.architecture !== undefined)),
    ...(await Promise.all(adapters.map((path) => filesAround(path, false)))).flat(),
  ];
  const results = new Set(written.map((path) => resolve(path)));
  const paths = new Set([model, ...shards, ...others.map(({ path }) => path), ...around].map((path) => resolve(path)));
  const read = [...paths].filter((path) => !results.has(path)).sort();
  const stamps = await Promise.all(read.map(stampOf));
  return stamps.flatMap((stamp) => (stamp && !stamp[0].endsWith('.resume.json') ? [stamp] : []));
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
  const index = plan.files.find(({ name }) => isIndex(name));
  const records: Omit<PartRecord, 'files'>[] = [];
  let last: QuantizeModelResult | undefined;
  let bytesBefore = 0;
  for (let number = 1; number <= run.count; number++) {
    // The part that is made last writes the index.
    const needsIndex = number === run.count && last === undefined && index !== undefined;
    // Take a part that an earlier run finished.
    const known = needsIndex && !(await hasIndex(work)) ? undefined : await run.done(number, folder);
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
    const record = recordOf(last, sidecars);
    await run.end(
      number,
      last.files.map(({ name }) => join(folder, name)),
      record,
    );
    records.push(record);
  }
  const none = () => Promise.reject(new TypeError('the result went to files'));
  const contents = records.at(-1)?.contents;
  return { ...contents, report: wholeReport(work, records), files: plan.files, isWhole: true, bytes: none, blob: none };
}

/** True if the index of a result is there. */
async function hasIndex({ output, plan }: PartWork): Promise<boolean> {
  const names = resultFiles(basename(output), plan).filter(isIndex);
  const stamps = await Promise.all(names.map((name) => stampOf(join(dirname(output), name))));
  return stamps.every((stamp) => stamp !== undefined);
}

/** The report of all parts, as that of a single run. */
function wholeReport({ plan, names }: PartWork, records: readonly Pick<PartRecord, 'report'>[]): ModelReport {
  const tensors = new Map(records.flatMap(({ report }) => report.tensors.map((tensor) => [tensor.name, tensor])));
  const all = [...plan.notes, ...records.flatMap(({ report }) => report.notes)];
  const notes = new Map(all.map((note) => [textOf(note), note]));
  return {
    tensors: names.flatMap((name) => tensors.get(name) ?? []),
    totals: plan.totals,
    notes: [...notes.values()],
  };
}

/** The record of a made part. @param options names of the files beside a result */
function recordOf(result: QuantizeModelResult, options: readonly string[]): Omit<PartRecord, 'files'> {
  const members = result as unknown as Readonly<Record<string, unknown>>;
  return { report: result.report, contents: Object.fromEntries(options.map((name) => [name, members[name]])) };
}

/** Files beside results, such as config.json, which tells loaders what the integers of a model mean. */
import { open, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { type ModelPlan, type QuantizeModelResult, ScalepointError, writeSidecar } from '../model.js';
import type { SidecarOption } from './formats.js';
import { about, systemText } from './process.js';

/** Such files have a few kilobytes. A larger file must be something else. */
const mostBytes = 16 * 2 ** 20;

/** Reads a whole file. @throws ScalepointError `IO` or `BAD_FILE` */
export async function readText(path: string): Promise<string> {
  let bytes: Buffer;
  try {
    const file = await open(path);
    try {
      const { size } = await file.stat();
      if (size > mostBytes) {
        throw new ScalepointError('BAD_FILE', `${size} bytes are too many for a ${basename(path)}`);
      }
      bytes = await file.readFile();
    } finally {
      await file.close();
    }
  } catch (cause) {
    if (cause instanceof ScalepointError) throw cause;
    throw new ScalepointError('IO', `cannot read ${JSON.stringify(path)}: ${systemText(cause)}`, { cause });
  }
  return bytes.toString('utf8').replace(/^\u{feff}/u, '');
}

/** A file beside a result that may be written. */
export interface PreparedSidecar extends SidecarOption {
  /** What is in the given file. */
  readonly value: Readonly<Record<string, unknown>> | undefined;
  readonly print: (value: unknown) => string;
}

/** Reads the files that were given. @throws ScalepointError */
export async function readSidecars(options: readonly SidecarOption[]): Promise<readonly PreparedSidecar[]> {
  const prepared: PreparedSidecar[] = [];
  for (const option of options) {
    const { path, sidecar } = option;
    const given = path === undefined ? undefined : await about(path, async () => sidecar.parse(await readText(path)));
    prepared.push({ ...option, value: given?.value, print: given?.print ?? sidecar.print });
  }
  return prepared;
}

/** Where a file beside an output goes, if a plan has something to put into it. */
export function sidecarPath(output: string, { sidecar }: SidecarOption, plan: ModelPlan): string | undefined {
  const planned = (plan as unknown as Readonly<Record<string, unknown>>)[sidecar.planned];
  return planned === undefined ? undefined : join(dirname(output), sidecar.nameFor(basename(output)));
}

/** Looks before the work begins whether a file stands in the way. @throws ScalepointError `EXISTS` or `IO` */
export async function checkFree(path: string, overwrite: boolean): Promise<void> {
  // Whatever else is wrong shows when it is written.
  const status = await stat(path).catch(() => undefined);
  if (status === undefined) return;
  const label = JSON.stringify(path);
  if (!status.isFile()) throw new ScalepointError('IO', `cannot write ${label}: it is no regular file`);
  if (!overwrite) throw new ScalepointError('EXISTS', `${label} exists already`);
}

/** Writes a file beside a result that is there already. @throws ScalepointError that says so */
export async function write(
  path: string,
  { option, print }: PreparedSidecar,
  result: QuantizeModelResult,
  output: string,
  overwrite: boolean,
): Promise<void> {
  const value = (result as unknown as Readonly<Record<string, unknown>>)[option];
  try {
    await writeSidecar(path, print(value), overwrite);
  } catch (cause) {
    if (!(cause instanceof ScalepointError)) throw cause;
    const written = `the model was written to ${JSON.stringify(output)}`;
    throw new ScalepointError('IO', `${cause.message}; ${written}, but loaders need the configuration`, { cause });
  }
}

/** Files beside results, such as config.json, which loaders need to decode the integers of a model. */
import { lstat, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { type ModelPlan, type QuantizeModelResult, ScalepointError } from '../model.js';
import { formats, type Sidecar, writeSidecar } from '../tooling.js';
import type { SidecarOption } from './format-flags.js';
import type { Input } from './input.js';
import { about } from './process.js';
import { readText } from './side-file.js';

/** A file beside a result that may be written. */
export interface PreparedSidecar extends SidecarOption {
  /** Content of the given file. */
  readonly value: Readonly<Record<string, unknown>> | undefined;
  readonly print: (value: unknown) => string;
}

/** Path of a file of some name beside a model, or above the folder of models that has it. */
export function pathBeside(model: string, { inParentOf }: Sidecar, name: string): string {
  const folder = dirname(model);
  return join(folder, basename(resolve(folder)) === inParentOf ? '..' : '', name);
}

/** The content of a file; undefined if the file is missing. */
async function contentAt(path: string, sidecar: Sidecar) {
  if (!(await stat(path).catch(() => undefined))?.isFile()) return undefined;
  return about(path, async () => sidecar.parse(await readText(path)));
}

/**
 * Reads the files that were given, or are completed.
 * @param plan the target; with `requantize`, a file may name the method of weights that are decoded
 * @throws ScalepointError
 */
export async function readSidecars(
  options: readonly SidecarOption[],
  { to, requantize }: { readonly to: string; readonly requantize?: boolean | undefined },
  input: Input,
): Promise<readonly PreparedSidecar[]> {
  const prepared: PreparedSidecar[] = [];
  for (const option of options) {
    const { path, sidecar } = option;
    const read = async (file: string) => {
      const content = sidecar.parse(await readText(file));
      // Fails before any work if nothing can be added to it.
      if (requantize !== true) sidecar.merge(content.value, {});
      return content;
    };
    // A target may complete the file in the model's folder.
    const isCompleted = formats.some(({ targets }) =>
      targets.some(({ name, completes }) => name === to && completes?.includes(option.option)),
    );
    const beside = isCompleted && input.isPath ? join(dirname(input.name), sidecar.usualName) : undefined;
    const found = beside === undefined ? undefined : () => contentAt(beside, sidecar);
    const given = await (path === undefined ? found?.() : about(path, () => read(path)));
    prepared.push({ ...option, value: given?.value, print: given?.print ?? sidecar.print });
  }
  return prepared;
}

/** The entry of a plan for a file beside the result. */
function entryIn(plan: ModelPlan, { planned }: Sidecar) {
  return (plan as unknown as Readonly<Record<string, Readonly<Record<string, unknown>> | undefined>>)[planned];
}

/** Path of a file beside an output, if a plan has content for it. */
export function sidecarPath(output: string, { sidecar }: SidecarOption, plan: ModelPlan): string | undefined {
  return entryIn(plan, sidecar) === undefined
    ? undefined
    : pathBeside(output, sidecar, sidecar.nameFor(basename(output)));
}

/** Path of a file beside an output, with or without content from the plan; undefined if results of this format have no such file. */
export function sidecarPlace(output: string, { option, sidecar }: SidecarOption, plan: ModelPlan): string | undefined {
  const result = formats.find(({ name }) => name === plan.format);
  if (result === undefined || !Object.hasOwn(result.options.entries, option)) return undefined;
  return pathBeside(output, sidecar, sidecar.nameFor(basename(output)));
}

/** The change to a file beside a result. */
export interface SidecarPlace {
  readonly sidecar: PreparedSidecar;
  /** Its path; undefined if nothing is written. */
  readonly path: string | undefined;
  /**
   * New text of an existing file, without the entry of another result; null to remove a file that has nothing else. Set if this result has no
   * entry of its own.
   */
  readonly cleared?: string | null;
  /** Path of an existing file that stays, though it lacks the entry. */
  readonly left?: string;
  /** True if the same command has written the file for another result. */
  readonly isShared?: boolean;
}

/** Plans the change to a file of the model that a result completes, where there is its content. */
async function placeToComplete(
  path: string,
  sidecar: PreparedSidecar,
  plan: ModelPlan,
  input: Input,
  overwrite: boolean,
): Promise<SidecarPlace> {
  const { value: given, sidecar: kind } = sidecar;
  const there = await contentAt(path, kind);
  const { usualName } = kind;
  const inputs = input.isPath ? [join(dirname(input.name), usualName), pathBeside(input.name, kind, usualName)] : [];
  const [beside] = (await Promise.all(inputs.map((one) => contentAt(one, kind)))).filter((one) => one !== undefined);
  const found = given === undefined ? (there ?? beside) : sidecar;
  // A file that says so already stays. The file beside a URL is read by the conversion.
  const isTold = there !== undefined && kind.merge(there.value, entryIn(plan, kind) ?? {}) === there.value;
  if (isTold || (found?.value === undefined && input.isPath)) return { sidecar, path: undefined };
  if (there !== undefined && !overwrite) return { sidecar, path: undefined, left: path };
  await checkReplaceable(path, overwrite);
  return { sidecar: { ...sidecar, ...(found?.value && { value: found.value, print: found.print }) }, path };
}

/** Has results that complete one file add their entries to those of the ones before. */
export function joinCompleted(
  results: readonly { readonly planned: ModelPlan; readonly places: SidecarPlace[] }[],
): void {
  const before = new Map<string, Pick<PreparedSidecar, 'value' | 'print'>>();
  for (const { planned, places } of results) {
    for (const [i, { sidecar, path }] of places.entries()) {
      const { sidecar: kind } = sidecar;
      if (path === undefined || !kind.isCompleted || sidecar.value === undefined) continue;
      const { value, print } = before.get(resolve(path)) ?? sidecar;
      places[i] = { path, sidecar: { ...sidecar, value, print }, isShared: before.has(resolve(path)) };
      before.set(resolve(path), { value: kind.merge(value, entryIn(planned, kind) ?? {}), print });
    }
  }
}

/** Plans the change to a file beside an output, before the work begins. @throws ScalepointError `EXISTS` or `IO` */
export async function planSidecar(
  output: string,
  sidecar: PreparedSidecar,
  plan: ModelPlan,
  input: Input,
  overwrite: boolean,
): Promise<SidecarPlace> {
  const path = sidecarPlace(output, sidecar, plan);
  if (path === undefined) return { sidecar, path };
  const { value, sidecar: kind } = sidecar;
  const isWritten = sidecarPath(output, sidecar, plan) !== undefined;
  if (kind.isCompleted) {
    return isWritten ? placeToComplete(path, sidecar, plan, input, overwrite) : { sidecar, path: undefined };
  }
  if (isWritten || (value !== undefined && kind.without(value) !== undefined)) {
    await checkReplaceable(path, overwrite);
    return { sidecar, path };
  }
  // The text of an existing file without its entry. A pipe that nobody named is not read, and a file that cannot be parsed stays.
  let cleared: string | null | undefined;
  try {
    const content = await contentAt(path, kind);
    const rest = content && kind.without(content.value);
    cleared = rest && (kind.isWhole ? null : content.print(rest));
  } catch (error) {
    if (!(error instanceof ScalepointError)) throw error;
  }
  if (cleared === undefined) return { sidecar, path: undefined };
  if (!overwrite) {
    const what = `${JSON.stringify(path)} exists already, with the ${kind.entry} of another result`;
    throw new ScalepointError('EXISTS', what, { path });
  }
  return { sidecar, path, cleared };
}

/**
 * Plans the change to a file beside a copy. The configuration of a model is true of its copies, so a file in another folder stays unless its
 * entry cannot belong to this model. @throws ScalepointError `EXISTS` or `IO`
 */
export async function placeOfCopy(
  output: string,
  input: Input,
  sidecar: PreparedSidecar,
  plan: ModelPlan,
  overwrite: boolean,
): Promise<readonly SidecarPlace[]> {
  const isBeside = input.isPath && resolve(dirname(input.name)) === resolve(dirname(output));
  if (isBeside || sidecar.sidecar.fits(plan.tensors.map(({ from }) => from))) return [];
  const place = await planSidecar(output, sidecar, plan, input, overwrite);
  return place.cleared === undefined ? [] : [place];
}

/** Fails if a file is in the way, before the work begins. @throws ScalepointError `EXISTS` or `IO` */
export async function checkReplaceable(path: string, overwrite: boolean): Promise<void> {
  // Other problems are reported when the file is written.
  const status = (await stat(path).catch(() => undefined)) ?? (await lstat(path).catch(() => undefined));
  if (status === undefined) return;
  const label = JSON.stringify(path);
  // A link to a missing file.
  if (status.isSymbolicLink() && overwrite) return;
  if (!status.isFile()) throw new ScalepointError('IO', `cannot write ${label}: it is not a regular file`, { path });
  if (!overwrite) throw new ScalepointError('EXISTS', `${label} exists already`, { path });
}

/** Writes a file beside a finished result. @throws ScalepointError, with the path of the result in its message */
export async function writeSidecarFile(
  { path, sidecar: { option, print }, cleared, isShared = false }: SidecarPlace,
  result: QuantizeModelResult,
  output: string,
  overwrite: boolean,
): Promise<void> {
  if (path === undefined) return;
  if (cleared === null) return rm(path, { force: true });
  const value = (result as unknown as Readonly<Record<string, unknown>>)[option];
  try {
    await writeSidecar(path, cleared ?? print(value), overwrite || isShared);
  } catch (cause) {
    if (!(cause instanceof ScalepointError)) throw cause;
    const written = `the model was written to ${JSON.stringify(output)}`;
    throw new ScalepointError('IO', `${cause.message}; ${written}, but loaders need the configuration`, {
      cause,
      path,
    });
  }
}

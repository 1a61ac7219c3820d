/** `--push`: what `quantize` made goes to a repository of the hub. */
import { stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { type ModelPlan, modelFormats, type PushResult } from '../model.js';
import {
  alongOnHub,
  type CardResult,
  HubFile,
  mostAlong,
  namesAlong,
  onlyWith,
  onnxFolder,
  openPush,
  type PushFile,
  pathOnHub,
  type Words,
  without,
} from '../tooling.js';
import { type CommandFlags, quantizeFlags, type ValuesOf, writingFlags } from './flags.js';
import { formatFlags } from './format-flags.js';
import type { Input } from './input.js';
import { pathsOf, standardOutput } from './output.js';
import { progressLine, UsageError } from './process.js';
import { readText } from './side-file.js';
import type { SidecarPlace } from './sidecars.js';
import { countText, printable, shellWord } from './text.js';
import { wrongFlag } from './wording.js';

type Values = ValuesOf<typeof quantizeFlags>;

/** Checks the flags. @throws UsageError */
export function checkPushFlags({ push, output, part, ...values }: Values & { readonly part?: unknown }): void {
  const others = (['push-pr', 'public', 'private', 'measured'] as const).find((name) => values[name] !== undefined);
  if (push === undefined) {
    if (others !== undefined) throw wrongFlag(others, onlyWith('--push'));
    return;
  }
  if (output === standardOutput) throw wrongFlag('push', without('output', standardOutput));
  if (part !== undefined) throw wrongFlag('push', without('--part'));
  if (values.public && values.private) throw wrongFlag('public', without('--private'));
}

/** A result that is to be pushed. */
interface PushedResult {
  readonly request: { readonly input: Input };
  readonly planned: ModelPlan;
  readonly output: string;
  readonly places: readonly SidecarPlace[];
}

/** The command that makes a result again. Files are named without their folders, the model of the hub by its commit. */
function commandOf({ file, name, isPath, fileName }: Input, words: Words): string {
  const flags: CommandFlags = { ...quantizeFlags, ...formatFlags() };
  // The command on a card is without flags that say where a result goes and how the work is done.
  const isStated = (flag: string) =>
    !Object.hasOwn(writingFlags, flag) && flags[flag]?.isWritten !== true && flag !== 'browser';
  const given = Object.entries(words).flatMap(([flag, word]) =>
    !isStated(flag) || word === undefined ? [] : [word].flat().map((one) => [flag, one] as const),
  );
  const texts = given.flatMap(([flag, word]) => {
    if (typeof word === 'boolean') return [`--${flag}`];
    const isPath = flags[flag]?.value?.startsWith('FILE') && !/^(hf|https?):/i.test(word);
    return [`--${flag}`, shellWord(isPath ? basename(word) : word)];
  });
  const model = file instanceof HubFile ? file.address : isPath ? basename(name) : (fileName ?? 'FILE');
  return ['scalepoint', shellWord(model), ...texts].join(' ');
}

/** Files that programs need beside a model, from the folder or the repository of the input. */
async function filesAlong({ file, name, isPath }: Input): Promise<PushFile[]> {
  if (file instanceof HubFile) return alongOnHub(file, namesAlong);
  const found: PushFile[] = [];
  const folder = dirname(resolve(name));
  // A model for transformers.js has its settings in the folder above.
  const up = basename(folder) === onnxFolder ? '..' : '';
  for (const path of isPath ? namesAlong : []) {
    const place = join(folder, up, path);
    const status = await stat(place).catch(() => undefined);
    if (status?.isFile() && status.size < mostAlong) found.push({ path, content: pathToFileURL(place) });
  }
  return found;
}

/** The measures in the JSON of `scalepoint evaluate`. @throws UsageError */
async function measuredIn(path: string): Promise<Partial<CardResult>> {
  const numberOf = (value: unknown) => (value as { readonly value?: unknown } | undefined)?.value;
  let found: Record<string, unknown> = {};
  try {
    found = JSON.parse(await readText(path)) as Record<string, unknown>;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  const measures = Object.fromEntries(
    ['perplexity', 'referencePerplexity', 'kl'].flatMap((key) => {
      const value = numberOf(found[key]);
      return Number.isFinite(value) ? [[key, value]] : [];
    }),
  );
  if (Object.keys(measures).length > 0) return measures;
  throw new UsageError(`--measured: ${printable(path)} is not the output of scalepoint evaluate --json`);
}

/**
 * Checks that a push can work, before the work begins. Gives a function that pushes the results; undefined without --push.
 * @throws UsageError, ScalepointError
 */
export async function preparePush(
  { values, words }: { readonly values: Values; readonly words: Words },
  results: readonly PushedResult[],
  signal: AbortSignal,
): Promise<(() => Promise<PushResult>) | undefined> {
  const [first] = results;
  if (values.push === undefined || first === undefined) return undefined;
  const { input } = first.request;
  if (results.length > 1 && results.some(({ planned }) => planned.format === 'safetensors'))
    throw new UsageError('--push: programs look for one model in a folder of safetensors; push each type on its own');
  if (results.length > 1 && values.measured !== undefined)
    throw new UsageError('--measured goes with one type, got several');
  const measured = values.measured === undefined ? {} : await measuredIn(values.measured);

  // Name the files as programs look for them.
  const files: PushFile[] = [];
  const card: CardResult[] = [];
  const isAlone = results.every(({ planned }) => planned.format === 'gguf');
  const along = isAlone ? [] : await filesAlong(input);
  const isWhole = along.some(({ path }) => path === 'config.json');
  for (const { planned, output, places } of results) {
    const { format, to, totals } = planned;
    const named = (path: string) => pathOnHub(path, isWhole);
    const paths = pathsOf(output, planned);
    files.push(...paths.map((path) => ({ path: named(path), content: pathToFileURL(path) })));
    for (const { path, sidecar } of places)
      if (path !== undefined) files.push({ path: sidecar.sidecar.usualName, content: pathToFileURL(path) });
    const main = named(paths[0] as string);
    card.push({
      file: main,
      type: to,
      bytes: totals.bytesAfter,
      ...(values['min-output'] === undefined && { bitsPerWeight: totals.bitsPerWeight }),
      ...measured,
      command: commandOf(input, words),
      readers: modelFormats()
        .find(({ name }) => name === format)
        ?.readers?.(to, main),
    });
  }

  const progress = progressLine(values.quiet ?? false);
  const push = await openPush({
    repository: values.push,
    source: input.file instanceof HubFile ? input.file : undefined,
    visibility: values.public ? 'public' : values.private ? 'private' : undefined,
    card,
    overwrite: values.force,
    pullRequest: values['push-pr'],
    signal,
    onProgress: ({ path, bytesDone, bytesTotal }) => progress.update({ tensor: path, bytesDone, bytesTotal }),
  });
  return async () => {
    try {
      // Files of the result come before those of the source. Some results have no file beside them after all.
      const all = new Map([...along, ...files].map((file) => [file.path, file]));
      const there = await Promise.all(
        [...all.values()].map(async (file) =>
          file.content instanceof Blob || (await stat(file.content).catch(() => undefined)) ? [file] : [],
        ),
      );
      return await push(there.flat());
    } finally {
      progress.clear();
    }
  };
}

/** The result of a push in one or two sentences. */
export function pushText({ url, isPrivate, pullRequest, pushed, keptReadme }: PushResult): string[] {
  const place = `${url} (${isPrivate ? 'private' : 'public'})`;
  const what =
    pushed.length === 0
      ? `nothing to push: ${place} has these files`
      : `pushed ${countText(pushed.length, 'file')} to ${pullRequest ?? place}`;
  return [
    what,
    ...(keptReadme ? ['README.md there is of somebody else, and stays; --force writes the card in its place'] : []),
  ];
}

/** Makes several results of one model. */
import { rangeError, typeError } from '../core/errors.js';
import { exactly, mention, ofType } from '../core/option-problem.js';
import { isFolder, type ModelOutput } from '../formats/files/sinks.js';
import type { PlanChoices } from '../formats/options.js';
import { formats, type ModelTarget } from '../formats/registry.js';
import type { Opened } from './open.js';
import { planFor } from './plan.js';
import type { Progress } from './progress.js';
import type { Quantized, ResultOptions } from './quantize.js';
import { quantizeHolding } from './quantize-holding.js';
import { resultName } from './result-name.js';
import { hasSize, type SizeOptions, sizeNames } from './sizes.js';

/** Checks a list of targets. Returns it. */
export function checkTargets(targets: readonly unknown[], options: SizeOptions): readonly ModelTarget[] {
  if (targets.length === 0) throw rangeError('to', { kind: 'number', min: 1, unit: 'target' }, 0);
  for (const [i, to] of targets.entries()) {
    if (typeof to !== 'string') throw typeError(`to[${i}]`, ofType('string'), to);
    if (targets.indexOf(to) < i) throw rangeError(`to[${i}]`, { kind: 'distinct' }, to);
  }
  if (hasSize(options))
    throw rangeError('to', exactly(1, 'target'), targets.length, {
      kind: 'with',
      options: sizeNames.map((name) => mention(name)),
    });
  return targets as readonly ModelTarget[];
}

/** A path in a folder, or the folder itself if it is a handle, which makes files by name. */
function placeIn(folder: ModelOutput | undefined, name: string): ModelOutput | undefined {
  if (folder === undefined || isFolder(folder)) return folder;
  if (folder instanceof URL) return new URL(encodeURIComponent(name), folder.href.replace(/\/?$/, '/'));
  if (typeof folder === 'string') return /[\\/]$/.test(folder) ? folder + name : `${folder}/${name}`;
  throw rangeError('output', ofType('path of a folder', 'FileSystemDirectoryHandle'), folder);
}

/** True if a target knows an option of its format. */
function knows(to: string, option: string): boolean {
  return formats().some(({ targets, aliases }) => {
    const name = Object.hasOwn(aliases, to) ? (aliases as Readonly<Record<string, string>>)[to] : to;
    return targets.find((target) => target.name === name)?.options.includes(option) ?? false;
  });
}

/** The options of one of several targets, without those that only other targets know. */
function optionsFor<T extends object>(options: T, to: string, all: readonly string[]): T {
  const own = Object.entries(options).filter(
    ([option]) => knows(to, option) || !all.some((other) => knows(other, option)),
  );
  return Object.fromEntries(own) as T;
}

/** Makes a result for each target, each under its usual name. Errors that follow from the arguments are thrown before any work. */
export async function quantizeSeveral(
  opened: Opened,
  targets: readonly ModelTarget[],
  options: Omit<PlanChoices, 'to'> & ResultOptions,
): Promise<readonly Quantized[]> {
  const { onProgress } = options;
  const source = opened.model.files[0]?.name?.split(/[\\/]/).pop() || 'model';
  const wanted: { choices: PlanChoices & ResultOptions; name: string }[] = [];
  for (const to of targets) {
    const report = onProgress && ((progress: Progress) => onProgress({ ...progress, to }));
    const choices = { ...optionsFor(options, to, targets), to, ...(report && { onProgress: report }) };
    const { format, architecture } = await planFor(opened, choices);
    const name = resultName(source, { to, format, architecture });
    const output = placeIn(options.output, name);
    wanted.push({ choices: output === undefined ? choices : { ...choices, output }, name });
  }
  const results: Quantized[] = [];
  for (const { choices, name } of wanted) results.push(await quantizeHolding(opened, choices, choices, name));
  return results;
}

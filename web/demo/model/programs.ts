// Programs that read results of a model, and the types to recommend for each. What a program reads, the tables of targets say.
import type { ModelFormat } from 'scalepoint/model';
import { converters, type Preset, type Target } from '../../src/tooling.js';
import { formatBytes } from '../shared/format.js';
import { formatsOf, infoOf, type ModelFormats, offeredTargets } from './choice.js';
import type { OpenState } from './state.js';

/** A target of a format. */
export interface ProgramTarget extends Pick<Target, 'name' | 'preset' | 'about' | 'isUsual'> {
  readonly format: ModelFormat;
}

/**
 * Programs that read a result.
 * @param architecture of a converted model, or of a language model
 * @param mayBeLanguage false if one without an architecture is no language model
 */
export function readersIn(
  from: ModelFormat,
  format: ModelFormat,
  to: string,
  architecture: string | undefined,
  name: string,
  mayBeLanguage = true,
) {
  const conversion = converters().find((one) => [format, ...one.from].includes(from) && one.result === format);
  const special = architecture === undefined ? undefined : conversion?.readers?.(architecture, name);
  const own = architecture || (mayBeLanguage ? undefined : '');
  return special ?? infoOf(format).readers?.(to, name, own) ?? [];
}

/** False for what is known to be no language model. One with a config.json may be one that only other programs know. */
export const mayBeLanguage = ({ model, outputs }: Pick<OpenState, 'model' | 'outputs'>): boolean =>
  outputs === undefined || model.files.some(({ name }) => name === 'config.json');

/** The programs that read some result of a model, those that read the fewest types first. The arguments are those of `readersIn`. */
export function programsOf(
  model: ModelFormats,
  architecture: string | undefined,
  mayBeLanguage = true,
): ReadonlyMap<string, readonly ProgramTarget[]> {
  const found = new Map<string, ProgramTarget[]>();
  for (const format of formatsOf(model)) {
    // Programs of a format that only a conversion knows depend on the architecture, which may not be known yet.
    for (const target of offeredTargets(format)) {
      for (const { program } of readersIn(model.format, format, target.name, architecture ?? '', '', mayBeLanguage)) {
        const targets = found.get(program) ?? [];
        if (!targets.some(({ name }) => name === target.name)) targets.push({ ...target, format });
        found.set(program, targets);
      }
    }
  }
  return new Map([...found].sort(([, a], [, b]) => a.length - b.length));
}

/** The targets to choose from: presets and usual ones, or all if a format does not say which ones these are. */
export function usualAmong(targets: readonly ProgramTarget[]): readonly ProgramTarget[] {
  const usual = targets.filter(({ preset, isUsual }) => preset !== undefined || isUsual === true);
  return usual.length > 1 ? usual : targets;
}

/** A target whose result is planned. */
export interface PlannedTarget extends ProgramTarget {
  readonly bytesAfter: number;
  readonly bytesBefore: number;
  /** Number of tensors that it converts. */
  readonly converted: number;
}

/** A target to recommend, and the reason. */
export interface Recommendation extends PlannedTarget {
  readonly title: string;
  readonly reason: string;
}

/** Share of the memory that the weights may take. The rest is for texts or pictures, and for the system. */
const mostShare = 0.75;

/** Size of a result that is worth a recommendation, as a share of the original's. */
const mostSize = 0.99;

/** The target of a preset, or the one in that place of the list. */
const placed = (targets: readonly PlannedTarget[], preset: Preset, at: number) =>
  targets.find((target) => target.preset === preset) ?? targets[Math.floor(at * (targets.length - 1))];

/**
 * Two or three targets with a reason each, the smallest first, as presets are: the smallest, the balanced and the largest one that fits.
 * @param memory bytes of the device; undefined if nothing is known about it
 */
export function recommend(planned: readonly PlannedTarget[], memory: number | undefined): readonly Recommendation[] {
  const all = planned
    .filter(({ converted, bytesAfter, bytesBefore }) => converted > 0 && bytesAfter < mostSize * bytesBefore)
    .sort((a, b) => a.bytesAfter - b.bytesAfter);
  const fits = ({ bytesAfter }: PlannedTarget) => memory === undefined || bytesAfter <= mostShare * memory;
  const fitting = all.filter(fits);
  const [smallest] = all;
  if (smallest === undefined) return [];
  if (memory !== undefined && fitting.length === 0) {
    const reason = `Does not leave a quarter of ${formatBytes(memory)} free. No usual type is smaller.`;
    return [{ ...smallest, title: 'Smallest', reason }];
  }
  const found: Recommendation[] = [];
  const add = (target: PlannedTarget | undefined, title: string, reason: string) => {
    if (target === undefined || !fits(target) || found.some(({ bytesAfter }) => bytesAfter === target.bytesAfter))
      return;
    found.push({ ...target, title, reason });
  };
  add(placed(all, 'balanced', 0.5), 'Balanced', 'The usual balance of size and closeness.');
  const largest = fitting.at(-1);
  if (memory === undefined) add(largest, 'Largest', 'The closest to the original among the usual types.');
  else
    add(
      largest,
      'Largest that fits',
      `The closest to the original that leaves a quarter of ${formatBytes(memory)} free.`,
    );
  add(placed(all, 'small', 0), 'Small', 'Farther from the original: compare its outputs before you use it.');
  return found.sort((a, b) => a.bytesAfter - b.bytesAfter);
}

/** Lists of the formats and their targets, names of the files of a result, and presets. */
import { rangeError, typeError } from '../core/errors.js';
import { ofType, oneOf } from '../core/option-problem.js';
import type { Target } from '../formats/format.js';
import { formats, type ModelFormat, type ModelTarget, type ResultFormat } from '../formats/registry.js';
import { nameBeside } from '../formats/shards.js';
import { type PlannedFile, usualOutput } from './plan.js';

/** A format that can be read, and the targets of its files. */
export interface ModelFormatInfo {
  /** Its name in reports. */
  readonly name: ModelFormat;
  /** Its name in texts. */
  readonly label: string;
  /** Extensions of its files, the usual one first. `inspectModel` recognizes files by their content. */
  readonly extensions: readonly string[];
  /** The format of the results. */
  readonly result: ResultFormat;
  /** Description of the results, in a sentence or two. */
  readonly about: string;
  /** Targets for its files: the values of `to`. */
  readonly targets: readonly {
    /** The value of `to`. */
    readonly name: string;
    /** Description of the target, in a few words. */
    readonly about?: string | undefined;
    /** The preset with this target. */
    readonly preset?: 'small' | 'balanced' | 'safe' | undefined;
  }[];
  /**
   * Programs that read a result, the usual one first.
   * @param to the target
   * @param file the name of the result
   * @param architecture of the model, as GGUF calls it; empty if it is no language model; undefined if that is not known
   */
  readers?(
    to: string,
    file: string,
    architecture?: string,
  ): readonly {
    /** The name of the program. */
    readonly program: string;
    /** A command, or a line or two of code, that loads the file. */
    readonly code: string;
    /** Further requirements of the program, in a sentence. */
    readonly needs?: string | undefined;
    /** The code for a file on the hub, in the repository OWNER/NAME; by default `code`, with the repository in place of FOLDER. */
    readonly fromHub?: string | undefined;
  }[];
}

/**
 * Lists the formats that can be read, with the targets of their files.
 * @example for (const { label, targets } of modelFormats()) console.log(label, targets.map(({ name }) => name));
 */
export function modelFormats(): readonly ModelFormatInfo[] {
  return formats as readonly unknown[] as readonly ModelFormatInfo[];
}

/**
 * The names of a result's files, without their folder.
 * @param output the name of the result: `model.gguf` may become `model-00001-of-00003.gguf` and two more
 * @param plan a plan, or a result
 * @throws TypeError, or RangeError for an unknown format
 */
export function resultFiles(
  output: string,
  plan: { readonly files: readonly PlannedFile[]; readonly format: string },
): string[] {
  if (typeof output !== 'string') throw typeError('output', ofType('path'), output);
  if (!Array.isArray((plan as Partial<typeof plan> | undefined)?.files)) {
    throw typeError('plan', { kind: 'returnedBy', call: 'planModel or quantizeModel' }, plan);
  }
  const { files, format } = plan;
  const known = formats.map(({ name }) => name);
  if (!known.includes(format)) throw rangeError('plan.format', oneOf(known), format);
  const usual = usualOutput(format);
  const extension = usual.slice('model'.length);
  const stem =
    extension !== '' && output.toLowerCase().endsWith(extension) ? output.slice(0, -extension.length) : output;
  return files.map(({ name }) =>
    !name.startsWith('model')
      ? nameBeside(output, name)
      : name.startsWith(usual)
        ? output + name.slice(usual.length)
        : stem + name.slice('model'.length),
  );
}

/** Presets: the smallest file, the usual one, and the one that is closest to the original. */
export const presets = ['small', 'balanced', 'safe'] as const satisfies readonly Target['preset'][];
/** A choice between size and quality; see `presetTarget`. */
export type Preset = (typeof presets)[number];

/**
 * The target of a preset for models of a format: the smallest file, the usual one, or the one that is closest to the original.
 * @example await quantizeModel(file, { to: presetTarget((await inspectModel(file)).format, 'balanced') });
 * @throws RangeError for an unknown format or preset
 */
export function presetTarget(format: ModelFormat, preset: 'small' | 'balanced' | 'safe'): ModelTarget {
  const known = formats.find(({ name }) => name === format);
  if (known === undefined) {
    const names = formats.map(({ name }) => name);
    throw rangeError('format', oneOf(names), format);
  }
  if (!presets.includes(preset)) throw rangeError('preset', oneOf(presets), preset);
  const { targets } = known;
  return (targets.find((target) => target.preset === preset) ?? targets[0])?.name as ModelTarget;
}

/** Formats, what results are called, and what is offered to those who do not want to choose. */
import type { ConverterInfo } from '../conversions/converter.js';
import { converters } from '../conversions/registry.js';
import { rangeError } from '../core/errors.js';
import { oneOf } from '../core/option-problem.js';
import type { FormatInfo, Target } from '../formats/format.js';
import { formatNamed, formats, type ModelFormat, type ModelTarget } from '../formats/registry.js';
import { type PlannedFile, usualOutput } from './plan.js';

/**
 * The formats that can be read, with what their files can become and the options that decide about it.
 * @example for (const { label, targets } of modelFormats()) console.log(label, targets.map(({ name }) => name));
 */
export function modelFormats(): readonly FormatInfo[] {
  return formats();
}

/**
 * The conversions to other formats. A model that `inspectModel` tells a `conversion` of can have the targets of that format, too.
 * @example for (const { from, result, about } of modelConversions()) console.log(from, result, about);
 */
export function modelConversions(): readonly ConverterInfo[] {
  return converters();
}

/**
 * The usual name of a result: `model.safetensors` as int8 becomes `model.int8.safetensors`. Copies are called like the whole model, without
 * the number of a file.
 */
export function resultName(name: string, { to, format }: { readonly to: string; readonly format: string }): string {
  const ends = formats()
    .flatMap(({ extensions }) => extensions)
    .sort((a, b) => b.length - a.length);
  const end = ends.find((extension) => name.toLowerCase().endsWith(extension)) ?? '';
  const { resultEnd, extensions } = formatNamed(format);
  const stem = name.slice(0, name.length - end.length).replace(/-\d{5,}-of-\d{5,}$/, '');
  return stem + (to === 'copy' ? extensions[0] : (resultEnd?.(to) ?? `.${to}${extensions[0]}`));
}

/**
 * The names of a result's files, without their folder.
 * @param output the name of the result: `model.gguf` may become `model-00001-of-00003.gguf` and two more
 */
export function resultFiles(
  output: string,
  { files, format }: { readonly files: readonly PlannedFile[]; readonly format: string },
): string[] {
  const usual = usualOutput(format);
  const extension = usual.slice('model'.length);
  const stem = output.toLowerCase().endsWith(extension) ? output.slice(0, -extension.length) : output;
  return files.map(({ name }) =>
    name.startsWith(usual) ? output + name.slice(usual.length) : stem + name.slice('model'.length),
  );
}

/** Choices for those who do not want to choose a type: the smallest file, the usual one, the one that is closest to the original. */
export const presets = ['small', 'balanced', 'safe'] as const satisfies readonly Target['preset'][];
/** A name of a choice between size and quality; see `presetTarget`. */
export type Preset = (typeof presets)[number];

/**
 * What models of a format become by a preset.
 * @example await quantizeModel(file, { to: presetTarget((await inspectModel(file)).format, 'balanced') });
 * @throws RangeError if there is no such format or preset
 */
export function presetTarget(format: ModelFormat, preset: Preset): ModelTarget {
  const known = formats().find(({ name }) => name === format);
  if (known === undefined) {
    const names = formats().map(({ name }) => name);
    throw rangeError('format', oneOf(names), format);
  }
  if (!presets.includes(preset)) throw rangeError('preset', oneOf(presets), preset);
  const { targets } = known;
  return (targets.find((target) => target.preset === preset) ?? targets[0])?.name as ModelTarget;
}

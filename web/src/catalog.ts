/** What there is to choose from: formats, their targets, conversions between them. */
import type { ConverterInfo } from './conversions/converter.js';
import { converters } from './conversions/registry.js';
import { rangeError } from './core/errors.js';
import { show } from './core/show.js';
import type { FormatInfo, Target } from './formats/format.js';
import { formatNamed, formats, type ModelFormat, type ModelTarget } from './formats/registry.js';

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

/** The usual name of a result: `model.safetensors` as int8 becomes `model.int8.safetensors`. */
export function resultName(name: string, { to, format }: { readonly to: string; readonly format: string }): string {
  const ends = formats()
    .flatMap(({ extensions }) => extensions)
    .sort((a, b) => b.length - a.length);
  const end = ends.find((extension) => name.toLowerCase().endsWith(extension)) ?? '';
  const { resultEnd, extensions } = formatNamed(format);
  return name.slice(0, name.length - end.length) + (resultEnd?.(to) ?? `.${to}${extensions[0]}`);
}

/** Choices for those who do not want to choose a type: the smallest file, the usual one, the one that is closest to the original. */
export const presets = ['small', 'balanced', 'safe'] as const satisfies readonly Target['preset'][];
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
    throw rangeError('format', `expected ${names.join(', ')}, got ${show(format)}`);
  }
  if (!presets.includes(preset)) throw rangeError('preset', `expected ${presets.join(', ')}, got ${show(preset)}`);
  const { targets } = known;
  return (targets.find((target) => target.preset === preset) ?? targets[0])?.name as ModelTarget;
}

/** Who makes results of models: their format, or a conversion to another one. */
import type { Converted, Converter } from '../conversions/converter.js';
import { convertersFrom } from '../conversions/registry.js';
import type { Format } from '../formats/format.js';
import type { OptionTable } from '../formats/options.js';
import { formatNamed } from '../formats/registry.js';
import type { Opened } from './open.js';

/** Who makes a result. */
export interface Maker {
  /** The format that knows the target, and whose options decide. */
  readonly format: Format;
  /** If models of another format are converted to it. */
  readonly converter?: Converter;
}

/** Whether a format knows a target. */
export function accepts({ targets, aliases }: Format, to: unknown): boolean {
  return targets.some(({ name }) => name === to) || (typeof to === 'string' && Object.hasOwn(aliases, to));
}

/** All who make results of models of a format. */
export function makersFor(format: Format): readonly Maker[] {
  const converters = convertersFrom(format.name);
  return [{ format }, ...converters.map((converter) => ({ format: formatNamed(converter.result), converter }))];
}

/** Who makes this of models of a format. Undefined if nobody does. */
export function makerOf(format: Format, to: unknown): Maker | undefined {
  return makersFor(format).find((maker) => accepts(maker.format, to));
}

const converted = new WeakMap<Opened, Map<Converter, Promise<Converted | undefined>>>();

/** Converts an open model, once for all plans of it. Undefined if it is none that is converted. */
export function convertedBy(converter: Converter, opened: Opened): Promise<Converted | undefined> {
  const found = converted.get(opened) ?? new Map<Converter, Promise<Converted | undefined>>();
  converted.set(opened, found);
  const result = found.get(converter) ?? converter.convert(opened.model, opened.beside);
  found.set(converter, result);
  return result;
}

/** The options of whoever makes this of models of a format. */
export function entriesFor(format: Format, to: unknown): OptionTable['entries'] {
  return makerOf(format, to)?.format.options.entries ?? {};
}

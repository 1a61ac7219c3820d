/** Who makes results of models: their format, or a conversion to another one. */
import type { Converter } from '../conversions/converter.js';
import { convertersFrom } from '../conversions/registry.js';
import type { Format } from '../formats/format.js';
import type { OptionTable } from '../formats/options.js';
import { formatNamed } from '../formats/registry.js';

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

/** The options of whoever makes this of models of a format. */
export function entriesFor(format: Format, to: unknown): OptionTable['entries'] {
  return makerOf(format, to)?.format.options.entries ?? {};
}

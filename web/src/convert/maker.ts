/** Finds the format or the conversion that makes a result of a model. */
import type { Converter } from '../architectures/converter.js';
import { convertersFrom } from '../architectures/registry.js';
import type { Format } from '../formats/format.js';
import type { OptionTable } from '../formats/options.js';
import { formatNamed } from '../formats/registry.js';

/** The format, and perhaps the conversion, that makes a result. */
export interface Maker {
  /** The format that knows the target, and whose options decide. */
  readonly format: Format;
  /** The conversion, if the model is of another format. */
  readonly converter?: Converter;
}

/** Checks that a format has a target of that name. */
export function accepts({ targets, aliases }: Format, to: unknown): boolean {
  return targets.some(({ name }) => name === to) || (typeof to === 'string' && Object.hasOwn(aliases, to));
}

/** Lists the makers for models of a format. */
export function makersFor(format: Format): readonly Maker[] {
  const converters = convertersFrom(format.name);
  return [{ format }, ...converters.map((converter) => ({ format: formatNamed(converter.result), converter }))];
}

/** Finds the maker of a target for models of a format. Undefined if the target is impossible. */
export function makerOf(format: Format, to: unknown): Maker | undefined {
  return makersFor(format).find((maker) => accepts(maker.format, to));
}

/** Returns the options that decide about a target for models of a format. */
export function entriesFor(format: Format, to: unknown): OptionTable['entries'] {
  return makerOf(format, to)?.format.options.entries ?? {};
}

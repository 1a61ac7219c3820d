/** The conversions between formats. Adding one is one line here. */
import type { Converter } from './converter.js';
import { toGguf } from './to-gguf.js';

const all: readonly Converter[] = [toGguf];

/** Every conversion. */
export function converters(): readonly Converter[] {
  return all;
}

/** What models of a format can be converted to. */
export function convertersFrom(format: string): readonly Converter[] {
  return all.filter(({ from }) => from === format);
}

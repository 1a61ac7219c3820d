/** The conversions between formats. Adding one is one line here. */
import type { Converter } from './converter.js';
import type { DiffusionReason } from './diffusion/reasons.js';
import { toGguf } from './to-gguf.js';

/** A reason to keep a tensor that only conversions have. */
export type ConversionReason = DiffusionReason;

const all: readonly Converter[] = [toGguf];

/** Every conversion. */
export function converters(): readonly Converter[] {
  return all;
}

/** What models of a format can be converted to. */
export function convertersFrom(format: string): readonly Converter[] {
  return all.filter(({ from }) => from === format);
}

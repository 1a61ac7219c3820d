/** The conversions between formats. To add one, add a line here. */
import type { KnownModels } from '../formats/known-models.js';
import type { Converter } from './converter.js';
import type { DiffusionReason } from './diffusion/detect.js';
import { fromGguf } from './from-gguf.js';
import { toGguf } from './to-gguf.js';
import { toMlc } from './to-mlc.js';
import { toOnnx } from './to-onnx.js';

export { isFileBeside } from './huggingface/files.js';

/** Loads the facts that architectures state for layouts of other formats. */
export const loadKnownModels = async (): Promise<KnownModels> => (await import('./families/index.js')).knownModels;

/** A reason to keep a tensor that only conversions have. */
export type ConversionReason = DiffusionReason;

const all: readonly Converter[] = [toGguf, toMlc, toOnnx, fromGguf];

/** Every conversion. */
export function converters(): readonly Converter[] {
  return all;
}

/** Conversions of models of a format. */
export function convertersFrom(format: string): readonly Converter[] {
  return all.filter(({ from }) => from.includes(format));
}

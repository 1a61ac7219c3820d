/** The formats. A new one is added to the list here, and its signature to the list in signatures.ts. */
import type { Format, OpenModel } from './format.js';
import { gguf } from './gguf/gguf.js';
import type { GgufReason } from './gguf/reasons.js';
import { mlc } from './mlc/mlc.js';
import { npy } from './npy/npy.js';
import { transformersFolder } from './onnx/folder.js';
import { onnx } from './onnx/onnx.js';
import type { OnnxReason } from './onnx/reasons.js';
import { pytorch } from './pytorch/pytorch.js';
import type { SafetensorsReason } from './safetensors/reasons.js';
import { safetensors } from './safetensors/safetensors.js';
import { registerSignature } from './signatures.js';

/** A reason to keep a tensor that only one format has. */
export type FormatReason = SafetensorsReason | GgufReason | OnnxReason;

const builtIn = [safetensors, gguf, onnx, npy, pytorch, mlc, transformersFolder] as const;

type BuiltIn = (typeof builtIn)[number];

/** All of the types in a union at once. */
type Intersection<Union> = (Union extends unknown ? (of: Union) => void : never) extends (of: infer All) => void
  ? All
  : never;

/** A file format that can be read. */
export type ModelFormat = BuiltIn['name'];

/** The format of a result. */
export type ResultFormat = BuiltIn['result'];

type TargetOf<F> = F extends Format<infer _N, infer T, infer _R, infer _O, infer _S, infer _M> ? T : never;
type OptionsOf<F> = F extends Format<infer _N, infer _T, infer _R, infer O, infer _S, infer _M> ? O : never;
type SidecarsOf<F> = F extends Format<infer _N, infer _T, infer _R, infer _O, infer S, infer _M> ? S : never;

/** Targets of weights: integers, float8 or 16-bit floats in safetensors, a file type of llama-quantize in GGUF. */
export type ModelTarget = TargetOf<BuiltIn>;

/** The options of all formats that decide about results. */
export interface FormatOptions extends Intersection<OptionsOf<BuiltIn>> {}

/** The options of all formats about files beside results. */
export interface FormatSidecars extends Intersection<SidecarsOf<BuiltIn>> {}

const all: Format[] = [...(builtIn as readonly unknown[] as readonly Format[])];

/** Every format, in the order in which texts name them. */
export const formats: readonly Format[] = all;

/** The format of that name. */
export function formatNamed(name: string): Format {
  const format = all.find((known) => known.name === name);
  if (format === undefined) throw new Error(`unknown format ${name}`);
  return format;
}

/** Adds a format. Returns a function that removes it. */
export function registerFormat<Options extends object, Model extends OpenModel>(
  format: Format<string, string, string, Options, object, Model>,
): () => void {
  const known = format as unknown as Format;
  all.push(known);
  const forgetSignature = registerSignature(known);
  return () => {
    all.splice(all.indexOf(known), 1);
    forgetSignature();
  };
}

/** Describes models, and reads single tensors. */

import { convertersFrom } from '../architectures/registry.js';
import { ScalepointError } from '../core/errors.js';
import type { Codes, Part } from '../formats/codecs/codec.js';
import { codecOf, float32Form, partsOf } from '../formats/codecs/registry.js';
import { quoted } from '../formats/files/bytes.js';
import { memorySink } from '../formats/files/sinks.js';
import type { FilePlan, MetadataValue } from '../formats/format.js';
import type { ModelFormat, ResultFormat } from '../formats/registry.js';
import type { Opened } from './open.js';
import { type WorkOptions, withRunner } from './start.js';
import { readTensorBytes, tensorNamed } from './stored-tensor.js';
import { convertedElements, writePlan } from './writing.js';

/** A tensor in a model. */
export interface ModelTensor {
  /** Its name in the file. */
  readonly name: string;
  /** As the format spells it: `F32`, `BF16`, `I64`, `Q4_K`. */
  readonly dtype: string;
  /** Row-major: the last dimension runs fastest. Empty for a scalar. */
  readonly shape: readonly number[];
  /** Size in bytes. */
  readonly bytes: number;
  /** Offset of its first byte from the start of its file. */
  readonly byteOffset: number;
  /** Index of its file in a sharded model, from 0. */
  readonly file: number;
}

/** The contents of a model. */
export interface ModelInfo {
  /** The format of the file. */
  readonly format: ModelFormat;
  /** Size of its files in bytes. */
  readonly bytes: number;
  /** Names of its files; an empty string for a file without a name. */
  readonly files: readonly string[];
  /** In the order of their bytes. A .npy file has one, named after the file. */
  readonly tensors: readonly ModelTensor[];
  /**
   * The strings of safetensors' `__metadata__`, or the key-value pairs of a GGUF file, whose long arrays are shown by their length and
   * first elements. Without a prototype, as `__proto__` may be a key.
   */
  readonly metadata: Readonly<Record<string, MetadataValue>>;
  /** Set if the model can be converted to another format. The targets of that format are then valid, too. */
  readonly conversion?:
    | {
        /** Format of the results. */
        readonly format: ResultFormat;
        /** The architecture, as that format calls it. */
        readonly architecture: string;
      }
    | undefined;
}

/**
 * The conversion to another format that a model seems to allow. Ignores errors of files beside the model, so that `inspectModel` does not
 * fail, and asks no server for such files.
 */
async function conversionOf({ format, model, beside }: Opened): Promise<Pick<ModelInfo, 'conversion'>> {
  const file = (name: string) => (beside.isRemote ? Promise.resolve(undefined) : beside.file(name));
  for (const converter of convertersFrom(format.name)) {
    const architecture = await converter.detect(model, { ...beside, file }).catch((error: unknown) => {
      if (error instanceof ScalepointError || error instanceof TypeError) return undefined;
      throw error;
    });
    if (architecture !== undefined) return { conversion: { format: converter.result as ResultFormat, architecture } };
  }
  return {};
}

/** Describes an open model. */
export async function describeModel(opened: Opened): Promise<ModelInfo> {
  const { format, model } = opened;
  const { bytes, files, tensors, metadata } = model;
  return {
    format: format.name as ModelFormat,
    bytes,
    files: files.map(({ name }) => name ?? ''),
    tensors: tensors.map(({ name, dtype, shape, bytes: size, byteOffset, file }) => {
      return { name, dtype, shape, bytes: size, byteOffset, file };
    }),
    metadata,
    ...(await conversionOf(opened)),
  };
}

/** A tensor as floats. */
export interface FloatTensor {
  /** Its name in the file. */
  readonly name: string;
  /** Its product is the number of elements. */
  readonly shape: readonly number[];
  /** Its values. */
  readonly data: Float32Array<ArrayBuffer>;
}

/** Reads one tensor as floats. Codes are decoded with their scales. @throws ScalepointError `NOT_FOUND`, `UNSUPPORTED_DTYPE` */
export async function readAsFloats(
  { format, model }: Opened,
  name: string,
  options: WorkOptions,
): Promise<FloatTensor> {
  const source = tensorNamed(await format.tensors(model), name);
  if (codecOf(source.form).decode === undefined) {
    const message = `tensor ${quoted(name)}: ${source.type} is not a readable float type`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: name });
  }
  const [part] = partsOf(source.shape, float32Form) as readonly [Part];
  const plan: FilePlan = {
    format: format.name,
    files: [{ suffix: '', size: part.bytes, segments: [{ at: 0, tensor: 0, role: part.role }] }],
    tensors: [{ source, form: float32Form, parts: [part] }],
    notes: [],
    sidecars: [],
  };
  const sink = memorySink(part.bytes);
  const { signal, onProgress } = options;
  const { files } = model;
  await withRunner(convertedElements(plan), { sources: files, sinks: [sink] }, options, (runner) =>
    writePlan({ plan, files, sinks: [sink], runner, signal, onProgress }),
  );
  await sink.finish();
  const bytes = await sink.bytes();
  const own = bytes.byteLength === bytes.buffer.byteLength ? bytes : bytes.slice();
  return { name, shape: source.shape, data: new Float32Array(own.buffer) };
}

/** Reads the codes of one tensor. @throws ScalepointError `NOT_FOUND`, `UNSUPPORTED_DTYPE` */
export async function readCodes({ format, model }: Opened, name: string): Promise<Codes> {
  const { shape, form, parts, type } = tensorNamed(await format.tensors(model), name);
  const codec = codecOf(form);
  const fail = (): never => {
    const message = `tensor ${quoted(name)}: ${type} has no integer codes and no blocks`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: name });
  };
  if (codec.codes === undefined) return fail();
  const bytes: Record<string, Uint8Array<ArrayBuffer>> = {};
  for (const { role, tensor } of parts) bytes[role] = await readTensorBytes(model, tensor);
  return codec.codes(shape, form, bytes) ?? fail();
}

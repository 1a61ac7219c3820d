// llama.cpp's own llama_model_quantize and ggml's table of types, from its shared libraries (Node only).
import { closeSync, openSync, readdirSync, readSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ggufTargets } from '../../../web/src/formats/gguf/targets.js';
import { keepLog, native, nativeFolder, once, ownName, takeLog } from './native.js';

const library = once(() => {
  const { koffi, folder } = native();
  const ggml = koffi.load(join(folder, 'libggml-base.so'));
  const llama = koffi.load(join(folder, 'libllama.v0.5.0.so'));
  const Override = koffi.struct(ownName('override'), { pattern: 'const char *', type: 'int' });
  const Importance = koffi.struct(ownName('importance'), {
    name: 'const char *',
    data: koffi.pointer('float'),
    size: 'size_t',
  });
  const Parameters = koffi.struct(ownName('parameters'), {
    nthread: 'int32',
    ftype: 'int',
    output_tensor_type: 'int',
    token_embedding_type: 'int',
    allow_requantize: 'bool',
    quantize_output_tensor: 'bool',
    only_copy: 'bool',
    pure: 'bool',
    keep_split: 'bool',
    dry_run: 'bool',
    imatrix: koffi.pointer(Importance),
    kv_overrides: 'void *',
    tt_overrides: koffi.pointer(Override),
    prune_layers: koffi.pointer('int32'),
    max_buffer_size: 'size_t',
  });
  keepLog(llama);
  return {
    defaults: llama.func('llama_model_quantize_default_params', Parameters, []) as () => Record<string, unknown>,
    quantize: llama.func('llama_model_quantize', 'uint32', ['str', 'str', koffi.pointer(Parameters)]) as (
      input: string,
      output: string,
      parameters: Record<string, unknown>,
    ) => number,
    typeName: ggml.func('ggml_type_name', 'str', ['int']) as (type: number) => string | null,
    blockSize: ggml.func('ggml_blck_size', 'int64', ['int']) as (type: number) => number | bigint,
    typeSize: ggml.func('ggml_type_size', 'size_t', ['int']) as (type: number) => number | bigint,
  };
});

/** The file types with their numbers (llama_ftype in llama.h). */
export const fileTypes: Readonly<Record<string, number>> = {
  F32: 0,
  F16: 1,
  Q4_0: 2,
  Q4_1: 3,
  Q8_0: 7,
  Q5_0: 8,
  Q5_1: 9,
  Q2_K: 10,
  Q2_K_S: 21,
  Q3_K_S: 11,
  Q3_K_M: 12,
  Q3_K_L: 13,
  Q4_K_S: 14,
  Q4_K_M: 15,
  Q5_K_S: 16,
  Q5_K_M: 17,
  Q6_K: 18,
  IQ4_NL: 25,
  IQ4_XS: 30,
  IQ1_S: 24,
  IQ1_M: 31,
  IQ2_XXS: 19,
  IQ2_XS: 20,
  IQ2_S: 28,
  IQ2_M: 29,
  IQ3_XXS: 23,
  IQ3_XS: 22,
  IQ3_S: 26,
  IQ3_M: 27,
  TQ1_0: 36,
  TQ2_0: 37,
  MXFP4_MOE: 38,
  Q1_0: 40,
  Q2_0: 41,
  BF16: 32,
};

/** The targets that llama-quantize has, too. */
export const nativeTargets = ggufTargets.filter((to) => Object.hasOwn(fileTypes, to));

export interface NativeOptions {
  pure?: boolean;
  requantize?: boolean;
  /** True if output.weight stays as it is. */
  leaveOutput?: boolean;
  /** Layers that are left out, in rising order. */
  prune?: readonly number[];
  /** An importance matrix: by the names of weights what the errors of each column count. */
  importance?: ReadonlyMap<string, Float32Array>;
  /** Values of --override-kv: whole numbers as bigint. */
  metadata?: readonly (readonly [key: string, value: string | boolean | number | bigint])[];
  /** The other files of a split model whose first one is given. */
  splits?: readonly Uint8Array[];
  /** True if the result is in as many files as the input. They are given one after the other, with their numbers. */
  keepSplit?: boolean;
  /** Patterns (std::regex) with the number of a type each, as in --tensor-type. */
  overrides?: readonly (readonly [pattern: string, type: number])[];
}

/** The values of --override-kv as llama.cpp takes them: structs of 264 bytes, ended by one without a key. */
function overrideBytes(metadata: NonNullable<NativeOptions['metadata']>): Uint8Array {
  const bytes = new Uint8Array(264 * (metadata.length + 1));
  for (const [i, [key, value]] of metadata.entries()) {
    const view = new DataView(bytes.buffer, 264 * i, 264);
    const put = (text: string, at: number) => new TextEncoder().encodeInto(text, bytes.subarray(264 * i + at));
    put(key, 4);
    // In the order of llama_model_kv_override_type: int, float, bool, str.
    const type = ['bigint', 'number', 'boolean', 'string'].indexOf(typeof value);
    view.setInt32(0, type, true);
    if (typeof value === 'bigint') view.setBigInt64(136, value, true);
    else if (typeof value === 'number') view.setFloat64(136, value, true);
    else if (typeof value === 'boolean') view.setUint8(136, value ? 1 : 0);
    else put(value, 136);
  }
  return bytes;
}

/** The model in the folder: its first file, and the bytes of all. */
let written: { readonly folder: string; readonly input: string; readonly files: readonly Uint8Array[] } | undefined;

/** Writes the files of a model, unless they are there, as for a model that is quantized to several types. Gives the path of the first one. */
function inputOf(files: readonly Uint8Array[]): string {
  const folder = nativeFolder();
  const old = written?.folder === folder ? written : undefined;
  if (old?.files.length === files.length && files.every((file, i) => Buffer.compare(file, old.files[i]!) === 0))
    return old.input;
  written = undefined;
  for (const name of readdirSync(folder)) unlinkSync(join(folder, name));
  const digits = (n: number) => String(n).padStart(5, '0');
  const paths = files.map((_, i) => {
    const end = files.length === 1 ? '' : `-${digits(i + 1)}-of-${digits(files.length)}`;
    return join(folder, `in${end}.gguf`);
  });
  for (const [i, path] of paths.entries()) writeFileSync(path, files[i]!);
  written = { folder, input: paths[0]!, files: files.map((file) => new Uint8Array(file)) };
  return written.input;
}

const outputsIn = (folder: string) =>
  readdirSync(folder)
    .filter((name) => name.startsWith('out'))
    .map((name) => join(folder, name));

/** The bytes of files, one after the other. */
function joined(paths: readonly string[]): Uint8Array<ArrayBuffer> {
  const sizes = paths.map((path) => statSync(path).size);
  const all = new Uint8Array(sizes.reduce((a, b) => a + b, 0));
  let at = 0;
  for (const [i, path] of paths.entries()) {
    const file = openSync(path, 'r');
    const end = at + sizes[i]!;
    while (at < end) at += readSync(file, all, at, end - at, null);
    closeSync(file);
  }
  return all;
}

/** Quantizes a file with llama.cpp. `fileType` is a number of llama_ftype. Returns the new file, or the error message. */
export function llamaQuantize(
  file: Uint8Array,
  fileType: number,
  {
    pure = false,
    requantize = false,
    overrides = [],
    metadata = [],
    splits = [],
    importance,
    leaveOutput = false,
    prune = [],
    keepSplit = false,
  }: NativeOptions = {},
): Uint8Array<ArrayBuffer> | string {
  const { defaults, quantize } = library();
  const input = inputOf([file, ...splits]);
  const work = nativeFolder();
  const output = join(work, 'out.gguf');
  try {
    takeLog(4);
    const parameters = {
      ...defaults(),
      // koffi calls the log callback on this thread only, so there must be no other threads.
      nthread: 1,
      ftype: fileType,
      pure,
      allow_requantize: requantize,
      quantize_output_tensor: !leaveOutput,
      keep_split: keepSplit,
      prune_layers: prune.length === 0 ? null : [...prune, -1],
      imatrix:
        importance === undefined
          ? null
          : [
              ...[...importance].map(([name, data]) => ({ name, data, size: data.length })),
              { name: null, data: null, size: 0 },
            ],
      kv_overrides: metadata.length === 0 ? null : overrideBytes(metadata),
      tt_overrides:
        overrides.length === 0
          ? null
          : [...overrides.map(([pattern, type]) => ({ pattern, type })), { pattern: null, type: 0 }],
    };
    if (quantize(input, output, parameters) !== 0) return takeLog(4);
    return joined(outputsIn(work).sort());
  } finally {
    for (const path of outputsIn(work)) unlinkSync(path);
  }
}

/** ggml's types with the numbers 0 to 42 (GGML_TYPE_COUNT - 1). Removed types have 0 elements. */
export function ggmlTypes(): { id: number; name: string; elements: number; bytes: number }[] {
  const { typeName, blockSize, typeSize } = library();
  return Array.from({ length: 43 }, (_, id) => ({
    id,
    name: typeName(id) ?? '',
    elements: Number(blockSize(id)),
    bytes: Number(typeSize(id)),
  }));
}

type Call = (...values: unknown[]) => unknown;

/**
 * The headers of the files that a model is split into, by ggml's own functions for GGUF and in the order of gguf-split's calls. A file ends
 * where its tensors, each padded to 32 bytes, would take more than `most` bytes.
 */
export function splitHeaders(path: string, most: number): Uint8Array[] {
  const { koffi, folder } = native();
  const ggml = koffi.load(join(folder, 'libggml-base.so'));
  const call = (name: string, result: unknown, ...parameters: unknown[]) => ggml.func(name, result, parameters) as Call;
  const pointer = 'void *';
  const empty = call('gguf_init_empty', pointer);
  const setPairs = call('gguf_set_kv', 'void', pointer, pointer);
  const set16 = call('gguf_set_val_u16', 'void', pointer, 'str', 'uint16');
  const set32 = call('gguf_set_val_i32', 'void', pointer, 'str', 'int32');
  const add = call('gguf_add_tensor', 'void', pointer, pointer);
  const nameOf = call('gguf_get_tensor_name', 'str', pointer, 'int64');
  const find = call('ggml_get_tensor', pointer, pointer, 'str');
  const bytesOf = call('ggml_nbytes', 'size_t', pointer);
  const place = new BigUint64Array(1);
  const parameters = koffi.struct(ownName('init'), { no_alloc: 'bool', ctx: pointer });
  const model = call('gguf_init_from_file', pointer, 'str', parameters)(path, { no_alloc: true, ctx: place });
  const count = Number(call('gguf_get_n_tensors', 'int64', pointer)(model));
  const files: unknown[] = [];
  const begin = () => {
    const file = empty();
    if (files.length === 0) setPairs(file, model);
    set16(file, 'split.no', files.length);
    set16(file, 'split.count', 0);
    set32(file, 'split.tensors.count', count);
    files.push(file);
  };
  begin();
  let size = 0;
  for (let i = 0; i < count; i++) {
    const tensor = find(place[0], nameOf(model, i));
    const bytes = Math.ceil(Number(bytesOf(tensor)) / 32) * 32;
    size += bytes;
    if (size > most) {
      begin();
      size = bytes;
    }
    add(files.at(-1), tensor);
  }
  const sizeOf = call('gguf_get_meta_size', 'size_t', pointer);
  const dataOf = call('gguf_get_meta_data', 'void', pointer, pointer);
  return files.map((file) => {
    set16(file, 'split.count', files.length);
    const header = new Uint8Array(Number(sizeOf(file)));
    dataOf(file, header);
    return header;
  });
}

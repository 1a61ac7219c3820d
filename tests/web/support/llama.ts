// llama.cpp itself, by way of the shared libraries in @node-llama-cpp/linux-x64 (Node only): llama_model_quantize, and what ggml says of
// its types.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import koffi from 'koffi';

const entry = createRequire(import.meta.url).resolve('@node-llama-cpp/linux-x64');
const folder = join(dirname(entry), '..', 'bins', 'linux-x64');
const ggml = koffi.load(join(folder, 'libggml-base.so'));
const llama = koffi.load(join(folder, 'libllama.v0.5.0.so'));

const Override = koffi.struct({ pattern: 'const char *', type: 'int' });
const Parameters = koffi.struct({
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
  imatrix: 'void *',
  kv_overrides: 'void *',
  tt_overrides: koffi.pointer(Override),
  prune_layers: 'void *',
  max_buffer_size: 'size_t',
});
const defaults = llama.func('llama_model_quantize_default_params', Parameters, []) as () => Record<string, unknown>;
const quantize = llama.func('llama_model_quantize', 'uint32', ['str', 'str', koffi.pointer(Parameters)]) as (
  input: string,
  output: string,
  parameters: Record<string, unknown>,
) => number;

let log = '';
const Log = koffi.pointer(koffi.proto('void (int level, const char *text, void *data)'));
const setLog = llama.func('llama_log_set', 'void', [Log, 'void *']);
setLog(
  koffi.register((level: number, text: string) => {
    // Errors have level 4, and 5 goes on with a message.
    if (level >= 4) log += text;
  }, Log),
  null,
);

/** Numbers of the file types (llama_ftype in llama.h). */
export const fileTypes: Readonly<Record<string, number>> = {
  F32: 0,
  F16: 1,
  Q4_0: 2,
  Q4_1: 3,
  Q8_0: 7,
  Q5_0: 8,
  Q5_1: 9,
  Q2_K: 10,
  Q3_K_S: 11,
  Q3_K_M: 12,
  Q3_K_L: 13,
  Q4_K_S: 14,
  Q4_K_M: 15,
  Q5_K_S: 16,
  Q5_K_M: 17,
  Q6_K: 18,
  IQ4_NL: 25,
  BF16: 32,
};

export interface NativeOptions {
  pure?: boolean;
  requantize?: boolean;
  /** Patterns of std::regex and numbers of types, as --tensor-type has them. */
  overrides?: readonly (readonly [pattern: string, type: number])[];
}

/** The file that llama-quantize makes of a file, for a number of llama_ftype; its error message if it refuses. */
export function llamaQuantize(
  file: Uint8Array,
  fileType: number,
  { pure = false, requantize = false, overrides = [] }: NativeOptions = {},
): Uint8Array<ArrayBuffer> | string {
  const work = mkdtempSync(join(tmpdir(), 'scalepoint-llama-'));
  try {
    const [input, output] = [join(work, 'in.gguf'), join(work, 'out.gguf')];
    writeFileSync(input, file);
    log = '';
    const parameters = {
      ...defaults(),
      // The log is called from the thread that it was set on.
      nthread: 1,
      ftype: fileType,
      pure,
      allow_requantize: requantize,
      tt_overrides:
        overrides.length === 0
          ? null
          : [...overrides.map(([pattern, type]) => ({ pattern, type })), { pattern: null, type: 0 }],
    };
    return quantize(input, output, parameters) === 0 ? new Uint8Array(readFileSync(output)) : log;
  } finally {
    rmSync(work, { recursive: true });
  }
}

const typeName = ggml.func('ggml_type_name', 'str', ['int']) as (type: number) => string | null;
const blockSize = ggml.func('ggml_blck_size', 'int64', ['int']) as (type: number) => number | bigint;
const typeSize = ggml.func('ggml_type_size', 'size_t', ['int']) as (type: number) => number | bigint;

/** What ggml says of the types with the numbers below 43, which is GGML_TYPE_COUNT; removed ones have no elements. */
export function ggmlTypes(): { id: number; name: string; elements: number; bytes: number }[] {
  return Array.from({ length: 43 }, (_, id) => ({
    id,
    name: typeName(id) ?? '',
    elements: Number(blockSize(id)),
    bytes: Number(typeSize(id)),
  }));
}

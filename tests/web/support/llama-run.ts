// Models in llama.cpp itself, from its shared libraries: tokens, logits and embeddings (Node only).
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { keepLog, native, once, ownName, takeLog } from './native.js';

type Pointer = object | null;
/** A struct of parameters that is changed by offsets, because its fields differ between versions. */
interface Blob {
  readonly bytes: number[];
}

const library = once(() => {
  const { koffi, folder } = native();
  const load = (name: string) => koffi.load(join(folder, name));
  const ggml = load('libggml.v0.5.0.so');
  // Without backends nothing can be computed. Files of tests share processes, and each call would add all of them.
  const shared = globalThis as { hasBackends?: boolean };
  if (shared.hasBackends !== true)
    (ggml.func('ggml_backend_load_all_from_path', 'void', ['str']) as (path: string) => void)(folder);
  shared.hasBackends = true;
  const llama = load('libllama.v0.5.0.so');
  const array = (koffi as unknown as { array(type: string, length: number): unknown }).array('uint8', 256);
  const Blob = koffi.struct(ownName('blob'), { bytes: array });
  const Batch = koffi.struct(ownName('batch'), {
    n_tokens: 'int32',
    token: 'void *',
    embd: 'void *',
    pos: 'void *',
    n_seq_id: 'void *',
    seq_id: 'void *',
    logits: 'void *',
  });
  keepLog(llama);
  const call = <T>(name: string, result: unknown, parameters: readonly unknown[]) =>
    llama.func(name, result, parameters) as T;
  return {
    koffi: koffi as unknown as {
      decode(pointer: Pointer | bigint, type: string, length: number): Float32Array | number[];
      decode(pointer: Pointer | bigint, offset: number, type: string): bigint | number;
      decode(pointer: Pointer | bigint, offset: number, type: string, length: number): string;
      register(call: (tensor: Pointer, ask: boolean) => boolean, type: unknown): object;
      unregister(call: object): void;
      address(pointer: object): bigint;
    },
    /** True if a computed tensor is wanted; else takes it. */
    Evaluate: koffi.pointer(koffi.proto(`bool ${ownName('evaluate')}(void *tensor, bool ask, void *data)`)),
    modelDefaults: call<() => Blob>('llama_model_default_params', Blob, []),
    contextDefaults: call<() => Blob>('llama_context_default_params', Blob, []),
    load: call<(path: string, parameters: Blob) => Pointer>('llama_model_load_from_file', 'void *', ['str', Blob]),
    free: call<(model: Pointer) => void>('llama_model_free', 'void', ['void *']),
    vocabulary: call<(model: Pointer) => Pointer>('llama_model_get_vocab', 'void *', ['void *']),
    size: call<(vocabulary: Pointer) => number>('llama_vocab_n_tokens', 'int32', ['void *']),
    embedding: call<(model: Pointer) => number>('llama_model_n_embd', 'int32', ['void *']),
    tokenize: call<
      (
        vocabulary: Pointer,
        text: Uint8Array,
        length: number,
        out: Int32Array,
        most: number,
        special: boolean,
        parse: boolean,
      ) => number
    >('llama_tokenize', 'int32', ['void *', 'void *', 'int32', 'void *', 'int32', 'bool', 'bool']),
    context: call<(model: Pointer, parameters: Blob) => Pointer>('llama_init_from_model', 'void *', ['void *', Blob]),
    adapter: call<(model: Pointer, path: string) => Pointer>('llama_adapter_lora_init', 'void *', ['void *', 'str']),
    setAdapters: call<(context: Pointer, adapters: BigUint64Array, count: bigint, scales: Float32Array) => number>(
      'llama_set_adapters_lora',
      'int32',
      ['void *', 'void *', 'size_t', 'void *'],
    ),
    setEmbeddings: call<(context: Pointer, on: boolean) => void>('llama_set_embeddings', 'void', ['void *', 'bool']),
    freeContext: call<(context: Pointer) => void>('llama_free', 'void', ['void *']),
    batch: call<(tokens: Int32Array, count: number) => object>('llama_batch_get_one', Batch, ['void *', 'int32']),
    decode: call<(context: Pointer, batch: object) => number>('llama_decode', 'int32', ['void *', Batch]),
    encode: call<(context: Pointer, batch: object) => number>('llama_encode', 'int32', ['void *', Batch]),
    logits: call<(context: Pointer, i: number) => Pointer>('llama_get_logits_ith', 'void *', ['void *', 'int32']),
    pooled: call<(context: Pointer, i: number) => Pointer>('llama_get_embeddings_seq', 'void *', ['void *', 'int32']),
  };
});

/** Offsets in the parameters of v0.5.0. */
const at = {
  evaluate: 88,
  vocabularyOnly: 72,
  threads: 28,
  batchThreads: 32,
  flashAttention: 52,
  keyType: 104,
  valueType: 108,
} as const;

/** Offsets in ggml_tensor, whose sizes are in 8 bytes each. */
const inTensor = { sizes: 16, operation: 80, sources: 152, data: 248, name: 256 } as const;
/** GGML_OP_MUL_MAT. */
const matrixProduct = 29;

function set32(blob: Blob, offset: number, value: number): void {
  for (let i = 0; i < 4; i++) blob.bytes[offset + i] = (value >>> (8 * i)) & 255;
}

/** A loaded model. */
export class NativeModel {
  readonly #model: Pointer;
  readonly #folder: string;

  /** @throws Error with the library's messages */
  constructor(file: Uint8Array, { vocabularyOnly = false } = {}) {
    this.#folder = mkdtempSync(join(tmpdir(), 'scalepoint-llama-'));
    const path = join(this.#folder, 'model.gguf');
    writeFileSync(path, file);
    const { modelDefaults, load } = library();
    const parameters = modelDefaults();
    if (vocabularyOnly) parameters.bytes[at.vocabularyOnly] = 1;
    takeLog(3);
    this.#model = load(path, parameters);
    if (this.#model === null) {
      rmSync(this.#folder, { recursive: true });
      throw new Error(takeLog(3));
    }
  }

  close(): void {
    library().free(this.#model);
    rmSync(this.#folder, { recursive: true });
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** The ids of a text. `special` adds what the tokenizer adds on its own, such as the beginning of a text. */
  tokenize(text: string, { special = false, parse = false } = {}): number[] {
    const { vocabulary, tokenize } = library();
    const bytes = new TextEncoder().encode(text);
    const out = new Int32Array(bytes.length + 16);
    const count = tokenize(vocabulary(this.#model), bytes, bytes.length, out, out.length, special, parse);
    if (count < 0) throw new Error(`${-count} tokens do not fit`);
    return [...out.subarray(0, count)];
  }

  /**
   * Logits behind each token of a text. Keys and values are kept in float32.
   * @param encoded the text for the encoder, of models that have one beside their decoder
   * @param adapter a file with an adapter, which counts with its own strength
   */
  logits(tokens: readonly number[], encoded?: readonly number[], adapter?: Uint8Array): Float32Array[] {
    const { vocabulary, size, logits } = library();
    const width = size(vocabulary(this.#model));
    const read = (context: Pointer) => tokens.map((_, i) => this.#floats(logits(context, i), width));
    return this.#run(tokens, read, true, 0n, encoded, adapter);
  }

  /** Shows what each weight is multiplied with, row by row, as llama-imatrix sees it with --process-output. Models without experts. */
  activations(tokens: readonly number[], see: (weight: string, x: Float32Array, columns: number) => void): void {
    const { koffi, Evaluate } = library();
    const evaluate = (tensor: Pointer, ask: boolean) => {
      if (koffi.decode(tensor, inTensor.operation, 'int32') !== matrixProduct) return !ask;
      const [weight = 0n, input = 0n] = [0, 8].map((i) => BigInt(koffi.decode(tensor, inTensor.sources + i, 'uint64')));
      const name = koffi.decode(weight, inTensor.name, 'char', 64).split('\0')[0] as string;
      if (ask || !name.endsWith('.weight')) return true;
      const [columns = 0, rows = 0] = [0, 8].map((i) => Number(koffi.decode(input, inTensor.sizes + i, 'int64')));
      const data = BigInt(koffi.decode(input, inTensor.data, 'uint64'));
      see(name, Float32Array.from(koffi.decode(data, 'float', columns * rows)), columns);
      return true;
    };
    const call = koffi.register(evaluate, Evaluate);
    try {
      this.#run(tokens, () => {}, true, koffi.address(call));
    } finally {
      koffi.unregister(call);
    }
  }

  /** The vector of a text, as the model pools it. @param count its elements; those of a token's vector by default */
  pooled(tokens: readonly number[], count?: number): Float32Array {
    const { embedding, pooled } = library();
    return this.#run(tokens, (context) => this.#floats(pooled(context, 0), count ?? embedding(this.#model)), false);
  }

  #floats(pointer: Pointer, count: number): Float32Array {
    if (pointer === null) throw new Error('there is no result');
    return Float32Array.from(library().koffi.decode(pointer, 'float', count));
  }

  #run<T>(
    tokens: readonly number[],
    read: (context: Pointer) => T,
    everywhere: boolean,
    evaluate = 0n,
    encoded?: readonly number[],
    adapter?: Uint8Array,
  ): T {
    const { contextDefaults, context: make, freeContext, decode, encode } = library();
    const parameters = contextDefaults();
    set32(parameters, at.threads, 1);
    set32(parameters, at.batchThreads, 1);
    set32(parameters, at.flashAttention, 0);
    set32(parameters, at.keyType, 0);
    set32(parameters, at.valueType, 0);
    set32(parameters, at.evaluate, Number(evaluate & 0xffffffffn));
    set32(parameters, at.evaluate + 4, Number(evaluate >> 32n));
    const context = make(this.#model, parameters);
    if (context === null) throw new Error(takeLog(3));
    try {
      if (adapter !== undefined) {
        const { koffi, adapter: open, setAdapters } = library();
        const path = join(this.#folder, 'adapter.gguf');
        writeFileSync(path, adapter);
        const pointer = open(this.#model, path);
        if (pointer === null) throw new Error(takeLog(3));
        setAdapters(context, BigUint64Array.of(koffi.address(pointer)), 1n, Float32Array.of(1));
      }
      if (!everywhere) library().setEmbeddings(context, true);
      if (encoded !== undefined && encode(context, batchOf(encoded, false)) !== 0) throw new Error(takeLog(3));
      const batch = batchOf(tokens, everywhere);
      const status = decode(context, batch);
      if (status !== 0) throw new Error(`llama_decode returned ${status}: ${takeLog(3)}`);
      return read(context);
    } finally {
      freeContext(context);
    }
  }
}

/** A batch of one text with logits behind each token. */
function batchOf(tokens: readonly number[], everywhere: boolean): object {
  const ids = Int32Array.from(tokens);
  const batch = library().batch(ids, ids.length) as Record<string, unknown>;
  return everywhere ? { ...batch, token: ids, logits: new Int8Array(ids.length).fill(1) } : { ...batch, token: ids };
}

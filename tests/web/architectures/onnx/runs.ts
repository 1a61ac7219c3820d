// Makes folders for transformers.js of tiny models, and runs the ONNX models in them.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as ort from 'onnxruntime-web';
import { type QuantizeModelOptions, quantizeModel } from 'scalepoint/model';
import { folder } from '../../support/folders.js';
import type { Weights } from '../../support/recipes.js';

ort.env.wasm.numThreads = 1;
ort.env.logLevel = 'error';

/** Files of a folder by name, as JSON. */
export type FolderJson = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

/** A folder that was made. */
export interface MadeFolder {
  /** Its files by their paths in it. */
  readonly files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>;
  readonly result: Awaited<ReturnType<typeof quantizeModel>>;
}

/** Makes a folder of a model. */
export async function makeOf(
  input: Parameters<typeof quantizeModel>[0],
  options: QuantizeModelOptions,
): Promise<MadeFolder> {
  const place = mkdtempSync(join(tmpdir(), 'scalepoint-onnx-'));
  try {
    const output = join(place, 'made');
    const result = await quantizeModel(input, { workers: 0, ...options, output });
    const names = readdirSync(output, { recursive: true, withFileTypes: true });
    const found = names.flatMap((entry) => {
      if (!entry.isFile()) return [];
      const path = join(entry.parentPath, entry.name);
      return [[path.slice(output.length + 1), new Uint8Array(readFileSync(path))] as const];
    });
    return { files: new Map(found), result };
  } finally {
    rmSync(place, { recursive: true });
  }
}

/** Makes a folder of a model in memory. */
export function makeFolder(
  weights: Weights,
  files: FolderJson,
  options: QuantizeModelOptions,
  dtype: 'F32' | 'BF16' = 'F32',
): Promise<MadeFolder> {
  const tensors = [...weights].map(([name, { shape, values }]) => {
    // Cut bfloat16 off.
    const data =
      dtype === 'F32' ? values : Uint16Array.from(new Uint32Array(values.slice().buffer), (bits) => bits >>> 16);
    return [name, { dtype, shape, data }] as const;
  });
  return makeOf(folder(Object.fromEntries(tensors), files), options);
}

/** A decoder in onnxruntime. */
export class RunningDecoder {
  readonly #session: ort.InferenceSession;
  readonly #runtime: typeof ort;

  private constructor(session: ort.InferenceSession, runtime: typeof ort) {
    this.#session = session;
    this.#runtime = runtime;
  }

  /** @param runtime onnxruntime-web, or onnxruntime-node, which has the same interface */
  static async open(
    file: Uint8Array,
    level: 'disabled' | 'all' = 'all',
    runtime: typeof ort = ort,
  ): Promise<RunningDecoder> {
    const options = { graphOptimizationLevel: level, logSeverityLevel: 3 } as const;
    return new RunningDecoder(await runtime.InferenceSession.create(file.slice(), options), runtime);
  }

  close(): Promise<void> {
    return this.#session.release();
  }

  /**
   * Runs texts of one length, the padding of which is undefined, after those that a cache holds.
   * @param kept tokens at the end that have logits, if the graph asks for their number; 0 for all
   * @returns the logits behind each token, by text, and the cache with the mask of its tokens
   */
  async run(texts: readonly (readonly (number | undefined)[])[], cache?: DecoderCache, kept = 0): Promise<DecoderRun> {
    const { Tensor } = this.#runtime;
    const [batch, length] = [texts.length, texts[0]!.length];
    const before = cache?.mask ?? texts.map((): boolean[] => []);
    const mask = texts.map((text, b) => [...before[b]!, ...text.map((token) => token !== undefined)]);
    const total = mask[0]!.length;
    const whole = (values: readonly number[], shape: readonly number[]) =>
      new Tensor('int64', BigInt64Array.from(values, BigInt), shape);
    // As transformers.js counts positions: the words before a token; 1 for padding.
    const positions = mask.map((row) => row.map((isWord, i) => (isWord ? row.slice(0, i).filter(Boolean).length : 1)));
    const feeds: Record<string, ort.Tensor> = {
      input_ids: whole(
        texts.flat().map((token) => token ?? 0),
        [batch, length],
      ),
      attention_mask: whole(mask.flat().map(Number), [batch, total]),
      position_ids: whole(
        positions.flatMap((row) => row.slice(total - length)),
        [batch, length],
      ),
      ...(this.#session.inputNames.includes('num_logits_to_keep') && { num_logits_to_keep: whole([kept], []) }),
    };
    for (const input of this.#session.inputMetadata) {
      if (!input.name.startsWith('past') || !input.isTensor) continue;
      const [, heads, , head] = input.shape as number[];
      const empty = input.type === 'float16' ? new Uint16Array(0) : new Float32Array(0);
      feeds[input.name] =
        cache?.tensors.get(input.name.replace('past_key_values', 'present')) ??
        new Tensor(input.type as 'float32', empty as Float32Array, [batch, heads!, 0, head!]);
    }
    const outputs = await this.#session.run(feeds);
    const { data, dims } = outputs.logits as { data: Float32Array; dims: readonly number[] };
    const [, rowsOfText = 0, vocabulary = 0] = dims;
    const rows = texts.map((_, b) =>
      Array.from({ length: rowsOfText }, (_, t) => {
        const row = b * rowsOfText + t;
        return data.slice(row * vocabulary, (row + 1) * vocabulary);
      }),
    );
    return { logits: rows, cache: { mask, tensors: new Map(Object.entries(outputs)) } };
  }
}

interface DecoderCache {
  readonly mask: readonly boolean[][];
  readonly tensors: ReadonlyMap<string, ort.Tensor>;
}

interface DecoderRun {
  readonly logits: Float32Array[][];
  readonly cache: DecoderCache;
}

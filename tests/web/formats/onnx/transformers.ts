// Loads what is made of a transformer in transformers.js, by the names that it looks for.
import { type ModelTarget, quantizeModel, resultName } from 'scalepoint/model';
import { expect } from 'vitest';
import { cosine } from './ort.js';
import { encoderModel, sentence } from './transformer.js';

interface Tensor {
  readonly dims: readonly number[];
  readonly data: Float32Array;
}
interface Loaded {
  (inputs: unknown): Promise<{ readonly logits: Tensor }>;
  dispose(): Promise<unknown>;
}
/** A language model. */
interface Decoder {
  generate(options: object): Promise<{ readonly data: ArrayLike<bigint> & Iterable<bigint> }>;
  dispose(): Promise<unknown>;
}
type FromPretrained<T> = { from_pretrained(name: string, options?: object): Promise<T> };

/** The part of transformers.js that tests use. It may not be installed, so TypeScript does not know it. */
export interface Transformers {
  readonly env: {
    allowRemoteModels: boolean;
    allowLocalModels: boolean;
    localModelPath: string;
    useBrowserCache: boolean;
    useWasmCache: boolean;
    useFSCache: boolean;
    fetch: typeof fetch;
    readonly backends: { readonly onnx: { readonly wasm?: { numThreads: number; wasmPaths: object } } };
  };
  readonly Tensor: new (type: string, data: Float32Array, dims: readonly number[]) => Tensor;
  readonly AutoTokenizer: FromPretrained<(text: string) => unknown>;
  readonly AutoModelForMaskedLM: FromPretrained<Loaded>;
  readonly AutoModelForCausalLM: FromPretrained<Decoder>;
}

/** Where it is installed, apart from the other packages: it takes 0.5 GB. */
export const howToInstall = 'transformers.js is not installed: npm ci --prefix tests/transformers';

/** dtypes of transformers.js (int8 is what q8 is without convolutions), with the least cosine of logits to those of float32: 8-bit activations, 4-bit weights, rounding to 11 bits. */
const dtypes: readonly (readonly [dtype: ModelTarget, least: number])[] = [
  ['q8', 0.99],
  ['uint8', 0.99],
  ['q4', 0.98],
  ['fp16', 0.99999],
  ['q4f16', 0.98],
  ['q2f16', 0.6],
  ['bnb4', 0.98],
];

/** The model in float32 and as each dtype, by file name. */
export async function modelFiles(): Promise<Map<string, Uint8Array<ArrayBuffer>>> {
  const files = new Map([['model.onnx', encoderModel()]]);
  for (const [to] of dtypes) {
    const { bytes } = await quantizeModel(encoderModel(), { to, workers: 0 });
    files.set(resultName('model.onnx', { to, format: 'onnx' }), await bytes());
  }
  return files;
}

/** Holds the logits of each dtype against those of float32. */
export async function checkDtypes({ AutoModelForMaskedLM, AutoTokenizer }: Transformers, device: string) {
  const tokenizer = await AutoTokenizer.from_pretrained('small');
  const logitsOf = async (dtype: string) => {
    const model = await AutoModelForMaskedLM.from_pretrained('small', { dtype, device });
    const { logits } = await model(tokenizer(sentence));
    await model.dispose();
    return logits;
  };
  const expected = await logitsOf('fp32');
  // One token for each word and comma, [CLS] and [SEP].
  expect(expected.dims).toEqual([1, sentence.split(' ').length + 2, 128]);
  for (const [dtype, least] of dtypes) {
    const { dims, data } = await logitsOf(dtype);
    expect(dims).toEqual(expected.dims);
    const closeness = cosine(expected.data, data);
    expect(closeness, dtype).toBeGreaterThan(least);
    // It is the file of that dtype: nothing else gives other logits.
    expect(closeness, dtype).toBeLessThan(1);
  }
}

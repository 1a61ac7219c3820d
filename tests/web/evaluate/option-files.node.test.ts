// Files that options name: their errors name the option, and handles of the browser are read as files are.
import {
  calibrateModel,
  compareModels,
  inspectModel,
  type ModelStatistics,
  type PlanModelOptions,
  planModel,
  quantizeModel,
} from 'scalepoint/model';
import { beforeAll, describe, expect, it } from 'vitest';
import * as onnx from '../formats/onnx/encoder.js';
import { activationsOf, matrixFile } from '../support/importance.js';
import { madeUpLlama } from '../support/made-up-llama.js';

const llama = madeUpLlama({ layers: 1, width: 64 });
const product = onnx.product('MatMul', [64, 32], [1, 64], [1, 32])();
const one = { workers: 0 } as const;

/** An array whose buffer was given away. */
function detached(): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(64);
  structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
  return bytes;
}

type Input = 'https://' | Uint8Array<ArrayBuffer>;
const calls: Readonly<Record<string, (file: Input) => Promise<unknown>>> = {
  importance: (importance) => planModel(llama, { to: 'Q4_K_M', importance }),
  moments: (moments) => planModel(llama, { to: 'Q8_0', method: 'gptq', moments }),
  ranges: (ranges) => planModel(product, { to: 'int8-static', ranges }),
  'run.inputs': (inputs) => compareModels(product, product, { run: { inputs }, ...one }),
  'run.inputs["x"]': (x) => compareModels(product, product, { run: { inputs: { x } }, ...one }),
  'data.files[0]': (file) => calibrateModel(product, { files: [file] }),
};

describe.each(Object.entries(calls))('%s', (option, call) => {
  const errorOf = (file: Input) => call(file).then(String, (error: unknown) => error);

  it('is named where a text is no URL', async () => {
    const error = await errorOf('https://');
    expect(error).toBeInstanceOf(RangeError);
    const message = `${option}: expected a URL such as 'https://example.org/model.gguf', got "https://"`;
    expect(error).toMatchObject({ option, message });
  });

  it('is named where an array was given away', async () => {
    const error = await errorOf(detached());
    expect(error).toBeInstanceOf(TypeError);
    expect(error).toMatchObject({ option });
  });
});

/** A handle of a file, as a browser gives it. */
function handle(bytes: Uint8Array<ArrayBuffer>, name: string): FileSystemFileHandle {
  return { kind: 'file', name, getFile: async () => new File([bytes], name) } as unknown as FileSystemFileHandle;
}

describe('handles', () => {
  let [moments, ranges]: ModelStatistics[] = [];
  beforeAll(async () => {
    const ids = Uint32Array.from({ length: 16 }, (_, i) => 3 + i);
    moments = await calibrateModel(llama, ids, { ...one, chunkSize: 8, moments: true });
    const samples = [{ x: { data: onnx.weights(64), shape: [1, 64] } }];
    ranges = await calibrateModel(product, samples, { ranges: true });
  });
  const made = async (file: Uint8Array, options: PlanModelOptions) =>
    (await quantizeModel(file, { ...options, ...one })).bytes();

  it('are taken for importance', async () => {
    const matrix = matrixFile(activationsOf((await inspectModel(llama)).tensors)) as Uint8Array<ArrayBuffer>;
    const given = await made(llama, { to: 'Q8_0', importance: handle(matrix, 'm.gguf') });
    expect(given).toEqual(await made(llama, { to: 'Q8_0', importance: new File([matrix], 'm.gguf') }));
  });

  it('are taken for data', async () => {
    const file = handle((await moments?.moments?.bytes()) as Uint8Array<ArrayBuffer>, 'moments.safetensors');
    const given = await made(llama, { to: 'Q8_0', method: 'gptq', moments: file });
    expect(given).toEqual(await made(llama, { to: 'Q8_0', method: 'gptq', moments: moments }));
  });

  it('are taken for ranges', async () => {
    const file = handle((await ranges?.ranges?.bytes()) as Uint8Array<ArrayBuffer>, 'ranges.safetensors');
    const given = await made(product, { to: 'int8-static', ranges: file });
    expect(given).toEqual(await made(product, { to: 'int8-static', ranges }));
  });

  it('that cannot be read say so', async () => {
    const cause = new Error('the user has taken it back');
    const lost = { getFile: () => Promise.reject(cause) } as unknown as FileSystemFileHandle;
    const planned = planModel(llama, { to: 'Q8_0', importance: lost });
    await expect(planned).rejects.toMatchObject({ code: 'IO', cause });
  });
});

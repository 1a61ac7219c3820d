// The loss of a conversion, measured without writing anything.
import { load } from 'scalepoint';
import { expect, it } from 'vitest';
import {
  estimateModel,
  inspectModel,
  type ModelReport,
  type PlanOptions,
  quantizeModel,
  readTensor,
} from '../../../web/src/model.js';
import { activationsOf, matrixFile, meansOf } from '../support/importance.js';
import { safetensors, weights } from '../support/models.js';
import { tinyLlama } from '../support/tiny-llama.js';

const model = safetensors({
  'a.weight': weights('F32', [256, 512]),
  'b.weight': weights('BF16', [32, 64], 2),
  'c.bias': weights('F32', [64], 3),
});

/** A report without what only reading kept tensors tells. */
const converted = ({ tensors, ...rest }: ModelReport) => {
  return {
    ...rest,
    tensors: tensors.map(({ nonFinite, ...tensor }) => (tensor.kept ? tensor : { ...tensor, nonFinite })),
  };
};

it.each<PlanOptions>([{ to: 'int8' }, { to: 'int4', range: 'mse' }, { to: 'float8e4m3fn' }, { to: 'float16' }])(
  'measures everything as quantizeModel does: $to',
  async (options) => {
    const { report } = await quantizeModel(model, options);
    const { sampled, ...estimate } = await estimateModel(model, { ...options, sample: Number.POSITIVE_INFINITY });
    expect(sampled).toBe(0);
    expect(converted(estimate)).toEqual(converted(report));
  },
);

it('measures the mixtures of GGUF as quantizeModel does', async () => {
  const llama = tinyLlama({ layers: 2 });
  const { report } = await quantizeModel(llama, { to: 'Q4_K_M' });
  const { sampled, ...estimate } = await estimateModel(llama, { to: 'Q4_K_M', sample: Number.POSITIVE_INFINITY });
  expect(converted(estimate)).toEqual(converted(report));
  expect(sampled).toBe(0);
});

it('measures an expert from the middle by its own importance', async () => {
  const llama = tinyLlama({ layers: 1, rows: 8, experts: 4 });
  const known = activationsOf((await inspectModel(llama)).tensors);
  const name = 'blk.0.ffn_up_exps.weight';
  const options = { to: 'Q4_0', importance: matrixFile(known) } as const;
  const { tensors, sampled } = await estimateModel(llama, { ...options, sample: 8 * 256 });
  expect(sampled).toBeGreaterThan(0);
  // The second of four.
  const floats = await readTensor(await (await quantizeModel(llama, { to: 'F32' })).bytes(), name);
  const one = (floats.data as Float32Array).slice(8 * 256, 2 * 8 * 256);
  using sp = await load();
  const importance = meansOf(known).get(name)!.slice(256, 512);
  const blocks = sp.quantizeBlocks(one, 'Q4_0', { shape: [8, 256], weights: importance });
  const { error } = tensors.find((tensor) => tensor.name === name)!;
  expect(error!.relativeL2).toBe(sp.compare(one, blocks).relativeL2);
});

it('measures rows from the middle of long tensors, and reads no others', async () => {
  const { report } = await quantizeModel(model, { to: 'int4' });
  let read = 0;
  const file = new Blob([model]);
  const { slice } = file;
  file.slice = (begin = 0, end = file.size) => {
    read += end - begin;
    return slice.call(file, begin, end);
  };
  const { tensors, totals, sampled } = await estimateModel(file, { to: 'int4', sample: 4096 });
  expect(sampled).toBe(1);
  expect(totals).toEqual(report.totals);
  // Eight rows of a.weight, all of b.weight, and the header a few times.
  expect(read).toBeLessThan(8 * 512 * 4 + 32 * 64 * 2 + 8192);
  const [part, whole] = tensors;
  expect(whole?.error).toEqual(report.tensors[1]?.error);
  // 32 groups of normally distributed numbers: their SQNR differs by less than a decibel from that of all.
  expect(Math.abs((part?.error?.sqnrDb ?? 0) - (report.tensors[0]?.error?.sqnrDb ?? 0))).toBeLessThan(1);
});

it('names a tensor that cannot be converted, and refuses other values than sizes of a sample', async () => {
  const bad = weights('F32', [16, 64]);
  (bad.data as Float32Array)[70] = Number.NaN;
  await expect(estimateModel(safetensors({ 'bad.weight': bad }), { to: 'int8' })).rejects.toMatchObject({
    code: 'NON_FINITE',
    tensor: 'bad.weight',
  });
  await expect(estimateModel(model, { to: 'int8', sample: 0 })).rejects.toThrow(/sample/);
  await expect(estimateModel(model, { to: 'int8', signal: AbortSignal.abort('enough') })).rejects.toBe('enough');
});

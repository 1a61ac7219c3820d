// A planned tensor before and after its conversion: its error is that of the estimate, for every target of every format.
import { beforeAll, expect, it } from 'vitest';
import { load, type Scalepoint } from '../../../web/src/index.js';
import { estimateModel, type FileInput, inspectModel, type PlanOptions, readFloats } from '../../../web/src/model.js';
import { formats, readPlanned } from '../../../web/src/tooling.js';
import { product } from '../formats/onnx/encoder.js';
import { activationsOf, matrixFile } from '../support/importance.js';
import { chosen, safetensors, weights } from '../support/models.js';
import { decoderConfig, decoderWeights } from '../support/tiny-huggingface.js';
import { tinyLlama } from '../support/tiny-llama.js';

let core: Scalepoint;
beforeAll(async () => {
  core = await load();
});

const diffusion = safetensors({
  'double_blocks.0.img_attn.proj.weight': weights('F32', [64, 256], 1),
  'double_blocks.0.img_attn.norm.query_norm.scale': weights('F32', [256], 2),
});
const up = 'model.layers.0.mlp.up_proj.weight';
const language = safetensors({ [up]: weights('BF16', [64, 256], 3), 'model.norm.weight': weights('F32', [256], 4) });
const decoder = safetensors(
  Object.fromEntries(
    [...decoderWeights({ layers: 1 })].map(([name, { shape, values }]) => [
      name,
      { dtype: 'F32', shape, data: values },
    ]),
  ),
);
const config = { ...decoderConfig('LlamaForCausalLM'), model_type: 'llama', num_hidden_layers: 1 };
const folder = [chosen('model.safetensors', decoder), chosen('config.json', config)];
const gguf = { F32: tinyLlama({ layers: 1, vocabulary: 8, source: 'F32' }), F16: tinyLlama({ layers: 1 }) };
const onnx = product('MatMul', [256, 64], [1, 256], [1, 64]);

/** A model for a target, and the options that it needs. */
async function inputFor(format: string, to: string): Promise<[FileInput | FileInput[], PlanOptions]> {
  const options = { to } as PlanOptions;
  if (format === 'onnx') return [onnx(), options];
  if (format === 'safetensors') {
    return [to.startsWith('comfy') ? diffusion : to.startsWith('mlx') ? folder : language, options];
  }
  const file = to === 'F32' ? gguf.F16 : gguf.F32;
  const { tensors } = await inspectModel(file);
  return [file, { ...options, importance: matrixFile(activationsOf(tensors)) } as PlanOptions];
}

const targets = formats.flatMap(({ name, targets: all }) =>
  ['safetensors', 'gguf', 'onnx'].includes(name)
    ? all.filter(({ copies, needs }) => !copies && needs === undefined).map(({ name: to }) => [name, to] as const)
    : [],
);

it.each(targets)('has the error of the estimate: %s to %s', async (format, to) => {
  const [file, options] = await inputFor(format, to);
  const estimate = await estimateModel(file, { ...options, sample: Number.POSITIVE_INFINITY, workers: 0 });
  const converted = estimate.tensors.filter(({ kept }) => kept === undefined);
  expect(converted.length).toBeGreaterThan(0);
  const types = new Map(converted.map((tensor) => [tensor.to, tensor]));
  for (const { name, shape, error, bytesAfter } of types.values()) {
    const read = await readPlanned(file, name, { ...options, workers: 0 });
    expect([name, read.shape, read.bytes, read.error]).toEqual([name, shape, bytesAfter, error]);
    const { sqnrDb = 0 } = error ?? {};
    const compared = core.compare(read.before, read.after).sqnrDb;
    // Reading rounds x to float32 once more. That changes an error e by at most 2^-24 |x|, and e² by 2^-23 |x| / |e| of itself.
    const bound = (10 / Math.LN10) * 2 ** -23 * 10 ** (sqnrDb / 20);
    if (compared !== sqnrDb) expect(Math.abs(compared - sqnrDb)).toBeLessThan(bound);
  }
});

it('reads rows from the middle, and refuses a tensor that stays', async () => {
  const { shape, before } = await readPlanned(language, up, { to: 'int4', most: 1024, workers: 0 });
  expect(shape).toEqual([4, 256]);
  const { data } = await readFloats(language, up, { workers: 0 });
  expect(before).toEqual(data.subarray(30 * 256, 34 * 256));
  const kept = readPlanned(language, 'model.norm.weight', { to: 'int4', workers: 0 });
  await expect(kept).rejects.toMatchObject({ code: 'NOT_FOUND' });
});

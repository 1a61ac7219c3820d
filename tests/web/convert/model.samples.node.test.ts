// Sample models as safetensors with int8.
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspectModel, type ModelReport, quantizeModel } from 'scalepoint/model';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseSafetensors } from '../support/compressed.js';
import { expectResult, plain } from '../support/models.js';

const samples = process.env.SCALEPOINT_SAMPLES;
const sample = (name: string) => join(samples ?? '', name);

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-model-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** The kinds of the reasons to keep tensors. */
const keptOf = (report: ModelReport) =>
  Object.fromEntries(report.tensors.map(({ name, kept }) => [name, kept?.kind ?? 'int8']));

/** Quantizes in memory and holds the result to the reference. */
async function quantized(bytes: Uint8Array<ArrayBuffer>) {
  const { report, config, bytes: take } = await quantizeModel(bytes, { to: 'int8', ...plain });
  const after = await take();
  expectResult(bytes, after, report, config);
  return { report, after, results: parseSafetensors(after).tensors };
}

describe.skipIf(samples === undefined)('quantizing the sample models', () => {
  it('brings silero_vad_16k to about a quarter of its size', async () => {
    const path = sample('silero_vad_16k.safetensors');
    const output = join(folder, 'silero.safetensors');
    const { report, config } = await quantizeModel(path, { to: 'int8', ...plain, output });
    const result = await readFile(output);
    expectResult(await readFile(path), result, report, config);
    // A weight takes a byte an element and a float32 a row.
    const bytes = report.tensors.map(({ shape, kept, bytesBefore }) =>
      kept === undefined ? bytesBefore / 4 + 4 * (shape[0] as number) : bytesBefore,
    );
    expect(result.length).toBe(8 + result.readUInt32LE(0) + bytes.reduce((a, b) => a + b, 0));
    expect(report.totals.bytesAfter).toBe(result.length);
    expect(report.totals).toMatchObject({ quantized: 8, kept: 7 });
    for (const { name, error, kept } of report.tensors) {
      if (name.includes('bias')) expect(kept).toEqual({ kind: 'bias', text: 'bias' });
      else expect(error?.sqnrDb, name).toBeGreaterThan(0);
    }
  });

  it('keeps in mlp what is no weight, and stores scales in each tensor’s own dtype', async () => {
    const before = await readFile(sample('mlp.safetensors'));
    const { report, results, after } = await quantized(before);
    expect(keptOf(report)).toEqual({
      'layers.0.weight': 'int8',
      'layers.0.bias': 'bias',
      'layers.1.weight': 'int8',
      'layers.2.weight': 'int8',
      num_batches_tracked: 'nonFloat',
      empty: 'empty',
    });
    expect(results.get('layers.0.weight_scale')).toMatchObject({ dtype: 'F32', shape: [64, 1] });
    expect(results.get('layers.1.weight_scale')).toMatchObject({ dtype: 'F16', shape: [64, 1] });
    expect(results.get('layers.2.weight_scale')).toMatchObject({ dtype: 'BF16', shape: [10, 1] });
    expect((await inspectModel(after)).metadata).toEqual({ format: 'pt', made_by: 'make_samples.py' });
  });

  it('takes a file of another writer', async () => {
    const { report, results } = await quantized(await readFile(sample('burn_multi_layer.safetensors')));
    expect(results.get('conv1.weight_scale')?.shape).toEqual([4, 1, 1, 1]);
    expect(keptOf(report)).toMatchObject({
      'conv1.weight': 'int8',
      'fc1.weight': 'int8',
      'norm1.running_mean': 'norm',
    });
  });
});

// Models with more tensors, dimensions or numbers than a call takes arguments.
import { load } from 'scalepoint';
import { inspectModel, planModel, verifyModel } from 'scalepoint/model';
import { expect, it } from 'vitest';
import { configSidecar } from '../../../web/src/formats/safetensors/config.js';
import * as onnx from '../formats/onnx/encoder.js';
import { tinyLlama } from '../support/tiny-llama.js';

/** More than the arguments of a call in all engines. */
const many = 130_000;

type Zeros = readonly [name: string, shape: readonly number[], dtype: 'BF16' | 'I8' | 'F32'];

/** A safetensors file of zeros. */
function zeros(tensors: readonly Zeros[]): Uint8Array<ArrayBuffer> {
  const header: Record<string, unknown> = {};
  let offset = 0;
  for (const [name, shape, dtype] of tensors) {
    const size = shape.reduce((product, n) => product * n, { I8: 1, BF16: 2, F32: 4 }[dtype]);
    header[name] = { dtype, shape, data_offsets: [offset, offset + size] };
    offset += size;
  }
  const json = new TextEncoder().encode(JSON.stringify(header));
  const bytes = new Uint8Array(8 + json.length + offset);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(json.length), true);
  bytes.set(json, 8);
  return bytes;
}

it('weights that no group divides have one note', async () => {
  const weights = Array.from({ length: many }, (_, i): Zeros => [`l.${i}.weight`, [1, 129 + (i % 2)], 'BF16']);
  const { notes, totals } = await planModel(zeros(weights), { to: 'int4' });
  expect(totals.kept).toBe(many);
  expect(notes).toMatchObject([{ kind: 'leftRows', columns: [129, 130], groupSizes: [128] }]);
});

it('codes that config.json does not name are as many findings', async () => {
  const codes = Array.from({ length: many }, (_, i): Zeros[] => [
    [`l.${i}.weight`, [1, 1], 'I8'],
    [`l.${i}.weight_scale`, [1, 1], 'F32'],
  ]);
  const config = { quantization_config: { quant_method: 'compressed-tensors', config_groups: {} } };
  const { problems } = await verifyModel(zeros(codes.flat()), { config });
  expect(problems.filter(({ kind }) => kind === 'noGroup')).toHaveLength(many);
});

it('layers to leave out may be a long list', async () => {
  const pruneLayers = Array.from({ length: many }, (_, i) => i + 1);
  const { tensors } = await planModel(tinyLlama(), { to: 'Q8_0', pruneLayers });
  expect(tensors.some(({ name }) => name.startsWith('blk.0.'))).toBe(true);
  expect(tensors.some(({ name }) => name.startsWith('blk.1.'))).toBe(false);
});

it('an importance matrix may have as many experts', async () => {
  const sp = await load();
  const importance = sp.importance();
  importance.add('blk.0.ffn_up_exps.weight', [1], { columns: 1, matrices: many, matrix: many - 1 });
  const { tensors } = await inspectModel(await importance.file());
  expect(tensors.map(({ shape }) => shape)).toContainEqual([many, 1]);
  sp.dispose();
});

it('dimensions and attributes of ONNX may be long lists, packed or not', async () => {
  const ones = Array.from({ length: many }, () => 1);
  const raw = [0, 0, 0, 0];
  // Packed lists have at most 64 KiB.
  const lists = [0, 1, 2].flatMap(() => [...onnx.bytes(1, ones.slice(0, 50_000))]);
  const packed = onnx.tensor({ name: 'packed', dims: [], raw, more: lists });
  const attribute = [...onnx.text(1, 'perm'), ...onnx.bytes(8, ones.slice(0, 50_000)), ...onnx.int(20, 7)];
  const model = onnx.model({
    nodes: [{ op: 'Transpose', in: ['packed'], out: ['y'], more: onnx.bytes(5, attribute) }],
    initializers: [packed, onnx.tensor({ name: 'plain', dims: ones, raw })],
    inputs: [],
    outputs: [['y', [1]]],
  });
  const { tensors } = await inspectModel(model);
  expect(tensors.map(({ shape }) => shape.length)).toEqual([150_000, many]);
  await expect(planModel(model, { to: 'fp16' })).resolves.toMatchObject({});
});

it('a config.json may hold long strings, and numbers that doubles round', () => {
  for (const long of ['x'.repeat(16e6), '\\n'.repeat(8e6), '\\\\'.repeat(8e6), '\\"'.repeat(8e6)]) {
    const text = `{"n": -12345678901234567890.10e+2, "a": "${long}", "1": [0, "2\\"3", "\\\\", 4]}`;
    const { value, print } = configSidecar.parse(text);
    const printed = print(value);
    expect(JSON.parse(printed)).toEqual(JSON.parse(text));
    expect(printed).toContain('-12345678901234567890.10e+2');
  }
});

it('an index may state a strange total size', async () => {
  const index =
    '{"metadata": {"total_size": {"toString": 1, "valueOf": 1}}, "weight_map": {"a.weight": "1.safetensors"}}';
  const files = [
    new File([index], 'model.safetensors.index.json'),
    new File([zeros([['a.weight', [1], 'F32']])], '1.safetensors'),
  ];
  const { notes } = await verifyModel(files);
  expect(notes).toMatchObject([{ kind: 'indexDiffers' }]);
});

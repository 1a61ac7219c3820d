// Programs of users, in every supported version of TypeScript, with and without the DOM library. Nothing here runs.
import {
  type BlockTensor,
  type CodebookTensor,
  type DType,
  type LinearQuantizedTensor,
  load,
  type PackedLinearTensor,
  type QuantizedTensor,
  type QuantizeOptions,
} from 'scalepoint';
import { runBench } from 'scalepoint/bench';
import {
  compareModels,
  inspectModel,
  loadTensors,
  planModel,
  quantizeModel,
  readQuantized,
  readTensor,
  saveTensors,
} from 'scalepoint/model';

/** Fails to compile unless both types are the same. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function same<A, B>(_: Same<A, B>): void {}

/** The type of a new array: from TypeScript 5.7 on, one with an ArrayBuffer. */
type New<T extends { slice(): unknown }> = ReturnType<T['slice']>;

export async function arrays(x: Float32Array, dtype: DType): Promise<void> {
  const sp = await load({ simd: 'auto' });
  // The array of codes follows the dtype, without `as const`.
  same<(typeof byDefault)['data'], New<Int8Array>>(true);
  const byDefault = sp.quantize(x);
  const uint4 = sp.quantize(x, { dtype: 'uint4', granularity: { kind: 'per-group', groupSize: 32 } });
  same<(typeof uint4)['data'], New<Uint8Array>>(true);
  const int16 = sp.quantize(x, { dtype: 'int16', scheme: 'asymmetric', range: { percentile: 99.9 } });
  same<(typeof int16)['data'], New<Int16Array>>(true);
  const any = sp.quantize(x, { dtype });
  same<(typeof any)['data'], New<Int8Array> | New<Uint8Array> | New<Int16Array> | New<Uint16Array>>(true);
  const given = sp.quantize(x, { out: new Int8Array(x.length) });
  same<(typeof given)['data'] extends Int8Array ? true : false, true>(true);
  const packed = sp.quantize(x, { dtype: 'int4', packed: true });
  same<(typeof packed)['packed'], true>(true);
  same<typeof packed extends PackedLinearTensor<Uint8Array> ? true : false, true>(true);
  const intoBytes = sp.quantize(x, { dtype: 'int4', packed: true, out: new Uint8Array(x.length / 2) });
  same<(typeof intoBytes)['data'] extends Uint8Array ? true : false, true>(true);
  const taken: QuantizedTensor = packed;
  sp.dequantize(taken);
  const unpacked = sp.unpack(packed.data, packed, { out: new Int8Array(x.length) });
  same<typeof unpacked extends Int8Array ? true : false, true>(true);
  const packedInWasm = sp.pack(byDefault, { out: sp.allocate('uint8', x.length) });
  same<typeof packedInWasm extends { dispose(): void } ? true : false, true>(true);
  const inWasm = sp.quantize(x, { out: sp.allocate('int8', x.length) });
  inWasm.data.dispose();
  const options: QuantizeOptions = { dtype: 'int4' };
  const general: LinearQuantizedTensor = sp.quantize(x, options);
  // @ts-expect-error there is no such type
  sp.quantize(x, { dtype: 'int9' });
  // @ts-expect-error there is no such option
  sp.quantize(x, { bits: 4 });

  const codebook: CodebookTensor<Uint8Array> = sp.quantizeCodebook(x, { codebook: 'nf4', blockSize: 64 });
  const blocks: BlockTensor<Uint8Array> = sp.quantizeBlocks(x, 'Q4_K', { shape: [1, 256] });
  const all: QuantizedTensor[] = [byDefault, general, codebook, blocks];
  const floats: Float32Array[] = all.map((q) => sp.dequantize(q));
  const [first] = all;
  if (first?.kind === 'codebook') first.absmax.fill(1);
  const errors: number[] = sp.compare(x, byDefault, { per: 'channel', axis: 0 }).map(({ sqnrDb }) => sqnrDb);
  sp.sweep(x, [{ dtype: 'int2' }, { dtype: 'int4', range: 'mse' }]);
  const index = sp.index(byDefault, { metric: 'cosine' });
  const { indices } = index.search(x);
  index.add([[1, 2, 3]]);
  const layer = sp.linear(codebook, { bias: [1, 2] });
  layer.forward(x, { batch: 4, out: floats[0] ?? new Float32Array(1) });
  const saved: Uint8Array = await saveTensors({ codebook, index: index.tensor() });
  const back: Record<string, QuantizedTensor> = await loadTensors(saved);
  const { weight, bias } = await loadTensors(saved);
  // Floats come back, too.
  if (bias instanceof Float32Array) bias.fill(0);
  if (weight?.kind === 'linear') sp.dequantize(weight);
  // @ts-expect-error it may be floats
  if (weight !== undefined) sp.dequantize(weight);
  console(indices, errors, back);
  sp.dispose();
}

export async function models(file: Uint8Array): Promise<void> {
  const sp = await load();
  const tensor = await readTensor(file, 'fc1.weight');
  // The dtype tells the array.
  if (tensor.dtype === 'F32') same<(typeof tensor)['data'] extends Float32Array ? true : false, true>(true);
  if (tensor.dtype === 'I64') same<(typeof tensor)['data'] extends BigInt64Array ? true : false, true>(true);
  if (tensor.dtype === 'F32' || tensor.dtype === 'BF16') sp.quantize(tensor, { dtype: 'int8' });
  if (tensor.dtype === 'Q4_K') sp.dequantize(tensor);
  sp.linear(await readQuantized(file, 'fc1.weight'));
  const { totals } = await planModel(file, { to: 'Q4_K_M' });
  const { report, bytes } = await quantizeModel(file, {
    to: 'int8',
    rules: [{ match: /embed/, keep: true }],
    onProgress: ({ tensor: name, bytesDone }) => console(name, bytesDone),
  });
  const [first] = report.tensors;
  if (first?.kept?.kind === 'notDivisible') console(first.kept.dimension % first.kept.by, first.kept.text);
  const words: readonly string[] = report.notes.map(({ text }) => text);
  const result: Uint8Array = await bytes();
  const { tensors } = await compareModels(file, result);
  const info = await inspectModel(result);
  const { rows } = await runBench({ quick: true });
  console(totals, words, tensors, info.metadata, rows);
}

declare function console(...values: unknown[]): void;

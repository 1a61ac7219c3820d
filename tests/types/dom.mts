// Programs of pages, in every supported version of TypeScript with exactOptionalPropertyTypes. Nothing here runs.
import { type LoadOptions, load, type NewParameters, type QuantizeOptions } from 'scalepoint';
import {
  compareModels,
  loadTensors,
  quantizeModel,
  readFloats,
  readQuantized,
  readTensor,
  saveTensors,
  verifyModel,
} from 'scalepoint/model';

/** New arrays have an ArrayBuffer of their own, so that a Blob takes them. */
export async function blobs(x: Float32Array): Promise<Blob[]> {
  const sp = await load();
  const q = sp.quantize(x);
  const wide = sp.quantize(x, { dtype: 'uint16' });
  const codebook = sp.quantizeCodebook(x, { codebook: 'nf4' });
  const parameters: NewParameters = sp.observer().parameters();
  const index = sp.index(q).tensor();
  return [
    new Blob([q.data, q.scale, q.zeroPoint, wide.data, sp.pack(q), sp.unpack(sp.pack(q), q)]),
    new Blob([sp.quantizeBlocks(x, 'Q8_0').data, codebook.data, codebook.codebook, codebook.absmax]),
    new Blob([sp.quantizeCodebook(x, { codebook: 'nf4', out: new Uint8Array(x.length) }).absmax]),
    new Blob([parameters.scale, sp.chooseQuantizationParameters(x).zeroPoint]),
    new Blob([sp.histogram(x).counts, sp.dequantize(q), sp.castFloat(x, 'float16'), sp.linear(q).forward(x)]),
    new Blob([sp.castToFloat32(new Uint16Array(1), 'float16'), index.data, index.scale, sp.index(q).search(x).scores]),
    new Blob([await saveTensors({ q }), await sp.importance().file()]),
  ];
}

/** Arrays of any buffer are taken, and those for results are given back. */
export async function anyBuffer(x: Float32Array, shared: Int8Array): Promise<Int8Array> {
  const sp = await load();
  const q = sp.quantize(x, { out: shared });
  sp.dequantize({ ...q, scale: new Float32Array(new SharedArrayBuffer(4)) });
  sp.quantizeBlocks(x, 'Q8_0', { out: sp.allocate('uint8', 34) }).data.dispose();
  return q.data;
}

/** Passes options on that may be undefined. */
export async function passedOn(
  file: File,
  config: Readonly<Record<string, unknown>> | undefined,
  signal: AbortSignal | undefined,
  simd: LoadOptions['simd'],
  options: QuantizeOptions,
): Promise<void> {
  const sp = await load({ simd, signal });
  const { dtype, scheme, granularity, range, out, errors } = options;
  sp.quantize([1, 2], { dtype, scheme, granularity, range, out, errors });
  const result = await quantizeModel(file, { to: 'int8', config, signal, rules: undefined, output: undefined });
  const small = await result.blob();
  await verifyModel(small, { config: result.config });
  await verifyModel(small, { config, signal });
  await compareModels(file, small, { run: undefined, workers: undefined, core: { signal } });
}

/** Every tensor that a file holds is taken. Those of other types than floats are refused at run time. */
export async function stored(file: File): Promise<void> {
  const sp = await load();
  const q = sp.quantize(await readTensor(file, 'fc1.weight'));
  sp.compare(await readTensor(file, 'fc1.weight'), q);
  sp.castFloat(await readTensor(file, 'fc1.bias'), 'float16');
  sp.linear(await readQuantized(file, 'fc1.weight'));
  sp.quantize((await readFloats(file, 'fc1.weight')).data);
  const { table } = await loadTensors(file);
  if (table?.kind !== undefined) sp.dequantize(table);
  // @ts-expect-error codes are not floats
  sp.quantize(q);
}

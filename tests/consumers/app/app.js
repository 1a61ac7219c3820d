// What every environment runs: arrays, and a model with workers. Its numbers come from whole numbers, so all engines have the same.
import { load } from 'scalepoint';
import { loadTensors, quantizeModel, saveTensors } from 'scalepoint/model';

const shape = [96, 256];
const weights = Float32Array.from({ length: 96 * 256 }, (_, i) => ((i * 7919) % 2003) / 1024 - 1);

/** A safetensors file with one weight. */
function modelFile() {
  const tensor = { dtype: 'F32', shape, data_offsets: [0, weights.byteLength] };
  const header = new TextEncoder().encode(JSON.stringify({ 'a.weight': tensor }));
  const file = new Uint8Array(8 + header.length + weights.byteLength);
  new DataView(file.buffer).setUint32(0, header.length, true);
  file.set(header, 8);
  file.set(new Uint8Array(weights.buffer), 8 + header.length);
  return file;
}

/** The FNV-1a hash of some arrays. */
function hashOf(...arrays) {
  let hash = 0x811c9dc5;
  for (const { buffer, byteOffset, byteLength } of arrays) {
    for (const byte of new Uint8Array(buffer, byteOffset, byteLength)) hash = Math.imul(hash ^ byte, 0x01000193);
  }
  return (hash >>> 0).toString(16);
}

/** The hash of all results, and what the report notes about workers. */
export async function run(options = undefined) {
  const sp = await load(options);
  const granularity = { kind: 'per-group', groupSize: 32 };
  const q = sp.quantize(weights, { dtype: 'int4', shape, granularity, range: 'mse' });
  const { report, bytes } = await quantizeModel(modelFile(), { to: 'int8', workers: 2 });
  const { codes } = await loadTensors(await saveTensors({ codes: q }));
  const hash = hashOf(codes.data, codes.scale, await bytes());
  sp.dispose();
  return { hash, note: report.notes.find(({ kind }) => kind === 'noWorkers')?.text ?? '' };
}

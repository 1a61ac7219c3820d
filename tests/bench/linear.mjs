// Compares layers with the memory limit, with onnxruntime-web's operators with constant weights, and with plain JavaScript.
import { benchWeights, makeLimits, plain, race } from '../../dist/bench.js';
import { makeOrtLayers } from './peers.mjs';

/** For each kind of layer, its rivals among the sessions of `makeOrtLayers`, and the bits of a weight. */
const forms = {
  W8A8: { rivals: { int8: 'int8', integer: 'integer', f32: 'f32' }, bits: 8 },
  W8A32: { rivals: { f32: 'f32', int8: 'int8', nbits: 'nbits8' }, bits: 8 },
  'W4A8, groups of 32': { rivals: { nbits: 'nbits4', f32: 'f32' }, bits: 4 },
  'W4A32, groups of 32': { rivals: { nbits: 'nbits4', f32: 'f32' }, bits: 4 },
  'float32 weights': { rivals: { f32: 'f32' }, bits: 32 },
};

/**
 * Measures the layers.
 * @param {{ load: Function, ort?: object, report?: (row: object) => void,
 *   shapes?: [outputs: number, inputs: number, batch: number][] }} options
 * @returns {Promise<object[]>} rows like those of elementwise.mjs, where n is the number of multiplications
 */
export async function linear({
  load,
  ort,
  report = () => {},
  shapes = [
    [4096, 4096, 128],
    [4096, 4096, 1],
    [4096, 11008, 1],
    [256, 256, 1],
  ],
}) {
  const limits = await makeLimits();
  const rows = [];
  for (const [outputs, inputs, batch] of shapes) {
    const sp = await load();
    const shape = [outputs, inputs];
    const w = benchWeights(outputs * inputs);
    const x = benchWeights(batch * inputs).map((v) => 20 * v);
    const y = new Float32Array(batch * outputs);
    limits.prepare(outputs * inputs);
    const q8 = sp.quantize(w, { shape, granularity: { kind: 'per-channel', axis: 0 } });
    const q4 = sp.quantize(w, { dtype: 'int4', shape, granularity: { kind: 'per-group', groupSize: 32 } });
    const layers = {
      W8A8: sp.linear(q8, { activations: 'int8' }),
      W8A32: sp.linear(q8),
      'W4A8, groups of 32': sp.linear(q4, { activations: 'int8' }),
      'W4A32, groups of 32': sp.linear(q4),
      'float32 weights': sp.matmulFloat(w, { shape }),
    };
    const peers = ort && (await makeOrtLayers(ort, w, outputs, inputs));
    const contestants = peers ? peers.contestants(x) : {};
    for (const [name, layer] of Object.entries(layers)) contestants[name] = () => layer.forward(x, { out: y });
    for (const bits of [4, 8, 32]) contestants[`read ${bits}`] = () => limits.read((w.length * bits) / 32);
    // With many rows, plain JavaScript takes seconds.
    if (batch === 1) contestants.plain = plain.matvec.bind(undefined, w, x, y);
    const all = await race(contestants, { rounds: batch === 1 ? 15 : 5 });
    for (const [name, { rivals, bits }] of Object.entries(forms)) {
      const ours = all[name];
      const ms = { ours, limit: all[`read ${bits}`], ...(batch === 1 && { plain: all.plain }) };
      const ratios = { 'read limit': ours / ms.limit, ...(batch === 1 && { plain: ms.plain / ours }) };
      for (const [label, rival] of Object.entries(rivals)) {
        ms[label] = all[rival];
        ratios[`ort ${label}`] = all[rival] / ours;
      }
      const n = outputs * inputs * batch;
      ratios['GMAC/s'] = n / ours / 1e6;
      const row = { operation: `${name}, ${outputs} x ${inputs}${batch > 1 ? `, ${batch} rows` : ''}`, n, ms, ratios };
      rows.push(row);
      report(row);
    }
    await peers?.release();
    sp.dispose();
  }
  return rows;
}

// Compares range searches with quantizing by min-max and with plain JavaScript. They run in turns in one process. The library's data are in
// wasm memory.
import { benchWeights, race } from '../../dist/bench.js';

/** Number of scales that plain JavaScript tries: 0.52 to 1.14 times absmax / qmax in steps of 0.02. `range: 'mse'` tries more. */
const tried = 32;

/** For each run of `run` elements, finds the tried scale of least squared error and quantizes with it (symmetric). */
function plainSearch(x, run, qmax, codes, scales) {
  for (let start = 0; start < x.length; start += run) {
    const end = start + run;
    let largest = 0;
    for (let i = start; i < end; i++) largest = Math.max(largest, Math.abs(x[i]));
    let best = largest / qmax;
    let least = Infinity;
    for (let k = 0; k < tried; k++) {
      const scale = ((0.52 + 0.02 * k) * largest) / qmax;
      const inverse = 1 / scale;
      let sum = 0;
      for (let i = start; i < end; i++) {
        const code = Math.max(-qmax - 1, Math.min(Math.round(x[i] * inverse), qmax));
        const error = x[i] - code * scale;
        sum += error * error;
      }
      if (sum >= least) continue;
      least = sum;
      best = scale;
    }
    scales[start / run] = best;
    for (let i = start; i < end; i++) {
      codes[i] = Math.max(-qmax - 1, Math.min(Math.round(x[i] / best), qmax));
    }
  }
}

/**
 * Measures the range searches.
 * @param {{ load: Function, n?: number, report?: (row: object) => void }} options n: number of floats, a multiple of 4096
 * @returns {Promise<object[]>} rows like those of elementwise.mjs
 */
export async function ranges({ load, n = 1 << 20, report = () => {} }) {
  const sp = await load();
  const js = benchWeights(n);
  const x = sp.allocate('float32', n);
  x.view.set(js);
  const out = sp.allocate('int8', n);
  const plainCodes = new Int8Array(n);
  const rows = [];
  const add = (operation, ms) => {
    const ratios = { quantizes: ms.ours / ms.quantize, plain: ms.plain / ms.ours };
    const row = { operation, n, ms, ratios };
    rows.push(row);
    report(row);
  };
  const groups = { granularity: { kind: 'per-group', groupSize: 32 } };
  const rowsOf4096 = { shape: [n / 4096, 4096], granularity: { kind: 'per-channel', axis: 0 } };
  const searches = [
    ['mse, per tensor, int8', { dtype: 'int8' }, { run: n, qmax: 127 }],
    ['mse, per tensor, int4', { dtype: 'int4' }, { run: n, qmax: 7 }],
    ['mse, per tensor, int4, asymmetric', { dtype: 'int4', scheme: 'asymmetric' }],
    ['mse, rows of 4096, int8', { dtype: 'int8', ...rowsOf4096 }, { run: 4096, qmax: 127 }],
    ['mse, groups of 32, int4', { dtype: 'int4', ...groups }, { run: 32, qmax: 7 }],
    ['mse, groups of 32, int4, asymmetric', { dtype: 'int4', scheme: 'asymmetric', ...groups }],
    ['percentile, per tensor, int8', { dtype: 'int8', range: { percentile: 99.9 } }],
    ['entropy, per tensor, int8', { dtype: 'int8', range: 'entropy' }],
  ];
  for (const [operation, options, plain] of searches) {
    const runs = plain === undefined ? 1 : n / plain.run;
    const results = { data: out, scale: new Float32Array(n / 32), zeroPoint: new Int32Array(n / 32) };
    const to = options.granularity?.kind === 'per-group' ? results : out;
    const { range = 'mse', ...quantize } = options;
    const contestants = {
      ours: () => sp.quantize(x, { ...quantize, range, out: to }),
      quantize: () => sp.quantize(x, { ...quantize, out: to }),
    };
    if (plain !== undefined) {
      contestants.plain = plainSearch.bind(undefined, js, plain.run, plain.qmax, plainCodes, new Float32Array(runs));
    }
    add(operation, await race(contestants, { rounds: 7 }));
  }
  const bytes = sp.allocate('uint8', n);
  const scales = { blockSize: 16, absmaxType: 'int8', out: bytes };
  for (const [operation, codebook] of [
    ['mse, nf4 in blocks of 16', 'nf4'],
    ['mse, 16 learned codes in blocks of 16', { learn: 16 }],
  ]) {
    const ms = await race(
      {
        ours: () => sp.quantizeCodebook(x, { codebook, range: 'mse', ...scales }),
        quantize: () => sp.quantizeCodebook(x, { codebook, ...scales }),
      },
      { rounds: 7 },
    );
    add(operation, ms);
  }
  sp.dispose();
  return rows;
}

// Compares float casts and codebooks with plain JavaScript. They run in turns in one process. The library's data are in wasm memory.
import { benchWeights, race } from '../../dist/bench.js';

/** Casts float32 to float8e4m3fn with the integer arithmetic that a developer would write. */
function plainFloat8(x, bits) {
  const words = new Uint32Array(x.buffer, x.byteOffset, x.length);
  for (let i = 0; i < x.length; i++) {
    const size = words[i] & 0x7fffffff;
    const normal = (size - 0x3c000000 + 0x7ffff + ((size >> 20) & 1)) >> 20;
    const code = size < 0x3c800000 ? Math.round(Math.abs(x[i]) * 512) : Math.min(normal, 0x7e);
    bits[i] = code | ((words[i] >>> 24) & 0x80);
  }
}

/** Casts float8e4m3fn to float32 with a table. */
function plainFloat8Values(bits, table, x) {
  for (let i = 0; i < x.length; i++) x[i] = table[bits[i]];
}

/** Quantizes to nf4 by a binary search among the midpoints between its values, like the decision trees of bitsandbytes. */
function plainNf4(x, bounds, blockSize, absmax, codes) {
  for (let block = 0; block * blockSize < x.length; block++) {
    const end = Math.min(x.length, (block + 1) * blockSize);
    let largest = 0;
    for (let i = block * blockSize; i < end; i++) largest = Math.max(largest, Math.abs(x[i]));
    absmax[block] = largest;
    const inverse = largest === 0 ? 0 : Math.fround(1 / largest);
    for (let i = block * blockSize; i < end; i++) {
      const v = Math.fround(x[i] * inverse);
      let code = v > bounds[7] ? 8 : 0;
      if (v > bounds[code + 3]) code += 4;
      if (v > bounds[code + 1]) code += 2;
      if (v > bounds[code]) code += 1;
      codes[i] = code;
    }
  }
}

/** Dequantizes a codebook. */
function plainRestore({ codebook, absmax, blockSize }, codes, x) {
  for (let i = 0; i < x.length; i++) x[i] = codebook[codes[i]] * absmax[Math.floor(i / blockSize)];
}

/**
 * Measures the casts and the codebooks.
 * @param {{ load: Function, n?: number, report?: (row: object) => void }} options n: number of floats
 * @returns {Promise<object[]>} rows like those of elementwise.mjs
 */
export async function codes({ load, n = 1 << 20, report = () => {} }) {
  const sp = await load();
  const js = benchWeights(n);
  const x = sp.allocate('float32', n);
  const y = sp.allocate('float32', n);
  const bytes = sp.allocate('uint8', n);
  const halves = sp.allocate('uint16', n);
  x.view.set(js);
  const plainBytes = new Uint8Array(n);
  const plainFloats = new Float32Array(n);
  const rows = [];
  const add = (operation, ms, ratios = {}) => {
    const row = { operation, n, ms, ratios: { plain: ms.plain / ms.ours, ...ratios } };
    rows.push(row);
    report(row);
  };

  add('cast to float16', await race({ ours: () => sp.castFloat(x, 'float16', { out: halves }) }));
  add('cast from float16', await race({ ours: () => sp.castToFloat32(halves, 'float16', { out: y }) }));
  add(
    'cast to float8e4m3fn',
    await race({
      ours: () => sp.castFloat(x, 'float8e4m3fn', { out: bytes }),
      plain: () => plainFloat8(js, plainBytes),
    }),
  );
  const table = sp.castToFloat32(
    Uint8Array.from({ length: 256 }, (_, i) => i),
    'float8e4m3fn',
  );
  add(
    'cast from float8e4m3fn',
    await race({
      ours: () => sp.castToFloat32(bytes, 'float8e4m3fn', { out: y }),
      plain: () => plainFloat8Values(plainBytes, table, plainFloats),
    }),
  );

  const q = sp.quantizeCodebook(x, { codebook: 'nf4', out: bytes });
  const bounds = q.codebook.slice(0, 15).map((value, i) => (value + q.codebook[i + 1]) / 2);
  const absmax = new Float32Array(Math.ceil(n / 64));
  add(
    'nf4, blocks of 64',
    await race({
      ours: () => sp.quantizeCodebook(x, { codebook: 'nf4', out: bytes }),
      js: () => sp.quantizeCodebook(js, { codebook: 'nf4', out: plainBytes }),
      plain: () => plainNf4(js, bounds, 64, absmax, plainBytes),
    }),
  );
  const plainTensor = { ...q, absmax };
  add(
    'dequantize nf4',
    await race({
      ours: () => sp.dequantize(q, { out: y }),
      plain: () => plainRestore(plainTensor, plainBytes, plainFloats),
    }),
  );
  add(
    'learn 16 values, per tensor',
    await race({ ours: () => sp.quantizeCodebook(x, { codebook: { learn: 16 }, blockSize: n, out: bytes }) }),
  );
  add(
    'learn 256 values, per tensor',
    await race({ ours: () => sp.quantizeCodebook(x, { codebook: { learn: 256 }, blockSize: n, out: bytes }) }),
  );
  sp.dispose();
  return rows;
}

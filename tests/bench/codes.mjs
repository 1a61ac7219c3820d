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

function plainPack4(codes, bytes) {
  for (let i = 0; i < bytes.length; i++) bytes[i] = (codes[2 * i] & 15) | (codes[2 * i + 1] << 4);
}

function plainUnpack4(bytes, codes) {
  for (let i = 0; i < bytes.length; i++) {
    codes[2 * i] = (bytes[i] << 28) >> 28;
    codes[2 * i + 1] = (bytes[i] << 24) >> 28;
  }
}

/** Eight codes of 3 bits in three bytes. */
function plainPack3(codes, bytes) {
  for (let i = 0, at = 0; at < bytes.length; i += 8, at += 3) {
    let word = 0;
    for (let k = 0; k < 8; k++) word |= (codes[i + k] & 7) << (3 * k);
    bytes[at] = word;
    bytes[at + 1] = word >> 8;
    bytes[at + 2] = word >> 16;
  }
}

function plainUnpack3(bytes, codes) {
  for (let i = 0, at = 0; at < bytes.length; i += 8, at += 3) {
    const word = bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16);
    for (let k = 0; k < 8; k++) codes[i + k] = (word << (29 - 3 * k)) >> 29;
  }
}

/**
 * The copies that pack and unpack need: into wasm memory and out of it into a fresh array, in tiles as in web/src/core/memory.ts.
 * @param {Uint8Array} from
 * @param {number} size of the result, in bytes
 * @param {Uint8Array} tile wasm memory, 2^17 bytes
 */
function copyThrough(from, size, tile) {
  const to = new Uint8Array(size);
  // One side has a byte for each code, and the other less.
  const steps = Math.max(from.length, size) / tile.length;
  for (let i = 0; i < steps; i++) {
    const [start, end] = [(i * from.length) / steps, ((i + 1) * from.length) / steps];
    tile.set(from.subarray(start, end));
    to.set(tile.subarray(0, size / steps), (i * size) / steps);
  }
  return to;
}

/** Measures packing n codes, a multiple of 2^17. */
async function packing(sp, n, add) {
  const tile = sp.allocate('uint8', 1 << 17);
  for (const [bits, plainPack, plainUnpack] of [
    [3, plainPack3, plainUnpack3],
    [4, plainPack4, plainUnpack4],
  ]) {
    const dtype = `int${bits}`;
    const q = sp.quantize(benchWeights(n), { dtype });
    const inMemory = sp.allocate('int8', n);
    inMemory.view.set(q.data);
    const packed = sp.pack(q);
    const [bytes, codes] = [new Uint8Array(packed.length), new Int8Array(n)];
    const from = new Uint8Array(q.data.buffer);
    const ratios = (ms) => ({ copies: ms.ours / ms.copies });
    let ms = await race({
      ours: () => sp.pack(q),
      memory: () => sp.pack({ ...q, data: inMemory }),
      copies: () => copyThrough(from, packed.length, tile.view),
      plain: plainPack.bind(undefined, q.data, bytes),
    });
    add(`pack ${dtype}`, ms, ratios(ms), n);
    ms = await race({
      ours: () => sp.unpack(packed, q),
      copies: () => copyThrough(packed, n, tile.view),
      plain: plainUnpack.bind(undefined, packed, codes),
    });
    add(`unpack ${dtype}`, ms, ratios(ms), n);
    const granularity = { kind: 'per-group', groupSize: 32 };
    const x = benchWeights(n);
    ms = await race({
      ours: () => sp.quantize(x, { dtype, granularity, packed: true }),
      calls: () => sp.pack(sp.quantize(x, { dtype, granularity })),
    });
    add(`quantize to packed ${dtype}, groups of 32`, ms, { calls: ms.calls / ms.ours }, n);
    inMemory.dispose();
  }
  tile.dispose();
}

/** Measures an index of 2^17 vectors that are codes already, and reading it, against a copy of the codes. */
async function indexing(sp, add) {
  const shape = [1 << 17, 128];
  const n = shape[0] * shape[1];
  const q = sp.quantize(benchWeights(n), { dtype: 'int8', granularity: { kind: 'per-channel', axis: 0 }, shape });
  const copies = () => {
    const to = new Int8Array(n);
    to.set(q.data);
    return to;
  };
  const index = sp.index(q);
  const ratios = (ms) => ({ copies: ms.ours / ms.copies });
  let ms = await race({ ours: () => sp.index(q).dispose(), copies });
  add('index of int8 codes, 128 columns', ms, ratios(ms), n);
  ms = await race({ ours: () => index.tensor(), copies });
  add('codes of an index, 128 columns', ms, ratios(ms), n);
  index.dispose();
}

/**
 * Measures the casts, the codebooks, the packing of codes, and indexes of codes.
 * @param {{ load: Function, n?: number, report?: (row: object) => void }} options n: number of floats; the codes to pack are as many,
 *   and then 2^24, as are those of an index
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
  const add = (operation, ms, ratios = {}, size = n) => {
    const row = { operation, n: size, ms, ratios: { plain: ms.plain / ms.ours, ...ratios } };
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
  for (const array of [x, y, bytes, halves]) array.dispose();
  for (const size of [n, 1 << 24]) await packing(sp, size, add);
  await indexing(sp, add);
  sp.dispose();
  return rows;
}

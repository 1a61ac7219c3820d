// Measures how fast model files on disk are quantized, with one and with two workers.
//
//   node tests/bench/models.mjs [--mebi-weights 128] [--rounds 5] [--folder /dev/shm] [--only bfloat16]
//
// The files are made in the folder, which is the temporary one unless given, and removed afterwards. In a folder that is in memory no disk
// has a share in the times. One and two workers take turns; the results are medians. `--only` names the input.
import { closeSync, mkdtempSync, openSync, rmSync, statSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { planModel, quantizeModel } from '../../dist/model.js';

/** Normal values with standard deviation 0.02 from a seeded generator. */
function normal(n) {
  const x = new Float32Array(n);
  let seed = 1;
  const uniform = () => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return (seed + 0.5) / 2 ** 32;
  };
  for (let i = 0; i < n; i += 2) {
    const radius = 0.02 * Math.sqrt(-2 * Math.log(uniform()));
    const angle = 2 * Math.PI * uniform();
    x[i] = radius * Math.cos(angle);
    x[i + 1] = radius * Math.sin(angle);
  }
  return x;
}

/** The same weights as the upper halves of their bits, rounded. */
const bfloat16 = (x) => Uint16Array.from(new Uint32Array(x.buffer), (bits) => (bits + 0x8000) >>> 16);

/** Writes the header and the bytes of the weights. The same 4 Mi weights are repeated. */
function writeModel(path, header, bytes, weights = normal(2 ** 22)) {
  const file = openSync(path, 'w');
  writeSync(file, header);
  const piece = new Uint8Array(weights.buffer);
  for (let done = 0; done < bytes; done += piece.length)
    writeSync(file, piece, 0, Math.min(piece.length, bytes - done));
  closeSync(file);
}

const rowLength = 4096;
const matrices = 8;

function safetensorsHeader(rows, dtype = 'F32', elementBytes = 4) {
  const entries = {};
  for (let i = 0; i < matrices; i++) {
    const size = rows * rowLength * elementBytes;
    entries[`layers.${i}.weight`] = {
      dtype,
      shape: [rows, rowLength],
      data_offsets: [i * size, (i + 1) * size],
    };
  }
  const json = Buffer.from(JSON.stringify(entries));
  const padded = Buffer.concat([json, Buffer.alloc(-json.length & 7, ' ')]);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.length));
  return Buffer.concat([length, padded]);
}

function ggufHeader(rows) {
  const parts = [];
  const u32 = (v) => parts.push(Buffer.from(Uint32Array.of(v).buffer));
  const u64 = (v) => parts.push(Buffer.from(BigUint64Array.of(BigInt(v)).buffer));
  const text = (v) => {
    u64(v.length);
    parts.push(Buffer.from(v));
  };
  parts.push(Buffer.from('GGUF'));
  u32(3);
  u64(matrices);
  u64(2);
  text('general.architecture');
  u32(8);
  text('llama');
  text('llama.block_count');
  u32(4);
  u32(matrices);
  for (let i = 0; i < matrices; i++) {
    text(`blk.${i}.ffn_up.weight`);
    u32(2);
    u64(rowLength);
    u64(rows);
    u32(0);
    u64(i * rows * rowLength * 4);
  }
  const header = Buffer.concat(parts);
  return Buffer.concat([header, Buffer.alloc(-header.length & 31)]);
}

/**
 * Makes a file of each format, quantizes it to several targets, prints a table and returns its rows.
 * @param {{ weights?: number, rounds?: number, parent?: string, only?: string }} [options] weights: a multiple of 32768
 */
export async function models({ weights = 2 ** 27, rounds = 5, parent = tmpdir(), only } = {}) {
  const rows = weights / matrices / rowLength;
  const folder = mkdtempSync(join(parent, 'scalepoint-bench-'));
  const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
  try {
    const inputs = {
      safetensors: join(folder, 'model.safetensors'),
      bfloat16: join(folder, 'model.bf16.safetensors'),
      gguf: join(folder, 'model.gguf'),
    };
    writeModel(inputs.safetensors, safetensorsHeader(rows), weights * 4);
    writeModel(inputs.bfloat16, safetensorsHeader(rows, 'BF16', 2), weights * 2, bfloat16(normal(2 ** 22)));
    writeModel(inputs.gguf, ggufHeader(rows), weights * 4);
    console.log(
      `${weights / 2 ** 20} Mi weights, ${(statSync(inputs.gguf).size / 1e6).toFixed(0)} MB in F32, file to file\n`,
    );
    const cases = [
      ['safetensors', { to: 'int8' }],
      ['safetensors', { to: 'int4' }],
      ['safetensors', { to: 'bfloat16' }],
      ['bfloat16', { to: 'int8' }],
      ['bfloat16', { to: 'int8', packed: false }, 'int8 plain'],
      ['bfloat16', { to: 'int4' }],
      ['bfloat16', { to: 'int4', range: 'mse' }, 'int4 mse'],
      ['bfloat16', { to: 'float16' }],
      ...['Q8_0', 'Q4_0', 'Q4_K_S', 'Q5_K_S', 'Q6_K', 'Q2_K', 'Q3_K_S', 'IQ4_NL'].map((to) => ['gguf', { to }]),
    ];
    const results = [];
    console.log('format       target     1 worker, s   2 workers, s   gain   M weights/s');
    for (const [format, what, label = what.to] of cases.filter(([format]) => only === undefined || only === format)) {
      await planModel(inputs[format], what);
      const times = { 1: [], 2: [] };
      for (let round = 0; round < rounds; round++) {
        for (const workers of [1, 2]) {
          const start = performance.now();
          await quantizeModel(inputs[format], { ...what, workers, output: join(folder, 'out'), overwrite: true });
          times[workers].push((performance.now() - start) / 1000);
        }
      }
      const [one, two] = [median(times[1]), median(times[2])];
      results.push({ format, to: label, weights, oneWorker: one, twoWorkers: two });
      console.log(
        `${format.padEnd(12)} ${label.padEnd(10)} ${one.toFixed(2).padStart(11)} ${two.toFixed(2).padStart(14)} ${(one / two).toFixed(2).padStart(6)} ${(weights / two / 1e6).toFixed(0).padStart(13)}`,
      );
    }
    return results;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (process.argv[1]?.endsWith('models.mjs')) {
  const { values } = parseArgs({
    options: {
      'mebi-weights': { type: 'string', default: '128' },
      rounds: { type: 'string', default: '5' },
      folder: { type: 'string', default: tmpdir() },
      only: { type: 'string' },
    },
  });
  const { 'mebi-weights': mebi, rounds, folder: parent, only } = values;
  await models({ weights: Number(mebi) * 2 ** 20, rounds: Number(rounds), parent, only });
}

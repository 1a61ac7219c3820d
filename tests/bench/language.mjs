// Compares the forward pass of a language model with its products alone, and measures second moments and GPTQ (Node only).
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeMadeLlama } from './made-llama.mjs';

/**
 * The shortest time of a few runs, in milliseconds.
 * @param {() => unknown} run
 */
async function shortest(run, rounds = 3) {
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < rounds; i++) {
    const start = performance.now();
    await run();
    best = Math.min(best, performance.now() - start);
  }
  return best;
}

const ids = (/** @type {number} */ n) =>
  Uint32Array.from({ length: n }, (_, i) => 3 + ((i * i * 37 + i * 11 + 5) % 500));

/** Milliseconds that the products of all layers take for some tokens, 64 rows at a time. */
async function productsAlone(load, { layers, hidden, inner, heads, keyHeads }, tokens) {
  const sp = await load();
  const keys = (keyHeads * hidden) / heads;
  let all = 0;
  for (const [outputs, inputs] of [
    [hidden + 2 * keys, hidden],
    [hidden, hidden],
    [2 * inner, hidden],
    [hidden, inner],
  ]) {
    const layer = sp.matmulFloat(new Float32Array(outputs * inputs).fill(0.01), { shape: [outputs, inputs] });
    const x = sp.allocate('float32', 64 * inputs);
    x.view.fill(0.5);
    const out = sp.allocate('float32', 64 * outputs);
    all += await shortest(() => {
      for (let row = 0; row < tokens; row += 64) layer.forward(x, { batch: 64, out });
    });
  }
  sp.dispose();
  return layers * all;
}

/**
 * Measures in the calling thread.
 * @param {{ load: Function, calibrateModel: Function, quantizeModel: Function, report?: (row: object) => void }} options
 * @returns {Promise<object[]>} rows like those of elementwise.mjs, where n is the number of multiplications
 */
export async function language({ load, calibrateModel, quantizeModel, report = () => {} }) {
  const folder = mkdtempSync(join(tmpdir(), 'scalepoint-language-'));
  const rows = [];
  const add = (row) => {
    rows.push(row);
    report(row);
  };
  try {
    // The forward pass, with the reading of weights and the sums of importance.
    const sizes = { layers: 2, hidden: 1024, inner: 2816, heads: 16, keyHeads: 4, vocabulary: 512 };
    const tokens = 2048;
    await writeMadeLlama(folder, sizes);
    const run = (more) => calibrateModel(folder, ids(tokens), { workers: 0, ...more });
    const [forward, products] = [await shortest(() => run({})), await productsAlone(load, sizes, tokens)];
    const { layers, hidden, inner } = sizes;
    const keys = (sizes.keyHeads * hidden) / sizes.heads;
    const n = layers * tokens * hidden * (2 * hidden + 2 * keys + 3 * inner);
    const ratios = { 'products / forward': products / forward, 'GMAC/s': n / forward / 1e6 };
    add({ operation: `forward, ${hidden} wide`, n, ms: { ours: forward, products }, ratios });

    // Second moments.
    const moments = (await shortest(() => run({ moments: true, mix: 0 }))) - forward;
    const pairs = layers * tokens * ((3 * hidden * (hidden + 1)) / 2 + (inner * (inner + 1)) / 2);
    add({ operation: 'moments', n: pairs, ms: { ours: moments }, ratios: { 'GMAC/s': pairs / moments / 1e6 } });

    // Factorization and updates of one matrix: GPTQ without what rounding to nearest takes.
    const square = 2048;
    await writeMadeLlama(folder, { ...sizes, layers: 1, hidden: square, inner: square, keyHeads: 16 });
    const data = await calibrateModel(folder, ids(512), { workers: 0, moments: true, mix: 0 });
    const file = await (await quantizeModel(folder, { to: 'F32', missingBytes: 'keep', workers: 0 })).bytes();
    const rules = [
      { match: 'attn_output', to: 'Q4_0' },
      { match: '.*', to: 'F32' },
    ];
    const quantize = (more) => quantizeModel(file, { to: 'Q4_0', rules, workers: 0, ...more });
    const importance = new Blob([await data.bytes()]);
    const plain = await shortest(() => quantize({ importance }));
    const gptq = (await shortest(() => quantize({ method: 'gptq', moments: data }))) - plain;
    add({
      operation: `GPTQ, ${square} x ${square}`,
      n: square ** 3,
      ms: { ours: gptq, plain },
      ratios: { seconds: gptq / 1e3 },
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
  return rows;
}

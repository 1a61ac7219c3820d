// Collects importance with a made language model of the sizes of Llama 3.2 1B in bfloat16. Prints the time and the most memory of the process.
//
//   npm run build && node tests/bench/big-language.mjs [--tokens 2048] [--workers 2] [--moments]
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { calibrateModel } from '../../dist/model.js';
import { writeMadeLlama } from './made-llama.mjs';

const { values: options } = parseArgs({
  options: {
    tokens: { type: 'string', default: '2048' },
    workers: { type: 'string', default: '2' },
    moments: { type: 'boolean', default: false },
  },
});
const folder = mkdtempSync(join(tmpdir(), 'scalepoint-language-'));
const sizes = { layers: 16, hidden: 2048, inner: 8192, heads: 32, keyHeads: 8, vocabulary: 128_256 };

/** The most memory of this process so far. Linux only. */
function peakBytes() {
  const peak = /^VmHWM:\s*(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'latin1'))?.[1];
  return Number(peak ?? Number.NaN) * 1024;
}

try {
  await writeMadeLlama(folder, sizes);
  const tokens = Number(options.tokens);
  const ids = Uint32Array.from({ length: tokens }, (_, i) => (i * i * 37 + i * 11 + 5) % sizes.vocabulary);
  const before = peakBytes();
  const start = performance.now();
  const statistics = await calibrateModel(folder, ids, {
    workers: Number(options.workers),
    moments: options.moments,
    output: join(folder, 'imatrix.gguf'),
    onProgress: ({ pass, passes, done, total }) => {
      if (done < total || pass % 4 > 0) return;
      console.log(`${pass} of ${passes} layers after ${((performance.now() - start) / 1000).toFixed(0)} s`);
    },
  });
  const seconds = (performance.now() - start) / 1000;
  const rate = (statistics.tokens / seconds).toFixed(1);
  const peak = peakBytes();
  console.log(
    `${statistics.tokens} tokens, ${options.workers} workers: ${seconds.toFixed(0)} s, ${rate} tokens/s, peak memory ` +
      `${(peak / 1e6).toFixed(0)} MB (${(before / 1e6).toFixed(0)} MB before)`,
  );
} finally {
  rmSync(folder, { recursive: true });
}

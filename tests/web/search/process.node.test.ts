// A process of Node with an index whose workers nobody disposes of.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { hangLimit } from '../../../scripts/chromium.mjs';

it('ends when its searches have ended', async () => {
  const code = `
    const { load } = await import(${JSON.stringify(new URL('../../../dist/index.js', import.meta.url).href)});
    const sp = await load();
    const x = Float32Array.from({ length: 800 }, (_, i) => Math.sin(i * i));
    const index = sp.index(x, { shape: [100, 8], bits: 4 });
    const [{ ids }] = await index.searchMany(x.slice(0, 8), 3, { workers: 2 });
    console.log(ids.length);`;
  // The limit ends a process that would go on.
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', code], {
    timeout: hangLimit,
  });
  expect(stdout).toBe('3\n');
});

// Messages of `load` where the wasm file is not found, for the messages of each engine.
import { load } from 'scalepoint';
import { expect, it } from 'vitest';

it.each([
  ['Node, bundled', "ENOENT: no such file or directory, open '/app/core-simd.wasm'"],
  ['Next, route handler', 'Failed to parse URL from /_next/static/media/core-simd.wasm'],
  ['workers', 'Invalid URL string.'],
  ['Node', 'fetch failed'],
  ['Chromium', 'Failed to fetch'],
  ['Firefox', 'NetworkError when attempting to fetch resource.'],
  ['Safari', 'Load failed'],
])('says what to do in %s', async (_where, message) => {
  const wasm = () => Promise.reject(new TypeError(message));
  const error = await load({ wasm }).catch((reason: unknown) => reason);
  expect(error).toMatchObject({ code: 'WASM_LOAD' });
  expect((error as Error).message).toContain(message);
  for (const advice of ['optimizeDeps', 'leave scalepoint out of the bundle', 'load({ wasm })', 'scalepoint/inline']) {
    expect((error as Error).message).toContain(advice);
  }
});

it('gives no such advice for other errors', async () => {
  const error = await load({ wasm: () => Promise.reject(new Error('no')) }).catch((reason: unknown) => reason);
  expect((error as Error).message).toBe('the wasm core could not be loaded: no');
});

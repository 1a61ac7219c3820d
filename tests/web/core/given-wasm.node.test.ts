// The wasm file that `load` was given, where the package cannot find its own, as in Cloudflare Workers.
import type * as index from 'scalepoint';
import type * as models from 'scalepoint/model';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { rejectionOf, safetensors, weights } from '../support/models.js';
import { arraysFiles, readBytes, wasmFiles } from '../support/support.js';

const model = safetensors({ 'a.weight': weights('F32', [8, 128]) });
const large = await WebAssembly.compile(await readBytes(wasmFiles.simd));
const small = await WebAssembly.compile(await readBytes(arraysFiles.simd));

/** The package, as it is before the first call. */
async function fresh(): Promise<typeof index & typeof models> {
  vi.resetModules();
  vi.doMock('../../../web/src/core/own-wasm.js', () => ({
    ownWasm: () => Promise.reject(new TypeError('Invalid URL string')),
  }));
  const [arrays, model] = await Promise.all([import('scalepoint'), import('scalepoint/model')]);
  return { ...arrays, ...model } as typeof index & typeof models;
}

beforeEach(() => void vi.stubGlobal('navigator', { userAgent: 'Cloudflare-Workers' }));
afterEach(() => void vi.unstubAllGlobals());

it('is the one of later calls, those of model files included', async () => {
  const { load, loadTensors, quantizeModel, saveTensors } = await fresh();
  const sp = await load({ wasm: large });
  const q = sp.quantize([1, 2]);
  expect((await load()).simd).toBe(true);
  expect((await load({ blocks: true })).blocks).toBe(true);
  expect(await loadTensors(await saveTensors({ q }))).toEqual({ q });
  const { report } = await quantizeModel(model, { to: 'int8', workers: 0 });
  expect(report.totals.quantized).toBe(1);
});

it('is the one of calls on arrays alone, if it is the small module', async () => {
  const { load, quantizeModel, saveTensors } = await fresh();
  const sp = await load({ wasm: small });
  expect((await load()).blocks).toBe(false);
  expect(await saveTensors({ q: sp.quantize([1]) })).toBeInstanceOf(Uint8Array);
  expect(await rejectionOf(quantizeModel(model, { to: 'int8', workers: 0 }))).toMatchObject({ code: 'WASM_LOAD' });
});

it('comes from the function for each module, once', async () => {
  const { load, quantizeModel } = await fresh();
  const asked: string[] = [];
  const wasm = (tier: string, module: string) => {
    asked.push(`${module} ${tier}`);
    return module === 'arrays' ? small : large;
  };
  await load({ wasm });
  await load();
  await quantizeModel(model, { to: 'int8', workers: 0 });
  await quantizeModel(model, { to: 'int8', workers: 0 });
  expect(asked).toEqual(['arrays simd', 'core simd']);
});

it('is not kept if it does not fit', async () => {
  const { load } = await fresh();
  expect(await rejectionOf(load({ wasm: small, blocks: true }))).toMatchObject({ code: 'WASM_LOAD' });
  expect(await rejectionOf(load())).toMatchObject({ code: 'WASM_LOAD' });
});

it('is what errors advise in Cloudflare Workers', async () => {
  const { load, saveTensors } = await fresh();
  for (const call of [() => load(), () => saveTensors({}), () => load({ wasm: new Uint8Array(9) })]) {
    const error = await rejectionOf(call());
    expect(error).toMatchObject({
      code: 'WASM_LOAD',
      message: expect.stringContaining("import wasm from 'scalepoint/core-simd.wasm'"),
    });
    expect(String(error)).not.toMatch(/Vite/);
  }
  // Workers refuse to compile bytes, such as those of scalepoint/inline.
  const refusal = new WebAssembly.CompileError('Wasm code generation disallowed by embedder');
  vi.spyOn(WebAssembly, 'compile').mockRejectedValueOnce(refusal);
  const bytes = await readBytes(wasmFiles.simd);
  expect(await rejectionOf(load({ wasm: bytes }))).toMatchObject({
    message: expect.stringContaining('load({ wasm })'),
  });
  vi.unstubAllGlobals();
  expect(await rejectionOf(load())).toMatchObject({ message: expect.stringContaining('Vite') });
});

// Loading the core, and the end of an instance.
import { type LoadOptions, load, type Scalepoint, ScalepointError } from 'scalepoint';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { buildId } from '../../../web/src/core/core.mjs';
import {
  expectCode,
  expected,
  expectGood,
  expectRefusal,
  expectSame,
  Random,
  readBytes,
  wasmFiles,
} from '../support/support.js';

/** The error of load. */
async function refusedLoad(options: unknown): Promise<unknown> {
  return load(options as LoadOptions).then(
    () => expect.fail('it loaded'),
    (error: unknown) => error,
  );
}

async function refusedWith(options: unknown, code: string): Promise<ScalepointError> {
  const error = await refusedLoad(options);
  expect(error).toBeInstanceOf(ScalepointError);
  expect((error as ScalepointError).code).toBe(code);
  return error as ScalepointError;
}

const html = new TextEncoder().encode('<!doctype html><html><body>Not found</body></html>');
/** A module without anything in it, and one with one empty function. */
const emptyModule = new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]);
const otherModule = new Uint8Array([
  ...emptyModule,
  1,
  4,
  1,
  0x60,
  0,
  0,
  3,
  2,
  1,
  0,
  7,
  8,
  1,
  4,
  0x6d,
  0x61,
  0x69,
  0x6e,
  0,
  0,
  0x0a,
  4,
  1,
  2,
  0,
  0x0b,
]);

const bytes = { simd: new Uint8Array(), scalar: new Uint8Array() } as Record<
  'simd' | 'scalar',
  Uint8Array<ArrayBuffer>
>;
beforeAll(async () => {
  bytes.simd = await readBytes(wasmFiles.simd);
  bytes.scalar = await readBytes(wasmFiles.scalar);
});

function response(body: Uint8Array<ArrayBuffer>, type?: string, status = 200): Response {
  return new Response(body, { status, headers: type === undefined ? {} : { 'content-type': type } });
}

describe('load', () => {
  it('takes the SIMD build where the engine has SIMD, as these engines do', async () => {
    expect((await load()).simd).toBe(true);
    expect((await load({ simd: 'auto' })).simd).toBe(true);
    expect((await load({ simd: 'on' })).simd).toBe(true);
    expect((await load({ simd: 'off' })).simd).toBe(false);
  });

  it('says its version', async () => {
    expect((await load()).version).toMatch(/^\d+\.\d+\.\d+/);
  });

  it('makes instances that share nothing', async () => {
    const [a, b] = await Promise.all([load(), load()]);
    const array = a!.allocate('float32', 4);
    array.view.set([1, 2, 3, 4]);
    expectRefusal(() => b!.quantize(array), TypeError, 'x');
    expectRefusal(() => b!.quantize([1, 2, 3, 4], { out: a!.allocate('int8', 4) }), TypeError, 'out');
    const q = a!.quantize(array, { out: a!.allocate('int8', 4) });
    expectRefusal(() => b!.dequantize(q), TypeError, 'q.data');
    expectRefusal(() => b!.compare(array, q), TypeError, 'a');
    expectRefusal(() => b!.compare([1, 2, 3, 4], q), TypeError, 'b.data');
    a!.dispose();
    expectGood(b!);
  });

  it('compiles the file once for all instances', async () => {
    await load();
    const compile = vi.spyOn(WebAssembly, 'compile');
    const compileStreaming = vi.spyOn(WebAssembly, 'compileStreaming');
    try {
      for (const sp of await Promise.all([load(), load(), load({ signal: new AbortController().signal })])) {
        expectGood(sp);
        sp.dispose();
      }
      expect([compile.mock.calls, compileStreaming.mock.calls]).toEqual([[], []]);
    } finally {
      compile.mockRestore();
      compileStreaming.mockRestore();
    }
  });

  it('stops waiting when a signal aborts', async () => {
    const reason = new Error('the page was left');
    const before = AbortSignal.abort(reason);
    expect(await refusedLoad({ signal: before })).toBe(reason);
    const controller = new AbortController();
    const never = refusedLoad({ wasm: () => new Promise(() => {}), signal: controller.signal });
    controller.abort(reason);
    expect(await never).toBe(reason);
    // While the file of the package is on its way, others wait for the same one.
    const second = new AbortController();
    const [stopped, other] = [refusedLoad({ simd: 'off', signal: second.signal }), load({ simd: 'off' })];
    second.abort(reason);
    expect(await stopped).toBe(reason);
    expectGood(await other);
    const third = new AbortController();
    const loaded = await load({ signal: third.signal });
    third.abort(reason);
    expectGood(loaded);
    const wrong = await refusedLoad({ signal: {} });
    expect(wrong).toBeInstanceOf(TypeError);
    expect(wrong).toMatchObject({ option: 'signal' });
  });

  it('loads many instances at the same time', async () => {
    const options: LoadOptions[] = [
      {},
      { simd: 'on' },
      { simd: 'off' },
      { wasm: bytes.simd },
      { wasm: bytes.scalar },
      {},
    ];
    for (const sp of await Promise.all(options.map((o) => load(o)))) expectGood(sp);
  });

  it('takes the file as a URL, as text, as bytes, as a module, as a response and from a function', async () => {
    const module = await WebAssembly.compile(bytes.scalar);
    const padded = new Uint8Array(bytes.scalar.length + 9);
    padded.set(bytes.scalar, 5);
    const sources: Record<string, LoadOptions['wasm']> = {
      'a URL': wasmFiles.scalar,
      text: wasmFiles.scalar.href,
      'a Uint8Array': bytes.scalar,
      'an ArrayBuffer': bytes.scalar.slice().buffer,
      'a DataView': new DataView(bytes.scalar.buffer),
      'a part of a buffer': padded.subarray(5, 5 + bytes.scalar.length),
      'a module': module,
      'the same module': module,
      'a response': response(bytes.scalar, 'application/wasm'),
      'a response with parameters in its type': response(bytes.scalar, 'application/wasm; charset=binary'),
      'a response of a wrong type': response(bytes.scalar, 'application/octet-stream'),
      'a response that is called text': response(bytes.scalar, 'text/plain'),
      'a response without a type': response(bytes.scalar),
      'a function': () => bytes.scalar,
      'a function that takes its time': async () => {
        await new Promise((resolve) => setTimeout(resolve, 5));
        return module;
      },
    };
    for (const [kind, wasm] of Object.entries(sources)) {
      const sp = await load({ simd: 'off', wasm: wasm! });
      expect(sp.simd, kind).toBe(false);
      expectGood(sp);
    }
  });

  it('asks a function for the build that it needs', async () => {
    const asked: string[] = [];
    const wasm = (tier: 'simd' | 'scalar') => {
      asked.push(tier);
      return bytes[tier];
    };
    expect((await load({ wasm })).simd).toBe(true);
    expect((await load({ wasm, simd: 'off' })).simd).toBe(false);
    expect(asked).toEqual(['simd', 'scalar']);
  });

  it('leaves bytes and modules as they were, for another load', async () => {
    const copy = bytes.simd.slice();
    expectGood(await load({ wasm: bytes.simd }));
    expectSame(bytes.simd, copy);
    expectGood(await load({ wasm: bytes.simd }));
  });

  it('refuses wrong options, naming them', async () => {
    const check = async (options: unknown, type: typeof TypeError | typeof RangeError, name: string) => {
      const error = await refusedLoad(options);
      expectRefusal(
        () => {
          throw error;
        },
        type,
        name,
      );
    };
    await check(null, TypeError, 'options');
    await check('simd', TypeError, 'options');
    await check({ smid: 'on' }, TypeError, 'smid');
    await check({ simd: true }, RangeError, 'simd');
    await check({ simd: null }, RangeError, 'simd');
    await check({ wasm: null }, TypeError, 'wasm');
    await check({ wasm: 5 }, TypeError, 'wasm');
    await check({ wasm: {} }, TypeError, 'wasm');
    await check({ wasm: () => 5 }, TypeError, 'wasm');
    await check({ wasm: () => undefined }, TypeError, 'wasm');
    await check({ wasm: () => () => bytes.simd }, TypeError, 'wasm');
  });

  it('says that a page came instead of the file', async () => {
    for (const wasm of [
      html,
      response(html, 'text/html'),
      response(html, 'text/html; charset=utf-8'),
      response(html),
    ]) {
      const { message } = await refusedWith({ wasm }, 'WASM_LOAD');
      expect(message).toMatch(/looks like HTML|begins like HTML/);
      // And what to do about it.
      expect(message).toContain('load({ wasm })');
    }
  });

  it('says so when a page came that is called wasm', async () => {
    await refusedWith({ wasm: response(html, 'application/wasm') }, 'WASM_LOAD');
  });

  it('says which status a failed request had', async () => {
    for (const status of [404, 403, 500]) {
      const { message } = await refusedWith({ wasm: response(html, 'text/html', status) }, 'WASM_LOAD');
      expect(message).toContain(String(status));
    }
  });

  it('refuses a file that is not there, and one that cannot be asked for', async () => {
    await refusedWith({ wasm: new URL('./no-such-file.wasm', import.meta.url) }, 'WASM_LOAD');
    await refusedWith({ wasm: 'nowhere://at/all.wasm' }, 'WASM_LOAD');
    await refusedWith({ wasm: 'http://[broken' }, 'WASM_LOAD');
  });

  it('refuses a response that was read already', async () => {
    const used = response(bytes.simd, 'application/octet-stream');
    await used.arrayBuffer();
    await refusedWith({ wasm: used }, 'WASM_LOAD');
  });

  it('hands on what a function throws as the cause', async () => {
    const cause = new Error('the cupboard is bare');
    const throwing = await refusedWith({ wasm: () => Promise.reject(cause) }, 'WASM_LOAD');
    expect(throwing.cause).toBe(cause);
    expect(throwing.message).toContain('the cupboard is bare');
    const thrown = await refusedWith(
      {
        wasm: () => {
          throw cause;
        },
      },
      'WASM_LOAD',
    );
    expect(thrown.cause).toBe(cause);
  });

  it('refuses bytes that are no whole wasm file', async () => {
    const { length } = bytes.simd;
    for (const size of [0, 1, 3, 4, 5, 7, 9, 100, Math.floor(length / 2), length - 1]) {
      await refusedWith({ wasm: bytes.simd.subarray(0, size) }, 'WASM_LOAD');
    }
    const damaged = bytes.simd.slice();
    damaged[4] = 9;
    await refusedWith({ wasm: damaged }, 'WASM_LOAD');
    await refusedWith({ wasm: new Uint8Array(1000) }, 'WASM_LOAD');
    const detached = bytes.simd.slice();
    structuredClone(detached.buffer, { transfer: [detached.buffer] });
    await refusedWith({ wasm: detached }, 'WASM_LOAD');
  });

  it('refuses a wasm file of something else', async () => {
    for (const module of [emptyModule, otherModule]) {
      for (const wasm of [module, await WebAssembly.compile(module), response(module, 'application/wasm')]) {
        const error = await refusedLoad({ wasm });
        expect(error).toBeInstanceOf(ScalepointError);
        expect(['WASM_LOAD', 'VERSION_MISMATCH']).toContain((error as ScalepointError).code);
      }
    }
  });

  it('refuses the wasm file of another build', async () => {
    // The number that ties the file to its JavaScript, as the function that gives it says it: i32.const, seven bits a byte, low ones
    // first, with the sign in the last of them; end.
    const number: number[] = [];
    for (let rest: number = buildId, more = true; more; rest >>= 7) {
      more = rest > 0x3f;
      number.push((rest & 0x7f) | (more ? 0x80 : 0));
    }
    const code = [0x41, ...number, 0x0b];
    for (const file of [bytes.simd, bytes.scalar]) {
      const places = [...file.keys()].filter((at) => code.every((byte, i) => file[at + i] === byte));
      expect(places.length).toBeGreaterThan(0);
      const other = file.slice();
      for (const at of places) other[at + 1]! ^= 1;
      const { message } = await refusedWith({ wasm: other }, 'VERSION_MISMATCH');
      expect(message).toContain('version');
    }
  });

  it('gives the build that was asked for, or none', async () => {
    // 'on' is SIMD or fail, 'off' is without SIMD.
    for (const [simd, file] of [
      ['on', bytes.scalar],
      ['off', bytes.simd],
    ] as const) {
      const result = await load({ simd, wasm: file }).then(
        (sp) => sp.simd,
        (error: unknown) => error,
      );
      if (typeof result === 'boolean') expect(result).toBe(simd === 'on');
      else expect(result).toBeInstanceOf(Error);
    }
  });

  it('can be tried again after it failed, also by itself meanwhile', async () => {
    let calls = 0;
    const flaky = () => (++calls % 2 ? response(html, 'text/html', 503) : bytes.simd);
    await refusedWith({ wasm: flaky }, 'WASM_LOAD');
    expectGood(await load({ wasm: flaky }));
    const results = await Promise.allSettled([load({ wasm: html }), load(), load({ wasm: emptyModule }), load()]);
    expect(results.map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'rejected', 'fulfilled']);
    for (const result of results) if (result.status === 'fulfilled') expectGood(result.value);
  });

  it('leaves no trace among the globals', async () => {
    const before = Reflect.ownKeys(globalThis).map(String).sort();
    expectGood(await load());
    expect(Reflect.ownKeys(globalThis).map(String).sort()).toEqual(before);
  });
});

describe('dispose of an instance', () => {
  it.each(['on', 'off'] as const)('ends everything, with simd %s', async (simd) => {
    const sp = await load({ simd });
    const x = new Random(60).bell(10);
    const q = sp.quantize(x);
    const input = sp.allocate('float32', 10);
    const inWasm = sp.quantize(x, { out: sp.allocate('int8', 10) });
    const empty = sp.quantize([]);
    const codes = sp.quantizeCodebook(x, { codebook: 'nf4' });
    const version = sp.version;
    const sum = sp.errorSum();
    sp.dispose();
    sp.dispose();
    sp[Symbol.dispose]();

    const calls: Record<string, () => unknown> = {
      quantize: () => sp.quantize(x),
      'quantize of nothing': () => sp.quantize([]),
      'quantize of an array': () => sp.quantize([1, 2]),
      'quantize of bits': () => sp.quantize(new Uint16Array(3), { from: 'float16' }),
      'quantize of a WasmArray': () => sp.quantize(input),
      'quantize with a given range': () =>
        sp.quantize([], { range: { scale: [], zeroPoint: [] }, granularity: { kind: 'per-channel', axis: 0 } }),
      'quantize into an array': () => sp.quantize(x, { out: new Int8Array(10) }),
      chooseQuantizationParameters: () => sp.chooseQuantizationParameters(x),
      'chooseQuantizationParameters of nothing': () => sp.chooseQuantizationParameters([]),
      dequantize: () => sp.dequantize(q),
      'dequantize of nothing': () => sp.dequantize(empty),
      'dequantize of wasm memory': () => sp.dequantize(inWasm),
      compare: () => sp.compare(x, q),
      'compare of two arrays': () => sp.compare(x, x),
      'compare of nothing': () => sp.compare([], []),
      histogram: () => sp.histogram(x),
      'histogram of nothing': () => sp.histogram([], { min: 0, max: 1 }),
      pack: () => sp.pack(q),
      'pack of nothing': () => sp.pack(empty),
      unpack: () => sp.unpack(new Uint8Array(10), q),
      'unpack of nothing': () => sp.unpack(new Uint8Array(0), empty),
      quantizeCodebook: () => sp.quantizeCodebook(x, { codebook: 'nf4' }),
      'dequantize of a codebook': () => sp.dequantize(codes),
      'compare with a codebook': () => sp.compare(x, codes),
      'pack of a codebook': () => sp.pack(codes),
      'unpack of a codebook': () => sp.unpack(new Uint8Array(5), codes),
      castFloat: () => sp.castFloat(x, 'float16'),
      'castFloat of nothing': () => sp.castFloat([], 'float8e5m2'),
      castToFloat32: () => sp.castToFloat32(new Uint16Array(3), 'bfloat16'),
      'quantize with errors': () => sp.quantize(x, { errors: sum }),
      'adding to an error sum': () => sum.add(x, x),
      allocate: () => sp.allocate('int8', 4),
      'the view of a WasmArray': () => input.view,
    };
    for (const [name, call] of Object.entries(calls)) {
      const error = expectCode(call, 'DISPOSED');
      expect(error.message, name).toContain('dispose');
    }
    input.dispose();
    expect(sp.simd).toBe(simd === 'on');
    expect(sp.version).toBe(version);
    // Results are the caller's own.
    expectSame(q.data, expected(x, {}).data);
    expectGood(await load({ simd }));
  });

  it('leaves other instances alone', async () => {
    const instances: Scalepoint[] = await Promise.all([load(), load(), load()]);
    instances[1]!.dispose();
    expectGood(instances[0]!);
    expectGood(instances[2]!);
  });
});

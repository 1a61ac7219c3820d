/// <reference lib="esnext.disposable" preserve="true" />
// Picks and loads the wasm module, and owns its memory. No address leaves this file's users (quantize.ts) towards the outside.
import { simd as hasSimd } from 'wasm-feature-detect';
import type { WasmArray, WasmDType, WasmView } from '../arrays/tensor.js';
import createCore, { buildId } from './core.mjs';
import { type CoreModule, ErrorSums, type RecordType, Status } from './door.js';
import { disposedError, ScalepointError } from './errors.js';
import { show } from './show.js';

/** The two builds of the core. */
export type Tier = 'simd' | 'scalar';
/** Where a wasm file comes from. Strings and relative URLs are resolved against the page. */
export type WasmSource = URL | string | Response | BufferSource | WebAssembly.Module;

/** Options of `load`. */
export interface LoadOptions {
  /**
   * Which build to use: the best that the engine supports, SIMD or fail, or the scalar one.
   * @defaultValue 'auto'
   */
  simd?: 'auto' | 'on' | 'off';
  /**
   * The wasm file, for hosts that serve it from elsewhere; or a function that gives it for a tier. It must be of the same version.
   * @defaultValue the file beside this module
   */
  wasm?: WasmSource | ((tier: Tier) => WasmSource | Promise<WasmSource>);
}

// Literal URLs, one a file: bundlers find and copy the files through them.
function fileOf(tier: Tier): URL {
  return tier === 'simd'
    ? new URL('./core-simd.wasm', import.meta.url)
    : new URL('./core-scalar.wasm', import.meta.url);
}

interface NodeProcess {
  getBuiltinModule?(name: 'node:fs/promises'): { readFile(url: URL): Promise<Uint8Array<ArrayBuffer>> } | undefined;
}

/** The bytes of a file: URL in Node, without an import that browsers and bundlers would see. */
async function readLocalFile(url: URL): Promise<Uint8Array<ArrayBuffer> | undefined> {
  if (url.protocol !== 'file:') return undefined;
  const fs = (globalThis as { process?: NodeProcess }).process?.getBuiltinModule?.('node:fs/promises');
  return fs?.readFile(url);
}

const magic = [0x00, 0x61, 0x73, 0x6d];

async function compileBytes(source: BufferSource, from: string): Promise<WebAssembly.Module> {
  // Engines take typed arrays, but not all take a DataView.
  const bytes = ArrayBuffer.isView(source)
    ? new Uint8Array(source.buffer as ArrayBuffer, source.byteOffset, source.byteLength)
    : new Uint8Array(source);
  if (!magic.every((byte, i) => bytes[i] === byte)) {
    const text =
      bytes[0] === 0x3c ? ' It begins like HTML: probably the server answered a missing file with a page.' : '';
    throw new ScalepointError('WASM_LOAD', `${from} is not a wasm file.${text}${hint}`);
  }
  return WebAssembly.compile(bytes);
}

const hint =
  " With Vite 7 or older add optimizeDeps: { exclude: ['scalepoint'] }; otherwise copy core-simd.wasm and core-scalar.wasm" +
  ' beside the bundle, or pass load({ wasm }).';

async function compileResponse(response: Response, from: string): Promise<WebAssembly.Module> {
  if (!response.ok) {
    throw new ScalepointError('WASM_LOAD', `${from} could not be fetched: status ${response.status}.${hint}`);
  }
  const type = response.headers.get('content-type') ?? '';
  // Streaming refuses even a parameter behind the type.
  if (/^application\/wasm$/i.test(type.trim())) return WebAssembly.compileStreaming(response);
  return compileBytes(await response.arrayBuffer(), `${from} (${type || 'no content type'})`);
}

/** Whether it is an ArrayBuffer, of this window or another one. */
function isBuffer(value: unknown): value is ArrayBuffer {
  return Object.prototype.toString.call(value) === '[object ArrayBuffer]';
}

async function compile(source: WasmSource | undefined, tier: Tier): Promise<WebAssembly.Module> {
  if (source instanceof WebAssembly.Module) return source;
  if (isBuffer(source) || ArrayBuffer.isView(source)) return compileBytes(source, 'wasm');
  if (typeof Response !== 'undefined' && source instanceof Response)
    return compileResponse(source, source.url || 'wasm');
  if (source !== undefined && !(source instanceof URL) && typeof source !== 'string') {
    throw new TypeError(
      `wasm: expected a URL, a Response, bytes, a WebAssembly.Module or a function, got ${show(source)}`,
    );
  }
  const url = source === undefined ? fileOf(tier) : new URL(source, globalThis.location?.href);
  const bytes = await readLocalFile(url);
  if (bytes !== undefined) return compileBytes(bytes, url.href);
  return compileResponse(await fetch(url, { credentials: 'same-origin' }), url.href);
}

function loadError(error: unknown): Error {
  if (error instanceof ScalepointError || (error instanceof TypeError && error.message.startsWith('wasm:')))
    return error;
  const message = error instanceof Error ? error.message : String(error);
  if (/unsafe-eval|Content Security Policy/i.test(message)) {
    const text = "The page's Content-Security-Policy forbids WebAssembly: add 'wasm-unsafe-eval' to script-src.";
    return new ScalepointError('CSP', text, { cause: error });
  }
  return new ScalepointError('WASM_LOAD', `the wasm core could not be loaded: ${message}`, { cause: error });
}

function instantiate(module: WebAssembly.Module): Promise<CoreModule> {
  return new Promise((resolve, reject) => {
    createCore({
      print() {},
      printErr() {},
      instantiateWasm(imports, done) {
        // The glue never rejects by itself on this path.
        WebAssembly.instantiate(module, imports).then(done).catch(reject);
        return {};
      },
    }).then(resolve, reject);
  });
}

const loadKeys = ['simd', 'wasm'];

/**
 * The compiled core for this engine: to be instantiated as often as needed, here or in a worker.
 * @throws TypeError or RangeError naming the option; ScalepointError `WASM_LOAD` or `CSP`
 */
export async function compileCore(options: LoadOptions = {}): Promise<WebAssembly.Module> {
  if (typeof options !== 'object' || options === null)
    throw new TypeError(`options: expected an object, got ${show(options)}`);
  for (const key in options) {
    if (!loadKeys.includes(key))
      throw new TypeError(`options: there is no option ${show(key)}; there are ${loadKeys.join(', ')}`);
  }
  const { simd = 'auto', wasm } = options;
  if (simd !== 'auto' && simd !== 'on' && simd !== 'off') {
    throw new RangeError(`simd: expected 'auto', 'on' or 'off', got ${show(simd)}`);
  }
  const supported = simd !== 'off' && (await hasSimd());
  if (simd === 'on' && !supported) {
    throw new ScalepointError('WASM_LOAD', "simd is 'on', but this engine has no WebAssembly SIMD");
  }
  const tier: Tier = supported ? 'simd' : 'scalar';
  try {
    const source = typeof wasm === 'function' ? await wasm(tier) : wasm;
    if (typeof wasm === 'function' && source === undefined) throw new TypeError('wasm: the function gave undefined');
    return await compile(source, tier);
  } catch (error) {
    throw loadError(error);
  }
}

/**
 * An instance of a compiled core.
 * @throws ScalepointError `WASM_LOAD` or `VERSION_MISMATCH`
 */
export async function instantiateCore(module: WebAssembly.Module): Promise<Core> {
  try {
    const instance = await instantiate(module);
    if (typeof instance.buildId !== 'function' || instance.buildId() !== buildId) {
      throw new ScalepointError(
        'VERSION_MISMATCH',
        'the wasm file belongs to another version of scalepoint than this JavaScript',
      );
    }
    return new Core(instance);
  } catch (error) {
    throw loadError(error);
  }
}

/** Loads an instance of the core. Every call makes one more. */
export async function loadCore(options: LoadOptions = {}): Promise<Core> {
  const core = await instantiateCore(await compileCore(options));
  const { simd = 'auto' } = options;
  if (simd !== 'auto' && core.module.isSimd() !== (simd === 'on')) {
    throw new ScalepointError(
      'WASM_LOAD',
      `simd is '${simd}', but the wasm file is the ${core.module.isSimd() ? 'SIMD' : 'scalar'} build`,
    );
  }
  return core;
}

const bytesPer: Record<WasmDType, number> = { float32: 4, int8: 1, uint8: 1, int16: 2, uint16: 2, int32: 4 };

/**
 * Floats that the scratch memory takes at a time: 512 KiB, which with its codes fits the second-level cache of common machines.
 * A multiple of the 512 elements over which error sums are blocked, so that tiles do not show in them.
 */
export const tileSize = 1 << 17;
/** Scales and zero points that the scratch memory takes at a time. */
export const tileParameters = 1 << 14;

/** Fixed memory for tiles, allocated once. Addresses in bytes. */
export interface Scratch {
  /** tileSize. */
  readonly elements: number;
  /** tileSize floats. */
  readonly x: number;
  /** tileSize floats, or that many codes. */
  readonly y: number;
  /** tileSize 16-bit values. */
  readonly bits: number;
  /** tileParameters floats. */
  readonly scale: number;
  /** tileParameters 32-bit integers. */
  readonly zeroPoint: number;
  /** ErrorSums of the door. */
  readonly sums: number;
}

/** Bytes for the records of calls under way: some ten of the largest. More get memory of their own. */
const recordBytes = 1024;

/** The next multiple of 16. */
function align(address: number): number {
  return Math.ceil(address / 16) * 16;
}

/** One instance of the wasm module with its memory. */
export class Core {
  #module: CoreModule | undefined;
  #lastView: { dtype: WasmDType; address: number; buffer: ArrayBufferLike; view: WasmView } | undefined;
  /** Where the next record goes, and where there is no more room. */
  #record: number;
  readonly #recordsEnd: number;
  /** Allocated at once: views of wasm memory that callers hold stay good for longer. */
  readonly scratch: Scratch;

  constructor(module: CoreModule) {
    this.#module = module;
    const x = align(this.allocate(tileSize * 10 + tileParameters * 8 + ErrorSums.bytes + 8 + recordBytes + 16));
    const y = x + tileSize * 4;
    const bits = y + tileSize * 4;
    const scale = bits + tileSize * 2;
    const zeroPoint = scale + tileParameters * 4;
    const sums = zeroPoint + tileParameters * 4;
    this.scratch = { elements: tileSize, x, y, bits, scale, zeroPoint, sums };
    this.#record = align(sums + ErrorSums.bytes);
    this.#recordsEnd = this.#record + recordBytes;
  }

  /** The module's functions and heap views. Views change when memory grows: never keep them over an allocation. */
  get module(): CoreModule {
    if (this.#module === undefined) throw disposedError('the instance');
    return this.#module;
  }

  get disposed(): boolean {
    return this.#module === undefined;
  }

  /** Drops the instance: wasm memory goes back only as a whole. */
  dispose(): void {
    this.#module = undefined;
    this.#lastView = undefined;
  }

  /** The address of so many bytes, or 0 if there is no room. */
  tryAllocate(bytes: number): number {
    return bytes < 2 ** 32 ? this.module.allocate(Math.max(bytes, 1)) : 0;
  }

  /** @throws ScalepointError `OUT_OF_MEMORY` */
  allocate(bytes: number): number {
    const address = this.tryAllocate(bytes);
    if (address === 0) throw new ScalepointError('OUT_OF_MEMORY', `wasm memory has no room for ${bytes} more bytes`);
    return address;
  }

  release(address: number): void {
    this.#module?.release(address);
  }

  /** Calls f with the address of so many bytes, which live until it returns. */
  withMemory<T>(bytes: number, f: (address: number) => T): T {
    const address = this.allocate(bytes);
    try {
      return f(address);
    } finally {
      this.release(address);
    }
  }

  /**
   * Calls f with the address of a record, which lives until f returns. Calls may nest. A record that has to live longer goes into memory
   * of the caller's: `LinearJob.write(core.module, address, job)`, with LinearJob.bytes at a multiple of 8.
   */
  withRecord<T, R>(type: RecordType<T>, record: T, f: (address: number) => R): R {
    const address = this.#record;
    const end = align(address + type.bytes);
    if (end > this.#recordsEnd) {
      return this.withMemory(type.bytes, (own) => {
        type.write(this.module, own, record);
        return f(own);
      });
    }
    this.#record = end;
    try {
      type.write(this.module, address, record);
      return f(address);
    } finally {
      this.#record = address;
    }
  }

  /** A typed array over wasm memory, good until the next allocation. */
  view(dtype: WasmDType, address: number, length: number): WasmView {
    const { buffer } = this.module.HEAPU8;
    switch (dtype) {
      case 'float32':
        return new Float32Array(buffer, address, length);
      case 'int8':
        return new Int8Array(buffer, address, length);
      case 'uint8':
        return new Uint8Array(buffer, address, length);
      case 'int16':
        return new Int16Array(buffer, address, length);
      case 'uint16':
        return new Uint16Array(buffer, address, length);
      case 'int32':
        return new Int32Array(buffer, address, length);
    }
  }

  /** As view; the last one is kept, since calls in a loop ask for the same again, and making one costs as much as a copy of 1 kB. */
  viewAgain(dtype: WasmDType, address: number, length: number): WasmView {
    let last = this.#lastView;
    if (
      last === undefined ||
      last.dtype !== dtype ||
      last.address !== address ||
      last.view.length !== length ||
      last.buffer !== this.module.HEAPU8.buffer
    ) {
      last = { dtype, address, buffer: this.module.HEAPU8.buffer, view: this.view(dtype, address, length) };
      this.#lastView = last;
    }
    return last.view;
  }

  /** The heap view for elements of that type. */
  heap(dtype: WasmDType): WasmView {
    const { module } = this;
    switch (dtype) {
      case 'float32':
        return module.HEAPF32;
      case 'int8':
        return module.HEAP8;
      case 'uint8':
        return module.HEAPU8;
      case 'int16':
        return module.HEAP16;
      case 'uint16':
        return module.HEAPU16;
      case 'int32':
        return module.HEAP32;
    }
  }
}

/** See WasmArray. */
export class OwnedWasmArray implements WasmArray {
  readonly dtype: WasmDType;
  readonly length: number;
  readonly #core: Core;
  #address: number | undefined;

  /** @throws RangeError naming the argument, ScalepointError `OUT_OF_MEMORY` */
  constructor(core: Core, dtype: WasmDType, length: number) {
    const size = bytesPer[dtype];
    if (typeof dtype !== 'string' || !Object.hasOwn(bytesPer, dtype)) {
      throw new RangeError(`dtype: expected one of ${Object.keys(bytesPer).join(', ')}, got ${show(dtype)}`);
    }
    if (typeof length !== 'number') throw new TypeError(`length: expected a whole number, got ${show(length)}`);
    if (!Number.isSafeInteger(length) || length < 0) {
      throw new RangeError(`length: expected a whole number of at least 0, got ${length}`);
    }
    this.#core = core;
    this.dtype = dtype;
    this.length = length;
    this.#address = core.allocate(length * size);
  }

  /** Where the array lies in the memory of `core`. @throws TypeError if it lies in another one's. */
  addressIn(core: Core, what: string): number {
    if (this.#address === undefined || this.#core.disposed) throw disposedError(what);
    if (core !== this.#core) throw new TypeError(`${what}: the WasmArray belongs to another instance`);
    return this.#address;
  }

  get view(): WasmView {
    if (this.#address === undefined || this.#core.disposed) throw disposedError('a WasmArray');
    return this.#core.view(this.dtype, this.#address, this.length);
  }

  dispose(): void {
    if (this.#address !== undefined) this.#core.release(this.#address);
    this.#address = undefined;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** For calls whose arguments were checked: any status but 0 is our own mistake. */
export function checkStatus(status: number): void {
  if (status !== Status.ok) throw new Error(`scalepoint: the core refused checked arguments with status ${status}`);
}

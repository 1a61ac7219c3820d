// Finds, compiles and instantiates the wasm core. There are two builds of it, called tiers.
import { simd as hasSimd } from 'wasm-feature-detect';
import { checkKeys } from './check.js';
import createCore, { buildId } from './core.mjs';
import type { CoreModule } from './door.js';
import { rangeError, ScalepointError, typeError } from './errors.js';
import { Core } from './memory.js';
import { ofType, oneOf } from './option-problem.js';
import { ownWasm } from './own-wasm.js';
import { isBuffer } from './realms.js';
import type { Tier, WasmSource } from './tier.js';
import { waitingFor } from './waiting.js';

export type { Tier, WasmSource };

/** Options of `load`. */
export interface LoadOptions {
  /**
   * Which build to use. 'auto': SIMD if the engine has it. 'on': SIMD, or an error. 'off': the scalar build.
   * @defaultValue 'auto'
   */
  simd?: 'auto' | 'on' | 'off';
  /**
   * The wasm file, for hosts that serve it from elsewhere, or a function that returns it for a tier. It must be of the same version.
   * @defaultValue the file beside this module
   */
  wasm?: WasmSource | ((tier: Tier) => WasmSource | Promise<WasmSource>);
  /** Stops waiting for the core; the promise is rejected with the signal's reason. */
  signal?: AbortSignal;
}

const loadKeys = new Set(['simd', 'wasm', 'signal']);

interface NodeProcess {
  getBuiltinModule?(name: 'node:fs/promises'): { readFile(url: URL): Promise<Uint8Array<ArrayBuffer>> } | undefined;
}

/** The bytes of a file: URL in Node. Without an import, so that browsers and bundlers see nothing of Node. */
async function readLocalFile(url: URL): Promise<Uint8Array<ArrayBuffer> | undefined> {
  if (url.protocol !== 'file:') return undefined;
  const fs = (globalThis as { process?: NodeProcess }).process?.getBuiltinModule?.('node:fs/promises');
  return fs?.readFile(url);
}

const hint =
  " With Vite 7 or older add optimizeDeps: { exclude: ['scalepoint'] }; where the bundler runs on a server, leave scalepoint out of the" +
  " bundle (Next: serverExternalPackages: ['scalepoint']); otherwise copy core-simd.wasm and core-scalar.wasm beside the bundle, pass" +
  " load({ wasm }), or import 'scalepoint/inline', which holds the files.";

/** What engines say if there is no file where the bundle expects it. */
const isMissing =
  /Invalid URL|ENOENT|no such file|fetch failed|failed to fetch|parse URL|NetworkError|Load failed|not implemented/i;

/** The first bytes of every wasm file. */
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

async function compileResponse(response: Response, from: string): Promise<WebAssembly.Module> {
  if (!response.ok) {
    throw new ScalepointError('WASM_LOAD', `${from} could not be fetched: status ${response.status}.${hint}`);
  }
  const type = response.headers.get('content-type') ?? '';
  // Streaming needs exactly this type, without parameters behind it.
  if (/^application\/wasm$/i.test(type.trim())) return WebAssembly.compileStreaming(response);
  return compileBytes(await response.arrayBuffer(), `${from} (${type || 'no content type'})`);
}

/** What the option `wasm` can be. */
const wasmSource = ofType('URL', 'Response', 'Uint8Array', 'WebAssembly.Module', 'function');

async function compile(source: WasmSource): Promise<WebAssembly.Module> {
  if (source instanceof WebAssembly.Module) return source;
  if (isBuffer(source) || ArrayBuffer.isView(source)) return compileBytes(source, 'wasm');
  if (typeof Response !== 'undefined' && source instanceof Response)
    return compileResponse(source, source.url || 'wasm');
  if (!(source instanceof URL) && typeof source !== 'string') {
    throw typeError('wasm', wasmSource, source);
  }
  const url = new URL(source, globalThis.location?.href);
  const bytes = await readLocalFile(url);
  if (bytes !== undefined) return compileBytes(bytes, url.href);
  return compileResponse(await fetch(url, { credentials: 'same-origin' }), url.href);
}

/** The compiled files of this package: all instances share them. */
const compiled = new Map<Tier, Promise<WebAssembly.Module>>();

function compileOwn(tier: Tier): Promise<WebAssembly.Module> {
  let module = compiled.get(tier);
  if (module === undefined) {
    module = ownWasm(tier).then(compile);
    compiled.set(tier, module);
    // The next call may find the file.
    module.catch(() => compiled.delete(tier));
  }
  return module;
}

/** What a failure while loading is to the caller. Errors of ours stay as they are. */
function loadError(error: unknown): Error {
  if (error instanceof ScalepointError || (error instanceof TypeError && 'option' in error)) return error;
  const message = error instanceof Error ? error.message : String(error);
  // Engines tell of a Content-Security-Policy in their message alone.
  if (/unsafe-eval|Content Security Policy/i.test(message)) {
    const text = "The page's Content-Security-Policy forbids WebAssembly: add 'wasm-unsafe-eval' to script-src.";
    return new ScalepointError('CSP', text, { cause: error });
  }
  const advice = isMissing.test(message) ? `.${hint}` : '';
  return new ScalepointError('WASM_LOAD', `the wasm core could not be loaded: ${message}${advice}`, { cause: error });
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

/**
 * The compiled core for this engine. It can be instantiated any number of times, here or in a worker.
 * @throws TypeError or RangeError naming the option; ScalepointError `WASM_LOAD` or `CSP`
 */
export async function compileCore(options: LoadOptions = {}): Promise<WebAssembly.Module> {
  checkKeys(options, loadKeys);
  const { simd = 'auto', wasm } = options;
  if (simd !== 'auto' && simd !== 'on' && simd !== 'off') {
    throw rangeError('simd', oneOf(['auto', 'on', 'off']), simd);
  }
  const supported = simd !== 'off' && (await hasSimd());
  if (simd === 'on' && !supported) {
    throw new ScalepointError('WASM_LOAD', "simd is 'on', but this engine has no WebAssembly SIMD");
  }
  const tier: Tier = supported ? 'simd' : 'scalar';
  try {
    const source = typeof wasm === 'function' ? await wasm(tier) : wasm;
    if (typeof wasm === 'function' && source === undefined) throw typeError('wasm', wasmSource, source);
    return await (source === undefined ? compileOwn(tier) : compile(source));
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

/** Loads the core and makes an instance of it. */
export async function loadCore(options: LoadOptions = {}): Promise<Core> {
  checkKeys(options, loadKeys);
  const { signal } = options;
  if (signal === undefined) return makeCore(options);
  checkSignal(signal);
  const waiting = waitingFor(signal);
  try {
    return await waiting.soon(makeCore(options), (late) => late.dispose());
  } finally {
    waiting.end();
  }
}

/** @throws TypeError unless it is an AbortSignal, of any window; its reason if it has aborted */
function checkSignal(signal: AbortSignal): void {
  if (typeof signal?.throwIfAborted !== 'function') throw typeError('signal', ofType('AbortSignal'), signal);
  signal.throwIfAborted();
}

async function makeCore(options: LoadOptions): Promise<Core> {
  const core = await instantiateCore(await compileCore(options));
  const { simd = 'auto' } = options;
  if (simd !== 'auto' && core.module.isSimd() !== (simd === 'on')) {
    const build = core.module.isSimd() ? 'SIMD' : 'scalar';
    throw new ScalepointError('WASM_LOAD', `simd is '${simd}', but the wasm file is the ${build} build`);
  }
  return core;
}

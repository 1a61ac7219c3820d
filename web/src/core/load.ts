// Finds, compiles and instantiates the wasm core: one of two modules, each in two builds, called tiers.
import { simd as hasSimd } from 'wasm-feature-detect';
import createCore, { buildId } from './core.mjs';
import type { CoreModule } from './door.js';
import { ScalepointError, typeError } from './errors.js';
import { checkLoadOptions, type LoadOptions, type Tier, type WasmModule, type WasmSource } from './load-options.js';
import { Core, isModelsModule } from './memory.js';
import { ofType } from './option-problem.js';
import { ownWasm } from './own-wasm.js';
import { isBuffer } from './realms.js';
import { waitingFor } from './waiting.js';

interface NodeProcess {
  getBuiltinModule?(name: 'node:fs/promises'): { readFile(url: URL): Promise<Uint8Array<ArrayBuffer>> } | undefined;
}

/** Advice for missing files. */
const advice = () =>
  (globalThis as { navigator?: { userAgent?: string } }).navigator?.userAgent === 'Cloudflare-Workers'
    ? cloudflare
    : bundlers;

const cloudflare =
  " Cloudflare Workers compile no wasm at run time: import wasm from 'scalepoint/core-simd.wasm', and call load({ wasm }) before other calls.";

const bundlers =
  " With Vite 7 or older add optimizeDeps: { exclude: ['scalepoint'] }; where the bundler runs on a server, leave scalepoint out of the" +
  " bundle; otherwise copy the package's .wasm files beside the bundle, pass" +
  " load({ wasm }), or import 'scalepoint/inline', which holds the files.";

/** Messages of engines for a missing file. */
const isMissing =
  /Invalid URL|ENOENT|no such file|fetch failed|failed to fetch|parse URL|NetworkError|Load failed|not implemented|disallowed by embedder/i;

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
    throw new ScalepointError('WASM_LOAD', `${from} is not a wasm file.${text}${advice()}`);
  }
  return WebAssembly.compile(bytes);
}

async function compileResponse(response: Response, from: string): Promise<WebAssembly.Module> {
  if (!response.ok) {
    throw new ScalepointError('WASM_LOAD', `${from} could not be fetched: status ${response.status}.${advice()}`);
  }
  const type = response.headers.get('content-type') ?? '';
  // Streaming needs exactly this type, without parameters behind it.
  if (/^application\/wasm$/i.test(type.trim())) return WebAssembly.compileStreaming(response);
  return compileBytes(await response.arrayBuffer(), `${from} (${type || 'no content type'})`);
}

/** Types of the option `wasm`. */
const wasmSource = ofType('URL', 'Response', 'Uint8Array', 'WebAssembly.Module', 'function');

async function compile(source: WasmSource): Promise<WebAssembly.Module> {
  if (source instanceof WebAssembly.Module) return source;
  if (isBuffer(source) || ArrayBuffer.isView(source)) return compileBytes(source, 'wasm');
  if (!(source instanceof URL) && typeof source !== 'string') {
    // Only here: a mention of Response makes Node load its HTTP client, and that ends the process if there is no memory for its wasm.
    if (typeof Response !== 'undefined' && source instanceof Response)
      return compileResponse(source, source.url || 'wasm');
    throw typeError('wasm', wasmSource, source);
  }
  const base = globalThis.location?.href;
  if (typeof source === 'string' && base === undefined && !/^[a-z][a-z\d+.-]+:/i.test(source)) {
    const code = `new URL('${source}', import.meta.url)`;
    throw typeError('wasm', wasmSource, source, { kind: 'write', code });
  }
  const url = new URL(source, base);
  // Imports nothing, so that browsers and bundlers see no module of Node.
  const { process } = globalThis as { process?: NodeProcess };
  const fs = url.protocol === 'file:' ? process?.getBuiltinModule?.('node:fs/promises') : undefined;
  if (fs !== undefined) return compileBytes(await fs.readFile(url), url.href);
  return compileResponse(await fetch(url, { credentials: 'same-origin' }), url.href);
}

/** The compiled files of this package by their names, or those that `load` was given: all instances share them. */
const compiled = new Map<`${WasmModule}-${Tier}`, Promise<WebAssembly.Module>>();

/** A function that returns the wasm file for a tier and a module. */
type WasmFunction = Extract<LoadOptions['wasm'], (...files: never) => unknown>;

/** The one that `load` was given. */
let given: WasmFunction | undefined;

/** The error for a failure while loading. Errors of this package stay as they are. */
function loadError(error: unknown): Error {
  if (error instanceof ScalepointError || (error instanceof TypeError && 'option' in error)) return error;
  const message = error instanceof Error ? error.message : String(error);
  // Engines report a Content-Security-Policy in their message alone.
  if (/unsafe-eval|Content Security Policy/i.test(message)) {
    const text = "The page's Content-Security-Policy forbids WebAssembly: add 'wasm-unsafe-eval' to script-src.";
    return new ScalepointError('CSP', text, { cause: error });
  }
  if (/out of memory/i.test(message)) {
    const text =
      'there is no memory for the wasm core. Engines reserve up to 10 GiB of addresses for it: see ulimit -v.';
    return new ScalepointError('OUT_OF_MEMORY', text, { cause: error });
  }
  const more = isMissing.test(message) ? `.${advice()}` : '';
  return new ScalepointError('WASM_LOAD', `the wasm core could not be loaded: ${message}${more}`, { cause: error });
}

/**
 * Compiles a module of the core for this engine. It can be instantiated any number of times, here or in a worker.
 * @throws TypeError or RangeError naming the option; ScalepointError `WASM_LOAD`, `CSP` or `OUT_OF_MEMORY`
 */
export async function compileCore(module: WasmModule, options: LoadOptions = {}): Promise<WebAssembly.Module> {
  checkLoadOptions(options);
  const { simd = 'auto', wasm } = options;
  const supported = simd !== 'off' && (await hasSimd());
  if (simd === 'on' && !supported) {
    throw new ScalepointError('WASM_LOAD', "simd is 'on', but this engine has no WebAssembly SIMD");
  }
  const tier: Tier = supported ? 'simd' : 'scalar';
  try {
    const source = typeof wasm === 'function' ? await wasm(tier, module) : wasm;
    if (typeof wasm === 'function' && source === undefined) throw typeError('wasm', wasmSource, source);
    if (source !== undefined) return await compile(source);
    const name = `${module}-${tier}` as const;
    let made = compiled.get(name);
    if (made === undefined) {
      made = Promise.resolve(given?.(tier, module) ?? ownWasm(module, tier)).then(compile);
      compiled.set(name, made);
      // Forget a failure, because the next call may find the file.
      made.catch(() => compiled.delete(name));
    }
    return await made;
  } catch (error) {
    throw loadError(error);
  }
}

/**
 * Makes an instance of a compiled module. Accepts the large module if `name` is the small one.
 * @throws ScalepointError `WASM_LOAD`, also if the module lacks calls; `VERSION_MISMATCH`
 */
export async function instantiateCore(name: WasmModule, module: WebAssembly.Module): Promise<Core> {
  try {
    const instance = await new Promise<CoreModule>((resolve, reject) => {
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
    if (typeof instance.buildId !== 'function' || instance.buildId() !== buildId) {
      throw new ScalepointError(
        'VERSION_MISMATCH',
        'the wasm file belongs to another version of scalepoint than this JavaScript',
      );
    }
    if (name === 'core' && !isModelsModule(instance)) {
      const text = 'the wasm file is the small module (arrays-simd.wasm or arrays-scalar.wasm)';
      throw new ScalepointError(
        'WASM_LOAD',
        `${text}, but this takes the large one: core-simd.wasm or core-scalar.wasm`,
      );
    }
    return new Core(instance);
  } catch (error) {
    throw loadError(error);
  }
}

/** Loads the core and makes an instance of it. */
export async function loadCore(options: LoadOptions = {}): Promise<Core> {
  checkLoadOptions(options);
  const { signal } = options;
  if (signal === undefined) return makeCore(options);
  signal.throwIfAborted();
  const waiting = waitingFor(signal);
  try {
    return await waiting.soon(makeCore(options), (late) => late.dispose());
  } finally {
    waiting.end();
  }
}

async function makeCore(options: LoadOptions): Promise<Core> {
  const { simd = 'auto', blocks, wasm } = options;
  const name = blocks ? 'core' : 'arrays';
  const compiledModule = await compileCore(name, options);
  const core = await instantiateCore(name, compiledModule);
  if (simd !== 'auto' && core.module.isSimd() !== (simd === 'on')) {
    const build = core.module.isSimd() ? 'SIMD' : 'scalar';
    throw new ScalepointError('WASM_LOAD', `simd is '${simd}', but the wasm file is the ${build} build`);
  }
  // Keep a source that worked as the one of later calls without a source. The large module has everything of the small one.
  if (wasm === undefined) return core;
  if (typeof wasm === 'function') given = wasm as WasmFunction;
  const tier = core.module.isSimd() ? 'simd' : 'scalar';
  for (const file of isModelsModule(core.module) ? (['core', 'arrays'] as const) : (['arrays'] as const)) {
    compiled.set(`${file}-${tier}`, Promise.resolve(compiledModule));
  }
  return core;
}

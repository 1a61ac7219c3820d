// Options of `load`, which model calls take as `core`. Checked before any work begins.
import { checkKeys, checkSignal } from './check.js';
import { within } from './errors.js';
import { checkOptionValues, choice, option, toggle } from './schema.js';

/** Options of `load`. */
export interface LoadOptions {
  /**
   * The build to use. 'auto': SIMD if the engine has it. 'on': SIMD, or an error. 'off': the scalar build.
   * @defaultValue 'auto'
   */
  simd?: 'auto' | 'on' | 'off' | undefined;
  /**
   * Loads the large module, which has all types of ggml's blocks and `search: 'best'`. The small one has Q8_0 and Q4_0, and takes fewer
   * bytes. All other calls have the same results in both.
   * @defaultValue false
   */
  blocks?: boolean | undefined;
  /**
   * The wasm file, for hosts that serve it from elsewhere, or a function that returns it for a tier and a module. It must be of the same
   * version. A file of the large module can take the place of the small one. Later calls without this option use it as well, those of
   * `scalepoint/model` included if it is a function or the large module.
   * @defaultValue that of an earlier call of `load`, or the file beside this module
   */
  wasm?: WasmSource | ((tier: Tier, module: WasmModule) => WasmSource | Promise<WasmSource>) | undefined;
  /** Stops waiting for the core; the promise is rejected with the signal's reason. */
  signal?: AbortSignal | undefined;
}

const loadEntries = {
  simd: choice(['auto', 'on', 'off']),
  blocks: toggle(),
  signal: option(checkSignal),
};

/** Names of these options. */
export const loadNames = ['simd', 'blocks', 'wasm', 'signal'] as const;

/** @param path of the options, if they are an option themselves @throws TypeError or RangeError naming the option */
export function checkLoadOptions(options: unknown, path = ''): void {
  checkKeys(options, loadNames, path);
  if (path === '') checkOptionValues(loadEntries, options as LoadOptions);
  else within(path, () => checkLoadOptions(options));
}

/** The two builds of each module: with SIMD and without. */
export type Tier = 'simd' | 'scalar';
/**
 * The two modules of the core: `arrays`, the small one, and `core`, the large one, which contains it and adds all types of ggml's blocks
 * and the calls for model files. Files are named `${module}-${tier}.wasm`.
 */
export type WasmModule = 'arrays' | 'core';
/** Source of a wasm file. Strings and relative URLs are resolved against the page. */
export type WasmSource = URL | string | Response | BufferSource | WebAssembly.Module;

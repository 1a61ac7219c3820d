// Locates the wasm files of this package. scalepoint/inline replaces it by own-wasm.ts of web/src/inline.
import type { Tier, WasmModule, WasmSource } from './load-options.js';

/** The wasm file of a module and a tier, which lies beside this file. */
export async function ownWasm(module: WasmModule, tier: Tier): Promise<WasmSource> {
  // Literal URLs, one a file: bundlers find and copy the files through them.
  switch (`${module}-${tier}` as const) {
    case 'arrays-simd':
      return new URL('./arrays-simd.wasm', import.meta.url);
    case 'arrays-scalar':
      return new URL('./arrays-scalar.wasm', import.meta.url);
    case 'core-simd':
      return new URL('./core-simd.wasm', import.meta.url);
    case 'core-scalar':
      return new URL('./core-scalar.wasm', import.meta.url);
  }
}

// Where the wasm files of this package are. scalepoint/inline has own-wasm.ts of web/src/inline in its place.
import type { Tier, WasmSource } from './tier.js';

/** The wasm file of a tier: beside this module. */
export async function ownWasm(tier: Tier): Promise<WasmSource> {
  // Literal URLs, one a file: bundlers find and copy the files through them.
  return tier === 'simd'
    ? new URL('./core-simd.wasm', import.meta.url)
    : new URL('./core-scalar.wasm', import.meta.url);
}

// Replaces web/src/core/own-wasm.ts in scalepoint/inline, where the wasm files are part of the code.
import type { Tier, WasmModule, WasmSource } from '../core/load-options.js';
import { scalar, simd } from './embedded.mjs';
import { unpackEmbedded } from './unpack.js';

const embedded = { scalar, simd } satisfies Readonly<Record<Tier, string>>;

/** The wasm file of a tier. Only the large module is embedded; it contains the small one. */
export function ownWasm(_module: WasmModule, tier: Tier): Promise<WasmSource> {
  return unpackEmbedded(embedded[tier]);
}

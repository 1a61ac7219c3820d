// The builds of the core, and where their files come from.

/** The two builds of the core. */
export type Tier = 'simd' | 'scalar';
/** Where a wasm file comes from. Strings and relative URLs are resolved against the page. */
export type WasmSource = URL | string | Response | BufferSource | WebAssembly.Module;

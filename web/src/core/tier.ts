// The builds of the core, and the sources of their files.

/** The two builds of each module: with SIMD and without. */
export type Tier = 'simd' | 'scalar';
/**
 * The two modules of the core: `arrays`, the small one, and `core`, the large one, which contains it and adds all types of ggml's blocks
 * and the calls for model files. Files are named `${module}-${tier}.wasm`.
 */
export type WasmModule = 'arrays' | 'core';
/** Source of a wasm file. Strings and relative URLs are resolved against the page. */
export type WasmSource = URL | string | Response | BufferSource | WebAssembly.Module;

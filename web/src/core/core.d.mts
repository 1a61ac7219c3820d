// Types of core.mjs: Emscripten's glue between JavaScript and the wasm core, to which scripts/build.mjs adds two numbers.
import type { CoreModule } from './door.js';

export interface CoreOptions {
  print(): void;
  printErr(): void;
  instantiateWasm(imports: WebAssembly.Imports, done: (instance: WebAssembly.Instance) => void): object;
}

declare const createCore: (options: CoreOptions) => Promise<CoreModule>;
export default createCore;
/** Number of the build. `buildId()` of the wasm files of the same build returns the same number. */
export const buildId: number;
/** The package's version. */
export const version: string;

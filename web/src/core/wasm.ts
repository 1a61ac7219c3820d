// What files outside this folder still ask for under this name.
export * from './load.js';
export * from './memory.js';
export * from './wasm-array.js';

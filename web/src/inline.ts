/**
 * Holds all of `scalepoint` and `scalepoint/model` in one file, with the wasm and the worker inside: for bundlers that copy no files, for
 * bundles in one file, and for pages of another origin. It takes more bytes than the files alone. The policy of a page must allow
 * `script-src 'wasm-unsafe-eval'`, and `worker-src blob:` for workers; where it forbids workers, the calling thread does the work.
 */
export * from './index.js';
export * from './model.js';

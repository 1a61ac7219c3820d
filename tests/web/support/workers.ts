// Workers of Node whose system behaves as a test wants.
import { Worker } from 'node:worker_threads';

const workerFile = new URL('../../../web/src/workers/scalepoint-worker.js', import.meta.url);

/**
 * Makes workers that first run some code, in which `fs` is Node's module, whose functions it may replace.
 * @example workersWith("fs.writeSync = () => { throw new Error('ENOSPC: no space left on device, write') }")
 */
export function workersWith(code: string): () => Worker {
  const text = `const fs = require('node:fs'); ${code}\n; import(${JSON.stringify(workerFile.href)});`;
  return () => new Worker(text, { eval: true });
}

/** Code that calls `told` for what a function gives, from its nth call on. `args` are those of the call. */
export function replaced(name: 'readSync' | 'writeSync' | 'openSync' | 'fstatSync', told: string, nth = 1): string {
  return `{
    const original = fs.${name};
    let calls = 0;
    fs.${name} = (...args) => (++calls < ${nth} ? original(...args) : (${told}));
  }`;
}

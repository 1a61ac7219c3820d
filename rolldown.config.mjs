// The package's JavaScript. The glue keeps a chunk of its own, so that what reads only headers does not pull it in.
const output = {
  dir: 'dist',
  format: 'esm',
  minify: true,
  entryFileNames: '[name].js',
  chunkFileNames: 'chunk-[name].js',
  codeSplitting: { groups: [{ name: 'core', test: /core\.mjs$/ }] },
};

/** One file that holds all of its code: workers are started from wherever it is served. Beside its source too, for Vite and Vitest. */
export const worker = {
  input: 'web/src/pipeline/worker.ts',
  external: [/^node:/],
  output: { file: 'web/src/pipeline/worker.js', format: 'esm', minify: true },
};

export const packages = [
  { input: { index: 'web/src/index.ts', model: 'web/src/model.ts', bench: 'web/src/bench.ts', cli: 'web/src/cli.ts' }, external: [/^node:/], output },
];

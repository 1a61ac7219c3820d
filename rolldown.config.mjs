import { fileURLToPath } from 'node:url';

// How the JavaScript of the package is bundled. Emscripten's glue is a chunk of its own, so that code that only reads headers does not load it.
const output = {
  dir: 'dist',
  format: 'esm',
  // The bundlers of apps minify. Here names and lines stay, and maps lead to the sources.
  sourcemap: true,
  entryFileNames: '[name].js',
  chunkFileNames: 'chunk-[name].js',
  codeSplitting: { groups: [{ name: 'core', test: /core\.mjs$/ }] },
};

/**
 * The worker, a single file without imports, so that it runs from any address. It is written next to its source, where Vite and Vitest
 * find it.
 */
export const worker = {
  input: 'web/src/runner/worker.ts',
  external: [/^node:/],
  output: { file: 'web/src/runner/scalepoint-worker.js', format: 'esm', sourcemap: true },
};

/** The entry points of the package and the command line, with shared chunks. */
export const packages = [
  { input: { index: 'web/src/index.ts', model: 'web/src/model.ts', bench: 'web/src/bench.ts', cli: 'web/src/cli.ts' }, external: [/^node:/], output },
];

/** What scalepoint/inline has in place of modules that find files beside them. */
const embedded = {
  name: 'embedded files',
  resolveId: {
    filter: { id: /\/own-(wasm|worker)\.js$/ },
    handler(source, importer) {
      const [name] = /own-\w+/.exec(source);
      return this.resolve(fileURLToPath(new URL(`web/src/inline/${name}.ts`, import.meta.url)), importer, { skipSelf: true });
    },
  },
};

/** All of the package in one file. */
export const inline = {
  input: 'web/src/inline.ts',
  external: [/^node:/],
  plugins: [embedded],
  output: { file: 'dist/inline.js', format: 'esm', sourcemap: true, codeSplitting: false },
};

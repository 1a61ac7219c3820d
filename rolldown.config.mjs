import { fileURLToPath } from 'node:url';

// Bundles of the JavaScript of the package. Emscripten's glue is a chunk of its own, so that code that only reads headers does not load it.
// The code of arrays and layers is one chunk. The code that opens files and tells formats apart is another, which files on demand share.
// Bundlers of apps leave out the parts that an app does not call, but they cut an app between the chunks that its files on demand share and
// those that they do not share.
const output = {
  dir: 'dist',
  format: 'esm',
  // The bundlers of apps minify. Here names, lines and comments stay, and a comment names the source file before its code. There are no
  // maps: with the sources in them they would weigh more than the code, and without these they would lead nowhere.
  entryFileNames: '[name].js',
  chunkFileNames: 'chunk-[name].js',
  codeSplitting: {
    groups: [
      { name: 'core', test: /core\.mjs$/ },
      { name: 'arrays', test: /web\/src\/(arrays\/(?!moments)|core\/(?!factor|load\.|own-wasm)|search\/(?!open-index|save|share))/ },
      { name: 'opening', test: /web\/src\/formats\/(files\/(bytes|handle|url|open)|(tensors|statistics|signatures|\w+\/signature|onnx\/targets))\./ },
    ],
  },
};

/**
 * The worker, a single file without imports, so that it runs from any address. It is written next to its source, where Vite and Vitest
 * find it.
 */
export const worker = {
  input: 'web/src/worker.ts',
  external: [/^node:/],
  output: { file: 'web/src/workers/scalepoint-worker.js', format: 'esm' },
};

/** The file that runs models in a page or a process of the command line, without imports. It is written next to the file that starts it. */
export const runner = {
  input: 'web/src/formats/onnx/run/host.ts',
  external: [/^node:/],
  output: { file: 'web/src/cli/scalepoint-run.js', format: 'esm' },
};

/**
 * Gives modules that apps use without the rest of scalepoint/model chunks of their own, so that every bundler can leave out the rest. They
 * are entries while chunks are cut; the entries themselves are empty and are removed.
 */
const light = {
  name: 'light modules',
  buildStart() {
    for (const module of ['result-name', 'save-tensors']) {
      this.emitFile({ type: 'chunk', name: 'empty', id: `web/src/convert/${module}.ts`, preserveSignature: false });
    }
  },
  generateBundle(_options, bundle) {
    for (const name of Object.keys(bundle)) if (name.startsWith('chunk-empty')) delete bundle[name];
  },
};

/** The entry points of the package and the command line, with shared chunks. */
export const packages = [
  {
    input: {
      ...Object.fromEntries(['index', 'model', 'bench', 'cli'].map((name) => [name, `web/src/${name}.ts`])),
    },
    plugins: [light],
    external: [/^node:/],
    output,
  },
];

/** Replaces modules that find files beside them, for scalepoint/inline. */
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

/** All of the package in one file. It leaves the documentation to the other files. */
export const inline = {
  input: 'web/src/inline.ts',
  external: [/^node:/],
  plugins: [embedded],
  output: { file: 'dist/inline.js', format: 'esm', comments: { jsdoc: false }, codeSplitting: false },
};

// The package's JavaScript. The glue keeps a chunk of its own, so that what reads only headers does not pull it in.
const output = {
  dir: 'dist',
  format: 'esm',
  minify: true,
  entryFileNames: '[name].js',
  chunkFileNames: 'chunk-[name].js',
  codeSplitting: { groups: [{ name: 'core', test: /core\.mjs$/ }] },
};

export default [
  { input: { index: 'web/src/index.ts', model: 'web/src/model.ts', cli: 'web/src/cli.ts' }, external: [/^node:/], output },
];

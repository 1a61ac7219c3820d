// The arrows between the rooms of web/, as rules of dependency-cruiser. `npm test` checks them. An import of a type counts like any other.

/** Rooms that a room may import from, besides itself. What is not listed is forbidden. */
const arrows = {
  core: [],
  files: ['core'],
  codecs: ['files', 'core'],
  formats: ['codecs', 'files', 'core'],
  conversions: ['formats', 'codecs', 'files', 'core'],
  arrays: ['core'],
  layers: ['arrays', 'core'],
  pipeline: ['conversions', 'formats', 'codecs', 'files', 'core'],
  running: ['pipeline', 'conversions', 'formats', 'codecs', 'files', 'core'],
  bench: ['arrays', 'layers', 'core'],
  inline: ['pipeline', 'core'],
};

/** Modules of web/src itself: the entry points, and the class that `index.ts` offers. */
const entries = '^web/src/(index|model|bench|inline|scalepoint)[.]ts$';

const rooms = Object.entries(arrows).map(([room, others]) => ({
  name: `${room} imports only what is below it`,
  severity: 'error',
  from: { path: `^web/src/${room}/` },
  to: {
    path: '^web/',
    // The benchmark measures the library as its users have it.
    pathNot: [`^web/src/(${[room, ...others].join('|')})/`, ...(room === 'bench' ? ['^web/src/scalepoint[.]ts$'] : [])],
  },
}));

export default {
  forbidden: [
    ...rooms,
    {
      name: 'no cycles',
      severity: 'error',
      from: {},
      to: { circular: true },
    },
    {
      name: 'the command line and the page import entry points only',
      severity: 'error',
      from: { path: '^web/(src/cli/|src/cli[.]ts|demo/)' },
      to: { path: '^web/', pathNot: ['^web/(src/cli|demo)/', entries] },
    },
    {
      name: 'formats and conversions load no wasm',
      severity: 'error',
      from: { path: '^web/src/(formats|conversions)/' },
      to: { path: '^web/src/core/(load|memory|core|door)[.]' },
    },
    {
      name: 'the pipeline knows formats, conversions and codecs by their registries',
      severity: 'error',
      from: { path: '^web/src/pipeline/' },
      to: { path: ['^web/src/formats/[^/]+/', '^web/src/conversions/(?!registry|converter)', '^web/src/codecs/(cast|copy|ggml|compressed-tensors)[.]'] },
    },
  ],
  options: {
    parser: 'swc',
    tsPreCompilationDeps: true,
    doNotFollow: { path: 'node_modules' },
    enhancedResolveOptions: { extensions: ['.ts', '.mts', '.d.mts', '.mjs', '.js'] },
  },
};

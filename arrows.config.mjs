// The arrows between the rooms of web/, as rules of dependency-cruiser. `npm test` checks them. An import of a type counts like any other.

/** The rooms that each room may import from, besides itself. */
const arrows = {
  core: [],
  workers: ['core'],
  formats: ['core'],
  arrays: ['core'],
  search: ['workers', 'formats', 'arrays', 'core'],
  instance: ['search', 'formats', 'arrays', 'core'],
  architectures: ['formats', 'core'],
  hub: ['formats', 'core'],
  convert: ['hub', 'architectures', 'workers', 'formats', 'arrays', 'core'],
  evaluate: ['convert', 'architectures', 'workers', 'formats', 'arrays', 'core'],
  bench: ['instance', 'core'],
  inline: ['core'],
};

/** Imports that each module in the root of web/src may have: entry points, tooling, or rooms. The root holds nothing else. */
const roots = {
  index: ['instance/', 'search/', 'arrays/', 'core/'],
  model: ['evaluate/', 'convert/', 'hub/', 'formats/', 'core/'],
  bench: ['bench/'],
  inline: ['index.ts', 'model.ts'],
  worker: ['evaluate/', 'convert/', 'search/', 'workers/'],
  tooling: ['model.ts', 'evaluate/', 'convert/', 'hub/', 'architectures/', 'formats/', 'core/'],
  cli: ['cli/'],
};

const pattern = (path) => path.replace('.', '[.]');
const anyRoot = `^web/src/(${Object.keys(roots).join('|')})[.]ts$`;

/** The rooms in formats/onnx, and those that each may import from: read, decide for each weight, write, run. */
const onnxArrows = {
  file: [],
  graph: ['file'],
  decide: ['graph', 'file'],
  write: ['decide', 'graph', 'file'],
  run: ['write', 'graph', 'file'],
};

/** Tables of formats/onnx that all of its rooms may import. */
const onnxTables = '(targets|options|reasons|forms)[.]ts$';


const rooms = Object.entries(arrows).map(([room, others]) => ({
  name: `${room} imports only what is below it`,
  severity: 'error',
  from: { path: `^web/src/${room}/` },
  to: {
    path: '^web/',
    pathNot: [`^web/src/(${[room, ...others].join('|')})/`],
  },
}));

const fromRoots = Object.entries(roots).map(([root, others]) => ({
  name: `${root}.ts imports only what is below it`,
  severity: 'error',
  from: { path: `^web/src/${root}[.]ts$` },
  to: { path: '^web/', pathNot: [`^web/src/(${others.map(pattern).join('|')})`] },
}));

const onnx = 'web/src/formats/onnx';
const onnxRooms = Object.entries(onnxArrows).map(([room, others]) => ({
  name: `formats/onnx/${room} imports only what is below it`,
  severity: 'error',
  from: { path: `^${onnx}/${room}/` },
  to: { path: `^${onnx}/`, pathNot: [`^${onnx}/(${[room, ...others].join('|')})/`, `^${onnx}/${onnxTables}`] },
}));

export default {
  forbidden: [
    ...rooms,
    ...fromRoots,
    {
      name: 'the root of web/src holds entry points and tooling alone: others import from it',
      severity: 'error',
      from: { path: '^web/src/[^/]+$', pathNot: [anyRoot] },
      to: {},
    },
    {
      name: 'the root of web/src holds entry points and tooling alone: others are imported from it',
      severity: 'error',
      from: {},
      to: { path: '^web/src/[^/]+$', pathNot: [anyRoot] },
    },
    ...onnxRooms,
    {
      name: 'tables of formats/onnx import none of its rooms',
      severity: 'error',
      from: { path: `^${onnx}/(${onnxTables})` },
      to: { path: `^${onnx}/[^/]+/` },
    },
    {
      name: 'no cycles',
      severity: 'error',
      from: {},
      to: { circular: true },
    },
    {
      name: 'the command line and the page import tooling, entry points and the version only',
      severity: 'error',
      from: { path: '^web/(src/cli|demo)/' },
      to: { path: '^web/', pathNot: ['^web/(src/cli|demo)/', '^web/src/(index|model|bench|tooling)[.]ts$', '^web/src/core/core[.]'] },
    },
    {
      name: 'formats/files imports nothing of formats',
      severity: 'error',
      from: { path: '^web/src/formats/files/' },
      to: { path: '^web/src/formats/(?!files/)' },
    },
    {
      name: 'hub imports files alone of formats',
      severity: 'error',
      from: { path: '^web/src/hub/' },
      to: { path: '^web/src/formats/(?!files/)' },
    },
    {
      name: 'formats/codecs imports files alone of formats',
      severity: 'error',
      from: { path: '^web/src/formats/codecs/' },
      to: { path: '^web/src/formats/(?!codecs/|files/)' },
    },
    {
      name: 'arrays, layers and indexes read files of formats on demand only',
      severity: 'error',
      from: { path: '^web/src/instance/' },
      to: {
        path: '^web/src/(formats/|search/open-index)',
        pathNot: '^web/src/formats/files/',
        dynamic: false,
        dependencyTypesNot: ['type-only'],
      },
    },
    {
      name: 'formats and architectures load no wasm',
      severity: 'error',
      from: { path: '^web/src/(formats/(?!codecs/|files/)|architectures/)' },
      to: { path: '^web/src/core/(load|memory|core|door)[.]' },
    },
    {
      name: 'convert knows formats, architectures and codecs by their registries',
      severity: 'error',
      // Arrays are saved as safetensors, without the code that converts models.
      from: { path: '^web/src/convert/', pathNot: '^web/src/convert/saved-tensors[.]ts$' },
      to: {
        path: [
          '^web/src/formats/(?!files/|codecs/)[^/]+/',
          '^web/src/architectures/(?!registry|converter)',
          '^web/src/formats/codecs/(cast|copy|ggml|compressed-tensors)[.]',
        ],
      },
    },
  ],
  options: {
    parser: 'swc',
    tsPreCompilationDeps: true,
    doNotFollow: { path: 'node_modules' },
    enhancedResolveOptions: { extensions: ['.ts', '.mts', '.d.mts', '.mjs', '.js'] },
  },
};

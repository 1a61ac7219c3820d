// The arrows between the rooms of web/, as rules of dependency-cruiser. `npm test` checks them. An import of a type counts like any other.

/** The rooms that each room may import from, besides itself. */
const arrows = {
  core: [],
  files: ['core'],
  codecs: ['files', 'core'],
  formats: ['codecs', 'files', 'core'],
  conversions: ['formats', 'codecs', 'files', 'core'],
  transformer: ['layers', 'core'],
  runner: ['transformer', 'scan', 'formats', 'codecs', 'files', 'core'],
  pipeline: ['runner', 'transformer', 'conversions', 'formats', 'codecs', 'files', 'core'],
  language: ['pipeline', 'runner', 'transformer', 'formats', 'codecs', 'files', 'core'],
  model: ['language', 'pipeline', 'runner', 'conversions', 'formats', 'codecs', 'arrays', 'files', 'core'],
  arrays: ['core'],
  layers: ['arrays', 'core'],
  scan: ['core'],
  search: ['runner', 'scan', 'layers', 'arrays', 'formats', 'files', 'core'],
  instance: ['search', 'layers', 'arrays', 'formats', 'files', 'core'],
  bench: ['instance', 'arrays', 'layers', 'core'],
  inline: ['runner', 'core'],
};

/** Imports that each module in the root of web/src may have: entry points, tooling, or rooms. The root holds nothing else. */
const roots = {
  index: ['instance/', 'layers/', 'arrays/', 'core/'],
  model: ['model/', 'language/', 'pipeline/', 'runner/', 'conversions/', 'formats/', 'files/', 'core/'],
  bench: ['bench/'],
  inline: ['index.ts', 'model.ts'],
  tooling: ['model.ts', 'model/', 'conversions/', 'formats/', 'core/'],
  cli: ['cli/'],
};

const pattern = (path) => path.replace('.', '[.]');
const anyRoot = `^web/src/(${Object.keys(roots).join('|')})[.]ts$`;

/** The same of the rooms in formats/onnx: read, decide for each weight, write. */
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
      from: { path: `^${onnx}/(${onnxTables}|notes[.]ts$)` },
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
      name: 'arrays and layers read files of formats on demand only',
      severity: 'error',
      from: { path: '^web/src/instance/' },
      to: { path: '^web/src/(formats|search)/', dynamic: false, dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'formats and conversions load no wasm',
      severity: 'error',
      from: { path: '^web/src/(formats|conversions)/' },
      to: { path: '^web/src/core/(load|memory|core|door)[.]' },
    },
    {
      name: 'runner, pipeline and model know formats, conversions and codecs by their registries',
      severity: 'error',
      // Arrays are saved as safetensors, without the code that converts models.
      from: { path: '^web/src/(runner|pipeline|model)/', pathNot: '^web/src/model/saved-tensors[.]ts$' },
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

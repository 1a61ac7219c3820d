// The arrows between the rooms of web/, as rules of dependency-cruiser. `npm test` checks them. An import of a type counts like any other.

/** Rooms that a room may import from, besides itself. What is not listed is forbidden. */
const arrows = {
  core: [],
  files: ['core'],
  codecs: ['files', 'core'],
  formats: ['codecs', 'files', 'core'],
  conversions: ['formats', 'codecs', 'files', 'core'],
  runner: ['formats', 'codecs', 'files', 'core'],
  pipeline: ['runner', 'conversions', 'formats', 'codecs', 'files', 'core'],
  model: ['pipeline', 'runner', 'conversions', 'formats', 'codecs', 'arrays', 'files', 'core'],
  arrays: ['core'],
  layers: ['arrays', 'core'],
  instance: ['layers', 'arrays', 'formats', 'core'],
  bench: ['instance', 'arrays', 'layers', 'core'],
  inline: ['runner', 'core'],
};

/** The same of the rooms in formats/onnx: read, decide for each weight, write. */
const onnxArrows = {
  file: [],
  graph: ['file'],
  decide: ['graph', 'file'],
  write: ['decide', 'graph', 'file'],
  run: ['graph', 'file'],
};

/** Tables of formats/onnx that all of its rooms may import. */
const onnxTables = '(targets|options|reasons|forms)[.]ts$';

/** Modules of web/src itself: the entry points, and the class that `index.ts` offers. */
const entries = '^web/src/(index|model|bench|inline)[.]ts$';

const rooms = Object.entries(arrows).map(([room, others]) => ({
  name: `${room} imports only what is below it`,
  severity: 'error',
  from: { path: `^web/src/${room}/` },
  to: {
    path: '^web/',
    pathNot: [`^web/src/(${[room, ...others].join('|')})/`],
  },
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
      name: 'runner, pipeline and model know formats, conversions and codecs by their registries',
      severity: 'error',
      // Quantized tensors of arrays are saved as safetensors.
      from: { path: '^web/src/(runner|pipeline|model)/', pathNot: '^web/src/model/tensors[.]ts$' },
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

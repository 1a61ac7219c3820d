// The groups of tests. vitest.config.ts makes a project of each. `npm test` leaves out test files that passed, if neither they, nor the tests
// that they import, nor other files of their group changed.

/**
 * @typedef {object} Project
 * @property {string} name
 * @property {string[]} include patterns of test files
 * @property {string[]} reads files and folders that decide the outcome, as paths from the root; `!` excludes a path inside of a folder
 * @property {string[]} [exclude] patterns of test files that belong elsewhere
 * @property {boolean} [isolate] gives each file a process of its own
 * @property {boolean} [readsTests] true: its tests read other tests, so they run again after a change in any
 */

const everything = ['.', '!.git', '!build', '!dist'];

/** Settings of all tests, and scripts that they share. */
const settings = [
  'scripts',
  'package.json',
  'package-lock.json',
  'tsconfig.json',
  'vitest.config.ts',
  'rolldown.config.mjs',
  'tests/projects.mjs',
];

/** The package and its tests, without documents, pages, and tests of other projects. */
const library = [
  ...['web/src', 'dist', ...settings],
  ...[
    'tests',
    '!tests/bench',
    '!tests/checks',
    '!tests/consumers',
    '!tests/cpp',
    '!tests/web/demo',
    '!tests/web/package',
  ],
  // Tests of the package that run in this project, too.
  ...['policy.browser', 'small', 'tensors'].map((name) => `tests/web/package/${name}.test.ts`),
  // Words of the page that are compared with those of the library.
  ...['model/choice', 'model/controls', 'model/sizes', 'shared/file-error', 'shared/files', 'shared/format'].map(
    (name) => `web/demo/${name}.ts`,
  ),
  // The table of inputs and results.
  'web/demo/guide/05-models.md',
  // The network of the front page, which tests run in onnxruntime.
  ...['shared/digits.mjs', 'public/samples/digits.safetensors'].map((name) => `web/demo/${name}`),
];

/**
 * The projects of some tests. They run in this order: those with long files first, and at the end many short files, which keep all processors
 * busy.
 * @type {Project[]}
 */
const apart = [
  { name: 'cpp', include: ['tests/cpp/*.test.ts'], reads: ['CMakeLists.txt', 'cpp', 'tests/cpp', 'tests/golden'] },
  {
    name: 'checks',
    include: ['tests/checks/*.test.ts'],
    reads: [...everything, 'dist', 'build/wasm'],
    readsTests: true,
  },
  // The package as it is packed and installed, its types, the README, and the script that makes the sample model.
  {
    name: 'package',
    include: ['tests/web/package/*.node.test.ts'],
    reads: [
      ...[...everything, 'dist', 'build/demo', '!tests'],
      ...['web/package', 'web/support', 'consumers', 'bench', 'types'].map((name) => `tests/${name}`),
    ],
  },
  {
    name: 'page',
    include: ['tests/web/demo/**/*.test.ts'],
    reads: [
      ...['web', 'dist', 'build/demo', 'vite.config.ts', ...settings],
      ...['tests/web/demo', 'tests/web/support', 'tests/web/cli/support.ts'],
      ...['encoder', 'ort', 'transformer', 'transformers'].map((name) => `tests/web/formats/onnx/${name}.ts`),
    ],
  },
  {
    // Files that measure the memory of a process or take long, and one that loads the package anew, with a module of its own.
    name: 'alone',
    include: [
      'tests/web/formats/gguf/plan.node.test.ts',
      'tests/web/model/{fit-logits,gptq}.node.test.ts',
      'tests/web/**/{big,given-wasm,header-memory}.node.test.ts',
    ],
    reads: library,
    isolate: true,
  },
];

/** The tests of the library in Chromium, where files named *.node.test.ts cannot run. */
const chromium = {
  name: 'chromium',
  include: ['tests/web/**/*.test.ts'],
  exclude: ['**/*.node.test.ts'],
  reads: library,
};

/** All other tests, in Node. */
const node = {
  name: 'node',
  include: ['tests/web/**/*.test.ts', 'tests/fuzz/*.test.ts'],
  exclude: ['**/*.browser.test.ts', ...apart.flatMap(({ include }) => include)],
  reads: [...library, 'cpp'],
};

export { chromium };

/** Tests of `node` that reach nothing of the build but by the entry points, so that they run with an installed package, too. */
export const packedTests = [
  'digests.test.ts',
  ...['quantize-goldens.test', 'compare.node.test', 'pack.node.test', 'tensor-like.node.test'].map(
    (name) => `arrays/${name}.ts`,
  ),
  ...['layers/layer', 'package/tensors', 'search/open-index'].map((name) => `${name}.test.ts`),
  'model/verify.node.test.ts',
].map((name) => `tests/web/${name}`);

/** The projects that run in Node. @type {Project[]} */
export const inNode = [...apart, node];

/** A pattern of paths as a regular expression: `**` is any number of folders, `*` a part of a name, `{a,b}` one of several. @param {string} glob */
function patternOf(glob) {
  const source = glob
    .replace(/[.+^$()|[\]\\]/g, '\\$&')
    .replace(/\{([^}]*)\}/g, (_, names) => `(?:${names.replaceAll(',', '|')})`)
    .replace(/\*\*\/|\*/g, (star) => (star === '*' ? '[^/]*' : '(?:.*/)?'));
  return new RegExp(`^${source}$`);
}

/** Those of some test files that belong to a project. @param {Project} project @param {string[]} tests */
export function testsOf({ include, exclude = [] }, tests) {
  const [included, excluded] = [include.map(patternOf), exclude.map(patternOf)];
  return tests.filter(
    (path) => included.some((pattern) => pattern.test(path)) && !excluded.some((pattern) => pattern.test(path)),
  );
}

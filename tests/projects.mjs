// The groups of tests. vitest.config.ts makes a project of each. A run leaves out test files that passed, if neither they, nor the tests
// that they import, nor other files of their group changed.
//
// `npm test` has five minutes on two processors, so it runs the quick files: those that are cheap and need nothing but the clone.
// `npm run test:full` runs all.

/**
 * @typedef {object} Project
 * @property {string} name
 * @property {string[]} include patterns of test files
 * @property {string[]} reads files and folders that decide the outcome, as paths from the root; `!` excludes a path inside of a folder
 * @property {string[]} [exclude] patterns of test files that belong elsewhere
 * @property {string[]} [quick] patterns of the files that `npm test` runs; without it and `slow` it runs all
 * @property {string[]} [slow] patterns of the files that it leaves to `npm run test:full`
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
  ...['choice', 'controls', 'explain', 'sizes'].map((name) => `web/demo/model/${name}.ts`),
  ...[
    'copy',
    'dom',
    'file-error',
    'file-path',
    'files',
    'format',
    'live',
    'page-files',
    'problems',
    'scroll',
    'strangers',
    'template',
  ].map((name) => `web/demo/shared/${name}.ts`),
  // The table of inputs and results.
  'web/demo/guide/05-models.md',
  // The models of the front page.
  ...['shared/digits.mjs', 'public/samples'].map((name) => `web/demo/${name}`),
];

/**
 * The projects of some tests. They run in this order: those with long files first, and at the end many short files, which keep all processors
 * busy.
 * @type {Project[]}
 */
const apart = [
  {
    name: 'cpp',
    include: ['tests/cpp/*.test.ts'],
    reads: [
      'CMakeLists.txt',
      'cpp',
      'tests/cpp',
      'tests/fuzz/cpp',
      'tests/golden',
      'scripts/fuzz_core.mjs',
      'scripts/steps.mjs',
    ],
    // The other lanes are plain arrays, and their results are compared with these in wasm.
    quick: ['tests/cpp/simd.test.ts'],
  },
  {
    name: 'checks',
    include: ['tests/checks/*.test.ts'],
    // One starts a process for each way that a run can end, the other one has the long checks.
    slow: ['tests/checks/{long-checks,outcome}.test.ts'],
    reads: [...everything, 'dist', 'build/wasm'],
    readsTests: true,
  },
  // The package as it is packed and installed, its types, the README, and the script that makes the sample model.
  {
    name: 'package',
    include: ['tests/web/package/*.node.test.ts'],
    quick: [],
    reads: [
      ...[...everything, 'dist', 'build/demo', '!tests'],
      ...['web/package', 'web/support', 'consumers', 'bench', 'types'].map((name) => `tests/${name}`),
    ],
  },
  {
    name: 'page',
    include: ['tests/web/demo/**/*.test.ts'],
    // In braces, so that it is no path of a file that the checks read.
    quick: ['tests/web/demo/{flows}.node.test.ts'],
    reads: [
      ...['web', 'dist', 'build/demo', 'vite.config.ts', ...settings],
      ...['tests/web/demo', 'tests/web/support', 'tests/web/cli/support.ts', 'tests/web/hub/support.ts'],
      ...['encoder', 'ort', 'transformer', 'transformers'].map((name) => `tests/web/formats/onnx/${name}.ts`),
    ],
  },
  {
    // Files that measure the memory of a process or take long, and one that loads the package anew, with a module of its own.
    name: 'alone',
    include: [
      'tests/web/formats/gguf/plan.node.test.ts',
      'tests/web/evaluate/fit-logits.node.test.ts',
      'tests/web/convert/gptq.node.test.ts',
      'tests/web/**/{big,given-wasm,header-memory}.node.test.ts',
    ],
    quick: ['tests/web/**/given-wasm.node.test.ts'],
    reads: library,
    isolate: true,
  },
];

/** The tests of the library in Chromium, where files named *.node.test.ts cannot run. @type {Project} */
const chromium = {
  name: 'chromium',
  include: ['tests/web/**/*.test.ts'],
  exclude: ['**/*.node.test.ts'],
  quick: ['tests/web/{digests,arrays/quantize-goldens,core/load}.test.ts'],
  reads: library,
};

/** All other tests, in Node. */
const node = {
  name: 'node',
  include: ['tests/web/**/*.test.ts', 'tests/fuzz/*.test.ts'],
  exclude: ['**/*.browser.test.ts', ...apart.flatMap(({ include }) => include)],
  slow: [
    // They need sample models of others, or packages of tests/transformers.
    'tests/web/**/*.samples.node.test.ts',
    'tests/web/architectures/huggingface/{tokens,tokenizers}.node.test.ts',
    'tests/web/formats/onnx/{engines,gemm,halves-in,transformers}.node.test.ts',
    'tests/web/formats/onnx/run/{backends,evaluate,evaluate-samples}.node.test.ts',
    // They run engines, browsers, or many conversions.
    'tests/web/arrays/{block-types,blocks,codebook,grids,importance,observer,packed,properties,quantize-bytes,quantize-tiles,range,small-blocks,superblocks,weights}.node.test.ts',
    'tests/web/cli/{backends,calibrate,completions,min-output,overlap,resume,several,side-files,sizes}.node.test.ts',
    'tests/web/architectures/{folder,outward,tokenizer-json}.node.test.ts',
    'tests/web/architectures/huggingface/{bitnet,decoders,encoders,gemma3n,hostile,mistral-layout,recurrent,refusals,vision}.node.test.ts',
    'tests/web/architectures/nvfp4.node.test.ts',
    'tests/web/architectures/onnx/{encoders,folders,fused,readers,results,sources,transformers}.node.test.ts',
    'tests/web/architectures/webllm/webllm.node.test.ts',
    'tests/web/digests.node.test.ts',
    // Chromium runs them for `npm test`.
    'tests/web/digests.test.ts',
    'tests/fuzz/{conversions,gguf,layouts,onnx}.test.ts',
    'tests/web/core/{address-space,door}.node.test.ts',
    'tests/web/formats/files/stalls.node.test.ts',
    'tests/web/formats/adapters/lora.node.test.ts',
    'tests/web/formats/gguf/{files,importance,search}.node.test.ts',
    'tests/web/formats/onnx/{attention,beyond-half,casts,chains,codes,dynamic,half,lookups,odd-graphs,opsets,reduced,run,several,static,write}.node.test.ts',
    'tests/web/formats/onnx/run/{calibrate,compare,encoder,overflow,resume}.node.test.ts',
    'tests/web/formats/pytorch/{hostile,read}.node.test.ts',
    'tests/web/formats/safetensors/{comfy,compressed-files,diffusers,experts,foreign-sources,gptq-files,mlx,quantized,small-floats}.node.test.ts',
    'tests/web/evaluate/{calibrate,evaluate,quantized-logits,resume}.node.test.ts',
    'tests/web/evaluate/workers.test.ts',
    'tests/web/arrays/layer.test.ts',
    'tests/web/convert/{fetched,fit,fit-outputs,growth,many,min-output,read-planned,safetensors-statistics,verify}.node.test.ts',
    'tests/web/evaluate/onnx-statistics.node.test.ts',
    'tests/web/arrays/quantize-inputs.test.ts',
    'tests/web/package/tensors.test.ts',
    'tests/web/convert/{batches,engine,failures}.node.test.ts',
    'tests/web/convert/reopened.node.test.ts',
    'tests/web/search/{properties,url}.node.test.ts',
    'tests/web/search/workers.test.ts',
    'tests/web/cli/push.node.test.ts',
    'tests/web/hub/{cli,client,commands,page,push,requests,trouble}.node.test.ts',
  ],
  reads: [...library, 'cpp'],
};

export { chromium };

/** Tests of `node` that reach nothing of the build but by the entry points, so that they run with an installed package, too. */
export const packedTests = [
  'digests.test.ts',
  ...['quantize-goldens.test', 'compare.node.test', 'pack.node.test', 'tensor-like.node.test'].map(
    (name) => `arrays/${name}.ts`,
  ),
  ...['arrays/layer', 'package/tensors', 'search/open-index'].map((name) => `${name}.test.ts`),
  'convert/verify.node.test.ts',
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

/** Those of some paths that a pattern matches. @param {string[]} patterns @param {string[]} paths */
function matched(patterns, paths) {
  const all = patterns.map(patternOf);
  return paths.filter((path) => all.some((pattern) => pattern.test(path)));
}

/**
 * Those of some test files that belong to a project.
 * @param {Project} project @param {string[]} tests @param {boolean} [full] false: only those of `npm test`
 */
export function testsOf({ include, exclude = [], quick, slow = [] }, tests, full = true) {
  const excluded = new Set(matched([...exclude, ...(full ? [] : slow)], tests));
  const included = matched(include, tests).filter((path) => !excluded.has(path));
  return full || quick === undefined ? included : matched(quick, included);
}

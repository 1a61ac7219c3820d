import type { KnipConfig } from 'knip';

// Files that are started by name, and packages that are used through their commands or by tests.
const config: KnipConfig = {
  entry: [
    'cpp/embind_types.js',
    'web/src/cli.ts',
    'scripts/reference/plugin.mjs',
    'tests/bench/{backends,big,big-language,dtypes,hub,onnx,outputs,outputs-bias,outputs-encoder,outputs-linear,outputs-onnx,outputs-orders,outputs-outliers,outputs-sizes,outputs-tokens,search,vectors,webgpu}.mjs',
    'tests/bench/{teach_encoder,teach_llama}.mjs',
    'tests/upstream/show.mjs',
    'tests/consumers/run.mjs',
    'tests/consumers/app/*.js',
    'tests/types/{editor.mjs,exports.mjs,optional.mjs,use.mts,dom.mts}',
    'web/src/inline/own-*.ts',
    'web/demo/**/main.ts',
    'web/demo/public/*.js',
  ],
  ignoreDependencies: [
    '@arethetypeswrong/cli',
    '@node-llama-cpp/linux-x64',
    'axe-core',
    'koffi',
    'typedoc',
    'typedoc-plugin-markdown',
    'typescript-5.9',
  ],
  ignoreBinaries: ['cmake', 'ctest', 'script'],
};

export default config;

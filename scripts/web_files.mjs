// Which web tests run together, by their paths. vitest.config.ts makes a project of each group, and scripts/test.mjs knows what they depend on.

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './steps.mjs';

const groups = {
  // These depend on nothing but the package as it is built, or on a script.
  package: /^package\/(package|types|sample-script)\.node\./,
  // These need a process of their own. The command line has streams, an exit code and signals; koffi, which calls llama.cpp, was seen to
  // refuse structs in a process that had run other files.
  alone:
    /^(cli\/|conversions\/.*\.node\.|formats\/gguf\/[^/]*\.node\.|model\/fit-logits\.|arrays\/(blocks|grids|small-blocks|superblocks|weights)\.node\.)/,
  // These are about the core and model files, and take long.
  long: /^(digests|(pipeline\/(engine|failures)|model\/big)|arrays\/(codebook|observer|quantize-tiles|range)|formats\/(header-memory|onnx\/[^/]*))\.node\./,
};

/** The files of a group, as paths from the root. @param {keyof typeof groups} group */
export function filesOf(group) {
  const names = readdirSync(join(root, 'tests/web'), { recursive: true, encoding: 'utf8' });
  return names
    .map((name) => name.replaceAll('\\', '/'))
    .filter((name) => name.endsWith('.test.ts') && groups[group].test(name))
    .map((name) => `tests/web/${name}`)
    .sort();
}

/** The backends that a command line names. */
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { type RunOptions, ScalepointError } from '../model.js';
import { type BackendName, didYouMean, oneOf } from '../tooling.js';
import { findBrowser } from './browser.js';
import { NativeBackend } from './native.js';
import { UsageError } from './process.js';
import { BrowserBackend } from './webgpu.js';
import { wrongFlag } from './wording.js';

const names = ['wasm', 'webgpu', 'node'] as const satisfies readonly BackendName[];

/** Path of the main file of a package: of one installed beside this one, or in the current folder. @throws ScalepointError `RUNTIME` */
function packagePath(name: string, backend: BackendName): string {
  for (const from of [import.meta.url, join(process.cwd(), 'package.json')]) {
    try {
      return createRequire(from).resolve(name);
    } catch {
      // Look in the other place.
    }
  }
  throw new ScalepointError('RUNTIME', `--backend ${backend} takes ${name}: npm install ${name}`);
}

/** The names of --backend, each once; undefined without it. @throws UsageError */
export function backendNames(given: readonly string[] | undefined): readonly BackendName[] | undefined {
  const words = given?.flatMap((one) => one.split(',')).map((word) => word.trim());
  const found = words?.map((word): BackendName => {
    const name = names.find((known) => known === word);
    if (name === undefined) throw wrongFlag('backend', oneOf(names), word, didYouMean(word, names));
    return name;
  });
  return found && [...new Set(found)];
}

/** Opens backends, passes them to f, and closes them. @throws UsageError, ScalepointError */
export async function withBackends<T>(
  wanted: readonly BackendName[] | undefined,
  browser: string | undefined,
  f: (backends: RunOptions['backends']) => Promise<T>,
): Promise<T> {
  if (browser !== undefined && !wanted?.includes('webgpu'))
    throw new UsageError('--browser goes with --backend webgpu');
  const started: (BrowserBackend | NativeBackend)[] = [];
  const open = (name: BackendName): NonNullable<RunOptions['backends']>[number] => {
    if (name === 'wasm') return name;
    const backend =
      name === 'node'
        ? new NativeBackend(packagePath('onnxruntime-node', name))
        : new BrowserBackend(findBrowser(browser), dirname(packagePath('onnxruntime-web', name)));
    started.push(backend);
    return backend;
  };
  try {
    return await f(wanted?.map(open));
  } finally {
    for (const backend of started) await backend.close();
  }
}

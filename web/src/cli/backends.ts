/** The backends that a command line names. */
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { type RunOptions, ScalepointError } from '../model.js';
import type { BackendName } from '../tooling.js';
import { findBrowser } from './browser.js';
import { NativeBackend } from './native.js';
import { UsageError } from './process.js';
import { BrowserBackend } from './webgpu.js';

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
    return await f(wanted && [...new Set(wanted)].map(open));
  } finally {
    for (const backend of started) await backend.close();
  }
}

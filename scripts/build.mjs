// Builds everything: the wasm core, the package (dist/) and the demo page (build/demo/).
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packages, worker } from '../rolldown.config.mjs';
import { makeDoor } from './make_door.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const toolchain = '/usr/share/emscripten/cmake/Modules/Platform/Emscripten.cmake';

/** @param {string} command @param {string[]} args */
function run(command, args) {
  try {
    execFileSync(command, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'], maxBuffer: 1 << 26 });
  } catch (error) {
    process.stderr.write(`${error.stdout ?? ''}${error.stderr ?? ''}`);
    throw new Error(`${[command, ...args].join(' ')} failed`, { cause: error });
  }
}

/** A number for the state of the C++ sources, by which JavaScript recognizes its wasm. */
function hashOfSources() {
  const hash = createHash('sha256').update(version);
  const files = readdirSync(join(root, 'cpp'), { recursive: true, withFileTypes: true }).filter((entry) =>
    entry.isFile(),
  );
  const paths = files.map((entry) => join(entry.parentPath, entry.name)).sort();
  for (const path of [...paths, join(root, 'CMakeLists.txt'), join(root, 'build/wasm/door_exports.h')])
    hash.update(readFileSync(path));
  return hash.digest().readUInt32LE() >>> 1;
}

/** Puts `text` into a file unless it is there already, so that watchers and later steps stay quiet. */
function write(path, text) {
  if (!existsSync(path) || readFileSync(path, 'utf8') !== text) writeFileSync(path, text);
}

export async function buildWasm() {
  makeDoor();
  const buildId = hashOfSources();
  const out = join(root, 'build/wasm');
  run('cmake', [
    '-S',
    '.',
    '-B',
    'build/wasm',
    '-G',
    'Ninja',
    `-DSCALEPOINT_BUILD_ID=${buildId}`,
    `-DCMAKE_TOOLCHAIN_FILE=${toolchain}`,
    // Debian's emcc finds its JavaScript optimizer's dependencies only with this.
    '-DCMAKE_CXX_LINKER_LAUNCHER=env;NODE_PATH=/usr/share/nodejs',
  ]);
  run('cmake', ['--build', 'build/wasm']);
  const glue = ['simd', 'scalar'].map((tier) =>
    readFileSync(join(out, `core-${tier}.mjs`), 'utf8').replaceAll(`core-${tier}`, 'core'),
  );
  if (glue[0] !== glue[1]) throw new Error('the two tiers have different glue: link with less minification');
  write(
    join(root, 'web/src/core/core.mjs'),
    `${glue[0]}\nexport const buildId = ${buildId};\nexport const version = ${JSON.stringify(version)};\n`,
  );
  for (const tier of ['simd', 'scalar']) {
    copyFileSync(join(out, `core-${tier}.wasm`), join(root, `web/src/core/core-${tier}.wasm`));
  }
  const limits = readFileSync(join(out, 'limits.wasm')).toString('base64');
  write(join(root, 'web/src/bench/limits.mjs'), `export const limits = '${limits}';\n`);
  await bundle([worker]);
}

/** @param {typeof packages} configs */
async function bundle(configs) {
  const { rolldown } = await import('rolldown');
  for (const { output, ...input } of configs) {
    const build = await rolldown({ ...input, cwd: root });
    await build.write(output);
    await build.close();
  }
}

export async function buildPackage() {
  rmSync(join(root, 'dist'), { recursive: true, force: true });
  mkdirSync(join(root, 'dist'));
  await bundle([worker, ...packages]);
  run('node_modules/.bin/tsc', ['-p', 'tsconfig.build.json']);
  for (const name of ['core/core.d.mts', 'core/wasmfile.d.ts'])
    copyFileSync(join(root, 'web/src', name), join(root, 'dist', name));
  for (const tier of ['simd', 'scalar']) {
    copyFileSync(join(root, `web/src/core/core-${tier}.wasm`), join(root, `dist/core-${tier}.wasm`));
  }
  copyFileSync(join(root, 'web/src/pipeline/worker.js'), join(root, 'dist/worker.js'));
}

export async function buildDemo() {
  const { build } = await import('vite');
  await build({ configFile: join(root, 'vite.config.ts'), logLevel: 'warn' });
}

export async function buildAll() {
  await buildWasm();
  await buildPackage();
  await buildDemo();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildAll();

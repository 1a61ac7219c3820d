// Builds everything: the wasm core, the package (dist/) and the demo page (build/demo/). What is there already, made from the same files, is
// not made again.
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { constants, setPriority } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { inline, packages, runner, worker } from '../rolldown.config.mjs';
import { moduleFile } from '../web/demo/shared/install.mjs';
import { compileCommand, environment, findEmscripten } from './emscripten.mjs';
import { makeDoor } from './make_door.mjs';
import { setup } from './setup.mjs';
import { digestOf, filesAt, keepStamp, stampOf } from './stamps.mjs';
import { explain, root, StepError, step } from './steps.mjs';
import { finishTypes } from './types.mjs';

// Rolldown's allocator (mimalloc) would give memory back after 10 ms and then fill it with zeros anew, which takes a fifth of the time of the
// demo page. It reads this when it is loaded.
process.env.MIMALLOC_PURGE_DELAY ??= '1000';

const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));

/** Runs a program and returns its output. @param {string} command @param {string[]} args @param {NodeJS.ProcessEnv} [env] */
async function run(command, args, env = process.env) {
  try {
    const started = promisify(execFile)(command, args, { cwd: root, maxBuffer: 1 << 26, env });
    // Compilers keep all processors busy. What npm and TypeDoc do beside them takes one, and ends earlier if it goes first.
    if (command === 'cmake' && started.child.pid !== undefined)
      setPriority(started.child.pid, constants.priority.PRIORITY_BELOW_NORMAL);
    const { stdout, stderr } = await started;
    return stdout + stderr;
  } catch (error) {
    throw new StepError(`${[command, ...args].join(' ')} failed`, `${error.stdout ?? ''}${error.stderr ?? ''}`);
  }
}

// ------------------------------------------------------------------------------------------------------- what is there already

/**
 * @typedef {object} Step
 * @property {string} name
 * @property {string[]} from files and folders that it reads; a change in any of them has it done again. `!` excludes a path inside of a folder
 * @property {string[]} to files and folders that it writes, and nothing else does
 * @property {string} [given] what else decides the result
 * @property {() => Promise<void>} make
 */

/** Files that every step depends on. */
const tools = ['package.json', 'package-lock.json', 'scripts/build.mjs', 'scripts/stamps.mjs'];

/**
 * Does a step, unless the last time it read the same and what it wrote is still there.
 * @param {Step} step
 */
async function build({ name, from, to, given = '', make }) {
  const without = from.filter((path) => path.startsWith('!')).map((path) => path.slice(1));
  const inside = from.filter((path) => !path.startsWith('!'));
  const read = `${digestOf(filesAt([...tools, ...inside], without).filter((file) => !to.includes(file)))} ${given}`;
  const state = () => `${read} ${digestOf(filesAt(to))}\n`;
  if (stampOf(name) === state()) return;
  await make();
  keepStamp(name, state());
}

// ---------------------------------------------------------------------------------------------------------------------- steps

/** Puts `text` into a file unless it is there already, so that watchers and later steps stay quiet. */
function write(path, text) {
  if (!existsSync(path) || readFileSync(path, 'utf8') !== text) writeFileSync(path, text);
}

/** @param {typeof packages} configs */
async function bundle(configs) {
  const { rolldown } = await import('rolldown');
  for (const { output, ...input } of configs) {
    const bundled = await rolldown({ ...input, cwd: root });
    await bundled.write(output);
    await bundled.close();
  }
}

/** The wasm files, without their ends: both modules in both tiers. */
const wasmModules = ['arrays-simd', 'arrays-scalar', 'core-simd', 'core-scalar'];

/** @type {Step} */
const door = {
  name: 'door',
  from: ['cpp', 'scripts/door', 'scripts/make_door.mjs'],
  to: ['web/src/core/door.ts', 'build/wasm/door_exports_arrays.h', 'build/wasm/door_exports_models.h'],
  async make() {
    makeDoor();
  },
};

/** @type {Step} */
const wasm = {
  name: 'wasm',
  from: ['cpp', 'CMakeLists.txt', 'web/src/bench/limits.cpp', ...door.to.slice(1)],
  to: [
    'web/src/core/core.mjs',
    'web/src/bench/limits-wasm.mjs',
    ...wasmModules.flatMap((name) => [
      `web/src/core/${name}.wasm`,
      ...['mjs', 'wasm', 'mjs.symbols'].map((end) => `build/wasm/${name}.${end}`),
    ]),
  ],
  async make() {
    // By this number JavaScript recognizes its wasm.
    const hash = createHash('sha256')
      .update(version)
      .update(
        digestOf(
          filesAt(['cpp', 'CMakeLists.txt', 'build/wasm/door_exports_arrays.h', 'build/wasm/door_exports_models.h']),
        ),
      );
    const buildId = hash.digest().readUInt32LE() >>> 1;
    const emscripten = findEmscripten();
    if (emscripten === undefined) throw new StepError('Emscripten is not on PATH');
    await step('build', async (say) => say(`Emscripten ${emscripten.version} in ${emscripten.folder}`));
    const used = join(root, 'build/wasm/emscripten.txt');
    const name = `${emscripten.version} ${emscripten.folder}\n`;
    // CMake never changes the toolchain of a folder.
    if (!existsSync(used) || readFileSync(used, 'utf8') !== name) {
      for (const path of ['CMakeCache.txt', 'CMakeFiles'])
        rmSync(join(root, 'build/wasm', path), { recursive: true, force: true });
    }
    write(used, name);
    const variables = Object.entries(emscripten.variables).map((entry) => entry.join('='));
    const settings = [
      '-DSCALEPOINT_BUILD_MODULES=ON',
      `-DSCALEPOINT_BUILD_ID=${buildId}`,
      `-DCMAKE_TOOLCHAIN_FILE=${emscripten.toolchain}`,
      `-DSCALEPOINT_COMPILE=${compileCommand(emscripten)}`,
      `-DCMAKE_CXX_LINKER_LAUNCHER=${variables.length === 0 ? '' : ['env', ...variables].join(';')}`,
    ];
    await run('cmake', ['-S', '.', '-B', 'build/wasm', '-G', 'Ninja', ...settings], environment());
    await run('cmake', ['--build', 'build/wasm'], environment());
    const out = join(root, 'build/wasm');
    const glue = wasmModules.map((name) => readFileSync(join(out, `${name}.mjs`), 'utf8').replaceAll(name, 'core'));
    if (new Set(glue).size !== 1)
      throw new Error('the wasm files have different glue: their imports or plain exports differ');
    write(
      join(root, 'web/src/core/core.mjs'),
      `${glue[0]}\nexport const buildId = ${buildId};\nexport const version = ${JSON.stringify(version)};\n`,
    );
    for (const name of wasmModules) copyFileSync(join(out, `${name}.wasm`), join(root, `web/src/core/${name}.wasm`));
    const limits = readFileSync(join(out, 'limits.wasm')).toString('base64');
    write(join(root, 'web/src/bench/limits-wasm.mjs'), `export const limits = '${limits}';\n`);
  },
};

/** Files without imports: that of workers, and the one that runs models for the command line. */
const single = [worker, runner].map(({ output: { file } }) => file);

/** @type {Step} */
const workerFile = {
  name: 'worker',
  from: ['web/src', 'rolldown.config.mjs'],
  to: single,
  make: () => bundle([worker, runner]),
};

/** A file as embedded.mjs has it. @param {Uint8Array} bytes */
const packed = (bytes) => gzipSync(bytes, { level: 9 }).toString('base64');

/** @type {Step} */
const embedded = {
  name: 'embedded',
  from: ['web/src', 'rolldown.config.mjs'],
  to: ['web/src/inline/embedded.mjs'],
  async make() {
    const { rolldown } = await import('rolldown');
    const bundled = await rolldown({ input: join(root, worker.output.file), external: [/^node:/] });
    const { output } = await bundled.generate({ format: 'esm', minify: true });
    await bundled.close();
    const files = {
      simd: readFileSync(join(root, 'web/src/core/core-simd.wasm')),
      scalar: readFileSync(join(root, 'web/src/core/core-scalar.wasm')),
      worker: Buffer.from(output[0].code),
    };
    const lines = Object.entries(files).map(([name, bytes]) => `export const ${name} = '${packed(bytes)}';\n`);
    write(join(root, 'web/src/inline/embedded.mjs'), lines.join(''));
  },
};

/** @type {Step} */
const dist = {
  name: 'dist',
  from: ['web/src', 'rolldown.config.mjs', 'tsconfig.json', 'tsconfig.build.json', 'scripts/types.mjs'],
  to: ['dist'],
  async make() {
    rmSync(join(root, 'dist'), { recursive: true, force: true });
    mkdirSync(join(root, 'dist'));
    await Promise.all([bundle([...packages, inline]), run('node_modules/.bin/tsc', ['-p', 'tsconfig.build.json'])]);
    for (const name of ['core/core.d.mts', 'core/wasmfile.d.ts', 'core/platform.d.ts'])
      copyFileSync(join(root, 'web/src', name), join(root, 'dist', name));
    finishTypes(join(root, 'dist'));
    for (const name of wasmModules)
      copyFileSync(join(root, `web/src/core/${name}.wasm`), join(root, `dist/${name}.wasm`));
    for (const file of single) copyFileSync(join(root, file), join(root, 'dist', basename(file)));
  },
};

/** Files that other steps write into the sources. TypeDoc reads their declarations instead. */
const made = [...wasm.to, ...workerFile.to, ...embedded.to].filter((path) => path.startsWith('web/src/'));

/** @type {Step} */
const reference = {
  name: 'reference',
  from: ['web/src', ...made.map((path) => `!${path}`), 'tsconfig.json', 'scripts/reference'],
  to: ['build/reference', 'build/reference-warnings.txt'],
  async make() {
    const typedoc = 'scripts/reference/node_modules/typedoc/bin/typedoc';
    const warnings = await run('node', [typedoc, '--options', 'scripts/reference/typedoc.json', '--logLevel', 'Warn']);
    // A test reads them, because TypeDoc takes long.
    writeFileSync(join(root, 'build/reference-warnings.txt'), warnings);
  },
};

/** @type {Step} */
const demo = {
  name: 'demo',
  from: [
    'web',
    'vite.config.ts',
    'build/reference',
    'dist',
    'package.json',
    'README.md',
    'LICENSE',
    'CHANGELOG.md',
    'CONTRIBUTING.md',
  ],
  to: ['build/demo'],
  given: process.env.SCALEPOINT_SITE ?? '',
  async make() {
    const vite = await import('vite');
    await vite.build({ configFile: join(root, 'vite.config.ts'), logLevel: 'warn' });
    // The package, for `npm i ADDRESS`, and as a module for pages without npm. Visits without a network do not need them.
    await run('npm', ['pack', '--ignore-scripts', '--silent', '--pack-destination', 'build/demo']);
    copyFileSync(join(root, 'dist/inline.js'), join(root, 'build/demo', moduleFile));
  },
};

/**
 * Builds what takes longest while setup installs: the wasm core, which needs no npm packages, and the reference of the guide, which needs no
 * wasm.
 * @param {Promise<unknown>} programs fulfilled once the programs are there @param {Promise<unknown>} packages once those of npm are
 */
export async function buildEarly(programs, packages) {
  const opened = programs.then(() => build(door));
  const core = opened.then(() => build(wasm));
  await Promise.all([core, Promise.all([opened, packages]).then(() => build(reference))]);
}

/** Builds everything. */
export async function buildAll() {
  await buildEarly(Promise.resolve(), Promise.resolve());
  await build(workerFile);
  await build(embedded);
  await build(dist);
  await build(demo);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    await setup({ purpose: 'start', early: buildEarly });
    await buildAll();
  } catch (error) {
    explain(error);
    process.exitCode = 1;
  }
}

// Installs what building and testing need and this machine lacks: the npm packages of package-lock.json, and Debian packages.
//
//   node scripts/setup.mjs [--test]     --test adds what only the tests need
//
// When nothing is missing, this looks at a few files and starts no program.

import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { explain, mustRun, root, run, StepError, step } from './steps.mjs';

const chromium = process.env.CHROMIUM ?? '/usr/bin/chromium';

/**
 * Whether a program can be started by its name alone.
 * @param {string} program
 */
function onPath(program) {
  return (process.env.PATH ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Debian packages, and how to see that each is there, wherever it came from. */
const debianPackages = [
  { name: 'cmake', forTests: false, present: () => onPath('cmake') },
  { name: 'ninja-build', forTests: false, present: () => onPath('ninja') },
  // The toolchain file is Debian's own; wasm-dis comes along with it and serves scripts/check_wasm.mjs.
  {
    name: 'emscripten',
    forTests: false,
    present: () => existsSync('/usr/share/emscripten/cmake/Modules/Platform/Emscripten.cmake') && onPath('wasm-dis'),
  },
  { name: 'g++', forTests: true, present: () => onPath('c++') },
  { name: 'libgtest-dev', forTests: true, present: () => existsSync('/usr/include/gtest/gtest.h') },
  { name: 'libsimde-dev', forTests: true, present: () => existsSync('/usr/include/simde/wasm/simd128.h') },
  { name: 'chromium', forTests: true, present: () => existsSync(chromium) },
];

/**
 * Whether node_modules holds what package-lock.json lists. npm leaves its own copy of the list there, without the packages
 * that belong to other systems.
 */
function nodeModulesFit() {
  const installed = join(root, 'node_modules/.package-lock.json');
  if (!existsSync(installed)) return false;
  const packagesOf = (/** @type {string} */ path) => JSON.parse(readFileSync(path, 'utf8')).packages;
  const wanted = packagesOf(join(root, 'package-lock.json'));
  const present = packagesOf(installed);
  return Object.entries(wanted).every(([path, entry]) => {
    if (path === '') return true;
    const found = present[path];
    return found === undefined
      ? entry.optional === true
      : found.version === entry.version && found.integrity === entry.integrity;
  });
}

/**
 * The words before apt-get that give it the right to install, or undefined if there is none.
 * @returns {Promise<string[] | undefined>}
 */
async function rightsForApt() {
  if (!onPath('apt-get')) return undefined;
  if (process.getuid?.() === 0) return [];
  if (onPath('sudo') && (await run('sudo', ['-n', 'true'])).code === 0) return ['sudo', '-n'];
  return undefined;
}

/** @param {string[]} names */
async function installDebianPackages(names) {
  const rights = await rightsForApt();
  if (rights === undefined) {
    throw new StepError(
      'some Debian packages are missing, and installing them needs root',
      `Install them, then try again:\n\n  apt-get install --no-install-recommends ${names.join(' ')}\n`,
    );
  }
  const apt = async (/** @type {string[]} */ args) => {
    const [program, ...rest] = [...rights, 'env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', '-q', '-y', ...args];
    return mustRun(/** @type {string} */ (program), rest);
  };
  await apt(['update']);
  await apt(['install', '--no-install-recommends', ...names]);
}

/**
 * Makes sure that everything is there. Prints one line, and one more for each installation.
 * @param {{ test: boolean }} options
 * @throws StepError saying what is missing
 */
export async function setup({ test }) {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major < 20 || (major === 20 && minor < 19)) {
    throw new StepError(`Node 20.19 or newer is needed; this is ${process.versions.node}`);
  }
  if (test && process.env.CHROMIUM !== undefined && !existsSync(chromium)) {
    throw new StepError(`the variable CHROMIUM names ${chromium}, which does not exist`);
  }
  const missing = debianPackages.filter((entry) => (test || !entry.forTests) && !entry.present());
  const needNodeModules = !nodeModulesFit();
  if (missing.length === 0 && !needNodeModules) {
    await step('setup', async (say) => say('nothing missing'));
    return;
  }
  if (missing.length > 0) {
    const names = missing.map((entry) => entry.name);
    await step('setup', async (say) => {
      say(`installing ${names.join(', ')}`);
      await installDebianPackages(names);
      const absent = missing.filter((entry) => !entry.present()).map((entry) => entry.name);
      if (absent.length > 0) throw new StepError(`still missing after installation: ${absent.join(', ')}`);
      say(`installed ${names.join(', ')}`);
    });
  }
  if (needNodeModules) {
    await step('setup', async (say) => {
      say('installing the npm packages');
      await mustRun('npm', ['ci', '--include=dev', '--ignore-scripts', '--no-audit', '--no-fund']);
      say('installed the npm packages');
    });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    await setup({ test: process.argv.includes('--test') });
  } catch (error) {
    explain(error);
    process.exitCode = 1;
  }
}

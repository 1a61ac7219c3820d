// Installs the npm packages of package-lock.json and the Debian packages that building needs and this machine lacks.
//
//   node scripts/setup.mjs [--test]     --test adds the packages that only the tests need; some of them may fail to install
//
// If nothing is missing, the script only looks at a few files and starts no program.

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { shell } from './chromium.mjs';
import { findEmscripten, findProgram } from './emscripten.mjs';
import { keepStamp, stampOf } from './stamps.mjs';
import { explain, mustRun, root, run, StepError, step } from './steps.mjs';

const chromium = process.env.CHROMIUM ?? '/usr/bin/chromium';

/** @param {string} program */
const onPath = (program) => findProgram(program) !== undefined;

/** The folder of fonts on Debian. */
const fonts = '/usr/share/fonts/truetype';

/** The Debian packages, each with a check that finds what it provides even if it was installed in another way. */
const debianPackages = [
  { name: 'cmake', forTests: false, present: () => onPath('cmake') },
  { name: 'ninja-build', forTests: false, present: () => onPath('ninja') },
  { name: 'emscripten', forTests: false, present: () => findEmscripten() !== undefined },
  { name: 'clang-format-14', forTests: true, present: () => onPath('clang-format-14') || onPath('clang-format') },
  { name: 'g++', forTests: true, present: () => onPath('c++') },
  { name: 'libgtest-dev', forTests: true, present: () => existsSync('/usr/include/gtest/gtest.h') },
  { name: 'libsimde-dev', forTests: true, present: () => existsSync('/usr/include/simde/wasm/simd128.h') },
  { name: 'chromium', forTests: true, present: () => existsSync(chromium) },
  // The families in which tests open the pages. Where fonts are kept elsewhere, the tests say if one is missing.
  ...[
    { name: 'fonts-dejavu-core', font: 'dejavu/DejaVuSans.ttf' },
    { name: 'fonts-noto-core', font: 'noto/NotoSans-Regular.ttf' },
  ].map(({ name, font }) => ({
    name,
    forTests: true,
    present: () => !existsSync(fonts) || existsSync(join(fonts, font)),
  })),
];

/** A Debian package that makes the tests faster. They run without it, too. The stamp remembers that apt-get could not install it. */
const faster = {
  name: 'chromium-headless-shell',
  present: () => process.env.CHROMIUM !== undefined || existsSync(shell) || stampOf('no-shell') !== undefined,
};

/**
 * Folders with packages of their own. TypeDoc needs another TypeScript than the project. Those of tests are large or not there for every
 * system; tests that need them are skipped without them.
 */
const folders = [
  { folder: 'scripts/reference', forTests: false },
  { folder: 'tests/llama', forTests: true },
  { folder: 'tests/transformers', forTests: true },
  { folder: 'tests/types', forTests: true },
];

/**
 * True if node_modules holds what package-lock.json lists. It compares that list with npm's own list in node_modules, which lacks the
 * optional packages for other systems.
 * @param {string} [folder] where both are, from the root
 */
function nodeModulesFit(folder = '.') {
  const installed = join(root, folder, 'node_modules/.package-lock.json');
  if (!existsSync(installed)) return false;
  const packagesOf = (/** @type {string} */ path) => JSON.parse(readFileSync(path, 'utf8')).packages;
  const wanted = packagesOf(join(root, folder, 'package-lock.json'));
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
 * The command prefix with which apt-get may install packages, or undefined if this user may not install any.
 * @returns {Promise<string[] | undefined>}
 */
async function rightsForApt() {
  if (!onPath('apt-get')) return undefined;
  if (process.getuid?.() === 0) return [];
  if (onPath('sudo') && (await run('sudo', ['-n', 'true'])).code === 0) return ['sudo', '-n'];
  return undefined;
}

/** Names of Debian's packages in Homebrew, where they differ. @type {Record<string, string>} */
const homebrewNames = {
  'clang-format-14': 'clang-format',
  'ninja-build': 'ninja',
  'g++': 'gcc',
  'libgtest-dev': 'googletest',
  'libsimde-dev': 'simde',
};

/** @param {string[]} rights the prefix @param {string[]} args @returns {[program: string, args: string[]]} */
function aptGet(rights, args) {
  const [program = '', ...rest] = [...rights, 'env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', '-q', '-y', ...args];
  return [program, rest];
}

/**
 * Installs Debian packages.
 * @param {string[]} names
 * @throws StepError if apt-get cannot be used or fails
 */
async function installDebianPackages(names) {
  const rights = await rightsForApt();
  if (rights === undefined) {
    const command =
      process.platform === 'darwin'
        ? `brew install ${names.map((name) => homebrewNames[name] ?? name).join(' ')}`
        : `apt-get install --no-install-recommends ${names.join(' ')}`;
    throw new StepError(
      `missing: ${names.join(', ')}`,
      `Install them, then try again. Any Emscripten on PATH will do, that of emsdk too.\n\n  ${command}\n`,
    );
  }
  await mustRun(...aptGet(rights, ['update']));
  await mustRun(...aptGet(rights, ['install', '--no-install-recommends', ...names]));
}

/** Installs the package that makes the tests faster, if that is possible. @param {boolean} updated true if the lists of packages are new */
async function installFaster(updated) {
  const rights = await rightsForApt();
  const isDone = async (/** @type {string[]} */ ...args) =>
    rights !== undefined && (await run(...aptGet(rights, args))).code === 0;
  return (updated || (await isDone('update'))) && isDone('install', '--no-install-recommends', faster.name);
}

/**
 * Installs what is missing. Prints a line for each kind of package that it installs, or a line that nothing is missing.
 * @param {object} options
 * @param {boolean} options.test whether to include what only the tests need
 * @param {boolean} [options.build] whether to include what is not from npm
 * @param {(programs: Promise<unknown>, packages: Promise<unknown>) => Promise<unknown>} [options.early] work to begin as soon as the
 *   programs, or the npm packages, are there
 * @throws StepError saying what is missing
 */
export async function setup({ test, build = true, early = async () => {} }) {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major < 20 || (major === 20 && minor < 19)) {
    throw new StepError(`Node 20.19 or newer is needed; this is ${process.versions.node}`);
  }
  if (test && process.env.CHROMIUM !== undefined && !existsSync(chromium)) {
    throw new StepError(`the variable CHROMIUM names ${chromium}, which does not exist`);
  }
  const missing = debianPackages.filter((entry) => build && (test || !entry.forTests) && !entry.present());
  const needNodeModules = !nodeModulesFit();
  const wanted = folders.filter(({ folder, forTests }) => (forTests ? test : build) && !nodeModulesFit(folder));
  const wantsFaster = test && !faster.present();
  if (missing.length === 0 && !wantsFaster && !needNodeModules && wanted.length === 0) {
    await step('setup', async (say) => say('nothing missing'));
    return;
  }
  const debian = async () => {
    const names = missing.map((entry) => entry.name);
    await step('setup', async (say) => {
      say(`installing ${names.join(', ')}`);
      await installDebianPackages(names);
      const absent = missing.filter((entry) => !entry.present()).map((entry) => entry.name);
      if (absent.length > 0) throw new StepError(`still missing after installation: ${absent.join(', ')}`);
      say(`installed ${names.join(', ')}`);
    });
  };
  const optional = async () => {
    await step('setup', async (say) => {
      say(`installing ${faster.name}`);
      const installed = await installFaster(missing.length > 0);
      if (!installed) keepStamp('no-shell', '');
      say(`${installed ? 'installed' : 'could not install'} ${faster.name}`);
    });
  };
  const npm = async () => {
    await step('setup', async (say) => {
      const names = [...(needNodeModules ? ['the project'] : []), ...wanted.map(({ folder }) => folder)];
      say(`installing the npm packages of ${names.join(', ')}`);
      const flags = ['--ignore-scripts', '--no-audit', '--no-fund'];
      if (needNodeModules) await mustRun('npm', ['ci', '--include=dev', ...flags]);
      for (const { folder, forTests } of wanted) {
        const { code, output } = await run('npm', ['ci', '--prefix', folder, ...flags]);
        if (code !== 0 && !forTests) throw new StepError(`could not install the npm packages of ${folder}`, output);
        if (code !== 0) say(`could not install the npm packages of ${folder}`);
      }
      say('installed the npm packages');
    });
  };
  // Both mostly wait for the network. One that fails does not leave the other halfway.
  const programs = missing.length > 0 ? debian() : Promise.resolve();
  const packages = needNodeModules || wanted.length > 0 ? npm() : Promise.resolve();
  const others = programs.then(() => (wantsFaster ? optional() : undefined));
  const results = await Promise.allSettled([programs, others, packages, early(programs, packages)]);
  for (const result of results) if (result.status === 'rejected') throw result.reason;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    await setup({ test: process.argv.includes('--test') });
  } catch (error) {
    explain(error);
    process.exitCode = 1;
  }
}

// Installs the npm packages of package-lock.json and the Debian packages that building needs and this machine lacks.
//
//   node scripts/setup.mjs [--test | --full]     adds the packages that `npm test`, or `npm run test:full`, needs
//
// If nothing is missing, the script only looks at a few files and starts no program.

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { launchOptions, shell } from './chromium.mjs';
import { findEmscripten, findProgram } from './emscripten.mjs';
import { explain, mustRun, root, run, StepError, step } from './steps.mjs';

const chromium = launchOptions.executablePath;

/** @typedef {'start' | 'quick' | 'full'} Purpose `npm start`, `npm test` or `npm run test:full`; each needs what the one before it needs */
/** @type {Purpose[]} */
const purposes = ['start', 'quick', 'full'];

/** @param {string} program */
const onPath = (program) => findProgram(program) !== undefined;

/** The folder of fonts on Debian. */
const fonts = '/usr/share/fonts/truetype';

/**
 * The Debian packages, each with a check that finds what it provides even if it was installed in another way.
 * @type {{ name: string, from: Purpose, present: () => boolean }[]}
 */
const debianPackages = [
  { name: 'cmake', from: 'start', present: () => onPath('cmake') },
  { name: 'ninja-build', from: 'start', present: () => onPath('ninja') },
  { name: 'emscripten', from: 'start', present: () => findEmscripten() !== undefined },
  { name: 'clang-format-14', from: 'quick', present: () => onPath('clang-format-14') || onPath('clang-format') },
  { name: 'g++', from: 'quick', present: () => onPath('c++') },
  { name: 'libgtest-dev', from: 'quick', present: () => existsSync('/usr/include/gtest/gtest.h') },
  { name: 'libsimde-dev', from: 'quick', present: () => existsSync('/usr/include/simde/wasm/simd128.h') },
  // The shell takes a third less of the processors. Some tests need the whole browser.
  { name: 'chromium-headless-shell', from: 'quick', present: () => existsSync(shell) || existsSync(chromium) },
  {
    name: 'chromium-headless-shell',
    from: 'full',
    present: () => process.env.CHROMIUM !== undefined || existsSync(shell),
  },
  { name: 'chromium', from: 'full', present: () => existsSync(chromium) },
  // Completions are tried in each shell.
  ...['fish', 'zsh'].map((name) => ({ name, from: /** @type {const} */ ('full'), present: () => onPath(name) })),
  // The families in which tests open the pages. Where fonts are kept elsewhere, the tests say if one is missing.
  ...[
    { name: 'fonts-dejavu-core', font: 'dejavu/DejaVuSans.ttf' },
    { name: 'fonts-noto-core', font: 'noto/NotoSans-Regular.ttf' },
  ].map(({ name, font }) => ({
    name,
    from: /** @type {const} */ ('full'),
    present: () => !existsSync(fonts) || existsSync(join(fonts, font)),
  })),
];

/**
 * Folders with packages of their own. TypeDoc needs another TypeScript than the project. llama.cpp's libraries are there for one system alone.
 * @type {{ folder: string, from: Purpose, applies?: boolean }[]}
 */
const folders = [
  { folder: 'scripts/reference', from: 'start' },
  { folder: 'tests/llama', from: 'quick', applies: process.platform === 'linux' && process.arch === 'x64' },
  { folder: 'tests/transformers', from: 'full' },
  { folder: 'tests/types', from: 'full' },
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
  // Wait for another installation, such as the updates that Debian installs after a start.
  const apt = ['apt-get', '-o', 'DPkg::Lock::Timeout=600', '-q', '-y', ...args];
  const [program = '', ...rest] = [...rights, 'env', 'DEBIAN_FRONTEND=noninteractive', ...apt];
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

/**
 * Installs what is missing. Prints a line for each kind of package that it installs, or a line that nothing is missing.
 * @param {object} options
 * @param {Purpose} options.purpose
 * @param {boolean} [options.build] whether to include what is not from npm
 * @param {(programs: Promise<unknown>, packages: Promise<unknown>) => Promise<unknown>} [options.early] work to begin as soon as the
 *   programs, or the npm packages, are there
 * @throws StepError saying what is missing
 */
export async function setup({ purpose, build = true, early = async () => {} }) {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major < 20 || (major === 20 && minor < 19)) {
    throw new StepError(`Node 20.19 or newer is needed; this is ${process.versions.node}`);
  }
  if (purpose !== 'start' && process.env.CHROMIUM !== undefined && !existsSync(chromium)) {
    throw new StepError(`the variable CHROMIUM names ${chromium}, which does not exist`);
  }
  const isNeeded = (/** @type {{ from: Purpose }} */ { from }) => purposes.indexOf(from) <= purposes.indexOf(purpose);
  const missing = debianPackages.filter((entry) => build && isNeeded(entry) && !entry.present());
  const needNodeModules = !nodeModulesFit();
  const wanted = folders.filter(
    (entry) =>
      isNeeded(entry) && entry.applies !== false && (build || entry.from !== 'start') && !nodeModulesFit(entry.folder),
  );
  if (missing.length === 0 && !needNodeModules && wanted.length === 0) {
    await step('setup', async (say) => say('nothing missing'));
    return;
  }
  const debian = async () => {
    const names = [...new Set(missing.map((entry) => entry.name))];
    await step('setup', async (say) => {
      say(`installing ${names.join(', ')}`);
      await installDebianPackages(names);
      const absent = missing.filter((entry) => !entry.present()).map((entry) => entry.name);
      if (absent.length > 0) throw new StepError(`still missing after installation: ${absent.join(', ')}`);
      say(`installed ${names.join(', ')}`);
    });
  };
  const npm = async () => {
    await step('setup', async (say) => {
      const names = [...(needNodeModules ? ['the project'] : []), ...wanted.map(({ folder }) => folder)];
      say(`installing the npm packages of ${names.join(', ')}`);
      const flags = ['--ignore-scripts', '--no-audit', '--no-fund'];
      if (needNodeModules) await mustRun('npm', ['ci', '--include=dev', ...flags]);
      for (const { folder } of wanted) await mustRun('npm', ['ci', '--prefix', folder, ...flags]);
      say('installed the npm packages');
    });
  };
  // Both mostly wait for the network. One that fails does not leave the other halfway.
  const programs = missing.length > 0 ? debian() : Promise.resolve();
  const packages = needNodeModules || wanted.length > 0 ? npm() : Promise.resolve();
  const results = await Promise.allSettled([programs, packages, early(programs, packages)]);
  for (const result of results) if (result.status === 'rejected') throw result.reason;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    await setup({
      purpose: process.argv.includes('--full') ? 'full' : process.argv.includes('--test') ? 'quick' : 'start',
    });
  } catch (error) {
    explain(error);
    process.exitCode = 1;
  }
}

// Finds Emscripten: that of PATH (emsdk, Homebrew, Debian), or else the folder in EMSDK.

import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';

/**
 * @typedef {object} Emscripten
 * @property {string} folder where emcc.py and the toolchain file for CMake are
 * @property {string} version such as 3.1.6
 * @property {string} toolchain the toolchain file for CMake
 * @property {string} binaries the folder with wasm-dis and the other programs of Binaryen, or '' if they are on PATH
 * @property {Record<string, string>} variables for the environment of emcc
 */

/** The path of a program, or undefined if no folder of PATH has it. @param {string} program */
export function findProgram(program) {
  const ends = process.platform === 'win32' ? ['.exe', '.bat', '.cmd', ''] : [''];
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    for (const end of ends) {
      const path = join(folder, program + end);
      if (folder !== '' && existsSync(path)) return path;
    }
  }
  return undefined;
}

/**
 * The environment of emcc. Each of its starts would look for its programs and try them, which takes .7 s of processor time. It runs in
 * Python. Where python3 is a shim that looks for the interpreter (pyenv, asdf), a variable names the interpreter itself, which saves .1 s.
 */
export function environment() {
  const variables = { EM_IGNORE_SANITY: '1', ...process.env };
  if (process.env.EMSDK_PYTHON !== undefined || findProgram('python3') === undefined) return variables;
  const shim = ['-c', 'import sys; print(sys.executable)'];
  return { ...variables, EMSDK_PYTHON: execFileSync('python3', shim, { encoding: 'utf8' }).trim() };
}

/**
 * The command by which em++ compiles a file, with its flags, or '' if that is not known. em++ itself would start Python for each file.
 * @param {Emscripten} emscripten
 */
export function compileCommand({ folder }) {
  const ask = (/** @type {string} */ program, /** @type {string[]} */ ...args) => {
    const beside = join(folder, program);
    const options = {
      encoding: /** @type {const} */ ('utf8'),
      stdio: /** @type {const} */ ('pipe'),
      env: environment(),
    };
    return execFileSync(existsSync(beside) ? beside : program, args, options).trim();
  };
  try {
    const clang = join(ask('em-config', 'LLVM_ROOT'), 'clang++');
    // Debian has several versions in one folder.
    const version =
      process.platform === 'linux' && existsSync('/etc/debian_version') ? ask('em-config', 'LLVM_ADD_VERSION') : '';
    const path = version === '' ? clang : `${clang}-${version}`;
    return existsSync(path) ? `${path} ${ask('em++', '--cflags')}` : '';
  } catch {
    return '';
  }
}

/** @param {string} folder */
const toolchainIn = (folder) => join(folder, 'cmake/Modules/Platform/Emscripten.cmake');

/** Folders that may hold Emscripten, the likeliest first. */
function* candidates() {
  const config = findProgram('em-config');
  if (config !== undefined) {
    try {
      const shell = process.platform === 'win32';
      yield execFileSync(config, ['EMSCRIPTEN_ROOT'], { encoding: 'utf8', shell, stdio: 'pipe' }).trim();
    } catch {
      // An emcc beside it may still do.
    }
  }
  const emcc = findProgram('emcc');
  if (emcc !== undefined) {
    const folder = dirname(realpathSync(emcc));
    yield folder;
    yield join(folder, '../libexec'); // Homebrew
  }
  if (process.env.EMSDK) yield join(process.env.EMSDK, 'upstream/emscripten');
}

/** @returns {Emscripten | undefined} */
export function findEmscripten() {
  for (const folder of candidates()) {
    const toolchain = toolchainIn(folder);
    if (!existsSync(toolchain)) continue;
    const numbers = join(folder, 'emscripten-version.txt');
    const version = existsSync(numbers)
      ? readFileSync(numbers, 'utf8').trim().replaceAll('"', '')
      : 'of unknown version';
    const binaries = [join(folder, '../bin'), join(folder, 'binaryen/bin')].find((path) =>
      ['', '.exe'].some((end) => existsSync(join(path, `wasm-dis${end}`))),
    );
    // Debian keeps the modules of the JavaScript optimizer where emcc finds them with this only.
    const modules = '/usr/share/nodejs';
    const variables = existsSync(join(folder, 'node_modules')) || !existsSync(modules) ? {} : { NODE_PATH: modules };
    return {
      folder,
      version,
      toolchain,
      binaries: binaries ?? '',
      variables: /** @type {Record<string, string>} */ (variables),
    };
  }
  return undefined;
}

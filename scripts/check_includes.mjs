// Checks which C++ files include which: arrows between the rooms of cpp/ point one way. Reads the #include lines alone.
//
//   bindings.cpp, door.h -> scalepoint.h, codecs -> algorithms -> kernels -> lanes -> base
//
// It first tries itself out on small sets of files that do what is forbidden.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path/posix';
import { fileURLToPath } from 'node:url';

/** @typedef {'base' | 'lanes' | 'kernels' | 'algorithms' | 'codecs' | 'contract' | 'door'} Room */

/** Plain types and single values, which every room may include. */
const base = ['block_type.h', 'dtype.h', 'error_sums.h', 'float16.h', 'round.h', 'spec.h', 'status.h'];

/**
 * What the files of a room may include.
 * @type {Record<Room, Room[]>}
 */
const allowed = {
  base: ['base'],
  lanes: ['base', 'lanes'],
  kernels: ['base', 'lanes', 'kernels'],
  algorithms: ['base', 'kernels', 'algorithms'],
  codecs: ['base', 'kernels', 'algorithms', 'codecs'],
  contract: ['base', 'algorithms'],
  door: ['base', 'contract', 'codecs', 'door'],
};

/**
 * Headers of others that belong into one room: their names and the room.
 * @type {{ name: RegExp, room: Room }[]}
 */
const reserved = [
  { name: /^emscripten(\.h|\/)/, room: 'door' },
  { name: /^(wasm_simd128\.h|simde\/)/, room: 'lanes' },
];

/**
 * @param {string} path inside cpp/
 * @returns {Room}
 */
function roomOf(path) {
  if (path.startsWith('kernels/lanes')) return 'lanes';
  if (path.startsWith('kernels/')) return 'kernels';
  if (path.startsWith('codecs/')) return 'codecs';
  if (path === 'bindings.cpp' || path.startsWith('door')) return 'door';
  if (path === 'scalepoint.h') return 'contract';
  return base.includes(path) ? 'base' : 'algorithms';
}

/**
 * The include lines of each file: those in quotes as paths inside cpp/, the others by name. A file in quotes is looked for beside the
 * including one first, as the compiler does.
 * @param {Map<string, string>} files
 */
function includesOf(files) {
  const own = new Map();
  const others = new Map();
  for (const [path, text] of files) {
    const quoted = [...text.matchAll(/^\s*#\s*include\s*"([^"]+)"/gm)].map(([, name]) => String(name));
    const beside = quoted.map((name) => [join(dirname(path), name), name]);
    own.set(
      path,
      beside.map(([first, name]) => (files.has(String(first)) ? String(first) : String(name))),
    );
    others.set(
      path,
      [...text.matchAll(/^\s*#\s*include\s*<([^>]+)>/gm)].map(([, name]) => String(name)),
    );
  }
  return { own: /** @type {Map<string, string[]>} */ (own), others: /** @type {Map<string, string[]>} */ (others) };
}

/**
 * @param {Map<string, string>} files paths inside cpp/ and their texts
 * @returns {string[]} what is wrong
 */
function problemsOf(files) {
  /** @type {string[]} */
  const problems = [];
  const { own, others } = includesOf(files);
  for (const [path, included] of own) {
    const room = roomOf(path);
    for (const name of included) {
      // door_exports.h and the like are made when building.
      if (!files.has(name) && room !== 'door') problems.push(`${path} includes ${name}, which is not there`);
      if (files.has(name) && !allowed[room].includes(roomOf(name)))
        problems.push(`${path} (${room}) includes ${name} (${roomOf(name)})`);
    }
    for (const name of others.get(path) ?? []) {
      const owner = reserved.find((entry) => entry.name.test(name))?.room;
      if (owner !== undefined && owner !== room) problems.push(`${path} (${room}) includes <${name}> (${owner} only)`);
    }
  }
  /** @type {Set<string>} */
  const done = new Set();
  const follow = (/** @type {string} */ path, /** @type {string[]} */ way) => {
    if (way.includes(path)) {
      problems.push(`a cycle: ${[...way.slice(way.indexOf(path)), path].join(' -> ')}`);
      return;
    }
    if (done.has(path)) return;
    for (const name of own.get(path) ?? []) follow(name, [...way, path]);
    done.add(path);
  };
  for (const path of own.keys()) follow(path, []);
  // The public headers are the contract: they name no kernel.
  const reached = new Set(['scalepoint.h']);
  for (const path of reached) {
    if (roomOf(path) === 'kernels') problems.push(`scalepoint.h leads to ${path}`);
    else for (const name of own.get(path) ?? []) reached.add(name);
  }
  return problems;
}

/** Sets of files, and how many problems they have. */
const selfTests = [
  { files: { 'kernels/range.h': '#include "../round.h"', 'round.h': '' }, problems: 0 },
  { files: { 'kernels/range.h': '#include "../range.h"', 'range.h': '' }, problems: 1 },
  { files: { 'kernels/range.cpp': '#include "range.h"', 'kernels/range.h': '', 'range.h': '' }, problems: 0 },
  { files: { 'linear.cpp': '#include "codecs/cast.h"', 'codecs/cast.h': '' }, problems: 1 },
  { files: { 'linear.cpp': '#include "kernels/lanes.h"', 'kernels/lanes.h': '' }, problems: 1 },
  { files: { 'linear.cpp': '#include <emscripten/bind.h>', 'bindings.cpp': '#include <emscripten.h>' }, problems: 1 },
  { files: { 'a.h': '#include "b.h"', 'b.h': '  # include "a.h"' }, problems: 1 },
  { files: { 'a.h': '#include "b.h"' }, problems: 1 },
  {
    files: { 'scalepoint.h': '#include "a.h"', 'a.h': '#include "kernels/a.h"', 'kernels/a.h': '' },
    problems: 1,
  },
];

/**
 * Runs the check on sets of files of which the answer is known.
 * @throws Error naming the first that goes wrong
 */
export function selfTest() {
  for (const { files, problems } of selfTests) {
    const found = problemsOf(new Map(Object.entries(files)));
    if (found.length !== problems)
      throw new Error(
        `self-test: ${JSON.stringify(files)}: expected ${problems} problems, found [${found.join('; ')}]`,
      );
  }
}

/**
 * @param {string} folder cpp/
 * @returns {{ problems: string[], summary: string }}
 */
export function checkIncludes(folder) {
  if (!existsSync(folder)) return { problems: [`there is no ${folder}`], summary: '' };
  const paths = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((path) => path.replaceAll('\\', '/'))
    .filter((path) => /\.(h|cpp)$/.test(path));
  const files = new Map(paths.sort().map((path) => [path, readFileSync(join(folder, path), 'utf8')]));
  return { problems: problemsOf(files), summary: `${files.size} files` };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = process.argv[2] ?? fileURLToPath(new URL('../cpp', import.meta.url));
  selfTest();
  const { problems, summary } = checkIncludes(folder);
  for (const problem of problems) console.error(problem);
  console.log(summary);
  if (problems.length > 0) process.exitCode = 1;
}

// Checks which C++ files include which. Each folder of cpp/ holds a topic, and includes go in the direction of the arrows only:
//
//   bindings_*.cpp, door*.h -> scalepoint.h -> layers -> ggml -> arrays -> lanes
//                           -> codecs -> calibration -> ggml, ranges, codebooks -> arrays
//                           -> language, search -> arrays
//
// Within topics, files have levels: algorithm -> loops (*_loops.h, *_loops.cpp) -> the vectors of lanes/. Every level may include plain
// types. An include line gives the path inside cpp/, and no two files have one name. A source file keeps its types in an anonymous namespace:
// the linker keeps one of two inline definitions of a name without a word. Those of headers meet in one file that tests/cpp compiles.
//
// It first tries itself out on small sets of files that do what is forbidden.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path/posix';
import { fileURLToPath } from 'node:url';

/** @typedef {'lanes' | 'arrays' | 'ranges' | 'codebooks' | 'ggml' | 'layers' | 'calibration' | 'language' | 'search' | 'codecs' | 'contract' | 'door'} Room */
/** @typedef {'plain' | 'vectors' | 'loops' | 'algorithm'} Level */

/**
 * The rooms whose files a room may include, besides its own.
 * @type {Record<Room, Room[]>}
 */
const rooms = {
  lanes: [],
  arrays: ['lanes'],
  ranges: ['lanes', 'arrays'],
  codebooks: ['lanes', 'arrays'],
  ggml: ['lanes', 'arrays'],
  layers: ['lanes', 'arrays', 'ggml'],
  calibration: ['lanes', 'arrays', 'ranges', 'ggml'],
  language: ['lanes', 'arrays'],
  search: ['lanes', 'arrays'],
  codecs: ['lanes', 'arrays', 'ranges', 'codebooks', 'ggml', 'calibration'],
  contract: ['lanes', 'arrays', 'ranges', 'codebooks', 'ggml', 'layers'],
  door: ['contract', 'codecs', 'calibration', 'language', 'search'],
};

/**
 * The levels that a level may include.
 * @type {Record<Level, Level[]>}
 */
const levels = {
  plain: ['plain'],
  vectors: ['plain', 'vectors'],
  loops: ['plain', 'vectors', 'loops'],
  algorithm: ['plain', 'loops', 'algorithm'],
};

/** Types, single values and tables: headers that every level may include. */
const plain = [
  'arrays/dtype.h',
  'arrays/error_sums.h',
  'arrays/spec.h',
  'arrays/status.h',
  'ggml/ggml_types.h',
  'ggml/iq_grids.h',
  'lanes/float16.h',
  'lanes/round.h',
  'lanes/tier.h',
  'ranges/levels.h',
];

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
 * @returns {Room | undefined} undefined if no room has such files
 */
function roomOf(path) {
  if (path === 'scalepoint.h') return 'contract';
  if (/^((bindings_|door)\w*|libc_memory)\.(cpp|h)$/.test(path)) return 'door';
  const folder = path.slice(0, path.lastIndexOf('/'));
  return Object.keys(rooms).includes(folder) ? /** @type {Room} */ (folder) : undefined;
}

/**
 * @param {string} path inside cpp/
 * @returns {Level}
 */
function levelOf(path) {
  if (plain.includes(path)) return 'plain';
  if (path.startsWith('lanes/')) return 'vectors';
  return /_loops\.(h|cpp)$/.test(path) ? 'loops' : 'algorithm';
}

/**
 * The names in the include lines of a text: those in quotes, and those in angle brackets.
 * @param {string} text
 */
function includesOf(text) {
  const names = (/** @type {RegExp} */ pattern) => [...text.matchAll(pattern)].map(([, name]) => String(name));
  return {
    own: names(/^\s*#\s*include\s*"([^"]+)"/gm),
    others: names(/^\s*#\s*include\s*<([^>]+)>/gm),
  };
}

/**
 * Files of loops and vectors that the public headers lead to.
 * @param {Map<string, string[]>} own the files that each file includes
 */
function loopsInContract(own) {
  const reached = new Set(['scalepoint.h']);
  for (const path of reached) {
    if (levelOf(path) === 'plain' || levelOf(path) === 'algorithm')
      for (const name of own.get(path) ?? []) reached.add(name);
  }
  return [...reached].filter((path) => levelOf(path) === 'loops' || levelOf(path) === 'vectors');
}

/**
 * @param {Map<string, string[]>} own the files that each file includes
 * @returns {string[][]} the files of each cycle
 */
function cyclesOf(own) {
  /** @type {string[][]} */
  const cycles = [];
  /** @type {Set<string>} */
  const done = new Set();
  const follow = (/** @type {string} */ path, /** @type {string[]} */ way) => {
    if (way.includes(path)) {
      cycles.push([...way.slice(way.indexOf(path)), path]);
      return;
    }
    if (done.has(path)) return;
    for (const name of own.get(path) ?? []) follow(name, [...way, path]);
    done.add(path);
  };
  for (const path of own.keys()) follow(path, []);
  return cycles;
}

/** The names of types that a source file gives to all files. Members of classes belong to their headers. @param {string} text */
function typesForAll(text) {
  const shown = text.replace(/^namespace \{\n.*?^\} {2}\/\/ namespace$/gms, '');
  const types = shown.matchAll(
    /^(?:template.*\n)?(?:struct|class|union|enum(?: class)?|using) (\w+)\b(?!::)[^;(]*[{=]/gm,
  );
  return [...types].map(([, name]) => String(name));
}

/**
 * @param {Map<string, string>} files paths inside cpp/ and their texts
 * @returns {string[]} a sentence for each broken rule
 */
function problemsOf(files) {
  /** @type {string[]} */
  const problems = [];
  const includes = new Map([...files].map(([path, text]) => [path, includesOf(text)]));
  const own = new Map([...includes].map(([path, names]) => [path, names.own]));

  // Check each arrow.
  for (const [path, { own, others }] of includes) {
    const room = roomOf(path);
    if (room === undefined) {
      problems.push(`${path} lies in no room; see rooms in scripts/check_includes.mjs`);
      continue;
    }
    for (const name of own) {
      const target = roomOf(name);
      if (!files.has(name) || target === undefined) {
        // The headers door_exports_*.h are made when building.
        if (room !== 'door') problems.push(`${path} includes ${name}, which is not there`);
        continue;
      }
      if (target !== room && !rooms[room].includes(target))
        problems.push(`${path} (${room}) includes ${name} (${target})`);
      else if (!levels[levelOf(path)].includes(levelOf(name)))
        problems.push(`${path} (${levelOf(path)}) includes ${name} (${levelOf(name)})`);
    }
    for (const name of others) {
      const owner = reserved.find((entry) => entry.name.test(name))?.room;
      if (owner !== undefined && owner !== room) problems.push(`${path} (${room}) includes <${name}> (${owner} only)`);
    }
  }

  // Check what is about several files at once.
  for (const cycle of cyclesOf(own)) problems.push(`a cycle: ${cycle.join(' -> ')}`);
  for (const path of loopsInContract(own)) problems.push(`scalepoint.h leads to ${path}`);
  /** @type {Map<string, string>} */
  const names = new Map();
  for (const path of files.keys()) {
    const other = names.get(basename(path));
    if (other !== undefined) problems.push(`${other} and ${path} have the same name`);
    names.set(basename(path), path);
  }
  for (const [path, text] of files) {
    if (!path.endsWith('.cpp')) continue;
    for (const name of typesForAll(text)) problems.push(`${path} defines ${name} outside of an anonymous namespace`);
  }
  return problems;
}

/** Sets of files, and how many problems they have. */
const selfTests = [
  { files: { 'ggml/a_loops.h': '#include "lanes/round.h"', 'lanes/round.h': '' }, problems: 0 },
  { files: { 'ggml/a_loops.h': '#include "arrays/b_loops.h"', 'arrays/b_loops.h': '' }, problems: 0 },
  { files: { 'ggml/a_loops.h': '#include "ggml/a.h"', 'ggml/a.h': '' }, problems: 1 },
  { files: { 'arrays/a_loops.h': '#include "ggml/b_loops.h"', 'ggml/b_loops.h': '' }, problems: 1 },
  { files: { 'arrays/a.h': '#include "ranges/b.h"', 'ranges/b.h': '' }, problems: 1 },
  { files: { 'ranges/a.h': '#include "codebooks/b.h"', 'codebooks/b.h': '' }, problems: 1 },
  { files: { 'layers/a.cpp': '#include "codecs/cast.h"', 'codecs/cast.h': '' }, problems: 1 },
  { files: { 'arrays/a.cpp': '#include "lanes/lanes.h"', 'lanes/lanes.h': '' }, problems: 1 },
  { files: { 'arrays/a_loops.cpp': '#include "lanes/lanes.h"', 'lanes/lanes.h': '' }, problems: 0 },
  {
    files: { 'arrays/a.cpp': '#include <emscripten/bind.h>', 'bindings_arrays.cpp': '#include <emscripten.h>' },
    problems: 1,
  },
  { files: { 'arrays/a.h': '#include "arrays/b.h"', 'arrays/b.h': '  # include "arrays/a.h"' }, problems: 1 },
  { files: { 'arrays/a.h': '#include "b.h"', 'arrays/b.h': '' }, problems: 1 },
  { files: { 'arrays/a.h': '', 'ggml/a.h': '' }, problems: 1 },
  { files: { 'shared/a.h': '' }, problems: 1 },
  { files: { 'arrays/a.cpp': 'namespace b {\nstruct A {};\n}  // namespace b' }, problems: 1 },
  {
    files: { 'arrays/a.cpp': 'namespace b {\nusing A = int;\nenum class B { kOne };\n}  // namespace b' },
    problems: 2,
  },
  {
    files: { 'arrays/a.cpp': 'namespace b {\nnamespace {\nstruct A {};\n}  // namespace\n}  // namespace b' },
    problems: 0,
  },
  {
    files: { 'arrays/a.cpp': 'namespace b {\nstruct A::B {};\nusing c::d;\nstruct E;\n}  // namespace b' },
    problems: 0,
  },
  {
    files: {
      'scalepoint.h': '#include "arrays/a.h"',
      'arrays/a.h': '#include "arrays/a_loops.h"',
      'arrays/a_loops.h': '',
    },
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

// Checks which C++ files include which. Each folder of cpp/ holds a topic, and includes go in the direction of the arrows only:
//
//   bindings_*.cpp, door*.h -> scalepoint.h -> layers -> ggml -> arrays -> lanes
//                           -> codecs -> calibration -> ggml, ranges, codebooks -> arrays
//                           -> language, search -> arrays
//
// Within topics, files have levels: algorithm -> loops (*_loops.h, *_loops.cpp) -> the vectors of lanes/. Every level may include plain
// types. An include line gives the path inside cpp/, and no two files have one name. Nor do two files define one name in one namespace:
// compilers see one file at a time, and the linker keeps one of two inline definitions without a word.
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
];

/** Files that define the same names, of which a program has one. */
const alternatives = [
  ['lanes/lanes_scalar.h', 'lanes/lanes_simd128.h'],
  ['ggml/block_formats_arrays.cpp', 'ggml/block_formats_models.cpp'],
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

/** A text without comments, preprocessor lines, and the content of strings. @param {string} text */
function codeOf(text) {
  const skipped = /\/\*[\s\S]*?\*\/|\/\/[^\n]*|"(?:[^"\\\n]|\\.)*"|\b'\d|'(?:[^'\\\n]|\\.)'/g;
  return text
    .replace(/\\\r?\n/g, ' ')
    .replace(skipped, (found) => (found.startsWith('/') ? ' ' : found.startsWith('"') ? '""' : '0'))
    .replace(/^\s*#.*$/gm, '');
}

/** The parts of a list, cut at its commas outside of brackets. @param {string} list */
function partsOf(list) {
  let depth = 0;
  let part = '';
  const parts = [];
  for (const letter of list) {
    if ('([{<'.includes(letter)) depth++;
    else if (')]}>'.includes(letter)) depth--;
    if (letter === ',' && depth === 0) {
      parts.push(part);
      part = '';
    } else part += letter;
  }
  return [...parts, part].map((text) => text.trim());
}

/**
 * The names that a declaration at namespace scope defines. Functions have the types of their parameters.
 * @param {string} head the declaration, each body of it as `{}`
 * @param {boolean} isFunction true: it ends in the body of a function
 * @returns {string[]}
 */
function namesIn(head, isFunction) {
  const text = head
    .replace(/\[\[.*?\]\]/g, '')
    .replace(/\s+/g, ' ')
    .trim();
  if (isFunction) {
    // The parameters are in the last parentheses.
    const close = text.lastIndexOf(')');
    let open = close;
    let depth = 0;
    for (; open >= 0; open--) {
      if (text[open] === ')') depth++;
      else if (text[open] === '(' && --depth === 0) break;
    }
    const [name] = /(?:operator ?\S+|[\w:~<>]+)$/.exec(text.slice(0, open).trim()) ?? [];
    const types = partsOf(text.slice(open + 1, close)).map((part) =>
      part.replace(/ ?=.*/, '').replace(/(?<=[\s*&>])\w+$/, ''),
    );
    return name === undefined ? [] : [`${name}(${types.map((type) => type.trim()).join(', ')})`];
  }
  const [, type] =
    /^(?:template ?<.*> ?)?(?:struct|class|union|enum(?: class)?) (\w+(?:::\w+)*(?: ?<.*?>)?) ?(?:final ?)?(?::(?!:)[^{]*)?\{\}/.exec(
      text,
    ) ?? [];
  if (type !== undefined) return [type];
  const [, alias] = /^(?:template ?<.*> ?)?using (\w+) ?=/.exec(text) ?? [];
  if (alias !== undefined) return [alias];
  if (!/\b(const|constexpr|constinit|inline|thread_local)\b/.test(text)) return [];
  return partsOf(text).flatMap((part) => /(\w+)(?: ?\[[^\]]*\])* ?(?:=|\{\})/.exec(part)?.[1] ?? []);
}

/**
 * The names that a text defines for other files: in named namespaces, and not `static`.
 * @param {string} text
 * @returns {string[]} with their namespaces
 */
function definitionsOf(text) {
  const code = codeOf(text);
  /** @type {(string | undefined)[]} */
  const scope = [];
  /** @type {string[]} */
  const names = [];
  let head = '';
  const end = (/** @type {boolean} */ isFunction) => {
    const hidden = scope.includes(undefined) || /^\s*static\b/.test(head);
    if (!hidden) names.push(...namesIn(head, isFunction).map((name) => [...scope, name].join('::')));
    head = '';
  };
  for (let at = 0; at < code.length; at++) {
    const letter = code[at];
    if (letter === ';') end(false);
    else if (letter === '}') {
      scope.pop();
      head = '';
    } else if (letter === '{') {
      const [, space] = /\bnamespace\s*([\w:]*)\s*$/.exec(head) ?? [];
      const isLinkage = /\bextern\s*""\s*$/.test(head);
      if (space !== undefined || isLinkage) {
        if (isLinkage) scope.push('extern');
        else scope.push(space === '' ? undefined : space);
        head = '';
        continue;
      }
      // Skip the body.
      let depth = 1;
      while (depth > 0 && ++at < code.length) depth += code[at] === '{' ? 1 : code[at] === '}' ? -1 : 0;
      if (/\)\s*(?:const|noexcept|override|->[^{}()=]*|\s)*$/.test(head)) end(true);
      else head += '{}';
    } else head += letter;
  }
  return names;
}

/**
 * @param {Map<string, string>} files paths inside cpp/ and their texts
 * @returns {string[]} a sentence for each name that two files define
 */
function definedTwice(files) {
  /** @type {Map<string, string>} */
  const owners = new Map();
  /** @type {string[]} */
  const problems = [];
  for (const [path, text] of files) {
    for (const name of new Set(definitionsOf(text))) {
      const other = owners.get(name);
      if (other === undefined) owners.set(name, path);
      else if (!alternatives.some((pair) => pair.includes(path) && pair.includes(other)))
        problems.push(`${other} and ${path} both define ${name}`);
    }
  }
  return problems;
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
  problems.push(...definedTwice(files));
  return problems;
}

/** Two headers that define something in one namespace. @param {string} a @param {string} b */
const definers = (a, b) => ({ 'arrays/a.h': `namespace n::m {\n${a}\n}`, 'ggml/b.h': `namespace n::m {\n${b}\n}` });

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
  { files: definers('inline constexpr int kA = 1, kB[] = {2, 3};', 'inline constexpr float kB = 2;'), problems: 1 },
  { files: definers('inline constexpr Rule kA = {.b = 1};', 'inline constexpr Rule kA{.b = 2};'), problems: 1 },
  { files: definers('/* } */ struct A : B { int a() { return 1; } };', "enum class A { kOne = '}' };"), problems: 1 },
  { files: definers('struct A {};', 'struct A::Inner {}; struct A; using B = A;'), problems: 0 },
  {
    files: definers(
      'inline int a(const B& b, int c = d(1)) noexcept { return 1; }',
      'int a(const B&, int) { return 2; }',
    ),
    problems: 1,
  },
  {
    files: definers('template <class T> T a(T b) { return b; }', 'int a(int b); int a(float c) { return 2; }'),
    problems: 0,
  },
  {
    files: definers('namespace { constexpr int kA = 1; }', 'namespace { struct kA {}; }\nstatic int kA = 2;'),
    problems: 0,
  },
  {
    files: { 'arrays/a.h': 'namespace b { struct A {}; }', 'arrays/c.h': 'namespace d { struct A {}; }' },
    problems: 0,
  },
  {
    files: { 'arrays/a.h': 'namespace b { struct A {}; }', 'ggml/c.cpp': 'namespace b { class A final {}; }' },
    problems: 1,
  },
  {
    files: { 'lanes/lanes_scalar.h': 'struct F32x4 {};', 'lanes/lanes_simd128.h': 'struct F32x4 {};' },
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

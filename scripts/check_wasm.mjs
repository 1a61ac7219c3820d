// Looks into the built WebAssembly for what makes it slow without making it wrong.
//
//   node scripts/check_wasm.mjs [folder]      the folder is build/wasm unless given
//
// The compiler of Emscripten 3.1.6 turns some vector code into four scalar operations and puts the lanes together again:
// the results stay right, the loop takes five times as long, and no test of results sees it. This check stays while the build allows
// that compiler. It reads the machine code of both modules:
//   1. no scalar conversion of a lane goes back into a vector, anywhere in the SIMD build;
//   2. no innermost loop that loads or stores vectors takes a lane out or puts one in;
//   3. the scalar build holds no vector instruction at all, since browsers without SIMD refuse the whole file for one.
// It tries itself out first on a small module that does what is forbidden.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findEmscripten } from './emscripten.mjs';

/** The folder of Binaryen's programs. Found once, because em-config takes longer than they do. */
const binaries = findEmscripten()?.binaries ?? '';
/** The path of a program of Binaryen. @param {string} program */
const binaryen = (program) => join(binaries, program);

/** @typedef {string | Node[]} Node an atom, or a list in parentheses */
/** @typedef {{ rule: 'conversion' | 'lane', functionName: string, text: string }} Finding */

/**
 * Loops that may touch single lanes: what the function's name (with its parameters) begins with, how many of its loops, and why.
 * An entry that no longer matches exactly is an error, so the list cannot go stale.
 * @type {{ functionName: string, loops: number, reason: string }[]}
 */
const exceptions = [
  {
    functionName: 'histogram',
    loops: 2,
    reason:
      'the bins of four values are found together, but each is counted alone: there are no vector instructions that scatter',
  },
  {
    functionName: 'scalepoint::loops::quantize_q3_k(',
    loops: 1,
    reason: 'gathers the sub-blocks that can still improve into groups of four',
  },
];

// ------------------------------------------------------------------------------------------------------- the text form

/**
 * Reads the text form of a module into nested lists.
 * @param {string} text
 * @returns {Node[]} the list that begins with 'module'
 */
function parse(text) {
  const token = /\(;[\s\S]*?;\)|;;[^\n]*|"(?:[^"\\]|\\.)*"|[()]|[^\s()";]+/g;
  /** @type {Node[][]} */
  const open = [[]];
  for (const [part] of text.matchAll(token)) {
    const innermost = /** @type {Node[]} */ (open[open.length - 1]);
    if (part.startsWith('(;') || part.startsWith(';;')) continue;
    if (part === '(') open.push([]);
    else if (part === ')') {
      open.pop();
      open[open.length - 1]?.push(innermost);
    } else innermost.push(part);
  }
  const module = open[0]?.[0];
  if (open.length !== 1 || !Array.isArray(module) || module[0] !== 'module')
    throw new Error('this is not the text of a module');
  return module;
}

/** @param {Node} node */
const head = (node) => (Array.isArray(node) && typeof node[0] === 'string' ? node[0] : '');
/** @param {Node} node */
const children = (node) => (Array.isArray(node) ? node.filter((child) => Array.isArray(child)) : []);

/**
 * Every list inside a node, and the node itself.
 * @param {Node} node
 * @returns {Generator<Node[]>}
 */
function* walk(node) {
  if (!Array.isArray(node)) return;
  yield node;
  for (const child of node) yield* walk(child);
}

/** @param {Node} node */
const takesLane = (node) => /\.extract_lane/.test(head(node));
/** @param {Node} node */
const putsLane = (node) => /\.replace_lane/.test(head(node));
/** @param {Node} node */
const convertsScalar = (node) => /^f(32|64)\.convert_i(32|64)_[su]$/.test(head(node));
/** @param {Node} node */
const touchesMemory = (node) => /^v128\.(load|store)/.test(head(node));

/**
 * True if a value is a lane of a vector that was converted to a float, maybe carried by local variables and changed by operations
 * of which the other operands are constants.
 * @param {Node | undefined} node
 * @param {Map<string, Node[]>} assignments of the function: variable to the values it gets
 * @param {boolean} [converted] whether a conversion was met on the way here
 * @param {Set<string>} [seen] variables met on the way here
 * @returns {boolean}
 */
function isConvertedLane(node, assignments, converted = false, seen = new Set()) {
  if (node === undefined) return false;
  if (takesLane(node)) return converted;
  if (head(node) === 'local.get') {
    const name = String(/** @type {Node[]} */ (node)[1]);
    if (seen.has(name)) return false;
    seen.add(name);
    return (assignments.get(name) ?? []).some((value) => isConvertedLane(value, assignments, converted, seen));
  }
  const [operand, more] = children(node).filter((child) => !/\.const$/.test(head(child)));
  return more === undefined && isConvertedLane(operand, assignments, converted || convertsScalar(node), seen);
}

/**
 * Loops without a loop inside.
 * @param {Node} node
 * @returns {Node[][]}
 */
function innermostLoops(node) {
  return [...walk(node)].filter(
    (loop) => head(loop) === 'loop' && [...walk(loop)].every((inner) => inner === loop || head(inner) !== 'loop'),
  );
}

/**
 * @param {Node[]} definition a function
 * @param {string} functionName
 * @returns {{ vectorLoops: number, findings: Finding[] }}
 */
function inspectFunction(definition, functionName) {
  /** @type {Map<string, Node[]>} */
  const assignments = new Map();
  for (const node of walk(definition)) {
    if (head(node) !== 'local.set' && head(node) !== 'local.tee') continue;
    const values = assignments.get(String(node[1])) ?? [];
    values.push(/** @type {Node} */ (node[2]));
    assignments.set(String(node[1]), values);
  }
  /** @type {Finding[]} */
  const findings = [];
  const conversions = [...walk(definition)].filter(
    (node) => putsLane(node) && isConvertedLane(children(node).at(-1), assignments),
  );
  if (conversions.length > 0) findings.push({ rule: 'conversion', functionName, text: `${conversions.length} lanes` });
  const loops = innermostLoops(definition).filter((loop) => [...walk(loop)].some(touchesMemory));
  for (const loop of loops) {
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const node of walk(loop)) {
      const single = takesLane(node) || putsLane(node) || (convertsScalar(node) && isConvertedLane(node, assignments));
      if (single) counts.set(head(node), (counts.get(head(node)) ?? 0) + 1);
    }
    const text = [...counts].map(([name, count]) => `${count} ${name}`).join(', ');
    if (text !== '') findings.push({ rule: 'lane', functionName, text });
  }
  return { vectorLoops: loops.length, findings };
}

/**
 * @param {string} text a module's text form
 * @param {Map<number, string>} names of functions by index, as far as they are known
 */
function inspectModule(text, names) {
  const module = parse(text);
  const imported = module.filter(
    (entry) => head(entry) === 'import' && children(entry).some((child) => head(child) === 'func'),
  ).length;
  const functions = module.filter((entry) => head(entry) === 'func');
  const functionNames = functions.map((_, position) => {
    const index = imported + position;
    return names.get(index) ?? `function ${index}`;
  });
  const results = functions.map((definition, position) =>
    inspectFunction(/** @type {Node[]} */ (definition), String(functionNames[position])),
  );
  return {
    functionNames,
    vectorLoops: results.reduce((sum, result) => sum + result.vectorLoops, 0),
    findings: results.flatMap((result) => result.findings),
    vectorInstruction: /\bv128\b|\b[if]\d+x\d+\.\w+/.exec(text)?.[0],
  };
}

/**
 * Lists the findings that no exception covers, and the exceptions that do not fit. A module without the function needs no exception.
 * @param {Finding[]} findings
 * @param {typeof exceptions} allowed
 * @param {string[]} functionNames of the module
 */
function judge(findings, allowed, functionNames) {
  const covers = (/** @type {typeof exceptions[number]} */ exception, /** @type {Finding} */ finding) =>
    finding.rule === 'lane' && finding.functionName.startsWith(exception.functionName);
  const stale = allowed.filter(
    (exception) =>
      functionNames.some((name) => name.startsWith(exception.functionName)) &&
      findings.filter((finding) => covers(exception, finding)).length !== exception.loops,
  );
  return { stale, remaining: findings.filter((finding) => !allowed.some((exception) => covers(exception, finding))) };
}

// ------------------------------------------------------------------------------------------------------------ programs

/** @param {string} path of a wasm file */
function disassemble(path) {
  return execFileSync(binaryen('wasm-dis'), ['--all-features', path], {
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

/**
 * The names that the linker wrote next to the wasm file: lines of index:name, with characters as \28.
 * @param {string} path
 */
function readSymbols(path) {
  /** @type {Map<number, string>} */
  const names = new Map();
  if (!existsSync(path)) return names;
  for (const line of readFileSync(path, 'utf8').split('\n')) {
    const colon = line.indexOf(':');
    const name = line
      .slice(colon + 1)
      .replace(/\\([0-9a-f]{2})/g, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
    if (colon > 0) names.set(Number(line.slice(0, colon)), name);
  }
  return names;
}

// ----------------------------------------------------------------------------------------------------------- self-test

/** A module that reads 16 bytes in each turn of a loop and does something to them, there and afterwards. */
const loopOf = (/** @type {string} */ body, after = '') => `(module (memory 1)
  (func (param $p i32) (local $v v128) (local $n i32) (local $x f32)
    (loop $again
      (local.set $v (v128.load (local.get $p)))
      ${body}
      (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
    ${after}))`;

const selfTests = [
  {
    name: 'a loop of whole vectors passes',
    rules: [],
    module: loopOf('(v128.store (local.get $p) (f32x4.convert_i32x4_s (local.get $v)))'),
  },
  {
    name: 'a conversion lane by lane is found',
    rules: ['conversion', 'lane'],
    module: loopOf(`(v128.store (local.get $p) (f32x4.replace_lane 1 (f32x4.splat (f32.const 0))
      (f32.convert_i32_s (i16x8.extract_lane_s 5 (local.get $v)))))`),
  },
  {
    name: 'a conversion of some bits of a lane is found',
    rules: ['conversion', 'lane'],
    module: loopOf(`(v128.store (local.get $p) (f32x4.replace_lane 1 (f32x4.splat (f32.const 0))
      (f32.convert_i32_u (i32.and (i16x8.extract_lane_u 5 (local.get $v)) (i32.const 0x7fff)))))`),
  },
  {
    name: 'a conversion by way of local variables is found',
    rules: ['conversion', 'lane'],
    module: loopOf(`(local.set $n (i32x4.extract_lane 2 (local.get $v)))
      (local.set $x (f32.convert_i32_u (local.get $n)))
      (v128.store (local.get $p) (f32x4.replace_lane 1 (f32x4.splat (f32.const 0)) (local.get $x)))`),
  },
  {
    name: 'a lane taken in a loop is found',
    rules: ['lane'],
    module: loopOf('(local.set $n (i32x4.extract_lane 0 (local.get $v)))'),
  },
  {
    name: 'a lane taken after the loop passes',
    rules: [],
    module: loopOf('', '(f32.store (local.get $p) (f32.convert_i32_s (i32x4.extract_lane 0 (local.get $v))))'),
  },
];

/**
 * Runs the checks on modules of which the answer is known.
 * @throws Error naming the first that goes wrong
 */
export function selfTest() {
  const folder = mkdtempSync(join(tmpdir(), 'scalepoint-'));
  try {
    for (const { name, rules, module } of selfTests) {
      writeFileSync(join(folder, 'a.wat'), module);
      execFileSync(binaryen('wasm-as'), ['--all-features', join(folder, 'a.wat'), '-o', join(folder, 'a.wasm')]);
      const { findings, vectorLoops, vectorInstruction } = inspectModule(
        disassemble(join(folder, 'a.wasm')),
        new Map([[0, 'f(int)']]),
      );
      const found = [...new Set(findings.map((finding) => finding.rule))].sort();
      if (found.join() !== rules.join() || vectorLoops !== 1 || vectorInstruction === undefined) {
        throw new Error(
          `self-test: ${name}: expected [${rules.join()}] in 1 loop, found [${found.join()}] in ${vectorLoops}`,
        );
      }
    }
    const lane = /** @type {Finding} */ ({ rule: 'lane', functionName: 'f(int)', text: '' });
    const fits = judge([lane], [{ functionName: 'f(', loops: 1, reason: '' }], ['f(int)']);
    const tooMany = judge([lane], [{ functionName: 'f(', loops: 2, reason: '' }], ['f(int)']);
    const elsewhere = judge([], [{ functionName: 'g(', loops: 1, reason: '' }], ['f(int)']);
    if (fits.remaining.length + fits.stale.length + elsewhere.stale.length !== 0 || tooMany.stale.length !== 1)
      throw new Error('self-test: exceptions');
    writeFileSync(join(folder, 'a.wat'), '(module (func (param i32)))');
    execFileSync(binaryen('wasm-as'), [join(folder, 'a.wat'), '-o', join(folder, 'a.wasm')]);
    if (inspectModule(disassemble(join(folder, 'a.wasm')), new Map()).vectorInstruction !== undefined) {
      throw new Error('self-test: a module without vectors passes');
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

// ---------------------------------------------------------------------------------------------------------------- main

/**
 * @param {string} folder with the wasm files of both modules and tiers, and the symbol maps that the linker wrote
 * @returns {{ problems: string[], summary: string }}
 */
export function checkWasm(folder) {
  /** @type {string[]} */
  const problems = [];
  const inspect = (/** @type {string} */ name) =>
    inspectModule(disassemble(join(folder, `${name}.wasm`)), readSymbols(join(folder, `${name}.mjs.symbols`)));
  const what = { conversion: 'a conversion lane by lane', lane: 'single lanes in an inner loop' };
  const summaries = [];
  for (const module of ['arrays', 'core']) {
    const simd = inspect(`${module}-simd`);
    const { remaining, stale } = judge(simd.findings, exceptions, simd.functionNames);
    for (const { rule, functionName, text } of remaining)
      problems.push(`${module}-simd.wasm: ${functionName}: ${what[rule]}: ${text}`);
    for (const { functionName, loops } of stale)
      problems.push(`${module}-simd.wasm: the exception for ${functionName} does not match ${loops} loops any more`);
    if (simd.vectorLoops === 0) problems.push(`${module}-simd.wasm: no loop over vectors was found to check`);
    const { vectorInstruction } = inspect(`${module}-scalar`);
    if (vectorInstruction !== undefined)
      problems.push(`${module}-scalar.wasm: holds the vector instruction or type ${vectorInstruction}`);
    // The large module contains the small one, so that an exception without a function there has none anywhere.
    if (module === 'core') {
      for (const { functionName } of exceptions)
        if (!simd.functionNames.some((name) => name.startsWith(functionName)))
          problems.push(`the exception for ${functionName} matches no function`);
    }
    summaries.push(`${module} ${simd.vectorLoops} inner loops over vectors in ${simd.functionNames.length} functions`);
  }
  const summary = `${summaries.join(', ')}, ${exceptions.length} exceptions`;
  return { problems, summary };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = process.argv[2] ?? fileURLToPath(new URL('../build/wasm', import.meta.url));
  selfTest();
  const { problems, summary } = checkWasm(folder);
  for (const problem of problems) console.error(problem);
  console.log(summary);
  if (problems.length > 0) process.exitCode = 1;
}

// Asks the compiler for the declarations of C++ sources: enums, constants, tables, structs and calls. They come from the syntax tree
// that Clang writes as JSON.

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { findEmscripten } from '../emscripten.mjs';
import { StepError } from '../steps.mjs';

/** @typedef {{ name: string, doc: string, where: string }} Named doc: the comment before or behind it; where: file and line */
/** @typedef {Named & { scope: string }} Declared scope: the namespace, as in 'scalepoint::door' */
/** @typedef {Declared & { values: (Named & { value: number })[] }} Enum */
/** @typedef {number | boolean | { readonly [field: string]: Value }} Value a number, or the values of a struct's fields */
/** @typedef {Declared & { type: string, value: number }} Constant */
/** @typedef {Declared & { type: string, rows: Value[] }} Table type: the struct of its rows */
/** @typedef {Named & { type: string, initializer: Node | undefined }} Field */
/** @typedef {Declared & { fields: Field[] }} Struct */
/** @typedef {'arrays' | 'models'} Part bindings: those of both modules, and those of the large one alone */
/** @typedef {{ name: string, type: string }} Parameter */
/** @typedef {Named & { returns: string, parameters: Parameter[], plain: boolean, part: Part }} Call */

/**
 * A node of the syntax tree, with the fields that are read here.
 * @typedef {object} Node
 * @property {string} kind
 * @property {string} where file and line, added by locate()
 * @property {string} [name]
 * @property {{ qualType: string }} [type]
 * @property {{ qualType: string }} [fixedUnderlyingType]
 * @property {{ name: string, type: { qualType: string } }} [referencedDecl]
 * @property {boolean} [constexpr]
 * @property {boolean} [completeDefinition]
 * @property {string | boolean} [value]
 * @property {string} [opcode]
 * @property {string} [text]
 * @property {Node[]} [inner]
 */

/** A name without its namespace. In TypeScript there are no namespaces, so names of the door are unique. @param {string} name */
export const unqualified = (name) => name.replace(/^.*::/, '');

/**
 * The syntax tree of namespace scalepoint.
 * @param {string} folder that of the includes
 * @param {string[]} files in the folder, compiled as one
 * @returns {Node[]}
 */
function parse(folder, files) {
  const emscripten = findEmscripten();
  if (emscripten === undefined) throw new StepError('Emscripten is not on PATH');
  const isWindows = process.platform === 'win32';
  // Debian has the programs on PATH alone.
  const beside = join(emscripten.folder, isWindows ? 'em++.bat' : 'em++');
  const compiler = existsSync(beside) ? beside : 'em++';
  const paths = files.map((file) => join(basename(folder), file));
  const args = ['-std=c++20', '-fsyntax-only', '-DSCALEPOINT_DESCRIBE_DOOR', '-DSCALEPOINT_BUILD_ID=0'];
  args.push('-I', basename(folder));
  args.push('-Xclang', '-ast-dump=json', '-Xclang', '-ast-dump-filter=scalepoint');
  args.push(...paths.slice(1).flatMap((path) => ['-include', path]), String(paths[0]));
  /** @type {import('node:child_process').ExecFileSyncOptionsWithStringEncoding} */
  const options = { encoding: 'utf8', maxBuffer: 1 << 29, stdio: 'pipe', shell: isWindows, cwd: dirname(folder) };
  let text;
  try {
    text = execFileSync(compiler, args, { ...options, env: { ...process.env, ...emscripten.variables } });
  } catch (error) {
    const { stderr, message } = /** @type {Error & { stderr?: string | null }} */ (error);
    throw new StepError('the bindings do not compile', stderr ?? message);
  }
  // One object for each namespace block, some versions with a line of text before each.
  return JSON.parse(`[${text.replace(/^Dumping .*$/gm, '').replace(/^\}$(?=\s*\{)/gm, '},')}]`);
}

/**
 * Adds file and line to each node. Clang writes both only where they differ from those of the location before.
 * @param {unknown} value @param {{ file: string, line: number }} last
 */
function locate(value, last) {
  if (typeof value !== 'object' || value === null) return;
  const node = /** @type {{ kind?: string, file?: string, line?: number, where?: string, loc?: object }} */ (value);
  if (node.file !== undefined) last.file = node.file;
  if (node.line !== undefined) last.line = node.line;
  for (const [key, child] of Object.entries(node)) {
    if (key === 'includedFrom') continue;
    locate(child, last);
    if (key === 'loc') node.where = `${last.file}:${last.line}`;
  }
}

/** A type as C++ sources spell it; of a function, the type that it returns. @param {Node} node */
const typeOf = ({ type }) =>
  String(type?.qualType)
    .replace(/ ?\(.*$/, '')
    .replace(/ ([*&])$/, '$1');

/** A type without const, and without the sign of an address. @param {string} type */
export const targetOf = (type) => type.replace(/^const /, '').replace(/[*&]$/, '');

/** The expression that a variable, a field or an enum value begins with. @param {Node} node */
const initializerOf = ({ inner = [] }) => inner.find(({ kind }) => !/Comment$|Attr$/.test(kind));

/** Namespaces outside of the door. */
const inside = ['loops', 'lanes'];

/** The declarations of C++ sources. */
export class Declarations {
  /** @type {Enum[]} */
  enums = [];
  /** @type {Constant[]} */
  constants = [];
  /** @type {Table[]} */
  tables = [];
  /** @type {Struct[]} */
  structs = [];
  /** @type {Call[]} */
  calls = [];
  /** Where the last comment was. Clang gives the comment of an enum value to a next value without comment, too. */
  #comment = '';

  /** @param {string} folder that of the includes @param {string[]} bindings files in it */
  constructor(folder, bindings) {
    const namespaces = parse(folder, bindings);
    locate(namespaces, { file: '', line: 0 });
    for (const namespace of namespaces) this.#read(namespace, String(namespace.name));
    // Bindings may be read in another order than they are listed.
    const order = (/** @type {Call} */ { part }) => bindings.indexOf(`bindings_${part}.cpp`);
    this.calls.sort((a, b) => order(a) - order(b));
  }

  /** @param {Node} namespace @param {string} scope */
  #read({ inner = [] }, scope) {
    for (const node of inner) {
      const { kind, name = '', where } = node;
      const part = /bindings_(\w+)\.cpp:\d+$/.exec(where)?.[1];
      const about = () => ({ name, scope, where, doc: this.#docOf(node) });
      if (kind === 'NamespaceDecl' && !inside.includes(name))
        this.#read(node, name === '' ? scope : `${scope}::${name}`);
      else if (kind === 'FunctionDecl' && part !== undefined) this.#readCall(node, /** @type {Part} */ (part), about());
      else if (kind === 'EnumDecl' && node.fixedUnderlyingType?.qualType === 'int32_t') this.#readEnum(node, about());
      else if (kind === 'CXXRecordDecl' && node.completeDefinition && node.tagUsed === 'struct')
        this.#readStruct(node, about());
      else if (kind === 'VarDecl' && node.constexpr) this.#readConstant(node, about());
    }
  }

  /** The comment of a declaration. @param {Node} node */
  #docOf({ inner = [] }) {
    const comment = inner.find(({ kind }) => kind === 'FullComment');
    if (comment === undefined || comment.where === this.#comment) return '';
    this.#comment = comment.where;
    const paragraphs = (comment.inner ?? []).map((paragraph) => {
      /** @type {Map<string, string>} Clang divides lines at some characters. */
      const lines = new Map();
      for (const { kind, text = '', where } of paragraph.inner ?? []) {
        if (kind !== 'TextComment') throw new Error(`${where}: a comment with markup`);
        lines.set(where, (lines.get(where) ?? '') + text);
      }
      return [...lines.values()].map((line) => line.replace(/^ /, '').trimEnd()).join('\n');
    });
    return paragraphs.filter((text) => text !== '').join('\n\n');
  }

  /** @param {Node} node @param {Declared} about */
  #readEnum({ inner = [] }, about) {
    let next = 0;
    const values = inner
      .filter(({ kind }) => kind === 'EnumConstantDecl')
      .map((value) => {
        const given = initializerOf(value);
        const number = given === undefined ? next : Number(given.value);
        next = number + 1;
        return { name: String(value.name), doc: this.#docOf(value), where: value.where, value: number };
      });
    this.enums.push({ ...about, values });
  }

  /** @param {Node} node @param {Declared} about */
  #readStruct({ inner = [] }, about) {
    const fields = inner
      .filter(({ kind }) => kind === 'FieldDecl')
      .map((field) => ({
        name: String(field.name),
        doc: this.#docOf(field),
        where: field.where,
        type: typeOf(field),
        initializer: initializerOf(field),
      }));
    this.structs.push({ ...about, fields });
  }

  /** @param {Node} node @param {Declared} about */
  #readConstant(node, about) {
    const type = targetOf(typeOf(node));
    const row = /^(.*)\[\d+\]$/.exec(type)?.[1];
    const initializer = /** @type {Node} */ (initializerOf(node));
    if (row !== undefined) {
      const rows = (initializer.inner ?? []).map((cell) => this.#evaluate(cell, about.where));
      this.tables.push({ ...about, type: row, rows });
    } else this.constants.push({ ...about, type, value: Number(this.#evaluate(initializer, about.where)) });
  }

  /** @param {Node} node @param {Part} part @param {Named} about */
  #readCall(node, part, about) {
    const { inner = [] } = node;
    this.calls.push({
      ...about,
      part,
      returns: typeOf(node),
      parameters: inner
        .filter(({ kind }) => kind === 'ParmVarDecl')
        .map((parameter) => ({ name: String(parameter.name), type: typeOf(parameter) })),
      plain: inner.some(({ kind }) => kind === 'AnnotateAttr'),
    });
  }

  /**
   * The value of a constant expression. The compiler confirms it with the assertions of exportsOf().
   * @param {Node | undefined} node @param {string} where
   * @returns {Value}
   */
  #evaluate(node, where) {
    const { kind, value, opcode, referencedDecl, inner = [] } = node ?? { kind: 'nothing' };
    const operand = (/** @type {number} */ i) => Number(this.#evaluate(inner[i], where));
    switch (kind) {
      case 'CXXBoolLiteralExpr':
        return value === true;
      case 'IntegerLiteral':
        return Number(value);
      case 'FloatingLiteral':
        return typeOf(/** @type {Node} */ (node)) === 'float' ? Math.fround(Number(value)) : Number(value);
      case 'ConstantExpr':
      case 'ImplicitCastExpr':
      case 'ParenExpr':
        return this.#evaluate(inner[0], where);
      case 'UnaryOperator':
        if (opcode === '-') return -operand(0);
        break;
      case 'BinaryOperator':
        if (opcode === '<<') return operand(0) * 2 ** operand(1);
        break;
      case 'DeclRefExpr': {
        const type = unqualified(String(referencedDecl?.type.qualType));
        const owner = this.enums.find(({ name }) => name === type);
        const member = owner?.values.find(({ name }) => name === referencedDecl?.name);
        if (member !== undefined) return member.value;
        break;
      }
      case 'InitListExpr': {
        const name = unqualified(targetOf(typeOf(/** @type {Node} */ (node))));
        const struct = this.structs.find((one) => one.name === name);
        if (struct === undefined) break;
        const cell = (/** @type {Field} */ { initializer }, /** @type {number} */ i) =>
          this.#evaluate(inner[i]?.kind === 'CXXDefaultInitExpr' ? initializer : inner[i], where);
        return Object.fromEntries(struct.fields.map((field, i) => [field.name, cell(field, i)]));
      }
    }
    throw new Error(`${where}: a constant of an expression that is not understood: ${kind}${opcode ?? ''}`);
  }
}

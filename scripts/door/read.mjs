// Reads declarations of C++ that clang-format has put into one shape: enums, numbers, tables, structs and functions. What it does
// not understand is an error that names the file and the line.

/** @typedef {{ kind: 'word' | 'number' | 'symbol' | 'doc' | 'remark', text: string, line: number }} Token */
/** @typedef {{ name: string, doc: string }} Named a name with the comment before or behind it */
/** @typedef {Named & { scope: string }} Declared scope: the namespace, as in 'scalepoint::door' */
/** @typedef {Declared & { values: (Named & { value: number })[] }} Enum */
/** @typedef {Declared & { type: string, value: number }} Constant */
/** @typedef {string | Initializer[]} Initializer one cell of a table, or a row */
/** @typedef {Declared & { type: string, rows: Initializer[], where: string }} Table */
/** @typedef {Named & { type: string, where: string }} Field */
/** @typedef {Declared & { fields: () => Field[], where: string }} Struct its fields are read when they are asked for */
/** @typedef {'arrays' | 'models'} Part bindings: those of both modules, and those of the large one alone */
/** @typedef {{ name: string, type: string }} Parameter */
/** @typedef {Named & { returns: string, parameters: Parameter[], plain: boolean, part: Part, where: string }} Call */

const pattern =
  /(?<blank>\s+|^[ \t]*#.*$)|(?<remark>\/\/\/<.*$)|(?<doc>\/\/\/.*$)|(?<comment>\/\/.*$)|(?<text>"[^"\n]*")|(?<number>(?:0x)?\d[\w.]*(?:(?<=0x[\da-fA-F.]*p)-\w+)?)|(?<word>[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)|(?<symbol>[^\w\s])/gm;

/** A cursor over the tokens of one file. */
class Reader {
  #at = 0;

  /** @param {string} path for messages @param {string} source */
  constructor(path, source) {
    this.path = path;
    /** @type {Token[]} */
    this.tokens = [];
    let line = 1;
    for (const match of source.matchAll(pattern)) {
      const { remark, doc, number, word, symbol, text } = /** @type {Record<string, string | undefined>} */ (
        match.groups
      );
      const add = (/** @type {Token['kind']} */ kind, /** @type {string} */ value) =>
        this.tokens.push({ kind, text: value, line });
      if (remark !== undefined) add('remark', remark.slice(4).trim());
      else if (doc !== undefined) add('doc', doc.slice(3).replace(/^ /, ''));
      else if (number !== undefined) add('number', number);
      else if (word !== undefined) add('word', word);
      else if (symbol !== undefined) add('symbol', symbol);
      else if (text !== undefined) add('symbol', text);
      line += match[0].split('\n').length - 1;
    }
  }

  /** The token `ahead` places further on. */
  peek(ahead = 0) {
    return this.tokens[this.#at + ahead] ?? { kind: 'symbol', text: 'the end', line: 0 };
  }

  get done() {
    return this.#at >= this.tokens.length;
  }

  /** Where the next token is. */
  get where() {
    return `${this.path}:${this.peek().line}`;
  }

  /** @param {string} text @returns {never} */
  fail(text) {
    throw new Error(`${this.where}: ${text}, found '${this.peek().text}'`);
  }

  take() {
    const token = this.peek();
    this.#at++;
    return token;
  }

  /** Takes the next tokens if they are these. @param {string[]} texts */
  accept(...texts) {
    if (!texts.every((text, i) => this.peek(i).text === text && this.peek(i).kind !== 'doc')) return false;
    this.#at += texts.length;
    return true;
  }

  /** @param {string} text */
  expect(text) {
    if (!this.accept(text)) this.fail(`expected '${text}'`);
  }

  /** @param {'word' | 'number'} kind */
  expectKind(kind) {
    if (this.peek().kind !== kind) this.fail(`expected a ${kind === 'word' ? 'name' : kind}`);
    return this.take().text;
  }

  /** The comment in front of a declaration. */
  doc() {
    const lines = [];
    while (this.peek().kind === 'doc') lines.push(this.take().text);
    return lines.join('\n');
  }

  /** The comment behind a value or a field, over as many lines as it has. */
  remark() {
    const lines = [];
    while (this.peek().kind === 'remark') lines.push(this.take().text);
    return lines.join(' ');
  }

  /** Goes behind the bracket that closes the next one. */
  skipBrackets() {
    const opening = this.take().text;
    const closing = { '(': ')', '{': '}', '[': ']' }[opening];
    if (closing === undefined) this.fail(`expected a bracket after '${opening}'`);
    while (!this.accept(/** @type {string} */ (closing))) {
      if (this.done) this.fail(`expected '${closing}'`);
      if (['(', '{', '['].includes(this.peek().text) && this.peek().kind === 'symbol') this.skipBrackets();
      else this.take();
    }
  }

  /** Goes behind a declaration of no interest: to its `;`, or behind its body. */
  skipDeclaration() {
    for (;;) {
      if (this.done) this.fail('expected the end of a declaration');
      if (this.accept(';')) return;
      if (this.peek().text === '{') {
        this.skipBrackets();
        this.accept(';');
        return;
      }
      if (['(', '['].includes(this.peek().text)) this.skipBrackets();
      else this.take();
    }
  }

  /** A type: a name, maybe const, maybe a pointer or a reference. */
  type() {
    const constant = this.accept('const') ? 'const ' : '';
    const name = this.expectKind('word');
    const suffix = this.accept('*') ? '*' : this.accept('&') ? '&' : '';
    return `${constant}${name}${suffix}`;
  }
}

/**
 * The value of a literal.
 * @param {Reader} reader
 */
function readNumber(reader) {
  const negative = reader.accept('-');
  const text = reader
    .expectKind('number')
    .replace(/(?<!^0x.*)f$|u$/, '')
    .replace(/u$/, '');
  const power = /^0x([\da-f]+)p(-?\d+)f?$/i.exec(text);
  const value = power === null ? Number(text) : Number.parseInt(String(power[1]), 16) * 2 ** Number(power[2]);
  if (!Number.isFinite(value)) reader.fail(`expected a number before, got '${text}'`);
  return negative ? -value : value;
}

/** @param {Reader} reader @param {string} doc @returns {Named & Pick<Enum, 'values'>} */
function readEnum(reader, doc) {
  const name = reader.expectKind('word');
  reader.expect(':');
  reader.expect('int32_t');
  reader.expect('{');
  /** @type {Enum['values']} */
  const values = [];
  while (!reader.accept('}')) {
    const before = reader.doc();
    const value = reader.expectKind('word');
    reader.expect('=');
    const number = readNumber(reader);
    if (!reader.accept(',') && reader.peek().text !== '}' && reader.peek().kind !== 'remark')
      reader.fail("expected ','");
    values.push({ name: value, value: number, doc: before || reader.remark() });
  }
  reader.expect(';');
  return { name, doc, values };
}

/** @param {Reader} reader @returns {Initializer} */
function readInitializer(reader) {
  if (!reader.accept('{')) return reader.take().text;
  /** @type {Initializer[]} */
  const list = [];
  while (!reader.accept('}')) {
    list.push(readInitializer(reader));
    if (!reader.accept(',') && reader.peek().text !== '}') reader.fail("expected ','");
  }
  return list;
}

/** The fields of a struct; its functions are left out. @param {Reader} reader @returns {Field[]} */
function readFields(reader) {
  /** @type {Field[]} */
  const fields = [];
  while (!reader.done) {
    const doc = reader.doc();
    const { where } = reader;
    if (reader.accept('[', '[', 'nodiscard', ']', ']')) {
      reader.skipDeclaration();
      continue;
    }
    const type = reader.type();
    const name = reader.expectKind('word');
    // Defaults are of no interest: JavaScript gives every field.
    if (reader.accept('=')) while (reader.peek().text !== ';') reader.take();
    reader.expect(';');
    fields.push({ name, type, doc: doc || reader.remark(), where });
  }
  return fields;
}

/** What a header declares that the door can be about. */
export class Declarations {
  /** @type {Enum[]} */
  enums = [];
  /** @type {Constant[]} */
  constants = [];
  /** @type {Table[]} */
  tables = [];
  /** @type {Struct[]} */
  structs = [];

  /** Reads a header. @param {string} path @param {string} source */
  read(path, source) {
    const reader = new Reader(path, source);
    /** @type {string[]} */
    const open = [];
    while (!reader.done) {
      const doc = reader.doc();
      const scope = open.join('::');
      if (reader.accept('namespace')) {
        open.push(reader.expectKind('word'));
        reader.expect('{');
      } else if (reader.accept('}')) open.pop();
      else if (reader.accept('enum')) {
        reader.expect('class');
        this.enums.push({ ...readEnum(reader, doc), scope });
      } else if (reader.accept('struct')) this.#readStruct(reader, { doc, scope }, path, source);
      else if (reader.accept('inline', 'constexpr')) this.#readConstant(reader, { doc, scope });
      else if (!reader.done) reader.skipDeclaration();
    }
    if (open.length !== 0) throw new Error(`${path}: namespace ${open.join('::')} is not closed`);
  }

  /**
   * @param {Reader} reader
   * @param {{ doc: string, scope: string }} about
   * @param {string} path
   * @param {string} source
   */
  #readStruct(reader, about, path, source) {
    const { where } = reader;
    const name = reader.expectKind('word');
    // A declaration without a body.
    if (reader.accept(';')) return;
    const first = reader.peek().line;
    reader.skipBrackets();
    reader.expect(';');
    const last = reader.peek(-1).line;
    const body = source
      .split('\n')
      .slice(first - 1, last)
      .join('\n');
    const inner = body.slice(body.indexOf('{') + 1, body.lastIndexOf('}'));
    const fields = () => readFields(new Reader(path, '\n'.repeat(first - 1) + inner));
    this.structs.push({ ...about, name, where, fields });
  }

  /** @param {Reader} reader @param {{ doc: string, scope: string }} about */
  #readConstant(reader, about) {
    const { where } = reader;
    const type = reader.type();
    const name = reader.expectKind('word');
    if (reader.accept('[', ']', '=')) {
      const rows = readInitializer(reader);
      if (!Array.isArray(rows)) reader.fail('expected a table in braces');
      this.tables.push({ ...about, name, type, rows: /** @type {Initializer[]} */ (rows), where });
    } else if (reader.accept('=')) {
      let value = readNumber(reader);
      if (reader.accept('<', '<')) value *= 2 ** readNumber(reader);
      this.constants.push({ ...about, name, type, value });
    } else {
      // A function.
      reader.skipDeclaration();
      return;
    }
    reader.expect(';');
  }
}

/**
 * The functions of bindings: all that its namespaces hold.
 * @param {string} path
 * @param {string} source
 * @param {Part} part
 * @returns {Call[]}
 */
export function readCalls(path, source, part) {
  const reader = new Reader(path, source);
  /** @type {Call[]} */
  const calls = [];
  for (;;) {
    const doc = reader.doc();
    if (reader.done) return calls;
    if (reader.accept('}')) continue;
    if (reader.accept('namespace')) {
      if (reader.peek().kind === 'word') reader.take();
      reader.expect('{');
      continue;
    }
    const plain = reader.accept('SCALEPOINT_PLAIN_EXPORT');
    const { where } = reader;
    const returns = reader.type();
    const name = reader.expectKind('word');
    reader.expect('(');
    /** @type {Call['parameters']} */
    const parameters = [];
    while (!reader.accept(')')) {
      const type = reader.type();
      parameters.push({ type, name: reader.expectKind('word') });
      if (!reader.accept(',') && reader.peek().text !== ')') reader.fail("expected ','");
    }
    if (reader.peek().text !== '{') reader.fail("expected the function's body");
    reader.skipBrackets();
    calls.push({ name, doc, returns, parameters, plain, part, where });
  }
}

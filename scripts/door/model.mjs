// What the declarations mean: how records lie in wasm memory, and how arguments travel.

/** @typedef {import('./read.mjs').Declarations} Declarations */
/** @typedef {import('./read.mjs').Call} Call */
/** @typedef {'f32' | 'f64' | 'i32' | 'u32' | 'u64' | 'bool'} Kind */
/** @typedef {{ name: string, doc: string, type: string, offset: number, kind?: Kind, record?: Record }} Field */
/** @typedef {{ name: string, doc: string, scope: string, where: string, fields: Field[], bytes: number, align: number }} Record */
/** @typedef {{ name: string, doc: string, columns: { name: string, type?: string }[], rows: number[][] }} Table its types are those of enums */

/** Numbers a call may take: more are not told apart where it is called. */
const mostParameters = 8;

/** @type {{ readonly [type: string]: { kind: Kind, bytes: number } }} */
const scalars = {
  float: { kind: 'f32', bytes: 4 },
  double: { kind: 'f64', bytes: 8 },
  int32_t: { kind: 'i32', bytes: 4 },
  uint32_t: { kind: 'u32', bytes: 4 },
  size_t: { kind: 'u32', bytes: 4 },
  uint64_t: { kind: 'u64', bytes: 8 },
  bool: { kind: 'bool', bytes: 1 },
};

/** A name of C++ as TypeScript spells it: quantize_linear and kNonFinite become quantizeLinear and nonFinite, but kQ4_0 becomes Q4_0. */
export function spell(/** @type {string} */ name) {
  const constant = /^k([A-Z].*)$/.exec(name)?.[1];
  if (constant !== undefined) return constant.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());
  return name.replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase());
}

/** A name without its namespace: in TypeScript there is none, so that names of the door are unique. */
export function unqualified(/** @type {string} */ name) {
  return name.replace(/^.*::/, '');
}

/** Whether a name is one of a value or of a constant. */
function isConstant(/** @type {string} */ name) {
  return /^k[A-Z]/.test(name);
}

/** The door: what both of its sides have in common. */
export class Door {
  /** @type {Map<string, Record>} */
  #records = new Map();
  /** @type {Set<string>} */
  #enums;
  #declarations;

  /** @param {Declarations} declarations @param {Call[]} calls */
  constructor(declarations, calls) {
    this.#declarations = declarations;
    this.enums = declarations.enums;
    this.constants = declarations.constants;
    this.calls = calls;
    this.#enums = new Set(this.enums.map(({ name }) => name));
    for (const { name } of [...this.enums.flatMap(({ values }) => values), ...this.constants, ...declarations.tables])
      if (!isConstant(name)) throw new Error(`${name}: values and constants have names as kName`);
    const names = [...this.enums, ...declarations.structs].map(({ name }) => name);
    const negative = this.enums.find(({ values }) => values.some(({ value }) => value < 0));
    if (negative !== undefined) throw new Error(`${negative.name}: values of enums are at least 0`);
    const twice = names.find((name, i) => names.indexOf(name) !== i);
    if (twice !== undefined) throw new Error(`${twice}: there are two of that name`);
    for (const call of calls) this.#check(call);
    /** @type {Table[]} */
    this.tables = declarations.tables.map(({ name, doc, type, rows, where }) => ({
      name,
      doc,
      columns: this.#columns(type, where),
      rows: rows.map((row) => this.#numbers(row, where)),
    }));
  }

  /** Records that calls take, and what they consist of. */
  get records() {
    return [...this.#records.values()];
  }

  /** Whether there is an enum of that name. @param {string} type */
  isEnum(type) {
    return this.#enums.has(unqualified(type));
  }

  /** The record of that name, if it is one. @param {string} type @returns {Record | undefined} */
  record(type) {
    const known = this.#records.get(unqualified(type));
    if (known !== undefined) return known;
    const struct = this.#declarations.structs.find(({ name }) => name === unqualified(type));
    if (struct === undefined) return undefined;
    const { name, doc, scope, where } = struct;
    /** @type {Record} */
    const record = { name, doc, scope, where, fields: [], bytes: 0, align: 1 };
    for (const field of struct.fields()) {
      const { bytes, align, ...rest } = this.#place(field.type, field.where);
      // As C++ lays out plain structs, and as the assertions of exportsOf say.
      const offset = Math.ceil(record.bytes / align) * align;
      record.fields.push({ name: field.name, doc: field.doc, type: field.type, offset, ...rest });
      record.bytes = offset + bytes;
      record.align = Math.max(record.align, align);
    }
    record.bytes = Math.ceil(record.bytes / record.align) * record.align;
    this.#records.set(name, record);
    return record;
  }

  /**
   * What a field takes.
   * @param {string} type @param {string} where
   * @returns {{ bytes: number, align: number, kind?: Kind, record?: Record }}
   */
  #place(type, where) {
    if (type.endsWith('*')) return { bytes: 4, align: 4, kind: 'u32' };
    if (this.isEnum(type)) return { bytes: 4, align: 4, kind: 'i32' };
    const scalar = scalars[type];
    if (scalar !== undefined) return { ...scalar, align: scalar.bytes };
    const record = this.record(type);
    if (record === undefined) throw new Error(`${where}: a record cannot hold a '${type}'`);
    return { bytes: record.bytes, align: record.align, record };
  }

  /** @param {Call} call */
  #check({ name, returns, parameters, plain, part, where }) {
    // Plain exports are part of the glue, which both modules share.
    if (plain && part === 'models') throw new Error(`${where}: ${name} is a plain export of one module alone`);
    if (parameters.length > mostParameters) {
      throw new Error(
        `${where}: ${name} takes ${parameters.length} numbers, more than ${mostParameters}: use a record`,
      );
    }
    const returned =
      returns === 'void' || returns.endsWith('*') || this.isEnum(returns) || scalars[returns] !== undefined;
    // Integers of 32 bits come back without a sign from Embind, and with one from plain exports.
    const large = returns.endsWith('*') || ['uint32_t', 'size_t', 'bool'].includes(returns);
    if (!returned || returns === 'int32_t' || (plain && large)) {
      throw new Error(`${where}: ${name} cannot return '${returns}'`);
    }
    for (const { type } of parameters) {
      const target = /^(?:const )?(.*?)[*&]?$/.exec(type)?.[1] ?? '';
      if (/[*&]$/.test(type)) {
        const known = this.record(target) !== undefined;
        if (type.endsWith('&') && !known) throw new Error(`${where}: ${name} takes a '${type}', which is no record`);
      } else if (scalars[type] === undefined && !this.isEnum(type)) {
        throw new Error(`${where}: ${name} cannot take a '${type}'`);
      }
    }
  }

  /**
   * The columns of a table: the fields of its type, and those of structs in it.
   * @param {string} type @param {string} where
   * @returns {Table['columns']}
   */
  #columns(type, where) {
    const struct = this.#declarations.structs.find(({ name }) => name === unqualified(type));
    if (struct === undefined) throw new Error(`${where}: a table of '${type}', which is no struct`);
    return struct.fields().flatMap((field) => {
      if (this.isEnum(field.type)) return [{ name: spell(field.name), type: field.type }];
      return scalars[field.type] === undefined ? this.#columns(field.type, field.where) : [{ name: spell(field.name) }];
    });
  }

  /**
   * The numbers of a row or a cell of a table, in order.
   * @param {import('./read.mjs').Initializer} cell @param {string} where
   * @returns {number[]}
   */
  #numbers(cell, where) {
    if (Array.isArray(cell)) return cell.flatMap((part) => this.#numbers(part, where));
    const [, owner, value] = /(\w+)::(\w+)$/.exec(cell) ?? [];
    const member = this.enums.find(({ name }) => name === owner)?.values.find(({ name }) => name === value);
    const number = member?.value ?? Number(cell);
    if (!Number.isFinite(number)) throw new Error(`${where}: '${cell}' is no number`);
    return [number];
  }
}

// The meaning of the declarations: how records lie in wasm memory, and how arguments travel.
import { targetOf, unqualified } from './compiler.mjs';

/** @typedef {import('./compiler.mjs').Declarations} Declarations */
/** @typedef {import('./compiler.mjs').Call} Call */
/** @typedef {import('./compiler.mjs').Value} Value */
/** @typedef {'f32' | 'f64' | 'i32' | 'u32' | 'u64' | 'bool'} Kind */
/** @typedef {{ name: string, doc: string, type: string, offset: number, kind?: Kind, record?: Record }} Field */
/** @typedef {{ name: string, doc: string, scope: string, where: string, fields: Field[], bytes: number, align: number }} Record */
/** @typedef {import('./compiler.mjs').Declared & { record: Record, rows: Value[] }} Table record: that of its rows */

/** Most numbers that a call may take: more are hard to tell apart where it is called. */
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

/** The door: the description that both of its sides share. */
export class Door {
  /** @type {Map<string, Record>} */
  #records = new Map();
  #declarations;

  /** @param {Declarations} declarations */
  constructor(declarations) {
    this.#declarations = declarations;
    this.enums = declarations.enums;
    this.constants = declarations.constants;
    this.calls = declarations.calls;
    const problems = [...this.#wrongNames(), ...this.calls.flatMap((call) => this.#wrongTypes(call))];
    if (problems.length > 0) throw new Error(problems.join('\n'));
    /** Records that calls take, and those that they consist of. */
    this.records = [...this.#records.values()];
    /** @type {Table[]} */
    this.tables = declarations.tables.map((table) => {
      const record = this.record(table.type);
      if (record === undefined) throw new Error(`${table.where}: a table of '${table.type}', not a struct`);
      return { ...table, record };
    });
    /** Records that only tables consist of. */
    this.rows = [...this.#records.values()].slice(this.records.length);
  }

  /** Problems of names and numbers. */
  #wrongNames() {
    const { enums, constants, tables, structs } = this.#declarations;
    const values = enums.flatMap((one) => one.values);
    const types = [...enums, ...structs];
    return [
      ...[...values, ...constants, ...tables]
        .filter(({ name }) => !/^k[A-Z]/.test(name))
        .map(({ name, where }) => `${where}: ${name}: values and constants have names as kName`),
      ...values
        .filter(({ value }) => !(value >= 0))
        .map(({ name, where }) => `${where}: ${name}: values of enums are at least 0`),
      ...types
        .filter(({ name }, i) => types.findIndex((type) => type.name === name) < i)
        .map(({ name, where }) => `${where}: ${name}: there are two of that name`),
    ];
  }

  /** True if there is an enum of that name. @param {string} type */
  isEnum(type) {
    return this.enums.some(({ name }) => name === unqualified(type));
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
    for (const field of struct.fields) {
      const { bytes, align, ...rest } = this.#size(field.type, field.where);
      // As C++ lays out plain structs. The assertions of exportsOf() confirm it.
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
   * Size and kind of a field.
   * @param {string} type @param {string} where
   * @returns {{ bytes: number, align: number, kind?: Kind, record?: Record }}
   */
  #size(type, where) {
    if (type.endsWith('*')) return { bytes: 4, align: 4, kind: 'u32' };
    if (this.isEnum(type)) return { bytes: 4, align: 4, kind: 'i32' };
    const scalar = scalars[type];
    if (scalar !== undefined) return { ...scalar, align: scalar.bytes };
    const record = this.record(type);
    if (record === undefined) throw new Error(`${where}: a record cannot hold a '${type}'`);
    return { bytes: record.bytes, align: record.align, record };
  }

  /** Problems of the types of a call. @param {Call} call */
  #wrongTypes({ name, returns, parameters, plain, part, where }) {
    /** @type {string[]} */
    const problems = [];
    // Plain exports are part of the glue, which both modules share.
    if (plain && part === 'models') problems.push('is a plain export of one module alone');
    if (parameters.length > mostParameters)
      problems.push(`takes ${parameters.length} numbers, more than ${mostParameters}: use a record`);
    const returned =
      returns === 'void' || returns.endsWith('*') || this.isEnum(returns) || scalars[returns] !== undefined;
    // Integers of 32 bits come back without a sign from Embind, and with one from plain exports.
    const large = returns.endsWith('*') || ['uint32_t', 'size_t', 'bool'].includes(returns);
    if (!returned || returns === 'int32_t' || (plain && large)) problems.push(`cannot return '${returns}'`);
    for (const { type } of parameters) {
      const isAddress = /[*&]$/.test(type);
      const known = isAddress && this.record(targetOf(type)) !== undefined;
      if (type.endsWith('&') && !known) problems.push(`takes a '${type}', not a record`);
      if (!isAddress && scalars[type] === undefined && !this.isEnum(type)) problems.push(`cannot take a '${type}'`);
    }
    return problems.map((problem) => `${where}: ${name} ${problem}`);
  }
}

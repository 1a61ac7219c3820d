// Writes both sides of the door: door.ts for TypeScript, door_exports_arrays.h and door_exports_models.h for C++.
import { targetOf, unqualified } from './compiler.mjs';
import { spell } from './model.mjs';

/** @typedef {import('./model.mjs').Door} Door */
/** @typedef {import('./model.mjs').Record} Record */
/** @typedef {import('./model.mjs').Field} Field */
/** @typedef {import('./compiler.mjs').Call} Call */
/** @typedef {import('./compiler.mjs').Part} Part */
/** @typedef {import('./compiler.mjs').Value} Value */

/** A comment of C++ as one of TypeScript. @param {string} doc @param {string} [indent] */
function comment(doc, indent = '') {
  if (doc === '') return '';
  const lines = doc.replaceAll('*/', '* /').split('\n');
  if (lines.length === 1) return `${indent}/** ${lines[0]} */\n`;
  return `${indent}/**\n${lines.map((line) => `${indent} * ${line}`.trimEnd()).join('\n')}\n${indent} */\n`;
}

// The API has names such as DType and BlockType, too. Suffixes tell apart what passes through the door.
/** The name of a struct in TypeScript. @param {{ name: string }} struct */
const recordName = ({ name }) => `${name}Record`;
/** The name of an enum in TypeScript: its values are numbers. @param {{ name: string }} type */
const enumName = ({ name }) => `${name}Id`;
/** The name of an array of structs in TypeScript. @param {{ name: string }} table */
const tableName = ({ name }) => `${spell(name)}Table`;

/** @param {Door} door @param {string} type */
function typeScriptType(door, type) {
  const target = targetOf(type);
  const plain = { name: unqualified(target) };
  const known = door.isEnum(target) ? enumName(plain) : door.record(target) && recordName(plain);
  if (/[*&]$/.test(type)) return `Address<${known ?? `'${target}'`}>`;
  if (known !== undefined) return known;
  if (type === 'void') return type;
  return type === 'bool' ? 'boolean' : 'number';
}

/**
 * Where a value lies: the heap view and the index in it. Integers, addresses and enums are words of 32 bits whatever their sign, since
 * storing takes a number modulo 2^32.
 * @param {Field} field @param {number} [more] bytes
 */
function element({ kind, offset }, more = 0) {
  const at = offset + more;
  const index = (/** @type {number} */ shift) => (at === 0 ? `at >>> ${shift}` : `(at >>> ${shift}) + ${at >>> shift}`);
  if (kind === 'bool') return `HEAPU8[at + ${at}]`;
  if (kind === 'f64') return `HEAPF64[${index(3)}]`;
  return `${kind === 'f32' ? 'HEAPF32' : 'HEAPU32'}[${index(2)}]`;
}

/** The heap views that a record needs. @param {Record} record @returns {string[]} */
function heapsOf(record) {
  const names = record.fields.flatMap((field) =>
    field.record === undefined ? [element(field).replace(/\[.*/, '')] : heapsOf(field.record),
  );
  return [...new Set(names)].sort();
}

/** The parameter that stands for wasm memory. @param {Record} record */
function heapsParameter(record) {
  return `heaps: Pick<Heaps, ${heapsOf(record)
    .map((name) => `'${name}'`)
    .join(' | ')}>`;
}

/** The views that are used without a nested record. @param {Record} record */
function ownHeaps(record) {
  const fields = record.fields.filter((field) => field.record === undefined);
  const names = [...new Set(fields.map((field) => element(field).replace(/\[.*/, '')))].sort();
  return names.length === 0 ? '' : `    const { ${names.join(', ')} } = heaps;\n`;
}

/** The address of a nested record. @param {Field} field */
function nested({ offset }) {
  return offset === 0 ? 'at' : `at + ${offset}`;
}

/** @param {Field} field */
function writeField(field) {
  const value = `value.${spell(field.name)}`;
  if (field.record !== undefined) return [`${recordName(field.record)}.write(heaps, ${nested(field)}, ${value});`];
  if (field.kind === 'bool') return [`${element(field)} = ${value} ? 1 : 0;`];
  if (field.kind === 'u64') return [`${element(field)} = ${value};`, `${element(field, 4)} = ${value} / 2 ** 32;`];
  return [`${element(field)} = ${value};`];
}

/** @param {Door} door @param {Field} field */
function readField(door, field) {
  if (field.record !== undefined) return `${recordName(field.record)}.read(heaps, ${nested(field)})`;
  if (field.kind === 'bool') return `${element(field)} !== 0`;
  if (field.kind === 'u64') return `(${element(field)} as number) + (${element(field, 4)} as number) * 2 ** 32`;
  if (field.kind !== 'i32') return `${element(field)} as number`;
  return `((${element(field)} as number) | 0) as ${typeScriptType(door, field.type)}`;
}

/** The fields of a record as a type. @param {Door} door @param {Record} record */
function interfaceText(door, record) {
  const lines = record.fields.map(
    (field) => `${comment(field.doc, '  ')}  readonly ${spell(field.name)}: ${typeScriptType(door, field.type)};\n`,
  );
  return `${comment(record.doc)}export interface ${recordName(record)} {
${lines.join('')}}
`;
}

/** @param {Door} door @param {Record} record @param {{ written: boolean, read: boolean }} use */
function recordText(door, record, { written, read }) {
  const name = recordName(record);
  const parts = [`  bytes: ${record.bytes},\n`];
  if (written) {
    const lines = record.fields.flatMap(writeField).map((line) => `    ${line}\n`);
    parts.push(`  /** Fills the record at an address. */
  write(${heapsParameter(record)}, at: Address<${name}>, value: ${name}): void {
${ownHeaps(record)}${lines.join('')}  },
`);
  }
  if (read) {
    const lines = record.fields.map((field) => `      ${spell(field.name)}: ${readField(door, field)},\n`);
    parts.push(`  /** The record at an address. */
  read(${heapsParameter(record)}, at: Address<${name}>): ${name} {
${ownHeaps(record)}    return {
${lines.join('')}    };
  },
`);
  }
  return `${interfaceText(door, record)}
/** Layout of the record in wasm memory. */
export const ${name} = {
${parts.join('')}} as const;
`;
}

/** The records that calls read, or write, with those that they consist of. @param {Door} door */
function uses(door) {
  /** @type {Map<Record, { written: boolean, read: boolean }>} */
  const all = new Map(door.records.map((record) => [record, { written: false, read: false }]));
  const mark = (/** @type {Record} */ record, /** @type {'written' | 'read'} */ how) => {
    const use = all.get(record);
    if (use !== undefined) use[how] = true;
    for (const field of record.fields) if (field.record !== undefined) mark(field.record, how);
  };
  for (const { parameters } of door.calls) {
    for (const { type } of parameters) {
      const record = door.record(targetOf(type));
      if (record !== undefined) mark(record, type.startsWith('const ') ? 'written' : 'read');
    }
  }
  return all;
}

/** The name of a call in the module. @param {Call} call */
function moduleName({ name, plain }) {
  return `${plain ? '_' : ''}${spell(name)}`;
}

/** A value of a table in TypeScript. @param {Value} value @returns {string} */
function valueText(value) {
  if (typeof value !== 'object') return String(value);
  const fields = Object.entries(value).map(([name, field]) => `${spell(name)}: ${valueText(field)}`);
  return `{ ${fields.join(', ')} }`;
}

/** web/src/core/door.ts. @param {Door} door */
export function typeScriptOf(door) {
  const enums = door.enums.map(({ values, doc, ...type }) => {
    const name = enumName(type);
    const lines = values.map((value) => `${comment(value.doc, '  ')}  ${spell(value.name)}: ${value.value},\n`);
    return `${comment(doc)}export const ${name} = {
${lines.join('')}} as const;
export type ${name} = (typeof ${name})[keyof typeof ${name}];
`;
  });
  const constants = door.constants.map(
    ({ name, doc, value }) => `${comment(doc)}export const ${spell(name)} = ${value};\n`,
  );
  const tables = door.tables.map(({ doc, record, rows, ...table }) => {
    const lines = rows.map((row) => `  ${valueText(row)},\n`).join('');
    return `${comment(doc)}export const ${tableName(table)}: readonly ${recordName(record)}[] = [\n${lines}];\n`;
  });
  const rows = door.rows.map((record) => interfaceText(door, record));
  const records = [...uses(door)].map(([record, use]) => recordText(door, record, use));
  const callsOf = (/** @type {Part} */ part) =>
    door.calls
      .filter((call) => call.part === part)
      .map((call) => {
        const parameters = call.parameters.map(({ name, type }) => `${spell(name)}: ${typeScriptType(door, type)}`);
        const returns = typeScriptType(door, call.returns);
        return `${comment(call.doc, '  ')}  ${moduleName(call)}(${parameters.join(', ')}): ${returns};\n`;
      })
      .join('');
  return `// The door to the wasm core. Made by scripts/make_door.mjs from the bindings of cpp/ and the headers of the core; see there.

/** An address in wasm memory, in bytes, of such a value or of an array of them. */
export type Address<_Of> = number;

/** Wasm memory. The views are made anew when it grows: never keep one over an allocation. */
export interface Heaps {
  readonly HEAP8: Int8Array;
  readonly HEAPU8: Uint8Array;
  readonly HEAP16: Int16Array;
  readonly HEAPU16: Uint16Array;
  readonly HEAP32: Int32Array;
  readonly HEAPU32: Uint32Array;
  readonly HEAPF32: Float32Array;
  readonly HEAPF64: Float64Array;
}

/** A record that calls take: its size in bytes, and a function that fills it at an address that is a multiple of 8. */
export interface RecordType<T> {
  readonly bytes: number;
  write(heaps: Heaps, at: Address<T>, value: T): void;
}

${[...enums, ...constants, ...rows, ...tables, ...records].join('\n')}
/** The functions of the core that both modules have. */
export interface CoreModule extends Heaps {
${callsOf('arrays')}}

/** The functions of the large module. */
export interface ModelsModule extends CoreModule {
${callsOf('models')}}
`;
}

/** An argument of C++ from the number that came. @param {string} name @param {string} type */
function fromNumber(name, type) {
  if (type.endsWith('&')) return `*reinterpret_cast<${type.slice(0, -1)}*>(${name})`;
  if (type.endsWith('*')) return `reinterpret_cast<${type}>(${name})`;
  return `static_cast<${type}>(${name})`;
}

/**
 * The type that an argument has on its way through the door: `double` for 64-bit integers and floats, a 32-bit integer for all else. Embind
 * generates code for every combination of types, so it is given few.
 * @param {string} type
 */
function wireType(type) {
  if (type === 'void' || type === 'bool') return type;
  return type === 'uint64_t' || type === 'double' || type === 'float' ? 'double' : 'uint32_t';
}

/** The entry that JavaScript calls. @param {Call} call */
function entryOf({ name, returns, parameters, plain }) {
  // Booleans come as 0 and 1.
  const wireOf = (/** @type {string} */ type) => (type === 'bool' ? 'uint32_t' : wireType(type));
  const taken = parameters.map((p) => `${wireOf(p.type)} ${p.name}`).join(', ');
  const given = parameters.map((p) => fromNumber(p.name, p.type)).join(', ');
  const call = `scalepoint::door::${name}(${given})`;
  const wire = wireType(returns);
  const cast = returns.endsWith('*') ? 'reinterpret_cast' : 'static_cast';
  const result = wire === 'void' ? call : `return ${cast}<${wire}>(${call})`;
  if (plain) return `extern "C" EMSCRIPTEN_KEEPALIVE ${wire} ${spell(name)}(${taken}) { ${result}; }\n`;
  return `static ${wire} ${name}_entry(${taken}) { ${result}; }\n`;
}

/**
 * The assertions about a value of a table.
 * @param {string} path @param {Value} value
 * @returns {string[]}
 */
function cellsOf(path, value) {
  if (typeof value === 'object')
    return Object.entries(value).flatMap(([name, field]) => cellsOf(`${path}.${name}`, field));
  return [`static_cast<double>(${path}) == ${Number(value)}`];
}

/** The conditions that the compiler confirms: numbers of enums, values of constants and tables, offsets of fields. @param {Door} door */
function assertionsOf(door) {
  const lines = [];
  for (const { scope, name, values } of door.enums) {
    lines.push(`sizeof(${scope}::${name}) == 4`);
    for (const v of values) lines.push(`static_cast<int32_t>(${scope}::${name}::${v.name}) == ${v.value}`);
  }
  for (const { scope, name, value } of door.constants) lines.push(`${scope}::${name} == ${value}`);
  for (const { scope, name, rows } of door.tables)
    lines.push(...rows.flatMap((row, i) => cellsOf(`${scope}::${name}[${i}]`, row)));
  for (const { scope, name, bytes, fields } of door.records) {
    lines.push(`sizeof(${scope}::${name}) == ${bytes}`);
    for (const field of fields) lines.push(`offsetof(${scope}::${name}, ${field.name}) == ${field.offset}`);
  }
  return lines.map((line) => `static_assert(${line});\n`).join('');
}

/**
 * build/wasm/door_exports_*.h. The bindings of the large module know every type, so they hold the assertions.
 * @param {Door} door @param {Part} part
 */
export function exportsOf(door, part) {
  const calls = door.calls.filter((call) => call.part === part);
  const registered = calls.filter(({ plain }) => !plain);
  return `// Made by scripts/make_door.mjs for cpp/bindings_${part}.cpp.
#include <emscripten.h>
#include <emscripten/bind.h>

#include <cstddef>

${part === 'models' ? assertionsOf(door) : ''}
namespace {
using namespace scalepoint;
using namespace scalepoint::door;
}  // namespace

${calls.map(entryOf).join('')}
EMSCRIPTEN_BINDINGS(scalepoint_${part}) {
${registered.map(({ name }) => `  emscripten::function("${spell(name)}", &${name}_entry);\n`).join('')}}
`;
}

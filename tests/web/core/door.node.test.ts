// The generator of the door: declarations that it takes from C++, and declarations that it refuses.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { Declarations, type Part } from '../../../scripts/door/compiler.mjs';
import { Door } from '../../../scripts/door/model.mjs';
import { exportsOf, typeScriptOf } from '../../../scripts/door/write.mjs';
import { readDoor } from '../../../scripts/make_door.mjs';
import {
  blockTypesTable,
  ErrorSumsRecord,
  LinearJobRecord,
  maxZeroPoint,
  StatusId,
} from '../../../web/src/core/door.js';

/** The door of a header and of calls. */
function doorOf(header: string, calls = '', part: Part = 'arrays'): Door {
  const folder = mkdtempSync(join(tmpdir(), 'door-'));
  const bindings = `bindings_${part}.cpp`;
  try {
    mkdirSync(join(folder, 'cpp'));
    const top = '#pragma once\n#include <cstddef>\n#include <cstdint>\n';
    writeFileSync(join(folder, 'cpp/a.h'), `${top}namespace scalepoint {\n${header}\n}\n`);
    writeFileSync(
      join(folder, 'cpp', bindings),
      `#include "a.h"\nnamespace scalepoint::door {\nnamespace {\n${calls}\n}\n}\n`,
    );
    return new Door(new Declarations(join(folder, 'cpp'), [bindings]));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Declarations of each kind. */
const header = `
/// Something happened: a < b & c.
/// A second line.
///
///   a table
enum class Status : int32_t {
  kOk = 0,
  kBadDType,  ///< not a type
              ///< at all
  /// Too large.
  kQ4_0 = 0x10,
  kNext = kQ4_0 + 1,
};
enum class Other { kOne };

inline constexpr int32_t kMost = 1 << 22;
inline constexpr float kLeast = 0x1p-127f;
inline constexpr uint32_t kMask = 0x7FFFFFFFu;
inline constexpr double kBelow = -(0.1);
namespace loops { inline constexpr int32_t kHidden = 1; }

enum class Kind : int32_t { kOne = 1, kTwo = 2 };
struct Size {
  uint32_t elements;
  uint32_t bytes = 4;
};
struct Row {
  Kind kind = Kind::kTwo;
  Size size = {};
  bool last = false;  ///< in the table
};
inline constexpr Row kRows[] = {{.kind = Kind::kOne, .size = {32, 18}}, {.size = {.elements = 1}, .last = true}};
[[nodiscard]] constexpr Size size_of(Kind kind) { return {0, 0}; }

struct Inner {
  bool flag = true;
  double value;  ///< in volts
};
struct Outer {
  uint32_t first;
  Inner inner;
  const float* x;
  uint64_t count = 1;
  bool last;

  [[nodiscard]] bool valid() const { return last && first > 0; }
};`;

const calls = `
Status run(const Outer& outer) { return Status::kOk; }
/// Makes codes.
Status make_codes(const Outer& outer, const float* x, size_t n, uint64_t start, Kind kind, bool fast, std::byte* codes_at) {
  return n == 0 ? Status::kBadDType : Status::kOk;
}
[[clang::annotate("plain export")]] uint64_t quick() { return 1; }
void clear(float* x) {}
std::byte* allocate(size_t bytes) { return nullptr; }`;

describe('the door', () => {
  let door = '';
  let exports = '';
  beforeAll(() => {
    const described = doorOf(header, calls);
    door = typeScriptOf(described);
    // The bindings of the large module have the assertions.
    exports = exportsOf(described, 'arrays') + exportsOf(described, 'models');
  });

  it('has the values of enums, with their comments', () => {
    expect(door).toContain(`/**
 * Something happened: a < b & c.
 * A second line.
 *
 *   a table
 */
export const StatusId = {
  ok: 0,
  /**
   * not a type
   * at all
   */
  badDType: 1,
  /** Too large. */
  Q4_0: 16,
  next: 17,
} as const;`);
    expect(door).not.toContain('Other');
    expect(exports).toContain('static_assert(static_cast<int32_t>(scalepoint::Status::kBadDType) == 1);');
  });

  it('has numbers and tables, of which the compiler confirms each cell', () => {
    expect(door).toContain('export const most = 4194304;');
    expect(door).toContain(`export const least = ${2 ** -127};`);
    expect(door).toContain('export const mask = 2147483647;');
    expect(door).toContain('export const below = -0.1;');
    expect(door).not.toContain('hidden');
    expect(door).toContain('  /** in the table */\n  readonly last: boolean;');
    expect(door).toContain(`export const rowsTable: readonly RowRecord[] = [
  { kind: 1, size: { elements: 32, bytes: 18 }, last: false },
  { kind: 2, size: { elements: 1, bytes: 4 }, last: true },
];`);
    expect(exports).toContain('static_assert(scalepoint::kMost == 4194304);');
    expect(exports).toContain('static_assert(static_cast<double>(scalepoint::kRows[1].size.bytes) == 4);');
  });

  it('places fields as C++ does, and has the compiler confirm it', () => {
    for (const [name, offset] of Object.entries({ first: 0, inner: 8, x: 24, count: 32, last: 40 })) {
      expect(exports).toContain(`static_assert(offsetof(scalepoint::Outer, ${name}) == ${offset});`);
    }
    expect(exports).toContain('static_assert(sizeof(scalepoint::Outer) == 48);');
    expect(door).toContain("  readonly x: Address<'float'>;");
    expect(door).toContain('  /** in volts */\n  readonly value: number;');
  });

  it('gives calls the names of their parameters', () => {
    expect(door).toContain(`  /** Makes codes. */
  makeCodes(outer: Address<OuterRecord>, x: Address<'float'>, n: number, start: number, kind: KindId, fast: boolean, codesAt: Address<'std::byte'>): StatusId;
  _quick(): number;
  clear(x: Address<'float'>): void;
  allocate(bytes: number): Address<'std::byte'>;`);
    expect(exports).toContain('emscripten::function("makeCodes", &make_codes_entry);');
    expect(exports).toContain('extern "C" EMSCRIPTEN_KEEPALIVE double quick()');
    expect(exports).not.toContain('function("quick"');
  });

  it('is refused for wrong names and types, each with its file and line', () => {
    const wrong = `enum class A : int32_t {
  B = 1,
  kC = -1,
};
namespace b {
struct A {};
}
struct Size {};`;
    const wrongCalls = `void value(Size a) {}
void reference(const float& x) {}
long unknown() { return 1; }
int32_t with_sign() { return -1; }
[[clang::annotate("plain export")]] float* address() { return 0; }
void nine(${Array.from({ length: 9 }, (_, i) => `double x${i}`).join(', ')}) {}`;
    let message = '';
    try {
      doorOf(wrong, wrongCalls);
    } catch (error) {
      message = String(error);
    }
    for (const problem of [
      'cpp/a.h:6: B: values and constants have names as kName',
      'cpp/a.h:7: kC: values of enums are at least 0',
      'cpp/a.h:10: A: there are two of that name',
      "cpp/bindings_arrays.cpp:4: value cannot take a 'scalepoint::Size'",
      "cpp/bindings_arrays.cpp:5: reference takes a 'const float&', not a record",
      "cpp/bindings_arrays.cpp:6: unknown cannot return 'long'",
      "cpp/bindings_arrays.cpp:7: with_sign cannot return 'int32_t'",
      "cpp/bindings_arrays.cpp:8: address cannot return 'float*'",
      'cpp/bindings_arrays.cpp:9: nine takes 9 numbers, more than 8: use a record',
    ])
      expect(message).toContain(problem);
  });

  it.each([
    ['a field of an unknown type', 'struct A {\n  long x;\n};', 'void f(const A& a) {}', /h:6: .* hold a 'long'/],
    ['a constant that is no number', 'inline constexpr int32_t kA = sizeof(int);', '', /a\.h:5: .* not understood/],
    ['a comment with markup', '/// A @param b.\nstruct A {};', '', /a\.h:5: a comment with markup/],
    ['sources that do not compile', 'struct A', '', /do not compile/],
  ])('is refused for %s', (_, declared, call, message) => {
    expect(() => doorOf(declared, call)).toThrow(message);
  });

  it('has no plain exports of the large module alone, and gives its calls to that module', () => {
    const plain = '[[clang::annotate("plain export")]] void f() {}';
    expect(() => doorOf('', plain, 'models')).toThrow(/f is a plain export of one module alone/);
    const door = doorOf('', 'void f() {}', 'models');
    expect(typeScriptOf(door)).toMatch(/interface ModelsModule extends CoreModule {\n {2}f\(\): void;\n}/);
    expect(exportsOf(door, 'models')).toContain('emscripten::function("f", &f_entry);');
    expect(exportsOf(door, 'arrays')).not.toContain('f_entry');
  });

  it('is that of the sources, with at most eight numbers a call', () => {
    const door = readDoor();
    expect(door.calls.length).toBeGreaterThan(40);
    for (const { parameters } of door.calls) expect(parameters.length).toBeLessThanOrEqual(8);
    expect(door.enums.find(({ name }) => name === 'Status')?.values.map(({ value }) => value)).toEqual(
      Object.values(StatusId),
    );
    expect(door.constants.find(({ name }) => name === 'kMaxZeroPoint')?.value).toBe(maxZeroPoint);
    expect(door.tables.find(({ name }) => name === 'kBlockTypes')?.rows).toHaveLength(blockTypesTable.length);
  });
});

describe('records', () => {
  const memory = new ArrayBuffer(256);
  const heaps = {
    HEAP8: new Int8Array(memory),
    HEAPU8: new Uint8Array(memory),
    HEAP16: new Int16Array(memory),
    HEAPU16: new Uint16Array(memory),
    HEAP32: new Int32Array(memory),
    HEAPU32: new Uint32Array(memory),
    HEAPF32: new Float32Array(memory),
    HEAPF64: new Float64Array(memory),
  };
  const view = new DataView(memory);

  it('are written field by field, 64-bit counts exactly', () => {
    heaps.HEAPU8.fill(0xaa);
    LinearJobRecord.write(heaps, 8, {
      layout: { granularity: 2, axisSize: 2 ** 53 - 1, innerSize: 1, groupSize: 2 ** 32 },
      spec: {
        dtype: { bits: 4, isSigned: true },
        scheme: 1,
        symmetricRange: 0,
        includeZero: false,
        rounding: 2,
        nonFinite: 1,
      },
      scale: 2 ** 32 - 4,
      zeroPoint: 0x1234,
      parameters: 7,
    });
    expect(view.getInt32(8, true)).toBe(2);
    expect(view.getBigUint64(16, true)).toBe(2n ** 53n - 1n);
    expect(view.getBigUint64(24, true)).toBe(1n);
    expect(view.getBigUint64(32, true)).toBe(2n ** 32n);
    expect(view.getInt32(40, true)).toBe(4);
    expect(view.getUint8(44)).toBe(1);
    expect([48, 52, 60, 64].map((at) => view.getInt32(at, true))).toEqual([1, 0, 2, 1]);
    expect(view.getUint8(56)).toBe(0);
    expect(view.getUint32(68, true)).toBe(2 ** 32 - 4);
    expect(view.getUint32(72, true)).toBe(0x1234);
    expect(view.getUint32(76, true)).toBe(7);
    expect(view.getUint8(80)).toBe(0xaa);
    expect(8 + LinearJobRecord.bytes).toBe(80);
  });

  it('are read field by field', () => {
    heaps.HEAPF64.set([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19], 2);
    expect(ErrorSumsRecord.read(heaps, 16)).toEqual({
      squaredError: 1,
      absoluteError: 2,
      maxAbsoluteError: 3,
      squaredX: 4,
      squaredY: 5,
      product: 6,
      nonFinite: 7,
      saturated: 8,
      weightedError: 9,
      weightedX: 10,
      outputX: 11,
      outputBefore: 12,
      outputError: 13,
      damping: 14,
      outputs: 15,
      heldOutputs: 16,
      plainOutputs: 17,
      fittedBefore: 18,
      fittedError: 19,
    });
    expect(ErrorSumsRecord.bytes).toBe(152);
  });
});

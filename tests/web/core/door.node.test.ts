// The generator of the door: what it takes over from C++, and what it refuses.
import { describe, expect, it } from 'vitest';
import { Door } from '../../../scripts/door/model.mjs';
import { Declarations, readCalls } from '../../../scripts/door/read.mjs';
import { exportsOf, typeScriptOf } from '../../../scripts/door/write.mjs';
import { readDoor } from '../../../scripts/make_door.mjs';
import { ErrorSums, LinearJob, maxZeroPoint, Status } from '../../../web/src/core/door.js';

/** The door of a header and of calls, which are in namespaces as bindings_arrays.cpp has them. */
function doorOf(header: string, calls = '', part: 'arrays' | 'models' = 'arrays'): Door {
  const declarations = new Declarations();
  declarations.read('cpp/a.h', `#pragma once\n#include <cstdint>\n\nnamespace a {\n${header}\n}  // namespace a\n`);
  return new Door(declarations, readCalls('cpp/bindings.cpp', `namespace a {\nnamespace {\n${calls}\n}\n}\n`, part));
}

/** Both texts that the generator writes. */
function texts(header: string, calls = ''): { door: string; exports: string } {
  const door = doorOf(header, calls);
  return { door: typeScriptOf(door), exports: `${exportsOf(door, 'arrays')}${exportsOf(door, 'models')}` };
}

const status = 'enum class Status : int32_t { kOk = 0 };\n';

describe('the door', () => {
  it('has the values of enums, with their comments', () => {
    const { door, exports } = texts(`
/// What happened.
enum class Status : int32_t {
  kOk = 0,
  kBadDType = 1,  ///< not a type
                  ///< at all
  /// Too large.
  kQ4_0 = 0x10,
};`);
    expect(door).toContain(`/** What happened. */
export const Status = {
  ok: 0,
  /** not a type at all */
  badDType: 1,
  /** Too large. */
  Q4_0: 16,
} as const;`);
    expect(exports).toContain('static_assert(static_cast<int32_t>(a::Status::kBadDType) == 1);');
  });

  it('has numbers and tables', () => {
    const { door, exports } = texts(`
inline constexpr int32_t kMost = 1 << 22;
inline constexpr float kLeast = 0x1p-127f;
inline constexpr uint32_t kMask = 0x7FFFFFFFu;
inline constexpr float kMagic = 12582912.0f;
enum class Kind : int32_t { kOne = 1, kTwo = 2 };
struct Size {
  uint32_t elements;
  uint32_t bytes;
};
struct Row {
  Kind kind;
  Size size;
};
inline constexpr Row kRows[] = {{Kind::kOne, {32, 18}}, {Kind::kTwo, {256, 84}}};
[[nodiscard]] constexpr Size size_of(Kind kind) { return {0, 0}; }
`);
    expect(door).toContain('export const most = 4194304;');
    expect(door).toContain(`export const least = ${2 ** -127};`);
    expect(door).toContain('export const mask = 2147483647;');
    expect(door).toContain('export const magic = 12582912;');
    expect(door).toContain('readonly (readonly [kind: Kind, elements: number, bytes: number])[] = [\n  [1, 32, 18],\n');
    expect(exports).toContain('static_assert(a::kMost == 4194304);');
  });

  it('places fields as C++ does, and has the compiler confirm it', () => {
    const { exports, door } = texts(
      `${status}
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
};`,
      'Status run(const Outer& outer) { return Status::kOk; }',
    );
    for (const [name, offset] of Object.entries({ first: 0, inner: 8, x: 24, count: 32, last: 40 })) {
      expect(exports).toContain(`static_assert(offsetof(a::Outer, ${name}) == ${offset});`);
    }
    expect(exports).toContain('static_assert(sizeof(a::Outer) == 48);');
    expect(door).toContain("  readonly x: Address<'float'>;");
    expect(door).toContain('  /** in volts */\n  readonly value: number;');
  });

  it('gives calls the names of their parameters', () => {
    const { door, exports } = texts(
      `${status}
enum class Kind : int32_t { kOne = 1 };
struct Job {
  uint64_t n;
};`,
      `/// Makes codes.
Status make_codes(const Job& job, const float* x, size_t n, uint64_t start, Kind kind, bool fast, std::byte* codes_at) {
  if (n == 0) { return Status::kOk; }
  return Status::kOk;
}
SCALEPOINT_PLAIN_EXPORT uint64_t quick() { return 1; }
void clear(float* x) {}`,
    );
    expect(door).toContain(`  /** Makes codes. */
  makeCodes(job: Address<Job>, x: Address<'float'>, n: number, start: number, kind: Kind, fast: boolean, codesAt: Address<'std::byte'>): Status;
  _quick(): number;
  clear(x: Address<'float'>): void;`);
    expect(exports).toContain('emscripten::function("makeCodes", &make_codes_entry);');
    expect(exports).toContain('extern "C" EMSCRIPTEN_KEEPALIVE double quick()');
    expect(exports).not.toContain('function("quick"');
  });

  it.each([
    ['an enum of another size', 'enum class A : int8_t { kB = 1 };', '', /a\.h:5: expected 'int32_t'/],
    ['a value without a number', 'enum class A : int32_t { kB };', '', /expected '='/],
    [
      'a value with another name',
      'enum class A : int32_t { B = 1 };',
      '',
      /B: values and constants have names as kName/,
    ],
    ['a value below 0', 'enum class A : int32_t { kB = -1 };', '', /A: values of enums are at least 0/],
    ['a constant that is no number', 'inline constexpr int32_t kA = sizeof(int);', '', /expected a number/],
    ['two of one name', 'struct A {};\nenum class A : int32_t { kB = 1 };', '', /A: there are two of that name/],
    ['a field of a type without a size', 'struct A {\n  std::span<float> x;\n};', 'void f(const A& a) {}', /a\.h:6: /],
    [
      'two fields at once',
      'struct A {\n  int32_t x, y;\n};',
      'void f(const A& a) {}',
      /a\.h:6: expected ';', found ','/,
    ],
    ['a field of an unknown type', 'struct A {\n  long x;\n};', 'void f(const A& a) {}', /cannot hold a 'long'/],
    ['a call by value', 'struct A {\n  int32_t x;\n};', 'void f(A a) {}', /f cannot take a 'A'/],
    [
      'a reference to what is no record',
      '',
      'void f(const float& x) {}',
      /f takes a 'const float&', which is no record/,
    ],
    ['a result of an unknown type', '', 'std::string f() {}', /f cannot return 'std::string'/],
    ['a result with a sign', '', 'int32_t f() { return -1; }', /f cannot return 'int32_t'/],
    [
      'an address from a plain export',
      '',
      'SCALEPOINT_PLAIN_EXPORT float* f() { return 0; }',
      /f cannot return 'float\*'/,
    ],
    ['a declaration among the calls', '', 'struct A;', /bindings\.cpp:3: expected '\('/],
    [
      'nine numbers',
      '',
      `void f(${Array.from({ length: 9 }, (_, i) => `double x${i}`).join(', ')}) {}`,
      /f takes 9 numbers, more than 8: use a record/,
    ],
  ])('is refused for %s, which is named with file and line', (_, header, calls, message) => {
    expect(() => texts(header, calls)).toThrow(message);
  });

  it('has no plain exports of the large module alone, and gives its calls to that module', () => {
    const of = (call: string) => doorOf(status, call, 'models');
    expect(() => of('SCALEPOINT_PLAIN_EXPORT Status f() { return Status::kOk; }')).toThrow(
      /f is a plain export of one/,
    );
    const door = of('Status f() { return Status::kOk; }');
    expect(typeScriptOf(door)).toMatch(/interface ModelsModule extends CoreModule {\n {2}f\(\): Status;\n}/);
    expect(exportsOf(door, 'models')).toContain('emscripten::function("f", &f_entry);');
    expect(exportsOf(door, 'arrays')).not.toContain('f_entry');
  });

  it('is that of the sources, with at most eight numbers a call', () => {
    const door = readDoor();
    expect(door.calls.length).toBeGreaterThan(40);
    for (const { parameters } of door.calls) expect(parameters.length).toBeLessThanOrEqual(8);
    expect(door.enums.find(({ name }) => name === 'Status')?.values.map(({ value }) => value)).toEqual(
      Object.values(Status),
    );
    expect(door.constants.find(({ name }) => name === 'kMaxZeroPoint')?.value).toBe(maxZeroPoint);
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
    LinearJob.write(heaps, 8, {
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
    expect(8 + LinearJob.bytes).toBe(80);
  });

  it('are read field by field', () => {
    heaps.HEAPF64.set([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 2);
    expect(ErrorSums.read(heaps, 16)).toEqual({
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
    });
    expect(ErrorSums.bytes).toBe(80);
  });
});

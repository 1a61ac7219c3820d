#include "arrays/pack_bits_loops.h"

#include <cstring>

#include "arrays/dtype.h"
#include "lanes/lanes.h"

// Both tiers work in steps of a fixed number of codes, a multiple of 8, so that each step begins with a whole byte on the packed
// side. A step may read and write some bytes beyond its own; the next step overwrites them.

namespace scalepoint::loops {
namespace {

/// A code is stored as code ^ flip, and restored as (bits ^ flip) - offset.
struct Signs {
  uint8_t flip;
  uint8_t offset;
};

/// Runs `steps` steps.
using Steps = void (*)(const uint8_t* from, size_t steps, int32_t bits, Signs signs, uint8_t* to);

#ifdef SCALEPOINT_SIMD_LANES

using namespace lanes;

/// Bytes that any step may read and write.
constexpr size_t kRoom = 16;

/// Codes in a step.
constexpr size_t pack_step(int32_t bits) { return bits <= 4 ? 32 : 16; }
constexpr size_t unpack_step(int32_t bits) { return bits == 4 ? 32 : 16; }

struct ByteTable {
  uint8_t v[16];
};
struct FactorTable {
  int16_t v[8];
};

constexpr uint8_t kNoByte = 255;

/// Indices for lookup: byte_of(first, at) for byte `at` of the 8 codes in each half of a vector, of which `first` is the first
/// byte.
template <int kBits, class F>
constexpr ByteTable packed_from(F byte_of) {
  ByteTable table = {};
  for (int i = 0; i < 16; i++) table.v[i] = i < 2 * kBits ? byte_of(i / kBits * 8, i % kBits) : kNoByte;
  return table;
}

/// Packs 16 codes that fit into their type. Neighbors meet in lanes of 16 bits: lo + 256 hi - (256 - 2^bits) hi = lo + 2^bits hi.
/// A dot product with (1, 4^bits) joins two such pairs, so that each lane of 32 bits holds four codes. A lookup closes the gaps.
/// With an odd number of bits, every other group of four begins in the middle of a byte, and has to be shifted first.
template <int kBits>
inline U8x16 pack_sixteen(U8x16 codes) {
  constexpr int kHalf = kBits / 2;
  const int16_t factors[2] = {1, 1 << 2 * kBits};
  const I16x8 v = as_int16s(codes), pairs = sub(v, mul(shift_right<8>(v), splat(int16_t{256 - (1 << kBits)})));
  const U8x16 fours = as_bytes(dot(pairs, splat_pair(factors)));
  if constexpr (kBits % 2 == 0) {
    constexpr ByteTable kBoth =
        packed_from<kBits>([](int first, int at) { return static_cast<uint8_t>(first + at + (at < kHalf ? 0 : 4 - kHalf)); });
    return lookup(fours, load(kBoth.v));
  } else {
    constexpr ByteTable kEven =
        packed_from<kBits>([](int first, int at) { return at <= kHalf ? static_cast<uint8_t>(first + at) : kNoByte; });
    constexpr ByteTable kOdd =
        packed_from<kBits>([](int first, int at) { return at >= kHalf ? static_cast<uint8_t>(first + at - kHalf) : kNoByte; });
    return bit_or(lookup(fours, load(kEven.v)), lookup(shift_halves_right<28>(fours), load(kOdd.v)));
  }
}

/// Two codes of at most 4 bits make one of twice the width: in a lane of 16 bits, (lo + 256 hi) * (256 + 2^bits) has lo + 2^bits
/// hi as its upper byte.
template <int kBits>
inline U8x16 join_neighbors(U8x16 a, U8x16 b) {
  const I16x8 factor = splat(int16_t{256 + (1 << kBits)});
  return narrow(shift_right<8>(mul(as_int16s(a), factor)), shift_right<8>(mul(as_int16s(b), factor)));
}

template <int kBits>
void pack_steps(const uint8_t* from, size_t steps, int32_t, Signs signs, uint8_t* to) {
  const U8x16 mask = splat(uint8_t{(1 << kBits) - 1});
  const U8x16 flip = splat(static_cast<uint8_t>(kBits <= 4 ? signs.flip | signs.flip << kBits : signs.flip));
  SCALEPOINT_NO_UNROLL
  for (; steps > 0; steps--) {
    U8x16 codes = bit_and(load(from), mask);
    if constexpr (kBits <= 4) codes = join_neighbors<kBits>(codes, bit_and(load(from + 16), mask));
    codes = bit_xor(codes, flip);
    if constexpr (kBits < 4) {
      codes = pack_sixteen<2 * kBits>(codes);
    } else if constexpr (kBits != 4 && kBits != 8) {
      codes = pack_sixteen<kBits>(codes);
    }
    store(to, codes);
    from += pack_step(kBits);
    to += pack_step(kBits) * kBits / 8;
  }
}

/// Indices for lookup: the two bytes that hold code i, for 8 codes from `first` on.
template <int kBits>
constexpr ByteTable unpacked_from(int first) {
  ByteTable table = {};
  for (int i = 0; i < 16; i++) table.v[i] = static_cast<uint8_t>((first + i / 2) * kBits / 8 + i % 2);
  return table;
}

/// Factors that shift code i, which begins somewhere in the first of its two bytes, to the top of their 16 bits.
template <int kBits>
constexpr FactorTable kToTop = [] {
  FactorTable table = {};
  for (int i = 0; i < 8; i++) table.v[i] = static_cast<int16_t>(1 << (16 - kBits - i * kBits % 8));
  return table;
}();

template <int kBits>
void unpack_steps(const uint8_t* from, size_t steps, int32_t, Signs signs, uint8_t* to) {
  constexpr ByteTable kLow = unpacked_from<kBits>(0), kHigh = unpacked_from<kBits>(8);
  const U8x16 flip = splat(signs.flip), offset = splat(signs.offset);
  // LLVM would turn a product with known powers of two into eight scalar shifts.
  const I16x8 to_top = load(opaque(&kToTop<kBits>.v[0]));
  SCALEPOINT_NO_UNROLL
  for (; steps > 0; steps--) {
    U8x16 codes = load(from);
    if constexpr (kBits == 4) {
      const U8x16 nibble = splat(uint8_t{15});
      const U8x16 even = bit_and(codes, nibble), odd = bit_and(as_bytes(shift_right<4>(as_int16s(codes))), nibble);
      store(to + 16, sub(bit_xor(interleave_high(even, odd), flip), offset));
      codes = interleave_low(even, odd);
    } else if constexpr (kBits != 8) {
      codes = narrow(shift_right<16 - kBits>(mul(as_int16s(lookup(codes, load(kLow.v))), to_top)),
                     shift_right<16 - kBits>(mul(as_int16s(lookup(codes, load(kHigh.v))), to_top)));
    }
    store(to, sub(bit_xor(codes, flip), offset));
    from += unpack_step(kBits) * kBits / 8;
    to += unpack_step(kBits);
  }
}

inline Steps pack_steps_of(int32_t bits) {
  constexpr Steps kSteps[] = {&pack_steps<1>, &pack_steps<2>, &pack_steps<3>, &pack_steps<4>,
                              &pack_steps<5>, &pack_steps<6>, &pack_steps<7>, &pack_steps<8>};
  return kSteps[bits - 1];
}

inline Steps unpack_steps_of(int32_t bits) {
  constexpr Steps kSteps[] = {&unpack_steps<1>, &unpack_steps<2>, &unpack_steps<3>, &unpack_steps<4>,
                              &unpack_steps<5>, &unpack_steps<6>, &unpack_steps<7>, &unpack_steps<8>};
  return kSteps[bits - 1];
}

#else

// Eight codes in a 64-bit word, little-endian.

constexpr size_t kRoom = 8;
constexpr size_t pack_step(int32_t) { return 8; }
constexpr size_t unpack_step(int32_t) { return 8; }

/// A 1 in each unit of 8, 16 or 32 bits.
constexpr uint64_t kEach8 = 0x0101010101010101, kEach16 = 0x0001000100010001, kEach32 = 0x0000000100000001;

inline uint64_t load_word(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return word;
}

/// Distance by which the upper of two neighbors moves when they join: 2^8 - 2^bits for codes, likewise for pairs and for groups of four.
struct Distances {
  uint64_t ones, twos, fours;

  explicit Distances(int32_t bits)
      : ones((1u << 8) - (1u << bits)),
        twos((1u << 16) - (1u << 2 * bits)),
        fours((uint64_t{1} << 32) - (uint64_t{1} << 4 * bits)) {}
};

void pack_steps(const uint8_t* from, size_t steps, int32_t bits, Signs signs, uint8_t* to) {
  const Distances distance(bits);
  const uint64_t mask = kEach8 * ((1u << bits) - 1), flip = kEach8 * signs.flip;
  SCALEPOINT_NO_UNROLL
  for (; steps > 0; steps--) {
    uint64_t word = (load_word(from) & mask) ^ flip;
    word -= (word >> 8 & kEach16 * 0xFF) * distance.ones;
    word -= (word >> 16 & kEach32 * 0xFFFF) * distance.twos;
    word -= (word >> 32) * distance.fours;
    std::memcpy(to, &word, 8);
    from += 8;
    to += bits;
  }
}

void unpack_steps(const uint8_t* from, size_t steps, int32_t bits, Signs signs, uint8_t* to) {
  const Distances distance(bits);
  const uint64_t all = ~uint64_t{0} >> (64 - 8 * bits), twos = kEach32 * ((1u << 2 * bits) - 1),
                 ones = kEach16 * ((1u << bits) - 1);
  // v - offset = (v + 128 - offset) ^ 128 in each byte. Nothing is carried: v and the offset have less than 8 bits, or 128 -
  // offset = 0.
  const uint64_t flip = kEach8 * signs.flip, top = signs.offset == 0 ? 0 : kEach8 << 7, lift = top - kEach8 * signs.offset;
  SCALEPOINT_NO_UNROLL
  for (; steps > 0; steps--) {
    uint64_t word = load_word(from) & all;
    word += (word >> 4 * bits) * distance.fours;
    word += (word >> 2 * bits & twos) * distance.twos;
    word += (word >> bits & ones) * distance.ones;
    word = ((word ^ flip) + lift) ^ top;
    std::memcpy(to, &word, 8);
    from += bits;
    to += 8;
  }
}

inline Steps pack_steps_of(int32_t) { return &pack_steps; }
inline Steps unpack_steps_of(int32_t) { return &unpack_steps; }

#endif

constexpr size_t lesser(size_t a, size_t b) { return a < b ? a : b; }

/// Number of steps that stay within `size` bytes.
size_t steps_within(size_t size, size_t step) {
  const size_t room = step < kRoom ? kRoom : step;
  return size < room ? 0 : (size - room) / step + 1;
}

/// Runs all steps. Those at the end would read or write too far, so they work on a copy. Sizes are in bytes.
[[gnu::noinline]] void run(Steps run_steps, int32_t bits, Signs signs, const uint8_t* from, size_t from_size, size_t from_step,
                           uint8_t* to, size_t to_size, size_t to_step) {
  const size_t steps = lesser(steps_within(from_size, from_step), steps_within(to_size, to_step));
  run_steps(from, steps, bits, signs, to);
  from_size -= steps * from_step, to_size -= steps * to_step;
  if (to_size == 0) return;
  // The rest has fewer packed bytes than kRoom or fewer codes than a step: at most 120 codes, of one bit each.
  uint8_t rest[128], made[128];
  std::memset(rest, signs.flip, sizeof(rest));  // which is packed as 0
  std::memcpy(rest, from + steps * from_step, from_size);
  run_steps(rest, (to_size - 1) / to_step + 1, bits, signs, made);
  std::memcpy(to + steps * to_step, made, to_size);
}

}  // namespace

void pack_codes(const uint8_t* codes, size_t n, int32_t bits, CodeForm form, uint8_t* packed) {
  const auto top = static_cast<uint8_t>(1 << (bits - 1));
  const Signs signs = {form == CodeForm::kOffsetBinary ? top : uint8_t{0}, 0};
  const size_t step = pack_step(bits);
  run(pack_steps_of(bits), bits, signs, codes, n, step, packed, static_cast<size_t>(packed_bytes(n, bits)), step * bits / 8);
}

void unpack_codes(const uint8_t* packed, size_t n, int32_t bits, CodeForm form, uint8_t* codes) {
  const auto top = static_cast<uint8_t>(1 << (bits - 1));
  const Signs signs = {form == CodeForm::kTwosComplement ? top : uint8_t{0}, form == CodeForm::kUnsigned ? uint8_t{0} : top};
  const size_t step = unpack_step(bits);
  run(unpack_steps_of(bits), bits, signs, packed, static_cast<size_t>(packed_bytes(n, bits)), step * bits / 8, codes, n, step);
}

uint8_t joined_bits(const uint8_t* codes, size_t n, uint8_t bias) {
  uint8_t joined = 0;
  size_t i = 0;
#ifdef SCALEPOINT_SIMD_LANES
  U8x16 all = splat(uint8_t{0});
  for (; i + 16 <= n; i += 16) all = bit_or(all, add(load(codes + i), splat(bias)));
  uint8_t lanes[16];
  store(lanes, all);
  for (const uint8_t lane : lanes) joined |= lane;
#endif
  for (; i < n; i++) joined |= static_cast<uint8_t>(codes[i] + bias);
  return joined;
}

}  // namespace scalepoint::loops

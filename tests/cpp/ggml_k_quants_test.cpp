// ggml's super-blocks (Q2_K to Q6_K) against an oracle that follows the description of the formats word by word, one element at a
// time. The library itself is asked in tests/web/arrays/superblocks.node.test.ts.
#include <array>

#include "ggml/ggml_loops.h"
#include "helpers.h"

namespace scalepoint::tests {
namespace {

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;
using Levels = std::vector<int>;

constexpr size_t kElements = 256;

// ---------------------------------------------------------------------------------------------------------------- oracle

/// Half to even, by adding 1.5 * 2^23 and taking the low 23 bits: wraps from 2^22 on.
int nearest_int(float v) { return static_cast<int>(float_bits(v + 12582912.0f) & 0x7FFFFF) - 0x400000; }

int level_of(float v, int low, int high) { return std::clamp(nearest_int(v), low, high); }

struct Fit {
  float scale = 0;
  float minimum = 0;
  Levels levels;
};

float error_of(const Floats& x, const Floats& w, const Levels& levels, float scale, float low, bool absolute) {
  float sum = 0;
  for (size_t i = 0; i < x.size(); i++) {
    const float d = scale * static_cast<float>(levels[i]) + low - x[i];
    sum += w[i] * (absolute ? std::fabs(d) : d * d);
  }
  return sum;
}

/// Scale and minimum by least squares over candidate ranges.
Fit make_qkx2(const Floats& x, int top, const Floats& w, float rmin, int steps, bool absolute) {
  Fit fit;
  float low = std::min(0.0f, *std::min_element(x.begin(), x.end()));
  const float high = *std::max_element(x.begin(), x.end());
  if (high == low) return {0, -low, Levels(x.size(), 0)};
  const auto levels_for = [&](float inverse) {
    Levels levels;
    for (const float v : x) levels.push_back(level_of(inverse * (v - low), 0, top));
    return levels;
  };
  float sum_w = 0, sum_x = 0;
  for (size_t i = 0; i < x.size(); i++) {
    sum_w += w[i];
    sum_x += w[i] * x[i];
  }
  const float first = static_cast<float>(top) / (high - low);
  fit.levels = levels_for(first);
  fit.scale = 1 / first;
  float best = error_of(x, w, fit.levels, fit.scale, low, absolute);
  for (int k = 0; k <= steps; k++) {
    const Levels levels = levels_for((rmin + 0.1f * static_cast<float>(k) + static_cast<float>(top)) / (high - low));
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (size_t i = 0; i < x.size(); i++) {
      const auto l = static_cast<float>(levels[i]);
      sum_l += w[i] * l;
      sum_l2 += (w[i] * l) * l;
      sum_xl += (w[i] * l) * x[i];
    }
    const float d = sum_w * sum_l2 - sum_l * sum_l;
    if (!(d > 0)) continue;
    float scale = (sum_w * sum_xl - sum_x * sum_l) / d, minimum = (sum_l2 * sum_x - sum_l * sum_xl) / d;
    if (minimum > 0) {
      minimum = 0;
      scale = sum_xl / sum_l2;
    }
    const float error = error_of(x, w, levels, scale, minimum, absolute);
    if (error < best) {
      best = error;
      fit.levels = levels;
      fit.scale = scale;
      low = minimum;
    }
  }
  fit.minimum = -low;
  return fit;
}

/// The first of the elements with the largest magnitude; NaN has none.
float signed_largest(const Floats& x) {
  float largest = 0;
  for (const float v : x) {
    if (std::fabs(v) > std::fabs(largest)) largest = v;
  }
  return largest;
}

struct Products {
  float xl = 0, l2 = 0;
};

Products products(const Floats& x, const Levels& levels) {
  Products sums;
  for (size_t i = 0; i < x.size(); i++) {
    const float w = x[i] * x[i], l = static_cast<float>(levels[i]);
    sums.xl += (w * x[i]) * l;
    sums.l2 += (w * l) * l;
  }
  return sums;
}

Levels signed_levels(const Floats& x, float inverse, int n) {
  Levels levels(x.size());
  for (size_t i = 0; i < x.size(); i++) levels[i] = level_of(inverse * x[i], -n, n - 1);
  return levels;
}

/// One scale, levels -32 to 31.
Fit make_qx(const Floats& x) {
  const float largest = signed_largest(x);
  if (std::fabs(largest) < 1e-15f) return {0, 0, Levels(x.size(), -32)};
  Fit fit;
  fit.levels = signed_levels(x, -32 / largest, 32);
  const Products first = products(x, fit.levels);
  fit.scale = first.l2 != 0 ? first.xl / first.l2 : 0;
  float best = fit.scale * first.xl;
  for (int is = -9; is <= 9; is++) {
    if (is == 0) continue;
    const Levels levels = signed_levels(x, -(32 + 0.1f * static_cast<float>(is)) / largest, 32);
    const Products sums = products(x, levels);
    if (sums.l2 > 0 && sums.xl * sums.xl > best * sums.l2) {
      fit.levels = levels;
      fit.scale = sums.xl / sums.l2;
      best = fit.scale * sums.xl;
    }
  }
  return fit;
}

/// One scale, levels -4 to 3, then up to five sweeps in which each element moves to its best level.
Fit make_q3(const Floats& x) {
  const float largest = signed_largest(x);
  if (std::fabs(largest) < 1e-15f) return {0, 0, Levels(x.size(), -4)};
  Fit fit;
  fit.levels = signed_levels(x, -4 / largest, 4);
  Products sums = products(x, fit.levels);
  for (int sweep = 0; sweep < 5; sweep++) {
    int moved = 0;
    for (size_t i = 0; i < x.size(); i++) {
      const float w = x[i] * x[i], l = static_cast<float>(fit.levels[i]);
      Products other = {sums.xl - (w * x[i]) * l, sums.l2 - (w * l) * l};
      if (!(other.xl > 0)) continue;
      const int level = level_of(x[i] * other.l2 / other.xl, -4, 3);
      if (level == fit.levels[i]) continue;
      const auto m = static_cast<float>(level);
      other.xl += (w * x[i]) * m;
      other.l2 += (w * m) * m;
      if (other.l2 > 0 && other.xl * other.xl * sums.l2 > sums.xl * sums.xl * other.l2) {
        fit.levels[i] = level;
        sums = other;
        moved++;
      }
    }
    if (moved == 0) break;
  }
  fit.scale = sums.l2 > 0 ? sums.xl / sums.l2 : 0;
  return fit;
}

float rounded_float16(float x, Bytes& to) {
  const uint16_t half = reference::encode(x, reference::kFloat16);
  to.push_back(static_cast<uint8_t>(half & 255));
  to.push_back(static_cast<uint8_t>(half >> 8));
  return static_cast<float>(reference::decode(half, reference::kFloat16));
}

/// Layout of a block, bit by bit.
struct Format {
  const char* name;
  size_t bytes, sub_block;
  size_t half_at;  ///< where d lies
  bool affine;
  void (*quantize)(const float*, size_t, std::byte*);
  void (*dequantize)(const std::byte*, size_t, float*);
};
/// Without weights.
template <void (*kQuantize)(const float*, const float*, size_t, std::byte*)>
void plain(const float* x, size_t n, std::byte* out) {
  kQuantize(x, nullptr, n, out);
}

constexpr Format kFormats[] = {{"Q2_K", 84, 16, 80, true, plain<loops::quantize_q2_k>, loops::dequantize_q2_k},
                               {"Q3_K", 110, 16, 108, false, plain<loops::quantize_q3_k>, loops::dequantize_q3_k},
                               {"Q4_K", 144, 32, 0, true, plain<loops::quantize_q4_k>, loops::dequantize_q4_k},
                               {"Q5_K", 176, 32, 0, true, plain<loops::quantize_q5_k>, loops::dequantize_q5_k},
                               {"Q6_K", 210, 16, 208, false, plain<loops::quantize_q6_k>, loops::dequantize_q6_k}};
bool is(const Format& format, const char* name) { return std::strcmp(format.name, name) == 0; }

/// The byte and the lowest bit that element i has in each of its fields, and how many bits. Levels put together lowest field first.
struct Field {
  size_t byte;
  int shift, bits;
};
/// The second field has no bits where one is enough.
using Fields = std::array<Field, 2>;
Fields fields(const Format& format, size_t i) {
  const size_t in_128 = i % 128, in_64 = i % 64, e = i % 32;
  const int quarter = static_cast<int>(in_128 / 32 * 2);
  if (is(format, "Q2_K")) return {Field{16 + i / 128 * 32 + e, quarter, 2}};
  if (is(format, "Q3_K")) return {Field{32 + i / 128 * 32 + e, quarter, 2}, Field{e, static_cast<int>(i / 32), 1}};
  if (is(format, "Q6_K")) {
    return {Field{i / 128 * 64 + in_128 % 64, in_128 < 64 ? 0 : 4, 4}, Field{128 + i / 128 * 32 + e, quarter, 2}};
  }
  const size_t low = is(format, "Q4_K") ? 16 : 48;
  const int fifth = is(format, "Q5_K") ? 1 : 0;
  return {Field{low + i / 64 * 32 + e, in_64 < 32 ? 0 : 4, 4}, Field{16 + e, static_cast<int>(i / 32), fifth}};
}

/// The fields of the scale of sub-block j, and of its minimum.
Fields scale_fields(const Format& format, size_t j, bool minimum) {
  if (is(format, "Q2_K")) return {Field{j, minimum ? 4 : 0, 4}};
  if (is(format, "Q3_K")) return {Field{96 + j % 8, j < 8 ? 0 : 4, 4}, Field{104 + j % 4, static_cast<int>(j / 4 * 2), 2}};
  if (is(format, "Q6_K")) return {Field{192 + j, 0, 8}};
  if (j < 4) return {Field{4 + j + (minimum ? 4u : 0u), 0, 6}};
  return {Field{8 + j, minimum ? 4 : 0, 4}, Field{j + (minimum ? 4u : 0u), 6, 2}};
}

void put(Bytes& block, const Fields& where, int value) {
  for (const auto& [byte, shift, bits] : where) {
    block[byte] = static_cast<uint8_t>(block[byte] | (value & ((1 << bits) - 1)) << shift);
    value >>= bits;
  }
}

int get(const Bytes& block, const Fields& where) {
  int value = 0, at = 0;
  for (const auto& [byte, shift, bits] : where) {
    value |= (block[byte] >> shift & ((1 << bits) - 1)) << at;
    at += bits;
  }
  return value;
}

std::vector<Floats> sub_blocks(const Format& format, const Floats& x) {
  std::vector<Floats> result;
  for (size_t i = 0; i < x.size(); i += format.sub_block) result.emplace_back(x.begin() + i, x.begin() + i + format.sub_block);
  return result;
}

Bytes quantized_affine(const Format& format, const Floats& x) {
  const bool two = is(format, "Q2_K");
  const int top = two ? 3 : is(format, "Q4_K") ? 15 : 31, most = two ? 15 : 63;
  std::vector<Fit> fits;
  float max_scale = 0, max_minimum = 0;
  for (const Floats& part : sub_blocks(format, x)) {
    float squares = 0;
    for (const float v : part) squares += v * v;
    Floats w;
    for (const float v : part) w.push_back(two ? std::fabs(v) : std::sqrt(squares / 32) + std::fabs(v));
    fits.push_back(make_qkx2(part, top, w, is(format, "Q4_K") ? -1.0f : -0.5f, is(format, "Q4_K") ? 20 : 15, two));
    max_scale = std::max(max_scale, fits.back().scale);
    max_minimum = std::max(max_minimum, fits.back().minimum);
  }
  Bytes block(format.bytes), halves;
  const float d = rounded_float16(max_scale / static_cast<float>(most), halves);
  const float dmin = rounded_float16(max_minimum / static_cast<float>(most), halves);
  std::copy(halves.begin(), halves.end(), block.begin() + static_cast<std::ptrdiff_t>(format.half_at));
  const float to_scale = max_scale > 0 ? static_cast<float>(most) / max_scale : 0;
  const float to_minimum = max_minimum > 0 ? static_cast<float>(most) / max_minimum : 0;
  for (size_t j = 0; j < fits.size(); j++) {
    // The codes are kept in bytes before they are limited.
    const int scale = std::min(most, nearest_int(to_scale * fits[j].scale) & 255);
    const int minimum = std::min(most, nearest_int(to_minimum * fits[j].minimum) & 255);
    put(block, scale_fields(format, j, false), scale);
    put(block, scale_fields(format, j, true), minimum);
    const float step = d * static_cast<float>(scale), offset = dmin * static_cast<float>(minimum);
    for (size_t l = 0; l < format.sub_block; l++) {
      const size_t i = j * format.sub_block + l;
      put(block, fields(format, i), step != 0 ? level_of((x[i] + offset) / step, 0, top) : fits[j].levels[l]);
    }
  }
  return block;
}

Bytes quantized_symmetric(const Format& format, const Floats& x) {
  const bool three = is(format, "Q3_K");
  const int n = three ? 4 : 32;
  std::vector<Fit> fits;
  Floats scales;
  for (const Floats& part : sub_blocks(format, x)) {
    fits.push_back(three ? make_q3(part) : make_qx(part));
    scales.push_back(fits.back().scale);
  }
  Bytes block(format.bytes), half;
  const float largest = signed_largest(scales);
  if (three ? largest == 0 : std::fabs(largest) < 1e-15f) {
    // Q3_K keeps its levels, with scales of 0; Q6_K is zeros throughout.
    for (size_t i = 0; three && i < kElements; i++) put(block, fields(format, i), fits[i / 16].levels[i % 16] + n);
    return block;
  }
  const float inverse = (three ? -32 : -128) / largest;
  const float d = rounded_float16(1 / inverse, half);
  std::copy(half.begin(), half.end(), block.begin() + static_cast<std::ptrdiff_t>(format.half_at));
  for (size_t j = 0; j < fits.size(); j++) {
    const int wide = nearest_int(inverse * scales[j]);
    const int scale = three ? std::clamp<int>(static_cast<int8_t>(wide), -32, 31) : static_cast<int8_t>(std::min(127, wide));
    put(block, scale_fields(format, j, false), three ? scale + 32 : scale);
    const float step = d * static_cast<float>(scale);
    for (size_t l = 0; l < 16; l++) {
      const size_t i = 16 * j + l;
      put(block, fields(format, i), n + (step != 0 ? level_of(x[i] / step, -n, n - 1) : fits[j].levels[l]));
    }
  }
  return block;
}

Bytes quantized(const Format& format, const Floats& x) {
  return format.affine ? quantized_affine(format, x) : quantized_symmetric(format, x);
}

float half_at(const Bytes& block, size_t at) {
  return static_cast<float>(reference::decode(static_cast<uint16_t>(block[at] | block[at + 1] << 8), reference::kFloat16));
}

Floats dequantized(const Format& format, const Bytes& block) {
  const float d = half_at(block, format.half_at);
  Floats x;
  for (size_t i = 0; i < kElements; i++) {
    const size_t j = i / format.sub_block;
    const int scale = get(block, scale_fields(format, j, false)), level = get(block, fields(format, i));
    if (format.affine) {
      const float dmin = half_at(block, format.half_at + 2);
      const int minimum = get(block, scale_fields(format, j, true));
      x.push_back((d * static_cast<float>(scale)) * static_cast<float>(level) - dmin * static_cast<float>(minimum));
    } else if (is(format, "Q3_K")) {
      x.push_back((d * static_cast<float>(scale - 32)) * static_cast<float>(level - 4));
    } else {
      x.push_back((d * static_cast<float>(static_cast<int8_t>(scale))) * static_cast<float>(level - 32));
    }
  }
  return x;
}

// ----------------------------------------------------------------------------------------------------------------- inputs

float normal(Random& random) {
  // Twelve uniform numbers are normal enough.
  float sum = -6;
  for (int i = 0; i < 12; i++) sum += random.uniform(0, 1);
  return sum;
}

/// A super-block of each kind that a loop could get wrong.
std::vector<std::pair<std::string, Floats>> kinds(Random& random) {
  std::vector<std::pair<std::string, Floats>> result;
  const auto add = [&](const char* name, auto make) {
    Floats x(kElements);
    for (size_t i = 0; i < kElements; i++) x[i] = make(i);
    result.emplace_back(name, x);
  };
  const float c = normal(random), size = random.power(-40, 12);
  const size_t spike = random.below(kElements);
  const auto zero = [&] { return random.coin() ? 0.0f : -0.0f; };
  add("normal", [&](size_t) { return 0.02f * normal(random); });
  add("any size", [&](size_t) { return size * normal(random); });
  add("heavy tails", [&](size_t) { return normal(random) / (random.uniform(0, 1) + 0.001f); });
  add("very heavy tails", [&](size_t) { return std::tan(random.uniform(-1.57f, 1.57f)); });
  add("sizes apart", [&](size_t i) { return normal(random) * std::ldexp(1.0f, static_cast<int>(i / 16) * 3 - 36); });
  add("every element of another size", [&](size_t) { return normal(random) * random.power(-60, 4); });
  add("constant", [&](size_t) { return c; });
  add("nearly constant", [&](size_t) { return c + (random.below(8) == 0 ? 1e-6f : 0); });
  add("far from zero", [&](size_t) { return 1000 * c + normal(random); });
  add("far from zero and close together", [&](size_t) { return -1000 - random.uniform(0, 1e-4f); });
  // The smaller minimum rounds away from its sub-block by millions of its steps.
  add("minimums apart", [&](size_t i) { return i < 32 ? -60000.0f : -400 - random.uniform(0, 1e-3f); });
  add("zeros of both signs", [&](size_t) { return zero(); });
  add("negative", [&](size_t) { return -std::fabs(normal(random)); });
  add("positive", [&](size_t) { return std::fabs(normal(random)); });
  add("denormal", [&](size_t) { return kSmallestNormal * random.uniform(-1, 1); });
  add("about the size that counts as zero", [&](size_t) { return 1e-15f * normal(random); });
  add("below what float16 resolves", [&](size_t) { return 1e-7f * normal(random); });
  add("large", [&](size_t) { return 20000 * normal(random); });
  add("one magnitude", [&](size_t) { return random.coin() ? c : -c; });
  add("whole numbers", [&](size_t) { return static_cast<float>(random.integer(-15, 15)); });
  add("ties", [&](size_t) { return 0.5f * static_cast<float>(random.integer(-31, 31)); });
  add("few values", [&](size_t) { return c * static_cast<float>(random.integer(0, 3)); });
  add("a ramp", [&](size_t i) { return c * static_cast<float>(i % 32); });
  add("sparse", [&](size_t) { return random.below(20) == 0 ? normal(random) : zero(); });
  add("every other sub-block empty", [&](size_t i) { return i / 16 % 2 == 0 ? normal(random) : zero(); });
  add("one spike", [&](size_t i) { return i == spike ? c : 0; });
  add("a spike over noise", [&](size_t i) { return i == spike ? 30000 * c : 1e-5f * normal(random); });
  return result;
}

bool overflows(const Format& format, const Bytes& block) {
  const auto wild = [&](size_t at) { return (block[at + 1] & 0x7C) == 0x7C; };
  return wild(format.half_at) || (format.affine && wild(format.half_at + 2));
}

Bytes run_quantize(const Format& format, const Floats& x, size_t offset = 0) {
  Buffer<std::byte> blocks(x.size() / kElements * format.bytes, offset);
  format.quantize(Buffer<float>(x, offset % 4).data(), x.size() / kElements, blocks.data());
  Bytes result;
  for (const std::byte byte : blocks.span()) result.push_back(std::to_integer<uint8_t>(byte));
  return result;
}

Floats run_dequantize(const Format& format, const Bytes& bytes, size_t offset = 0) {
  Buffer<uint8_t> blocks(bytes, offset);
  Buffer<float> x(bytes.size() / format.bytes * kElements, offset % 4);
  format.dequantize(reinterpret_cast<const std::byte*>(blocks.data()), bytes.size() / format.bytes, x.data());
  return x.values();
}

// ------------------------------------------------------------------------------------------------------------------ tests

TEST(Superblocks, quantize_as_the_formats_say) {
  Random random(301);
  for (int round = 0; round < 40; round++) {
    for (const auto& [kind, x] : kinds(random)) {
      for (const Format& format : kFormats) {
        const Bytes expected = quantized(format, x);
        ASSERT_FALSE(overflows(format, expected)) << format.name << " " << kind;
        EXPECT_TRUE(same(expected, run_quantize(format, x, random.below(16))))
            << format.name << " " << kind << ", round " << round;
      }
    }
  }
}

TEST(Superblocks, do_not_depend_on_their_neighbours) {
  Random random(302);
  for (const Format& format : kFormats) {
    Floats x;
    for (const auto& [kind, values] : kinds(random)) x.insert(x.end(), values.begin(), values.end());
    for (size_t n = 0; n <= 19; n++) {
      const size_t start = random.below(x.size() / kElements - n + 1);
      const Floats some(x.begin() + static_cast<std::ptrdiff_t>(start * kElements),
                        x.begin() + static_cast<std::ptrdiff_t>((start + n) * kElements));
      Bytes one_by_one;
      for (size_t i = 0; i < n; i++) {
        const auto begin = some.begin() + static_cast<std::ptrdiff_t>(i * kElements);
        const Bytes block = run_quantize(format, Floats(begin, begin + kElements));
        one_by_one.insert(one_by_one.end(), block.begin(), block.end());
      }
      EXPECT_TRUE(same(one_by_one, run_quantize(format, some))) << format.name << ", " << n << " from " << start;
    }
  }
}

TEST(Superblocks, follow_any_finite_float) {
  Random random(303);
  for (const Format& format : kFormats) {
    size_t compared = 0;
    for (int round = 0; round < 200; round++) {
      Floats x(kElements);
      // The bits of exponents up to a limit, so that most scales fit into float16.
      const uint32_t limit = static_cast<uint32_t>(random.integer(1, 254)) << 23;
      for (float& v : x) v = std::bit_cast<float>(random.bits() % limit | (random.bits() & 0x80000000u));
      const Bytes expected = quantized(format, x), actual = run_quantize(format, x);
      // A scale beyond float16 is an error to the caller, who finds it in the block; the rest of the block then means nothing.
      EXPECT_EQ(overflows(format, expected), overflows(format, actual)) << format.name << " round " << round;
      if (overflows(format, expected)) continue;
      compared++;
      EXPECT_TRUE(same(expected, actual)) << format.name << " round " << round;
    }
    EXPECT_GT(compared, 50u) << format.name;
  }
}

TEST(Superblocks, dequantize_any_bytes) {
  Random random(304);
  for (const Format& format : kFormats) {
    for (size_t n = 0; n < 40; n++) {
      Bytes bytes(n % 5 * format.bytes);
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.bits());
      Floats expected;
      for (size_t i = 0; i < bytes.size(); i += format.bytes) {
        const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(i);
        for (const float v : dequantized(format, Bytes(begin, begin + static_cast<std::ptrdiff_t>(format.bytes)))) {
          expected.push_back(v);
        }
      }
      Floats actual = run_dequantize(format, bytes, n % 16);
      ASSERT_EQ(expected.size(), actual.size());
      // One NaN is as good as another.
      for (size_t i = 0; i < actual.size(); i++) {
        if (std::isnan(expected[i]) && std::isnan(actual[i])) actual[i] = expected[i];
      }
      EXPECT_TRUE(same(expected, actual)) << format.name << ", " << n;
    }
  }
}

}  // namespace
}  // namespace scalepoint::tests

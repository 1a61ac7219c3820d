// Codebooks: blocks, the search for the nearest value, and learning.
#include "helpers.h"

namespace scalepoint::tests {
namespace {

/// Where the code changes, by distances in long double, which holds the middles of these values exactly.
uint8_t nearest(float v, const std::vector<float>& codebook) {
  size_t best = 0;
  for (size_t i = 1; i < codebook.size(); i++) {
    const long double near = std::fabs(static_cast<long double>(codebook[i]) - v);
    const long double far = std::fabs(static_cast<long double>(codebook[best]) - v);
    if (near < far || (near == far && codebook[i] < codebook[best])) best = i;
  }
  return static_cast<uint8_t>(best);
}

struct Quantized {
  std::vector<float> absmax;
  std::vector<uint8_t> codes;
};

/// In pieces of those lengths.
Quantized quantize(const std::vector<float>& x, uint64_t block_size, const std::vector<float>& codebook,
                   const std::vector<size_t>& pieces, Decision decision = Decision::kNearest) {
  Quantized q = {std::vector<float>((x.size() + block_size - 1) / block_size), std::vector<uint8_t>(x.size())};
  for (const bool encode : {false, true}) {
    size_t start = 0;
    for (const size_t size : pieces) {
      const Blocks blocks = {block_size, start % block_size};
      Buffer<float> from(piece(x, start, size), start % 4);
      const std::span<float> absmax = std::span(q.absmax).subspan(start / block_size, blocks.count(size));
      if (!encode) {
        EXPECT_EQ(observe_absmax(from, blocks, absmax), Status::kOk);
      } else {
        Buffer<uint8_t> codes(size, start % 16);
        EXPECT_EQ(quantize_codebook(from, blocks, absmax, codebook, decision, codes), Status::kOk);
        std::copy(codes.data(), codes.data() + size, q.codes.begin() + static_cast<ptrdiff_t>(start));
      }
      start += size;
    }
  }
  return q;
}

std::vector<float> random_codebook(Random& random, size_t n) {
  std::vector<float> values = random.uniform_values(n, -1, 1);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::shuffle(values.begin(), values.end(), std::mt19937(random.bits()));
  return values;
}

TEST(Codebook, gives_the_code_of_the_nearest_value_in_blocks_and_pieces) {
  Random random(41);
  SCOPED_TRACE("seed 41");
  for (const size_t count : {2, 3, 5, 8, 15, 16, 17, 33, 64, 200, 256}) {
    const std::vector<float> codebook = random_codebook(random, count);
    for (const uint64_t block_size : {1, 2, 7, 16, 64, 100, 1000}) {
      std::vector<float> x = random.uniform_values(700, -3, 3);
      const Quantized q = quantize(x, block_size, codebook, random.pieces(x.size(), 150));
      for (size_t i = 0; i < x.size(); i++) {
        const size_t block = i / block_size;
        float largest = 0;
        for (size_t j = block * block_size; j < std::min<uint64_t>(x.size(), (block + 1) * block_size); j++)
          largest = std::max(largest, std::fabs(x[j]));
        ASSERT_EQ(q.absmax[block], largest);
        ASSERT_EQ(q.codes[i], nearest(x[i] * (1 / largest), codebook)) << exact(x[i]) << ", " << count << " values";
      }
    }
  }
}

TEST(Codebook, takes_the_smaller_value_on_a_tie_and_the_nearer_one_beside_it) {
  Random random(42);
  SCOPED_TRACE("seed 42");
  for (const size_t count : {4, 16, 31, 256}) {
    const std::vector<float> codebook = random_codebook(random, count);
    std::vector<float> sorted = codebook, x = {1};
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i + 1 < sorted.size(); i++) {
      const auto middle = static_cast<float>((static_cast<double>(sorted[i]) + sorted[i + 1]) / 2);
      for (const float v : {middle, std::nextafter(middle, -2.0f), std::nextafter(middle, 2.0f), sorted[i]}) x.push_back(v);
    }
    const Quantized q = quantize(x, x.size(), codebook, {x.size()});
    for (size_t i = 0; i < x.size(); i++) ASSERT_EQ(q.codes[i], nearest(x[i], codebook)) << exact(x[i]);
  }
}

TEST(Codebook, decides_as_the_trees_of_bitsandbytes_do) {
  // dQuantizeNF4 and dQuantizeFP4 in its csrc/kernels.cu.
  constexpr float kNf4[] = {-0.8480964004993439f,  -0.6106329262256622f,  -0.4599952697753906f,   -0.33967943489551544f,
                            -0.23460740596055984f, -0.13791173323988914f, -0.045525018125772476f, 0.03979014977812767f,
                            0.1202552504837513f,   0.2035212516784668f,   0.2920137718319893f,    0.3893125355243683f,
                            0.5016634166240692f,   0.6427869200706482f,   0.8614784181118011f};
  constexpr float kFp4[] = {0.00260417f, 0.0859375f, 0.20833333f, 0.29166667f, 0.4166667f, 0.583333f, 0.8333333f};
  const auto nf4 = [&](float v) { return std::count_if(std::begin(kNf4), std::end(kNf4), [&](float t) { return v > t; }); };
  const auto fp4 = [&](float v) {
    const float m = std::fabs(v);
    const int above = m > kFp4[5] ? (m > kFp4[6] ? 3 : 2) : m > kFp4[4] ? 5 : 4;
    const int below = m > kFp4[1] ? (m > kFp4[2] ? 7 : 6) : m > kFp4[0] ? 1 : 0;
    return (v < 0 ? 8 : 0) + (m > kFp4[3] ? above : below);
  };
  std::vector<float> x = {1, -1, 0, -0.0f, 0x1p-149f, -0x1p-149f};
  for (const std::span<const float> thresholds : {std::span<const float>(kNf4), std::span<const float>(kFp4)}) {
    for (const float t : thresholds) {
      for (const float v : {t, -t}) x.insert(x.end(), {v, std::nextafter(v, 2.0f), std::nextafter(v, -2.0f)});
    }
  }
  const auto book = [](PublishedCodebook one) {
    const std::span<const float> values = published_codebook(one);
    return std::vector<float>(values.begin(), values.end());
  };
  const Quantized n = quantize(x, x.size(), book(PublishedCodebook::kNf4), {x.size()}, Decision::kNf4);
  const Quantized f = quantize(x, x.size(), book(PublishedCodebook::kFp4), {x.size()}, Decision::kFp4);
  for (size_t i = 0; i < x.size(); i++) {
    EXPECT_EQ(n.codes[i], nf4(x[i])) << exact(x[i]);
    EXPECT_EQ(f.codes[i], fp4(x[i])) << exact(x[i]);
  }
}

TEST(Codebook, finds_values_that_share_a_bucket) {
  // 256 neighbouring floats, then 255 of them and one far away: every middle lies between two floats.
  for (const float first : {0.7f, -0.7f, 1e-30f, 0x1p-149f}) {
    std::vector<float> codebook = {first};
    while (codebook.size() < 255) codebook.push_back(std::nextafter(codebook.back(), 2.0f));
    codebook.push_back(1.0f);
    std::vector<float> x = codebook;
    const Quantized q = quantize(x, x.size(), codebook, {x.size()});
    for (size_t i = 0; i < x.size(); i++) ASSERT_EQ(q.codes[i], i) << exact(x[i]);
  }
}

TEST(Codebook, restores_values_times_absmax_and_measures_the_error_of_that) {
  Random random(43);
  SCOPED_TRACE("seed 43");
  for (const size_t n : kLengths) {
    for (const uint64_t block_size : {1, 64, 600}) {
      for (const uint64_t offset : {uint64_t{0}, block_size / 2}) {
        const Blocks blocks = {block_size, offset};
        const std::vector<float> codebook = random_codebook(random, 20), x = random.uniform_values(n, -2, 2);
        const std::vector<float> absmax = random.uniform_values(blocks.count(n), 0, 4);
        std::vector<uint8_t> codes(n);
        for (uint8_t& code : codes) code = static_cast<uint8_t>(random.below(codebook.size()));
        Buffer<float> y(n, 1);
        ASSERT_EQ(dequantize_codebook(Buffer<uint8_t>(codes, 3), blocks, absmax, codebook, y), Status::kOk);
        for (size_t i = 0; i < n; i++)
          ASSERT_EQ(y.data()[i], codebook[codes[i]] * absmax[(offset + i) / block_size]) << n << " " << block_size;
        ErrorSums sums, expected;
        ASSERT_EQ(accumulate_codebook_error(x, codes, blocks, absmax, codebook, sums), Status::kOk);
        ASSERT_EQ(accumulate_error(x, y, expected), Status::kOk);
        EXPECT_EQ(std::memcmp(&sums, &expected, sizeof sums), 0);
      }
    }
  }
}

TEST(Codebook, learns_the_best_cells_of_few_values) {
  // Six values of different numbers; the best three cells by trying all.
  const std::vector<float> values = {-1.0f, -0.9f, 0.0f, 0.1f, 0.45f, 0.5f};
  const std::vector<size_t> counts = {5, 3, 40, 2, 7, 1};
  std::vector<float> x;
  for (size_t i = 0; i < values.size(); i++) x.insert(x.end(), counts[i], values[i]);
  const auto cell = [&](size_t from, size_t to, double& error) {
    double weight = 0, sum = 0;
    for (size_t i = from; i < to; i++) weight += counts[i], sum += counts[i] * static_cast<double>(values[i]);
    for (size_t i = from; i < to; i++) error += counts[i] * std::pow(values[i] - sum / weight, 2);
    return sum / weight;
  };
  double least = 1e9, best[3] = {};
  for (size_t a = 1; a < 5; a++) {
    for (size_t b = a + 1; b < 6; b++) {
      double error = 0;
      const double means[3] = {cell(0, a, error), cell(a, b, error), cell(b, 6, error)};
      if (error < least) least = error, std::copy(means, means + 3, best);
    }
  }
  std::vector<std::byte> learner(codebook_learner_bytes());
  std::vector<float> learned(3), absmax(1);
  ASSERT_EQ(clear_codebook_learner(learner), Status::kOk);
  ASSERT_EQ(observe_absmax(x, {x.size()}, absmax), Status::kOk);
  ASSERT_EQ(observe_codebook(x, {x.size()}, absmax, learner), Status::kOk);
  ASSERT_EQ(learn_codebook(learner, learned), Status::kOk);
  for (size_t i = 0; i < 3; i++) EXPECT_FLOAT_EQ(learned[i], static_cast<float>(best[i]));
}

TEST(Codebook, learns_256_values_of_any_floats) {
  Random random(44);
  SCOPED_TRACE("seed 44");
  std::vector<std::byte> learner(codebook_learner_bytes());
  for (const size_t n : {0, 1, 255, 256, 257, 5000, 40000}) {
    std::vector<float> x(n);
    for (float& v : x) v = random.any_finite();
    const Blocks blocks = {10};
    std::vector<float> absmax(blocks.count(n)), values(256);
    ASSERT_EQ(clear_codebook_learner(learner), Status::kOk);
    ASSERT_EQ(observe_absmax(x, blocks, absmax), Status::kOk);
    ASSERT_EQ(observe_codebook(x, blocks, absmax, learner), Status::kOk);
    ASSERT_EQ(learn_codebook(learner, values), Status::kOk);
    ASSERT_TRUE(std::is_sorted(values.begin(), values.end()));
    for (const float v : values) ASSERT_LE(std::fabs(v), 1.0f) << n;
  }
}

/// Squared error of each block, as it is restored.
std::vector<double> errors_of(const std::vector<float>& x, uint64_t block_size, const std::vector<float>& absmax,
                              const std::vector<float>& codebook, Decision decision) {
  std::vector<uint8_t> codes(x.size());
  std::vector<float> y(x.size());
  EXPECT_EQ(quantize_codebook(x, {block_size}, absmax, codebook, decision, codes), Status::kOk);
  EXPECT_EQ(dequantize_codebook(codes, {block_size}, absmax, codebook, y), Status::kOk);
  std::vector<double> errors(absmax.size());
  for (size_t i = 0; i < x.size(); i++) {
    const double e = static_cast<double>(x[i]) - y[i];
    errors[i / block_size] += e * e;
  }
  return errors;
}

std::vector<float> largest_sizes(const std::vector<float>& x, uint64_t block_size) {
  std::vector<float> absmax((x.size() + block_size - 1) / block_size);
  EXPECT_EQ(observe_absmax(x, {block_size}, absmax), Status::kOk);
  return absmax;
}

TEST(SearchAbsmax, comes_close_to_the_best_of_all_scales) {
  Random random(47);
  SCOPED_TRACE("seed 47");
  const std::span<const float> nf4 = published_codebook(PublishedCodebook::kNf4),
                               fp4 = published_codebook(PublishedCodebook::kFp4);
  const std::vector<std::pair<std::vector<float>, Decision>> books = {
      {{nf4.begin(), nf4.end()}, Decision::kNf4},
      {{fp4.begin(), fp4.end()}, Decision::kFp4},
      {{-0.9f, -0.6f, -0.3f, 0, 0.2f, 0.5f, 0.8f, 1}, Decision::kNearest},
      {{0, 1, 4}, Decision::kNearest},
      {random_codebook(random, 64), Decision::kNearest},
  };
  for (size_t book = 0; book < books.size(); book++) {
    const auto& [codebook, decision] = books[book];
    double reach = 0;
    for (const float v : codebook) reach = std::max<double>(reach, std::fabs(v));
    for (const int shape : {0, 1, 2, 3}) {
      for (const size_t block_size : {16, 32, 64, 600}) {
        // A last block that is shorter, but not so short that one scale restores it exactly. Long blocks are few: their errors are
        // sums over many values already.
        std::vector<float> x(block_size * (block_size > 64 ? 3 : 12) + 12);
        for (float& v : x) {
          const float normal = random.uniform(-1, 1) + random.uniform(-1, 1) + random.uniform(-1, 1);
          v = shape == 0   ? normal
              : shape == 1 ? normal / random.uniform(0.1f, 1)
              : shape == 2 ? std::fabs(normal)
                           : random.uniform(-1, 1);
        }
        const std::vector<float> largest = largest_sizes(x, block_size);
        std::vector<float> found(largest.size());
        ASSERT_EQ(search_absmax(Buffer<float>(x, 1), block_size, codebook, decision, false, found), Status::kOk);
        const std::vector<double> errors = errors_of(x, block_size, found, codebook, decision);
        std::vector<double> least = errors_of(x, block_size, largest, codebook, decision);
        for (size_t b = 0; b < errors.size(); b++) {
          // Its sums do not round to float32, as restoring does, by half a unit in 2^24 each.
          EXPECT_LE(errors[b], least[b] * (1 + 1e-5)) << book << " " << shape << " " << block_size;
        }
        for (int i = 0; i < 350; i++) {
          std::vector<float> tried = largest;
          for (float& v : tried) v *= static_cast<float>((0.3 + 0.005 * (i / 2)) * (i % 2 == 0 ? 1 : -1) / reach);
          const std::vector<double> other = errors_of(x, block_size, tried, codebook, decision);
          for (size_t b = 0; b < other.size(); b++) least[b] = std::min(least[b], other[b]);
        }
        double sum = 0, best = 0;
        for (size_t b = 0; b < errors.size(); b++) sum += errors[b], best += least[b];
        // Within 1 %; with many values to fall on, luck with a scale that is not tried may bring some more.
        EXPECT_LE(sum, best * (codebook.size() > 16 ? 1.04 : 1.01))
            << "codebook " << book << ", shape " << shape << ", blocks of " << block_size;
      }
    }
  }
}

/// A search as absmax.cpp describes it, which codes the block anew for every scale. Codes are found by comparing values, not by thresholds.
float search_one_by_one(const std::vector<float>& x, const std::vector<float>& codebook) {
  const auto largest_in = [](const std::vector<float>& values) {
    float largest = 0;
    for (const float v : values) largest = std::max(largest, std::fabs(v));
    return largest;
  };
  const float largest = largest_in(x);
  double energy = 0;
  for (const float v : x) energy += static_cast<double>(v) * v;
  struct Tried {
    double products = 0, squares = 0;
  };
  const auto try_scale = [&](float scale) {
    Tried sums;
    for (const float v : x) {
      const double value = codebook[nearest(v * (1 / scale), codebook)];
      sums.products += v * value;
      sums.squares += value * value;
    }
    return sums;
  };
  const auto best_for = [](const Tried& sums) { return sums.squares > 0 ? sums.products / sums.squares : 0; };
  const auto error_at = [&](const Tried& sums, double scale) {
    return energy - 2 * scale * sums.products + scale * scale * sums.squares;
  };
  float found = largest, best = 0;
  double least = error_at(try_scale(largest), largest), promised = least;
  for (const double sign : {1.0, -1.0}) {
    double error = 0, width = 1.12;
    for (int i = 0; i < 500 && (width > 0.67 || error < 2 * promised); i++, width *= codebook.size() > 16 ? 0.985 : 0.965) {
      const Tried sums = try_scale(static_cast<float>(largest / largest_in(codebook) * sign * width));
      error = error_at(sums, best_for(sums));
      if (error >= promised) continue;
      promised = error;
      best = static_cast<float>(best_for(sums));
    }
  }
  for (int i = 0; i < 3 && best != 0; i++) {
    const Tried sums = try_scale(best);
    if (error_at(sums, best) >= least) break;
    least = error_at(sums, best);
    found = best;
    best = static_cast<float>(best_for(sums));
  }
  return found;
}

TEST(SearchAbsmax, finds_the_scale_that_coding_anew_for_every_scale_finds) {
  Random random(53);
  SCOPED_TRACE("seed 53");
  const std::span<const float> nf4 = published_codebook(PublishedCodebook::kNf4);
  const std::vector<std::vector<float>> books = {{nf4.begin(), nf4.end()},
                                                 {-1, -0.75f, -0.5f, -0.25f, 0, 0.25f, 0.5f, 0.75f},
                                                 {0, 1, 4},
                                                 random_codebook(random, 16),
                                                 random_codebook(random, 17),
                                                 random_codebook(random, 256)};
  for (size_t book = 0; book < books.size(); book++) {
    for (const size_t size : {1, 2, 16, 33, 64, 700}) {
      if (size * books[book].size() > 20000) continue;  // takes seconds
      for (int round = 0; round < (size > 64 ? 1 : 6); round++) {
        std::vector<float> x(size);
        for (float& v : x) {
          v = round % 3 == 0   ? random.uniform(-1, 1) + random.uniform(-1, 1) + random.uniform(-1, 1)
              : round % 3 == 1 ? static_cast<float>(random.integer(-8, 8)) / 8  // on thresholds, and zeros
                               : random.power(-140, 3) * (random.coin() ? 1.0f : -1.0f);
        }
        x[0] = 2;
        std::vector<float> found(1);
        ASSERT_EQ(search_absmax(Buffer<float>(x, 1), size, books[book], Decision::kNearest, false, found), Status::kOk);
        const float expected = search_one_by_one(x, books[book]);
        if (found[0] == expected) continue;
        // Sums in another order differ by some 2^-45. That decides between scales whose errors are equal but for that, which values that
        // a scale restores exactly have.
        EXPECT_NE(round % 3, 0) << book << " " << size << " " << expected;
        const double error = errors_of(x, size, found, books[book], Decision::kNearest)[0],
                     other = errors_of(x, size, {expected}, books[book], Decision::kNearest)[0];
        EXPECT_LE(error, other * (1 + 1e-5) + 1e-12) << book << " " << size << " " << round;
      }
    }
  }
}

TEST(SearchAbsmax, gives_whole_multiples_of_a_bfloat16) {
  Random random(48);
  SCOPED_TRACE("seed 48");
  const std::span<const float> book = published_codebook(PublishedCodebook::kNf4);
  const std::vector<float> codebook = {book.begin(), book.end()};
  for (const uint64_t block_size : {4, 16, 33}) {
    // Three sets, the last of them shorter.
    std::vector<float> x(block_size * 600 - 1);
    for (float& v : x) v = random.uniform(-1, 1) * random.uniform(0, 1);
    std::fill(x.begin() + 20, x.begin() + 140, 0.0f);
    std::vector<float> exact(600), found(600), nearest = largest_sizes(x, block_size);
    ASSERT_EQ(search_absmax(x, block_size, codebook, Decision::kNf4, false, exact), Status::kOk);
    ASSERT_EQ(search_absmax(x, block_size, codebook, Decision::kNf4, true, found), Status::kOk);
    ASSERT_EQ(round_absmax(nearest), Status::kOk);
    for (const std::vector<float>& absmax : {found, nearest}) {
      for (size_t first = 0; first < 600; first += 256) {
        const std::span<const float> set(&absmax[first], std::min<size_t>(256, 600 - first));
        float largest = 0;
        for (const float v : set) largest = std::max(largest, std::fabs(v));
        const float unit = largest / 127;
        EXPECT_EQ(bit_cast<uint32_t>(unit) & 0xFFFF, 0u);
        for (const float v : set) EXPECT_EQ(v, std::round(v / unit) * unit);
      }
    }
    const std::vector<double> errors = errors_of(x, block_size, found, codebook, Decision::kNf4);
    const std::vector<double> free = errors_of(x, block_size, exact, codebook, Decision::kNf4);
    const std::vector<double> plain = errors_of(x, block_size, nearest, codebook, Decision::kNf4);
    double sum = 0, sum_of_free = 0, sum_of_plain = 0;
    for (size_t b = 0; b < errors.size(); b++) sum += errors[b], sum_of_free += free[b], sum_of_plain += plain[b];
    // Steps of a 127th of the largest cost little, the nearest to the largest sizes much.
    EXPECT_LT(sum, sum_of_free * 1.02) << block_size;
    EXPECT_GT(sum_of_plain, sum * 1.2) << block_size;
  }
}

TEST(SearchAbsmax, takes_values_of_any_size) {
  Random random(49);
  SCOPED_TRACE("seed 49");
  const std::span<const float> book = published_codebook(PublishedCodebook::kFp4);
  const std::vector<float> codebook = {book.begin(), book.end()};
  const std::vector<float> x = random.uniform_values(64, -1, 1);
  std::vector<float> usual(2);
  ASSERT_EQ(search_absmax(x, 32, codebook, Decision::kFp4, false, usual), Status::kOk);
  for (const int exponent : {-120, -60, 60, 126}) {
    std::vector<float> scaled = x, found(2);
    for (float& v : scaled) v = std::ldexp(v, exponent);
    ASSERT_EQ(search_absmax(scaled, 32, codebook, Decision::kFp4, false, found), Status::kOk);
    for (size_t b = 0; b < 2; b++) EXPECT_EQ(found[b], std::ldexp(usual[b], exponent)) << exponent;
  }
  for (const bool rounded : {false, true}) {
    for (const float v : {0.0f, -0.0f, kDenormal, -kDenormal, kSmallestNormal, kLargest, -kLargest}) {
      std::vector<float> same(40, v), absmax(2, kNan);
      ASSERT_EQ(search_absmax(same, 32, codebook, Decision::kFp4, rounded, absmax), Status::kOk);
      for (const float found : absmax) {
        EXPECT_TRUE(std::isfinite(found)) << v;
        // bfloat16 has 8 bits; below the smallest normal float it has fewer.
        if (std::fabs(v) > kSmallestNormal * 128) {
          EXPECT_NEAR(std::fabs(found / v), 1, 1.0 / 256) << v;
        }
        if (v == 0) {
          EXPECT_EQ(found, 0);
        }
      }
    }
  }
  std::vector<float> none, nothing;
  EXPECT_EQ(search_absmax(none, 32, codebook, Decision::kFp4, true, nothing), Status::kOk);
  EXPECT_EQ(round_absmax(nothing), Status::kOk);
}

TEST(Codebook, packs_codes_of_one_bit) {
  Random random(45);
  SCOPED_TRACE("seed 45");
  for (const size_t n : kLengths) {
    std::vector<uint8_t> codes(n);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random.below(2));
    Buffer<std::byte> packed(packed_bytes(n, 1));
    ASSERT_EQ(pack_codebook(codes, 2, 1, packed), Status::kOk);
    for (size_t i = 0; i < n; i++) ASSERT_EQ(std::to_integer<int>(packed.data()[i / 8]) >> (i % 8) & 1, codes[i]);
    Buffer<uint8_t> again(n);
    ASSERT_EQ(unpack_codebook(packed, 1, again), Status::kOk);
    ASSERT_EQ(again.values(), codes);
  }
}

TEST(Codebook, packs_no_code_without_a_value) {
  for (const size_t values : {2, 3, 4, 5, 15, 16, 17, 255, 256}) {
    const auto bits = static_cast<int32_t>(std::bit_width(values - 1));
    for (const size_t n : {size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{67}}) {
      Buffer<std::byte> packed(packed_bytes(n, bits));
      std::vector<uint8_t> codes(n, static_cast<uint8_t>(values - 1));
      ASSERT_EQ(pack_codebook(codes, values, bits, packed), Status::kOk);
      if (values == 256) continue;
      for (size_t i = 0; i < n; i++) {
        codes[i] = static_cast<uint8_t>(values);
        ASSERT_EQ(pack_codebook(codes, values, bits, packed), Status::kBadRange) << values << " values, code " << i;
        codes[i] = 0;
      }
    }
  }
}

TEST(Codebook, refuses_what_does_not_fit) {
  std::vector<float> x(10, 1.0f), absmax(2, 1.0f), codebook = {0, 1}, none, many(257), y(10);
  std::vector<uint8_t> codes(10);
  const auto quantized = [&](Blocks blocks, const std::vector<float>& largest, const std::vector<float>& values,
                             Decision decision = Decision::kNearest) {
    return quantize_codebook(x, blocks, largest, values, decision, codes);
  };
  EXPECT_EQ(quantized({5}, absmax, codebook), Status::kOk);
  EXPECT_EQ(quantized({0}, absmax, codebook), Status::kBadLayout);
  EXPECT_EQ(quantized({5, 5}, absmax, codebook), Status::kBadLayout);
  EXPECT_EQ(quantized({5, 1}, absmax, codebook), Status::kSizeMismatch);
  EXPECT_EQ(quantized({5}, absmax, {1}), Status::kSizeMismatch);
  EXPECT_EQ(quantized({5}, absmax, many), Status::kSizeMismatch);
  EXPECT_EQ(quantized({5}, absmax, codebook, Decision::kNf4), Status::kSizeMismatch);
  EXPECT_EQ(quantized({5}, absmax, {0, kInfinity}), Status::kBadRange);
  EXPECT_EQ(quantized({5}, {1, kNan}, codebook), Status::kBadScale);
  EXPECT_EQ(quantized({5}, {1, kInfinity}, codebook), Status::kBadScale);
  const auto searched = [&](uint64_t block_size, size_t blocks, const std::vector<float>& values,
                            Decision decision = Decision::kNearest) {
    std::vector<float> found(blocks);
    return search_absmax(x, block_size, values, decision, true, found);
  };
  EXPECT_EQ(searched(5, 2, codebook), Status::kOk);
  EXPECT_EQ(searched(0, 2, codebook), Status::kBadLayout);
  EXPECT_EQ(searched(5, 3, codebook), Status::kSizeMismatch);
  EXPECT_EQ(searched(5, 2, {1}), Status::kSizeMismatch);
  EXPECT_EQ(searched(5, 2, many), Status::kSizeMismatch);
  EXPECT_EQ(searched(5, 2, codebook, Decision::kNf4), Status::kSizeMismatch);
  EXPECT_EQ(searched(5, 2, {0, kNan}), Status::kBadRange);
  std::vector<float> bad_scales = {1, kInfinity};
  EXPECT_EQ(round_absmax(bad_scales), Status::kBadScale);
  codes.assign(10, 2);
  EXPECT_EQ(dequantize_codebook(codes, {5}, absmax, codebook, y), Status::kBadRange);
  ErrorSums sums;
  EXPECT_EQ(accumulate_codebook_error(x, codes, {5}, absmax, codebook, sums), Status::kBadRange);
  std::vector<std::byte> learner(codebook_learner_bytes() - 1), packed(1);
  EXPECT_EQ(clear_codebook_learner(learner), Status::kSizeMismatch);
  EXPECT_EQ(observe_codebook(x, {5}, absmax, learner), Status::kSizeMismatch);
  EXPECT_EQ(learn_codebook(learner, y), Status::kSizeMismatch);
  learner.resize(codebook_learner_bytes());
  EXPECT_EQ(learn_codebook(learner, many), Status::kSizeMismatch);
  EXPECT_EQ(pack_codebook(codes, 2, 1, packed), Status::kSizeMismatch);
  for (const int32_t bits : {0, -1, 9, 16}) EXPECT_EQ(pack_codebook(codes, 2, bits, packed), Status::kBadDType) << bits;
  for (const float bad : kNonFinites) {
    x[7] = bad;
    EXPECT_EQ(observe_absmax(x, {5}, absmax), Status::kNonFinite);
    EXPECT_EQ(quantized({5}, {1, 1}, codebook), Status::kNonFinite);
    EXPECT_EQ(searched(5, 2, codebook), Status::kNonFinite);
    EXPECT_EQ(observe_codebook(x, {5}, std::vector<float>{1, 1}, learner), Status::kNonFinite);
    absmax.assign(2, 1.0f);
  }
}

}  // namespace
}  // namespace scalepoint::tests

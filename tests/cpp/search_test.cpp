// Vector search against an oracle in double that shares no code with cpp/search: a rotation by the matrix itself, levels by comparing
// distances, and a sort of all scores. Estimates are tested to be unbiased, and within the error bound of RaBitQ.
#include "search/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "search/rotation.h"
#include "search/search_loops.h"

namespace scalepoint {
namespace {

using Doubles = std::vector<double>;

std::vector<float> normal(std::mt19937& random, size_t n, double sigma = 1) {
  std::normal_distribution<double> distribution(0, sigma);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(distribution(random));
  return x;
}

double dot(const Doubles& a, const Doubles& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

/// The matrix of Hadamard, entry by entry: the parity of the common bits.
Doubles rotated(Doubles x, const std::vector<uint32_t>& signs) {
  const size_t n = x.size(), rounds = signs.size() / n;
  size_t p = 1;
  while (2 * p <= n) p *= 2;
  for (size_t round = 0; round < rounds; round++) {
    for (size_t i = 0; i < n; i++) x[i] *= signs[round * n + i] != 0 ? -1 : 1;
    const size_t start = round % 2 == 1 ? n - p : 0;
    Doubles y(p);
    for (size_t i = 0; i < p; i++) {
      for (size_t j = 0; j < p; j++) y[i] += (__builtin_parityll(i & j) != 0 ? -1 : 1) * x[start + j];
    }
    for (size_t i = 0; i < p; i++) x[start + i] = y[i] / std::sqrt(static_cast<double>(p));
  }
  return x;
}

TEST(search, rotation_is_that_of_its_matrix) {
  std::mt19937 random(1);
  for (const size_t n : {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 128, 200, 384}) {
    std::vector<uint32_t> signs(rotation_words(n));
    make_rotation(7, n, signs);
    for (const uint32_t sign : signs) EXPECT_TRUE(sign == 0 || sign == 0x80000000u);
    std::vector<float> x = normal(random, n);
    const Doubles exact = rotated({x.begin(), x.end()}, signs);
    double length = 0, length_after = 0;
    for (const float v : x) length += static_cast<double>(v) * v;
    rotate(x, signs);
    for (size_t i = 0; i < n; i++) {
      // Each of at most 4 * 10 steps rounds by 2^-24 of sums that are at most the length of the vector.
      EXPECT_NEAR(x[i], exact[i], 50 * std::ldexp(std::sqrt(length), -24)) << n << " " << i;
      length_after += static_cast<double>(x[i]) * x[i];
    }
    EXPECT_NEAR(length_after, length, 1e-5 * length);
  }
}

TEST(search, rotation_depends_on_seed_and_spreads_any_vector) {
  for (const size_t n : {64, 96, 384, 1000}) {
    std::vector<uint32_t> first(rotation_words(n)), second(rotation_words(n));
    make_rotation(1, n, first);
    make_rotation(2, n, second);
    EXPECT_NE(first, second);
    // A vector along one axis becomes one without large coordinates: the mean square is 1 / n.
    for (const size_t axis : {size_t{0}, n / 2, n - 1}) {
      std::vector<float> x(n);
      x[axis] = 1;
      rotate(x, first);
      for (const float v : x) EXPECT_LT(v * v * static_cast<float>(n), 40);
    }
  }
}

/// Everything that a search needs, for some vectors.
struct Index {
  SearchSpec spec;
  std::vector<uint32_t> signs;
  std::vector<float> center;
  std::vector<std::byte> codes;
  std::vector<float> factors, extras, bounds;
  std::vector<uint32_t> allowed;
  SearchPart part;
  std::vector<float> scratch;

  Index(uint32_t n, int32_t bits, Metric metric, uint32_t count, uint32_t seed = 1) : spec{n, bits, metric} {
    signs.resize(rotation_words(n));
    make_rotation(seed, n, signs);
    center.resize(n);
    const uint32_t capacity = (count + 31) / 32 * 32;
    codes.resize(size_t{capacity} * spec.vector_bytes());
    factors.resize(capacity);
    extras.resize(capacity);
    allowed.resize(capacity / 32);
    for (uint32_t i = 0; i < count; i++) allowed[i / 32] |= 1u << i % 32;
    bounds.resize(capacity / 32 * kBoundFloats);
    part = {codes.data(), factors.data(), extras.data(), bounds.data(), capacity};
    scratch.resize(search_scratch_size(spec));
  }
  [[nodiscard]] SearchFrame frame() const { return {signs.data(), center.data()}; }

  Status fill(std::span<const float> x) { return encode_vectors(spec, frame(), x, 0, part, scratch); }

  [[nodiscard]] int code(size_t vector, size_t i) const {
    const size_t bytes = spec.vector_bytes();
    if (spec.bits == 8) return static_cast<int8_t>(codes[vector * bytes + i]);
    const size_t each = 8 / static_cast<size_t>(spec.bits);
    const auto byte = static_cast<unsigned>(codes[vector / 32 * 32 * bytes + i / each * 32 + vector % 32]);
    return static_cast<int>(byte >> i % each * static_cast<size_t>(spec.bits) & ((1u << spec.bits) - 1));
  }

  std::vector<std::byte> query(std::span<const float> q) {
    std::vector<std::byte> made(query_bytes(spec));
    EXPECT_EQ(prepare_query(spec, frame(), q, made, scratch), Status::kOk);
    return made;
  }

  /// Scores and indices, best first.
  std::vector<std::pair<float, uint32_t>> search(std::span<const float> q, uint32_t k) {
    const std::vector<std::byte> made = query(q);
    std::vector<float> scores(k);
    std::vector<uint32_t> indices(k);
    BestList best{scores.data(), indices.data(), k, 0};
    EXPECT_EQ(scan_part(spec, part, allowed, 0, made, {&best, 1}, {}), Status::kOk);
    finish_best(spec, *reinterpret_cast<const SearchQuery*>(made.data()), best);
    std::vector<std::pair<float, uint32_t>> found;
    for (uint32_t i = 0; i < best.size; i++) found.emplace_back(scores[i], indices[i]);
    return found;
  }
};

/// The levels of a normal distribution by Lloyd's iteration on its density, in double.
Doubles lloyd_levels(int count) {
  const auto density = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0)); };
  const auto below = [](double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; };
  Doubles levels(static_cast<size_t>(count));
  for (int i = 0; i < count; i++) levels[static_cast<size_t>(i)] = -3 + 6.0 * (i + 0.5) / count;
  for (int round = 0; round < 20000; round++) {
    double from = -40;
    for (size_t i = 0; i < levels.size(); i++) {
      const double to = i + 1 < levels.size() ? (levels[i] + levels[i + 1]) / 2 : 40;
      levels[i] = (density(from) - density(to)) / (below(to) - below(from));
      from = to;
    }
  }
  return levels;
}

const Doubles& levels_for(int bits) {
  static const Doubles one = lloyd_levels(2), two = lloyd_levels(4), four = lloyd_levels(16);
  return bits == 1 ? one : bits == 2 ? two : four;
}

/// A vector without the center, in double: divided by its length with kCosine.
Doubles residual(const Index& index, const float* x) {
  const size_t n = index.spec.dimension;
  double squares = 0;
  for (size_t i = 0; i < n; i++) squares += static_cast<double>(x[i]) * x[i];
  const double factor = index.spec.metric == Metric::kCosine && squares > 0 ? 1 / std::sqrt(squares) : 1;
  Doubles r(n);
  for (size_t i = 0; i < n; i++) r[i] = x[i] * factor - index.center[i];
  return r;
}

TEST(search, codes_are_the_nearest_levels_and_factors_those_of_the_unbiased_estimate) {
  std::mt19937 random(2);
  for (const uint32_t n : {1u, 5u, 16u, 33u, 100u, 384u}) {
    for (const int32_t bits : {1, 2, 4}) {
      for (const Metric metric : {Metric::kDot, Metric::kCosine, Metric::kEuclidean}) {
        const uint32_t count = 19;
        Index index(n, bits, metric, count);
        index.center = normal(random, n, 0.3);
        const std::vector<float> x = normal(random, size_t{count} * n);
        ASSERT_EQ(index.fill(x), Status::kOk);
        const Doubles& levels = levels_for(bits);
        const Doubles center(index.center.begin(), index.center.end());
        for (uint32_t v = 0; v < count; v++) {
          const Doubles r = residual(index, x.data() + size_t{v} * n);
          const Doubles y = rotated(r, index.signs);
          const double squares = dot(r, r), scale = std::sqrt(n / squares);
          Doubles chosen(n);
          for (uint32_t i = 0; i < n; i++) {
            chosen[i] = levels[static_cast<size_t>(index.code(v, i))];
            double nearest = HUGE_VAL;
            for (const double level : levels) nearest = std::min(nearest, std::fabs(y[i] * scale - level));
            // float32 moves a coordinate by less than 50 * 2^-24 of the length sqrt(n).
            EXPECT_LE(std::fabs(y[i] * scale - chosen[i]), nearest + 1e-5 * std::sqrt(n));
          }
          EXPECT_NEAR(index.factors[v], squares / dot(y, chosen), 1e-4 * squares / dot(y, chosen));
          const double extra = metric == Metric::kEuclidean ? -squares / 2 : dot(center, r);
          EXPECT_NEAR(index.extras[v], extra, 1e-5 * (1 + squares + std::sqrt(dot(center, center) * squares)));
        }
      }
    }
  }
}

TEST(search, scores_are_the_estimates_and_the_list_is_their_order) {
  std::mt19937 random(3);
  for (const uint32_t n : {1u, 3u, 16u, 40u, 129u, 600u, 1100u}) {
    for (const int32_t bits : {1, 2, 4}) {
      for (const Metric metric : {Metric::kDot, Metric::kCosine, Metric::kEuclidean}) {
        const uint32_t count = 75;
        Index index(n, bits, metric, count);
        index.center = normal(random, n, 0.3);
        const std::vector<float> x = normal(random, size_t{count} * n), q = normal(random, n);
        ASSERT_EQ(index.fill(x), Status::kOk);
        const auto found = index.search(q, count + 5);
        ASSERT_EQ(found.size(), count);

        // The query without the part along the center.
        const Doubles center(index.center.begin(), index.center.end());
        Doubles unit(q.begin(), q.end());
        if (metric == Metric::kCosine) {
          const double length = std::sqrt(dot(unit, unit));
          for (double& v : unit) v /= length;
        }
        const double weight = metric == Metric::kEuclidean ? 1 : dot(unit, center) / dot(center, center);
        Doubles u(n);
        for (uint32_t i = 0; i < n; i++) u[i] = unit[i] - weight * center[i];
        const Doubles turned = rotated(u, index.signs);
        const Doubles& levels = levels_for(bits);

        // Table entries round by half a step. 16 / bits halves of a byte have entries of at most 255 together, so a step is their widest
        // range over 255 less a half for each of them.
        const uint32_t together = 16 / static_cast<uint32_t>(bits), group = together * 4 / static_cast<uint32_t>(bits);
        const double steps = 255 - together / 2.0;
        double widest = 0;
        for (uint32_t first = 0; first < n; first += group) {
          double range = 0;
          for (uint32_t i = first; i < std::min(n, first + group); i++) range += 2 * std::fabs(turned[i]) * levels.back();
          widest = std::max(widest, range);
        }
        const double nibbles = std::ceil(n * bits / 4.0);
        for (size_t rank = 0; rank < found.size(); rank++) {
          const auto [score, v] = found[rank];
          double sum = 0;
          for (uint32_t i = 0; i < n; i++) sum += turned[i] * levels[static_cast<size_t>(index.code(v, i))];
          const double value = index.factors[v] * sum + weight * index.extras[v];
          const double off = index.factors[v] * (nibbles / 2 * widest / steps + 1e-4 * n) + 1e-4;
          if (metric == Metric::kEuclidean) {
            const double base = dot(u, u);
            EXPECT_NEAR(score * score, std::max(0.0, base - 2 * value), 2 * off + 1e-4 * base);
          } else {
            EXPECT_NEAR(score, dot(unit, center) + value, off);
          }
          if (rank > 0) {
            const auto [before, other] = found[rank - 1];
            EXPECT_TRUE(metric == Metric::kEuclidean ? before <= score : before >= score);
            if (before == score && metric != Metric::kEuclidean) {
              EXPECT_LT(other, v);
            }
          }
        }
        // Shorter lists are the beginnings of longer ones, and bits that are not set are left out.
        const auto ten = index.search(q, 10);
        EXPECT_TRUE(std::equal(ten.begin(), ten.end(), found.begin()));
        index.allowed[0] &= ~(1u << found[0].second % 32) | (found[0].second / 32 != 0 ? ~0u : 0u);
        index.allowed[found[0].second / 32] &= ~(1u << found[0].second % 32);
        const auto others = index.search(q, count);
        for (const auto& [score, v] : others) EXPECT_NE(v, found[0].second);
        EXPECT_EQ(others[0], found[1]);
      }
    }
  }
}

TEST(search, estimates_are_unbiased_and_within_the_bound) {
  // Over random rotations, the mean of the errors is 0 within 4.5 standard errors, and an error exceeds
  // e sqrt((1 - a^2) / a^2 / (n - 1)) |r| |u| with a for the cosine between r and its levels seldom: RaBitQ (theorem 3.2) bounds the
  // share by 2 exp(-c e^2); for a normal error it is 2 (1 - F(e)), .0027 for e = 3.
  std::mt19937 random(4);
  constexpr uint32_t kSeeds = 400, kCount = 8;
  for (const uint32_t n : {96u, 256u}) {
    for (const int32_t bits : {1, 2, 4}) {
      const std::vector<float> x = normal(random, size_t{kCount} * n), q = normal(random, n);
      uint32_t outside = 0;
      for (uint32_t v = 0; v < kCount; v++) {
        Doubles errors;
        const Doubles r(x.begin() + v * n, x.begin() + (v + 1) * n), u(q.begin(), q.end());
        for (uint32_t seed = 0; seed < kSeeds; seed++) {
          Index index(n, bits, Metric::kDot, 1, seed);
          ASSERT_EQ(index.fill({x.data() + size_t{v} * n, n}), Status::kOk);
          errors.push_back(index.search(q, 1)[0].first - dot(r, u));
          Doubles levels(n);
          for (uint32_t i = 0; i < n; i++) levels[i] = levels_for(bits)[static_cast<size_t>(index.code(0, i))];
          // factor = |r|^2 / <r, c>, so that a = |r| / (factor |c|).
          const double a = std::sqrt(dot(r, r) / dot(levels, levels)) / index.factors[0];
          const double bound = std::sqrt((1 - a * a) / (a * a) / (n - 1) * dot(r, r) * dot(u, u));
          // Rounding of table entries adds to the error: by less than a tenth.
          if (std::fabs(errors.back()) > 3.3 * bound) outside++;
        }
        const double mean = std::accumulate(errors.begin(), errors.end(), 0.0) / kSeeds;
        double variance = 0;
        for (const double e : errors) variance += (e - mean) * (e - mean) / (kSeeds - 1);
        EXPECT_LT(std::fabs(mean), 4.5 * std::sqrt(variance / kSeeds)) << n << " " << bits << " " << v;
      }
      EXPECT_LT(outside, kSeeds * kCount / 100) << n << " " << bits;
    }
  }
}

TEST(search, eight_bits_are_exact_over_the_codes) {
  std::mt19937 random(5);
  for (const uint32_t n : {1u, 15u, 16u, 17u, 200u, 1536u}) {
    for (const Metric metric : {Metric::kDot, Metric::kCosine, Metric::kEuclidean}) {
      const uint32_t count = 45;
      Index index(n, 8, metric, count);
      const std::vector<float> x = normal(random, size_t{count} * n), q = normal(random, n);
      ASSERT_EQ(index.fill(x), Status::kOk);
      const auto largest = [](std::span<const float> v) {
        double top = 0;
        for (const float e : v) top = std::max(top, std::fabs(static_cast<double>(e)));
        return static_cast<float>(top / 127);
      };
      const auto code = [](float v, float scale) { return std::nearbyint(v / scale); };
      const float q_scale = largest(q);
      for (const auto& [score, v] : index.search(q, count)) {
        const std::span<const float> row(x.data() + size_t{v} * n, n);
        const float scale = largest(row);
        double sum = 0, xx = 0, qq = 0;
        for (uint32_t i = 0; i < n; i++) {
          const double a = code(row[i], scale), b = code(q[i], q_scale);
          EXPECT_EQ(index.code(v, i), a);
          sum += a * b, xx += a * a, qq += b * b;
        }
        // A few roundings in float32 of numbers of the size of the lengths.
        const double size = std::sqrt(xx * qq) * scale * q_scale;
        if (metric == Metric::kDot) {
          EXPECT_NEAR(score, sum * scale * q_scale, 1e-6 * size);
        } else if (metric == Metric::kCosine) {
          EXPECT_NEAR(score, sum / std::sqrt(xx * qq), 1e-6);
        } else {
          const double squares = xx * scale * scale + qq * q_scale * q_scale;
          EXPECT_NEAR(score * score, squares - 2 * sum * scale * q_scale, 2e-6 * squares);
        }
      }
      // Ready codes give the same index, and come back.
      std::vector<int8_t> codes(size_t{count} * n);
      std::vector<float> scales(count);
      ASSERT_EQ(read_codes(index.spec, index.part, 0, codes, scales), Status::kOk);
      Index again(n, 8, metric, count);
      ASSERT_EQ(take_codes(again.spec, codes, scales, 0, again.part), Status::kOk);
      EXPECT_EQ(again.codes, index.codes);
      EXPECT_EQ(again.factors, index.factors);
      EXPECT_EQ(again.extras, index.extras);
      EXPECT_EQ(again.search(q, 9), index.search(q, 9));
    }
  }
}

TEST(search, many_queries_find_what_each_finds) {
  std::mt19937 random(6);
  // 11 queries pass one after the other, or four at a time with 8 bits; of 50, 32 pass together, and then 18. Vectors of 1100 coordinates
  // have more bytes than sums of 16 bits hold. 120 vectors are too few to make tables for.
  struct Case {
    uint32_t n, count, queries;
  };
  for (const auto& [n, count, queries] : {Case{24, 333, 11}, {100, 333, 50}, {1100, 260, 16}, {8, 4200, 33}, {40, 120, 40}}) {
    for (const int32_t bits : {1, 2, 4, 8}) {
      const uint32_t k = 6;
      Index index(n, bits, bits == 2 ? Metric::kEuclidean : Metric::kCosine, count);
      index.center = normal(random, n, 0.3);
      ASSERT_EQ(index.fill(normal(random, size_t{count} * n)), Status::kOk);
      // Leave out some vectors, and a block.
      for (uint32_t i = 0; i < count; i += 3) index.allowed[i / 32] &= ~(1u << i % 32);
      index.allowed[2] = 0;
      std::vector<std::byte> all;
      std::vector<std::vector<float>> asked;
      std::vector<float> scores(queries * k);
      std::vector<uint32_t> indices(queries * k);
      std::vector<BestList> best;
      for (uint32_t i = 0; i < queries; i++) {
        asked.push_back(normal(random, n));
        const std::vector<std::byte> one = index.query(asked.back());
        all.insert(all.end(), one.begin(), one.end());
        best.push_back({scores.data() + i * k, indices.data() + i * k, i == 5 ? 0 : k, 0});
      }
      std::vector<std::byte> scratch(scan_scratch_bytes(index.spec, queries));
      EXPECT_EQ(scratch.empty(), bits == 8 || queries < 16);
      ASSERT_EQ(scan_part(index.spec, index.part, index.allowed, 1000, all, best, scratch), Status::kOk);
      if (!scratch.empty()) {
        EXPECT_EQ(scan_part(index.spec, index.part, index.allowed, 1000, all, best, std::span(scratch).subspan(16)),
                  Status::kSizeMismatch);
      }
      for (uint32_t i = 0; i < queries; i++) {
        finish_best(index.spec, *reinterpret_cast<const SearchQuery*>(all.data() + i * query_bytes(index.spec)), best[i]);
        const auto alone = index.search(asked[i], best[i].k);
        ASSERT_EQ(best[i].size, i == 5 ? 0 : k);
        for (uint32_t j = 0; j < best[i].size; j++) {
          EXPECT_EQ(scores[i * k + j], alone[j].first);
          EXPECT_EQ(indices[i * k + j], alone[j].second + 1000);
        }
      }
    }
  }
}

TEST(search, equal_vectors_keep_their_order) {
  for (const int32_t bits : {1, 2, 4, 8}) {
    // More blocks than pass together, which come in another order than their indices.
    constexpr uint32_t kCount = 600;
    Index index(20, bits, Metric::kDot, kCount);
    std::mt19937 random(7);
    const std::vector<float> one = normal(random, 20);
    std::vector<float> x;
    for (uint32_t i = 0; i < kCount; i++) x.insert(x.end(), one.begin(), one.end());
    ASSERT_EQ(index.fill(x), Status::kOk);
    for (const uint32_t k : {1u, 7u, 64u, kCount}) {
      const auto found = index.search(one, k);
      ASSERT_EQ(found.size(), k);
      for (uint32_t i = 0; i < k; i++) EXPECT_EQ(found[i].second, i);
    }
  }
}

TEST(search, hamming_distances_are_those_of_popcount) {
  std::mt19937 random(31);
  for (const uint32_t bytes : {1u, 3u, 48u, 1100u}) {
    const uint32_t n = bytes * 8, count = bytes < 1000 ? 300 : 70;
    std::vector<uint8_t> bits(size_t{count} * bytes), signed_bits;
    // Few different bytes, so that many distances are equal.
    for (uint8_t& byte : bits) byte = static_cast<uint8_t>(bytes == 48 ? random() : random() % 3 * 0x51);
    for (const uint8_t byte : bits) signed_bits.push_back(static_cast<uint8_t>(byte - 128));
    std::vector<float> x(size_t{count} * n), again(x.size());
    floats_of_bits(bits, 0, x);
    floats_of_bits(signed_bits, 128, again);
    EXPECT_EQ(x, again);
    EXPECT_EQ(x[0], bits[0] >> 7 != 0 ? 1 : -1);
    EXPECT_EQ(x[7], (bits[0] & 1) != 0 ? 1 : -1);
    Index index(n, 1, Metric::kHamming, count);
    ASSERT_EQ(index.fill(x), Status::kOk);
    // Alone, and by joined tables.
    constexpr uint32_t kQueries = 17;
    const uint32_t k = 40;
    std::vector<std::byte> all;
    for (uint32_t q = 0; q < kQueries; q++) {
      const std::vector<std::byte> made = index.query(std::span(x).subspan(size_t{q} * 4 * n, n));
      all.insert(all.end(), made.begin(), made.end());
    }
    std::vector<float> scores(size_t{kQueries} * k);
    std::vector<uint32_t> indices(scores.size());
    std::vector<BestList> best;
    for (uint32_t q = 0; q < kQueries; q++) best.push_back({scores.data() + q * k, indices.data() + q * k, k, 0});
    std::vector<std::byte> scratch(scan_scratch_bytes(index.spec, kQueries));
    ASSERT_EQ(scan_part(index.spec, index.part, index.allowed, 0, all, best, scratch), Status::kOk);
    for (uint32_t q = 0; q < kQueries; q++) {
      const size_t from = size_t{q} * 4;
      std::vector<std::pair<float, uint32_t>> expected;
      for (uint32_t i = 0; i < count; i++) {
        int distance = 0;
        for (size_t b = 0; b < bytes; b++) {
          distance += std::popcount(static_cast<unsigned>(bits[from * bytes + b] ^ bits[i * bytes + b]));
        }
        expected.emplace_back(static_cast<float>(distance), i);
        std::vector<float> room(n);
        const std::span<const float> row = std::span(x).subspan(size_t{i} * n, n);
        ASSERT_EQ(score_row(Metric::kHamming, std::span(x).subspan(from * n, n), 0, StoredRow::kFloat32,
                            std::as_bytes(row).data(), room),
                  distance);
      }
      std::sort(expected.begin(), expected.end());
      expected.resize(k);
      EXPECT_EQ(index.search(std::span(x).subspan(from * n, n), k), expected);
      finish_best(index.spec, *reinterpret_cast<const SearchQuery*>(all.data() + q * query_bytes(index.spec)), best[q]);
      for (uint32_t i = 0; i < k; i++) {
        EXPECT_EQ(scores[q * k + i], expected[i].first);
        EXPECT_EQ(indices[q * k + i], expected[i].second);
      }
    }
  }
  // An element is 1 above 0. Elements of which no whole byte is made count as well.
  const std::vector<float> x = {1e-30f, -1e-30f, 0, -0.0f, 5};
  Index index(5, 1, Metric::kHamming, 1);
  ASSERT_EQ(index.fill(x), Status::kOk);
  EXPECT_EQ(index.search(std::vector<float>{1, 1, 1, 1, 1}, 1)[0].first, 3);
  EXPECT_EQ(index.search(std::vector<float>{-1, -1, -1, -1, -1}, 1)[0].first, 2);
  EXPECT_EQ(index.fill(std::vector<float>{1, 2, NAN, 4, 5}), Status::kNonFinite);
  EXPECT_FALSE((SearchSpec{8, 2, Metric::kHamming}).valid());
}

TEST(search, bits_that_are_taken_are_those_of_floats) {
  std::mt19937 random(32);
  for (const uint32_t n : {1u, 7u, 8u, 12u, 16u, 17u, 1001u}) {
    // Bits beyond the dimension belong to no element. The vectors before and after keep theirs.
    constexpr uint32_t kFirst = 29, kRows = 40, kCount = 75;
    const size_t width = (n + 7) / 8 + n % 3;
    std::vector<uint8_t> bits(kRows * width);
    for (uint8_t& byte : bits) byte = static_cast<uint8_t>(random());
    for (const uint8_t flip : {uint8_t{0}, uint8_t{128}}) {
      Index taken(n, 1, Metric::kHamming, kCount), made(n, 1, Metric::kHamming, kCount);
      std::vector<float> x(size_t{kCount} * n);
      for (float& v : x) v = (random() & 1) != 0 ? 1 : -1;
      ASSERT_EQ(taken.fill(x), Status::kOk);
      for (size_t i = 0; i < size_t{kRows} * n; i++) {
        const int byte = bits[i / n * width + i % n / 8] ^ flip;
        x[kFirst * n + i] = (byte & 128 >> i % n % 8) != 0 ? 1 : -1;
      }
      ASSERT_EQ(made.fill(x), Status::kOk);
      std::fill(taken.factors.begin() + kFirst, taken.factors.begin() + kFirst + kRows, 5.0f);
      std::fill(taken.extras.begin() + kFirst, taken.extras.begin() + kFirst + kRows, 5.0f);
      ASSERT_EQ(take_bits(taken.spec, bits, width, flip, kFirst, taken.part), Status::kOk);
      EXPECT_EQ(taken.codes, made.codes) << n;
      EXPECT_EQ(taken.factors, made.factors);
      EXPECT_EQ(taken.extras, made.extras);
      EXPECT_EQ(taken.bounds, made.bounds);
    }
  }
  Index index(12, 1, Metric::kHamming, 32);
  const std::vector<uint8_t> bits(66);
  EXPECT_EQ(take_bits(index.spec, std::span(bits).first(33), 1, 0, 0, index.part), Status::kBadLayout);
  EXPECT_EQ(take_bits(index.spec, std::span(bits).first(33), 2, 0, 0, index.part), Status::kSizeMismatch);
  EXPECT_EQ(take_bits(index.spec, bits, 2, 0, 0, index.part), Status::kSizeMismatch);
  EXPECT_EQ(take_bits(index.spec, std::span(bits).first(2), 2, 0, 32, index.part), Status::kSizeMismatch);
  EXPECT_EQ(take_bits({12, 1, Metric::kDot}, bits, 2, 0, 0, index.part), Status::kBadLayout);
}

TEST(search, codes_with_ranges_are_restored_in_the_middle) {
  const std::vector<float> starts = {-1, 0, 2}, ends = {1.55f, 255, 2};
  std::vector<uint8_t> codes(256 * 3);
  for (size_t i = 0; i < codes.size(); i++) codes[i] = static_cast<uint8_t>(i / 3);
  for (const bool is_signed : {false, true}) {
    std::vector<float> x(codes.size());
    floats_of_ranges(codes, is_signed, starts, ends, x);
    for (size_t i = 0; i < x.size(); i++) {
      const size_t at = i % 3;
      if (at == 2) {
        EXPECT_EQ(x[i], 2);
        continue;
      }
      // What sentence-transformers makes of the value, and of those that are less than half a step away.
      const double step = (static_cast<double>(ends[at]) - starts[at]) / 255,
                   place = (x[i] - static_cast<double>(starts[at])) / step;
      for (const double off : {-0.49, 0.0, 0.49}) {
        const double value = place + off - (is_signed ? 128 : 0);
        EXPECT_EQ(static_cast<uint8_t>(static_cast<int>(std::trunc(value))), codes[i]) << i;
      }
    }
  }
}

/// The sums of a prepared query over the codes of all vectors.
std::vector<int32_t> plain_sums(const Index& index, std::span<const std::byte> made) {
  const size_t bytes = index.spec.vector_bytes();
  const auto* const tables = reinterpret_cast<const uint8_t*>(made.data() + sizeof(SearchQuery));
  const auto* const integers = reinterpret_cast<const int16_t*>(tables);
  std::vector<int32_t> sums(index.part.capacity);
  for (size_t vector = 0; vector < sums.size(); vector++) {
    for (size_t b = 0; b < bytes; b++) {
      if (index.spec.bits == 8) {
        sums[vector] += static_cast<int8_t>(index.codes[vector * bytes + b]) * integers[b];
      } else {
        const auto byte = static_cast<unsigned>(index.codes[vector / 32 * 32 * bytes + b * 32 + vector % 32]);
        sums[vector] += tables[b * 32 + (byte & 15)] + tables[b * 32 + 16 + (byte >> 4)];
      }
    }
  }
  return sums;
}

/// The score of a vector in float32, in the order of search_loops.h.
float plain_score(const Index& index, const SearchQuery& query, int32_t sum, uint32_t vector) {
  const float scaled = static_cast<float>(sum) * query.step;
  const float product = scaled + query.bias;
  const float first = index.factors[vector] * product, second = query.weight * index.extras[vector];
  return first + second;
}

TEST(search, blocks_are_skipped_only_if_no_vector_gets_into_the_list) {
  constexpr uint32_t kCount = 700, kQueries = 17;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // Numbers of vectors and queries of which many scores are equal, or lie at the edge of what bounds hold for.
  struct Case {
    const char* name;
    std::vector<float> factors, extras;
    float step, bias, weight;
  };
  const Case cases[] = {
      {"equal scores, and bounds that they reach", {1}, {0}, 0.25f, 0, 0},
      {"scores below zero", {1, 2, 3}, {0}, 0.25f, -1e6f, 0},
      {"few scores", {0.5, 1, 1, 1.5}, {-2, 0, 0, 1}, 0.25f, -30, 1},
      {"an extra number that counts against a vector", {1, 1, 2}, {3, -300, 0}, 0.25f, -30, -4},
      {"negative factors", {-1, 1, 1, 1, -2}, {0, 0.5, 0}, 0.25f, -30, 1},
      {"a negative step", {1, 2}, {0}, -0.25f, 0, 0},
      {"extra numbers alone", {0}, {-7, -6, -6}, 0.25f, 0, 1},
      {"infinite factors", {1, 1, 1, 1, 1, kInfinity, 1, 1, 1}, {0}, 0.25f, -0.1f, 1},
      {"infinite extra numbers", {1}, {0, 0, 0, 0, 0, 0, -kInfinity}, 0.25f, 0, 1},
      {"an infinite bias", {1, 2}, {0}, 0.25f, -kInfinity, 1},
      {"sums beyond float32", {3e38f, 1, 2}, {0, 1}, 0.25f, -0.1f, 1},
  };
  std::mt19937 random(12);
  for (const uint32_t n : {24u, 1100u}) {
    for (const int32_t bits : {1, 2, 4, 8}) {
      // Only with 4 bits do these have more bytes than sums of 16 bits hold.
      if (n == 1100 && bits != 4) continue;
      Index index(n, bits, Metric::kDot, kCount);
      ASSERT_EQ(index.fill(normal(random, size_t{kCount} * n)), Status::kOk);
      const size_t each = query_bytes(index.spec);
      std::vector<std::byte> all;
      std::vector<std::vector<int32_t>> sums;
      for (uint32_t q = 0; q < kQueries; q++) {
        const std::vector<std::byte> made = index.query(normal(random, n));
        all.insert(all.end(), made.begin(), made.end());
        sums.push_back(q % 8 == 0 ? plain_sums(index, made) : std::vector<int32_t>());
      }
      for (const Case& one : cases) {
        SCOPED_TRACE(one.name);
        // Change numbers at random places, so that blocks have them in different mixtures.
        for (uint32_t i = 0; i < kCount; i++) {
          const bool is_plain = random() % 4 != 0;
          index.factors[i] = one.factors[is_plain ? 0 : random() % one.factors.size()];
          index.extras[i] = one.extras[is_plain ? 0 : random() % one.extras.size()];
        }
        ASSERT_EQ(bound_blocks(index.part, 0, index.part.capacity), Status::kOk);
        std::vector<std::vector<std::pair<float, uint32_t>>> expected(kQueries);
        for (uint32_t q = 0; q < kQueries; q++) {
          auto& query = *reinterpret_cast<SearchQuery*>(all.data() + q * each);
          query.step = one.step, query.bias = one.bias, query.weight = one.weight;
          for (uint32_t i = 0; i < (q % 8 == 0 ? kCount : 0); i++) {
            expected[q].emplace_back(-plain_score(index, query, sums[q][i], i), i);
          }
          std::sort(expected[q].begin(), expected[q].end());
        }
        for (const uint32_t k : {1u, 10u, kCount + 50}) {
          // Alone, four together with 8 bits, and all by joined tables with fewer.
          for (const uint32_t count : {1u, kQueries}) {
            std::vector<float> scores(size_t{count} * k);
            std::vector<uint32_t> indices(scores.size());
            std::vector<BestList> best;
            for (uint32_t q = 0; q < count; q++) best.push_back({scores.data() + q * k, indices.data() + q * k, k, 0});
            std::vector<std::byte> scratch(scan_scratch_bytes(index.spec, count));
            ASSERT_EQ(scan_part(index.spec, index.part, index.allowed, 0, std::span(all).first(count * each), best, scratch),
                      Status::kOk);
            for (uint32_t q = 0; q < count; q += 8) {
              std::vector<std::pair<float, uint32_t>> found;
              for (uint32_t i = 0; i < best[q].size; i++) found.emplace_back(-best[q].scores[i], best[q].indices[i]);
              std::sort(found.begin(), found.end());
              ASSERT_EQ(found.size(), std::min(k, kCount));
              for (size_t i = 0; i < found.size(); i++) ASSERT_EQ(found[i], expected[q][i]);
            }
          }
        }
      }
    }
  }
}

TEST(search, merged_lists_are_the_best_of_all) {
  std::mt19937 random(9);
  std::vector<float> scores(300);
  std::vector<uint32_t> indices(scores.size()), order(scores.size());
  // Few values, so that many are equal.
  for (float& score : scores) score = static_cast<float>(random() % 20);
  std::iota(indices.begin(), indices.end(), 0u);
  std::shuffle(indices.begin(), indices.end(), random);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return scores[a] > scores[b] || (scores[a] == scores[b] && indices[a] < indices[b]); });
  for (const uint32_t k : {0u, 1u, 10u, 299u, 300u, 400u}) {
    std::vector<float> kept(k);
    std::vector<uint32_t> kept_indices(k);
    BestList best{kept.data(), kept_indices.data(), k, 0};
    for (size_t start = 0; start < scores.size(); start += 75) {
      merge_best(std::span(scores).subspan(start, 75), std::span(indices).subspan(start, 75), best);
    }
    const SearchQuery query{};
    finish_best({8, 4, Metric::kDot}, query, best);
    ASSERT_EQ(best.size, std::min<size_t>(k, scores.size()));
    for (uint32_t i = 0; i < best.size; i++) {
      EXPECT_EQ(kept[i], scores[order[i]]);
      EXPECT_EQ(kept_indices[i], indices[order[i]]);
    }
  }
}

TEST(search, the_center_is_the_mean) {
  std::mt19937 random(8);
  for (const Metric metric : {Metric::kDot, Metric::kCosine}) {
    const SearchSpec spec{19, 1, metric};
    std::vector<float> x = normal(random, 50 * 19);
    std::fill(x.begin(), x.begin() + 19, 0.0f);
    Doubles sums(19), expected(19);
    ASSERT_EQ(add_to_center(spec, std::span(x).first(20 * 19), sums), Status::kOk);
    ASSERT_EQ(add_to_center(spec, std::span(x).subspan(20 * 19), sums), Status::kOk);
    std::vector<float> center(19);
    finish_center(sums, 50, center);
    for (size_t row = 1; row < 50; row++) {
      double squares = 0;
      for (size_t i = 0; i < 19; i++) squares += static_cast<double>(x[row * 19 + i]) * x[row * 19 + i];
      for (size_t i = 0; i < 19; i++) {
        expected[i] += x[row * 19 + i] / (metric == Metric::kCosine ? std::sqrt(squares) : 1) / 50;
      }
    }
    for (size_t i = 0; i < 19; i++) EXPECT_NEAR(center[i], expected[i], 1e-6);
  }
}

TEST(search, rows_are_scored_exactly) {
  std::mt19937 random(9);
  for (const uint32_t n : {1u, 6u, 31u, 384u}) {
    const std::vector<float> x = normal(random, n), q = normal(random, n);
    std::vector<float> scratch(n);
    const Doubles a(x.begin(), x.end()), b(q.begin(), q.end());
    Doubles difference(n);
    for (uint32_t i = 0; i < n; i++) difference[i] = a[i] - b[i];
    const double size = std::sqrt(dot(a, a) * dot(b, b)), squares = squared_norm(q);
    EXPECT_NEAR(squares, dot(b, b), 1e-12 * squares);
    for (const StoredRow kind : {StoredRow::kFloat32, StoredRow::kFloat16, StoredRow::kInt8}) {
      // Relative error of an element: of float32 none, of float16 2^-11, of int8 half a step of 1/127 of the largest.
      const double off = kind == StoredRow::kFloat32 ? 1e-7 : kind == StoredRow::kFloat16 ? 0x1p-11 : std::sqrt(n) / 254;
      std::vector<float> row(stored_row_bytes(kind, n) / 4 + 1);
      const std::span<std::byte> bytes(reinterpret_cast<std::byte*>(row.data()), stored_row_bytes(kind, n));
      ASSERT_EQ(store_rows(kind, x, n, bytes), Status::kOk);
      EXPECT_NEAR(score_row(Metric::kDot, q, squares, kind, bytes.data(), scratch), dot(a, b), off * size);
      EXPECT_NEAR(score_row(Metric::kCosine, q, squares, kind, bytes.data(), scratch), dot(a, b) / size, 2 * off);
      EXPECT_NEAR(score_row(Metric::kEuclidean, q, squares, kind, bytes.data(), scratch), std::sqrt(dot(difference, difference)),
                  off * (std::sqrt(dot(a, a)) + 1));
    }
  }
}

TEST(search, refuses_what_does_not_fit) {
  std::mt19937 random(10);
  for (const int32_t bits : {1, 2, 4, 8}) {
    Index index(16, bits, Metric::kCosine, 32);
    std::vector<float> x = normal(random, 16 * 32);
    EXPECT_EQ(encode_vectors(index.spec, index.frame(), x, 1, index.part, index.scratch), Status::kSizeMismatch);
    EXPECT_EQ(index.fill(std::span(x).first(17)), Status::kBadLayout);
    for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> y = x;
      y[40] = bad;
      EXPECT_EQ(index.fill(y), Status::kNonFinite);
      std::vector<std::byte> query(query_bytes(index.spec));
      EXPECT_EQ(prepare_query(index.spec, index.frame(), std::span(y).subspan(32, 16), query, index.scratch), Status::kNonFinite);
      Doubles sums(16);
      EXPECT_EQ(add_to_center(index.spec, y, sums), Status::kNonFinite);
    }
    const SearchSpec wrong{16, 3, Metric::kDot};
    EXPECT_EQ(encode_vectors(wrong, index.frame(), x, 0, index.part, index.scratch), Status::kBadLayout);
    EXPECT_FALSE((SearchSpec{0, 1, Metric::kDot}).valid());
    EXPECT_FALSE((SearchSpec{kMaxDimension + 1, 1, Metric::kDot}).valid());
  }
  // The longest vectors have products beyond float32.
  Index index(16, 2, Metric::kDot, 32);
  const std::vector<float> huge(16, 3e38f);
  EXPECT_EQ(index.fill(huge), Status::kOverflow);
  const std::vector<float> tiny(16, 1e-44f);
  EXPECT_EQ(index.fill(tiny), Status::kOverflow);
  // Lengths whose reciprocal is beyond float32.
  Index unit(16, 2, Metric::kCosine, 32);
  EXPECT_EQ(unit.fill(tiny), Status::kOverflow);
  Doubles sums(16);
  EXPECT_EQ(add_to_center(unit.spec, tiny, sums), Status::kOverflow);
  std::vector<std::byte> query(query_bytes(unit.spec));
  EXPECT_EQ(prepare_query(unit.spec, unit.frame(), tiny, query, unit.scratch), Status::kOverflow);
  EXPECT_EQ(prepare_query(index.spec, index.frame(), huge, query, index.scratch), Status::kOverflow);
  std::vector<std::byte> row(32);
  EXPECT_EQ(store_rows(StoredRow::kFloat16, huge, 16, row), Status::kOverflow);
}

}  // namespace
}  // namespace scalepoint

// The parts of a transformer between its products.
#include <algorithm>
#include <cmath>

#include "helpers.h"
#include "language/transformer.h"

namespace scalepoint::tests {
namespace {

TEST(Transformer, AddsScaledRows) {
  for (const size_t n : kLengths) {
    const std::vector<float> x = Random(1).uniform_values(n, -2, 2), before = Random(2).uniform_values(n, -2, 2);
    for (const float factor : {1.0f, 0.3f, -2.0f}) {
      Buffer<float> y(before);
      ASSERT_EQ(add_scaled(factor, Buffer<float>(x), y), Status::kOk);
      for (size_t i = 0; i < n; i++) ASSERT_EQ(y.values()[i], before[i] + factor * x[i]) << n << ": " << i;
    }
  }
  Buffer<float> y(3);
  EXPECT_EQ(add_scaled(1, Buffer<float>(std::vector<float>(4)), y), Status::kSizeMismatch);
}

TEST(Transformer, RoutesTokensToTheBestExperts) {
  const size_t experts = 7, tokens = 40;
  for (size_t used = 1; used <= experts; used++) {
    // Whole numbers, so that there are equals.
    std::vector<float> scores = Random(4).uniform_values(tokens * experts, -3, 3);
    for (float& score : scores) score = std::round(score);
    Buffer<uint32_t> chosen(tokens * used);
    Buffer<float> shares(tokens * used);
    ASSERT_EQ(
        route_experts(Buffer<float>(scores), {}, {static_cast<uint32_t>(experts), static_cast<uint32_t>(used)}, chosen, shares),
        Status::kOk);
    for (size_t token = 0; token < tokens; token++) {
      const float* const row = scores.data() + token * experts;
      std::vector<uint32_t> order(experts);
      for (uint32_t i = 0; i < experts; i++) order[i] = i;
      std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return row[a] > row[b]; });
      // Softmax over all, then divided by the sum of the chosen ones.
      long double sum = 0;
      for (size_t i = 0; i < used; i++) sum += std::exp(static_cast<long double>(row[order[i]]));
      for (size_t i = 0; i < used; i++) {
        ASSERT_EQ(chosen.values()[token * used + i], order[i]) << used << ": " << token;
        const auto share = static_cast<double>(std::exp(static_cast<long double>(row[order[i]])) / sum);
        // Rounded to float32 once.
        ASSERT_NEAR(shares.values()[token * used + i], share, share * 0x1p-23);
      }
    }
  }
}

TEST(Transformer, RoutesByBiasesAndSigmoids) {
  const uint32_t experts = 9, used = 4;
  const std::vector<float> scores = Random(6).uniform_values(experts * 30, -4, 4),
                           biases = Random(7).uniform_values(experts, -1, 1);
  for (const Shares kind : {Shares::kSoftmax, Shares::kSigmoid}) {
    for (const bool normalized : {true, false}) {
      Buffer<uint32_t> chosen(30 * used);
      Buffer<float> shares(30 * used);
      const RouteSpec spec{experts, used, kind, normalized, 2.5f};
      ASSERT_EQ(route_experts(Buffer<float>(scores), Buffer<float>(biases), spec, chosen, shares), Status::kOk);
      for (size_t token = 0; token < 30; token++) {
        const float* const row = scores.data() + token * experts;
        long double sum = 0, total = 0, all[experts];
        for (size_t i = 0; i < experts; i++) sum += std::exp(static_cast<long double>(row[i]));
        for (size_t i = 0; i < experts; i++) {
          all[i] = kind == Shares::kSigmoid ? 1 / (1 + std::exp(-static_cast<long double>(row[i])))
                                            : std::exp(static_cast<long double>(row[i])) / sum;
        }
        std::vector<uint32_t> order(experts);
        for (uint32_t i = 0; i < experts; i++) order[i] = i;
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t a, uint32_t b) { return all[a] + biases[a] > all[b] + biases[b]; });
        for (size_t i = 0; i < used; i++) total += all[order[i]];
        for (size_t i = 0; i < used; i++) {
          ASSERT_EQ(chosen.values()[token * used + i], order[i]);
          const auto share = static_cast<double>((normalized ? all[order[i]] / total : all[order[i]]) * 2.5);
          // Rounded to float32 once.
          ASSERT_NEAR(shares.values()[token * used + i], share, share * 0x1p-23);
        }
      }
    }
  }
}

TEST(Transformer, NormalizesAroundTheMean) {
  for (const size_t width : {1, 3, 64}) {
    const std::vector<float> x = Random(8).uniform_values(width * 5, -2, 9), weight = Random(9).uniform_values(width, -2, 2);
    const std::vector<float> bias = Random(10).uniform_values(width, -2, 2);
    for (const bool has_bias : {false, true}) {
      Buffer<float> y(width * 5);
      Buffer<float> biases(has_bias ? bias : std::vector<float>{});
      ASSERT_EQ(layer_norm(Buffer<float>(x), Buffer<float>(weight), biases, 1e-5f, y), Status::kOk);
      for (size_t row = 0; row < 5; row++) {
        long double mean = 0, square = 0;
        for (size_t i = 0; i < width; i++) mean += x[row * width + i] / static_cast<long double>(width);
        for (size_t i = 0; i < width; i++) {
          square += (x[row * width + i] - mean) * (x[row * width + i] - mean) / static_cast<long double>(width);
        }
        for (size_t i = 0; i < width; i++) {
          const long double off = (x[row * width + i] - mean) / std::sqrt(square + 1e-5f) * weight[i];
          const auto want = static_cast<double>(has_bias ? off + bias[i] : off);
          // Rounded to float32 once; sums in double are off by less than that.
          ASSERT_NEAR(y.values()[row * width + i], want, std::fabs(want) * 0x1p-23 + 1e-12);
        }
      }
    }
  }
  Buffer<float> y(4);
  Buffer<float> x(4), none(0), two(2), three(3);
  EXPECT_EQ(layer_norm(x, none, {}, 1, y), Status::kBadLayout);
  EXPECT_EQ(layer_norm(x, three, {}, 1, y), Status::kSizeMismatch);
  EXPECT_EQ(layer_norm(x, two, three, 1, y), Status::kSizeMismatch);
}

TEST(Transformer, RefusesWrongRoutes) {
  Buffer<uint32_t> chosen(4);
  Buffer<float> shares(4);
  const auto route = [&](std::vector<float> scores, size_t experts, size_t used) {
    return route_experts(Buffer<float>(scores), {}, {static_cast<uint32_t>(experts), static_cast<uint32_t>(used)}, chosen,
                         shares);
  };
  EXPECT_EQ(route({1, 2, 3, 4, 5, 6}, 3, 2), Status::kOk);
  EXPECT_EQ(route({1, 2, 3, 4, 5, 6}, 3, 0), Status::kBadLayout);
  EXPECT_EQ(route({1, 2, 3, 4, 5, 6}, 3, 4), Status::kBadLayout);
  EXPECT_EQ(route({1, 2, 3, 4, 5}, 3, 2), Status::kSizeMismatch);
  EXPECT_EQ(route({1, 2, 3}, 3, 2), Status::kSizeMismatch);
  EXPECT_EQ(route({1, 2, 3, 4, NAN, 6}, 3, 2), Status::kNonFinite);
  EXPECT_EQ(route({1, 2, 3, 4, INFINITY, 6}, 3, 2), Status::kNonFinite);
}

TEST(Transformer, ScalesFloats) {
  for (const size_t n : kLengths) {
    const std::vector<float> before = Random(3).uniform_values(n, -2, 2);
    Buffer<float> x(before);
    scale_floats(45.254833f, x);
    for (size_t i = 0; i < n; i++) ASSERT_EQ(x.values()[i], before[i] * 45.254833f);
  }
}

TEST(Transformer, ClampsFloats) {
  Buffer<float> x(std::vector<float>{0, 1, -1, 2.5f, -2.5f, INFINITY, -INFINITY, NAN});
  ASSERT_EQ(clamp_floats(1.5f, x), Status::kOk);
  const std::vector<float> expected = {0, 1, -1, 1.5f, -1.5f, 1.5f, -1.5f};
  for (size_t i = 0; i < expected.size(); i++) EXPECT_EQ(x.values()[i], expected[i]) << i;
  EXPECT_TRUE(std::isnan(x.values().back()));
  for (const float bound : {0.0f, -1.0f, NAN}) EXPECT_EQ(clamp_floats(bound, x), Status::kBadLayout);
}

TEST(Transformer, AttendsWithSinks) {
  // One head of one element, two tokens whose scores are 0: a sink of 0 takes as large a share as each token.
  Buffer<float> q(std::vector<float>{0, 0}), k(std::vector<float>{1, 1}), v(std::vector<float>{3, 6}), y(2), scratch(2);
  const AttentionSpec spec = {.heads = 1, .key_heads = 1, .head_size = 1, .scale = 1, .text_size = 2};
  ASSERT_EQ(attend(q, k, v, Buffer<float>(std::vector<float>{0}), spec, scratch, y), Status::kOk);
  EXPECT_FLOAT_EQ(y.values()[0], 1.5f);
  EXPECT_FLOAT_EQ(y.values()[1], 3.0f);
  // A sink above all scores takes nearly everything, and one far below them nothing.
  ASSERT_EQ(attend(q, k, v, Buffer<float>(std::vector<float>{200}), spec, scratch, y), Status::kOk);
  EXPECT_EQ(y.values()[1], 0);
  ASSERT_EQ(attend(q, k, v, Buffer<float>(std::vector<float>{-200}), spec, scratch, y), Status::kOk);
  EXPECT_FLOAT_EQ(y.values()[1], 4.5f);
  EXPECT_EQ(attend(q, k, v, Buffer<float>(std::vector<float>{0, 0}), spec, scratch, y), Status::kSizeMismatch);
}

TEST(Transformer, AttendsFromTheLastTokensOfAText) {
  // Seven tokens, with and without a window: the last ones alone get what they get together with the others, bit by bit.
  constexpr size_t kTokens = 7, kWidth = 6, kKeyWidth = 3;
  const std::vector<float> q = Random(4).uniform_values(kTokens * kWidth, -2, 2);
  Buffer<float> k(Random(5).uniform_values(kTokens * kKeyWidth, -2, 2));
  Buffer<float> v(Random(6).uniform_values(kTokens * kKeyWidth, -2, 2));
  for (const uint32_t window : {0u, 3u}) {
    AttentionSpec spec = {.heads = 2, .key_heads = 1, .head_size = 3, .scale = 0.7f, .window = window, .text_size = kTokens};
    Buffer<float> all(kTokens * kWidth), scratch(kTokens);
    ASSERT_EQ(attend(Buffer<float>(q), k, v, {}, spec, scratch, all), Status::kOk);
    for (size_t tokens = 0; tokens <= kTokens; tokens++) {
      const auto from = static_cast<std::ptrdiff_t>((kTokens - tokens) * kWidth);
      Buffer<float> last(tokens * kWidth);
      spec.before = static_cast<uint32_t>(kTokens - tokens);
      ASSERT_EQ(attend(Buffer<float>(std::vector<float>(q.begin() + from, q.end())), k, v, {}, spec, scratch, last), Status::kOk);
      for (size_t i = 0; i < last.values().size(); i++) {
        ASSERT_EQ(last.values()[i], all.values()[static_cast<size_t>(from) + i]);
      }
    }
    spec.before = 1;
    EXPECT_EQ(attend(Buffer<float>(q), k, v, {}, spec, scratch, all), Status::kSizeMismatch);
  }
}

TEST(Transformer, CapsSoftly) {
  const std::vector<float> before = {0, -0.0f, 1, -1, 29, 30, -1000, 1e30f, 1e-30f, INFINITY, -INFINITY, NAN};
  Buffer<float> x(before);
  ASSERT_EQ(cap_softly(30, x), Status::kOk);
  for (size_t i = 0; i + 1 < before.size(); i++) {
    // tanh by its definition, in long double. The result is rounded once to float32, and double has 29 bits to spare.
    const long double ratio = std::fabs(static_cast<long double>(before[i])) / 30, power = std::exp(-2 * ratio);
    const long double expected = ratio < 1e-9 ? ratio * 30 : 30 * (1 - power) / (1 + power);
    EXPECT_NEAR(x.values()[i], std::copysign(static_cast<double>(expected), before[i]), static_cast<double>(expected) * 0x1p-24)
        << i;
  }
  EXPECT_TRUE(std::isnan(x.values().back()));
  for (const float cap : {0.0f, -1.0f, NAN, INFINITY}) EXPECT_EQ(cap_softly(cap, x), Status::kBadLayout);
}

}  // namespace
}  // namespace scalepoint::tests

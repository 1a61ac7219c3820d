// The parts of a transformer between its products.
#include <cmath>

#include "helpers.h"
#include "language/transformer.h"

namespace scalepoint::tests {
namespace {

TEST(Transformer, AddsResiduals) {
  for (const size_t n : kLengths) {
    const std::vector<float> x = Random(1).uniform_values(n, -2, 2), before = Random(2).uniform_values(n, -2, 2);
    Buffer<float> y(before);
    ASSERT_EQ(add_residual(Buffer<float>(x), y), Status::kOk);
    for (size_t i = 0; i < n; i++) ASSERT_EQ(y.values()[i], before[i] + x[i]) << n << ": " << i;
  }
  Buffer<float> y(3);
  EXPECT_EQ(add_residual(Buffer<float>(std::vector<float>(4)), y), Status::kSizeMismatch);
}

TEST(Transformer, ScalesFloats) {
  for (const size_t n : kLengths) {
    const std::vector<float> before = Random(3).uniform_values(n, -2, 2);
    Buffer<float> x(before);
    scale_floats(45.254833f, x);
    for (size_t i = 0; i < n; i++) ASSERT_EQ(x.values()[i], before[i] * 45.254833f);
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
    EXPECT_NEAR(x.values()[i], std::copysign(static_cast<double>(expected), before[i]), static_cast<double>(expected) * 0x1p-24) << i;
  }
  EXPECT_TRUE(std::isnan(x.values().back()));
  for (const float cap : {0.0f, -1.0f, NAN, INFINITY}) EXPECT_EQ(cap_softly(cap, x), Status::kBadLayout);
}

}  // namespace
}  // namespace scalepoint::tests

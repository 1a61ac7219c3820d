// The parts of a transformer between its products: norms, rotary positions, attention, gates. Products are layers (layers/layer.h).
// Rows are tokens. Formulas are those of github.com/ggml-org/llama.cpp 1f08e2d, ggml/src/ggml-cpu/ops.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/status.h"

namespace scalepoint {

/// y = x / sqrt(mean(x^2) + epsilon) * (weight + add), row by row. Sums are in double, the rest in float32. y may be x.
/// Shape:   x and y hold whole rows of weight.size() elements.
/// Status:  kBadLayout if weight is empty; kSizeMismatch.
[[nodiscard]] Status rms_norm(std::span<const float> x, std::span<const float> weight, float epsilon, float add,
                              std::span<float> y) noexcept;

/// y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * weight + bias, row by row. Sums are in double. y may be x.
/// Shape:   x and y hold whole rows of weight.size() elements; bias has as many, or none.
/// Status:  kBadLayout if weight is empty; kSizeMismatch.
[[nodiscard]] Status layer_norm(std::span<const float> x, std::span<const float> weight, std::span<const float> bias,
                                float epsilon, std::span<float> y) noexcept;

/// Pairs of elements that the rotary embedding turns.
enum class RotaryPairs : int32_t {
  kHalves = 0,     ///< element i and element i + rotary / 2, as in Hugging Face's models
  kNeighbors = 1,  ///< elements 2 i and 2 i + 1, as llama.cpp stores some architectures
};

struct RotarySpec {
  uint32_t heads = 0;
  uint32_t head_size = 0;
  RotaryPairs pairs = RotaryPairs::kHalves;
  double factor = 1;  ///< of the turned elements
};

/// Turns the first 2 * frequencies.size() elements of each head, pair i by position * frequencies[i] radians, and multiplies them by
/// spec.factor.
///   x          rows of heads * head_size elements, in place
///   positions  one for each row
/// Status:  kBadLayout if a head is smaller than what turns, or a size is 0; kSizeMismatch.
[[nodiscard]] Status rotate(std::span<float> x, const RotarySpec& spec, std::span<const uint32_t> positions,
                            std::span<const double> frequencies) noexcept;

struct AttentionSpec {
  uint32_t heads = 0;
  uint32_t key_heads = 0;  ///< a divisor of heads: neighboring heads share keys and values
  uint32_t head_size = 0;
  float scale = 0;         ///< of the products of queries and keys
  float softcap = 0;       ///< above 0: scores become softcap * tanh(score / softcap)
  uint32_t window = 0;     ///< above 0: a token sees this many tokens, itself included
  bool causal = true;      ///< false: each token of a text sees all of it
  uint32_t text_size = 0;  ///< tokens of a text. Texts follow each other; the last one may be shorter.
  uint32_t before = 0;     ///< tokens of k and v before those of q
};

/// Floats of scratch memory of attend.
[[nodiscard]] size_t attention_scratch_size(const AttentionSpec& spec) noexcept;

/// y = softmax(scale q k') v for each head, within each text. Products, sums and powers are in float32, sums of powers in double.
///   sinks  a score for each head that takes a share, and has no value; or none
/// Shape:   q, y: tokens * heads * head_size; k, v: (spec.before + tokens) * key_heads * head_size.
/// Status:  kBadLayout if a size is 0 or key_heads does not divide heads; kSizeMismatch.
[[nodiscard]] Status attend(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                            std::span<const float> sinks, const AttentionSpec& spec, std::span<float> scratch,
                            std::span<float> y) noexcept;

/// Functions of the gate of a feed-forward layer.
enum class Gate : int32_t {
  kSilu = 0,         ///< x / (1 + e^-x)
  kGeluTanh = 1,     ///< x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  kGelu = 2,         ///< x / 2 (1 + erf(x / sqrt(2)))
  kReluSquared = 3,  ///< max(x, 0)^2
  kBoundSilu = 4,    ///< x / (1 + e^(-1.702 x)) with x at most 7; what it multiplies is bound to -7 and 7, plus 1 (gpt-oss)
};

/// y += factor * x, in float32. A residual connection has the factor 1.
/// Status:  kSizeMismatch.
[[nodiscard]] Status add_scaled(float factor, std::span<const float> x, std::span<float> y) noexcept;

/// Functions that make shares of the scores of experts.
enum class Shares : int32_t {
  kSoftmax = 0,  ///< e^score / sum of e^score over all experts
  kSigmoid = 1,  ///< 1 / (1 + e^-score)
};

struct RouteSpec {
  uint32_t experts = 0;
  uint32_t used = 0;
  Shares shares = Shares::kSoftmax;
  bool normalized = true;  ///< true: shares of the chosen experts are divided by their sum
  float scale = 1;         ///< factor of the shares
};

/// Chooses the experts of each token: those with the largest shares and biases together, the first of equals, in falling order. In double.
///   scores  spec.experts for each token
///   biases  one for each expert, or none
///   chosen  spec.used indices of experts for each token
///   shares  one for each index
/// Status:  kBadLayout unless 1 <= used <= experts; kSizeMismatch; kNonFinite for NaN or infinities.
[[nodiscard]] Status route_experts(std::span<const float> scores, std::span<const float> biases, const RouteSpec& spec,
                                   std::span<uint32_t> chosen, std::span<float> shares) noexcept;

/// x *= factor, in float32.
void scale_floats(float factor, std::span<float> x) noexcept;

/// Bounds x to -bound and bound.
/// Status:  kBadLayout unless bound is above 0.
[[nodiscard]] Status clamp_floats(float bound, std::span<float> x) noexcept;

/// x = cap * tanh(x / cap), which keeps x within -cap and cap. Computed in double.
/// Status:  kBadLayout unless cap is finite and above 0.
[[nodiscard]] Status cap_softly(float cap, std::span<float> x) noexcept;

/// y = f(gate) * up, element by element; y = f(gate) if up is empty. y may be gate.
/// Status:  kBadDType for other functions; kSizeMismatch.
[[nodiscard]] Status apply_gate(Gate function, std::span<const float> gate, std::span<const float> up,
                                std::span<float> y) noexcept;

}  // namespace scalepoint

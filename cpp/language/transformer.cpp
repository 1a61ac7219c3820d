#include "language/transformer.h"

#include <algorithm>
#include <cmath>

#include "language/transformer_loops.h"

namespace scalepoint {
namespace {

/// Turns the pair (a, b).
void turn(float& a, float& b, double cosine, double sine) {
  const double x = a, y = b;
  a = static_cast<float>(x * cosine - y * sine);
  b = static_cast<float>(x * sine + y * cosine);
}

/// Replaces n scores by their shares: e^(score - largest), whose sum becomes 1. Powers are in float32, which take a third of the time of
/// those in double. sink: a further score, or null.
void softmax(float* scores, size_t n, const float* sink) {
  float largest = *std::max_element(scores, scores + n);
  if (sink != nullptr) largest = std::max(largest, *sink);
  double sum = sink == nullptr ? 0 : std::exp(*sink - largest);
  for (size_t i = 0; i < n; i++) {
    scores[i] = std::exp(scores[i] - largest);
    sum += scores[i];
  }
  const double inverse = 1 / sum;
  for (size_t i = 0; i < n; i++) scores[i] = static_cast<float>(scores[i] * inverse);
}

double gate_value(Gate function, double x) {
  switch (function) {
    case Gate::kSilu:
      return x / (1 + static_cast<double>(std::exp(static_cast<float>(-x))));
    case Gate::kReluSquared:
      return x > 0 ? x * x : 0;
    case Gate::kBoundSilu:
      x = std::min(x, 7.0);
      return x / (1 + std::exp(-1.702 * x));
    case Gate::kGeluTanh:
      return x / 2 * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    default:
      return x / 2 * (1 + std::erf(x * 0.70710678118654752440));
  }
}

}  // namespace

Status rms_norm(std::span<const float> x, std::span<const float> weight, float epsilon, float add, std::span<float> y) noexcept {
  const size_t width = weight.size();
  if (width == 0) return Status::kBadLayout;
  if (x.size() % width != 0 || y.size() != x.size()) return Status::kSizeMismatch;
  for (size_t row = 0; row < x.size(); row += width) {
    double sum = 0;
    for (size_t i = 0; i < width; i++) sum += static_cast<double>(x[row + i]) * x[row + i];
    const auto factor = static_cast<float>(1 / std::sqrt(sum / static_cast<double>(width) + epsilon));
    for (size_t i = 0; i < width; i++) y[row + i] = x[row + i] * factor * (weight[i] + add);
  }
  return Status::kOk;
}

Status layer_norm(std::span<const float> x, std::span<const float> weight, std::span<const float> bias, float epsilon,
                  std::span<float> y) noexcept {
  const size_t width = weight.size();
  if (width == 0) return Status::kBadLayout;
  if (x.size() % width != 0 || y.size() != x.size() || (!bias.empty() && bias.size() != width)) return Status::kSizeMismatch;
  for (size_t row = 0; row < x.size(); row += width) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < width; i++) sum += x[row + i];
    const double mean = sum / static_cast<double>(width);
    for (size_t i = 0; i < width; i++) squares += (x[row + i] - mean) * (x[row + i] - mean);
    const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);
    for (size_t i = 0; i < width; i++) {
      const double value = (x[row + i] - mean) * factor * weight[i];
      y[row + i] = static_cast<float>(bias.empty() ? value : value + bias[i]);
    }
  }
  return Status::kOk;
}

Status rotate(std::span<float> x, const RotarySpec& spec, std::span<const uint32_t> positions,
              std::span<const double> frequencies) noexcept {
  const auto& [heads, head_size, pairs, factor] = spec;
  const size_t width = size_t{heads} * head_size, turning = frequencies.size();
  if (width == 0 || turning * 2 > head_size) return Status::kBadLayout;
  if (x.size() != positions.size() * width) return Status::kSizeMismatch;
  const bool halves = pairs == RotaryPairs::kHalves;
  for (size_t row = 0; row < positions.size(); row++) {
    for (size_t i = 0; i < turning; i++) {
      const double angle = positions[row] * frequencies[i], cosine = std::cos(angle) * factor, sine = std::sin(angle) * factor;
      float* first = x.data() + row * width + (halves ? i : 2 * i);
      for (uint32_t head = 0; head < heads; head++, first += head_size) turn(first[0], first[halves ? turning : 1], cosine, sine);
    }
  }
  return Status::kOk;
}

size_t attention_scratch_size(const AttentionSpec& spec) noexcept { return spec.text_size; }

Status attend(std::span<const float> q, std::span<const float> k, std::span<const float> v, std::span<const float> sinks,
              const AttentionSpec& spec, std::span<float> scratch, std::span<float> y) noexcept {
  const size_t head_size = spec.head_size, width = spec.heads * head_size, key_width = spec.key_heads * head_size;
  if (width == 0 || key_width == 0 || spec.text_size == 0 || spec.heads % spec.key_heads != 0) return Status::kBadLayout;
  const size_t before = spec.before, tokens = before + q.size() / width;
  if (q.size() % width != 0 || k.size() != tokens * key_width || v.size() != k.size() || y.size() != q.size() ||
      scratch.size() < attention_scratch_size(spec) || (!sinks.empty() && sinks.size() != spec.heads)) {
    return Status::kSizeMismatch;
  }
  const uint32_t share = spec.heads / spec.key_heads;
  float* const scores = scratch.data();
  for (size_t text = 0; text < tokens; text += spec.text_size) {
    const size_t end = std::min(tokens, text + spec.text_size);
    for (size_t token = std::max(text, before); token < end; token++) {
      const size_t last = spec.causal ? token + 1 : end;
      const size_t first = spec.window > 0 && last - text > spec.window ? last - spec.window : text;
      for (uint32_t head = 0; head < spec.heads; head++) {
        const float* const query = q.data() + (token - before) * width + head * head_size;
        const size_t at = head / share * head_size;
        // Score the other tokens, some at a time.
        const size_t n = last - first, together = n / loops::kRows * loops::kRows;
        const float* const keys = k.data() + first * key_width + at;
        const float* const values = v.data() + first * key_width + at;
        for (size_t i = 0; i < together; i += loops::kRows) {
          loops::dot_rows(query, keys + i * key_width, key_width, head_size, scores + i);
        }
        for (size_t i = together; i < n; i++) scores[i] = loops::dot(query, keys + i * key_width, head_size);
        for (size_t i = 0; i < n; i++) {
          scores[i] *= spec.scale;
          if (spec.softcap > 0) scores[i] = spec.softcap * std::tanh(scores[i] / spec.softcap);
        }
        softmax(scores, n, sinks.empty() ? nullptr : &sinks[head]);
        // Add up their values.
        float* const to = y.data() + (token - before) * width + head * head_size;
        std::fill(to, to + head_size, 0.0f);
        for (size_t i = 0; i < together; i += loops::kRows) {
          loops::add_scaled_rows(to, values + i * key_width, key_width, scores + i, head_size);
        }
        for (size_t i = together; i < n; i++) loops::add_scaled(to, values + i * key_width, scores[i], head_size);
      }
    }
  }
  return Status::kOk;
}

Status add_scaled(float factor, std::span<const float> x, std::span<float> y) noexcept {
  if (x.size() != y.size()) return Status::kSizeMismatch;
  loops::add_scaled(y.data(), x.data(), factor, y.size());
  return Status::kOk;
}

Status route_experts(std::span<const float> scores, std::span<const float> biases, const RouteSpec& spec,
                     std::span<uint32_t> chosen, std::span<float> shares) noexcept {
  const size_t experts = spec.experts, used = spec.used;
  if (used == 0 || used > experts) return Status::kBadLayout;
  const size_t tokens = scores.size() / experts;
  if (scores.size() % experts != 0 || (!biases.empty() && biases.size() != experts) || chosen.size() != tokens * used ||
      shares.size() != chosen.size()) {
    return Status::kSizeMismatch;
  }
  for (const std::span<const float> values : {scores, biases}) {
    for (const float value : values) {
      if (!std::isfinite(value)) return Status::kNonFinite;
    }
  }
  for (size_t token = 0; token < tokens; token++) {
    const float* const row = scores.data() + token * experts;
    uint32_t* const best = chosen.data() + token * used;
    double sum = 0;
    const double largest = *std::max_element(row, row + experts);
    for (size_t expert = 0; expert < experts; expert++) sum += std::exp(row[expert] - largest);
    const auto share_of = [&](size_t expert) {
      return spec.shares == Shares::kSigmoid ? 1 / (1 + std::exp(-static_cast<double>(row[expert])))
                                             : std::exp(row[expert] - largest) / sum;
    };
    // Without biases, scores have the order of shares, and more digits.
    const auto rank_of = [&](size_t expert) { return biases.empty() ? row[expert] : share_of(expert) + biases[expert]; };
    // Insert each expert behind those that are at least as good.
    for (size_t expert = 0, n = 0; expert < experts; expert++) {
      size_t at = n;
      while (at > 0 && rank_of(best[at - 1]) < rank_of(expert)) at--;
      if (at == used) continue;
      n = std::min(n + 1, used);
      for (size_t i = n - 1; i > at; i--) best[i] = best[i - 1];
      best[at] = static_cast<uint32_t>(expert);
    }
    double total = 0;
    for (size_t i = 0; i < used; i++) total += share_of(best[i]);
    // llama.cpp divides by no less.
    total = std::max(total, 0x1p-14);
    for (size_t i = 0; i < used; i++) {
      const double share = share_of(best[i]);
      shares[token * used + i] = static_cast<float>((spec.normalized ? share / total : share) * spec.scale);
    }
  }
  return Status::kOk;
}

void scale_floats(float factor, std::span<float> x) noexcept {
  for (float& value : x) value *= factor;
}

Status clamp_floats(float bound, std::span<float> x) noexcept {
  if (!(bound > 0)) return Status::kBadLayout;
  for (float& value : x) value = std::clamp(value, -bound, bound);
  return Status::kOk;
}

Status cap_softly(float cap, std::span<float> x) noexcept {
  if (!(cap > 0) || !std::isfinite(cap)) return Status::kBadLayout;
  for (float& value : x) value = static_cast<float>(cap * std::tanh(static_cast<double>(value) / cap));
  return Status::kOk;
}

Status apply_gate(Gate function, std::span<const float> gate, std::span<const float> up, std::span<float> y) noexcept {
  if (static_cast<int32_t>(function) < 0 || function > Gate::kBoundSilu) return Status::kBadDType;
  if (y.size() != gate.size() || (!up.empty() && up.size() != gate.size())) return Status::kSizeMismatch;
  for (size_t i = 0; i < gate.size(); i++) {
    const double value = gate_value(function, gate[i]);
    double factor = up.empty() ? 1 : up[i];
    if (function == Gate::kBoundSilu && !up.empty()) factor = std::clamp(factor, -7.0, 7.0) + 1;
    y[i] = static_cast<float>(value * factor);
  }
  return Status::kOk;
}

}  // namespace scalepoint

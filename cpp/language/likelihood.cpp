#include "language/likelihood.h"

#include <algorithm>
#include <cmath>

namespace scalepoint {
namespace {

/// The logarithm of the sum of e^x. NaN if one of x is NaN or an infinity.
double log_sum(std::span<const float> x, size_t& top) {
  top = 0;
  double check = 0;
  for (size_t i = 0; i < x.size(); i++) {
    check += x[i] * 0.0;
    if (x[i] > x[top]) top = i;
  }
  double sum = 0;
  for (const float value : x) sum += std::exp(static_cast<double>(value) - x[top]);
  return x[top] + std::log(sum) + check;
}

}  // namespace

Status judge_token(std::span<const float> logits, std::span<const float> reference, uint32_t token,
                   TokenJudgment& judgment) noexcept {
  judgment = {};
  if (logits.empty()) return Status::kBadLayout;
  if (token >= logits.size() || (!reference.empty() && reference.size() != logits.size())) return Status::kSizeMismatch;
  size_t top, reference_top;
  const double total = log_sum(logits, top);
  if (!std::isfinite(total)) return Status::kNonFinite;
  judgment.loss = total - logits[token];
  if (reference.empty()) return Status::kOk;
  const double reference_total = log_sum(reference, reference_top);
  if (!std::isfinite(reference_total)) return Status::kNonFinite;
  judgment.same_top = top == reference_top;
  double sum = 0;
  for (size_t i = 0; i < logits.size(); i++) {
    const double likelihood = reference[i] - reference_total;
    sum += std::exp(likelihood) * (likelihood - (logits[i] - total));
  }
  judgment.divergence = std::max(0.0, sum);
  return Status::kOk;
}

}  // namespace scalepoint

// Thresholds of quotients between the values of a codebook.
#include <limits>

#include "codebooks/codebook_parts.h"

namespace scalepoint {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Thresholds of bitsandbytes' decision trees for nf4 and fp4 (csrc/kernels.cu), in its decimal numbers. Float literals give the nearest
// floats. Four lie so close to the middle of two floats that rounding them to double first would give other floats.
constexpr float kNf4Thresholds[15] = {-0.8480964004993439f,  -0.6106329262256622f,  -0.4599952697753906f,   -0.33967943489551544f,
                                      -0.23460740596055984f, -0.13791173323988914f, -0.045525018125772476f, 0.03979014977812767f,
                                      0.1202552504837513f,   0.2035212516784668f,   0.2920137718319893f,    0.3893125355243683f,
                                      0.5016634166240692f,   0.6427869200706482f,   0.8614784181118011f};

/// Thresholds of magnitudes, and the codes on both sides of them.
constexpr float kFp4Thresholds[7] = {0.00260417f, 0.0859375f, 0.20833333f, 0.29166667f, 0.4166667f, 0.583333f, 0.8333333f};
constexpr uint8_t kFp4Codes[8] = {0, 1, 6, 7, 4, 5, 2, 3};

/// The largest float that is not above the middle of two. A float exceeds it exactly if it exceeds the middle.
float middle_of(float a, float b) {
  // Make the sum in double, and its exact rounding error (Knuth's two-sum).
  const double x = a, y = b, sum = x + y, part = sum - x, left = (x - (sum - part)) + (y - part);
  const auto middle = static_cast<float>(sum / 2);
  const double nearest = middle;
  return nearest > sum / 2 || (nearest == sum / 2 && left < 0) ? next_below(middle) : middle;
}

void search_nearest(std::span<const float> codebook, loops::CodeSearch& search) {
  const size_t n = codebook.size();
  for (size_t i = 0; i < n; i++) search.code[i] = static_cast<uint8_t>(i);
  sort_few(search.code, n, [codebook](uint8_t a, uint8_t b) { return codebook[a] < codebook[b]; });
  for (size_t i = 0; i + 1 < n; i++) search.threshold[i] = middle_of(codebook[search.code[i]], codebook[search.code[i + 1]]);
}

void search_nf4(loops::CodeSearch& search) {
  std::copy(std::begin(kNf4Thresholds), std::end(kNf4Thresholds), search.threshold);
  for (size_t i = 0; i < 16; i++) search.code[i] = static_cast<uint8_t>(i);
}

void search_fp4(loops::CodeSearch& search) {
  // bitsandbytes compares |v| with a threshold t. For negative v, |v| <= t means v >= -t, and so v > the float below -t.
  for (size_t i = 0; i < 7; i++) {
    search.threshold[6 - i] = next_below(-kFp4Thresholds[i]);
    search.threshold[8 + i] = kFp4Thresholds[i];
  }
  search.threshold[7] = next_below(0);
  for (size_t i = 0; i < 8; i++) {
    search.code[7 - i] = static_cast<uint8_t>(kFp4Codes[i] | 8);
    search.code[8 + i] = kFp4Codes[i];
  }
}

}  // namespace

void prepare_search(std::span<const float> codebook, Decision decision, loops::CodeSearch& search) {
  search.thresholds = static_cast<uint32_t>(codebook.size() - 1);
  std::fill(std::begin(search.threshold), std::end(search.threshold), kInfinity);
  if (decision == Decision::kNf4) {
    search_nf4(search);
  } else if (decision == Decision::kFp4) {
    search_fp4(search);
  } else {
    search_nearest(codebook, search);
  }
  loops::prepare(search);
}

}  // namespace scalepoint

// The door to JavaScript for model files: the codecs, which only the large module has. Each function here is a call of ModelsModule in
// web/src/core/door.ts. bindings_arrays.cpp describes the arguments. These calls are not plain exports, so that both modules share one glue
// file.
#include <cmath>
#include <cstdlib>
#include <new>

#include "door_models.h"

namespace scalepoint::door {
namespace {

// ------------------------------------------------------------------------------------------------------------------- memory

/// Returns an arena, or null if memory is full.
codecs::Arena* make_arena() {
  // operator new needs an import that the arrays module does not have, and both modules share one glue file.
  void* const memory = std::malloc(sizeof(codecs::Arena));
  return memory == nullptr ? nullptr : new (memory) codecs::Arena;
}

/// The next `bytes` of an arena. Returns their address, or 0 if memory is full or for 0 bytes.
std::byte* take_from_arena(codecs::Arena* arena, uint64_t bytes) { return arena->take<std::byte>(bytes); }

/// Frees all that was taken, then takes `bytes` as take_from_arena does, which rewind_arena keeps.
std::byte* start_in_arena(codecs::Arena* arena, uint64_t bytes) {
  arena->reset();
  auto* const first = arena->take<std::byte>(bytes);
  arena->keep();
  return first;
}

/// Frees what was taken, except what is kept.
void rewind_arena(codecs::Arena* arena) { arena->rewind(); }

/// Returns the memory of an arena, which can be used further.
void release_arena(codecs::Arena* arena) { arena->release(); }

/// Bytes that an arena occupies.
size_t arena_capacity(const codecs::Arena* arena) { return arena->capacity(); }

// ------------------------------------------------------------------------------------------------------------------- codecs

// Results and temporary values lie in the arena. They are valid until the arena is rewound.

/// The calls of a codec: floats to the bytes of a file, those bytes to floats, and floats to bytes with GPTQ's error feedback.
#define SCALEPOINT_ENCODES(name, Type)                                                                                      \
  Status encode_##name(const codecs::Tile& tile, const codecs::Type& form, codecs::Arena* arena, codecs::Encoded& result) { \
    return encode(tile, form, *arena, result);                                                                              \
  }
#define SCALEPOINT_DECODES(name, Type)                                                                                      \
  Status decode_##name(const codecs::Stored& stored, const codecs::Type& form, codecs::Arena* arena, DecodedTile& result) { \
    return decode(stored, form, *arena, result.x);                                                                          \
  }
#define SCALEPOINT_FEEDS_BACK(name, Type)                                                                                  \
  Status encode_##name##_with_feedback(const codecs::Tile& tile, const codecs::Type& form, const codecs::Moments& moments, \
                                       codecs::Arena* arena, codecs::Encoded& result) {                                    \
    return encode_with_feedback(tile, form, moments, *arena, result);                                                      \
  }

SCALEPOINT_ENCODES(cast, Cast)
SCALEPOINT_ENCODES(comfy, Comfy)
SCALEPOINT_ENCODES(compressed_tensors, CompressedTensors)
SCALEPOINT_ENCODES(dequantize_linear, DequantizeLinear)
SCALEPOINT_ENCODES(ggml, Ggml)
SCALEPOINT_ENCODES(gptq, Gptq)
SCALEPOINT_ENCODES(matmul_bnb4, MatMulBnb4)
SCALEPOINT_ENCODES(matmul_nbits, MatMulNBits)
SCALEPOINT_ENCODES(microscaled, Microscaled)
SCALEPOINT_ENCODES(mlc, Mlc)
SCALEPOINT_ENCODES(mlx, Mlx)
SCALEPOINT_ENCODES(nvfp4_blocks, Nvfp4Blocks)

SCALEPOINT_FEEDS_BACK(compressed_tensors, CompressedTensors)
SCALEPOINT_FEEDS_BACK(dequantize_linear, DequantizeLinear)
SCALEPOINT_FEEDS_BACK(ggml, Ggml)
SCALEPOINT_FEEDS_BACK(gptq, Gptq)
SCALEPOINT_FEEDS_BACK(matmul_bnb4, MatMulBnb4)
SCALEPOINT_FEEDS_BACK(matmul_nbits, MatMulNBits)
SCALEPOINT_FEEDS_BACK(microscaled, Microscaled)
SCALEPOINT_FEEDS_BACK(mlc, Mlc)
SCALEPOINT_FEEDS_BACK(mlx, Mlx)
SCALEPOINT_FEEDS_BACK(nvfp4_blocks, Nvfp4Blocks)

SCALEPOINT_DECODES(bits_and_bytes, BitsAndBytes)
SCALEPOINT_DECODES(comfy, Comfy)
SCALEPOINT_DECODES(compressed_tensors, CompressedTensors)
SCALEPOINT_DECODES(dequantize_linear, DequantizeLinear)
SCALEPOINT_DECODES(gptq, Gptq)
SCALEPOINT_DECODES(matmul_bnb4, MatMulBnb4)
SCALEPOINT_DECODES(matmul_nbits, MatMulNBits)
SCALEPOINT_DECODES(microscaled, Microscaled)
SCALEPOINT_DECODES(mlc, Mlc)
SCALEPOINT_DECODES(mlx, Mlx)
SCALEPOINT_DECODES(nvfp4_blocks, Nvfp4Blocks)
SCALEPOINT_DECODES(scaled_elements, ScaledElements)

Status encode_copy(const codecs::Tile& tile, codecs::Arena* arena, codecs::Encoded& result) {
  return encode(tile, codecs::Copy{}, *arena, result);
}

/// Takes over codes of another layout.
Status recode_nvfp4_blocks(const codecs::Stored& stored, const codecs::Microscaled& codes, bool measure, codecs::Arena* arena,
                           codecs::Encoded& result) {
  return recode(stored, codes, measure, *arena, result);
}

/// Adds the product of an adapter's matrices to the floats of a tile.
Status add_low_rank(const float* x, uint32_t rows, uint32_t columns, const codecs::LowRank& pair, codecs::Arena* arena,
                    float* y) {
  return codecs::add_low_rank(x, rows, columns, pair, *arena, y);
}

/// The facts about elements that share a scale across tiles, which encoding needs.
Status observe_dequantize_linear(const codecs::Tile& tile, const codecs::DequantizeLinear& codes, codecs::Arena* arena,
                                 ObservedSets& result) {
  return observe(tile, codes, *arena, result.ranges, result.count, result.problem);
}

/// Floats of elements.
Status decode_elements(const codecs::Tile& tile, codecs::Arena* arena, DecodedTile& result) {
  return decode(tile, *arena, result.x);
}

Status observe_tile(const codecs::Tile& tile, codecs::Arena* arena, ObservedTile& result) {
  return observe(tile, *arena, result.range, result.problem);
}

/// The sum of magnitudes, in two floats.
Status sum_magnitudes_of_tile(const codecs::Tile& tile, codecs::Arena* arena, ObservedTile& result) {
  return codecs::sum_magnitudes(tile, *arena, result.range, result.problem);
}

/// The errors of outputs that rows y of a matrix make in place of rows x, without feedback: only these sums are set.
/// moments: columns * columns floats, symmetric.
Status sum_output_errors(const float* x, const float* y, uint32_t rows, uint32_t columns, const float* moments,
                         codecs::Arena* arena, ErrorSums& result) {
  result = {};
  return codecs::sum_output_errors({x, size_t{rows} * columns}, y, columns, moments, *arena, result);
}

// -------------------------------------------------------------------------------------------------------------- calibration

/// Bytes of scratch memory of add_moments and factor_moments for that many columns.
uint64_t moments_scratch_bytes(uint32_t columns) { return moments_scratch_size(columns) * sizeof(float); }
uint64_t factor_scratch_bytes(uint32_t columns) {
  return (size_t{columns} * columns + factor_scratch_size(columns)) * sizeof(double);
}

/// x: `rows` rows of `columns` floats. moments: columns * columns doubles.
Status add_moments(const float* x, uint32_t rows, uint32_t columns, float* scratch, double* moments) {
  return scalepoint::add_moments({x, size_t{rows} * columns}, columns, {scratch, moments_scratch_size(columns)},
                                 {moments, size_t{columns} * columns});
}

/// The moments of `rows` rows as floats, in both triangles. means: columns * columns floats.
void finish_moments(const double* moments, uint32_t columns, double rows, float* means) {
  for (size_t j = 0; j < columns; j++) {
    for (size_t i = 0; i <= j; i++) {
      const auto mean = static_cast<float>(moments[j * columns + i] / rows);
      means[j * columns + i] = means[i * columns + j] = mean;
    }
  }
}

/// Sizes of the groups of a type with feedback.
void feedback_groups(BlockType type, FeedbackGroups& result) { result = scalepoint::feedback_groups(type); }

/// moments: columns * columns floats; NaN and infinities count as 0. scratch: 3 doubles for each column. order: one number for each column.
void falling_order(const float* moments, uint32_t columns, const FeedbackGroups& groups, double* scratch, uint32_t* order) {
  auto* const diagonal = reinterpret_cast<float*>(scratch + 2 * size_t{columns});
  for (size_t i = 0; i < columns; i++) {
    const float square = moments[i * columns + i];
    diagonal[i] = std::isfinite(square) ? square : 0;
  }
  scalepoint::falling_order({diagonal, columns}, groups, {scratch, 2 * size_t{columns}}, {order, columns});
}

/// moments: columns * columns floats. feedback: the same; weights: one for each column. order: null, or that of falling_order.
Status factor_moments(const float* moments, uint32_t columns, double damping, const uint32_t* order, double* scratch,
                      float* feedback, float* weights, FactorDamping& result) {
  const size_t size = size_t{columns} * columns;
  for (size_t i = 0; i < size; i++) {
    if (!std::isfinite(moments[i])) return Status::kNonFinite;
  }
  for (size_t j = 0; j < columns; j++) {
    const float* const row = moments + (order == nullptr ? j : order[j]) * columns;
    for (size_t i = 0; i < columns; i++) scratch[j * columns + i] = row[order == nullptr ? i : order[i]];
  }
  return scalepoint::factor_moments({scratch, size}, columns, damping, {scratch + size, factor_scratch_size(columns)},
                                    {feedback, size}, {weights, columns}, result.used);
}

/// The first entry of n * n moments that is not finite, is a negative square, or differs from its mirror image by more than a thousandth of
/// what both columns allow; n * n without.
size_t check_moments(const float* moments, uint32_t n) {
  for (size_t j = 0; j < n; j++) {
    for (size_t i = 0; i < n; i++) {
      const float value = moments[j * n + i];
      if (!std::isfinite(value)) return j * n + i;
    }
    if (moments[j * n + j] < 0) return j * n + j;
  }
  constexpr double kShare = 1e-3;
  for (size_t j = 0; j < n; j++) {
    for (size_t i = 0; i < j; i++) {
      const double difference = std::fabs(double{moments[j * n + i]} - moments[i * n + j]);
      const double most = std::sqrt(double{moments[i * n + i]} * moments[j * n + j]);
      if (difference > kShare * most) return j * n + i;
    }
  }
  return size_t{n} * n;
}

/// The diagonal of n * n moments.
void moments_diagonal(const float* moments, uint32_t n, float* diagonal) {
  for (size_t i = 0; i < n; i++) diagonal[i] = moments[i * n + i];
}

/// Codes of `rows` rows of floats. kOverflow if a scale or what rounding passes on leaves float32.
Status quantize_by_moments(const float* w, uint32_t rows, const MatrixByMoments& matrix, const codecs::Moments& moments,
                           codecs::Arena* arena, MatrixCodes& result) {
  const int32_t lowest = matrix.dtype.is_signed ? -(1 << (matrix.dtype.bits - 1)) : 0;
  codecs::InputMatrix form;
  form.rows = rows;
  form.columns = matrix.columns;
  form.group_size = matrix.group_size;
  form.bits = matrix.dtype.bits;
  form.symmetric = matrix.symmetric;
  form.importance = matrix.importance;
  form.moments = &moments;
  const size_t sets = form.sets();
  if (matrix.scales != nullptr) {
    auto* const zero_points = arena->take<float>(sets);
    if (arena->status() != Status::kOk) return arena->status();
    for (size_t i = 0; i < sets; i++) zero_points[i] = static_cast<float>(matrix.zero_points[i] - lowest);
    form.given_scales = matrix.scales;
    form.given_zero_points = zero_points;
  }
  codecs::InputCodes made;
  result.sums = {};
  if (const Status status = codecs::make_input_codes({w, form.size()}, form, *arena, made, &result.sums); status != Status::kOk) {
    return status;
  }
  auto* const zero_points = arena->take<int32_t>(sets);
  if (arena->status() != Status::kOk) return arena->status();
  for (size_t i = 0; i < sets; i++) {
    if (!std::isfinite(made.scales[i])) return Status::kOverflow;
    zero_points[i] = static_cast<int32_t>(made.zero_points[i]) + lowest;
  }
  for (size_t i = 0; i < form.size(); i++) made.codes[i] = static_cast<uint8_t>(made.codes[i] + lowest);
  result.codes = reinterpret_cast<const std::byte*>(made.codes);
  result.scales = made.scales;
  result.zero_points = zero_points;
  return Status::kOk;
}

/// sums[i] += more[i], for n sums.
void add_sums(const double* more, uint32_t n, double* sums) {
  for (uint32_t i = 0; i < n; i++) sums[i] += more[i];
}

// ----------------------------------------------------------------------------------------------------------------- language

/// x and y: `rows` rows of `width` floats, which may be the same.
Status rms_norm(const float* x, uint32_t rows, const float* weight, uint32_t width, float epsilon, float add, float* y) {
  return scalepoint::rms_norm({x, size_t{rows} * width}, {weight, width}, epsilon, add, {y, size_t{rows} * width});
}

/// bias: `width` floats or null.
Status layer_norm(const float* x, uint32_t rows, const float* weight, const float* bias, uint32_t width, float epsilon,
                  float* y) {
  const size_t n = size_t{rows} * width;
  return scalepoint::layer_norm({x, n}, {weight, width}, {bias, bias == nullptr ? 0 : width}, epsilon, {y, n});
}

/// x: `rows` rows of heads * head_size floats, changed in place. positions: one for each row.
Status rotate(float* x, uint32_t rows, const RotarySpec& spec, const uint32_t* positions, const double* frequencies, uint32_t n) {
  return scalepoint::rotate({x, size_t{rows} * spec.heads * spec.head_size}, spec, {positions, rows}, {frequencies, n});
}

/// sinks: spec.heads floats or null. y: `tokens` rows of heads * head_size floats. scratch: a float for each token of a text.
Status attend(const float* q, const float* k, const float* v, const float* sinks, uint32_t tokens, const AttentionSpec& spec,
              float* scratch, float* y) {
  const size_t queries = size_t{tokens} * spec.heads * spec.head_size;
  const size_t keys = (size_t{spec.before} + tokens) * spec.key_heads * spec.head_size;
  return scalepoint::attend({q, queries}, {k, keys}, {v, keys}, {sinks, sinks == nullptr ? 0 : spec.heads}, spec,
                            {scratch, attention_scratch_size(spec)}, {y, queries});
}

/// x and y: n floats.
Status add_scaled(float factor, const float* x, uint32_t n, float* y) { return scalepoint::add_scaled(factor, {x, n}, {y, n}); }

/// scores: spec.experts floats for each token. biases: as many or null. chosen, shares: spec.used for each token.
Status route_experts(const float* scores, const float* biases, uint32_t tokens, const RouteSpec& spec, uint32_t* chosen,
                     float* shares) {
  const size_t n = size_t{tokens} * spec.used;
  return scalepoint::route_experts({scores, size_t{tokens} * spec.experts}, {biases, biases == nullptr ? 0 : spec.experts}, spec,
                                   {chosen, n}, {shares, n});
}

/// x: n floats, changed in place.
void scale_floats(float factor, float* x, uint32_t n) { scalepoint::scale_floats(factor, {x, n}); }
Status clamp_floats(float bound, float* x, uint32_t n) { return scalepoint::clamp_floats(bound, {x, n}); }
Status cap_softly(float cap, float* x, uint32_t n) { return scalepoint::cap_softly(cap, {x, n}); }

/// up: n floats or null. y may be gate.
Status apply_gate(Gate kind, const float* gate, const float* up, uint32_t n, float* y) {
  return scalepoint::apply_gate(kind, {gate, n}, {up, up == nullptr ? 0 : n}, {y, n});
}

/// reference: n logits or null.
Status judge_token(const float* logits, const float* reference, uint32_t n, uint32_t token, TokenJudgment& result) {
  return scalepoint::judge_token({logits, n}, {reference, reference == nullptr ? 0 : n}, token, result);
}

}  // namespace
}  // namespace scalepoint::door

// Made by scripts/make_door.mjs: gives each of these functions to JavaScript.
#ifndef SCALEPOINT_DESCRIBE_DOOR
#include "door_exports_models.h"
#endif

// The door to JavaScript for arrays: the calls of both modules. They take numbers and addresses, return a Status, and contain no logic.
// Each function here is a call of CoreModule in web/src/core/door.ts; door.h describes the mapping. References and pointers travel as
// addresses, 64-bit counts as double. A call takes at most eight numbers; records hold the rest of its arguments. The TypeScript side has
// checked every argument.
#include <algorithm>
#include <cstdlib>

#include "door.h"

namespace scalepoint::door {
namespace {

// ------------------------------------------------------------------------------------------------------------------- module

/// Ties a wasm file to the TypeScript that was built with it.
uint32_t build_id() { return SCALEPOINT_BUILD_ID; }

bool is_simd() { return scalepoint::is_simd(); }

/// Allocates `bytes`. Returns their address, or 0 if memory is full.
std::byte* allocate(size_t bytes) { return static_cast<std::byte*>(std::malloc(bytes)); }

void release(std::byte* address) { std::free(address); }

// --------------------------------------------------------------------------------------------------------- linear quantization

SCALEPOINT_PLAIN_EXPORT void clear_range(float* min, float* max, size_t n) { scalepoint::clear_range({min, n}, {max, n}); }

/// Widens min and max, one a parameter of the job, by n elements from `start` on.
SCALEPOINT_PLAIN_EXPORT Status observe(const LinearJob& job, const float* x, size_t n, uint64_t start, float* min, float* max) {
  return scalepoint::observe({x, n}, job.layout, start, job.spec.non_finite, {min, job.parameters}, {max, job.parameters});
}

/// Fills the job's scales and zero points.
SCALEPOINT_PLAIN_EXPORT Status choose_qparams(const LinearJob& job, const float* min, const float* max) {
  return scalepoint::choose_qparams({min, job.parameters}, {max, job.parameters}, job.spec, job.scales(), job.zero_points());
}

/// weighted: with importance.
uint64_t search_scratch_bytes(const Layout& layout, uint64_t size, bool weighted) {
  return scalepoint::search_scratch_bytes(size, layout, weighted);
}

/// Fills the job's scales and zero points. x: the whole array. scratch: bytes as search_scratch_bytes says.
Status search_qparams(const LinearJob& job, const float* x, size_t n, RangeMethod method, double percentile, std::byte* scratch,
                      size_t bytes) {
  return scalepoint::search_qparams({x, n}, job.layout, job.spec, method, percentile, {scratch, bytes}, job.scales(),
                                    job.zero_points());
}

/// The same by kMse, with the importance of each column.
SCALEPOINT_PLAIN_EXPORT Status search_important_qparams(const LinearJob& job, const float* x, size_t n, const float* importance,
                                                        size_t columns, std::byte* scratch, size_t bytes) {
  return scalepoint::search_qparams({x, n}, job.layout, job.spec, RangeMethod::kMse, 100, {scratch, bytes}, job.scales(),
                                    job.zero_points(), {importance, columns});
}

/// Fills the job's one scale and zero point, for n pairs of a value and its count, which are overwritten. scratch: bytes as
/// search_scratch_bytes says for an empty array.
SCALEPOINT_PLAIN_EXPORT Status search_weighted(const LinearJob& job, float* pairs, size_t n, RangeMethod method,
                                               std::byte* scratch, size_t bytes) {
  return scalepoint::search_weighted({pairs, 2 * n}, job.spec, method, {scratch, bytes}, job.scales()[0], job.zero_points()[0]);
}

/// n codes from element `start` on.
SCALEPOINT_PLAIN_EXPORT Status quantize_linear(const LinearJob& job, const float* x, size_t n, uint64_t start, std::byte* codes) {
  return scalepoint::quantize_linear({x, n}, job.layout, start, job.scales(), job.zero_points(), job.spec, job.codes(codes, n));
}

/// The same, and adds the errors of the codes to the sums.
SCALEPOINT_PLAIN_EXPORT Status quantize_linear_measured(const LinearJob& job, const float* x, size_t n, uint64_t start,
                                                        std::byte* codes, ErrorSums& sums) {
  return scalepoint::quantize_linear_measured({x, n}, job.layout, start, job.scales(), job.zero_points(), job.spec,
                                              job.codes(codes, n), sums);
}

/// Range, parameters and codes of whole runs in one pass. scale and zero_point: one for each of these runs.
SCALEPOINT_PLAIN_EXPORT Status quantize_runs(const QuantizationSpec& spec, const float* x, size_t n, size_t line_size,
                                             size_t run_size, float* scale, int32_t* zero_point, std::byte* codes) {
  const size_t runs = n / line_size * ((line_size + run_size - 1) / run_size);
  return scalepoint::quantize_runs({x, n}, line_size, run_size, spec, {scale, runs}, {zero_point, runs},
                                   {codes, n * spec.dtype.storage_bytes()});
}

SCALEPOINT_PLAIN_EXPORT Status dequantize_linear(const LinearJob& job, const std::byte* codes, size_t n, uint64_t start,
                                                 float* x) {
  return scalepoint::dequantize_linear(job.codes(codes, n), job.spec.dtype, job.layout, start, job.scales(), job.zero_points(),
                                       {x, n});
}

/// n codes of at most 8 bits, or of 16, packed densely.
SCALEPOINT_PLAIN_EXPORT Status pack(const std::byte* codes, size_t n, const DType& dtype, std::byte* packed) {
  return scalepoint::pack({codes, n * dtype.storage_bytes()}, dtype, packed_span(packed, n, dtype.bits));
}

/// The reverse of pack, for n codes.
SCALEPOINT_PLAIN_EXPORT Status unpack(const std::byte* packed, size_t n, const DType& dtype, std::byte* codes) {
  return scalepoint::unpack(packed_span(packed, n, dtype.bits), dtype, {codes, n * dtype.storage_bytes()});
}

/// The index of the first of n codes outside of a type of at most 8 bits, or n.
size_t first_outside(const uint8_t* codes, size_t n, const DType& dtype) { return scalepoint::first_outside({codes, n}, dtype); }

// ----------------------------------------------------------------------------------------------------------------- measures

SCALEPOINT_PLAIN_EXPORT Status accumulate_error(const float* x, const float* y, size_t n, ErrorSums& sums) {
  return scalepoint::accumulate_error({x, n}, {y, n}, sums);
}

SCALEPOINT_PLAIN_EXPORT Status accumulate_code_error(const LinearJob& job, const float* x, size_t n, uint64_t start,
                                                     const std::byte* codes, ErrorSums& sums) {
  return scalepoint::accumulate_code_error({x, n}, job.codes(codes, n), job.spec.dtype, job.layout, start, job.scales(),
                                           job.zero_points(), sums);
}

/// sums: one a parameter of the layout.
SCALEPOINT_PLAIN_EXPORT Status accumulate_error_each(const Layout& layout, const float* x, const float* y, size_t n,
                                                     uint64_t start, ErrorSums* sums, size_t parameters) {
  return scalepoint::accumulate_error_each({x, n}, {y, n}, layout, start, {sums, parameters});
}

/// The index of the first NaN or infinity, or n.
size_t first_non_finite(const float* x, size_t n) { return scalepoint::first_non_finite({x, n}); }

/// below_above: two sums.
SCALEPOINT_PLAIN_EXPORT Status histogram(const float* x, size_t n, float min, float max, uint32_t* counts, size_t bins,
                                         double* below_above) {
  return scalepoint::histogram({x, n}, min, max, {counts, bins}, below_above, below_above + 1);
}

/// Adds the squares of n elements of rows to the sums of their columns.
Status add_squares(const float* x, size_t n, size_t first, double* sums, size_t columns) {
  return scalepoint::add_squares({x, n}, first, {sums, columns});
}

// ------------------------------------------------------------------------------------------------------------- ggml's blocks

/// True if the module restores blocks of a type, and makes them with that search.
bool has_blocks(BlockType type, BlockSearch search) { return scalepoint::has_blocks(type, search); }

/// n elements.
SCALEPOINT_PLAIN_EXPORT Status quantize_blocks(const float* x, size_t n, BlockType type, std::byte* blocks) {
  return scalepoint::quantize_blocks({x, n}, type, {blocks, blocks_bytes(type, n)});
}

/// n elements in rows of `columns`, each with the importance of its column.
Status quantize_weighted_blocks(const float* x, size_t n, BlockType type, const float* importance, size_t columns,
                                BlockSearch search, std::byte* blocks) {
  return scalepoint::quantize_blocks({x, n}, type, {blocks, blocks_bytes(type, n)}, {importance, columns}, search);
}

/// n elements.
SCALEPOINT_PLAIN_EXPORT Status dequantize_blocks(const std::byte* blocks, size_t n, BlockType type, float* x) {
  return scalepoint::dequantize_blocks({blocks, blocks_bytes(type, n)}, type, {x, n});
}

// ------------------------------------------------------------------------------------------------------------- float formats

SCALEPOINT_PLAIN_EXPORT Status widen_float16(const uint16_t* bits, size_t n, float* x) {
  return float16_to_float32({bits, n}, {x, n});
}

SCALEPOINT_PLAIN_EXPORT Status widen_bfloat16(const uint16_t* bits, size_t n, float* x) {
  return bfloat16_to_float32({bits, n}, {x, n});
}

SCALEPOINT_PLAIN_EXPORT Status narrow_float16(const float* x, size_t n, uint16_t* bits) {
  return float32_to_float16({x, n}, {bits, n});
}

SCALEPOINT_PLAIN_EXPORT Status narrow_bfloat16(const float* x, size_t n, uint16_t* bits) {
  return float32_to_bfloat16({x, n}, {bits, n});
}

SCALEPOINT_PLAIN_EXPORT Status narrow_minifloat(const float* x, size_t n, Minifloat format, Overflow overflow, uint8_t* bits) {
  return float32_to_minifloat({x, n}, format, overflow, {bits, n});
}

SCALEPOINT_PLAIN_EXPORT Status widen_minifloat(const uint8_t* bits, size_t n, Minifloat format, float* x) {
  return minifloat_to_float32({bits, n}, format, {x, n});
}

// ---------------------------------------------------------------------------------------------------------------- codebooks

/// Raises the absmax of the blocks with n elements from `start` on.
SCALEPOINT_PLAIN_EXPORT Status observe_absmax(const CodebookJob& job, const float* x, size_t n, uint64_t start) {
  return scalepoint::observe_absmax({x, n}, job.blocks(start), job.scales(n, start));
}

Status round_absmax(float* absmax, size_t n) { return scalepoint::round_absmax({absmax, n}); }

/// Replaces the absmax of the blocks that begin with element `start`.
Status search_absmax(const CodebookJob& job, const float* x, size_t n, uint64_t start, bool rounded) {
  return scalepoint::search_absmax({x, n}, job.block_size, job.book(), job.decision, rounded, job.scales(n, start));
}

SCALEPOINT_PLAIN_EXPORT Status quantize_codebook(const CodebookJob& job, const float* x, size_t n, uint64_t start,
                                                 uint8_t* codes) {
  return scalepoint::quantize_codebook({x, n}, job.blocks(start), job.scales(n, start), job.book(), job.decision, {codes, n});
}

SCALEPOINT_PLAIN_EXPORT Status dequantize_codebook(const CodebookJob& job, const uint8_t* codes, size_t n, uint64_t start,
                                                   float* x) {
  return scalepoint::dequantize_codebook({codes, n}, job.blocks(start), job.scales(n, start), job.book(), {x, n});
}

SCALEPOINT_PLAIN_EXPORT Status accumulate_codebook_error(const CodebookJob& job, const float* x, size_t n, uint64_t start,
                                                         const uint8_t* codes, ErrorSums& sums) {
  return scalepoint::accumulate_codebook_error({x, n}, {codes, n}, job.blocks(start), job.scales(n, start), job.book(), sums);
}

/// Writes the 16 values of a published codebook.
void published_codebook(PublishedCodebook codebook, float* values) {
  const std::span<const float> from = scalepoint::published_codebook(codebook);
  std::copy(from.begin(), from.end(), values);
}

size_t codebook_learner_bytes() { return scalepoint::codebook_learner_bytes(); }

Status clear_codebook_learner(std::byte* learner) {
  return scalepoint::clear_codebook_learner({learner, scalepoint::codebook_learner_bytes()});
}

/// Adds n elements from `start` on to the learner.
Status observe_codebook(const CodebookJob& job, const float* x, size_t n, uint64_t start, std::byte* learner) {
  return scalepoint::observe_codebook({x, n}, job.blocks(start), job.scales(n, start),
                                      {learner, scalepoint::codebook_learner_bytes()});
}

/// Fills the job's codebook with the learned values.
Status learn_codebook(const CodebookJob& job, std::byte* learner) {
  return scalepoint::learn_codebook({learner, scalepoint::codebook_learner_bytes()}, job.book());
}

SCALEPOINT_PLAIN_EXPORT Status pack_codebook(const uint8_t* codes, size_t n, size_t values, int32_t bits, std::byte* packed) {
  return scalepoint::pack_codebook({codes, n}, values, bits, packed_span(packed, n, bits));
}

SCALEPOINT_PLAIN_EXPORT Status unpack_codebook(const std::byte* packed, size_t n, int32_t bits, uint8_t* codes) {
  return scalepoint::unpack_codebook(packed_span(packed, n, bits), bits, {codes, n});
}

// ------------------------------------------------------------------------------------------------------------------- layers

uint64_t layer_bytes(const LayerSpec& spec) { return scalepoint::layer_bytes(spec); }

uint64_t layer_workspace_bytes(const PackedLayer& layer, uint32_t batch) {
  return scalepoint::layer_workspace_bytes(layer.spec, batch);
}

Status make_layer(const PackedLayer& layer, int32_t zero_point) {
  return scalepoint::make_layer(layer.spec, zero_point, layer.memory());
}

/// Codes of whole rows, from `row` on. The job holds their dtype, scales and zero points.
Status set_layer_codes(const PackedLayer& layer, uint32_t row, const std::byte* codes, size_t n, const LinearJob& job) {
  return scalepoint::set_layer_codes(layer.memory(), row, {codes, n}, job.spec.dtype, job.scales(), job.zero_points());
}

/// Codes of int8 of whole rows, from `row` on.
Status get_layer_codes(const PackedLayer& layer, uint32_t row, std::byte* codes, size_t n) {
  return scalepoint::get_layer_codes(layer.memory(), row, {codes, n});
}

/// The sum of the squares of each of `rows` rows of codes of int8.
void sums_of_squares(const int8_t* codes, size_t rows, size_t columns, double* sums) {
  scalepoint::sums_of_squares({codes, rows * columns}, {sums, rows});
}

/// n bytes of blocks.
Status set_layer_blocks(const PackedLayer& layer, uint32_t row, const std::byte* blocks, size_t n, BlockType type) {
  return scalepoint::set_layer_blocks(layer.memory(), row, {blocks, n}, type);
}

Status set_layer_floats(const PackedLayer& layer, uint32_t row, const float* x, size_t n) {
  return scalepoint::set_layer_floats(layer.memory(), row, {x, n});
}

Status set_layer_bias(const PackedLayer& layer, const float* bias, size_t n) {
  return scalepoint::set_layer_bias(layer.memory(), {bias, n});
}

/// y: one row for each of the `batch` rows of x. workspace: bytes as layer_workspace_bytes says.
SCALEPOINT_PLAIN_EXPORT Status layer_forward(const PackedLayer& layer, const float* x, uint32_t batch, float* y,
                                             std::byte* workspace, size_t workspace_bytes) {
  return scalepoint::layer_forward(layer.memory(), {x, layer.spec.columns * batch}, batch, {y, layer.spec.rows * batch},
                                   {workspace, workspace_bytes});
}

/// One score for each of n rows, from `row` on.
Status layer_scores(const PackedLayer& layer, const float* x, uint32_t row, double* scores, size_t n, std::byte* workspace,
                    size_t workspace_bytes) {
  return scalepoint::layer_scores(layer.memory(), {x, layer.spec.columns}, row, {scores, n}, {workspace, workspace_bytes});
}

}  // namespace
}  // namespace scalepoint::door

// Made by scripts/make_door.mjs: gives each of these functions to JavaScript, and checks the enums and records of door.ts.
#ifndef SCALEPOINT_DESCRIBE_DOOR
#include "door_exports_arrays.h"
#endif

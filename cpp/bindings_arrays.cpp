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

// ------------------------------------------------------------------------------------------------------------------- search

/// Words of the signs of a rotation.
size_t rotation_words(size_t dimension) { return scalepoint::rotation_words(dimension); }

/// signs: rotation_words.
void make_rotation(uint32_t seed, size_t dimension, uint32_t* signs) {
  scalepoint::make_rotation(seed, dimension, {signs, scalepoint::rotation_words(dimension)});
}

/// Bytes of the codes of a vector.
uint32_t search_vector_bytes(const SearchSpec& spec) { return spec.vector_bytes(); }

/// Bytes of a prepared query.
size_t search_query_bytes(const SearchSpec& spec) { return scalepoint::query_bytes(spec); }

/// x: 8 floats for each byte.
void floats_of_bits(const uint8_t* bytes, size_t count, uint32_t flip, float* x) {
  scalepoint::floats_of_bits({bytes, count}, static_cast<uint8_t>(flip), {x, count * 8});
}

/// ranges: all starts, then all ends.
void floats_of_ranges(const uint8_t* codes, size_t rows, size_t dimension, bool is_signed, const float* ranges, float* x) {
  scalepoint::floats_of_ranges({codes, rows * dimension}, is_signed, {ranges, dimension}, {ranges + dimension, dimension},
                               {x, rows * dimension});
}

/// sums: one for each coordinate.
Status add_to_center(const SearchSpec& spec, const float* x, size_t rows, double* sums) {
  return scalepoint::add_to_center(spec, {x, rows * spec.dimension}, {sums, spec.dimension});
}

void finish_center(const double* sums, double rows, size_t dimension, float* center) {
  scalepoint::finish_center({sums, dimension}, rows, {center, dimension});
}

/// Makes the codes of rows of floats, as the vectors from `first` on. scratch: two floats for each coordinate.
Status encode_vectors(const SearchSpec& spec, const SearchFrame& frame, const float* x, size_t rows, uint32_t first,
                      const SearchPart& part, float* scratch) {
  return scalepoint::encode_vectors(spec, frame, {x, rows * spec.dimension}, first, part, {scratch, search_scratch_size(spec)});
}

/// Takes rows with a bit for each element, the first with the highest bit, each bit of a byte times -1 where `flip` has a 1.
Status take_bits(const SearchSpec& spec, const uint8_t* bytes, size_t row_bytes, size_t rows, uint32_t flip, uint32_t first,
                 const SearchPart& part) {
  return scalepoint::take_bits(spec, {bytes, rows * row_bytes}, row_bytes, static_cast<uint8_t>(flip), first, part);
}

/// Takes codes of 8 bits, with one scale for each row.
Status take_codes(const SearchSpec& spec, const int8_t* codes, const float* scales, size_t rows, uint32_t first,
                  const SearchPart& part) {
  return scalepoint::take_codes(spec, {codes, rows * spec.dimension}, {scales, rows}, first, part);
}

/// Finds the bounds of blocks whose factors or extras were written.
Status bound_blocks(const SearchPart& part, uint32_t first, uint32_t rows) { return scalepoint::bound_blocks(part, first, rows); }

/// The reverse of take_codes.
Status read_codes(const SearchSpec& spec, const SearchPart& part, uint32_t first, size_t rows, int8_t* codes, float* scales) {
  return scalepoint::read_codes(spec, part, first, {codes, rows * spec.dimension}, {scales, rows});
}

/// query: search_query_bytes, at a multiple of 16. scratch: two floats for each coordinate.
Status prepare_query(const SearchSpec& spec, const SearchFrame& frame, const float* x, std::byte* query, float* scratch) {
  return scalepoint::prepare_query(spec, frame, {x, spec.dimension}, {query, query_bytes(spec)},
                                   {scratch, search_scratch_size(spec)});
}

/// Empties a list of at most k vectors.
void start_best(BestList* best, float* scores, uint32_t* indices, uint32_t k) { *best = {scores, indices, k, 0}; }

/// Bytes of scratch memory of scan_part.
size_t scan_scratch_bytes(const SearchSpec& spec, size_t count) { return scalepoint::scan_scratch_bytes(spec, count); }

/// Offers the vectors of a part to the lists of `count` queries, which follow each other. allowed: one bit for each vector. scratch:
/// scan_scratch_bytes, at a multiple of 16.
Status scan_part(const SearchSpec& spec, const SearchPart& part, const uint32_t* allowed, uint32_t first_index,
                 const std::byte* queries, BestList* best, size_t count, std::byte* scratch) {
  return scalepoint::scan_part(spec, part, {allowed, part.capacity / kBlockVectors}, first_index,
                               {queries, count * query_bytes(spec)}, {best, count},
                               {scratch, scalepoint::scan_scratch_bytes(spec, count)});
}

/// Offers `count` vectors that other lists hold, with their scored values.
void merge_best(const float* scores, const uint32_t* indices, size_t count, BestList* best) {
  scalepoint::merge_best({scores, count}, {indices, count}, *best);
}

/// Sorts a list, and turns its entries into scores.
void finish_best(const SearchSpec& spec, const std::byte* query, BestList& best) {
  scalepoint::finish_best(spec, *reinterpret_cast<const SearchQuery*>(query), best);
}

/// Bytes of a row that is kept to score it again.
size_t stored_row_bytes(StoredRow kind, size_t dimension) { return scalepoint::stored_row_bytes(kind, dimension); }

/// Keeps rows of floats.
Status store_rows(StoredRow kind, const float* x, size_t rows, size_t dimension, std::byte* to) {
  return scalepoint::store_rows(kind, {x, rows * dimension}, dimension,
                                {to, rows * scalepoint::stored_row_bytes(kind, dimension)});
}

/// The exact scores of a query against rows at some addresses. scratch: a float for each coordinate.
void score_rows(Metric metric, const float* query, size_t dimension, StoredRow kind, const uint32_t* rows, size_t count,
                double* scores, float* scratch) {
  const double squares = scalepoint::squared_norm({query, dimension});
  for (size_t i = 0; i < count; i++) {
    const auto* const row = reinterpret_cast<const std::byte*>(static_cast<uintptr_t>(rows[i]));
    scores[i] = score_row(metric, {query, dimension}, squares, kind, row, {scratch, dimension});
  }
}

}  // namespace
}  // namespace scalepoint::door

// Made by scripts/make_door.mjs: gives each of these functions to JavaScript, and checks the enums and records of door.ts.
#ifndef SCALEPOINT_DESCRIBE_DOOR
#include "door_exports_arrays.h"
#endif

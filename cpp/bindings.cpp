// The door to JavaScript, and the only file that knows Emscripten: numbers and addresses in, a Status out, no logic. Counts that
// may pass 2^32 travel as double. The TypeScript side (web/src/wasm.ts) has checked every argument.
#include <emscripten.h>
#include <emscripten/bind.h>

#include <algorithm>

#include "scalepoint.h"

namespace {

using namespace scalepoint;
using Address = uint32_t;

template <class T>
std::span<T> span_at(Address address, size_t size) {
  return {reinterpret_cast<T*>(address), size};
}

Layout layout_of(int kind, double axis_size, double inner_size, double group_size) {
  return {static_cast<Granularity>(kind), static_cast<uint64_t>(axis_size), static_cast<uint64_t>(inner_size),
          static_cast<uint64_t>(group_size)};
}

/// A spec in one number, so that calls stay short: bits in the low five bits, then one bit each for signed, asymmetric, full
/// symmetric range and include zero, two for the rounding, one for saturate.
QuantizationSpec spec_of(uint32_t packed) {
  return {.dtype = {static_cast<int32_t>(packed & 31), (packed >> 5 & 1) != 0},
          .scheme = static_cast<Scheme>(packed >> 6 & 1),
          .symmetric_range = static_cast<SymmetricRange>(packed >> 7 & 1),
          .include_zero = (packed >> 8 & 1) != 0,
          .rounding = static_cast<Rounding>(packed >> 9 & 3),
          .non_finite = static_cast<NonFinite>(packed >> 11 & 1)};
}

int choose(Address min, Address max, size_t n, uint32_t spec, Address scale, Address zero_point) {
  return static_cast<int>(choose_qparams(span_at<const float>(min, n), span_at<const float>(max, n), spec_of(spec),
                                         span_at<float>(scale, n), span_at<int32_t>(zero_point, n)));
}

void clear(Address min, Address max, size_t n) { clear_range(span_at<float>(min, n), span_at<float>(max, n)); }

int observe_piece(Address x, size_t n, int kind, double axis_size, double inner_size, double group_size, double start,
                  uint32_t spec, Address min, Address max, size_t parameters) {
  return static_cast<int>(observe(span_at<const float>(x, n), layout_of(kind, axis_size, inner_size, group_size),
                                  static_cast<uint64_t>(start), spec_of(spec).non_finite, span_at<float>(min, parameters),
                                  span_at<float>(max, parameters)));
}

int quantize_piece(Address x, size_t n, int kind, double axis_size, double inner_size, double group_size, double start,
                   Address scale, Address zero_point, size_t parameters, uint32_t spec, Address codes) {
  const QuantizationSpec s = spec_of(spec);
  return static_cast<int>(quantize_linear(span_at<const float>(x, n), layout_of(kind, axis_size, inner_size, group_size),
                                          static_cast<uint64_t>(start), span_at<const float>(scale, parameters),
                                          span_at<const int32_t>(zero_point, parameters), s,
                                          span_at<std::byte>(codes, n * s.dtype.storage_bytes())));
}

int quantize_piece_measured(Address x, size_t n, int kind, double axis_size, double inner_size, double group_size, double start,
                            Address scale, Address zero_point, size_t parameters, uint32_t spec, Address codes, Address sums) {
  const QuantizationSpec s = spec_of(spec);
  return static_cast<int>(quantize_linear_measured(
      span_at<const float>(x, n), layout_of(kind, axis_size, inner_size, group_size), static_cast<uint64_t>(start),
      span_at<const float>(scale, parameters), span_at<const int32_t>(zero_point, parameters), s,
      span_at<std::byte>(codes, n * s.dtype.storage_bytes()), *reinterpret_cast<ErrorSums*>(sums)));
}

int dequantize_piece(Address codes, size_t n, int kind, double axis_size, double inner_size, double group_size, double start,
                     Address scale, Address zero_point, size_t parameters, uint32_t spec, Address x) {
  const DType dtype = spec_of(spec).dtype;
  return static_cast<int>(dequantize_linear(span_at<const std::byte>(codes, n * dtype.storage_bytes()), dtype,
                                            layout_of(kind, axis_size, inner_size, group_size), static_cast<uint64_t>(start),
                                            span_at<const float>(scale, parameters),
                                            span_at<const int32_t>(zero_point, parameters), span_at<float>(x, n)));
}

double bytes_to_search(double size, int kind, double axis_size, double inner_size, double group_size) {
  return static_cast<double>(
      search_scratch_bytes(static_cast<uint64_t>(size), layout_of(kind, axis_size, inner_size, group_size)));
}

int search(Address x, size_t n, int kind, double axis_size, double inner_size, double group_size, uint32_t spec, int method,
           double percentile, Address scratch, size_t bytes, Address scale, Address zero_point, size_t parameters) {
  return static_cast<int>(search_qparams(span_at<const float>(x, n), layout_of(kind, axis_size, inner_size, group_size),
                                         spec_of(spec), static_cast<RangeMethod>(method), percentile,
                                         span_at<std::byte>(scratch, bytes), span_at<float>(scale, parameters),
                                         span_at<int32_t>(zero_point, parameters)));
}

int take_better_runs(Address x, size_t run_size, uint32_t spec, Address scale, Address zero_point, Address other_scale,
                     Address other_zero_point, size_t runs) {
  return static_cast<int>(take_better(span_at<const float>(x, runs * run_size), run_size, spec_of(spec).dtype,
                                      span_at<float>(scale, runs), span_at<int32_t>(zero_point, runs),
                                      span_at<const float>(other_scale, runs), span_at<const int32_t>(other_zero_point, runs)));
}

int add_error(Address x, Address y, size_t n, Address sums) {
  return static_cast<int>(
      accumulate_error(span_at<const float>(x, n), span_at<const float>(y, n), *reinterpret_cast<ErrorSums*>(sums)));
}

int add_code_error(Address x, size_t n, Address codes, int kind, double axis_size, double inner_size, double group_size,
                   double start, Address scale, Address zero_point, size_t parameters, uint32_t spec, Address sums) {
  const DType dtype = spec_of(spec).dtype;
  return static_cast<int>(accumulate_code_error(
      span_at<const float>(x, n), span_at<const std::byte>(codes, n * dtype.storage_bytes()), dtype,
      layout_of(kind, axis_size, inner_size, group_size), static_cast<uint64_t>(start), span_at<const float>(scale, parameters),
      span_at<const int32_t>(zero_point, parameters), *reinterpret_cast<ErrorSums*>(sums)));
}

int add_error_each(Address x, Address y, size_t n, int kind, double axis_size, double inner_size, double group_size, double start,
                   Address sums, size_t parameters) {
  return static_cast<int>(accumulate_error_each(span_at<const float>(x, n), span_at<const float>(y, n),
                                                layout_of(kind, axis_size, inner_size, group_size), static_cast<uint64_t>(start),
                                                span_at<ErrorSums>(sums, parameters)));
}

uint32_t find_non_finite(Address x, size_t n) { return first_non_finite(span_at<const float>(x, n)); }

int add_histogram(Address x, size_t n, float min, float max, Address counts, size_t bins, Address below_above) {
  auto* outside = reinterpret_cast<double*>(below_above);
  return static_cast<int>(histogram(span_at<const float>(x, n), min, max, span_at<uint32_t>(counts, bins), outside, outside + 1));
}

int pack_codes(Address codes, size_t n, uint32_t spec, Address packed) {
  const DType dtype = spec_of(spec).dtype;
  return static_cast<int>(pack(span_at<const std::byte>(codes, n * dtype.storage_bytes()), dtype,
                               span_at<std::byte>(packed, packed_bytes(n, dtype.bits))));
}

int unpack_codes(Address packed, size_t n, uint32_t spec, Address codes) {
  const DType dtype = spec_of(spec).dtype;
  return static_cast<int>(unpack(span_at<const std::byte>(packed, packed_bytes(n, dtype.bits)), dtype,
                                 span_at<std::byte>(codes, n * dtype.storage_bytes())));
}

int quantize_to_blocks(Address x, size_t n, int type, Address blocks) {
  const auto [elements, bytes] = block_size(static_cast<BlockType>(type));
  const size_t size = elements == 0 ? 0 : n / elements * bytes;
  return static_cast<int>(
      quantize_blocks(span_at<const float>(x, n), static_cast<BlockType>(type), span_at<std::byte>(blocks, size)));
}

int dequantize_from_blocks(Address blocks, size_t n, int type, Address x) {
  const auto [elements, bytes] = block_size(static_cast<BlockType>(type));
  const size_t size = elements == 0 ? 0 : n / elements * bytes;
  return static_cast<int>(
      dequantize_blocks(span_at<const std::byte>(blocks, size), static_cast<BlockType>(type), span_at<float>(x, n)));
}

int widen_float16(Address bits, size_t n, Address x) {
  return static_cast<int>(float16_to_float32(span_at<const uint16_t>(bits, n), span_at<float>(x, n)));
}

int widen_bfloat16(Address bits, size_t n, Address x) {
  return static_cast<int>(bfloat16_to_float32(span_at<const uint16_t>(bits, n), span_at<float>(x, n)));
}

int narrow_float16(Address x, size_t n, Address bits) {
  return static_cast<int>(float32_to_float16(span_at<const float>(x, n), span_at<uint16_t>(bits, n)));
}

int narrow_bfloat16(Address x, size_t n, Address bits) {
  return static_cast<int>(float32_to_bfloat16(span_at<const float>(x, n), span_at<uint16_t>(bits, n)));
}

/// Counts and sizes are numbers that 32 bits hold: the layers have been checked to fit into memory.
LayerSpec layer_spec_of(uint32_t rows, uint32_t columns, uint32_t group_size, uint32_t bits, bool zero_points, int activations) {
  return {rows, columns, group_size, bits, zero_points, static_cast<ActivationType>(activations)};
}

double bytes_of_layer(uint32_t rows, uint32_t columns, uint32_t group_size, uint32_t bits, bool zero_points, int activations) {
  return static_cast<double>(layer_bytes(layer_spec_of(rows, columns, group_size, bits, zero_points, activations)));
}

double bytes_of_workspace(uint32_t rows, uint32_t columns, uint32_t group_size, uint32_t bits, bool zero_points, int activations,
                          uint32_t batch) {
  return static_cast<double>(
      layer_workspace_bytes(layer_spec_of(rows, columns, group_size, bits, zero_points, activations), batch));
}

int begin_layer(uint32_t rows, uint32_t columns, uint32_t group_size, uint32_t bits, bool zero_points, int activations,
                int32_t zero_point, Address layer, size_t bytes) {
  return static_cast<int>(make_layer(layer_spec_of(rows, columns, group_size, bits, zero_points, activations), zero_point,
                                     span_at<std::byte>(layer, bytes)));
}

int codes_to_layer(Address layer, size_t bytes, uint32_t row, Address codes, size_t n, uint32_t spec, Address scale,
                   Address zero_point, size_t parameters) {
  return static_cast<int>(set_layer_codes(span_at<std::byte>(layer, bytes), row, span_at<const std::byte>(codes, n),
                                          spec_of(spec).dtype, span_at<const float>(scale, parameters),
                                          span_at<const int32_t>(zero_point, parameters)));
}

int blocks_to_layer(Address layer, size_t bytes, uint32_t row, Address blocks, size_t n, int type) {
  return static_cast<int>(
      set_layer_blocks(span_at<std::byte>(layer, bytes), row, span_at<const std::byte>(blocks, n), static_cast<BlockType>(type)));
}

int floats_to_layer(Address layer, size_t bytes, uint32_t row, Address x, size_t n) {
  return static_cast<int>(set_layer_floats(span_at<std::byte>(layer, bytes), row, span_at<const float>(x, n)));
}

int bias_to_layer(Address layer, size_t bytes, Address bias, size_t n) {
  return static_cast<int>(set_layer_bias(span_at<std::byte>(layer, bytes), span_at<const float>(bias, n)));
}

int score_layer(Address layer, size_t bytes, Address x, size_t columns, uint32_t row, Address scores, size_t n, Address workspace,
                size_t workspace_bytes) {
  return static_cast<int>(layer_scores(span_at<const std::byte>(layer, bytes), span_at<const float>(x, columns), row,
                                       span_at<double>(scores, n), span_at<std::byte>(workspace, workspace_bytes)));
}

int narrow_to_minifloat(Address x, size_t n, int format, int overflow, Address bits) {
  return static_cast<int>(float32_to_minifloat(span_at<const float>(x, n), static_cast<Minifloat>(format),
                                               static_cast<Overflow>(overflow), span_at<uint8_t>(bits, n)));
}

int widen_minifloat(Address bits, size_t n, int format, Address x) {
  return static_cast<int>(
      minifloat_to_float32(span_at<const uint8_t>(bits, n), static_cast<Minifloat>(format), span_at<float>(x, n)));
}

int quantize_minifloat_piece(Address x, size_t n, int kind, double axis_size, double inner_size, double group_size, double start,
                             Address scale, size_t parameters, int format, Address bits) {
  return static_cast<int>(quantize_minifloat(span_at<const float>(x, n), layout_of(kind, axis_size, inner_size, group_size),
                                             static_cast<uint64_t>(start), span_at<const float>(scale, parameters),
                                             static_cast<Minifloat>(format), span_at<uint8_t>(bits, n)));
}

int dequantize_minifloat_piece(Address bits, size_t n, int kind, double axis_size, double inner_size, double group_size,
                               double start, Address scale, size_t parameters, int format, Address x) {
  return static_cast<int>(dequantize_minifloat(
      span_at<const uint8_t>(bits, n), layout_of(kind, axis_size, inner_size, group_size), static_cast<uint64_t>(start),
      span_at<const float>(scale, parameters), static_cast<Minifloat>(format), span_at<float>(x, n)));
}

/// The blocks that a piece touches, and their largest sizes.
struct BlocksOf {
  Blocks blocks;
  std::span<float> absmax;
};
BlocksOf blocks_of(size_t n, double size, double offset, Address absmax) {
  const Blocks blocks = {static_cast<uint64_t>(size), static_cast<uint64_t>(offset)};
  return {blocks, span_at<float>(absmax, blocks.count(n))};
}

int observe_absmax_of(Address x, size_t n, double block_size, double offset, Address absmax) {
  const auto [blocks, largest] = blocks_of(n, block_size, offset, absmax);
  return static_cast<int>(observe_absmax(span_at<const float>(x, n), blocks, largest));
}

int round_absmax_of(Address absmax, size_t n) { return static_cast<int>(round_absmax(span_at<float>(absmax, n))); }

int search_absmax_of(Address x, size_t n, double block_size, Address codebook, size_t values, int decision, bool rounded,
                     Address absmax) {
  const auto [blocks, scales] = blocks_of(n, block_size, 0, absmax);
  return static_cast<int>(search_absmax(span_at<const float>(x, n), blocks.size, span_at<const float>(codebook, values),
                                        static_cast<Decision>(decision), rounded, scales));
}

int quantize_to_codebook(Address x, size_t n, double block_size, double offset, Address absmax, Address codebook, size_t values,
                         int decision, Address codes) {
  const auto [blocks, largest] = blocks_of(n, block_size, offset, absmax);
  return static_cast<int>(quantize_codebook(span_at<const float>(x, n), blocks, largest, span_at<const float>(codebook, values),
                                            static_cast<Decision>(decision), span_at<uint8_t>(codes, n)));
}

int dequantize_from_codebook(Address codes, size_t n, double block_size, double offset, Address absmax, Address codebook,
                             size_t values, Address x) {
  const auto [blocks, largest] = blocks_of(n, block_size, offset, absmax);
  return static_cast<int>(dequantize_codebook(span_at<const uint8_t>(codes, n), blocks, largest,
                                              span_at<const float>(codebook, values), span_at<float>(x, n)));
}

int add_codebook_error(Address x, size_t n, Address codes, double block_size, double offset, Address absmax, Address codebook,
                       size_t values, Address sums) {
  const auto [blocks, largest] = blocks_of(n, block_size, offset, absmax);
  return static_cast<int>(accumulate_codebook_error(span_at<const float>(x, n), span_at<const uint8_t>(codes, n), blocks, largest,
                                                    span_at<const float>(codebook, values), *reinterpret_cast<ErrorSums*>(sums)));
}

void copy_published_codebook(int codebook, Address values) {
  const std::span<const float> from = published_codebook(static_cast<PublishedCodebook>(codebook));
  std::copy(from.begin(), from.end(), span_at<float>(values, from.size()).begin());
}

std::span<std::byte> learner_at(Address learner) { return span_at<std::byte>(learner, codebook_learner_bytes()); }

int clear_learner(Address learner) { return static_cast<int>(clear_codebook_learner(learner_at(learner))); }

int observe_quotients(Address x, size_t n, double block_size, double offset, Address absmax, Address learner) {
  const auto [blocks, largest] = blocks_of(n, block_size, offset, absmax);
  return static_cast<int>(observe_codebook(span_at<const float>(x, n), blocks, largest, learner_at(learner)));
}

int learn(Address learner, Address codebook, size_t values) {
  return static_cast<int>(learn_codebook(learner_at(learner), span_at<float>(codebook, values)));
}

int pack_codebook_codes(Address codes, size_t n, int bits, Address packed) {
  return static_cast<int>(
      pack_codebook(span_at<const uint8_t>(codes, n), bits, span_at<std::byte>(packed, packed_bytes(n, bits))));
}

int unpack_codebook_codes(Address packed, size_t n, int bits, Address codes) {
  return static_cast<int>(
      unpack_codebook(span_at<const std::byte>(packed, packed_bytes(n, bits)), bits, span_at<uint8_t>(codes, n)));
}

Address allocate(size_t bytes) { return reinterpret_cast<Address>(std::malloc(bytes)); }
void release(Address address) { std::free(reinterpret_cast<void*>(address)); }

/// Ties a wasm file to the TypeScript that was built with it.
int build_id() { return SCALEPOINT_BUILD_ID; }

bool is_simd() {
#ifdef __wasm_simd128__
  return true;
#else
  return false;
#endif
}

}  // namespace

// The one call of which small arrays feel the price, and so a plain export: through Embind it takes 0.25 us more, of 1.1 us for
// quantizing 1024 floats (Node 20).
extern "C" EMSCRIPTEN_KEEPALIVE int quantize_runs_export(Address x, size_t n, size_t line_size, size_t run_size, uint32_t spec,
                                                         Address scale, Address zero_point, size_t runs, Address codes) {
  const QuantizationSpec s = spec_of(spec);
  return static_cast<int>(quantize_runs(span_at<const float>(x, n), line_size, run_size, s, span_at<float>(scale, runs),
                                        span_at<int32_t>(zero_point, runs),
                                        span_at<std::byte>(codes, n * s.dtype.storage_bytes())));
}

// Small layers feel the price, too.
extern "C" EMSCRIPTEN_KEEPALIVE int layer_forward_export(Address layer, size_t bytes, Address x, size_t columns, uint32_t batch,
                                                         Address y, size_t rows, Address workspace, size_t workspace_bytes) {
  return static_cast<int>(layer_forward(span_at<const std::byte>(layer, bytes), span_at<const float>(x, columns * batch), batch,
                                        span_at<float>(y, rows * batch), span_at<std::byte>(workspace, workspace_bytes)));
}

EMSCRIPTEN_BINDINGS(scalepoint) {
  using emscripten::function;
  function("buildId", &build_id);
  function("isSimd", &is_simd);
  function("allocate", &allocate);
  function("release", &release);
  function("clearRange", &clear);
  function("observe", &observe_piece);
  function("chooseQparams", &choose);
  function("searchScratchBytes", &bytes_to_search);
  function("searchQparams", &search);
  function("takeBetter", &take_better_runs);
  function("quantizeLinear", &quantize_piece);
  function("quantizeLinearMeasured", &quantize_piece_measured);
  function("dequantizeLinear", &dequantize_piece);
  function("accumulateError", &add_error);
  function("accumulateCodeError", &add_code_error);
  function("accumulateErrorEach", &add_error_each);
  function("firstNonFinite", &find_non_finite);
  function("histogram", &add_histogram);
  function("pack", &pack_codes);
  function("unpack", &unpack_codes);
  function("quantizeBlocks", &quantize_to_blocks);
  function("dequantizeBlocks", &dequantize_from_blocks);
  function("layerBytes", &bytes_of_layer);
  function("layerWorkspaceBytes", &bytes_of_workspace);
  function("makeLayer", &begin_layer);
  function("setLayerCodes", &codes_to_layer);
  function("setLayerBlocks", &blocks_to_layer);
  function("setLayerFloats", &floats_to_layer);
  function("setLayerBias", &bias_to_layer);
  function("layerScores", &score_layer);
  function("widenFloat16", &widen_float16);
  function("widenBfloat16", &widen_bfloat16);
  function("narrowFloat16", &narrow_float16);
  function("narrowBfloat16", &narrow_bfloat16);
  function("narrowMinifloat", &narrow_to_minifloat);
  function("widenMinifloat", &widen_minifloat);
  function("quantizeMinifloat", &quantize_minifloat_piece);
  function("dequantizeMinifloat", &dequantize_minifloat_piece);
  function("observeAbsmax", &observe_absmax_of);
  function("roundAbsmax", &round_absmax_of);
  function("searchAbsmax", &search_absmax_of);
  function("quantizeCodebook", &quantize_to_codebook);
  function("dequantizeCodebook", &dequantize_from_codebook);
  function("accumulateCodebookError", &add_codebook_error);
  function("publishedCodebook", &copy_published_codebook);
  function("codebookLearnerBytes", &codebook_learner_bytes);
  function("clearCodebookLearner", &clear_learner);
  function("observeCodebook", &observe_quotients);
  function("learnCodebook", &learn);
  function("packCodebook", &pack_codebook_codes);
  function("unpackCodebook", &unpack_codebook_codes);
}

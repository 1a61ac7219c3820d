// Parts of quantized tensors, of any bytes and any sizes, through the codec of each layout that is read.
#include <cmath>

#include "codecs/bitsandbytes.h"
#include "codecs/comfy.h"
#include "codecs/compressed_tensors.h"
#include "codecs/dequantize_linear.h"
#include "codecs/gptq.h"
#include "codecs/low_rank.h"
#include "codecs/matmul_bnb4.h"
#include "codecs/matmul_nbits.h"
#include "codecs/microscaled.h"
#include "codecs/mlc.h"
#include "codecs/mlx.h"
#include "codecs/nvfp4_blocks.h"
#include "codecs/scaled_elements.h"
#include "input.h"

namespace scalepoint::fuzz {
namespace {

using namespace codecs;

constexpr uint64_t up(uint64_t n, uint64_t unit) { return unit == 0 ? 0 : (n + unit - 1) / unit; }

ElementType any_scale(Input& in) {
  return in.choice({ElementType::kF32, ElementType::kF16, ElementType::kBF16, ElementType::kF64});
}
uint64_t bytes_of(ElementType type) { return element_size(static_cast<int32_t>(type)).bytes; }

/// Restores floats, and takes them into the digest.
template <class Codes>
Status restore(Input& in, const Stored& stored, const Codes& codes) {
  SmallArena arena;
  const float* x = nullptr;
  const Status status = decode(stored, codes, arena, x);
  in.digest(status);
  if (status == Status::kOk) in.digest({x, size_t{stored.rows} * stored.columns});
  return status;
}

void compressed_tensors(Input& in, Stored& stored, uint64_t size) {
  CompressedTensors codes = {.float8 = in.number(7) == 7,
                             .bits = in.choice({4, 8, 2, 3, 5, 6, 7, 1, 32}),
                             .symmetric = in.flag(),
                             .group_size = in.choice({0u, 32u, 16u, 20u, 1u}),
                             .packed = in.flag(),
                             .whole_words = in.number(3) == 3,
                             .grouped = in.number(3) == 3,
                             .scale = any_scale(in)};
  if (codes.float8) codes.bits = 8, codes.symmetric = true, codes.packed = false;
  const auto bits = static_cast<uint64_t>(codes.bits);
  const uint64_t runs = codes.grouped ? in.number(4) : codes.group_size == 0 ? 1 : stored.columns / codes.group_size;
  const auto words = [&](uint64_t n) { return codes.whole_words ? up(n, 32 / bits) : up(n * bits, 32); };
  stored.data = in.part(codes.packed ? stored.rows * words(stored.columns) * 4 : size);
  stored.scale = in.part(stored.rows * runs * bytes_of(codes.scale));
  stored.zero_point = in.part(codes.symmetric ? 0 : codes.packed ? words(stored.rows) * runs * 4 : stored.rows * runs);
  stored.group = in.part(codes.grouped ? uint64_t{stored.columns} * 4 : 0);
  restore(in, stored, codes);
}

void comfy(Input& in, Stored& stored, uint64_t size) {
  const auto kind = static_cast<ComfyKind>(in.number(5));
  const Comfy codes = {.kind = kind, .one_scale = in.flag(), .rotation = in.choice({0u, 0u, 4u, 16u, 64u, 256u, 3u, 65536u})};
  const bool is_float4 = kind == ComfyKind::kNvFloat4;
  stored.data = in.part(is_float4 ? size / 2 : size);
  const uint64_t groups = kind == ComfyKind::kMxFloat8 ? stored.columns / 32 : is_float4 ? stored.columns / 16 : 0;
  const uint64_t lines = kind == ComfyKind::kInt8 && !codes.one_scale ? stored.rows : 1;
  stored.scale = in.part(groups > 0 ? group_scale_bytes(stored.rows, groups) : lines * 4);
  stored.global_scale = in.part(is_float4 ? 4 : 0);
  restore(in, stored, codes);
}

void microscaled(Input& in, Stored& stored, uint64_t size) {
  const Microscaled codes = {.form = {.element = static_cast<Minifloat>(in.number(2)),
                                      .scale = static_cast<MicroscaleType>(in.number(2)),
                                      .block = in.choice({16u, 32u, 0u, 64u})},
                             .global = static_cast<GlobalScaleForm>(in.number(2))};
  const bool is_float4 = codes.form.element == Minifloat::kFloat4E2M1;
  stored.data = in.part(is_float4 ? size / 2 : size);
  stored.scale = in.part(codes.form.block == 0 ? 0 : size / codes.form.block);
  stored.global_scale = in.part(codes.global == GlobalScaleForm::kNone ? 0 : 4);
  restore(in, stored, codes);

  // Taken over as blocks of ggml, the same floats come out where the scale of the matrix is not divided by.
  SmallArena arena;
  Encoded made;
  const Status status = recode(stored, codes, true, arena, made);
  in.digest(status);
  if (status != Status::kOk) return;
  const Stored blocks = {.rows = stored.rows,
                         .columns = stored.columns,
                         .data = made.data,
                         .scale = {},
                         .zero_point = {},
                         .global_scale = made.global_scale};
  const float *before = nullptr, *after = nullptr;
  require(decode(stored, codes, arena, before) == Status::kOk, "what is taken over can be restored");
  require(decode(blocks, Nvfp4Blocks{}, arena, after) == Status::kOk, "blocks that were taken over can be restored");
  if (codes.global != GlobalScaleForm::kMultiplies) return;
  for (uint64_t i = 0; i < size; i++) require(before[i] == after[i], "blocks that were taken over have the same floats");
}

void nvfp4_blocks(Input& in, Stored& stored, uint64_t size) {
  stored.data = in.part(size / kNvfp4Elements * kNvfp4Bytes);
  stored.global_scale = in.part(in.choice({0u, 4u}));
  restore(in, stored, Nvfp4Blocks{});
}

void scaled_elements(Input& in, Stored& stored, uint64_t size) {
  const ScaledElements codes = {.type = static_cast<ScaledType>(in.number(3)),
                                .scale = any_scale(in),
                                .block_rows = in.choice({0u, 1u, 7u, 128u}),
                                .block_columns = in.choice({0u, 1u, 5u, 128u, 0xFFFFFFFFu}),
                                .has_zero_point = in.number(3) == 3};
  stored.data = in.part(size);
  const uint64_t down = codes.block_rows == 0 ? 1 : up(stored.rows, codes.block_rows);
  const uint64_t across = codes.block_columns == 0 ? 1 : up(stored.columns, codes.block_columns);
  stored.scale = in.part(down * across * bytes_of(codes.scale));
  stored.zero_point = in.part(codes.has_zero_point ? 1 : 0);
  restore(in, stored, codes);
}

void dequantize_linear(Input& in, Stored& stored, uint64_t size) {
  const DequantizeLinear codes = {.bits = in.choice({8, 4, 2, 3, 16}),
                                  .is_signed = in.flag(),
                                  .symmetric = in.flag(),
                                  .reduced = in.number(7) == 7,
                                  .sharing = static_cast<Sharing>(in.number(4)),
                                  .block_size = in.choice({16u, 32u, 1u, 7u, 0u, 0xFFFFFFFFu}),
                                  .scale = any_scale(in)};
  uint64_t sets = 1;
  if (codes.sharing == Sharing::kRows) sets = stored.rows;
  if (codes.sharing == Sharing::kColumns) sets = stored.columns;
  if (codes.sharing == Sharing::kRowBlocks) sets = stored.rows * up(stored.columns, codes.block_size);
  if (codes.sharing == Sharing::kColumnBlocks) sets = up(stored.rows, codes.block_size) * stored.columns;
  stored.data = in.part(packed_bytes(size, codes.bits));
  stored.scale = in.part(sets * bytes_of(codes.scale));
  stored.zero_point = in.part(in.flag() ? packed_bytes(sets, codes.bits) : 0);
  restore(in, stored, codes);
}

void matmul_nbits(Input& in, Stored& stored) {
  const MatMulNBits codes = {.bits = in.choice({4, 8, 2, 3}),
                             .block_size = in.choice({32u, 16u, 64u, 128u, 256u, 0u, 48u}),
                             .symmetric = in.flag(),
                             .transposed = in.flag(),
                             .scale = any_scale(in),
                             .float_zero_points = in.number(3) == 3};
  const uint64_t n = codes.transposed ? stored.rows : stored.columns, k = codes.transposed ? stored.columns : stored.rows;
  const uint64_t blocks = up(k, codes.block_size), bits = static_cast<uint64_t>(codes.bits), scale = bytes_of(codes.scale);
  stored.data = in.part(n * blocks * codes.block_size * bits / 8);
  stored.scale = in.part(n * blocks * scale);
  stored.zero_point = in.part(in.flag() ? 0 : codes.float_zero_points ? n * blocks * scale : n * up(blocks * bits, 8));
  restore(in, stored, codes);
}

void matmul_bnb4(Input& in, Stored& stored) {
  const MatMulBnb4 codes = {.book = static_cast<PublishedCodebook>(in.number(1)),
                            .block_size = in.choice({64u, 16u, 32u, 256u, 0u, 3u}),
                            .transposed = in.flag()};
  const uint64_t n = codes.transposed ? stored.rows : stored.columns, k = codes.transposed ? stored.columns : stored.rows;
  stored.data = in.part(n * k / 2);
  stored.scale = in.part(n * up(k, codes.block_size) * 4);
  restore(in, stored, codes);
}

void gptq(Input& in, Stored& stored, uint64_t size) {
  const Gptq codes = {.bits = in.choice({4, 8, 2, 3, 5}),
                      .group_size = in.choice({32u, 128u, 0u, 20u}),
                      .outputs = in.flag(),
                      .less_one = in.flag(),
                      .grouped = in.number(3) == 3,
                      .scale = any_scale(in)};
  const auto bits = static_cast<uint64_t>(codes.bits);
  const uint64_t groups = codes.grouped ? in.number(4) : codes.group_size == 0 ? 1 : up(stored.columns, codes.group_size);
  stored.data = in.part(size * bits / 8);
  stored.scale = in.part(groups * stored.rows * bytes_of(codes.scale));
  stored.zero_point = in.part(groups * stored.rows * bits / 8);
  stored.group = in.part(codes.grouped ? uint64_t{stored.columns} * 4 : 0);
  restore(in, stored, codes);
}

void mlc(Input& in, Stored& stored, uint64_t size) {
  const Mlc codes = {.floats = any_scale(in)};
  stored.data = in.part(size / 2);
  stored.scale = in.part(size / 32 * 2);
  restore(in, stored, codes);
}

void mlx(Input& in, Stored& stored, uint64_t size) {
  const Mlx codes = {
      .bits = in.choice({4, 8, 2, 3, 5, 6, 7}), .group_size = in.choice({64u, 32u, 128u, 0u, 16u}), .scale = any_scale(in)};
  const uint64_t groups = codes.group_size == 0 ? 0 : size / codes.group_size;
  stored.data = in.part(size * static_cast<uint64_t>(codes.bits) / 8);
  stored.scale = in.part(groups * bytes_of(codes.scale));
  stored.zero_point = in.part(groups * bytes_of(codes.scale));
  restore(in, stored, codes);
}

void bits_and_bytes(Input& in, Stored& stored, uint64_t size) {
  const BitsAndBytes codes = {.int8 = in.number(3) == 3,
                              .book = static_cast<PublishedCodebook>(in.number(1)),
                              .block_size = in.choice({64u, 2u, 128u, 0u, 3u, 0xFFFFFFFEu}),
                              .outer_size = in.choice({0u, 256u, 1u, 0xFFFFFFFFu}),
                              .offset = in.real(),
                              .to = any_scale(in)};
  const uint64_t blocks = up(size, codes.block_size);
  const bool is_nested = codes.outer_size != 0;
  stored.data = in.part(codes.int8 ? size : (size + 1) / 2);
  stored.scale = in.part(codes.int8 ? uint64_t{stored.rows} * 4 : blocks * (is_nested ? 1 : 4));
  stored.outer_scale = in.part(is_nested ? up(blocks, codes.outer_size) * 4 : 0);
  stored.table = in.part(is_nested ? 1024 : 0);
  restore(in, stored, codes);
}

void low_rank(Input& in, const Stored& tile) {
  const auto type = [&] {
    return in.choice({ElementType::kF32, ElementType::kF16, ElementType::kBF16, ElementType::kF64, ElementType::kF8_E4M3,
                      ElementType::kF8_E5M2});
  };
  LowRank pair = {.rank = in.length(20), .up_type = type(), .down_type = type(), .middle_type = type()};
  pair.inner = in.flag() ? in.number(9) : 0;
  pair.kernel = in.choice({1u, 3u, 4u, 9u, 0u});
  pair.turned = in.flag();
  pair.strength = static_cast<double>(in.real());
  pair.alpha = static_cast<double>(in.real());
  pair.root = in.flag();
  const uint64_t rank = pair.rank, inner = pair.inner, kernel = pair.kernel;
  const uint64_t down = inner == 0 ? rank * tile.columns : kernel == 0 ? 0 : inner * (tile.columns / kernel);
  pair.up = in.part(tile.rows * rank * bytes_of(pair.up_type));
  pair.down = in.part(down * bytes_of(pair.down_type));
  pair.middle = in.part(rank * inner * kernel * bytes_of(pair.middle_type));
  if (in.flag()) {
    pair.magnitude_type = type();
    pair.magnitude = in.part(tile.rows * bytes_of(pair.magnitude_type));
  }
  const uint64_t size = uint64_t{tile.rows} * tile.columns;
  if (size > 1 << 18) return;
  const std::span<float> x = in.floats(static_cast<size_t>(size));
  SmallArena arena;
  const Status status = add_low_rank(x.data(), tile.rows, tile.columns, pair, arena, x.data());
  in.digest(status);
  if (status == Status::kOk) in.digest(x);
}

}  // namespace
}  // namespace scalepoint::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace scalepoint::fuzz;
  Input in(data, size);
  const uint32_t layout = in.number(12);
  scalepoint::codecs::Stored stored;
  // Most rows and columns are whole blocks of some layout.
  stored.rows = in.flag() ? in.length(24) : in.number(4) * 32;
  stored.columns = in.flag() ? in.length(160) : in.number(8) * in.choice({16u, 32u, 64u, 128u});
  const uint64_t elements = uint64_t{stored.rows} * stored.columns;
  if (layout == 0) compressed_tensors(in, stored, elements);
  if (layout == 1) comfy(in, stored, elements);
  if (layout == 2) microscaled(in, stored, elements);
  if (layout == 3) nvfp4_blocks(in, stored, elements);
  if (layout == 4) scaled_elements(in, stored, elements);
  if (layout == 5) dequantize_linear(in, stored, elements);
  if (layout == 6) matmul_nbits(in, stored);
  if (layout == 7) matmul_bnb4(in, stored);
  if (layout == 8) gptq(in, stored, elements);
  if (layout == 9) mlc(in, stored, elements);
  if (layout == 10) mlx(in, stored, elements);
  if (layout == 11) bits_and_bytes(in, stored, elements);
  if (layout == 12) low_rank(in, stored);
  return 0;
}

// Elements of a file, of any type and any bytes, through each codec that writes, and back through those that read.
#include <algorithm>
#include <cmath>

#include "arrays/metrics.h"
#include "codecs/cast.h"
#include "codecs/comfy.h"
#include "codecs/compressed_tensors.h"
#include "codecs/copy.h"
#include "codecs/dequantize_linear.h"
#include "codecs/elements.h"
#include "codecs/ggml.h"
#include "codecs/gptq.h"
#include "codecs/matmul_bnb4.h"
#include "codecs/matmul_nbits.h"
#include "codecs/microscaled.h"
#include "codecs/mlc.h"
#include "codecs/mlx.h"
#include "codecs/nvfp4_blocks.h"
#include "input.h"

namespace scalepoint::fuzz {
namespace {

using namespace codecs;

constexpr uint32_t kAllParts = 0x7F;

ElementType any_scale(Input& in) {
  return in.choice({ElementType::kF32, ElementType::kF16, ElementType::kBF16, ElementType::kF64});
}

void digest(Input& in, const Bytes& part) { in.digest(std::span(part.data, part.size)); }

/// Makes the parts of a tile. True if there are all of them.
template <class Codes>
bool encodes(Input& in, const Tile& tile, const Codes& codes, Arena& arena, Encoded& made) {
  const Status status = encode(tile, codes, arena, made);
  in.digest(status);
  if (status != Status::kOk) return false;
  in.digest(static_cast<uint64_t>(made.problem.kind));
  if (made.problem.kind != ProblemKind::kNone) {
    require(made.problem.index < tile.size(), "a problem is one of an element");
    in.digest(made.problem.index);
    return false;
  }
  for (const Bytes& part : {made.data, made.scale, made.zero_point, made.global_scale}) digest(in, part);
  if (tile.measure) {
    const ErrorSums& sums = made.sums;
    const double values[] = {sums.squared_error, sums.absolute_error, sums.max_absolute_error, sums.product, sums.weighted_error};
    in.digest(std::as_bytes(std::span(values)));
  }
  return true;
}

/// Makes the parts of a tile, and restores floats from them. Those have the errors that the tile was measured with.
template <class Codes>
void there_and_back(Input& in, const Tile& tile, const Codes& codes) {
  SmallArena arena, other;
  Encoded made;
  if (!encodes(in, tile, codes, arena, made) || tile.wanted != kAllParts) return;
  const Stored stored = {.rows = tile.rows,
                         .columns = tile.columns,
                         .data = made.data,
                         .scale = made.scale,
                         .zero_point = made.zero_point,
                         .global_scale = made.global_scale};
  const float *x = nullptr, *y = nullptr;
  const auto size = static_cast<size_t>(tile.size());
  require(decode(stored, codes, other, y) == Status::kOk, "parts that were made can be read");
  in.digest({y, size});
  if (!tile.measure) return;
  require(decode(tile, other, x) == Status::kOk, "a tile that was read can be read again");
  ErrorSums sums;
  require(accumulate_error({x, size}, {y, size}, sums) == Status::kOk, "errors can be found");
  // Codecs of columns add up in another order. Each sum is within 70 * 2^-24 of the exact one (metrics.h).
  const double a = sums.squared_error, b = made.sums.squared_error;
  require(std::fabs(a - b) <= 0x1p-16 * std::max(a, b), "the parts have the errors that were measured");
}

RangeMethod any_method(Input& in) { return static_cast<RangeMethod>(in.number(2)); }

void run(Input& in) {
  // Choose the elements of the tile.
  Tile tile;
  const bool has_blocks = in.number(3) == 3;
  const auto any_block = [&] { return static_cast<int32_t>(kBlockTypes[in.number(std::size(kBlockTypes) - 1)].type); };
  const auto any_element = [&] {
    return static_cast<int32_t>(in.choice({ElementType::kF32, ElementType::kF16, ElementType::kBF16, ElementType::kF64,
                                           ElementType::kF8_E4M3, ElementType::kF8_E5M2}));
  };
  tile.type = has_blocks ? any_block() : any_element();
  tile.rows = in.flag() ? in.number(5) : in.number(2) * 32;
  tile.columns = in.flag() ? in.length(70) : in.number(4) * in.choice({32u, 64u, 256u});
  const uint64_t size = tile.size();
  if (size > 1 << 14 || tile.columns > 1 << 16) return;
  tile.wanted = in.number(3) == 3 ? in.byte() : kAllParts;
  tile.measure = in.flag();
  if (in.number(3) == 3) {
    tile.add = in.real();
    tile.negative_exp = in.flag();
    tile.ternary = in.flag() ? std::fabs(in.real()) : 0;
    tile.factor = in.real();
    if (in.flag()) tile.row_factors = in.floats(tile.rows).data();
    if (in.flag()) tile.column_factors = in.floats(tile.columns).data();
  }
  const uint32_t codec = in.number(12);
  const bool with_importance = in.number(3) == 3, with_range = in.number(3) == 3;
  if (with_importance) {
    const std::span<float> weights = in.floats(std::max<size_t>(tile.columns, tile.rows));
    for (float& weight : weights) weight = std::isfinite(weight) ? std::fabs(weight) : 0;
    tile.importance = weights.data();
  }
  if (with_range) {
    const float a = in.real(), b = in.real();
    const ValueRange range = {std::isfinite(a) && a < 0 ? a : 0, std::isfinite(b) && b > 0 ? b : 0};
    const std::span<ValueRange> ranges =
        in.room<ValueRange>(std::max<size_t>({tile.rows, tile.columns, static_cast<size_t>(size), 1}));
    std::fill(ranges.begin(), ranges.end(), range);
    tile.ranges = ranges.data();
  }
  const BlockSize unit = element_size(tile.type);
  const bool is_float = tile.type == static_cast<int32_t>(ElementType::kF32);
  if (is_float && size > 0) {
    const std::span<float> x = in.floats(static_cast<size_t>(size));
    tile.source = {reinterpret_cast<const std::byte*>(x.data()), x.size_bytes()};
  } else {
    tile.source = in.part(size / unit.elements * unit.bytes);
  }

  // Read the elements.
  SmallArena arena;
  const float* x = nullptr;
  const Status status = decode(tile, arena, x);
  in.digest(status);
  if (status == Status::kOk) in.digest({x, static_cast<size_t>(size)});
  ValueRange range;
  Problem problem;
  in.digest(observe(tile, arena, range, problem));
  in.digest(static_cast<uint64_t>(problem.kind));
  if (status == Status::kOk && problem.kind == ProblemKind::kNone && size > 0)
    require(range.min <= range.max, "a range has an end");
  in.digest(sum_magnitudes(tile, arena, range, problem));

  // Make the parts of a codec.
  Encoded made;
  if (codec == 0) encodes(in, tile, Copy{}, arena, made);
  if (codec == 1) encodes(in, tile, Cast{.to = any_scale(in), .saturate = in.flag()}, arena, made);
  if (codec == 2) {
    const BlockFacts& facts = kBlockTypes[in.number(std::size(kBlockTypes) - 1)];
    const auto search = facts.searched && in.number(7) == 7 ? BlockSearch::kBest : BlockSearch::kUsual;
    if (encodes(in, tile, Ggml{.to = facts.type, .search = search}, arena, made) && tile.wants(Role::kData)) {
      const std::span<float> y = in.room<float>(static_cast<size_t>(size));
      require(dequantize_blocks({made.data.data, made.data.size}, facts.type, y) == Status::kOk,
              "blocks that were made can be read");
      require(std::all_of(y.begin(), y.end(), [](float value) { return std::isfinite(value); }), "blocks hold finite floats");
      in.digest(y);
    }
  }
  if (codec == 3) {
    const bool searches = in.number(7) == 7 && !with_range;
    there_and_back(in, tile,
                   CompressedTensors{.float8 = in.number(3) == 3,
                                     .bits = in.choice({8, 4}),
                                     .symmetric = in.flag(),
                                     .group_size = in.choice({0u, 32u, 16u}),
                                     .packed = in.flag(),
                                     .scale = any_scale(in),
                                     .search = searches,
                                     .method = any_method(in)});
  }
  if (codec == 4) {
    const auto kind = static_cast<ComfyKind>(in.number(4));
    there_and_back(in, tile, Comfy{.kind = kind, .search = in.number(7) == 7});
  }
  if (codec == 5) {
    there_and_back(in, tile,
                   Microscaled{.form = {.element = in.choice({Minifloat::kFloat4E2M1, Minifloat::kFloat8E4M3FN}),
                                        .scale = static_cast<MicroscaleType>(in.number(2)),
                                        .rule = static_cast<MicroscaleRule>(in.number(3)),
                                        .block = in.choice({16u, 32u}),
                                        .search = in.number(7) == 7},
                               .global = static_cast<GlobalScaleForm>(in.number(2))});
  }
  if (codec == 6) there_and_back(in, tile, Nvfp4Blocks{.search = in.flag()});
  if (codec == 7) {
    there_and_back(in, tile,
                   DequantizeLinear{.bits = in.choice({8, 4, 2}),
                                    .is_signed = in.flag(),
                                    .symmetric = in.flag(),
                                    .reduced = in.number(7) == 7,
                                    .sharing = static_cast<Sharing>(in.number(4)),
                                    .block_size = in.choice({16u, 32u, 7u}),
                                    .scale = in.choice({ElementType::kF32, ElementType::kF16}),
                                    .search = in.number(7) == 7 && !with_range,
                                    .method = any_method(in)});
  }
  if (codec == 8) {
    there_and_back(in, tile,
                   MatMulNBits{.bits = in.choice({4, 8, 2}),
                               .block_size = in.choice({32u, 16u, 128u}),
                               .symmetric = in.flag(),
                               .transposed = in.flag(),
                               .scale = in.choice({ElementType::kF32, ElementType::kF16}),
                               .search = in.number(7) == 7,
                               .float_zero_points = in.number(3) == 3});
  }
  if (codec == 9) {
    there_and_back(
        in, tile,
        MatMulBnb4{
            .book = static_cast<PublishedCodebook>(in.number(1)), .block_size = in.choice({16u, 64u}), .transposed = in.flag()});
  }
  if (codec == 10) {
    there_and_back(in, tile,
                   Gptq{.bits = in.choice({4, 8, 2, 3}),
                        .group_size = in.choice({32u, 0u, 128u}),
                        .outputs = in.flag(),
                        .less_one = in.flag(),
                        .symmetric = in.flag(),
                        .search = in.number(7) == 7 && !with_range});
  }
  if (codec == 11) there_and_back(in, tile, Mlc{.floats = any_scale(in), .search = in.number(7) == 7});
  if (codec == 12) {
    there_and_back(in, tile,
                   Mlx{.bits = in.choice({4, 8, 2, 3, 5, 6}),
                       .group_size = in.choice({32u, 64u, 128u}),
                       .scale = any_scale(in),
                       .search = in.number(7) == 7,
                       .best = in.number(15) == 15});
  }
}

}  // namespace
}  // namespace scalepoint::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  scalepoint::fuzz::Input in(data, size);
  scalepoint::fuzz::run(in);
  return 0;
}

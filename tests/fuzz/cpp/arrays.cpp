// Codes in arrays: blocks of ggml, packed bits, small floats, linear codes and codebooks, of any bytes.
#include <algorithm>
#include <cmath>

#include "arrays/linear.h"
#include "arrays/metrics.h"
#include "arrays/minifloat.h"
#include "arrays/pack_bits.h"
#include "codebooks/absmax.h"
#include "codebooks/codebook.h"
#include "codebooks/codebook_parts.h"
#include "ggml/ggml_blocks.h"
#include "input.h"

namespace scalepoint::fuzz {
namespace {

bool all_finite(std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); });
}

void blocks(Input& in) {
  const BlockFacts& facts = kBlockTypes[in.number(std::size(kBlockTypes) - 1)];
  const size_t n = size_t{in.number(4)} * std::max(256u, facts.size.elements) + (in.number(15) == 15 ? 1 : 0);
  const codecs::Bytes part = in.part(blocks_bytes(facts.type, n));
  const std::span<float> x = in.room<float>(n);
  const Status status = dequantize_blocks({part.data, part.size}, facts.type, x);
  in.digest(status);
  if (status != Status::kOk) return;
  in.digest(x);
  // Make blocks of what these hold. Those are finite again.
  const std::span<float> importance = facts.importance == Importance::kNeeded || in.flag() ? in.floats(256) : std::span<float>{};
  for (float& weight : importance) weight = std::isfinite(weight) ? std::fabs(weight) : 0;
  const std::span<std::byte> made = in.room<std::byte>(part.size);
  const Status quantized = quantize_blocks(x, facts.type, made, importance);
  in.digest(quantized);
  require(quantized != Status::kNonFinite || !all_finite(x), "finite floats are not refused as others");
  if (quantized != Status::kOk) return;
  in.digest(made);
  require(dequantize_blocks(made, facts.type, x) == Status::kOk && all_finite(x), "blocks hold finite floats");
}

void packed(Input& in) {
  const DType dtype = {in.choice({2, 3, 4, 5, 6, 7, 8, 16, 1, 9}), in.flag()};
  const size_t n = in.number(300);
  const codecs::Bytes part = in.part(packed_bytes(n, dtype.bits));
  const std::span<std::byte> codes = in.room<std::byte>(n * dtype.storage_bytes());
  const Status status = unpack({part.data, part.size}, dtype, codes);
  in.digest(status);
  if (status != Status::kOk) return;
  in.digest(codes);
  if (dtype.bits <= 8)
    require(first_outside({reinterpret_cast<const uint8_t*>(codes.data()), n}, dtype) == n, "codes are within their type");
  // The bits behind the last code are zeros.
  const std::span<std::byte> again = in.room<std::byte>(part.size);
  require(pack(codes, dtype, again) == Status::kOk, "codes that were unpacked can be packed");
  const size_t bits = n * static_cast<size_t>(dtype.bits), whole = bits / 8;
  require(std::equal(again.begin(), again.begin() + static_cast<ptrdiff_t>(whole), part.data), "packing reverses unpacking");
  if (bits % 8 != 0)
    require(again[whole] == (part.data[whole] & static_cast<std::byte>((1u << bits % 8) - 1)), "packing reverses unpacking");

  // The same bits as indices of a codebook.
  const std::span<uint8_t> indices = in.room<uint8_t>(n);
  in.digest(unpack_codebook({part.data, part.size}, dtype.bits, indices));
  const size_t values = in.number(300);
  const std::span<std::byte> packed = in.room<std::byte>(part.size);
  const std::span<uint8_t> any = in.array<uint8_t>(n);
  in.digest(pack_codebook(any, values, dtype.bits, packed));
}

void small_floats(Input& in) {
  const size_t n = in.number(300);
  const std::span<float> x = in.room<float>(n);
  const auto same = [&](auto bits, auto again) {
    for (size_t i = 0; i < n; i++) require(std::isnan(x[i]) || bits[i] == again[i], "narrowing reverses widening");
  };
  const auto bits16 = in.array<uint16_t>(n), again16 = in.room<uint16_t>(n);
  require(float16_to_float32(bits16, x) == Status::kOk, "any float16 can be widened");
  in.digest(x);
  require(float32_to_float16(x, again16) == Status::kOk, "any float can be narrowed");
  same(bits16, again16);
  require(bfloat16_to_float32(bits16, x) == Status::kOk, "any bfloat16 can be widened");
  in.digest(x);
  require(float32_to_bfloat16(x, again16) == Status::kOk, "any float can be narrowed");
  same(bits16, again16);
  const auto format = static_cast<Minifloat>(in.number(2));
  const bool is_short = format == Minifloat::kFloat4E2M1;
  const auto bits8 = in.array<uint8_t>(n), again8 = in.room<uint8_t>(n);
  if (is_short) std::for_each(bits8.begin(), bits8.end(), [](uint8_t& code) { code &= 15; });
  require(minifloat_to_float32(bits8, format, x) == Status::kOk, "any small float can be widened");
  in.digest(x);
  require(float32_to_minifloat(x, format, Overflow::kEscape, again8) == Status::kOk, "any float can be narrowed");
  same(bits8, again8);
  const std::span<const float> any = in.floats(n);
  require(float32_to_minifloat(any, format, static_cast<Overflow>(in.number(1)), again8) == Status::kOk,
          "any float can be narrowed");
  in.digest(std::as_bytes(again8));
  require(float32_to_float16(any, again16) == Status::kOk, "any float can be narrowed");
  // The fraction of a NaN is that of its float.
  for (size_t i = 0; i < n; i++) {
    if (!std::isnan(any[i])) in.digest(uint64_t{again16[i]});
  }
}

void linear(Input& in) {
  Layout layout = {.granularity = static_cast<Granularity>(in.number(2)),
                   .axis_size = in.length(20),
                   .inner_size = in.length(9),
                   .group_size = in.length(9)};
  if (in.number(31) == 31) layout.axis_size = uint64_t{in.word()} << 32 | in.word();
  const DType dtype = {in.choice({2, 3, 4, 5, 6, 7, 8, 16, 1}), in.flag()};
  const size_t n = in.number(300);
  const uint64_t start = in.length(100);
  const auto parameters = static_cast<size_t>(layout.valid() ? std::min<uint64_t>(layout.parameter_end(start, n), 4096) : 3);
  const std::span<float> scale = in.floats(parameters);
  if (in.flag()) {
    for (float& value : scale) value = std::isfinite(value) && value != 0 ? std::fabs(value) : 1;
  }
  const std::span<int32_t> zero_point = in.array<int32_t>(parameters);
  if (in.flag()) std::fill(zero_point.begin(), zero_point.end(), static_cast<int32_t>(in.byte()) - 128);
  const std::span<std::byte> codes = in.array<std::byte>(n * dtype.storage_bytes());
  const std::span<float> x = in.room<float>(n);
  const Status status = dequantize_linear(codes, dtype, layout, start, scale, zero_point, x);
  in.digest(status);
  if (status != Status::kOk) return;
  in.digest(x);
  const QuantizationSpec spec = {
      .dtype = dtype, .rounding = static_cast<Rounding>(in.number(2)), .non_finite = static_cast<NonFinite>(in.number(1))};
  const std::span<std::byte> again = in.room<std::byte>(codes.size());
  const std::span<const float> any = in.flag() ? in.floats(n) : x;
  ErrorSums sums, measured;
  const Status quantized = quantize_linear_measured(any, layout, start, scale, zero_point, spec, again, measured);
  in.digest(quantized);
  if (quantized != Status::kOk) return;
  in.digest(again);
  require(accumulate_code_error(any, again, dtype, layout, start, scale, zero_point, sums) == Status::kOk, "errors can be found");
  require(sums.squared_error == measured.squared_error, "codes have the errors that were measured");
}

void codebooks(Input& in) {
  const size_t n = in.number(300), values = in.number(300);
  Blocks blocks = {.size = in.length(70), .offset = in.length(70)};
  if (in.flag()) blocks.offset = blocks.size == 0 ? 0 : blocks.offset % blocks.size;
  const auto scales = static_cast<size_t>(blocks.valid() ? blocks.count(n) : 1);
  const std::span<const float> absmax = in.floats(scales), book = in.floats(values);
  const std::span<uint8_t> codes = in.array<uint8_t>(n);
  const std::span<float> x = in.room<float>(n);
  const Status status = dequantize_codebook(codes, blocks, absmax, book, x);
  in.digest(status);
  if (status == Status::kOk) in.digest(x);
  const std::span<const float> any = in.floats(n);
  const auto decision = values == 16 ? static_cast<Decision>(in.number(2)) : Decision::kNearest;
  const Status quantized = quantize_codebook(any, blocks, absmax, book, decision, codes);
  in.digest(quantized);
  if (quantized == Status::kOk) {
    in.digest(std::as_bytes(codes));
    require(dequantize_codebook(codes, blocks, absmax, book, x) == Status::kOk, "codes that were made can be restored");
  }
}

}  // namespace
}  // namespace scalepoint::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace scalepoint::fuzz;
  Input in(data, size);
  const uint32_t kind = in.number(4);
  if (kind == 0) blocks(in);
  if (kind == 1) packed(in);
  if (kind == 2) small_floats(in);
  if (kind == 3) linear(in);
  if (kind == 4) codebooks(in);
  return 0;
}

// Layers of any codes, blocks and floats, and their products.
#include <algorithm>
#include <cmath>

#include "input.h"
#include "layers/layer.h"

namespace scalepoint::fuzz {
namespace {

void run(Input& in) {
  LayerSpec spec = {.rows = in.length(40),
                    .columns = in.flag() ? in.length(140) : in.number(4) * 32,
                    .group_size = 32,
                    .bits = in.choice({8u, 4u, 32u, 5u}),
                    .zero_points = in.flag(),
                    .activations = static_cast<ActivationType>(in.number(2))};
  if (in.flag()) spec.group_size = in.flag() ? spec.columns : in.length(spec.columns % 256);
  const uint64_t bytes = layer_bytes(spec);
  in.digest(bytes);
  if (bytes > 1 << 20) return;
  const std::span<std::byte> layer = in.room<std::byte>(static_cast<size_t>(bytes));
  std::fill(layer.begin(), layer.end(), std::byte{0});
  const Status made = make_layer(spec, static_cast<int32_t>(in.word()) >> in.number(31), layer);
  in.digest(made);
  if (made != Status::kOk) return;

  // Fill rows.
  for (uint32_t calls = in.number(3); calls > 0; calls--) {
    const uint32_t row = in.number(7) == 7 ? in.length(40) : 0, rows = in.number(7) == 7 ? in.number(40) : spec.rows;
    const size_t n = size_t{rows} * spec.columns, sets = rows * ((size_t{spec.columns} + spec.group_size - 1) / spec.group_size);
    if (n > 1 << 16) return;
    if (spec.bits == 32) {
      in.digest(set_layer_floats(layer, row, in.floats(n)));
    } else if (in.flag()) {
      const BlockType type = spec.bits == 4 ? BlockType::kQ4_0 : BlockType::kQ8_0;
      const codecs::Bytes blocks = in.part(blocks_bytes(type, n));
      in.digest(set_layer_blocks(layer, row, {blocks.data, blocks.size}, type));
    } else {
      const DType dtype = {in.choice({8, 4, 2, 3, 7, 16}), in.flag()};
      const std::span<std::byte> codes = in.array<std::byte>(n);
      const std::span<int32_t> zero_points = in.array<int32_t>(spec.zero_points ? sets : 0);
      for (int32_t& zero_point : zero_points) zero_point %= 300;
      // A call from outside has codes within their type.
      if (dtype.bits < 8) {
        for (std::byte& code : codes) {
          const int32_t low = std::to_integer<int32_t>(code) & ((1 << dtype.bits) - 1);
          code = static_cast<std::byte>(low + dtype.qmin());
        }
      }
      const Status set = set_layer_codes(layer, row, codes, dtype, in.floats(sets), zero_points);
      in.digest(set);
      if (set == Status::kOk && dtype.bits == 8 && dtype.is_signed && spec.bits == 8) {
        const std::span<std::byte> again = in.room<std::byte>(n);
        require(get_layer_codes(layer, row, again) == Status::kOk, "codes that were set can be read");
        require(std::equal(again.begin(), again.end(), codes.begin()), "codes that were set are read");
      }
    }
  }
  in.digest(set_layer_bias(layer, in.floats(spec.rows)));

  // Multiply.
  const uint32_t batch = in.number(5);
  const std::span<const float> x = in.floats(size_t{batch} * spec.columns);
  const std::span<float> y = in.room<float>(size_t{batch} * spec.rows);
  const std::span<std::byte> workspace = in.room<std::byte>(static_cast<size_t>(layer_workspace_bytes(spec, batch)));
  const Status status = layer_forward(layer, x, batch, y, workspace);
  in.digest(status);
  if (status == Status::kOk) in.digest(y);
}

}  // namespace
}  // namespace scalepoint::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  scalepoint::fuzz::Input in(data, size);
  scalepoint::fuzz::run(in);
  return 0;
}

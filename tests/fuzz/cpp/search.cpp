// Indexes of vectors: parts of any bytes, as a file may hold them, and vectors that are encoded, kept and scored.
#include "search/search.h"

#include <algorithm>
#include <cmath>

#include "input.h"
#include "search/rotation.h"

namespace scalepoint::fuzz {
namespace {

/// Numbers that reading a file has checked.
std::span<float> finite(Input& in, size_t n) {
  const std::span<float> x = in.floats(n);
  for (float& value : x) value = std::isfinite(value) ? value : 0;
  return x;
}

void run(Input& in) {
  SearchSpec spec = {
      .dimension = 1 + in.number(139), .bits = in.choice({1, 2, 4, 8}), .metric = static_cast<Metric>(in.number(3))};
  if (spec.metric == Metric::kHamming) spec.bits = 1;
  const size_t n = spec.dimension, blocks = in.number(10), vectors = blocks * kBlockVectors;
  const std::span<std::byte> codes = in.array<std::byte>(vectors * spec.vector_bytes());
  const std::span<float> bounds = in.room<float>(blocks * kBoundFloats);
  std::fill(bounds.begin(), bounds.end(), 0.0f);
  const SearchPart part = {.codes = codes.data(),
                           .factors = finite(in, vectors).data(),
                           .extras = finite(in, vectors).data(),
                           .bounds = bounds.data(),
                           .capacity = static_cast<uint32_t>(vectors)};
  const std::span<uint32_t> signs = in.room<uint32_t>(rotation_words(n));
  make_rotation(in.word(), n, signs);
  const SearchFrame frame = {.signs = signs.data(), .center = finite(in, n).data()};
  const std::span<float> scratch = in.room<float>(search_scratch_size(spec));
  in.digest(bound_blocks(part, 0, static_cast<uint32_t>(vectors)));

  // Put vectors into the part.
  const uint32_t first = in.length(static_cast<uint32_t>(vectors));
  const size_t rows = in.number(5);
  if (in.flag()) {
    in.digest(encode_vectors(spec, frame, in.floats(rows * n), first, part, scratch));
  } else if (spec.bits == 8) {
    const std::span<int8_t> taken = in.array<int8_t>(rows * n);
    const std::span<float> scales = finite(in, rows);
    for (float& scale : scales) scale = std::fabs(scale);
    const Status status = take_codes(spec, taken, scales, first, part);
    in.digest(status);
    if (status == Status::kOk) {
      const std::span<int8_t> read = in.room<int8_t>(rows * n);
      const std::span<float> of_read = in.room<float>(rows);
      require(read_codes(spec, part, first, read, of_read) == Status::kOk, "codes that were taken can be read");
      require(std::equal(read.begin(), read.end(), taken.begin()), "codes that were taken are read");
      require(std::equal(of_read.begin(), of_read.end(), scales.begin()), "scales that were taken are read");
    }
  } else if (spec.metric == Metric::kHamming) {
    const size_t width = (n + 7) / 8 + in.number(1);
    in.digest(take_bits(spec, in.array<uint8_t>(rows * width), width, 0, first, part));
  }
  in.digest(codes);

  // Search, for more queries than pass one by one in some inputs.
  const size_t count = 1 + in.number(3) + (in.number(7) == 7 ? 16 : 0), bytes = query_bytes(spec);
  const std::span<std::byte> queries = in.room<std::byte>(count * bytes);
  const std::span<const float> x = in.floats(count * n);
  for (size_t i = 0; i < count; i++) {
    const Status status = prepare_query(spec, frame, x.subspan(i * n, n), queries.subspan(i * bytes, bytes), scratch);
    in.digest(status);
    if (status != Status::kOk) return;
  }
  const std::span<uint32_t> allowed = in.array<uint32_t>(blocks);
  if (in.flag()) std::fill(allowed.begin(), allowed.end(), 0xFFFFFFFFu);
  const uint32_t k = 1 + in.number(40), first_index = in.number(1000);
  const std::span<BestList> best = in.room<BestList>(count);
  for (BestList& list : best) list = {in.room<float>(k).data(), in.room<uint32_t>(k).data(), k, 0};
  const std::span<std::byte> room = in.room<std::byte>(scan_scratch_bytes(spec, count));
  const Status status = scan_part(spec, part, allowed, first_index, queries, best, room);
  in.digest(status);
  if (status != Status::kOk) return;
  for (size_t i = 0; i < count; i++) {
    finish_best(spec, *reinterpret_cast<const SearchQuery*>(queries.data() + i * bytes), best[i]);
    const BestList& list = best[i];
    require(list.size <= k, "a list has room for its vectors");
    for (size_t j = 0; j < list.size; j++) {
      const uint32_t place = list.indices[j] - first_index;
      require(place < vectors && (allowed[place / 32] >> place % 32 & 1) != 0, "vectors that are found are allowed");
    }
    in.digest({list.scores, list.size});
    in.digest(std::as_bytes(std::span(list.indices, list.size)));
  }

  // Keep rows, and score against rows of any bytes.
  const auto kind = static_cast<StoredRow>(in.number(2));
  const size_t row_bytes = stored_row_bytes(kind, n);
  const std::span<std::byte> kept = in.room<std::byte>(row_bytes * count);
  const Status stored = store_rows(kind, x, n, kept);
  in.digest(stored);
  if (stored == Status::kOk) in.digest(kept);
  const std::span<const float> query = x.first(n);
  const std::span<float> of_row = in.room<float>(n);
  const std::byte* const any = in.bytes(row_bytes);
  for (const std::byte* row : {static_cast<const std::byte*>(kept.data()), any}) {
    if (row != any && stored != Status::kOk) continue;
    const auto score = static_cast<float>(score_row(spec.metric, query, squared_norm(query), kind, row, of_row));
    in.digest({&score, 1});
  }
}

}  // namespace
}  // namespace scalepoint::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  scalepoint::fuzz::Input in(data, size);
  scalepoint::fuzz::run(in);
  return 0;
}

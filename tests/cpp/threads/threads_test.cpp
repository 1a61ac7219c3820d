// Functions of the core in several threads at once, each with its own data, against the same calls one after the other. A program of its
// own, so that the tables of the core are not there before its first test, under the thread sanitizer.
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <thread>
#include <vector>

#include "ggml/ggml_blocks.h"
#include "helpers.h"
#include "search/rotation.h"
#include "search/search.h"

namespace scalepoint::tests {
namespace {

using Result = std::vector<std::byte>;

/// The bytes of some values.
template <class T>
Result bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

/// The results of jobs that begin at the same time, each in its own thread.
std::vector<Result> run_together(const std::vector<std::function<Result()>>& jobs) {
  std::vector<Result> results(jobs.size());
  std::barrier start(static_cast<std::ptrdiff_t>(jobs.size()));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < jobs.size(); i++) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      results[i] = jobs[i]();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(threads, first_blocks_with_grids) {
  std::vector<std::function<Result()>> jobs;
  for (const BlockType type : {BlockType::kIQ3_XXS, BlockType::kIQ3_S, BlockType::kIQ2_XXS, BlockType::kIQ2_XS, BlockType::kIQ2_S,
                               BlockType::kIQ1_S, BlockType::kIQ1_M}) {
    for (uint32_t seed = 1; seed <= 2; seed++) {
      jobs.emplace_back([=] {
        Random random(seed);
        std::vector<float> x(512), restored(512);
        for (float& v : x) v = random.uniform(-1, 1);
        std::vector<std::byte> blocks(blocks_bytes(type, x.size()));
        const std::vector<float> importance(256, 1);
        // Half of the threads begin with restoring.
        if (seed == 2) EXPECT_EQ(dequantize_blocks(blocks, type, restored), Status::kOk);
        EXPECT_EQ(quantize_blocks(x, type, blocks, importance), Status::kOk);
        EXPECT_EQ(dequantize_blocks(blocks, type, restored), Status::kOk);
        return bytes_of(restored);
      });
    }
  }
  const std::vector<Result> together = run_together(jobs);
  for (size_t i = 0; i < jobs.size(); i++) EXPECT_EQ(together[i], jobs[i]()) << i;
}

/// The best vectors of an index for queries that are searched together.
Result search_index(int32_t bits, uint32_t seed) {
  constexpr uint32_t kDimension = 64, kCount = 256, kQueries = 16, kBest = 5;
  const SearchSpec spec{kDimension, bits, Metric::kDot};
  Random random(seed);
  std::vector<float> x(size_t{kCount} * kDimension), center(kDimension), scratch(search_scratch_size(spec));
  for (float& v : x) v = random.uniform(-1, 1);
  std::vector<uint32_t> signs(rotation_words(kDimension)), allowed(kCount / 32, 0xFFFFFFFFu), indices(kQueries * kBest);
  make_rotation(seed, kDimension, signs);
  const SearchFrame frame{signs.data(), center.data()};
  std::vector<std::byte> codes(size_t{kCount} * spec.vector_bytes()), queries(kQueries * query_bytes(spec));
  std::vector<std::byte> room(scan_scratch_bytes(spec, kQueries));
  std::vector<float> factors(kCount), extras(kCount), bounds(kCount / 32 * kBoundFloats), scores(kQueries * kBest);
  const SearchPart part{codes.data(), factors.data(), extras.data(), bounds.data(), kCount};
  EXPECT_EQ(encode_vectors(spec, frame, x, 0, part, scratch), Status::kOk);
  std::vector<BestList> best;
  for (size_t q = 0; q < kQueries; q++) {
    const auto query = std::span(queries).subspan(q * query_bytes(spec), query_bytes(spec));
    EXPECT_EQ(prepare_query(spec, frame, std::span(x).subspan(q * kDimension, kDimension), query, scratch), Status::kOk);
    best.push_back({scores.data() + q * kBest, indices.data() + q * kBest, kBest, 0});
  }
  EXPECT_EQ(scan_part(spec, part, allowed, 0, queries, best, room), Status::kOk);
  Result found = bytes_of(scores);
  const Result places = bytes_of(indices);
  found.insert(found.end(), places.begin(), places.end());
  return found;
}

TEST(threads, searches_of_several_indexes) {
  for (const int32_t bits : {1, 2, 4, 8}) {
    for (uint32_t round = 0; round < 4; round++) {
      std::vector<std::function<Result()>> jobs;
      for (uint32_t i = 0; i < 4; i++) jobs.emplace_back([=] { return search_index(bits, 4 * round + i); });
      const std::vector<Result> together = run_together(jobs);
      for (size_t i = 0; i < jobs.size(); i++) EXPECT_EQ(together[i], jobs[i]()) << bits << " " << round << " " << i;
    }
  }
}

}  // namespace
}  // namespace scalepoint::tests

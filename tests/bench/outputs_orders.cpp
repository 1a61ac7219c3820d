// Measures the divergence of a small llama whose weights are blocks of ggml, with their columns in random orders. outputs-orders.mjs compiles
// and runs it.
//
//   outputs_orders WEIGHTS L D F H G V ORDERS TEXTS TYPE...
//
// WEIGHTS is a file like that of teach_llama.cpp. Draws TEXTS texts of 256 tokens from the model to judge, and 16 others for the importance.
// Prints a line for each type, order and way: TYPE WAY ERROR DIVERGENCE. WAY is plain, best, importance or best+importance. ERROR is the sum
// of squared errors of the weights, each times its importance in ways with importance.
#include <cstddef>
#include <span>

#include "ggml/ggml_blocks.h"
#include "../../scripts/site/storyteller/llama.h"

namespace {

using scalepoint::BlockSearch;
using scalepoint::BlockType;

constexpr size_t kLearned = 16;  ///< texts for the importance
constexpr int kInputs = 4;       ///< different inputs of the weights of a layer

/// A weight: its place, shape, and input.
struct Weight {
  size_t at;
  size_t rows, columns;
  int input;
};

/// Runs texts, all tokens at once.
class Runner {
 public:
  Runner(const Size& size, const Floats& weights) : s_(size), at_(size), original_(weights), squares_(size.layers * kInputs) {}

  /// The logarithms of the chances of the next tokens. Embeddings and output are those of the original.
  Floats run(const Floats& w, const std::vector<int>& tokens, bool sum) {
    const int d = s_.width, kd = s_.keys(), f = s_.inner, rows = static_cast<int>(tokens.size());
    const size_t n = tokens.size();
    Floats x(n * d), normed(n * d);
    for (size_t r = 0; r < n; r++) std::copy_n(&original_[static_cast<size_t>(tokens[r]) * d], d, &x[r * d]);
    for (int i = 0; i < s_.layers; i++) {
      const Layer& l = at_.layers[i];
      Floats q(n * d), k(n * kd), v(n * kd), context(n * d), gate(n * f), up(n * f);
      const auto input = [&](int which, const Floats& from, int columns) {
        if (sum) add_squares(squares_[i * kInputs + which], from, columns);
      };
      norm(x.data(), &w[l.norm], rows, d, normed.data());
      input(0, normed, d);
      forward(rows, d, d, normed.data(), &w[l.q], q.data());
      forward(rows, d, kd, normed.data(), &w[l.k], k.data());
      forward(rows, d, kd, normed.data(), &w[l.v], v.data());
      attend(q, k, v, context);
      input(1, context, d);
      forward(rows, d, d, context.data(), &w[l.o], x.data());
      norm(x.data(), &w[l.norm2], rows, d, normed.data());
      input(2, normed, d);
      forward(rows, d, f, normed.data(), &w[l.gate], gate.data());
      forward(rows, d, f, normed.data(), &w[l.up], up.data());
      for (size_t j = 0; j < gate.size(); j++) gate[j] = silu(gate[j]) * up[j];
      input(3, gate, f);
      forward(rows, f, d, gate.data(), &w[l.down], x.data());
    }
    norm(x.data(), &w[at_.last], rows, d, normed.data());
    Floats logits(n * s_.tokens);
    forward(rows, d, s_.tokens, normed.data(), original_.data(), logits.data());
    for (size_t r = 0; r < n; r++) {
      float* const row = &logits[r * s_.tokens];
      const float most = *std::max_element(row, row + s_.tokens);
      double total = 0;
      for (int j = 0; j < s_.tokens; j++) total += std::exp(row[j] - most);
      const float less = most + static_cast<float>(std::log(total));
      for (int j = 0; j < s_.tokens; j++) row[j] -= less;
    }
    return logits;
  }

  /// The weights of all layers.
  [[nodiscard]] std::vector<Weight> weights() const {
    const auto d = static_cast<size_t>(s_.width), kd = static_cast<size_t>(s_.keys()), f = static_cast<size_t>(s_.inner);
    std::vector<Weight> all;
    int input = 0;
    for (const Layer& l : at_.layers) {
      all.insert(all.end(), {{l.q, d, d, input}, {l.k, kd, d, input}, {l.v, kd, d, input}, {l.o, d, d, input + 1}});
      all.insert(all.end(), {{l.gate, f, d, input + 2}, {l.up, f, d, input + 2}, {l.down, d, f, input + 3}});
      input += kInputs;
    }
    return all;
  }

  /// Sums of the squares of an input's columns.
  [[nodiscard]] const std::vector<double>& squares(int input) const { return squares_[input]; }

 private:
  static void add_squares(std::vector<double>& sums, const Floats& from, int columns) {
    sums.resize(columns);
    for (size_t i = 0; i < from.size(); i++) sums[i % columns] += static_cast<double>(from[i]) * from[i];
  }

  void attend(Floats& q, Floats& k, const Floats& v, Floats& context) const {
    const int d = s_.width, kd = s_.keys(), head = s_.head(), share = s_.heads / s_.groups;
    const int rows = static_cast<int>(q.size()) / d;
#pragma omp parallel for
    for (int r = 0; r < rows; r++) {
      rotate(&q[static_cast<size_t>(r) * d], s_.heads, head, r % kLength, 1);
      rotate(&k[static_cast<size_t>(r) * kd], s_.groups, head, r % kLength, 1);
    }
#pragma omp parallel for
    for (int r = 0; r < rows; r++) {
      const int text = r / kLength * kLength, n = r - text + 1;
      for (int h = 0; h < s_.heads; h++) {
        float chances[kLength];
        const float* const own = &q[static_cast<size_t>(r) * d + h * head];
        float* const to = &context[static_cast<size_t>(r) * d + h * head];
        const size_t from = static_cast<size_t>(text) * kd + h / share * head;
        for (int u = 0; u < n; u++) {
          float dot = 0;
          for (int j = 0; j < head; j++) dot += own[j] * k[from + static_cast<size_t>(u) * kd + j];
          chances[u] = dot / std::sqrt(static_cast<float>(head));
        }
        softmax(chances, n);
        for (int u = 0; u < n; u++) {
          for (int j = 0; j < head; j++) to[j] += chances[u] * v[from + static_cast<size_t>(u) * kd + j];
        }
      }
    }
  }

  Size s_;
  Places at_;
  const Floats& original_;
  std::vector<std::vector<double>> squares_;
};

/// The mean divergence of logarithms of chances from others.
double divergence(const Floats& from, const Floats& of, size_t rows) {
  double sum = 0;
  for (size_t i = 0; i < from.size(); i++) sum += std::exp(from[i]) * (from[i] - of[i]);
  return sum / static_cast<double>(rows);
}

struct Way {
  const char* name;
  BlockSearch search;
  bool weighted;
};
constexpr Way kWays[] = {{"plain", BlockSearch::kUsual, false},
                         {"best", BlockSearch::kBest, false},
                         {"importance", BlockSearch::kUsual, true},
                         {"best+importance", BlockSearch::kBest, true}};

/// Stores a weight in blocks, with its columns in an order, and restores it to w. Rows that are shorter than a block are put side by side.
/// Returns the error.
double store_in_blocks(const Weight& one, const Floats& original, const std::vector<double>& squares,
                       const std::vector<size_t>& order, BlockType type, const Way& way, Floats& w) {
  const scalepoint::BlockSize size = scalepoint::block_size(type);
  const size_t n = one.rows * one.columns;
  size_t columns = one.columns;
  while (columns % size.elements != 0) columns += one.columns;
  Floats x(n), restored(n), importance(way.weighted ? columns : 0);
  double mean = 0;
  for (const double v : squares) mean += v / static_cast<double>(one.columns);
  for (size_t i = 0; i < n; i++) x[i] = original[one.at + i / one.columns * one.columns + order[i % one.columns]];
  for (size_t j = 0; j < importance.size(); j++) importance[j] = static_cast<float>(squares[order[j % one.columns]] / mean);
  std::vector<std::byte> blocks(scalepoint::blocks_bytes(type, n));
  const auto status = scalepoint::quantize_blocks(x, type, blocks, importance, way.search);
  if (status != scalepoint::Status::kOk || scalepoint::dequantize_blocks(blocks, type, restored) != status) std::exit(1);
  double error = 0;
  for (size_t i = 0; i < n; i++) {
    const double off = static_cast<double>(restored[i]) - x[i];
    error += off * off * (way.weighted ? importance[i % columns] : 1);
    w[one.at + i / one.columns * one.columns + order[i % one.columns]] = restored[i];
  }
  return error;
}

}  // namespace

int main(int count, char** arguments) {
  const Size size = size_at(arguments + 2);
  const Floats original = read_floats(arguments[1], Places(size).all);
  const int orders = std::atoi(arguments[8]);
  const size_t judged = static_cast<size_t>(std::atoi(arguments[9])) * kLength;

  // Draw texts, and run them with the original.
  std::mt19937 random(99);
  Teacher teacher(size, original);
  std::vector<int> all, tokens(kRows);
  Floats chances(static_cast<size_t>(kRows) * size.tokens);
  while (all.size() < kLearned * kLength + judged) {
    teacher.draw(random, tokens, chances);
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  const auto middle = all.begin() + kLearned * kLength;
  const std::vector<int> learned(all.begin(), middle), others(middle, middle + static_cast<ptrdiff_t>(judged));
  Runner runner(size, original);
  runner.run(original, learned, true);
  const Floats expected = runner.run(original, others, false);

  // Measure each type in each order. The first order is that of the file.
  for (int i = 10; i < count; i++) {
    const scalepoint::BlockType type{std::atoi(arguments[i])};
    for (int k = 0; k < orders; k++) {
      for (const Way& way : kWays) {
        std::mt19937 shuffles(static_cast<uint32_t>(k));
        Floats w = original;
        double error = 0;
        for (const Weight& one : runner.weights()) {
          std::vector<size_t> order(one.columns);
          for (size_t j = 0; j < order.size(); j++) order[j] = j;
          for (size_t j = order.size() - 1; j > 0 && k > 0; j--) std::swap(order[j], order[shuffles() % (j + 1)]);
          error += store_in_blocks(one, original, runner.squares(one.input), order, type, way, w);
        }
        std::printf("%s %s %.9g %.9g\n", arguments[i], way.name, error,
                    divergence(expected, runner.run(w, others, false), judged));
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

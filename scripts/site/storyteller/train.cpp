// Trains the storyteller. make.mjs compiles and runs it.
//
//   train TOKENS STUDENT STEPS SEED  L D F H G V
//
// TOKENS holds int32 tokens of many stories, one after the other. STUDENT gets the weights as floats: see Places. L layers, D wide, F inner,
// H heads, G heads of keys, V tokens. Each step follows the gradient of the likelihood of 8 texts of 256 tokens, each from the beginning of a
// story.
#include "student.h"

constexpr int kFirst = 1;

int main(int, char** arguments) {
  FILE* const in = std::fopen(arguments[1], "rb");
  if (in == nullptr) return 1;
  std::vector<int32_t> all;
  int32_t piece[4096];
  for (size_t n; (n = std::fread(piece, sizeof(int32_t), 4096, in)) > 0;) all.insert(all.end(), piece, piece + n);
  std::fclose(in);
  std::vector<size_t> starts;
  for (size_t i = 0; i + kLength + 1 < all.size(); i++) {
    if (all[i] == kFirst) starts.push_back(i);
  }
  const int steps = std::atoi(arguments[3]);
  const Size size = size_at(arguments + 5);
  std::mt19937 random(static_cast<uint32_t>(std::atoi(arguments[4])));
  Student student(size, random);
  std::vector<int> tokens(kRows);
  Floats chances(static_cast<size_t>(kRows) * size.tokens);
  double mean = 0;
  for (int step = 0; step < steps; step++) {
    std::fill(chances.begin(), chances.end(), 0.0f);
    for (int text = 0; text < kTexts; text++) {
      const size_t at = starts[random() % starts.size()];
      for (int i = 0; i < kLength; i++) {
        const int row = text * kLength + i;
        tokens[row] = all[at + i];
        chances[static_cast<size_t>(row) * size.tokens + all[at + i + 1]] = 1;
      }
    }
    const double loss = student.follow(tokens, chances);
    mean = step == 0 ? loss : mean + 0.02 * (loss - mean);
    student.move(step, rate_at(step, steps, 3e-3f));
    if (step % 100 == 0 || step + 1 == steps)
      std::printf("step %d of %d: %.4f nats a token\n", step, steps, mean), std::fflush(stdout);
    if (((step + 1) % 500 == 0 || step + 1 == steps) && !student.write(arguments[2])) return 1;
  }
  return 0;
}

// Trains a small llama to say what another one says. teach_llama.mjs compiles and runs it.
//
//   teach_llama TEACHER STUDENT STEPS SEED L D F H G V  L D F H G V
//
// TEACHER holds the weights of the first model as floats: embeddings (also the output), then for each layer the norm, q, k, v, o, the second
// norm, gate, up and down, then the last norm. STUDENT gets those of the second. L layers, D wide, F inner, H heads, G heads of keys, V tokens.
// The student's embeddings begin with those of the teacher, in its first columns. Each step draws 8 texts of 256 tokens from the teacher, and follows the gradient of the divergence of the student from it (AdamW).
#include "../../scripts/site/storyteller/student.h"

int main(int, char** arguments) {
  const Size taught = size_at(arguments + 5), size = size_at(arguments + 11);
  const Floats weights = read_floats(arguments[1], Places(taught).all);
  const int steps = std::atoi(arguments[3]);
  std::mt19937 random(static_cast<uint32_t>(std::atoi(arguments[4])));
  Teacher teacher(taught, weights);
  Student student(size, random);
  student.begin_with(weights, taught.width);
  std::vector<int> tokens(kRows);
  Floats chances(static_cast<size_t>(kRows) * size.tokens);
  for (int step = 0; step < steps; step++) {
    teacher.draw(random, tokens, chances);
    const double loss = student.follow(tokens, chances);
    student.move(step, rate_at(step, steps, 3e-3f));
    if (step % 10 == 0 || step + 1 == steps)
      std::printf("step %d of %d: divergence %.4f\n", step, steps, loss), std::fflush(stdout);
    if (((step + 1) % 50 == 0 || step + 1 == steps) && !student.write(arguments[2])) return 1;
  }
  return 0;
}

// A small llama in plain C++, for programs of benchmarks: products, norms, rotary positions, and a model that draws texts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

using Vector = float __attribute__((vector_size(64), aligned(4)));
using Floats = std::vector<float>;

constexpr int kTexts = 8, kLength = 256, kRows = kTexts * kLength;
constexpr int kPanelRows = 8, kPanelColumns = 32, kDepth = 256;

/// c (m by n, its rows `stride` apart) += a b. The element (i, j) of a is at i * ar + j * ac.
inline void add_product(int m, int n, int k, const float* a, int ar, int ac, const float* b, int br, int bc, float* c,
                        int stride) {
  const int panels = (n + kPanelColumns - 1) / kPanelColumns;
  static Floats right;
  right.resize(static_cast<size_t>(panels) * kPanelColumns * kDepth);
  for (int at = 0; at < k; at += kDepth) {
    const int depth = std::min(kDepth, k - at);
#pragma omp parallel
    {
#pragma omp for
      for (int panel = 0; panel < panels; panel++) {
        float* to = right.data() + static_cast<size_t>(panel) * kPanelColumns * depth;
        for (int p = 0; p < depth; p++) {
          for (int j = 0; j < kPanelColumns; j++) {
            const int column = panel * kPanelColumns + j;
            *to++ = column < n ? b[static_cast<size_t>(at + p) * br + static_cast<size_t>(column) * bc] : 0;
          }
        }
      }
#pragma omp for
      for (int row = 0; row < m; row += kPanelRows) {
        float left[kPanelRows * kDepth];
        for (int p = 0; p < depth; p++) {
          for (int i = 0; i < kPanelRows; i++) {
            const bool inside = row + i < m;
            left[p * kPanelRows + i] = inside ? a[static_cast<size_t>(row + i) * ar + static_cast<size_t>(at + p) * ac] : 0;
          }
        }
        for (int panel = 0; panel < panels; panel++) {
          const float* from = right.data() + static_cast<size_t>(panel) * kPanelColumns * depth;
          Vector sums[kPanelRows][2] = {};
          for (int p = 0; p < depth; p++, from += kPanelColumns) {
            const Vector low = *reinterpret_cast<const Vector*>(from), high = *reinterpret_cast<const Vector*>(from + 16);
            for (int i = 0; i < kPanelRows; i++) {
              sums[i][0] += left[p * kPanelRows + i] * low;
              sums[i][1] += left[p * kPanelRows + i] * high;
            }
          }
          const int width = std::min(kPanelColumns, n - panel * kPanelColumns);
          for (int i = 0; i < kPanelRows && row + i < m; i++) {
            float* const to = c + static_cast<size_t>(row + i) * stride + panel * kPanelColumns;
            for (int j = 0; j < width; j++) to[j] += sums[i][j / 16][j % 16];
          }
        }
      }
    }
  }
}

/// y += x W', with W of `out` rows of `in`.
inline void forward(int rows, int in, int out, const float* x, const float* w, float* y) {
  add_product(rows, out, in, x, in, 1, w, 1, in, y, out);
}

struct Size {
  int layers, width, inner, heads, groups, tokens;
  [[nodiscard]] int head() const { return width / heads; }
  [[nodiscard]] int keys() const { return groups * head(); }
};

/// Places of a layer's weights.
struct Layer {
  size_t norm, q, k, v, o, norm2, gate, up, down;
};

struct Places {
  std::vector<Layer> layers;
  size_t last = 0, all = 0;
  explicit Places(const Size& s) {
    const size_t d = s.width;
    size_t at = d * s.tokens;
    const auto take = [&at](size_t n) { return at += n, at - n; };
    for (int i = 0; i < s.layers; i++) {
      Layer l = {};
      l.norm = take(d), l.q = take(d * d), l.k = take(d * s.keys()), l.v = take(d * s.keys()), l.o = take(d * d);
      l.norm2 = take(d), l.gate = take(d * s.inner), l.up = take(d * s.inner), l.down = take(d * s.inner);
      layers.push_back(l);
    }
    last = take(d);
    all = at;
  }
};

/// Turns the pairs (i, i + half) of each head of a row. direction -1 turns back.
inline void rotate(float* x, int heads, int head, int position, float direction) {
  for (int i = 0; i < head / 2; i++) {
    const float angle =
        static_cast<float>(position) * std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(head));
    const float c = std::cos(angle), s = direction * std::sin(angle);
    for (int h = 0; h < heads; h++) {
      float &a = x[h * head + i], &b = x[h * head + i + head / 2];
      const float turned = a * c - b * s;
      b = b * c + a * s;
      a = turned;
    }
  }
}

constexpr float kEpsilon = 1e-6f;

inline float inverse_rms(const float* x, int n) {
  float sum = 0;
  for (int i = 0; i < n; i++) sum += x[i] * x[i];
  return 1 / std::sqrt(sum / static_cast<float>(n) + kEpsilon);
}

inline void norm(const float* x, const float* g, int rows, int n, float* y) {
  for (int r = 0; r < rows; r++, x += n, y += n) {
    const float scale = inverse_rms(x, n);
    for (int i = 0; i < n; i++) y[i] = x[i] * scale * g[i];
  }
}

inline float silu(float x) { return x / (1 + std::exp(-x)); }

inline void softmax(float* x, int n) {
  const float most = *std::max_element(x, x + n);
  float sum = 0;
  for (int i = 0; i < n; i++) sum += x[i] = std::exp(x[i] - most);
  for (int i = 0; i < n; i++) x[i] /= sum;
}

/// Draws texts, a token of each at a time, and keeps the probabilities of the next token.
class Teacher {
 public:
  Teacher(Size size, Floats weights) : s_(size), at_(size), w_(std::move(weights)) {
    keys_.assign(static_cast<size_t>(s_.layers) * kRows * s_.keys(), 0);
    values_ = keys_;
  }

  void draw(std::mt19937& random, std::vector<int>& tokens, Floats& chances) {
    const int d = s_.width, kd = s_.keys(), head = s_.head(), share = s_.heads / s_.groups;
    std::fill(chances.begin(), chances.end(), 0.0f);
    std::vector<int> now(kTexts, 1);
    for (int p = 0; p < kLength; p++) {
      Floats x(kTexts * d), n(kTexts * d);
      for (int t = 0; t < kTexts; t++) {
        tokens[t * kLength + p] = now[t];
        std::copy_n(w_.data() + static_cast<size_t>(now[t]) * d, d, x.data() + t * d);
      }
      for (int i = 0; i < s_.layers; i++) {
        const Layer& l = at_.layers[i];
        norm(x.data(), &w_[l.norm], kTexts, d, n.data());
        Floats q(kTexts * d), k(kTexts * kd), v(kTexts * kd), context(kTexts * d);
        forward(kTexts, d, d, n.data(), &w_[l.q], q.data());
        forward(kTexts, d, kd, n.data(), &w_[l.k], k.data());
        forward(kTexts, d, kd, n.data(), &w_[l.v], v.data());
        for (int t = 0; t < kTexts; t++) {
          rotate(&q[t * d], s_.heads, head, p, 1);
          rotate(&k[t * kd], s_.groups, head, p, 1);
          float* const keys = &keys_[(static_cast<size_t>(i) * kTexts + t) * kLength * kd];
          float* const values = &values_[(static_cast<size_t>(i) * kTexts + t) * kLength * kd];
          std::copy_n(&k[t * kd], kd, keys + p * kd);
          std::copy_n(&v[t * kd], kd, values + p * kd);
          for (int h = 0; h < s_.heads; h++) {
            float scores[kLength];
            const int g = h / share * head;
            for (int u = 0; u <= p; u++) {
              float sum = 0;
              for (int j = 0; j < head; j++) sum += q[t * d + h * head + j] * keys[u * kd + g + j];
              scores[u] = sum / std::sqrt(static_cast<float>(head));
            }
            softmax(scores, p + 1);
            for (int u = 0; u <= p; u++) {
              for (int j = 0; j < head; j++) context[t * d + h * head + j] += scores[u] * values[u * kd + g + j];
            }
          }
        }
        forward(kTexts, d, d, context.data(), &w_[l.o], x.data());
        norm(x.data(), &w_[l.norm2], kTexts, d, n.data());
        Floats a(kTexts * s_.inner), b(kTexts * s_.inner);
        forward(kTexts, d, s_.inner, n.data(), &w_[l.gate], a.data());
        forward(kTexts, d, s_.inner, n.data(), &w_[l.up], b.data());
        for (size_t j = 0; j < a.size(); j++) a[j] = silu(a[j]) * b[j];
        forward(kTexts, s_.inner, d, a.data(), &w_[l.down], x.data());
      }
      norm(x.data(), &w_[at_.last], kTexts, d, n.data());
      Floats logits(kTexts * s_.tokens);
      forward(kTexts, d, s_.tokens, n.data(), w_.data(), logits.data());
      for (int t = 0; t < kTexts; t++) {
        float* const row = &logits[t * s_.tokens];
        softmax(row, s_.tokens);
        std::copy_n(row, s_.tokens, &chances[static_cast<size_t>(t * kLength + p) * s_.tokens]);
        float left = std::uniform_real_distribution<float>(0, 1)(random);
        now[t] = 0;
        while (now[t] + 1 < s_.tokens && (left -= row[now[t]]) > 0) now[t]++;
        // A story that ends is followed by another one.
        if (now[t] == 2) now[t] = 1;
      }
    }
  }

 private:
  Size s_;
  Places at_;
  Floats w_, keys_, values_;
};

inline Size size_at(char** arguments) {
  int n[6];
  for (int i = 0; i < 6; i++) n[i] = std::atoi(arguments[i]);
  return {n[0], n[1], n[2], n[3], n[4], n[5]};
}

/// The floats of a file. Ends the program unless it holds n.
inline Floats read_floats(const char* name, size_t n) {
  Floats floats(n);
  FILE* const in = std::fopen(name, "rb");
  if (in == nullptr || std::fread(floats.data(), 4, n, in) != n) std::exit(1);
  std::fclose(in);
  return floats;
}

// A small llama that learns, in plain C++: its gradient by hand, and steps of AdamW. The order of sums does not depend on the threads.
#pragma once

#include "llama.h"

/// dx += dy W and dw += dy' x.
inline void backward(int rows, int in, int out, const float* x, const float* w, const float* dy, float* dx, float* dw) {
  add_product(rows, in, out, dy, out, 1, w, in, 1, dx, in);
  add_product(out, in, rows, dy, 1, out, x, in, 1, dw, in);
}

inline void norm_backward(const float* x, const float* g, const float* dy, int rows, int n, float* dx, float* dg) {
  for (int r = 0; r < rows; r++, x += n, dy += n, dx += n) {
    const float scale = inverse_rms(x, n);
    float dot = 0;
    for (int i = 0; i < n; i++) {
      dot += dy[i] * g[i] * x[i];
      dg[i] += dy[i] * x[i] * scale;
    }
    dot *= scale * scale / static_cast<float>(n);
    for (int i = 0; i < n; i++) dx[i] += scale * (dy[i] * g[i] - x[i] * dot);
  }
}

class Student {
 public:
  Student(Size size, std::mt19937& random) : s_(size), at_(size) {
    w_.resize(at_.all);
    std::normal_distribution<float> bell(0, 0.02f);
    for (float& v : w_) v = bell(random);
    for (const Layer& l : at_.layers) {
      std::fill_n(&w_[l.norm], s_.width, 1.0f);
      std::fill_n(&w_[l.norm2], s_.width, 1.0f);
    }
    std::fill_n(&w_[at_.last], s_.width, 1.0f);
    first_.assign(at_.all, 0);
    second_.assign(at_.all, 0);
  }

  /// Copies embeddings that are narrower into the first columns of its own.
  void begin_with(const Floats& embeddings, int width) {
    for (int i = 0; i < s_.tokens; i++) {
      std::copy_n(&embeddings[static_cast<size_t>(i) * width], width, &w_[static_cast<size_t>(i) * s_.width]);
    }
  }

  [[nodiscard]] const Floats& weights() const { return w_; }

  /// Writes the weights as floats. False if that fails.
  [[nodiscard]] bool write(const char* name) const {
    FILE* const out = std::fopen(name, "wb");
    if (out == nullptr) return false;
    const bool whole = std::fwrite(w_.data(), sizeof(float), w_.size(), out) == w_.size();
    return std::fclose(out) == 0 && whole;
  }

  /// The mean divergence of the next tokens. Leaves its gradient.
  double follow(const std::vector<int>& tokens, const Floats& chances) {
    const int d = s_.width, kd = s_.keys(), f = s_.inner;
    struct Kept {
      Floats x, n, q, k, v, scores, context, x2, n2, a, b, h;
    };
    std::vector<Kept> kept(s_.layers);
    gradient_.assign(at_.all, 0);
    Floats x(static_cast<size_t>(kRows) * d);
    for (int r = 0; r < kRows; r++) std::copy_n(&w_[static_cast<size_t>(tokens[r]) * d], d, &x[static_cast<size_t>(r) * d]);
    for (int i = 0; i < s_.layers; i++) {
      const Layer& l = at_.layers[i];
      Kept& c = kept[i];
      c.x = x;
      c.n.resize(x.size()), c.q.assign(x.size(), 0), c.context.assign(x.size(), 0), c.n2.resize(x.size());
      c.k.assign(static_cast<size_t>(kRows) * kd, 0), c.v = c.k;
      c.a.assign(static_cast<size_t>(kRows) * f, 0), c.b = c.a, c.h = c.a;
      norm(x.data(), &w_[l.norm], kRows, d, c.n.data());
      forward(kRows, d, d, c.n.data(), &w_[l.q], c.q.data());
      forward(kRows, d, kd, c.n.data(), &w_[l.k], c.k.data());
      forward(kRows, d, kd, c.n.data(), &w_[l.v], c.v.data());
      turn(c.q, c.k, 1);
      attend(c.q, c.k, c.v, c.scores, c.context);
      forward(kRows, d, d, c.context.data(), &w_[l.o], x.data());
      c.x2 = x;
      norm(x.data(), &w_[l.norm2], kRows, d, c.n2.data());
      forward(kRows, d, f, c.n2.data(), &w_[l.gate], c.a.data());
      forward(kRows, d, f, c.n2.data(), &w_[l.up], c.b.data());
      for (size_t j = 0; j < c.a.size(); j++) c.h[j] = silu(c.a[j]) * c.b[j];
      forward(kRows, f, d, c.h.data(), &w_[l.down], x.data());
    }
    Floats n(x.size()), logits(chances.size(), 0.0f), dn(x.size(), 0.0f), dx(x.size(), 0.0f);
    norm(x.data(), &w_[at_.last], kRows, d, n.data());
    forward(kRows, d, s_.tokens, n.data(), w_.data(), logits.data());
    double loss = 0;
#pragma omp parallel for reduction(+ : loss)
    for (int r = 0; r < kRows; r++) {
      float* const row = &logits[static_cast<size_t>(r) * s_.tokens];
      const float* const wanted = &chances[static_cast<size_t>(r) * s_.tokens];
      softmax(row, s_.tokens);
      for (int j = 0; j < s_.tokens; j++) {
        if (wanted[j] > 0) loss += wanted[j] * std::log(wanted[j] / std::max(row[j], 1e-30f));
        row[j] = (row[j] - wanted[j]) / kRows;
      }
    }
    backward(kRows, d, s_.tokens, n.data(), w_.data(), logits.data(), dn.data(), gradient_.data());
    norm_backward(x.data(), &w_[at_.last], dn.data(), kRows, d, dx.data(), &gradient_[at_.last]);
    for (int i = s_.layers; i-- > 0;) {
      const Layer& l = at_.layers[i];
      Kept& c = kept[i];
      Floats dh(c.h.size(), 0.0f), da(c.h.size()), db(c.h.size());
      backward(kRows, f, d, c.h.data(), &w_[l.down], dx.data(), dh.data(), &gradient_[l.down]);
      for (size_t j = 0; j < dh.size(); j++) {
        const float sigmoid = 1 / (1 + std::exp(-c.a[j]));
        da[j] = dh[j] * c.b[j] * sigmoid * (1 + c.a[j] * (1 - sigmoid));
        db[j] = dh[j] * c.a[j] * sigmoid;
      }
      std::fill(dn.begin(), dn.end(), 0.0f);
      backward(kRows, d, f, c.n2.data(), &w_[l.gate], da.data(), dn.data(), &gradient_[l.gate]);
      backward(kRows, d, f, c.n2.data(), &w_[l.up], db.data(), dn.data(), &gradient_[l.up]);
      norm_backward(c.x2.data(), &w_[l.norm2], dn.data(), kRows, d, dx.data(), &gradient_[l.norm2]);
      Floats dcontext(x.size(), 0.0f), dq(x.size(), 0.0f), dk(c.k.size(), 0.0f), dv(c.v.size(), 0.0f);
      backward(kRows, d, d, c.context.data(), &w_[l.o], dx.data(), dcontext.data(), &gradient_[l.o]);
      attend_backward(c.q, c.k, c.v, c.scores, dcontext, dq, dk, dv);
      turn(dq, dk, -1);
      std::fill(dn.begin(), dn.end(), 0.0f);
      backward(kRows, d, d, c.n.data(), &w_[l.q], dq.data(), dn.data(), &gradient_[l.q]);
      backward(kRows, d, kd, c.n.data(), &w_[l.k], dk.data(), dn.data(), &gradient_[l.k]);
      backward(kRows, d, kd, c.n.data(), &w_[l.v], dv.data(), dn.data(), &gradient_[l.v]);
      norm_backward(c.x.data(), &w_[l.norm], dn.data(), kRows, d, dx.data(), &gradient_[l.norm]);
    }
    for (int r = 0; r < kRows; r++) {
      for (int j = 0; j < d; j++) gradient_[static_cast<size_t>(tokens[r]) * d + j] += dx[static_cast<size_t>(r) * d + j];
    }
    return loss / kRows;
  }

  /// A step of AdamW.
  void move(int step, float rate) {
    double square = 0;
    for (const float g : gradient_) square += static_cast<double>(g) * g;
    const auto clip = static_cast<float>(std::min(1.0, 1 / std::sqrt(square)));
    const float a = 1 - std::pow(0.9f, static_cast<float>(step + 1)), b = 1 - std::pow(0.95f, static_cast<float>(step + 1));
    for (size_t i = 0; i < w_.size(); i++) {
      const float g = gradient_[i] * clip;
      first_[i] += 0.1f * (g - first_[i]);
      second_[i] += 0.05f * (g * g - second_[i]);
      w_[i] -= rate * (first_[i] / a / (std::sqrt(second_[i] / b) + 1e-8f) + 0.02f * w_[i]);
    }
  }

 private:
  void turn(Floats& q, Floats& k, float direction) const {
#pragma omp parallel for
    for (int r = 0; r < kRows; r++) {
      rotate(&q[static_cast<size_t>(r) * s_.width], s_.heads, s_.head(), r % kLength, direction);
      rotate(&k[static_cast<size_t>(r) * s_.keys()], s_.groups, s_.head(), r % kLength, direction);
    }
  }

  void attend(const Floats& q, const Floats& k, const Floats& v, Floats& scores, Floats& context) const {
    const int d = s_.width, kd = s_.keys(), head = s_.head(), share = s_.heads / s_.groups;
    scores.assign(static_cast<size_t>(kRows) * s_.heads * kLength, 0);
#pragma omp parallel for
    for (int r = 0; r < kRows; r++) {
      const int text = r / kLength * kLength;
      for (int h = 0; h < s_.heads; h++) {
        float* const p = &scores[(static_cast<size_t>(r) * s_.heads + h) * kLength];
        const float* const own = &q[static_cast<size_t>(r) * d + h * head];
        const int g = h / share * head, n = r - text + 1;
        for (int u = 0; u < n; u++) {
          float sum = 0;
          for (int j = 0; j < head; j++) sum += own[j] * k[static_cast<size_t>(text + u) * kd + g + j];
          p[u] = sum / std::sqrt(static_cast<float>(head));
        }
        softmax(p, n);
        float* const to = &context[static_cast<size_t>(r) * d + h * head];
        for (int u = 0; u < n; u++) {
          for (int j = 0; j < head; j++) to[j] += p[u] * v[static_cast<size_t>(text + u) * kd + g + j];
        }
      }
    }
  }

  void attend_backward(const Floats& q, const Floats& k, const Floats& v, const Floats& scores, const Floats& dcontext,
                       Floats& dq, Floats& dk, Floats& dv) const {
    const int d = s_.width, kd = s_.keys(), head = s_.head(), share = s_.heads / s_.groups;
    const float scale = 1 / std::sqrt(static_cast<float>(head));
#pragma omp parallel for
    for (int text = 0; text < kRows; text += kLength) {
      for (int r = text; r < text + kLength; r++) {
        for (int h = 0; h < s_.heads; h++) {
          const float* const p = &scores[(static_cast<size_t>(r) * s_.heads + h) * kLength];
          const size_t own = static_cast<size_t>(r) * d + h * head;
          const int g = h / share * head, n = r - text + 1;
          float dp[kLength], dot = 0;
          for (int u = 0; u < n; u++) {
            const size_t other = static_cast<size_t>(text + u) * kd + g;
            dp[u] = 0;
            for (int j = 0; j < head; j++) {
              dp[u] += dcontext[own + j] * v[other + j];
              dv[other + j] += p[u] * dcontext[own + j];
            }
            dot += dp[u] * p[u];
          }
          for (int u = 0; u < n; u++) {
            const size_t other = static_cast<size_t>(text + u) * kd + g;
            const float ds = p[u] * (dp[u] - dot) * scale;
            for (int j = 0; j < head; j++) {
              dq[own + j] += ds * k[other + j];
              dk[other + j] += ds * q[own + j];
            }
          }
        }
      }
    }
  }

  Size s_;
  Places at_;
  Floats w_, gradient_, first_, second_;
};

/// The rate of a step: it rises for 30 steps, and falls along a cosine to a twentieth.
inline float rate_at(int step, int steps, float most) {
  const float share = static_cast<float>(step) / static_cast<float>(steps);
  const float rising = std::min(1.0f, static_cast<float>(step + 1) / 30);
  return most * rising * (0.05f + 0.95f * 0.5f * (1 + std::cos(3.14159265f * share)));
}

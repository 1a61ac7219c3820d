#include <scalepoint/scalepoint.h>

#include <cstdio>

int main() {
  const float x[] = {-12.7f, -3.3f, 0, 5, 12.7f};
  int8_t codes[5];
  float scale;
  int32_t zero_point;
  const scalepoint::QuantizationSpec spec{.dtype = {8, true}};  // int8, symmetric
  const auto status =
      scalepoint::quantize_runs(x, 5, 5, spec, {&scale, 1}, {&zero_point, 1}, std::as_writable_bytes(std::span(codes)));
  if (status != scalepoint::Status::kOk) return 1;
  for (const int8_t code : codes) std::printf("%d ", code);  // -127 -33 0 50 127
  std::printf("times %.3f\n", scale);                        // times 0.100
}

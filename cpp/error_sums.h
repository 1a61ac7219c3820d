// What error measures are made from.
#pragma once

namespace scalepoint {

/// Sums from which every error measure follows; e = x - y. Pairs with a NaN or an infinity count in non_finite and nowhere else.
struct ErrorSums {
  double squared_error = 0;   ///< sum e^2
  double absolute_error = 0;  ///< sum |e|
  double max_absolute_error = 0;
  double squared_x = 0;   ///< sum x^2
  double squared_y = 0;   ///< sum y^2
  double product = 0;     ///< sum x y
  double non_finite = 0;  ///< number of pairs left out
};

}  // namespace scalepoint

// Sums from which all error measures follow.
#pragma once

#include <cstddef>

namespace scalepoint {

namespace loops {

/// Elements that are summed in float32 before the sums are added to doubles.
inline constexpr size_t kErrorBlock = 512;

}  // namespace loops

/// Sums over pairs of an original x and a restored value y, with e = x - y. All error measures follow from them. A pair with a NaN or an
/// infinity adds to non_finite only.
struct ErrorSums {
  double squared_error = 0;   ///< sum e^2
  double absolute_error = 0;  ///< sum |e|
  double max_absolute_error = 0;
  double squared_x = 0;   ///< sum x^2
  double squared_y = 0;   ///< sum y^2
  double product = 0;     ///< sum x y
  double non_finite = 0;  ///< number of pairs left out
  double saturated = 0;   ///< number of x that a float type does not reach, of which y is the largest value
  // With w, the weight of the squared errors of a column. 0 if all columns have the same weight.
  double weighted_error = 0;  ///< sum w e^2
  double weighted_x = 0;      ///< sum w x^2
  // With H, the second moments of a matrix's inputs: those on held-back data if there are some. 0 without them.
  double output_x = 0;       ///< sum over rows of x H x'
  double output_before = 0;  ///< the same of the errors without feedback
  double output_error = 0;   ///< the same of the errors e
  double damping = 0;        ///< largest damping of H
  double outputs = 0;        ///< number of rows
  double held_outputs = 0;   ///< number of rows with errors on held-back data
  double plain_outputs = 0;  ///< number of rows that keep their codes without feedback
  double fitted_before = 0;  ///< output_before on the data that the codes were fitted to
  double fitted_error = 0;   ///< output_error on these
};

}  // namespace scalepoint

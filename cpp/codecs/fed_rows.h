// Rows of codes that pass their errors on, for codecs with a part for codes and parts for the numbers of groups.
#pragma once

#include <cstddef>
#include <cstdint>

#include "calibration/feedback.h"
#include "codecs/codec.h"

namespace scalepoint::codecs {

/// A form of a codec, for a tile of whole rows. The tile is [inputs, outputs] if `turned`, and a row is then a column of it.
class FedForm {
 public:
  explicit FedForm(bool turned = false) : turned_(turned) {}
  FedForm(const FedForm&) = delete;
  FedForm& operator=(const FedForm&) = delete;
  [[nodiscard]] bool turned() const { return turned_; }

  // Every form has its own of these: see FeedbackGrid.

  /// Encodes without feedback.
  virtual Status encode_plain(const Tile&, Arena&, Encoded&) { return Status::kBadDType; }
  /// Restores the floats of a tile.
  virtual Status restore(const Stored&, Arena&, const float*&) { return Status::kBadDType; }
  /// Replaces the parts of a row, as the grid chose them. @param codes of quantize_with_feedback
  virtual void write(size_t row, const uint8_t* codes, std::byte* data, std::byte* scale, std::byte* zero_point) {
    (void)row, (void)codes, (void)data, (void)scale, (void)zero_point;
  }

 protected:
  ~FedForm() = default;

 private:
  bool turned_;
};

/// Encodes whole rows, which OutputJudge chooses to be without feedback, with it, or refined where groups share no scales. All are without
/// if passed-on errors leave the range of the form. Makes all parts, wanted or not. A measured tile has the errors of outputs before and
/// after.
/// Status: those of the form, of take_input_rows and of Arena; kBadLayout if there are no columns; kNonFinite if errors of outputs are not
///         finite.
[[nodiscard]] Status encode_fed_rows(const Tile& tile, FedForm& form, FeedbackGrid& grid, const Moments& moments, Arena& arena,
                                     Encoded& result) noexcept;

}  // namespace scalepoint::codecs

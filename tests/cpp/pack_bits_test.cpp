// Dense storage of codes.
#include "arrays/pack_bits_loops.h"
#include "helpers.h"

namespace scalepoint::tests {
namespace {

std::vector<uint8_t> as_bytes(std::span<const std::byte> bytes) {
  std::vector<uint8_t> result;
  for (const std::byte byte : bytes) result.push_back(std::to_integer<uint8_t>(byte));
  return result;
}

std::vector<std::byte> from_bytes(const std::vector<uint8_t>& bytes) {
  std::vector<std::byte> result;
  for (const uint8_t byte : bytes) result.push_back(std::byte{byte});
  return result;
}

/// Packs codes that start `offset` codes behind a 16-byte boundary into bytes that start as many bytes behind one.
std::vector<uint8_t> packed(const std::vector<int32_t>& codes, DType dtype, size_t offset = 0) {
  Buffer<std::byte> result(packed_bytes(codes.size(), dtype.bits), offset);
  EXPECT_EQ(pack(Buffer<std::byte>(store_codes(codes, dtype), offset * dtype.storage_bytes()), dtype, result), Status::kOk);
  return as_bytes(result);
}

std::vector<int32_t> unpacked(const std::vector<uint8_t>& bytes, DType dtype, size_t n, size_t offset = 0) {
  Buffer<std::byte> codes(n * dtype.storage_bytes(), offset * dtype.storage_bytes());
  EXPECT_EQ(unpack(Buffer<std::byte>(from_bytes(bytes), offset), dtype, codes), Status::kOk);
  return load_codes(codes, dtype);
}

TEST(PackedBytes, rounds_the_bits_up_to_bytes) {
  for (const DType dtype : kDTypes) {
    for (uint64_t n = 0; n < 100; n++) {
      EXPECT_EQ(packed_bytes(n, dtype.bits), (n * dtype.bits + 7) / 8) << n << " " << name(dtype);
    }
  }
}

TEST(PackedBytes, holds_for_more_elements_than_32_bits_count) {
  EXPECT_EQ(packed_bytes(uint64_t{1} << 33, 3), uint64_t{3} << 30);
  EXPECT_EQ(packed_bytes((uint64_t{1} << 33) + 1, 3), (uint64_t{3} << 30) + 1);
  EXPECT_EQ(packed_bytes(uint64_t{1} << 61, 16), uint64_t{1} << 62);
  EXPECT_EQ(packed_bytes(UINT64_MAX, 2), uint64_t{1} << 62);
  EXPECT_EQ(packed_bytes(UINT64_MAX, 8), UINT64_MAX);
}

TEST(Pack, fills_bytes_from_the_least_significant_bit) {
  const struct {
    DType dtype;
    std::vector<int32_t> codes;
    std::vector<uint8_t> bytes;
  } kCases[] = {
      {kUint2, {0, 1, 2, 3}, {0b11100100}},
      {kInt2, {-2, -1, 0, 1}, {0b01001110}},
      {kUint4, {1, 2, 3}, {0x21, 0x03}},
      {kInt4, {-8, 7, -1, 0}, {0x78, 0x0F}},
      {{3, false}, {1, 2, 3, 4, 5, 6, 7, 0}, {0b11010001, 0b01011000, 0b00011111}},
      {{3, true}, {-1, -4, 3}, {0b11100111, 0b00000000}},
      {{5, false}, {31, 0, 31}, {0x1F, 0x7C}},
      {{6, false}, {63, 0, 1}, {0x3F, 0x10, 0x00}},
      {{7, true}, {-1, -64}, {0x7F, 0x20}},
      {kInt8, {-128, 127}, {0x80, 0x7F}},
      {kUint16, {0x1234, 0xFFFE}, {0x34, 0x12, 0xFE, 0xFF}},
      {kInt16, {-2, 1}, {0xFE, 0xFF, 0x01, 0x00}},
  };
  for (const auto& [dtype, codes, bytes] : kCases) {
    EXPECT_EQ(packed(codes, dtype), bytes) << name(dtype);
    EXPECT_EQ(unpacked(bytes, dtype, codes.size()), codes) << name(dtype);
  }
}

TEST(Pack, agrees_with_the_oracle_for_every_type_and_length) {
  Random random(21);
  SCOPED_TRACE("seed 21");
  for (const DType dtype : kDTypes) {
    for (size_t n = 0; n < 300; n++) {
      const std::vector<int32_t> codes = random.codes(n, dtype);
      ASSERT_TRUE(same(reference::pack(codes, dtype), packed(codes, dtype, n % 4))) << name(dtype) << " length " << n;
    }
  }
}

TEST(Pack, drops_the_upper_bits_of_a_code_outside_the_type) {
  Random random(22);
  SCOPED_TRACE("seed 22");
  for (const DType dtype : kDTypes) {
    if (dtype.bits >= 8) continue;
    for (const size_t n : kLengths) {
      const std::vector<int32_t> codes = random.codes(n, dtype.is_signed ? kInt8 : kUint8);
      ASSERT_TRUE(same(reference::pack(codes, dtype), packed(codes, dtype))) << name(dtype) << " length " << n;
    }
  }
}

TEST(Unpack, agrees_with_the_oracle_on_any_bytes) {
  Random random(23);
  SCOPED_TRACE("seed 23");
  for (const DType dtype : kDTypes) {
    for (size_t n = 0; n < 300; n++) {
      // The unused bits of the last byte are set here as often as not.
      std::vector<uint8_t> bytes(packed_bytes(n, dtype.bits));
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.below(256));
      ASSERT_TRUE(same(reference::unpack(bytes, dtype, n), unpacked(bytes, dtype, n, n % 4))) << name(dtype) << " length " << n;
    }
  }
}

TEST(Unpack, reverses_pack) {
  Random random(24);
  SCOPED_TRACE("seed 24");
  for (const DType dtype : kDTypes) {
    for (const size_t n : kLengths) {
      std::vector<int32_t> codes = random.codes(n, dtype);
      if (n > 1) codes[0] = reference::lowest_code(dtype), codes[n - 1] = reference::highest_code(dtype);
      ASSERT_TRUE(same(codes, unpacked(packed(codes, dtype), dtype, n))) << name(dtype) << " length " << n;
    }
  }
}

TEST(Pack, refuses_other_types) {
  std::vector<std::byte> bytes(64);
  for (const int32_t bits : kBadBits) {
    for (const bool is_signed : {true, false}) {
      EXPECT_EQ(pack(bytes, {bits, is_signed}, bytes), Status::kBadDType) << bits;
      EXPECT_EQ(unpack(bytes, {bits, is_signed}, bytes), Status::kBadDType) << bits;
    }
  }
}

TEST(Pack, refuses_lengths_that_do_not_belong_together) {
  for (const DType dtype : kDTypes) {
    for (const size_t n : {1, 4, 9, 64}) {
      std::vector<std::byte> codes(n * dtype.storage_bytes());
      for (const int difference : {-1, 1}) {
        std::vector<std::byte> wrong(packed_bytes(n, dtype.bits) + difference);
        EXPECT_EQ(pack(codes, dtype, wrong), Status::kSizeMismatch) << name(dtype) << " " << n;
        EXPECT_EQ(unpack(wrong, dtype, codes), Status::kSizeMismatch) << name(dtype) << " " << n;
      }
    }
  }
  // Half a code.
  std::vector<std::byte> three(3), two(2), four(4);
  for (const DType dtype : {kInt16, kUint16}) {
    for (auto* packed : {&two, &three, &four}) {
      EXPECT_EQ(pack(three, dtype, *packed), Status::kSizeMismatch);
      EXPECT_EQ(unpack(*packed, dtype, three), Status::kSizeMismatch);
    }
  }
}

// ------------------------------------------------------------------------------------------------------------------ loops

using loops::CodeForm;

constexpr CodeForm kForms[] = {CodeForm::kUnsigned, CodeForm::kTwosComplement, CodeForm::kOffsetBinary};

/// Widths, forms and lengths by name, for traces.
std::string name(int32_t bits, CodeForm form, size_t n) {
  constexpr const char* kNames[] = {" bits unsigned, ", " bits two's complement, ", " bits offset binary, "};
  return std::to_string(bits) + kNames[static_cast<int>(form)] + std::to_string(n) + " codes";
}

/// All bits of all codes, one by one.
std::vector<uint8_t> slowly_packed(const std::vector<uint8_t>& codes, int32_t bits, CodeForm form) {
  std::vector<uint8_t> result((codes.size() * bits + 7) / 8);
  size_t position = 0;
  for (const uint8_t code : codes) {
    for (int32_t bit = 0; bit < bits; bit++, position++) {
      bool is_set = code >> bit & 1;
      if (form == CodeForm::kOffsetBinary && bit == bits - 1) is_set = !is_set;
      if (is_set) result[position / 8] |= 1 << position % 8;
    }
  }
  return result;
}

std::vector<uint8_t> slowly_unpacked(const std::vector<uint8_t>& bytes, int32_t bits, CodeForm form, size_t n) {
  std::vector<uint8_t> codes(n);
  size_t position = 0;
  for (uint8_t& code : codes) {
    int32_t value = 0;
    for (int32_t bit = 0; bit < bits; bit++, position++) value += (bytes[position / 8] >> position % 8 & 1) << bit;
    const int32_t half = 1 << (bits - 1);
    if (form == CodeForm::kTwosComplement && value >= half) value -= 2 * half;
    if (form == CodeForm::kOffsetBinary) value -= half;
    code = static_cast<uint8_t>(value);
  }
  return codes;
}

std::vector<uint8_t> random_bytes(Random& random, size_t n) {
  std::vector<uint8_t> bytes(n);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.bits());
  return bytes;
}

/// Both directions on random bytes: codes with bits above their width, packed bytes with unused bits set. The buffers begin that
/// many bytes behind a boundary of 16.
void expect_exact(Random& random, int32_t bits, CodeForm form, size_t n, size_t code_offset, size_t packed_offset) {
  const std::vector<uint8_t> codes = random_bytes(random, n), bytes = random_bytes(random, packed_bytes(n, bits));
  {
    Buffer<uint8_t> from(codes, code_offset), to(bytes.size(), packed_offset);
    loops::pack_codes(from.data(), n, bits, form, to.data());
    ASSERT_TRUE(same(slowly_packed(codes, bits, form), to.values())) << name(bits, form, n);
  }
  Buffer<uint8_t> from(bytes, packed_offset), to(n, code_offset);
  loops::unpack_codes(from.data(), n, bits, form, to.data());
  ASSERT_TRUE(same(slowly_unpacked(bytes, bits, form, n), to.values())) << name(bits, form, n);
}

TEST(PackCodes, and_unpack_codes_agree_with_the_oracle_at_every_length) {
  Random random(25);
  SCOPED_TRACE("seed 25");
  for (int32_t bits = 1; bits <= 8; bits++) {
    for (const CodeForm form : kForms) {
      for (size_t n = 0; n <= 200; n++) {
        expect_exact(random, bits, form, n, random.below(16), random.below(16));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(PackCodes, and_unpack_codes_agree_with_the_oracle_on_long_arrays) {
  Random random(26);
  SCOPED_TRACE("seed 26");
  for (int32_t bits = 1; bits <= 8; bits++) {
    for (const CodeForm form : kForms) {
      for (const size_t n : {4096, 4097, 10'007, 65'533, 65'535, 100'003}) {
        expect_exact(random, bits, form, n, 2 * random.below(8) + 1, 2 * random.below(8) + 1);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(PackCodes, know_every_code_at_every_place) {
  for (int32_t bits = 1; bits <= 8; bits++) {
    for (const CodeForm form : kForms) {
      std::vector<uint8_t> codes(40), packed(packed_bytes(40, bits)), again(40);
      for (int32_t code = 0; code < 256; code++) {
        // Of the bits above the width, all are set or none.
        if (code >= 1 << bits && code < 256 - (1 << bits)) continue;
        for (size_t place = 0; place < 40; place++) {
          std::fill(codes.begin(), codes.end(), static_cast<uint8_t>(~code));
          codes[place] = static_cast<uint8_t>(code);
          loops::pack_codes(codes.data(), 40, bits, form, packed.data());
          ASSERT_TRUE(same(slowly_packed(codes, bits, form), packed)) << name(bits, form, 40) << ", " << code << " at " << place;
          loops::unpack_codes(packed.data(), 40, bits, form, again.data());
          ASSERT_TRUE(same(slowly_unpacked(packed, bits, form, 40), again)) << name(bits, form, 40) << ", " << code;
        }
      }
    }
  }
}

TEST(PackCodes, write_the_words_of_compressed_tensors) {
  // Its words hold code + 8 or code + 128: two's complement with the sign bits flipped. What fills the last word stays 0.
  Random random(27);
  SCOPED_TRACE("seed 27");
  for (const auto& [bits, flip] : {std::pair{4, 0x88}, std::pair{8, 0x80}}) {
    for (const size_t n : {8, 40, 1000}) {
      const std::vector<uint8_t> codes = random_bytes(random, n);
      std::vector<uint8_t> words(packed_bytes(n, bits)), expected(words.size());
      loops::pack_codes(codes.data(), n, bits, CodeForm::kOffsetBinary, words.data());
      loops::pack_codes(codes.data(), n, bits, CodeForm::kTwosComplement, expected.data());
      for (uint8_t& byte : expected) byte ^= flip;
      EXPECT_TRUE(same(expected, words)) << bits << " bits, " << n << " codes";
    }
  }
  const std::vector<uint8_t> one = {0xF9};  // -7
  std::vector<uint8_t> byte(1);
  loops::pack_codes(one.data(), 1, 4, CodeForm::kOffsetBinary, byte.data());
  EXPECT_EQ(byte[0], 0x01);
}

TEST(FirstOutside, finds_a_code_below_or_above_its_type_anywhere) {
  for (const bool is_signed : {true, false}) {
    for (int32_t bits = 2; bits <= 8; bits++) {
      const DType dtype = {bits, is_signed};
      for (const size_t n : {0, 1, 15, 16, 17, 1023, 1024, 1025, 3000}) {
        std::vector<uint8_t> codes(n);
        for (size_t i = 0; i < n; i++) codes[i] = static_cast<uint8_t>(i % 2 == 0 ? dtype.qmin() : dtype.qmax());
        EXPECT_EQ(first_outside(codes, dtype), n);
        if (bits == 8) continue;
        for (size_t at = 0; at < n; at += n / 7 + 1) {
          for (const int32_t code : {dtype.qmin() - 1, dtype.qmax() + 1, 0x80 - (is_signed ? 256 : 0)}) {
            std::vector<uint8_t> bad = codes;
            bad[at] = static_cast<uint8_t>(code);
            bad[n - 1] = at % 2 == 0 ? static_cast<uint8_t>(code) : bad[n - 1];
            EXPECT_EQ(first_outside(bad, dtype), at) << bits << " " << n << " " << code;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace scalepoint::tests

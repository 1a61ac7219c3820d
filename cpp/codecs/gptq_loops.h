// Loops over words of codes that lie across the rows of a tile, as in the layouts of GPTQ and AWQ.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::loops {

/// codes[row * columns + i], of one byte each, from words [columns * bits / 32, rows] whose columns hold those of a row, lowest bits first.
/// columns is a multiple of 32.
void unpack_down(const uint32_t* words, size_t rows, size_t columns, int32_t bits, uint8_t* codes);
void pack_down(const uint8_t* codes, size_t rows, size_t columns, int32_t bits, uint32_t* words);

/// codes[row * columns + i] from words [columns, rows / 8], each of eight rows: nibble i of a word, the lowest first, is row
/// 0 2 4 6 1 3 5 7 of the eight.
void unpack_across(const uint32_t* words, size_t rows, size_t columns, uint8_t* codes);
void pack_across(const uint8_t* codes, size_t rows, size_t columns, uint32_t* words);

/// x[i] = scale[g] * (codes[i] - zero_point[g]) for the n codes of a row, g being the group of i. The numbers of neighboring groups are
/// `stride` apart.
void restore_grouped(const uint8_t* codes, const uint32_t* groups, size_t n, const float* scale, const float* zero_point,
                     size_t stride, float* x);

}  // namespace scalepoint::loops

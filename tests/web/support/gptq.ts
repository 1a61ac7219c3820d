// Restores weights as the loaders of GPTQ and AWQ do, one bit at a time. Written from their sources; it shares no code with web/src and cpp/.
// Sources: github.com/AutoGPTQ/AutoGPTQ at 9f7d3707, auto_gptq/nn_modules/qlinear/qlinear_cuda.py; casper-hansen/AutoAWQ at 88e4c76b,
// awq/utils/packing_utils.py (AWQ_ORDER, AWQ_REVERSE_ORDER).
import { numbersOf, type StoredTensor } from './compressed.js';

/** A bit of a word of a matrix of int32 words. */
function bitAt({ bytes, shape: [, width = 0] }: StoredTensor, row: number, column: number, bit: number): number {
  return (bytes[4 * (row * width + column) + (bit >> 3)]! >> (bit & 7)) & 1;
}

/** A number whose bits follow each other along a row of words. */
function along(words: StoredTensor, row: number, first: number, bits: number): number {
  let value = 0;
  for (let i = 0; i < bits; i++) value += bitAt(words, row, Math.floor((first + i) / 32), (first + i) % 32) << i;
  return value;
}

/** The same down a column of words. */
function down(words: StoredTensor, column: number, first: number, bits: number): number {
  let value = 0;
  for (let i = 0; i < bits; i++) value += bitAt(words, Math.floor((first + i) / 32), column, (first + i) % 32) << i;
  return value;
}

/** Where AWQ puts each of eight neighbors in a word, counted in nibbles from the lowest. */
const awqPlaces = [0, 4, 1, 5, 2, 6, 3, 7];

/** A layer: codes and zero points as they count, and the scales. */
export interface GptqLayer {
  readonly shape: readonly [rows: number, columns: number];
  readonly codes: Int32Array;
  readonly zeros: Int32Array;
  readonly scales: Float64Array;
  readonly values: Float32Array<ArrayBuffer>;
}

/** The layer of a module. @param words of AWQ are four bits wide */
export function gptqLayer(
  tensors: ReadonlyMap<string, StoredTensor>,
  module: string,
  words: 'gptq' | 'awq',
  bits: number,
): GptqLayer {
  const part = (end: string) => tensors.get(`${module}.${end}`)!;
  const [qweight, qzeros, scale, index] = [part('qweight'), part('qzeros'), part('scales'), part('g_idx')];
  const [groups = 0, rows = 0] = scale.shape;
  const columns = words === 'awq' ? qweight.shape[0]! : (qweight.shape[0]! * 32) / bits;
  const place = (row: number) => 32 * Math.floor(row / 8) + 4 * awqPlaces[row % 8]!;
  const groupOf =
    words === 'awq'
      ? Float64Array.from({ length: columns }, (_, column) => Math.floor(column / (columns / groups)))
      : numbersOf(index);
  const scales = numbersOf(scale);
  const zeros = new Int32Array(groups * rows);
  for (let group = 0; group < groups; group++) {
    for (let row = 0; row < rows; row++) {
      zeros[group * rows + row] =
        words === 'awq' ? along(qzeros, group, place(row), 4) : along(qzeros, group, row * bits, bits) + 1;
    }
  }
  const codes = new Int32Array(rows * columns);
  const values = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const code = words === 'awq' ? along(qweight, column, place(row), 4) : down(qweight, row, column * bits, bits);
      const set = groupOf[column]! * rows + row;
      codes[row * columns + column] = code;
      values[row * columns + column] = scales[set]! * (code - zeros[set]!);
    }
  }
  return { shape: [rows, columns], codes, zeros, scales, values };
}

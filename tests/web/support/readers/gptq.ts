// The layouts of GPTQ and AWQ as their loaders unpack them. Written without knowledge of the encoder under test.
//   AutoGPTQ/AutoGPTQ 179776bd (nn_modules/qlinear/qlinear_cuda_old.py: shapes, unpacking, zero points minus 1), 3ef391f3
//   (quantization/quantizer.py); casper-hansen/AutoAWQ 030fe2a1 (modules/linear/gemm.py), 7ee28736 (utils/packing_utils.py); `pseudo_quantize_tensor` in a copy of
//   unknown version
import { evenRound, float16, nearest } from './floats.js';
import { floatsOf, must, type Stored, wordsOf } from './safetensors.js';

/** A weight as [out, in], with its codes. */
export interface Unpacked {
  readonly shape: readonly [number, number];
  readonly group: number;
  readonly values: Float32Array;
  readonly codes: Uint8Array;
  /** One for each row and group. */
  readonly scales: Float32Array;
  readonly zeros: Float32Array;
}

type Tensors = ReadonlyMap<string, Stored>;

function take(tensors: Tensors, name: string, shape: readonly number[], dtype: string): Stored {
  const stored = tensors.get(name);
  must(stored !== undefined, `missing: ${name}`);
  must(stored.dtype === dtype, `${name}: ${stored.dtype} instead of ${dtype}`);
  must(String(stored.shape) === String(shape), `${name}: shape ${stored.shape} instead of ${shape}`);
  return stored;
}

/** Codes of `count` places along a stream of words, of which word i lies at `at(i)`. */
function stream(words: Uint32Array, bits: number, count: number, at: (word: number) => number): number[] {
  return Array.from({ length: count }, (_, i) => {
    let code = 0;
    for (let b = 0; b < bits; b++) {
      const place = i * bits + b;
      code += ((words[at(place >>> 5)]! >>> (place & 31)) & 1) << b;
    }
    return code;
  });
}

/** Multiplies scale by code minus zero point in float32, which is exact. Loaders round the product to float16. */
function restore(
  [rows, columns]: readonly [number, number],
  group: number,
  { codes, scales, zeros }: Pick<Unpacked, 'codes' | 'scales' | 'zeros'>,
): Unpacked {
  const perRow = columns / group;
  const values = Float32Array.from({ length: rows * columns }, (_, i) => {
    const own = Math.floor(i / columns) * perRow + Math.floor((i % columns) / group);
    return scales[own]! * (codes[i]! - zeros[own]!);
  });
  return { shape: [rows, columns], group, values, codes, scales, zeros };
}

/** Unpacks a layer of GPTQ in its first version. */
export function unpackGptq(
  tensors: Tensors,
  layer: string,
  shape: readonly [number, number],
  bits: number,
  group: number,
) {
  const [rows, columns] = shape;
  must(
    columns % 32 === 0 && rows % 32 === 0 && columns % group === 0,
    `${layer}: ${rows} x ${columns}, groups of ${group}`,
  );
  const count = columns / group;
  const words = wordsOf(take(tensors, `${layer}.qweight`, [(columns / 32) * bits, rows], 'I32'));
  const zeroWords = wordsOf(take(tensors, `${layer}.qzeros`, [count, (rows / 32) * bits], 'I32'));
  const scaleRows = floatsOf(take(tensors, `${layer}.scales`, [count, rows], 'F16'));
  const index = wordsOf(take(tensors, `${layer}.g_idx`, [columns], 'I32'));
  for (const [i, g] of index.entries()) must(g === Math.floor(i / group), `${layer}.g_idx[${i}] is ${g}`);
  const codes = new Uint8Array(rows * columns);
  const [scales, zeros] = [new Float32Array(rows * count), new Float32Array(rows * count)];
  for (let row = 0; row < rows; row++)
    codes.set(
      stream(words, bits, columns, (word) => word * rows + row),
      row * columns,
    );
  for (let g = 0; g < count; g++) {
    const own = stream(zeroWords, bits, rows, (word) => (g * rows * bits) / 32 + word);
    for (let row = 0; row < rows; row++) {
      scales[row * count + g] = scaleRows[g * rows + row]!;
      zeros[row * count + g] = own[row]! + 1;
    }
  }
  return restore(shape, group, { codes, scales, zeros });
}

const order = [0, 2, 4, 6, 1, 3, 5, 7];

/** Unpacks a layer of AWQ's gemm form. */
export function unpackAwq(tensors: Tensors, layer: string, shape: readonly [number, number], group: number): Unpacked {
  const [rows, columns] = shape;
  must(rows % 8 === 0 && columns % group === 0, `${layer}: ${rows} x ${columns}, groups of ${group}`);
  const count = columns / group;
  const words = wordsOf(take(tensors, `${layer}.qweight`, [columns, rows / 8], 'I32'));
  const zeroWords = wordsOf(take(tensors, `${layer}.qzeros`, [count, rows / 8], 'I32'));
  const scaleRows = floatsOf(take(tensors, `${layer}.scales`, [count, rows], 'F16'));
  const codes = new Uint8Array(rows * columns);
  const [scales, zeros] = [new Float32Array(rows * count), new Float32Array(rows * count)];
  const at = (all: Uint32Array, line: number, row: number) =>
    (all[(line * rows) / 8 + (row >>> 3)]! >>> (4 * order.indexOf(row & 7))) & 15;
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) codes[row * columns + column] = at(words, column, row);
    for (let g = 0; g < count; g++) {
      scales[row * count + g] = scaleRows[g * rows + row]!;
      zeros[row * count + g] = at(zeroWords, g, row);
    }
  }
  return restore(shape, group, { codes, scales, zeros });
}

const f = Math.fround;

/** Numbers of a group after the symmetric rule of AutoGPTQ (`Quantizer.find_params` and `quantize`), with the scale stored as float16. */
export function gptqRule(group: Float32Array, bits: number): number[] {
  const most = 2 ** bits - 1;
  const high = Math.max(0, ...group.map(Math.abs));
  const low = group.some((v) => v < 0) ? -high : 0;
  const [from, to] = high === 0 ? [-1, 1] : [low, high];
  const scale = f(f(to - from) / most);
  const zero = (most + 1) / 2;
  const stored = nearest(scale, float16);
  const codes = [...group].map((v) => Math.min(Math.max(evenRound(f(v / scale)) + zero, 0), most));
  return codes.map((code) => stored * (code - zero));
}

/** Numbers of a group after the rule of AutoAWQ (`pseudo_quantize_tensor` with zero points), with the scale stored as float16. */
export function awqRule(group: Float32Array): number[] {
  const [low, high] = [Math.min(...group), Math.max(...group)];
  const scale = f(Math.max(f(high - low), f(1e-5)) / 15);
  const zero = Math.min(Math.max(-evenRound(f(low / scale)), 0), 15);
  const stored = nearest(scale, float16);
  const codes = [...group].map((v) => Math.min(Math.max(evenRound(f(v / scale)) + zero, 0), 15));
  return codes.map((code) => stored * (code - zero));
}

// Restores weights as the loaders of GPTQ and AWQ do, one bit at a time. Written from their sources; it shares no code with web/src and cpp/.
// Sources: github.com/AutoGPTQ/AutoGPTQ at 9f7d3707, auto_gptq/nn_modules/qlinear/qlinear_cuda.py; ModelCloud/GPTQModel at f4c327a1,
// gptqmodel/quantization/config.py (QuantizeConfig, dynamic_get) and utils/model.py (make_quant); casper-hansen/AutoAWQ at 88e4c76b,
// awq/models/_config.py, awq/modules/linear/gemm.py and awq/utils/packing_utils.py (AWQ_ORDER, AWQ_REVERSE_ORDER).
import { numbersOf, type StoredTensor } from './compressed.js';

type Json = Readonly<Record<string, unknown>>;

/** Settings that a loader finds for a linear layer. */
export interface LayerSettings {
  readonly words: 'gptq' | 'awq';
  readonly bits: number;
  readonly groupSize: number;
  /** Added to zero points when they are read. */
  readonly zeroAdd: number;
  /** True if all zero points are the middle code. */
  readonly symmetric: boolean;
}

function need(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Error(`a loader refuses the quantization_config: ${what}`);
}

/** The settings of a module by a `quantization_config`; undefined for a layer that keeps its floats. */
export function layerSettings(quantization: Json, module: string): LayerSettings | undefined {
  const { quant_method: method, bits, group_size: groupSize } = quantization;
  need(typeof bits === 'number' && typeof groupSize === 'number' && groupSize > 0, 'bits and group_size');
  if (method === 'awq') {
    // WQLinear_GEMM has 4 bits and zero points. Names of layers without codes are looked for in those of all layers.
    const { version, zero_point: hasZeros, modules_to_not_convert: kept } = quantization;
    need(bits === 4 && String(version).toLowerCase() === 'gemm' && hasZeros === true, 'the version');
    need(kept === null || Array.isArray(kept), 'modules_to_not_convert');
    if (module.endsWith('lm_head') || (kept as string[] | null)?.some((name) => module.includes(name)))
      return undefined;
    return { words: 'awq', bits, groupSize, zeroAdd: 0, symmetric: false };
  }
  need(method === 'gptq', 'quant_method');
  const {
    checkpoint_format: format,
    pack_dtype: packed,
    desc_act: order,
    sym,
    lm_head: head,
    dynamic = {},
  } = quantization;
  need(format === 'gptq' || format === 'gptq_v2', 'checkpoint_format');
  need(packed === 'int32' && typeof order === 'boolean' && typeof sym === 'boolean' && head === false, 'its keys');
  if (module.endsWith('lm_head')) return undefined;
  let own: Json = {};
  for (const [pattern, overrides] of Object.entries(dynamic as Json)) {
    // re.match looks at the start of a name. The first pattern that matches counts.
    const isKept = pattern.startsWith('-:');
    if (!new RegExp(`^(?:${pattern.replace(/^[-+]:/, '')})`).test(module)) continue;
    if (isKept) return undefined;
    own = overrides as Json;
    break;
  }
  const { bits: ownBits = bits, group_size: ownGroup = groupSize } = own as { bits?: number; group_size?: number };
  need([2, 3, 4, 8].includes(ownBits), `${ownBits} bits`);
  return { words: 'gptq', bits: ownBits, groupSize: ownGroup, zeroAdd: format === 'gptq' ? 1 : 0, symmetric: sym };
}

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

/** The layer of a module. Words of AWQ are four bits wide. */
export function gptqLayer(
  tensors: ReadonlyMap<string, StoredTensor>,
  module: string,
  { words, bits, groupSize, zeroAdd }: LayerSettings,
): GptqLayer {
  const part = (end: string) => tensors.get(`${module}.${end}`)!;
  const [qweight, qzeros, scale, index] = [part('qweight'), part('qzeros'), part('scales'), part('g_idx')];
  const [groups = 0, rows = 0] = scale.shape;
  const columns = words === 'awq' ? qweight.shape[0]! : (qweight.shape[0]! * 32) / bits;
  need(groups === Math.ceil(columns / groupSize), `${groups} groups in rows of ${columns}`);
  const place = (row: number) => 32 * Math.floor(row / 8) + 4 * awqPlaces[row % 8]!;
  const groupOf =
    words === 'awq'
      ? Float64Array.from({ length: columns }, (_, column) => Math.floor(column / groupSize))
      : numbersOf(index);
  const scales = numbersOf(scale);
  const zeros = new Int32Array(groups * rows);
  for (let group = 0; group < groups; group++) {
    for (let row = 0; row < rows; row++) {
      zeros[group * rows + row] =
        words === 'awq' ? along(qzeros, group, place(row), 4) : along(qzeros, group, row * bits, bits) + zeroAdd;
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

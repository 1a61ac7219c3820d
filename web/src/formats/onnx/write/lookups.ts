/**
 * Tables whose rows are blocks: a Gather takes codes and scales of the requested rows, and plain operators restore the floats.
 * GatherBlockQuantized of com.microsoft would do this, but the CPU of some builds of onnxruntime-web (1.30) lacks it: those with WebGPU,
 * which transformers.js uses.
 */

import type { BlockBits } from '../../codecs/matmul-nbits.js';
import type { NewNode } from '../file/encode.js';
import { onnxTypeNumber } from '../file/proto.js';
import type { ReadingNode } from '../graph/graph.js';
import type { Builder } from './builder.js';

/** Names of stored blocks. */
export interface BlockNames {
  /** [rows, blocks, bytes of a block] */
  readonly codes: string;
  /** For tables [rows, blocks, ...ones]. */
  readonly scales: string;
  /** [rows, bytes of packed zero points] */
  readonly zeroPoints: string | undefined;
}

/** Blocks of a table with `rows` rows. */
interface TableBlocks extends BlockNames {
  readonly bits: BlockBits;
  readonly blocks: number;
  readonly blockSize: number;
  /** Length of a row. */
  readonly columns: number;
  readonly halfScales: boolean;
}

/**
 * Dimensions of 1 that let scales broadcast over the codes of their blocks: one for bytes, and one for the codes of a byte if there are
 * several.
 */
export function broadcastOnes(bits: BlockBits): readonly number[] {
  return bits === 8 ? [1] : [1, 1];
}

/** The integers from -8 to 7 as float16, from the first on, and 128. */
const halfIntegers = [
  ...[0xc800, 0xc700, 0xc600, 0xc500, 0xc400, 0xc200, 0xc000, 0xbc00],
  ...[0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700],
];
const half128 = 0x5800;

/** Replaces a Gather of rows, which gives float16 if `isHalf`. Scales are float16 then, too. */
export function lookUpRows(builder: Builder, { node, graph }: ReadingNode, table: TableBlocks, isHalf: boolean): void {
  // Prepare helpers that add nodes.
  const { bits, blocks, blockSize, columns } = table;
  const perByte = 8 / bits;
  const [, indices = ''] = builder.inputsOf(node);
  const [output = ''] = builder.outputsOf(node);
  const float = isHalf ? 'F16' : 'F32';
  const nodes: NewNode[] = [];
  const add = (opType: string, inputs: readonly string[], what: string, attributes: NewNode['attributes'] = {}) => {
    const name = what === '' ? output : builder.freshValue(`${output}_${what}`);
    nodes.push({ opType, name: `${node.name || output}_${what || opType}`, inputs, outputs: [name], attributes });
    return name;
  };
  const constant = (what: string, values: readonly number[]) => builder.addIntegers(graph, `${output}_${what}`, values);
  /** Chooses the first n elements of rows, by Gather, because Slice differs between versions. */
  const first = (from: string, n: number, wanted: string, what: string) => {
    const chosen = Array.from({ length: n }, (_, i) => i);
    return add('Gather', [from, constant(wanted, chosen)], what, { axis: -1 });
  };
  const cast = (from: string, what: string, type: string) => add('Cast', [from], what, { to: onnxTypeNumber(type) });
  const lengths = add('Shape', [indices], 'lengths');
  /** The shape of the indices, and more dimensions. */
  const shape = (what: string, more: readonly number[]) =>
    add('Concat', [lengths, constant(`${what}_end`, more)], what, { axis: 0 });
  /** Unpacks the codes of the requested rows. */
  const unpacked = (packed: string, what: string) => {
    const rows = add('Gather', [packed, indices], `${what}_bytes`);
    if (bits === 8) return cast(rows, `${what}_float`, float);
    const bytes = cast(rows, `${what}_index`, 'I32');
    // Look up a tensor [256, 8 / bits] with the codes in each byte, minus the default zero point 2^(bits - 1). They are floats, because
    // onnxruntime-web (1.30) looks up int8 on the CPU where all else runs on WebGPU.
    const unpacker = builder.sharedConstant(graph, `bytes_Q${bits}${isHalf ? '_fp16' : ''}`, () => {
      const codes = Array.from({ length: 256 * perByte }, (_, i) => {
        const code = (Math.floor(i / perByte) >> (bits * (i % perByte))) & (2 ** bits - 1);
        return code - 2 ** (bits - 1);
      });
      const { buffer } = isHalf
        ? Uint16Array.from(codes, (code) => halfIntegers[code + 8] as number)
        : Float32Array.from(codes);
      return { type: onnxTypeNumber(float), shape: [256, perByte], data: { bytes: new Uint8Array(buffer) } };
    });
    return add('Gather', [unpacker, bytes], what);
  };
  // Gather the codes, and subtract zero points.
  let codes = unpacked(table.codes, 'codes');
  if (table.zeroPoints !== undefined) {
    let zeros = unpacked(table.zeroPoints, 'zeros');
    const packed = Math.ceil(blocks / perByte) * perByte;
    if (packed > blocks) {
      // Drop unused codes of the last byte.
      const all = add('Reshape', [zeros, shape('zeros_all_shape', [packed])], 'zeros_all');
      zeros = first(all, blocks, 'zeros_wanted', 'zeros_first');
    }
    const zero = add('Reshape', [zeros, shape('zeros_shape', [blocks, ...broadcastOnes(bits)])], 'zero');
    codes = add('Sub', [codes, zero], 'centered');
  } else if (bits === 8) {
    const middle = builder.freshValue(`${output}_middle`);
    const bytes = new Uint8Array(isHalf ? Uint16Array.of(half128).buffer : Float32Array.of(128).buffer);
    builder.addConstant(graph, { name: middle, type: onnxTypeNumber(float), shape: [], data: { bytes } });
    codes = add('Sub', [codes, middle], 'centered');
  }
  // Multiply by the scales, and restore the shape of rows.
  const scales = add('Gather', [table.scales, indices], 'scales');
  const factor = table.halfScales && !isHalf ? cast(scales, 'scales_float', 'F32') : scales;
  const product = add('Mul', [codes, factor], 'blocks');
  const width = blocks * blockSize;
  const whole = add('Reshape', [product, shape('shape', [width])], width === columns ? '' : 'padded');
  if (width !== columns) first(whole, columns, 'columns_wanted', '');
  // Replace the Gather.
  builder.addNodes({ graph, before: node }, nodes);
  builder.removeNode(node);
}

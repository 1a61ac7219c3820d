/**
 * Tables whose rows are blocks: a Gather takes codes and scales of the requested rows, and plain operators restore the floats.
 * GatherBlockQuantized of com.microsoft would do this, but the CPU of some builds of onnxruntime-web (1.30) lacks it: those with WebGPU,
 * which transformers.js uses.
 */

import type { NewNode } from '../file/encode.js';
import { type OnnxGraph, onnxTypeNumber } from '../file/proto.js';
import type { ReadingNode } from '../graph/graph.js';
import type { Builder } from './builder.js';

/** Blocks of a table with `rows` rows. */
export interface TableBlocks {
  /** [rows, blocks, bytes of a block] */
  readonly codes: string;
  /** [rows, blocks, ...ones] */
  readonly scales: string;
  /** [rows, bytes of packed zero points] */
  readonly zeroPoints: string | undefined;
  readonly bits: 2 | 4 | 8;
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
export function ones(bits: 2 | 4 | 8): readonly number[] {
  return bits === 8 ? [1] : [1, 1];
}

/** Bits of an integer from -8 to 7 as float16. */
function halfBits(integer: number): number {
  const magnitude = Math.abs(integer);
  const exponent = magnitude < 2 ? 0 : magnitude < 4 ? 1 : magnitude < 8 ? 2 : 3;
  const bits = magnitude === 0 ? 0 : ((15 + exponent) << 10) | ((magnitude / 2 ** exponent - 1) * 1024);
  return integer < 0 ? bits | 0x8000 : bits;
}

/**
 * A tensor [256, 8 / bits] with the codes in each byte, minus the default zero point 2^(bits - 1). Returns its name. They are floats, because
 * onnxruntime-web (1.30) looks up int8 on the CPU where all else runs on WebGPU.
 */
function unpacker(builder: Builder, graph: OnnxGraph, bits: 2 | 4, isHalf: boolean): string {
  return builder.sharedConstant(graph, `bytes_Q${bits}${isHalf ? '_fp16' : ''}`, () => {
    const perByte = 8 / bits;
    const middle = 2 ** (bits - 1);
    const codes = Array.from({ length: 256 * perByte }, (_, i) => {
      const code = (Math.floor(i / perByte) >> (bits * (i % perByte))) & (2 ** bits - 1);
      return code - middle;
    });
    const { buffer } = isHalf ? Uint16Array.from(codes, halfBits) : Float32Array.from(codes);
    const type = onnxTypeNumber(isHalf ? 'F16' : 'F32');
    return { type, shape: [256, perByte], data: { bytes: new Uint8Array(buffer) } };
  });
}

/** 128 as float16. */
const half128 = 0x5800;

/** Replaces a Gather of rows, which gives float16 if `isHalf`. Scales are float16 then, too. */
export function lookUp(builder: Builder, { node, graph }: ReadingNode, table: TableBlocks, isHalf: boolean): void {
  // Prepare helpers that add nodes.
  const { bits, blocks, blockSize, columns } = table;
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
  /** Indices of the first n elements. */
  const firstOf = (what: string, n: number) =>
    constant(
      what,
      Array.from({ length: n }, (_, i) => i),
    );
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
    return add('Gather', [unpacker(builder, graph, bits, isHalf), bytes], what);
  };
  // Gather the codes, and subtract zero points.
  let codes = unpacked(table.codes, 'codes');
  if (table.zeroPoints !== undefined) {
    let zeros = unpacked(table.zeroPoints, 'zeros');
    const perByte = 8 / bits;
    const packed = Math.ceil(blocks / perByte) * perByte;
    if (packed > blocks) {
      // Drop unused codes of the last byte, by Gather, because Slice differs between versions.
      const all = add('Reshape', [zeros, shape('zeros_all_shape', [packed])], 'zeros_all');
      zeros = add('Gather', [all, firstOf('zeros_wanted', blocks)], 'zeros_first', { axis: -1 });
    }
    codes = add(
      'Sub',
      [codes, add('Reshape', [zeros, shape('zeros_shape', [blocks, ...ones(bits)])], 'zero')],
      'centered',
    );
  } else if (bits === 8) {
    const middle = builder.freshValue(`${output}_middle`);
    const bytes = new Uint8Array(isHalf ? Uint16Array.of(half128).buffer : Float32Array.of(128).buffer);
    builder.addConstant(graph, { name: middle, type: onnxTypeNumber(float), shape: [], data: { bytes } });
    codes = add('Sub', [codes, middle], 'centered');
  }
  // Multiply by the scales, and restore the shape of rows.
  const scales = add('Gather', [table.scales, indices], 'scales');
  const product = add(
    'Mul',
    [codes, table.halfScales && !isHalf ? cast(scales, 'scales_float', 'F32') : scales],
    'blocks',
  );
  const width = blocks * blockSize;
  const whole = add('Reshape', [product, shape('shape', [width])], width === columns ? '' : 'padded');
  if (width !== columns) add('Gather', [whole, firstOf('columns_wanted', columns)], '', { axis: -1 });
  // Replace the Gather.
  builder.addNodes({ graph, before: node }, nodes);
  builder.removeNode(node);
}

// Reads codes with their scales as DequantizeLinear defines them: against the same weights as floats, which are computed here.
import { compareModels } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';

interface Codes {
  readonly shape: readonly number[];
  readonly axis: number;
  readonly bits: 2 | 4;
  readonly blockSize?: number;
}

const product = (sizes: readonly number[]) => sizes.reduce((all, n) => all * n, 1);

/** Codes without a sign side by side in bytes, the first one lowest. */
function packed(codes: Uint8Array, bits: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(Math.ceil((codes.length * bits) / 8));
  for (const [i, code] of codes.entries()) {
    const at = Math.floor((i * bits) / 8);
    bytes[at] = (bytes[at] as number) | (code << ((i * bits) % 8));
  }
  return bytes;
}

function model(initializers: readonly onnx.Bytes[], shape: readonly number[], nodes: readonly onnx.TestNode[]) {
  return onnx.model({ nodes, initializers, inputs: [['x', shape]], outputs: [['y', shape]] }, { opset: 25, ir: 13 });
}

/** A model with a weight as codes, and one with its floats. No two neighboring scales or zero points are equal. */
function modelsOf({ shape, axis, bits, blockSize }: Codes) {
  const n = product(shape);
  const [size = 0, inner] = [shape[axis], product(shape.slice(axis + 1))];
  const perAxis = blockSize === undefined ? size : Math.ceil(size / blockSize);
  const sets = blockSize === undefined ? [size] : shape.map((length, i) => (i === axis ? perAxis : length));
  const scales = Float32Array.from({ length: product(sets) }, (_, i) => 1 + (i % 7) / 8);
  const zeros = Uint8Array.from({ length: product(sets) }, (_, i) => i % (2 ** bits - 1));
  const codes = Uint8Array.from({ length: n }, (_, i) => (i * 5 + (i >> 4)) & (2 ** bits - 1));
  const floats = Float32Array.from(codes, (code, i) => {
    const [outer, along, within] = [Math.floor(i / inner / size), Math.floor(i / inner) % size, i % inner];
    const block = blockSize === undefined ? along : Math.floor(along / blockSize);
    const set = blockSize === undefined ? block : (outer * perAxis + block) * inner + within;
    return (code - (zeros[set] as number)) * (scales[set] as number);
  });
  const type = bits === 4 ? 21 : 25;
  const attributes = { axis, ...(blockSize === undefined ? {} : { block_size: blockSize }) };
  const stored = [
    onnx.tensor({ name: 'codes', type, dims: shape, raw: packed(codes, bits) }),
    onnx.tensor({ name: 'scales', dims: sets, raw: onnx.rawOf(scales) }),
    onnx.tensor({ name: 'zeros', type, dims: sets, raw: packed(zeros, bits) }),
  ];
  const add = { op: 'Add', in: ['x', 'w'], out: ['y'] };
  const dequantize = { op: 'DequantizeLinear', in: ['codes', 'scales', 'zeros'], out: ['w'], attributes };
  return [
    model(stored, shape, [dequantize, add]),
    model([onnx.tensor({ name: 'w', dims: shape, raw: onnx.rawOf(floats) })], shape, [add]),
  ] as const;
}

describe('codes of a model stand for the floats of DequantizeLinear', () => {
  it.each<Codes>([
    { shape: [5, 7], axis: 0, bits: 4 },
    { shape: [5, 7], axis: 1, bits: 2 },
    { shape: [3, 6, 5], axis: 1, bits: 4 },
    { shape: [3, 6, 5], axis: 1, bits: 4, blockSize: 2 },
    { shape: [7, 45], axis: 1, bits: 4, blockSize: 16 },
    { shape: [45, 7], axis: 0, bits: 2, blockSize: 16 },
    // Three rows fit into a tile, so that the second one begins with the second half of a byte of zero points.
    { shape: [5, 349_524], axis: 0, bits: 4 },
    // No row ends with a byte, and none fits into a tile together with the next one.
    { shape: [2, 600_001], axis: 1, bits: 4 },
    { shape: [2, 1_100_003], axis: 0, bits: 2 },
    { shape: [2, 1_100_003], axis: 1, bits: 4, blockSize: 32 },
    // As many groups of rows as fit into a tile have an odd number of zero points.
    { shape: [110_000, 2, 5], axis: 1, bits: 4, blockSize: 2 },
  ])('$shape, axis $axis, $bits bits, blocks of $blockSize', async (codes) => {
    const [a, b] = modelsOf(codes);
    const { tensors, skipped } = await compareModels(a, b, { workers: 0 });
    expect(skipped).toEqual([]);
    expect(tensors.map(({ name, error }) => [name, error.maxAbsoluteError])).toEqual([['w', 0]]);
  });

  it.each<Codes>([
    // The packed zero points of several groups of rows cannot be read as one.
    { shape: [2, 5, 3], axis: 1, bits: 4 },
    // Blocks end with each group of rows.
    { shape: [2, 5, 4], axis: 1, bits: 4, blockSize: 2 },
  ])('or are not read: $shape, axis $axis, $bits bits, blocks of $blockSize', async (codes) => {
    const [a, b] = modelsOf(codes);
    const { tensors, onlyInB } = await compareModels(a, b, { workers: 0 });
    expect([tensors, onlyInB]).toEqual([[], ['w']]);
  });
});

// Minimal models that show faults of onnxruntime-web, and the outputs that are right.
import { Graph } from '../web/support/story-model.mjs';

const microsoft = 'com.microsoft';
const [uint8, int8, int64, float32] = [2, 3, 7, 1];

/** @param {number} n */
const counted = (n) => Uint8Array.from({ length: n }, (_, i) => (i * 37) % 251);
const ids = [3, 0, 7, 1];

/** Looks up rows of int8. */
function int8Table() {
  const [rows, width] = [8, 32];
  const g = new Graph();
  const codes = g.add('Gather', [g.codes('table', int8, [rows, width], counted(rows * width)), 'ids']);
  g.add('Cast', [codes], { to: float32 }, 'y');
  const signed = new Int8Array(counted(rows * width).buffer);
  return {
    ids,
    file: g.file([['ids', [ids.length], int64]], [['y', [ids.length, width], float32]]),
    expected: ids.flatMap((id) => Array.from(signed.subarray(id * width, (id + 1) * width))),
  };
}

/** Looks up rows of 8 bits in blocks. */
function blockTable() {
  const [rows, width, size] = [8, 32, 16];
  const g = new Graph();
  const scales = Float32Array.from({ length: (rows * width) / size }, (_, i) => (1 + i) / 64);
  const inputs = [
    g.codes('table', uint8, [rows, width], counted(rows * width)),
    'ids',
    g.floats('scales', [rows, width / size], scales),
  ];
  const attributes = { gather_axis: 0, quantize_axis: 1, block_size: size, bits: 8 };
  g.add('GatherBlockQuantized', inputs, attributes, 'y', microsoft);
  const value = (/** @type {number} */ at) => (counted(rows * width)[at] - 128) * scales[Math.floor(at / size)];
  return {
    ids,
    file: g.file([['ids', [ids.length], int64]], [['y', [ids.length, width], float32]], 21),
    expected: ids.flatMap((id) => Array.from({ length: width }, (_, i) => value(id * width + i))),
  };
}

/**
 * A product with blocks of 2 or 4 bits, whose times are to be compared.
 * @param {2 | 4} bits
 */
function product(bits) {
  const [rows, k, n, size] = [64, 512, 512, 32];
  const g = new Graph();
  const blocks = k / size;
  const bytes = (size * bits) / 8;
  const inputs = [
    'x',
    g.codes('codes', uint8, [n, blocks, bytes], counted(n * blocks * bytes)),
    g.floats('scales', [n, blocks], new Float32Array(n * blocks).fill(1 / 64)),
  ];
  g.add('MatMulNBits', inputs, { K: k, N: n, bits, block_size: size }, 'y', microsoft);
  return { file: g.file([['x', [rows, k], float32]], [['y', [rows, n], float32]], 21), rows, k };
}

/** Each fault with the version in which it was seen. @type {Record<string, object>} */
export const faults = {
  'int8-table': {
    seen: 'onnxruntime-web 1.30.0 and 1.31.0-dev.20260914, WebGPU',
    title:
      'Gather of int8 has no WebGPU kernel: the node and what follows run on the CPU, while Gather of uint8 does not',
    shows: 'placement',
    ...int8Table(),
  },
  'block-table': {
    seen: 'onnxruntime-web 1.30.0 and 1.31.0-dev.20260914, ort.webgpu.bundle.min.mjs with executionProviders: ["wasm"]',
    title: 'The builds with WebGPU lack GatherBlockQuantized on the CPU: models load with WebGPU and not with wasm',
    shows: 'session',
    ...blockTable(),
  },
  'two-bits': {
    seen: 'onnxruntime-web 1.30.0 and 1.31.0-dev.20260914, WebGPU on SwiftShader',
    title: 'MatMulNBits of 2 bits takes many times as long as of 4 bits',
    shows: 'time',
    two: product(2),
    four: product(4),
  },
};

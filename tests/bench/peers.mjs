// What the library is measured against: loops at the memory limit, plain JavaScript, and onnxruntime-web.

/** Wasm loops with the library's memory traffic and none of its arithmetic (limits.cpp), with their own arrays. */
export async function makeLimits(bytes) {
  const { instance } = await WebAssembly.instantiate(bytes, {});
  const { memory, limit_read, limit_four_to_one, limit_one_to_four, limit_divide } = instance.exports;
  const x = 1 << 20;
  return {
    /** @param {number} n floats, at most 2^25 */
    prepare(n) {
      new Float32Array(memory.buffer, x, n).fill(1.25);
      new Uint8Array(memory.buffer, x + 4 * n, n).fill(3);
    },
    read: (n) => limit_read(x, n),
    fourToOne: (n) => limit_four_to_one(x, x + 4 * n, n),
    oneToFour: (n) => limit_one_to_four(x + 4 * n, x, n),
    divide: (n) => limit_divide(1.0000001, n),
  };
}

/** What a developer would write: straight loops over typed arrays. */
export const plain = {
  minmax(x) {
    let min = Infinity;
    let max = -Infinity;
    for (let i = 0; i < x.length; i++) {
      if (x[i] < min) min = x[i];
      if (x[i] > max) max = x[i];
    }
    return [min, max];
  },
  quantize(x, scale, zeroPoint, codes) {
    for (let i = 0; i < x.length; i++) {
      codes[i] = Math.max(-128, Math.min(127, Math.round(x[i] / scale) + zeroPoint));
    }
  },
  rangeAndQuantize(x, codes) {
    const [min, max] = plain.minmax(x);
    const low = Math.min(min, 0);
    const scale = (Math.max(max, 0) - low) / 255;
    plain.quantize(x, scale, Math.round(-128 - low / scale), codes);
  },
  groups(x, size, levels, codes, scales) {
    for (let g = 0, i = 0; i < x.length; g++, i += size) {
      let largest = 0;
      for (let j = i; j < i + size; j++) largest = Math.max(largest, Math.abs(x[j]));
      const scale = largest / levels || 1;
      scales[g] = scale;
      for (let j = i; j < i + size; j++) codes[j] = Math.max(-levels - 1, Math.min(levels, Math.round(x[j] / scale)));
    }
  },
  dequantize(codes, scale, zeroPoint, x) {
    for (let i = 0; i < codes.length; i++) x[i] = (codes[i] - zeroPoint) * scale;
  },
  error(x, codes, scale, zeroPoint) {
    let squares = 0;
    let largest = 0;
    for (let i = 0; i < x.length; i++) {
      const e = x[i] - (codes[i] - zeroPoint) * scale;
      squares += e * e;
      largest = Math.max(largest, Math.abs(e));
    }
    return [squares / x.length, largest];
  },
};

// ---- the few ONNX models that the comparison needs, written as protobuf by hand (field numbers: onnx.proto of the ONNX project)

const float = 1;
const uint8 = 2;
const int8 = 3;

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return [...bytes, value];
}
const number = (field, value) => [...varint(field * 8), ...varint(value)];
const bytes = (field, content) => [...varint(field * 8 + 2), ...varint(content.length), ...content];
const text = (field, value) => bytes(field, [...new TextEncoder().encode(value)]);
/** Inputs have one free dimension; the shapes of outputs are left to inference. */
const valueInfo = (name, type, shape = []) => [...text(1, name), ...bytes(2, bytes(1, [...number(1, type), ...shape]))];
const freeDimension = (name) => bytes(2, bytes(1, text(2, `n_${name}`)));
const attribute = (name, value) => [...text(1, name), ...number(3, value), ...number(20, 2)];

/** A model of one node; scalars are initializers given as [name, type, bytes of the value]. */
function model(op, opset, inputs, outputs, scalars, attributes = []) {
  const node = [
    ...[...inputs.map(([n]) => n), ...scalars.map(([n]) => n)].flatMap((n) => text(1, n)),
    ...outputs.flatMap(([n]) => text(2, n)),
    ...text(3, 'node'),
    ...text(4, op),
    ...attributes.flatMap((a) => bytes(5, a)),
  ];
  const graph = [
    ...bytes(1, node),
    ...text(2, 'graph'),
    ...scalars.flatMap(([n, type, raw]) => bytes(5, [...number(2, type), ...text(8, n), ...bytes(9, raw)])),
    ...inputs.flatMap(([n, type]) => bytes(11, valueInfo(n, type, freeDimension(n)))),
    ...outputs.flatMap(([n, type]) => bytes(12, valueInfo(n, type))),
  ];
  return new Uint8Array([
    ...number(1, opset >= 21 ? 10 : 8),
    ...bytes(7, graph),
    ...bytes(8, [...text(1, ''), ...number(2, opset)]),
  ]);
}

const rawFloat = (v) => [...new Uint8Array(new Float32Array([v]).buffer)];

/**
 * onnxruntime-web's elementwise operators, one thread.
 * @param ort the module
 */
export async function makeOrt(ort, { scale, zeroPoint }) {
  ort.env.wasm.numThreads = 1;
  const parameters = [
    ['scale', float, rawFloat(scale)],
    ['zero', int8, [zeroPoint & 255]],
  ];
  const options = { executionProviders: ['wasm'], logSeverityLevel: 3 };
  const create = (m) => ort.InferenceSession.create(m, options);
  const quantize = await create(model('QuantizeLinear', 13, [['x', float]], [['y', int8]], parameters));
  const dequantize = await create(model('DequantizeLinear', 13, [['x', int8]], [['y', float]], parameters));
  const dynamic = await create(
    model(
      'DynamicQuantizeLinear',
      11,
      [['x', float]],
      [
        ['y', uint8],
        ['s', float],
        ['z', uint8],
      ],
      [],
    ),
  );
  const groups = await create(
    model(
      'QuantizeLinear',
      21,
      [
        ['x', float],
        ['scales', float],
      ],
      [['y', uint8]],
      [],
      [attribute('axis', 0), attribute('block_size', 32)],
    ),
  );
  const tensor = (type, data) => new ort.Tensor(type, data, [data.length]);
  return {
    quantize: (x) => quantize.run({ x: tensor('float32', x) }),
    dequantize: (codes) => dequantize.run({ x: tensor('int8', codes) }),
    rangeAndQuantize: (x) => dynamic.run({ x: tensor('float32', x) }),
    groups: (x, scales) => groups.run({ x: tensor('float32', x), scales: tensor('float32', scales) }),
  };
}

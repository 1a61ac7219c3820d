// Operators of onnxruntime-web on one thread, for comparison with the library.

// ---- The ONNX models for the comparison, encoded as protobuf by hand. The field numbers are those of onnx.proto of the ONNX project.

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
/** A ValueInfoProto. Inputs get one free dimension; outputs have no shape, and the runtime infers it. */
const valueInfo = (name, type, shape = []) => [...text(1, name), ...bytes(2, bytes(1, [...number(1, type), ...shape]))];
const freeDimension = (name) => bytes(2, bytes(1, text(2, `n_${name}`)));
const attribute = (name, value) => [...text(1, name), ...number(3, value), ...number(20, 2)];

/** A model with one node. Scalars are initializers, given as [name, type, bytes of the value]. */
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
 * onnxruntime-web's elementwise operators on one thread.
 * @param ort the module onnxruntime-web
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

/** Concatenates arrays of bytes. Weights are too large for spread syntax. */
function concat(...parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

const large = (field, content) => concat(varint(field * 8 + 2), varint(content.length), content);
const bytesOf = (array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
const int32 = 6;

/** A model with one operator and constant weights, given as [name, type, dimensions, array]. */
function modelWithWeights(op, domain, input, output, constants, attributes = []) {
  const node = [
    ...text(1, 'x'),
    ...constants.flatMap(([name]) => text(1, name)),
    ...text(2, 'y'),
    ...text(3, 'node'),
    ...text(4, op),
    ...attributes.flatMap(([name, value]) => bytes(5, attribute(name, value))),
    ...(domain === '' ? [] : text(7, domain)),
  ];
  const initializers = constants.map(([name, type, dimensions, array]) =>
    large(
      5,
      concat(
        [...dimensions.flatMap((d) => number(1, d)), ...number(2, type), ...text(8, name)],
        large(9, bytesOf(array)),
      ),
    ),
  );
  // Without a shape, an input may have any rank.
  const anyShape = (name, type) => [...text(1, name), ...bytes(2, bytes(1, number(1, type)))];
  const graph = concat(
    bytes(1, node),
    text(2, 'graph'),
    ...initializers,
    bytes(11, anyShape('x', input)),
    bytes(12, anyShape('y', output)),
  );
  const opsets = [
    ...bytes(8, [...text(1, ''), ...number(2, 13)]),
    ...bytes(8, [...text(1, 'com.microsoft'), ...number(2, 1)]),
  ];
  return concat(number(1, 8), large(7, graph), opsets);
}

/**
 * onnxruntime-web's layers with constant weights, on one thread.
 * @param ort the module onnxruntime-web
 * @param {Float32Array} w [outputs, inputs]
 */
export async function makeOrtLayers(ort, w, outputs, inputs) {
  ort.env.wasm.numThreads = 1;
  const options = { executionProviders: ['wasm'], logSeverityLevel: 3 };
  const transposed = new Float32Array(w.length);
  for (let o = 0; o < outputs; o++) for (let i = 0; i < inputs; i++) transposed[i * outputs + o] = w[o * inputs + i];
  const scale = Math.max(...[0, 1].map((sign) => w.reduce((m, v) => Math.max(m, sign ? v : -v), 0))) / 127;
  const codes = Int8Array.from(transposed, (v) => Math.round(v / scale));
  const scales = new Float32Array(outputs).fill(scale);
  const create = async (...args) => ort.InferenceSession.create(modelWithWeights(...args), options);
  const matrix = [inputs, outputs];
  const sessions = {
    f32: await create('MatMul', '', float, float, [['w', float, matrix, transposed]]),
    int8: await create('DynamicQuantizeMatMul', 'com.microsoft', float, float, [
      ['w', int8, matrix, codes],
      ['s', float, [outputs], scales],
    ]),
    integer: await create('MatMulInteger', '', int8, int32, [['w', int8, matrix, codes]]),
  };
  for (const bits of [4, 8]) {
    // Blocks of 32 weights of a row. Of two 4-bit codes the first is in the low half of the byte. Code 2^(bits - 1) stands for 0.
    const packed = new Uint8Array((w.length * bits) / 8);
    const blockScales = new Float32Array(w.length / 32);
    for (let block = 0; block < blockScales.length; block++) {
      const values = w.subarray(block * 32, block * 32 + 32);
      const largest = values.reduce((m, v) => Math.max(m, Math.abs(v)), 0);
      const levels = 2 ** (bits - 1) - 1;
      blockScales[block] = largest / levels || 1;
      for (const [i, v] of values.entries()) {
        const code = Math.round(v / blockScales[block]) + 2 ** (bits - 1);
        if (bits === 8) packed[block * 32 + i] = code;
        else packed[block * 16 + (i >> 1)] |= code << (4 * (i & 1));
      }
    }
    sessions[`nbits${bits}`] = await create(
      'MatMulNBits',
      'com.microsoft',
      float,
      float,
      [
        ['w', uint8, [outputs, inputs / 32, 4 * bits], packed],
        ['s', float, [blockScales.length], blockScales],
      ],
      [
        ['K', inputs],
        ['N', outputs],
        ['bits', bits],
        ['block_size', 32],
        // Level 4 allows int8 activations inside. In WebAssembly the default, 0, takes the same time.
        ['accuracy_level', 4],
      ],
    );
  }
  return {
    /** Contestants for the rows of x. `integer` gets codes, since MatMulInteger does not quantize its input. */
    contestants(x) {
      const dimensions = [x.length / inputs, inputs];
      const values = new ort.Tensor('float32', x, dimensions);
      const rounded = new ort.Tensor(
        'int8',
        Int8Array.from(x, (v) => Math.round(v * 127)),
        dimensions,
      );
      const all = Object.entries(sessions);
      return Object.fromEntries(
        all.map(([name, s]) => [name, () => s.run({ x: name === 'integer' ? rounded : values })]),
      );
    },
    async release() {
      for (const session of Object.values(sessions)) await session.release();
    },
  };
}

/** Blocks of few bits that onnxruntime multiplies by as they are: MatMulNBits in place of MatMul and Gemm. */
import type { MatMulNBitsForm } from '../../codecs/matmul-nbits.js';
import type { Builder } from './builder.js';
import type { NewNode } from './encode.js';
import type { Reader } from './graph.js';
import type { Weight } from './model.js';
import type { OnnxNode } from './proto.js';
import { type Channels, floatOf, intOf } from './readers.js';

/** What decides about blocks. */
export interface BlockOptions {
  readonly bits: 2 | 4 | 8;
  readonly blockSize: number;
  readonly zeroPoints: boolean;
  readonly range?: 'mse' | undefined;
}

/** A node that can multiply by blocks. */
interface Product {
  readonly reader: Reader;
  /** Whether the weight is B with its columns as rows. */
  readonly transposed: boolean;
}

/** Whether a path leaves the elements in place, or swaps both dimensions. Undefined for any other. */
export function swaps(path: readonly OnnxNode[]): boolean | undefined {
  let swapped = false;
  for (const { opType, attributes } of path) {
    if (opType === 'Identity') continue;
    if (opType !== 'Transpose' || (attributes.get('perm')?.ints ?? [1, 0]).join() !== '1,0') return undefined;
    swapped = !swapped;
  }
  return swapped;
}

/** How a reader multiplies by a matrix; undefined if it does something else. */
function productOf(reader: Reader): Product | undefined {
  const { node, input, path } = reader;
  const swapped = swaps(path);
  if (swapped === undefined || input !== 1 || node.domain !== '') return undefined;
  if (node.opType === 'MatMul') return { reader, transposed: swapped };
  const isPlain = node.opType === 'Gemm' && floatOf(node, 'alpha', 1) === 1 && intOf(node, 'transA', 0) === 0;
  // Another factor for C would take one more node.
  if (!isPlain || (node.inputs.length > 2 && floatOf(node, 'beta', 1) !== 1)) return undefined;
  return { reader, transposed: swapped !== (intOf(node, 'transB', 0) !== 0) };
}

/** Stores a matrix as blocks. Returns why not, if that is not possible. */
export function blockWeight(
  builder: Builder,
  weight: Weight,
  { readers }: Channels,
  { bits, blockSize, zeroPoints, range }: BlockOptions,
): string | undefined {
  const { shape } = weight.source;
  const { graph, value } = weight;
  const products = readers.flatMap((reader) => productOf(reader) ?? []);
  const [first] = products;
  if (first === undefined) return `read by ${readers[0]?.node.opType}`;
  if (shape.length !== 2) return `${shape.length}-D`;
  const { transposed } = first;
  const taken = products.filter((product) => product.transposed === transposed);
  const form: MatMulNBitsForm = {
    codec: 'matmul-nbits',
    bits,
    blockSize,
    zeroPoint: zeroPoints,
    transposed,
    scale: 'F32',
    ...(range === undefined ? {} : { range }),
  };
  const others = readers.length - taken.length > 0 || builder.graphs.isOutput(graph, value);
  if (others)
    return `also read by ${readers.find((reader) => !taken.some((one) => one.reader === reader))?.node.opType}`;
  if (builder.parts(weight, form).reduce((sum, part) => sum + part.bytes, 0) >= weight.source.bytes)
    return 'not smaller';
  const index = builder.convert(weight, form);
  const names = [`${value}_Q${bits}`, `${value}_scales`, `${value}_zero_points`].map((name) =>
    builder.graphs.freshValue(name),
  );
  const [codes = '', scales = '', zeros = ''] = names;
  const tensors = [builder.tensorOf(index, 'data', codes), builder.tensorOf(index, 'scale', scales)];
  if (zeroPoints) tensors.push(builder.tensorOf(index, 'zeroPoint', zeros));
  builder.addTensors(weight, tensors);
  builder.remove(weight);
  const [rows = 0, columns = 0] = shape;
  const [k, n] = transposed ? [columns, rows] : [rows, columns];
  const inputs = [codes, scales, zeroPoints ? zeros : ''];
  for (const { reader } of taken) multiply(builder, reader, inputs, { K: k, N: n, bits, block_size: blockSize });
  builder.release(weight, new Set(taken.map(({ reader }) => reader.node)));
  return undefined;
}

/** Replaces a MatMul or a Gemm. */
function multiply(
  builder: Builder,
  { node, graph }: Reader,
  blocks: readonly string[],
  attributes: { readonly K: number; readonly N: number; readonly bits: number; readonly block_size: number },
): void {
  const [a = '', , c = ''] = node.inputs;
  const [output = ''] = node.outputs;
  const domain = builder.importContrib(graph);
  const name = `${node.name || output}_Q${attributes.bits}`;
  const product = c === '' || node.opType !== 'Gemm' ? output : builder.graphs.freshValue(`${output}_product`);
  const inputs = [a, ...blocks];
  while (inputs.at(-1) === '') inputs.pop();
  const nodes: NewNode[] = [{ opType: 'MatMulNBits', domain, name, inputs, outputs: [product], attributes }];
  if (product !== output) nodes.push({ opType: 'Add', name: `${name}_Add`, inputs: [product, c], outputs: [output] });
  builder.addNodes({ graph, before: node }, nodes);
  builder.removeNode(node);
}

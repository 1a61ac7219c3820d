/**
 * Writes blocks: MatMulNBits or MatMulBnb4 in place of MatMul and Gemm, and look-ups of rows in place of Gather.
 * Reference: github.com/microsoft/onnxruntime 1.20, onnxruntime/python/tools/quantization. Tests run onnxruntime-web 1.30.0.
 */
import { addsC } from '../decide/blocks.js';
import type { Blocks } from '../decide/decision.js';
import { castNode, type NewNode } from '../file/encode.js';
import type { Weight } from '../file/model.js';
import { floatOf, intOf, onnxTypeNumber } from '../file/proto.js';
import type { ReadingNode } from '../graph/graph.js';
import type { Builder } from './builder.js';
import { lookUp, ones } from './lookups.js';

/** Names of stored blocks. */
interface BlockNames {
  readonly codes: string;
  readonly scales: string;
  readonly zeroPoints: string | undefined;
}

/** Writes a matrix as blocks, and the nodes that compute with them. */
export function writeBlocks(builder: Builder, decision: Blocks): void {
  const { weight, form, k, n, products, lookups, unneeded, halves } = decision;
  const { value } = weight;
  const isFloats = form.codec === 'matmul-bnb4';
  // Store the parts.
  const index = builder.convert(weight, form);
  const stored: BlockNames = {
    codes: builder.freshValue(value + (isFloats ? '_Bnb4' : `_Q${form.bits}`)),
    scales: builder.freshValue(value + (isFloats ? '_absmax' : '_scales')),
    zeroPoints: !isFloats && form.zeroPoint ? builder.freshValue(`${value}_zero_points`) : undefined,
  };
  // Store scales of a table in a shape that broadcasts over the codes of their blocks.
  const wide = [n, Math.ceil(k / form.blockSize), ...(isFloats ? [] : ones(form.bits))];
  builder.addTensors(weight, [
    builder.tensorOf(index, 'scale', stored.scales, products.length === 0 ? wide : undefined),
    ...(stored.zeroPoints === undefined ? [] : [builder.tensorOf(index, 'zeroPoint', stored.zeroPoints)]),
    builder.tensorOf(index, 'data', stored.codes),
  ]);
  builder.removeNodes(unneeded);
  builder.remove(weight);
  // Replace the readers.
  for (const reader of products) {
    builder.replaceNode(reader.node, reader.graph, () => productNodes(builder, reader, decision, stored));
  }
  if (lookups.length === 0 || isFloats) return;
  const table = {
    ...stored,
    scales: products.length === 0 ? stored.scales : widened(builder, weight, stored.scales, wide),
    bits: form.bits,
    blocks: Math.ceil(k / form.blockSize),
    blockSize: form.blockSize,
    columns: k,
    halfScales: form.scale === 'F16',
  };
  for (const reader of lookups) lookUp(builder, reader, table, halves.has(reader.node));
}

/** The scales with extra dimensions, to broadcast over the codes of their blocks. */
function widened(builder: Builder, { graph, node }: Weight, scales: string, shape: readonly number[]): string {
  const wide = builder.freshValue(`${scales}_wide`);
  const name = builder.addIntegers(graph, `${scales}_shape`, shape);
  builder.addNodes({ graph, before: node }, [
    { opType: 'Reshape', name: wide, inputs: [scales, name], outputs: [wide] },
  ]);
  return wide;
}

/** A factor attribute of a Gemm. */
type Factor = 'alpha' | 'beta';

/**
 * A factor of a Gemm as a value; undefined if it is 1, or without an operand.
 * @param nodes output: the nodes that it needs
 */
function factorOf(
  builder: Builder,
  { node, graph }: ReadingNode,
  factor: Factor,
  isHalf: boolean,
  nodes: NewNode[],
): string | undefined {
  const value = floatOf(node, factor, 1);
  if (node.opType !== 'Gemm' || value === 1 || (factor === 'beta' && !addsC(node))) return undefined;
  const name = builder.addFloat(graph, `${builder.outputsOf(node)[0]}_${factor}`, value);
  if (!isHalf) return name;
  // The optimizer folds this node when it loads the model.
  const half = builder.freshValue(`${name}_fp16`);
  nodes.push(castNode(name, half, onnxTypeNumber('F16')));
  return half;
}

/** Nodes that replace a MatMul or a Gemm: alpha · A · B + beta · C. */
function productNodes(
  builder: Builder,
  reader: ReadingNode,
  { form, k, n, halves }: Blocks,
  { codes, scales, zeroPoints }: BlockNames,
): NewNode[] {
  const { node, graph } = reader;
  const [a = '', , c = ''] = builder.inputsOf(node);
  const [output = ''] = builder.outputsOf(node);
  const isFloats = form.codec === 'matmul-bnb4';
  const isHalf = !isFloats && form.scale === 'F16' && halves.has(node);
  const name = `${node.name || output}_${isFloats ? 'Bnb4' : `Q${form.bits}`}`;
  const nodes: NewNode[] = [];
  const fresh = (suffix: string) => builder.freshValue(output + suffix);
  const add = (opType: string, what: string, inputs: readonly string[], to: string, attributes = {}) => {
    nodes.push({ opType, name: `${name}_${what}`, inputs, outputs: [to], attributes });
    return to;
  };
  // Name the values between the nodes.
  const adds = addsC(node);
  const [alpha, beta] = (['alpha', 'beta'] as const).map((one) => factorOf(builder, reader, one, isHalf, nodes));
  const scaled = adds ? fresh('_product') : output;
  const sum = alpha === undefined ? scaled : fresh('_unscaled');
  // Add the product, with its rows in the type of the scales.
  const isTurned = node.opType === 'Gemm' && intOf(node, 'transA', 0) !== 0;
  const rows = isTurned ? add('Transpose', 'Transpose', [a], fresh('_rows'), { perm: [1, 0] }) : a;
  const casts = !isFloats && form.scale === 'F16' && !isHalf;
  const [x, product] = casts ? [fresh('_input_fp16'), fresh('_fp16')] : [rows, sum];
  if (casts) nodes.push(castNode(rows, x, onnxTypeNumber('F16')));
  const sizes = { K: k, N: n, block_size: form.blockSize };
  nodes.push({
    opType: isFloats ? 'MatMulBnb4' : 'MatMulNBits',
    domain: builder.importContrib(graph),
    attributes: isFloats ? { ...sizes, quant_type: 1 } : { ...sizes, bits: form.bits },
    name,
    inputs: [x, codes, scales, ...(zeroPoints === undefined ? [] : [zeroPoints])],
    outputs: [product],
  });
  if (casts) nodes.push(castNode(product, sum, onnxTypeNumber('F32')));
  // Multiply by alpha, and add C.
  if (alpha !== undefined) add('Mul', 'alpha', [sum, alpha], scaled);
  const addend = beta === undefined ? c : add('Mul', 'beta', [c, beta], fresh('_addend'));
  if (adds) add('Add', 'Add', [scaled, addend], output);
  return nodes;
}

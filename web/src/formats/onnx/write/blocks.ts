/**
 * Writes blocks: MatMulNBits or MatMulBnb4 in place of MatMul and Gemm, and look-ups of rows in place of Gather.
 * Reference: github.com/microsoft/onnxruntime 1.20, onnxruntime/python/tools/quantization. Tests run onnxruntime-web 1.30.0.
 */
import { addsC } from '../decide/blocks.js';
import type { Blocks } from '../decide/decision.js';
import { castNode, type NewNode, nodeFor } from '../file/encode.js';
import { floatOf, intOf, onnxTypeNumber } from '../file/proto.js';
import type { ReadingNode } from '../graph/graph.js';
import type { Builder } from './builder.js';
import { type BlockNames, broadcastOnes, lookUpRows } from './lookups.js';

/** Writes a matrix as blocks, and the nodes that compute with them. */
export function writeBlocks(builder: Builder, decision: Blocks): void {
  const { weight, form, k, n, products, lookups, unneeded, halves } = decision;
  const { value, graph, node } = weight;
  const isFloats = form.codec === 'matmul-bnb4';
  // Store the parts.
  const index = builder.convert(weight, form);
  const stored: BlockNames = {
    codes: builder.freshValue(value + (isFloats ? '_Bnb4' : `_Q${form.bits}`)),
    scales: builder.freshValue(value + (isFloats ? '_absmax' : '_scales')),
    zeroPoints: !isFloats && form.zeroPoint ? builder.freshValue(`${value}_zero_points`) : undefined,
  };
  // Store scales of a table in a shape that broadcasts over the codes of their blocks.
  const blocks = Math.ceil(k / form.blockSize);
  const wide = [n, blocks, ...(isFloats ? [] : broadcastOnes(form.bits))];
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
  let { scales } = stored;
  if (products.length > 0) {
    const reshaped = builder.freshValue(`${scales}_wide`);
    const shape = builder.addIntegers(graph, `${scales}_shape`, wide);
    builder.addNodes({ graph, before: node }, [nodeFor(reshaped, 'Reshape', [scales, shape])]);
    scales = reshaped;
  }
  const { bits, blockSize } = form;
  const table = { ...stored, scales, bits, blocks, blockSize, columns: k, halfScales: form.scale === 'F16' };
  for (const reader of lookups) lookUpRows(builder, reader, table, halves.has(reader.node));
}

/** Nodes that replace a MatMul or a Gemm: alpha · A · B + beta · C. */
function productNodes(
  builder: Builder,
  { node, graph }: ReadingNode,
  { form, k, n, halves }: Blocks,
  { codes, scales, zeroPoints }: BlockNames,
): NewNode[] {
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
  // Name the factors that are not 1, and the values between the nodes.
  const adds = addsC(node);
  const [alpha, beta] = (['alpha', 'beta'] as const).map((factor) => {
    const value = floatOf(node, factor, 1);
    if (node.opType !== 'Gemm' || value === 1 || (factor === 'beta' && !adds)) return undefined;
    const constant = builder.addFloat(graph, `${output}_${factor}`, value);
    if (!isHalf) return constant;
    // The optimizer folds this node when it loads the model.
    const half = builder.freshValue(`${constant}_fp16`);
    nodes.push(castNode(constant, half, onnxTypeNumber('F16')));
    return half;
  });
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

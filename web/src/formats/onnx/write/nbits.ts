/**
 * Blocks of few bits that onnxruntime computes with as they are: MatMulNBits or MatMulBnb4 in place of MatMul and Gemm. A Gather takes rows
 * of them.
 */
import type { MatMulBnb4Form } from '../../../codecs/matmul-bnb4.js';
import type { MatMulNBitsForm } from '../../../codecs/matmul-nbits.js';
import { castNode, int64Piece, type NewNode } from '../file/encode.js';
import type { Weight } from '../file/model.js';
import { type OnnxGraph, type OnnxNode, typeNumber } from '../file/proto.js';
import type { Reader } from '../graph/graph.js';
import { type Channels, floatOf, intOf, isCalled } from '../graph/readers.js';
import type { Builder } from './builder.js';
import { lookUp, ones, type Table } from './lookups.js';

/** What decides about blocks. */
export type BlockOptions =
  | {
      readonly kind: 'integers';
      readonly bits: 2 | 4 | 8;
      readonly blockSize: number;
      readonly zeroPoints: boolean | 'float';
      /** Type of the scales. It is the type that MatMulNBits computes with. */
      readonly scale: 'F32' | 'F16';
      readonly range?: 'mse' | undefined;
      /** Nodes that read and give float16. */
      readonly halves?: { has(node: OnnxNode): boolean } | undefined;
    }
  | { readonly kind: 'floats'; readonly blockSize: number };

/** A node that can multiply by blocks. */
interface Product {
  readonly reader: Reader;
  /** Whether the weight is B with its columns as rows. */
  readonly transposed: boolean;
}

/** The type of floats that a reader takes a weight for: that of the last Cast before it. */
export function typeRead({ path }: Reader, stored: string): number {
  const cast = path.findLast(({ opType, domain }) => opType === 'Cast' && domain === '');
  return cast === undefined ? typeNumber(stored) : intOf(cast, 'to', 0);
}

/** Whether a path leaves the elements in place, or swaps both dimensions. Undefined for any other. */
export function swaps(path: readonly OnnxNode[]): boolean | undefined {
  let swapped = false;
  for (const { opType, domain, attributes } of path) {
    if ((opType === 'Identity' || opType === 'Cast') && domain === '') continue;
    if (opType !== 'Transpose' || domain !== '' || (attributes.get('perm')?.ints ?? [1, 0]).join() !== '1,0')
      return undefined;
    swapped = !swapped;
  }
  return swapped;
}

/** How a reader multiplies by a matrix; undefined if it does something else. */
export function productOf(reader: Reader): Product | undefined {
  const { node, input, path } = reader;
  const swapped = swaps(path);
  if (swapped === undefined || input !== 1 || node.domain !== '') return undefined;
  if (node.opType === 'MatMul') return { reader, transposed: swapped };
  return node.opType === 'Gemm' ? { reader, transposed: swapped !== (intOf(node, 'transB', 0) !== 0) } : undefined;
}

/** Factors of a Gemm that float16 holds with all of its precision. */
const [leastHalf, mostHalf] = [2 ** -14, 65504];

/** Whether the factors of a Gemm can be multiplied in the type that it computes with. */
function holdsFactors({ node }: Reader, options: BlockOptions): boolean {
  const isHeld = (name: Factor) => {
    const magnitude = Math.abs(floatOf(node, name, 1));
    return magnitude >= leastHalf && magnitude <= mostHalf;
  };
  return node.opType !== 'Gemm' || !isHalf(node, options) || (isHeld('alpha') && (!addsC(node) || isHeld('beta')));
}

/** Whether a Gemm adds its third input. It does not read it if the factor is 0. */
function addsC(node: OnnxNode): boolean {
  return node.opType === 'Gemm' && (node.inputs[2] ?? '') !== '' && floatOf(node, 'beta', 1) !== 0;
}

/** A Gather of whole rows. */
export function isLookup({ node, input, path }: Reader): boolean {
  return (
    node.opType === 'Gather' && node.domain === '' && input === 0 && path.length === 0 && intOf(node, 'axis', 0) === 0
  );
}

/** The form of a matrix whose columns, or whose rows if it is transposed, are cut into blocks. */
function formOf(options: BlockOptions, transposed: boolean): MatMulNBitsForm | MatMulBnb4Form {
  if (options.kind === 'floats') return { codec: 'matmul-bnb4', blockSize: options.blockSize, transposed };
  const { bits, blockSize, zeroPoints, scale, range } = options;
  const form = {
    codec: 'matmul-nbits',
    bits,
    blockSize,
    zeroPoint: zeroPoints !== false,
    ...(zeroPoints === 'float' ? { floatZeroPoint: true } : {}),
    transposed,
    scale,
  } as const;
  return range === undefined ? form : { ...form, range };
}

/** The largest half, quarter and so on of a block size that divides a number of rows. */
function dividing(rows: number, blockSize: number): number {
  return rows % blockSize === 0 || blockSize < 16 ? blockSize : dividing(rows, blockSize / 2);
}

/** Options for a matrix of so many rows. */
function optionsFor(given: BlockOptions, k: number, isTable: boolean): BlockOptions {
  if (given.kind === 'floats') return { ...given, blockSize: dividing(k, given.blockSize) };
  // Rows are looked up with whole zero points alone.
  return isTable && given.zeroPoints === 'float' ? { ...given, zeroPoints: true } : given;
}

/** Why a reader of a weight takes no blocks. */
function whyNone(reader: Reader | undefined, shape: readonly number[], { kind, blockSize }: BlockOptions): string {
  if (reader === undefined) return 'not read';
  const { node, input, path } = reader;
  const what = `read by ${node.opType}`;
  if (kind === 'integers' && isLookup(reader))
    return `${what}: rows of ${shape[1]}, which blocks of ${blockSize} do not divide`;
  if (node.domain !== '' || (node.opType !== 'MatMul' && node.opType !== 'Gemm')) return what;
  if (shape.length !== 2) return `${shape.length}-D`;
  if (input === 0) return `${what} as its first input`;
  if (isCalled(reader)) return `${what} in a function`;
  if (swaps(path) === undefined) return `${what} behind ${[...new Set(path.map(({ opType }) => opType))].join(', ')}`;
  return input === 1 ? `${what} with a factor that float16 does not hold` : what;
}

/** Stores a matrix as blocks. Returns why not, if that is not possible. */
export function blockWeight(
  builder: Builder,
  weight: Weight,
  { readers }: Channels,
  given: BlockOptions,
): string | undefined {
  const { shape } = weight.source;
  const { value } = weight;
  const [rows = 0, columns = 0] = shape;
  const lookups = given.kind === 'integers' && columns % given.blockSize === 0 ? readers.filter(isLookup) : [];
  const products = readers.flatMap((reader) => (holdsFactors(reader, given) ? (productOf(reader) ?? []) : []));
  const [first] = products;
  if (first === undefined && lookups.length === 0) return whyNone(readers[0], shape, given);
  if (shape.length !== 2) return `${shape.length}-D`;
  // A table has its blocks along its rows.
  const transposed = lookups.length > 0 || first?.transposed === true;
  const taken = products.filter((product) => product.transposed === transposed);
  const replaced = new Set([...taken.map(({ reader }) => reader), ...lookups]);
  const other = readers.find((reader) => !replaced.has(reader));
  if (other !== undefined) return `also read by ${other.node.opType}`;
  if (builder.graphs.leaves(weight)) return 'an output';
  const [k, n] = transposed ? [columns, rows] : [rows, columns];
  const options = optionsFor(given, k, lookups.length > 0);
  if (options.blockSize < 16) return `${k} rows, which blocks do not divide`;
  const form = formOf(options, transposed);
  if (builder.parts(weight, form).reduce((sum, part) => sum + part.bytes, 0) >= weight.source.bytes)
    return 'not smaller';

  const index = builder.convert(weight, form);
  const fresh = (suffix: string) => builder.graphs.freshValue(value + suffix);
  /** Shape of scales that broadcast over the codes of a Gather. */
  const wide = [n, Math.ceil(k / options.blockSize), ...(options.kind === 'integers' ? ones(options.bits) : [])];
  const blocks: Blocks = {
    codes: fresh(options.kind === 'floats' ? '_Bnb4' : `_Q${options.bits}`),
    scales: fresh(options.kind === 'floats' ? '_absmax' : '_scales'),
    zeroPoints: options.kind === 'integers' && options.zeroPoints !== false ? fresh('_zero_points') : undefined,
    k,
    n,
    options,
  };
  builder.addTensors(weight, [
    builder.tensorOf(index, 'scale', blocks.scales, taken.length === 0 ? wide : undefined),
    ...(blocks.zeroPoints === undefined ? [] : [builder.tensorOf(index, 'zeroPoint', blocks.zeroPoints)]),
    builder.tensorOf(index, 'data', blocks.codes),
  ]);
  builder.release(weight, [...replaced]);
  builder.remove(weight);
  for (const { reader } of taken)
    builder.replaceNode(reader.node, reader.graph, () => multiplied(builder, reader, blocks));
  if (lookups.length === 0 || options.kind === 'floats') return undefined;
  const table: Table = {
    codes: blocks.codes,
    scales: taken.length === 0 ? blocks.scales : spread(builder, weight, blocks.scales, wide),
    zeroPoints: blocks.zeroPoints,
    bits: options.bits,
    blocks: k / options.blockSize,
    columns: k,
    halfScales: options.scale === 'F16',
  };
  for (const reader of lookups) lookUp(builder, reader, table, options.halves?.has(reader.node) === true);
  return undefined;
}

/** Names and sizes of stored blocks. */
interface Blocks {
  readonly codes: string;
  readonly scales: string;
  readonly zeroPoints: string | undefined;
  readonly k: number;
  readonly n: number;
  readonly options: BlockOptions;
}

/** The scales with dimensions to spare, which broadcast over the codes of their blocks. */
function spread(builder: Builder, { graph, node }: Weight, scales: string, shape: readonly number[]): string {
  const [wide, name] = [builder.graphs.freshValue(`${scales}_wide`), builder.graphs.freshValue(`${scales}_shape`)];
  builder.addConstant(graph, { name, type: typeNumber('I64'), shape: [shape.length], data: int64Piece(shape) });
  builder.addNodes({ graph, before: node }, [
    { opType: 'Reshape', name: wide, inputs: [scales, name], outputs: [wide] },
  ]);
  return wide;
}

/** Whether a node reads and gives float16. */
function isHalf(node: OnnxNode, options: BlockOptions): boolean {
  return options.kind === 'integers' && options.scale === 'F16' && options.halves?.has(node) === true;
}

/** An attribute of a Gemm by which it multiplies. */
type Factor = 'alpha' | 'beta';

/** A factor of a Gemm as a value. Undefined if it is 1, or if there is nothing to multiply. Nodes that it takes are added to `nodes`. */
function factorOf(
  builder: Builder,
  { node, graph }: Reader,
  factor: Factor,
  options: BlockOptions,
  nodes: NewNode[],
): string | undefined {
  const value = floatOf(node, factor, 1);
  if (node.opType !== 'Gemm' || value === 1 || (factor === 'beta' && !addsC(node))) return undefined;
  const name = builder.addFloat(graph, `${builder.outputsOf(node)[0]}_${factor}`, value);
  if (!isHalf(node, options)) return name;
  // The optimizer does this once, when it loads the model.
  const half = builder.graphs.freshValue(`${name}_fp16`);
  nodes.push(castNode(name, half, typeNumber('F16')));
  return half;
}

/** The product by blocks. */
function productNode(
  builder: Builder,
  graph: OnnxGraph,
  { codes, scales, zeroPoints, k, n, options }: Blocks,
): Pick<NewNode, 'opType' | 'domain' | 'attributes'> & { readonly weight: readonly string[] } {
  const isFloats = options.kind === 'floats';
  const sizes = { K: k, N: n, block_size: options.blockSize };
  return {
    opType: isFloats ? 'MatMulBnb4' : 'MatMulNBits',
    domain: builder.importContrib(graph),
    weight: [codes, scales, ...(zeroPoints === undefined ? [] : [zeroPoints])],
    attributes: isFloats ? { ...sizes, quant_type: 1 } : { ...sizes, bits: options.bits },
  };
}

/** The nodes in the place of a MatMul or a Gemm, which is alpha times the product plus beta times C. */
function multiplied(builder: Builder, reader: Reader, blocks: Blocks): NewNode[] {
  const { node, graph } = reader;
  const { options } = blocks;
  const [a = '', , c = ''] = builder.inputsOf(node);
  const [output = ''] = builder.outputsOf(node);
  const name = `${node.name || output}_${options.kind === 'floats' ? 'Bnb4' : `Q${options.bits}`}`;
  const nodes: NewNode[] = [];
  const fresh = (suffix: string) => builder.graphs.freshValue(output + suffix);
  const add = (opType: string, what: string, inputs: readonly string[], to: string, attributes = {}) => {
    nodes.push({ opType, name: `${name}_${what}`, inputs, outputs: [to], attributes });
    return to;
  };
  const adds = addsC(node);
  const [alpha, beta] = (['alpha', 'beta'] as const).map((one) => factorOf(builder, reader, one, options, nodes));
  const scaled = adds ? fresh('_product') : output;
  const sum = alpha === undefined ? scaled : fresh('_unscaled');
  const isTurned = node.opType === 'Gemm' && intOf(node, 'transA', 0) !== 0;
  const rows = isTurned ? add('Transpose', 'Transpose', [a], fresh('_rows'), { perm: [1, 0] }) : a;
  const casts = options.kind === 'integers' && options.scale === 'F16' && !isHalf(node, options);
  const [x, product] = casts ? [fresh('_input_fp16'), fresh('_fp16')] : [rows, sum];
  if (casts) nodes.push(castNode(rows, x, typeNumber('F16')));
  const { weight, ...main } = productNode(builder, graph, blocks);
  nodes.push({ ...main, name, inputs: [x, ...weight], outputs: [product] });
  if (casts) nodes.push(castNode(product, sum, typeNumber('F32')));
  if (alpha !== undefined) add('Mul', 'alpha', [sum, alpha], scaled);
  const addend = beta === undefined ? c : add('Mul', 'beta', [c, beta], fresh('_addend'));
  if (adds) add('Add', 'Add', [scaled, addend], output);
  return nodes;
}

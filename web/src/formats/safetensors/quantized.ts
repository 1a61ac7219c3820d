/**
 * Recognizes weights that are quantized already, whose codes must not be converted as if they were values.
 * Reference: layouts of github.com/vllm-project/compressed-tensors at ac8e2ba8, bitsandbytes-foundation/bitsandbytes at 95f9af30,
 * AutoGPTQ/AutoGPTQ at 9f7d3707, casper-hansen/AutoAWQ at 88e4c76b, and other writers.
 */
import { ScalepointError } from '../../core/errors.js';
import { type Hint, mention } from '../../core/option-problem.js';
import { quoted } from '../files/bytes.js';
import type { LogicalTensor, OpenModel, SourceTensor } from '../format.js';
import { plainTensor } from '../tensors.js';
import { codedLayoutOf } from './layouts/registry.js';
import { readTensors } from './logical.js';

/** Method by which a weight was quantized, derived from names. */
type Method =
  /** Codes in the layout of compressed-tensors. */
  | { readonly kind: 'compressed' }
  /** Small floats with scales. */
  | { readonly kind: 'floats'; readonly bits: number }
  /** Another tool. */
  | { readonly kind: 'tool'; readonly name: string }
  /** Integers in an unknown layout. Layers do not compute with plain integer weights. */
  | { readonly kind: 'unknown' };

const tool = (name: string): Method => ({ kind: 'tool', name });

function methodText(method: Method): string {
  switch (method.kind) {
    case 'compressed':
      return 'compressed-tensors';
    case 'floats':
      return `float${method.bits} with scales`;
    case 'tool':
      return method.name;
    case 'unknown':
      return 'by a method that is not known here';
  }
}

/** A weight that is quantized already. */
interface QuantizedWeight {
  readonly name: string;
  readonly method: Method;
}

/** True for integer types of codes, up to 32 bits. 64-bit integers are positions and counts. */
const isWhole = (dtype: string) => /^[IU](8|16|32)$/.test(dtype);

/** Float types of plain values. */
const ordinary: readonly string[] = ['F32', 'BF16', 'F16'];

/** Integer tensors by tool: last part of the name, neighbors of which one must exist, and the tool. */
const integers: readonly (readonly [last: string, neighbors: readonly string[], by: string])[] = [
  ['W_q', [], 'HQQ'],
  ['codes', ['codebooks'], 'AQLM'],
  ['indices', ['centroids.weight'], 'VPTQ'],
  ['row_offsets', ['dense_weights'], 'SpQR'],
  ['q_weight', ['q_scale', 'q_groups'], 'EXL2'],
  ['trellis', ['suh', 'su'], 'EXL3'],
  ['B', ['s', 's_group'], 'Marlin'],
  ['weight_packed', ['scale_packed'], 'compressed-tensors, Marlin'],
  ['bitmask', ['compressed'], 'compressed-tensors, sparse'],
];

/** Method of a tensor, from its name, dtype and the names of its neighbors; undefined for plain values. */
function methodOf({ name, dtype, shape }: SourceTensor, has: (name: string) => boolean): Method | undefined {
  // Skip the names of floats, which most tensors are.
  if (ordinary.includes(dtype)) return undefined;
  const dot = name.lastIndexOf('.') + 1;
  const [module, last] = [name.slice(0, dot), name.slice(dot)];
  const among = (...names: string[]) => names.some((other) => has(module + other));
  if (last === 'weight' && among('comfy_quant')) return tool('ComfyUI');
  if (isWhole(dtype)) {
    if (last === 'qweight' && among('scales', 'qzeros')) return tool(among('g_idx') ? 'GPTQ' : 'AWQ or GPTQ');
    if (last.endsWith('_packed') && has(`${name.slice(0, -'_packed'.length)}_scale`)) return { kind: 'compressed' };
    if (has(`${name}.absmax`) || has(`${name}.quant_map`) || (last === 'weight' && among('SCB'))) {
      return tool('bitsandbytes');
    }
    if (last.endsWith('_blocks') && has(`${name.slice(0, -'_blocks'.length)}_scales`)) return tool('MXFP4');
    if (last === 'weight' && dtype === 'U32' && among('scales')) return tool('MLX');
    if (last === '_data' && among('_scale')) return tool('optimum-quanto');
    if (last.endsWith('_qdata') && has(`${name.slice(0, -'_qdata'.length)}_scale`)) return tool('torchao');
    if (has(`${name}_scale`)) return { kind: 'compressed' };
    const known = integers.find(([own, neighbors]) => own === last && (neighbors.length === 0 || among(...neighbors)));
    if (known !== undefined) return tool(known[2]);
    return last === 'qweight' || (last === 'weight' && shape.length > 1) ? { kind: 'unknown' } : undefined;
  }
  const [, bits] = /^F([468])/.exec(dtype) ?? [];
  if (bits === undefined) return undefined;
  const scales = [
    `${name}_scale`,
    `${name}_scale_inv`,
    `${name}.scale`,
    `${module}scale_${last}`,
    `${module}qscale_${last}`,
  ];
  if (scales.some(has) || (last === 'weight' && among('scale'))) return { kind: 'floats', bits: Number(bits) };
  return undefined;
}

/** First weight that is quantized already; undefined without one. */
function findQuantized(tensors: readonly SourceTensor[]): QuantizedWeight | undefined {
  let names: ReadonlySet<string> | undefined;
  const has = (name: string) => {
    names ??= new Set(tensors.map((tensor) => tensor.name));
    return names.has(name);
  };
  for (const tensor of tensors) {
    const method = methodOf(tensor, has);
    if (method !== undefined) return { name: tensor.name, method };
  }
  return undefined;
}

/**
 * Tensors of a model as floats, in file order. With `requantize`, these include codes together with their scales.
 * @throws ScalepointError `UNSUPPORTED_DTYPE` for quantized weights without `requantize`, or in an unsupported layout
 */
export async function tensorsAsFloats(model: OpenModel, requantize: boolean): Promise<LogicalTensor[]> {
  const fail = (name: string, message: string, hint?: Hint): never => {
    throw new ScalepointError('UNSUPPORTED_DTYPE', `tensor ${quoted(name)}: ${message}`, { tensor: name, hint });
  };
  const found = findQuantized(model.tensors);
  if (found === undefined) return adapted(model, model.tensors.map(plainTensor));
  const { name, method } = found;
  const { tensors, taken, refused } = await readTensors(model);
  const rest = findQuantized(model.tensors.filter((tensor) => !taken.has(tensor.name)));
  if (rest !== undefined || taken.size === 0) {
    const { name: where, method: its } = rest ?? found;
    const why = refused.get(where) ?? 'in a layout that cannot be decoded here; start from the model in floats';
    fail(where, `it is quantized already (${methodText(its)}), ${why}`);
  }
  if (!requantize) {
    fail(name, `it is quantized already (${methodText(method)})`, {
      kind: 'try',
      option: mention('requantize', true),
      effect: 'starts from the values of the codes, which adds to their errors',
    });
  }
  const long = tensors.find((tensor) => codedLayoutOf(tensor.form)?.canBeCut?.(tensor) === false);
  if (long !== undefined)
    fail(long.name, 'it is quantized already, and its rows or groups are too long to be decoded in tiles');
  const places = new Map(model.tensors.map((tensor, i) => [tensor.name, i]));
  const placeOf = ({ parts: [first] }: LogicalTensor) => places.get(first?.tensor.name ?? '') ?? 0;
  return adapted(
    model,
    [...tensors].sort((a, b) => placeOf(a) - placeOf(b)),
  );
}

/** The tensors of a model with its adapters. @throws ScalepointError `BAD_FILE`, `UNSUPPORTED_DTYPE` */
export function adapted(model: OpenModel, tensors: LogicalTensor[]): LogicalTensor[] {
  return model.adapters?.merge(tensors, (form) => codedLayoutOf(form)?.floats(form)) ?? tensors;
}

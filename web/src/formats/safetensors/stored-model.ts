/**
 * The tensors of an open model: weights that layouts find among the stored tensors, and plain ones. Weights that are quantized already are
 * recognized, because their codes must not be converted as if they were values.
 * Reference: layouts of github.com/vllm-project/compressed-tensors at ac8e2ba8, bitsandbytes-foundation/bitsandbytes at 95f9af30,
 * AutoGPTQ/AutoGPTQ at 9f7d3707, casper-hansen/AutoAWQ at 88e4c76b, and other writers.
 */
import { ScalepointError } from '../../core/errors.js';
import { type Hint, mention } from '../../core/option-problem.js';
import { quoted } from '../files/bytes.js';
import { badTensor } from '../files/errors.js';
import { type ReadStretch, readNeighbors } from '../files/neighbors.js';
import type { LogicalTensor, OpenModel, SourceTensor } from '../format.js';
import { plainTensor } from '../tensors.js';
import { type Fields, fieldsInJson, type StoredModel } from './layouts/layout.js';
import { codedLayoutOf, layouts } from './layouts/registry.js';

/** Most bytes of a tensor that are read while planning. */
const mostBytes = 1 << 20;

/** Objects in JSON files beside models. Several plans of a model read a file once. */
const contents = new WeakMap<OpenModel, Map<string, Promise<Fields | undefined>>>();

/** The object in a JSON file beside a model; undefined without the file, and for other contents. */
export function jsonBeside(model: OpenModel, name: string): Promise<Fields | undefined> {
  const read = async () => {
    const bytes = await model.fileBeside?.(name);
    return bytes && fieldsInJson(bytes);
  };
  const known = contents.get(model) ?? new Map<string, Promise<Fields | undefined>>();
  contents.set(model, known);
  const content = known.get(name) ?? read();
  known.set(name, content);
  return content;
}

/** The tensors of a model, and why layouts refused some. */
interface GatheredWeights {
  /** First the weights in layouts, then plain tensors. */
  readonly tensors: readonly LogicalTensor[];
  /** Names of the stored tensors of the weights. */
  readonly taken: ReadonlySet<string>;
  readonly refused: ReadonlyMap<string, string>;
}

/** Gathers the weights of each layout, among the tensors that those before have not taken. */
export async function gatherWeights(model: OpenModel): Promise<GatheredWeights> {
  const readers = model.files.map(readNeighbors);
  const byName = new Map(model.tensors.map((tensor) => [tensor.name, tensor]));
  let remaining = model.tensors;
  const stored: StoredModel = {
    metadata: model.metadata,
    get tensors() {
      return remaining;
    },
    tensor: (name) => byName.get(name),
    async read({ name, file, byteOffset, bytes: size }, bytes = size) {
      if (bytes > mostBytes) badTensor(name, `${bytes} bytes are too many for its purpose`);
      return (readers[file] as ReadStretch)(byteOffset, byteOffset + Math.min(bytes, size));
    },
    json: (name) => jsonBeside(model, name),
  };
  const tensors: LogicalTensor[] = [];
  const taken = new Set<string>();
  const refused = new Map<string, string>();
  const first = layouts.filter(({ findsFirst }) => findsFirst);
  for (const { find } of new Set([...first, ...layouts])) {
    const found = await find?.(stored);
    for (const { tensor, beside = [] } of found?.weights ?? []) {
      tensors.push(tensor);
      for (const { tensor: part } of tensor.parts) taken.add(part.name);
      for (const name of beside) taken.add(name);
    }
    for (const [name, why] of found?.refused ?? []) refused.set(name, why);
    for (const name of taken) byName.delete(name);
    if (byName.size < remaining.length) remaining = remaining.filter(({ name }) => byName.has(name));
  }
  for (const tensor of remaining) tensors.push(plainTensor(tensor));
  return { tensors, taken, refused };
}

// --------------------------------------------------------------------------------------------------------- quantized already

/** Integer tensors by tool: last part of the name, neighbors of which one must exist, and the tool. */
const integersOfTools: readonly (readonly [last: string, neighbors: readonly string[], by: string])[] = [
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

/** The method by which a tensor was quantized, from its name, type and the names of its neighbors; undefined for plain values. */
function quantizedBy({ name, dtype, shape }: SourceTensor, has: (name: string) => boolean): string | undefined {
  // Skip the names of floats, which most tensors are.
  if (dtype === 'F32' || dtype === 'BF16' || dtype === 'F16') return undefined;
  const dot = name.lastIndexOf('.') + 1;
  const [module, last] = [name.slice(0, dot), name.slice(dot)];
  const among = (...names: readonly string[]) => names.some((other) => has(module + other));
  /** True for a name whose end stands for others beside it. */
  const isPaired = (end: string, other: string) => last.endsWith(end) && has(name.slice(0, -end.length) + other);
  if (last === 'weight' && among('comfy_quant')) return 'ComfyUI';
  // 64-bit integers are positions and counts.
  if (/^[IU](8|16|32)$/.test(dtype)) {
    if (last === 'qweight' && among('scales', 'qzeros')) return among('g_idx') ? 'GPTQ' : 'AWQ or GPTQ';
    if (isPaired('_packed', '_scale')) return 'compressed-tensors';
    if (has(`${name}.absmax`) || has(`${name}.quant_map`) || (last === 'weight' && among('SCB'))) return 'bitsandbytes';
    if (isPaired('_blocks', '_scales')) return 'MXFP4';
    if (last === 'weight' && dtype === 'U32' && among('scales')) return 'MLX';
    if (last === '_data' && among('_scale')) return 'optimum-quanto';
    if (isPaired('_qdata', '_scale')) return 'torchao';
    if (has(`${name}_scale`)) return 'compressed-tensors';
    const known = integersOfTools.find(
      ([end, neighbors]) => end === last && (neighbors.length === 0 || among(...neighbors)),
    );
    if (known !== undefined) return known[2];
    // Layers do not compute with plain integer weights.
    const isWeight = last === 'qweight' || (last === 'weight' && shape.length > 1);
    return isWeight ? 'by a method that is not known here' : undefined;
  }
  const [, bits] = /^F([468])/.exec(dtype) ?? [];
  if (bits === undefined) return undefined;
  const hasScales =
    ['_scale', '_scale_inv', '.scale'].some((end) => has(name + end)) ||
    among(`scale_${last}`, `qscale_${last}`) ||
    (last === 'weight' && among('scale'));
  return hasScales ? `float${bits} with scales` : undefined;
}

/** The first weight that is quantized already, with the method; undefined without one. */
function firstQuantized(tensors: readonly SourceTensor[]): readonly [name: string, method: string] | undefined {
  let names: ReadonlySet<string> | undefined;
  const has = (name: string) => {
    names ??= new Set(tensors.map((tensor) => tensor.name));
    return names.has(name);
  };
  for (const tensor of tensors) {
    const method = quantizedBy(tensor, has);
    if (method !== undefined) return [tensor.name, method];
  }
  return undefined;
}

/**
 * Tensors of a model as floats, in file order. With `requantize`, these include codes together with their scales.
 * @throws ScalepointError `UNSUPPORTED_DTYPE` for quantized weights without `requantize`, or in an unsupported layout
 */
export async function tensorsAsFloats(model: OpenModel, requantize: boolean): Promise<LogicalTensor[]> {
  const fail = (tensor: string, message: string, hint?: Hint): never => {
    const text = `tensor ${quoted(tensor)}: it is quantized already${message}`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', text, { tensor, hint });
  };
  const found = firstQuantized(model.tensors);
  if (found === undefined) return adaptedTensors(model, model.tensors.map(plainTensor));
  const { tensors, taken, refused } = await gatherWeights(model);
  const rest = firstQuantized(model.tensors.filter((tensor) => !taken.has(tensor.name)));
  if (rest !== undefined || taken.size === 0) {
    const [name, method] = rest ?? found;
    const why = refused.get(name) ?? 'in a layout that cannot be decoded here; start from the model in floats';
    fail(name, ` (${method}), ${why}`);
  }
  if (!requantize) {
    const effect = 'starts from the values of the codes, which adds to their errors';
    fail(found[0], ` (${found[1]})`, { kind: 'try', option: mention('requantize', true), effect });
  }
  const long = tensors.find((tensor) => codedLayoutOf(tensor.form)?.canBeCut?.(tensor) === false);
  if (long !== undefined) fail(long.name, ', and its rows or groups are too long to be decoded in tiles');
  const places = new Map(model.tensors.map((tensor, i) => [tensor.name, i]));
  const placeOf = ({ parts: [first] }: LogicalTensor) => places.get(first?.tensor.name ?? '') ?? 0;
  return adaptedTensors(
    model,
    [...tensors].sort((a, b) => placeOf(a) - placeOf(b)),
  );
}

/** The tensors of a model with its adapters. @throws ScalepointError `BAD_FILE`, `UNSUPPORTED_DTYPE` */
export function adaptedTensors(model: OpenModel, tensors: LogicalTensor[]): LogicalTensor[] {
  return model.adapters?.merge(tensors, (form) => codedLayoutOf(form)?.floats(form)) ?? tensors;
}

/** Parts of graphs that decoders and encoders share. */
import { show } from '../../core/show.js';
import type { Config } from '../huggingface/config.js';
import { badFolderFile, unsupported } from '../huggingface/errors.js';
import { GraphWriter, type ValueName } from './graph.js';

/** The tensors of a folder: their shapes by name. */
export type Shapes = ReadonlyMap<string, readonly number[]>;

/** Formulas of functions that config.json names, by their names. */
const functions: Readonly<Record<string, (graph: GraphWriter, x: ValueName) => ValueName>> = {
  silu: (graph, x) => graph.op('Mul', [x, graph.op('Sigmoid', [x])]),
  relu: (graph, x) => graph.op('Relu', [x]),
  tanh: (graph, x) => graph.op('Tanh', [x]),
  gelu(graph, x) {
    const share = graph.op('Add', [graph.op('Erf', [graph.op('Div', [x, graph.float(Math.SQRT2)])]), graph.float(1)]);
    return graph.op('Mul', [graph.op('Mul', [x, share]), graph.float(0.5)]);
  },
  gelu_pytorch_tanh(graph, x) {
    const cube = graph.op('Mul', [graph.op('Mul', [graph.op('Mul', [x, x]), x]), graph.float(0.044715)]);
    const inner = graph.op('Mul', [graph.op('Add', [x, cube]), graph.float(Math.sqrt(2 / Math.PI))]);
    const share = graph.op('Add', [graph.op('Tanh', [inner]), graph.float(1)]);
    return graph.op('Mul', [graph.op('Mul', [x, share]), graph.float(0.5)]);
  },
};
const otherNames: Readonly<Record<string, string>> = { swish: 'silu', gelu_new: 'gelu_pytorch_tanh' };

/** A function of elements, by its name in config.json. */
export function functionNamed(name: unknown, key = 'hidden_act'): (graph: GraphWriter, x: ValueName) => ValueName {
  const own = otherNames[name as string] ?? (name as string);
  const found = Object.hasOwn(functions, own) ? functions[own] : undefined;
  return found ?? unsupported('config.json', `${key} is ${show(name)}; it can be ${Object.keys(functions).join(', ')}`);
}

/** Refuses settings that a graph does not compute. @param only the values that keys may have */
export function checkSettings(config: Config, only: Readonly<Record<string, readonly unknown[]>> = {}): void {
  for (const [name, values] of Object.entries(only)) {
    const value = config.get(name);
    if (value !== undefined && !values.includes(value))
      unsupported('config.json', `${name} is ${show(value)}; it can be ${values.map(show).join(' or ')} here`);
  }
}

/** Writes parts of a model whose weights a folder holds. */
export class Parts {
  readonly graph = new GraphWriter();
  readonly #shapes: Shapes;

  constructor(shapes: Shapes) {
    this.#shapes = shapes;
  }

  has(name: string): boolean {
    return this.#shapes.has(name);
  }

  /** The shape of a tensor that the folder has to have. */
  shapeOf(name: string): readonly number[] {
    return this.#shapes.get(name) ?? badFolderFile('safetensors', `the tensor ${show(name)} is missing`, name);
  }

  /** A product with a weight, which has a row for each output, and perhaps a bias. @param bias its name, if it is not that of the weight */
  linear(x: ValueName, name: string, [inputs, outputs]: readonly [number, number], bias = `${name}.bias`): ValueName {
    const { graph } = this;
    const weight = graph.op('Transpose', [graph.weight(`${name}.weight`, [outputs, inputs])], { perm: [1, 0] });
    const product = graph.op('MatMul', [x, weight]);
    return this.has(bias) ? graph.op('Add', [product, graph.weight(bias, [outputs])]) : product;
  }

  /** A norm by mean and variance over the last dimension, whose bias may be missing. */
  layerNorm(x: ValueName, name: string, length: number, epsilon: number): ValueName {
    // Old checkpoints call weights gamma and biases beta.
    const [scale = '', shift] = [
      ['weight', 'gamma'],
      ['bias', 'beta'],
    ].map((names) => names.map((one) => `${name}.${one}`).find((one) => this.has(one)));
    const inputs = [x, this.graph.weight(scale || `${name}.weight`, [length])];
    if (shift !== undefined) inputs.push(this.graph.weight(shift, [length]));
    return this.graph.op('LayerNormalization', inputs, { axis: -1, epsilon: { float: epsilon } });
  }

  /** The mean of the vectors of each text's words. */
  mean(x: ValueName, attentionMask: ValueName): ValueName {
    const { graph } = this;
    const shares = graph.op('Unsqueeze', [graph.cast(attentionMask, 'F32'), graph.ints([2])]);
    const sum = graph.op('ReduceSum', [graph.op('Mul', [x, shares]), graph.ints([1])], { keepdims: 0 });
    return graph.op('Div', [sum, graph.op('ReduceSum', [shares, graph.ints([1])], { keepdims: 0 })]);
  }

  /** Values as heads: [batch, heads, sequence, head]. */
  heads(x: ValueName, heads: number, head: number): ValueName {
    const split = this.graph.op('Reshape', [x, this.graph.ints([0, 0, heads, head])]);
    return this.graph.op('Transpose', [split], { perm: [0, 2, 1, 3] });
  }

  /** Heads side by side again: [batch, sequence, heads * head]. */
  joined(x: ValueName, length: number): ValueName {
    const rows = this.graph.op('Transpose', [x], { perm: [0, 2, 1, 3] });
    return this.graph.op('Reshape', [rows, this.graph.ints([0, 0, length])]);
  }

  /** Turns the first elements of each head, by sines and cosines of half as many angles: element i with element i + n/2. */
  rotated(x: ValueName, { cos, sin }: Turns, [head, half]: readonly [head: number, half: number]): ValueName {
    const { graph } = this;
    const rest = head - 2 * half;
    const [a, b, ...others] = graph.split(x, [half, half, ...(rest > 0 ? [rest] : [])]) as [ValueName, ValueName];
    const first = graph.op('Sub', [graph.op('Mul', [a, cos]), graph.op('Mul', [b, sin])]);
    const second = graph.op('Add', [graph.op('Mul', [b, cos]), graph.op('Mul', [a, sin])]);
    return graph.op('Concat', [first, second, ...others], { axis: -1 });
  }

  /** A size of a value, without dimensions. */
  sizeAt(value: ValueName, axis: number): ValueName {
    const { graph } = this;
    const size = graph.op('Shape', [value], { start: axis, end: axis + 1 });
    return graph.op('Squeeze', [size, graph.ints([0])]);
  }
}

/** Sines and cosines by position and pair. */
export interface Turns {
  readonly cos: ValueName;
  readonly sin: ValueName;
}

/**
 * Makes a model whose nodes run apart: each one gets the values of a reference as its inputs, so that its result shows its own error alone.
 * Nodes of constants stay before their readers, because kernels prepare constant weights. Values whose type or shape differs from that of the
 * reference stay, too, and so do integers of 32 and 64 bits, which kernels need at load or compute exactly.
 */
import type { RunTensor } from '../../run.js';
import { bytesPiece, piecesField, textField, valuePieces } from '../file/encode.js';
import type { OnnxModel } from '../file/model.js';
import { graphField, nodeField, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import { Graphs } from '../graph/graph.js';
import { Edits } from '../write/edits.js';
import { edited, type RunnableModel } from './runnable.js';
import type { Loadable } from './runtime.js';

/** Types of values that nodes get from the reference, by onnxruntime's names. */
const types: Readonly<Record<string, number>> = {
  float32: onnxTypeNumber('F32'),
  float16: onnxTypeNumber('F16'),
  float64: onnxTypeNumber('F64'),
  int8: onnxTypeNumber('I8'),
  uint8: onnxTypeNumber('U8'),
};

export type Values = ReadonlyMap<string, RunTensor>;

export interface ApartModel extends Loadable {
  /** Inputs beside those of the model, by the values of the reference that they take. */
  readonly inputs: readonly string[];
  /** Names of outputs by the values that they are to equal. */
  readonly outputs: ReadonlyMap<string, string>;
}

/** Outputs of nodes that depend on constants alone. */
function constantsOf({ proto: { graph } }: OnnxModel): Set<string> {
  const constants = new Set([...graph.initializers.map(({ name }) => name), ...graph.sparse]);
  const isConstant = ({ opType, inputs, attributes }: OnnxNode) => {
    if (opType === 'Constant') return true;
    const hasGraphs = [...attributes.values()].some(({ graphs }) => graphs.length > 0);
    return inputs.length > 0 && !hasGraphs && inputs.every((name) => name === '' || constants.has(name));
  };
  for (const node of graph.nodes) if (isConstant(node)) for (const name of node.outputs) constants.add(name);
  return constants;
}

/**
 * @param reference values that nodes get
 * @param own values of the model itself, whose types and shapes count
 */
export function apartOf(model: OnnxModel, runnable: RunnableModel, reference: Values, own: Values): ApartModel {
  const { graph } = model.proto;
  const edits = new Edits();
  const taken = new Graphs(model).valueNames;
  const constants = constantsOf(model);
  const last = (graph.messages.at(-1) as (typeof graph.messages)[number]).begin;
  const [inputs, outputs] = [[] as string[], new Map<string, string>()];
  let count = 0;
  const fresh = (): string => {
    const name = `apart_${count++}`;
    return taken.has(name) ? fresh() : name;
  };
  for (const { start } of graph.outputs) edits.replace(start);
  for (const { begin, end, outputs: names } of graph.nodes) {
    const fields = [...model.skeleton.fields(begin, end)].filter(({ number }) => number === nodeField.output);
    for (const [i, name] of names.entries()) {
      const [value, mine, field] = [reference.get(name), own.get(name), fields[i]];
      if (name === '' || value === undefined || mine === undefined || field === undefined) continue;
      const type = Object.hasOwn(types, value.type) ? types[value.type] : undefined;
      const isSame = value.type === mine.type && value.dims.join() === mine.dims.join();
      if (type === undefined || !isSame || constants.has(name)) {
        outputs.set(name, name);
        continue;
      }
      // The node gives another name, so that all readers, also those in subgraphs, read the input.
      const renamed = fresh();
      edits.replace(field.start, [bytesPiece(textField(nodeField.output, renamed))]);
      edits.append(last, piecesField(graphField.input, valuePieces(name, type, value.dims)));
      inputs.push(name);
      outputs.set(name, renamed);
    }
  }
  for (const name of outputs.values()) {
    edits.append(last, piecesField(graphField.output, [bytesPiece(textField(1, name))]));
  }
  return { ...edited(model, edits, runnable), inputs, outputs };
}

/** Writes graphs of ONNX: nodes in order, small constants, and weights, whose elements a folder holds. */
import type { Int64 } from '../../formats/files/protobuf.js';
import {
  type AttributeValue,
  bytesPiece,
  externalPieces,
  int64Piece,
  integerField,
  type MessagePiece,
  messageBytes,
  nodePieces,
  piecesField,
  tensorPieces,
  textField,
  valuePieces,
} from '../../formats/onnx/file/encode.js';
import { contrib, graphField, modelField, onnxTypeNumber, tensorField } from '../../formats/onnx/file/proto.js';

/** Name of a value of the graph. */
export type ValueName = string;

/** Dimensions of an input or output. Those without a fixed size have names. */
type Dimensions = readonly (number | string)[];

/** Versions that all runtimes of transformers.js 3 and 4 load. */
const [opset, irVersion] = [21, 10];

export class GraphWriter {
  readonly #nodes: MessagePiece[] = [];
  /** Initializers, by their names. */
  readonly #tensors: (readonly [name: ValueName, pieces: readonly MessagePiece[]])[] = [];
  readonly #read = new Set<ValueName>();
  readonly #values: MessagePiece[] = [];
  readonly #names = new Map<string, number>();
  readonly #constants = new Map<string, ValueName>();
  readonly #weights = new Map<string, readonly number[]>();
  /** True once a node is of onnxruntime's own domain. */
  #hasContrib = false;
  /** Beginning of the names of nodes, such as `/model/layers.0`. */
  scope = '';

  /** Adds an input. */
  input(name: string, type: string, dimensions: Dimensions): ValueName {
    this.#values.push(...piecesField(graphField.input, valuePieces(name, onnxTypeNumber(type), dimensions)));
    return name;
  }

  /** Adds an output: a value under a name of its own. */
  output(name: string, type: string, dimensions: Dimensions, value: ValueName): void {
    this.#add('Identity', [value], [name]);
    this.#values.push(...piecesField(graphField.output, valuePieces(name, onnxTypeNumber(type), dimensions)));
  }

  #fresh(opType: string): string {
    const wanted = `${this.scope}/${opType}`;
    const count = this.#names.get(wanted) ?? 0;
    this.#names.set(wanted, count + 1);
    return count === 0 ? wanted : `${wanted}_${count}`;
  }

  #add(
    opType: string,
    inputs: readonly ValueName[],
    outputs: readonly ValueName[],
    attributes: Attributes = {},
    domain = '',
  ): void {
    const name = outputs.length === 1 && outputs[0]?.startsWith('/') ? (outputs[0] as string) : this.#fresh(opType);
    for (const input of inputs) this.#read.add(input);
    this.#nodes.push(...nodePieces({ opType, domain, name, inputs, outputs, attributes }, graphField.node));
  }

  /** Adds a node of ai.onnx with one output. */
  op(opType: string, inputs: readonly ValueName[], attributes: Attributes = {}): ValueName {
    const output = this.#fresh(opType);
    this.#add(opType, inputs, [output], attributes);
    return output;
  }

  /** Adds a node of onnxruntime's own operators. An input without a name is left out. @param count of its outputs */
  contrib(opType: string, inputs: readonly ValueName[], attributes: Attributes, count = 1): readonly ValueName[] {
    this.#hasContrib = true;
    const outputs = Array.from({ length: count }, () => this.#fresh(opType));
    this.#add(opType, inputs, outputs, attributes, contrib);
    return outputs;
  }

  /** Cuts a value into parts of these sizes along its last axis. */
  split(value: ValueName, sizes: readonly number[]): readonly ValueName[] {
    const outputs = sizes.map(() => this.#fresh('Split'));
    this.#add('Split', [value, this.ints(sizes)], outputs, { axis: -1 });
    return outputs;
  }

  cast(value: ValueName, type: string): ValueName {
    return this.op('Cast', [value], { to: onnxTypeNumber(type) });
  }

  /** A vector of int64. Equal ones are one constant. */
  ints(values: readonly Int64[]): ValueName {
    return this.#constant(`ints ${values}`, 'I64', [values.length], int64Piece(values));
  }

  /** An int64 without dimensions. */
  int(value: Int64): ValueName {
    return this.#constant(`int ${value}`, 'I64', [], int64Piece([value]));
  }

  /** A float32 without dimensions. */
  float(value: number): ValueName {
    return this.floats([value], []);
  }

  /** A constant of float32. */
  floats(values: readonly number[], shape: readonly number[] = [values.length]): ValueName {
    const bytes = new Uint8Array(Float32Array.from(values).buffer);
    return this.#constant(`floats ${shape} of ${values}`, 'F32', shape, { bytes });
  }

  #constant(key: string, type: string, shape: readonly number[], data: MessagePiece): ValueName {
    const known = this.#constants.get(key);
    if (known !== undefined) return known;
    const name = `constant_${this.#constants.size}`;
    this.#constants.set(key, name);
    this.#initializer(name, tensorPieces({ name, type: onnxTypeNumber(type), shape, data }));
    return name;
  }

  #initializer(name: ValueName, tensor: readonly MessagePiece[]): void {
    this.#tensors.push([name, piecesField(graphField.initializer, tensor)]);
  }

  /** A weight with known values. */
  known(name: string, values: Float32Array<ArrayBuffer>, shape: readonly number[]): ValueName {
    const data = { bytes: new Uint8Array(values.buffer, values.byteOffset, values.byteLength) };
    this.#initializer(name, tensorPieces({ name, type: onnxTypeNumber('F32'), shape, data }));
    return name;
  }

  /** A weight of the folder as float32. */
  weight(name: string, shape: readonly number[]): ValueName {
    if (this.#weights.has(name)) return name;
    this.#weights.set(name, shape);
    // The place of the elements is not read. A result writes them anew.
    const head = [
      ...shape.flatMap((size) => [...integerField(tensorField.dims, size)]),
      ...integerField(tensorField.type, onnxTypeNumber('F32')),
      ...textField(tensorField.name, name),
    ];
    this.#initializer(name, [bytesPiece(head), ...externalPieces({ location: 'weights', offset: 0, length: 0 })]);
    return name;
  }

  /** The weights that nodes read, by name, with their shapes. */
  get weights(): ReadonlyMap<string, readonly number[]> {
    return this.#weights;
  }

  /** The bytes of the model. */
  bytes(): Uint8Array<ArrayBuffer> {
    // Runtimes warn of initializers that no node reads.
    const tensors = this.#tensors.flatMap(([name, pieces]) => (this.#read.has(name) ? pieces : []));
    const graph = [...this.#nodes, bytesPiece(textField(2, 'graph')), ...tensors, ...this.#values];
    return messageBytes([
      bytesPiece(integerField(modelField.irVersion, irVersion)),
      bytesPiece(textField(modelField.producer, 'scalepoint')),
      ...piecesField(modelField.graph, graph),
      ...piecesField(modelField.opsetImport, [bytesPiece(integerField(2, opset))]),
      ...(this.#hasContrib
        ? piecesField(modelField.opsetImport, [bytesPiece(textField(1, contrib)), bytesPiece(integerField(2, 1))])
        : []),
    ]);
  }
}

type Attributes = Readonly<Record<string, AttributeValue>>;

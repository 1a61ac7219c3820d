/** Opens ONNX models: lists tensors, and finds their data. */
import { type ByteSource, quoted } from '../../files/bytes.js';
import { malformed, readSkeleton, type Skeleton } from '../../files/protobuf.js';
import type { OpenFile, OpenInput, OpenModel, SourceTensor } from '../../format.js';
import { assembled, plainPlace } from './data.js';
import { checkLocation, ExternalFiles } from './external.js';
import {
  modelSchema,
  type OnnxFunction,
  type OnnxGraph,
  type OnnxNode,
  type OnnxProto,
  type OnnxTensor,
  readModel,
} from './proto.js';

/** A tensor of a graph. */
export interface Weight {
  readonly source: SourceTensor;
  readonly tensor: OnnxTensor;
  readonly graph: OnnxGraph;
  /** Name of its value, which nodes read. */
  readonly value: string;
  /** Constant node that gives it; undefined for an initializer. */
  readonly node: OnnxNode | undefined;
}

/** An open ONNX model. */
export interface OnnxModel extends OpenModel {
  readonly proto: OnnxProto;
  readonly skeleton: Skeleton;
  /** The file of the model itself. */
  readonly source: ByteSource;
  /** In the order of `tensors`. */
  readonly weights: readonly Weight[];
}

/** Types of constants that may be weights. */
const constantTypes: readonly string[] = ['F32', 'F16', 'BF16', 'F64', 'I8', 'U8', 'I4', 'U4', 'I2', 'U2'];

/** Tensor of a constant node. */
export function constantOf({ opType, domain, outputs, attributes }: OnnxNode): OnnxTensor | undefined {
  if (opType !== 'Constant' || domain !== '' || outputs.length !== 1) return undefined;
  const value = attributes.get('value');
  if (value !== undefined) return value.refers ? undefined : value.tensor;
  const list = attributes.get('value_floats');
  // Copy floats of an attribute if they are contiguous, which lists in many fields are not.
  const isPlain = list?.tensor !== undefined && !list.refers && plainPlace(list.tensor.data) !== undefined;
  return isPlain ? list.tensor : undefined;
}

/** A call of a function, and its offset. */
interface Call {
  readonly called: OnnxFunction;
  readonly at: number;
}

/** Checks that functions do not call each other in cycles. Iterative, because chains of calls may be deeper than JavaScript's stack. */
function checkFunctions(functions: readonly OnnxFunction[]): void {
  const keyOf = (domain: string, name: string) => JSON.stringify([domain, name]);
  const byKey = new Map(functions.map((f) => [keyOf(f.domain, f.name), f]));
  const callsIn = (graph: OnnxGraph): Call[] =>
    graph.nodes.flatMap((node) => {
      const called = byKey.get(keyOf(node.domain, node.opType));
      const inside = [...node.attributes.values()].flatMap(({ graphs }) => graphs.flatMap(callsIn));
      return called === undefined ? inside : [{ called, at: node.start }, ...inside];
    });
  const state = new Map<OnnxFunction, 'open' | 'done'>();
  for (const first of functions) {
    const open: { readonly f: OnnxFunction; readonly calls: Iterator<Call> }[] = [];
    const enter = (f: OnnxFunction) => {
      state.set(f, 'open');
      open.push({ f, calls: callsIn(f.body).values() });
    };
    if (!state.has(first)) enter(first);
    for (let last = open.at(-1); last !== undefined; last = open.at(-1)) {
      const { value: call, done } = last.calls.next();
      if (done) {
        state.set(last.f, 'done');
        open.pop();
      } else if (state.get(call.called) === 'open') {
        malformed(`the function ${quoted(call.called.name)} calls itself`, call.at);
      } else if (!state.has(call.called)) enter(call.called);
    }
  }
}

/** Finds tensors and their data. */
class Opener {
  readonly #source: ByteSource;
  readonly #external: ExternalFiles;
  readonly files: ByteSource[];
  readonly weights: Weight[] = [];
  readonly #names = new Set<string>();

  constructor(source: ByteSource, external: ExternalFiles) {
    this.#source = source;
    this.#external = external;
    this.files = [source];
  }

  /** The tensors of a graph and of all graphs inside of it. */
  async addGraph(graph: OnnxGraph, path: string): Promise<void> {
    const seen = new Set<string>();
    for (const tensor of graph.initializers) {
      const { name, begin } = tensor;
      if (seen.has(name)) malformed(`there are two tensors ${quoted(name)} in a graph`, begin, name);
      seen.add(name);
      await this.#add(tensor, graph, path, name, undefined);
    }
    for (const [i, node] of graph.nodes.entries()) {
      const constant = constantOf(node);
      const [output = ''] = node.outputs;
      if (constant !== undefined && constant.shape.length > 0 && constantTypes.includes(constant.element?.name ?? '')) {
        await this.#add(constant, graph, path, output, node);
      }
      const label = node.name || output || `${node.opType} ${i}`;
      for (const { name, graphs } of node.attributes.values()) {
        for (const [j, inner] of graphs.entries()) {
          await this.addGraph(inner, `${path}${label}/${name}${graphs.length > 1 ? `.${j}` : ''}/`);
        }
      }
    }
  }

  /** Adds a tensor under a unique name. */
  async #add(
    tensor: OnnxTensor,
    graph: OnnxGraph,
    path: string,
    value: string,
    node: OnnxNode | undefined,
  ): Promise<void> {
    const { element, shape, bytes } = tensor;
    if (element === undefined) return;
    let name = path + value;
    for (let i = 2; this.#names.has(name); i++) name = `${path}${value} #${i}`;
    this.#names.add(name);
    const place = await this.#place(tensor, value);
    const source: SourceTensor = { name, dtype: element.name, shape, bytes, ...place };
    this.weights.push({ source, tensor, graph, value, node });
  }

  async #place(tensor: OnnxTensor, name: string): Promise<Pick<SourceTensor, 'byteOffset' | 'file' | 'rearranged'>> {
    const { data, bytes, begin } = tensor;
    if (data.kind === 'none') return { byteOffset: begin, file: 0 };
    const plain = plainPlace(data);
    if (plain !== undefined) return { byteOffset: plain, file: 0 };
    if (data.kind !== 'external') {
      this.files.push(assembled(this.#source, tensor));
      return { byteOffset: 0, file: this.files.length - 1, rearranged: true };
    }
    const { location, offset, length } = data;
    const source = await this.#external.find(checkLocation(location, begin, name), { tensor: name, byteOffset: begin });
    if (length !== undefined && length !== bytes) {
      malformed(
        `tensor ${quoted(name)}: it has ${length} bytes in ${quoted(location)}, but its shape takes ${bytes}`,
        begin,
        name,
      );
    }
    if (offset + bytes > source.size) {
      const message = `its bytes ${offset} to ${offset + bytes} lie outside of ${quoted(location)}, which has ${source.size}`;
      malformed(`tensor ${quoted(name)}: ${message}`, begin, name);
    }
    let file = this.files.indexOf(source);
    if (file < 0) file = this.files.push(source) - 1;
    return { byteOffset: offset, file };
  }
}

/**
 * Opens a model.
 * @param others files with data of its tensors
 * @throws ScalepointError `BAD_FILE`, `NOT_FOUND`, `IO`
 */
export async function openOnnx(file: OpenFile, others: readonly OpenFile[], open: OpenInput): Promise<OnnxModel> {
  const { source } = file;
  const skeleton = await readSkeleton(source, modelSchema);
  const proto = readModel(skeleton, source.size);
  checkFunctions(proto.functions);
  const external = new ExternalFiles(file, others, open);
  const opener = new Opener(source, external);
  try {
    await opener.addGraph(proto.graph, '');
    for (const { name, body } of proto.functions) await opener.addGraph(body, `${name}/`);
  } catch (error) {
    await external.close();
    throw error;
  }
  const { files } = opener;
  const weights = opener.weights.sort((a, b) => a.tensor.begin - b.tensor.begin);
  const opsets = [...proto.opsets].map(([domain, version]) => `${domain || 'ai.onnx'} ${version}`);
  const metadata = Object.assign(Object.create(null), {
    irVersion: proto.irVersion,
    producer: proto.producer,
    opsets: opsets.join(', '),
  });
  return {
    bytes: source.size + external.bytes,
    files,
    tensors: weights.map((weight) => weight.source),
    metadata,
    proto,
    skeleton,
    source,
    weights,
    close: () => external.close(),
  };
}

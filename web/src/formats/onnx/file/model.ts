/** Opens ONNX models: lists tensors, and finds their data. */
import { type ByteSource, quoted } from '../../files/bytes.js';
import { malformed, readSkeleton, type Skeleton } from '../../files/protobuf.js';
import type { LogicalTensor, OpenFile, OpenInput, OpenModel, SourceTensor } from '../../format.js';
import { assembledElements, plainPlace } from './data.js';
import { ExternalFiles } from './external.js';
import {
  modelSchema,
  type OnnxFunction,
  type OnnxGraph,
  type OnnxNode,
  type OnnxProto,
  type OnnxTensor,
  readOnnx,
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
  /** The tensor of a folder that it is made of as float32, in models whose graphs are made. `source` has its size and no place. */
  readonly made?: LogicalTensor | undefined;
}

/** An open ONNX model. */
export interface OnnxModel extends OpenModel {
  readonly proto: OnnxProto;
  readonly skeleton: Skeleton;
  /** The file of the model itself. */
  readonly source: ByteSource;
  /** In the order of `tensors`. */
  readonly weights: readonly Weight[];
  /** Most bytes of a file with data of a result, which then has several. @defaultValue one file of any size */
  readonly mostData?: number;
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
function checkCalls(functions: readonly OnnxFunction[]): void {
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

/** The tensor whose bytes a weight is read from; undefined if it is made of several. */
export function storedOf({ source, made }: Weight): SourceTensor | undefined {
  if (made === undefined) return source;
  const [first, ...others] = made.parts;
  return others.length === 0 && made.gathered === undefined && made.form.codec === 'cast' ? first?.tensor : undefined;
}

/**
 * Presents a graph that was made, whose weights are tensors of a folder, as an open model. Its file follows those of the folder.
 * @param bytes the model; the data of initializers of these names are external
 * @param tensors by the names of their initializers
 */
export async function openMade(
  bytes: Uint8Array<ArrayBuffer>,
  tensors: ReadonlyMap<string, LogicalTensor>,
  folder: OpenModel,
): Promise<OnnxModel> {
  const { length: size } = bytes;
  const nothing = async () => {};
  const source: ByteSource = {
    size,
    read: async (begin, end) => bytes.slice(begin, end),
    verify: nothing,
    close: nothing,
  };
  const skeleton = await readSkeleton(source, modelSchema);
  const proto = readOnnx(skeleton, size);
  const { length: file } = folder.files;
  const weights = proto.graph.initializers.flatMap((tensor): Weight[] => {
    const { name, element, shape, bytes, data, begin } = tensor;
    if (element === undefined) return [];
    const byteOffset = data.kind === 'raw' ? data.begin : begin;
    const own: SourceTensor = { name, dtype: element.name, shape, bytes, byteOffset, file };
    return [{ source: own, tensor, graph: proto.graph, value: name, node: undefined, made: tensors.get(name) }];
  });
  return {
    bytes: folder.bytes,
    files: [...folder.files, source],
    tensors: weights.map((weight) => weight.source),
    metadata: {},
    fileBeside: async (name) => folder.fileBeside?.(name),
    // transformers.js reads each file into one array, which has less than 2 GiB in browsers.
    mostData: 1.9e9,
    proto,
    skeleton,
    source,
    weights,
  };
}

/**
 * Opens a model.
 * @param others files with data of its tensors
 * @throws ScalepointError `BAD_FILE`, `NOT_FOUND`, `IO`
 */
export async function openOnnx(file: OpenFile, others: readonly OpenFile[], open: OpenInput): Promise<OnnxModel> {
  const { source } = file;
  const skeleton = await readSkeleton(source, modelSchema);
  const proto = readOnnx(skeleton, source.size);
  checkCalls(proto.functions);
  const external = new ExternalFiles(file, others, open);
  const files: ByteSource[] = [source];
  const weights: Weight[] = [];
  const names = new Set<string>();

  /** Finds the data of a tensor. */
  const placeOf = async (
    tensor: OnnxTensor,
    name: string,
  ): Promise<Pick<SourceTensor, 'byteOffset' | 'file' | 'rearranged'>> => {
    const { data, bytes, begin } = tensor;
    if (data.kind === 'none') return { byteOffset: begin, file: 0 };
    const plain = plainPlace(data);
    if (plain !== undefined) return { byteOffset: plain, file: 0 };
    if (data.kind !== 'external') {
      return { byteOffset: 0, file: files.push(assembledElements(source, tensor)) - 1, rearranged: true };
    }
    const { location, offset, length } = data;
    const found = await external.find(location, { tensor: name, byteOffset: begin });
    const bad = (message: string) => malformed(`tensor ${quoted(name)}: ${message}`, begin, name);
    if (length !== undefined && length !== bytes) {
      bad(`it has ${length} bytes in ${quoted(location)}, but its shape takes ${bytes}`);
    }
    if (offset + bytes > found.size) {
      bad(`its bytes ${offset} to ${offset + bytes} lie outside of ${quoted(location)}, which has ${found.size}`);
    }
    const known = files.indexOf(found);
    return { byteOffset: offset, file: known < 0 ? files.push(found) - 1 : known };
  };

  /** Adds a tensor under a unique name. */
  const add = async (tensor: OnnxTensor, path: string, owner: Pick<Weight, 'graph' | 'value' | 'node'>) => {
    const { element, shape, bytes } = tensor;
    const { value } = owner;
    if (element === undefined) return;
    let name = path + value;
    for (let i = 2; names.has(name); i++) name = `${path}${value} #${i}`;
    names.add(name);
    const place = await placeOf(tensor, value);
    weights.push({ source: { name, dtype: element.name, shape, bytes, ...place }, tensor, ...owner });
  };

  /** Adds the tensors of a graph and of all graphs inside of it. */
  const addGraph = async (graph: OnnxGraph, path: string): Promise<void> => {
    const seen = new Set<string>();
    for (const tensor of graph.initializers) {
      const { name, begin } = tensor;
      if (seen.has(name)) malformed(`there are two tensors ${quoted(name)} in a graph`, begin, name);
      seen.add(name);
      await add(tensor, path, { graph, value: name, node: undefined });
    }
    for (const [i, node] of graph.nodes.entries()) {
      const constant = constantOf(node);
      const [output = ''] = node.outputs;
      const isWeight = constant?.shape.length && constantTypes.includes(constant.element?.name ?? '');
      if (constant !== undefined && isWeight) await add(constant, path, { graph, value: output, node });
      const label = node.name || output || `${node.opType} ${i}`;
      for (const { name, graphs } of node.attributes.values()) {
        for (const [j, inner] of graphs.entries()) {
          await addGraph(inner, `${path}${label}/${name}${graphs.length > 1 ? `.${j}` : ''}/`);
        }
      }
    }
  };

  try {
    await addGraph(proto.graph, '');
    for (const { name, body } of proto.functions) await addGraph(body, `${name}/`);
  } catch (error) {
    await external.close();
    throw error;
  }
  weights.sort((a, b) => a.tensor.begin - b.tensor.begin);
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

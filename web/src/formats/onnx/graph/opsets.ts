/**
 * Raises versions of operators. A newer version changes the meaning of some operators; a version is raised only if all changed nodes can be
 * rewritten.
 * Reference: github.com/onnx/onnx, onnx/version_converter/convert.h at f754691.
 */
import type { Int64 } from '../../files/protobuf.js';
import type { AttributeValue } from '../file/encode.js';
import { floatOf, intOf, type OnnxGraph, type OnnxNode } from '../file/proto.js';
import type { Obstacle } from '../reasons.js';
import type { Graphs, Scope } from './graph.js';

/** Rewriting of a node for a newer version. */
interface Rewriting {
  /** Attributes to remove, and to add. */
  readonly without?: readonly string[];
  readonly attributes?: Readonly<Record<string, AttributeValue>>;
  /** Inputs to append: a list of integers, a float, or an absent input. */
  readonly inputs?: readonly (readonly Int64[] | { readonly float: number } | undefined)[];
  /** Axis at which the operator flattens its input to two dimensions. */
  readonly flattened?: number;
}

/** Rewriting of a node from a version on: 'same' if unchanged, undefined if impossible. */
type Change = (node: OnnxNode) => Rewriting | 'same' | undefined;

const impossible: Change = () => undefined;

const hasAny = ({ attributes }: OnnxNode, names: readonly string[]) => names.some((name) => attributes.has(name));

/** Moves a list of integers from an attribute to the next input. */
function listToInput(name: string): Change {
  return ({ attributes, inputs }) => {
    const list = attributes.get(name);
    if (list === undefined) return 'same';
    return inputs.length === 1 && list.ints !== undefined && !list.refers
      ? { without: [name], inputs: [list.ints] }
      : undefined;
  };
}

/** BatchNormalization: training adds outputs. Statistics are per channel unless `spatial` says otherwise. */
const withoutTraining: Change = (node) => {
  if (node.outputs.length > 1 || intOf(node, 'spatial', 1) !== 1) return undefined;
  return node.attributes.has('spatial') ? { without: ['spatial'] } : 'same';
};

/** Renamed modes of GridSample. */
const newModes = new Map(Object.entries({ bilinear: 'linear', bicubic: 'cubic' }));

/** Changes of operators that keep their meaning by another form. */
const changed = {
  Clip(node) {
    if (!hasAny(node, ['min', 'max'])) return 'same';
    const [min, max] = [floatOf(node, 'min', Number.NaN), floatOf(node, 'max', Number.NaN)];
    const input = (value: number) => (Number.isNaN(value) ? undefined : { float: value });
    return { without: ['min', 'max'], inputs: Number.isNaN(max) ? [input(min)] : [input(min), input(max)] };
  },

  Pad(node) {
    const pads = node.attributes.get('pads')?.ints;
    return pads && { without: ['pads', 'value'], inputs: [pads, { float: floatOf(node, 'value', 0) }] };
  },

  Slice({ attributes }) {
    const [starts, ends, axes] = ['starts', 'ends', 'axes'].map((name) => attributes.get(name)?.ints);
    if (starts === undefined || ends === undefined) return undefined;
    return { without: ['starts', 'ends', 'axes'], inputs: axes === undefined ? [starts, ends] : [starts, ends, axes] };
  },

  // From the flattened dimensions behind an axis to the axis itself.
  Softmax(node) {
    const axis = intOf(node, 'axis', 1);
    return axis === -1 ? 'same' : { without: ['axis'], attributes: { axis: -1 }, flattened: axis };
  },

  // Inactive in inference.
  Dropout(node) {
    const training = ['ratio', 'is_test', 'seed'];
    return hasAny(node, training) ? { without: training } : 'same';
  },

  // Equal parts by default.
  Split({ inputs, outputs, attributes }) {
    const isStated = inputs.length > 1 || attributes.has('num_outputs');
    return isStated ? 'same' : { attributes: { num_outputs: outputs.length } };
  },

  GridSample({ attributes }) {
    const mode = newModes.get(attributes.get('mode')?.s ?? 'bilinear');
    return mode === undefined ? 'same' : { without: ['mode'], attributes: { mode } };
  },
} as const satisfies Readonly<Record<string, Change>>;

const reductions = 'Max Min Mean Prod L1 L2 LogSum LogSumExp SumSquare'.split(' ').map((name) => `Reduce${name}`);
const each = (names: readonly string[], change: Change) => Object.fromEntries(names.map((name) => [name, change]));
const broadcasting =
  'Add Sub Mul Div Pow And Or Xor Equal Greater Less PRelu Gemm Upsample BatchNormalization Dropout'.split(' ');

/** Operators whose meaning, or whose inputs and attributes, a version changed. */
const changes: readonly (readonly [version: number, Readonly<Record<string, Change>>])[] = [
  [7, each(broadcasting, impossible)],
  [8, each(['Expand'], impossible)],
  [9, { ...each(['Scan', 'Upsample'], impossible), BatchNormalization: withoutTraining }],
  [10, { ...each(['TopK', 'Upsample'], impossible), Slice: changed.Slice }],
  [11, { ...each(['Resize', 'Scatter', 'Scan'], impossible), Clip: changed.Clip, Pad: changed.Pad }],
  [12, { Dropout: changed.Dropout }],
  [
    13,
    {
      ...each(['Softmax', 'LogSoftmax', 'Hardmax'], changed.Softmax),
      ...each(['Squeeze', 'Unsqueeze', 'ReduceSum'], listToInput('axes')),
      Split: listToInput('split'),
    },
  ],
  [14, { BatchNormalization: withoutTraining }],
  [16, each(['RoiAlign'], impossible)],
  [18, { ...each(reductions, listToInput('axes')), Split: changed.Split }],
  [20, { DFT: impossible, GridSample: changed.GridSample }],
  [21, each(['GroupNormalization'], impossible)],
];

/** The ir_version that belongs to a version of ai.onnx, and to those up to the next one. */
const irVersions = { 1: 3, 9: 4, 10: 5, 13: 7, 15: 8, 19: 9, 21: 10, 23: 11, 24: 12, 25: 13 };

/** The ir_version that a version of ai.onnx needs. */
export function irVersionFor(opset: number): number {
  return Object.entries(irVersions).findLast(([from]) => opset >= Number(from))?.[1] ?? 3;
}

/** A node with its rewriting. */
export interface Rewritten {
  readonly node: OnnxNode;
  readonly graph: OnnxGraph;
  readonly rewriting: Rewriting;
}

/** Raising to a newer version of ai.onnx: the rewritten nodes, or the obstacle. */
export interface Raising {
  readonly rewritten: readonly Rewritten[];
  readonly obstacle?: Obstacle;
}

/** Newer versions of ai.onnx that a model can have. */
export class Opsets {
  readonly #graphs: Graphs;
  readonly #known = new Map<Scope, Map<number, Raising>>();

  constructor(graphs: Graphs) {
    this.#graphs = graphs;
  }

  /** Obstacle to a version, or a newer one, in a graph; undefined if it can have it. */
  obstacle(graph: OnnxGraph, version: number): Obstacle | undefined {
    return this.raising(this.#graphs.scopeOf(graph), version).obstacle;
  }

  /** Raising of a scope to at least a version. */
  raising(scope: Scope, version: number): Raising {
    const byVersion = this.#known.get(scope) ?? new Map<number, Raising>();
    this.#known.set(scope, byVersion);
    const found = byVersion.get(version) ?? this.#raise(scope, version);
    byVersion.set(version, found);
    return found;
  }

  #raise(scope: Scope, to: number): Raising {
    const opset = scope.opsets.get('');
    if (opset === undefined) return { rewritten: [], obstacle: { kind: 'noOpset' } };
    if (opset >= to) return { rewritten: [] };
    if (scope.function !== undefined) return { rewritten: [], obstacle: { kind: 'functionOpset', opset } };
    const passed = changes.filter(([version]) => version > opset && version <= to);
    const rewritten: Rewritten[] = [];
    for (const { node, graph } of this.#graphs.nodes) {
      if (node.domain !== '' || this.#graphs.scopeOf(graph) !== scope) continue;
      let whole: Rewriting = {};
      for (const [, byOperator] of passed) {
        const change = Object.hasOwn(byOperator, node.opType) ? byOperator[node.opType] : undefined;
        // The sizes of Split are an input since an earlier change.
        const isDone = change === undefined || (whole.inputs?.length ?? 0) > 0;
        const rewriting = isDone ? 'same' : change(node);
        if (rewriting === undefined)
          return { rewritten: [], obstacle: { kind: 'opset', opset, operator: node.opType } };
        if (rewriting === 'same') continue;
        whole = {
          ...whole,
          ...rewriting,
          without: [...(whole.without ?? []), ...(rewriting.without ?? [])],
          attributes: { ...whole.attributes, ...rewriting.attributes },
          inputs: [...(whole.inputs ?? []), ...(rewriting.inputs ?? [])],
        };
      }
      if (Object.keys(whole).length > 0) rewritten.push({ node, graph, rewriting: whole });
    }
    return { rewritten };
  }
}

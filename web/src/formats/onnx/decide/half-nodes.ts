/**
 * Chooses the nodes of a graph that compute in float16, like the usual converters.
 * Reference: github.com/microsoft/onnxruntime 0c17f27, onnxruntime/python/tools/transformers/float16.py;
 * github.com/microsoft/onnxconverter-common, onnxconverter_common/float16.py at 28b00d4. Tests run onnxruntime-web 1.30.0.
 */

import type { ActivationRanges } from '../../statistics.js';
import type { OnnxGraph, OnnxNode } from '../file/proto.js';
import { findBeyondHalf } from '../graph/beyond-half.js';
import { cachesOf } from '../graph/caches.js';
import type { Constants } from '../graph/constants.js';
import type { Graphs, NodeInGraph, Use, Value } from '../graph/graph.js';
import { batchesMoved, computedFromIntegers } from '../graph/precise.js';
import { Types } from '../graph/types.js';
import type { BeyondHalf } from '../reasons.js';

/** The first version of ai.onnx whose operators take float16 throughout. */
export const lowestHalf = 7;

/** Nodes of the main graph, and of graphs inside of it, that compute in float16. */
export class HalfNodes {
  readonly types: Types;
  /** Nodes that stay in float32 because of their values, in order. */
  readonly beyond: readonly (NodeInGraph & { readonly why: BeyondHalf })[];
  /** Largest magnitude that ranges state beyond float16; undefined without. */
  readonly reached: number | undefined;
  /** Number of float nodes that stay in float32, by operator. */
  readonly floats: ReadonlyMap<string, number>;
  /** Inputs and outputs of the model that are float16: caches, if they were asked for. */
  readonly caches: ReadonlySet<Value>;
  readonly #graphs: Graphs;
  readonly #beyond: ReadonlySet<OnnxNode>;
  readonly #halves = new Set<OnnxNode>();

  /**
   * @param kept nodes to keep in float32
   * @param given.ranges measured ranges of values
   * @param given.hasHalfCaches true if caches of language models become float16
   */
  constructor(
    graphs: Graphs,
    kept: ReadonlySet<OnnxNode>,
    given: {
      readonly constants: Constants;
      readonly ranges: ActivationRanges | undefined;
      readonly hasHalfCaches: boolean;
    },
  ) {
    const { constants, ranges, hasHalfCaches } = given;
    this.#graphs = graphs;
    this.types = new Types(graphs, graphs.main);
    this.caches = hasHalfCaches ? cachesOf(graphs, this.types) : new Set();
    const nodes = graphs.nodes.filter(({ graph }) => graphs.scopeOf(graph) === graphs.main);
    const { nodes: beyond, reached } = findBeyondHalf({ graphs, types: this.types, constants }, nodes, ranges);
    this.reached = reached;
    const precise = new Set([
      ...kept,
      ...computedFromIntegers(graphs, nodes, this.types),
      ...batchesMoved(graphs, nodes),
    ]);
    // Readers of one weight share its form.
    const shared = new Map<OnnxNode, BeyondHalf>();
    for (const { weight, uses } of graphs.valuesOf(graphs.main)) {
      if (weight === undefined || uses.length === 1 || weight.source.shape.length !== 2) continue;
      const readers = graphs.readers(weight);
      const why = readers.map(({ node }) => beyond.get(node)).find((one) => one !== undefined);
      if (why !== undefined) for (const { node } of readers) shared.set(node, why);
    }
    this.beyond = nodes.flatMap(({ node, graph }) => {
      const why = beyond.get(node) ?? shared.get(node);
      const isOther = why === undefined || precise.has(node) || this.types.arithmetic(node, graph) !== 'half';
      return isOther ? [] : [{ node, graph, why }];
    });
    this.#beyond = new Set(this.beyond.map(({ node }) => node));
    for (const node of this.#beyond) precise.add(node);
    // onnxruntime (1.30) makes one node of a LayerNormalization that is spelled out, and moves a Cast in front of its factors away. Keep factors and
    // offsets behind float32 in float32, or their types differ.
    const isFloat = ({ node, graph }: NodeInGraph) =>
      precise.has(node) || this.types.arithmetic(node, graph) !== 'half';
    const readersOf = ({ node, graph }: NodeInGraph, opType: string) =>
      graphs.uses(graph, node.outputs[0] ?? '').filter((use) => use.node.opType === opType);
    for (const mean of nodes) {
      if (mean.node.opType !== 'ReduceMean' || !isFloat(mean)) continue;
      const scaled = readersOf(mean, 'Sub')
        .filter(isFloat)
        .flatMap((use) => readersOf(use, 'Div').filter(isFloat));
      for (const factors of scaled.flatMap((use) => readersOf(use, 'Mul'))) {
        precise.add(factors.node);
        for (const { node } of readersOf(factors, 'Add')) precise.add(node);
      }
    }
    const floats = new Map<string, number>();
    this.floats = floats;
    for (const { node, graph } of nodes) {
      if (this.types.arithmetic(node, graph) === 'half' && !precise.has(node)) this.#halves.add(node);
      else if (
        node.inputs.some((_, i) => this.#wants({ node, graph, input: i }) === 'float' && this.#isFloat(node, graph, i))
      ) {
        floats.set(node.opType, (floats.get(node.opType) ?? 0) + 1);
      }
    }
  }

  /** True if a node computes in float16. */
  has(node: OnnxNode): boolean {
    return this.#halves.has(node);
  }

  /** True if a node stays in float32 because of its values. */
  isBeyond(node: OnnxNode): boolean {
    return this.#beyond.has(node);
  }

  /** Readers of a value by type, without nodes that take any type. */
  readersOf(value: Value): { readonly halves: readonly Use[]; readonly floats: readonly Use[] } {
    return {
      halves: value.uses.filter((use) => this.#wants(use) === 'half'),
      floats: value.uses.filter((use) => this.#wants(use) === 'float'),
    };
  }

  #isFloat({ inputs }: OnnxNode, graph: OnnxGraph, input: number): boolean {
    return this.types.isFloat(this.#graphs.valueAt(graph, inputs[input] ?? ''));
  }

  #wants({ node, graph, input }: Use): 'half' | 'any' | 'float' {
    if (this.#halves.has(node)) return this.types.changes(node, input) ? 'half' : 'float';
    return this.types.arithmetic(node, graph) === 'any' ? 'any' : 'float';
  }
}

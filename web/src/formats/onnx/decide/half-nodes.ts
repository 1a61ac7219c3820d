/** Which nodes of a graph compute with float16, as the usual converters have it. */
import type { OnnxGraph, OnnxNode } from '../file/proto.js';
import type { Graphs, Use, Value } from '../graph/graph.js';
import { batchesMoved } from '../graph/moved.js';
import { computedFromIntegers, spreads } from '../graph/precise.js';
import { Types } from '../graph/types.js';

/** The first version of ai.onnx whose operators take float16 throughout. */
export const lowestHalf = 7;

/** The inputs that read a value: those of nodes that compute with float16, and those that need float32. */
export interface HalfReaders {
  readonly halves: readonly Use[];
  readonly floats: readonly Use[];
}

/** The nodes of the main graph, and of graphs inside of it, that compute with float16. */
export class HalfNodes {
  readonly types: Types;
  readonly #graphs: Graphs;
  readonly #halves = new Set<OnnxNode>();
  readonly #floats = new Map<string, number>();

  /** @param floats nodes that shall compute with float32 */
  constructor(graphs: Graphs, floats: ReadonlySet<OnnxNode>) {
    this.#graphs = graphs;
    this.types = new Types(graphs, graphs.main);
    const nodes = graphs.nodes.filter(({ graph }) => graphs.scopeOf(graph) === graphs.main);
    const precise = new Set([
      ...floats,
      ...computedFromIntegers(graphs, nodes, this.types),
      ...spreads(graphs, nodes, this.types),
      ...batchesMoved(graphs, nodes),
    ]);
    for (const { node, graph } of nodes) {
      if (this.types.arithmetic(node, graph) === 'half' && !precise.has(node)) this.#halves.add(node);
      else if (
        node.inputs.some((_, i) => this.#wants({ node, graph, input: i }) === 'float' && this.#isFloat(node, graph, i))
      ) {
        this.#floats.set(node.opType, (this.#floats.get(node.opType) ?? 0) + 1);
      }
    }
  }

  /** Whether a node computes with float16. */
  has(node: OnnxNode): boolean {
    return this.#halves.has(node);
  }

  /** Nodes that stay in float32 though they compute with floats, by the type of operator. */
  get floats(): ReadonlyMap<string, number> {
    return this.#floats;
  }

  /** Who reads a value as what. Nodes that take any type are left out. */
  readersOf(value: Value): HalfReaders {
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

/** Graphs of a model: values, their producers and readers, and the scopes of subgraphs. */

import { grouped } from '../../files/bytes.js';
import type { OnnxModel, Weight } from '../file/model.js';
import type { OnnxFunction, OnnxGraph, OnnxNode } from '../file/proto.js';

/** A node of a graph. */
export interface NodeInGraph {
  readonly node: OnnxNode;
  readonly graph: OnnxGraph;
}

/** A node that reads a value. */
export interface Use extends NodeInGraph {
  /** Index of the input. */
  readonly input: number;
}

/** A node that reads a value, directly or through nodes that only move its elements. */
export interface ReadingNode extends Use {
  /** Nodes in between, in order, including calls of functions that the value enters. */
  readonly path: readonly OnnxNode[];
}

/** A value: an input of a graph, a tensor, or an output of a node. */
export interface Value {
  readonly name: string;
  readonly graph: OnnxGraph;
  readonly weight: Weight | undefined;
  /** Node that gives it. */
  readonly producer: OnnxNode | undefined;
  readonly uses: readonly Use[];
  /** True for outputs of its graph. */
  readonly isOutput: boolean;
}

type OpenValue = { -readonly [Key in keyof Value]: Value[Key] } & { readonly uses: Use[] };

/** True if a value is a constant. */
export function isConstant({ weight, producer }: Value): boolean {
  return weight !== undefined || (producer?.domain === '' && producer.opType === 'Constant');
}

/** Uses of a value, through nodes that only move its elements. */
export interface Followed {
  readonly readers: readonly ReadingNode[];
  /** True if it leaves its graph, directly or through nodes that only move its elements. */
  readonly leaves: boolean;
}

/** Graphs with common versions of operators: the main graph and its subgraphs, or a function. */
export interface Scope {
  readonly root: OnnxGraph;
  readonly opsets: ReadonlyMap<string, number>;
  readonly function: OnnxFunction | undefined;
}

/** A function that a value enters, and the calling node. */
type Call = NodeInGraph & { readonly called: OnnxFunction };

const functionKey = (domain: string, name: string) => JSON.stringify([domain, name]);

/** Operators that only move elements of their first input, or change its type. */
const movers: readonly string[] = [
  ...['Identity', 'Transpose', 'Reshape', 'Cast', 'Squeeze', 'Unsqueeze', 'Flatten', 'Slice', 'Split', 'Concat'],
];

/** Longest chain of nodes that is followed. Real models have a few. */
export const mostMoves = 100;

export function isMover({ opType, domain }: OnnxNode): boolean {
  return domain === '' && movers.includes(opType);
}

/** Names that a node reads, in its subgraphs as well. */
export function namesReadBy({ inputs, attributes }: OnnxNode): readonly string[] {
  const graphs = [...attributes.values()].flatMap((attribute) => attribute.graphs);
  if (graphs.length === 0) return inputs;
  return [
    ...inputs,
    ...graphs.flatMap(({ nodes, outputs }) => [...nodes.flatMap(namesReadBy), ...outputs.map(({ name }) => name)]),
  ];
}

/** Nodes of a graph, each behind those that give its inputs. Some files have them in another order, which runtimes accept. */
function nodesInOrder({ nodes }: OnnxGraph): readonly OnnxNode[] {
  const makers = new Map<string, number>();
  for (const [i, { outputs }] of nodes.entries()) {
    for (const name of outputs) if (name !== '' && !makers.has(name)) makers.set(name, i);
  }
  const makersOf = nodes.map((node) => namesReadBy(node).flatMap((name) => makers.get(name) ?? []));
  if (makersOf.every((list, i) => list.every((maker) => maker < i))) return nodes;
  const sorted: OnnxNode[] = [];
  const entered = new Set<number>();
  for (const first of nodes.keys()) {
    const open: { readonly at: number; readonly before: Iterator<number> }[] = [];
    const enter = (at: number) => {
      if (entered.has(at)) return;
      entered.add(at);
      open.push({ at, before: (makersOf[at] as readonly number[]).values() });
    };
    enter(first);
    for (let last = open.at(-1); last !== undefined; last = open.at(-1)) {
      const { value, done } = last.before.next();
      if (!done) enter(value);
      else {
        sorted.push(nodes[last.at] as OnnxNode);
        open.pop();
      }
    }
  }
  return sorted;
}

/** Names that a result adds to those of its model. */
export class FreshNames {
  readonly #taken: ReadonlySet<string>;
  readonly #added = new Set<string>();
  /** Last numbers behind names that were wanted again. Thousands of nodes may want one name. */
  readonly #numbers = new Map<string, number>();

  constructor(taken: ReadonlySet<string>) {
    this.#taken = taken;
  }

  /** Adds a name much like a given one that is neither taken nor added. */
  add(wanted: string): string {
    let number = this.#numbers.get(wanted) ?? 0;
    let name = number === 0 ? wanted : `${wanted}_${++number}`;
    while (this.#taken.has(name) || this.#added.has(name)) name = `${wanted}_${++number}`;
    if (number > 0) this.#numbers.set(wanted, number);
    this.#added.add(name);
    return name;
  }
}

/** The graphs of a model. */
export class Graphs {
  readonly #values = new Map<OnnxGraph, Map<string, OpenValue>>();
  readonly #parents = new Map<OnnxGraph, NodeInGraph>();
  readonly #scopes = new Map<OnnxGraph, Scope>();
  readonly #weights = new Map<OnnxGraph, Map<string, Weight>>();
  readonly #functions = new Map<string, OnnxFunction>();
  #next: Map<OnnxNode, OnnxNode | undefined> | undefined;
  /** The graphs that define a name. */
  #graphsWith: ReadonlyMap<string, readonly { readonly name: string; readonly one: OnnxGraph }[]> | undefined;
  /** Names of values and nodes of all graphs. */
  readonly valueNames: ReadonlySet<string> = new Set<string>();
  readonly nodeNames: ReadonlySet<string> = new Set<string>();
  /** Every node with its graph, behind the nodes that give its inputs. */
  readonly nodes: NodeInGraph[] = [];
  readonly scopes: readonly Scope[];
  /** The main graph and its subgraphs. */
  readonly main: Scope;

  constructor({ proto, weights }: OnnxModel) {
    for (const weight of weights) {
      const inGraph = this.#weights.get(weight.graph) ?? new Map<string, Weight>();
      inGraph.set(weight.value, weight);
      this.#weights.set(weight.graph, inGraph);
    }
    this.main = { root: proto.graph, opsets: proto.opsets, function: undefined };
    this.scopes = [this.main, ...proto.functions.map((f): Scope => ({ root: f.body, opsets: f.opsets, function: f }))];
    for (const f of proto.functions) if (f.domain !== '') this.#functions.set(functionKey(f.domain, f.name), f);
    for (const scope of this.scopes) this.#define(scope.root, scope);
    for (const { node, graph } of this.nodes) {
      for (const [input, name] of node.inputs.entries()) {
        if (name !== '') (this.valueAt(graph, name) as OpenValue | undefined)?.uses.push({ node, input, graph });
      }
    }
    for (const graph of this.#values.keys()) {
      for (const { name } of graph.outputs) {
        const value = this.valueAt(graph, name) as OpenValue | undefined;
        if (value !== undefined) value.isOutput = true;
      }
    }
  }

  #define(graph: OnnxGraph, scope: Scope, parent?: NodeInGraph): void {
    if (parent !== undefined) this.#parents.set(graph, parent);
    this.#scopes.set(graph, scope);
    const values = new Map<string, OpenValue>();
    this.#values.set(graph, values);
    const add = (name: string, producer?: OnnxNode) => {
      (this.valueNames as Set<string>).add(name);
      if (name === '' || values.has(name)) return;
      const weight = this.#weights.get(graph)?.get(name);
      values.set(name, { name, graph, weight, producer, uses: [], isOutput: false });
    };
    for (const { name } of [...graph.inputs, ...graph.initializers, ...graph.values, ...graph.outputs]) {
      (this.valueNames as Set<string>).add(name);
    }
    for (const { name } of [...graph.inputs, ...graph.initializers]) add(name);
    for (const name of graph.sparse) add(name);
    for (const node of nodesInOrder(graph)) {
      this.nodes.push({ node, graph });
      (this.nodeNames as Set<string>).add(node.name);
      for (const name of node.outputs) add(name, node);
      for (const { graphs } of node.attributes.values()) {
        for (const inner of graphs) this.#define(inner, scope, { node, graph });
      }
    }
  }

  /** Value of a name in a graph, or in one around it. */
  valueAt(graph: OnnxGraph, name: string): Value | undefined {
    for (let at: OnnxGraph | undefined = graph; at !== undefined; at = this.#parents.get(at)?.graph) {
      const value = this.#values.get(at)?.get(name);
      if (value !== undefined) return value;
    }
    return undefined;
  }

  /** Values of all graphs of a scope. */
  *valuesOf(scope: Scope): Generator<Value> {
    for (const [graph, values] of this.#values) if (this.#scopes.get(graph) === scope) yield* values.values();
  }

  /** Weight of a name in a graph. */
  weightAt(graph: OnnxGraph, name: string): Weight | undefined {
    return this.valueAt(graph, name)?.weight;
  }

  /** The nodes that read a value. */
  uses(graph: OnnxGraph, name: string): readonly Use[] {
    return this.valueAt(graph, name)?.uses ?? [];
  }

  /** Next node in the graph; undefined behind the last one. */
  nodeBehind(node: OnnxNode): OnnxNode | undefined {
    this.#next ??= new Map(
      [...this.#values.keys()].flatMap(({ nodes }) => nodes.map((one, i) => [one, nodes[i + 1]] as const)),
    );
    return this.#next.get(node);
  }

  /** True if a value leaves its graph. */
  isOutput(graph: OnnxGraph, name: string): boolean {
    return this.valueAt(graph, name)?.isOutput ?? false;
  }

  /** True if an enclosing or inner graph gives a weight's name to another value. */
  isShadowed({ graph, value }: Weight): boolean {
    const isInside = (inner: OnnxGraph | undefined, outer: OnnxGraph): boolean =>
      inner !== undefined && (inner === outer || isInside(this.#parents.get(inner)?.graph, outer));
    this.#graphsWith ??= grouped(
      [...this.#values].flatMap(([one, values]) => [...values.keys()].map((name) => ({ name, one }))),
      ({ name }) => name,
    );
    const others = this.#graphsWith.get(value) ?? [];
    return others.some(({ one }) => one !== graph && (isInside(one, graph) || isInside(graph, one)));
  }

  /** The node around a subgraph; undefined for the main graph and for functions. */
  parentOf(graph: OnnxGraph): NodeInGraph | undefined {
    return this.#parents.get(graph);
  }

  scopeOf(graph: OnnxGraph): Scope {
    return this.#scopes.get(graph) as Scope;
  }

  /** Final readers of a weight or another value. */
  readers(value: Pick<Weight, 'graph' | 'value'>): readonly ReadingNode[] {
    return this.follow(value).readers;
  }

  /** Follows a value through nodes that only move its elements. */
  follow({ graph, value }: Pick<Weight, 'graph' | 'value'>): Followed {
    const readers: ReadingNode[] = [];
    const values = new Set<Value>();
    const follow = (from: Value | undefined, path: readonly OnnxNode[], calls: readonly Call[]) => {
      if (from === undefined || values.has(from)) return;
      values.add(from);
      for (const use of from.uses) {
        const { node, graph: inside } = use;
        const called = this.#functions.get(functionKey(node.domain, node.opType));
        const inner = called?.body.inputs[use.input];
        const moves = isMover(node) && (use.input === 0 || node.opType === 'Concat');
        if ((inner === undefined && !moves) || path.length >= mostMoves) readers.push({ ...use, path });
        else if (called !== undefined && inner !== undefined) {
          follow(this.valueAt(called.body, inner.name), [...path, node], [...calls, { node, graph: inside, called }]);
        } else for (const output of node.outputs) follow(this.valueAt(inside, output), [...path, node], calls);
      }
      // Return from the function.
      const call = calls.at(-1);
      if (call === undefined || from.graph !== call.called.body) return;
      for (const [i, output] of call.called.body.outputs.entries()) {
        if (output.name !== from.name) continue;
        follow(this.valueAt(call.graph, call.node.outputs[i] ?? ''), path, calls.slice(0, -1));
      }
    };
    follow(this.valueAt(graph, value), [], []);
    return { readers, leaves: [...values].some(({ isOutput }) => isOutput) };
  }

  /**
   * Finds nodes between a weight and some of its readers that become unused once these are replaced, and tells if others still read it.
   * @param replaced the inputs that no longer read it
   */
  release(
    { graph, value }: Weight,
    replaced: readonly Use[],
  ): { readonly isRead: boolean; readonly unneeded: readonly OnnxNode[] } {
    // Cache results by node, because paths may fork and join repeatedly.
    const known = new Map<OnnxNode, boolean>();
    const unneeded = new Set<OnnxNode>();
    // Thousands of nodes may read one weight.
    const inputs = new Map<OnnxNode, Set<number>>();
    for (const { node, input } of replaced) inputs.set(node, (inputs.get(node) ?? new Set()).add(input));
    const isNeeded = (at: OnnxGraph, name: string, moves: number): boolean => {
      const uses = this.uses(at, name);
      return this.isOutput(at, name) || uses.map((use) => isRead(use, moves)).includes(true);
    };
    const isRead = ({ node, input, graph: inside }: Use, moves: number): boolean => {
      if (inputs.get(node)?.has(input)) return false;
      if (!isMover(node) || moves === mostMoves) return true;
      const result = known.get(node) ?? node.outputs.some((output) => isNeeded(inside, output, moves + 1));
      known.set(node, result);
      if (!result) unneeded.add(node);
      return result;
    };
    return { isRead: isNeeded(graph, value, 0), unneeded: [...unneeded] };
  }
}

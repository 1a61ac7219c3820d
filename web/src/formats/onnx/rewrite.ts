/** Writes nodes as a newer version of ai.onnx has them. */
import type { Builder } from './builder.js';
import { attributePieces, bytesPiece, int64Piece, textField } from './encode.js';
import type { Rewritten } from './opsets.js';
import { nodeField, type OnnxGraph, typeNumber } from './proto.js';

/** An input as a constant. Returns its name. */
function constantFor(
  builder: Builder,
  graph: OnnxGraph,
  name: string,
  value: readonly number[] | { readonly float: number },
): string {
  const fresh = builder.graphs.freshValue(name);
  if ('float' in value) {
    const data = new Uint8Array(4);
    new DataView(data.buffer).setFloat32(0, value.float, true);
    builder.addConstant(graph, { name: fresh, type: typeNumber('F32'), shape: [], data: { bytes: data } });
  } else {
    const shape = [value.length];
    builder.addConstant(graph, { name: fresh, type: typeNumber('I64'), shape, data: int64Piece(value) });
  }
  return fresh;
}

/** Changes a node, unless another one stands in its place by now. */
export function rewrite(builder: Builder, { node, graph, rewriting }: Rewritten): void {
  const { edits } = builder;
  if (edits.isReplaced(node.start)) return;
  const { without = [], attributes = {}, inputs = [], flattened } = rewriting;
  for (const name of without) {
    const attribute = node.attributes.get(name);
    if (attribute !== undefined) edits.replace(attribute.start);
  }
  for (const [name, value] of Object.entries(attributes)) edits.append(node.begin, attributePieces(name, value));
  const [output = ''] = node.outputs;
  for (const [i, value] of inputs.entries()) {
    const name =
      value === undefined ? '' : constantFor(builder, graph, `${output}_input_${node.inputs.length + i}`, value);
    edits.append(node.begin, [bytesPiece(textField(nodeField.input, name))]);
  }
  if (flattened !== undefined) flatten(builder, { node, graph, rewriting }, flattened);
}

/** Lets a node see all dimensions from an axis on as one. */
function flatten(builder: Builder, { node, graph }: Rewritten, axis: number): void {
  const [x = ''] = builder.inputsOf(node);
  const [y = ''] = builder.outputsOf(node);
  const fresh = (what: string) => builder.graphs.freshValue(`${y}_${what}`);
  const [shape, flat, result] = [fresh('shape'), fresh('flat'), fresh('rows')];
  builder.addNodes({ graph, before: node }, [
    { opType: 'Shape', name: shape, inputs: [x], outputs: [shape] },
    { opType: 'Flatten', name: flat, inputs: [x], outputs: [flat], attributes: { axis } },
  ]);
  builder.renameInput(node, 0, flat);
  builder.renameOutput(node, y, result);
  const next = graph.nodes[graph.nodes.indexOf(node) + 1];
  const reshape = { opType: 'Reshape', name: y, inputs: [result, shape], outputs: [y] };
  builder.addNodes({ graph, before: next, behind: node }, [reshape]);
}

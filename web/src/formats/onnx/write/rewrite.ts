/** Rewrites nodes for a newer version of ai.onnx. */

import { attributePieces, bytesPiece, castNode, textField } from '../file/encode.js';
import { nodeField, type OnnxGraph, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import type { Rewritten } from '../graph/opsets.js';
import { Types } from '../graph/types.js';
import type { Builder } from './builder.js';

/** Adds a float scalar, and a Cast if a node computes in another type. Returns the name of the value to read. */
function floatFor(builder: Builder, graph: OnnxGraph, name: string, float: number, node: OnnxNode, type: number) {
  const fresh = builder.addFloat(graph, name, float);
  if (type === onnxTypeNumber('F32')) return fresh;
  const cast = builder.freshValue(`${name}_cast`);
  builder.addNodes({ graph, before: node }, [castNode(fresh, cast, type)]);
  return cast;
}

/**
 * Rewrites all nodes of raised versions.
 * @param halves nodes in float16
 */
export function rewriteRaised(builder: Builder, halves: { has(node: OnnxNode): boolean } | undefined): void {
  const raised = builder.raised();
  // Give numbers that were attributes the type in which the node computes.
  const hasFloats = raised.some(({ rewriting: { inputs = [] } }) => inputs.some((input) => input && 'float' in input));
  const types = hasFloats ? new Types(builder.graphs, builder.graphs.main) : undefined;
  for (const one of raised) {
    const type = halves?.has(one.node) ? onnxTypeNumber('F16') : types?.inputType(one.node, one.graph, 0);
    rewrite(builder, one, type ?? onnxTypeNumber('F32'));
  }
}

/** Rewrites a node, unless it has been replaced. */
function rewrite(builder: Builder, { node, graph, rewriting }: Rewritten, type: number): void {
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
    const wanted = `${output}_input_${node.inputs.length + i}`;
    let name = '';
    if (value !== undefined) {
      name =
        'float' in value
          ? floatFor(builder, graph, wanted, value.float, node, type)
          : builder.addIntegers(graph, wanted, value);
    }
    edits.append(node.begin, [bytesPiece(textField(nodeField.input, name))]);
  }
  if (flattened !== undefined) flatten(builder, { node, graph, rewriting }, flattened);
}

/** Flattens the dimensions from an axis on for a node. */
function flatten(builder: Builder, { node, graph }: Rewritten, axis: number): void {
  const [x = ''] = builder.inputsOf(node);
  const [y = ''] = builder.outputsOf(node);
  const fresh = (what: string) => builder.freshValue(`${y}_${what}`);
  const [shape, flat, result] = [fresh('shape'), fresh('flat'), fresh('rows')];
  builder.addNodes({ graph, before: node }, [
    { opType: 'Shape', name: shape, inputs: [x], outputs: [shape] },
    { opType: 'Flatten', name: flat, inputs: [x], outputs: [flat], attributes: { axis } },
  ]);
  builder.renameInput(node, 0, flat);
  builder.renameOutput(node, y, result);
  const reshape = { opType: 'Reshape', name: y, inputs: [result, shape], outputs: [y] };
  builder.addNodes(builder.behind(graph, node), [reshape]);
}

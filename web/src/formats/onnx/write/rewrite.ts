/** Rewrites nodes for a newer version of ai.onnx. */

import { attributePieces, bytesPiece, castNode, nodeFor, textField } from '../file/encode.js';
import { nodeField, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import { Types } from '../graph/types.js';
import type { Builder } from './builder.js';

/**
 * Rewrites all nodes of raised versions, unless they have been replaced.
 * @param halves nodes in float16
 */
export function rewriteRaised(builder: Builder, halves: { has(node: OnnxNode): boolean } | undefined): void {
  const { edits } = builder;
  const raised = builder.raised();
  // Give numbers that were attributes the type in which the node computes.
  const hasFloats = raised.some(({ rewriting: { inputs = [] } }) => inputs.some((input) => input && 'float' in input));
  const types = hasFloats ? new Types(builder.graphs, builder.graphs.main) : undefined;
  for (const { node, graph, rewriting } of raised) {
    if (edits.isReplaced(node.start)) continue;
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
      if (value !== undefined && 'float' in value) {
        const type = halves?.has(node) ? onnxTypeNumber('F16') : types?.inputType(node, graph, 0);
        name = builder.addFloat(graph, wanted, value.float);
        if (type !== undefined && type !== onnxTypeNumber('F32')) {
          const cast = builder.freshValue(`${wanted}_cast`);
          builder.addNodes({ graph, before: node }, [castNode(name, cast, type)]);
          name = cast;
        }
      } else if (value !== undefined) name = builder.addIntegers(graph, wanted, value);
      edits.append(node.begin, [bytesPiece(textField(nodeField.input, name))]);
    }
    if (flattened === undefined) continue;
    // Flatten the dimensions from an axis on.
    const [x = ''] = builder.inputsOf(node);
    const [y = ''] = builder.outputsOf(node);
    const fresh = (what: string) => builder.freshValue(`${y}_${what}`);
    const [shape, flat, result] = [fresh('shape'), fresh('flat'), fresh('rows')];
    const before = [nodeFor(shape, 'Shape', [x]), nodeFor(flat, 'Flatten', [x], { axis: flattened })];
    builder.addNodes({ graph, before: node }, before);
    builder.renameInput(node, 0, flat);
    builder.renameOutput(node, y, result);
    builder.addNodes(builder.behind(graph, node), [nodeFor(y, 'Reshape', [result, shape])]);
  }
}

/** Writes a result: carries out the decisions about its weights, in order, and rewrites nodes for a newer version of ai.onnx. */
import type { FilePlan, PartsOf } from '../../format.js';
import type { Decisions } from '../decide/decide.js';
import type { WeightDecision } from '../decide/decision.js';
import { attributePieces, bytesPiece, castNode, nodeFor, textField } from '../file/encode.js';
import type { OnnxModel, Weight } from '../file/model.js';
import { nodeField, type OnnxNode, onnxTypeNumber } from '../file/proto.js';
import { Types } from '../graph/types.js';
import { writeBlocks } from './blocks.js';
import { Builder } from './builder.js';
import { writeHalf, writeHalfGraph, writeKept } from './half.js';
import { IntegerWriter } from './integers.js';
import { type WrittenCodes, writeRestored } from './restored.js';
import { writeStatic } from './static.js';
import { writeExperts, writeTogether } from './together.js';

/**
 * Rewrites all nodes of raised versions, unless they have been replaced.
 * @param halves nodes in float16
 */
function rewriteRaised(builder: Builder, halves: { has(node: OnnxNode): boolean } | undefined): void {
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

/** Writer of each kind of decision. */
type Writers = {
  readonly [Kind in WeightDecision['kind']]: (decision: Extract<WeightDecision, { kind: Kind }>) => void;
};

/**
 * Lays out a result.
 * @param dataFile name of the file beside the model for its weights; undefined if the model itself holds them
 */
export function writeResult(
  model: OnnxModel,
  decisions: Decisions,
  partsOf: PartsOf,
  dataFile: string | undefined,
): FilePlan {
  const { halves } = decisions;
  const builder = new Builder(model, decisions, partsOf, dataFile);
  const [symmetric, others] = [new IntegerWriter(builder), new IntegerWriter(builder)];
  const written = new Map<Weight, WrittenCodes>();
  const writers: Writers = {
    keep: (decision) => writeKept(builder, decision),
    half: (decision) => writeHalf(builder, decision),
    blocks: (decision) => writeBlocks(builder, decision),
    restored: (decision) => {
      const names = writeRestored(builder, decision);
      if (names !== undefined) written.set(decision.weight, { form: decision.form, names });
    },
    integers: (decision) => (decision.isSymmetric ? symmetric : others).write(decision),
    together: (decision) => writeTogether(builder, decision),
    experts: (decision) => writeExperts(builder, decision),
  };
  const unneeded = decisions.decisions.flatMap((one) => ('unneeded' in one ? one.unneeded : []));
  if (halves !== undefined) writeHalfGraph(builder, halves, new Set(unneeded));
  for (const decision of decisions.decisions) (writers[decision.kind] as (decision: WeightDecision) => void)(decision);
  writeStatic(builder, decisions.statics, written);
  rewriteRaised(builder, halves);
  return builder.finish();
}

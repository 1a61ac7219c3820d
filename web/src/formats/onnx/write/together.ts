/** Replaces nodes whose weights all become codes by nodes that compute with integers. */
import type { Together } from '../decide/decision.js';
import { tableInputs } from '../decide/together.js';
import { attributePiecesOf, type NewNode } from '../file/encode.js';
import { contrib } from '../file/proto.js';
import type { Builder } from './builder.js';
import { type CodeNames, storeCodes } from './restored.js';

/** Writes the weights of a node as codes, and the replacing node. */
export function writeTogether(builder: Builder, { operator, reader, weights }: Together): void {
  const { node, graph } = reader;
  const names = new Map(
    [...weights].map(([input, { weight, form }]) => [input, storeCodes(builder, weight, form)] as const),
  );
  const nodes = operator === 'LSTM' ? gateNodes(builder, reader, names) : [tableNode(reader, names)];
  builder.addNodes({ graph, before: node }, nodes);
  builder.removeNode(node);
}

type Names = ReadonlyMap<number, CodeNames>;

/** LSTM. */
function gateNodes(builder: Builder, { node, graph }: Together['reader'], names: Names): NewNode[] {
  const nodes: NewNode[] = [];
  const codes = [...names.values()].map((one) => {
    // The operator has inputs as rows. The optimizer folds this node when it loads the model.
    const transposed = builder.freshValue(`${one.codes}_transposed`);
    const attributes = { perm: [0, 2, 1] };
    nodes.push({ opType: 'Transpose', name: transposed, inputs: [one.codes], outputs: [transposed], attributes });
    return transposed;
  });
  const [x = ''] = node.inputs;
  const more = Array.from({ length: 5 }, (_, i) => node.inputs[3 + i] ?? '');
  const scales = [...names.values()].flatMap(({ scale, zeroPoint = '' }) => [scale, zeroPoint]);
  nodes.push({
    opType: 'DynamicQuantizeLSTM',
    domain: builder.importContrib(graph),
    name: `${node.name || node.outputs.find((output) => output !== '')}_quant`,
    inputs: [x, ...codes, ...more, ...scales],
    outputs: node.outputs,
    // The operator of com.microsoft lacks the attribute layout.
    copied: attributePiecesOf({ attributes: new Map([...node.attributes].filter(([name]) => name !== 'layout')) }),
  });
  return nodes;
}

/** EmbedLayerNormalization. */
function tableNode({ node }: Together['reader'], names: Names): NewNode {
  const [ids = '', segments = '', , , , , , mask = ''] = node.inputs;
  const each = (part: keyof CodeNames) => tableInputs.map((input) => names.get(input)?.[part] ?? '');
  return {
    opType: 'QEmbedLayerNormalization',
    domain: contrib,
    name: `${node.name || node.outputs[0]}_quant`,
    inputs: [ids, segments, ...each('codes'), mask, ...each('scale'), ...each('zeroPoint')],
    outputs: node.outputs,
    copied: attributePiecesOf(node),
  };
}

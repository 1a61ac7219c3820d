/** Replaces nodes whose weights all become codes: by nodes that compute with integers, and a mixture of experts by one with blocks. */
import type { Experts, Together } from '../decide/decision.js';
import { tableInputs } from '../decide/together.js';
import { attributePiecesOf, type NewNode, nodeFor } from '../file/encode.js';
import { contrib } from '../file/proto.js';
import type { Builder } from './builder.js';
import { type CodeNames, storeCodes } from './restored.js';

/** Writes the weights of a node as codes, and the replacing node. */
export function writeTogether(builder: Builder, { operator, reader, weights }: Together): void {
  const { node, graph } = reader;
  const { inputs, outputs, attributes } = node;
  const names = new Map(
    [...weights].map(([input, { weight, form }]) => [input, storeCodes(builder, weight, form)] as const),
  );
  const nodes: NewNode[] = [];
  if (operator === 'LSTM') {
    const stored = [...names.values()];
    const codes = stored.map((one) => {
      // The operator has inputs as rows. The optimizer folds this node when it loads the model.
      const transposed = builder.freshValue(`${one.codes}_transposed`);
      nodes.push(nodeFor(transposed, 'Transpose', [one.codes], { perm: [0, 2, 1] }));
      return transposed;
    });
    const [x = ''] = inputs;
    const more = Array.from({ length: 5 }, (_, i) => inputs[3 + i] ?? '');
    const scales = stored.flatMap(({ scale, zeroPoint = '' }) => [scale, zeroPoint]);
    nodes.push({
      opType: 'DynamicQuantizeLSTM',
      domain: builder.importContrib(graph),
      name: `${node.name || outputs.find((output) => output !== '')}_quant`,
      inputs: [x, ...codes, ...more, ...scales],
      outputs,
      // The operator of com.microsoft lacks the attribute layout.
      copied: attributePiecesOf({ attributes: new Map([...attributes].filter(([name]) => name !== 'layout')) }),
    });
  } else {
    const [ids = '', segments = '', , , , , , mask = ''] = inputs;
    const each = (part: keyof CodeNames) => tableInputs.map((input) => names.get(input)?.[part] ?? '');
    nodes.push({
      opType: 'QEmbedLayerNormalization',
      domain: contrib,
      name: `${node.name || outputs[0]}_quant`,
      inputs: [ids, segments, ...each('codes'), mask, ...each('scale'), ...each('zeroPoint')],
      outputs,
      copied: attributePiecesOf(node),
    });
  }
  builder.addNodes({ graph, before: node }, nodes);
  builder.removeNode(node);
}

/**
 * Input with the shares of all experts. A QMoE without them divides the shares of the chosen experts by their sum, whatever its attributes say.
 * With them it computes as a MoE does, and WebGPU of onnxruntime-web 1.30 refuses it, which without them gives wrong sums for several tokens.
 */
const sharesInput = 14;

/** Writes the weights of a MoE as blocks, and the QMoE that reads them. */
export function writeExperts(builder: Builder, { reader, weights, form }: Experts): void {
  const { node, graph } = reader;
  const { bits, blockSize } = form;
  const stored = new Map(
    [...weights].map(([input, weight]) => {
      const [experts = 0, rows = 0, columns = 0] = weight.source.shape;
      const index = builder.convert(weight, form);
      const codes = builder.freshValue(`${weight.value}_Q${bits}`);
      const scales = builder.freshValue(`${weight.value}_scales`);
      builder.addTensors(weight, [
        builder.tensorOf(index, 'scale', scales, [experts, rows, columns / blockSize]),
        builder.tensorOf(index, 'data', codes, [experts, rows, (columns * bits) / 8]),
      ]);
      builder.remove(weight);
      return [input, [codes, scales]] as const;
    }),
  );
  builder.replaceNode(node, graph, () => {
    const [output = ''] = builder.outputsOf(node);
    const name = `${node.name || output}_Q${bits}`;
    // A MoE has the bias of a layer behind its weights.
    const inputs = builder.inputsOf(node).flatMap((one, input) => stored.get(input) ?? [one]);
    const [, logits = ''] = inputs;
    const shares = builder.freshValue(`${output}_shares`);
    const absent = Array.from({ length: sharesInput - inputs.length }, () => '');
    return [
      { ...nodeFor(shares, 'Softmax', [logits], { axis: 1 }), name: `${name}_Softmax` },
      {
        opType: 'QMoE',
        domain: builder.importContrib(graph),
        name,
        inputs: [...inputs, ...absent, shares],
        outputs: [output],
        attributes: { expert_weight_bits: bits, block_size: blockSize },
        copied: attributePiecesOf(node),
      },
    ];
  });
}

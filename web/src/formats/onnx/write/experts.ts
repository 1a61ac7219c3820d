/** Replaces a mixture of experts by one with codes. */
import type { Experts } from '../decide/decision.js';
import { attributePiecesOf } from '../file/encode.js';
import type { Builder } from './builder.js';

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
      { opType: 'Softmax', name: `${name}_Softmax`, inputs: [logits], outputs: [shares], attributes: { axis: 1 } },
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

/** Nodes of float32 that become others if all their weights are codes: recurrent layers, and the embeddings of transformers. */
import type { DequantizeLinearForm } from '../../../codecs/dequantize-linear.js';
import { canSearch } from '../../../codecs/dequantize-linear.js';
import type { SearchedRange } from '../../../core/range.js';
import type { NewNode, Piece } from '../file/encode.js';
import type { Weight } from '../file/model.js';
import type { OnnxNode } from '../file/proto.js';
import type { Reader } from '../graph/graph.js';
import { intOf, reasonToKeep } from '../graph/readers.js';
import type { Builder } from './builder.js';
import { type CodeNames, isSmaller, linearForm, storeCodes } from './weights.js';

/** What decides about dynamic quantization. */
export interface DynamicOptions {
  readonly signed: boolean;
  readonly perChannel: boolean;
  readonly range?: SearchedRange | undefined;
  /** Whether a weight is to be converted in the same way. */
  asks(weight: Weight): boolean;
}

/** The weights that a node reads at some inputs, if nobody else reads them and all are to be converted. Those that are left out are skipped. */
function weightsOf(
  builder: Builder,
  { node, graph }: Reader,
  inputs: readonly number[],
  asks: (weight: Weight) => boolean,
): ReadonlyMap<number, Weight> | undefined {
  const found = new Map<number, Weight>();
  for (const input of inputs) {
    const name = node.inputs[input] ?? '';
    if (name === '') continue;
    const weight = builder.graphs.weightAt(graph, name);
    if (weight === undefined || weight.source.dtype !== 'F32' || !asks(weight) || builder.isConverted(weight))
      return undefined;
    const isOwn =
      builder.graphs.uses(graph, name).length === 1 && weight.graph === graph && !builder.graphs.isOutput(graph, name);
    if (!isOwn || builder.graphs.isShadowed(weight)) return undefined;
    found.set(input, weight);
  }
  return found;
}

/** Converts all weights of the node that reads one. False if the node cannot compute with codes. */
export function convertTogether(builder: Builder, weight: Weight, reader: Reader, options: DynamicOptions): boolean {
  const { node, input, path } = reader;
  if (path.length > 0) return false;
  if (node.opType === 'LSTM' && node.domain === '' && (input === 1 || input === 2))
    return recur(builder, reader, options);
  const isEmbedding = node.opType === 'EmbedLayerNormalization' && node.domain === 'com.microsoft';
  return isEmbedding && weight.source.shape.length === 2 && embed(builder, reader, options);
}

function attributesOf({ attributes }: OnnxNode): Piece[] {
  return [...attributes.values()].map(({ start, end }) => ({ begin: start, end }));
}

// --------------------------------------------------------------------------------------------------------------------------- LSTM

/** The form of a recurrent weight [directions, gates, inputs]: a scale for each gate, or for each direction. */
function gatesForm(shape: readonly number[], { perChannel, range }: DynamicOptions): DequantizeLinearForm {
  const form: DequantizeLinearForm = {
    codec: 'dequantize-linear',
    bits: 8,
    signed: true,
    symmetric: true,
    zeroPoint: true,
    sharing: 'rows',
    axis: perChannel ? 1 : 0,
    ...(perChannel ? { leading: true } : {}),
    scale: 'F32',
  };
  return range !== undefined && canSearch(shape, form) ? { ...form, range } : form;
}

/** LSTM: its products are of integers, its states are floats. */
function recur(builder: Builder, reader: Reader, options: DynamicOptions): boolean {
  const { node, graph } = reader;
  const weights = weightsOf(builder, reader, [1, 2], options.asks);
  const [w, r] = [weights?.get(1), weights?.get(2)];
  if (w === undefined || r === undefined || intOf(node, 'layout', 0) !== 0) return false;
  const stored = [w, r].map((weight) => ({ weight, form: gatesForm(weight.source.shape, options) }));
  const pays = ({ weight, form }: (typeof stored)[number]) =>
    weight.source.shape.length === 3 &&
    reasonToKeep(builder.model, weight) === undefined &&
    isSmaller(builder, weight, form);
  if (!stored.every(pays)) return false;
  const nodes: NewNode[] = [];
  const names = stored.map(({ weight, form }) => {
    const names = storeCodes(builder, weight, form);
    // Inputs are the rows there. The optimizer does this once, when it loads the model.
    const codes = builder.graphs.freshValue(`${names.codes}_transposed`);
    const attributes = { perm: [0, 2, 1] };
    nodes.push({ opType: 'Transpose', name: codes, inputs: [names.codes], outputs: [codes], attributes });
    return { ...names, codes };
  }) as [CodeNames, CodeNames];
  const [x = ''] = node.inputs;
  const more = Array.from({ length: 5 }, (_, i) => node.inputs[3 + i] ?? '');
  const scales = names.flatMap(({ scale, zeroPoint = '' }) => [scale, zeroPoint]);
  nodes.push({
    opType: 'DynamicQuantizeLSTM',
    domain: builder.importContrib(graph),
    name: `${node.name || node.outputs.find((output) => output !== '')}_quant`,
    inputs: [x, ...names.map(({ codes }) => codes), ...more, ...scales],
    outputs: node.outputs,
    // The contrib operator has no layout.
    copied: attributesOf({ ...node, attributes: new Map([...node.attributes].filter(([name]) => name !== 'layout')) }),
  });
  builder.addNodes({ graph, before: node }, nodes);
  builder.removeNode(node);
  return true;
}

// --------------------------------------------------------------------------------------------------------------------- embeddings

/** The inputs of an EmbedLayerNormalization that are weights: three tables, and scale and bias of the normalization. */
const tables = [2, 3, 4, 5, 6];

/** EmbedLayerNormalization: tables count as activations, without a sign and with one scale for all. */
function embed(builder: Builder, reader: Reader, options: DynamicOptions): boolean {
  const { node, graph } = reader;
  const weights = weightsOf(builder, reader, tables, options.asks);
  if (weights === undefined || node.outputs.length > 2 || weights.size < 4) return false;
  const names = new Map<number, CodeNames>();
  for (const [input, weight] of weights) {
    const wanted = { bits: 8, signed: false, symmetric: false, range: options.range } as const;
    names.set(input, storeCodes(builder, weight, linearForm(weight.source.shape, undefined, wanted)));
  }
  const [ids = '', segments = '', , , , , , mask = ''] = node.inputs;
  const each = (of: (names: CodeNames) => string | undefined) =>
    tables.map((input) => {
      const found = names.get(input);
      return (found && of(found)) ?? '';
    });
  builder.addNodes({ graph, before: node }, [
    {
      opType: 'QEmbedLayerNormalization',
      domain: node.domain,
      name: `${node.name || node.outputs[0]}_quant`,
      inputs: [
        ids,
        segments,
        ...each(({ codes }) => codes),
        mask,
        ...each(({ scale }) => scale),
        ...each(({ zeroPoint }) => zeroPoint),
      ],
      outputs: node.outputs,
      copied: attributesOf(node),
    },
  ]);
  builder.removeNode(node);
  return true;
}

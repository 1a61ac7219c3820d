/** Chooses weights that become codes and are restored to floats before use. */
import type { DequantizeLinearForm } from '../../codecs/dequantize-linear.js';
import { reasons } from '../../reason.js';
import { contrib, intOf, type OnnxGraph } from '../file/proto.js';
import { type CodeOptions, linearForm } from '../forms.js';
import type { Channels, Reading } from '../graph/readers.js';
import { type Context, type Dequantizer, type Keep, keepWeight, type Restored } from './decision.js';
import { isSmaller } from './sizes.js';

/** First version of ai.onnx that broadcasts. */
export const broadcastOpset = 7;

/** First version of ai.onnx with the DequantizeLinear of a form. */
function dequantizeOpset({ bits, axis, blockSize, scale }: DequantizeLinearForm): number {
  if (bits === 2) return 25;
  if (bits === 4 || blockSize !== undefined) return 21;
  if (scale === 'F16') return 19;
  return axis === undefined ? 10 : 13;
}

/** DequantizeLinear for codes of a form: that of ai.onnx, if the graph can have it. */
export function dequantizerOf({ opsets }: Context, graph: OnnxGraph, form: DequantizeLinearForm): Dequantizer {
  const opset = dequantizeOpset(form);
  return opsets.obstacle(graph, opset) === undefined
    ? { kind: 'dequantize', domain: '', opset }
    : { kind: 'dequantize', domain: contrib, opset: 0 };
}

/** Operators whose weights are one or several matrices, summed over the last dimension or the one before it. */
const ofMatrices: readonly string[] = ['MatMul', 'FusedMatMul', 'MoE', 'LSTM', 'GRU', 'RNN'];

/** Decides about codes that are restored to floats. @param options with `casts`, Cast and Mul restore codes of 8 bits */
export function chooseRestored(
  context: Context,
  reading: Reading,
  { casts = false, ...asked }: CodeOptions & { readonly casts?: boolean },
): Restored | Keep {
  const { graphs, opsets } = context;
  const { weight, readers } = reading;
  const { graph, value, source } = weight;
  const { shape } = source;
  const channels = reading.channels as Channels;
  const options: CodeOptions = { ...asked, scale: source.dtype === 'F16' ? 'F16' : 'F32' };
  // Find the axis of a scale for each channel, or of blocks, which a product sums over. With several matrices it must hold at least one block.
  let axis = options.symmetric && options.signed ? channels.axis : channels.zeroPointAxis;
  if (options.blockSize !== undefined) {
    const rank = shape.length;
    const summed = channels.axis === undefined || channels.axis < rank - 2 ? undefined : 2 * rank - 3 - channels.axis;
    const fits =
      summed !== undefined &&
      (rank === 2 || (ofMatrices.includes(channels.operator) && (shape[summed] as number) >= options.blockSize));
    if (!fits) return keepWeight(weight, { kind: 'rank', rank });
    axis = summed;
  }
  // Choose the form: a scale for each channel or block, or one for all where that takes fewer bytes.
  let form = linearForm(shape, axis, options);
  if (!isSmaller(context, weight, form)) form = linearForm(shape, undefined, { ...options, blockSize: undefined });
  if (form.axis === undefined && !isSmaller(context, weight, form)) return keepWeight(weight, reasons.notSmaller);
  // Gather codes of a table: of rows, or of slices along another axis if there is a single scale. Gather does not take codes of fewer bits.
  const { bits, blockSize } = form;
  const lookups = readers.filter(
    ({ node, input, path }) =>
      path.length === 0 &&
      input === 0 &&
      node.opType === 'Gather' &&
      node.domain === '' &&
      node.inputs[0] === value &&
      (form.axis === undefined || intOf(node, 'axis', 0) === form.axis),
  );
  const isTable =
    bits === 8 &&
    blockSize === undefined &&
    (form.axis === undefined || form.axis === 0) &&
    lookups.length > 0 &&
    lookups.length === graphs.uses(graph, value).length &&
    !graphs.isOutput(graph, value);
  if (isTable) return { kind: 'restored', weight, form, by: { kind: 'gather', readers: lookups } };
  // Else choose the nodes that restore the floats. com.microsoft's DequantizeLinear, which models of any version can have, reads few forms.
  if (casts && bits === 8 && opsets.obstacle(graph, broadcastOpset) === undefined) {
    return { kind: 'restored', weight, form, by: { kind: 'cast' } };
  }
  const obstacle = opsets.obstacle(graph, dequantizeOpset(form));
  const isInContrib = bits !== 2 && blockSize === undefined && form.scale === 'F32';
  if (obstacle !== undefined && !isInContrib) return keepWeight(weight, obstacle);
  return { kind: 'restored', weight, form, by: dequantizerOf(context, graph, form) };
}

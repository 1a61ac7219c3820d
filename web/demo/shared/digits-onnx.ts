// The sample network as an ONNX model of pictures, made of the tensors of the sample.
import {
  bytesPiece,
  graphField,
  integerField,
  messageBytes,
  modelField,
  nodeFor,
  nodePieces,
  piecesField,
  tensorPieces,
  textField,
  valuePieces,
} from '../../src/tooling.js';
import { readSample } from '../front/network.js';
import { classes, drawDigits, pixels, side, testSeed } from './digits.mjs';

/** ONNX's number of float32. */
const float32 = 1;

/** The model: pictures of `side` × `side` numbers from 0 to 1, of which 1 is ink, become a score for each digit. @param sample digits.safetensors */
export function onnxOfDigits(sample: ArrayBuffer): Uint8Array<ArrayBuffer> {
  const layer = (name: string, input: string, output = name) =>
    nodeFor(output, 'Gemm', [input, `${name}.weight`, `${name}.bias`], { transB: 1 });
  const nodes = [
    nodeFor('pixels', 'Flatten', ['picture'], { axis: 1 }),
    layer('fc1', 'pixels'),
    // Over the last axis, with 1e-5 added to the variance, as it is by default.
    nodeFor('norm', 'LayerNormalization', ['fc1', 'norm.weight', 'norm.bias']),
    nodeFor('first', 'Relu', ['norm']),
    layer('fc2', 'first'),
    nodeFor('second', 'Relu', ['fc2']),
    layer('fc3', 'second', 'scores'),
  ];
  const tensors = Object.entries(readSample(sample)).map(([name, { shape, data }]) => {
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    return tensorPieces({ name, type: float32, shape, data: { bytes } });
  });
  const graph = [
    ...nodes.flatMap((node) => nodePieces(node, graphField.node)),
    bytesPiece(textField(2, 'digits')),
    ...tensors.flatMap((tensor) => piecesField(graphField.initializer, tensor)),
    ...piecesField(graphField.input, valuePieces('picture', float32, ['n', 1, side, side])),
    ...piecesField(graphField.output, valuePieces('scores', float32, ['n', classes])),
  ];
  // IR version 8 and opset 17 are the first with LayerNormalization.
  return messageBytes([
    bytesPiece(integerField(modelField.irVersion, 8)),
    bytesPiece(textField(modelField.producer, 'Scalepoint')),
    ...piecesField(modelField.graph, graph),
    ...piecesField(modelField.opsetImport, [bytesPiece(textField(1, '')), bytesPiece(integerField(2, 17))]),
  ]);
}

/** A digit that the network has never seen, as a picture of its size. */
export async function drawnDigit(): Promise<File> {
  const { images, labels } = drawDigits(1, testSeed);
  const canvas = new OffscreenCanvas(side, side);
  const context = canvas.getContext('2d') as OffscreenCanvasRenderingContext2D;
  const image = context.createImageData(side, side);
  for (let i = 0; i < pixels; i++) {
    const ink = 255 * (images[i] as number);
    image.data.set([ink, ink, ink, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
  const blob = await canvas.convertToBlob({ type: 'image/png' });
  return new File([blob], `digit-${labels[0]}.png`, { type: blob.type });
}

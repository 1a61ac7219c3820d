// The sample network as an ONNX model of pictures, made of the tensors of the sample. Field numbers are those of onnx.proto3.
import { readSample, type Tensors } from '../front/network.js';
import { classes, drawDigits, pixels, side, testSeed } from './digits.mjs';

type Bytes = Uint8Array<ArrayBuffer>;
const utf8 = new TextEncoder();

/** A number in groups of 7 bits. */
function varint(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...varint(Math.floor(value / 128))];
}

function joined(parts: readonly ArrayLike<number>[]): Bytes {
  const bytes = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

const number = (field: number, value: number) => Uint8Array.from([...varint(field * 8), ...varint(value)]);
const message = (field: number, ...parts: readonly Uint8Array[]): Bytes => {
  const content = joined(parts);
  return joined([varint(field * 8 + 2), varint(content.length), content]);
};
const text = (field: number, words: string) => message(field, utf8.encode(words));

const float32 = 1;

function initializer(name: string, tensors: Tensors): Bytes {
  const { shape = [], data = new Float32Array() } = tensors[name] ?? {};
  const dims = shape.map((size) => number(1, size));
  const raw = message(9, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  return message(5, ...dims, number(2, float32), text(8, name), raw);
}

/** An input or an output. The first size stays open. */
function value(field: number, name: string, sizes: readonly number[]): Bytes {
  const dims = [text(2, 'n'), ...sizes.map((size) => number(1, size))].map((size) => message(1, size));
  return message(field, text(1, name), message(2, message(1, number(1, float32), message(2, ...dims))));
}

const integer = (name: string, value: number) => message(5, text(1, name), number(3, value), number(20, 2));

function node(operator: string, inputs: readonly string[], output: string, ...attributes: readonly Bytes[]): Bytes {
  return message(
    1,
    ...inputs.map((name) => text(1, name)),
    text(2, output),
    text(3, output),
    text(4, operator),
    ...attributes,
  );
}

/** The model: pictures of `side` × `side` numbers from 0 to 1, of which 1 is ink, become a score for each digit. @param sample digits.safetensors */
export function onnxOfDigits(sample: ArrayBuffer): Bytes {
  const tensors = readSample(sample);
  const layer = (name: string, input: string) =>
    node('Gemm', [input, `${name}.weight`, `${name}.bias`], name === 'fc3' ? 'scores' : name, integer('transB', 1));
  const graph = [
    node('Flatten', ['picture'], 'pixels', integer('axis', 1)),
    layer('fc1', 'pixels'),
    // Over the last axis, with 1e-5 added to the variance, as it is by default.
    node('LayerNormalization', ['fc1', 'norm.weight', 'norm.bias'], 'norm'),
    node('Relu', ['norm'], 'first'),
    layer('fc2', 'first'),
    node('Relu', ['fc2'], 'second'),
    layer('fc3', 'second'),
    text(2, 'digits'),
    ...Object.keys(tensors).map((name) => initializer(name, tensors)),
    value(11, 'picture', [1, side, side]),
    value(12, 'scores', [classes]),
  ];
  // IR version 8 and opset 17 are the first with LayerNormalization.
  return joined([number(1, 8), text(2, 'Scalepoint'), message(7, ...graph), message(8, text(1, ''), number(2, 17))]);
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

// A picture as the input of a model.
import type { RunReport } from '../../src/tooling.js';

type ReportedInput = NonNullable<RunReport['inputs']>[number];

/** True for a file that browsers show as a picture. */
export const isPicture = ({ type }: File): boolean => type.startsWith('image/');

/** Height, width and channels of an input that takes pictures, channels first or last; undefined for other inputs. */
export function pictureShape(
  shape: readonly number[],
):
  | { readonly height: number; readonly width: number; readonly channels: number; readonly isLast: boolean }
  | undefined {
  const [, a = 0, b = 0, c = 0] = shape;
  if (shape.length !== 4) return undefined;
  if (a === 1 || a === 3) return { channels: a, height: b, width: c, isLast: false };
  return c === 1 || c === 3 ? { height: a, width: b, channels: c, isLast: true } : undefined;
}

/** Numbers from 0 to 1 of a picture: red, green and blue, or their mean. @param pixels four bytes each @param count of pictures, all the same */
export function pictureNumbers(
  pixels: Uint8ClampedArray,
  count: number,
  { height, width, channels, isLast }: NonNullable<ReturnType<typeof pictureShape>>,
): Float32Array<ArrayBuffer> {
  const size = height * width;
  const numbers = new Float32Array(count * size * channels);
  const numberAt = (pixel: number, channel: number) => {
    const at = (i: number) => pixels[4 * pixel + i] as number;
    return (channels === 3 ? at(channel) : (at(0) + at(1) + at(2)) / 3) / 255;
  };
  for (let channel = 0; channel < channels; channel++) {
    for (let pixel = 0; pixel < size; pixel++) {
      numbers[isLast ? pixel * channels + channel : channel * size + pixel] = numberAt(pixel, channel);
    }
  }
  for (let i = 1; i < count; i++) numbers.copyWithin(i * size * channels, 0, size * channels);
  return numbers;
}

/** The arrays of a picture, drawn in the size of the only input that takes one. @throws Error in words for the visitor */
export async function pictureInput(file: File, inputs: readonly ReportedInput[]) {
  const [found, ...others] = inputs.flatMap(({ name, shape }) => {
    const picture = pictureShape(shape);
    return picture === undefined ? [] : [{ name, shape, picture }];
  });
  if (found === undefined || others.length > 0) {
    const listed = inputs.map(({ name, shape }) => `${name} (${shape.join(' × ')})`).join(', ');
    throw new Error(
      `a picture needs one input of pictures, and the inputs are ${listed}; give a .npz file with arrays`,
    );
  }
  const { name, shape, picture } = found;
  const { height, width } = picture;
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name} is no picture that this browser reads`);
  });
  const context = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
  if (context === null) throw new Error('this browser does not draw pictures in a worker');
  context.drawImage(bitmap, 0, 0, width, height);
  bitmap.close();
  const { data: pixels } = context.getImageData(0, 0, width, height);
  return { [name]: { data: pictureNumbers(pixels, shape[0] ?? 1, picture), shape } };
}

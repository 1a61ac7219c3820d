/** Files of ranges of activations, in the layout of safetensors: under the name of each value its least and its largest element. */

/** Value of `format` in the metadata. */
const formatName = 'scalepoint.ranges';

/** Bytes of a file. @param ranges the least and the largest element by the name of the value */
export function rangesFile(
  ranges: ReadonlyMap<string, readonly [least: number, largest: number]>,
  samples: number,
): Uint8Array<ArrayBuffer> {
  const entries: [string, unknown][] = [['__metadata__', { format: formatName, samples: String(samples) }]];
  const numbers = new Float32Array(2 * ranges.size);
  let at = 0;
  for (const [name, range] of ranges) {
    entries.push([name, { dtype: 'F32', shape: [2], data_offsets: [4 * at, 4 * at + 8] }]);
    numbers.set(range, at);
    at += 2;
  }
  const text = new TextEncoder().encode(JSON.stringify(Object.fromEntries(entries)));
  const padded = Math.ceil(text.length / 8) * 8;
  const file = new Uint8Array(8 + padded + numbers.byteLength).fill(0x20);
  const view = new DataView(file.buffer);
  view.setBigUint64(0, BigInt(padded), true);
  file.set(text, 8);
  for (const [i, value] of numbers.entries()) view.setFloat32(8 + padded + 4 * i, value, true);
  return file;
}

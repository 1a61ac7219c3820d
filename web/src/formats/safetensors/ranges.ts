/** Reads files of ranges of activations, which `calibrateModel` writes: see formats/ranges-file.ts. */
import type { ByteSource } from '../files/bytes.js';
import { badStatistics } from '../files/errors.js';
import type { ActivationRanges } from '../statistics.js';
import { readSafetensors } from './header.js';

/** Largest file in bytes. */
const mostBytes = 2 ** 28;

/** Reads the ranges of a file. @throws ScalepointError `BAD_FILE`, `IO` */
export async function rangesIn(source: ByteSource): Promise<ActivationRanges> {
  if (source.size > mostBytes) badStatistics(`the file has more than ${mostBytes} bytes`);
  const { tensors, metadata } = await readSafetensors(source);
  if (metadata.format !== 'scalepoint.ranges') {
    badStatistics('this is not a file of ranges of activations; make one by calibrating with ranges');
  }
  const ranges = new Map<string, readonly [number, number]>();
  for (const { name, dtype, shape, byteOffset } of tensors) {
    if (dtype !== 'F32' || shape.join() !== '2') badStatistics('its range is not two F32', name, byteOffset);
    const bytes = await source.read(byteOffset, byteOffset + 8);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const [least, largest] = [view.getFloat32(0, true), view.getFloat32(4, true)];
    if (!(Number.isFinite(least) && Number.isFinite(largest) && least <= largest)) {
      badStatistics(`its range is ${least} to ${largest}`, name, byteOffset);
    }
    ranges.set(name, [least, largest]);
  }
  if (ranges.size === 0) badStatistics('the file has no ranges');
  return ranges;
}

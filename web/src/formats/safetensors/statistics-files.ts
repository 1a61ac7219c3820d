/** Reads files of statistics that `calibrateModel` writes: ranges of activations (formats/ranges-file.ts), and second moments
 * (evaluate/moments-file.ts). */
import type { ByteSource } from '../files/bytes.js';
import { badStatistics } from '../files/errors.js';
import {
  type ActivationRanges,
  divergenceEnd,
  type ImportanceEntry,
  type ModelMoments,
  type WeightMoments,
} from '../statistics.js';
import { readSafetensors, type TensorInfo } from './header.js';

/** The floats of a tensor. */
async function floatsOfTensor(source: ByteSource, { byteOffset, bytes: size }: TensorInfo) {
  const bytes = await source.read(byteOffset, byteOffset + size);
  const view = new DataView(bytes.buffer, bytes.byteOffset, size);
  return Float32Array.from({ length: size / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

/** Largest file of ranges in bytes. */
const mostRangeBytes = 2 ** 28;

/** Reads the ranges of a file. @throws ScalepointError `BAD_FILE`, `IO` */
export async function rangesIn(source: ByteSource): Promise<ActivationRanges> {
  if (source.size > mostRangeBytes) badStatistics(`the file has more than ${mostRangeBytes} bytes`);
  const { tensors, metadata } = await readSafetensors(source);
  if (metadata.format !== 'scalepoint.ranges')
    badStatistics('this is not a file of ranges of activations; make one by calibrating with ranges');
  const ranges = new Map<string, readonly [number, number]>();
  for (const tensor of tensors) {
    const { name, dtype, shape, byteOffset } = tensor;
    if (dtype !== 'F32' || shape.join() !== '2') badStatistics('its range is not two F32', name, byteOffset);
    const [least = Number.NaN, largest = Number.NaN] = await floatsOfTensor(source, tensor);
    if (!(Number.isFinite(least) && Number.isFinite(largest) && least <= largest))
      badStatistics(`its range is ${least} to ${largest}`, name, byteOffset);
    ranges.set(name, [least, largest]);
  }
  if (ranges.size === 0) badStatistics('the file has no ranges');
  return ranges;
}

/** Reads which weights a file has moments for, and their importance. @throws ScalepointError `BAD_FILE`, `IO` */
export async function momentsIn(source: ByteSource): Promise<Omit<ModelMoments, 'file'>> {
  const { tensors, metadata } = await readSafetensors(source);
  const { format, tokens: _, heldBackTokens: __, mixedTokens: ___, ...entries } = metadata;
  if (format !== 'scalepoint.moments')
    badStatistics('this is not a file of second moments; make one by calibrating with moments');
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const diagonals = new Map<string, Float32Array<ArrayBuffer>>();
  const weights = new Map<string, WeightMoments>();
  const importance = new Map<string, ImportanceEntry>();
  for (const [name, entry] of Object.entries(entries)) {
    const [square, diagonal] = [byName.get(entry), byName.get(`${entry}.diagonal`)];
    if (square === undefined || diagonal === undefined) return badStatistics('the file has no moments for it', name);
    const { byteOffset } = square;
    const columns = square.shape[0] ?? 0;
    const isSquare = ({ dtype, shape }: TensorInfo) =>
      dtype === 'F32' && shape.length === 2 && shape[0] === columns && shape[1] === columns;
    if (!isSquare(square) || diagonal.bytes !== 4 * columns || diagonal.dtype !== 'F32')
      badStatistics('its moments are not a square of F32 with its diagonal', name, byteOffset);
    const heldBack = byName.get(`${entry}.heldBack`);
    if (heldBack !== undefined && !isSquare(heldBack)) {
      const message = 'its moments of held-back data are not a square of F32 of the same size';
      badStatistics(message, name, heldBack.byteOffset);
    }
    const values = diagonals.get(entry) ?? (await floatsOfTensor(source, diagonal));
    const wrong = diagonals.has(entry) ? -1 : values.findIndex((value) => !(value >= 0 && value < Infinity));
    if (wrong >= 0) badStatistics(`mean square ${wrong} is ${values[wrong]}`, name, diagonal.byteOffset + 4 * wrong);
    diagonals.set(entry, values);
    weights.set(name, { byteOffset, columns, heldBackOffset: heldBack?.byteOffset });
    importance.set(name, { values });
  }
  if (weights.size === 0) badStatistics('the file has no moments');
  const divergences = new Map<string, number>();
  for (const tensor of tensors) {
    const { name, dtype, shape, byteOffset } = tensor;
    if (!name.endsWith(divergenceEnd)) continue;
    const [value = Number.NaN] = dtype === 'F32' && shape.join() === '1' ? await floatsOfTensor(source, tensor) : [];
    if (!(value >= 0 && value < Infinity)) badStatistics('it is no divergence: one F32 from 0', name, byteOffset);
    divergences.set(name.slice(0, -divergenceEnd.length), value);
  }
  return { weights, divergences, importance: { entries: importance, file: undefined, dataset: undefined, chunks: 0 } };
}

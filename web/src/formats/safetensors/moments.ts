/** Reads files of second moments, which `calibrateModel` writes: see evaluate/moments-file.ts. */
import type { ByteSource } from '../files/bytes.js';
import { badStatistics } from '../files/errors.js';
import type { ImportanceMatrix, ModelMoments, WeightMoments } from '../statistics.js';
import { readSafetensors } from './header.js';

/** Reads which weights a file has moments for, and their importance. @throws ScalepointError `BAD_FILE`, `IO` */
export async function momentsIn(source: ByteSource): Promise<Pick<ModelMoments, 'weights' | 'importance'>> {
  const { tensors, metadata } = await readSafetensors(source);
  const { format, tokens: _, heldBackTokens: __, mixedTokens: ___, ...entries } = metadata;
  if (format !== 'scalepoint.moments')
    badStatistics('this is not a file of second moments; make one by calibrating with moments');
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const diagonals = new Map<string, Float32Array<ArrayBuffer>>();
  const weights = new Map<string, WeightMoments>();
  const importance = new Map<string, { values: Float32Array<ArrayBuffer>; isPartial: boolean }>();
  for (const [name, entry] of Object.entries(entries)) {
    const [square, diagonal] = [byName.get(entry), byName.get(`${entry}.diagonal`)];
    if (square === undefined || diagonal === undefined) return badStatistics(`the file has no moments for it`, name);
    const columns = square.shape[0] ?? 0;
    const isSquare = ({ dtype, shape }: typeof square) =>
      dtype === 'F32' && shape.length === 2 && shape[0] === columns && shape[1] === columns;
    if (!isSquare(square) || diagonal.bytes !== 4 * columns || diagonal.dtype !== 'F32') {
      badStatistics('its moments are not a square of F32 with its diagonal', name, square.byteOffset);
    }
    const heldBack = byName.get(`${entry}.heldBack`);
    if (heldBack !== undefined && !isSquare(heldBack)) {
      badStatistics(
        'its moments of held-back data are not a square of F32 of the same size',
        name,
        heldBack.byteOffset,
      );
    }
    let values = diagonals.get(entry);
    if (values === undefined) {
      const bytes = await source.read(diagonal.byteOffset, diagonal.byteOffset + diagonal.bytes);
      const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      values = Float32Array.from({ length: columns }, (_, i) => view.getFloat32(4 * i, true));
      const wrong = values.findIndex((value) => !(value >= 0 && value < Number.POSITIVE_INFINITY));
      if (wrong >= 0) badStatistics(`mean square ${wrong} is ${values[wrong]}`, name, diagonal.byteOffset + 4 * wrong);
      diagonals.set(entry, values);
    }
    weights.set(name, { byteOffset: square.byteOffset, columns, heldBackOffset: heldBack?.byteOffset });
    importance.set(name, { values, isPartial: false });
  }
  if (weights.size === 0) badStatistics('the file has no moments');
  const matrix: ImportanceMatrix = { entries: importance, file: undefined, dataset: undefined, chunks: 0 };
  return { weights, importance: matrix };
}

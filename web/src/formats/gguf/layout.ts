/** Lays out GGUF files as ggml's writer does. Reference: github.com/ggml-org/ggml, src/gguf.cpp at d99724f. */
import { show } from '../../core/show.js';
import { allocate, quoted } from '../files/bytes.js';
import {
  alignedTo,
  alignmentKey,
  defaultAlignment,
  type GgufPair,
  type GgufTensor,
  ggmlBytes,
  ggmlType,
  minTensorBytes,
} from './contents.js';

/** A GGUF file to be written: its header, and the offset of each tensor. */
export interface GgufLayout {
  /** The first bytes of the file, up to the last entry. Padding follows. */
  readonly header: Uint8Array<ArrayBuffer>;
  /** In the order of their bytes. */
  readonly tensors: readonly GgufTensor[];
  /** Size of the whole file, with the padding behind the last tensor. */
  readonly size: number;
  /** Alignment that the pairs state, if the tensors do not have it; readers would fail to find them. */
  readonly wrongAlignment?: number;
}

/** Options of a layout. */
export interface LayoutOptions {
  /** Divisor of the offsets of tensors. @defaultValue 32 */
  readonly alignment?: number;
  /** True corrects pairs that state another alignment. @defaultValue false */
  readonly fixAlignment?: boolean;
  /** True writes dimensions of 1 at the end of ggml's order, which ggml omits. @defaultValue false */
  readonly keepDimensions?: boolean;
}

/**
 * Lays out a file of version 3 as ggml's writer does: each tensor begins at a multiple of 32. With `fixAlignment`, pairs that state another
 * alignment are set to 32.
 * @throws RangeError if a shape does not make whole blocks
 */
export function layoutGguf(
  pairs: readonly GgufPair[],
  tensors: readonly { readonly name: string; readonly dtype: string; readonly shape: readonly number[] }[],
  { alignment = defaultAlignment, fixAlignment = false, keepDimensions = false }: LayoutOptions = {},
): GgufLayout {
  // Place tensors one after the other, from 0 on.
  const encoder = new TextEncoder();
  let end = 0;
  const entries = tensors.map(({ name, dtype, shape }) => {
    const type = ggmlType(dtype);
    const bytes = ggmlBytes(type, shape);
    if (bytes === undefined) {
      throw new RangeError(`tensor ${quoted(name)}: shape ${show(shape)} of ${dtype} cannot be stored`);
    }
    const tensor = { name, dtype, shape, bytes, byteOffset: end };
    end = alignedTo(end + bytes, alignment);
    // ggml has dimensions in the reverse order.
    const ne = [...shape].reverse();
    while (!keepDimensions && ne.length > 1 && ne.at(-1) === 1) ne.pop();
    return { tensor, type: type.id, name: encoder.encode(name), ne: ne.length === 0 ? [1] : ne };
  });
  const entryBytes = entries.reduce((sum, { name, ne }) => sum + minTensorBytes + name.length + 8 * ne.length, 0);
  const length = 24 + pairs.reduce((sum, { bytes }) => sum + bytes.length, 0) + entryBytes;
  const dataOffset = alignedTo(length, alignment);

  // Write counts and pairs. An alignment that they state is right if the tensors have it, too.
  const header = allocate(length, ' of the header');
  const view = new DataView(header.buffer);
  view.setUint32(0, 0x46554747, true);
  view.setUint32(4, 3, true);
  view.setBigUint64(8, BigInt(tensors.length), true);
  view.setBigUint64(16, BigInt(pairs.length), true);
  let at = 24;
  let wrongAlignment: number | undefined;
  for (const { key, bytes } of pairs) {
    header.set(bytes, at);
    at += bytes.length;
    if (key !== alignmentKey) continue;
    const stated = view.getUint32(at - 4, true);
    const isRight =
      dataOffset === alignedTo(length, stated) &&
      entries.every(({ tensor: { bytes } }) => alignedTo(bytes, alignment) === alignedTo(bytes, stated));
    if (isRight) continue;
    if (fixAlignment) view.setUint32(at - 4, alignment, true);
    else wrongAlignment = stated;
  }
  // Write the entries of tensors.
  for (const { tensor, type, name, ne } of entries) {
    view.setBigUint64(at, BigInt(name.length), true);
    header.set(name, at + 8);
    at += 8 + name.length;
    view.setUint32(at, ne.length, true);
    at += 4;
    for (const n of ne) {
      view.setBigUint64(at, BigInt(n), true);
      at += 8;
    }
    view.setUint32(at, type, true);
    view.setBigUint64(at + 4, BigInt(tensor.byteOffset), true);
    at += 12;
  }
  return {
    header,
    tensors: entries.map(({ tensor }) => ({ ...tensor, byteOffset: dataOffset + tensor.byteOffset })),
    size: dataOffset + end,
    ...(wrongAlignment === undefined ? {} : { wrongAlignment }),
  };
}

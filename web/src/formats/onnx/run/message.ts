/** Objects with typed arrays as bytes: 4 bytes with the length of the JSON, the JSON, then the bytes of the arrays. */

import { joinedBytes } from '../../files/bytes.js';

/** Typed arrays by their names. */
const arrays = {
  ...{ Int8Array, Uint8Array, Int16Array, Uint16Array, Int32Array, Uint32Array },
  ...{ Float32Array, Float64Array, BigInt64Array, BigUint64Array },
} as const;
type ArrayName = keyof typeof arrays;
const isArrayName = (name: unknown): name is ArrayName => typeof name === 'string' && Object.hasOwn(arrays, name);

/** An array in the JSON: its type, and its place behind the JSON. */
interface Placed {
  readonly array: ArrayName;
  readonly at: number;
  readonly length: number;
}

export function encodeMessage(message: object): Uint8Array<ArrayBuffer> {
  const parts: Uint8Array[] = [];
  let size = 0;
  const json = JSON.stringify(message, function (this: Record<string, unknown>, key, shown: unknown) {
    // Buffers of Node are shown as lists.
    const value = this[key];
    if (!ArrayBuffer.isView(value)) return shown;
    // float16 is sent as the words of its bits.
    const { name } = value.constructor;
    const array = name === 'Float16Array' ? 'Uint16Array' : name === 'Buffer' ? 'Uint8Array' : name;
    if (!isArrayName(array)) return shown;
    const { buffer, byteOffset, byteLength } = value;
    const placed: Placed = { array, at: size, length: byteLength / arrays[array].BYTES_PER_ELEMENT };
    parts.push(new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength));
    size += byteLength;
    return placed;
  });
  const text = new TextEncoder().encode(json);
  const head = new Uint8Array(4);
  new DataView(head.buffer).setUint32(0, text.length);
  return joinedBytes([head, text, ...parts]);
}

/** Restores a message. Its arrays have memory of their own. */
export function decodeMessage(bytes: Uint8Array): unknown {
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0);
  const begin = 4 + length;
  return JSON.parse(new TextDecoder().decode(bytes.subarray(4, begin)), (_, value: unknown) => {
    const { array, at, length: elements } = (value ?? {}) as Partial<Placed>;
    if (!isArrayName(array) || at === undefined || elements === undefined) return value;
    const kind = arrays[array];
    const from = begin + at;
    // Slices of Node's buffers share memory.
    const copy = new Uint8Array(elements * kind.BYTES_PER_ELEMENT);
    copy.set(bytes.subarray(from, from + copy.length));
    return new kind(copy.buffer);
  });
}

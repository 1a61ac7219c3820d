// Writes .npy and .npz files for tests.

/** A .npy file of version 1. */
export function npy(descr: string, shape: string, content: ArrayBuffer): Uint8Array<ArrayBuffer> {
  const text = `{'descr': '${descr}', 'fortran_order': False, 'shape': ${shape}, }`;
  const header = `${text.padEnd(64 * Math.ceil((text.length + 11) / 64) - 11)}\n`;
  return Uint8Array.from([
    ...[0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, header.length & 255, header.length >> 8],
    ...new TextEncoder().encode(header),
    ...new Uint8Array(content),
  ]);
}

const le = (bytes: number, value: number) =>
  Array.from({ length: bytes }, (_, i) => Math.floor(value / 256 ** i) & 255);

/** A zip archive as numpy writes it. `promise` is the size that it claims; `deflate` packs method 8. */
export function zip(
  entries: readonly (readonly [name: string, content: Uint8Array, method: number, promise?: number])[],
  deflate: (bytes: Uint8Array) => Uint8Array,
) {
  const parts: (Uint8Array | readonly number[])[] = [];
  let size = 0;
  const push = (part: Uint8Array | readonly number[]) => {
    parts.push(part);
    size += part.length;
  };
  const list: number[] = [];
  for (const [name, content, method, promise = content.length] of entries) {
    const packed = method === 8 ? deflate(content) : content;
    const text = [...new TextEncoder().encode(name)];
    const same = [...le(2, 0), ...le(2, method), ...le(4, 0), ...le(4, 0), ...le(4, packed.length), ...le(4, promise)];
    const at = size;
    push([...le(4, 0x04034b50), ...le(2, 20), ...same, ...le(2, text.length), ...le(2, 0), ...text]);
    push(packed);
    const more = [...le(2, text.length), ...le(2, 0), ...le(2, 0), ...le(2, 0), ...le(2, 0), ...le(4, 0), ...le(4, at)];
    list.push(...le(4, 0x02014b50), ...le(2, 20), ...le(2, 20), ...same, ...more, ...text);
  }
  const end = [...le(8, 0), ...le(2, entries.length), ...le(4, list.length), ...le(4, size), ...le(2, 0)];
  push([...list, ...le(4, 0x06054b50), ...end.slice(2)]);
  const file = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    file.set(part, at);
    at += part.length;
  }
  return file;
}

// The stack of the wasm core lies below its tables: a call that needs more of it than there is ends in a trap, and overwrites nothing.
import { describe, expect, it } from 'vitest';
import { instantiateCore } from '../../../web/src/core/load.js';
import { Scalepoint } from '../../../web/src/instance/scalepoint.js';
import { arraysFiles, readBytes, wasmFiles } from '../support/support.js';

/** Total stack of a module (cpp/modules.cmake), and about the size of the largest frame, that of the search for block scales. */
const stack = 65536;
const largestFrame = 22_000;

/** Reads a LEB128 number, and moves the position behind it. */
function readNumber(bytes: Uint8Array, at: { place: number }): number {
  let value = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = bytes[at.place++] as number;
    value += (byte & 127) * 2 ** shift;
    if (byte < 128) return value;
  }
}

/** The place of a section's content. */
function section(bytes: Uint8Array, wanted: number): number {
  const at = { place: 8 };
  while (at.place < bytes.length) {
    const id = bytes[at.place++];
    const size = readNumber(bytes, at);
    if (id === wanted) return at.place;
    at.place += size;
  }
  throw new Error(`section ${wanted} is missing`);
}

/** The start of the stack pointer, which is the first global: a mutable i32 (7f 01) of a constant (41), and the place of its digits. */
function stackPointer(bytes: Uint8Array): { value: number; place: number; length: number } {
  const at = { place: section(bytes, 6) };
  readNumber(bytes, at);
  expect([...bytes.subarray(at.place, at.place + 3)]).toEqual([0x7f, 0x01, 0x41]);
  const place = at.place + 3;
  at.place = place;
  return { value: readNumber(bytes, at), place, length: at.place - place };
}

/** The constants that a module puts into memory: addresses, and the bytes there. */
function tables(bytes: Uint8Array): { address: number; content: Uint8Array }[] {
  const at = { place: section(bytes, 11) };
  return Array.from({ length: readNumber(bytes, at) }, () => {
    expect([bytes[at.place], bytes[at.place + 1]]).toEqual([0, 0x41]);
    at.place += 2;
    const address = readNumber(bytes, at);
    expect(bytes[at.place++]).toBe(0x0b);
    const size = readNumber(bytes, at);
    at.place += size;
    return { address, content: bytes.subarray(at.place - size, at.place) };
  });
}

/** A module whose stack begins with `room` bytes. */
function withRoom(bytes: Uint8Array<ArrayBuffer>, room: number): Uint8Array<ArrayBuffer> {
  const made = bytes.slice();
  const { value, place, length } = stackPointer(bytes);
  let rest = value - stack + room;
  for (let i = 0; i < length; i++, rest >>>= 7) made[place + i] = (rest & 127) | (i + 1 < length ? 128 : 0);
  return made;
}

const files = {
  'arrays-simd': arraysFiles.simd,
  'arrays-scalar': arraysFiles.scalar,
  'core-simd': wasmFiles.simd,
  'core-scalar': wasmFiles.scalar,
};

describe.each(Object.entries(files))('the stack of %s.wasm', async (name, file) => {
  const bytes = await readBytes(file);
  const found = tables(bytes);
  const open = async (room: number) => {
    const module = await WebAssembly.compile(withRoom(bytes, room));
    return instantiateCore(name.startsWith('core') ? 'core' : 'arrays', module);
  };
  const search = (core: Awaited<ReturnType<typeof open>>) =>
    new Scalepoint(core).quantizeCodebook(
      Float32Array.from({ length: 256 }, (_, i) => Math.sin(i)),
      {
        codebook: 'nf4',
        range: 'mse',
      },
    );

  it('ends where the tables begin', () => {
    expect(stackPointer(bytes).value).toBe(stack);
    for (const { address } of found) expect(address).toBeGreaterThanOrEqual(stack);
  });

  it('holds the largest frame', async () => {
    expect(search(await open(2 * largestFrame)).data).toEqual(search(await open(stack)).data);
  });

  it('traps in a call without room for it, and leaves the tables as they are', async () => {
    const core = await open(largestFrame - 5000);
    const memory = () =>
      found.map(({ address, content }) => core.module.HEAPU8.slice(address, address + content.length));
    const before = memory();
    expect(() => search(core)).toThrow(WebAssembly.RuntimeError);
    expect(memory()).toEqual(before);
  });
});

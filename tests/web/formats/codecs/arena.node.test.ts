import { describe, expect, it } from 'vitest';
import { compileCore, instantiateCore } from '../../../../web/src/core/load.js';
import { elementFloats } from '../../../../web/src/formats/codecs/calls.js';
import { Arena } from '../../../../web/src/formats/codecs/codec.js';

async function made() {
  const core = await instantiateCore('core', await compileCore('core'));
  return { core, module: core.module, arena: new Arena(core) };
}

describe('an arena', () => {
  it('has pieces at multiples of 16 that stay the same after a rewind', async () => {
    const { module, arena } = await made();
    const kept = arena.start(100);
    module.HEAPU8.fill(5, kept, kept + 100);
    const sizes = [3, 16, 0, 17, 3 << 20, 1];
    const first = sizes.map((bytes) => arena.take(bytes));
    expect(first.map((at) => at % 16)).toEqual(sizes.map(() => 0));
    expect(first[2]).toBe(0);
    const { capacity } = arena;
    arena.rewind();
    expect(sizes.map((bytes) => arena.take(bytes))).toEqual(first);
    expect(arena.capacity).toBe(capacity);
    expect(module.HEAPU8.subarray(kept, kept + 100).every((byte) => byte === 5)).toBe(true);
    // The next task has all of it in one stretch.
    const [a, b] = [arena.start(100), arena.take(3 << 20)];
    expect(b - a).toBe(112);
    expect(arena.capacity).toBeLessThanOrEqual(capacity);
    arena.release();
    expect(arena.capacity).toBe(0);
  });

  it('does not share memory with another one of the same core', async () => {
    const { core, module, arena } = await made();
    const other = new Arena(core);
    const [a, b] = [arena.take(1000), other.take(1000)];
    module.HEAPU8.fill(1, a, a + 1000);
    module.HEAPU8.fill(2, b, b + 1000);
    other.start(1 << 22);
    expect(module.HEAPU8.subarray(a, a + 1000).every((byte) => byte === 1)).toBe(true);
  });

  it('throws an error with a code if memory is full, and is usable afterwards', async () => {
    const { module, arena } = await made();
    for (const bytes of [2 ** 32 - 1, 2 ** 32, 2 ** 33, 2 ** 40]) {
      const text = `wasm memory has no room for ${bytes} more bytes`;
      for (const take of [() => arena.take(bytes), () => arena.start(bytes)]) {
        expect(take).toThrow(expect.objectContaining({ code: 'OUT_OF_MEMORY', message: text }));
      }
    }
    const source = arena.start(6);
    module.HEAPU16.set([0x3c00, 0x4000, 0xc200], source / 2);
    const taken: number[] = [];
    const { allocate } = module;
    // Fill the memory, so that the core itself finds none.
    for (let bytes = 2 ** 31; bytes >= 2 ** 10; bytes /= 2) {
      for (let at = allocate(bytes); at !== 0; at = allocate(bytes)) taken.push(at);
    }
    const full = { code: 'OUT_OF_MEMORY', message: 'wasm memory has no room for the results of a tile' };
    expect(() => elementFloats(arena, { type: 'F16', rows: 1024, columns: 1024, source })).toThrow(
      expect.objectContaining(full),
    );
    for (const at of taken) module.release(at);
    arena.rewind();
    const x = elementFloats(arena, { type: 'F16', rows: 1, columns: 3, source });
    expect([...module.HEAPF32.subarray(x / 4, x / 4 + 3)]).toEqual([1, 2, -3]);
  });
});

// An instance's memory: allocations, records and views.
import { describe, expect, it } from 'vitest';
import { LayoutRecord, stepSize } from '../../../web/src/core/door.js';
import { loadCore } from '../../../web/src/core/load.js';
import { forEachTile, tileParameters, tileSize } from '../../../web/src/core/memory.js';
import { expectCode } from '../support/support.js';

const layout = { granularity: 0, axisSize: 1, innerSize: 1, groupSize: 1 } as const;

describe('memory', async () => {
  const core = await loadCore();

  it('has places for tiles that do not overlap', () => {
    const { x, y, bits, scale, zeroPoint, sums } = core.scratch;
    const ends = [x, y, bits, scale, zeroPoint, sums];
    const sizes = [tileSize * 4, tileSize * 4, tileSize * 2, tileParameters * 4, tileParameters * 4];
    for (const [i, size] of sizes.entries()) expect((ends[i + 1] as number) - (ends[i] as number)).toBe(size);
    for (const address of ends) expect(address % 16).toBe(0);
    core.withRecord(LayoutRecord, layout, (record) => {
      expect(record).toBeGreaterThanOrEqual(sums + 56);
    });
  });

  it('stacks records, whatever happens', () => {
    const addresses: number[] = [];
    const nest = (depth: number): void =>
      core.withRecord(LayoutRecord, { ...layout, axisSize: depth }, (record) => {
        expect(record % 8).toBe(0);
        addresses.push(record);
        if (depth < 10) nest(depth + 1);
        else throw new Error('deep');
      });
    expect(() => nest(1)).toThrow('deep');
    const { HEAPU32 } = core.module;
    for (const [i, record] of addresses.entries()) expect(HEAPU32[record / 4 + 2]).toBe(i + 1);
    core.withRecord(LayoutRecord, layout, (record) => {
      expect(record).toBe(addresses[0]);
    });
  });

  it('refuses records without end', () => {
    const nest = (): never => core.withRecord(LayoutRecord, layout, nest);
    expect(nest).toThrow('too many records');
    core.withRecord(LayoutRecord, layout, () => {});
  });

  it('is given back when a call ends, and when it fails', () => {
    const size = 1 << 20;
    const first = core.withMemory(size, (address) => address);
    expect(() =>
      core.withMemory(size, () => {
        throw new Error('no');
      }),
    ).toThrow('no');
    expect(core.withMemory(size, (address) => address)).toBe(first);
  });

  it('tells when there is no room', () => {
    expect(core.tryAllocate(2 ** 32)).toBe(0);
    expect(core.tryAllocate(2 ** 53)).toBe(0);
    expectCode(() => core.allocate(2 ** 32), 'OUT_OF_MEMORY');
  });

  it('keeps a view as long as it fits', () => {
    const { x } = core.scratch;
    const view = core.viewAgain('float32', x, 8);
    expect(core.viewAgain('float32', x, 8)).toBe(view);
    expect(core.viewAgain('float32', x, 9)).not.toBe(view);
    expect(core.viewAgain('int32', x, 9)).toBeInstanceOf(Int32Array);
  });

  it('is walked in tiles, or at once', () => {
    const tiles = (n: number, whole: boolean, size?: number) => {
      const found: [number, number][] = [];
      forEachTile(n, whole, (start, count) => found.push([start, count]), size);
      return found;
    };
    expect(tiles(0, false)).toEqual([]);
    expect(tiles(stepSize + 1, false)).toEqual([
      [0, stepSize],
      [stepSize, 1],
    ]);
    expect(tiles(10, false, 4)).toEqual([
      [0, 4],
      [4, 4],
      [8, 2],
    ]);
    expect(tiles(10, true, 4)).toEqual([[0, 10]]);
  });

  it('ends with the instance', async () => {
    const other = await loadCore();
    other.dispose();
    expect(other.disposed).toBe(true);
    expectCode(() => other.module, 'DISPOSED');
    expectCode(() => other.allocate(1), 'DISPOSED');
    other.release(8);
    other.dispose();
  });
});

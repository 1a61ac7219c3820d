// Files of indexes: what was saved comes back; damaged files are refused.
import { type IndexOptions, load, openIndex, type VectorIndex } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import { expectCode, expectSame, Random, wasmFiles } from '../support/support.js';

const sp = await load({ wasm: wasmFiles.simd, simd: 'on' });
const core = { wasm: wasmFiles.simd, simd: 'on' } as const;
const widths = [1, 2, 4, 8] as const;
const dimension = 40;

const random = new Random(1);
const x = random.bell(100 * dimension);
const q = random.bell(dimension);

function made(options: IndexOptions = {}): VectorIndex {
  return sp.index(x, { shape: [100, dimension], ...options });
}

function expectEqual(a: VectorIndex, b: VectorIndex): void {
  for (const name of ['dimension', 'bits', 'metric', 'count'] as const) expect(a[name]).toBe(b[name]);
  expect(a.search(q, 20)).toEqual(b.search(q, 20));
}

/** The header of a file as JSON, and the bytes behind it. */
function partsOf(file: Uint8Array) {
  const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + length)));
  return { header, data: file.slice(8 + length) };
}

interface Entry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

/** A file with another header and other data. */
function joined(header: object, data: Uint8Array): Uint8Array {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const file = new Uint8Array(8 + text.length + data.length);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(text, 8);
  file.set(data, 8 + text.length);
  return file;
}

/** A file with other facts. */
function withFacts(file: Uint8Array, change: (facts: Record<string, unknown>) => unknown): Uint8Array {
  const { header, data } = partsOf(file);
  const facts = JSON.parse(header.__metadata__['scalepoint.index']);
  const changed = change(facts) ?? facts;
  return joined({ ...header, __metadata__: { 'scalepoint.index': JSON.stringify(changed) } }, data);
}

/** A file with other bytes of a tensor. */
function withBytes(file: Uint8Array, name: string, change: (bytes: Uint8Array) => void): Uint8Array {
  const { header, data } = partsOf(file);
  const [from, to] = (header[name] as Entry).data_offsets;
  change(data.subarray(from, to));
  return joined(header, data);
}

async function expectBad(file: Uint8Array, what = /./): Promise<void> {
  await expect(openIndex(file as never, { core })).rejects.toMatchObject({
    code: 'BAD_FILE',
    message: expect.stringMatching(what),
  });
}

describe('the file of an index', () => {
  /** The bytes of vectors in a file: codes, numbers and kept rows. */
  function vectorsIn(file: Uint8Array, vectors: readonly number[]): number[] {
    const { header, data } = partsOf(file);
    const bytes: number[] = [];
    for (const name of ['codes', 'factors', 'extras', 'rows']) {
      const entry = header[name] as Entry | undefined;
      if (entry === undefined) continue;
      const { shape, data_offsets: offsets } = entry;
      const own = data.subarray(...offsets);
      for (const vector of vectors) {
        if (shape.length === 3) {
          const [, each, block] = shape as [number, number, number];
          const begin = Math.floor(vector / block) * each * block + (vector % block);
          for (let byte = 0; byte < each; byte++) bytes.push(own[begin + byte * block]!);
        } else {
          const each = own.length / shape[0]!;
          bytes.push(...own.subarray(vector * each, (vector + 1) * each));
        }
      }
    }
    return bytes;
  }

  const ids = Array.from({ length: 100 }, (_, i) => `v${i}`);

  it('is that of before once vectors are refused', async () => {
    const infinite = random.bell(3 * dimension);
    infinite[2 * dimension + 1] = Infinity;
    const long = random.bell(3 * dimension).map((v, i) => (i < 2 * dimension ? v : 1e30 * v));
    const past = random.bell(3 * dimension).map((v, i) => (i < 2 * dimension ? v : 1e6 * v));
    for (const bits of widths) {
      for (const [metric, rerank, refusals] of [
        ['dot', undefined, [[infinite, 'NON_FINITE']]],
        [
          'euclidean',
          { source: 'float16' },
          [
            [infinite, 'NON_FINITE'],
            [long, 'OVERFLOW'],
            [past, 'OVERFLOW'],
          ],
        ],
      ] as const) {
        using index = made({ bits, metric, rerank, ids });
        index.remove(['v3', 'v40']);
        const before = await index.save();
        for (const [vectors, code] of refusals) {
          expectCode(() => index.add(vectors, ['a', 'b', 'c']), code);
          expectCode(() => index.update(['v1', 'v98', 'v99'], vectors), code);
          const after = await index.save();
          expectSame(after, before);
          (await openIndex(after, { core })).dispose();
        }
      }
    }
  });

  it('holds nothing of vectors that were removed, or made to be moved', async () => {
    for (const bits of widths) {
      for (const rerank of [undefined, { source: 'float16' }, { source: 'int8' }] as const) {
        using index = made({ bits, rerank, ids });
        index.update(['v0', 'v99'], random.bell(2 * dimension));
        index.remove(['v2', 'v31', 'v32', 'v99']);
        const missing = [2, 31, 32, ...Array.from({ length: 29 }, (_, i) => 99 + i)];
        const file = await index.save();
        expect(vectorsIn(file, missing).some((byte) => byte !== 0)).toBe(false);
        expect(vectorsIn(file, [1, 33, 98]).some((byte) => byte !== 0)).toBe(true);
        // A file of an earlier release.
        const old = withBytes(file, 'factors', (bytes) => bytes.fill(1, 4 * 2, 4 * 3));
        using opened = await openIndex(old, { core });
        expectSame(await opened.save(), file);
      }
    }
  });
});

describe('an index in a file', () => {
  it('comes back as it was, with ids, removed vectors and rows', async () => {
    for (const bits of widths) {
      for (const options of [
        {},
        { metric: 'cosine', ids: Array.from({ length: 100 }, (_, i) => (i % 2 === 0 ? i : `é${i}`)) },
        { metric: 'euclidean', seed: 9, dims: 24, rerank: { source: 'int8', factor: 3 } },
        { rerank: { source: 'float16' }, ids: [...Array(100).keys()] },
      ] satisfies IndexOptions[]) {
        using index = made({ bits, ...options });
        index.remove([0, 4, 99, 'é5']);
        const bytes = await index.save();
        using opened = await openIndex(bytes, { core });
        expectEqual(opened, index);
        expectSame(await opened.save(), bytes);
        // Both go on in the same way.
        const more = random.bell(5 * dimension);
        const ids = 'ids' in options ? { ids: ['a', 'b', 'c', 'd', 'e'] } : {};
        index.add(more, ids);
        opened.add(more, ids);
        expectEqual(opened, index);
      }
    }
  });

  it('holds bits and no center for Hamming distances', async () => {
    const bits = Uint8Array.from({ length: 100 * 5 }, (_, i) => Math.imul(i, 2654435761) >>> 24);
    using index = sp.index(bits, { shape: [100, 5], metric: 'hamming', ids: [...Array(100).keys()] });
    index.remove([3]);
    const bytes = await index.save();
    const { header } = partsOf(bytes);
    // Six bytes hold 40 bits, because vectors take an even number.
    expect(header.codes).toMatchObject({ dtype: 'U8', shape: [4, 6, 32] });
    expect(header).not.toHaveProperty('center');
    using opened = await openIndex(bytes, { core });
    expectEqual(opened, index);
    expectSame(await opened.save(), bytes);
    opened.add(bits.subarray(15, 20), [3]);
    expect(opened.search(bits.subarray(15, 20), 1)).toMatchObject({ ids: [3], scores: Float32Array.of(0) });
    await expectBad(withFacts(bytes, (facts) => ({ ...facts, bits: 2 })));
    await expectBad(withFacts(bytes, (facts) => ({ ...facts, metric: 'dot' })));
  });

  it('is as empty as the index', async () => {
    using index = sp.index(new Float32Array(0), { shape: [0, dimension], bits: 2, ids: [] });
    using opened = await openIndex(await index.save(), { core });
    expect(opened.count).toBe(0);
    expect(opened.search(q).ids).toEqual([]);
    opened.add(x, [...Array(100).keys()]);
    expect(opened.count).toBe(100);
  });

  it('leaves the vectors of a second score in the file on request', async () => {
    using index = made({ bits: 1, metric: 'cosine', rerank: { source: 'float16', factor: 20 } });
    const file = new Blob([await index.save()]);
    const progress: number[] = [];
    using opened = await openIndex(file, { core, rerank: 'file', onProgress: ({ done }) => progress.push(done) });
    expect(opened.bytes).toBeLessThan(index.bytes - 100 * dimension * 2);
    expect(progress.at(-1)).toBeGreaterThan(0);
    const [result] = await opened.searchMany([q], 5);
    expect(result).toEqual(index.search(q, 5));
    expect(() => opened.search(q, 5)).toThrow('searchMany');
    expect(() => opened.add(x.subarray(0, dimension))).toThrow(TypeError);
    expect(opened.remove([1])).toBe(1);
  });

  it('refuses to save while it changes, and stops at a signal', async () => {
    using index = made({ bits: 4 });
    const saving = index.save(undefined, { onProgress: () => index.remove([3]) });
    await expect(saving).rejects.toMatchObject({ code: 'CHANGED' });
    await expect(index.save(undefined, { signal: AbortSignal.abort('no') })).rejects.toBe('no');
    const bytes = await index.save();
    await expect(openIndex(bytes, { core, signal: AbortSignal.abort('no') })).rejects.toBe('no');
    const controller = new AbortController();
    const opening = openIndex(bytes, { core, signal: controller.signal, onProgress: () => controller.abort('stop') });
    await expect(opening).rejects.toBe('stop');
  });
});

describe('a damaged file', () => {
  it('is refused at every length', async () => {
    const bytes = await made({ bits: 1, ids: [...Array(100).keys()] }).save();
    for (let length = 0; length < bytes.length; length += length < 1200 ? 37 : 411) {
      await expect(openIndex(bytes.slice(0, length), { core })).rejects.toMatchObject({ code: 'BAD_FILE' });
    }
  });

  it('is refused for each wrong fact', async () => {
    const bytes = await made({ bits: 2, rerank: { source: 'int8' }, ids: [...Array(100).keys()] }).save();
    const wrong: [name: string, values: unknown[]][] = [
      ['version', [2, '1', null]],
      ['dimension', [0, -1, 1.5, 2 ** 20, '40', 41, null]],
      ['dims', [0, 41, 8, null]],
      ['bits', [0, 3, 16, 8, 1, '2']],
      ['metric', ['hamming', 0, null]],
      ['seed', [-1, 2 ** 32, 0.5]],
      ['count', [-1, 0, 96, 129, 1e9, 2 ** 32, Number.MAX_SAFE_INTEGER, '100']],
      [
        'rerank',
        [null, 1, {}, { row: 0, factor: 8 }, { row: 1, factor: 8 }, { row: 2, factor: 0 }, { row: 2, factor: 1e300 }],
      ],
    ];
    for (const [name, values] of wrong) {
      for (const value of values) await expectBad(withFacts(bytes, (facts) => ({ ...facts, [name]: value })));
    }
    await expectBad(withFacts(bytes, () => 7));
    const { header, data } = partsOf(bytes);
    await expectBad(joined({ ...header, __metadata__: {} }, data), /no index/);
    await expectBad(joined({ ...header, __metadata__: { 'scalepoint.index': '{' } }, data), /JSON/);
    const { center: _, ...without } = header;
    await expectBad(joined(without, data));
  });

  it('is refused for wrong numbers and ids', async () => {
    const ids = Array.from({ length: 100 }, (_, i) => (i % 2 ? i : `v${i}`));
    const index = made({ bits: 4, metric: 'euclidean', ids });
    index.remove(['v2']);
    const bytes = await index.save();
    const float = (value: number) => (to: Uint8Array) => to.set(new Uint8Array(Float32Array.of(value).buffer), 8);
    for (const name of ['factors', 'extras', 'center']) {
      for (const value of [Number.NaN, Infinity, -Infinity])
        await expectBad(withBytes(bytes, name, float(value)), /finite/);
    }
    await expectBad(
      withBytes(bytes, 'alive', (to) => to.fill(255)),
      /beyond the last|removed/,
    );
    // 100 vectors are all of the first 96 bits and four more.
    const bit = (place: number) => (to: Uint8Array) => to.set([to[place >> 3]! | (1 << (place & 7))], place >> 3);
    for (const place of [100, 127]) await expectBad(withBytes(bytes, 'alive', bit(place)), /beyond the last/);
    await expectBad(
      withBytes(bytes, 'alive', (to) => to.fill(0)),
      /removed/,
    );
    const text = (from: string, to: string) => (at: Uint8Array) =>
      at.set(new TextEncoder().encode(new TextDecoder().decode(at).replace(from, to)));
    await expectBad(withBytes(bytes, 'ids', text('"v4"', '"v6"')), /twice/);
    await expectBad(withBytes(bytes, 'ids', text('"v4"', 'null')), /removed/);
    await expectBad(withBytes(bytes, 'ids', text('"v4"', '[44]')), /id 4/);
    await expectBad(withBytes(bytes, 'ids', text('"v4"', '4.44')), /id 4/);
    await expectBad(withBytes(bytes, 'ids', text('[', ' ')), /JSON/);
    await expectBad(withBytes(bytes, 'ids', text('"v0",', '     ')), /not 100 ids/);
    await expectBad(
      withBytes(bytes, 'ids', (to) => to.fill(0xff)),
      /JSON/,
    );
    // Any codes are codes.
    using opened = await openIndex(withBytes(bytes, 'codes', (to) => to.fill(0x9b)) as never, { core });
    expect(opened.search(q, 5).ids).toHaveLength(5);
  });
});

// Archives of arrays that are not what they seem: small files must not take much memory.
import { describe, expect, it } from 'vitest';
import { openSource } from '../../../../../web/src/formats/files/open.js';
import { readNumpyArrays } from '../../../../../web/src/formats/onnx/run/npz.js';
import { npy, zip } from '../../../support/npz.js';

const two = npy('<f4', '(1, 2)', Float32Array.of(3, -4).buffer);
const stored = (...names: string[]) =>
  zip(
    names.map((name) => [name, two, 0]),
    (bytes) => bytes,
  );

/** Offsets of the entries in the list at the end. */
function listed(file: Uint8Array): number[] {
  return [...file.keys()].filter((i) => file[i] === 0x50 && file[i + 1] === 0x4b && file[i + 2] === 1);
}

/** The file with another number in the list at the end. */
function withField(file: Uint8Array<ArrayBuffer>, entry: number, field: number, value: number) {
  const changed = file.slice();
  new DataView(changed.buffer).setUint32(listed(file)[entry]! + field, value, true);
  return changed;
}
const [packedField, sizeField, offsetField] = [20, 24, 42];

/** Reads a file. Records how much of it was read. */
async function read(file: Uint8Array<ArrayBuffer>, check = () => {}) {
  const source = await openSource(file);
  let bytes = 0;
  const counted = (begin: number, end: number) => {
    bytes += end - begin;
    return source.read(begin, end);
  };
  const result = await readNumpyArrays({ ...source, read: counted }, check).then(
    (arrays) => ({ names: [...arrays.keys()] }),
    (error: { code?: string; message: string; byteOffset?: number }) => error,
  );
  return { ...result, bytes, message: 'message' in result ? result.message : undefined };
}

describe('the arrays of a .npz file', () => {
  it('share no bytes', async () => {
    const file = stored('x.npy', 'y.npy', 'z.npy');
    expect(await read(file)).toMatchObject({ names: ['x', 'y', 'z'] });
    const message = expect.stringMatching(/overlaps "x.npy" in the zip archive/);
    expect(await read(withField(file, 1, offsetField, 0))).toMatchObject({ code: 'BAD_FILE', message, byteOffset: 0 });
    // A long entry that reaches into the next one.
    const longer = withField(withField(file, 0, packedField, two.length + 1), 0, sizeField, two.length + 1);
    expect(await read(longer)).toMatchObject({
      code: 'BAD_FILE',
      message: expect.stringMatching(/"y.npy" overlaps "x.npy"/),
    });
    // Data must not overlap the list of files either.
    const last = two.length + 1;
    const into = withField(withField(file, 2, packedField, last), 2, sizeField, last);
    expect(await read(into)).toMatchObject({ code: 'BAD_FILE', message: expect.stringMatching(/overlaps the list/) });
  });

  it('are refused before any of them is read', async () => {
    const many = stored(...Array.from({ length: 1000 }, (_, i) => `${i}.npy`));
    let shared = many;
    for (let i = 1; i < 1000; i++) shared = i < 5 || i > 995 ? withField(shared, i, offsetField, 0) : shared;
    const { bytes, message } = await read(shared);
    expect(message).toMatch(/overlaps/);
    // The end, the list, and 30 bytes of each entry.
    expect(bytes).toBeLessThan(2 ** 16 + 22 + 1000 * (46 + 8 + 30) + 6);
  });

  it('have a name each', async () => {
    expect(await read(stored('x.npy', 'x.npy'))).toMatchObject({
      code: 'BAD_FILE',
      message: expect.stringMatching(/"x.npy" is in the zip archive twice/),
    });
    expect(await read(stored('x.npy', 'readme.txt', 'readme.txt'))).toMatchObject({ names: ['x'] });
  });

  it('have a bounded size in all', async () => {
    let file = zip(
      ['x.npy', 'y.npy', 'z.npy'].map((name) => [name, two, 8]),
      (bytes) => bytes,
    );
    for (const i of [0, 1, 2]) file = withField(file, i, sizeField, 2 ** 30);
    expect(await read(file)).toMatchObject({
      code: 'BAD_FILE',
      message: expect.stringMatching(/take 3221225472 bytes, more than the 2147483648 allowed/),
    });
    // One alone is still bounded by its packed size.
    expect(await read(withField(stored('x.npy'), 0, sizeField, 2 ** 30))).toMatchObject({ code: 'BAD_FILE' });
  });

  it('are named before they are read', async () => {
    const stop = new Error('stop');
    const check = () => {
      throw stop;
    };
    expect((await read(stored('x.npy'), check)).message).toBe('stop');
  });
});

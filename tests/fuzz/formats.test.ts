import { deflateRawSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { ScalepointError } from '../../web/src/core/errors.js';
import type { ByteSource } from '../../web/src/formats/files/bytes.js';
import { openSource } from '../../web/src/formats/files/open.js';
import { openNpy } from '../../web/src/formats/npy/header.js';
import { openPytorch } from '../../web/src/formats/pytorch/open.js';
import { readSafetensors, type TensorInfo, tensorBytes } from '../../web/src/formats/safetensors/header.js';
import { archive, dict, legacy, type Storage, tensor } from '../web/support/torch-file.js';
import { type Damage, mutate, someWord } from './mutate.js';
import { filesOf, random, seedOf } from './rounds.js';

// Each reader gets valid files with random damage. It must return tensors that lie inside of the file, or throw a ScalepointError. Seeds are
// fixed; see rounds.ts.

const mutations = filesOf(3000);

/** Changes a digit, which falsifies a size, a shape or an offset. */
const otherDigit: Damage = (bytes, _, pick) => {
  const digits = bytes.flatMap((byte, i) => (byte >= 0x30 && byte <= 0x39 ? [i] : []));
  const digit = digits[pick(digits.length + 1)];
  if (digit !== undefined) bytes[digit] = 0x30 + pick(10);
};

/** A new length at the start. With the old one, readers would refuse most damaged files there. */
const otherLength: Damage = (bytes, _, pick) => {
  const length = pick(3) === 0 ? pick(2 ** 31) : pick(600);
  for (let i = 0; i < 4; i++) if (8 + i < bytes.length) bytes[pick(2) * 8 + i] = (length >>> (8 * i)) & 255;
};

/** Checks that an error is a ScalepointError with a short message and an offset inside of the file. Returns its code. */
function checkError(error: unknown, file: Uint8Array): string {
  if (!(error instanceof ScalepointError)) throw error;
  expect(error.message.length).toBeLessThan(1000);
  expect(error.byteOffset).toBeGreaterThanOrEqual(0);
  expect(error.byteOffset).toBeLessThanOrEqual(file.length);
  return error.code;
}

/** Checks that a tensor has the bytes of its shape and lies inside of the file. */
function checkTensor({ dtype, shape, bytes, byteOffset }: TensorInfo, source: ByteSource): void {
  expect(bytes).toBe(tensorBytes(dtype, shape));
  expect(byteOffset).toBeGreaterThanOrEqual(8);
  expect(byteOffset + bytes).toBeLessThanOrEqual(source.size);
}

/** Reads damaged files. Returns how many were accepted, and how many failed with each error code. */
async function fuzz(
  seed: number,
  seeds: readonly Uint8Array[],
  words: readonly string[],
  read: (source: ByteSource) => Promise<void>,
): Promise<Record<string, number>> {
  const pick = random(seedOf(seed));
  const own = [someWord(words), otherDigit, otherLength];
  const outcomes: Record<string, number> = {};
  for (let i = 0; i < mutations; i++) {
    const file = mutate(seeds[i % seeds.length]!, pick, own, { head: 400, most: 4 });
    const source = await openSource(file);
    const outcome = await read(source).then(
      () => 'accepted',
      (error: unknown) => checkError(error, file),
    );
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
  }
  return outcomes;
}

function safetensors(header: string, dataBytes: number): Uint8Array {
  const json = new TextEncoder().encode(header);
  const file = new Uint8Array(8 + json.length + dataBytes);
  new DataView(file.buffer).setUint32(0, json.length, true);
  file.set(json, 8);
  return file;
}

function npy(header: string, dataBytes: number, version = 1): Uint8Array {
  const text = new TextEncoder().encode(`${header}\n`);
  const start = version === 1 ? 10 : 12;
  const file = new Uint8Array(start + text.length + dataBytes);
  file.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, version, 0, text.length]);
  file.set(text, start);
  return file;
}

describe('readers of damaged files', () => {
  it('safetensors: returns tensors inside of the file, or throws a ScalepointError', async () => {
    const seeds = [
      safetensors('{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}', 24),
      safetensors(
        '{"__metadata__":{"format":"pt","x":"\\u00e9"},"w":{"dtype":"F16","shape":[4,1],"data_offsets":[8,16]},' +
          '"n":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"e":{"dtype":"BF16","shape":[0,5],"data_offsets":[16,16]}}   ',
        16,
      ),
      safetensors('{}', 0),
    ];
    const words = [
      '"__proto__":',
      '"__metadata__":{}',
      '"dtype":"F64",',
      '"shape":[',
      '[0,0]',
      '9007199254740993',
      '4294967296,',
      '-1',
      '1e9',
      '{',
      '}',
      '[[[[',
      ']',
      '"',
      '\\',
      '\\ud800',
      ',',
      ':',
      '\u00e9',
      '\0',
      '"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},',
    ];
    const outcomes = await fuzz(1, seeds, words, async (source) => {
      const { tensors, metadata } = await readSafetensors(source);
      let end = Math.min(...tensors.map(({ byteOffset }) => byteOffset), source.size);
      for (const tensor of tensors) {
        checkTensor(tensor, source);
        expect(tensor.byteOffset).toBe(end);
        end += tensor.bytes;
      }
      expect(end).toBe(source.size);
      expect(new Set(tensors.map(({ name }) => name)).size).toBe(tensors.length);
      for (const value of Object.values(metadata)) expect(typeof value).toBe('string');
    });
    // Many files must get through, and many must not. Otherwise the damage would be too heavy or too light to test the reader.
    expect(outcomes.accepted).toBeGreaterThan(mutations / 100);
    expect(outcomes.BAD_FILE).toBeGreaterThan(mutations / 2);
    expect(Object.keys(outcomes).sort()).toEqual(['BAD_FILE', 'accepted']);
  });

  it('.npy: returns an array inside of the file, or throws a ScalepointError', async () => {
    const seeds = [
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24),
      npy("{'descr': '>f8', 'fortran_order': True, 'shape': (2, 2), }      ", 32, 2),
      npy("{'descr': '|u1', 'fortran_order': False, 'shape': (), }", 1, 3),
      npy("{'descr': '<i2', 'fortran_order': False, 'shape': (0,), }", 0),
    ];
    const words = [
      "'descr': ",
      "'<f8'",
      "'|O'",
      "[('x', '<f4')]",
      "'shape': (",
      '(1,)',
      '()',
      'True',
      'False',
      '9007199254740993',
      '4294967296,',
      '-1',
      '1.5',
      '{',
      '}',
      '((((',
      ')',
      "'",
      '"',
      '\\',
      ',',
      ':',
      '\u00e9',
      '\0',
      'L',
      '# comment',
    ];
    const outcomes = await fuzz(2, seeds, words, async (source) => {
      const { tensor, read } = await openNpy(source);
      checkTensor(tensor, source);
      expect(tensor.byteOffset + tensor.bytes).toBe(source.size);
      expect(await read(0, tensor.bytes)).toHaveLength(tensor.bytes);
    });
    expect(outcomes.accepted).toBeGreaterThan(mutations / 100);
    expect(outcomes.BAD_FILE).toBeGreaterThan(mutations / 2);
    expect(Object.keys(outcomes).sort()).toEqual(['BAD_FILE', 'UNSUPPORTED_DTYPE', 'accepted']);
  });

  it('PyTorch: returns tensors inside of the file, or throws a ScalepointError', async () => {
    const one: Storage = { type: 'FloatStorage', key: '0', count: 6, bytes: new Uint8Array(24) };
    const half: Storage = { type: 'BFloat16Storage', key: '1', count: 4, bytes: new Uint8Array(8) };
    const model = (isLegacy: boolean) =>
      dict({
        epoch: 3,
        state_dict: dict({
          a: tensor({ ...one, isLegacy }, [2, 3]),
          b: tensor({ ...one, isLegacy }, [3, 2], { strides: [1, 3] }),
          c: tensor({ ...half, isLegacy }, [4]),
        }),
      });
    const seeds = [
      archive(model(false), [one, half]),
      legacy(model(true), [one, half]),
      archive(model(false), [one, half], { deflate: deflateRawSync }),
    ];
    const words = [
      'cos\nsystem\n',
      'ctorch\nHalfStorage\n',
      'ctorch._utils\n_rebuild_tensor_v3\n',
      '\u0000\u0000\u0000\u0000',
      '(',
      ')',
      't',
      'R',
      'Q',
      'b',
      '}',
      'u',
      's',
      '.',
      'PK\u0005\u0006',
      'data/1',
    ];
    const outcomes = await fuzz(3, seeds, words, async (source) => {
      const { tensors, files } = await openPytorch([{ input: new Uint8Array(0), source }], () => Promise.reject());
      for (const { dtype, shape, bytes, byteOffset, file } of tensors) {
        expect(bytes).toBe(tensorBytes(dtype as TensorInfo['dtype'], shape));
        const from = files[file] as ByteSource;
        expect(await from.read(byteOffset, byteOffset + bytes)).toHaveLength(bytes);
      }
    });
    expect(outcomes.accepted).toBeGreaterThan(mutations / 100);
    expect(outcomes.BAD_FILE).toBeGreaterThan(mutations / 2);
    for (const code of Object.keys(outcomes))
      expect(['BAD_FILE', 'UNKNOWN_FORMAT', 'UNSUPPORTED_DTYPE', 'accepted']).toContain(code);
  });
});

// Texts in pairs of GGUF files, against the encoder of the platform.
import { expect, it } from 'vitest';
import { pairOf } from '../../../../web/src/formats/gguf/pairs.js';

it('writes texts of all lengths of codes as UTF-8', () => {
  const edges = [0, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x10ffff];
  const characters = edges.map((code) => String.fromCodePoint(code));
  // Half of a pair is no character.
  const texts = [
    '',
    ...characters,
    '\ud800',
    'a\udc00',
    ...characters.flatMap((a) => characters.map((b) => `x${a}Ġ${b}`)),
  ];
  const { bytes } = pairOf({ name: 'k', type: 'string[]', value: texts });
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  // The key with its length, two types and a count.
  let at = 8 + 1 + 4 + 4 + 8;
  for (const text of texts) {
    const expected = new TextEncoder().encode(text);
    expect(view.getBigUint64(at, true)).toBe(BigInt(expected.length));
    expect(bytes.slice(at + 8, at + 8 + expected.length)).toEqual(expected);
    at += 8 + expected.length;
  }
  expect(at).toBe(bytes.length);
});

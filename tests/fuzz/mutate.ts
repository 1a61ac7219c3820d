// Random damage to the bytes of a file, as any reader may meet it. A format adds damage of its own, such as a word where one was.

export type Pick = (n: number) => number;

/** Damages bytes in place, at a position in [0, length]. */
export type Damage = (bytes: number[], at: number, pick: Pick) => void;

const anywhere: readonly Damage[] = [
  (bytes, at, pick) => {
    if (at < bytes.length) bytes[at] = pick(256);
  },
  (bytes, at, pick) => {
    if (at < bytes.length) bytes[at]! ^= 1 << pick(8);
  },
  (bytes, at) => void bytes.splice(at),
  (bytes, at, pick) => void bytes.splice(at, 1 + pick(12)),
  (bytes, at, pick) => {
    const from = pick(bytes.length + 1);
    bytes.splice(at, 0, ...bytes.slice(from, from + pick(60)));
  },
  (bytes, _, pick) => void bytes.push(...new Array<number>(1 + pick(64)).fill(pick(256))),
];

/** Puts one of some words at a position, in place of as many bytes or between them. */
export function someWord(words: readonly string[]): Damage {
  const encoded = words.map((word) => new TextEncoder().encode(word));
  return (bytes, at, pick) => {
    const word = encoded[pick(encoded.length)]!;
    bytes.splice(at, pick(2) * word.length, ...word);
  };
}

/**
 * A copy of a file with random damage in one place or a few.
 * @param own kinds of damage of the format, each as likely as one of those that any file may have
 * @param head three of four places are in this many bytes at the start
 * @param most places
 */
export function mutate(
  file: Uint8Array,
  pick: Pick,
  own: readonly Damage[],
  { head = Infinity, most = 2 }: { head?: number; most?: number } = {},
): Uint8Array<ArrayBuffer> {
  const bytes = [...file];
  const damage = [...anywhere, ...own];
  for (let n = 1 + pick(most); n > 0; n--) {
    const at = pick(1 + (pick(4) === 0 ? bytes.length : Math.min(bytes.length, head)));
    damage[pick(damage.length)]!(bytes, at, pick);
  }
  return Uint8Array.from(bytes);
}

/** A tokenizer.json of a byte-level vocabulary, as far as the storyteller's goes. */
export interface TokenizerFile {
  readonly model: { readonly vocab: Readonly<Record<string, number>>; readonly merges: readonly string[] };
}

/** Words as GPT-2 cuts them. */
const words = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;

/** The character that stands for each byte in a tokenizer.json: itself if it is visible, otherwise one from U+0100 on. */
const letters: readonly string[] = (() => {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const isVisible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    return String.fromCodePoint(isVisible ? byte : next++);
  });
})();

/** Texts to tokens and back. */
export class Vocabulary {
  readonly #ids: ReadonlyMap<string, number>;
  readonly #bytes: ReadonlyMap<number, readonly number[]>;
  readonly #ranks: ReadonlyMap<string, number>;

  constructor({ model }: TokenizerFile) {
    this.#ids = new Map(Object.entries(model.vocab));
    this.#ranks = new Map(model.merges.map((pair, rank) => [pair, rank]));
    const byteOf = new Map(letters.map((letter, byte) => [letter, byte]));
    this.#bytes = new Map(
      [...this.#ids].flatMap(([text, id]) => {
        const bytes = [...text].map((letter) => byteOf.get(letter));
        return bytes.includes(undefined) || /^<.+>$/.test(text) ? [] : [[id, bytes as number[]]];
      }),
    );
  }

  /** Tokens of a text. */
  encode(text: string): number[] {
    return [...text.matchAll(words)].flatMap(([word]) => {
      const parts = [...new TextEncoder().encode(word)].map((byte) => letters[byte] as string);
      // Merge the pair of the lowest rank until no pair is known.
      for (;;) {
        let best: { readonly rank: number; readonly at: number } | undefined;
        for (let at = 0; at + 1 < parts.length; at++) {
          const rank = this.#ranks.get(`${parts[at]} ${parts[at + 1]}`);
          if (rank !== undefined && (best === undefined || rank < best.rank)) best = { rank, at };
        }
        if (best === undefined) break;
        parts.splice(best.at, 2, `${parts[best.at]}${parts[best.at + 1]}`);
      }
      return parts.map((part) => this.#ids.get(part) as number);
    });
  }

  /** The text of tokens. Bytes that are not valid UTF-8 become replacement characters. */
  decode(tokens: readonly number[]): string {
    return new TextDecoder().decode(Uint8Array.from(tokens.flatMap((token) => this.#bytes.get(token) ?? [])));
  }
}

/** Words of a text with the blanks before them. */
export const wordsOf = (text: string): string[] => text.match(/\s*\S+/g) ?? [];

/**
 * For each word of a text, true if it is not part of the longest common sequence of words with another text.
 */
export function differing(text: readonly string[], other: readonly string[]): boolean[] {
  const width = other.length + 1;
  const [a, b] = [text.map((word) => word.trim()), other.map((word) => word.trim())];
  // The length of the longest common sequence of the rest of both, from each place on.
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const skipped = Math.max(lengths[(i + 1) * width + j]!, lengths[i * width + j + 1]!);
      lengths[i * width + j] = a[i] === b[j] ? lengths[(i + 1) * width + j + 1]! + 1 : skipped;
    }
  }
  const differs = a.map(() => true);
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) {
      differs[i++] = false;
      j++;
    } else if (lengths[(i + 1) * width + j]! >= lengths[i * width + j + 1]!) i++;
    else j++;
  }
  return differs;
}

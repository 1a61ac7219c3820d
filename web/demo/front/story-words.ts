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

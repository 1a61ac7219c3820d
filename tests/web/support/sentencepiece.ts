// SentencePiece's tokenizer.model, written byte by byte from the description of the format.

/** A token: text, score, type. */
export type Piece = readonly [text: string, score: number, type?: number];

function varint(value: number): number[] {
  const bytes: number[] = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    bytes.push((rest % 128) + (rest >= 128 ? 128 : 0));
    if (rest < 128) return bytes;
  }
}

export const number = (field: number, value: number) => [...varint(field * 8), ...varint(value)];
export const message = (field: number, bytes: readonly number[]) => [
  ...varint(field * 8 + 2),
  ...varint(bytes.length),
  ...bytes,
];
const text = (field: number, value: string) => message(field, [...new TextEncoder().encode(value)]);
const float = (field: number, value: number) => [
  ...varint(field * 8 + 5),
  ...new Uint8Array(new Float32Array([value]).buffer),
];

/** A tokenizer.model. `trainer` and `normalizer` are fields with numbers. */
export function sentencePieceFile(
  pieces: readonly Piece[],
  {
    trainer = { 3: 2, 35: 1 },
    normalizer = { 4: 0 },
    more = [],
  }: { trainer?: Record<number, number>; normalizer?: Record<number, number>; more?: readonly number[] } = {},
): Uint8Array<ArrayBuffer> {
  const settings = (fields: Record<number, number>) =>
    Object.entries(fields).flatMap(([field, value]) => number(Number(field), value));
  return Uint8Array.from([
    ...pieces.flatMap(([value, score, type]) =>
      message(1, [...text(1, value), ...float(2, score), ...(type === undefined ? [] : number(3, type))]),
    ),
    ...message(2, [...text(1, 'corpus.txt'), ...settings(trainer)]),
    ...message(3, [...text(1, 'identity'), ...settings(normalizer)]),
    ...more,
  ]);
}

/** The tokens of the 256 bytes. */
export const bytePieces: readonly Piece[] = Array.from({ length: 256 }, (_, i) => [
  `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`,
  0,
  6,
]);

/** The range of codes of one part and its parameters. A code restores to scale * (code - zeroPoint). */
export interface Levels {
  readonly qmin: number;
  readonly qmax: number;
  readonly scale: number;
  readonly zeroPoint: number;
}

/** The value that a code restores to, in double: the outermost levels in a picture may exceed the float32 range. */
export function levelAt({ scale, zeroPoint }: Levels, code: number): number {
  return scale * (code - zeroPoint);
}

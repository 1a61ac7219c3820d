/** The numbers of a text. */
export interface ParsedNumbers {
  readonly values: Float32Array;
  /** [rows, columns] if the lines that hold numbers are at least two, of equal length above 1; otherwise [length]. */
  readonly shape: readonly number[];
  /** The first three words that are not numbers, at most 20 characters of each. */
  readonly ignored: readonly string[];
  readonly ignoredCount: number;
}

// White space, brackets, quotes and the characters , ; : | = separate words. A word as a whole is a number or it is ignored.
const word = /[^\s,;:|()[\]{}<>"'=]+/g;
const decimal = /^[+\-\u2212]?(?:\d+\.?\d*|\.\d+)(?:[eE][+\-\u2212]?\d+)?[fF]?$/;
const special = /^([+\-\u2212]?)(?:(nan)|inf(?:inity)?|\u221e)$/i;

/** The value of a word; undefined if it is not a number. */
function parseWord(text: string): number | undefined {
  if (decimal.test(text)) return Number(text.replace(/\u2212/g, '-').replace(/f$/i, ''));
  const match = special.exec(text);
  if (match === null) return undefined;
  if (match[2] !== undefined) return Number.NaN;
  return match[1] === '' || match[1] === '+' ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
}

/**
 * Finds the numbers of a text. Other words, such as column titles, are ignored and reported. Lines with equally many numbers make a
 * matrix.
 */
export function parseNumbers(text: string): ParsedNumbers {
  const values: number[] = [];
  const ignored: string[] = [];
  let ignoredCount = 0;
  let rows = 0;
  let columns: number | undefined;
  let regular = true;
  for (const line of text.split(/\r\n|\r|\n/)) {
    const before = values.length;
    for (const [candidate] of line.matchAll(word)) {
      const value = parseWord(candidate);
      if (value !== undefined) values.push(value);
      else {
        ignoredCount++;
        if (ignored.length < 3) ignored.push(candidate.slice(0, 20));
      }
    }
    const found = values.length - before;
    if (found === 0) continue;
    rows++;
    columns ??= found;
    if (found !== columns) regular = false;
  }
  const matrix = regular && rows > 1 && (columns ?? 0) > 1;
  return {
    values: Float32Array.from(values),
    shape: matrix ? [rows, columns!] : [values.length],
    ignored,
    ignoredCount,
  };
}

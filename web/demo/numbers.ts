/** Numbers found in a text. */
export interface ParsedNumbers {
  readonly values: Float32Array;
  /** [rows, columns] when every line holds equally many numbers, otherwise [length]. */
  readonly shape: readonly number[];
  /** The first words that are no numbers, for a message. */
  readonly ignored: readonly string[];
  readonly ignoredCount: number;
}

// A number, NaN or an infinity that does not touch letters or digits on either side. Whatever else stands between is a separator.
const word = /[^\s,;:|()[\]{}<>"'=]+/g;
const decimal = /^[+\-\u2212]?(?:\d+\.?\d*|\.\d+)(?:[eE][+\-\u2212]?\d+)?[fF]?$/;
const special = /^([+\-\u2212]?)(?:(nan)|inf(?:inity)?|\u221e)$/i;

/** Reads one word; undefined if it is no number. */
function parseWord(text: string): number | undefined {
  if (decimal.test(text)) return Number(text.replace(/\u2212/g, '-').replace(/f$/i, ''));
  const match = special.exec(text);
  if (match === null) return undefined;
  if (match[2] !== undefined) return Number.NaN;
  return match[1] === '' || match[1] === '+' ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
}

/**
 * Finds the numbers of a text, whatever separates them. Words such as column titles are left out and reported.
 * Lines of equal length make a matrix.
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

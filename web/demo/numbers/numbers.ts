/** Meaning of a comma inside of a word: `1,5` is two numbers, one number, and `1,234.5` one number with a thousands separator. */
export type Comma = 'separates' | 'decimal' | 'thousands';

/** The numbers of a text. */
export interface ParsedNumbers {
  readonly values: Float32Array;
  /** [rows, columns] if the lines that hold numbers are at least two, of equal length above 1; otherwise [length]. A JSON array's own shape. */
  readonly shape: readonly number[];
  /** The first three words that are not numbers, at most 20 characters of each. */
  readonly ignored: readonly string[];
  readonly ignoredCount: number;
}

/** A text that can be read in more than one way. Nothing was read. */
export interface CommaQuestion {
  /** The word that can be read in several ways. */
  readonly word: string;
  readonly readings: readonly Comma[];
}

/** Result of reading a text: its numbers, a question, or a refusal with its reason. */
export type TextResult =
  | { readonly kind: 'numbers'; readonly parsed: ParsedNumbers }
  | { readonly kind: 'question'; readonly question: CommaQuestion }
  | { readonly kind: 'refused'; readonly why: string };

// White space, brackets, quotes and the characters ; : | = separate words. So does a comma, unless it belongs to a number.
const word = /[^\s,;:|()[\]{}<>"'=]+/g;
const wordWithCommas = /[^\s;:|()[\]{}<>"'=]+/g;
const decimal = /^[+\-\u2212]?(?:\d+\.?\d*|\.\d+)(?:[eE][+\-\u2212]?\d+)?[fF]?$/;
const special = /^([+\-\u2212]?)(?:(nan)|inf(?:inity)?|\u221e)$/i;
/** A comma between two characters of a number. One before white space always separates. */
const tightComma = /[\d.],[\d.+\-\u2212]/;
const likeDecimal = /^[+\-\u2212]?\d*,\d+(?:[eE][+\-\u2212]?\d+)?$/;
const likeThousands = /^[+\-\u2212]?\d{1,3}(?:,\d{3})+(?:\.\d*)?$/;

/** The value of a word; undefined if it is not a number. */
function parseWord(text: string): number | undefined {
  if (decimal.test(text)) return Number(text.replace(/\u2212/g, '-').replace(/f$/i, ''));
  const match = special.exec(text);
  if (match === null) return undefined;
  if (match[2] !== undefined) return Number.NaN;
  return match[1] === '' || match[1] === '+' ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
}

/** True if the commas of a text are ambiguous. A word such as `1,2,3` or `0.5,0.25` shows that they separate. */
function questionOf(text: string): CommaQuestion | undefined {
  if (!tightComma.test(text)) return undefined;
  let first: string | undefined;
  let decimals = true;
  let thousands = true;
  for (const [candidate] of text.matchAll(wordWithCommas)) {
    // Commas at the ends of a word separate it from the next one.
    const bare = candidate.replace(/^,+|,+$/g, '');
    if (!bare.includes(',') || !tightComma.test(bare)) continue;
    first ??= bare;
    decimals &&= likeDecimal.test(bare);
    thousands &&= likeThousands.test(bare);
    if (!decimals && !thousands) return undefined;
  }
  if (first === undefined) return undefined;
  const readings: Comma[] = ['separates'];
  if (decimals) readings.push('decimal');
  if (thousands) readings.push('thousands');
  return { word: first.slice(0, 20), readings };
}

/** Reads a text line by line. Lines with equally many numbers make a matrix. */
function readLines(text: string): ParsedNumbers {
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

const notNumbers =
  'This is JSON, but not a list of numbers. Paste the list alone, such as [1, 2, 3] or [[1, 2], [3, 4]].';

/** The numbers of a parsed JSON value; undefined if it holds anything else, or lists of different lengths. */
function readJson(json: unknown): ParsedNumbers | undefined {
  const shape: number[] = [];
  for (let inner = json; Array.isArray(inner); inner = inner[0]) shape.push(inner.length);
  const values: number[] = [];
  const collect = (node: unknown, depth: number): boolean => {
    if (depth === shape.length) return typeof node === 'number' && values.push(node) > 0;
    return Array.isArray(node) && node.length === shape[depth] && node.every((child) => collect(child, depth + 1));
  };
  if (shape.length === 0 || !collect(json, 0)) return undefined;
  return { values: Float32Array.from(values), shape, ignored: [], ignoredCount: 0 };
}

/**
 * Finds the numbers of a text. Words that are not numbers, such as column titles, are skipped and counted. A text that can be read in
 * several ways gives a question unless `comma` answers it.
 */
export function readText(text: string, comma?: Comma): TextResult {
  if (/^\s*[[{]/.test(text)) {
    try {
      const json: unknown = JSON.parse(text);
      const parsed = readJson(json);
      return parsed === undefined ? { kind: 'refused', why: notNumbers } : { kind: 'numbers', parsed };
    } catch {
      // Not JSON. Read a list as Python prints it as text, but refuse an object: its names are not numbers.
      if (/^\s*\{\s*"/.test(text)) return { kind: 'refused', why: notNumbers };
    }
  }
  const question = questionOf(text);
  if (question === undefined || comma === 'separates') return { kind: 'numbers', parsed: readLines(text) };
  if (comma === undefined || !question.readings.includes(comma)) return { kind: 'question', question };
  const plain = text.replace(/(\d?),(?=\d)/g, comma === 'decimal' ? '$1.' : '$1');
  return { kind: 'numbers', parsed: readLines(plain) };
}

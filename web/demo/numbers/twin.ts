import type { Bins } from '../shared/charts.js';
import { byId, html } from '../shared/dom.js';
import { formatCount, formatReal } from '../shared/format.js';
import { levelAt } from '../shared/levels.js';
import type { Slice } from './evaluate.js';

/** Most levels that are all listed. Of more, only those that some number uses are listed. */
const manyLevels = 256;
/** Most rows of the table of levels. */
const mostRows = 1024;

function rows(lines: readonly (readonly string[])[]): HTMLTableRowElement[] {
  return lines.map((cells) => html('tr', {}, ...cells.map((cell) => html('td', { class: 'number' }, cell))));
}

/** Counts the occurrences of each code from qmin to qmax. */
export function countCodes({ codes, levels }: Pick<Slice, 'codes' | 'levels'>): Uint32Array {
  const counts = new Uint32Array(levels.qmax - levels.qmin + 1);
  for (let i = 0; i < codes.length; i++) {
    const at = codes[i]! - levels.qmin;
    counts[at] = counts[at]! + 1;
  }
  return counts;
}

/** Writes the histogram as two tables, one of levels and one of bins. */
export function showTwin(slice: Slice | undefined, bins: Bins | undefined): void {
  const levelRows: string[][] = [];
  if (slice !== undefined) {
    const counts = countCodes(slice);
    for (let at = 0; at < counts.length && levelRows.length < mostRows; at++) {
      if (counts.length > manyLevels && counts[at] === 0) continue;
      const code = slice.levels.qmin + at;
      levelRows.push([String(code), formatReal(levelAt(slice.levels, code)), formatCount(counts[at]!)]);
    }
  }
  byId('twin-levels', HTMLElement).replaceChildren(...rows(levelRows));
  const binRows: string[][] = [];
  if (bins !== undefined) {
    const step = (bins.max - bins.min) / bins.counts.length;
    for (let i = 0; i < bins.counts.length; i++) {
      binRows.push([
        formatReal(bins.min + i * step),
        formatReal(bins.min + (i + 1) * step),
        formatCount(bins.counts[i]!),
      ]);
    }
  }
  byId('twin-bins', HTMLElement).replaceChildren(...rows(binRows));
}

import type { Bins } from '../shared/charts.js';
import { byId } from '../shared/dom.js';
import { formatCount, formatReal } from '../shared/format.js';
import { type Levels, levelAt } from '../shared/levels.js';
import { html, render } from '../shared/template.js';

/** Most levels that are all listed. Of more, only those that some number uses are listed. */
const manyLevels = 256;
/** Most rows of the table of levels. */
const mostRows = 1024;

const rows = (lines: readonly (readonly string[])[]) =>
  lines.map((cells) => html`<tr>${cells.map((cell) => html`<td class="number">${cell}</td>`)}</tr>`);

function levelLines(levels: Levels, counts: Uint32Array): string[][] {
  const lines: string[][] = [];
  for (let at = 0; at < counts.length && lines.length < mostRows; at++) {
    if (counts.length > manyLevels && counts[at] === 0) continue;
    const code = levels.qmin + at;
    lines.push([String(code), formatReal(levelAt(levels, code)), formatCount(counts[at]!)]);
  }
  return lines;
}

function binLines({ min, max, counts }: Bins): string[][] {
  const step = (max - min) / counts.length;
  return Array.from(counts, (count, i) => [
    formatReal(min + i * step),
    formatReal(min + (i + 1) * step),
    formatCount(count),
  ]);
}

/** Writes the histogram as two tables, one of levels and one of bins. */
export function showTwin(levels: Levels | undefined, counts: Uint32Array | undefined, bins: Bins | undefined): void {
  const lines = levels === undefined || counts === undefined ? [] : levelLines(levels, counts);
  render(rows(lines), byId('twin-levels', HTMLElement));
  render(rows(bins === undefined ? [] : binLines(bins)), byId('twin-bins', HTMLElement));
}

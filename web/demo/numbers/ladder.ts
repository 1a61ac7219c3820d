import type { Scalepoint } from 'scalepoint';
import { byId, html, setText } from '../shared/dom.js';
import { formatBytes, formatCount, formatDecibels } from '../shared/format.js';
import type { DataSet } from './data.js';
import { countBytes, evaluate } from './evaluate.js';
import { bitWidths, type Settings } from './settings.js';

/** Most numbers to quantize at each of the eight bit widths. Of larger data a sample is taken. */
const mostNumbers = 65_536;
/** SQNR in dB at which a bar fills its cell. 16 bits reach about 90 dB. */
const fullBar = 96;

/** Measures the settings at every bit width and shows SQNR and bytes in a table with bars. */
export function showLadder(
  core: Scalepoint,
  data: DataSet,
  settings: Settings,
  choose: (bits: Settings['bits']) => void,
): void {
  const rows = bitWidths.map((bits) => {
    const there = { ...settings, bits };
    const { comparison, exact, values } = evaluate(core, data, there, mostNumbers);
    return { bits, sqnrDb: comparison.sqnrDb, bytes: countBytes(data, there).after, exact, used: values.length };
  });
  const [first] = rows;
  setText(
    byId('ladder-basis', HTMLElement),
    first === undefined || first.exact ? 'the same numbers' : `a sample of ${formatCount(first.used)} numbers`,
  );
  const body = byId('ladder', HTMLElement);
  // Replacing the rows drops the focus of a button, so it is restored below.
  const focused = document.activeElement instanceof HTMLButtonElement ? document.activeElement.dataset.bits : undefined;
  body.replaceChildren(
    ...rows.map(({ bits, sqnrDb, bytes }) => {
      const current = bits === settings.bits;
      const button = html(
        'button',
        { type: 'button', class: 'link', 'data-bits': bits, 'aria-pressed': String(current) },
        `${bits} bits`,
      );
      button.addEventListener('click', () => choose(bits));
      const bar = html('span', { class: 'bar-fill' });
      const share = sqnrDb === Number.POSITIVE_INFINITY ? 1 : Math.max(0, Math.min(1, sqnrDb / fullBar));
      bar.style.setProperty('--share', String(share || 0));
      return html(
        'tr',
        { class: current ? 'current' : false },
        html('th', { scope: 'row' }, button),
        html('td', { class: 'grow' }, html('span', { class: 'meter' }, bar, html('span', {}, formatDecibels(sqnrDb)))),
        html('td', { class: 'number' }, formatBytes(bytes)),
      );
    }),
  );
  if (focused !== undefined) body.querySelector<HTMLElement>(`[data-bits="${focused}"]`)?.focus();
}
